/* rows.cu -- embedding, rotary positions and the KV pages. Each kernel reads and writes every
 * element once; beside the products they take no time worth speaking of, so they are written to be
 * plain, but the embedding, which every step begins with, asks for all that it reads at once. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/kv_store.cuh"

namespace
{

constexpr int THREADS = 256;

/* --- embedding ----------------------------------------------------------------------------- */

/* Neighbours that a thread embeds at once, so that their loads are all on the way together: one
 * after another they would take as long as a product. What a fragment has of one token, and a sum
 * of squares is of. */
constexpr uint32_t GROUP = 16;
template <class T> struct alignas(GROUP * sizeof(T)) Group {
    T v[GROUP];
};

/* Of `count` elements from `from` on; whole groups are aligned where rows are whole groups. */
template <class T>
__device__ __forceinline__ void load_group(const T *from, uint32_t count, bool aligned,
                                           Group<T> *to)
{
    if (aligned) {
        *to = *reinterpret_cast<const Group<T> *>(from);
        return;
    }
    for (uint32_t e = 0; e < GROUP; e++)
        to->v[e] = e < count ? from[e] : from_float<T>(0.0f);
}

template <class T>
__device__ __forceinline__ void store_group(const Group<T> &from, uint32_t count, bool aligned,
                                            T *to)
{
    if (aligned) {
        *reinterpret_cast<Group<T> *>(to) = from;
        return;
    }
    for (uint32_t e = 0; e < count; e++)
        to[e] = from.v[e];
}

/* A block a token: the residual, the rotary table and, for the fused products, x in fragments with
 * a sum of squares for each group. */
template <class T> __global__ void embed(const struct cuda_embed a)
{
    const uint32_t token = blockIdx.x, width = a.rows.width, thread = threadIdx.x;
    const uint32_t groups = (width + GROUP - 1) / GROUP;
    const bool aligned = width % GROUP == 0;

    dependents_launch();
    dependency_wait();
    const struct cuda_token placed = a.rows.placed[token];
    const bool used = placed.row != CUDA_ROW_NONE;
    const T *from = static_cast<const T *>(a.table) + (used ? (size_t)placed.token * width : 0);
    float *residual = a.rows.residual + (size_t)token * width;

    for (uint32_t group = thread; group < groups; group += THREADS) {
        const uint32_t first = group * GROUP, count = min(GROUP, width - first);
        Group<T> row;
        Group<float> gamma, wide;
        float square = 0.0f;

        load_group(from + first, count, aligned, &row);
        if (a.tiles > 0)
            load_group(a.gamma + first, count, aligned, &gamma);
#pragma unroll
        for (uint32_t e = 0; e < GROUP; e++) {
            wide.v[e] = used ? to_float(row.v[e]) : 0.0f;
            square += wide.v[e] * wide.v[e];
        }
        store_group(wide, count, aligned, residual + first);
        if (a.tiles == 0)
            continue;
        /* The group's places in a fragment are one after another. */
        T *x = static_cast<T *>(a.x) + cuda_fragment(token, first, a.tiles);
#pragma unroll
        for (uint32_t e = 0; e < GROUP; e++)
            if (e < count)
                x[cuda_fragment(0, e, 1)] = from_float<T>(wide.v[e] * gamma.v[e]);
        a.squares[(size_t)token * groups + group] = square;
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
