/* policy.h -- who runs in the next step: a pure function of queues, pages and budgets.
 *
 * No clock, no I/O, no allocation, no memory of its own: the scheduler describes what it has, the
 * policy says what to do, and a simulation can ask it a million times.
 *
 * In this order:
 *   1. Every sequence that decodes gets its token, the oldest first. One whose next page cannot be
 *      had sits out.
 *   2. Where one sits out, the youngest running sequences give up their pages (they are computed
 *      again later), until enough pages are on their way. The oldest is never a victim, so
 *      something always finishes.
 *   3. Sequences are admitted in the order of the queue while a row, a place among the prefills and
 *      their pages can be had, and a page for each that decodes stays in reserve. None in a step
 *      that wants pages back.
 *   4. The prompt tokens of the budget go to the shortest remaining prompt first. One that has
 *      waited counts as shorter, so that a long prompt moves however many short ones arrive. */
#ifndef WEFT_POLICY_H
#define WEFT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct policy_running {
    uint64_t order;        /* of first admission; lower = older */
    uint32_t prompt_left;  /* tokens still to be prefilled; 0: it decodes */
    uint32_t steps_waited; /* since it last had prompt tokens computed */
    uint32_t pages_held;
    uint32_t pages_missing; /* for its next token */
    bool may_decode;        /* false: its last tokens are in flight */
};

struct policy_waiting {
    uint64_t order;
    uint32_t prompt_tokens;
    uint32_t pages; /* for the whole prompt and the first token */
};

struct policy_input {
    uint32_t page_count; /* of the pool */
    uint32_t pages_free;
    uint32_t pages_leaving; /* of sequences that end: free in at most two steps */
    uint32_t rows_free;
    uint32_t prefill_tokens; /* budget of the step */
    uint32_t prefills_max;   /* prompts mid-prefill at once */
    uint32_t running_count;
    const struct policy_running *running;
    uint32_t waiting_count; /* the head of the queue is enough */
    const struct policy_waiting *waiting;
};

struct policy_prefill {
    uint32_t
        index; /* < running_count: of `running`; from there on, of the admitted, in queue order */
    uint32_t tokens;
};

/* Arrays as long as the request table has rows, the caller's. */
struct policy_plan {
    uint32_t decode_count;
    uint32_t *decodes; /* indices of `running` */
    uint32_t preempt_count;
    uint32_t *preempts;   /* indices of `running` */
    uint32_t admit_count; /* the first so many of `waiting` */
    uint32_t prefill_count;
    struct policy_prefill *prefills;
};

void policy_plan(const struct policy_input *input, struct policy_plan *ret_plan);

#endif
