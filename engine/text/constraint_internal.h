/* constraint_internal.h -- shared by constraint.c, constraint_mask.c, constraint_finish.c and
 * constraint_within.c. */
#ifndef WEFT_CONSTRAINT_INTERNAL_H
#define WEFT_CONSTRAINT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/text/automaton_distance.h"
#include "engine/text/constraint.h"
#include "engine/text/constraint_memo.h"

#define DISTANCE_UNKNOWN UINT32_MAX

/* A state that is alive: bytes to the end from there, and the least and the most of them from
 * behind a token that may follow (constraint_within.c); DISTANCE_UNKNOWN: not measured yet. */
struct state_finish {
    uint32_t distance;
    uint32_t nearest;
    uint32_t farthest;
};

/* What constraint_finish.c knows; made when it is first asked. */
struct constraint_finish {
    struct automaton_distances distances;
    uint32_t *frames;     /* a frame: the least that follows what is on top of it */
    uint32_t frame_count; /* measured; 0 when the memo has forgotten */
    uint32_t frame_room;
    struct state_finish *states;
    uint32_t state_count; /* with an entry; 0 when the memo has forgotten */
    uint32_t state_room;
};

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
    uint32_t allowed_room;
    struct constraint_finish finish;
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
void constraint_finish_fini(struct constraint_finish *finish);
void constraint_finish_forget(
    struct constraint_finish *finish); /* states and frames are renumbered */
/* Bytes to the end from a state that is alive; constraint_state_distance() was asked before. */
int constraint_finish_distance(struct constraint *constraint, uint32_t number,
                               uint32_t *ret_distance);
int constraint_fault(int r, struct fault *fault);

/* Tokens of a slice that may all follow a state: those of up to slice_lengths[index] characters. */
struct cover {
    const struct trie_slice *slice; /* NULL: none */
    uint32_t index;
    bool exact; /* and no longer ones */
};

static inline bool cover_has(struct cover cover, uint32_t node)
{
    return cover.slice && cover.slice->cover[node] <= slice_lengths[cover.index];
}

/* What can be told from the automaton alone; remembered. */
struct cover cover_find(const struct constraint *constraint, uint32_t number);
/* The same, or what following the slices' characters shows: 0 or a code. */
int cover_find_best(struct constraint *constraint, uint32_t number, struct cover *ret_cover);

/* In a walk: the state behind path[depth - 1] and a byte, with room made for it: states may get new
 * numbers. */
int constraint_walk_step(struct constraint *constraint, uint32_t depth, uint32_t byte_class,
                         uint32_t *ret_next);

/* Writes the text tokens' bits for a state: 0 or a code. */
int constraint_mask_write(struct constraint *constraint, uint32_t number, uint32_t *words,
                          size_t word_count);

#endif
