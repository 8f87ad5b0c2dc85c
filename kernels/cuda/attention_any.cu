/* attention_any.cu -- attention with all that scores may go through: windows, caps, ALiBi, sinks,
 * heads of any size, values of another size than keys.
 *
 *     out[token][head] = sum over keys k of p[k] V[k] / (sum of p + exp(sink))
 *     p[k] = exp(cap tanh(scale q . K[k] / cap) + slope x (k - position))
 *
 * A block computes one head of one token, a page of keys at a time: a warp a key for the scores,
 * then a thread an element of the result. The maximum so far is every thread's own copy. Bytes
 * moved: all keys and values in reach, for each head of each token; no context is split, so that
 * a result depends on nothing beside it. */
#include "kernels/cuda/general.cuh"

namespace
{

constexpr int THREADS = 128;
constexpr float LOWEST = -1e30f; /* a score that counts for nothing, and is no infinity */

/* By one warp. */
template <class T>
__device__ __forceinline__ float score_of(const struct cuda_attention_any &a, const float *q,
                                          uint32_t page, uint32_t kv_head, uint32_t place)
{
    const T *pages = static_cast<const T *>(a.kv.pages);
    float sum = 0.0f;

    for (uint32_t i = threadIdx.x % warpSize; i < a.kv.head_size; i += warpSize)
        sum = fmaf(q[i], to_float(pages[kv_element<T>(a.kv, page, kv_head, 0, place, i)]), sum);
    sum = warp_sum(sum);
    return a.softcap > 0.0f ? a.softcap * tanhf(sum / a.softcap) : sum;
}

/* One head of the token at `position`, by the whole block. */
template <class T>
__device__ void attend(const struct cuda_attention_any &a, uint32_t row, uint32_t token,
                       uint32_t position, uint32_t head)
{
    __shared__ float q[CUDA_ANY_HEAD_MAX], result[CUDA_ANY_HEAD_MAX];
    __shared__ float scores[CUDA_PAGE_TOKENS];
    const struct cuda_general_kv &kv = a.kv;
    const uint32_t kv_head = head / (kv.heads / kv.kv_heads), thread = threadIdx.x;
    const uint32_t keys = position + 1;
    const uint32_t reach = a.window > 0 && keys > a.window ? keys - a.window : 0;
    const float slope = a.slopes ? a.slopes[head] : 0.0f;
    const T *from = static_cast<const T *>(a.q) + ((size_t)token * kv.heads + head) * kv.head_size;
    const T *pages = static_cast<const T *>(kv.pages);
    float most = a.sinks ? a.sinks[head] : LOWEST, sum = a.sinks ? 1.0f : 0.0f;

    for (uint32_t i = thread; i < kv.head_size; i += blockDim.x)
        q[i] = to_float(from[i]) * a.scale;
    for (uint32_t i = thread; i < kv.value_size; i += blockDim.x)
        result[i] = 0.0f;
    for (uint32_t base = reach / CUDA_PAGE_TOKENS * CUDA_PAGE_TOKENS; base < keys;
         base += CUDA_PAGE_TOKENS) {
        const uint32_t page =
            kv.page_table[(size_t)row * kv.pages_per_row + base / CUDA_PAGE_TOKENS];
        const uint32_t first = max(base, reach) - base;
        const uint32_t end = min(keys - base, (uint32_t)CUDA_PAGE_TOKENS);
        const float most_before = most;

        __syncthreads(); /* q is there; the last page's weights are used */
        for (uint32_t i = first + thread / warpSize; i < end; i += blockDim.x / warpSize) {
            const float score = score_of<T>(a, q, page, kv_head, i);

            if (thread % warpSize == 0)
                scores[i] = score - slope * (float)(position - (base + i));
        }
        __syncthreads();
        for (uint32_t i = first; i < end; i++)
            most = fmaxf(most, scores[i]);
        __syncthreads(); /* before scores turn into weights */
        for (uint32_t i = first + thread; i < end; i += blockDim.x)
            scores[i] = expf(scores[i] - most);
        __syncthreads();
        const float factor = expf(most_before - most);

        sum *= factor;
        for (uint32_t i = first; i < end; i++)
            sum += scores[i];
        for (uint32_t e = thread; e < kv.value_size; e += blockDim.x) {
            float v = result[e] * factor;

            for (uint32_t i = first; i < end; i++)
                v = fmaf(scores[i], to_float(pages[kv_element<T>(kv, page, kv_head, 1, i, e)]), v);
            result[e] = v;
        }
    }
    for (uint32_t e = thread; e < kv.value_size; e += blockDim.x)
        static_cast<T *>(a.out)[((size_t)token * kv.heads + head) * kv.value_size + e] =
            from_float<T>(result[e] / sum);
}

template <class T> __global__ void __launch_bounds__(THREADS) decode(struct cuda_attention_any a)
{
    const struct cuda_segment segment = a.segments[blockIdx.x];

    if (segment.token_count > 0)
        attend<T>(a, segment.row, segment.first_token, segment.position, blockIdx.y);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    prefill(struct cuda_attention_any a, const struct cuda_prefill_tile *tiles)
{
    const struct cuda_prefill_tile tile = tiles[blockIdx.x / CUDA_PREFILL_TILE];
    const struct cuda_segment segment = a.segments[tile.segment];
    const uint32_t i = tile.first + blockIdx.x % CUDA_PREFILL_TILE;

    if (i < segment.token_count)
        attend<T>(a, segment.row, segment.first_token + i, segment.position + i, blockIdx.y);
}

} /* namespace */

extern "C" int cuda_attention_any_decode(const struct cuda_stream *stream,
                                         const struct cuda_attention_any *a, uint32_t sequences)
{
    const struct cuda_grid grid = {sequences, a->kv.heads, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->kv.type, stream, grid, decode, *a);
}

extern "C" int cuda_attention_any_prefill(const struct cuda_stream *stream,
                                          const struct cuda_attention_any *a,
                                          const struct cuda_prefill_tile *tiles,
                                          uint32_t tile_count)
{
    const struct cuda_grid grid = {
        tile_count * CUDA_PREFILL_TILE, a->kv.heads, 1, THREADS, 0, false};

    return GENERAL_LAUNCH(a->kv.type, stream, grid, prefill, *a, tiles);
}
