/* general.cuh -- what the general kernels share.
 *
 * Each is a block's loop with strides of blockDim.x and warpSize, right for any number of threads:
 * plain rather than fast, as beside the products they take little. */
#ifndef WEFT_CUDA_GENERAL_CUH
#define WEFT_CUDA_GENERAL_CUH

#include "kernels/cuda/common.cuh"
#include "kernels/cuda/general.h"

/* x of a row normed: (x - mean) * inverse * gain + bias. */
struct norm_sums {
    float mean;
    float inverse;
};

/* Of `count` values that `value(i)` gives; by the whole block. `shared` holds 33 floats. */
template <class Value>
__device__ __forceinline__ struct norm_sums block_norm(uint32_t count, uint32_t centred,
                                                       float epsilon, float *shared, Value value)
{
    struct norm_sums sums = {0.0f, 1.0f};
    float sum = 0.0f;

    if (centred) {
        for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
            sum += value(i);
        sums.mean = block_sum(sum, shared) / (float)count;
        sum = 0.0f;
    }
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        const float v = value(i) - sums.mean;

        sum += v * v;
    }
    sums.inverse = rsqrtf(block_sum(sum, shared) / (float)count + epsilon);
    return sums;
}

__device__ __forceinline__ float normed(const struct cuda_norm_form &norm,
                                        const struct norm_sums &sums, float v, uint32_t i)
{
    return (v - sums.mean) * sums.inverse * norm.gain[i] + (norm.bias ? norm.bias[i] : 0.0f);
}

/* Where an element of a key (half 0) or value (half 1) lies, counted in elements of T. */
template <class T>
__device__ __forceinline__ size_t kv_element(const struct cuda_general_kv &kv, uint32_t page,
                                             uint32_t kv_head, uint32_t half, uint32_t place,
                                             uint32_t element)
{
    constexpr uint32_t COUNT = 16 / sizeof(T);
    const uint32_t size = half ? kv.value_size : kv.head_size;
    const uint32_t chunk = cuda_kv_chunk(element / COUNT, size / COUNT, place);
    const size_t block = ((size_t)page * kv.kv_heads + kv_head) * (kv.head_size + kv.value_size) +
                         (half ? kv.head_size : 0);

    return block * CUDA_PAGE_TOKENS + (size_t)place * size + chunk * COUNT + element % COUNT;
}

/* A row of the grid for each of `rows`, by element type. */
#define GENERAL_LAUNCH(type_, stream_, grid_, kernel_, ...)                       \
    ((type_) == DT_BF16  ? launch((stream_), (grid_), kernel_<bf16>, __VA_ARGS__) \
     : (type_) == DT_F16 ? launch((stream_), (grid_), kernel_<f16>, __VA_ARGS__)  \
                         : launch((stream_), (grid_), kernel_<float>, __VA_ARGS__))

#endif
