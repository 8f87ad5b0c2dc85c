/* timed_engine.h -- engine.h on a clock made of arithmetic, for tests of what measures engines: a
 * submit and a complete take so long, steps run one after the other, and sleeping only moves the
 * clock. Computes nothing, counts what it was given, and checks how many steps are in flight.
 *
 * Everything is here, clock_now() too, so one file of a program includes it. */
#ifndef WEFT_TEST_TIMED_ENGINE_H
#define WEFT_TEST_TIMED_ENGINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/engine.h"

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

static inline uint64_t wait_until(uint64_t then)
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

static inline struct engine timed_engine(uint64_t step_ns)
{
    return (struct engine){.step_ns = step_ns,
                           .limits = {.batch = {.rows = 4, .grants = 1004, .prefill_tokens = 100},
                                      .page_tokens = 16,
                                      .page_count = 1000,
                                      .context = 1000,
                                      .pages_per_row = 63,
                                      .vocabulary = 50}};
}

#endif
