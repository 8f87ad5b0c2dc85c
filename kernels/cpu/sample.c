/* sample.c -- one row of logits to one token.
 *
 * Weights are exp((logit - max) / temperature), so the likeliest token weighs exactly 1 and nothing
 * overflows. Without a filter the draw is an inverse CDF over the weights in the order of the ids:
 * three passes over the row, nothing sorted. With one, the few tokens that can survive are gathered
 * first:
 *
 *     count by distance from the maximum  [ 1 | 0 | 2 | 5 | 9 | 31 | 77 | ... ]  an eighth of a nat
 *     top_k: the buckets up to the k-th    `----------------'                    each
 *     top_p: until what lies further out is certainly less than 1 - p
 *
 * and the exact border inside them is found by a weighted quickselect. Nothing here depends on the
 * machine or on other rows: a row gives the same token everywhere.
 *
 * Thread: any; all state is the caller's. */
#include "kernels/cpu/sample.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/logits.h"

enum {
    BLOCK = LOGITS_BLOCK,
    DISTANCE_BUCKETS = 512,
    SELECT_SMALL = 24, /* below this an insertion sort is quicker than partitioning */
};
static const float BUCKETS_PER_NAT = 8.0f;

/* ---- random numbers ---- */

void sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];

        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(ret_words, c, sizeof c);
}

float sample_uniform(uint64_t seed, uint32_t stream, uint32_t position)
{
    const uint32_t counter[4] = {position, stream, 0, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4];

    sample_philox(counter, key, words);
    return (float)(words[0] >> 8) * 0x1p-24f;
}

/* ---- processors that change single logits ---- */

static bool penalises(const struct sample_params *params)
{
    return params->repetition_penalty != 1.0f || params->frequency_penalty != 0.0f ||
           params->presence_penalty != 0.0f;
}

static void penalise_repetition(float *logits, uint32_t token, float penalty)
{
    logits[token] = logits[token] > 0.0f ? logits[token] / penalty : logits[token] * penalty;
}

static void penalise_seen(float *logits, uint32_t vocabulary, const struct sample_params *params)
{
    const uint64_t *seen = params->prompt_seen;

    if (params->repetition_penalty == 1.0f || !seen)
        return;
    for (uint32_t word = 0; word < (vocabulary + 63) / 64; word++)
        for (uint64_t bits = seen[word]; bits; bits &= bits - 1) {
            uint32_t token = word * 64 + (uint32_t)__builtin_ctzll(bits);

            if (token < vocabulary)
                penalise_repetition(logits, token, params->repetition_penalty);
        }
}

static void penalise_generated(float *logits, uint32_t vocabulary,
                               const struct sample_params *params)
{
    const uint16_t *counts = params->generated_counts;
    const uint64_t *seen = params->prompt_seen;
    const bool repetition = params->repetition_penalty != 1.0f;

    if (!counts)
        return;
    for (uint32_t token = 0; token < vocabulary; token++) {
        uint64_t four;

        /* Nearly all counts are zero: look at four at a time. */
        if (token % 4 == 0 && token + 4 <= vocabulary) {
            memcpy(&four, counts + token, sizeof four);
            if (four == 0) {
                token += 3;
                continue;
            }
        }
        if (counts[token] == 0)
            continue;
        if (repetition && !(seen && (seen[token / 64] >> (token % 64) & 1)))
            penalise_repetition(logits, token, params->repetition_penalty);
        logits[token] -=
            (float)counts[token] * params->frequency_penalty + params->presence_penalty;
    }
}

static void apply_mask(float *logits, uint32_t vocabulary, const uint32_t *mask)
{
    for (uint32_t first = 0; first < vocabulary; first += 32) {
        uint32_t bits = mask[first / 32];
        uint32_t count = vocabulary - first < 32 ? vocabulary - first : 32;

        for (uint32_t i = 0; i < count && bits != UINT32_MAX; i++)
            if (!(bits >> i & 1))
                logits[first + i] = -INFINITY;
    }
}

/* The row after bias, penalties, bans and mask: the caller's own where none applies, else a copy in
 * the scratch. */
static const float *process(const float *logits, const struct sample_params *params,
                            struct sample_scratch *scratch)
{
    uint32_t vocabulary = scratch->vocabulary;
    float *row = scratch->logits;

    if (params->bias_count == 0 && params->banned_count == 0 && !params->mask && !penalises(params))
        return logits;
    memcpy(row, logits, vocabulary * sizeof *row);
    for (uint32_t i = 0; i < params->bias_count; i++)
        if ((uint32_t)params->biases[i].token < vocabulary)
            row[params->biases[i].token] += params->biases[i].bias;
    if (penalises(params)) {
        penalise_seen(row, vocabulary, params);
        penalise_generated(row, vocabulary, params);
    }
    for (uint32_t i = 0; i < params->banned_count; i++)
        if ((uint32_t)params->banned[i] < vocabulary)
            row[params->banned[i]] = -INFINITY;
    if (params->mask)
        apply_mask(row, vocabulary, params->mask);
    return row;
}

/* ---- filters over candidates ---- */

static bool cuts_k(const struct sample_params *params, uint32_t vocabulary)
{
    return params->top_k > 0 && params->top_k < vocabulary;
}

static bool cuts_p(const struct sample_params *params)
{
    return params->top_p < 1.0f;
}

static bool filters(const struct sample_params *params, uint32_t vocabulary)
{
    return cuts_k(params, vocabulary) || cuts_p(params) || params->min_p > 0.0f ||
           params->typical_p < 1.0f;
}

/* How a filter ranks and weighs candidates, whose `value` is the processed logit. */
struct ranking {
    float max;
    float inverse; /* of the temperature */
    bool counts;   /* each weighs 1 (top_k), else by its probability */
    bool typical;  /* ranked by |surprise - entropy|, else by falling logit */
    float log_total;
    float entropy;
};

static float weight_of(const struct ranking *ranking, float logit)
{
    return logits_exp((logit - ranking->max) * ranking->inverse);
}

static float key_of(const struct ranking *ranking, float logit)
{
    if (!ranking->typical)
        return -logit;
    return fabsf(ranking->log_total - (logit - ranking->max) * ranking->inverse - ranking->entropy);
}

static bool before(const struct ranking *ranking, const struct sample_candidate *a,
                   const struct sample_candidate *b)
{
    float key_a = key_of(ranking, a->value), key_b = key_of(ranking, b->value);

    return key_a < key_b || (key_a == key_b && a->token < b->token);
}

static void swap(struct sample_candidate *a, struct sample_candidate *b)
{
    struct sample_candidate kept = *a;

    *a = *b;
    *b = kept;
}

/* Moves the middle one of three to `at`. */
static void pivot_to(struct sample_candidate *at, struct sample_candidate *b,
                     struct sample_candidate *c, const struct ranking *ranking)
{
    bool at_b = before(ranking, at, b);

    if (at_b != before(ranking, c, at)) /* else it is the middle one itself */
        swap(at, at_b == before(ranking, b, c) ? b : c);
}

static void sort_small(struct sample_candidate *all, uint32_t count, const struct ranking *ranking)
{
    for (uint32_t i = 1; i < count; i++) {
        struct sample_candidate one = all[i];
        uint32_t j = i;

        for (; j > 0 && before(ranking, &one, &all[j - 1]); j--)
            all[j] = all[j - 1];
        all[j] = one;
    }
}

static double weights_sum(const struct sample_candidate *all, uint32_t count,
                          const struct ranking *ranking)
{
    double sum = 0.0;

    if (ranking->counts)
        return count;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)weight_of(ranking, all[i].value);
    return sum;
}

/* Moves the shortest prefix of the ranking whose weights reach `target` (> 0) to the front, in any
 * order, and returns its length: quickselect, where a side is chosen by its weight. */
static uint32_t keep_prefix(struct sample_candidate *all, uint32_t count,
                            const struct ranking *ranking, double target)
{
    uint32_t low = 0,
             high = count; /* the prefix ends in low..high; what lies before low is in it */
    double sum = 0.0;

    while (high - low > SELECT_SMALL) {
        uint32_t middle = low;
        double side;

        pivot_to(&all[low], &all[low + (high - low) / 2], &all[high - 1], ranking);
        for (uint32_t i = low + 1; i < high; i++)
            if (before(ranking, &all[i], &all[low]))
                swap(&all[i], &all[++middle]);
        swap(&all[low], &all[middle]); /* the pivot to its rank */
        side = weights_sum(all + low, middle - low, ranking);
        if (sum + side >= target) {
            high = middle;
            continue;
        }
        sum += side + weights_sum(all + middle, 1, ranking);
        low = middle + 1;
        if (sum >= target)
            return low;
    }
    sort_small(all + low, high - low, ranking);
    while (low < high && sum < target)
        sum += weights_sum(all + low++, 1, ranking);
    return low;
}

static uint32_t distance_bucket(float max, float logit)
{
    float at = (max - logit) * BUCKETS_PER_NAT;

    return at < (float)(DISTANCE_BUCKETS - 1) ? (uint32_t)at : DISTANCE_BUCKETS - 1;
}

/* The last bucket that can hold a survivor of top_k, or of top_p where that is the first filter. */
static uint32_t last_bucket(const float *row, uint32_t vocabulary,
                            const struct sample_params *params, const struct ranking *ranking,
                            double total)
{
    uint32_t counts[DISTANCE_BUCKETS] = {0};
    uint32_t bucket = 0;

    for (uint32_t i = 0; i < vocabulary; i++)
        if (row[i] > -INFINITY)
            counts[distance_bucket(ranking->max, row[i])]++;
    if (cuts_k(params, vocabulary)) {
        uint64_t sum = counts[0];

        while (sum < params->top_k && bucket < DISTANCE_BUCKETS - 1)
            sum += counts[++bucket];
        return bucket;
    }
    /* No token of a bucket weighs more than the bucket's near edge. The slack covers rounding. */
    double spare = (1.0 - (double)params->top_p) * total * 0.999, tail = 0.0;

    for (bucket = DISTANCE_BUCKETS - 1; bucket > 0; bucket--) {
        float edge = -(float)bucket / BUCKETS_PER_NAT * ranking->inverse;

        tail += counts[bucket] * (double)logits_exp(edge);
        if (tail >= spare)
            break;
    }
    return bucket;
}

/* A logit below which nothing survives the first filter; the filter itself finds the exact border.
 */
static float least_logit(const float *row, uint32_t vocabulary, const struct sample_params *params,
                         const struct ranking *ranking, double total)
{
    uint32_t bucket;

    if (cuts_k(params, vocabulary) || cuts_p(params)) {
        bucket = last_bucket(row, vocabulary, params, ranking, total);
        return bucket == DISTANCE_BUCKETS - 1
                   ? -FLT_MAX
                   : ranking->max - ((float)bucket + 1.01f) / BUCKETS_PER_NAT;
    }
    if (params->min_p > 0.0f)
        return fmaxf(-FLT_MAX, ranking->max + (logf(params->min_p) - 0.01f) / ranking->inverse);
    return -FLT_MAX;
}

static uint32_t gather(const float *row, uint32_t vocabulary, float least,
                       struct sample_candidate *candidates)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < vocabulary; i++)
        if (row[i] >= least)
            candidates[count++] = (struct sample_candidate){.token = (int32_t)i, .value = row[i]};
    return count;
}

static uint32_t keep_typical(struct sample_candidate *all, uint32_t count, struct ranking ranking,
                             float typical_p)
{
    double total = weights_sum(all, count, &ranking), mean = 0.0;

    for (uint32_t i = 0; i < count; i++) {
        double weight = (double)weight_of(&ranking, all[i].value);

        if (weight > 0.0)
            mean += weight * (double)((all[i].value - ranking.max) * ranking.inverse);
    }
    ranking.typical = true;
    ranking.log_total = (float)log(total);
    ranking.entropy = (float)(log(total) - mean / total);
    return keep_prefix(all, count, &ranking, fmax((double)typical_p * total, DBL_MIN));
}

/* Runs the filters; leaves what can be drawn in the scratch's candidates, unordered, value = logit.
 * The row holds at least one logit above -infinity. */
static uint32_t filter(const float *row, const struct sample_params *params,
                       struct sample_scratch *scratch, struct ranking *ranking)
{
    struct sample_candidate *all = scratch->candidates;
    uint32_t vocabulary = scratch->vocabulary, count;
    bool cut_k = cuts_k(params, vocabulary);
    double total = 0.0;

    if (cuts_p(params) && !cut_k)
        total = logits_weigh(row, vocabulary, ranking->max, ranking->inverse, NULL);
    count = gather(row, vocabulary, least_logit(row, vocabulary, params, ranking, total), all);
    if (cut_k && params->top_k < count) {
        struct ranking counting = *ranking;

        counting.counts = true;
        count = keep_prefix(all, count, &counting, params->top_k);
    }
    if (cuts_p(params)) {
        if (cut_k)
            total = weights_sum(all, count, ranking);
        count = keep_prefix(all, count, ranking, fmax((double)params->top_p * total, DBL_MIN));
    }
    if (params->min_p > 0.0f) {
        float least =
            params->min_p < 1.0f ? params->min_p : 1.0f; /* the likeliest weighs 1: it stays */
        uint32_t kept = 0;

        for (uint32_t i = 0; i < count; i++)
            if (weight_of(ranking, all[i].value) >= least)
                all[kept++] = all[i];
        count = kept;
    }
    if (params->typical_p < 1.0f)
        count = keep_typical(all, count, *ranking, params->typical_p);
    return count;
}

/* ---- the draw ---- */

static int32_t first_at_least(const float *row, uint32_t vocabulary, float value)
{
    for (uint32_t i = 0; i < vocabulary; i++)
        if (row[i] >= value)
            return (int32_t)i;
    return 0;
}

static int32_t first_allowed(const struct sample_params *params, uint32_t vocabulary)
{
    for (uint32_t token = 0; token < vocabulary; token++) {
        bool banned = false;

        for (uint32_t i = 0; i < params->banned_count; i++)
            banned |= (uint32_t)params->banned[i] == token;
        if (!banned && !(params->mask && !(params->mask[token / 32] >> token % 32 & 1)))
            return (int32_t)token;
    }
    return 0;
}

/* Inverse CDF over the whole row: find the block, then the token in it. */
static int32_t draw_from_row(const float *row, float uniform, const struct ranking *ranking,
                             struct sample_scratch *scratch)
{
    float *weights = scratch->logits;
    uint32_t vocabulary = scratch->vocabulary, last = 0;
    double target, sum = 0.0;

    target =
        (double)uniform * logits_weigh(row, vocabulary, ranking->max, ranking->inverse, weights);
    for (uint32_t start = 0; start < vocabulary; start += BLOCK) {
        uint32_t length = vocabulary - start < BLOCK ? vocabulary - start : BLOCK;
        float block[BLOCK] = {0};
        double block_sum;

        memcpy(block, weights + start, length * sizeof *block);
        block_sum = (double)logits_block_sum(block);
        if (block_sum <= 0.0 || sum + block_sum <= target) {
            sum += block_sum;
            continue;
        }
        /* Added one by one the block may come out a hair smaller: then its last token it is. */
        for (uint32_t i = 0; i < length && sum <= target; i++) {
            sum += (double)block[i];
            if (block[i] > 0.0f)
                last = start + i;
        }
        return (int32_t)last;
    }
    return first_at_least(weights, vocabulary, 1.0f);
}

static int32_t draw_from_candidates(const struct sample_candidate *all, uint32_t count,
                                    float uniform, const struct ranking *ranking)
{
    double target = (double)uniform * weights_sum(all, count, ranking), sum = 0.0;

    for (uint32_t i = 0; i < count; i++) {
        sum += (double)weight_of(ranking, all[i].value);
        if (sum > target)
            return all[i].token;
    }
    return all[0].token; /* all weigh nothing (typical_p far from the likeliest) */
}

/* The processed row and what ranks it. max is -INFINITY when nothing can be drawn. A temperature of
 * 0 is the caller's case. */
static struct ranking prepare(const float *logits, const struct sample_params *params,
                              struct sample_scratch *scratch, const float **ret_row)
{
    const float *row = process(logits, params, scratch);
    float max = logits_max(row, scratch->vocabulary);

    if (max > FLT_MAX) { /* infinite: from here on all differences have to be numbers */
        for (uint32_t i = 0; i < scratch->vocabulary; i++)
            scratch->logits[i] = row[i] > FLT_MAX ? FLT_MAX : row[i];
        row = scratch->logits;
        max = FLT_MAX;
    }
    *ret_row = row;
    return (struct ranking){
        .max = max,
        .inverse = 1.0f / fmaxf(params->temperature, 1e-30f),
    };
}

int32_t sample_draw(const float *logits, const struct sample_params *params,
                    struct sample_scratch *scratch)
{
    const float *row;
    struct ranking ranking = prepare(logits, params, scratch, &row);
    float uniform;

    if (ranking.max == -INFINITY)
        return first_allowed(params, scratch->vocabulary);
    if (!(params->temperature > 0.0f))
        return first_at_least(row, scratch->vocabulary, ranking.max);
    uniform = sample_uniform(params->seed, params->stream, params->position);
    if (!filters(params, scratch->vocabulary))
        return draw_from_row(row, uniform, &ranking, scratch);
    return draw_from_candidates(scratch->candidates, filter(row, params, scratch, &ranking),
                                uniform, &ranking);
}

static void sift(struct sample_candidate *heap, uint32_t at, uint32_t count,
                 const struct ranking *ranking)
{
    for (;;) {
        uint32_t last = at;

        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (before(ranking, &heap[last], &heap[child]))
                last = child;
        if (last == at)
            return;
        swap(&heap[at], &heap[last]);
        at = last;
    }
}

/* Heap sort: in place, and no library's qsort that may allocate. */
static void sort(struct sample_candidate *all, uint32_t count, const struct ranking *ranking)
{
    for (uint32_t i = count / 2; i-- > 0;)
        sift(all, i, count, ranking);
    for (uint32_t left = count; left > 1; left--) {
        swap(&all[0], &all[left - 1]);
        sift(all, 0, left - 1, ranking);
    }
}

uint32_t sample_keep(const float *logits, const struct sample_params *params,
                     struct sample_scratch *scratch)
{
    const float *row;
    struct ranking ranking = prepare(logits, params, scratch, &row);
    struct sample_candidate *all = scratch->candidates;
    uint32_t count;
    double total;

    if (ranking.max == -INFINITY || !(params->temperature > 0.0f)) {
        all[0].token = ranking.max == -INFINITY
                           ? first_allowed(params, scratch->vocabulary)
                           : first_at_least(row, scratch->vocabulary, ranking.max);
        all[0].value = 1.0f;
        return 1;
    }
    count = filter(row, params, scratch, &ranking);
    sort(all, count, &ranking);
    total = weights_sum(all, count, &ranking);
    for (uint32_t i = 0; i < count; i++)
        all[i].value = total > 0.0 ? (float)((double)weight_of(&ranking, all[i].value) / total)
                                   : (i == 0 ? 1.0f : 0.0f);
    return count;
}

/* ---- log-probabilities ---- */

float sample_log_sum(const float *logits, uint32_t vocabulary)
{
    float max = logits_max(logits, vocabulary);

    if (isinf(max))
        return max;
    return (float)((double)max + log(logits_weigh(logits, vocabulary, max, 1.0f, NULL)));
}

uint32_t sample_rank(const float *logits, uint32_t vocabulary, int32_t token)
{
    float value = isnan(logits[token]) ? -INFINITY : logits[token];
    uint32_t rank = 1 + logits_greater(logits, vocabulary, value);

    for (int32_t i = 0; i < token; i++)
        rank += logits[i] == value || (value == -INFINITY && isnan(logits[i]));
    return rank;
}

void sample_top(const float *logits, uint32_t vocabulary, uint32_t count,
                struct sample_candidate *ret_top)
{
    uint32_t filled = 0;

    if (count == 0)
        return;
    for (uint32_t start = 0; start < vocabulary; start += BLOCK) {
        uint32_t end = vocabulary - start < BLOCK ? vocabulary : start + BLOCK;

        /* Most blocks hold nothing that is good enough. */
        if (filled == count && logits_max(logits + start, end - start) <= ret_top[count - 1].value)
            continue;
        for (uint32_t i = start; i < end; i++) {
            float value = isnan(logits[i]) ? -INFINITY : logits[i];
            uint32_t at;

            if (filled == count && !(value > ret_top[count - 1].value))
                continue;
            at = filled < count ? filled++ : count - 1;
            for (; at > 0 && value > ret_top[at - 1].value; at--)
                ret_top[at] = ret_top[at - 1];
            ret_top[at] = (struct sample_candidate){.token = (int32_t)i, .value = value};
        }
    }
    for (; filled < count; filled++)
        ret_top[filled] = (struct sample_candidate){.token = -1, .value = -INFINITY};
}

/* ---- scratch ---- */

static uint64_t logits_bytes(uint32_t vocabulary)
{
    return ((uint64_t)vocabulary * sizeof(float) + 63) / 64 * 64;
}

uint64_t sample_scratch_bytes(uint32_t vocabulary)
{
    return logits_bytes(vocabulary) +
           ((uint64_t)vocabulary * sizeof(struct sample_candidate) + 63) / 64 * 64;
}

void sample_scratch_init(struct sample_scratch *scratch, uint32_t vocabulary, void *memory)
{
    scratch->vocabulary = vocabulary;
    scratch->logits = memory;
    scratch->candidates = (void *)((char *)memory + logits_bytes(vocabulary));
}
