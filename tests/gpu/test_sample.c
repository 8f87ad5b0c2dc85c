/* test_sample.c -- protects: what the device draws and reports is what kernels/cpu/sample.h says,
 * for every processor, shape of distribution and size of vocabulary; a row's choice is the same
 * alone and in a batch, bit for bit; rows that have ended, wait for a mask or only score a prompt
 * are left as they have to be.
 *
 * A draw is checked by inverse CDF over the kept tokens of sample_keep() (likeliest first; over all
 * tokens in the order of the ids where nothing filters), with CDF_SLACK for sums that round
 * differently. `test_sample bench [KIND]` prints what a call takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/lib/sample_rig.h"

static const double CDF_SLACK = 1e-5, LOGPROB_SLACK = 1e-5;

/* --- the reference ------------------------------------------------------------------------- */

struct expected {
    float *logits; /* a masked row's, or the row's own */
    float *masked;
    struct sample_bias biases[BIAS_MAX];
    uint64_t *seen;
    struct sample_params params;
};

static void expect(const struct rig *rig, uint32_t output, struct expected *ret)
{
    const struct cuda_output *out = &rig->outputs[output];
    const struct cuda_sampling *sampling = &rig->samplings[out->row];
    const uint32_t *seen = rig->seen + (size_t)out->row * rig->words;
    const uint32_t *mask = rig->masks + (size_t)out->row * rig->words;

    memset(ret, 0, sizeof *ret);
    ret->logits = row_logits((struct rig *)rig, output);
    ret->seen = calloc(rig->words / 2 + 1, sizeof *ret->seen);
    for (uint32_t i = 0; i < rig->words; i++)
        ret->seen[i / 2] |= (uint64_t)seen[i] << (i % 2 * 32);
    for (uint32_t i = 0; i < sampling->bias_count; i++)
        ret->biases[i] =
            (struct sample_bias){rig->biases[out->row][i].token, rig->biases[out->row][i].bias};
    if (out->flags & CUDA_OUTPUT_MASKED) {
        ret->masked = malloc(rig->vocabulary * sizeof *ret->masked);
        for (uint32_t i = 0; i < rig->vocabulary; i++)
            ret->masked[i] = mask[i / 32] >> (i % 32) & 1 ? ret->logits[i] : -INFINITY;
        ret->logits = ret->masked;
    }
    ret->params = (struct sample_params){
        .temperature = sampling->temperature,
        .top_k = sampling->top_k,
        .top_p = sampling->top_p,
        .min_p = sampling->min_p,
        .typical_p = sampling->typical_p,
        .repetition_penalty = sampling->repetition_penalty,
        .frequency_penalty = sampling->frequency_penalty,
        .presence_penalty = sampling->presence_penalty,
        .seed = sampling->seed,
        .stream = sampling->stream,
        .position = out->position,
        .bias_count = sampling->bias_count,
        .biases = ret->biases,
        .banned_count = out->generated < sampling->min_tokens ? sampling->stop_count : 0,
        .banned = sampling->stops,
        .generated_counts =
            sampling->counted ? rig->counts + (size_t)out->row * rig->vocabulary : NULL,
        .prompt_seen = sampling->counted ? ret->seen : NULL,
    };
}

static void expected_free(struct expected *expected)
{
    free(expected->seen);
    free(expected->masked);
}

static bool filters(const struct sample_params *params, uint32_t vocabulary)
{
    return (params->top_k > 0 && params->top_k < vocabulary) || params->top_p < 1.0f ||
           params->min_p > 0.0f || params->typical_p < 1.0f;
}

static int by_token(const void *a, const void *b)
{
    const struct sample_candidate *x = a, *y = b;

    return (x->token > y->token) - (x->token < y->token);
}

static bool is_banned(const struct expected *expected, int32_t token)
{
    for (uint32_t i = 0; i < expected->params.banned_count; i++)
        if (expected->params.banned[i] == token)
            return true;
    return false;
}

/* With nothing above -infinity left the lowest token is drawn that is neither banned nor masked. */
static bool is_last_resort(const struct rig *rig, const struct expected *expected,
                           const uint32_t *mask, int32_t *ret_token)
{
    *ret_token = -1;
    for (int32_t i = 0; i < (int32_t)rig->vocabulary; i++) {
        if (is_banned(expected, i))
            continue;
        if (expected->logits[i] > -INFINITY)
            return false;
        if (*ret_token < 0 && (!expected->masked || mask[i / 32] >> (i % 32) & 1))
            *ret_token = i;
    }
    *ret_token = *ret_token < 0 ? 0 : *ret_token;
    return true;
}

/* Is `token` what the uniform number picks of the kept tokens? */
static bool is_drawn(struct rig *rig, const struct expected *expected, int32_t token)
{
    const struct sample_params *params = &expected->params;
    const struct sample_candidate *all = rig->reference.candidates;
    const double uniform = (double)sample_uniform(params->seed, params->stream, params->position);
    const uint32_t count = sample_keep(expected->logits, params, &rig->reference);
    double sum = 0.0;

    if (!filters(params, rig->vocabulary))
        qsort(rig->reference.candidates, count, sizeof *all, by_token);
    for (uint32_t i = 0; i < count; i++) {
        if (all[i].token == token)
            return uniform >= sum - CDF_SLACK && uniform <= sum + (double)all[i].value + CDF_SLACK;
        sum += (double)all[i].value;
    }
    return false;
}

static bool near(float value, float expected)
{
    if (!isfinite(expected))
        return isnan(expected) ? isnan(value) : value == expected;
    return fabs((double)value - (double)expected) <= LOGPROB_SLACK + 4e-7 * fabs((double)expected);
}

/* Checks log-probability, rank and top of a choice about `token`. */
static void check_description(struct rig *rig, uint32_t output, int32_t token, int32_t wanted,
                              const char *what)
{
    const struct cuda_choice *choice = &rig->choices[output];
    const float *logits = row_logits(rig, output);
    const float log_sum = sample_log_sum(logits, rig->vocabulary);
    const uint32_t rank = sample_rank(logits, rig->vocabulary, token);
    struct sample_candidate top[CUDA_TOP_MAX];
    uint32_t count = (uint32_t)wanted < rig->vocabulary ? (uint32_t)wanted : rig->vocabulary;

    if (!near(choice->logprob, logits[token] - log_sum))
        fail_msg("%s: log-probability %.9g, not %.9g", what, (double)choice->logprob,
                 (double)(logits[token] - log_sum));
    if (choice->rank != rank)
        fail_msg("%s: rank %u, not %u", what, choice->rank, rank);
    if (choice->top_count != count)
        fail_msg("%s: %u of the top, not %u", what, choice->top_count, count);
    sample_top(logits, rig->vocabulary, count, top);
    for (uint32_t i = 0; i < count; i++)
        if (choice->top[i].token != top[i].token ||
            !near(choice->top[i].logprob, top[i].value - log_sum))
            fail_msg("%s: top %u is %d (%.9g), not %d (%.9g)", what, i, choice->top[i].token,
                     (double)choice->top[i].logprob, top[i].token,
                     (double)(top[i].value - log_sum));
}

static void check_choice(struct rig *rig, uint32_t output, const char *what)
{
    const struct cuda_choice *choice = &rig->choices[output];
    const uint32_t row = rig->outputs[output].row;
    const int32_t wanted = rig->samplings[row].logprobs;
    struct expected expected;
    int32_t lowest;

    expect(rig, output, &expected);
    if (is_last_resort(rig, &expected, rig->masks + (size_t)row * rig->words, &lowest)) {
        if (choice->token != lowest)
            fail_msg("%s: drew %d of nothing, not %d", what, choice->token, lowest);
    } else if (!is_drawn(rig, &expected, choice->token)) {
        fail_msg("%s: drew %d; the CPU %d", what, choice->token,
                 sample_draw(expected.logits, &expected.params, &rig->reference));
    }
    expected_free(&expected);
    if (wanted >= 0)
        check_description(rig, output, choice->token, wanted, what);
    else if (!isnan(choice->logprob) || choice->top_count != 0)
        fail_msg("%s: log-probabilities that nobody asked for", what);
}

/* --- draws --------------------------------------------------------------------------------- */

static const char *const shape_names[SHAPES] = {"peaked", "Zipf", "flat",     "ties", "equal",
                                                "one",    "NaNs", "infinite", "far",  "nothing"};

/* Rows and counts after a step are those before it with the choices' tokens in them. */
static void check_rows(struct rig *rig, uint32_t outputs)
{
    struct cuda_row rows[ROWS];
    uint16_t *counts = malloc((size_t)ROWS * rig->vocabulary * sizeof *counts);

    assert_non_null(counts);
    download(rig, rows, counts);
    for (uint32_t i = 0; i < outputs; i++) {
        const struct cuda_output *output = &rig->outputs[i];
        const struct cuda_sampling *sampling = &rig->samplings[output->row];
        const int32_t token = rig->choices[i].token;
        struct cuda_row *expected = &rig->rows[output->row];

        if ((output->flags & CUDA_OUTPUT_UNUSED) || output->target >= 0)
            continue;
        if (token < 0) {
            expected->ended |= (output->flags & CUDA_OUTPUT_MASKED) != 0;
            continue;
        }
        expected->last_token = token;
        for (uint32_t j = 0; j < sampling->stop_count; j++)
            if (sampling->stops[j] == token && output->generated >= sampling->min_tokens)
                expected->ended = 1;
        if (sampling->counted) {
            uint16_t *count = &rig->counts[(size_t)output->row * rig->vocabulary + token];

            *count += *count < UINT16_MAX;
        }
    }
    assert_memory_equal(rows, rig->rows, sizeof rows);
    assert_memory_equal(counts, rig->counts, (size_t)ROWS * rig->vocabulary * sizeof *counts);
    free(counts);
}

/* What a choice says, leaving out the entries of the top that are not in use. */
static void assert_same_choice(const struct cuda_choice *a, const struct cuda_choice *b,
                               const char *what)
{
    if (a->token != b->token || memcmp(&a->logprob, &b->logprob, sizeof a->logprob) != 0 ||
        a->rank != b->rank || a->top_count != b->top_count ||
        memcmp(a->top, b->top, a->top_count * sizeof *a->top) != 0)
        fail_msg("%s: another choice alone than in a batch", what);
}

/* Each output again, alone. */
static void check_alone(struct rig *rig, const char *what)
{
    struct cuda_choice together[MIXES];
    struct cuda_output outputs[MIXES];

    memcpy(together, rig->choices, sizeof together);
    memcpy(outputs, rig->outputs, sizeof outputs);
    for (uint32_t i = 0; i < MIXES; i++) {
        float *kept = malloc(rig->stride * sizeof *kept);

        assert_non_null(kept);
        memcpy(kept, row_logits(rig, 0), rig->stride * sizeof *kept);
        memcpy(row_logits(rig, 0), row_logits(rig, i), rig->stride * sizeof *kept);
        rig->outputs[0] = outputs[i];
        sample(rig, 1);
        assert_same_choice(&together[i], &rig->choices[0], what);
        memcpy(row_logits(rig, 0), kept, rig->stride * sizeof *kept);
        free(kept);
    }
}

/* All mixes over one shape in one batch, twice with other random numbers. */
static void check_shape(struct rig *rig, enum shape shape)
{
    char what[96];

    for (uint32_t turn = 0; turn < 2; turn++) {
        memset(rig->counts, 0, (size_t)ROWS * rig->vocabulary * sizeof *rig->counts);
        for (uint32_t i = 0; i < MIXES; i++) {
            fill_row(rig, i, shape, i + turn * MIXES);
            fill_mix(rig, i, &mixes[i], 1 + i + turn * MIXES + 1000u * shape);
        }
        sample(rig, MIXES);
        for (uint32_t i = 0; i < MIXES; i++) {
            snprintf(what, sizeof what, "vocabulary %u, %s, mix %u", rig->vocabulary,
                     shape_names[shape], i);
            check_choice(rig, i, what);
        }
        if (turn == 0) {
            check_alone(rig, what);
            continue;
        }
        check_rows(rig, MIXES);
    }
}

static void check_vocabulary(uint32_t vocabulary, uint32_t stride)
{
    struct rig rig;

    rig_open(&rig, vocabulary, stride);
    for (enum shape shape = 0; shape < SHAPES; shape++)
        check_shape(&rig, shape);
    rig_close(&rig);
}

static void test_small(void **state)
{
    (void)state;
    check_vocabulary(5, 5);
    check_vocabulary(97, 104);
    check_vocabulary(1000, 1000);
}

static void test_large(void **state)
{
    (void)state;
    check_vocabulary(49152, 49152);
    check_vocabulary(128256, 128256);
    check_vocabulary(151936, 151937);
}

/* --- the cases of tests/data/sampling.json ------------------------------------------------- */

static float number(const json_t *object, const char *key, float otherwise)
{
    const json_t *value = json_object_get(object, key);

    return value ? (float)json_number_value(value) : otherwise;
}

/* All rows get the case, each its own position. */
static void fill_case(struct rig *rig, const json_t *from)
{
    const json_t *params = json_object_get(from, "params"), *value;
    struct cuda_sampling sampling = plain;
    const char *key;
    size_t i;

    sampling.temperature = number(params, "temperature", 1);
    sampling.top_k = (uint32_t)number(params, "top_k", 0);
    sampling.top_p = number(params, "top_p", 1);
    sampling.min_p = number(params, "min_p", 0);
    sampling.typical_p = number(params, "typical_p", 1);
    sampling.repetition_penalty = number(params, "repetition_penalty", 1);
    sampling.frequency_penalty = number(params, "frequency_penalty", 0);
    sampling.presence_penalty = number(params, "presence_penalty", 0);
    sampling.counted = 1;
    sampling.seed = 42;
    json_array_foreach(json_object_get(from, "logits"), i, value) rig->logits[i] =
        (float)json_number_value(value);
    json_array_foreach(json_object_get(from, "prompt"), i, value)
    {
        const json_int_t token = json_integer_value(value);

        rig->seen[token / 32] |= 1u << (token % 32);
    }
    json_array_foreach(json_object_get(from, "generated"), i, value)
        rig->counts[json_integer_value(value)]++;
    json_object_foreach((json_t *)json_object_get(params, "logit_bias"), key, value)
    {
        assert_true(sampling.bias_count < BIAS_MAX);
        rig->biases[0][sampling.bias_count++] =
            (struct cuda_bias){(int32_t)strtol(key, NULL, 10), (float)json_number_value(value)};
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        memcpy(row_logits(rig, row), rig->logits, rig->vocabulary * sizeof *rig->logits);
        memmove(rig->counts + (size_t)row * rig->vocabulary, rig->counts,
                rig->vocabulary * sizeof *rig->counts);
        memmove(rig->seen + (size_t)row * rig->words, rig->seen, rig->words * sizeof *rig->seen);
        memmove(rig->biases[row], rig->biases[0], sizeof rig->biases[0]);
        rig->samplings[row] = sampling;
        rig->outputs[row] = (struct cuda_output){.row = row, .position = row, .target = -1};
    }
}

/* Draws follow the case's own probabilities, in the order of the ids where nothing filters. */
static void check_case(const struct rig *rig, const json_t *from)
{
    const json_t *kept = json_object_get(from, "kept"), *probs = json_object_get(from, "probs");
    const int id = (int)json_integer_value(json_object_get(from, "id"));
    const size_t count = json_array_size(kept);
    const bool whole = count == rig->vocabulary;

    for (uint32_t row = 0; row < ROWS; row++) {
        const struct cuda_sampling *sampling = &rig->samplings[row];
        const double uniform = (double)sample_uniform(sampling->seed, 0, row);
        const int32_t token = rig->choices[row].token;
        double before = 0.0, own = -1.0;

        for (size_t i = 0; i < count; i++) {
            const json_int_t other = json_integer_value(json_array_get(kept, i));
            const double probability = json_number_value(json_array_get(probs, i));

            if (other == token)
                own = probability;
            else if (whole ? other < token : own < 0)
                before += probability;
        }
        if (own < 0 || uniform < before - 1e-5 || uniform > before + own + 1e-5)
            fail_msg("case %d, uniform %.7f: token %d (%g, %g before it)", id, uniform, token, own,
                     before);
    }
}

static void test_cases(void **state)
{
    json_t *file = json_load_file("tests/data/sampling.json", 0, NULL), *value;
    size_t i;

    (void)state;
    assert_non_null(file);
    assert_int_equal(json_array_size(json_object_get(file, "processors")), 35);
    json_array_foreach(json_object_get(file, "processors"), i, value)
    {
        const uint32_t count = (uint32_t)json_array_size(json_object_get(value, "logits"));
        struct rig rig;

        rig_open(&rig, count, count);
        fill_case(&rig, value);
        sample(&rig, ROWS);
        check_case(&rig, value);
        rig_close(&rig);
    }
    json_decref(file);
}

/* --- statistics ---------------------------------------------------------------------------- */

enum { DRAWN_VOCABULARY = 61, DRAW_CALLS = 200 };

/* Pearson's statistic of many draws; its mean is the number of kept tokens - 1. */
static void check_statistic(struct rig *rig, const struct cuda_sampling *sampling)
{
    double drawn[DRAWN_VOCABULARY] = {0}, statistic = 0.0, freedom = -1.0;
    struct expected expected;
    uint32_t kept;

    for (uint32_t row = 0; row < ROWS; row++) {
        fill_row(rig, row, SHAPE_FLAT, 9);
        rig->samplings[row] = *sampling;
    }
    for (uint32_t call = 0; call < DRAW_CALLS; call++) {
        for (uint32_t row = 0; row < ROWS; row++)
            rig->outputs[row] =
                (struct cuda_output){.row = row, .position = call * ROWS + row, .target = -1};
        sample(rig, ROWS);
        for (uint32_t row = 0; row < ROWS; row++)
            drawn[rig->choices[row].token]++;
    }
    expect(rig, 0, &expected);
    kept = sample_keep(expected.logits, &expected.params, &rig->reference);
    expected_free(&expected);
    for (uint32_t i = 0; i < kept; i++) {
        const struct sample_candidate *one = &rig->reference.candidates[i];
        const double mean = (double)one->value * ROWS * DRAW_CALLS;

        statistic += (drawn[one->token] - mean) * (drawn[one->token] - mean) / mean;
        drawn[one->token] = 0;
        freedom++;
    }
    printf("%u kept: chi-square %.1f\n", kept, statistic);
    for (uint32_t i = 0; i < DRAWN_VOCABULARY; i++)
        assert_true(drawn[i] == 0);
    assert_true(statistic < freedom + 4 * sqrt(2 * freedom) + 4);
}

static void test_statistics(void **state)
{
    struct cuda_sampling sampling = plain;
    struct rig rig;

    (void)state;
    rig_open(&rig, DRAWN_VOCABULARY, DRAWN_VOCABULARY + 3);
    sampling.seed = 7;
    check_statistic(&rig, &sampling);
    sampling.top_k = 20;
    sampling.top_p = 0.9f;
    check_statistic(&rig, &sampling);
    rig_close(&rig);
}

/* --- what happens to rows ------------------------------------------------------------------ */

static void fill_plain(struct rig *rig)
{
    for (uint32_t row = 0; row < ROWS; row++) {
        fill_row(rig, row, SHAPE_ZIPF, row);
        rig->samplings[row] = plain;
        rig->samplings[row].temperature = 0.0f;
        rig->samplings[row].seed = row;
        rig->rows[row] = (struct cuda_row){.last_token = -5};
        rig->outputs[row] =
            (struct cuda_output){.row = row, .position = 10, .generated = 4, .target = -1};
    }
}

static int32_t best_of(struct rig *rig, uint32_t row)
{
    struct sample_candidate best;

    sample_top(row_logits(rig, row), rig->vocabulary, 1, &best);
    return best.token;
}

/* Row 0 ends; 1 may not yet and draws another token; 2 has ended before; 3 has no stop token; the
 * last of 4's 32 stop tokens ends it. */
static void test_ends(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, 1000, 1000);
    fill_plain(&rig);
    for (uint32_t row = 0; row < 5; row++) {
        struct cuda_sampling *sampling = &rig.samplings[row];

        sampling->min_tokens = row == 1 ? 5 : 4;
        sampling->stop_count = row == 4 ? CUDA_STOP_MAX : row != 3;
        for (uint32_t i = 0; i < CUDA_STOP_MAX; i++)
            sampling->stops[i] = i + 1 == sampling->stop_count ? best_of(&rig, row) : -1;
        sampling->counted = 1;
    }
    rig.rows[2].ended = 1;
    sample(&rig, 5);
    assert_int_equal(rig.choices[0].token, best_of(&rig, 0));
    assert_int_not_equal(rig.choices[1].token, best_of(&rig, 1));
    assert_int_equal(rig.choices[2].token, -1);
    assert_int_equal(rig.choices[3].token, best_of(&rig, 3));
    assert_int_equal(rig.choices[4].token, best_of(&rig, 4));
    check_rows(&rig, 5);
    assert_int_equal(rig.rows[0].ended, 1);
    assert_int_equal(rig.rows[1].ended, 0);
    assert_int_equal(rig.rows[2].last_token, -5);
    assert_int_equal(rig.rows[3].ended, 0);
    assert_int_equal(rig.rows[4].ended, 1);
    rig_close(&rig);
}

static void test_counts(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, 1000, 1000);
    fill_plain(&rig);
    for (uint32_t row = 0; row < 3; row++) {
        rig.samplings[row].counted = row != 2;
        rig.counts[row * 1000 + (uint32_t)best_of(&rig, row)] = row == 0 ? UINT16_MAX : 7;
    }
    sample(&rig, 3);
    for (uint32_t row = 0; row < 3; row++)
        assert_int_equal(rig.choices[row].token, best_of(&rig, row));
    check_rows(&rig, 3);
    assert_int_equal(rig.counts[best_of(&rig, 0)], UINT16_MAX);
    assert_int_equal(rig.counts[1000 + best_of(&rig, 1)], 8);
    assert_int_equal(rig.counts[2000 + best_of(&rig, 2)], 7);
    rig_close(&rig);
}

/* Rows 0 and 2 are masked, 2's mask is late; then it comes. */
static void test_masks(void **state)
{
    const int32_t only = 777;
    struct rig rig;

    (void)state;
    rig_open(&rig, 1000, 1000);
    fill_plain(&rig);
    for (uint32_t row = 0; row < 3; row += 2) {
        rig.outputs[row].flags = CUDA_OUTPUT_MASKED;
        rig.masks[row * rig.words + only / 32] = 1u << (only % 32);
        rig.mask_steps[row] = row == 0 ? 10 : 9;
        rig.samplings[row].logprobs = 2;
    }
    rig.samplings[2].counted = 1;
    sample(&rig, 4);
    assert_int_equal(rig.choices[0].token, only);
    assert_int_equal(rig.choices[1].token, best_of(&rig, 1));
    assert_int_equal(rig.choices[2].token, -1);
    assert_true(isnan(rig.choices[2].logprob));
    assert_int_equal(rig.choices[3].token, best_of(&rig, 3));
    check_description(&rig, 0, only, 2, "masked");
    check_rows(&rig, 4);
    assert_int_equal(rig.rows[2].last_token, -5);
    assert_int_equal(rig.rows[2].ended, 1); /* until it is opened again */
    rig.mask_steps[2] = 10;
    sample(&rig, 4);
    assert_int_equal(rig.choices[2].token, -1);
    rig.rows[2].ended = 0;
    sample(&rig, 4);
    assert_int_equal(rig.choices[2].token, only);
    check_rows(&rig, 4);
    rig_close(&rig);
}

/* Prompt targets of one row beside a draw and padding, over shapes. */
static void test_targets(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, 1000, 1001);
    fill_plain(&rig);
    for (uint32_t i = 0; i < 16; i++) {
        fill_row(&rig, i, (enum shape)(i % SHAPES), i);
        rig.outputs[i].row = i == 3 ? 3 : 2;
        rig.outputs[i].target = i == 3 ? -1 : (int32_t)(i * 61 % 1000);
    }
    rig.outputs[5].flags = CUDA_OUTPUT_UNUSED;
    rig.samplings[2].prompt_logprobs = 7;
    rig.samplings[2].temperature = 1.0f;
    rig.samplings[2].counted = 1;
    sample(&rig, 16);
    for (uint32_t i = 0; i < 16; i++) {
        if (i == 5) {
            assert_int_equal(rig.choices[i].top_count, 0xa5a5a5a5u);
            continue;
        }
        if (i == 3) {
            assert_int_equal(rig.choices[i].token, best_of(&rig, i));
            continue;
        }
        assert_int_equal(rig.choices[i].token, rig.outputs[i].target);
        check_description(&rig, i, rig.outputs[i].target, 7, shape_names[i % SHAPES]);
    }
    check_rows(&rig, 16);
    assert_int_equal(rig.rows[2].last_token, -5);
    rig_close(&rig);
}

/* --- times --------------------------------------------------------------------------------- */

enum { BENCH_CALLS = 20, BENCH_REPEATS = 15 };

static int by_value(const void *a, const void *b)
{
    const float *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Median time of a call in a graph of BENCH_CALLS of them. */
static double call_us(struct rig *rig, uint32_t outputs)
{
    struct CUgraphExec_st *graph;
    struct CUevent_st *from, *to;
    float ms[BENCH_REPEATS];

    assert_int_equal(cuda_event_open(&rig->context, true, &from), 0);
    assert_int_equal(cuda_event_open(&rig->context, true, &to), 0);
    assert_int_equal(cuda_capture_begin(&rig->stream), 0);
    for (int i = 0; i < BENCH_CALLS; i++)
        assert_int_equal(cuda_sample(&rig->stream, &rig->args, outputs, rig->scratch, true), 0);
    assert_int_equal(cuda_capture_end(&rig->stream, &graph), 0);
    for (int i = 0; i < BENCH_REPEATS; i++) {
        assert_int_equal(cuda_graph_launch(&rig->stream, graph), 0);
        assert_int_equal(cuda_event_record(&rig->stream, from), 0);
        assert_int_equal(cuda_graph_launch(&rig->stream, graph), 0);
        assert_int_equal(cuda_event_record(&rig->stream, to), 0);
        assert_int_equal(cuda_event_wait(&rig->context, to), 0);
        assert_int_equal(cuda_event_between(&rig->context, from, to, &ms[i]), 0);
    }
    qsort(ms, BENCH_REPEATS, sizeof *ms, by_value);
    cuda_graph_close(&rig->context, graph);
    cuda_event_close(&rig->context, from);
    cuda_event_close(&rig->context, to);
    return 1000.0 * (double)ms[BENCH_REPEATS / 2] / BENCH_CALLS;
}

static const struct kind {
    const char *name;
    struct cuda_sampling sampling;
} kinds[] = {
    {"greedy", {.top_p = 1, .typical_p = 1}},
    {"greedy, logprobs 5", {.top_p = 1, .typical_p = 1, .logprobs = 6}},
    {"no filter", {.temperature = 0.8f, .top_p = 1, .typical_p = 1}},
    {"top-k 50", {.temperature = 0.8f, .top_k = 50, .top_p = 1, .typical_p = 1}},
    {"top-p 0.9", {.temperature = 0.8f, .top_p = 0.9f, .typical_p = 1}},
    {"top-k 50, top-p 0.9", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .typical_p = 1}},
    {"min-p 0.05", {.temperature = 0.8f, .top_p = 1, .min_p = 0.05f, .typical_p = 1}},
    {"typical-p 0.9", {.temperature = 0.8f, .top_p = 1, .typical_p = 0.9f}},
    {"penalties, top-p 0.9",
     {.temperature = 0.8f, .top_p = 0.9f, .typical_p = 1, .frequency_penalty = 0.1f, .counted = 1}},
};

/* Logits stay as they are on the device; everything else is the kind's. */
static void bench_kind(struct rig *rig, const struct kind *kind, const char *shape)
{
    static const uint32_t row_counts[] = {1, 8, 32, 64};

    for (uint32_t row = 0; row < ROWS; row++) {
        rig->samplings[row] = kind->sampling;
        rig->samplings[row].logprobs--;
        rig->samplings[row].repetition_penalty = 1.0f;
        rig->samplings[row].seed = row;
    }
    upload(rig);
    printf("%-8s%-32s", shape, kind->name);
    for (size_t i = 0; i < sizeof row_counts / sizeof *row_counts; i++)
        printf("%9.1f", call_us(rig, row_counts[i]));
    printf("\n");
    fflush(stdout);
}

/* Of the kinds whose "shape kind" holds `what`. */
static void bench(const char *what)
{
    static const enum shape shapes[] = {SHAPE_PEAKED, SHAPE_ZIPF, SHAPE_FLAT};
    char name[64];
    struct rig rig;

    rig_open(&rig, 128256, 128256);
    fill_plain(&rig);
    printf("us a call, vocabulary 128256; rows         1        8       32       64\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        bool filled = false;

        for (size_t j = 0; j < sizeof kinds / sizeof *kinds; j++) {
            snprintf(name, sizeof name, "%s %s", shape_names[shapes[i]], kinds[j].name);
            if (!strstr(name, what))
                continue;
            for (uint32_t row = 0; row < ROWS && !filled; row++)
                fill_row(&rig, row, shapes[i], row);
            filled = true;
            bench_kind(&rig, &kinds[j], shape_names[shapes[i]]);
        }
    }
    rig_close(&rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),       cmocka_unit_test(test_counts),
        cmocka_unit_test(test_masks),      cmocka_unit_test(test_targets),
        cmocka_unit_test(test_small),      cmocka_unit_test(test_cases),
        cmocka_unit_test(test_statistics), cmocka_unit_test(test_large),
    };

    if (argc > 1 && strcmp(argv[1], "bench") == 0) {
        bench(argc > 2 ? argv[2] : "");
        return 0;
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("gpu/sample", tests, NULL, NULL);
}
