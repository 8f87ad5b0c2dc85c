/* sample.cu -- from the tiles' statistics to tokens and log-probabilities: one block an output.
 *
 * Greedy is the best of the tiles' best. Without a filter the draw is an inverse CDF over the
 * tiles' sums and then inside one tile. With one, a certificate says which tiles can matter:
 * distances from the maximum fall into bins of a 32nd of an octave, and when the tiles with a
 * maximum in the bins up to b are k, the k likeliest tokens are all in bins up to b, and all in
 * those tiles. So a few dozen tiles are read again and sorted in shared memory, where all filters
 * are prefixes of the list (typical_p: of a second one). The same holds for the mass of top_p (64
 * tiles first, 256 if these do not hold it) and the distance of min_p. What does not fit takes the
 * exact way of sample_exact.cuh. Kept tokens are drawn by inverse CDF in the order of falling
 * probability, lowest id first on a tie, whichever way found them.
 *
 * Bytes: 8 to 12 for each tile, 256 for each tile read again, up to 176 to the host. */
#include "config/base/fault.h"
#include "kernels/cuda/sample_exact.cuh"

enum { BIN_SHIFT = 18, BIN_FIRST = (127 - 9) << 5, BIN_LAST = BINS - 1 };

/* One output, as the block works on it. */
struct row_work {
    struct row_block *s;
    float *largest; /* [tiles] in shared memory */
    float *sums;    /* [tiles] */
    uint16_t *list; /* where the sums were */
    uint32_t tiles;
};

/* --- random numbers: kernels/cpu/sample.c's ------------------------------------------------ */

/* 24 bits: sample_uniform() times 2^24. */
__device__ uint32_t draw_uniform(uint64_t seed, uint32_t stream, uint32_t position)
{
    uint32_t c[4] = {position, stream, 0, 0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];

        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c[0] >> 8;
}

/* --- candidates ---------------------------------------------------------------------------- */

/* Monotone: a smaller value never has a smaller bin. BIN_LAST holds what is too far to tell. */
__device__ __forceinline__ uint32_t bin_of_distance(float distance)
{
    const int32_t bin = (int32_t)(__float_as_uint(distance) >> BIN_SHIFT) - BIN_FIRST;

    return (uint32_t)min(max(bin, 0), (int32_t)BIN_LAST);
}
__device__ __forceinline__ uint32_t bin_of(float largest, float value)
{
    return bin_of_distance(__fsub_rn(largest, value));
}

/* The first bin up to which `wanted` tiles have their largest value; BIN_LAST - 1 at the most. */
__device__ uint32_t bin_of_tiles(const struct row_work &work, float largest, uint32_t wanted)
{
    constexpr uint32_t EACH = BINS / ROW_THREADS;
    struct row_block *s = work.s;
    uint32_t bin;

    for (uint32_t i = threadIdx.x; i < BINS; i += ROW_THREADS)
        s->bins[i] = 0;
    __syncthreads();
    for (uint32_t tile = threadIdx.x; tile < work.tiles; tile += ROW_THREADS)
        if (work.largest[tile] > -INFINITY)
            atomicAdd(&s->bins[bin_of(largest, work.largest[tile])], 1u);
    __syncthreads();
    bin = first_reaching(s, BINS, wanted, [&](uint32_t i) -> fixed { return s->bins[i]; });
    static_assert(EACH >= 1, "every bin has a thread");
    return min(bin, (uint32_t)BIN_LAST - 1);
}

enum { GATHERED_ALL = 1, GATHERED_TOO_MANY = 2 };

/* Sorts what lies in the bins up to `bin` into the block's candidates; returns their number.
 * GATHERED_ALL: nothing above -infinity is missing. */
__device__ uint32_t gather(const struct row_work &work, const struct row_view &view, float largest,
                           uint32_t bin, uint32_t *ret_flags)
{
    struct row_block *s = work.s;
    uint32_t listed, count, flags;

    if (threadIdx.x == 0)
        s->count = s->left_out = 0;
    listed = list_tiles(s, work.largest, work.tiles, work.list, [&](float tile_largest) {
        const bool near = bin_of(largest, tile_largest) <= bin;

        if (!near && tile_largest > -INFINITY)
            s->left_out = 1;
        return near && tile_largest > -INFINITY;
    });
    visit_tiles(view, work.list, listed, [&](uint32_t token, float value) {
        if (bin_of(largest, value) <= bin && value > -INFINITY) {
            const uint32_t at = atomicAdd(&s->count, 1u);

            if (at < CANDIDATES_MAX)
                s->candidates[at] = candidate_of(value, token);
        } else if (value > -INFINITY) {
            s->left_out = 1;
        }
    });
    count = s->count;
    flags = s->left_out ? 0 : GATHERED_ALL;
    if (count > CANDIDATES_MAX)
        *ret_flags = GATHERED_TOO_MANY;
    else
        *ret_flags = flags;
    __syncthreads();
    if (count <= CANDIDATES_MAX)
        sort_falling(s->candidates, count);
    return min(count, (uint32_t)CANDIDATES_MAX);
}

/* --- the draw ------------------------------------------------------------------------------ */

/* Inverse CDF over the tiles in the order of the ids, then inside one. */
__device__ uint32_t draw_unfiltered(const struct row_work &work, const struct row_view &view,
                                    const struct ranking &ranking, uint32_t uniform)
{
    struct row_block *s = work.s;
    const auto tile_weight = [&](uint32_t tile) -> fixed {
        return weight_fixed(__fmul_rn(weight_of(ranking, work.largest[tile]), work.sums[tile]));
    };
    const fixed target = draw_target(list_sum(s, work.tiles, tile_weight), uniform);
    const uint32_t tile = first_reaching(s, work.tiles, target, tile_weight);
    const auto before_weight = [&](uint32_t i) { return i < tile ? tile_weight(i) : 0; };
    const fixed before = list_sum(s, work.tiles, before_weight);

    /* Added one by one the tile may come out a hair smaller: then its last token it is. */
    if (threadIdx.x < 32) {
        const uint32_t first = tile * TILE + threadIdx.x * 2;
        fixed pair[2], sum;
        uint32_t token = 0;

        for (uint32_t i = 0; i < 2; i++)
            pair[i] = first + i < view.count
                          ? weight_fixed(weight_of(
                                ranking, view_value(view, __ldcg(view.values + first + i))))
                          : 0;
        sum = pair[0] + pair[1];
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            const fixed other = __shfl_up_sync(ALL_LANES, sum, distance);

            sum += threadIdx.x >= distance ? other : 0;
        }
        sum += before;
        const uint32_t reached = __ballot_sync(ALL_LANES, sum >= target);
        const uint32_t heavy = __ballot_sync(ALL_LANES, pair[0] + pair[1] > 0);
        const uint32_t lane = reached ? __ffs((int)reached) - 1
                              : heavy ? 31 - __clz((int)heavy)
                                      : 0;

        token = first + (reached ? sum - pair[1] < target : pair[1] > 0);
        if (threadIdx.x == lane)
            s->found = token;
    }
    __syncthreads();
    return s->found;
}

/* What the filters leave of the sorted candidates. */
struct kept_list {
    uint32_t count;
    float least;
    bool typical;
};

__device__ __forceinline__ fixed kept_weight(const struct row_block *s,
                                             const struct ranking &ranking,
                                             const struct kept_list &kept, uint32_t at)
{
    const float weight = weight_of(ranking, candidate_value(s->candidates[at]));

    if (!(weight >= kept.least) || (kept.typical && !s->typical_kept[at]))
        return 0;
    return weight_fixed(weight);
}

/* Ranks the kept candidates by their distance from the entropy and marks the first of them. Of the
 * second list's keys the lower half is token and place, the lowest token first. */
__device__ __noinline__ void keep_typical_candidates(struct row_block *s,
                                                     const struct ranking &ranking, float typical_p,
                                                     struct kept_list *kept)
{
    const uint32_t at = threadIdx.x;
    const float value = at < kept->count ? candidate_value(s->candidates[at]) : -INFINITY;
    const float weight = weight_of(ranking, value);
    const bool alive = at < kept->count && weight >= kept->least;
    const double total = block_sum_double(s, alive ? (double)weight : 0.0);
    const double mean = block_sum_double(
        s, alive && weight > 0.0f ? (double)weight * (double)scaled(ranking, value) : 0.0);
    const struct ranking typical = typical_ranking(ranking, total, mean);
    const auto weight_at = [&](uint32_t i) -> fixed {
        return kept_weight(s, ranking, *kept, (uint32_t)s->typical[i] & 0xfff);
    };
    uint32_t end;

    static_assert(TYPICAL_MAX <= ROW_THREADS && TYPICAL_MAX <= 0x1000, "one thread each");
    if (at < kept->count)
        s->typical[at] =
            alive ? (fixed)key_of(typical, value) << 32 |
                        (VOCABULARY_MAX - 1 - candidate_token(s->candidates[at])) << 12 | at
                  : at;
    __syncthreads();
    sort_falling(s->typical, kept->count);
    end = first_reaching(s, kept->count,
                         share_target((fixed)(total * (double)(1ull << FIXED_BITS)), typical_p),
                         weight_at);
    if (at < kept->count)
        s->typical_kept[(uint32_t)s->typical[at] & 0xfff] = at <= end;
    __syncthreads();
    kept->typical = true;
}

/* Filters the candidates and draws. False when they are too few to tell. */
__device__ bool draw_candidates(const struct row_work &work, const struct cuda_sampling &sampling,
                                const struct ranking &ranking, uint32_t top_k, fixed row_total,
                                uint32_t count, bool all, uint32_t uniform, uint32_t *ret_token)
{
    struct row_block *s = work.s;
    struct kept_list kept = {count, 0.0f, false};
    const auto weight_at = [&](uint32_t i) { return kept_weight(s, ranking, kept, i); };

    if (top_k > 0) {
        if (count < top_k && !all)
            return false;
        kept.count = min(count, top_k);
    }
    if (sampling.top_p < 1.0f) {
        const fixed total = top_k > 0 ? list_sum(s, kept.count, weight_at) : row_total;
        const uint32_t end =
            first_reaching(s, kept.count, share_target(total, sampling.top_p), weight_at);

        if (end == kept.count && top_k == 0 && !all)
            return false;
        kept.count = min(end + 1, kept.count);
    }
    if (sampling.min_p > 0.0f)
        kept.least = fminf(sampling.min_p, 1.0f);
    if (sampling.typical_p < 1.0f) {
        if (kept.count > TYPICAL_MAX)
            return false;
        keep_typical_candidates(s, ranking, sampling.typical_p, &kept);
    }
    const uint32_t at = first_reaching(
        s, kept.count, draw_target(list_sum(s, kept.count, weight_at), uniform), weight_at);

    *ret_token = candidate_token(s->candidates[at < kept.count ? at : 0]);
    return true;
}

/* Draws with at least one filter on. */
__device__ uint32_t draw_filtered(const struct row_work &work, const struct row_view &view,
                                  const struct cuda_sampling &sampling,
                                  const struct ranking &ranking, uint32_t top_k, uint32_t uniform)
{
    constexpr uint32_t FEW_TILES = 64, MANY_TILES = 256;
    const bool by_mass = top_k == 0 && sampling.top_p < 1.0f;
    const bool by_distance = top_k == 0 && !by_mass && sampling.min_p > 0.0f;
    fixed total = 0;
    uint32_t token = 0;

    if (by_mass)
        total = list_sum(work.s, work.tiles, [&](uint32_t tile) -> fixed {
            return weight_fixed(__fmul_rn(weight_of(ranking, work.largest[tile]), work.sums[tile]));
        });
    for (uint32_t wanted = by_mass ? FEW_TILES : top_k;; wanted = MANY_TILES) {
        uint32_t bin, flags, count;

        if (by_distance)
            bin =
                min(bin_of_distance((0.01f - logf(fminf(sampling.min_p, 1.0f))) / ranking.inverse),
                    (uint32_t)BIN_LAST - 1);
        else if ((by_mass || top_k > 0) && wanted <= CANDIDATES_MAX)
            bin = bin_of_tiles(work, ranking.largest, wanted);
        else
            break;
        count = gather(work, view, ranking.largest, bin, &flags);
        if (flags & GATHERED_TOO_MANY)
            break;
        if (by_distance && bin == BIN_LAST - 1 && !(flags & GATHERED_ALL))
            break;
        if (draw_candidates(work, sampling, ranking, top_k, total, count, flags & GATHERED_ALL,
                            uniform, &token))
            return token;
        if (!by_mass || wanted == MANY_TILES)
            break;
    }
    return draw_exact(work.s, view, sampling, ranking, top_k, uniform);
}

/* With nothing above -infinity: the lowest token that is neither banned nor masked. */
__device__ uint32_t first_allowed(struct row_block *s, const struct cuda_sample &args,
                                  const struct cuda_sampling &sampling,
                                  const struct cuda_output &output)
{
    const uint32_t *mask = args.masks + (size_t)output.row * args.mask_words;
    const bool masked = output.flags & CUDA_OUTPUT_MASKED, bans = bans_stops(sampling, output);

    for (uint32_t start = 0; start < args.vocabulary; start += ROW_THREADS) {
        const uint32_t token = start + threadIdx.x;
        bool allowed = token < args.vocabulary;
        fixed best;

        if (allowed && masked)
            allowed = __ldcg(mask + token / 32) >> (token % 32) & 1;
        for (uint32_t i = 0; bans && i < sampling.stop_count && i < CUDA_STOP_MAX; i++)
            allowed = allowed && (uint32_t)sampling.stops[i] != token;
        best = block_largest(s, allowed ? 0xffffffffu - token : 0);
        if (best > 0)
            return 0xffffffffu - (uint32_t)best;
    }
    return 0;
}

/* Reads the tiles' statistics. Returns the best token and its value; false when a mask was late. */
__device__ bool read_tiles(const struct row_work &work, const struct sample_stats &stats,
                           bool with_sums, fixed *ret_best)
{
    const size_t base = (size_t)blockIdx.x * stats.tiles;
    fixed best = 0;

    for (uint32_t tile = threadIdx.x; tile < work.tiles; tile += ROW_THREADS) {
        const uint2 entry = __ldcg(stats.best + base + tile);
        const float largest = __uint_as_float(entry.x);

        if (with_sums)
            work.sums[tile] = __ldcg(stats.sums + base + tile);
        work.largest[tile] = largest;
        best = max(best, largest == largest ? candidate_of(largest, entry.y) : ~0ull);
    }
    *ret_best = block_largest(work.s, best);
    return *ret_best != ~0ull;
}

/* The token for an output that draws, or -1 when its mask was late. (A mask that comes in between
 * is late for the blocks that looked before, and so for all.) */
__device__ int32_t draw(const struct row_work &work, const struct cuda_sample &args,
                        const struct sample_stats &stats, const struct cuda_sampling &sampling,
                        const struct cuda_output &output)
{
    const bool processed = processes(sampling, output), samples = sampling.temperature > 0.0f;
    const struct row_view view =
        view_of(processed ? stats.processed + (size_t)blockIdx.x * stats.tiles * TILE
                          : args.logits + (size_t)blockIdx.x * args.logits_stride,
                args.vocabulary, true);
    const uint32_t top_k = sampling.top_k < args.vocabulary ? sampling.top_k : 0;
    struct ranking ranking = {};
    uint32_t uniform;
    fixed best;

    if (!read_tiles(work, stats, samples, &best))
        return -1;
    ranking.largest = candidate_value(best);
    ranking.inverse = inverse_temperature(sampling);
    if (ranking.largest == -INFINITY)
        return (int32_t)first_allowed(work.s, args, sampling, output);
    if (!samples)
        return (int32_t)candidate_token(best);
    uniform = draw_uniform(sampling.seed, sampling.stream, output.position);
    if (top_k == 0 && !(sampling.top_p < 1.0f) && !(sampling.min_p > 0.0f) &&
        !(sampling.typical_p < 1.0f))
        return (int32_t)draw_unfiltered(work, view, ranking, uniform);
    return (int32_t)draw_filtered(work, view, sampling, ranking, top_k, uniform);
}

/* --- log-probabilities --------------------------------------------------------------------- */

/* Raw statistics to shared memory; returns the logarithm of the sum of exp(logit). */
__device__ float read_raw(const struct row_work &work, const struct sample_stats &stats,
                          float *ret_largest)
{
    const size_t base = (size_t)blockIdx.x * stats.tiles;
    fixed best = 0;
    double sum = 0.0;
    float largest;

    for (uint32_t tile = threadIdx.x; tile < work.tiles; tile += ROW_THREADS) {
        const float2 entry = __ldcg(stats.raw + base + tile);

        work.largest[tile] = entry.x;
        work.sums[tile] = entry.y;
        best = max(best, candidate_of(entry.x, 0));
    }
    *ret_largest = largest = candidate_value(block_largest(work.s, best));
    if (isinf(largest))
        return largest;
    for (uint32_t tile = threadIdx.x; tile < work.tiles; tile += ROW_THREADS)
        sum += (double)weight_exp(__fsub_rn(work.largest[tile], largest)) * (double)work.sums[tile];
    return (float)((double)largest + log(block_sum_double(work.s, sum)));
}

/* 1 + how many logits are greater, those with a lower id counting as greater on a tie. */
__device__ uint32_t rank_of(const struct row_work &work, const struct row_view &view, float value,
                            uint32_t token)
{
    const uint32_t listed = list_tiles(work.s, work.largest, work.tiles, work.list,
                                       [&](float tile_largest) { return tile_largest >= value; });
    uint32_t mine = 0;
    fixed total;

    visit_tiles(view, work.list, listed, [&](uint32_t other, float other_value) {
        mine += other_value > value || (other_value == value && other < token);
    });
    block_scan(work.s, mine, &total);
    return 1 + (uint32_t)total;
}

/* The `wanted` likeliest, in order, become the block's candidates. */
__device__ void find_top(const struct row_work &work, const struct row_view &view, float largest,
                         uint32_t wanted)
{
    struct row_block *s = work.s;
    const struct ranking by_count = {0.0f, 0.0f, false, true, 0.0f, 0.0f};
    const struct goal goal = {GOAL_COUNT, wanted, 0.0f};
    struct kept kept = {{0, 0}, 0.0f, false, {0, 0}, by_count};
    uint32_t flags;

    if (!isinf(largest) &&
        gather(work, view, largest, bin_of_tiles(work, largest, wanted), &flags) >= wanted &&
        !(flags & GATHERED_TOO_MANY))
        return;
    find_cut(s, view, by_count, kept, goal, &kept.value);
    if (threadIdx.x == 0)
        s->count = 0;
    __syncthreads();
    visit_row(view, [&](uint32_t token, float value) {
        if (is_kept(kept, by_count, value, token))
            s->candidates[atomicAdd(&s->count, 1u) % CANDIDATES_MAX] = candidate_of(value, token);
    });
    __syncthreads();
    sort_falling(s->candidates, wanted);
}

/* Fills in what was asked for about `token`. */
__device__ void describe(const struct row_work &work, const struct cuda_sample &args,
                         const struct sample_stats &stats, uint32_t token, uint32_t wanted,
                         struct cuda_choice *choice)
{
    const float *logits = args.logits + (size_t)blockIdx.x * args.logits_stride;
    const struct row_view view = view_of(logits, args.vocabulary, false);
    const float stored = __ldcg(logits + token), value = view_value(view, stored);
    float largest, log_sum;
    uint32_t rank;

    wanted = min(wanted, min((uint32_t)CUDA_TOP_MAX, args.vocabulary));
    log_sum = read_raw(work, stats, &largest);
    rank = rank_of(work, view, value, token);
    if (wanted > 0)
        find_top(work, view, largest, wanted);
    if (threadIdx.x == 0) {
        choice->logprob = __fsub_rn(stored, log_sum);
        choice->rank = rank;
        choice->top_count = wanted;
    }
    if (threadIdx.x < wanted) {
        const fixed candidate = work.s->candidates[threadIdx.x];

        choice->top[threadIdx.x].token = (int32_t)candidate_token(candidate);
        choice->top[threadIdx.x].logprob = __fsub_rn(candidate_value(candidate), log_sum);
    }
}

/* --- the kernel ---------------------------------------------------------------------------- */

/* The drawn token becomes the row's: last token, counts, end. */
__device__ void advance(const struct cuda_sample &args, const struct cuda_sampling &sampling,
                        const struct cuda_output &output, int32_t token)
{
    struct cuda_row *row = &args.rows[output.row];

    row->last_token = token;
    if (sampling.counted) {
        uint16_t *count = args.generated_counts + (size_t)output.row * args.vocabulary + token;

        if (*count < UINT16_MAX)
            ++*count;
    }
    if (output.generated < sampling.min_tokens)
        return;
    for (uint32_t i = 0; i < sampling.stop_count && i < CUDA_STOP_MAX; i++)
        if (sampling.stops[i] == token)
            row->ended = 1;
}

__global__ void __launch_bounds__(ROW_THREADS, 1)
    sample_rows(const struct cuda_sample args, const struct sample_stats stats)
{
    extern __shared__ __align__(16) unsigned char sample_memory[];
    struct row_block *s = reinterpret_cast<struct row_block *>(sample_memory);
    struct row_work work = {s, reinterpret_cast<float *>(s + 1), NULL, NULL, stats.tiles};

    work.sums = work.largest + stats.tiles;
    work.list = reinterpret_cast<uint16_t *>(work.sums);
    dependents_launch();
    dependency_wait();
    const uint32_t slot = args.step ? (*args.step - 1) % CUDA_STEP_SLOTS : 0;
    struct cuda_choice *choice =
        &args.mapped_choices[(size_t)slot * args.choices_stride + blockIdx.x];
    const struct cuda_output output = args.outputs[blockIdx.x];
    if (output.flags & CUDA_OUTPUT_UNUSED)
        return;
    const struct cuda_sampling &sampling = args.samplings[output.row];
    const int32_t wanted = logprobs_wanted(sampling, output);
    int32_t token = output.target;

    if (token < 0)
        token =
            __ldcg(&args.rows[output.row].ended) ? -1 : draw(work, args, stats, sampling, output);
    __syncthreads();
    if (threadIdx.x == 0) {
        choice->token = token;
        if (token < 0 || wanted < 0) {
            choice->logprob = NAN;
            choice->rank = 0;
            choice->top_count = 0;
        }
        if (output.target < 0 && token >= 0)
            advance(args, sampling, output, token);
        else if (output.flags & CUDA_OUTPUT_MASKED)
            args.rows[output.row].ended = 1; /* until the host opens it again */
    }
    if (token >= 0 && wanted >= 0)
        describe(work, args, stats, (uint32_t)token, (uint32_t)wanted, choice);
}

/* --- the host's side ----------------------------------------------------------------------- */

static uint32_t tiles_of(uint32_t vocabulary)
{
    return (vocabulary + TILE - 1) / TILE;
}

/* Carves the scratch; returns its size. */
static uint64_t scratch_carve(uint32_t vocabulary, uint32_t outputs, void *scratch,
                              struct sample_stats *ret_stats)
{
    const uint64_t tiles = tiles_of(vocabulary), entries = tiles * outputs;
    unsigned char *memory = (unsigned char *)scratch;

    ret_stats->tiles = (uint32_t)tiles;
    ret_stats->processed = (float *)memory;
    ret_stats->best = (uint2 *)(ret_stats->processed + entries * TILE);
    ret_stats->raw = (float2 *)(ret_stats->best + entries);
    ret_stats->sums = (float *)(ret_stats->raw + entries);
    return entries * (TILE * sizeof(float) + sizeof(uint2) + sizeof(float2) + sizeof(float));
}

extern "C" uint64_t cuda_sample_scratch(uint32_t vocabulary, uint32_t outputs)
{
    struct sample_stats stats;

    return scratch_carve(vocabulary, outputs, NULL, &stats);
}

extern "C" int cuda_sample(const struct cuda_stream *stream, const struct cuda_sample *args,
                           uint32_t output_count, void *scratch, bool dependent)
{
    const size_t shared_bytes =
        sizeof(struct row_block) + (size_t)tiles_of(args->vocabulary) * 2 * sizeof(float);
    const struct cuda_grid grid = {output_count, 1, 1, ROW_THREADS, shared_bytes, true};
    struct sample_stats stats;
    int r;

    if (output_count == 0)
        return 0;
    if (args->vocabulary == 0 || args->vocabulary > VOCABULARY_MAX)
        return fault_set(&stream->context->failure, E_UNSUPPORTED,
                         "a vocabulary of %u tokens is not served on GPUs (up to %u are)",
                         args->vocabulary, VOCABULARY_MAX);
    scratch_carve(args->vocabulary, output_count, scratch, &stats);
    r = cuda_kernel_shared(stream->context, (const void *)sample_rows, shared_bytes);
    if (r == 0)
        r = sample_tiles_launch(stream, args, &stats, output_count, dependent);
    if (r == 0)
        r = launch(stream, grid, sample_rows, *args, stats);
    return r;
}
