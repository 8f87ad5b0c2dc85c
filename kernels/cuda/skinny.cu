/* skinny.cu -- products of few rows, with what comes before and after fused in.
 *
 *     y[token][output] = scale[token] * sum over columns of w[output][column] x[token][column]
 *
 * for 1 to 8 tokens, where the time is that of reading w once. Weights are the `a` operand of the
 * matrix instruction (16 outputs), tokens the `b` operand (8). The design, and where its
 * numbers were measured (one H200, a step of an 8B model):
 *
 *     w, packed   [outputs / 64][columns / 128] units of 64 x 128 elements, 16 KB, in halves of 32
 *                 outputs, in the order in which lanes hold fragments: one bulk copy a unit, one
 *                 16-byte read a fragment
 *     units       are dealt to one thread block per multiprocessor, equal counts, in order: a tile
 *                 of outputs may be shared by neighbours
 *     a block of  a warp that copies units into a ring of stages, at most 64 KB on the way (deeper
 *     threads     queues only add latency); one that copies their chunks of x; eight that compute:
 *                 tiles of 16 outputs, and parts of the 128 columns
 *     boundary    dependents are launched at the start, and the whole ring is filled before the
 *                 wait for the kernel ahead: weights depend on nothing. Half a multiprocessor each,
 *                 so that two kernels fit beside one another
 *
 * A shared tile: whoever is not its owner (the block with its first columns) stores its sum and
 * counts itself in; the owner adds the others' in order. When one is not there yet, the owner
 * stores its own sum too and whoever is last finishes: nobody waits for a block that may not have
 * started. The order of additions is the same either way. Each warp does so for its 16 outputs.
 *
 * Code is kept short: a layer's kernels follow one another within microseconds and share the
 * multiprocessor's instruction cache. Together with attention's they had 150 KB of code; with waits
 * no longer unrolled, and nothing else changed, a step took 0.04 ms less, and some 10 KB more a
 * kernel had cost it up to 1.5.
 *
 * For more tokens cuBLAS is faster, although it needs kernels of its own for the rest: two tiles of
 * tokens here take too many registers to begin beside attention, and lost 5 to 17% to it. A form of
 * its own for one token (all of x in shared memory) gained nothing, and gave a request other
 * bits alone than in company.
 *
 * RMSNorm is folded in: x is residual * gamma, and 1 / rms a factor of the token, from sums of
 * squares that the kernel before left by tiles of 16 outputs. */
#include "kernels/cuda/skinny_finish.cuh"

namespace
{

constexpr int CHUNK = CUDA_SKINNY_COLUMNS;
constexpr int CHUNK_STEPS = CHUNK / 16; /* of the matrix instruction */
constexpr int UNIT_BYTES = CUDA_SKINNY_OUTPUTS * CHUNK * 2;
constexpr uint32_t NO_TILE = 0xffffffffu;
constexpr int COMPUTE_WARPS = 8;
constexpr int COMPUTE_THREADS = COMPUTE_WARPS * 32;
constexpr int BYTES_AHEAD = 64 * 1024;   /* of weights on the way at once */
constexpr int SHARED_BYTES = 113 * 1024; /* half a multiprocessor's, where a block may have it */

/* How the work is cut. */
constexpr int TILES = CUDA_SKINNY_TOKENS / 8;
constexpr int ROW_WARPS = CUDA_SKINNY_OUTPUTS / 16; /* times 16 outputs: a tile */
constexpr int PARTS = COMPUTE_WARPS / ROW_WARPS;    /* of a unit's columns */
constexpr int STEPS = CHUNK_STEPS / PARTS;
constexpr int X_BYTES = CHUNK * TILES * 16; /* of a unit */
constexpr int STAGE_BYTES = UNIT_BYTES + X_BYTES;
constexpr int AHEAD = BYTES_AHEAD / UNIT_BYTES;
constexpr int STAGES_MOST = 8;
constexpr int THREADS = COMPUTE_THREADS + 64;
constexpr int SUMS = ROW_WARPS * TILES * 32; /* float4, of a tile */
constexpr int PART_FLOATS = SUMS * 4;        /* of a tile's sums in shared memory */
constexpr int FIXED_BYTES =
    2 * (PARTS - 1) * PART_FLOATS * 4 + CUDA_SKINNY_TOKENS * 4 + 3 * STAGES_MOST * 8;

/* All of a block's shared memory. */
struct Room {
    uint8_t *stages;
    float *
        sums; /* [2][PARTS - 1][PART_FLOATS]: the columns' other parts, of this tile and the last */
    float *scales;
    uint64_t *weights; /* barriers, by stage: the unit, its x, and both read */
    uint64_t *x;
    uint64_t *empty;

    __device__ __forceinline__ Room(uint8_t *shared, uint32_t stage_count)
    {
        stages = shared;
        sums = reinterpret_cast<float *>(shared + stage_count * STAGE_BYTES);
        scales = sums + 2 * (PARTS - 1) * PART_FLOATS;
        weights = reinterpret_cast<uint64_t *>(scales + CUDA_SKINNY_TOKENS);
        x = weights + STAGES_MOST;
        empty = x + STAGES_MOST;
    }
};

/* A place in the ring. */
struct Turn {
    uint32_t stage, parity;

    __device__ __forceinline__ void next(uint32_t stages)
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
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

/* One of a block's units: `chunk` of a tile's columns. */
struct Unit {
    uint32_t tile, chunk;

    __device__ __forceinline__ Unit(const Product &p, uint32_t unit)
        : tile(unit / p.chunks), chunk(unit % p.chunks)
    {
    }
    __device__ __forceinline__ void next(const Product &p)
    {
        if (++chunk == p.chunks) {
            chunk = 0;
            tile++;
        }
    }
};

/* --- copying ------------------------------------------------------------------------------- */

#if HAS_BULK_COPY
/* One thread. */
__device__ __forceinline__ void copy_weights(const Product &p, const Room &room, uint32_t begin,
                                             uint32_t end)
{
    const uint64_t once = policy_evict_first();
    const uint8_t *from = p.weights + (size_t)begin * UNIT_BYTES;
    Turn turn = {0, 0}, landed = {0, 0};

    for (uint32_t i = 0; i < end - begin; i++) {
        uint64_t *barrier = room.weights + turn.stage;

        if (i >= AHEAD) {
            barrier_wait(room.weights + landed.stage, landed.parity);
            landed.next(p.stages);
        }
        barrier_wait(room.empty + turn.stage, turn.parity ^ 1);
        barrier_expect(barrier, UNIT_BYTES);
        bulk_copy(room.stages + turn.stage * STAGE_BYTES, from + (size_t)i * UNIT_BYTES, UNIT_BYTES,
                  barrier, once);
        turn.next(p.stages);
    }
}

/* One thread: behind each unit, alone in its stage, its chunk of x, which the kernel ahead has
 * written. */
__device__ __forceinline__ void copy_x(const Product &p, const Room &room, uint32_t begin,
                                       uint32_t end)
{
    const uint64_t often = policy_evict_normal();
    uint32_t chunk = begin % p.chunks;
    Turn turn = {0, 0};

    dependency_wait();
    bulk_fence();
    for (uint32_t i = 0; i < end - begin; i++) {
        barrier_wait(room.empty + turn.stage, turn.parity ^ 1);
        barrier_expect(room.x + turn.stage, X_BYTES);
        bulk_copy(room.stages + turn.stage * STAGE_BYTES + UNIT_BYTES,
                  p.x + (size_t)chunk * X_BYTES, X_BYTES, room.x + turn.stage, often);
        turn.next(p.stages);
        if (++chunk == p.chunks)
            chunk = 0;
    }
}
#endif

/* 1 / rms of each token, from sums by tiles. A warp has every eighth token; a batch of loads is on
 * the way at once: one after another they would cost more than the product. */
__device__ __forceinline__ void find_scales(const Product &p, float *scales)
{
    constexpr int BATCH = 8;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, count = p.squares_count;
    float sums[TILES] = {};

#pragma unroll 1
    for (uint32_t i = lane; i < count; i += BATCH * 32)
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const uint32_t token = j * COMPUTE_WARPS + warp;
            const float *from = p.squares + (size_t)token * count + i;

#pragma unroll
            for (int n = 0; n < BATCH; n++)
                if (token < p.tokens && i + n * 32 < count)
                    sums[j] += __ldcg(from + n * 32);
        }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        float sum = warp_sum(sums[j]);

        if (lane == 0)
            scales[j * COMPUTE_WARPS + warp] = rsqrtf(sum / p.width + p.epsilon);
    }
}

/* --- sums ---------------------------------------------------------------------------------- */

/* A warp's sums of 16 outputs, and their travels. */
template <class T, int KIND> struct Sums {
    float v[TILES][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[j][e] = 0.0f;
    }
    /* Of a unit's columns the part `part`, with the unit's x. */
    __device__ __forceinline__ void add_unit(const uint8_t *unit, const uint8_t *x,
                                             uint32_t row_warp, uint32_t part, uint64_t *empty)
    {
#if HAS_BULK_COPY
        constexpr uint32_t X_STEP = TILES * 256;
        const uint32_t lane = threadIdx.x % 32, half = row_warp / 2 * (UNIT_BYTES / 2);
        uint4 a[STEPS];
        uint2 b[STEPS][TILES];

        /* Everything out of the stage first, so that it is free while the products run. */
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            uint32_t step = part * STEPS + s;

            a[s] = *reinterpret_cast<const uint4 *>(unit + half + (step * 2 + row_warp % 2) * 512 +
                                                    lane * 16);
#pragma unroll
            for (int j = 0; j < TILES; j++)
                b[s][j] = *reinterpret_cast<const uint2 *>(x + step * X_STEP + j * 256 + lane * 8);
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
    /* To and from other blocks, a float4 a lane and token tile. */
    __device__ __forceinline__ void store(float4 *to, uint32_t row_warp) const
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
            __stcg(to + (row_warp * TILES + j) * 32 + threadIdx.x % 32,
                   make_float4(v[j][0], v[j][1], v[j][2], v[j][3]));
    }
    __device__ __forceinline__ void add(const float4 *from, uint32_t row_warp)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
            add(j, __ldcg(from + (row_warp * TILES + j) * 32 + threadIdx.x % 32));
    }
    __device__ __forceinline__ void add(int j, const float4 &more)
    {
        v[j][0] += more.x;
        v[j][1] += more.y;
        v[j][2] += more.z;
        v[j][3] += more.w;
    }
    /* To and from the block's other warps: the same in shared memory. */
    __device__ __forceinline__ void store_part(float *to, uint32_t row_warp) const
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
            reinterpret_cast<float4 *>(to)[(row_warp * TILES + j) * 32 + threadIdx.x % 32] =
                make_float4(v[j][0], v[j][1], v[j][2], v[j][3]);
    }
    __device__ __forceinline__ void add_part(const float *from, uint32_t row_warp)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
            add(j, reinterpret_cast<const float4 *>(
                       from)[(row_warp * TILES + j) * 32 + threadIdx.x % 32]);
    }
    __device__ __forceinline__ void add(const Sums &more)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[j][e] += more.v[j][e];
    }
    __device__ __forceinline__ Place place(uint32_t row_tile, int j) const
    {
        uint32_t lane = threadIdx.x % 32;

        return Place{row_tile, row_tile * 16 + lane / 4, j * 8u + lane % 4 * 2};
    }
    /* What finishing the tile will need from memory: the residual before, or the tokens' turns. */
    __device__ __forceinline__ void load_ahead(const Product &p, uint32_t row_tile)
    {
        Heads heads = {};

        if constexpr (KIND == CUDA_SKINNY_QKV)
            heads = heads_of(p.qkv, row_tile);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            Place at = place(row_tile, j);

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
    __device__ __forceinline__ void finish(const Product &p, uint32_t row_tile, const float *scales,
                                           const Sums &ahead, const Slots<TILES> &slots)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            Place at = place(row_tile, j);

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
                finish_qkv<T>(p, at, v[j], ahead.v[j], slots.at[j]);
        }
    }
};

/* --- tiles that blocks share ---------------------------------------------------------------- */

/* One warp's 16 outputs of a tile: the owner is the block with the tile's first columns, the others
 * come after it up to the final one. */
template <class S> struct Share {
    const Product &p;
    uint32_t row_warp;
    uint32_t owner = 0, final = 0;
    uint32_t *arrived = nullptr;

    __device__ __forceinline__ Share(const Product &product, uint32_t warp)
        : p(product), row_warp(warp)
    {
    }
    __device__ __forceinline__ void look_at(uint32_t tile)
    {
        owner = block_of(p, tile * p.chunks);
        final = block_of(p, tile * p.chunks + p.chunks - 1);
        arrived = p.arrived + tile * ROW_WARPS + row_warp;
    }
    __device__ __forceinline__ uint32_t others() const
    {
        return final - owner;
    }
    /* A block stores at most one part of a tile that it does not own, its first, and one that it
     * does, its last. */
    __device__ __forceinline__ float4 *part_of(uint32_t block, bool owns) const
    {
        return p.partials + ((size_t)owns * gridDim.x + block) * SUMS;
    }
    /* Adds the parts of all but the owner, first to one another, in order. */
    __device__ __forceinline__ void gather(S &sums) const
    {
        S others;

        __syncwarp();
        others.clear();
#pragma unroll 1
        for (uint32_t block = owner + 1; block <= final; block++)
            others.add(part_of(block, false), row_warp);
        sums.add(others);
    }
    __device__ __forceinline__ bool all_arrived() const
    {
        uint32_t count = threadIdx.x % 32 == 0 ? load_acquire(arrived) : 0;

        return __shfl_sync(ALL_LANES, count, 0) == others();
    }
    /* Lane 0's count of those that arrived before this block, whose part is stored here. */
    __device__ __forceinline__ uint32_t arrive(const S &sums) const
    {
        sums.store(part_of(blockIdx.x, owner == blockIdx.x), row_warp);
        __syncwarp();
        return threadIdx.x % 32 == 0 ? add_acquire_release(arrived, 1) : 0;
    }
    __device__ __forceinline__ bool last(uint32_t before) const
    {
        return __shfl_sync(ALL_LANES, before, 0) == others();
    }
    __device__ __forceinline__ void reset() const
    {
        if (threadIdx.x % 32 == 0)
            *arrived = 0;
    }
};

/* --- the kernel ---------------------------------------------------------------------------- */

#if HAS_BULK_COPY
/* The computing warps' side of the ring. */
template <class T, int KIND> struct Consumer {
    using S = Sums<T, KIND>;
    const Product &p;
    const Room &room;
    const uint32_t row_warp, part;
    Unit unit;
    uint32_t left; /* units from `unit` on */
    Turn turn = {0, 0};

    __device__ __forceinline__ Consumer(const Product &product, const Room &shared, uint32_t begin,
                                        uint32_t end)
        : p(product), room(shared), row_warp(threadIdx.x / 32 % ROW_WARPS),
          part(threadIdx.x / 32 / ROW_WARPS), unit(product, begin), left(end - begin)
    {
    }
    __device__ __forceinline__ void add_unit(S &sums)
    {
        const uint8_t *stage = room.stages + turn.stage * STAGE_BYTES;

        barrier_wait(room.weights + turn.stage, turn.parity);
        barrier_wait(room.x + turn.stage, turn.parity);
        sums.add_unit(stage, stage + UNIT_BYTES, row_warp, part, room.empty + turn.stage);
        turn.next(p.stages);
        unit.next(p);
        left--;
    }
    /* The block's columns of a tile: its sums are part 0's then. Parts of two tiles have room, so
     * that nobody waits for part 0 to finish the tile before. */
    __device__ __forceinline__ void add_tile(S &sums, uint32_t round)
    {
        const uint32_t tile = unit.tile;
        float *parts = room.sums + round % 2 * ((PARTS - 1) * PART_FLOATS);

        sums.clear();
        do
            add_unit(sums);
        while (left > 0 && unit.tile == tile);
        if (part > 0)
            sums.store_part(parts + (part - 1) * PART_FLOATS, row_warp);
        named_barrier(1, COMPUTE_THREADS);
        if (part == 0)
#pragma unroll
            for (int i = 0; i < PARTS - 1; i++)
                sums.add_part(parts + i * PART_FLOATS, row_warp);
    }
};

template <class T, int KIND>
__device__ __forceinline__ void compute(const Product &p, const Room &room, uint32_t begin,
                                        uint32_t end)
{
    using S = Sums<T, KIND>;
    Consumer<T, KIND> consumer(p, room, begin, end);
    S sums, ahead;
    Share<S> share(p, consumer.row_warp);
    Slots<TILES> slots;
    uint32_t before = 0, lent = NO_TILE; /* a tile that another block owns, and its count then */

    if (KIND == CUDA_SKINNY_QKV && consumer.part == 0)
        slots.load_tokens(p);
    if (p.squares)
        find_scales(p, room.scales);
    if (KIND == CUDA_SKINNY_QKV && consumer.part == 0)
        slots.load_pages(p);
    ahead.clear();
    /* A tile a round; at last the one that another block owns is looked at again: only then, as the
     * answer whether this block's part came last takes a microsecond. */
#pragma unroll 1
    for (uint32_t round = 0; consumer.left > 0 || lent != NO_TILE; round++) {
        const bool again = consumer.left == 0;
        const uint32_t tile = again ? lent : consumer.unit.tile;
        const uint32_t row_tile = tile * ROW_WARPS + consumer.row_warp;

        /* Long before it is needed. */
        if ((KIND == CUDA_SKINNY_RESIDUAL || KIND == CUDA_SKINNY_QKV) && consumer.part == 0)
            ahead.load_ahead(p, row_tile);
        if (!again)
            consumer.add_tile(sums, round);
        if (consumer.part > 0)
            continue;
        if (tile * p.chunks < begin || (tile + 1) * p.chunks > end) {
            share.look_at(tile);
            const bool owns = share.owner == blockIdx.x;

            if (again) {
                lent = NO_TILE;
                if (!share.last(before))
                    break;
                sums.clear();
                sums.add(share.part_of(share.owner, true), consumer.row_warp);
            } else if (!owns || !share.all_arrived()) {
                uint32_t count = share.arrive(sums);

                if (!owns) {
                    before = count;
                    lent = tile;
                    continue;
                }
                if (!share.last(count))
                    continue;
            }
            share.gather(sums);
            share.reset();
        }
        sums.finish(p, row_tile, room.scales, ahead, slots);
    }
}
#endif

template <class T, int KIND> __global__ void __launch_bounds__(THREADS, 2) skinny(const Product p)
{
#if HAS_BULK_COPY
    extern __shared__ __align__(128) uint8_t shared[];
    const Room room(shared, p.stages);
    const uint32_t begin = first_unit(p, blockIdx.x), end = first_unit(p, blockIdx.x + 1);
    const uint32_t warp = threadIdx.x / 32;

    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < p.stages; i++) {
            barrier_init(room.weights + i, 1);
            barrier_init(room.x + i, 1);
            barrier_init(room.empty + i, COMPUTE_WARPS);
        }
        barrier_init_fence();
    }
    __syncthreads();
    dependents_launch();
    if (warp == COMPUTE_WARPS) {
        if (threadIdx.x % 32 == 0)
            copy_weights(p, room, begin, end);
    } else if (warp > COMPUTE_WARPS) {
        if (threadIdx.x % 32 == 0)
            copy_x(p, room, begin, end);
    } else {
        dependency_wait();
        compute<T, KIND>(p, room, begin, end);
    }
#endif
}

/* --- the instances, by type and kind -------------------------------------------------------- */

using Kernel = void (*)(const Product);

constexpr int KINDS = 5;

template <class T>
constexpr Kernel kernels_of[] = {
    skinny<T, CUDA_SKINNY_PLAIN>,  skinny<T, CUDA_SKINNY_QKV>,    skinny<T, CUDA_SKINNY_RESIDUAL>,
    skinny<T, CUDA_SKINNY_SWIGLU>, skinny<T, CUDA_SKINNY_LOGITS>,
};

Kernel find_kernel(enum dtype type, int kind)
{
    return type == DT_BF16 ? kernels_of<bf16>[kind] : kernels_of<f16>[kind];
}

/* With capability 12.0 a block has 99 KB at most: the ring is shorter there. */
int shared_bytes(const struct cuda_properties *properties)
{
    return properties->shared_bytes < SHARED_BYTES ? (int)properties->shared_bytes : SHARED_BYTES;
}

} /* namespace */

extern "C" uint64_t cuda_skinny_scratch(const struct cuda_properties *properties, uint32_t outputs)
{
    return 2 * (uint64_t)properties->multiprocessors * SUMS * sizeof(float4) +
           (outputs / CUDA_SKINNY_OUTPUTS + 1) * ROW_WARPS * sizeof(uint32_t);
}

extern "C" int cuda_skinny_setup(struct cuda_context *context)
{
    static const enum dtype types[] = {DT_BF16, DT_F16};

    for (enum dtype type : types)
        for (int kind = 0; kind < KINDS; kind++) {
            int r = cuda_kernel_shared(context, (const void *)find_kernel(type, kind),
                                       shared_bytes(&context->properties));

            if (r < 0)
                return r;
        }
    return 0;
}

extern "C" int cuda_skinny(const struct cuda_stream *stream, const struct cuda_skinny *a)
{
    const uint32_t blocks = (uint32_t)stream->context->properties.multiprocessors;
    const uint32_t chunks = (a->columns + CHUNK - 1) / CHUNK;
    const uint32_t units = (a->outputs + CUDA_SKINNY_OUTPUTS - 1) / CUDA_SKINNY_OUTPUTS * chunks;
    Product p = {};

    p.weights = static_cast<const uint8_t *>(a->weights);
    p.x = static_cast<const uint8_t *>(a->x);
    p.tokens = a->tokens;
    p.outputs = a->outputs;
    p.chunks = chunks;
    p.stages =
        min((shared_bytes(&stream->context->properties) - FIXED_BYTES) / STAGE_BYTES, STAGES_MOST);
    p.each = units / blocks;
    p.extra = units % blocks;
    p.squares = a->squares;
    p.squares_count = a->squares_count;
    p.width = a->width;
    p.epsilon = a->epsilon;
    p.partials = reinterpret_cast<float4 *>(a->partials);
    p.arrived = reinterpret_cast<uint32_t *>(p.partials + 2 * (size_t)blocks * SUMS);
    p.out = a->out;
    p.out_stride = a->out_stride;
    p.residual = a->residual;
    p.next_gamma = a->next_gamma;
    p.next_x = a->next_x;
    p.next_squares = a->next_squares;
    if (a->qkv)
        p.qkv = *a->qkv;
    return launch(stream,
                  cuda_grid{blocks, 1, 1, THREADS, FIXED_BYTES + p.stages * STAGE_BYTES, true},
                  find_kernel(a->type, a->kind), p);
}
