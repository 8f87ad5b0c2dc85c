/* scheduler_result.c -- what a completed step means: events, ends, pages that go back.
 *
 * Results of a sequence that has ended meanwhile are dropped. Those of a preempted one are taken
 * like any others, so no token is lost, and none is computed twice. */
#include "scheduler/scheduler_internal.h"

#include <math.h>
#include <string.h>

#include "config/base/clock.h"

enum {
    RATE_WINDOW_NS = 1000000000,
    RATE_WINDOW_MAX = 30, /* windows, when few sequences finish */
    RATE_FINISHED_MIN = 16,
    ANSWERS_REMEMBERED = 32, /* one more answer counts for so small a part of the mean */
};

static void emit_end(struct scheduler *scheduler, struct sequence *sequence,
                     enum finish_reason reason)
{
    uint64_t arrived_ns = sequence->owner->request->arrived_ns;
    uint64_t admitted_ns = sequence->admitted_ns;
    uint64_t prefilled_ns = sequence->first_token_ns ? sequence->first_token_ns : clock_now();
    struct event event = {.exchange_id = sequence->owner->request->exchange_id,
                          .choice = sequence->choice,
                          .kind = EVENT_FINISH};

    if (sequence->end_code < 0) {
        event.kind = EVENT_FAILURE;
        event.failure = scheduler_failure(scheduler, sequence, sequence->end_code);
    } else {
        event.finish = (struct event_finish){
            .reason = reason,
            .prompt_tokens = sequence->prompt_count,
            .cached_tokens = sequence->cached,
            .generated_tokens = sequence_generated(sequence),
            .preemptions = sequence->preemptions,
            .queued_ns = admitted_ns > arrived_ns ? admitted_ns - arrived_ns : 0,
            .prefill_ns = prefilled_ns - admitted_ns,
            .decode_ns = sequence->last_token_ns - sequence->first_token_ns};
    }
    scheduler_emit(scheduler, &event);
    sequence->told = true;
}

static struct sequence_list *list_of(struct scheduler *scheduler, const struct sequence *sequence)
{
    switch (sequence->state) {
    case SEQUENCE_WAITING:
        return &scheduler->waiting;
    case SEQUENCE_RUNNING:
        return &scheduler->running;
    case SEQUENCE_LEAVING:
        return &scheduler->leaving;
    case SEQUENCE_CLOSING:
        break;
    }
    return &scheduler->closing;
}

static void leave(struct scheduler *scheduler, struct sequence *sequence)
{
    sequence_list_remove(list_of(scheduler, sequence), sequence);
    sequence_list_append(&scheduler->leaving, sequence);
    sequence->state = SEQUENCE_LEAVING;
    sequence->ended = true;
    sequence->held = false;
    sequence->token_count -= sequence->unsent; /* nobody will hear of them */
    sequence->unsent = 0;
    sequence->preempted = false;
    sequence_leave_group(sequence);
    if (!sequence->started) { /* it leaves the queue without having been admitted */
        sequence->started = true;
        sequence->admitted_ns = clock_now();
        atomic_fetch_sub(&scheduler->queued, 1);
    }
}

void scheduler_end(struct scheduler *scheduler, struct sequence *sequence, int code)
{
    sequence->end_code = code;
    sequence->end_reason = FINISH_CANCELLED;
    leave(scheduler, sequence);
    count(code < 0 ? &scheduler->published.failed_total : &scheduler->published.cancelled_total, 1);
}

static void count_finished(struct scheduler *scheduler, const struct sequence *sequence,
                           enum finish_reason reason)
{
    scheduler->rate.finished++;
    if (sequence->max_tokens > 0)
        scheduler->answer_tokens +=
            (sequence_generated(sequence) - scheduler->answer_tokens) / ANSWERS_REMEMBERED;
    count(reason == FINISH_STOP ? &scheduler->published.finished_stop_total
                                : &scheduler->published.finished_length_total,
          1);
}

static void finish(struct scheduler *scheduler, struct sequence *sequence,
                   enum finish_reason reason)
{
    leave(scheduler, sequence);
    emit_end(scheduler, sequence, reason);
    count_finished(scheduler, sequence, reason);
}

void scheduler_finish_complete(struct scheduler *scheduler, struct sequence *sequence)
{
    sequence->end_reason = FINISH_STOP;
    leave(scheduler, sequence);
    count_finished(scheduler, sequence, FINISH_STOP);
}

/* --- results ---------------------------------------------------------------------------------- */

static void send_token(struct scheduler *scheduler, struct sequence *sequence, uint32_t position,
                       const struct step_row *row, uint64_t now_ns)
{
    struct event event = {.exchange_id = sequence->owner->request->exchange_id,
                          .choice = sequence->choice,
                          .kind = EVENT_TOKEN};

    event.token = (struct event_token){.token = row->token,
                                       .logprob = row->logprob,
                                       .rank = row->rank,
                                       .position = position,
                                       .top_count = row->top_count};
    memcpy(event.token.top, row->top, row->top_count * sizeof *row->top);
    if (!sequence->first_token_ns)
        sequence->first_token_ns = now_ns;
    sequence->last_token_ns = now_ns;
    count(&scheduler->published.generated_tokens_total, 1);
    scheduler_emit(scheduler, &event);
}

static void take_token(struct scheduler *scheduler, struct sequence *sequence,
                       const struct step_row *row, uint64_t now_ns)
{
    must(sequence_generated(sequence) < sequence->max_tokens && sequence->unsent == 0);
    send_token(scheduler, sequence, sequence->token_count, row, now_ns);
    sequence->tokens[sequence->token_count++] = row->token;
}

void scheduler_send_undrawn(struct scheduler *scheduler, struct sequence *sequence)
{
    uint64_t now_ns = clock_now();

    for (; sequence->unsent > 0; sequence->unsent--) {
        uint32_t position = sequence->token_count - sequence->unsent;
        const struct step_row row = {.token = sequence->tokens[position], .logprob = NAN};

        send_token(scheduler, sequence, position, &row, now_ns);
        count(&scheduler->published.jump_tokens_total, 1);
    }
}

static void take_row(struct scheduler *scheduler, struct sequence *sequence,
                     const struct step_row *row, uint64_t now_ns)
{
    if (sequence->ended)
        return;
    switch (row->state) {
    case STEP_ROW_IDLE:
    case STEP_ROW_PARTIAL:
        break;
    case STEP_ROW_TOKEN:
        take_token(scheduler, sequence, row, now_ns);
        if (sequence->mask)
            scheduler_mask_learn(scheduler, sequence);
        break;
    case STEP_ROW_LATE:
        scheduler_mask_late(scheduler, sequence);
        break;
    case STEP_ROW_END:
        take_token(scheduler, sequence, row, now_ns);
        finish(scheduler, sequence, FINISH_STOP);
        break;
    case STEP_ROW_LENGTH:
        take_token(scheduler, sequence, row, now_ns);
        finish(scheduler, sequence, FINISH_LENGTH);
        break;
    case STEP_ROW_SCORED:
        finish(scheduler, sequence, FINISH_LENGTH);
        break;
    }
}

/* A prompt that is computed again after a preemption is not reported again. */
static void take_prompt(struct scheduler *scheduler, struct sequence *sequence,
                        const struct step_prompt *prompt)
{
    struct event event = {.exchange_id = sequence->owner->request->exchange_id,
                          .choice = sequence->choice,
                          .kind = EVENT_PROMPT};

    if (sequence->ended || prompt->position <= sequence->prompt_reported)
        return;
    sequence->prompt_reported = prompt->position;
    event.token = (struct event_token){.token = prompt->token,
                                       .logprob = prompt->logprob,
                                       .rank = prompt->rank,
                                       .position = prompt->position,
                                       .top_count = prompt->top_count};
    memcpy(event.token.top, prompt->top, prompt->top_count * sizeof *prompt->top);
    scheduler_emit(scheduler, &event);
}

/* Full pages get the name of their content, which lays the ground for sharing them. */
static void name_pages(struct scheduler *scheduler, struct sequence *sequence)
{
    uint32_t page_tokens = scheduler->limits.page_tokens;
    uint32_t known =
        sequence->computed < sequence->token_count ? sequence->computed : sequence->token_count;

    while ((sequence->pages_named + 1) * page_tokens <= known) {
        const int32_t *tokens = sequence->tokens + (size_t)sequence->pages_named * page_tokens;

        sequence->hash = prefix_next(&scheduler->prefix_key, sequence->hash, tokens, page_tokens);
        kv_pages_name(scheduler->pages, sequence->pages[sequence->pages_named++], sequence->hash);
    }
}

static void take_results(struct scheduler *scheduler, struct planned *planned,
                         const struct step *step)
{
    const struct batch *batch = planned->batch;
    uint32_t prompt = 0;
    uint64_t now_ns = clock_now();

    must(step->row_count == planned->sequence_count);
    for (uint32_t i = 0; i < step->row_count; i++) {
        struct sequence *sequence = planned->sequences[i];
        const struct step_row *row = &step->rows[i];
        bool samples = row->state != STEP_ROW_PARTIAL && row->state != STEP_ROW_SCORED;

        sequence->in_flight--;
        if (sequence->stale > 0) {
            sequence->stale--;
            while (prompt < step->prompt_count && step->prompts[prompt].row == row->row)
                prompt++;
            continue;
        }
        sequence->sampling_in_flight -= samples;
        for (; prompt < step->prompt_count && step->prompts[prompt].row == row->row; prompt++)
            take_prompt(scheduler, sequence, &step->prompts[prompt]);
        if (i < batch->prefill_count) {
            sequence->computed = batch->prefills[i].position + batch->prefills[i].count;
            count(&scheduler->published.prompt_tokens_total, batch->prefills[i].count);
        } else if (row->state != STEP_ROW_IDLE) {
            sequence->computed++;
        }
        if (!sequence->ended)
            name_pages(scheduler, sequence);
        take_row(scheduler, sequence, row, now_ns);
    }
}

/* A window is long enough for its count to mean something, and no longer. */
static void measure_rate(struct scheduler *scheduler, uint64_t now_ns)
{
    struct rate *rate = &scheduler->rate;
    uint64_t passed_ns = now_ns - rate->since_ns;
    double before = atomic_load(&scheduler->published.sequences_per_second);
    double now;

    if (passed_ns < RATE_WINDOW_NS)
        return;
    if (rate->finished < RATE_FINISHED_MIN && passed_ns / RATE_WINDOW_NS < RATE_WINDOW_MAX &&
        !(before == 0 && rate->finished > 0))
        return;
    now = (double)rate->finished / clock_seconds(passed_ns);
    atomic_store(&scheduler->published.sequences_per_second, before > 0 ? (before + now) / 2 : now);
    *rate = (struct rate){.since_ns = now_ns};
}

int scheduler_complete_step(struct scheduler *scheduler, struct fault *fault)
{
    struct planned *planned = &scheduler->slots[scheduler->completed % SLOTS];
    struct step step;
    int r = engine_complete(scheduler->engine, &step, fault);

    if (r < 0)
        return r;
    scheduler->completed++;
    scheduler->events_promised -= planned->events;
    take_results(scheduler, planned, &step);
    scheduler_free_sequences(scheduler, &planned->closed);
    count(&scheduler->published.steps_total, 1);
    atomic_store(&scheduler->published.step_ns_last, step.ended_ns - step.started_ns);
    count(&scheduler->published.step_ns_total, step.ended_ns - step.started_ns);
    atomic_store(&scheduler->published.heartbeat_ns, clock_now());
    measure_rate(scheduler, clock_now());
    return 0;
}

/* --- leaving ---------------------------------------------------------------------------------- */

static void free_sequence(struct scheduler *scheduler, struct sequence *sequence)
{
    struct running_request *owner = sequence->owner;

    if (--owner->sequences_left > 0)
        return;
    for (uint32_t i = 0; i < owner->request->prompt_count; i++)
        must(!owner->groups[i].source && owner->groups[i].holders == 0);
    if (owner->request->constraint.constraint)
        scheduler_masks_retire(scheduler, owner);
    else
        request_free(owner->request); /* the sequences lie in its arena */
}

void scheduler_free_sequences(struct scheduler *scheduler, struct sequence_list *list)
{
    while (list->first) {
        struct sequence *sequence = list->first;

        sequence_list_remove(list, sequence);
        free_sequence(scheduler, sequence);
    }
}

static void give_row_back(struct scheduler *scheduler, struct sequence *sequence)
{
    if (sequence->row == ROW_NONE)
        return;
    if (sequence->row_open)
        scheduler->close_rows[scheduler->close_count++] = sequence->row;
    scheduler->rows_free[scheduler->row_free_count++] = sequence->row;
    sequence->row = ROW_NONE;
    sequence->row_open = false;
}

static void settle_one(struct scheduler *scheduler, struct sequence *sequence)
{
    if (sequence->ended && !sequence->told &&
        (scheduler->stopping || scheduler_event_room(scheduler) > 0)) {
        if (scheduler_event_room(scheduler) > 0)
            emit_end(scheduler, sequence, sequence->end_reason);
        sequence->told = true;
    }
    if ((sequence->in_flight > 0 && !scheduler->failed) || sequence_mask_busy(sequence))
        return;
    sequence->group->holders -= sequence->page_count > 0;
    while (sequence->page_count > 0)
        kv_pages_drop(scheduler->pages, sequence->pages[--sequence->page_count]);
    give_row_back(scheduler, sequence);
    if (sequence->preempted) {
        sequence_list_remove(&scheduler->leaving, sequence);
        sequence->preempted = false;
        sequence->state = SEQUENCE_WAITING;
        sequence_list_insert(&scheduler->waiting, sequence);
        scheduler_mask_wait(scheduler, sequence);
    } else if (sequence->told) {
        sequence_list_remove(&scheduler->leaving, sequence);
        /* What was never lent, or lent to an engine that runs no more, is freed at once. */
        if (!sequence->lent || scheduler->failed) {
            free_sequence(scheduler, sequence);
        } else {
            sequence->state = SEQUENCE_CLOSING;
            sequence_list_append(&scheduler->closing, sequence);
        }
    }
}

void scheduler_settle(struct scheduler *scheduler)
{
    struct sequence *next;

    for (struct sequence *s = scheduler->leaving.first; s; s = next) {
        next = s->after;
        settle_one(scheduler, s);
    }
}
