/* mask_job.h -- which tokens an answer's grammar allows next: what a mask thread works out.
 *
 *     token learnt --> the state takes it --> must the answer end?    -> ended
 *                                             must text follow?       -> jump: undrawn tokens
 *                                             else, and behind those  -> the row's mask
 *
 * The mask goes straight to where the step reads it that runs meanwhile (engine.h, struct
 * row_mask). Where text must follow it is written as tokens, the longest first, and the mask is the
 * one behind them, so that the step that runs finds none for its own token and draws nothing.
 *
 * Where an answer may end is decided here, by the mask: its end tokens are among the allowed where
 * the grammar is complete, but not while the request wants more and more can come. Where nothing
 * but the end could come the answer has ended, without an end token.
 *
 * A job belongs to the scheduler's thread, but for the time between mask_pool_post() and
 * mask_pool_done(). */
#ifndef WEFT_MASK_JOB_H
#define WEFT_MASK_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/engine.h"
#include "engine/text/constraint.h"
#include "scheduler/mask_pool.h"

enum { MASK_JUMP_MAX = 48 }; /* tokens; their steps can be rolled back */

struct mask_job {
    struct mask_work work;
    void *owner; /* the scheduler's sequence */

    struct constraint *constraint;  /* lent by the request */
    struct constraint_state *state; /* opened by the first run */
    const struct engine_limits *limits;

    /* Asked. */
    const char *text; /* taken before the tokens, once: what began within a token */
    size_t text_bytes;
    const int32_t *tokens; /* [from, to) are taken */
    uint32_t from;
    uint32_t to;
    uint32_t tokens_left; /* that may still be generated behind them */
    bool may_be_cut;      /* by them; else the answer comes to its end before */
    uint32_t no_end_for;  /* tokens more before an end or stop token may come, where others can */
    const int32_t *stop_tokens;
    uint32_t stop_count;
    uint32_t jump_least; /* fewer tokens are not worth it */
    uint32_t jump_most;
    struct row_mask mask; /* words NULL: there is no row yet */

    /* Found. */
    struct fault
        fault; /* code 0: none. E_MEMORY; E_INVALID: the grammar is too much, or no token of
                           the model can go on */
    bool ended;
    uint32_t jump_count;
    int32_t jump[MASK_JUMP_MAX];
    uint64_t took_ns;
};

/* What mask_pool.h runs; `words` is scratch for one mask. */
void mask_job_run(struct mask_work *work, uint32_t *words);

#endif
