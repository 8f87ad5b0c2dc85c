/* sequence.h -- one choice of one request on its way through the scheduler, and the lists it stands
 * in.
 *
 *     waiting --admit--> running --last token--> leaving --nothing in flight--> closing --> freed
 *        ^                  | pages run out         | preempted
 *        '------------------'-----------------------'
 *
 * A running sequence prefills while `submitted` < `opened`, then decodes. One that leaves is in no
 * further batch; when no step that names it is in flight its pages go back, and its row is closed
 * by the next batch. What the engine was lent (tokens, sampling) lives until that batch has
 * completed.
 *
 * A preempted sequence takes the tokens in flight when it lost its pages like any others: they are
 * computed already. It resumes behind them, and its prompt then is all that it knows.
 *
 * The choices of one prompt compute it once: the first to run is the group's source, the others are
 * admitted when its steps have been submitted that fill the prompt's pages, and share these.
 *
 * One that is held to a constraint waits, before it is admitted, until what must come first is
 * known. It then decodes like the others; the mask of each token is made while the step runs that
 * draws it. Where that goes wrong it is *held*: in no batch, what is in flight for it counts for
 * nothing, and when its job is done its row is opened again with the pages that it has, behind the
 * last token that it knows. So is one whose mask was late, one that goes on with text that nobody
 * draws, and one whose constraint begins only now.
 *
 * Everything here lies in the request's arena. Owner and only thread: scheduler; a job's is for the
 * while one of the mask pool's. */
#ifndef WEFT_SEQUENCE_H
#define WEFT_SEQUENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/batch.h"
#include "scheduler/event.h"
#include "scheduler/mask_job.h"
#include "scheduler/prefix.h"
#include "scheduler/request.h"

enum { ROW_NONE = UINT32_MAX };

enum sequence_state {
    SEQUENCE_WAITING,
    SEQUENCE_RUNNING,
    SEQUENCE_LEAVING, /* told or not, its rows may be in flight */
    SEQUENCE_CLOSING, /* until the batch that closes its row has completed */
};

/* The choices of one prompt. */
struct prompt_group {
    struct sequence *source; /* a running one whose pages the others share; NULL: none runs */
    uint32_t page_count;     /* that the prompt fills and the choices share; 0: they do not */
    uint32_t holders;        /* sequences that hold those pages */
    uint64_t shown;          /* the last plan in which the policy was shown one that waits */
};

/* What holds a sequence to its constraint. */
struct sequence_mask {
    struct mask_job job;
    struct sampling sampling; /* of the constrained part, where the mask says what may end */
    bool begun;               /* the constraint holds from here on */
    bool busy;                /* the job is the pool's */
    bool again;               /* more tokens were learnt meanwhile */
    uint32_t taken;           /* tokens that the job's state has taken */
    uint32_t text_matched;    /* bytes of the text behind which it begins */
};

/* A request with sequences left. */
struct running_request {
    struct mask_work retirement; /* its states are closed on a mask thread */
    struct request *request;
    struct sequence *sequences;  /* [prompt_count * choices], by choice number */
    struct prompt_group *groups; /* [prompt_count] */
    uint32_t sequences_left;
};

struct sequence {
    struct sequence *before;
    struct sequence *after;
    struct running_request *owner;
    struct prompt_group *group;
    uint32_t choice;
    enum sequence_state state;
    uint64_t order; /* of arrival; kept over preemptions */
    struct sampling sampling;
    int32_t *tokens; /* prompt and answer; [prompt_count + max_tokens], never moves */
    uint32_t token_count;
    uint32_t prompt_count;
    uint32_t max_tokens;
    uint32_t row;                /* of the request table, while it has one */
    uint32_t opened;             /* tokens known when the row was opened */
    uint32_t submitted;          /* positions that submitted steps write, and shared ones */
    uint32_t sampling_in_flight; /* steps in flight that sample a token */
    uint32_t in_flight;          /* steps in flight that name the row */
    uint32_t *pages;
    uint32_t page_count;
    uint32_t pages_granted;     /* how many of them the engine knows */
    uint32_t pages_named;       /* full pages that carry their hash */
    struct prefix_hash hash;    /* of the last named page */
    uint32_t computed;          /* positions whose step has completed */
    struct sequence_mask *mask; /* NULL: the answer is free */
    bool held;                  /* it runs, but is in no batch until its row is opened again */
    uint32_t stale;             /* of `in_flight`, the oldest: their results count for nothing */
    uint32_t unsent;            /* the last tokens, not drawn, whose events are not sent yet */
    bool row_open;              /* a batch has opened its row */
    bool lent;                  /* a row was opened once: the engine may look at what it was lent */
    bool ended;                 /* no more tokens are wanted; with end_code */
    int end_code;               /* 0: finished or cancelled, else the failure */
    enum finish_reason end_reason; /* where the code is 0 */
    bool told;                     /* its last event is sent */
    bool preempted;                /* leaves only to wait again */
    bool started;
    uint32_t cached;          /* prompt tokens that need not be computed when it started */
    uint32_t prompt_reported; /* the last position whose EVENT_PROMPT was sent */
    uint32_t preemptions;
    uint64_t admitted_ns;
    uint64_t first_token_ns;
    uint64_t last_token_ns;
};

struct sequence_list {
    struct sequence *first;
    struct sequence *last;
    uint32_t count;
};

void sequence_list_append(struct sequence_list *list, struct sequence *sequence);
/* Keeps the list in order of `order`, looking from its end: where preempted sequences go back to,
 * ahead of those that came later. */
void sequence_list_insert(struct sequence_list *list, struct sequence *sequence);
void sequence_list_remove(struct sequence_list *list, struct sequence *sequence);

/* Makes all sequences of a request in its arena and appends them to `list`. `order` is that of the
 * first and rises by one each. No sequence gets more tokens than its own prompt leaves room for.
 * Returns 0, or E_MEMORY with nothing appended. */
int sequences_make(struct request *request, const struct engine_limits *limits, uint64_t order,
                   struct sequence_list *list);

uint32_t sequence_generated(const struct sequence *sequence);
/* Its job is a mask thread's now. */
bool sequence_mask_busy(const struct sequence *sequence);
/* Is there a token left to sample, counting those in flight? */
bool sequence_may_decode(const struct sequence *sequence);
/* The most positions that are ever computed: the last token is sampled and goes nowhere. */
uint32_t sequence_positions_max(const struct sequence *sequence);

/* Must it wait for the source of its group to fill the prompt's pages? */
bool sequence_waits_for_source(const struct sequence *sequence, uint32_t page_tokens);
/* How many pages it would share if it were admitted now. */
uint32_t sequence_pages_shared(const struct sequence *sequence);
/* Pages that nobody else holds: those that its end gives back. */
uint32_t sequence_pages_own(const struct sequence *sequence);
/* It runs no more: another choice becomes the source if it was it. */
void sequence_leave_group(struct sequence *sequence);

#endif
