/* skinny.cu -- products of few rows, with what comes before and after fused in.
 *
 *     y[token][output] = scale[token] * sum over columns of w[output][column] x[token][column]
 *
 * for 1 to 16 tokens, where the time is that of reading w once. Weights are the `a` operand of the
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
 * From about 20 tokens on cuBLAS is faster, although it needs kernels of its own for the rest.
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
constexpr uint32_t NO_TILE = 0xffffffffu;
constexpr int COMPUTE_WARPS = 8;
constexpr int COMPUTE_THREADS = COMPUTE_WARPS * 32;
constexpr int THREADS = COMPUTE_THREADS + 32;
constexpr int ROW_WARPS = TILE_OUTPUTS / 16;      /* 4 */
constexpr int HALVES = COMPUTE_WARPS / ROW_WARPS; /* 2 */
constexpr int STEPS = CHUNK / 16 / HALVES;        /* matrix instructions of a warp in a block */
constexpr int COPIES_AHEAD = 4;                   /* stages on the way at once */
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
    uint32_t each, extra;
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

/* Units are dealt out in order, `each` to a block and one more to the first `extra` blocks. */
__device__ __forceinline__ uint32_t first_unit(const Product &p, uint32_t block)
{
    return block * p.each + min(block, p.extra);
}

__device__ __forceinline__ uint32_t block_of(const Product &p, uint32_t unit)
{
    uint32_t longer = p.extra * (p.each + 1);

    return unit < longer ? unit / (p.each + 1) : p.extra + (unit - longer) / p.each;
}

/* Within the type's range. */
template <class T> __device__ __forceinline__ float saturated(float v)
{
    return v;
}
template <> __device__ __forceinline__ float saturated<f16>(float v)
{
    return fminf(fmaxf(v, -F16_MOST), F16_MOST);
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

/* The sums of 16 columns as the next product's b operand: what lane l holds of it is token l / 4,
 * columns 2 (l % 4), the next, and those eight on: two transposed matrices. Tokens beyond the
 * step's are written too; nobody reads what becomes of them. */
template <class T, int TILES>
__device__ __forceinline__ void store_fragment(void *x, const Place &at, const float (&v)[4])
{
    uint2 fragment;

    fragment.x = transposed_matrix(pack_pair<T>(saturated<T>(v[0]), saturated<T>(v[1])));
    fragment.y = transposed_matrix(pack_pair<T>(saturated<T>(v[2]), saturated<T>(v[3])));
    reinterpret_cast<uint2 *>(x)[(at.row_tile * TILES + at.token / 8) * 32 + threadIdx.x % 32] =
        fragment;
}

template <class T, int TILES>
__device__ __forceinline__ void finish_residual(const Product &p, const Place &at,
                                                const float (&v)[4], const float (&before)[4])
{
    float square[2] = {0.0f, 0.0f}, x[4];

#pragma unroll
    for (int e = 0; e < 4; e++) {
        uint32_t token = at.token + (e & 1), output = at.output + (e >> 1) * 8;
        float after = before[e] + v[e];

        if (token < p.tokens && output < p.outputs)
            __stcg(p.residual + (size_t)token * p.outputs + output, after);
        x[e] = p.next_gamma && output < p.outputs ? after * p.next_gamma[output] : 0.0f;
        square[e & 1] += after * after;
    }
    if (!p.next_gamma)
        return;
    store_fragment<T, TILES>(p.next_x, at, x);
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

/* Packed rows: 8 gates, then their 8 ups: half of a fragment. */
template <class T, int TILES>
__device__ __forceinline__ void finish_swiglu(const Product &p, const Place &at,
                                              const float (&v)[4])
{
    float hidden[2];

#pragma unroll
    for (int e = 0; e < 2; e++)
        hidden[e] = saturated<T>(v[e] / (1.0f + __expf(-v[e])) * v[2 + e]);
    uint32_t pair = transposed_matrix(pack_pair<T>(hidden[0], hidden[1]));
    uint32_t fragment = at.row_tile / 2 * TILES + at.token / 8;

    reinterpret_cast<uint32_t *>(
        p.next_x)[(fragment * 32 + threadIdx.x % 32) * 2 + at.row_tile % 2] = pair;
}

/* Where the tile's 16 rows belong: a head is whole tiles. */
struct Heads {
    uint32_t part; /* 0 q, 1 k, 2 v; 3: padding */
    uint32_t head;
    uint32_t row; /* of the tile in its head */
};
__device__ __forceinline__ Heads heads_of(const struct cuda_qkv &q, uint32_t row_tile)
{
    const uint32_t q_rows = q.heads * q.head_size, kv_rows = q.kv_heads * q.head_size;
    uint32_t row = row_tile * 16, part = 0;

    if (row >= q_rows) {
        part = 1 + (row - q_rows) / kv_rows;
        row = (row - q_rows) % kv_rows;
    }
    return Heads{part < 3 ? part : 3, row / q.head_size, row % q.head_size};
}

/* Packed rows of q and k: the first elements of eight pairs, then their second ones (cuda_pack).
 * `turns` are cosine and sine of the two tokens, `slots` their places in the pages. Two neighbours
 * are stored at once: a pair's own where pairs are neighbours, else those of two lanes. */
template <class T>
__device__ __forceinline__ void finish_qkv(const Product &p, const Place &at, const float (&v)[4],
                                           const float (&turns)[4], const uint32_t *slots)
{
    const struct cuda_qkv &q = p.qkv;
    const Heads heads = heads_of(q, at.row_tile);
    const uint32_t within = at.output % 8, half = q.rotary.size / 2;
    uint32_t first = heads.row + within, second = first + 8;
    bool neighbours = false;

    if (heads.part == 3)
        return;
    if (heads.part < 2) {
        uint32_t pair = heads.row / 2 + within;

        pair_elements(q.rotary, pair, &first, &second);
        neighbours = !q.rotary.halves || pair >= half;
    }
    float bias[2] = {0.0f, 0.0f};
    if (q.bias) {
        uint32_t base = at.row_tile * 16 - heads.row;
        bias[0] = q.bias[base + first];
        bias[1] = q.bias[base + second];
    }
    const bool odd = within & 1;
    const uint32_t element = neighbours || !odd ? first : second - 1;
    const uint32_t chunk = element * sizeof(T) / 16, head_bytes = q.head_size * sizeof(T);
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float a = v[e] + bias[0], b = v[2 + e] + bias[1];

        if (heads.part < 2) {
            float turned = a * turns[2 * e] - b * turns[2 * e + 1];
            b = a * turns[2 * e + 1] + b * turns[2 * e];
            a = turned;
        }
        if (!neighbours) {
            float other = __shfl_xor_sync(ALL_LANES, odd ? a : b, 4);
            if (odd)
                a = other;
            else
                b = other;
        }
        if (slots[e] == CUDA_ROW_NONE)
            continue;
        const uint32_t place = slots[e] % CUDA_PAGE_TOKENS;
        uint8_t *to = heads.part == 0
                          ? static_cast<uint8_t *>(q.q) +
                                ((size_t)(at.token + e) * q.heads + heads.head) * head_bytes +
                                element * sizeof(T)
                          : static_cast<uint8_t *>(q.pages) +
                                cuda_kv_block(slots[e] / CUDA_PAGE_TOKENS, q.kv_heads, heads.head,
                                              heads.part - 1, head_bytes) +
                                (size_t)place * head_bytes +
                                cuda_kv_chunk(chunk, head_bytes / 16, place) * 16 +
                                element * sizeof(T) % 16;
        *reinterpret_cast<uint32_t *>(to) = pack_pair<T>(a, b);
    }
}

/* Where the keys and values of the lane's tokens belong: page x CUDA_PAGE_TOKENS + place; tokens
 * beyond the step's and padding: CUDA_ROW_NONE. Again all loads of a kind at once. */
template <int TILES>
__device__ __forceinline__ void find_slots(const Product &p, uint32_t (&slots)[TILES][2])
{
    struct cuda_token placed[TILES][2];

#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            uint32_t token = j * 8 + threadIdx.x % 4 * 2 + e;

            placed[j][e].row = CUDA_ROW_NONE;
            if (token < p.tokens)
                placed[j][e] = p.qkv.rows.placed[token];
        }
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const struct cuda_token &token = placed[j][e];

            slots[j][e] = CUDA_ROW_NONE;
            if (token.row != CUDA_ROW_NONE)
                slots[j][e] = p.qkv.page_table[(size_t)token.row * p.qkv.pages_per_row +
                                               token.position / CUDA_PAGE_TOKENS] *
                                  CUDA_PAGE_TOKENS +
                              token.position % CUDA_PAGE_TOKENS;
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
    static_assert(COPIES_AHEAD < STAGES, "a stage is free before it is copied to");
    const uint32_t first_count = min((uint32_t)COPIES_AHEAD, end - begin);

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

/* 1 / rms of each token, from sums by tiles. A warp has every eighth token; its loads are all on
 * the way before the first is needed: one after another they would cost more than the product. */
template <int TILES> __device__ __forceinline__ void find_scales(const Product &p, float *scales)
{
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = p.squares_count;
    float sums[TILES] = {};

    for (uint32_t base = lane; base < count; base += 256) {
#pragma unroll
        for (int step = 0; step < 8; step++)
#pragma unroll
            for (int j = 0; j < TILES; j++) {
                uint32_t token = j * COMPUTE_WARPS + warp, i = base + step * 32;

                if (token < p.tokens && i < count)
                    sums[j] += __ldcg(p.squares + (size_t)token * count + i);
            }
    }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        float sum = warp_sum(sums[j]);

        if (lane == 0)
            scales[j * COMPUTE_WARPS + warp] = rsqrtf(sum / p.width + p.epsilon);
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
    /* What finishing the tile will need from memory: the residual before, or the tokens' turns. */
    __device__ __forceinline__ void load_ahead(const Product &p, uint32_t tile, uint32_t row_warp)
    {
        Heads heads = {};

        if constexpr (KIND == CUDA_SKINNY_QKV)
            heads = heads_of(p.qkv, tile * ROW_WARPS + row_warp);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            Place at = place(tile, row_warp, j);

            if constexpr (KIND == CUDA_SKINNY_QKV) {
                uint32_t pair = heads.row / 2 + at.output % 8, pairs = p.qkv.rotary.size / 2;
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float2 turn = make_float2(1.0f, 0.0f);
                    if (heads.part < 2 && pair < pairs && at.token + e < p.tokens)
                        turn = __ldcg(reinterpret_cast<const float2 *>(p.qkv.rotary.table) +
                                      (size_t)(at.token + e) * pairs + pair);
                    v[j][2 * e] = turn.x;
                    v[j][2 * e + 1] = turn.y;
                }
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    uint32_t token = at.token + (e & 1), output = at.output + (e >> 1) * 8;
                    v[j][e] = token < p.tokens && output < p.outputs
                                  ? __ldcg(p.residual + (size_t)token * p.outputs + output)
                                  : 0.0f;
                }
            }
        }
    }
    __device__ __forceinline__ void finish(const Product &p, uint32_t tile, uint32_t row_warp,
                                           const float *scales, const Sums &ahead,
                                           const uint32_t (&slots)[TILES][2])
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
                finish_residual<T, TILES>(p, at, v[j], ahead.v[j]);
            else if constexpr (KIND == CUDA_SKINNY_SWIGLU)
                finish_swiglu<T, TILES>(p, at, v[j]);
            else
                finish_qkv<T>(p, at, v[j], ahead.v[j], slots[j]);
        }
    }
};

/* The blocks that share a tile: its owner, which has its first columns, and how many come after it
 * up to the final one. */
struct Sharers {
    uint32_t owner;
    uint32_t final;
    uint32_t others;
};
__device__ __forceinline__ Sharers sharers_of(const Product &p, uint32_t tile)
{
    const uint32_t owner = block_of(p, tile * p.chunks);
    const uint32_t final = block_of(p, tile * p.chunks + p.chunks - 1);

    /* Where there are fewer units than blocks, some blocks in between have none. */
    return Sharers{owner, final, p.units < gridDim.x ? p.chunks - 1 : final - owner};
}

/* A block stores at most one part of a tile that it does not own, its first, and one that it does,
 * its last. */
template <class S>
__device__ __forceinline__ float4 *part_of(const Product &p, uint32_t block, bool owns)
{
    return p.partials + ((size_t)owns * gridDim.x + block) * S::PER_TILE;
}

/* Adds the parts of all sharers but the owner, in order. */
template <class S>
__device__ __forceinline__ void add_parts(const Product &p, S &sums, const Sharers &sharers,
                                          uint32_t row_warp)
{
    for (uint32_t block = sharers.owner + 1; block <= sharers.final; block++)
        if (first_unit(p, block) < first_unit(p, block + 1))
            sums.add(part_of<S>(p, block, false), row_warp, false);
}

/* One thread's finding, for all that compute. */
__device__ __forceinline__ bool told(bool found, uint32_t *shared)
{
    if (threadIdx.x == 0)
        *shared = found;
    named_barrier(1, COMPUTE_THREADS);
    found = *shared;
    named_barrier(1, COMPUTE_THREADS);
    return found;
}

/* The owner's part of a shared tile is complete. true: `sums` (of the first half's warps) is the
 * whole tile now. false: another block was late, and finishes the tile. */
template <class S>
__device__ __forceinline__ bool own_tile(const Product &p, S &sums, uint32_t tile,
                                         const Sharers &sharers, uint32_t row_warp, uint32_t half,
                                         uint32_t *shared)
{
    bool all = threadIdx.x == 0 && load_acquire(p.arrived + tile) == sharers.others;

    if (!told(all, shared)) {
        if (half == 0)
            sums.store(part_of<S>(p, blockIdx.x, true), row_warp, false);
        named_barrier(1, COMPUTE_THREADS);
        all = threadIdx.x == 0 && add_acquire_release(p.arrived + tile, 1) == sharers.others;
        if (!told(all, shared))
            return false;
    }
    if (half == 0)
        add_parts(p, sums, sharers, row_warp);
    if (threadIdx.x == 0)
        p.arrived[tile] = 0;
    return true;
}

/* A tile that another block owns: finished here only if this block's part came last of all. */
template <class S, int TILES>
__device__ __forceinline__ void finish_lent(const Product &p, S &sums, S &ahead, uint32_t tile,
                                            uint32_t arrived, uint32_t row_warp, uint32_t half,
                                            const float *scales, const uint32_t (&slots)[TILES][2],
                                            uint32_t *shared)
{
    const Sharers sharers = sharers_of(p, tile);

    if (!told(threadIdx.x == 0 && arrived == sharers.others, shared))
        return;
    if (half == 0) {
        ahead.load_ahead(p, tile, row_warp);
        sums.add(part_of<S>(p, sharers.owner, true), row_warp, false);
        add_parts(p, sums, sharers, row_warp);
        sums.finish(p, tile, row_warp, scales, ahead, slots);
        bulk_fence();
    }
    if (threadIdx.x == 0)
        p.arrived[tile] = 0;
}

template <class T, int TILES, int KIND>
__device__ __forceinline__ void compute(const Product &p, const Ring &ring, float4 *half_sums,
                                        float *scales, uint32_t *shared, uint32_t begin,
                                        uint32_t end)
{
#if HAS_BULK_COPY
    constexpr int STAGES = STAGE_COUNT<TILES>, BYTES = STAGE_BYTES<TILES>;
    const uint32_t warp = threadIdx.x / 32, row_warp = warp % ROW_WARPS, half = warp / ROW_WARPS;
    using S = Sums<T, TILES, KIND>;
    S sums, ahead;
    uint32_t arrived = 0, lent = NO_TILE; /* a tile that another block owns, and its count then */
    uint32_t slots[TILES][2] = {};

    if (p.squares)
        find_scales<TILES>(p, scales);
    named_barrier(1, COMPUTE_THREADS);
    sums.clear();
    ahead.clear();
    if (KIND == CUDA_SKINNY_QKV && half == 0)
        find_slots<TILES>(p, slots);
    for (uint32_t unit = begin, i = 0; unit < end; unit++, i++) {
        uint32_t tile = unit / p.chunks, chunk = unit % p.chunks;

        /* Long before it is needed. */
        if ((KIND == CUDA_SKINNY_RESIDUAL || KIND == CUDA_SKINNY_QKV) && half == 0 &&
            (chunk == 0 || unit == begin))
            ahead.load_ahead(p, tile, row_warp);
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

        Sharers sharers = sharers_of(p, tile);
        if (sharers.others > 0 && sharers.owner != blockIdx.x) {
            if (half == 0)
                sums.store(part_of<S>(p, blockIdx.x, false), row_warp, false);
            named_barrier(1, COMPUTE_THREADS);
            /* Whether this was the last part is looked at when all else is done: the answer takes a
             * microsecond. */
            if (threadIdx.x == 0)
                arrived = add_acquire_release(p.arrived + tile, 1);
            lent = tile;
        } else if (sharers.others == 0 ||
                   own_tile(p, sums, tile, sharers, row_warp, half, shared)) {
            if (half == 0) {
                sums.finish(p, tile, row_warp, scales, ahead, slots);
                bulk_fence();
            }
        }
        sums.clear();
    }
    if (lent != NO_TILE)
        finish_lent(p, sums, ahead, lent, arrived, row_warp, half, scales, slots, shared);
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
constexpr uint32_t TILES_MOST = CUDA_SKINNY_TOKENS / 8;

Kernel find_kernel(enum dtype type, uint32_t tiles, int kind)
{
    if (type == DT_BF16)
        return tiles == 1 ? kernels_of<bf16, 1>[kind] : kernels_of<bf16, 2>[kind];
    return tiles == 1 ? kernels_of<f16, 1>[kind] : kernels_of<f16, 2>[kind];
}

uint32_t shared_bytes(uint32_t tiles)
{
    return tiles == 1 ? SHARED_OF<1> : SHARED_OF<TILES_MOST>;
}

size_t partial_sums(uint32_t tiles)
{
    return (size_t)ROW_WARPS * tiles * 32 * sizeof(float4);
}

} /* namespace */

extern "C" uint64_t cuda_skinny_scratch(const struct cuda_properties *properties, uint32_t outputs)
{
    return 2 * (uint64_t)properties->multiprocessors * partial_sums(TILES_MOST) +
           (outputs / TILE_OUTPUTS + 1) * sizeof(uint32_t);
}

extern "C" int cuda_skinny_setup(struct cuda_context *context)
{
    static const enum dtype types[] = {DT_BF16, DT_F16};
    static const uint32_t tiles[] = {1, TILES_MOST};

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
    p.each = p.units / blocks;
    p.extra = p.units % blocks;
    p.squares = a->squares;
    p.squares_count = a->squares_count;
    p.width = a->width;
    p.epsilon = a->epsilon;
    p.partials = reinterpret_cast<float4 *>(a->partials);
    /* Behind the largest form of the sums, so that the counters stay where they are. */
    p.arrived = reinterpret_cast<uint32_t *>(reinterpret_cast<uint8_t *>(a->partials) +
                                             2 * (size_t)blocks * partial_sums(TILES_MOST));
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
