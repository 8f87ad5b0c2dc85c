/* sample_block.cuh -- what a block does together on one row: sums, the largest, sorting, and
 * finding where the weights of a list reach a target. Each function is called by all threads of the
 * block and ends with a barrier; results are the same in all of them. */
#ifndef WEFT_CUDA_SAMPLE_BLOCK_CUH
#define WEFT_CUDA_SAMPLE_BLOCK_CUH

#include "kernels/cuda/sample.cuh"

using fixed = unsigned long long; /* a sum of weights, or a sort key over a token */

enum {
    ROW_THREADS = 512,
    ROW_WARPS = ROW_THREADS / 32,
    CANDIDATES_MAX = 2048, /* that are sorted; more take the exact way */
    TYPICAL_MAX = 512,     /* the same for typical_p, which needs a second list */
    DIGITS = 2048,         /* values of one digit of the exact way */
    DIGIT_BITS = 11,
    BINS = 1024, /* of distances from the maximum */
};

/* The block's shared memory; behind it a float for each tile, and one more that turns into the list
 * of visited tiles. */
struct row_block {
    union {
        fixed candidates[CANDIDATES_MAX];
        uint32_t bins[BINS];
        struct {
            uint32_t low[DIGITS], high[DIGITS]; /* 64-bit sums */
        } digits;
    };
    fixed typical[TYPICAL_MAX];
    uint8_t typical_kept[TYPICAL_MAX];
    fixed partial[ROW_WARPS];
    double partial_double[ROW_WARPS];
    fixed found_before;
    uint32_t found;
    uint32_t listed;
    uint32_t count;
    uint32_t left_out;
};

/* --- sums ---------------------------------------------------------------------------------- */

/* Sum over the threads up to and including this one. */
__device__ __forceinline__ fixed block_scan(struct row_block *s, fixed value, fixed *ret_total)
{
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    fixed total = 0, before = 0;

#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const fixed other = __shfl_up_sync(ALL_LANES, value, distance);

        value += lane >= distance ? other : 0;
    }
    if (lane == 31)
        s->partial[warp] = value;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < ROW_WARPS; i++) {
        before += i < warp ? s->partial[i] : 0;
        total += s->partial[i];
    }
    __syncthreads();
    *ret_total = total;
    return before + value;
}

__device__ __forceinline__ fixed block_largest(struct row_block *s, fixed value)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value = max(value, __shfl_xor_sync(ALL_LANES, value, distance));
    if (threadIdx.x % 32 == 0)
        s->partial[threadIdx.x / 32] = value;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < ROW_WARPS; i++)
        value = max(value, s->partial[i]);
    __syncthreads();
    return value;
}

__device__ __forceinline__ double block_sum_double(struct row_block *s, double value)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    if (threadIdx.x % 32 == 0)
        s->partial_double[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0.0;
#pragma unroll
    for (uint32_t i = 0; i < ROW_WARPS; i++)
        value += s->partial_double[i];
    __syncthreads();
    return value;
}

/* The first item of a list of `count` at which the sum of weight(item) reaches `target` (> 0);
 * `count` when the whole list does not. */
template <class Weight>
__device__ __forceinline__ uint32_t first_reaching(struct row_block *s, uint32_t count,
                                                   fixed target, const Weight &weight)
{
    const uint32_t each = (count + ROW_THREADS - 1) / ROW_THREADS;
    const uint32_t first = threadIdx.x * each, end = min(first + each, count);
    fixed mine = 0, total, sum;

    for (uint32_t i = first; i < end; i++)
        mine += weight(i);
    sum = block_scan(s, mine, &total) - mine;
    if (total < target)
        return count;
    if (sum < target && sum + mine >= target)
        for (uint32_t i = first; i < end; i++) {
            sum += weight(i);
            if (sum >= target) {
                s->found = i;
                break;
            }
        }
    __syncthreads();
    count = s->found;
    __syncthreads();
    return count;
}

template <class Weight>
__device__ __forceinline__ fixed list_sum(struct row_block *s, uint32_t count, const Weight &weight)
{
    fixed mine = 0, total;

    for (uint32_t i = threadIdx.x; i < count; i += ROW_THREADS)
        mine += weight(i);
    block_scan(s, mine, &total);
    return total;
}

/* Of a share in [0, 1) as 24 bits: the sum that has to be reached, so that a token is drawn when
 * the sum up to it is greater than total * uniform / 2^24. */
__device__ __forceinline__ fixed draw_target(fixed total, uint32_t uniform)
{
    return __umul64hi(total, (fixed)uniform << 40) + 1;
}

/* Of top_p and typical_p. */
__device__ __forceinline__ fixed share_target(fixed total, float share)
{
    const fixed target = (fixed)ceil((double)share * (double)total);

    return target > 0 ? target : 1;
}

/* --- sorting ------------------------------------------------------------------------------- */

/* Compares and exchanges with the element `distance` away, at EACH elements a thread. */
template <int EACH>
__device__ __forceinline__ void exchange(fixed (&mine)[EACH], fixed *keys, uint32_t distance,
                                         uint32_t run)
{
    const uint32_t first = threadIdx.x * EACH;
    fixed other[EACH];

    if (distance >= 32 * EACH) {
        for (int e = 0; e < EACH; e++)
            keys[first + e] = mine[e];
        __syncthreads();
        for (int e = 0; e < EACH; e++)
            other[e] = keys[(first + e) ^ distance];
        __syncthreads();
    } else if (distance >= EACH) {
#pragma unroll
        for (int e = 0; e < EACH; e++)
            other[e] = __shfl_xor_sync(ALL_LANES, mine[e], distance / EACH);
    } else {
#pragma unroll
        for (int near = EACH / 2; near > 0; near /= 2)
            if ((int)distance == near)
#pragma unroll
                for (int e = 0; e < EACH; e++)
                    other[e] = mine[e ^ near];
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t at = first + e;
        const bool larger = ((at & distance) == 0) == ((at & run) == 0);

        mine[e] = larger == (mine[e] > other[e]) ? mine[e] : other[e];
    }
}

/* Bitonic, largest first. Keys differ, but for the zeros that fill up. */
template <int EACH> __device__ void sort_each(fixed *keys, uint32_t count)
{
    const uint32_t first = threadIdx.x * EACH;
    uint32_t size = 2;
    fixed mine[EACH];

    while (size < count)
        size *= 2;
    for (int e = 0; e < EACH; e++)
        mine[e] = first + e < count ? keys[first + e] : 0;
    __syncthreads();
    for (uint32_t run = 2; run <= size; run *= 2)
        for (uint32_t distance = run / 2; distance > 0; distance /= 2)
            exchange(mine, keys, distance, run);
    for (int e = 0; e < EACH; e++)
        if (first + e < count)
            keys[first + e] = mine[e];
    __syncthreads();
}

/* `keys` has room for CANDIDATES_MAX, or for ROW_THREADS when there are at most as many. */
__device__ __forceinline__ void sort_falling(fixed *keys, uint32_t count)
{
    if (count <= ROW_THREADS)
        sort_each<1>(keys, count);
    else if (count <= 2 * ROW_THREADS)
        sort_each<2>(keys, count);
    else
        sort_each<CANDIDATES_MAX / ROW_THREADS>(keys, count);
}

/* A candidate: sorts by falling value, then by rising token. */
__device__ __forceinline__ fixed candidate_of(float value, uint32_t token)
{
    return (fixed)order_of(value) << 32 | (0xffffffffu - token);
}
__device__ __forceinline__ float candidate_value(fixed candidate)
{
    return value_of((uint32_t)(candidate >> 32));
}
__device__ __forceinline__ uint32_t candidate_token(fixed candidate)
{
    return 0xffffffffu - (uint32_t)candidate;
}

/* --- walking a row ------------------------------------------------------------------------- */

/* visit(token, value) for every token of the row, each thread its own in a fixed order. */
template <class Visit>
__device__ __forceinline__ void visit_row(const struct row_view &view, const Visit &visit)
{
    constexpr uint32_t PARTS = 4, STEP = ROW_THREADS * 4;

    for (uint32_t start = threadIdx.x * 4; start < view.count; start += STEP * PARTS) {
        float4 four[PARTS];

#pragma unroll
        for (uint32_t part = 0; part < PARTS; part++)
            four[part] = view_four(view, start + part * STEP);
#pragma unroll
        for (uint32_t part = 0; part < PARTS; part++) {
            const float values[4] = {four[part].x, four[part].y, four[part].z, four[part].w};

#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                if (start + part * STEP + i < view.count)
                    visit(start + part * STEP + i, view_value(view, values[i]));
        }
    }
}

/* visit(token, value) for the tokens of the `listed` tiles in `list`, in any order. */
template <class Visit>
__device__ __forceinline__ void visit_tiles(const struct row_view &view, const uint16_t *list,
                                            uint32_t listed, const Visit &visit)
{
    const uint32_t lane = threadIdx.x % TILE_LANES;

    for (uint32_t i = threadIdx.x / TILE_LANES; i < listed; i += ROW_THREADS / TILE_LANES) {
        const uint32_t first = list[i] * TILE + lane * 4;
        float4 four[TILE_PARTS];

#pragma unroll
        for (uint32_t part = 0; part < TILE_PARTS; part++)
            four[part] = view_four(view, first + part * 4 * TILE_LANES);
#pragma unroll
        for (uint32_t part = 0; part < TILE_PARTS; part++) {
            const uint32_t at = first + part * 4 * TILE_LANES;
            const float values[4] = {four[part].x, four[part].y, four[part].z, four[part].w};

#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                if (at + e < view.count)
                    visit(at + e, view_value(view, values[e]));
        }
    }
    __syncthreads();
}

/* Lists the tiles whose largest value is `wanted`; returns how many. */
template <class Wanted>
__device__ __forceinline__ uint32_t list_tiles(struct row_block *s, const float *largest,
                                               uint32_t tiles, uint16_t *list, const Wanted &wanted)
{
    uint32_t listed;

    if (threadIdx.x == 0)
        s->listed = 0;
    __syncthreads();
    for (uint32_t tile = threadIdx.x; tile < tiles; tile += ROW_THREADS)
        if (wanted(largest[tile]))
            list[atomicAdd(&s->listed, 1u)] = (uint16_t)tile;
    __syncthreads();
    listed = s->listed;
    __syncthreads();
    return listed;
}

#endif
