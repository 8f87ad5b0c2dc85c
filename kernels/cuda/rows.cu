/* rows.cu -- embedding, rotary positions and the KV pages. Each kernel reads and writes every
 * element once; beside the products they take no time worth speaking of, so they are written to be
 * plain. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/kv_store.cuh"

namespace
{

constexpr int THREADS = 256;

/* --- embedding ----------------------------------------------------------------------------- */

/* A block a token: the residual, the rotary table and, for the fused products, x in fragments with
 * a sum of squares for each 16 elements (a half warp holds them). */
template <class T> __global__ void embed(const struct cuda_embed a)
{
    const uint32_t token = blockIdx.x, width = a.rows.width, thread = threadIdx.x;

    dependents_launch();
    dependency_wait();
    const struct cuda_token placed = a.rows.placed[token];
    const bool used = placed.row != CUDA_ROW_NONE;
    const T *from = static_cast<const T *>(a.table) + (used ? (size_t)placed.token * width : 0);
    float *residual = a.rows.residual + (size_t)token * width;
    const uint32_t groups = (width + 15) / 16;

    for (uint32_t start = 0; start < groups * 16; start += THREADS) {
        uint32_t i = start + thread;
        float v = used && i < width ? to_float(from[i]) : 0.0f, square = v * v;

        if (i < width)
            residual[i] = v;
        if (a.tiles == 0)
            continue;
#pragma unroll
        for (int distance = 8; distance > 0; distance /= 2)
            square += __shfl_xor_sync(ALL_LANES, square, distance);
        if (i < width)
            static_cast<T *>(a.x)[cuda_fragment(token, i, a.tiles)] = from_float<T>(v * a.gamma[i]);
        if (i < width && i % 16 == 0)
            a.squares[(size_t)token * groups + i / 16] = square;
    }
    for (uint32_t pair = thread; pair < a.rotary_pairs; pair += THREADS) {
        float sine, cosine;

        sincosf((float)placed.position * a.frequencies[pair], &sine, &cosine);
        reinterpret_cast<float2 *>(a.rotary)[(size_t)token * a.rotary_pairs + pair] =
            make_float2(cosine, sine);
    }
    if (token == 0 && thread == 0)
        ++*a.step;
}

/* --- q, k, v ------------------------------------------------------------------------------- */

/* A warp a head: of q, then k, then v. `head_size` <= 256: at most 8 elements a lane. */
template <class T> __global__ void finish_qkv(const struct cuda_qkv a)
{
    const uint32_t warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t heads = a.heads + 2 * a.kv_heads, token = blockIdx.y, size = a.head_size;
    extern __shared__ float shared[];
    float *v = shared + threadIdx.x / 32 * size; /* the head */

    dependents_launch();
    dependency_wait();
    if (warp >= heads)
        return;
    const struct cuda_token placed = a.rows.placed[token];
    const bool is_q = warp < a.heads, is_v = warp >= a.heads + a.kv_heads;
    const T *from = static_cast<const T *>(a.qkv) + ((size_t)token * heads + warp) * size;
    const float *gamma = is_q ? a.q_norm : is_v ? nullptr : a.k_norm;
    float sum = 0.0f;

    if (placed.row == CUDA_ROW_NONE)
        return;
    for (uint32_t i = lane; i < size; i += 32) {
        v[i] = to_float(from[i]) + (a.bias ? a.bias[warp * size + i] : 0.0f);
        sum += v[i] * v[i];
    }
    __syncwarp();
    if (gamma) {
        const float scale = rsqrtf(warp_sum(sum) / (float)size + a.rows.epsilon);
        for (uint32_t i = lane; i < size; i += 32)
            v[i] *= scale * gamma[i];
        __syncwarp();
    }
    if (!is_v)
        for (uint32_t pair = lane; pair < a.rotary.size / 2; pair += 32) {
            uint32_t first, second;

            pair_elements(a.rotary, pair, &first, &second);
            rotate(a.rotary, token, pair, &v[first], &v[second]);
        }
    __syncwarp();
    for (uint32_t i = lane; i < size; i += 32)
        if (is_q)
            static_cast<T *>(a.q)[((size_t)token * a.heads + warp) * size + i] =
                from_float<T>(v[i]);
        else
            store_kv<T>(a, placed, (warp - a.heads) % a.kv_heads, is_v, i, v[i]);
}

/* --- by type ------------------------------------------------------------------------------- */

template <class T>
int launch_qkv(const struct cuda_stream *stream, const struct cuda_qkv *a, bool dependent)
{
    const uint32_t warps = THREADS / 32, heads = a->heads + 2 * a->kv_heads;
    const struct cuda_grid grid = {(heads + warps - 1) / warps,          a->rows.tokens, 1, THREADS,
                                   warps * a->head_size * sizeof(float), dependent};

    return launch(stream, grid, finish_qkv<T>, *a);
}

template <class T>
int launch_embed(const struct cuda_stream *stream, const struct cuda_embed *a, bool dependent)
{
    return launch(stream, cuda_grid{a->rows.tokens, 1, 1, THREADS, 0, dependent}, embed<T>, *a);
}

} /* namespace */

extern "C" int cuda_embed(const struct cuda_stream *stream, const struct cuda_embed *a,
                          bool dependent)
{
    return a->rows.type == DT_BF16  ? launch_embed<bf16>(stream, a, dependent)
           : a->rows.type == DT_F16 ? launch_embed<f16>(stream, a, dependent)
                                    : launch_embed<float>(stream, a, dependent);
}

extern "C" int cuda_qkv(const struct cuda_stream *stream, const struct cuda_qkv *a, bool dependent)
{
    return a->rows.type == DT_BF16  ? launch_qkv<bf16>(stream, a, dependent)
           : a->rows.type == DT_F16 ? launch_qkv<f16>(stream, a, dependent)
                                    : launch_qkv<float>(stream, a, dependent);
}
