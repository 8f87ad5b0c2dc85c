/* scheduler.c -- the scheduler's thread: receive, settle, plan, submit, complete, emit.
 *
 *     receive what came -> settle those that leave -> plan and submit while fewer than two steps
 *     are in flight -> else complete the oldest -> ring the bell -> again
 *
 * So the plan of step N+1 is made while N runs. With nothing to do the thread sleeps on the
 * submission ring; when the reader of the event ring lags it looks again every few milliseconds,
 * which is the one place where it polls. */
#include "scheduler/scheduler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "scheduler/scheduler_internal.h"

enum {
    LAGGING_READER_NS = 2000000,
    CANCELS_IN_RING_MAX = 1024, /* room beside the requests */
    ANSWER_TOKENS = 64,         /* how long answers are taken to be before any was seen */
    MASK_THREADS_MIN = 2,       /* one for slow masks */
    MASK_THREADS_MAX = 8,
};

uint32_t scheduler_in_flight(const struct scheduler *scheduler)
{
    return (uint32_t)(scheduler->submitted - scheduler->completed);
}

uint32_t scheduler_event_room(const struct scheduler *scheduler)
{
    size_t room = ring_room(scheduler->events);

    return room > scheduler->events_promised ? (uint32_t)(room - scheduler->events_promised) : 0;
}

void scheduler_emit(struct scheduler *scheduler, struct event *event)
{
    event->made_ns = clock_now();
    must(ring_push(scheduler->events, event) == 0); /* room was made sure of */
    scheduler->rang = true;
}

struct event_failure scheduler_failure(const struct scheduler *scheduler,
                                       const struct sequence *sequence, int code)
{
    const struct fault *fault = sequence && sequence->mask ? &sequence->mask->job.fault : NULL;
    struct event_failure failure = {.code = code};

    if (code == E_DEVICE)
        fault = &scheduler->failure;
    if (fault && fault->code == code)
        (void)snprintf(failure.message, sizeof failure.message, "%.*s",
                       (int)sizeof failure.message - 1, fault->message);
    return failure;
}

/* Rows to close are no work once it stops: the engine closes with them. */
static bool has_work(const struct scheduler *scheduler)
{
    return scheduler->waiting.first || scheduler->running.first || scheduler->leaving.first ||
           scheduler->refusal.request || scheduler_in_flight(scheduler) > 0 ||
           (!scheduler->stopping && (scheduler->closing.first || scheduler->close_count));
}

static void publish(struct scheduler *scheduler)
{
    struct published *published = &scheduler->published;

    atomic_store(&published->running, scheduler->running.count + scheduler->leaving.count);
    atomic_store(&published->waiting, scheduler->waiting.count);
    atomic_store(&published->pages_free, kv_pages_free(scheduler->pages));
    atomic_store(&published->work_waiting, scheduler->waiting.first || scheduler->running.first);
}

static void ring_bell(struct scheduler *scheduler)
{
    if (!scheduler->rang)
        return;
    scheduler->rang = false;
    scheduler->options.bell(scheduler->options.bell_data);
}

/* The engine looks at nothing that it was lent any more: nobody waits for a batch to complete. */
static void fail(struct scheduler *scheduler, const struct fault *fault)
{
    log_event(LOG_ERROR, "device_failed", LOG_STR("message", fault->message));
    scheduler->failed = true;
    scheduler->failure = *fault;
    scheduler->events_promised = 0;
    scheduler->completed = scheduler->submitted;
    for (uint32_t i = 0; i < SLOTS; i++)
        scheduler_free_sequences(scheduler, &scheduler->slots[i].closed);
    scheduler_free_sequences(scheduler, &scheduler->closing);
    scheduler->close_count = 0;
    /* First, so that whoever hears of a failed answer finds the server unhealthy. */
    atomic_store(&scheduler->published.device_failed, true);
    scheduler_end_everybody(scheduler, E_DEVICE);
}

/* Returns whether anything moved; false: it must wait for the reader of the events. */
static bool advance(struct scheduler *scheduler)
{
    struct fault fault = {0};
    int r = 0;

    if (scheduler->failed)
        return false;
    if (scheduler_in_flight(scheduler) < ENGINE_STEPS_IN_FLIGHT)
        r = scheduler_plan_step(scheduler, &fault);
    if (r == 0 && scheduler_in_flight(scheduler) > 0) {
        r = scheduler_complete_step(scheduler, &fault);
        if (r == 0)
            return true;
    }
    if (r < 0)
        fail(scheduler, &fault);
    return r != 0;
}

static void *run(void *data)
{
    struct scheduler *scheduler = data;
    uint64_t deadline_ns = UINT64_MAX;

    while (!scheduler->stopping || has_work(scheduler)) {
        bool moved;

        scheduler_receive(scheduler, deadline_ns);
        scheduler_masks_collect(scheduler);
        scheduler_settle(scheduler);
        moved = advance(scheduler);
        scheduler_settle(scheduler);
        publish(scheduler);
        ring_bell(scheduler);
        if (moved)
            deadline_ns = 0;
        else
            deadline_ns = has_work(scheduler) ? clock_now() + LAGGING_READER_NS : UINT64_MAX;
    }
    scheduler_free_sequences(scheduler, &scheduler->closing);
    return NULL;
}

/* --- opening ---------------------------------------------------------------------------------- */

static int planned_open(struct scheduler *scheduler, struct planned *planned, struct fault *fault)
{
    uint32_t rows = scheduler->limits.batch.rows;
    int r = batch_open(&scheduler->limits.batch, &planned->batch, fault);

    if (r < 0)
        return r;
    planned->sequences = calloc(rows, sizeof *planned->sequences);
    if (!planned->sequences)
        return fault_set(fault, E_MEMORY, "no memory for the scheduler's batches");
    return 0;
}

static int arrays_open(struct scheduler *scheduler, struct fault *fault)
{
    uint32_t rows = scheduler->limits.batch.rows;
    struct policy_plan *plan = &scheduler->plan;

    scheduler->rows_free = calloc(rows, sizeof *scheduler->rows_free);
    scheduler->close_rows = calloc(rows, sizeof *scheduler->close_rows);
    scheduler->policy_running = calloc(rows, sizeof *scheduler->policy_running);
    scheduler->policy_waiting = calloc(rows, sizeof *scheduler->policy_waiting);
    scheduler->shown_running = calloc(rows, sizeof *scheduler->shown_running);
    scheduler->shown_waiting = calloc(rows, sizeof *scheduler->shown_waiting);
    plan->decodes = calloc(rows, sizeof *plan->decodes);
    plan->preempts = calloc(rows, sizeof *plan->preempts);
    plan->admits = calloc(rows, sizeof *plan->admits);
    plan->prefills = calloc(rows, sizeof *plan->prefills);
    if (!scheduler->rows_free || !scheduler->close_rows || !scheduler->policy_running ||
        !scheduler->policy_waiting || !scheduler->shown_running || !scheduler->shown_waiting ||
        !plan->decodes || !plan->preempts || !plan->admits || !plan->prefills)
        return fault_set(fault, E_MEMORY, "no memory for the scheduler's rows");
    for (uint32_t i = 0; i < rows; i++)
        scheduler->rows_free[i] = rows - 1 - i;
    scheduler->row_free_count = rows;
    for (uint32_t i = 0; i < SLOTS; i++) {
        int r = planned_open(scheduler, &scheduler->slots[i], fault);

        if (r < 0)
            return r;
    }
    return 0;
}

static int rings_open(struct scheduler *scheduler, struct fault *fault)
{
    /* Two steps in flight and one being planned, with a start, a token and an end for each row; and
     * at least one jump. */
    uint64_t least = SLOTS * (3 * (uint64_t)scheduler->limits.batch.rows +
                              scheduler->limits.batch.prefill_tokens) +
                     MASK_JUMP_MAX;
    uint64_t events = scheduler->options.event_capacity;
    uint64_t submissions = (uint64_t)scheduler->options.queue_length_max + CANCELS_IN_RING_MAX;

    if (events < least)
        events = least;
    if (ring_open(submissions, sizeof(struct submission), &scheduler->submissions) < 0 ||
        ring_open(events, sizeof(struct event), &scheduler->events) < 0)
        return fault_set(fault, E_MEMORY, "no memory for the scheduler's rings");
    return 0;
}

static void mask_done(void *data)
{
    struct scheduler *scheduler = data;

    ring_wake(scheduler->submissions); /* it may be asleep */
}

static int masks_open(struct scheduler *scheduler, struct fault *fault)
{
    uint32_t threads = scheduler->options.mask_threads;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    if (threads == 0)
        threads = processors / 4 > MASK_THREADS_MIN ? (uint32_t)processors / 4 : MASK_THREADS_MIN;
    if (threads > MASK_THREADS_MAX)
        threads = MASK_THREADS_MAX;
    return mask_pool_open(threads, (scheduler->limits.vocabulary + 31) / 32, mask_done, scheduler,
                          &scheduler->mask_pool, fault);
}

static int start(struct scheduler *scheduler, struct fault *fault)
{
    int r = prefix_key_init(&scheduler->prefix_key);

    if (r < 0)
        return fault_set(fault, r, "the system has no random numbers for the prefix hashes");
    if (kv_pages_open(scheduler->limits.page_count, &scheduler->pages) < 0)
        return fault_set(fault, E_MEMORY, "no memory for %u page counters",
                         scheduler->limits.page_count);
    r = arrays_open(scheduler, fault);
    if (r == 0)
        r = rings_open(scheduler, fault);
    if (r < 0)
        return r;
    atomic_store(&scheduler->published.pages_total, scheduler->limits.page_count);
    atomic_store(&scheduler->published.pages_free, scheduler->limits.page_count);
    atomic_store(&scheduler->published.heartbeat_ns, clock_now());
    r = masks_open(scheduler, fault);
    if (r < 0)
        return r;
    scheduler->rate.since_ns = clock_now();
    scheduler->answer_tokens = ANSWER_TOKENS;
    r = pthread_create(&scheduler->thread, NULL, run, scheduler);
    if (r != 0) {
        errno = r;
        return fault_errno(fault, "cannot start the scheduler's thread");
    }
    scheduler->thread_runs = true;
    return 0;
}

int scheduler_open(struct engine *engine, const struct scheduler_options *options,
                   struct scheduler **ret_scheduler, struct fault *fault)
{
    struct scheduler *scheduler = calloc(1, sizeof *scheduler);
    int r;

    if (!scheduler)
        return fault_set(fault, E_MEMORY, "no memory for the scheduler");
    scheduler->engine = engine;
    scheduler->options = *options;
    scheduler->limits = *engine_limits(engine);
    r = start(scheduler, fault);
    if (r < 0)
        scheduler_close(scheduler);
    else
        *ret_scheduler = scheduler;
    return r;
}

static void drop_submissions(struct scheduler *scheduler)
{
    struct submission submission;

    while (scheduler->submissions && ring_pop(scheduler->submissions, &submission))
        request_free(submission.request);
}

void scheduler_close(struct scheduler *scheduler)
{
    if (!scheduler)
        return;
    if (scheduler->thread_runs) {
        atomic_store(&scheduler->stop_asked, true);
        ring_wake(scheduler->submissions);
        (void)pthread_join(scheduler->thread, NULL);
    }
    mask_pool_close(scheduler->mask_pool);
    drop_submissions(scheduler);
    for (uint32_t i = 0; i < SLOTS; i++) {
        batch_close(scheduler->slots[i].batch);
        free(scheduler->slots[i].sequences);
    }
    free(scheduler->rows_free);
    free(scheduler->close_rows);
    free(scheduler->policy_running);
    free(scheduler->policy_waiting);
    free(scheduler->shown_running);
    free(scheduler->shown_waiting);
    free(scheduler->plan.decodes);
    free(scheduler->plan.preempts);
    free(scheduler->plan.admits);
    free(scheduler->plan.prefills);
    ring_close(scheduler->submissions);
    ring_close(scheduler->events);
    kv_pages_close(scheduler->pages);
    free(scheduler);
}

void scheduler_stats_get(const struct scheduler *scheduler, struct scheduler_stats *ret_stats)
{
    struct published *p =
        (struct published *)&scheduler->published; /* atomics load from non-const */

    *ret_stats =
        (struct scheduler_stats){.running = atomic_load(&p->running),
                                 .waiting = atomic_load(&p->waiting),
                                 .pages_total = atomic_load(&p->pages_total),
                                 .pages_free = atomic_load(&p->pages_free),
                                 .steps_total = atomic_load(&p->steps_total),
                                 .prompt_tokens_total = atomic_load(&p->prompt_tokens_total),
                                 .generated_tokens_total = atomic_load(&p->generated_tokens_total),
                                 .preemptions_total = atomic_load(&p->preemptions_total),
                                 .finished_stop_total = atomic_load(&p->finished_stop_total),
                                 .finished_length_total = atomic_load(&p->finished_length_total),
                                 .cancelled_total = atomic_load(&p->cancelled_total),
                                 .failed_total = atomic_load(&p->failed_total),
                                 .rejected_total = atomic_load(&p->rejected_total),
                                 .step_ns_last = atomic_load(&p->step_ns_last),
                                 .step_ns_total = atomic_load(&p->step_ns_total),
                                 .mask_ns_total = atomic_load(&p->mask_ns_total),
                                 .masks_late_total = atomic_load(&p->masks_late_total),
                                 .jump_tokens_total = atomic_load(&p->jump_tokens_total),
                                 .heartbeat_ns = atomic_load(&p->heartbeat_ns),
                                 .work_waiting = atomic_load(&p->work_waiting),
                                 .device_failed = atomic_load(&p->device_failed),
                                 .sequences_per_second = atomic_load(&p->sequences_per_second)};
    for (uint32_t i = 0; i <= MASK_BOUNDS; i++)
        ret_stats->masks[i] = atomic_load(&p->masks[i]);
}
