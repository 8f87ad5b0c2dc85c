/* between.cu -- what is computed between cuBLAS's products: RMSNorm and SwiGLU (the fused products
 * of few rows have both within them). A few microseconds each, most of them for waiting: for memory
 * once, and for the kernel ahead no longer than its end. */
#include "kernels/cuda/common.cuh"

namespace
{

/* Neighbours that are moved at once. */
template <class T, int COUNT> struct alignas(COUNT * sizeof(T)) Elements {
    T v[COUNT];
};

/* --- norm ---------------------------------------------------------------------------------- */

constexpr int NORM_THREADS = 512;

struct Norm {
    struct cuda_rows rows;
    const float *gamma;
    const struct cuda_output *outputs;
    void *x;
};

__device__ __forceinline__ const float *residual_of(const Norm &a)
{
    const uint32_t token = a.outputs ? a.outputs[blockIdx.x].token : blockIdx.x;

    return a.rows.residual + (size_t)token * a.rows.width;
}

__device__ __forceinline__ float scale_of(const Norm &a, float sum, float *shared)
{
    return rsqrtf(block_sum(sum, shared) / (float)a.rows.width + a.rows.epsilon);
}

/* A block a row, which its threads hold: up to EACH groups of four elements in each. */
template <class T, int EACH>
__global__ void __launch_bounds__(NORM_THREADS) norm_fours(const Norm a)
{
    using Four = Elements<T, 4>;
    __shared__ float sums[33];
    const uint32_t fours = a.rows.width / 4;
    float4 v[EACH], g[EACH];
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t at = i * NORM_THREADS + threadIdx.x;

        g[i] = at < fours ? reinterpret_cast<const float4 *>(a.gamma)[at] : float4{};
    }
    dependents_launch();
    dependency_wait();
    const float4 *from = reinterpret_cast<const float4 *>(residual_of(a));
    Four *to = reinterpret_cast<Four *>(static_cast<T *>(a.x) + (size_t)blockIdx.x * a.rows.width);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t at = i * NORM_THREADS + threadIdx.x;

        v[i] = at < fours ? from[at] : float4{};
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        sum += v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w;
    const float scale = scale_of(a, sum, sums);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const uint32_t at = i * NORM_THREADS + threadIdx.x;

        if (at < fours)
            to[at] = Four{
                from_float<T>(v[i].x * scale * g[i].x), from_float<T>(v[i].y * scale * g[i].y),
                from_float<T>(v[i].z * scale * g[i].z), from_float<T>(v[i].w * scale * g[i].w)};
    }
}

/* Any width. */
template <class T> __global__ void __launch_bounds__(NORM_THREADS) norm_any(const Norm a)
{
    __shared__ float sums[33];
    float sum = 0.0f;

    dependents_launch();
    dependency_wait();
    const float *from = residual_of(a);
    T *to = static_cast<T *>(a.x) + (size_t)blockIdx.x * a.rows.width;

    for (uint32_t i = threadIdx.x; i < a.rows.width; i += NORM_THREADS)
        sum += from[i] * from[i];
    const float scale = scale_of(a, sum, sums);
    for (uint32_t i = threadIdx.x; i < a.rows.width; i += NORM_THREADS)
        to[i] = from_float<T>(from[i] * scale * a.gamma[i]);
}

template <class T> int norm(const struct cuda_stream *stream, const Norm &a, uint32_t count)
{
    const uint32_t width = a.rows.width, each = (width / 4 + NORM_THREADS - 1) / NORM_THREADS;
    const struct cuda_grid grid = {count, 1, 1, NORM_THREADS, 0, true};

    return width % 4 != 0 || each > 8 ? launch(stream, grid, norm_any<T>, a)
           : each <= 1                ? launch(stream, grid, norm_fours<T, 1>, a)
           : each <= 2                ? launch(stream, grid, norm_fours<T, 2>, a)
           : each <= 4                ? launch(stream, grid, norm_fours<T, 4>, a)
                                      : launch(stream, grid, norm_fours<T, 8>, a);
}

/* --- SwiGLU -------------------------------------------------------------------------------- */

constexpr int SWIGLU_THREADS = 256;

/* A thread has COUNT neighbours. */
template <class T, int COUNT> __global__ void swiglu_groups(uint32_t ffn, const T *gate_up, T *x)
{
    using Group = Elements<T, COUNT>;
    const uint32_t i = blockIdx.x * SWIGLU_THREADS + threadIdx.x, groups = ffn / COUNT;
    const Group *row = reinterpret_cast<const Group *>(gate_up + (size_t)blockIdx.y * 2 * ffn);

    dependents_launch();
    dependency_wait();
    if (i >= groups)
        return;
    const Group gate = row[i], up = row[groups + i];
    Group hidden;
#pragma unroll
    for (int e = 0; e < COUNT; e++) {
        float g = to_float(gate.v[e]);

        hidden.v[e] = from_float<T>(saturated<T>(g / (1.0f + __expf(-g)) * to_float(up.v[e])));
    }
    reinterpret_cast<Group *>(x + (size_t)blockIdx.y * ffn)[i] = hidden;
}

template <class T, int COUNT>
int swiglu_by(const struct cuda_stream *stream, uint32_t tokens, uint32_t ffn, const void *gate_up,
              void *x)
{
    const uint32_t blocks = (ffn / COUNT + SWIGLU_THREADS - 1) / SWIGLU_THREADS;

    return launch(stream, cuda_grid{blocks, tokens, 1, SWIGLU_THREADS, 0, true},
                  swiglu_groups<T, COUNT>, ffn, static_cast<const T *>(gate_up),
                  static_cast<T *>(x));
}

template <class T>
int swiglu(const struct cuda_stream *stream, uint32_t tokens, uint32_t ffn, const void *gate_up,
           void *x)
{
    constexpr int MOST = 16 / sizeof(T);

    return ffn % MOST == 0 ? swiglu_by<T, MOST>(stream, tokens, ffn, gate_up, x)
                           : swiglu_by<T, 1>(stream, tokens, ffn, gate_up, x);
}

} /* namespace */

extern "C" int cuda_norm(const struct cuda_stream *stream, const struct cuda_rows *rows,
                         const float *gamma, const struct cuda_output *outputs, uint32_t count,
                         void *x)
{
    const Norm a = {*rows, gamma, outputs, x};

    return rows->type == DT_BF16  ? norm<bf16>(stream, a, count)
           : rows->type == DT_F16 ? norm<f16>(stream, a, count)
                                  : norm<float>(stream, a, count);
}

extern "C" int cuda_swiglu(const struct cuda_stream *stream, enum dtype type, uint32_t tokens,
                           uint32_t ffn, const void *gate_up, void *x)
{
    return type == DT_BF16  ? swiglu<bf16>(stream, tokens, ffn, gate_up, x)
           : type == DT_F16 ? swiglu<f16>(stream, tokens, ffn, gate_up, x)
                            : swiglu<float>(stream, tokens, ffn, gate_up, x);
}
