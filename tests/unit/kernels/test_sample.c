/* test_sample.c -- protects: the draw (its random numbers, its distribution, that it never yields
 * what is banned or filtered out), the exactness of filters against a naive reference, and that no
 * row of logits, however broken, does harm. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/sample.h"

static uint64_t random_state = 1;

static float random_real(void) /* [0, 1) */
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(random_state >> 40) * 0x1p-24f;
}

static float *random_logits(uint32_t count, float spread)
{
    float *logits = malloc(count * sizeof *logits);

    assert_non_null(logits);
    for (uint32_t i = 0; i < count; i++)
        logits[i] = (random_real() + random_real() + random_real() - 1.5f) * spread;
    return logits;
}

static void scratch_open(struct sample_scratch *scratch, uint32_t vocabulary)
{
    void *memory = aligned_alloc(64, sample_scratch_bytes(vocabulary));

    assert_non_null(memory);
    sample_scratch_init(scratch, vocabulary, memory);
}

static struct sample_params plain(float temperature)
{
    return (struct sample_params){
        .temperature = temperature, .top_p = 1, .typical_p = 1, .repetition_penalty = 1};
}

/* The known answers of the paper's reference code (kat_vectors, philox4x32 10). */
static void test_philox_known_answers(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], words[4];
    } answers[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t words[4];

    (void)state;
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        sample_philox(answers[i].counter, answers[i].key, words);
        assert_memory_equal(words, answers[i].words, sizeof words);
    }
    assert_true(sample_uniform(0, 0, 0) == (float)(0x6627e8d5u >> 8) * 0x1p-24f);
    assert_true(sample_uniform(1, 0, 0) != sample_uniform(0, 1, 0));
    assert_true(sample_uniform(0, 1, 0) != sample_uniform(0, 0, 1));
    assert_true(sample_uniform(1ull << 32, 0, 0) != sample_uniform(0, 0, 0));
}

static void test_uniform_is_uniform(void **state)
{
    uint32_t counts[16] = {0};
    double chi2 = 0;

    (void)state;
    for (uint32_t i = 0; i < 16000; i++) {
        float u = sample_uniform(7, i % 3, i);

        assert_true(u >= 0.0f && u < 1.0f);
        counts[(int)(u * 16)]++;
    }
    for (int i = 0; i < 16; i++)
        chi2 += (counts[i] - 1000.0) * (counts[i] - 1000.0) / 1000.0;
    assert_true(chi2 < 37.7); /* 15 degrees of freedom, p = 0.001 */
}

struct naive {
    int32_t token;
    double logit, weight, key;
};

static int by_key(const void *a, const void *b)
{
    const struct naive *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->token - y->token;
}

static uint32_t naive_prefix(struct naive *all, uint32_t count, double p)
{
    double total = 0, sum = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        total += all[i].weight;
    qsort(all, count, sizeof *all, by_key);
    while (kept < count && (kept == 0 || sum < p * total))
        sum += all[kept++].weight;
    return kept;
}

/* Every filter by its definition, sorting everything, in double. */
static uint32_t naive_keep(const float *logits, uint32_t count, const struct sample_params *params,
                           struct naive *all)
{
    double max = -INFINITY, total = 0, entropy = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++)
        max = logits[i] > max ? logits[i] : max;
    for (uint32_t i = 0; i < count; i++)
        all[i] = (struct naive){.token = (int32_t)i,
                                .logit = logits[i],
                                .weight = exp((logits[i] - max) / params->temperature),
                                .key = -(double)logits[i]};
    qsort(all, count, sizeof *all, by_key);
    if (params->top_k && params->top_k < count)
        count = params->top_k;
    if (params->top_p < 1)
        count = naive_prefix(all, count, params->top_p);
    for (uint32_t i = 0; i < count; i++)
        if (all[i].weight >= params->min_p)
            all[kept++] = all[i];
    count = kept;
    if (params->typical_p < 1) {
        for (uint32_t i = 0; i < count; i++)
            total += all[i].weight;
        for (uint32_t i = 0; i < count; i++)
            entropy -= all[i].weight / total * log(all[i].weight / total);
        for (uint32_t i = 0; i < count; i++)
            all[i].key = fabs(-log(all[i].weight / total) - entropy);
        count = naive_prefix(all, count, params->typical_p);
        for (uint32_t i = 0; i < count; i++)
            all[i].key = -all[i].logit;
        qsort(all, count, sizeof *all, by_key);
    }
    return count;
}

/* The reference sums in double: a cut that falls between two nearly equal sums may move by one
 * token, which then weighs next to nothing against the rest. */
static void test_filters_against_reference(void **state)
{
    enum { VOCABULARY = 5003 };
    struct naive *naive = malloc(VOCABULARY * sizeof *naive);
    struct sample_scratch scratch;
    uint32_t exact = 0, rounds = 300;

    (void)state;
    scratch_open(&scratch, VOCABULARY);
    for (uint32_t round = 0; round < rounds; round++) {
        struct sample_params params = plain(0.3f + 1.5f * random_real());
        float *logits = random_logits(VOCABULARY, 1.0f + 30.0f * random_real());
        uint32_t expected, count, differing = 0;
        double total = 0;

        if (round % 2)
            params.top_k = 1 + (uint32_t)(random_real() * 200);
        if (round % 3)
            params.top_p = 0.05f + 0.95f * random_real();
        if (round % 5 == 0)
            params.min_p = 0.2f * random_real();
        if (round % 7 == 0)
            params.typical_p = 0.05f + 0.95f * random_real();
        expected = naive_keep(logits, VOCABULARY, &params, naive);
        count = sample_keep(logits, &params, &scratch);
        assert_true(abs((int)count - (int)expected) <= 1);
        for (uint32_t i = 0; i < count; i++) {
            total += (double)scratch.candidates[i].value;
            differing += i >= expected || scratch.candidates[i].token != naive[i].token;
        }
        assert_true(fabs(total - 1) < 1e-4);
        exact += differing == 0 && count == expected;
        free(logits);
    }
    assert_true(exact >= rounds - 3);
    free(scratch.logits);
    free(naive);
}

/* Draws are compared with the probabilities that sample_keep() states; rare tokens are pooled. */
static void assert_distribution(const float *logits, struct sample_params params,
                                struct sample_scratch *scratch)
{
    enum { DRAWS = 60000 };
    uint32_t vocabulary = scratch->vocabulary, cells = 0;
    double *probabilities = calloc(vocabulary, sizeof *probabilities);
    uint32_t *counts = calloc(vocabulary, sizeof *counts);
    double chi2 = 0, rare = 0, bound;
    uint32_t rare_count = 0, kept = sample_keep(logits, &params, scratch);

    for (uint32_t i = 0; i < kept; i++)
        probabilities[scratch->candidates[i].token] = (double)scratch->candidates[i].value;
    for (uint32_t i = 0; i < DRAWS; i++) {
        int32_t token;

        params.position = i;
        token = sample_draw(logits, &params, scratch);
        assert_in_range(token, 0, vocabulary - 1);
        assert_true(probabilities[token] > 0);
        counts[token]++;
    }
    for (uint32_t i = 0; i < vocabulary; i++) {
        double expected = probabilities[i] * DRAWS;

        if (expected < 10) {
            rare += expected;
            rare_count += counts[i];
            continue;
        }
        chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
        cells++;
    }
    if (rare > 10) {
        chi2 += (rare_count - rare) * (rare_count - rare) / rare;
        cells++;
    }
    /* Wilson and Hilferty's approximation of the quantile at p = 1e-4 (3.72 deviations). */
    cells = cells > 1 ? cells - 1 : 1;
    bound = cells * pow(1 - 2.0 / (9.0 * cells) + 3.72 * sqrt(2.0 / (9.0 * cells)), 3);
    assert_true(chi2 < bound);
    free(probabilities);
    free(counts);
}

static void test_draws_follow_probabilities(void **state)
{
    enum { VOCABULARY = 611 }; /* two whole blocks and a part of one */
    struct sample_scratch scratch;
    float *logits = random_logits(VOCABULARY, 6);
    struct sample_params params = plain(1);
    struct sample_bias bias = {.token = 600, .bias = 6};

    (void)state;
    scratch_open(&scratch, VOCABULARY);
    assert_distribution(logits, params, &scratch);
    params.temperature = 0.5f;
    params.seed = 99;
    assert_distribution(logits, params, &scratch);
    params.bias_count = 1;
    params.biases = &bias;
    assert_distribution(logits, params, &scratch);
    params.top_p = 0.9f;
    assert_distribution(logits, params, &scratch);
    params = plain(1.5f);
    params.top_k = 30;
    assert_distribution(logits, params, &scratch);
    params = plain(1);
    params.typical_p = 0.7f;
    assert_distribution(logits, params, &scratch);
    free(logits);
    free(scratch.logits);
}

static void test_a_draw_depends_on_its_key_alone(void **state)
{
    enum { VOCABULARY = 1000 };
    struct sample_scratch scratch;
    float *logits = random_logits(VOCABULARY, 4), *other = random_logits(VOCABULARY, 9);
    struct sample_params params = plain(1);
    int32_t first;
    bool streams_differ = false;

    (void)state;
    scratch_open(&scratch, VOCABULARY);
    params.seed = 1234567890123u;
    params.position = 42;
    first = sample_draw(logits, &params, &scratch);
    sample_draw(other, &params, &scratch);
    assert_int_equal(sample_draw(logits, &params, &scratch), first);
    for (uint32_t stream = 1; stream < 8; stream++) {
        params.stream = stream;
        streams_differ |= sample_draw(logits, &params, &scratch) != first;
    }
    assert_true(streams_differ);
    free(logits);
    free(other);
    free(scratch.logits);
}

static void test_greedy(void **state)
{
    enum { VOCABULARY = 300 };
    struct sample_scratch scratch;
    float *logits = random_logits(VOCABULARY, 3);
    struct sample_params params = plain(0);
    int32_t banned[] = {20, 150};
    uint16_t counts[VOCABULARY] = {0};
    struct sample_bias bias = {.token = 7, .bias = 100};

    (void)state;
    scratch_open(&scratch, VOCABULARY);
    logits[150] = logits[20] = logits[250] = 30;
    assert_int_equal(sample_draw(logits, &params, &scratch), 20); /* the lowest id of a tie */
    assert_int_equal(sample_keep(logits, &params, &scratch), 1);
    params.top_k = 5;
    params.top_p = 0.5f;
    assert_int_equal(sample_draw(logits, &params, &scratch), 20);
    params.banned_count = 2;
    params.banned = banned;
    assert_int_equal(sample_draw(logits, &params, &scratch), 250);
    counts[250] = 3;
    params.generated_counts = counts;
    params.frequency_penalty = 20;
    assert_int_not_equal(sample_draw(logits, &params, &scratch), 250);
    params.bias_count = 1;
    params.biases = &bias;
    assert_int_equal(sample_draw(logits, &params, &scratch), 7);
    free(logits);
    free(scratch.logits);
}

static void test_banned_tokens_are_never_drawn(void **state)
{
    float logits[4] = {5, 5, 5, 5};
    int32_t banned[] = {0, 2, 3, -1, 4, INT32_MAX};
    struct sample_params params = plain(1);
    struct sample_scratch scratch;

    (void)state;
    scratch_open(&scratch, 4);
    params.banned_count = 6;
    params.banned = banned;
    for (params.position = 0; params.position < 200; params.position++)
        assert_int_equal(sample_draw(logits, &params, &scratch), 1);
    /* Nothing can be drawn: the lowest that is not banned. */
    logits[1] = -INFINITY;
    assert_int_equal(sample_draw(logits, &params, &scratch), 1);
    params.temperature = 0;
    assert_int_equal(sample_draw(logits, &params, &scratch), 1);
    free(scratch.logits);
}

/* The mask comes after bias and bans; the filters work on what it leaves. */
static void test_only_tokens_of_the_mask_are_drawn(void **state)
{
    enum { VOCABULARY = 300, WORDS = (VOCABULARY + 31) / 32 };
    struct sample_scratch scratch;
    float *logits = random_logits(VOCABULARY, 3);
    uint32_t mask[WORDS] = {0};
    struct sample_params params = plain(0), plain_params;
    struct sample_bias bias = {.token = 7, .bias = 100};
    uint32_t allowed = 0;

    (void)state;
    scratch_open(&scratch, VOCABULARY);
    for (uint32_t i = 0; i < VOCABULARY; i += 1 + i % 7)
        mask[i / 32] |= 1u << i % 32;
    for (uint32_t i = 0; i < VOCABULARY; i++)
        allowed += mask[i / 32] >> i % 32 & 1;
    mask[7 / 32] &= ~(1u << 7);
    params.mask = mask;
    params.bias_count = 1;
    params.biases = &bias;
    for (int kind = 0; kind < 4; kind++) {
        params.temperature = kind == 0 ? 0.0f : 1.0f;
        params.top_k = kind == 2 ? 20 : 0;
        params.top_p = kind == 3 ? 0.7f : 1.0f;
        for (params.position = 0; params.position < 500; params.position++) {
            uint32_t token = (uint32_t)sample_draw(logits, &params, &scratch);

            assert_true(mask[token / 32] >> token % 32 & 1);
        }
        assert_true(sample_keep(logits, &params, &scratch) <= allowed);
    }
    /* Nothing above -infinity is allowed: the lowest that is. */
    for (uint32_t i = 0; i < VOCABULARY; i++)
        logits[i] = mask[i / 32] >> i % 32 & 1 ? -INFINITY : 1.0f;
    mask[0] &= ~1u;
    for (uint32_t i = 0, lowest = 0; !lowest; i++) {
        lowest = mask[i / 32] >> i % 32 & 1;
        if (lowest)
            assert_int_equal(sample_draw(logits, &params, &scratch), i);
    }
    /* A mask of all tokens changes nothing. */
    free(logits);
    logits = random_logits(VOCABULARY, 4);
    memset(mask, 0xff, sizeof mask);
    plain_params = params;
    plain_params.mask = NULL;
    for (params.position = 0; params.position < 500; params.position++) {
        plain_params.position = params.position;
        assert_int_equal(sample_draw(logits, &params, &scratch),
                         sample_draw(logits, &plain_params, &scratch));
    }
    free(logits);
    free(scratch.logits);
}

/* Any bits in the logits and any parameters give a token of the vocabulary, and NaN is never it
 * while something else can be drawn. */
static void test_broken_logits_do_no_harm(void **state)
{
    static const float odd[] = {NAN,     INFINITY, -INFINITY, FLT_MAX, -FLT_MAX,
                                FLT_MIN, 1e-45f,   -0.0f,     0.0f,    100.0f};
    enum { VOCABULARY = 77 };
    float logits[VOCABULARY];
    struct sample_scratch scratch;
    struct sample_candidate top[20];

    (void)state;
    scratch_open(&scratch, VOCABULARY);
    for (uint32_t round = 0; round < 20000; round++) {
        struct sample_params params = plain(round % 3 == 0 ? 0 : powf(10, random_real() * 12 - 6));
        bool drawable = false;
        int32_t token;

        for (uint32_t i = 0; i < VOCABULARY; i++) {
            logits[i] = odd[(uint32_t)(random_real() * 10)];
            if (round % 4 == 0 && random_real() < 0.97f)
                logits[i] = NAN;
            drawable |= logits[i] > -INFINITY;
        }
        params.top_k = round % 2 ? 0 : (uint32_t)(random_real() * 90);
        params.top_p = round % 5 ? 1 : random_real();
        params.min_p = round % 7 ? 0 : random_real();
        params.typical_p = round % 11 ? 1 : random_real();
        params.position = round;
        token = sample_draw(logits, &params, &scratch);
        assert_in_range(token, 0, VOCABULARY - 1);
        assert_true(!drawable || logits[token] > -INFINITY);
        assert_true(sample_keep(logits, &params, &scratch) >= 1);
        sample_log_sum(logits, VOCABULARY);
        assert_in_range(sample_rank(logits, VOCABULARY, token), 1, VOCABULARY);
        sample_top(logits, VOCABULARY, 20, top);
        assert_true(!drawable || top[0].value > -INFINITY);
    }
    free(scratch.logits);
}

static void test_log_sum(void **state)
{
    (void)state;
    for (uint32_t count = 1; count < 60000; count = count * 3 + 1) {
        float *logits = random_logits(count, 15);
        double sum = 0;

        for (uint32_t i = 0; i < count; i++)
            sum += exp((double)logits[i]);
        assert_true(fabs((double)sample_log_sum(logits, count) - log(sum)) < 1e-5);
        free(logits);
    }
}

static void test_rank_and_top(void **state)
{
    enum { VOCABULARY = 1537 };
    float *logits = random_logits(VOCABULARY, 4);
    struct sample_candidate top[VOCABULARY + 1];

    (void)state;
    for (uint32_t i = 0; i < VOCABULARY; i++) /* many ties */
        logits[i] = floorf(logits[i] * 4);
    logits[3] = NAN;
    logits[1000] = INFINITY;
    logits[1200] = INFINITY;
    sample_top(logits, VOCABULARY, VOCABULARY + 1, top);
    for (uint32_t i = 0; i < VOCABULARY; i++) {
        assert_int_equal(sample_rank(logits, VOCABULARY, top[i].token), i + 1);
        if (i > 0)
            assert_true(top[i - 1].value > top[i].value ||
                        (top[i - 1].value == top[i].value && top[i - 1].token < top[i].token));
    }
    assert_int_equal(top[0].token, 1000);
    assert_int_equal(top[1].token, 1200);
    assert_int_equal(top[VOCABULARY - 1].token, 3);
    assert_int_equal(top[VOCABULARY].token, -1);
    for (uint32_t count = 1; count <= 20; count++) {
        struct sample_candidate some[20];

        sample_top(logits, VOCABULARY, count, some);
        assert_memory_equal(some, top, count * sizeof *some);
    }
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_uniform_is_uniform),
        cmocka_unit_test(test_filters_against_reference),
        cmocka_unit_test(test_draws_follow_probabilities),
        cmocka_unit_test(test_a_draw_depends_on_its_key_alone),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_banned_tokens_are_never_drawn),
        cmocka_unit_test(test_only_tokens_of_the_mask_are_drawn),
        cmocka_unit_test(test_broken_logits_do_no_harm),
        cmocka_unit_test(test_log_sum),
        cmocka_unit_test(test_rank_and_top),
    };

    return cmocka_run_group_tests_name("kernels/cpu/sample", tests, NULL, NULL);
}
