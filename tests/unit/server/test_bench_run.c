/* test_bench_run.c -- protects: what `weft bench` times. On a device and a clock made of
 * arithmetic, decoding comes out as the steady pace with the pipeline full, not a nanosecond of
 * filling, warming up or draining in it; host time leaves waiting out; memory that runs out is a
 * fault. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "server/bench_run.h"
#include "tests/lib/failing_malloc.h"

enum { STEP_NS = 1000000, SLOW_NS = 7000000, SUBMIT_NS = 30000, COMPLETE_NS = 20000 };

/* Steps take step_ns one after the other; the first of decoding are slow. */
struct engine {
    struct engine_limits limits;
    uint64_t step_ns;
    uint32_t slow_steps;
    bool plain; /* a submit waits for its own step */
    uint64_t free_ns;
    uint64_t ends_ns[ENGINE_STEPS_IN_FLIGHT];
    uint64_t waited_ns[ENGINE_STEPS_IN_FLIGHT];
    uint64_t submitted, completed, decodes;
    uint32_t prefilled, opened, closed;
    bool fails;
};

static uint64_t now_ns;

uint64_t clock_now(void)
{
    return now_ns;
}

const struct engine_limits *engine_limits(const struct engine *engine)
{
    return &engine->limits;
}

static uint64_t wait_until(uint64_t then)
{
    uint64_t waited = then > now_ns ? then - now_ns : 0;

    now_ns += waited;
    return waited;
}

int engine_submit(struct engine *engine, const struct batch *batch, struct fault *fault)
{
    uint64_t began;
    uint32_t slot = engine->submitted % ENGINE_STEPS_IN_FLIGHT;

    assert_true(engine->submitted - engine->completed < ENGINE_STEPS_IN_FLIGHT);
    assert_int_equal(batch->number, engine->submitted);
    if (engine->fails)
        return fault_set(fault, E_DEVICE, "failed, as it was told to");
    for (uint32_t i = 0; i < batch->prefill_count; i++)
        engine->prefilled += batch->prefills[i].count;
    engine->opened += batch->opening_count;
    engine->closed += batch->close_count;
    engine->decodes = batch->decode_count ? engine->decodes + 1 : 0;
    now_ns += SUBMIT_NS;
    began = now_ns > engine->free_ns ? now_ns : engine->free_ns;
    engine->free_ns =
        began + (engine->decodes > 0 && engine->decodes <= engine->slow_steps ? (uint64_t)SLOW_NS
                                                                              : engine->step_ns);
    engine->ends_ns[slot] = engine->free_ns;
    engine->waited_ns[slot] = engine->plain ? wait_until(engine->free_ns) : 0;
    engine->submitted++;
    return 0;
}

int engine_complete(struct engine *engine, struct step *ret_step, struct fault *fault)
{
    uint32_t slot = engine->completed % ENGINE_STEPS_IN_FLIGHT;

    (void)fault;
    assert_true(engine->submitted > engine->completed);
    engine->completed++;
    *ret_step =
        (struct step){.waited_ns = engine->waited_ns[slot] + wait_until(engine->ends_ns[slot])};
    now_ns += COMPLETE_NS;
    return 0;
}

static struct engine made(uint64_t step_ns)
{
    return (struct engine){.step_ns = step_ns,
                           .slow_steps = BENCH_WARM_STEPS,
                           .limits = {.batch = {.rows = 4, .grants = 1004, .prefill_tokens = 100},
                                      .page_tokens = 16,
                                      .page_count = 1000,
                                      .context = 1000,
                                      .pages_per_row = 63,
                                      .vocabulary = 50}};
}

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
    struct engine engine = made(STEP_NS);
    struct bench_result result = measure(&engine, 3, 1);

    (void)state;
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
    struct engine engine = made(1000);
    struct bench_result result;

    (void)state;
    engine.slow_steps = 0;
    result = measure(&engine, 1, 1);
    near(result.step_seconds, SUBMIT_NS + COMPLETE_NS);
    near(result.step_host_seconds, SUBMIT_NS + COMPLETE_NS);
}

/* Waiting within a submit is not the host's time either. */
static void the_plain_loop_waits_in_submit(void **state)
{
    struct engine engine = made(STEP_NS);
    struct bench_result result;

    (void)state;
    engine.plain = true;
    result = measure(&engine, 2, 1);
    near(result.step_seconds, SUBMIT_NS + STEP_NS + COMPLETE_NS);
    near(result.step_host_seconds, SUBMIT_NS + COMPLETE_NS);
}

static void repeats_open_rows_anew(void **state)
{
    struct engine engine = made(STEP_NS);
    struct bench_result result = measure(&engine, 4, 3);

    (void)state;
    near(result.step_seconds, STEP_NS);
    assert_int_equal(engine.opened, 12);
    assert_int_equal(engine.closed, 8);
    assert_int_equal(engine.prefilled, 3 * 4 * 150);
}

static void says_what_does_not_fit(void **state)
{
    struct engine engine = made(STEP_NS);
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
    struct engine engine = made(STEP_NS);
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
