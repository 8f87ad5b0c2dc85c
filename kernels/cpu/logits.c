/* logits.c -- see logits.h.
 *
 * Each pass is written once and compiled for each instruction set, chosen when it is called. The
 * sums run in the same order everywhere and nothing is contracted to a fused multiply-add, so all
 * give the same bits. */
#include "kernels/cpu/logits.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 }; /* independent float sums: wide enough for every vector unit */
/* exp(-87) is the smallest result that is a normal float; what lies below weighs nothing. */
static const float EXPONENT_LOW = -87.0f;
static const int32_t EXPONENT_LOW_BITS = 0x42ae0000; /* of 87.0f */

#define INLINE static inline __attribute__((always_inline))

/* Said as vectors because gcc does not vectorise a loop with a selection in it under strict
 * floating-point rules. */
typedef float lanes_f32 __attribute__((vector_size(4 * LANES)));
typedef int32_t lanes_i32 __attribute__((vector_size(4 * LANES)));

/* exp(x) for x <= 0 or NaN, relative error below 2e-7, exactly 1 at 0; 0 below EXPONENT_LOW and for
 * NaN. Cut down to n ln 2 + r with |r| <= 0.35, then a Taylor polynomial. The same steps for one
 * number and for LANES. */
#define EXP_N(x)    ((x)*1.44269504f - 0.5f)
#define EXP_R(x, n) (((x) - (n)*0.693145752f) - (n)*1.42860677e-6f)
#define EXP_TAIL(r) (1.0f / 24 + (r) * (1.0f / 120 + (r) * (1.0f / 720 + (r) * (1.0f / 5040))))
#define EXP_P(r)    (1.0f + (r) * (1.0f + (r) * (1.0f / 2 + (r) * (1.0f / 6 + (r)*EXP_TAIL(r)))))

float logits_exp(float x)
{
    float n, scale;
    int32_t exponent, bits;

    if (!(x >= EXPONENT_LOW))
        return 0.0f;
    exponent = (int32_t)EXP_N(x);
    n = (float)exponent;
    bits = (exponent + 127) << 23;
    memcpy(&scale, &bits, sizeof scale);
    return EXP_P(EXP_R(x, n)) * scale;
}

/* gcc compares vectors wider than the machine's one element at a time, so the range is checked in
 * the bits: of a negative number they rise with its size, and NaN's lie above all others. */
INLINE void exp_lanes(lanes_f32 *x)
{
    lanes_i32 size = (lanes_i32)*x & 0x7fffffff;
    lanes_i32 normal = ~((EXPONENT_LOW_BITS - size) >> 31), exponent;
    lanes_f32 at = (lanes_f32)((lanes_i32)*x & normal), n, r;

    exponent = __builtin_convertvector(EXP_N(at), lanes_i32);
    n = __builtin_convertvector(exponent, lanes_f32);
    r = EXP_R(at, n);
    at = EXP_P(r) * (lanes_f32)((exponent + 127) << 23);
    *x = (lanes_f32)((lanes_i32)at & normal);
}

INLINE void lanes_read(lanes_f32 *ret_lanes, const float *from)
{
    memcpy(ret_lanes, from, sizeof *ret_lanes);
}

INLINE float row_max_body(const float *row, uint32_t count)
{
    lanes_f32 best = (lanes_f32){0} - INFINITY, x;
    float max = -INFINITY;
    uint32_t i = 0;

    for (; i + LANES <= count; i += LANES) {
        lanes_read(&x, row + i);
        lanes_i32 better = x > best;
        best = (lanes_f32)(((lanes_i32)x & better) | ((lanes_i32)best & ~better));
    }
    for (; i < count; i++)
        max = row[i] > max ? row[i] : max;
    for (int j = 0; j < LANES; j++)
        max = best[j] > max ? best[j] : max;
    return max;
}

/* Sums a block in LANES partial sums; always the same order. */
INLINE float block_sum_body(const float *block)
{
    lanes_f32 sums = {0}, x;
    float sum = 0.0f;

    for (int i = 0; i < LOGITS_BLOCK; i += LANES) {
        lanes_read(&x, block + i);
        sums += x;
    }
    for (int j = 0; j < LANES; j++)
        sum += sums[j];
    return sum;
}

/* The weights of one block, stored and summed as block_sum_body() does. `to` may be `from`. */
INLINE float block_weigh(const float *from, float max, float inverse, float *to)
{
    lanes_f32 sums = {0}, x;
    float sum = 0.0f;

    for (int i = 0; i < LOGITS_BLOCK; i += LANES) {
        lanes_read(&x, from + i);
        x = (x - max) * inverse;
        exp_lanes(&x);
        memcpy(to + i, &x, sizeof x);
        sums += x;
    }
    for (int j = 0; j < LANES; j++)
        sum += sums[j];
    return sum;
}

/* Sum of the weights; also stores them where `weights` is not NULL (it may be the row itself). */
INLINE double row_weigh_body(const float *row, uint32_t count, float max, float inverse,
                             float *weights)
{
    float block[LOGITS_BLOCK];
    double total = 0.0;
    uint32_t whole = count / LOGITS_BLOCK * LOGITS_BLOCK, rest = count - whole;

    for (uint32_t i = 0; i < whole; i += LOGITS_BLOCK)
        total += (double)block_weigh(row + i, max, inverse, weights ? weights + i : block);
    if (rest > 0) {
        memcpy(block, row + whole, rest * sizeof *block);
        for (uint32_t i = rest; i < LOGITS_BLOCK; i++)
            block[i] = -INFINITY;
        total += (double)block_weigh(block, max, inverse, block);
        if (weights)
            memcpy(weights + whole, block, rest * sizeof *block);
    }
    return total;
}

INLINE uint32_t row_greater_body(const float *row, uint32_t count, float value)
{
    uint32_t greater = 0;

    for (uint32_t i = 0; i < count; i++)
        greater += row[i] > value;
    return greater;
}

struct passes {
    float (*max)(const float *row, uint32_t count);
    double (*weigh)(const float *row, uint32_t count, float max, float inverse, float *weights);
    float (*block_sum)(const float *block);
    uint32_t (*greater)(const float *row, uint32_t count, float value);
};

#define PASSES(suffix, attribute)                                                                 \
    attribute static float row_max_##suffix(const float *row, uint32_t count)                     \
    {                                                                                             \
        return row_max_body(row, count);                                                          \
    }                                                                                             \
    attribute static double row_weigh_##suffix(const float *row, uint32_t count, float max,       \
                                               float inverse, float *weights)                     \
    {                                                                                             \
        return row_weigh_body(row, count, max, inverse, weights);                                 \
    }                                                                                             \
    attribute static float block_sum_##suffix(const float *block)                                 \
    {                                                                                             \
        return block_sum_body(block);                                                             \
    }                                                                                             \
    attribute static uint32_t row_greater_##suffix(const float *row, uint32_t count, float value) \
    {                                                                                             \
        return row_greater_body(row, count, value);                                               \
    }                                                                                             \
    static const struct passes passes_##suffix = {row_max_##suffix, row_weigh_##suffix,           \
                                                  block_sum_##suffix, row_greater_##suffix}

PASSES(plain, );
#ifdef __x86_64__
PASSES(avx2, __attribute__((target("avx2"))));
PASSES(avx512, __attribute__((target("avx512f"))));
#endif

static const struct passes *passes_get(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return &passes_avx512;
    if (__builtin_cpu_supports("avx2"))
        return &passes_avx2;
#endif
    return &passes_plain;
}

float logits_max(const float *row, uint32_t count)
{
    return passes_get()->max(row, count);
}

double logits_weigh(const float *row, uint32_t count, float max, float inverse, float *weights)
{
    return passes_get()->weigh(row, count, max, inverse, weights);
}

float logits_block_sum(const float block[LOGITS_BLOCK])
{
    return passes_get()->block_sum(block);
}

uint32_t logits_greater(const float *row, uint32_t count, float value)
{
    return passes_get()->greater(row, count, value);
}
