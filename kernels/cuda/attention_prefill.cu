/* attention_prefill.cu -- causal attention of prompt chunks over their pages, 16-bit types.
 *
 *     out[token][head] = sum over keys <= token of softmax(scale * q . K[key]) V[key]
 *
 * A block of four warps takes 64 tokens (a tile of the host's list) and two query heads of one KV
 * head, or one where there would be fewer blocks than SMs. Their pages are copied one by one,
 * asynchronously, each while the one before is computed. A warp holds 16 or 32 rows, a row being a
 * token and head:
 *     S[rows][64 keys] = q K^T;  O[rows][head_size] = O * factor + exp2(S - maximum) V
 * with maximum and sum of each row in registers. Only pages that reach beyond the first token's
 * position are masked. Pages are taken from position 0 on, so that how a prompt is cut into chunks
 * does not change a token's result.
 *
 * Work: 4 * head_size operations a token, head and key up to it; K and V of a tile's context are
 * read once for each block. */
#include "kernels/cuda/attention.cuh"

constexpr int WARPS = 4, THREADS = WARPS * 32;
constexpr int TOKENS = CUDA_PREFILL_TILE, KEYS = CUDA_PAGE_TOKENS;
constexpr int KEY_TILES = KEYS / 8;
constexpr int BUFFERS = 2;

/* --- asynchronous copies of 16 bytes ------------------------------------------------------- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HAS_ASYNC_COPY 1
#else
#define HAS_ASYNC_COPY 0
#endif

/* Zeros if not `valid`; `from` may be read in any case. */
__device__ __forceinline__ void copy_chunk(uint8_t *to, const uint8_t *from, bool valid)
{
#if HAS_ASYNC_COPY
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(valid ? 16 : 0)
                 : "memory");
#else
    *(uint4 *)to = valid ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#endif
}

__device__ __forceinline__ void copies_commit()
{
#if HAS_ASYNC_COPY
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* All but the latest `PENDING` groups of this thread have landed; then the whole block's. */
template <int PENDING> __device__ __forceinline__ void copies_wait()
{
#if HAS_ASYNC_COPY
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
    __syncthreads();
}

/* --- one block's work ---------------------------------------------------------------------- */

/* HEADS: of a block. Each warp has HEADS tiles of 16 rows, all of the same head. */
template <class T, int SIZE, int HEADS> struct tile_worker {
    static constexpr int ROW = SIZE * 2, CHUNKS = SIZE / 8, STEPS = SIZE / 16;
    static constexpr int HALF = KEYS * ROW, BUFFER = 2 * HALF;
    static constexpr int QUERIES = HEADS * TOKENS * ROW;
    static constexpr int SHARED = QUERIES + BUFFERS * BUFFER;

    const struct cuda_attention &args;
    uint8_t *shared;
    struct cuda_segment segment;
    uint32_t first, count;    /* tokens of the segment */
    uint32_t position;        /* of the first token */
    uint32_t keys;            /* of the sequence, up to the segment's end */
    uint32_t kv_head, head;   /* head: the block's first one */
    uint32_t head_count;      /* 1 .. HEADS */
    uint32_t my_head, my_row; /* of this warp: head of the block, first token of the tile */
    uint32_t lane;

    float o[HEADS][STEPS * 2][4];
    float most[HEADS][2], sum[HEADS][2];

    __device__ __forceinline__ tile_worker(const struct cuda_attention &args, uint8_t *shared,
                                           const struct cuda_prefill_tile &tile, uint32_t block)
        : args(args), shared(shared), segment(args.segments[tile.segment]), first(tile.first)
    {
        const uint32_t group = args.heads / args.kv_heads, blocks = (group + HEADS - 1) / HEADS;
        const uint32_t warp = threadIdx.x / 32;

        lane = threadIdx.x % 32;
        count = segment.token_count > first ? min(segment.token_count - first, TOKENS) : 0;
        position = segment.position + first;
        keys = segment.position + segment.token_count;
        kv_head = block / blocks;
        head = kv_head * group + block % blocks * HEADS;
        head_count = min(group - block % blocks * HEADS, HEADS);
        my_head = HEADS == 1 ? 0 : warp / 2;
        my_row = HEADS == 1 ? warp * 16 : warp % 2 * 32;
#pragma unroll
        for (int m = 0; m < HEADS; m++) {
            most[m][0] = most[m][1] = LOWEST;
            sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
            for (int n = 0; n < STEPS * 2; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[m][n][i] = 0.0f;
        }
    }

    __device__ __forceinline__ void queries_copy()
    {
        for (int i = threadIdx.x; i < HEADS * TOKENS * CHUNKS; i += THREADS) {
            const uint32_t row = i / CHUNKS, chunk = i % CHUNKS;
            const uint32_t token = row % TOKENS, h = row / TOKENS;
            const bool valid = token < count && h < head_count;
            const size_t from =
                ((size_t)(segment.first_token + first + (valid ? token : 0)) * args.heads + head +
                 (valid ? h : 0)) *
                ROW;

            copy_chunk(shared + row * ROW + cuda_kv_chunk(chunk, CHUNKS, row) * 16,
                       (const uint8_t *)args.q + from + chunk * 16, valid);
        }
    }

    /* Keys (half 0) or values (half 1) of a page, as they lie; zeros behind the sequence's end. */
    __device__ __forceinline__ void page_copy(uint32_t id, uint32_t index, uint32_t half)
    {
        const uint8_t *from =
            (const uint8_t *)args.pages + cuda_kv_block(id, args.kv_heads, kv_head, half, ROW);
        uint8_t *to = shared + QUERIES + index % BUFFERS * BUFFER + half * HALF;
        const uint32_t valid = keys - index * KEYS;

#pragma unroll
        for (int i = 0; i < KEYS * CHUNKS / THREADS; i++) {
            const uint32_t at = i * THREADS + threadIdx.x;

            copy_chunk(to + at * 16, from + at * 16, at / CHUNKS < valid);
        }
    }

    __device__ __forceinline__ void scores(const uint8_t *keys_at, float (&s)[HEADS][KEY_TILES][4])
    {
        const uint32_t key = lane / 16 * 8 + lane % 8;
        const uint32_t k = shared_address(keys_at) + key * ROW;
        const uint32_t row = my_head * TOKENS + my_row + lane % 16;
        const uint32_t q = shared_address(shared) + row * ROW;

#pragma unroll
        for (int m = 0; m < HEADS; m++)
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[m][n][i] = 0.0f;
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            uint4 a[HEADS];

#pragma unroll
            for (int m = 0; m < HEADS; m++)
                a[m] = load_matrices(q + m * 16 * ROW +
                                     cuda_kv_chunk(step * 2 + lane / 16, CHUNKS, row) * 16);
#pragma unroll
            for (int n = 0; n < KEY_TILES; n += 2) {
                const uint4 b = load_matrices(
                    k + n * 8 * ROW + cuda_kv_chunk(step * 2 + lane / 8 % 2, CHUNKS, key) * 16);

#pragma unroll
                for (int m = 0; m < HEADS; m++) {
                    mma_16x8x16<T>(s[m][n], a[m], b.x, b.y);
                    mma_16x8x16<T>(s[m][n + 1], a[m], b.z, b.w);
                }
            }
        }
    }

    /* Keys behind a row's own position count for nothing. */
    __device__ __forceinline__ void mask(uint32_t key_first, float (&s)[HEADS][KEY_TILES][4])
    {
#pragma unroll
        for (int m = 0; m < HEADS; m++)
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (key_first + n * 8 + lane % 4 * 2 + i % 2 >
                        position + my_row + m * 16 + lane / 4 + i / 2 * 8)
                        s[m][n][i] = LOWEST;
    }

    /* Weights of the scores; the sums so far are scaled to the new maximum. */
    __device__ __forceinline__ void weigh(float (&s)[HEADS][KEY_TILES][4])
    {
        const float scale = args.scale * LOG2_E;

#pragma unroll
        for (int m = 0; m < HEADS; m++) {
            float factors[2];

#pragma unroll
            for (int i = 0; i < 2; i++) {
                float highest = most[m][i], total = 0.0f, offset;

#pragma unroll
                for (int n = 0; n < KEY_TILES; n++)
                    highest = fmaxf(highest, fmaxf(s[m][n][i * 2], s[m][n][i * 2 + 1]));
                highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 1));
                highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, 2));
                factors[i] = exp2_approximate((most[m][i] - highest) * scale);
                most[m][i] = highest;
                offset = -highest * scale;
#pragma unroll
                for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
                    for (int j = i * 2; j < i * 2 + 2; j++) {
                        s[m][n][j] = exp2_approximate(fmaf(s[m][n][j], scale, offset));
                        total += s[m][n][j];
                    }
                sum[m][i] = fmaf(sum[m][i], factors[i], total);
            }
            if (__any_sync(ALL_LANES, factors[0] != 1.0f || factors[1] != 1.0f))
#pragma unroll
                for (int n = 0; n < STEPS * 2; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        o[m][n][i] *= factors[i / 2];
        }
    }

    __device__ __forceinline__ void values_add(const uint8_t *values_at,
                                               const float (&s)[HEADS][KEY_TILES][4])
    {
        const uint32_t key = lane % 16, v = shared_address(values_at) + key * ROW;

#pragma unroll
        for (int k = 0; k < KEYS / 16; k++) {
            uint4 a[HEADS];

#pragma unroll
            for (int m = 0; m < HEADS; m++) {
                const float(&low)[4] = s[m][k * 2], (&high)[4] = s[m][k * 2 + 1];

                a[m] = make_uint4(pack_pair<T>(low[0], low[1]), pack_pair<T>(low[2], low[3]),
                                  pack_pair<T>(high[0], high[1]), pack_pair<T>(high[2], high[3]));
            }
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                const uint4 b = load_matrices_transposed(
                    v + k * 16 * ROW + cuda_kv_chunk(step * 2 + lane / 16, CHUNKS, key) * 16);

#pragma unroll
                for (int m = 0; m < HEADS; m++) {
                    mma_16x8x16<T>(o[m][step * 2], a[m], b.x, b.y);
                    mma_16x8x16<T>(o[m][step * 2 + 1], a[m], b.z, b.w);
                }
            }
        }
    }

    __device__ __forceinline__ void output()
    {
#pragma unroll
        for (int m = 0; m < HEADS; m++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t token = my_row + m * 16 + lane / 4 + i * 8;
                float factor = sum[m][i];

                factor += __shfl_xor_sync(ALL_LANES, factor, 1);
                factor += __shfl_xor_sync(ALL_LANES, factor, 2);
                factor = 1.0f / factor;
                if (token >= count)
                    continue;
#pragma unroll
                for (int n = 0; n < STEPS * 2; n++) {
                    const uint32_t column = (head + my_head) * SIZE + n * 8 + lane % 4 * 2;

                    *(uint32_t *)((T *)args.out +
                                  output_index(args, segment.first_token + first + token, column)) =
                        pack_pair<T>(o[m][n][i * 2] * factor, o[m][n][i * 2 + 1] * factor);
                }
            }
    }

    __device__ __forceinline__ void run()
    {
        const uint32_t *table = args.page_table + (size_t)segment.row * args.pages_per_row;
        const uint32_t pages = (position + count + KEYS - 1) / KEYS;
        const bool mine = my_head < head_count && my_row < count;
        uint32_t id = __ldg(table);

        queries_copy();
        page_copy(id, 0, 0);
        copies_commit();
        page_copy(id, 0, 1);
        copies_commit();
        id = pages > 1 ? __ldg(table + 1) : 0;
        for (uint32_t page = 0; page < pages; page++) {
            const uint8_t *buffer = shared + QUERIES + page % BUFFERS * BUFFER;
            float s[HEADS][KEY_TILES][4];

            copies_wait<1>(); /* its keys are there, and the page before is done with */
            if (page + 1 < pages)
                page_copy(id, page + 1, 0);
            copies_commit();
            if (page + 1 < pages)
                page_copy(id, page + 1, 1);
            copies_commit();
            id = page + 2 < pages ? __ldg(table + page + 2) : 0;
            if (mine) {
                scores(buffer, s);
                if (page * KEYS + KEYS - 1 > position + my_row)
                    mask(page * KEYS, s);
                weigh(s);
            }
            copies_wait<2>(); /* its values */
            if (mine)
                values_add(buffer + HALF, s);
        }
        if (mine)
            output();
#if HAS_BULK_COPY
        bulk_fence(); /* the next kernel may read the result by bulk copies */
#endif
    }
};

template <class T, int SIZE, int HEADS>
__global__ void __launch_bounds__(THREADS)
    prefill_kernel(struct cuda_attention args, const struct cuda_prefill_tile *tiles)
{
    extern __shared__ __align__(128) uint8_t shared[];
    struct tile_worker<T, SIZE, HEADS> worker(args, shared, tiles[blockIdx.y], blockIdx.x);

    if (worker.count > 0)
        worker.run();
}

/* --- launching ----------------------------------------------------------------------------- */

template <class T, int SIZE, int HEADS>
static int prefill(const struct cuda_stream *stream, const struct cuda_attention *args,
                   const struct cuda_prefill_tile *tiles, uint32_t tile_count)
{
    constexpr size_t SHARED = tile_worker<T, SIZE, HEADS>::SHARED;
    const uint32_t group = args->heads / args->kv_heads;
    const struct cuda_grid grid = {
        args->kv_heads * ((group + HEADS - 1) / HEADS), tile_count, 1, THREADS, SHARED, false};
    int r;

    if (SHARED > stream->context->properties.shared_bytes)
        return attention_general_prefill(stream, args, tiles, tile_count);
    r = cuda_kernel_shared(stream->context, (const void *)prefill_kernel<T, SIZE, HEADS>, SHARED);
    if (r < 0)
        return r;
    return launch(stream, grid, prefill_kernel<T, SIZE, HEADS>, *args, tiles);
}

static const struct {
    enum dtype type;
    uint32_t head_size, heads;
    int (*run)(const struct cuda_stream *stream, const struct cuda_attention *args,
               const struct cuda_prefill_tile *tiles, uint32_t tile_count);
} kernels[] = {
    {DT_BF16, 64, 1, prefill<bf16, 64, 1>},   {DT_BF16, 64, 2, prefill<bf16, 64, 2>},
    {DT_BF16, 96, 1, prefill<bf16, 96, 1>},   {DT_BF16, 96, 2, prefill<bf16, 96, 2>},
    {DT_BF16, 128, 1, prefill<bf16, 128, 1>}, {DT_BF16, 128, 2, prefill<bf16, 128, 2>},
    {DT_BF16, 256, 1, prefill<bf16, 256, 1>}, {DT_F16, 64, 1, prefill<f16, 64, 1>},
    {DT_F16, 64, 2, prefill<f16, 64, 2>},     {DT_F16, 96, 1, prefill<f16, 96, 1>},
    {DT_F16, 96, 2, prefill<f16, 96, 2>},     {DT_F16, 128, 1, prefill<f16, 128, 1>},
    {DT_F16, 128, 2, prefill<f16, 128, 2>},   {DT_F16, 256, 1, prefill<f16, 256, 1>},
};

extern "C" int cuda_attention_prefill(const struct cuda_stream *stream,
                                      const struct cuda_attention *args,
                                      const struct cuda_prefill_tile *tiles, uint32_t tile_count)
{
    const uint32_t group = args->heads / args->kv_heads;
    const uint32_t pairs = args->kv_heads * ((group + 1) / 2) * tile_count;
    const bool few = pairs <= (uint32_t)stream->context->properties.multiprocessors;
    const uint32_t heads = few || group == 1 || group == 3 || args->head_size > 128 ? 1 : 2;
    const bool able = stream->context->properties.capability >= (args->type == DT_BF16 ? 80 : 75);

    for (const auto &kernel : kernels)
        if (able && kernel.type == args->type && kernel.head_size == args->head_size &&
            kernel.heads == heads)
            return kernel.run(stream, args, tiles, tile_count);
    return attention_general_prefill(stream, args, tiles, tile_count);
}
