/* Protects the scheduler's promises against an engine that checks every batch and whose rows echo
 * their own prompt: each stream is whole and nobody else's, whatever is preempted, cancelled,
 * shared or queued and however slow the reader is; each choice has one end; every page comes back;
 * what fails is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <semaphore.h>
#include <time.h>

#include "config/base/log.h"
#include "scheduler/scheduler.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/fake_engine.h"

enum {
    CONTEXT = 128,
    EXCHANGES_MAX = 512,
    CHOICES_MAX = 12, /* of one exchange */
    STOPS_MAX = 2,
    PATIENCE_S = 60,
};

static uint64_t random_state;

/* xorshift64 (G. Marsaglia). */
static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

static uint32_t between(uint32_t low, uint32_t high)
{
    return low + draw(high - low + 1);
}

/* What was asked. */
struct wish {
    uint32_t prompt_count; /* prompts, all of the same length */
    uint32_t prompt_tokens;
    uint32_t choices;
    uint32_t max_tokens;
    uint32_t stop_count;
    int32_t prompt_logprobs;
};

/* What was heard of one choice. */
struct choice {
    uint32_t tokens;
    uint32_t prompts;
    bool cancelled; /* asked for */
    bool started;
    bool ended;
    int failure;
    struct event_finish finish;
};

struct exchange {
    struct wish wish;
    int32_t prompts[CHOICES_MAX][CONTEXT];
    int32_t stops[STOPS_MAX];
    struct choice choices[CHOICES_MAX];
};

struct world {
    struct fake_options fake;
    struct engine *engine;
    struct scheduler *scheduler;
    struct exchange *exchanges;
    uint32_t count;
    uint32_t choices;
    uint32_t ended;
    sem_t bell;
};

static const struct fake_options roomy = {.timing = FAKE_ON_THREAD,
                                          .rows = 8,
                                          .page_tokens = 16,
                                          .page_count = 64,
                                          .context = CONTEXT,
                                          .prefill_tokens = 48};

static void on_bell(void *data)
{
    struct world *world = data;

    sem_post(&world->bell);
}

static struct world *world_open(const struct fake_options *fake, uint32_t queue)
{
    struct world *world = calloc(1, sizeof *world);
    struct fault fault = {0};
    struct scheduler_options options = {.queue_length_max = queue,
                                        .event_capacity = 16,
                                        .prefills_max = 4,
                                        .bell = on_bell,
                                        .bell_data = world};

    assert_non_null(world);
    world->exchanges = calloc(EXCHANGES_MAX, sizeof *world->exchanges);
    assert_non_null(world->exchanges);
    sem_init(&world->bell, 0, 0);
    world->fake = *fake;
    world->engine = fake_engine_open(fake);
    if (scheduler_open(world->engine, &options, &world->scheduler, &fault) < 0)
        fail_msg("%s", fault.message);
    return world;
}

static void world_close(struct world *world)
{
    scheduler_close(world->scheduler);
    fake_engine_close(world->engine);
    sem_destroy(&world->bell);
    free(world->exchanges);
    free(world);
}

/* --- asking ----------------------------------------------------------------------------------- */

static struct request *make_request(struct exchange *exchange, uint64_t id, size_t ceiling_bytes)
{
    const struct wish *wish = &exchange->wish;
    struct arena *arena;
    struct request *request;

    assert_int_equal(arena_open(4 << 10, ceiling_bytes, &arena), 0);
    request = arena_take(arena, 1, sizeof *request);
    assert_non_null(request);
    request->arena = arena;
    request->exchange_id = id;
    request->prompt_count = wish->prompt_count;
    request->prompts = arena_take(arena, wish->prompt_count, sizeof *request->prompts);
    request->choices = wish->choices;
    request->max_tokens = wish->max_tokens;
    request->arrived_ns = clock_now();
    sampling_init(&request->sampling);
    request->sampling.prompt_logprobs = wish->prompt_logprobs;
    request->sampling.stop_count = wish->stop_count;
    request->sampling.stop_tokens =
        (int32_t *)arena_copy(arena, exchange->stops, sizeof exchange->stops);
    for (uint32_t i = 0; i < wish->prompt_count; i++)
        request->prompts[i] = (struct request_prompt){
            .tokens = (int32_t *)arena_copy(arena, exchange->prompts[i],
                                            wish->prompt_tokens * sizeof(int32_t)),
            .count = wish->prompt_tokens};
    return request;
}

/* The exchange's id is its number + 1. */
static int submit(struct world *world, const struct wish *wish, size_t ceiling_bytes)
{
    struct exchange *exchange = &world->exchanges[world->count];
    struct request *request;
    int r;

    assert_true(world->count < EXCHANGES_MAX && wish->prompt_count * wish->choices <= CHOICES_MAX);
    memset(exchange, 0, sizeof *exchange);
    exchange->wish = *wish;
    for (uint32_t i = 0; i < wish->prompt_count; i++)
        for (uint32_t k = 0; k < wish->prompt_tokens; k++)
            exchange->prompts[i][k] = (int32_t)between(1, FAKE_VOCABULARY - 1);
    for (uint32_t i = 0; i < STOPS_MAX; i++)
        exchange->stops[i] = exchange->prompts[0][draw(wish->prompt_tokens)];
    request = make_request(exchange, world->count + 1, ceiling_bytes);
    r = scheduler_submit(world->scheduler, request);
    if (r < 0) {
        request_free(request);
    } else {
        world->count++;
        world->choices += wish->prompt_count * wish->choices;
    }
    return r;
}

static void ask(struct world *world, uint32_t prompt_tokens, uint32_t max_tokens)
{
    const struct wish wish = {.prompt_count = 1,
                              .prompt_tokens = prompt_tokens,
                              .choices = 1,
                              .max_tokens = max_tokens,
                              .prompt_logprobs = LOGPROBS_NONE};

    assert_int_equal(submit(world, &wish, 1 << 20), 0);
}

static void cancel(struct world *world, uint32_t exchange, uint32_t choice)
{
    struct exchange *e = &world->exchanges[exchange];

    for (uint32_t i = 0; i < e->wish.prompt_count * e->wish.choices; i++)
        if (choice == CHOICE_ALL || choice == i)
            e->choices[i].cancelled = true;
    assert_int_equal(scheduler_cancel(world->scheduler, exchange + 1, choice), 0);
}

/* --- hearing ---------------------------------------------------------------------------------- */

static void hear(struct world *world, const struct event *event)
{
    struct exchange *exchange = &world->exchanges[event->exchange_id - 1];
    const struct wish *wish = &exchange->wish;
    struct choice *choice = &exchange->choices[event->choice];
    const int32_t *prompt = exchange->prompts[event->choice / wish->choices];

    assert_in_range(event->exchange_id, 1, world->count);
    assert_true(event->choice < wish->prompt_count * wish->choices);
    assert_false(choice->ended);
    switch (event->kind) {
    case EVENT_STARTED:
        assert_false(choice->started);
        choice->started = true;
        break;
    case EVENT_PROMPT:
        assert_true(choice->started && choice->tokens == 0);
        assert_int_equal(event->token.position, ++choice->prompts);
        assert_int_equal(event->token.token, prompt[event->token.position]);
        break;
    case EVENT_TOKEN:
        assert_true(choice->started);
        assert_int_equal(event->token.position, wish->prompt_tokens + choice->tokens);
        assert_int_equal(event->token.token, prompt[choice->tokens % wish->prompt_tokens]);
        choice->tokens++;
        break;
    case EVENT_FINISH:
        choice->finish = event->finish;
        assert_int_equal(event->finish.generated_tokens, choice->tokens);
        assert_int_equal(event->finish.prompt_tokens, wish->prompt_tokens);
        break;
    case EVENT_FAILURE:
        choice->failure = event->failure.code;
        if (event->failure.code == E_DEVICE)
            assert_string_equal(event->failure.message, "the device failed, as it was told to");
        else
            assert_string_equal(event->failure.message, "");
        break;
    }
    if (event->kind == EVENT_FINISH || event->kind == EVENT_FAILURE) {
        choice->ended = true;
        world->ended++;
    }
}

static void wait_for_bell(struct world *world)
{
    struct timespec deadline;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    assert_int_equal(sem_timedwait(&world->bell, &deadline), 0);
}

/* At most `most` events of those that are there. */
static void listen(struct world *world, uint32_t most)
{
    struct event event;

    while (most-- > 0 && scheduler_next(world->scheduler, &event))
        hear(world, &event);
}

static void listen_until_ended(struct world *world)
{
    for (;;) {
        listen(world, UINT32_MAX);
        if (world->ended == world->choices)
            break;
        wait_for_bell(world);
    }
}

/* The token that a stop token ends, or the length. */
static uint32_t tokens_expected(const struct exchange *exchange, uint32_t choice, bool *ret_stop)
{
    const struct wish *wish = &exchange->wish;
    const int32_t *prompt = exchange->prompts[choice / wish->choices];
    uint32_t room = CONTEXT - wish->prompt_tokens;
    uint32_t most = wish->max_tokens < room ? wish->max_tokens : room;

    *ret_stop = true;
    for (uint32_t i = 0; i < most; i++)
        for (uint32_t k = 0; k < wish->stop_count; k++)
            if (prompt[i % wish->prompt_tokens] == exchange->stops[k])
                return i + 1;
    *ret_stop = false;
    return most;
}

/* Whoever was not cancelled heard all, and in the end nothing is held any more. */
static void expect_whole(struct world *world)
{
    uint64_t deadline_ns = clock_now() + PATIENCE_S * UINT64_C(1000000000);
    struct scheduler_stats stats;

    for (uint32_t i = 0; i < world->count; i++) {
        const struct exchange *exchange = &world->exchanges[i];
        const struct wish *wish = &exchange->wish;

        for (uint32_t k = 0; k < wish->prompt_count * wish->choices; k++) {
            const struct choice *choice = &exchange->choices[k];
            bool stops;
            uint32_t tokens = tokens_expected(exchange, k, &stops);

            assert_true(choice->ended && !choice->failure);
            if (choice->cancelled && choice->finish.reason == FINISH_CANCELLED)
                continue;
            assert_int_equal(choice->finish.reason, stops ? FINISH_STOP : FINISH_LENGTH);
            assert_int_equal(choice->tokens, tokens);
            assert_int_equal(choice->prompts,
                             wish->prompt_logprobs == LOGPROBS_NONE ? 0 : wish->prompt_tokens - 1);
        }
    }
    do {
        scheduler_stats_get(world->scheduler, &stats);
        assert_true(clock_now() < deadline_ns);
    } while (stats.pages_free != stats.pages_total || stats.running || stats.waiting);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void streams_are_whole(void **state)
{
    (void)state;
    for (int timing = 0; timing < FAKE_TIMINGS; timing++) {
        struct fake_options fake = roomy;
        struct world *world;

        fake.timing = (enum fake_timing)timing;
        world = world_open(&fake, EXCHANGES_MAX);
        for (int i = 0; i < 200; i++)
            ask(world, between(1, 90), between(1, 30));
        listen_until_ended(world);
        expect_whole(world);
        world_close(world);
    }
}

static struct wish draw_wish(uint32_t room)
{
    struct wish wish = {.prompt_count = between(1, 3), .choices = between(1, 4)};

    wish.prompt_tokens = draw(4) ? between(1, 20) : between(1, room);
    wish.max_tokens = draw(8) ? between(1, 70) : 0;
    wish.stop_count = draw(3) ? 0 : STOPS_MAX;
    wish.prompt_logprobs = draw(4) ? LOGPROBS_NONE : 3;
    return wish;
}

/* Everything at once: choices that share, stops, scores, cancels, a reader that lags, few pages. */
static void storm(uint64_t seed)
{
    struct fake_options fake = {.timing = (enum fake_timing)(seed % FAKE_TIMINGS),
                                .context = CONTEXT};
    bool cancels, lags;
    struct world *world;

    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    fake.rows = between(1, 12);
    fake.page_tokens = draw(2) ? 16 : between(1, 16);
    fake.page_count = (CONTEXT + fake.page_tokens - 1) / fake.page_tokens * between(1, 3) + draw(3);
    fake.prefill_tokens = between(1, 64);
    fake.loaded_tokens = draw(2) ? between(1, 64) : 0;
    cancels = draw(2);
    lags = draw(2);
    world = world_open(&fake, EXCHANGES_MAX * CHOICES_MAX);
    for (int i = 0; i < 60; i++) {
        struct wish wish = draw_wish(CONTEXT - 1);

        assert_int_equal(submit(world, &wish, 1 << 20), 0);
        if (cancels && draw(2))
            cancel(world, draw(world->count), draw(2) ? draw(CHOICES_MAX) : CHOICE_ALL);
        listen(world, lags ? draw(20) : UINT32_MAX);
    }
    listen_until_ended(world);
    expect_whole(world);
    world_close(world);
}

static void storms_lose_and_repeat_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        storm(seed);
}

/* Ten pages for eight rows: there is always somebody who loses his. */
static void preemption_happens(void **state)
{
    struct fake_options fake = roomy;
    struct scheduler_stats stats;
    struct world *world;
    uint32_t preemptions = 0, tokens = 0;

    (void)state;
    fake.page_count = 10;
    world = world_open(&fake, EXCHANGES_MAX);
    for (int i = 0; i < 100; i++)
        ask(world, between(1, 30), between(30, 90));
    listen_until_ended(world);
    expect_whole(world);
    scheduler_stats_get(world->scheduler, &stats);
    for (uint32_t i = 0; i < world->count; i++) {
        preemptions += world->exchanges[i].choices[0].finish.preemptions;
        tokens += world->exchanges[i].choices[0].tokens;
    }
    assert_true(preemptions > 0);
    assert_int_equal(stats.preemptions_total, preemptions);
    assert_int_equal(world->engine->counts.sampled, tokens); /* none was drawn twice */
    world_close(world);
}

static void choices_compute_their_prompt_once(void **state)
{
    const struct wish wish = {.prompt_count = 2,
                              .prompt_tokens = 100,
                              .choices = 4,
                              .max_tokens = 5,
                              .prompt_logprobs = LOGPROBS_NONE};
    struct world *world = world_open(&roomy, EXCHANGES_MAX);

    (void)state;
    assert_int_equal(submit(world, &wish, 1 << 20), 0);
    listen_until_ended(world);
    expect_whole(world);
    /* 96 of the 100 tokens fill pages. */
    assert_int_equal(world->engine->counts.prefilled, 2 * (100 + 3 * 4));
    for (uint32_t i = 0; i < 8; i++)
        assert_int_equal(world->exchanges[0].choices[i].finish.cached_tokens, i % 4 ? 96 : 0);
    world_close(world);
}

/* With pages to spare none is granted as late as in the step that writes it. */
static void pages_are_granted_ahead(void **state)
{
    struct world *world = world_open(&roomy, EXCHANGES_MAX);

    (void)state;
    for (int i = 0; i < 8; i++)
        ask(world, between(1, 20), 100);
    listen_until_ended(world);
    expect_whole(world);
    assert_int_equal(world->engine->counts.late_grants, 0);
    world_close(world);
}

/* Steps are let through one by one, so the cancel comes while two are in flight. */
static void cancel_takes_effect_within_two_steps(void **state)
{
    struct fake_options fake = roomy;
    struct world *world;
    uint64_t decoded, completed;

    (void)state;
    fake.waits_for_permits = true;
    world = world_open(&fake, EXCHANGES_MAX);
    ask(world, 10, 100);
    fake_engine_permit(world->engine, 4);
    while (world->exchanges[0].choices[0].tokens < 4) {
        wait_for_bell(world);
        listen(world, UINT32_MAX);
    }
    cancel(world, 0, CHOICE_ALL);
    ask(world, 10, 100); /* waits behind the cancel in the ring, so its start tells of it */
    decoded = world->engine->counts.decoded;
    completed = world->engine->counts.completed;
    while (!world->exchanges[1].choices[0].started) {
        fake_engine_permit(world->engine, 1);
        wait_for_bell(world);
        listen(world, UINT32_MAX);
    }
    assert_true(world->exchanges[0].choices[0].ended);
    assert_true(world->engine->counts.completed <= completed + ENGINE_STEPS_IN_FLIGHT);
    assert_true(world->engine->counts.decoded <= decoded + ENGINE_STEPS_IN_FLIGHT);
    cancel(world, 1, CHOICE_ALL);
    fake_engine_permit(world->engine, UINT64_MAX);
    listen_until_ended(world);
    expect_whole(world);
    world_close(world);
}

static void a_full_queue_says_so(void **state)
{
    struct fake_options fake = roomy;
    const struct wish one = {.prompt_count = 1,
                             .prompt_tokens = 4,
                             .choices = 1,
                             .max_tokens = 20,
                             .prompt_logprobs = LOGPROBS_NONE};
    const struct wish large = {.prompt_count = 3,
                               .prompt_tokens = 4,
                               .choices = 4,
                               .max_tokens = 2,
                               .prompt_logprobs = LOGPROBS_NONE};
    struct scheduler_stats stats;
    struct world *world;
    uint32_t refused = 0;

    (void)state;
    fake.rows = 1;
    fake.waits_for_permits = true;
    world = world_open(&fake, 4);
    for (int i = 0; i < 12; i++)
        refused += submit(world, &one, 1 << 20) == E_FULL;
    assert_in_range(refused, 12 - 4 - 1, 12 - 4); /* one may have been admitted already */
    assert_int_equal(submit(world, &large, 1 << 20), E_FULL);
    cancel(world, world->count - 1, CHOICE_ALL); /* while it waits */
    fake_engine_permit(world->engine, UINT64_MAX);
    listen_until_ended(world);
    assert_int_equal(submit(world, &large, 1 << 20), 0); /* an empty queue takes it */
    listen_until_ended(world);
    expect_whole(world);
    scheduler_stats_get(world->scheduler, &stats);
    assert_int_equal(stats.rejected_total, refused + 12);
    world_close(world);
}

static void scores_and_first_events_in_order(void **state)
{
    const struct wish wish = {.prompt_count = 3,
                              .prompt_tokens = 100,
                              .choices = 2,
                              .max_tokens = 0,
                              .prompt_logprobs = 2};
    struct world *world = world_open(&roomy, EXCHANGES_MAX);

    (void)state;
    assert_int_equal(submit(world, &wish, 1 << 20), 0);
    listen_until_ended(world);
    expect_whole(world);
    world_close(world);
}

/* A reader that takes one event a bell: the ring is full all the time, and nothing is lost. */
static void a_slow_reader_loses_nothing(void **state)
{
    struct fake_options fake = roomy;
    struct wish wish = {.prompt_count = 1,
                        .prompt_tokens = 120,
                        .choices = 2,
                        .max_tokens = 8,
                        .prompt_logprobs = 0};
    struct world *world;

    (void)state;
    fake.rows = 4;
    world = world_open(&fake, EXCHANGES_MAX);
    for (int i = 0; i < 10; i++)
        assert_int_equal(submit(world, &wish, 1 << 20), 0);
    while (world->ended < world->choices) {
        uint64_t steps = world->engine->counts.completed;

        listen(world, 1);
        if (steps % 2)
            sched_yield();
    }
    expect_whole(world);
    world_close(world);
}

/* From the given step on the device fails; every choice hears so, later ones at once. */
static void fail_once(enum fake_timing timing, uint64_t complete_fails, uint64_t submit_fails)
{
    struct fake_options fake = roomy;
    struct scheduler_stats stats;
    struct world *world;

    fake.timing = timing;
    fake.page_count = 12;
    fake.complete_fails = complete_fails;
    fake.submit_fails = submit_fails;
    world = world_open(&fake, EXCHANGES_MAX * CHOICES_MAX);
    for (int i = 0; i < 30; i++) {
        struct wish wish = draw_wish(60);

        wish.max_tokens += 40; /* too much to do before the failure */
        wish.stop_count = 0;
        assert_int_equal(submit(world, &wish, 1 << 20), 0);
    }
    cancel(world, 3, CHOICE_ALL);
    listen_until_ended(world);
    assert_int_equal(world->exchanges[29].choices[0].failure, E_DEVICE);
    ask(world, 5, 5);
    listen_until_ended(world);
    assert_int_equal(world->exchanges[30].choices[0].failure, E_DEVICE);
    scheduler_stats_get(world->scheduler, &stats);
    assert_true(stats.device_failed);
    assert_int_equal(stats.running + stats.waiting, 0);
    world_close(world);
}

static void a_failing_device_is_told(void **state)
{
    (void)state;
    random_state = 1;
    for (uint64_t n = 1; n < 40; n++) {
        fail_once((enum fake_timing)(n % FAKE_TIMINGS), n, 0);
        fail_once((enum fake_timing)(n % FAKE_TIMINGS), 0, n);
    }
}

/* The failures do not fit the event ring and nobody reads: closing must not wait for that. */
static void closing_a_failed_scheduler_that_nobody_reads(void **state)
{
    struct fake_options fake = roomy;
    struct world *world;

    (void)state;
    fake.complete_fails = 3;
    world = world_open(&fake, EXCHANGES_MAX);
    for (int i = 0; i < 400; i++)
        ask(world, between(1, 60), 60);
    wait_for_bell(world);
    world_close(world);
}

static void closing_while_nobody_listens(void **state)
{
    (void)state;
    for (uint32_t bells = 0; bells < 6; bells++) {
        struct world *world = world_open(&roomy, EXCHANGES_MAX * CHOICES_MAX);

        for (int i = 0; i < 100; i++) {
            struct wish wish = draw_wish(60);

            assert_int_equal(submit(world, &wish, 1 << 20), 0);
        }
        for (uint32_t i = 0; i < bells; i++)
            wait_for_bell(world);
        world_close(world);
    }
}

/* The arena has no room for the sequences: each choice hears of it, and the next request runs. */
static void a_request_without_room_fails_alone(void **state)
{
    struct wish wish = {.prompt_count = 2,
                        .prompt_tokens = 100,
                        .choices = 6,
                        .max_tokens = 10,
                        .prompt_logprobs = LOGPROBS_NONE};
    struct world *world = world_open(&roomy, EXCHANGES_MAX);

    (void)state;
    assert_int_equal(submit(world, &wish, 4 << 10), 0);
    ask(world, 20, 20);
    listen_until_ended(world);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(world->exchanges[0].choices[i].failure, E_MEMORY);
    assert_int_equal(world->exchanges[1].choices[0].tokens, 20);
    world_close(world);
}

static void steps_allocate_nothing(void **state)
{
    struct fake_options fake = roomy;
    struct world *world;

    (void)state;
    fake.page_count = 12;
    world = world_open(&fake, EXCHANGES_MAX);
    for (int i = 0; i < 8; i++)
        ask(world, 20, 100);
    while (!world->exchanges[0].choices[0].tokens) {
        wait_for_bell(world);
        listen(world, UINT32_MAX);
    }
    failing_malloc_arm(UINT64_MAX);
    listen_until_ended(world);
    assert_int_equal(failing_malloc_count(), 0);
    failing_malloc_disarm();
    expect_whole(world);
    world_close(world);
}

static void health_and_speed_are_told(void **state)
{
    struct fake_options fake = roomy;
    uint64_t began_ns = clock_now();
    struct scheduler_stats stats;
    struct world *world;

    (void)state;
    fake.waits_for_permits = true;
    world = world_open(&fake, EXCHANGES_MAX);
    ask(world, 10, 10);
    while (!world->exchanges[0].choices[0].started) {
        wait_for_bell(world);
        listen(world, UINT32_MAX);
    }
    do { /* published behind the bell */
        scheduler_stats_get(world->scheduler, &stats);
    } while (!stats.running);
    assert_true(stats.work_waiting);
    assert_in_range(stats.heartbeat_ns, began_ns, clock_now());
    assert_int_equal(stats.steps_total, 0);
    fake_engine_permit(world->engine, UINT64_MAX);
    listen_until_ended(world);
    do { /* one after the other, for the second that it takes to measure */
        world->count = world->choices = world->ended = 0;
        ask(world, 10, 10);
        listen_until_ended(world);
        scheduler_stats_get(world->scheduler, &stats);
    } while (stats.sequences_per_second == 0);
    /* Time between two requests does not count, so it is at least what was seen from here. */
    assert_true(stats.sequences_per_second >=
                (double)stats.finished_length_total / clock_seconds(clock_now() - began_ns) / 4);
    expect_whole(world);
    scheduler_stats_get(world->scheduler, &stats);
    assert_false(stats.work_waiting);
    world_close(world);
}

/* While nothing is to be done no processor time passes; 50 ms of it are looked at. */
static void idle_is_idle(void **state)
{
    struct world *world = world_open(&roomy, EXCHANGES_MAX);
    clock_t before;

    (void)state;
    ask(world, 20, 20);
    listen_until_ended(world);
    expect_whole(world);
    before = clock();
    clock_sleep_until(clock_now() + 50 * 1000000);
    assert_true(clock() - before < CLOCKS_PER_SEC / 100);
    world_close(world);
}

static void opening_survives_every_failing_allocation(void **state)
{
    struct world *world = world_open(&roomy, 16);
    struct scheduler_options options = {.queue_length_max = 4,
                                        .event_capacity = 16,
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
        cmocka_unit_test(storms_lose_and_repeat_nothing),
        cmocka_unit_test(preemption_happens),
        cmocka_unit_test(choices_compute_their_prompt_once),
        cmocka_unit_test(pages_are_granted_ahead),
        cmocka_unit_test(cancel_takes_effect_within_two_steps),
        cmocka_unit_test(a_full_queue_says_so),
        cmocka_unit_test(scores_and_first_events_in_order),
        cmocka_unit_test(a_slow_reader_loses_nothing),
        cmocka_unit_test(a_failing_device_is_told),
        cmocka_unit_test(closing_a_failed_scheduler_that_nobody_reads),
        cmocka_unit_test(closing_while_nobody_listens),
        cmocka_unit_test(a_request_without_room_fails_alone),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(health_and_speed_are_told),
        cmocka_unit_test(idle_is_idle),
        cmocka_unit_test(opening_survives_every_failing_allocation),
    };

    random_state = 88172645463325252u;
    log_setup(LOG_LEVEL_COUNT, LOG_TEXT); /* the failures here are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
