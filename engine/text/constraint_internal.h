/* constraint_internal.h -- shared by constraint.c and constraint_mask.c. */
#ifndef WEFT_CONSTRAINT_INTERNAL_H
#define WEFT_CONSTRAINT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/text/constraint.h"
#include "engine/text/constraint_memo.h"

struct constraint {
    struct automaton *automaton;
    const struct vocabulary_trie *vocabulary; /* NULL: none */
    struct constraint_limits limits;
    atomic_uint owners;
    pthread_mutex_t lock; /* holds for all below, and for the states' numbers */
    struct memo memo;
    struct constraint_state *states; /* all there are */
    size_t room_bytes;               /* forget when the memo has more */
    uint32_t here;                   /* a number in use by the call that holds the lock */
    uint32_t *path;                  /* of a walk: the state behind each byte */
    uint32_t path_count;             /* 0 outside a walk */
    int32_t *allowed;                /* found by a walk */
};

struct constraint_state {
    struct constraint *constraint;
    struct constraint_state *next;
    struct constraint_state **back; /* who points here */
    uint32_t number;                /* of the memo's state */
    bool ended;
    uint32_t past_count;
    uint32_t past_first; /* the ring's oldest */
    uint32_t past[CONSTRAINT_ROLLBACK_MAX];
    bool past_ended[CONSTRAINT_ROLLBACK_MAX];
};

/* Forgets what no state holds when the cache is over its bound; `here` and the walk's path are
 * held too. With the lock held, like all below. */
int constraint_make_room(struct constraint *constraint);
int constraint_fault(int r, struct fault *fault);

/* Writes the text tokens' bits for a state: 0 or a code. */
int constraint_mask_write(struct constraint *constraint, uint32_t number, uint32_t *words,
                          size_t word_count);

#endif
