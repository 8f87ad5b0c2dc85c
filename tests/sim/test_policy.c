/* Protects the scheduling policy by simulation: random arrivals, lengths, pools and cancels, a
 * model of the pipeline (results come two steps late, pages of those that leave come back then),
 * and after every step the invariants: no page given twice, no budget passed, the oldest always
 * moves, who is held sits out, everybody ends, all pages come home. */
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
    uint32_t pages;
    uint64_t prefilled_at; /* the step that last computed some of its prompt, or admitted it */
    bool ended;
};

struct flight {
    uint32_t count;
    uint32_t who[2 * ROWS_MAX];
    bool samples[2 * ROWS_MAX];
};

struct world {
    uint64_t random;
    uint32_t page_tokens, page_count, pages_free, rows, rows_free, budget, loaded, prefills_max,
        context;
    uint32_t arrivals, arrived, done;
    bool holds;            /* some sit steps out */
    uint32_t answer_guess; /* how long the scheduler takes answers to be */
    uint64_t next_order, steps, prefilled;
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

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The pages that it needs for `tokens` positions more, its last token not being computed. */
static uint32_t pages_within(const struct world *world, const struct simulated *s, uint32_t from,
                             uint32_t tokens)
{
    return pages_for(world, least(from + tokens, s->prompt + s->wanted - (s->wanted > 0)));
}

static uint32_t pages_to_start(const struct world *world, const struct simulated *s)
{
    return pages_within(world, s, s->known, 1 + DELAY);
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
static struct simulated *next_in(struct world *world, enum state state, uint64_t from)
{
    struct simulated *best = NULL;

    for (uint32_t i = 0; i < world->arrived; i++) {
        struct simulated *s = &world->all[i];

        if (s->state == state && s->order >= from && (!best || s->order < best->order))
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
    struct simulated *runs[ROWS_MAX];
    struct simulated *waits[ROWS_MAX];
};

static struct policy_running describe_one(const struct world *world, const struct simulated *s)
{
    uint32_t now = pages_within(world, s, s->submitted, 1);
    uint32_t ahead = pages_within(world, s, s->submitted, 1 + DELAY);
    uint32_t growth = pages_within(world, s, s->prompt, world->answer_guess);
    uint32_t missing = now > s->pages ? now - s->pages : 0;

    return (struct policy_running){
        .prompt_left = s->submitted < s->opened ? s->opened - s->submitted : 0,
        .computed = s->submitted,
        .pages_freed = s->pages,
        .pages_missing = missing,
        .pages_ahead = ahead > s->pages + missing ? ahead - s->pages - missing : 0,
        .pages_growth = growth > s->pages ? growth - s->pages : 0,
        .may_decode = s->known - s->prompt + s->sampling < s->wanted};
}

static void describe(struct world *world, struct policy_input *input, struct described *d)
{
    struct simulated *s;

    memset(input, 0, sizeof *input);
    for (uint32_t i = 0; i < world->arrived; i++)
        if (world->all[i].state == LEAVING)
            input->pages_leaving += world->all[i].pages;
    for (uint64_t from = 0; (s = next_in(world, RUNNING, from)); from = s->order + 1) {
        struct policy_running *one = &d->running[input->running_count];

        d->runs[input->running_count++] = s;
        *one = describe_one(world, s);
        one->held =
            world->holds && one->prompt_left == 0 && one->may_decode && draw(world, 0, 3) == 0;
    }
    for (uint64_t from = 0;
         input->waiting_count < world->rows && (s = next_in(world, WAITING, from));
         from = s->order + 1) {
        d->waits[input->waiting_count] = s;
        d->waiting[input->waiting_count++] =
            (struct policy_waiting){.prompt_tokens = s->known, .pages = pages_to_start(world, s)};
    }
    input->pages_free = world->pages_free;
    input->rows_free = world->rows_free;
    input->prefill_tokens = world->budget;
    input->loaded_tokens = world->loaded;
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
    s->prefilled_at = world->steps;
    s->pages = pages;
    world->pages_free -= pages;
    world->rows_free--;
}

static void check_nobody_twice(const struct policy_input *input, const struct policy_plan *plan)
{
    for (uint32_t i = 0; i < plan->decode_count; i++) {
        assert_true(plan->decodes[i].index < input->running_count);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(plan->decodes[i].index, plan->decodes[k].index);
        for (uint32_t k = 0; k < plan->preempt_count; k++)
            assert_int_not_equal(plan->decodes[i].index, plan->preempts[k]);
    }
    for (uint32_t i = 0; i < plan->prefill_count; i++) {
        assert_true(plan->prefills[i].index < input->running_count + plan->admit_count);
        for (uint32_t k = 0; k < i; k++)
            assert_int_not_equal(plan->prefills[i].index, plan->prefills[k].index);
        for (uint32_t k = 0; k < plan->preempt_count; k++)
            assert_int_not_equal(plan->prefills[i].index, plan->preempts[k]);
    }
    for (uint32_t i = 1; i < plan->admit_count; i++)
        assert_true(plan->admits[i - 1] < plan->admits[i]);
    assert_true(plan->admit_count == 0 || plan->preempt_count == 0);
}

/* Everybody decodes who may and whose pages are there; none is a victim without need; the oldest
 * never is. */
static void check_decodes(const struct policy_input *input, const struct policy_plan *plan)
{
    uint32_t wanted = 0, could = 0;

    for (uint32_t i = 0; i < plan->preempt_count; i++)
        assert_int_not_equal(plan->preempts[i], 0);
    for (uint32_t i = 0; i < input->running_count; i++) {
        const struct policy_running *running = &input->running[i];

        if (running->prompt_left || !running->may_decode || running->held)
            continue;
        wanted += running->pages_missing + running->pages_ahead;
        could++;
    }
    if (wanted > input->pages_free)
        return;
    assert_int_equal(plan->decode_count, could);
    assert_int_equal(plan->preempt_count, 0);
}

static void carry_out_prefills(struct world *world, const struct policy_input *input,
                               const struct described *d, const struct policy_plan *plan,
                               struct flight *flight)
{
    uint32_t computed = 0;

    for (uint32_t i = 0; i < plan->prefill_count; i++) {
        uint32_t index = plan->prefills[i].index, tokens = plan->prefills[i].tokens;
        struct simulated *s = index < input->running_count
                                  ? d->runs[index]
                                  : d->waits[plan->admits[index - input->running_count]];

        assert_true(s->state == RUNNING && tokens > 0 && tokens <= s->opened - s->submitted);
        s->submitted += tokens;
        computed += tokens;
        s->prefilled_at = world->steps;
        name(flight, world, s, s->submitted == s->opened && s->known - s->prompt < s->wanted);
    }
    assert_true(computed <= world->budget);
    if (plan->decode_count > 0)
        assert_true(computed + plan->decode_count <= world->loaded ||
                    computed <= (world->loaded + 3) / 4);
    world->prefilled += computed;
    /* The oldest prompt moves in every step. */
    for (uint32_t i = 0; i < input->running_count; i++) {
        if (input->running[i].prompt_left > 0) {
            assert_true(d->runs[i]->state == LEAVING || d->runs[i]->prefilled_at == world->steps);
            break;
        }
    }
}

static void carry_out_decodes(struct world *world, const struct described *d,
                              const struct policy_plan *plan, struct flight *flight)
{
    for (uint32_t i = 0; i < plan->decode_count; i++) {
        struct simulated *s = d->runs[plan->decodes[i].index];

        assert_false(d->running[plan->decodes[i].index].held);
        assert_true(plan->decodes[i].pages <= world->pages_free);
        world->pages_free -= plan->decodes[i].pages;
        s->pages += plan->decodes[i].pages;
        assert_true(s->submitted / world->page_tokens < s->pages);
        s->submitted++;
        name(flight, world, s, true);
    }
}

static void step(struct world *world)
{
    struct policy_decode decodes[ROWS_MAX];
    struct policy_prefill prefills[ROWS_MAX];
    uint32_t preempts[ROWS_MAX], admits[ROWS_MAX];
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};
    struct flight *flight = &world->flights[world->submitted % (DELAY + 1)];
    struct policy_input input;
    struct described d;

    describe(world, &input, &d);
    policy_plan(&input, &plan);
    check_nobody_twice(&input, &plan);
    check_decodes(&input, &plan);
    flight->count = 0;
    for (uint32_t i = 0; i < plan.admit_count; i++)
        admit(world, d.waits[plan.admits[i]]);
    for (uint32_t i = 0; i < plan.preempt_count; i++)
        d.runs[plan.preempts[i]]->state = LEAVING;
    carry_out_prefills(world, &input, &d, &plan, flight);
    carry_out_decodes(world, &d, &plan, flight);
    world->submitted++;
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
    world->loaded = draw(world, 0, 1) ? world->budget + world->rows : draw(world, 1, 64);
    world->prefills_max = draw(world, 1, 6);
    world->arrivals = draw(world, 1, 60);
    world->holds = draw(world, 0, 1);
    world->answer_guess = draw(world, 0, world->context);
    /* Serially and with every token computed anew after a preemption nobody needs longer. */
    bound = (uint64_t)world->arrivals * world->context * (world->context + 4) * 4;
    while (world->done < world->arrivals || world->arrived < world->arrivals) {
        arrive(world);
        if (draw(world, 0, 30) == 0)
            cancel_somebody(world);
        settle(world);
        step(world);
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

/* One prompt of 10000 tokens among short ones that never stop coming, with every place taken: it
 * is done in about four times the steps that it needs alone, each short one in the step it came. */
static void neither_long_nor_short_prompts_wait(void **state)
{
    struct policy_decode decodes[4];
    struct policy_prefill prefills[4];
    uint32_t preempts[4], admits[4], long_left = 10000, steps = 0;
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};

    (void)state;
    for (; long_left > 200; steps++) {
        const struct policy_running running = {.prompt_left = long_left, .pages_freed = 700};
        const struct policy_waiting waiting[2] = {{.prompt_tokens = 5000, .pages = 320},
                                                  {.prompt_tokens = 150, .pages = 10}};
        const struct policy_input input = {.pages_free = 1000,
                                           .rows_free = 3,
                                           .prefill_tokens = 256,
                                           .loaded_tokens = 256,
                                           .prefills_max = 1,
                                           .running_count = 1,
                                           .running = &running,
                                           .waiting_count = 2,
                                           .waiting = waiting};

        policy_plan(&input, &plan);
        assert_int_equal(plan.admit_count, 1);
        assert_int_equal(admits[0], 1);
        assert_int_equal(plan.prefill_count, 2);
        for (uint32_t i = 0; i < plan.prefill_count; i++) {
            if (prefills[i].index == 0)
                long_left -= prefills[i].tokens;
            else
                assert_int_equal(prefills[i].tokens, 150);
        }
    }
    assert_true(steps <= 4 * (10000 / 256 + 1));
}

/* What a step computes of a prompt of 5000 tokens beside so many that decode. */
static uint32_t beside(uint32_t decode_count)
{
    struct policy_decode decodes[301];
    struct policy_prefill prefills[301];
    uint32_t preempts[301], admits[301];
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};
    struct policy_running running[301] = {{.prompt_left = 5000}};
    const struct policy_input input = {.prefill_tokens = 2048,
                                       .loaded_tokens = 128,
                                       .prefills_max = 4,
                                       .running_count = 1 + decode_count,
                                       .running = running};

    for (uint32_t i = 1; i <= decode_count; i++)
        running[i] = (struct policy_running){.may_decode = true};
    policy_plan(&input, &plan);
    assert_int_equal(plan.decode_count, decode_count);
    assert_int_equal(plan.prefill_count, 1);
    return prefills[0].tokens;
}

/* Prompts have what the decodes leave of a loaded step, and a quarter of it however many these are;
 * where nobody decodes they have the whole budget. */
static void answers_flow_beside_long_prompts(void **state)
{
    (void)state;
    assert_int_equal(beside(0), 2048);
    assert_int_equal(beside(1), 127);
    assert_int_equal(beside(64), 64);
    assert_int_equal(beside(96), 32);
    assert_int_equal(beside(127), 32);
    assert_int_equal(beside(128), 32);
    assert_int_equal(beside(300), 32);
}

/* In a loaded step too, a prompt that fits in one piece needs no place among those being read. */
static void admission_knows_the_loaded_budget(void **state)
{
    struct policy_decode decodes[4];
    struct policy_prefill prefills[4];
    uint32_t preempts[4], admits[4];
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};
    const struct policy_running running[2] = {{.prompt_left = 5000}, {.may_decode = true}};
    const struct policy_waiting waiting[2] = {{.prompt_tokens = 200, .pages = 1},
                                              {.prompt_tokens = 90, .pages = 1}};
    const struct policy_input input = {.pages_free = 100,
                                       .rows_free = 2,
                                       .prefill_tokens = 2048,
                                       .loaded_tokens = 128,
                                       .prefills_max = 1,
                                       .running_count = 2,
                                       .running = running,
                                       .waiting_count = 2,
                                       .waiting = waiting};

    (void)state;
    policy_plan(&input, &plan);
    assert_int_equal(plan.admit_count, 1);
    assert_int_equal(admits[0], 1);
    assert_int_equal(plan.decode_count, 1);
    assert_int_equal(plan.prefill_count, 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(prefills[i].tokens, prefills[i].index == 2 ? 90 : 37);
}

/* Equal prompts are finished one by one, in the order in which they came. */
static void equal_prompts_are_finished_one_by_one(void **state)
{
    struct policy_decode decodes[3];
    struct policy_prefill prefills[3];
    uint32_t preempts[3], admits[3], left[3] = {100, 100, 100}, finished = 0;
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};

    (void)state;
    while (finished < 3) {
        struct policy_running running[3];
        const struct policy_input input = {
            .prefill_tokens = 32, .prefills_max = 3, .running_count = 3, .running = running};

        for (uint32_t i = 0; i < 3; i++)
            running[i] = (struct policy_running){.prompt_left = left[i]};
        policy_plan(&input, &plan);
        for (uint32_t i = 0; i < plan.prefill_count; i++) {
            assert_true(prefills[i].index == finished || left[finished] == 0);
            left[prefills[i].index] -= prefills[i].tokens;
            if (left[prefills[i].index] == 0)
                finished = prefills[i].index + 1;
        }
    }
}

/* Nobody overtakes one that waits for pages, however small. */
static void pages_go_to_the_head_of_the_queue(void **state)
{
    struct policy_decode decodes[3];
    struct policy_prefill prefills[3];
    uint32_t preempts[3], admits[3];
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};
    const struct policy_running running = {.may_decode = true, .pages_freed = 90, .computed = 900};
    const struct policy_waiting waiting[2] = {{.prompt_tokens = 300, .pages = 20},
                                              {.prompt_tokens = 10, .pages = 1}};
    struct policy_input input = {.pages_free = 19,
                                 .rows_free = 2,
                                 .prefill_tokens = 64,
                                 .prefills_max = 2,
                                 .running_count = 1,
                                 .running = &running,
                                 .waiting_count = 2,
                                 .waiting = waiting};

    (void)state;
    policy_plan(&input, &plan);
    assert_int_equal(plan.admit_count, 0);
    input.pages_free = 21;
    policy_plan(&input, &plan);
    assert_int_equal(plan.admit_count, 2);
}

/* What those that run are likely to want yet is not given away. */
static void growth_is_reserved(void **state)
{
    struct policy_decode decodes[3];
    struct policy_prefill prefills[3];
    uint32_t preempts[3], admits[3];
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};
    const struct policy_running running = {.may_decode = true, .pages_growth = 12};
    const struct policy_waiting waiting = {.prompt_tokens = 30, .pages = 2};
    struct policy_input input = {.pages_free = 13,
                                 .rows_free = 2,
                                 .prefill_tokens = 64,
                                 .prefills_max = 2,
                                 .running_count = 1,
                                 .running = &running,
                                 .waiting_count = 1,
                                 .waiting = &waiting};

    (void)state;
    policy_plan(&input, &plan);
    assert_int_equal(plan.admit_count, 0);
    input.pages_free = 14;
    policy_plan(&input, &plan);
    assert_int_equal(plan.admit_count, 1);
    input.pages_free = 2;
    input.running_count = 0; /* with nobody else on the way even the last page is given */
    policy_plan(&input, &plan);
    assert_int_equal(plan.admit_count, 1);
}

/* The victim is whoever loses least; not one that is about to end, nor the oldest. */
static void the_cheapest_is_preempted(void **state)
{
    struct policy_decode decodes[4];
    struct policy_prefill prefills[4];
    uint32_t preempts[4], admits[4];
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};
    struct policy_running running[4] = {
        {.may_decode = true, .computed = 10, .pages_freed = 1, .pages_missing = 1},
        {.may_decode = true, .computed = 900, .pages_freed = 60},
        {.may_decode = true, .computed = 30, .pages_freed = 2},
        {.may_decode = true, .computed = 400, .pages_freed = 26}};
    const struct policy_input input = {.running_count = 4, .running = running};

    (void)state;
    policy_plan(&input, &plan);
    assert_int_equal(plan.preempt_count, 1);
    assert_int_equal(preempts[0], 2);
    assert_int_equal(plan.decode_count, 2);
    running[2].may_decode = false; /* its pages come back without that */
    policy_plan(&input, &plan);
    assert_int_equal(plan.preempt_count, 0);
}

/* An encoder's prompts: each in one piece or not at all, and the oldest at once. */
static void whole_prompts_are_not_cut(void **state)
{
    struct policy_decode decodes[4];
    struct policy_prefill prefills[4];
    uint32_t preempts[4], admits[4];
    struct policy_plan plan = {
        .decodes = decodes, .preempts = preempts, .admits = admits, .prefills = prefills};
    struct policy_running running[4] = {{0}};
    const struct policy_input input = {.prefill_tokens = 64,
                                       .prefills_max = 4,
                                       .whole_prompts = true,
                                       .running_count = 4,
                                       .running = running};
    uint64_t seed = 5;

    (void)state;
    for (uint32_t n = 0; n < 10000; n++) {
        uint32_t sum = 0, left_out = UINT32_MAX;
        bool given[4] = {false};

        for (uint32_t i = 0; i < 4; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            running[i].prompt_left = 1 + (uint32_t)(seed >> 33) % 64;
        }
        policy_plan(&input, &plan);
        for (uint32_t i = 0; i < plan.prefill_count; i++) {
            assert_int_equal(prefills[i].tokens, running[prefills[i].index].prompt_left);
            given[prefills[i].index] = true;
            sum += prefills[i].tokens;
        }
        for (uint32_t i = 0; i < 4; i++)
            if (!given[i] && running[i].prompt_left < left_out)
                left_out = running[i].prompt_left;
        assert_true(given[0] && sum <= 64);
        assert_true(left_out > 64 - sum); /* nothing that would have fitted */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_ends_in_every_world),
        cmocka_unit_test(neither_long_nor_short_prompts_wait),
        cmocka_unit_test(answers_flow_beside_long_prompts),
        cmocka_unit_test(admission_knows_the_loaded_budget),
        cmocka_unit_test(equal_prompts_are_finished_one_by_one),
        cmocka_unit_test(pages_go_to_the_head_of_the_queue),
        cmocka_unit_test(growth_is_reserved),
        cmocka_unit_test(the_cheapest_is_preempted),
        cmocka_unit_test(whole_prompts_are_not_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
