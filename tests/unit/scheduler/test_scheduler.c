/* Protects the scheduler's promises against the null device, whose rows echo their own prompt:
 * every stream is whole and nobody else's, whatever is preempted, cancelled or queued; every page
 * comes back; one end for each choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "scheduler/scheduler.h"
#include "tests/lib/failing_malloc.h"

enum {
    CONTEXT = 128,
    PAGE_BYTES = 64,
    REQUESTS_MAX = 512,
    PATIENCE_NS = 60 * 1000 * 1000 * 1000ll,
};

static uint64_t random_state = 88172645463325252u;

/* xorshift64 (G. Marsaglia). */
static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

/* What the test knows of one choice. */
struct choice {
    int32_t prompt[CONTEXT];
    uint32_t prompt_count;
    uint32_t max_tokens;
    uint32_t heard;
    uint32_t prompts_heard;
    bool cancelled; /* asked for */
    bool started;
    bool ended;
    bool failed;
    struct event_finish finish;
};

struct world {
    struct engine *engine;
    struct scheduler *scheduler;
    struct choice choices[REQUESTS_MAX];
    uint32_t count;
    uint32_t ended;
    _Atomic uint32_t bells;
};

static void on_bell(void *data)
{
    struct world *world = data;

    world->bells++;
}

static struct world *world_open(uint32_t rows, uint32_t pages, uint32_t queue, uint32_t step_us)
{
    struct world *world = calloc(1, sizeof *world);
    struct fault fault = {0};
    struct engine_options engine = {.model_path = "tests/data/arch/gguf_llama_f32/llama-F32.gguf",
                                    .device = DEVICE_NULL,
                                    .max_batch = rows,
                                    .max_context = CONTEXT,
                                    .kv_bytes = (uint64_t)pages * PAGE_BYTES,
                                    .prefill_tokens = 48,
                                    .null_step_us = step_us};
    struct scheduler_options options = {.queue_length_max = queue,
                                        .event_capacity = 16,
                                        .prefill_tokens = 48,
                                        .prefills_max = 4,
                                        .bell = on_bell,
                                        .bell_data = world};

    assert_non_null(world);
    if (engine_open(&engine, &world->engine, &fault) < 0)
        fail_msg("%s", fault.message);
    assert_int_equal(engine_limits(world->engine)->page_count, pages);
    if (scheduler_open(world->engine, &options, &world->scheduler, &fault) < 0)
        fail_msg("%s", fault.message);
    return world;
}

static void world_close(struct world *world)
{
    scheduler_close(world->scheduler);
    engine_close(world->engine);
    free(world);
}

/* Submits one prompt with one choice; its exchange id is its number + 1. */
static int submit(struct world *world, uint32_t prompt_count, uint32_t max_tokens,
                  int32_t prompt_logprobs)
{
    struct choice *choice = &world->choices[world->count];
    struct arena *arena;
    struct request *request;
    int r;

    assert_int_equal(arena_open(4096, 1 << 20, &arena), 0);
    request = arena_take(arena, 1, sizeof *request);
    request->arena = arena;
    request->exchange_id = world->count + 1;
    request->prompt_count = 1;
    request->prompts = arena_take(arena, 1, sizeof *request->prompts);
    request->choices = 1;
    request->max_tokens = max_tokens;
    request->arrived_ns = clock_now();
    sampling_init(&request->sampling);
    request->sampling.prompt_logprobs = prompt_logprobs;
    memset(choice, 0, sizeof *choice);
    choice->prompt_count = prompt_count;
    choice->max_tokens = max_tokens;
    for (uint32_t i = 0; i < prompt_count; i++)
        choice->prompt[i] = (int32_t)(8 + draw(200));
    request->prompts[0].tokens =
        (int32_t *)arena_copy(arena, choice->prompt, prompt_count * sizeof(int32_t));
    request->prompts[0].count = prompt_count;
    r = scheduler_submit(world->scheduler, request);
    if (r < 0)
        request_free(request);
    else
        world->count++;
    return r;
}

static void hear(struct world *world, const struct event *event)
{
    struct choice *choice = &world->choices[event->exchange_id - 1];

    assert_in_range(event->exchange_id, 1, world->count);
    assert_int_equal(event->choice, 0);
    assert_false(choice->ended);
    switch (event->kind) {
    case EVENT_STARTED:
        assert_false(choice->started);
        choice->started = true;
        break;
    case EVENT_PROMPT:
        assert_int_equal(event->token.position, ++choice->prompts_heard);
        assert_int_equal(event->token.token, choice->prompt[event->token.position]);
        break;
    case EVENT_TOKEN:
        assert_int_equal(event->token.position, choice->prompt_count + choice->heard);
        assert_int_equal(event->token.token, choice->prompt[choice->heard % choice->prompt_count]);
        choice->heard++;
        break;
    case EVENT_FINISH:
        choice->ended = true;
        choice->finish = event->finish;
        world->ended++;
        break;
    case EVENT_FAILURE:
        choice->ended = choice->failed = true;
        world->ended++;
        break;
    }
}

/* Takes what is there; false: nothing came. */
static bool listen(struct world *world)
{
    struct event event;
    bool any = false;

    while (scheduler_next(world->scheduler, &event)) {
        hear(world, &event);
        any = true;
    }
    return any;
}

static void listen_until_ended(struct world *world, uint32_t ended)
{
    uint64_t deadline_ns = clock_now() + PATIENCE_NS;

    while (world->ended < ended) {
        if (!listen(world))
            clock_sleep_until(clock_now() + 100000);
        assert_true(clock_now() < deadline_ns);
    }
}

static void expect_all_free(struct world *world)
{
    uint64_t deadline_ns = clock_now() + PATIENCE_NS;
    struct scheduler_stats stats;

    do {
        scheduler_stats_get(world->scheduler, &stats);
        assert_true(clock_now() < deadline_ns);
    } while (stats.pages_free != stats.pages_total || stats.running || stats.waiting);
}

static void expect_whole(const struct world *world)
{
    for (uint32_t i = 0; i < world->count; i++) {
        const struct choice *choice = &world->choices[i];

        assert_true(choice->ended && !choice->failed);
        if (choice->cancelled && choice->finish.reason == FINISH_CANCELLED)
            continue;
        assert_int_equal(choice->finish.reason, FINISH_LENGTH);
        assert_int_equal(choice->heard, choice->max_tokens);
        assert_int_equal(choice->finish.generated_tokens, choice->max_tokens);
    }
}

static void streams_are_whole(void **state)
{
    struct world *world = world_open(8, 64, REQUESTS_MAX, 0);

    (void)state;
    for (int i = 0; i < 200; i++)
        assert_int_equal(submit(world, 1 + draw(90), 1 + draw(30), LOGPROBS_NONE), 0);
    listen_until_ended(world, 200);
    expect_whole(world);
    expect_all_free(world);
    assert_true(world->bells > 0);
    world_close(world);
}

/* Ten pages for eight rows: there is always somebody who loses his. */
static void preemption_loses_and_repeats_nothing(void **state)
{
    struct world *world = world_open(8, 10, REQUESTS_MAX, 0);
    struct scheduler_stats stats;

    (void)state;
    for (int i = 0; i < 150; i++)
        assert_int_equal(submit(world, 1 + draw(30), 30 + draw(60), i % 3 ? LOGPROBS_NONE : 0), 0);
    listen_until_ended(world, 150);
    expect_whole(world);
    for (uint32_t i = 0; i < world->count; i += 3)
        assert_int_equal(world->choices[i].prompts_heard, world->choices[i].prompt_count - 1);
    expect_all_free(world);
    scheduler_stats_get(world->scheduler, &stats);
    assert_true(stats.preemptions_total > 0);
    world_close(world);
}

static void cancels_at_random(void **state)
{
    struct world *world = world_open(8, 12, REQUESTS_MAX, 50);

    (void)state;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(submit(world, 1 + draw(40), 1 + draw(60), LOGPROBS_NONE), 0);
        if (draw(2)) {
            uint32_t victim = draw(world->count);

            world->choices[victim].cancelled = true;
            assert_int_equal(scheduler_cancel(world->scheduler, victim + 1, CHOICE_ALL), 0);
        }
        if (draw(4) == 0)
            listen(world);
    }
    listen_until_ended(world, 300);
    expect_whole(world);
    expect_all_free(world);
    world_close(world);
}

static void a_full_queue_says_so(void **state)
{
    struct world *world = world_open(1, 8, 4, 2000);
    struct scheduler_stats stats;
    int refused = 0;

    (void)state;
    for (int i = 0; i < 12; i++)
        refused += submit(world, 4, 20, LOGPROBS_NONE) == E_FULL;
    assert_true(refused >= 12 - 4 - 2);
    listen_until_ended(world, world->count);
    expect_whole(world);
    scheduler_stats_get(world->scheduler, &stats);
    assert_int_equal(stats.rejected_total, refused);
    world_close(world);
}

static void scoring_only(void **state)
{
    struct world *world = world_open(2, 16, 16, 0);

    (void)state;
    assert_int_equal(submit(world, 100, 0, 2), 0);
    listen_until_ended(world, 1);
    assert_int_equal(world->choices[0].prompts_heard, 99);
    assert_int_equal(world->choices[0].heard, 0);
    expect_whole(world);
    expect_all_free(world);
    world_close(world);
}

/* The small event ring is never read: the scheduler has to wait, and still to stop. */
static void closing_while_nobody_listens(void **state)
{
    struct world *world = world_open(8, 64, REQUESTS_MAX, 0);

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(submit(world, 1 + draw(60), 60, 0), 0);
    while (world->bells < 5)
        clock_sleep_until(clock_now() + 100000);
    world_close(world);
}

static void opening_survives_every_failing_allocation(void **state)
{
    struct world *world = world_open(4, 16, 16, 0);
    struct scheduler_options options = {.queue_length_max = 4,
                                        .event_capacity = 16,
                                        .prefill_tokens = 16,
                                        .prefills_max = 1,
                                        .bell = on_bell,
                                        .bell_data = world};
    int r;

    (void)state;
    scheduler_close(world->scheduler);
    for (uint64_t n = 1;; n++) {
        failing_malloc_arm(n);
        r = scheduler_open(world->engine, &options, &world->scheduler, NULL);
        if (!failing_malloc_disarm())
            break;
        assert_true(r < 0);
    }
    assert_int_equal(r, 0);
    world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_whole),
        cmocka_unit_test(preemption_loses_and_repeats_nothing),
        cmocka_unit_test(cancels_at_random),
        cmocka_unit_test(a_full_queue_says_so),
        cmocka_unit_test(scoring_only),
        cmocka_unit_test(closing_while_nobody_listens),
        cmocka_unit_test(opening_survives_every_failing_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
