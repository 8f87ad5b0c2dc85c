/* scheduler.h -- decides who runs next; owns every sequence, every KV page and the engine.
 *
 * One thread of its own: receive, plan, submit, complete, emit. Others reach it by two bounded
 * rings only: submissions go in (full = E_FULL now, a 429), events come out. The scheduler checks
 * the event ring's room before a step and waits rather than drop; the bell wakes the other side,
 * once a step.
 *
 * scheduler_submit() and scheduler_cancel() belong to one thread (the loop); statistics may be read
 * from any. */
#ifndef WEFT_SCHEDULER_H
#define WEFT_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/engine.h"
#include "scheduler/event.h"
#include "scheduler/request.h"

struct scheduler;

enum { CHOICE_ALL = UINT32_MAX };

struct scheduler_options {
    uint32_t queue_length_max; /* sequences that may wait */
    uint32_t event_capacity;   /* of the event ring */
    uint32_t prefills_max;     /* prompts mid-prefill at once */
    uint32_t mask_threads;     /* 0: as many as do for the machine */
    void (*bell)(
        void
            *data); /* new events are in the ring; called on the scheduler thread, must not block */
    void *bell_data;
};

enum { MASK_BOUNDS = 12 };

/* How long masks took is counted up to each of these, and above all of them. */
static inline uint64_t scheduler_mask_bound_ns(uint32_t i)
{
    static const uint64_t bounds[MASK_BOUNDS] = {10000,   20000,    50000,    100000,
                                                 200000,  500000,   1000000,  2000000,
                                                 5000000, 10000000, 50000000, 100000000};

    return bounds[i];
}

/* Counters rise for ever, gauges are as of the last step; never decreases by a cancel. */
struct scheduler_stats {
    uint64_t running; /* gauges */
    uint64_t waiting;
    uint64_t pages_total;
    uint64_t pages_free;
    uint64_t steps_total; /* counters */
    uint64_t prompt_tokens_total;
    uint64_t generated_tokens_total;
    uint64_t preemptions_total;
    uint64_t finished_stop_total;
    uint64_t finished_length_total;
    uint64_t cancelled_total;
    uint64_t failed_total;
    uint64_t rejected_total;
    uint64_t step_ns_last;
    uint64_t step_ns_total;
    uint64_t masks[MASK_BOUNDS + 1]; /* by scheduler_mask_bound_ns() */
    uint64_t mask_ns_total;
    uint64_t masks_late_total;  /* steps that a row sat out for want of its mask */
    uint64_t jump_tokens_total; /* that a constraint left no choice about: appended undrawn */
    uint64_t heartbeat_ns; /* clock_now() of the last finished step, or of when the work came */
    bool work_waiting;     /* something is running or waiting */
    bool device_failed;
    double sequences_per_second; /* finished lately; 0 until measured: for Retry-After */
};

/* Starts the thread. The engine belongs to the scheduler thread until scheduler_close(). */
int scheduler_open(struct engine *engine, const struct scheduler_options *options,
                   struct scheduler **ret_scheduler, struct fault *fault);
/* Cancels what still runs, stops and joins. NULL is fine. Events not read are dropped. */
void scheduler_close(struct scheduler *scheduler);

/* Moves the request on success. E_FULL: the queue is full, or the ring is; the request stays the
 * caller's. */
int scheduler_submit(struct scheduler *scheduler, struct request *request);
/* Ends one choice or all; takes effect within two steps, then one EVENT_FINISH (FINISH_CANCELLED)
 * for each choice that had not ended. E_FULL: ask again after the next bell. */
int scheduler_cancel(struct scheduler *scheduler, uint64_t exchange_id, uint32_t choice);
/* Takes the oldest event; false when there is none. One reader. */
bool scheduler_next(struct scheduler *scheduler, struct event *ret_event);
void scheduler_stats_get(const struct scheduler *scheduler, struct scheduler_stats *ret_stats);

#endif
