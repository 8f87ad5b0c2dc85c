/* Protects what constrained answers are promised: no token that may not follow, whatever is late,
 * preempted, cancelled or jumped over; plain answers beside them lose nothing; an end as soon as
 * there is nothing but an end, and not before the request wants it; a mask that fails ends one
 * answer alone, and one that never comes holds up nobody, not even its own cancel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <semaphore.h>
#include <time.h>

#include "config/base/log.h"
#include "scheduler/scheduler.h"
#include "tests/lib/fake_constraint.h"
#include "tests/lib/fake_engine.h"

enum { CONTEXT = 128, EXCHANGES_MAX = 256, CHOICES_MAX = 4, PATIENCE_S = 60 };

static uint64_t random_state = 1;

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

struct wish {
    struct constraint *constraint; /* NULL: plain */
    uint32_t prompt_tokens;
    uint32_t choices;
    uint32_t max_tokens;
    uint32_t min_tokens;
    bool ignore_eos;
    int32_t logprobs;
    uint32_t after_tokens;  /* of its own prompt: where the constraint begins */
    const char *after_text; /* the same as text; NULL: none */
};

struct choice {
    int32_t tokens[CONTEXT];
    uint32_t count;
    bool cancelled;
    bool ended;
    struct event_failure failure;
    struct event_finish finish;
};

struct exchange {
    struct wish wish;
    struct fake_rules rules;
    int32_t prompt[CONTEXT];
    struct choice choices[CHOICES_MAX];
};

struct world {
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
                                          .prefill_tokens = 48,
                                          .end_token = FAKE_END};

static void on_bell(void *data)
{
    struct world *world = data;

    sem_post(&world->bell);
}

static struct world *world_open(const struct fake_options *fake)
{
    struct world *world = calloc(1, sizeof *world);
    struct fault fault = {0};
    struct scheduler_options options = {.queue_length_max = EXCHANGES_MAX * CHOICES_MAX,
                                        .event_capacity = 16,
                                        .prefills_max = 4,
                                        .mask_threads = 2,
                                        .bell = on_bell,
                                        .bell_data = world};

    assert_non_null(world);
    world->exchanges = calloc(EXCHANGES_MAX, sizeof *world->exchanges);
    assert_non_null(world->exchanges);
    sem_init(&world->bell, 0, 0);
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

static void submit_prompt(struct world *world, const struct wish *wish, const int32_t *prompt)
{
    struct exchange *exchange = &world->exchanges[world->count];
    struct arena *arena;
    struct request *request;

    assert_true(world->count < EXCHANGES_MAX && wish->choices <= CHOICES_MAX);
    memset(exchange, 0, sizeof *exchange);
    exchange->wish = *wish;
    memcpy(exchange->prompt, prompt, wish->prompt_tokens * sizeof *prompt);
    assert_int_equal(arena_open(4 << 10, 1 << 20, &arena), 0);
    request = arena_take(arena, 1, sizeof *request);
    assert_non_null(request);
    request->arena = arena;
    request->exchange_id = world->count + 1;
    request->prompt_count = 1;
    request->prompts = arena_take(arena, 1, sizeof *request->prompts);
    request->prompts[0] =
        (struct request_prompt){.tokens = exchange->prompt, .count = wish->prompt_tokens};
    request->choices = wish->choices;
    request->max_tokens = wish->max_tokens;
    request->arrived_ns = clock_now();
    sampling_init(&request->sampling);
    request->sampling.min_tokens = wish->min_tokens;
    request->sampling.ignore_eos = wish->ignore_eos;
    request->sampling.logprobs = wish->logprobs;
    if (wish->constraint) {
        exchange->rules = wish->constraint->rules;
        request->constraint.constraint = constraint_share(wish->constraint);
        request->constraint.after_tokens = exchange->prompt;
        request->constraint.after_token_count = wish->after_tokens;
        request->constraint.after_text = wish->after_text;
        if (wish->after_text)
            request->constraint.after_text_bytes = (uint32_t)strlen(wish->after_text);
    }
    assert_int_equal(scheduler_submit(world->scheduler, request), 0);
    world->count++;
    world->choices += wish->choices;
}

static void submit(struct world *world, const struct wish *wish)
{
    int32_t prompt[CONTEXT];

    for (uint32_t i = 0; i < wish->prompt_tokens; i++)
        prompt[i] = (int32_t)between(1, FAKE_TOKENS - 2);
    submit_prompt(world, wish, prompt);
}

static void ask(struct world *world, struct constraint *constraint, uint32_t prompt_tokens,
                uint32_t max_tokens)
{
    const struct wish wish = {.constraint = constraint,
                              .prompt_tokens = prompt_tokens,
                              .choices = 1,
                              .max_tokens = max_tokens,
                              .logprobs = LOGPROBS_NONE};

    submit(world, &wish);
}

static void cancel(struct world *world, uint32_t exchange)
{
    for (uint32_t i = 0; i < CHOICES_MAX; i++)
        world->exchanges[exchange].choices[i].cancelled = true;
    assert_int_equal(scheduler_cancel(world->scheduler, exchange + 1, CHOICE_ALL), 0);
}

/* --- hearing ---------------------------------------------------------------------------------- */

static void hear(struct world *world, const struct event *event)
{
    struct exchange *exchange = &world->exchanges[event->exchange_id - 1];
    struct choice *choice = &exchange->choices[event->choice];

    assert_in_range(event->exchange_id, 1, world->count);
    assert_false(choice->ended);
    switch (event->kind) {
    case EVENT_STARTED:
        assert_int_equal(choice->count, 0);
        break;
    case EVENT_PROMPT:
        fail();
        break;
    case EVENT_TOKEN:
        assert_int_equal(event->token.position, exchange->wish.prompt_tokens + choice->count);
        assert_int_equal(!isnan(event->token.logprob), exchange->wish.logprobs != LOGPROBS_NONE);
        choice->tokens[choice->count++] = event->token.token;
        break;
    case EVENT_FINISH:
        choice->finish = event->finish;
        assert_int_equal(event->finish.generated_tokens, choice->count);
        break;
    case EVENT_FAILURE:
        choice->failure = event->failure;
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

static void listen(struct world *world, uint32_t most)
{
    struct event event;

    while (most-- > 0 && scheduler_next(world->scheduler, &event))
        hear(world, &event);
}

static void listen_until(struct world *world, uint32_t ended)
{
    for (;;) {
        listen(world, UINT32_MAX);
        if (world->ended >= ended)
            break;
        wait_for_bell(world);
    }
}

static uint32_t room_of(const struct wish *wish)
{
    uint32_t room = CONTEXT - wish->prompt_tokens;

    return wish->max_tokens < room ? wish->max_tokens : room;
}

/* Of a constrained part that begins behind `free` tokens of the answer. */
static void expect_followed(const struct exchange *exchange, const struct choice *choice,
                            uint32_t free_tokens)
{
    for (uint32_t i = 0; i < choice->count && i < free_tokens; i++)
        assert_int_equal(choice->tokens[i],
                         fake_echo(exchange->prompt, exchange->wish.prompt_tokens,
                                   exchange->wish.prompt_tokens + i));
    for (uint32_t i = free_tokens; i < choice->count; i++)
        assert_true(fake_follows(&exchange->rules, i - free_tokens, choice->tokens[i]));
}

static void expect_choice(const struct exchange *exchange, const struct choice *choice)
{
    const struct wish *wish = &exchange->wish;
    uint32_t tokens = room_of(wish);
    bool stops =
        wish->constraint && exchange->rules.ends_at > 0 && exchange->rules.ends_at < tokens;

    assert_true(choice->ended && choice->failure.code == 0);
    expect_followed(exchange, choice, wish->constraint ? 0 : CONTEXT);
    if (choice->cancelled && choice->finish.reason == FINISH_CANCELLED)
        return;
    assert_int_equal(choice->finish.reason, stops ? FINISH_STOP : FINISH_LENGTH);
    assert_int_equal(choice->count, stops ? exchange->rules.ends_at : tokens);
}

static void expect_nothing_held(struct world *world)
{
    uint64_t deadline_ns = clock_now() + PATIENCE_S * UINT64_C(1000000000);
    struct scheduler_stats stats;

    do {
        scheduler_stats_get(world->scheduler, &stats);
        assert_true(clock_now() < deadline_ns);
    } while (stats.pages_free != stats.pages_total || stats.running || stats.waiting);
}

static void expect_whole(struct world *world)
{
    for (uint32_t i = 0; i < world->count; i++)
        for (uint32_t k = 0; k < world->exchanges[i].wish.choices; k++)
            expect_choice(&world->exchanges[i], &world->exchanges[i].choices[k]);
    expect_nothing_held(world);
}

/* Ours was the last owner once the scheduler has closed. */
static void expect_last_owner(struct constraint *constraint)
{
    assert_int_equal(constraint->owners, 1);
    constraint_close(constraint);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void constrained_and_plain_streams_are_whole(void **state)
{
    static const struct fake_rules rules[] = {
        {.ends_at = 25}, {.period = 12, .forced = 7, .ends_at = 40}, {.period = 5, .forced = 1}};

    (void)state;
    for (int timing = 0; timing < FAKE_TIMINGS; timing++) {
        struct fake_options fake = roomy;
        struct constraint *constraints[4] = {NULL};
        struct world *world;

        for (int i = 0; i < 3; i++)
            constraints[i] = fake_constraint_open(&rules[i]);
        fake.timing = (enum fake_timing)timing;
        world = world_open(&fake);
        for (int i = 0; i < 120; i++)
            ask(world, constraints[draw(4)], between(1, 90), between(1, 60));
        listen_until(world, world->choices);
        expect_whole(world);
        world_close(world);
        for (int i = 0; i < 3; i++)
            expect_last_owner(constraints[i]);
    }
}

/* Everything at once: choices that share, masks late, cancels, a reader that lags, few pages. */
static void storm(uint64_t seed)
{
    struct fake_options fake = {.timing = (enum fake_timing)(seed % FAKE_TIMINGS),
                                .context = CONTEXT,
                                .end_token = FAKE_END};
    struct constraint *constraints[4] = {NULL};
    bool cancels, lags;
    struct world *world;

    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int i = 0; i < 3; i++) {
        struct fake_rules rules = {.period = draw(2) ? between(1, 40) : 0,
                                   .forced = between(1, 60),
                                   .ends_at = draw(2) ? between(1, 90) : 0};

        constraints[i] = fake_constraint_open(&rules);
    }
    fake.rows = between(1, 12);
    fake.page_tokens = draw(2) ? 16 : between(1, 16);
    fake.page_count = (CONTEXT + fake.page_tokens - 1) / fake.page_tokens * between(1, 3) + draw(3);
    fake.prefill_tokens = between(1, 64);
    fake.loaded_tokens = draw(2) ? between(1, 64) : 0;
    fake.late_every = draw(2) ? between(1, 7) + 1 : 0;
    cancels = draw(2);
    lags = draw(2);
    world = world_open(&fake);
    for (int i = 0; i < 40; i++) {
        const struct wish wish = {.constraint = constraints[draw(4)],
                                  .prompt_tokens = draw(4) ? between(1, 20) : between(1, 120),
                                  .choices = between(1, CHOICES_MAX),
                                  .max_tokens = draw(8) ? between(1, 70) : 0,
                                  .logprobs = draw(4) ? LOGPROBS_NONE : 0};

        submit(world, &wish);
        if (cancels && draw(2))
            cancel(world, draw(world->count));
        listen(world, lags ? draw(20) : UINT32_MAX);
    }
    listen_until(world, world->choices);
    expect_whole(world);
    world_close(world);
    for (int i = 0; i < 3; i++)
        expect_last_owner(constraints[i]);
}

static void storms_break_no_constraint(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        storm(seed);
}

/* Its mask does not come: a plain answer beside it gets a token a step all the same. */
static void a_late_mask_holds_up_nobody_else(void **state)
{
    const struct fake_rules rules = {.waits_for_permits = true, .ends_at = 30};
    struct constraint *constraint = fake_constraint_open(&rules);
    struct world *world = world_open(&roomy);
    struct scheduler_stats stats;

    (void)state;
    ask(world, constraint, 5, 60);
    ask(world, NULL, 5, 100);
    listen_until(world, 1);
    assert_int_equal(world->exchanges[0].choices[0].count, 0);
    assert_int_equal(world->exchanges[1].choices[0].count, 100);
    assert_true(world->engine->counts.submitted <= 100 + 2 * ENGINE_STEPS_IN_FLIGHT + 1);
    scheduler_stats_get(world->scheduler, &stats);
    assert_int_equal(stats.masks_late_total, 1); /* then it is held, and in no step at all */
    fake_constraint_permit(constraint, UINT64_MAX);
    listen_until(world, 2);
    expect_whole(world);
    world_close(world);
    expect_last_owner(constraint);
}

static void a_cancel_does_not_wait_for_the_mask(void **state)
{
    const struct fake_rules rules = {.waits_for_permits = true};
    struct constraint *constraint = fake_constraint_open(&rules);
    struct world *world = world_open(&roomy);

    (void)state;
    for (int i = 0; i < 20; i++)
        ask(world, constraint, 5, 60);
    while (atomic_load(&constraint->masks) < 2) /* both threads are at it */
        sched_yield();
    for (uint32_t i = 0; i < 20; i++)
        cancel(world, i);
    listen_until(world, 20);
    fake_constraint_permit(constraint, UINT64_MAX);
    expect_whole(world);
    ask(world, constraint, 5, 60);
    listen_until(world, 21);
    expect_whole(world);
    world_close(world);
    expect_last_owner(constraint);
}

static void a_mask_that_fails_ends_one_answer(void **state)
{
    static const int codes[] = {E_TOO_LARGE, E_MEMORY};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const struct fake_rules failing = {.fails_at = 10, .fail_code = codes[i]};
        const struct fake_rules fine = {.ends_at = 40};
        struct constraint *constraints[] = {fake_constraint_open(&failing),
                                            fake_constraint_open(&fine)};
        struct world *world = world_open(&roomy);
        const struct choice *failed = &world->exchanges[0].choices[0];

        ask(world, constraints[0], 5, 60);
        ask(world, constraints[1], 5, 60);
        ask(world, NULL, 5, 60);
        listen_until(world, 3);
        assert_int_equal(failed->failure.code, codes[i] == E_MEMORY ? E_MEMORY : E_INVALID);
        assert_string_equal(failed->failure.message, "It failed, as it was told to");
        assert_int_equal(failed->count, 10);
        expect_choice(&world->exchanges[1], &world->exchanges[1].choices[0]);
        expect_choice(&world->exchanges[2], &world->exchanges[2].choices[0]);
        expect_nothing_held(world);
        world_close(world);
        expect_last_owner(constraints[0]);
        expect_last_owner(constraints[1]);
    }
}

/* 9 of 10 tokens are forced; a jump takes all but a few steps. With log-probabilities each is
 * drawn. The text is the same. */
static void forced_tokens_cost_no_steps(void **state)
{
    const struct fake_rules rules = {.period = 20, .forced = 18, .ends_at = 100};

    (void)state;
    for (int32_t logprobs = LOGPROBS_NONE; logprobs <= 0; logprobs++) {
        struct constraint *constraint = fake_constraint_open(&rules);
        struct world *world = world_open(&roomy);
        const struct wish wish = {.constraint = constraint,
                                  .prompt_tokens = 10,
                                  .choices = 1,
                                  .max_tokens = 110,
                                  .logprobs = logprobs};
        struct scheduler_stats stats;

        submit(world, &wish);
        listen_until(world, 1);
        expect_whole(world);
        scheduler_stats_get(world->scheduler, &stats);
        if (logprobs == LOGPROBS_NONE) {
            assert_int_equal(stats.jump_tokens_total, 90);
            assert_int_equal(world->engine->counts.sampled, 10);
        } else {
            assert_int_equal(stats.jump_tokens_total, 0);
            assert_int_equal(world->engine->counts.sampled, 100);
        }
        world_close(world);
        expect_last_owner(constraint);
    }
}

/* The answer may end from its third token on, and the model wants to. */
static void an_answer_ends_when_the_request_allows(void **state)
{
    static const struct {
        uint32_t min_tokens;
        bool ignore_eos;
        uint32_t tokens; /* the end token counts */
        bool end_drawn;
    } cases[] = {
        {0, false, 4, true}, {10, false, 11, true}, {0, true, 30, false}, {50, false, 30, false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct fake_rules rules = {.complete_from = 3, .ends_at = 30};
        struct constraint *constraint = fake_constraint_open(&rules);
        struct fake_options fake = roomy;
        const struct wish wish = {.constraint = constraint,
                                  .prompt_tokens = 10,
                                  .choices = 1,
                                  .max_tokens = 60,
                                  .min_tokens = cases[i].min_tokens,
                                  .ignore_eos = cases[i].ignore_eos,
                                  .logprobs = LOGPROBS_NONE};
        struct world *world;
        const struct choice *choice;

        fake.draws_ends = true;
        world = world_open(&fake);
        submit(world, &wish);
        listen_until(world, 1);
        choice = &world->exchanges[0].choices[0];
        assert_int_equal(choice->finish.reason, FINISH_STOP);
        assert_int_equal(choice->count, cases[i].tokens);
        assert_int_equal(choice->tokens[choice->count - 1] == FAKE_END, cases[i].end_drawn);
        world_close(world);
        expect_last_owner(constraint);
    }
}

/* Free until its own prompt's first two tokens have been echoed, with steps in flight that know
 * nothing of the beginning. */
static void a_constraint_begins_behind_tokens(void **state)
{
    (void)state;
    for (int timing = 0; timing < FAKE_TIMINGS; timing++) {
        const struct fake_rules rules = {.ends_at = 20};
        struct constraint *constraint = fake_constraint_open(&rules);
        struct fake_options fake = roomy;
        struct world *world;

        fake.timing = (enum fake_timing)timing;
        fake.page_count = 20;
        world = world_open(&fake);
        for (int i = 0; i < 30; i++) {
            const struct wish wish = {.constraint = constraint,
                                      .prompt_tokens = between(2, 30),
                                      .choices = between(1, CHOICES_MAX),
                                      .max_tokens = 60,
                                      .logprobs = LOGPROBS_NONE,
                                      .after_tokens = between(1, 2)};

            submit(world, &wish);
        }
        listen_until(world, world->choices);
        for (uint32_t i = 0; i < world->count; i++)
            for (uint32_t k = 0; k < world->exchanges[i].wish.choices; k++) {
                const struct exchange *exchange = &world->exchanges[i];
                const struct choice *choice = &exchange->choices[k];

                expect_followed(exchange, choice, exchange->wish.after_tokens);
                assert_int_equal(choice->finish.reason, FINISH_STOP);
                assert_int_equal(choice->count, exchange->wish.after_tokens + 20);
            }
        expect_nothing_held(world);
        world_close(world);
        expect_last_owner(constraint);
    }
}

/* Over the borders of tokens, from within one to within another. What follows in the last token is
 * the constraint's; the fake one takes anything but a 9. */
static void a_constraint_begins_behind_text(void **state)
{
    static const int32_t prompts[][4] = {{77, 7, 78, 12}, {77, 7, 79, 12}, {3, 7, 8, 12}};
    static const char *const texts[] = {"7><7><7", "7><7><7", "><7><8>"};
    static const uint32_t free_tokens[] = {3, 0, 3};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct fake_rules rules = {.ends_at = 20};
        struct constraint *constraint = fake_constraint_open(&rules);
        struct world *world = world_open(&roomy);
        const struct wish wish = {.constraint = constraint,
                                  .prompt_tokens = 4,
                                  .choices = 1,
                                  .max_tokens = 60,
                                  .logprobs = LOGPROBS_NONE,
                                  .after_text = texts[i]};
        const struct choice *choice = &world->exchanges[0].choices[0];
        struct exchange *exchange = &world->exchanges[0];

        submit_prompt(world, &wish, prompts[i]);
        listen_until(world, 1);
        if (free_tokens[i] > 0) {
            expect_followed(exchange, choice, free_tokens[i]);
            assert_int_equal(choice->finish.reason, FINISH_STOP);
            assert_int_equal(choice->count, free_tokens[i] + 20);
        } else {
            assert_int_equal(choice->failure.code, E_INVALID);
            assert_int_equal(choice->count, 3);
        }
        world_close(world);
        expect_last_owner(constraint);
    }
}

static void closing_while_masks_are_made(void **state)
{
    (void)state;
    for (uint32_t bells = 0; bells < 6; bells++) {
        const struct fake_rules rules = {.period = 9, .forced = 4};
        struct constraint *constraint = fake_constraint_open(&rules);
        struct world *world = world_open(&roomy);

        for (int i = 0; i < 60; i++)
            ask(world, draw(3) ? constraint : NULL, between(1, 60), 60);
        for (uint32_t i = 0; i < bells; i++)
            wait_for_bell(world);
        world_close(world);
        expect_last_owner(constraint);
    }
}

static void a_failing_device_is_told(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 30; n++) {
        const struct fake_rules rules = {.period = 9, .forced = 4};
        struct constraint *constraint = fake_constraint_open(&rules);
        struct fake_options fake = roomy;
        struct world *world;

        fake.timing = (enum fake_timing)(n % FAKE_TIMINGS);
        fake.complete_fails = n % 2 ? n : 0;
        fake.submit_fails = n % 2 ? 0 : n;
        world = world_open(&fake);
        for (int i = 0; i < 30; i++)
            ask(world, draw(3) ? constraint : NULL, between(1, 60), 67);
        listen_until(world, 30);
        assert_int_equal(world->exchanges[29].choices[0].failure.code, E_DEVICE);
        world_close(world);
        expect_last_owner(constraint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constrained_and_plain_streams_are_whole),
        cmocka_unit_test(storms_break_no_constraint),
        cmocka_unit_test(a_late_mask_holds_up_nobody_else),
        cmocka_unit_test(a_cancel_does_not_wait_for_the_mask),
        cmocka_unit_test(a_mask_that_fails_ends_one_answer),
        cmocka_unit_test(forced_tokens_cost_no_steps),
        cmocka_unit_test(an_answer_ends_when_the_request_allows),
        cmocka_unit_test(a_constraint_begins_behind_tokens),
        cmocka_unit_test(a_constraint_begins_behind_text),
        cmocka_unit_test(closing_while_masks_are_made),
        cmocka_unit_test(a_failing_device_is_told),
    };

    log_setup(LOG_LEVEL_COUNT, LOG_TEXT); /* the failures here are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
