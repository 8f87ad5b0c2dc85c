/* test_failure.c -- protects: an error on the GPU that cannot be mended (here an illegal address)
 * comes back from the engine as E_DEVICE with the driver's reason, again from every later call, and
 * closing what is left neither hangs nor crashes.
 *
 * The engine's library and this program have a CUDA runtime each, but share the process's context,
 * so a kernel launched here spoils it for the engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/engine.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/kernels.h"

enum { PROMPT = 20, HANGS_AFTER_SECONDS = 60, NOT_RUN = 77 };

struct rig {
    struct engine *engine;
    struct batch *batches[3];
    struct sampling sampling;
    int32_t prompt[PROMPT];
    uint64_t steps;
};

static void rig_open(struct rig *rig)
{
    const struct engine_options options = {
        .random_shape = "smollm2-135m",
        .device = DEVICE_CUDA,
        .max_batch = 4,
        .max_context = 256,
        .cuda = {.memory_fraction = 0.5, .streams = 1},
    };
    struct fault fault = {0};

    *rig = (struct rig){0};
    if (engine_open(&options, &rig->engine, &fault) < 0)
        fail_msg("%s", fault.message);
    for (int i = 0; i < 3; i++)
        assert_int_equal(batch_open(&engine_limits(rig->engine)->batch, &rig->batches[i], NULL), 0);
    sampling_init(&rig->sampling);
    for (int i = 0; i < PROMPT; i++)
        rig->prompt[i] = 100 + i;
}

static void rig_close(struct rig *rig)
{
    engine_close(rig->engine);
    for (int i = 0; i < 3; i++)
        batch_close(rig->batches[i]);
}

/* The first step reads the prompt, the others decode. */
static struct batch *next_batch(struct rig *rig)
{
    struct batch *batch = rig->batches[rig->steps % 3];

    batch_reset(batch);
    batch->number = rig->steps++;
    if (batch->number > 0) {
        batch->decode_rows[batch->decode_count++] = 0;
        return batch;
    }
    batch->openings[batch->opening_count++] = (struct batch_opening){.tokens = rig->prompt,
                                                                     .token_count = PROMPT,
                                                                     .prompt_count = PROMPT,
                                                                     .tokens_left = 200,
                                                                     .sampling = &rig->sampling};
    for (uint32_t i = 0; i < engine_limits(rig->engine)->pages_per_row; i++)
        batch->grants[batch->grant_count++] = (struct batch_grant){.index = i, .page = i};
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){.count = PROMPT};
    return batch;
}

/* Grants a page that is described where nothing is. */
static void spoil_the_context(void)
{
    const struct cuda_changes changes = {.grants = (const struct cuda_grant *)64, .grant_count = 1};
    struct cuda_context context;
    struct cuda_stream stream;
    struct fault fault = {0};

    if (cuda_context_open(&context, &fault) < 0)
        fail_msg("%s", fault.message);
    assert_int_equal(cuda_stream_open(&context, &stream), 0);
    assert_int_equal(cuda_apply_changes(&stream, &changes), 0);
    assert_int_equal(cuda_stream_synchronize(&stream), E_DEVICE);
    assert_non_null(strstr(context.failure.message, "illegal"));
}

static void a_spoilt_context_is_told_and_closes(void **state)
{
    struct rig rig;
    struct step step;
    struct fault fault = {0}, again = {0};
    uint64_t began;
    int r = 0;

    (void)state;
    rig_open(&rig);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(engine_submit(rig.engine, next_batch(&rig), NULL), 0);
        assert_int_equal(engine_complete(rig.engine, &step, NULL), 0);
        assert_int_equal(step.rows[0].state, STEP_ROW_TOKEN);
    }
    assert_int_equal(engine_submit(rig.engine, next_batch(&rig), NULL), 0); /* it is in flight */
    spoil_the_context();
    began = clock_now();
    for (int i = 0; i < 4 && r == 0; i++) {
        r = engine_submit(rig.engine, next_batch(&rig), &fault);
        if (r == 0)
            r = engine_complete(rig.engine, &step, &fault);
    }
    assert_int_equal(r, E_DEVICE);
    printf("%s\n", fault.message);
    assert_non_null(strstr(fault.message, "the GPU failed: "));
    assert_non_null(strstr(fault.message, "illegal"));
    assert_int_equal(engine_submit(rig.engine, next_batch(&rig), &again), E_DEVICE);
    assert_string_equal(again.message, fault.message);
    assert_int_equal(engine_complete(rig.engine, &step, NULL), E_DEVICE);
    rig_close(&rig);
    assert_true(clock_seconds(clock_now() - began) < 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_spoilt_context_is_told_and_closes)};
    char name[DEVICE_NAME_BYTES];
    struct fault fault = {0};

    if (engine_find_gpu(name, &fault) < 0) {
        fprintf(stderr, "%s\n", fault.message);
        return NOT_RUN;
    }
    (void)alarm(HANGS_AFTER_SECONDS); /* a test that hangs must not pass for one that runs */
    return cmocka_run_group_tests_name("gpu/failure", tests, NULL, NULL);
}
