/* Protects the scheduling policy by simulation: random arrivals, lengths, pools and cancels, a
 * model of the pipeline (results come two steps late, pages of those that leave come back then),
 * and after every step the invariants: no page given twice, no budget passed, the oldest always
 * moves, everybody ends, all pages come home. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/policy.h"

enum { ROWS_MAX = 16, QUEUE_MAX = 256, DELAY = 2 };

enum state { ABSENT, WAITING, RUNNING, LEAVING, DONE };

struct simulated {
    enum state state;
    uint64_t order;
    uint32_t prompt; /* as asked */
    uint32_t wanted; /* tokens to generate */
    uint32_t known;  /* tokens known to the host: prompt and answer */
    uint32_t opened;
    uint32_t submitted;
    uint32_t sampling; /* in flight */
    uint32_t in_flight;
    uint32_t waited;
    uint32_t pages;
    bool ended;
};

struct flight {
    uint32_t count;
    uint32_t who[2 * ROWS_MAX];
    bool samples[2 * ROWS_MAX];
};

struct world {
    uint64_t random;
    uint32_t page_tokens, page_count, pages_free, rows, rows_free, budget, prefills_max, context;
    uint32_t arrivals, arrived, done;
    uint64_t next_order, steps;
    struct simulated all[QUEUE_MAX];
    struct flight flights[DELAY + 1];
    uint64_t submitted, completed;
};

static uint32_t draw(struct world *world, uint32_t low, uint32_t high)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return low + (uint32_t)(world->random >> 33) % (high - low + 1);
}

static uint32_t pages_for(const struct world *world, uint32_t tokens)
{
    return (tokens + world->page_tokens - 1) / world->page_tokens;
}

static uint32_t pages_to_start(const struct world *world, const struct simulated *s)
{
    return pages_for(world, s->known + (s->known - s->prompt < s->wanted));
}

static void arrive(struct world *world)
{
    while (world->arrived < world->arrivals && draw(world, 0, 2)) {
        struct simulated *s = &world->all[world->arrived++];

        memset(s, 0, sizeof *s);
        s->state = WAITING;
        s->order = world->next_order++;
        s->prompt = draw(world, 1, draw(world, 0, 3) ? 40 : world->context - 1);
        s->wanted = draw(world, 0, world->context - s->prompt);
        s->known = s->prompt;
    }
}

/* Lowest order first; returns NULL at the end. */
static struct simulated *next_waiting(struct world *world, uint64_t from)
{
    struct simulated *best = NULL;

    for (uint32_t i = 0; i < world->arrived; i++) {
        struct simulated *s = &world->all[i];

        if (s->state == WAITING && s->order >= from && (!best || s->order < best->order))
            best = s;
    }
    return best;
}

static void settle(struct world *world)
{
    for (uint32_t i = 0; i < world->arrived; i++) {
        struct simulated *s = &world->all[i];

        if (s->state != LEAVING || s->in_flight)
            continue;
        world->pages_free += s->pages;
        world->rows_free++;
        s->pages = 0;
        s->state = s->ended ? DONE : WAITING;
        world->done += s->ended;
    }
}

static void complete(struct world *world)
{
    struct flight *flight = &world->flights[world->completed++ % (DELAY + 1)];

    for (uint32_t i = 0; i < flight->count; i++) {
        struct simulated *s = &world->all[flight->who[i]];
        bool scored = !flight->samples[i] && s->wanted == 0 && s->submitted >= s->opened;

        s->in_flight--;
        s->sampling -= flight->samples[i];
        if (s->ended)
            continue;
        s->known += flight->samples[i];
        if (scored || (flight->samples[i] && s->known == s->prompt + s->wanted)) {
            s->ended = true;
            s->state = LEAVING;
        }
    }
}

static void name(struct flight *flight, struct world *world, struct simulated *s, bool samples)
{
    flight->who[flight->count] = (uint32_t)(s - world->all);
    flight->samples[flight->count++] = samples;
    s->in_flight++;
    s->sampling += samples;
}

struct described {
    struct policy_running running[ROWS_MAX];
    struct policy_waiting waiting[ROWS_MAX];
    struct simulated *sequences[2 * ROWS_MAX];
};

static void describe(struct world *world, struct policy_input *input, struct described *d)
{
    struct simulated *s;
    uint64_t from = 0;

    memset(input, 0, sizeof *input);
    for (uint32_t i = 0; i < world->arrived; i++) {
        s = &world->all[i];
        if (s->state == LEAVING)
            input->pages_leaving += s->pages;
        if (s->state != RUNNING)
            continue;
        d->sequences[input->running_count] = s;
        d->running[input->running_count++] = (struct policy_running){
            .order = s->order,
            .prompt_left = s->submitted < s->opened ? s->opened - s->submitted : 0,
            .steps_waited = s->waited,
            .pages_held = s->pages,
            .pages_missing = s->submitted / world->page_tokens >= s->pages,
            .may_decode = s->known - s->prompt + s->sampling < s->wanted};
    }
    while (input->waiting_count < world->rows && (s = next_waiting(world, from))) {
        d->sequences[input->running_count + input->waiting_count] = s;
        d->waiting[input->waiting_count++] = (struct policy_waiting){
            .order = s->order, .prompt_tokens = s->known, .pages = pages_to_start(world, s)};
        from = s->order + 1;
    }
    input->page_count = world->page_count;
    input->pages_free = world->pages_free;
    input->rows_free = world->rows_free;
    input->prefill_tokens = world->budget;
    input->prefills_max = world->prefills_max;
    input->running = d->running;
    input->waiting = d->waiting;
}

static void admit(struct world *world, struct simulated *s)
{
    uint32_t pages = pages_to_start(world, s);

    assert_true(s->state == WAITING && world->rows_free > 0 && pages <= world->pages_free);
    s->state = RUNNING;
    s->opened = s->known;
    s->submitted = 0;
    s->waited = 0;
    s->pages = pages;
    world->pages_free -= pages;
    world->rows_free--;
}

static void check_no_choice_twice(const struct policy_plan *plan, uint32_t running)
{
    for (uint32_t i = 0; i < plan->decode_count; i++) {
        assert_true(plan->decodes[i] < running);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(plan->decodes[i], plan->decodes[k]);
        for (uint32_t k = 0; k < plan->preempt_count; k++)
            assert_int_not_equal(plan->decodes[i], plan->preempts[k]);
    }
    for (uint32_t i = 0; i < plan->prefill_count; i++) {
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(plan->prefills[i].index, plan->prefills[k].index);
        for (uint32_t k = 0; k < plan->preempt_count; k++)
            assert_int_not_equal(plan->prefills[i].index, plan->preempts[k]);
    }
}

/* The oldest that runs is never a victim, and decodes whenever it may and its page can be had. */
static void check_oldest(const struct policy_input *input, const struct policy_plan *plan)
{
    uint32_t oldest = 0;

    if (input->running_count == 0)
        return;
    for (uint32_t i = 1; i < input->running_count; i++)
        if (input->running[i].order < input->running[oldest].order)
            oldest = i;
    for (uint32_t i = 0; i < plan->preempt_count; i++)
        assert_int_not_equal(plan->preempts[i], oldest);
    if (input->running[oldest].prompt_left == 0 && input->running[oldest].may_decode &&
        input->running[oldest].pages_missing <= input->pages_free) {
        bool decodes = false;

        for (uint32_t i = 0; i < plan->decode_count; i++)
            decodes |= plan->decodes[i] == oldest;
        assert_true(decodes);
    }
}

static bool step(struct world *world)
{
    uint32_t decodes[ROWS_MAX], preempts[ROWS_MAX], prefilled = 0, prefilling = 0;
    struct policy_prefill prefills[ROWS_MAX];
    struct policy_plan plan = {.decodes = decodes, .preempts = preempts, .prefills = prefills};
    struct flight *flight = &world->flights[world->submitted % (DELAY + 1)];
    struct policy_input input;
    struct described d;

    describe(world, &input, &d);
    policy_plan(&input, &plan);
    check_no_choice_twice(&plan, input.running_count);
    check_oldest(&input, &plan);
    flight->count = 0;
    for (uint32_t i = 0; i < plan.admit_count; i++)
        admit(world, d.sequences[input.running_count + i]);
    for (uint32_t i = 0; i < plan.preempt_count; i++)
        d.sequences[plan.preempts[i]]->state = LEAVING;
    for (uint32_t i = 0; i < world->arrived; i++)
        world->all[i].waited++;
    for (uint32_t i = 0; i < plan.prefill_count; i++) {
        struct simulated *s = d.sequences[plan.prefills[i].index];
        bool last = plan.prefills[i].tokens == s->opened - s->submitted;

        assert_true(s->state == RUNNING && plan.prefills[i].tokens > 0);
        assert_true(plan.prefills[i].tokens <= s->opened - s->submitted);
        s->submitted += plan.prefills[i].tokens;
        prefilled += plan.prefills[i].tokens;
        s->waited = 0;
        name(flight, world, s, last && s->known - s->prompt + s->sampling < s->wanted);
    }
    for (uint32_t i = 0; i < plan.decode_count; i++) {
        struct simulated *s = d.sequences[plan.decodes[i]];

        if (s->submitted / world->page_tokens >= s->pages) {
            assert_true(world->pages_free > 0);
            world->pages_free--;
            s->pages++;
        }
        s->submitted++;
        name(flight, world, s, true);
    }
    assert_true(prefilled <= world->budget);
    for (uint32_t i = 0; i < world->arrived; i++)
        prefilling +=
            world->all[i].state == RUNNING && world->all[i].submitted < world->all[i].opened;
    assert_true(prefilling <= world->prefills_max);
    world->submitted++;
    return flight->count > 0;
}

static void cancel_somebody(struct world *world)
{
    struct simulated *s = &world->all[draw(world, 0, QUEUE_MAX - 1)];

    if (s >= world->all + world->arrived || s->ended)
        return;
    if (s->state == WAITING) {
        s->ended = true;
        s->state = DONE;
        world->done++;
    } else if (s->state == RUNNING || s->state == LEAVING) {
        s->ended = true;
        s->state = LEAVING;
    }
}

static void run_world(struct world *world, uint64_t seed)
{
    uint64_t bound;
    uint32_t total = 0;

    memset(world, 0, sizeof *world);
    world->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    world->page_tokens = draw(world, 0, 1) ? 16 : draw(world, 1, 8);
    world->context = draw(world, 50, 200);
    world->page_count = pages_for(world, world->context) * draw(world, 1, 4) + draw(world, 0, 3);
    world->pages_free = world->page_count;
    world->rows = world->rows_free = draw(world, 1, ROWS_MAX);
    world->budget = draw(world, 1, 64);
    world->prefills_max = draw(world, 1, 6);
    world->arrivals = draw(world, 1, 60);
    /* Serially and with every token computed anew after a preemption nobody needs longer. */
    bound = (uint64_t)world->arrivals * world->context * (world->context + 4) * 4;
    while (world->done < world->arrivals || world->arrived < world->arrivals) {
        arrive(world);
        if (draw(world, 0, 30) == 0)
            cancel_somebody(world);
        settle(world);
        (void)step(world);
        if (world->submitted - world->completed == DELAY)
            complete(world);
        assert_true(++world->steps < bound);
    }
    while (world->completed < world->submitted)
        complete(world);
    settle(world);
    for (uint32_t i = 0; i < world->arrived; i++)
        total += world->all[i].pages;
    assert_int_equal(total, 0);
    assert_int_equal(world->pages_free, world->page_count);
    assert_int_equal(world->rows_free, world->rows);
}

static void everybody_ends_in_every_world(void **state)
{
    struct world *world = malloc(sizeof *world);

    (void)state;
    assert_non_null(world);
    for (uint64_t seed = 1; seed <= 10000; seed++)
        run_world(world, seed);
    free(world);
}

/* A long prompt moves although short ones never stop coming. */
static void a_long_prompt_is_not_starved(void **state)
{
    uint32_t decodes[4], preempts[4], long_left = 1000, waited = 0, steps = 0;
    struct policy_prefill prefills[4];
    struct policy_plan plan = {.decodes = decodes, .preempts = preempts, .prefills = prefills};

    (void)state;
    while (long_left > 0) {
        struct policy_running running[2] = {
            {.order = 1, .prompt_left = long_left, .steps_waited = waited, .pages_held = 70},
            {.order = 2 + steps, .prompt_left = 64, .pages_held = 5}};
        struct policy_input input = {.page_count = 100,
                                     .pages_free = 25,
                                     .prefill_tokens = 64,
                                     .prefills_max = 2,
                                     .running_count = 2,
                                     .running = running};

        policy_plan(&input, &plan);
        waited++;
        for (uint32_t i = 0; i < plan.prefill_count; i++) {
            if (plan.prefills[i].index == 0) {
                long_left -= plan.prefills[i].tokens;
                waited = 0;
            }
        }
        assert_true(++steps < 2000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_ends_in_every_world),
        cmocka_unit_test(a_long_prompt_is_not_starved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
