/* test_bench_run.c -- protects: what `weft bench` times. On a device and a clock made of
 * arithmetic, decoding comes out as the steady pace with the pipeline full, not a nanosecond of
 * filling, warming up or draining in it; host time leaves waiting out; memory that runs out is a
 * fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "server/bench_run.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/timed_engine.h"

static struct bench_result measure(struct engine *engine, uint32_t rows, uint32_t repeats)
{
    struct bench_result result;
    struct bench_run run;

    assert_int_equal(bench_run_init(&run, engine, NULL), 0);
    assert_int_equal(bench_run_measure(&run, rows, 150, 10, repeats, &result, NULL), 0);
    assert_int_equal(engine->submitted, engine->completed);
    bench_run_fini(&run);
    return result;
}

static void near(double seconds, uint64_t ns)
{
    assert_int_equal((uint64_t)(seconds * 1e9 + 0.5), ns);
}

static void decoding_is_timed_with_the_pipeline_full(void **state)
{
    struct engine engine = timed_engine(STEP_NS);
    struct bench_result result;

    (void)state;
    engine.slow_steps = BENCH_WARM_STEPS;
    result = measure(&engine, 3, 1);
    near(result.step_seconds, STEP_NS);
    near(result.step_host_seconds, SUBMIT_NS + COMPLETE_NS);
    /* 450 prompt tokens, 100 a step: 5 steps, from an idle device to an idle device. */
    near(result.prefill_seconds, SUBMIT_NS + 5 * STEP_NS + COMPLETE_NS);
    assert_int_equal(engine.prefilled, 450);
    assert_int_equal(engine.decodes, BENCH_WARM_STEPS + 10 + BENCH_TAIL_STEPS);
}

/* Where the host takes longer than the device the step is the host's. */
static void a_slow_host_is_the_pace(void **state)
{
    struct engine engine = timed_engine(1000);
    struct bench_result result;

    (void)state;
    result = measure(&engine, 1, 1);
    near(result.step_seconds, SUBMIT_NS + COMPLETE_NS);
    near(result.step_host_seconds, SUBMIT_NS + COMPLETE_NS);
}

/* Waiting within a submit is not the host's time either. */
static void the_plain_loop_waits_in_submit(void **state)
{
    struct engine engine = timed_engine(STEP_NS);
    struct bench_result result;

    (void)state;
    engine.plain = true;
    result = measure(&engine, 2, 1);
    near(result.step_seconds, SUBMIT_NS + STEP_NS + COMPLETE_NS);
    near(result.step_host_seconds, SUBMIT_NS + COMPLETE_NS);
}

static void repeats_open_rows_anew(void **state)
{
    struct engine engine = timed_engine(STEP_NS);
    struct bench_result result = measure(&engine, 4, 3);

    (void)state;
    near(result.step_seconds, STEP_NS);
    assert_int_equal(engine.opened, 12);
    assert_int_equal(engine.closed, 8);
    assert_int_equal(engine.prefilled, 3 * 4 * 150);
}

static void says_what_does_not_fit(void **state)
{
    struct engine engine = timed_engine(STEP_NS);
    const uint32_t others = 1 + BENCH_WARM_STEPS + BENCH_TAIL_STEPS; /* beside prompt and steps */
    struct bench_run run;

    (void)state;
    assert_int_equal(bench_run_init(&run, &engine, NULL), 0);
    assert_null(bench_run_misfit(&run, 4, 1000 - 10 - others, 10));
    assert_non_null(bench_run_misfit(&run, 4, 1001 - 10 - others, 10));
    assert_non_null(bench_run_misfit(&run, 5, 100, 10));
    engine.limits.page_count = 8;
    assert_null(bench_run_misfit(&run, 4, 32 - 4 - others, 4));
    assert_non_null(bench_run_misfit(&run, 4, 33 - 4 - others, 4));
    bench_run_fini(&run);
}

static void a_step_reads_what_was_before_it(void **state)
{
    (void)state;
    /* One step: the prompt, the warm steps' tokens and its own. */
    assert_true(bench_run_step_tokens(100, 1) == 100 + BENCH_WARM_STEPS + 1);
    assert_true(bench_run_step_tokens(100, 4) == 100 + BENCH_WARM_STEPS + 1 + 1.5);
}

static void failures_are_faults(void **state)
{
    struct engine engine = timed_engine(STEP_NS);
    struct bench_result result;
    struct fault fault = {0};
    struct bench_run run;
    uint32_t failed = 0;

    (void)state;
    for (uint64_t nth = 1;; nth++, failed++) {
        int r;

        failing_malloc_arm(nth);
        r = bench_run_init(&run, &engine, &fault);
        if (!failing_malloc_disarm())
            break;
        assert_int_equal(r, E_MEMORY);
        bench_run_fini(&run);
    }
    assert_true(failed >= 2 + BENCH_BATCHES);
    engine.fails = true;
    assert_int_equal(bench_run_measure(&run, 1, 10, 10, 1, &result, &fault), E_DEVICE);
    assert_string_equal(fault.message, "failed, as it was told to");
    bench_run_fini(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_is_timed_with_the_pipeline_full),
        cmocka_unit_test(a_slow_host_is_the_pace),
        cmocka_unit_test(the_plain_loop_waits_in_submit),
        cmocka_unit_test(repeats_open_rows_anew),
        cmocka_unit_test(says_what_does_not_fit),
        cmocka_unit_test(a_step_reads_what_was_before_it),
        cmocka_unit_test(failures_are_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
