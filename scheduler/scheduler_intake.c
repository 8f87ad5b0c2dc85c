/* scheduler_intake.c -- what comes in: the loop's side of the rings, and what the thread makes of
 * it.
 *
 * A request that cannot be run becomes a refusal: an EVENT_FAILURE for each choice, as the event
 * ring has room for them. Until the last is sent nothing else is received, so that one is all there
 * is to remember. */
#include "scheduler/scheduler_internal.h"

#include "config/base/clock.h"

/* --- the loop's side -------------------------------------------------------------------------- */

int scheduler_submit(struct scheduler *scheduler, struct request *request)
{
    const struct submission submission = {.request = request};
    uint32_t choices = request->prompt_count * request->choices;
    uint32_t queued = atomic_fetch_add(&scheduler->queued, choices);

    /* An empty queue takes a request that is larger than itself, which could never come in else. */
    if ((queued > 0 && queued + (uint64_t)choices > scheduler->options.queue_length_max) ||
        ring_push(scheduler->submissions, &submission) < 0) {
        atomic_fetch_sub(&scheduler->queued, choices);
        count(&scheduler->published.rejected_total, choices);
        return E_FULL;
    }
    return 0;
}

int scheduler_cancel(struct scheduler *scheduler, uint64_t exchange_id, uint32_t choice)
{
    const struct submission submission = {.exchange_id = exchange_id, .choice = choice};

    return ring_push(scheduler->submissions, &submission);
}

bool scheduler_next(struct scheduler *scheduler, struct event *ret_event)
{
    return ring_pop(scheduler->events, ret_event);
}

/* --- the thread's side ------------------------------------------------------------------------ */

static void refuse(struct scheduler *scheduler, struct request *request, int code)
{
    uint32_t choices = request->prompt_count * request->choices;

    atomic_fetch_sub(&scheduler->queued, choices);
    count(&scheduler->published.failed_total, choices);
    scheduler->refusal = (struct refusal){.request = request, .code = code};
}

/* Sends what is due of the refusal; who stops does not wait for a reader. */
static void refuse_on(struct scheduler *scheduler)
{
    struct refusal *refusal = &scheduler->refusal;
    struct request *request = refusal->request;

    if (!request)
        return;
    while (refusal->next_choice < request->prompt_count * request->choices &&
           scheduler_event_room(scheduler) > 0) {
        struct event event = {.exchange_id = request->exchange_id,
                              .choice = refusal->next_choice++,
                              .kind = EVENT_FAILURE,
                              .failure = scheduler_failure(scheduler, NULL, refusal->code)};

        scheduler_emit(scheduler, &event);
    }
    if (scheduler->stopping || refusal->next_choice == request->prompt_count * request->choices) {
        request_free(request);
        refusal->request = NULL;
    }
}

/* The last `choices` of those that wait are new. */
static void made(struct scheduler *scheduler, uint64_t choices)
{
    struct sequence *sequence = scheduler->waiting.last;

    scheduler->next_order += choices;
    if (!sequence->owner->request->constraint.constraint)
        return;
    while (choices-- > 1)
        sequence = sequence->before;
    for (; sequence; sequence = sequence->after)
        scheduler_mask_wait(scheduler, sequence);
}

static void receive_request(struct scheduler *scheduler, struct request *request)
{
    if (!scheduler->waiting.first && !scheduler->running.first) {
        uint64_t now_ns = clock_now();

        /* The heart beats from the moment there is work, and idle time says nothing of speed. */
        scheduler->rate.since_ns += now_ns - atomic_load(&scheduler->published.heartbeat_ns);
        atomic_store(&scheduler->published.heartbeat_ns, now_ns);
    }
    if (scheduler->stopping || scheduler->failed)
        refuse(scheduler, request, scheduler->failed ? E_DEVICE : E_CLOSED);
    else if (sequences_make(request, &scheduler->limits, scheduler->next_order,
                            &scheduler->waiting) < 0)
        refuse(scheduler, request, E_MEMORY);
    else
        made(scheduler, (uint64_t)request->prompt_count * request->choices);
}

static void end_in_list(struct scheduler *scheduler, struct sequence_list *list,
                        const struct submission *cancel, int code)
{
    struct sequence *next;

    for (struct sequence *s = list->first; s; s = next) {
        next = s->after;
        if (s->ended)
            continue;
        if (cancel && (s->owner->request->exchange_id != cancel->exchange_id ||
                       (cancel->choice != CHOICE_ALL && cancel->choice != s->choice)))
            continue;
        scheduler_end(scheduler, s, code);
    }
}

/* `cancel` NULL: everybody. Those that leave come first, since ending moves others behind them. */
static void end_matching(struct scheduler *scheduler, const struct submission *cancel, int code)
{
    end_in_list(scheduler, &scheduler->leaving, cancel, code);
    end_in_list(scheduler, &scheduler->running, cancel, code);
    end_in_list(scheduler, &scheduler->waiting, cancel, code);
}

void scheduler_end_everybody(struct scheduler *scheduler, int code)
{
    end_matching(scheduler, NULL, code);
}

void scheduler_receive(struct scheduler *scheduler, uint64_t deadline_ns)
{
    struct submission submission;
    bool wait = deadline_ns > 0;

    if (atomic_load(&scheduler->stop_asked) && !scheduler->stopping) {
        scheduler->stopping = true;
        end_matching(scheduler, NULL, 0);
        wait = false; /* there may be nothing left to wait for */
    }
    refuse_on(scheduler);
    if (wait && scheduler->refusal.request) { /* for the reader, who makes room without a word */
        clock_sleep_until(deadline_ns);
        refuse_on(scheduler);
        wait = false;
    }
    while (!scheduler->refusal.request) {
        bool got = wait ? ring_pop_wait(scheduler->submissions, &submission, deadline_ns)
                        : ring_pop(scheduler->submissions, &submission);

        if (!got)
            break;
        wait = false;
        if (submission.request)
            receive_request(scheduler, submission.request);
        else
            end_matching(scheduler, &submission, 0);
        refuse_on(scheduler);
    }
}
