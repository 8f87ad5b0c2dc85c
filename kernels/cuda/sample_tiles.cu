/* sample_tiles.cu -- one pass over the logits: the processors that change single logits, and for
 * each tile of 64 tokens the largest value and the sums that sampling and log-probabilities need.
 *
 * A warp takes 8 tiles, four lanes each, and nothing crosses a warp: lane q of a tile holds its
 * logits 16 p + 4 q .. + 3 for p = 0 .. 3. What a row needs decides what is computed: a greedy row
 * without log-probabilities only the largest. Rows with bias, penalties, bans or a mask leave their
 * changed values in the scratch; the raw ones stay as they are.
 *
 * Bytes: the logits once, 8 to 20 for each tile, for changed rows the logits once more and their
 * counts and bits. */
#include "kernels/cuda/sample.cuh"

enum {
    TILES_THREADS = 256,
    WARP_TILES = 32 / TILE_LANES,
    WARP_TOKENS = WARP_TILES * TILE,
    LANE_VALUES = TILE / TILE_LANES,
};

/* --- processors ---------------------------------------------------------------------------- */

/* Which of lane `lane`'s values token `at` of the warp is; LANE_VALUES when it is none. */
__device__ __forceinline__ uint32_t slot_in(uint32_t lane, uint32_t at)
{
    if (lane != at / TILE * TILE_LANES + at % (4 * TILE_LANES) / 4)
        return LANE_VALUES;
    return at % TILE / (4 * TILE_LANES) * 4 + at % 4;
}

/* Adds the row's biases in the order of its list, as far as they are for this warp's tokens. */
__device__ __forceinline__ void add_biases(float (&values)[LANE_VALUES],
                                           const struct cuda_bias *biases, uint32_t count,
                                           uint32_t warp_first)
{
    const uint32_t lane = threadIdx.x % 32;

    for (uint32_t start = 0; start < count; start += 32) {
        struct cuda_bias mine = {-1, 0.0f};
        uint32_t hits;

        if (start + lane < count)
            mine = biases[start + lane];
        hits = __ballot_sync(ALL_LANES, (uint32_t)mine.token - warp_first < WARP_TOKENS);
        for (; hits; hits &= hits - 1) {
            const int from = __ffs((int)hits) - 1;
            const uint32_t at = (uint32_t)__shfl_sync(ALL_LANES, mine.token, from) - warp_first;
            const float bias = __shfl_sync(ALL_LANES, mine.bias, from);
            const uint32_t slot = slot_in(lane, at);

            /* Said without a condition, or the values would be indexed in memory. */
#pragma unroll
            for (uint32_t i = 0; i < LANE_VALUES; i++)
                values[i] = __fadd_rn(values[i], i == slot ? bias : 0.0f);
        }
    }
}

__device__ __forceinline__ void ban_stops(float (&values)[LANE_VALUES],
                                          const struct cuda_sampling &sampling, uint32_t warp_first)
{
    const uint32_t lane = threadIdx.x % 32;

    for (uint32_t stop = 0; stop < sampling.stop_count && stop < CUDA_STOP_MAX; stop++) {
        const uint32_t at = (uint32_t)sampling.stops[stop] - warp_first;

        if (at >= WARP_TOKENS)
            continue;
#pragma unroll
        for (uint32_t i = 0; i < LANE_VALUES; i++)
            values[i] = i == slot_in(lane, at) ? -INFINITY : values[i];
    }
}

__device__ __forceinline__ float penalise(float value, bool seen, uint32_t count,
                                          const struct cuda_sampling &sampling)
{
    const float repetition = sampling.repetition_penalty;

    if (repetition != 1.0f && (seen || count > 0))
        value = value > 0.0f ? __fdiv_rn(value, repetition) : __fmul_rn(value, repetition);
    if (count > 0)
        value = __fsub_rn(value, __fadd_rn(__fmul_rn((float)count, sampling.frequency_penalty),
                                           sampling.presence_penalty));
    return value;
}

__device__ __forceinline__ void add_penalties(float (&values)[LANE_VALUES],
                                              const struct cuda_sample &args,
                                              const struct cuda_sampling &sampling, uint32_t row,
                                              uint32_t first)
{
    const uint16_t *counts = args.generated_counts + (size_t)row * args.vocabulary;
    const uint32_t *seen = args.prompt_seen + (size_t)row * args.mask_words;
    const bool aligned = (uintptr_t)counts % 8 == 0;

#pragma unroll
    for (uint32_t part = 0; part < TILE_PARTS; part++) {
        const uint32_t at = first + part * 4 * TILE_LANES;
        uint32_t four[4] = {0, 0, 0, 0}, bits;

        if (at >= args.vocabulary)
            continue;
        bits = __ldcg(seen + at / 32) >> (at % 32);
        if (aligned && at + 4 <= args.vocabulary) {
            const uint2 packed = __ldcg(reinterpret_cast<const uint2 *>(counts + at));

            four[0] = packed.x & 0xffff;
            four[1] = packed.x >> 16;
            four[2] = packed.y & 0xffff;
            four[3] = packed.y >> 16;
        } else {
            for (uint32_t i = 0; i < 4; i++)
                if (at + i < args.vocabulary)
                    four[i] = __ldcg(counts + at + i);
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            values[part * 4 + i] = penalise(values[part * 4 + i], bits >> i & 1, four[i], sampling);
    }
}

__device__ __forceinline__ void apply_mask(float (&values)[LANE_VALUES],
                                           const struct cuda_sample &args, uint32_t row,
                                           uint32_t first)
{
    const uint32_t *mask = args.masks + (size_t)row * args.mask_words;
    const uint32_t first_word = first / TILE * (TILE / 32);
    uint32_t words[TILE / 32];

    /* All of the tile's at once: they may come over PCIe. */
#pragma unroll
    for (uint32_t i = 0; i < TILE / 32; i++)
        words[i] = first_word + i < args.mask_words ? __ldcg(mask + first_word + i) : 0;
#pragma unroll
    for (uint32_t part = 0; part < TILE_PARTS; part++) {
        const uint32_t at = (first + part * 4 * TILE_LANES) % TILE;
        const uint32_t bits = words[part * 4 * TILE_LANES / 32] >> (at % 32);

#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (!(bits >> i & 1))
                values[part * 4 + i] = -INFINITY;
    }
}

/* --- statistics ---------------------------------------------------------------------------- */

/* The largest value of the tile and its token, the lowest on a tie; every lane gets both. */
__device__ __forceinline__ float tile_largest(const float (&values)[LANE_VALUES], uint32_t first,
                                              uint32_t *ret_token)
{
    float largest = values[0];
    uint32_t token = 0xffffffffu;

#pragma unroll
    for (uint32_t i = 1; i < LANE_VALUES; i++)
        largest = fmaxf(largest, values[i]);
    largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
#pragma unroll
    for (uint32_t i = LANE_VALUES; i-- > 0;)
        if (values[i] == largest)
            token = first + i / 4 * 4 * TILE_LANES + i % 4;
    token = min(token, __shfl_xor_sync(ALL_LANES, token, 1));
    *ret_token = min(token, __shfl_xor_sync(ALL_LANES, token, 2));
    return largest;
}

/* The sum over the tile of exp((value - largest) * inverse); 0 where nothing is above -infinity. */
__device__ __forceinline__ float tile_sum(const float (&values)[LANE_VALUES], float largest,
                                          float inverse)
{
    const float scale = inverse * 1.44269504f, from = largest > -INFINITY ? largest : 0.0f;
    float sum = 0.0f;

#pragma unroll
    for (uint32_t i = 0; i < LANE_VALUES; i++)
        sum += exp2_approximate((values[i] - from) * scale);
    sum += __shfl_xor_sync(ALL_LANES, sum, 1);
    return sum + __shfl_xor_sync(ALL_LANES, sum, 2);
}

/* --- the kernel ---------------------------------------------------------------------------- */

/* Bias, penalties, bans and mask, in this order; leaves the result in the scratch too. */
__device__ __forceinline__ void process(float (&values)[LANE_VALUES],
                                        const struct cuda_sample &args,
                                        const struct cuda_sampling &sampling,
                                        const struct cuda_output &output, uint32_t first,
                                        float *processed)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp_first = first - lane / TILE_LANES * TILE - lane % TILE_LANES * 4;

    if (sampling.bias_count > 0)
        add_biases(values, args.biases + (size_t)output.row * args.bias_max, sampling.bias_count,
                   warp_first);
    if (sampling.counted)
        add_penalties(values, args, sampling, output.row, first);
    if (bans_stops(sampling, output))
        ban_stops(values, sampling, warp_first);
    if (output.flags & CUDA_OUTPUT_MASKED)
        apply_mask(values, args, output.row, first);
    if (first / TILE >= (args.vocabulary + TILE - 1) / TILE)
        return;
#pragma unroll
    for (uint32_t part = 0; part < TILE_PARTS; part++)
        *reinterpret_cast<float4 *>(processed + first + part * 4 * TILE_LANES) = make_float4(
            values[part * 4], values[part * 4 + 1], values[part * 4 + 2], values[part * 4 + 3]);
}

/* Has the row's mask not come yet? One thread of the block looks, since that may go over PCIe; the
 * barrier makes what it has acquired everybody's. */
__device__ __forceinline__ bool mask_is_late(const struct cuda_sample &args,
                                             const struct cuda_output &output)
{
    __shared__ uint32_t position;

    if (!(output.flags & CUDA_OUTPUT_MASKED) || output.flags & CUDA_OUTPUT_UNUSED)
        return false;
    if (threadIdx.x == 0)
        position = load_acquire_system(args.mask_steps + output.row);
    __syncthreads();
    return position != output.position;
}

/* Everything about a tile that is drawn from. */
__device__ __forceinline__ void draw_statistics(float (&values)[LANE_VALUES],
                                                const struct cuda_sample &args,
                                                const struct sample_stats &stats, uint32_t first,
                                                bool late)
{
    const struct cuda_output &output = args.outputs[blockIdx.y];
    const struct cuda_sampling &sampling = args.samplings[output.row];
    const uint32_t tile = first / TILE;
    const size_t at = (size_t)blockIdx.y * stats.tiles + tile;
    const bool writes = threadIdx.x % TILE_LANES == 0 && tile < stats.tiles;
    float largest;
    uint32_t token;

    if (__ldcg(&args.rows[output.row].ended))
        return;
    if (late) {
        if (writes)
            stats.best[at] = make_uint2(LATE_BITS, 0);
        return;
    }
    if (processes(sampling, output))
        process(values, args, sampling, output, first,
                stats.processed + (size_t)blockIdx.y * stats.tiles * TILE);
#pragma unroll
    for (uint32_t i = 0; i < LANE_VALUES; i++)
        values[i] = values[i] == values[i] ? fminf(values[i], FLT_MAX) : -INFINITY;
    largest = tile_largest(values, first, &token);
    if (writes)
        stats.best[at] = make_uint2(__float_as_uint(largest), token);
    if (sampling.temperature > 0.0f) {
        const float sum = tile_sum(values, largest, inverse_temperature(sampling));

        if (writes)
            stats.sums[at] = sum;
    }
}

__global__ void __launch_bounds__(TILES_THREADS)
    sample_tiles(const struct cuda_sample args, const struct sample_stats stats)
{
    const uint32_t warp_first =
        (blockIdx.x * (TILES_THREADS / 32) + threadIdx.x / 32) * WARP_TOKENS;
    const uint32_t lane = threadIdx.x % 32, tile = warp_first / TILE + lane / TILE_LANES;
    const uint32_t first = tile * TILE + lane % TILE_LANES * 4;
    float values[LANE_VALUES];

    dependents_launch();
    dependency_wait();
    const bool late = mask_is_late(args, args.outputs[blockIdx.y]);
    if (warp_first >= args.vocabulary)
        return;
    const struct row_view view =
        view_of(args.logits + (size_t)blockIdx.y * args.logits_stride, args.vocabulary, false);
#pragma unroll
    for (uint32_t part = 0; part < TILE_PARTS; part++) {
        const float4 four = view_four(view, first + part * 4 * TILE_LANES);

        values[part * 4] = four.x;
        values[part * 4 + 1] = four.y;
        values[part * 4 + 2] = four.z;
        values[part * 4 + 3] = four.w;
    }
    const struct cuda_output &output = args.outputs[blockIdx.y];
    if (output.flags & CUDA_OUTPUT_UNUSED)
        return;
    if (logprobs_wanted(args.samplings[output.row], output) >= 0) {
        float raw[LANE_VALUES], largest, sum;
        uint32_t token;

#pragma unroll
        for (uint32_t i = 0; i < LANE_VALUES; i++)
            raw[i] = view_value(view, values[i]);
        largest = tile_largest(raw, first, &token);
        sum = tile_sum(raw, largest, 1.0f);
        if (lane % TILE_LANES == 0 && tile < stats.tiles)
            stats.raw[(size_t)blockIdx.y * stats.tiles + tile] = make_float2(largest, sum);
    }
    if (output.target < 0)
        draw_statistics(values, args, stats, first, late);
}

int sample_tiles_launch(const struct cuda_stream *stream, const struct cuda_sample *args,
                        const struct sample_stats *stats, uint32_t output_count, bool dependent)
{
    const uint32_t block_tokens = TILES_THREADS / 32 * WARP_TOKENS;
    const struct cuda_grid grid = {(args->vocabulary + block_tokens - 1) / block_tokens,
                                   output_count,
                                   1,
                                   TILES_THREADS,
                                   0,
                                   dependent};

    return launch(stream, grid, sample_tiles, *args, *stats);
}
