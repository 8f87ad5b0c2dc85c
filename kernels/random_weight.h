/* random_weight.h -- weights without a checkpoint: any element of any tensor, computed from its
 * number alone.
 *
 *     value(tensor, i) = (sum of four 16-bit pieces of hash(seed(tensor's name) + i) + offset) step
 *
 * The sum of four uniform pieces is close to normal (nothing is further out than 3.46 deviations).
 * Everything up to the sum is integer arithmetic, and its only rounding is one multiplication: the
 * same bits come out on every processor, in any order, on any number of threads. Element i of a
 * tensor [rows][columns] is row x columns + column.
 *
 * Plain C and CUDA alike. */
#ifndef WEFT_RANDOM_WEIGHT_H
#define WEFT_RANDOM_WEIGHT_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define RANDOM_WEIGHT_FUNCTION static inline __host__ __device__
#else
#define RANDOM_WEIGHT_FUNCTION static inline
#endif

/* Of the sum of the four pieces: sqrt((65536^2 - 1) / 3). */
#define RANDOM_WEIGHT_DEVIATION 37837.2f

struct random_weight {
    uint64_t seed;
    int32_t offset; /* centre / step */
    float step;
};

/* FNV-1a of the tensor's name. */
RANDOM_WEIGHT_FUNCTION uint64_t random_weight_seed(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    return hash;
}

/* Values around `centre`, `deviation` (above 0) from it on average (root of the mean square). */
RANDOM_WEIGHT_FUNCTION struct random_weight random_weight_make(const char *name, float centre,
                                                               float deviation)
{
    struct random_weight weight;

    weight.seed = random_weight_seed(name);
    weight.step = deviation / RANDOM_WEIGHT_DEVIATION;
    weight.offset = (int32_t)(centre / weight.step);
    return weight;
}

RANDOM_WEIGHT_FUNCTION float random_weight_value(struct random_weight weight, uint64_t index)
{
    /* The generator SplitMix64, entered at its index-th number (Steele, Lea and Flood, 2014). */
    uint64_t bits = weight.seed + (index + 1) * 0x9e3779b97f4a7c15u;
    int32_t sum;

    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
          (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48) - 2 * 0xffff;
    return (float)(sum + weight.offset) * weight.step;
}

/* The bits of the nearest bfloat16, ties to even: as the value is stored. */
RANDOM_WEIGHT_FUNCTION uint16_t random_weight_bf16(struct random_weight weight, uint64_t index)
{
    float value = random_weight_value(weight, index);
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
