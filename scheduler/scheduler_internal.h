/* scheduler_internal.h -- what the scheduler's own files share; nobody else includes it.
 *
 *     scheduler.c          opening, closing, the thread
 *     scheduler_intake.c   the loop's side of the rings, and what the thread receives
 *     scheduler_plan.c     policy -> batch
 *     scheduler_masks.c    constrained answers: jobs, what is held, text that must follow
 *     scheduler_result.c   step -> events, ends, pages
 *
 * Everything but the rings, `queued`, `stop_asked` and `published` belongs to the scheduler's
 * thread. */
#ifndef WEFT_SCHEDULER_INTERNAL_H
#define WEFT_SCHEDULER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "config/base/ring.h"
#include "scheduler/kv_pages.h"
#include "scheduler/mask_pool.h"
#include "scheduler/policy.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence.h"

enum { SLOTS = ENGINE_STEPS_IN_FLIGHT + 1 }; /* batches: two in flight and one being planned */

/* Moves a request (`request` set), or cancels. */
struct submission {
    struct request *request;
    uint64_t exchange_id;
    uint32_t choice;
};

/* A request that cannot be run, whose choices are told so as the event ring has room. */
struct refusal {
    struct request *request; /* NULL: none */
    int code;
    uint32_t next_choice;
};

/* A batch, and whom its rows belong to: prefills first, then decodes, as in the step's rows. */
struct planned {
    struct batch *batch;
    uint32_t sequence_count;
    struct sequence **sequences;
    struct sequence_list closed; /* freed when the batch has completed */
    uint32_t events;             /* the most that its results can emit */
};

/* One atomic for each field of struct scheduler_stats. */
struct published {
    _Atomic uint64_t running, waiting, pages_total, pages_free, steps_total, prompt_tokens_total,
        generated_tokens_total, preemptions_total, finished_stop_total, finished_length_total,
        cancelled_total, failed_total, rejected_total, step_ns_last, step_ns_total, heartbeat_ns,
        masks_late_total, jump_tokens_total, mask_ns_total, masks[MASK_BOUNDS + 1];
    atomic_bool work_waiting, device_failed;
    _Atomic double sequences_per_second;
};

/* What was finished since when; see measure_rate(). */
struct rate {
    uint64_t since_ns;
    uint32_t finished;
};

struct scheduler {
    struct engine *engine;
    struct engine_limits limits;
    struct scheduler_options options;
    struct ring *submissions;
    struct ring *events;
    atomic_uint queued; /* sequences handed in and not yet admitted for the first time */
    atomic_bool stop_asked;
    struct published published;
    pthread_t thread;
    bool thread_runs;

    struct kv_pages *pages;
    struct prefix_key prefix_key;
    uint32_t *rows_free;
    uint32_t row_free_count;
    uint64_t next_order;
    struct sequence_list waiting; /* both in order of arrival */
    struct sequence_list running;
    struct sequence_list leaving; /* in flight still, or not told yet */
    struct sequence_list closing; /* freed with the next batch */
    struct refusal refusal;
    uint32_t close_count; /* rows that the next batch closes */
    uint32_t *close_rows;
    struct planned slots[SLOTS];
    uint64_t submitted; /* batches ever */
    uint64_t completed;
    uint32_t events_promised; /* by batches in flight */
    bool rang;                /* events were emitted since the last bell */
    bool stopping;
    bool failed;
    struct fault failure; /* the device's, where `failed` */
    double answer_tokens; /* how long answers have been lately */
    struct rate rate;

    struct mask_pool *mask_pool;
    uint32_t jump_room; /* events that the plan being made may still send of undrawn tokens */

    uint64_t plans;                        /* made so far */
    struct policy_running *policy_running; /* the policy's arrays, [rows] each */
    struct policy_waiting *policy_waiting;
    struct sequence **shown_running; /* whom they describe */
    struct sequence **shown_waiting;
    struct policy_plan plan;
};

/* scheduler_intake.c */
/* Takes what came, waiting until `deadline_ns` for the first; 0: not at all. */
void scheduler_receive(struct scheduler *scheduler, uint64_t deadline_ns);
/* Ends everybody, as cancelled or failed (code < 0). */
void scheduler_end_everybody(struct scheduler *scheduler, int code);

/* scheduler_masks.c */
/* Takes what the mask threads have done. */
void scheduler_masks_collect(struct scheduler *scheduler);
/* The sequence waits for admission: what must come first is worked out meanwhile. */
void scheduler_mask_wait(struct scheduler *scheduler, struct sequence *sequence);
/* It has been admitted, its tokens not shown yet. */
void scheduler_mask_admit(struct scheduler *scheduler, struct sequence *sequence);
/* Its newest token is known, and not its last. */
void scheduler_mask_learn(struct scheduler *scheduler, struct sequence *sequence);
/* A step has found no mask. */
void scheduler_mask_late(struct scheduler *scheduler, struct sequence *sequence);
/* Opens rows again that were held, where the job is done. */
void scheduler_masks_resume(struct scheduler *scheduler);
/* Forgets a request whose sequences have all ended. */
void scheduler_masks_retire(struct scheduler *scheduler, struct running_request *owner);

/* scheduler_plan.c */
/* Takes pages back; the sequence waits again as soon as nothing is in flight. */
void scheduler_preempt(struct scheduler *scheduler, struct sequence *sequence);
/* Plans and submits the next batch. Returns 1 when something moved, 0 when there is nothing to do
 * or no room for its events, E_DEVICE. */
int scheduler_plan_step(struct scheduler *scheduler, struct fault *fault);

/* scheduler_result.c */
/* Waits for the oldest batch and spreads its results. Returns 0 or E_DEVICE. */
int scheduler_complete_step(struct scheduler *scheduler, struct fault *fault);
/* Sends what is due of sequences that leave, gives pages back, hands rows on to be closed. */
void scheduler_settle(struct scheduler *scheduler);
/* Takes a token that was not drawn as if it had been. */
void scheduler_send_undrawn(struct scheduler *scheduler, struct sequence *sequence);
/* Ends a sequence whose constraint is complete; the event follows when there is room. */
void scheduler_finish_complete(struct scheduler *scheduler, struct sequence *sequence);
/* Ends a sequence that waits, runs or leaves preempted, as cancelled or failed (code < 0). */
void scheduler_end(struct scheduler *scheduler, struct sequence *sequence, int code);
/* Forgets sequences that nobody refers to any more; a request goes with its last. */
void scheduler_free_sequences(struct scheduler *scheduler, struct sequence_list *list);

/* scheduler.c */
uint32_t scheduler_in_flight(const struct scheduler *scheduler);
/* Events that may be sent now, beside those promised to batches in flight. */
uint32_t scheduler_event_room(const struct scheduler *scheduler);
void scheduler_emit(struct scheduler *scheduler, struct event *event);
/* What an EVENT_FAILURE says of the code, and of the sequence, if there is one. */
struct event_failure scheduler_failure(const struct scheduler *scheduler,
                                       const struct sequence *sequence, int code);

static inline void count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

#endif
