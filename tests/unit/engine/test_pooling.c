/* test_pooling.c -- protects how a vector is made of states that come in chunks, a second time from
 * the beginning, and what of the makers' files says which way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "engine/batch.h"

enum { WIDTH = 3, COUNT = 4 };

static const float states[COUNT][WIDTH] = {{1, 2, 3}, {5, -6, 7}, {0, 0, 1}, {2, 8, 5}};

static void assert_pooled(enum pooling pooling, const float wanted[WIDTH])
{
    float vector[WIDTH + 1] = {99, 99, 99, 77};
    const struct batch_opening opening = {
        .token_count = COUNT, .prompt_count = COUNT, .vector = vector, .pooling = pooling};

    /* Preempted after two tokens, then whole. */
    for (uint32_t i = 0; i < 2; i++)
        pooling_take(&opening, i, states[i], WIDTH);
    for (uint32_t i = 0; i < COUNT; i++)
        pooling_take(&opening, i, states[i], WIDTH);
    for (uint32_t i = 0; i < WIDTH; i++)
        assert_float_equal(vector[i], wanted[i], 0);
    assert_float_equal(vector[WIDTH], 77, 0);
}

static void test_modes(void **state)
{
    (void)state;
    assert_pooled(POOLING_LAST, states[COUNT - 1]);
    assert_pooled(POOLING_CLS, states[0]);
    assert_pooled(POOLING_MEAN, (const float[WIDTH]){2, 1, 4});
}

static void test_only_what_is_wanted_is_asked_for(void **state)
{
    struct batch_opening opening = {.token_count = 2, .prompt_count = 2};

    (void)state;
    opening.pooling = POOLING_LAST;
    assert_false(pooling_wants(&opening, 0));
    assert_true(pooling_wants(&opening, 1));
    opening.pooling = POOLING_CLS;
    assert_true(pooling_wants(&opening, 0));
    assert_false(pooling_wants(&opening, 1));
    opening.pooling = POOLING_MEAN;
    assert_true(pooling_wants(&opening, 0) && pooling_wants(&opening, 1));
}

static int read_text(const char *text, enum pooling *ret_pooling, struct fault *fault)
{
    return pooling_read_config(text, strlen(text), ret_pooling, fault);
}

static void test_the_makers_word(void **state)
{
    static const struct {
        const char *text;
        enum pooling pooling;
    } cases[] = {
        {"{}", POOLING_LAST},
        {"{\"word_embedding_dimension\":384,\"pooling_mode_cls_token\":false,"
         "\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":false}",
         POOLING_MEAN},
        {"{\"pooling_mode_cls_token\":true}", POOLING_CLS},
        {"{\"pooling_mode_lasttoken\":true,\"include_prompt\":true}", POOLING_LAST},
    };
    struct fault fault = {0};
    enum pooling pooling;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_text(cases[i].text, &pooling, &fault), 0);
        assert_int_equal(pooling, cases[i].pooling);
    }
    assert_int_equal(read_text("{\"pooling_mode_max_tokens\":true}", &pooling, &fault),
                     E_UNSUPPORTED);
    assert_non_null(strstr(fault.message, "pooling_mode_max_tokens"));
    assert_int_equal(
        read_text("{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}", &pooling,
                  &fault),
        E_UNSUPPORTED);
    assert_non_null(strstr(fault.message, "2 ways"));
    assert_int_equal(read_text("{\"pooling_mode_cls_token\":1}", &pooling, &fault), E_INVALID);
    assert_int_equal(read_text("[]", &pooling, &fault), E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_only_what_is_wanted_is_asked_for),
        cmocka_unit_test(test_the_makers_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
