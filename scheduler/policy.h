/* policy.h -- who runs in the next step: a pure function of queues, pages and budgets.
 *
 * No clock, no I/O, no allocation, no memory of its own: the scheduler describes what it has, the
 * policy says what to do, and a simulation can ask it a million times.
 *
 * In this order:
 *   1. Every sequence that decodes gets its token, the oldest first. One whose next page cannot be
 *      had sits out. What is left of the pages is granted ahead, for the tokens after the next one.
 *   2. Where pages are lacking, now or ahead, sequences give theirs up and are computed again
 *      later, those first that lose least, until enough pages are on their way. The oldest is never
 *      a victim, so something always finishes, and everyone is the oldest one day.
 *   3. Sequences are admitted in the order of the queue while a row and their pages can be had and
 *      the growth of those that run stays in reserve. None in a step that lacks pages. So many
 *      prompts may be mid-prefill; one that the step can swallow whole needs no such place, and
 *      overtakes those that wait for one. Nobody overtakes one that waits for pages or a row.
 *   4. Prompts have a budget of tokens. Where somebody decodes it is what the decodes leave of a
 *      smaller one, so that answers flow on beside a long prompt, but a quarter of that at least,
 *      so that prompts move whatever decodes.
 *   5. A quarter of the prompt budget belongs to the oldest prompt, so that none starves whatever
 *      arrives; the rest goes to the shortest remaining one first. */
#ifndef WEFT_POLICY_H
#define WEFT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct policy_running {
    uint32_t prompt_left;   /* tokens still to be prefilled; 0: it decodes */
    uint32_t computed;      /* positions that a preemption throws away */
    uint32_t pages_freed;   /* by its end or its preemption */
    uint32_t pages_missing; /* without which it cannot decode */
    uint32_t pages_ahead;   /* for the tokens after its next one, beyond those missing */
    uint32_t pages_growth;  /* that it is likely to want before its end */
    bool may_decode;        /* false: its last tokens are in flight, its end is near */
    bool held;              /* it sits this step out, for reasons of its own */
};

struct policy_waiting {
    uint32_t prompt_tokens; /* to be prefilled */
    uint32_t pages;         /* for the whole prompt and the first tokens */
};

struct policy_input {
    uint32_t pages_free;
    uint32_t pages_leaving; /* of sequences that end: free in at most two steps */
    uint32_t rows_free;
    uint32_t prefill_tokens; /* budget of a step in which nobody decodes */
    uint32_t loaded_tokens;  /* of a step in which somebody does, all its tokens together */
    uint32_t prefills_max;   /* prompts mid-prefill at once */
    bool whole_prompts;      /* one that the budget does not hold as a whole gets none of it */
    uint32_t running_count;
    const struct policy_running *running; /* oldest first */
    uint32_t waiting_count;               /* the head of the queue is enough */
    const struct policy_waiting *waiting; /* in the order of the queue */
};

struct policy_decode {
    uint32_t index; /* of `running` */
    uint32_t pages; /* to grant it in this step */
};

struct policy_prefill {
    uint32_t index; /* < running_count: of `running`; from there on, of `admits` */
    uint32_t tokens;
};

/* Arrays as long as the request table has rows, the caller's. */
struct policy_plan {
    uint32_t decode_count;
    struct policy_decode *decodes;
    uint32_t preempt_count;
    uint32_t *preempts; /* indices of `running` */
    uint32_t admit_count;
    uint32_t *admits; /* indices of `waiting`, rising */
    uint32_t prefill_count;
    struct policy_prefill *prefills;
};

void policy_plan(const struct policy_input *input, struct policy_plan *ret_plan);

#endif
