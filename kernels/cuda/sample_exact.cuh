/* sample_exact.cuh -- the filters and the draw over a whole row, exact for every distribution.
 *
 * Each question is the same one: in this ranking, where does the sum of the weights reach that
 * target? (top_k: ranked by value, each weighs 1. top_p: the weights up to a share of their sum.
 * typical_p: ranked by distance from the entropy. The draw: up to the uniform number's share.) It
 * is answered digit by digit: three passes add up the weights by 11, 11 and 10 bits of the ranking
 * key, a fourth walks through the ties in the order of the tokens. What is kept is then a
 * comparison with a key and a token, so nothing is stored.
 *
 * Four passes of one block over a row, about 40 us of a vocabulary of 128,256: only rows whose
 * candidates do not fit (flat ones) come here. */
#ifndef WEFT_CUDA_SAMPLE_EXACT_CUH
#define WEFT_CUDA_SAMPLE_EXACT_CUH

#include "kernels/cuda/sample_block.cuh"

/* How tokens are ranked, and what they weigh. */
struct ranking {
    float largest;
    float inverse; /* of the temperature */
    bool typical;  /* by |surprise - entropy|, else by falling value */
    bool counts;   /* each weighs 1 */
    float log_total;
    float entropy;
};

/* In a ranking all keys above `key`, and of those equal to it the tokens below `token_end`. */
struct cut {
    uint32_t key;
    uint32_t token_end;
};

struct kept {
    struct cut value;
    float least; /* weight */
    bool typical;
    struct cut typical_cut;
    struct ranking typical_ranking;
};

enum goal_kind { GOAL_COUNT, GOAL_SHARE, GOAL_DRAW };
struct goal {
    enum goal_kind kind;
    uint32_t number; /* how many; or the uniform number */
    float share;
};

__device__ __forceinline__ float scaled(const struct ranking &ranking, float value)
{
    return __fmul_rn(__fsub_rn(value, ranking.largest), ranking.inverse);
}

__device__ __forceinline__ float weight_of(const struct ranking &ranking, float value)
{
    return weight_exp(scaled(ranking, value));
}

/* Rises with the rank: the token with the largest key comes first. */
__device__ __forceinline__ uint32_t key_of(const struct ranking &ranking, float value)
{
    if (!ranking.typical)
        return order_of(value);
    return ~order_of(
        fabsf(__fsub_rn(__fsub_rn(ranking.log_total, scaled(ranking, value)), ranking.entropy)));
}

__device__ __forceinline__ bool within(const struct cut &cut, uint32_t key, uint32_t token)
{
    return key > cut.key || (key == cut.key && token < cut.token_end);
}

__device__ __forceinline__ bool is_kept(const struct kept &kept, const struct ranking &ranking,
                                        float value, uint32_t token)
{
    if (!within(kept.value, order_of(value), token))
        return false;
    if (kept.least > 0.0f && !(weight_of(ranking, value) >= kept.least))
        return false;
    return !kept.typical || within(kept.typical_cut, key_of(kept.typical_ranking, value), token);
}

__device__ __forceinline__ fixed goal_target(const struct goal &goal, fixed total)
{
    if (goal.kind == GOAL_COUNT)
        return goal.number;
    return goal.kind == GOAL_SHARE ? share_target(total, goal.share)
                                   : draw_target(total, goal.number);
}

/* Finds which digit the target falls into, and sets s->found and s->found_before (the sum ahead of
 * that digit; `before` on entry). */
__device__ void find_digit(struct row_block *s, fixed before, const struct goal &goal,
                           fixed *target)
{
    constexpr uint32_t EACH = DIGITS / ROW_THREADS;
    fixed each[EACH], mine = 0, total, sum;

    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t digit = DIGITS - 1 - (threadIdx.x * EACH + i);

        each[i] = (fixed)s->digits.high[digit] << 32 | s->digits.low[digit];
        mine += each[i];
    }
    sum = before + block_scan(s, mine, &total) - mine;
    if (*target == 0)
        *target = goal_target(goal, total);
    if (sum < *target && sum + mine >= *target)
        for (uint32_t i = 0; i < EACH; i++) {
            if (sum + each[i] >= *target) {
                s->found = DIGITS - 1 - (threadIdx.x * EACH + i);
                s->found_before = sum;
                break;
            }
            sum += each[i];
        }
    if (threadIdx.x == 0 && before + total < *target)
        s->found = DIGITS; /* never */
    __syncthreads();
}

__device__ __forceinline__ void digit_add(struct row_block *s, uint32_t digit, fixed weight)
{
    const uint32_t low = (uint32_t)weight;
    const uint32_t before = atomicAdd(&s->digits.low[digit], low);
    const uint32_t high = (uint32_t)(weight >> 32) + (before + low < before);

    if (high > 0)
        atomicAdd(&s->digits.high[digit], high);
}

/* Among those with the key `key`, in the order of the tokens, at which the target is reached. */
template <class Weight>
__device__ uint32_t find_tied(struct row_block *s, const struct row_view &view, fixed before,
                              fixed target, const Weight &weight)
{
    constexpr uint32_t EACH = 16;

    for (uint32_t start = 0; start < view.count; start += ROW_THREADS * EACH) {
        const uint32_t first = start + threadIdx.x * EACH;
        float values[EACH];
        fixed mine = 0, total, sum;

#pragma unroll
        for (uint32_t i = 0; i < EACH; i += 4) {
            const float4 four = view_four(view, first + i);

            values[i] = four.x;
            values[i + 1] = four.y;
            values[i + 2] = four.z;
            values[i + 3] = four.w;
        }
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            if (first + i < view.count)
                mine += weight(first + i, view_value(view, values[i]));
        sum = before + block_scan(s, mine, &total) - mine;
        if (sum < target && sum + mine >= target)
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++)
                if (first + i < view.count && sum < target) {
                    sum += weight(first + i, view_value(view, values[i]));
                    if (sum >= target)
                        s->found = first + i;
                }
        if (before + total >= target)
            break;
        before += total;
    }
    __syncthreads();
    return s->found;
}

/* Where the kept tokens of the row, ranked, reach the goal. False, and nothing cut, when they do
 * not. */
__device__ __noinline__ bool find_cut(struct row_block *s, const struct row_view &view,
                                      const struct ranking &ranking, const struct kept &kept,
                                      const struct goal &goal, struct cut *ret_cut)
{
    uint32_t prefix = 0, shift = 32, token;
    fixed before = 0, target = 0;
    const auto weigh = [&](float value) {
        return ranking.counts ? 1 : weight_fixed(weight_of(ranking, value));
    };

    while (shift > 0) {
        const uint32_t bits = shift > 10 ? DIGIT_BITS : shift, above = shift;

        shift -= bits;
        for (uint32_t i = threadIdx.x; i < DIGITS; i += ROW_THREADS)
            s->digits.low[i] = s->digits.high[i] = 0;
        __syncthreads();
        visit_row(view, [&](uint32_t visited, float value) {
            if (!is_kept(kept, ranking, value, visited))
                return;
            const uint32_t key = key_of(ranking, value);

            if (above == 32 || key >> above == prefix)
                digit_add(s, key >> shift & ((1u << bits) - 1), weigh(value));
        });
        __syncthreads();
        find_digit(s, before, goal, &target);
        if (s->found == DIGITS)
            return false;
        prefix = prefix << bits | s->found;
        before = s->found_before;
        __syncthreads();
    }
    token = find_tied(s, view, before, target, [&](uint32_t visited, float value) -> fixed {
        return key_of(ranking, value) == prefix && is_kept(kept, ranking, value, visited)
                   ? weigh(value)
                   : 0;
    });
    *ret_cut = {prefix, token + 1};
    __syncthreads();
    return true;
}

/* --- the whole draw ------------------------------------------------------------------------ */

/* The ranking of typical_p over what is kept: the entropy and the logarithm of the sum. */
__device__ __forceinline__ struct ranking typical_ranking(struct ranking ranking, double total,
                                                          double mean)
{
    ranking.typical = true;
    ranking.log_total = (float)log(total);
    ranking.entropy = (float)(log(total) - mean / total);
    return ranking;
}

__device__ __noinline__ void keep_typical(struct row_block *s, const struct row_view &view,
                                          const struct ranking &ranking, float typical_p,
                                          struct kept *kept)
{
    const struct goal goal = {GOAL_SHARE, 0, typical_p};
    double total = 0.0, mean = 0.0;
    struct cut cut;

    visit_row(view, [&](uint32_t token, float value) {
        if (!is_kept(*kept, ranking, value, token))
            return;
        const double weight = (double)weight_of(ranking, value);

        total += weight;
        mean += weight > 0.0 ? weight * (double)scaled(ranking, value) : 0.0;
    });
    total = block_sum_double(s, total);
    mean = block_sum_double(s, mean);
    kept->typical_ranking = typical_ranking(ranking, total, mean);
    if (find_cut(s, view, kept->typical_ranking, *kept, goal, &cut)) {
        kept->typical = true;
        kept->typical_cut = cut;
    }
}

/* All filters and the draw; `top_k` is 0 when it cuts nothing. */
__device__ __noinline__ uint32_t draw_exact(struct row_block *s, const struct row_view &view,
                                            const struct cuda_sampling &sampling,
                                            struct ranking ranking, uint32_t top_k,
                                            uint32_t uniform)
{
    struct kept kept = {{ORDER_OF_NOTHING, 0}, 0.0f, false, {0, 0}, ranking};
    struct goal goal = {GOAL_COUNT, top_k, sampling.top_p};
    struct cut cut = {0, 1};

    if (top_k > 0) {
        ranking.counts = true;
        if (find_cut(s, view, ranking, kept, goal, &cut))
            kept.value = cut;
        ranking.counts = false;
    }
    goal.kind = GOAL_SHARE;
    if (sampling.top_p < 1.0f && find_cut(s, view, ranking, kept, goal, &cut))
        kept.value = cut;
    if (sampling.min_p > 0.0f)
        kept.least = fminf(sampling.min_p, 1.0f);
    if (sampling.typical_p < 1.0f)
        keep_typical(s, view, ranking, sampling.typical_p, &kept);
    goal.kind = GOAL_DRAW;
    goal.number = uniform;
    find_cut(s, view, ranking, kept, goal, &cut);
    return cut.token_end - 1;
}

#endif
