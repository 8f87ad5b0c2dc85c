/* scheduler_plan.c -- the next batch: what the policy says, written down for the engine.
 *
 * Planned while the batch before still runs, so it counts on what that one will do: a decode row
 * continues from a token that nobody here has seen yet, and `submitted` runs ahead of what is
 * computed by the steps in flight. */
#include "scheduler/scheduler_internal.h"

#include "config/base/clock.h"
#include "scheduler/vectors.h"

enum {
    /* Pages are granted so many tokens before they are written, where there are some. */
    TOKENS_AHEAD = ENGINE_STEPS_IN_FLIGHT,
    EVENTS_PER_ROW = 2, /* a token and an end */
};

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t pages_for(const struct scheduler *scheduler, uint32_t tokens)
{
    return (tokens + scheduler->limits.page_tokens - 1) / scheduler->limits.page_tokens;
}

/* The pages that it needs when its next `tokens` tokens are to be computed. */
static uint32_t pages_within(const struct scheduler *scheduler, const struct sequence *sequence,
                             uint32_t from, uint32_t tokens)
{
    return pages_for(scheduler, least(from + tokens, sequence_positions_max(sequence)));
}

/* The pages that it shares are not among them. */
static uint32_t pages_to_start(const struct scheduler *scheduler, const struct sequence *sequence)
{
    return pages_within(scheduler, sequence, sequence->token_count, 1 + TOKENS_AHEAD) -
           sequence_pages_shared(sequence);
}

/* How many pages more it will want, if its answer comes to three quarters of what others came to;
 * one that is longer already is taken to end soon. The whole mean keeps rows empty, since some end
 * before others grow; none of it computes a third of all tokens twice (simulated: 64 rows, 160 to
 * 640 pages, answers of one length and exponential ones; three quarters were the cheapest or next
 * to it wherever a prompt token costs a twentieth of a step). */
static uint32_t pages_growth(const struct scheduler *scheduler, const struct sequence *sequence)
{
    uint32_t answer = (uint32_t)(scheduler->answer_tokens * 0.75);
    uint32_t pages = pages_within(scheduler, sequence, sequence->prompt_count, answer);

    return pages > sequence->page_count ? pages - sequence->page_count : 0;
}

static void show_running(struct scheduler *scheduler, struct policy_input *input)
{
    uint32_t n = 0;

    for (struct sequence *s = scheduler->running.first; s; s = s->after) {
        uint32_t now = pages_within(scheduler, s, s->submitted, 1);
        uint32_t ahead = pages_within(scheduler, s, s->submitted, 1 + TOKENS_AHEAD);
        uint32_t missing = now > s->page_count ? now - s->page_count : 0;

        must(!s->before || s->before->order < s->order);
        scheduler->shown_running[n] = s;
        scheduler->policy_running[n++] = (struct policy_running){
            .prompt_left = s->opened > s->submitted ? s->opened - s->submitted : 0,
            .computed = s->submitted,
            .pages_freed = sequence_pages_own(s),
            .pages_missing = missing,
            .pages_ahead = ahead > s->page_count + missing ? ahead - s->page_count - missing : 0,
            .pages_growth = pages_growth(scheduler, s),
            .may_decode = s->held || sequence_may_decode(s),
            .held = s->held};
    }
    input->running = scheduler->policy_running;
    input->running_count = n;
}

/* Of choices that share a prompt one is shown at a time until its pages are on their way. */
static bool is_shown(const struct scheduler *scheduler, struct sequence *sequence,
                     uint32_t *jump_room)
{
    struct prompt_group *group = sequence->group;

    if (sequence_waits_for_source(sequence, scheduler->limits.page_tokens) ||
        sequence_mask_busy(sequence) || sequence->unsent > *jump_room)
        return false;
    if (group->page_count > 0 && !group->source) {
        if (group->shown == scheduler->plans)
            return false;
        group->shown = scheduler->plans;
    }
    *jump_room -= sequence->unsent;
    return true;
}

static void show_waiting(struct scheduler *scheduler, struct policy_input *input)
{
    uint32_t n = 0, jump_room = scheduler->jump_room;

    for (struct sequence *s = scheduler->waiting.first; s && n < scheduler->limits.batch.rows;
         s = s->after) {
        uint32_t shared = sequence_pages_shared(s) * scheduler->limits.page_tokens;

        must(!s->before || s->before->order < s->order);
        if (!is_shown(scheduler, s, &jump_room))
            continue;
        scheduler->shown_waiting[n] = s;
        scheduler->policy_waiting[n++] = (struct policy_waiting){
            .prompt_tokens = s->token_count - shared, .pages = pages_to_start(scheduler, s)};
    }
    input->waiting = scheduler->policy_waiting;
    input->waiting_count = n;
}

static void describe(struct scheduler *scheduler, uint32_t prefill_tokens,
                     struct policy_input *input)
{
    scheduler->plans++;
    *input = (struct policy_input){.pages_free = kv_pages_free(scheduler->pages),
                                   .rows_free = scheduler->row_free_count,
                                   .prefill_tokens = prefill_tokens,
                                   .loaded_tokens = scheduler->limits.loaded_tokens,
                                   .prefills_max = scheduler->options.prefills_max,
                                   .whole_prompts = scheduler->limits.encoder};
    show_running(scheduler, input);
    for (struct sequence *s = scheduler->leaving.first; s; s = s->after)
        input->pages_leaving += sequence_pages_own(s);
    if (scheduler->row_free_count > 0)
        show_waiting(scheduler, input);
}

/* --- carrying it out -------------------------------------------------------------------------- */

static void take_pages(struct scheduler *scheduler, struct sequence *sequence, uint32_t count_more)
{
    must(count_more <= scheduler->limits.pages_per_row - sequence->page_count);
    while (count_more-- > 0) /* the policy counted them */
        must(kv_pages_take(scheduler->pages, &sequence->pages[sequence->page_count++]) == 0);
}

static void share_pages(struct scheduler *scheduler, struct sequence *sequence)
{
    struct prompt_group *group = sequence->group;
    uint32_t shared = sequence_pages_shared(sequence);

    for (uint32_t i = 0; i < shared; i++) {
        sequence->pages[i] = group->source->pages[i];
        kv_pages_share(scheduler->pages, sequence->pages[i]);
    }
    sequence->page_count = shared;
    if (!group->source)
        group->source = sequence;
    group->holders++;
}

void scheduler_preempt(struct scheduler *scheduler, struct sequence *sequence)
{
    sequence->held = false;
    sequence_list_remove(&scheduler->running, sequence);
    sequence_list_append(&scheduler->leaving, sequence);
    sequence->state = SEQUENCE_LEAVING;
    sequence->preempted = true;
    sequence->preemptions++;
    sequence_leave_group(sequence);
    count(&scheduler->published.preemptions_total, 1);
}

static void start(struct scheduler *scheduler, struct sequence *sequence)
{
    struct event event = {.exchange_id = sequence->owner->request->exchange_id,
                          .choice = sequence->choice,
                          .kind = EVENT_STARTED};

    sequence->started = true;
    sequence->admitted_ns = clock_now();
    sequence->cached = sequence->submitted;
    atomic_fetch_sub(&scheduler->queued, 1);
    scheduler_emit(scheduler, &event);
}

static void admit(struct scheduler *scheduler, struct sequence *sequence)
{
    uint32_t pages = pages_to_start(scheduler, sequence), border = scheduler->limits.long_prompt;
    uint8_t longer = border > 0 && sequence->prompt_count > border; /* they do not share pages */

    sequence_list_remove(&scheduler->waiting, sequence);
    sequence_list_insert(&scheduler->running, sequence);
    sequence->state = SEQUENCE_RUNNING;
    sequence->row = scheduler->rows_free[--scheduler->row_free_count];
    sequence->row_open = false;
    sequence->opened = sequence->token_count;
    share_pages(scheduler, sequence);
    sequence->submitted = sequence->page_count * scheduler->limits.page_tokens;
    take_pages(scheduler, sequence, pages);
    sequence->computed = 0;
    sequence->pages_granted = 0;
    sequence->pages_named = 0;
    sequence->hash = prefix_root(&scheduler->prefix_key, &longer, sizeof longer);
    if (!sequence->started)
        start(scheduler, sequence);
    if (sequence->mask)
        scheduler_mask_admit(scheduler, sequence);
}

/* Names the row in the batch: opened when it is new, with the pages that the engine does not know
 * yet. */
static void name_row(struct planned *planned, struct sequence *sequence)
{
    struct batch *batch = planned->batch;

    if (!sequence->row_open) {
        const struct request *request = sequence->owner->request;
        bool masked = sequence->mask && sequence->mask->begun;

        batch->openings[batch->opening_count++] = (struct batch_opening){
            .row = sequence->row,
            .tokens = sequence->tokens,
            .token_count = sequence->opened,
            .prompt_count = sequence->prompt_count,
            .tokens_left = sequence->max_tokens - sequence_generated(sequence),
            .sampling = masked ? &sequence->mask->sampling : &sequence->sampling,
            .masked = masked,
            .vector = request->vectors ? vectors_at(request->vectors, sequence->choice) : NULL,
            .pooling = request->pooling};
        sequence->row_open = true;
        sequence->lent = true;
    }
    for (; sequence->pages_granted < sequence->page_count; sequence->pages_granted++)
        batch->grants[batch->grant_count++] =
            (struct batch_grant){.row = sequence->row,
                                 .index = sequence->pages_granted,
                                 .page = sequence->pages[sequence->pages_granted]};
    sequence->in_flight++;
    planned->sequences[planned->sequence_count++] = sequence;
    planned->events += EVENTS_PER_ROW;
}

static void plan_prefill(struct planned *planned, struct sequence *sequence, uint32_t tokens)
{
    struct batch *batch = planned->batch;

    name_row(planned, sequence);
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){
        .row = sequence->row, .position = sequence->submitted, .count = tokens};
    sequence->submitted += tokens;
    if (sequence->sampling.prompt_logprobs != LOGPROBS_NONE)
        planned->events += tokens;
    if (sequence->submitted == sequence->opened && sequence_may_decode(sequence))
        sequence->sampling_in_flight++;
}

static void plan_decode(struct scheduler *scheduler, struct planned *planned,
                        struct sequence *sequence, uint32_t pages)
{
    struct batch *batch = planned->batch;

    take_pages(scheduler, sequence, pages);
    name_row(planned, sequence);
    batch->decode_rows[batch->decode_count++] = sequence->row;
    sequence->submitted++;
    sequence->sampling_in_flight++;
}

static void plan_closes(struct scheduler *scheduler, struct planned *planned)
{
    for (uint32_t i = 0; i < scheduler->close_count; i++)
        planned->batch->close_rows[planned->batch->close_count++] = scheduler->close_rows[i];
    scheduler->close_count = 0;
    planned->closed = scheduler->closing;
    scheduler->closing = (struct sequence_list){0};
}

/* Shared pages are granted to each row that shares them, so rows opened together may ask for more
 * grants than a batch holds. One alone always fits: its pages and those of the decodes are all
 * different. */
static bool grants_fit(const struct scheduler *scheduler, const struct planned *planned,
                       const struct sequence *sequence)
{
    uint32_t grants = planned->batch->grant_count + sequence->page_count - sequence->pages_granted;

    for (uint32_t i = 0; i < scheduler->plan.decode_count; i++)
        grants += scheduler->plan.decodes[i].pages;
    return grants <= scheduler->limits.batch.grants;
}

static void apply_plan(struct scheduler *scheduler, const struct policy_input *input,
                       struct planned *planned)
{
    const struct policy_plan *plan = &scheduler->plan;

    for (uint32_t i = 0; i < plan->admit_count; i++)
        admit(scheduler, scheduler->shown_waiting[plan->admits[i]]);
    for (uint32_t i = 0; i < plan->preempt_count; i++)
        scheduler_preempt(scheduler, scheduler->shown_running[plan->preempts[i]]);
    for (uint32_t i = 0; i < plan->prefill_count; i++) {
        uint32_t index = plan->prefills[i].index;
        struct sequence *sequence =
            index < input->running_count
                ? scheduler->shown_running[index]
                : scheduler->shown_waiting[plan->admits[index - input->running_count]];

        if (sequence->row_open || grants_fit(scheduler, planned, sequence))
            plan_prefill(planned, sequence, plan->prefills[i].tokens);
    }
    for (uint32_t i = 0; i < plan->decode_count; i++)
        plan_decode(scheduler, planned, scheduler->shown_running[plan->decodes[i].index],
                    plan->decodes[i].pages);
}

int scheduler_plan_step(struct scheduler *scheduler, struct fault *fault)
{
    struct planned *planned = &scheduler->slots[scheduler->submitted % SLOTS];
    /* A start, a token and an end for each row; then come the prompts' log-probabilities, which are
     * as many as the tokens at most; what is left is for tokens that nobody draws. */
    uint32_t room = scheduler_event_room(scheduler);
    uint32_t room_for_rows = (1 + EVENTS_PER_ROW) * scheduler->limits.batch.rows;
    uint32_t room_for_prompts = scheduler->limits.batch.prefill_tokens;
    struct policy_input input;
    int r;

    if (room < room_for_rows)
        return 0;
    room -= room_for_rows;
    scheduler->jump_room = room > room_for_prompts ? room - room_for_prompts : 0;
    scheduler_masks_resume(scheduler);
    batch_reset(planned->batch);
    planned->sequence_count = 0;
    planned->events = 0;
    describe(scheduler, least(room_for_prompts, room), &input);
    policy_plan(&input, &scheduler->plan);
    apply_plan(scheduler, &input, planned);
    if (planned->sequence_count == 0 && scheduler->close_count == 0 && !scheduler->closing.first)
        return scheduler->plan.preempt_count > 0;
    plan_closes(scheduler, planned);
    planned->batch->number = scheduler->submitted;
    scheduler->events_promised += planned->events;
    r = engine_submit(scheduler->engine, planned->batch, fault);
    if (r < 0)
        return r;
    scheduler->submitted++;
    return 1;
}
