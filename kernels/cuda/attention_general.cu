/* attention_general.cu -- attention for what the fast kernels leave out: float32, odd head sizes.
 *
 *     out[token][head] = sum over keys k <= position of softmax(scale * q . K[k]) V[k]
 *
 * A block of 128 threads computes one head of one token, a page of 64 keys at a time: two threads a
 * key for the scores, then one thread an element for the sum over values, with the running
 * maximum and sum kept by every thread alike. Bytes moved: all keys and values up to the token's
 * position, for each of its heads. No context is split, so that a token's result depends on
 * nothing beside it. */
#include "kernels/cuda/attention.cuh"

constexpr int THREADS = 128;
constexpr int PER_THREAD = HEAD_SIZE_MAX / THREADS; /* elements of the result */

/* q . the 16 bytes of a key at `chunk`. */
template <class T> __device__ __forceinline__ float dot_chunk(const float *q, const void *chunk)
{
    constexpr int COUNT = 16 / sizeof(T);
    const uint4 raw = *(const uint4 *)chunk;
    const T *key = (const T *)&raw;
    float sum = 0.0f;

#pragma unroll
    for (int i = 0; i < COUNT; i++)
        sum = fmaf(q[i], to_float(key[i]), sum);
    return sum;
}

template <class T>
__device__ __forceinline__ T value_at(const T *values, uint32_t key, uint32_t element,
                                      uint32_t head_size)
{
    constexpr uint32_t COUNT = 16 / sizeof(T);
    const uint32_t chunk = cuda_kv_chunk(element / COUNT, head_size / COUNT, key);

    return values[key * head_size + chunk * COUNT + element % COUNT];
}

/* One head of one token, by the whole block. */
template <class T>
__device__ void attend(const struct cuda_attention &args, uint32_t row, uint32_t token,
                       uint32_t keys, uint32_t head)
{
    constexpr uint32_t COUNT = 16 / sizeof(T);
    __shared__ float q[HEAD_SIZE_MAX], scores[CUDA_PAGE_TOKENS], weights[CUDA_PAGE_TOKENS];
    const uint32_t thread = threadIdx.x, lane = thread % 32, chunks = args.head_size / COUNT;
    const uint32_t kv_head = head / (args.heads / args.kv_heads);
    const size_t head_start = ((size_t)token * args.heads + head) * args.head_size;
    float result[PER_THREAD] = {}, most = LOWEST, sum = 0.0f;

    for (uint32_t i = thread; i < args.head_size; i += THREADS)
        q[i] = to_float(((const T *)args.q)[head_start + i]) * (args.scale * LOG2_E);
    __syncthreads();
    for (uint32_t first = 0; first < keys; first += CUDA_PAGE_TOKENS) {
        const uint32_t page =
            args.page_table[(size_t)row * args.pages_per_row + first / CUDA_PAGE_TOKENS];
        const uint32_t bytes = args.head_size * sizeof(T), key = thread / 2;
        const char *block = (const char *)args.pages;
        const char *k = block + cuda_kv_block(page, args.kv_heads, kv_head, 0, bytes);
        const T *v = (const T *)(block + cuda_kv_block(page, args.kv_heads, kv_head, 1, bytes));
        const uint32_t valid = min(keys - first, (uint32_t)CUDA_PAGE_TOKENS);
        float score = 0.0f, factor, most_before = most, weight0, weight1;

        if (key < valid)
            for (uint32_t chunk = thread % 2; chunk < chunks; chunk += 2)
                score += dot_chunk<T>(q + chunk * COUNT,
                                      k + key * bytes + cuda_kv_chunk(chunk, chunks, key) * 16);
        score += __shfl_xor_sync(ALL_LANES, score, 1);
        if (thread % 2 == 0)
            scores[key] = key < valid ? score : LOWEST;
        __syncthreads();
        most = fmaxf(most, warp_max(fmaxf(scores[lane], scores[lane + 32])));
        factor = exp2f(most_before - most);
        weight0 = lane < valid ? exp2f(scores[lane] - most) : 0.0f;
        weight1 = lane + 32 < valid ? exp2f(scores[lane + 32] - most) : 0.0f;
        sum = sum * factor + warp_sum(weight0 + weight1);
        if (thread < 32) {
            weights[lane] = weight0;
            weights[lane + 32] = weight1;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PER_THREAD; i++) {
            const uint32_t element = thread + i * THREADS;

            if (element >= args.head_size)
                break;
            result[i] *= factor;
            for (uint32_t j = 0; j < valid; j++)
                result[i] =
                    fmaf(weights[j], to_float(value_at(v, j, element, args.head_size)), result[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; i++) {
        const uint32_t element = thread + i * THREADS;

        if (element < args.head_size)
            ((T *)args.out)[output_index(args, token, head * args.head_size + element)] =
                from_float<T>(result[i] / sum);
    }
#if HAS_BULK_COPY
    bulk_fence(); /* the next kernel may read it by bulk copies */
#endif
}

template <class T>
__global__ void __launch_bounds__(THREADS) decode_general(struct cuda_attention a)
{
    dependents_launch();
    dependency_wait();
    const struct cuda_segment segment = a.segments[blockIdx.x];

    if (segment.token_count > 0)
        attend<T>(a, segment.row, segment.first_token, segment.position + 1, blockIdx.y);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    prefill_general(struct cuda_attention a, const struct cuda_prefill_tile *tiles)
{
    const struct cuda_prefill_tile tile = tiles[blockIdx.x / CUDA_PREFILL_TILE];
    const struct cuda_segment segment = a.segments[tile.segment];
    const uint32_t i = tile.first + blockIdx.x % CUDA_PREFILL_TILE;

    if (i < segment.token_count)
        attend<T>(a, segment.row, segment.first_token + i, segment.position + i + 1, blockIdx.y);
}

int attention_general_decode(const struct cuda_stream *stream, const struct cuda_attention *args,
                             uint32_t sequences, bool dependent)
{
    const struct cuda_grid grid = {sequences, args->heads, 1, THREADS, 0, dependent};

    if (args->type == DT_BF16)
        return launch(stream, grid, decode_general<bf16>, *args);
    if (args->type == DT_F16)
        return launch(stream, grid, decode_general<f16>, *args);
    return launch(stream, grid, decode_general<float>, *args);
}

int attention_general_prefill(const struct cuda_stream *stream, const struct cuda_attention *args,
                              const struct cuda_prefill_tile *tiles, uint32_t tile_count)
{
    const struct cuda_grid grid = {
        tile_count * CUDA_PREFILL_TILE, args->heads, 1, THREADS, 0, false};

    if (args->type == DT_BF16)
        return launch(stream, grid, prefill_general<bf16>, *args, tiles);
    if (args->type == DT_F16)
        return launch(stream, grid, prefill_general<f16>, *args, tiles);
    return launch(stream, grid, prefill_general<float>, *args, tiles);
}
