/* attention_decode.cu -- attention of one new token a sequence over its pages, 16-bit types.
 *
 *     out[token][head] = sum over keys of softmax(scale * q . K[key]) V[key]
 *
 * One block an SM; attention.cuh says which pages it gets. One warp copies pages (K and V of a KV
 * head lie together: a single bulk copy) into a ring; four warps take 16 of a page's 64 keys each.
 * The query heads of the group are the columns of the matrix products, so that each page is read
 * once for all of them:
 *     S[16 keys][8 heads]   = K[16 keys][head_size] q^T
 *     O[head_size][8 heads] += V^T[head_size][16 keys] exp2(S - maximum)
 * with a running maximum and sum for each warp and head. At the end of a part the four warps'
 * results are merged in shared memory; at the end of an item they are written, or, where it is cut,
 * put into slots, which the block that comes last adds up in order.
 *
 * Bytes moved: all keys and values once. As a programmatic dependent it begins copying before the
 * kernel ahead has ended, by the plan that it finds, and looks again afterwards. Only the new
 * token's row can be written by that kernel: it is loaded after the wait and put into its place in
 * the ring. What lies behind the new token in its page is never used, whatever it is. */
#include "kernels/cuda/attention.cuh"

constexpr int CONSUMERS = 128;
constexpr int WARPS = CONSUMERS / 32;
constexpr int THREADS = CONSUMERS + 32;
constexpr int BARRIER_MERGE = 1;
constexpr int CUTS_MAX = 2; /* items of a block that are cut: its first and its last */

/* How a kernel for one head size uses shared memory. */
template <int SIZE> struct layout {
    static constexpr uint32_t ROW = SIZE * 2;
    static constexpr uint32_t STAGE = 2 * CUDA_PAGE_TOKENS * ROW;
    static constexpr uint32_t MERGE_ROW = SIZE + 4; /* floats; apart by 4 banks */

    uint8_t *ring;
    float *merge;     /* [warp][head][MERGE_ROW] */
    float2 *extremes; /* [warp][8]: maximum and sum */
    uint64_t *full, *empty;
    struct plan_item *cuts; /* [CUTS_MAX] */
    uint32_t *dropped;      /* pages at the start of the ring that nobody wants */
    uint32_t *complete;     /* [CUTS_MAX]: this block came last */

    static uint32_t bytes(uint32_t stages, uint32_t heads)
    {
        return stages * STAGE + WARPS * heads * MERGE_ROW * 4 + WARPS * 8 * 8 +
               CUTS_MAX * sizeof(struct plan_item) + stages * 16 + 16;
    }
    __device__ __forceinline__ layout(uint8_t *shared, uint32_t stages, uint32_t heads)
    {
        ring = shared;
        merge = (float *)(ring + stages * STAGE);
        extremes = (float2 *)(merge + WARPS * heads * MERGE_ROW);
        cuts = (struct plan_item *)(extremes + WARPS * 8);
        full = (uint64_t *)(cuts + CUTS_MAX);
        empty = full + stages;
        dropped = (uint32_t *)(empty + stages);
        complete = dropped + 1;
    }
};

/* A place in the ring. */
struct turn {
    uint32_t stage, parity;

    __device__ __forceinline__ void next(uint32_t stages)
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* Past the first cache, which does not see what other blocks write. */
template <class R> __device__ __forceinline__ R read(const R *from)
{
    R to;

#pragma unroll
    for (int i = 0; i < (int)(sizeof(R) / 16); i++)
        ((uint4 *)&to)[i] = __ldcg((const uint4 *)from + i);
    return to;
}

template <class R> __device__ __forceinline__ bool same(const R &a, const R &b)
{
    uint32_t differences = 0;

#pragma unroll
    for (int i = 0; i < (int)(sizeof(R) / 4); i++)
        differences |= ((const uint32_t *)&a)[i] ^ ((const uint32_t *)&b)[i];
    return differences == 0;
}

/* Which query heads a KV head's block covers. */
struct heads {
    uint32_t kv_head, first, count;

    __device__ __forceinline__ heads(const struct cuda_attention &args, uint32_t head, int most)
    {
        const uint32_t group = args.heads / args.kv_heads, blocks = (group + most - 1) / most;
        const uint32_t block = head % blocks;

        kv_head = head / blocks;
        first = kv_head * group + block * most;
        count = min(group - block * most, (uint32_t)most);
    }
};

/* --- the copying warp ---------------------------------------------------------------------- */

#if HAS_BULK_COPY
constexpr int BARRIER_START = 2;

template <int SIZE> struct producer {
    const struct cuda_attention &args;
    const struct layout<SIZE> &room;
    const uint32_t stages;
    const int most;
    struct turn turn;
    uint64_t policy;

    __device__ __forceinline__ void page(uint32_t id, uint32_t kv_head)
    {
        if (threadIdx.x % 32 == 0) {
            const uint8_t *from = (const uint8_t *)args.pages +
                                  cuda_kv_block(id, args.kv_heads, kv_head, 0, room.ROW);

            barrier_wait(room.empty + turn.stage, turn.parity ^ 1);
            barrier_expect(room.full + turn.stage, room.STAGE);
            bulk_copy(room.ring + turn.stage * room.STAGE, from, room.STAGE, room.full + turn.stage,
                      policy);
        }
        turn.next(stages);
    }

    /* The item's pages from its `from`-th on; a lane looks up each, 32 at a time. */
    __device__ __forceinline__ void item(const struct plan_item &item, uint32_t from)
    {
        const uint32_t kv_head = heads(args, item.head, most).kv_head;
        const uint32_t *table =
            args.page_table + (size_t)item.row * args.pages_per_row + item.page_first;

        for (; from < item.page_count; from += 32) {
            const uint32_t left = min(item.page_count - from, 32u), lane = threadIdx.x % 32;
            const uint32_t id = lane < left ? __ldg(table + from + lane) : 0;

            for (uint32_t i = 0; i < left; i++)
                page(__shfl_sync(ALL_LANES, id, i), kv_head);
        }
    }
};

template <int SIZE>
__device__ __forceinline__ void produce(const struct cuda_attention &args, const struct plan &plan,
                                        const struct layout<SIZE> &room, uint32_t stages, int most)
{
    struct producer<SIZE> producer = {
        args, room, stages, most, {0, 0}, policy_evict_first()
    };
    const struct plan_block guess = read(plan.blocks + blockIdx.x);
    const uint32_t early = min(min(guess.first.page_count, PLAN_PAGES), stages);
    const uint32_t kv_head = heads(args, guess.first.head, most).kv_head;
    bool right;

#pragma unroll
    for (uint32_t i = 0; i < PLAN_PAGES; i++)
        if (i < early)
            producer.page(guess.pages[i], kv_head);
    dependency_wait();
    const struct plan_block block = read(plan.blocks + blockIdx.x);
    right = same(block, guess);
    if (threadIdx.x % 32 == 0)
        *room.dropped = right ? 0 : early;
    named_barrier(BARRIER_START, THREADS);
    bulk_fence();
    for (uint32_t i = 0; i < block.item_count; i++)
        producer.item(i == 0 ? block.first : read(plan.items + block.item_first + i),
                      i == 0 && right ? early : 0);
}
#endif

/* --- the computing warps ------------------------------------------------------------------- */

/* A part's result, or several parts' so far: of one head, two elements. */
struct partial {
    float most, sum;
    float2 value;
};

/* Always these operations, wherever parts are added up: the bits must not depend on it. */
__device__ __forceinline__ void fold_values(float2 *into, float scale, float2 value, float factor)
{
    into->x = fmaf(into->x, scale, __fmul_rn(value.x, factor));
    into->y = fmaf(into->y, scale, __fmul_rn(value.y, factor));
}

struct fold {
    float scale, factor;

    __device__ __forceinline__ fold(float *most, float *sum, float most_more, float sum_more)
    {
        const float highest = fmaxf(*most, most_more);

        scale = exp2_approximate(*most - highest);
        factor = exp2_approximate(most_more - highest);
        *most = highest;
        *sum = fmaf(*sum, scale, __fmul_rn(sum_more, factor));
    }
};

template <class T>
__device__ __forceinline__ void output_pair(const struct cuda_attention &args, uint32_t token,
                                            uint32_t column, float2 value, float sum)
{
    const float factor = __frcp_rn(sum);

    *(uint32_t *)((T *)args.out + output_index(args, token, column)) =
        pack_pair<T>(__fmul_rn(value.x, factor), __fmul_rn(value.y, factor));
}

template <class T, int SIZE, int TILES> struct consumer {
    static constexpr int STEPS = SIZE / 16, CHUNKS = SIZE / 8;
    static constexpr int VALUES = 8 * (SIZE / 2) / CONSUMERS; /* pairs of a thread, each tile */
    static constexpr int FRESH = (2 * CHUNKS + 31) / 32;
    /* The next item's q is loaded while this one is computed, if there are registers for it. */
    static constexpr bool AHEAD = TILES * SIZE <= 128;

    const struct cuda_attention &args;
    const struct plan &plan;
    const struct layout<SIZE> &room;
    const uint32_t merge_heads; /* that room.merge is for */
    const uint32_t warp, lane;

    uint32_t q[TILES][STEPS][2], q_next[TILES][STEPS][2];
    uint4 fresh[FRESH], fresh_next[FRESH]; /* the new token's key and value */
    float o[TILES][STEPS][4];
    float most[TILES][2], sum[TILES][2];
    struct partial total[TILES][VALUES];
    struct plan_item item;
    struct heads heads;

    __device__ __forceinline__ consumer(const struct cuda_attention &args, const struct plan &plan,
                                        const struct layout<SIZE> &room, uint32_t merge_heads)
        : args(args), plan(plan), room(room), merge_heads(merge_heads), warp(threadIdx.x / 32),
          lane(threadIdx.x % 32), heads(args, 0, TILES * 8)
    {
    }

    __device__ __forceinline__ static bool has_last_page(const struct plan_item &item)
    {
        return (item.page_first + item.page_count) * CUDA_PAGE_TOKENS >= item.keys;
    }

    /* Starts the loads of what an item needs beside its pages. */
    __device__ __forceinline__ void fetch(const struct plan_item &next)
    {
        const struct heads of(args, next.head, TILES * 8);
        const uint32_t row = (next.keys - 1) % CUDA_PAGE_TOKENS;

#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            const uint32_t head = tile * 8 + lane / 4;
            const uint32_t *from =
                (const uint32_t *)((const T *)args.q +
                                   ((size_t)next.token * args.heads + of.first + head) * SIZE) +
                lane % 4;

#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                q_next[tile][step][0] = head < of.count ? __ldcg(from + step * 8) : 0;
                q_next[tile][step][1] = head < of.count ? __ldcg(from + step * 8 + 4) : 0;
            }
        }
        if (!has_last_page(next) || row / 16 != warp)
            return;
        const uint8_t *page = (const uint8_t *)args.pages +
                              cuda_kv_block(next.last_page, args.kv_heads, of.kv_head, 0, room.ROW);
#pragma unroll
        for (int i = 0; i < FRESH; i++) {
            const uint32_t chunk = i * 32 + lane, half = chunk / CHUNKS;

            if (half < 2)
                fresh_next[i] =
                    __ldcg((const uint4 *)(page + half * (room.STAGE / 2) + row * room.ROW) +
                           chunk % CHUNKS);
        }
    }

    __device__ __forceinline__ void item_start(const struct plan_item &next)
    {
        item = next;
        heads = {args, next.head, TILES * 8};
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                q[tile][step][0] = q_next[tile][step][0];
                q[tile][step][1] = q_next[tile][step][1];
            }
#pragma unroll
        for (int i = 0; i < FRESH; i++)
            fresh[i] = fresh_next[i];
    }

    __device__ __forceinline__ void part_start()
    {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            most[tile][0] = most[tile][1] = LOWEST;
            sum[tile][0] = sum[tile][1] = 0.0f;
#pragma unroll
            for (int step = 0; step < STEPS; step++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[tile][step][i] = 0.0f;
        }
    }

    /* The new token's row as it is now, and zeros for the values behind it: 0 x NaN is none. */
    __device__ __forceinline__ void page_mend(uint8_t *stage)
    {
        const uint32_t row = (item.keys - 1) % CUDA_PAGE_TOKENS, end = warp * 16 + 16;

#pragma unroll
        for (int i = 0; i < FRESH; i++) {
            const uint32_t chunk = i * 32 + lane, half = chunk / CHUNKS;

            if (half < 2)
                *((uint4 *)(stage + half * (room.STAGE / 2) + row * room.ROW) + chunk % CHUNKS) =
                    fresh[i];
        }
        for (uint32_t i = (row + 1) * CHUNKS + lane; i < end * CHUNKS; i += 32)
            ((uint4 *)(stage + room.STAGE / 2))[i] = make_uint4(0, 0, 0, 0);
#if HAS_BULK_COPY
        bulk_fence();
#endif
        __syncwarp();
    }

    /* s[tile]: this warp's 16 keys by 8 heads, times the scale. */
    __device__ __forceinline__ void scores(const uint8_t *stage, float (&s)[TILES][4])
    {
        const uint32_t row = warp * 16 + lane % 16, keys = shared_address(stage) + row * room.ROW;
        const float scale = args.scale * LOG2_E;
        float halves[2][TILES][4] = {};

#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const uint4 a =
                load_matrices(keys + cuda_kv_chunk(step * 2 + lane / 16, CHUNKS, row) * 16);

#pragma unroll
            for (int tile = 0; tile < TILES; tile++)
                mma_16x8x16<T>(halves[step % 2][tile], a, q[tile][step][0], q[tile][step][1]);
        }
#pragma unroll
        for (int tile = 0; tile < TILES; tile++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[tile][i] = (halves[0][tile][i] + halves[1][tile][i]) * scale;
    }

    /* Makes weights of the scores, and says by what the sums so far are to be multiplied. */
    __device__ __forceinline__ void weigh(float (&s)[4], int tile, float (&factors)[2])
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float highest = fmaxf(s[i], s[i + 2]);

#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                highest = fmaxf(highest, __shfl_xor_sync(ALL_LANES, highest, distance));
            highest = fmaxf(highest, most[tile][i]);
            factors[i] = exp2_approximate(most[tile][i] - highest);
            most[tile][i] = highest;
            s[i] = exp2_approximate(s[i] - highest);
            s[i + 2] = exp2_approximate(s[i + 2] - highest);
            sum[tile][i] = fmaf(sum[tile][i], factors[i], s[i] + s[i + 2]);
        }
    }

    /* The `index`-th page of the sequence, of which this warp has at least one key. */
    __device__ __forceinline__ void page(uint8_t *stage, uint32_t index)
    {
        const uint32_t left = item.keys - index * CUDA_PAGE_TOKENS;
        const uint32_t row = warp * 16 + lane / 16 * 8 + lane % 8;
        const uint32_t values = shared_address(stage) + room.STAGE / 2 + row * room.ROW;
        float s[TILES][4], factors[TILES][2];
        uint32_t weights[TILES][2];

        if (left <= warp * 16 + 16)
            page_mend(stage);
        scores(stage, s);
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            if (warp * 16 + lane / 4 >= left)
                s[tile][0] = s[tile][1] = LOWEST;
            if (warp * 16 + lane / 4 + 8 >= left)
                s[tile][2] = s[tile][3] = LOWEST;
            weigh(s[tile], tile, factors[tile]);
            weights[tile][0] = transposed_matrix(pack_pair<T>(s[tile][0], s[tile][1]));
            weights[tile][1] = transposed_matrix(pack_pair<T>(s[tile][2], s[tile][3]));
        }
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            const uint4 a = load_matrices_transposed(
                values + cuda_kv_chunk(step * 2 + lane / 8 % 2, CHUNKS, row) * 16);

#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[tile][step][i] *= factors[tile][i % 2];
                mma_16x8x16<T>(o[tile][step], a, weights[tile][0], weights[tile][1]);
            }
        }
    }

    /* This warp's results for a tile of heads, where the others can read them. */
    __device__ __forceinline__ void tile_publish(int tile)
    {
        named_barrier(BARRIER_MERGE, CONSUMERS); /* the last ones have been read */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t head = lane % 4 * 2 + i;
            float total_sum = sum[tile][i];
            float *to = room.merge + (warp * merge_heads + head) * room.MERGE_ROW + lane / 4;

#pragma unroll
            for (int distance = 4; distance < 32; distance *= 2)
                total_sum += __shfl_xor_sync(ALL_LANES, total_sum, distance);
            if (tile * 8 + head >= heads.count)
                continue;
            if (lane < 4)
                room.extremes[warp * 8 + head] = make_float2(most[tile][i], total_sum);
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                to[step * 16] = o[tile][step][i];
                to[step * 16 + 8] = o[tile][step][i + 2];
            }
        }
        named_barrier(BARRIER_MERGE, CONSUMERS);
    }

    /* The four warps' results for one head and two elements. */
    __device__ __forceinline__ struct partial merged(uint32_t head, uint32_t element)
    {
        struct partial part = {LOWEST, 0.0f, {0.0f, 0.0f}};

#pragma unroll
        for (int i = 0; i < WARPS; i++)
            part.most = fmaxf(part.most, room.extremes[i * 8 + head].x);
#pragma unroll
        for (int i = 0; i < WARPS; i++) {
            const float2 extremes = room.extremes[i * 8 + head];
            const float2 value =
                *(const float2 *)(room.merge + (i * merge_heads + head) * room.MERGE_ROW + element);
            const float factor = exp2_approximate(extremes.x - part.most);

            part.sum = fmaf(extremes.y, factor, part.sum);
            part.value.x = fmaf(value.x, factor, part.value.x);
            part.value.y = fmaf(value.y, factor, part.value.y);
        }
        return part;
    }

    __device__ __forceinline__ float *slot(uint32_t part, uint32_t head)
    {
        const uint32_t group = args.heads / args.kv_heads;

        return plan.slots + ((size_t)(item.slot_first + part) * min(group, TILES * 8u) + head) *
                                (SIZE + SLOT_EXTRA);
    }

    /* All pages of a part are done. `part` counts those of the item. */
    __device__ __forceinline__ void part_end(uint32_t part, bool cut)
    {
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            tile_publish(tile);
#pragma unroll
            for (int i = 0; i < VALUES; i++) {
                const uint32_t at = i * CONSUMERS + threadIdx.x;
                const uint32_t head = at / (SIZE / 2), element = at % (SIZE / 2) * 2;
                struct partial &all = total[tile][i];

                if (tile * 8 + head >= heads.count)
                    continue;
                const struct partial one = merged(head, element);

                if (cut) {
                    float *to = slot(part, tile * 8 + head);

                    __stcg((float2 *)(to + element), one.value);
                    if (element == 0)
                        __stcg((float2 *)(to + SIZE), make_float2(one.most, one.sum));
                } else if (part == 0) {
                    all = one;
                } else {
                    const struct fold fold(&all.most, &all.sum, one.most, one.sum);

                    fold_values(&all.value, fold.scale, one.value, fold.factor);
                }
                if (!cut && part + 1 == item.part_count)
                    output_pair<T>(args, item.token,
                                   (heads.first + tile * 8 + head) * SIZE + element, all.value,
                                   all.sum);
            }
        }
    }

    /* Adds up the parts of a cut item, a warp a head, many loads in flight. */
    __device__ __forceinline__ void parts_add()
    {
        constexpr int PAIRS = (SIZE + 63) / 64, AHEAD = SIZE > 128 ? 8 : 16;

        for (uint32_t head = warp; head < heads.count; head += WARPS) {
            const float *from = slot(0, head);
            const size_t stride = slot(1, head) - from;
            float highest = LOWEST, total_sum = 0.0f;
            float2 all[PAIRS] = {};

            for (uint32_t base = 0; base < item.part_count; base += AHEAD) {
                float2 extremes[AHEAD], values[AHEAD][PAIRS];

#pragma unroll
                for (int i = 0; i < AHEAD; i++) {
                    const float *part = from + (base + i) * stride;

                    if (base + i >= item.part_count)
                        break;
                    extremes[i] = __ldcg((const float2 *)(part + SIZE));
#pragma unroll
                    for (int j = 0; j < PAIRS; j++)
                        if (j * 64 + lane * 2 < SIZE)
                            values[i][j] = __ldcg((const float2 *)(part + j * 64 + lane * 2));
                }
#pragma unroll
                for (int i = 0; i < AHEAD; i++) {
                    if (base + i >= item.part_count)
                        break;
                    if (base + i == 0) {
                        highest = extremes[i].x;
                        total_sum = extremes[i].y;
#pragma unroll
                        for (int j = 0; j < PAIRS; j++)
                            all[j] = values[i][j];
                        continue;
                    }
                    const struct fold fold(&highest, &total_sum, extremes[i].x, extremes[i].y);
#pragma unroll
                    for (int j = 0; j < PAIRS; j++)
                        fold_values(&all[j], fold.scale, values[i][j], fold.factor);
                }
            }
#pragma unroll
            for (int j = 0; j < PAIRS; j++)
                if (j * 64 + lane * 2 < SIZE)
                    output_pair<T>(args, item.token,
                                   (heads.first + head) * SIZE + j * 64 + lane * 2, all[j],
                                   total_sum);
        }
    }

    /* The parts that this block has put into slots are counted; who completes an item adds up. */
    __device__ __forceinline__ void cuts_end(uint32_t count)
    {
        named_barrier(BARRIER_MERGE, CONSUMERS);
        if (threadIdx.x < count) {
            const struct plan_item &cut = room.cuts[threadIdx.x];
            const uint32_t parts = (cut.page_count + cut.part_pages - 1) / cut.part_pages;
            uint32_t *ticket = plan.tickets + cut.home;
            const bool last = add_acquire_release(ticket, parts) + parts == cut.part_count;

            if (last)
                *ticket = 0;
            room.complete[threadIdx.x] = last;
        }
        named_barrier(BARRIER_MERGE, CONSUMERS);
        for (uint32_t i = 0; i < count; i++)
            if (room.complete[i]) {
                item = room.cuts[i];
                heads = {args, item.head, TILES * 8};
                parts_add();
            }
    }
};

/* Where there are no bulk copies each warp fetches its own 16 rows. */
template <int SIZE>
__device__ __forceinline__ void rows_fetch(const struct cuda_attention &args, uint8_t *stage,
                                           const struct plan_item &item, uint32_t kv_head,
                                           uint32_t index)
{
    constexpr uint32_t HALF = layout<SIZE>::STAGE / 2, MINE = HALF / WARPS;
    const uint32_t id = args.page_table[(size_t)item.row * args.pages_per_row + index];
    const size_t block = cuda_kv_block(id, args.kv_heads, kv_head, 0, layout<SIZE>::ROW);
    const uint8_t *from = (const uint8_t *)args.pages + block;
    const uint32_t start = threadIdx.x / 32 * MINE + threadIdx.x % 32 * 16;

    __syncwarp();
#pragma unroll 8
    for (uint32_t i = start; i < start - threadIdx.x % 32 * 16 + MINE; i += 512) {
        *(uint4 *)(stage + i) = *(const uint4 *)(from + i);
        *(uint4 *)(stage + HALF + i) = *(const uint4 *)(from + HALF + i);
    }
    __syncwarp();
}

template <class T, int SIZE, int TILES>
__device__ __forceinline__ void consume(const struct cuda_attention &args, const struct plan &plan,
                                        const struct layout<SIZE> &room, uint32_t stages,
                                        uint32_t merge_heads)
{
    struct consumer<T, SIZE, TILES> consumer(args, plan, room, merge_heads);
    struct plan_item next;
    uint32_t cuts = 0;
    struct turn turn = {0, 0};
    const struct plan_block guess = read(plan.blocks + blockIdx.x);

    dependency_wait();
    if (guess.item_count > 0)
        consumer.fetch(guess.first);
    const struct plan_block block = read(plan.blocks + blockIdx.x);
    next = block.first;
    if (!same(block, guess) && block.item_count > 0)
        consumer.fetch(next);
#if HAS_BULK_COPY
    named_barrier(BARRIER_START, THREADS);
    for (uint32_t i = *room.dropped; i > 0; i--) {
        barrier_wait(room.full + turn.stage, turn.parity);
        barrier_arrive(room.empty + turn.stage);
        turn.next(stages);
    }
#endif
    for (uint32_t i = 0; i < block.item_count; i++) {
        if (!consumer.AHEAD && i > 0)
            consumer.fetch(next);
        consumer.item_start(next);
        if (i + 1 < block.item_count)
            next = read(plan.items + block.item_first + i + 1);
        if (consumer.AHEAD && i + 1 < block.item_count)
            consumer.fetch(next);
        const struct plan_item item = consumer.item;
        const uint32_t end = item.page_first + item.page_count;
        const bool cut = item.page_count < (item.keys + CUDA_PAGE_TOKENS - 1) / CUDA_PAGE_TOKENS;
        uint32_t page = item.page_first, part = item.part_first;

        for (; page < end; part++) {
            const uint32_t part_end = min(page + item.part_pages, end);

            consumer.part_start();
            for (; page < part_end; page++) {
                uint8_t *stage = room.ring + turn.stage * room.STAGE;

#if HAS_BULK_COPY
                barrier_wait(room.full + turn.stage, turn.parity);
#else
                rows_fetch<SIZE>(args, stage, item, consumer.heads.kv_head, page);
#endif
                if (page * CUDA_PAGE_TOKENS + consumer.warp * 16 < item.keys)
                    consumer.page(stage, page);
#if HAS_BULK_COPY
                /* Each lane for what it has read: after __syncwarp() one would do, but racecheck
                 * does not see that, and it takes as long. */
                barrier_arrive(room.empty + turn.stage);
                turn.next(stages);
#endif
            }
            consumer.part_end(part, cut);
        }
        if (cut && threadIdx.x == 0)
            room.cuts[cuts] = item;
        cuts += cut;
    }
    if (cuts > 0)
        consumer.cuts_end(cuts);
#if HAS_BULK_COPY
    bulk_fence(); /* the next kernel may read the result by bulk copies */
#endif
}

template <class T, int SIZE, int TILES>
__global__ void __launch_bounds__(THREADS, 1)
    decode_kernel(struct cuda_attention args, struct plan plan, uint32_t stages)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t group = args.heads / args.kv_heads, merge_heads = min(group, 8u);
    const struct layout<SIZE> room(shared, stages, merge_heads);

#if HAS_BULK_COPY
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < stages; i++) {
            barrier_init(room.full + i, 1);
            barrier_init(room.empty + i, CONSUMERS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    dependents_launch();
    if (threadIdx.x >= CONSUMERS)
        produce<SIZE>(args, plan, room, stages, TILES * 8);
#endif
    if (threadIdx.x < CONSUMERS)
        consume<T, SIZE, TILES>(args, plan, room, stages, merge_heads);
}

/* --- launching ----------------------------------------------------------------------------- */

template <class T, int SIZE, int TILES>
static int decode(const struct cuda_stream *stream, const struct cuda_attention *args,
                  uint32_t sequences, void *scratch, bool dependent)
{
    constexpr uint32_t STAGES = SIZE > 128 ? 3 : 98304 / layout<SIZE>::STAGE;
    const struct cuda_properties *properties = &stream->context->properties;
    const uint32_t group = args->heads / args->kv_heads;
    const uint32_t stages = properties->capability >= 90 ? STAGES : 1;
    const uint32_t bytes = layout<SIZE>::bytes(stages, group < 8 ? group : 8);
    const struct plan plan =
        plan_place(scratch, properties, args->heads, args->kv_heads, SIZE, sequences, NULL);
    const struct cuda_grid grid = {plan_blocks(properties), 1, 1, THREADS, bytes, dependent};
    int r;

    if (bytes > properties->shared_bytes)
        return attention_general_decode(stream, args, sequences, dependent);
    r = cuda_kernel_shared(stream->context, (const void *)decode_kernel<T, SIZE, TILES>, bytes);
    if (r < 0)
        return r;
    return launch(stream, grid, decode_kernel<T, SIZE, TILES>, *args, plan, stages);
}

static const struct {
    enum dtype type;
    uint32_t head_size, tiles;
    int (*run)(const struct cuda_stream *stream, const struct cuda_attention *args,
               uint32_t sequences, void *scratch, bool dependent);
} kernels[] = {
    {DT_BF16, 64, 1, decode<bf16, 64, 1>},   {DT_BF16, 64, 2, decode<bf16, 64, 2>},
    {DT_BF16, 96, 1, decode<bf16, 96, 1>},   {DT_BF16, 96, 2, decode<bf16, 96, 2>},
    {DT_BF16, 128, 1, decode<bf16, 128, 1>}, {DT_BF16, 128, 2, decode<bf16, 128, 2>},
    {DT_BF16, 256, 1, decode<bf16, 256, 1>}, {DT_F16, 64, 1, decode<f16, 64, 1>},
    {DT_F16, 64, 2, decode<f16, 64, 2>},     {DT_F16, 96, 1, decode<f16, 96, 1>},
    {DT_F16, 96, 2, decode<f16, 96, 2>},     {DT_F16, 128, 1, decode<f16, 128, 1>},
    {DT_F16, 128, 2, decode<f16, 128, 2>},   {DT_F16, 256, 1, decode<f16, 256, 1>},
};

extern "C" int cuda_attention_decode(const struct cuda_stream *stream,
                                     const struct cuda_attention *args, uint32_t sequences,
                                     void *scratch, bool dependent)
{
    const uint32_t tiles = plan_head_tiles(args->heads / args->kv_heads, args->head_size);
    const bool able = stream->context->properties.capability >= (args->type == DT_BF16 ? 80 : 75);

    for (const auto &kernel : kernels)
        if (able && kernel.type == args->type && kernel.head_size == args->head_size &&
            kernel.tiles == tiles)
            return kernel.run(stream, args, sequences, scratch, dependent);
    return attention_general_decode(stream, args, sequences, dependent);
}
