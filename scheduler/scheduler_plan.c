/* scheduler_plan.c -- the next batch: what the policy says, written down for the engine.
 *
 * Planned while the batch before still runs, so it counts on what that one will do: a decode row
 * continues from a token that nobody here has seen yet, and `submitted` runs ahead of what is
 * computed by the steps in flight. */
#include "scheduler/scheduler_internal.h"

#include "config/base/clock.h"

static uint32_t pages_for(const struct scheduler *scheduler, uint32_t tokens)
{
    return (tokens + scheduler->limits.page_tokens - 1) / scheduler->limits.page_tokens;
}

/* The prompt's pages and that of the first token after it. */
static uint32_t pages_to_start(const struct scheduler *scheduler, const struct sequence *sequence)
{
    uint32_t more = sequence_generated(sequence) < sequence->max_tokens;

    return pages_for(scheduler, sequence->token_count + more);
}

static void describe_running(struct scheduler *scheduler, struct policy_input *input)
{
    uint32_t n = 0;

    for (struct sequence *s = scheduler->running.first; s; s = s->after) {
        uint32_t next_page = s->submitted / scheduler->limits.page_tokens;

        scheduler->policy_sequences[n] = s;
        scheduler->policy_running[n++] = (struct policy_running){
            .order = s->order,
            .prompt_left = s->opened - (s->submitted < s->opened ? s->submitted : s->opened),
            .steps_waited = s->steps_waited,
            .pages_held = s->page_count,
            .pages_missing = next_page >= s->page_count,
            .may_decode = sequence_may_decode(s)};
    }
    input->running = scheduler->policy_running;
    input->running_count = n;
}

static void describe(struct scheduler *scheduler, struct policy_input *input)
{
    uint32_t n = 0;

    *input = (struct policy_input){.page_count = scheduler->limits.page_count,
                                   .pages_free = kv_pages_free(scheduler->pages),
                                   .rows_free = scheduler->row_free_count,
                                   .prefill_tokens = scheduler->options.prefill_tokens,
                                   .prefills_max = scheduler->options.prefills_max,
                                   .waiting = scheduler->policy_waiting};
    describe_running(scheduler, input);
    for (struct sequence *s = scheduler->leaving.first; s; s = s->after)
        input->pages_leaving += s->page_count;
    for (struct sequence *s = scheduler->waiting.first; s && n < scheduler->limits.batch.rows;
         s = s->after)
        scheduler->policy_waiting[n++] =
            (struct policy_waiting){.order = s->order,
                                    .prompt_tokens = s->token_count,
                                    .pages = pages_to_start(scheduler, s)};
    input->waiting_count = n;
}

static void take_page(struct scheduler *scheduler, struct sequence *sequence)
{
    uint32_t page;

    must(sequence->page_count < scheduler->limits.pages_per_row);
    must(kv_pages_take(scheduler->pages, &page) == 0); /* the policy counted them */
    sequence->pages[sequence->page_count++] = page;
}

static void preempt(struct scheduler *scheduler, struct sequence *sequence)
{
    sequence_list_remove(&scheduler->running, sequence);
    sequence_list_append(&scheduler->leaving, sequence);
    sequence->state = SEQUENCE_LEAVING;
    sequence->preempted = true;
    sequence->preemptions++;
    count(&scheduler->published.preemptions_total, 1);
}

static void admit(struct scheduler *scheduler, struct sequence *sequence)
{
    uint32_t pages = pages_to_start(scheduler, sequence);

    sequence_list_remove(&scheduler->waiting, sequence);
    sequence_list_append(&scheduler->running, sequence);
    sequence->state = SEQUENCE_RUNNING;
    sequence->row = scheduler->rows_free[--scheduler->row_free_count];
    sequence->row_open = false;
    sequence->opened = sequence->token_count;
    sequence->submitted = 0;
    sequence->computed = 0;
    sequence->steps_waited = 0;
    sequence->pages_granted = 0;
    sequence->pages_named = 0;
    sequence->hash = prefix_root(&scheduler->prefix_key, "", 0);
    while (sequence->page_count < pages)
        take_page(scheduler, sequence);
    if (!sequence->started) {
        struct event event = {.kind = EVENT_STARTED};

        sequence->started = true;
        sequence->admitted_ns = clock_now();
        atomic_fetch_sub(&scheduler->queued, 1);
        scheduler_emit(scheduler, sequence, &event);
    }
}

/* Names the row in the batch: opened when it is new, with the pages that the engine does not know
 * yet. */
static void name_row(struct planned *planned, struct sequence *sequence)
{
    struct batch *batch = planned->batch;

    if (!sequence->row_open) {
        batch->openings[batch->opening_count++] = (struct batch_opening){
            .row = sequence->row,
            .tokens = sequence->tokens,
            .token_count = sequence->opened,
            .prompt_count = sequence->prompt_count,
            .tokens_left = sequence->max_tokens - sequence_generated(sequence),
            .sampling = &sequence->sampling};
        sequence->row_open = true;
    }
    for (; sequence->pages_granted < sequence->page_count; sequence->pages_granted++)
        batch->grants[batch->grant_count++] =
            (struct batch_grant){.row = sequence->row,
                                 .index = sequence->pages_granted,
                                 .page = sequence->pages[sequence->pages_granted]};
    sequence->in_flight++;
    planned->sequences[planned->sequence_count++] = sequence;
}

static void plan_prefill(struct planned *planned, struct sequence *sequence, uint32_t tokens)
{
    struct batch *batch = planned->batch;

    name_row(planned, sequence);
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){
        .row = sequence->row, .position = sequence->submitted, .count = tokens};
    sequence->submitted += tokens;
    sequence->steps_waited = 0;
    planned->events += 2;
    if (sequence->sampling.prompt_logprobs != LOGPROBS_NONE)
        planned->events += tokens;
    if (sequence->submitted == sequence->opened && sequence_may_decode(sequence))
        sequence->sampling_in_flight++;
}

static void plan_decode(struct scheduler *scheduler, struct planned *planned,
                        struct sequence *sequence)
{
    struct batch *batch = planned->batch;

    if (sequence->submitted / scheduler->limits.page_tokens >= sequence->page_count)
        take_page(scheduler, sequence);
    name_row(planned, sequence);
    batch->decode_rows[batch->decode_count++] = sequence->row;
    sequence->submitted++;
    sequence->sampling_in_flight++;
    planned->events += 2;
}

static void plan_closes(struct scheduler *scheduler, struct planned *planned)
{
    for (uint32_t i = 0; i < scheduler->close_count; i++)
        planned->batch->close_rows[planned->batch->close_count++] = scheduler->close_rows[i];
    scheduler->close_count = 0;
    while (scheduler->closing.first && planned->closed_count < scheduler->limits.batch.rows) {
        planned->closed[planned->closed_count++] = scheduler->closing.first;
        sequence_list_remove(&scheduler->closing, scheduler->closing.first);
    }
}

/* The k-th admitted is at the end of `running`, behind those that the policy was shown. */
static void apply_plan(struct scheduler *scheduler, const struct policy_input *input,
                       struct planned *planned)
{
    const struct policy_plan *plan = &scheduler->plan;

    for (uint32_t i = 0; i < plan->admit_count; i++) {
        scheduler->policy_sequences[input->running_count + i] = scheduler->waiting.first;
        admit(scheduler, scheduler->waiting.first);
    }
    for (uint32_t i = 0; i < plan->preempt_count; i++)
        preempt(scheduler, scheduler->policy_sequences[plan->preempts[i]]);
    for (struct sequence *s = scheduler->running.first; s; s = s->after)
        s->steps_waited++;
    for (uint32_t i = 0; i < plan->prefill_count; i++)
        plan_prefill(planned, scheduler->policy_sequences[plan->prefills[i].index],
                     plan->prefills[i].tokens);
    for (uint32_t i = 0; i < plan->decode_count; i++)
        plan_decode(scheduler, planned, scheduler->policy_sequences[plan->decodes[i]]);
}

int scheduler_plan_step(struct scheduler *scheduler, struct fault *fault)
{
    struct planned *planned = &scheduler->slots[scheduler->submitted % SLOTS];
    /* A start, a token and an end for each row, and the log-probabilities of a whole chunk. */
    uint32_t room = 3 * scheduler->limits.batch.rows + scheduler->options.prefill_tokens;
    struct policy_input input;
    int r;

    if (scheduler_event_room(scheduler) < room)
        return 0;
    batch_reset(planned->batch);
    planned->sequence_count = 0;
    planned->closed_count = 0;
    planned->events = 0;
    describe(scheduler, &input);
    policy_plan(&input, &scheduler->plan);
    apply_plan(scheduler, &input, planned);
    if (planned->sequence_count == 0 && scheduler->close_count == 0 && !scheduler->closing.first)
        return 0;
    plan_closes(scheduler, planned);
    planned->batch->number = scheduler->next_batch++;
    scheduler->events_promised += planned->events;
    r = engine_submit(scheduler->engine, planned->batch, fault);
    if (r < 0)
        return r;
    scheduler->submitted++;
    return 1;
}
