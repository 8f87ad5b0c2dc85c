/* test_sampling.c -- protects: the meaning and the order of the sampling processors, by the cases
 * of tests/data/sampling.json (made with numpy and transformers; no case has a tie or a cut closer
 * than 1e-4, so what is kept must match exactly). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "kernels/cpu/sample.h"

enum { VOCABULARY_MAX = 512, BIASES_MAX = 16 };

struct sampling_case {
    float logits[VOCABULARY_MAX];
    uint32_t vocabulary;
    uint16_t counts[VOCABULARY_MAX];
    uint64_t seen[VOCABULARY_MAX / 64];
    struct sample_bias biases[BIASES_MAX];
    struct sample_params params;
};

static float number(const json_t *object, const char *key, float otherwise)
{
    const json_t *value = json_object_get(object, key);

    return value ? (float)json_number_value(value) : otherwise;
}

static void read_case(const json_t *from, struct sampling_case *to)
{
    const json_t *params = json_object_get(from, "params"), *value;
    const char *key;
    size_t i;

    memset(to, 0, sizeof *to);
    json_array_foreach(json_object_get(from, "logits"), i, value)
    {
        assert_true(i < VOCABULARY_MAX);
        to->logits[to->vocabulary++] = (float)json_number_value(value);
    }
    json_array_foreach(json_object_get(from, "prompt"), i, value)
    {
        uint64_t token = (uint64_t)json_integer_value(value);

        to->seen[token / 64] |= 1ull << (token % 64);
    }
    json_array_foreach(json_object_get(from, "generated"), i, value)
        to->counts[json_integer_value(value)]++;
    to->params = (struct sample_params){
        .temperature = number(params, "temperature", 1),
        .top_k = (uint32_t)number(params, "top_k", 0),
        .top_p = number(params, "top_p", 1),
        .min_p = number(params, "min_p", 0),
        .typical_p = number(params, "typical_p", 1),
        .repetition_penalty = number(params, "repetition_penalty", 1),
        .frequency_penalty = number(params, "frequency_penalty", 0),
        .presence_penalty = number(params, "presence_penalty", 0),
        .biases = to->biases,
        .generated_counts = to->counts,
        .prompt_seen = to->seen,
    };
    json_object_foreach(json_object_get(params, "logit_bias"), key, value)
    {
        assert_true(to->params.bias_count < BIASES_MAX);
        to->biases[to->params.bias_count++] = (struct sample_bias){
            .token = (int32_t)strtol(key, NULL, 10), .bias = (float)json_number_value(value)};
    }
}

static void check_case(const json_t *expected, const struct sampling_case *one,
                       struct sample_scratch *scratch)
{
    const json_t *kept = json_object_get(expected, "kept"), *value;
    const json_t *probs = json_object_get(expected, "probs");
    int id = (int)json_integer_value(json_object_get(expected, "id"));
    uint32_t count;
    size_t i;

    scratch->vocabulary = one->vocabulary;
    count = sample_keep(one->logits, &one->params, scratch);
    if (count != json_array_size(kept))
        fail_msg("case %d keeps %u, not %zu", id, count, json_array_size(kept));
    json_array_foreach(kept, i, value)
    {
        double probability = json_number_value(json_array_get(probs, i));

        if (scratch->candidates[i].token != json_integer_value(value))
            fail_msg("case %d has token %d at %zu, not %d", id, scratch->candidates[i].token, i,
                     (int)json_integer_value(value));
        assert_float_equal(scratch->candidates[i].value, probability, 1e-5);
    }
}

static void test_processors(void **state)
{
    struct sample_scratch scratch;
    void *memory = aligned_alloc(64, sample_scratch_bytes(VOCABULARY_MAX));
    json_t *file = json_load_file("tests/data/sampling.json", 0, NULL), *value;
    struct sampling_case one;
    size_t i;

    (void)state;
    assert_non_null(memory);
    assert_non_null(file);
    sample_scratch_init(&scratch, VOCABULARY_MAX, memory);
    assert_int_equal(json_array_size(json_object_get(file, "processors")), 35);
    json_array_foreach(json_object_get(file, "processors"), i, value)
    {
        read_case(value, &one);
        check_case(value, &one, &scratch);
    }
    json_decref(file);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_processors)};

    return cmocka_run_group_tests_name("golden/sampling", tests, NULL, NULL);
}
