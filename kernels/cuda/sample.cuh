/* sample.cuh -- what the two kernels of sampling share: where the first leaves what it found, and
 * the arithmetic of kernels/cpu/sample.c, bit for bit where a choice hangs on it.
 *
 *     logits [outputs][stride]
 *         |  sample_tiles.cu: a quarter warp's eighth for each tile of 64 tokens
 *         v
 *     best, sums, raw [outputs][tiles]; processed [outputs][tiles * 64] where logits are changed
 *         |  sample.cu: one block for each output
 *         v
 *     choices, rows, counts
 *
 * Weights are exp((logit - max) / temperature). Sums that decide are of whole numbers (a weight
 * times 2^FIXED_BITS): the order of their additions does not matter, so a row gives the same token
 * whatever runs beside it. */
#ifndef WEFT_CUDA_SAMPLE_CUH
#define WEFT_CUDA_SAMPLE_CUH

#include <float.h>
#include <math.h>

#include "kernels/cuda/common.cuh"

enum {
    TILE = 64,      /* tokens that have one entry in the statistics */
    TILE_LANES = 4, /* threads that read one, 4 x 4 logits each */
    TILE_PARTS = TILE / TILE_LANES / 4,
    FIXED_BITS = 42,
};
constexpr uint32_t VOCABULARY_MAX = 1u << 20; /* sums of as many weights fit 64 bits */

/* What the first kernel leaves in the scratch. */
struct sample_stats {
    uint32_t tiles;
    uint2 *best;      /* [outputs][tiles] largest logit to draw from, and its token */
    float *sums;      /* [outputs][tiles] of exp((logit - largest) / temperature) */
    float2 *raw;      /* [outputs][tiles] largest raw logit, sum of exp(raw - largest) */
    float *processed; /* [outputs][tiles * TILE] after bias, penalties, bans and mask */
};

int sample_tiles_launch(const struct cuda_stream *stream, const struct cuda_sample *args,
                        const struct sample_stats *stats, uint32_t output_count, bool dependent);

/* In place of a tile's largest logit when the row's mask was late. */
constexpr uint32_t LATE_BITS = 0x7fc00000u;

/* --- which row does what ------------------------------------------------------------------- */

__device__ __forceinline__ bool bans_stops(const struct cuda_sampling &sampling,
                                           const struct cuda_output &output)
{
    return sampling.stop_count > 0 && output.generated < sampling.min_tokens;
}

/* Does the row draw from other values than the raw logits? */
__device__ __forceinline__ bool processes(const struct cuda_sampling &sampling,
                                          const struct cuda_output &output)
{
    return sampling.bias_count > 0 || sampling.counted || bans_stops(sampling, output) ||
           (output.flags & CUDA_OUTPUT_MASKED);
}

__device__ __forceinline__ int32_t logprobs_wanted(const struct cuda_sampling &sampling,
                                                   const struct cuda_output &output)
{
    if (output.target < 0)
        return sampling.logprobs;
    return sampling.prompt_logprobs > 0 ? sampling.prompt_logprobs : 0;
}

__device__ __forceinline__ float inverse_temperature(const struct cuda_sampling &sampling)
{
    return __fdiv_rn(1.0f, fmaxf(sampling.temperature, 1e-30f));
}

/* --- values -------------------------------------------------------------------------------- */

/* One row of values, raw or processed. */
struct row_view {
    const float *values;
    uint32_t count;
    bool aligned; /* to 16 bytes */
    bool clamped; /* infinity reads as the largest finite number, so that differences are numbers */
};

__device__ __forceinline__ struct row_view view_of(const float *values, uint32_t count,
                                                   bool clamped)
{
    return {values, count, (uintptr_t)values % 16 == 0, clamped};
}

/* NaN counts as -infinity. */
__device__ __forceinline__ float view_value(const struct row_view &view, float value)
{
    value = value == value ? value : -INFINITY;
    return view.clamped ? fminf(value, FLT_MAX) : value;
}

/* Values at .. at + 3 as they are stored; -infinity behind the row's end. */
__device__ __forceinline__ float4 view_four(const struct row_view &view, uint32_t at)
{
    float4 four = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};

    if (view.aligned && at + 4 <= view.count)
        return __ldcg(reinterpret_cast<const float4 *>(view.values + at));
    if (at < view.count)
        four.x = __ldcg(view.values + at);
    if (at + 1 < view.count)
        four.y = __ldcg(view.values + at + 1);
    if (at + 2 < view.count)
        four.z = __ldcg(view.values + at + 2);
    if (at + 3 < view.count)
        four.w = __ldcg(view.values + at + 3);
    return four;
}

/* A number that rises with the value: -infinity gives the least that occurs. */
__device__ __forceinline__ uint32_t order_of(float value)
{
    uint32_t bits = __float_as_uint(value + 0.0f); /* -0 and 0 are the same */

    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
constexpr uint32_t ORDER_OF_NOTHING = 0x007fffffu; /* of -infinity */

__device__ __forceinline__ float value_of(uint32_t order)
{
    return __uint_as_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

/* --- weights ------------------------------------------------------------------------------- */

/* logits_exp() of kernels/cpu/logits.c with the same steps, none of them fused. */
__device__ __forceinline__ float weight_exp(float x)
{
    float n, r, p;
    int exponent;

    if (!(x >= -87.0f))
        return 0.0f;
    exponent = (int)__fsub_rn(__fmul_rn(x, 1.44269504f), 0.5f);
    n = (float)exponent;
    r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0.693145752f)), __fmul_rn(n, 1.42860677e-6f));
    p = __fadd_rn(1.0f / 720, __fmul_rn(r, 1.0f / 5040));
    p = __fadd_rn(1.0f / 120, __fmul_rn(r, p));
    p = __fadd_rn(1.0f / 24, __fmul_rn(r, p));
    p = __fadd_rn(1.0f / 6, __fmul_rn(r, p));
    p = __fadd_rn(1.0f / 2, __fmul_rn(r, p));
    p = __fadd_rn(1.0f, __fmul_rn(r, p));
    p = __fadd_rn(1.0f, __fmul_rn(r, p));
    return __fmul_rn(p, __uint_as_float((uint32_t)(exponent + 127) << 23));
}

__device__ __forceinline__ unsigned long long weight_fixed(float weight)
{
    return __float2ull_rn(__fmul_rn(weight, (float)(1ull << FIXED_BITS)));
}

#endif
