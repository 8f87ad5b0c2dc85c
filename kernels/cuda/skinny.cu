/* skinny.cu -- products of few rows, with what comes before and after fused in.
 *
 *     y[token][output] = scale[token] * sum over columns of w[output][column] x[token][column]
 *
 * for 1 to 32 tokens, where the time is that of reading w once. Weights are the `a` operand of the
 * matrix instruction (16 outputs), tokens the `b` operand (tiles of 8), so 1 to 8 tokens cost the
 * same. The design, and where its numbers were measured (one H200, a step of an 8B model):
 *
 *     w, packed   [outputs / 64][columns / 128] blocks of 64 x 128 elements, 16 KB, in the order in
 *                 which lanes hold fragments: one bulk copy a block, one 16-byte read a fragment
 *     blocks      are dealt to one thread block per multiprocessor, equal counts, in order: a tile
 *                 of 64 outputs may be shared by neighbours
 *     a block of  9 warps: one copies (w block and x chunk into a ring of stages, at most three
 *     threads     on the way, deeper queues only add latency), eight compute: 4 x 16 outputs, two
 *                 halves of the 128 columns
 *     boundary    dependents are launched at the start, and w is copied before the wait for the
 *                 kernel ahead: weights depend on nothing. Half a multiprocessor each, so that two
 *                 kernels fit beside one another
 *
 * A shared tile: whoever is not its owner (the block with its first columns) stores its sum and
 * counts itself in; the owner, normally last by far, adds the others' in order. When one is not
 * there yet, the owner stores its own sum too and whoever is last finishes the tile: nobody waits
 * for a block that may not have started. The order of additions is the same either way.
 *
 * RMSNorm is folded in: x is residual * gamma, and 1 / rms a factor of the token, from sums of
 * squares that the kernel before left by tiles of 16 outputs. */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/kv_store.cuh"

namespace
{

constexpr int TILE_OUTPUTS = CUDA_SKINNY_OUTPUTS;
constexpr int CHUNK = CUDA_SKINNY_COLUMNS;
constexpr int BLOCK_BYTES = TILE_OUTPUTS * CHUNK * 2;
constexpr int COMPUTE_WARPS = 8;
constexpr int COMPUTE_THREADS = COMPUTE_WARPS * 32;
constexpr int THREADS = COMPUTE_THREADS + 32;
constexpr int ROW_WARPS = TILE_OUTPUTS / 16;      /* 4 */
constexpr int HALVES = COMPUTE_WARPS / ROW_WARPS; /* 2 */
constexpr int STEPS = CHUNK / 16 / HALVES;        /* matrix instructions of a warp in a block */
constexpr int COPIES_AHEAD = 3;                   /* stages on the way at once: 48 KB */
constexpr int SHARED_BYTES = 113 * 1024;          /* half a multiprocessor's */
constexpr float F16_MOST = 65504.0f;

template <int TILES> constexpr int STAGE_BYTES = BLOCK_BYTES + CHUNK *TILES * 16;
template <int TILES>
constexpr int FIXED_BYTES = TILE_OUTPUTS *TILES * 32 /* the second half's sums */ +
                            CUDA_SKINNY_TOKENS * 4 /* scales */ + 256 /* barriers */;
template <int TILES>
constexpr int STAGE_COUNT = (SHARED_BYTES - FIXED_BYTES<TILES>) / STAGE_BYTES<TILES>;
template <int TILES>
constexpr int SHARED_OF = STAGE_COUNT<TILES> *STAGE_BYTES<TILES> + FIXED_BYTES<TILES>;

/* All that a kernel is given, by value. */
struct Product {
    const uint8_t *weights;
    const uint8_t *x;
    uint32_t tokens;
    uint32_t outputs;
    uint32_t chunks; /* of a tile's columns */
    uint32_t units;  /* blocks of the whole weight */
    const float *squares;
    uint32_t squares_count;
    float width, epsilon;
    float4 *partials;  /* [2][blocks][a tile's sums] */
    uint32_t *arrived; /* [tiles of outputs], zero between kernels */
    void *out;
    uint32_t out_stride;
    float *residual;
    const float *next_gamma;
    void *next_x;
    float *next_squares;
    struct cuda_qkv qkv;
};

__device__ __forceinline__ uint32_t first_unit(const Product &p, uint32_t block)
{
    return (uint32_t)((uint64_t)p.units * block / gridDim.x);
}

template <class T> __device__ __forceinline__ T saturated(float v)
{
    return from_float<T>(v);
}
template <> __device__ __forceinline__ f16 saturated<f16>(float v)
{
    return __float2half(fminf(fmaxf(v, -F16_MOST), F16_MOST));
}

/* --- one warp's 16 outputs of a finished tile ---------------------------------------------- */

/* The sums of 16 outputs and 8 tokens lie so in a warp: lane l has outputs l / 4 and l / 4 + 8,
 * tokens 2 (l % 4) and the next:  v[0] = (o, t)  v[1] = (o, t + 1)  v[2] = (o + 8, t)
 * v[3] = (o + 8, t + 1). */
struct Place {
    uint32_t row_tile; /* output / 16 */
    uint32_t output;
    uint32_t token;
};

template <class T>
__device__ __forceinline__ void finish_plain(const Product &p, const Place &at, const float (&v)[4])
{
    T *out = static_cast<T *>(p.out);

#pragma unroll
    for (int e = 0; e < 4; e++) {
        uint32_t token = at.token + (e & 1), output = at.output + (e >> 1) * 8;
        if (token < p.tokens && output < p.outputs)
            out[(size_t)token * p.out_stride + output] = from_float<T>(v[e]);
    }
}

__device__ __forceinline__ void finish_logits(const Product &p, const Place &at,
                                              const float (&v)[4])
{
    finish_plain<float>(p, at, v);
}

template <class T, int TILES>
__device__ __forceinline__ void finish_residual(const Product &p, const Place &at,
                                                const float (&v)[4], const float (&before)[4])
{
    float square[2] = {0.0f, 0.0f};

#pragma unroll
    for (int e = 0; e < 4; e++) {
        uint32_t token = at.token + (e & 1), output = at.output + (e >> 1) * 8;
        if (token < p.tokens && output < p.outputs) {
            float after = before[e] + v[e];
            __stcg(p.residual + (size_t)token * p.outputs + output, after);
            if (p.next_gamma)
                static_cast<T *>(p.next_x)[cuda_fragment(token, output, TILES)] =
                    saturated<T>(after * p.next_gamma[output]);
            square[e & 1] += after * after;
        }
    }
    if (!p.next_gamma)
        return;
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
        square[0] += __shfl_xor_sync(ALL_LANES, square[0], distance);
        square[1] += __shfl_xor_sync(ALL_LANES, square[1], distance);
    }
    if (threadIdx.x % 32 < 4) {
        uint32_t count = (p.outputs + 15) / 16;
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (at.token + e < p.tokens && at.row_tile < count)
                __stcg(p.next_squares + (size_t)(at.token + e) * count + at.row_tile, square[e]);
    }
}

/* Packed rows: 8 gates, then their 8 ups. */
template <class T, int TILES>
__device__ __forceinline__ void finish_swiglu(const Product &p, const Place &at,
                                              const float (&v)[4])
{
    uint32_t column = at.row_tile * 8 + at.output % 8;

    if (column >= p.outputs / 2)
        return;
#pragma unroll
    for (int e = 0; e < 2; e++)
        if (at.token + e < p.tokens)
            static_cast<T *>(p.next_x)[cuda_fragment(at.token + e, column, TILES)] =
                saturated<T>(v[e] / (1.0f + __expf(-v[e])) * v[2 + e]);
}

/* Packed rows of q and k: the first elements of eight pairs, then their second ones (cuda_pack). */
template <class T>
__device__ __forceinline__ void finish_qkv(const Product &p, const Place &at, const float (&v)[4])
{
    const struct cuda_qkv &q = p.qkv;
    const uint32_t q_rows = q.heads * q.head_size, kv_rows = q.kv_heads * q.head_size;
    uint32_t tile_row = at.row_tile * 16; /* a head is whole tiles */
    uint32_t within = at.output % 8, rotated = tile_row < q_rows + kv_rows;
    uint32_t head_row = tile_row < q_rows ? tile_row : tile_row - q_rows;
    uint32_t head = head_row / q.head_size, first, second, pair = 0;

    if (tile_row >= q_rows + 2 * kv_rows)
        return;
    if (rotated) {
        pair = head_row % q.head_size / 2 + within;
        pair_elements(q.rotary, pair, &first, &second);
    } else {
        head_row = tile_row - q_rows - kv_rows;
        head = head_row / q.head_size;
        first = head_row % q.head_size + within;
        second = first + 8;
    }
    float bias_first = 0.0f, bias_second = 0.0f;
    if (q.bias) {
        uint32_t base = tile_row - head_row % q.head_size;
        bias_first = q.bias[base + first];
        bias_second = q.bias[base + second];
    }
#pragma unroll
    for (int e = 0; e < 2; e++) {
        uint32_t token = at.token + e;
        struct cuda_token placed;
        float a = v[e] + bias_first, b = v[2 + e] + bias_second;

        if (token >= p.tokens)
            continue;
        placed = q.rows.placed[token];
        if (placed.row == CUDA_ROW_NONE)
            continue;
        if (rotated)
            rotate(q.rotary, token, pair, &a, &b);
        if (tile_row < q_rows) {
            T *out = static_cast<T *>(q.q) + (size_t)token * q_rows + head * q.head_size;
            out[first] = from_float<T>(a);
            out[second] = from_float<T>(b);
        } else {
            store_kv<T>(q, placed, head, !rotated, first, a);
            store_kv<T>(q, placed, head, !rotated, second, b);
        }
    }
}

/* --- the kernel ---------------------------------------------------------------------------- */

struct Ring {
    uint8_t *stages;
    uint64_t *full;
    uint64_t *empty;
};

/* The copying thread: weights at once, x when the kernel ahead is done. */
template <int TILES>
__device__ __forceinline__ void copy_blocks(const Product &p, const Ring &ring, uint32_t begin,
                                            uint32_t end)
{
#if HAS_BULK_COPY
    constexpr int STAGES = STAGE_COUNT<TILES>, BYTES = STAGE_BYTES<TILES>;
    constexpr uint32_t X_BYTES = CHUNK * TILES * 16;
    const uint64_t once = policy_evict_first(), often = policy_evict_normal();
    uint32_t first_count = min((uint32_t)COPIES_AHEAD, end - begin);

    auto copy_weights = [&](uint32_t unit, uint32_t stage) {
        barrier_expect(ring.full + stage, BYTES);
        bulk_copy(ring.stages + stage * BYTES, p.weights + (size_t)unit * BLOCK_BYTES, BLOCK_BYTES,
                  ring.full + stage, once);
    };
    auto copy_x = [&](uint32_t unit, uint32_t stage) {
        bulk_copy(ring.stages + stage * BYTES + BLOCK_BYTES,
                  p.x + (size_t)(unit % p.chunks) * X_BYTES, X_BYTES, ring.full + stage, often);
    };

    for (uint32_t i = 0; i < first_count; i++)
        copy_weights(begin + i, i);
    dependency_wait();
    bulk_fence();
    for (uint32_t i = 0; i < first_count; i++)
        copy_x(begin + i, i);
    for (uint32_t i = first_count; i < end - begin; i++) {
        uint32_t stage = i % STAGES, ahead = i - COPIES_AHEAD;

        barrier_wait(ring.full + ahead % STAGES, ahead / STAGES & 1);
        barrier_wait(ring.empty + stage, (i / STAGES & 1) ^ 1);
        copy_weights(begin + i, stage);
        copy_x(begin + i, stage);
    }
#endif
}

/* 1 / rms of each token, from sums by tiles added in order of lanes. */
__device__ __forceinline__ void find_scales(const Product &p, float *scales)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    for (uint32_t token = warp; token < p.tokens; token += COMPUTE_WARPS) {
        float sum = 0.0f;

        for (uint32_t i = lane; i < p.squares_count; i += 32)
            sum += __ldcg(p.squares + (size_t)token * p.squares_count + i);
        sum = warp_sum(sum);
        if (lane == 0)
            scales[token] = rsqrtf(sum / p.width + p.epsilon);
    }
}

/* A warp's sums of one tile, and their travels. */
template <class T, int TILES, int KIND> struct Sums {
    static constexpr uint32_t PER_TILE = ROW_WARPS * TILES * 32; /* of float4 */
    float v[TILES][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[j][e] = 0.0f;
    }
    __device__ __forceinline__ void add_block(const uint8_t *stage, uint32_t row_warp,
                                              uint32_t half, uint64_t *empty)
    {
#if HAS_BULK_COPY
        const uint32_t lane = threadIdx.x % 32;
        const uint8_t *x = stage + BLOCK_BYTES;
        uint4 a[STEPS];
        uint2 b[STEPS][TILES];

        /* Everything out of the stage first, so that it is free while the products run. */
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            uint32_t step = half * STEPS + s;

            a[s] = *reinterpret_cast<const uint4 *>(stage + (step * ROW_WARPS + row_warp) * 512 +
                                                    lane * 16);
#pragma unroll
            for (int j = 0; j < TILES; j++)
                b[s][j] = *reinterpret_cast<const uint2 *>(x + (step * TILES + j) * 256 + lane * 8);
        }
        __syncwarp();
        if (lane == 0)
            barrier_arrive(empty);
#pragma unroll
        for (int s = 0; s < STEPS; s++)
#pragma unroll
            for (int j = 0; j < TILES; j++)
                mma_16x8x16<T>(v[j], a[s], b[s][j].x, b[s][j].y);
#endif
    }
    /* To and from memory, a float4 a lane and token tile. */
    __device__ __forceinline__ void store(float4 *to, uint32_t row_warp, bool shared) const
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            float4 *place = to + (row_warp * TILES + j) * 32 + threadIdx.x % 32;
            const float4 sums = make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);

            if (shared)
                *place = sums;
            else
                __stcg(place, sums);
        }
    }
    __device__ __forceinline__ void add(const float4 *from, uint32_t row_warp, bool shared)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const float4 *place = from + (row_warp * TILES + j) * 32 + threadIdx.x % 32;
            float4 more = shared ? *place : __ldcg(place);

            v[j][0] += more.x;
            v[j][1] += more.y;
            v[j][2] += more.z;
            v[j][3] += more.w;
        }
    }
    __device__ __forceinline__ Place place(uint32_t tile, uint32_t row_warp, int j) const
    {
        uint32_t lane = threadIdx.x % 32, row_tile = tile * ROW_WARPS + row_warp;

        return Place{row_tile, row_tile * 16 + lane / 4, j * 8u + lane % 4 * 2};
    }
    __device__ __forceinline__ void load_residual(const Product &p, uint32_t tile,
                                                  uint32_t row_warp)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            Place at = place(tile, row_warp, j);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t token = at.token + (e & 1), output = at.output + (e >> 1) * 8;
                v[j][e] = token < p.tokens && output < p.outputs
                              ? __ldcg(p.residual + (size_t)token * p.outputs + output)
                              : 0.0f;
            }
        }
    }
    __device__ __forceinline__ void finish(const Product &p, uint32_t tile, uint32_t row_warp,
                                           const float *scales, const Sums &before)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            Place at = place(tile, row_warp, j);

            if (p.squares) {
                float first = scales[at.token], second = scales[at.token + 1];
                v[j][0] *= first;
                v[j][1] *= second;
                v[j][2] *= first;
                v[j][3] *= second;
            }
            if constexpr (KIND == CUDA_SKINNY_PLAIN)
                finish_plain<T>(p, at, v[j]);
            else if constexpr (KIND == CUDA_SKINNY_LOGITS)
                finish_logits(p, at, v[j]);
            else if constexpr (KIND == CUDA_SKINNY_RESIDUAL)
                finish_residual<T, TILES>(p, at, v[j], before.v[j]);
            else if constexpr (KIND == CUDA_SKINNY_SWIGLU)
                finish_swiglu<T, TILES>(p, at, v[j]);
            else
                finish_qkv<T>(p, at, v[j]);
        }
    }
};

/* Which block has that unit. */
__device__ __forceinline__ uint32_t block_of(const Product &p, uint32_t unit)
{
    uint32_t block = (uint32_t)((uint64_t)unit * gridDim.x / p.units);

    /* The division rounds down on both ways: at most a step off. */
    while (first_unit(p, block + 1) <= unit)
        block++;
    return block;
}

/* This block's part of a tile meets the others'. true: `sums` (of the first half's warps) is the
 * whole now, and this block finishes the tile. */
template <class S>
__device__ __forceinline__ bool share_tile(const Product &p, S &sums, uint32_t tile,
                                           uint32_t row_warp, uint32_t half, uint32_t *last)
{
    const uint32_t owner = block_of(p, tile * p.chunks);
    const uint32_t final = block_of(p, tile * p.chunks + p.chunks - 1);
    /* Where there are fewer units than blocks, some blocks in between have none. */
    const uint32_t others = p.units < gridDim.x ? p.chunks - 1 : final - owner;
    const bool owns = owner == blockIdx.x;
    bool complete = false;

    if (others == 0)
        return true;
    if (owns) {
        if (threadIdx.x == 0)
            *last = load_acquire(p.arrived + tile) == others;
        named_barrier(1, COMPUTE_THREADS);
        complete = *last;
        named_barrier(1, COMPUTE_THREADS);
    }
    if (!complete) {
        /* A block has at most one tile that it does not own, its first, and one that it shares
         * and owns, its last. */
        if (half == 0)
            sums.store(p.partials + ((size_t)owns * gridDim.x + blockIdx.x) * S::PER_TILE, row_warp,
                       false);
        named_barrier(1, COMPUTE_THREADS);
        if (threadIdx.x == 0)
            *last = add_acquire_release(p.arrived + tile, 1) == others;
        named_barrier(1, COMPUTE_THREADS);
        complete = *last;
        named_barrier(1, COMPUTE_THREADS);
        if (!complete)
            return false;
    }
    if (half == 0) {
        if (!owns) {
            sums.clear();
            sums.add(p.partials + ((size_t)gridDim.x + owner) * S::PER_TILE, row_warp, false);
        }
        for (uint32_t other = owner + 1; other <= final; other++)
            if (first_unit(p, other) < first_unit(p, other + 1))
                sums.add(p.partials + (size_t)other * S::PER_TILE, row_warp, false);
    }
    if (threadIdx.x == 0)
        p.arrived[tile] = 0;
    return true;
}

template <class T, int TILES, int KIND>
__device__ __forceinline__ void compute(const Product &p, const Ring &ring, float4 *half_sums,
                                        float *scales, uint32_t *last, uint32_t begin, uint32_t end)
{
#if HAS_BULK_COPY
    constexpr int STAGES = STAGE_COUNT<TILES>, BYTES = STAGE_BYTES<TILES>;
    const uint32_t warp = threadIdx.x / 32, row_warp = warp % ROW_WARPS, half = warp / ROW_WARPS;
    Sums<T, TILES, KIND> sums, before;

    if (p.squares)
        find_scales(p, scales);
    named_barrier(1, COMPUTE_THREADS);
    sums.clear();
    before.clear();
    for (uint32_t unit = begin, i = 0; unit < end; unit++, i++) {
        uint32_t tile = unit / p.chunks, chunk = unit % p.chunks;

        /* The residual, long before it is needed. */
        if (KIND == CUDA_SKINNY_RESIDUAL && half == 0 && (chunk == 0 || unit == begin))
            before.load_residual(p, tile, row_warp);
        barrier_wait(ring.full + i % STAGES, i / STAGES & 1);
        sums.add_block(ring.stages + i % STAGES * BYTES, row_warp, half, ring.empty + i % STAGES);
        if (chunk + 1 < p.chunks && unit + 1 < end)
            continue;

        /* This block's part of the tile is complete: first its two halves. */
        if (half == 1)
            sums.store(half_sums, row_warp, true);
        named_barrier(1, COMPUTE_THREADS);
        if (half == 0)
            sums.add(half_sums, row_warp, true);
        named_barrier(1, COMPUTE_THREADS);

        bool finishes = share_tile(p, sums, tile, row_warp, half, last);
        if (finishes && half == 0) {
            sums.finish(p, tile, row_warp, scales, before);
            bulk_fence();
        }
        sums.clear();
    }
#endif
}

template <class T, int TILES, int KIND>
__global__ void __launch_bounds__(THREADS, 2) skinny(const Product p)
{
#if HAS_BULK_COPY
    constexpr int STAGES = STAGE_COUNT<TILES>;
    extern __shared__ __align__(128) uint8_t shared[];
    float4 *half_sums = reinterpret_cast<float4 *>(shared + STAGES * STAGE_BYTES<TILES>);
    float *scales = reinterpret_cast<float *>(half_sums + TILE_OUTPUTS * TILES * 2);
    uint64_t *barriers = reinterpret_cast<uint64_t *>(scales + CUDA_SKINNY_TOKENS);
    uint32_t *last = reinterpret_cast<uint32_t *>(barriers + 2 * STAGES);
    Ring ring = {shared, barriers, barriers + STAGES};
    uint32_t begin = first_unit(p, blockIdx.x), end = first_unit(p, blockIdx.x + 1);

    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.full + i, 1);
            barrier_init(ring.empty + i, COMPUTE_WARPS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    dependents_launch();
    if (threadIdx.x >= COMPUTE_THREADS) {
        if (threadIdx.x == COMPUTE_THREADS)
            copy_blocks<TILES>(p, ring, begin, end);
        return;
    }
    dependency_wait();
    compute<T, TILES, KIND>(p, ring, half_sums, scales, last, begin, end);
#endif
}

/* --- the instances, by type, token tiles and kind ------------------------------------------ */

using Kernel = void (*)(const Product);

template <class T, int TILES>
constexpr Kernel kernels_of[] = {
    skinny<T, TILES, CUDA_SKINNY_PLAIN>,    skinny<T, TILES, CUDA_SKINNY_QKV>,
    skinny<T, TILES, CUDA_SKINNY_RESIDUAL>, skinny<T, TILES, CUDA_SKINNY_SWIGLU>,
    skinny<T, TILES, CUDA_SKINNY_LOGITS>,
};
constexpr int KINDS = 5;

Kernel find_kernel(enum dtype type, uint32_t tiles, int kind)
{
    bool wide = type == DT_BF16;

    switch (tiles) {
    case 1:
        return wide ? kernels_of<bf16, 1>[kind] : kernels_of<f16, 1>[kind];
    case 2:
        return wide ? kernels_of<bf16, 2>[kind] : kernels_of<f16, 2>[kind];
    default:
        return wide ? kernels_of<bf16, 4>[kind] : kernels_of<f16, 4>[kind];
    }
}

uint32_t shared_bytes(uint32_t tiles)
{
    return tiles == 1 ? SHARED_OF<1> : tiles == 2 ? SHARED_OF<2> : SHARED_OF<4>;
}

size_t partial_sums(uint32_t tiles)
{
    return (size_t)ROW_WARPS * tiles * 32 * sizeof(float4);
}

} /* namespace */

extern "C" uint64_t cuda_skinny_scratch(const struct cuda_properties *properties, uint32_t outputs)
{
    return 2 * (uint64_t)properties->multiprocessors * partial_sums(4) +
           (outputs / TILE_OUTPUTS + 1) * sizeof(uint32_t);
}

extern "C" int cuda_skinny_setup(struct cuda_context *context)
{
    static const enum dtype types[] = {DT_BF16, DT_F16};
    static const uint32_t tiles[] = {1, 2, 4};

    for (enum dtype type : types)
        for (uint32_t t : tiles)
            for (int kind = 0; kind < KINDS; kind++) {
                int r = cuda_kernel_shared(context, (const void *)find_kernel(type, t, kind),
                                           shared_bytes(t));
                if (r < 0)
                    return r;
            }
    return 0;
}

extern "C" int cuda_skinny(const struct cuda_stream *stream, const struct cuda_skinny *a)
{
    uint32_t blocks = (uint32_t)stream->context->properties.multiprocessors;
    uint32_t output_tiles = (a->outputs + TILE_OUTPUTS - 1) / TILE_OUTPUTS;
    Product p = {};

    p.weights = static_cast<const uint8_t *>(a->weights);
    p.x = static_cast<const uint8_t *>(a->x);
    p.tokens = a->tokens;
    p.outputs = a->outputs;
    p.chunks = (a->columns + CHUNK - 1) / CHUNK;
    p.units = output_tiles * p.chunks;
    p.squares = a->squares;
    p.squares_count = a->squares_count;
    p.width = a->width;
    p.epsilon = a->epsilon;
    p.partials = reinterpret_cast<float4 *>(a->partials);
    /* Behind the largest form of the sums, so that the counters stay where they are. */
    p.arrived = reinterpret_cast<uint32_t *>(reinterpret_cast<uint8_t *>(a->partials) +
                                             2 * (size_t)blocks * partial_sums(4));
    p.out = a->out;
    p.out_stride = a->out_stride;
    p.residual = a->residual;
    p.next_gamma = a->next_gamma;
    p.next_x = a->next_x;
    p.next_squares = a->next_squares;
    if (a->qkv)
        p.qkv = *a->qkv;
    return launch(stream, cuda_grid{blocks, 1, 1, THREADS, shared_bytes(a->tiles), true},
                  find_kernel(a->type, a->tiles, a->kind), p);
}
