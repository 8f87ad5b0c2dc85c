/* test_step_budget.c -- protects: the budget of a step is what fits into its time, within what a
 * step and the KV cache hold, and never below what the device bears anyway; no row stays open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/step_budget.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/fake_engine.h"

static const struct fake_options roomy = {.timing = FAKE_AT_SUBMIT,
                                          .rows = 8,
                                          .page_tokens = 16,
                                          .page_count = 512,
                                          .context = 1000,
                                          .prefill_tokens = 2048,
                                          .token_ns = 1000};

static uint32_t budget_of(const struct fake_options *options, uint64_t step_ns, uint32_t least)
{
    struct engine *engine = fake_engine_open(options);
    struct fault fault = {0};
    uint32_t tokens = 0;

    if (step_budget_measure(engine, step_ns, least, &tokens, &fault) < 0)
        fail_msg("%s", fault.message);
    for (uint32_t i = 0; i < options->rows; i++)
        assert_int_equal(engine->rows[i].state, FAKE_FREE);
    assert_int_equal(engine_in_flight(engine), 0);
    fake_engine_close(engine);
    return tokens;
}

/* A step of n tokens takes n + 1 microseconds. */
static void what_fits_into_the_time(void **state)
{
    (void)state;
    assert_int_equal(budget_of(&roomy, 700 * 1000, 128), 672);
    assert_int_equal(budget_of(&roomy, 257 * 1000, 128), 256);
    assert_int_equal(budget_of(&roomy, 256 * 1000, 128), 224);
}

static void never_less_than_the_device_bears(void **state)
{
    (void)state;
    assert_int_equal(budget_of(&roomy, 50 * 1000, 128), 128);
    assert_int_equal(budget_of(&roomy, 1, 100), 100);
}

static void never_more_than_a_step_or_the_cache_holds(void **state)
{
    struct fake_options options = roomy;

    (void)state;
    assert_int_equal(budget_of(&roomy, UINT64_MAX, 128), 2048);
    options.prefill_tokens = 600;
    assert_int_equal(budget_of(&options, UINT64_MAX, 128), 512);
    options.prefill_tokens = 64;
    assert_int_equal(budget_of(&options, UINT64_MAX, 128), 128);
    options = roomy;
    options.page_count = 63; /* 1,000 tokens: one row's */
    assert_int_equal(budget_of(&options, UINT64_MAX, 128), 512);
    options = roomy;
    options.context = 100; /* 8 rows of 99 */
    assert_int_equal(budget_of(&options, UINT64_MAX, 128), 512);
    options.context = 1;
    assert_int_equal(budget_of(&options, UINT64_MAX, 128), 128);
}

static void a_failing_device_is_passed_on(void **state)
{
    struct fake_options options = roomy;
    uint32_t tokens = 7;

    (void)state;
    for (uint64_t n = 1; n < 8; n++) {
        struct fault fault = {0};
        struct engine *engine;

        options.complete_fails = n % 2 ? n : 0;
        options.submit_fails = n % 2 ? 0 : n;
        engine = fake_engine_open(&options);
        assert_int_equal(step_budget_measure(engine, UINT64_MAX, 128, &tokens, &fault), E_DEVICE);
        assert_int_equal(tokens, 7);
        fake_engine_close(engine);
    }
}

static void survives_a_failing_allocation(void **state)
{
    struct engine *engine = fake_engine_open(&roomy);
    uint32_t tokens = 7;
    int r = E_MEMORY;

    (void)state;
    for (uint64_t n = 1; r < 0; n++) {
        failing_malloc_arm(n);
        r = step_budget_measure(engine, 1, 128, &tokens, NULL);
        if (failing_malloc_disarm())
            assert_int_equal(r, E_MEMORY);
    }
    assert_int_equal(tokens, 128);
    fake_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_into_the_time),
        cmocka_unit_test(never_less_than_the_device_bears),
        cmocka_unit_test(never_more_than_a_step_or_the_cache_holds),
        cmocka_unit_test(a_failing_device_is_passed_on),
        cmocka_unit_test(survives_a_failing_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
