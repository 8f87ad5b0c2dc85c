/* constraint_memo.h -- where an automaton can stand, and what each byte makes of that.
 *
 * A grammar may be ambiguous, so the automaton stands in several places at once:
 *
 *     state    a set of places (instruction, machine state, frame), and whether the text may end
 *     frame    (instruction to return to, count of a repetition, set of frames below it)
 *
 * Places whose frames would return to the same instruction share one frame with several below it (a
 * graph-structured stack), so grammars whose stacks are exponentially many have few frames. States,
 * frames and sets of frames are kept once each and known by number; the state that a byte leads to
 * is worked out once and remembered. So the automaton becomes a table as it is used, over a whole
 * walk of the vocabulary and over all sequences that share the grammar.
 *
 * The table is a cache: memo_forget() drops all but the states that are held and renumbers these.
 * Not thread-safe. */
#ifndef WEFT_CONSTRAINT_MEMO_H
#define WEFT_CONSTRAINT_MEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/automaton.h"
#include "engine/text/interner.h"

enum {
    STATE_DEAD = 0,
    FRAME_BOTTOM = 0,
    PLACE_WORDS = 3,
};
#define STATE_UNKNOWN UINT32_MAX

struct place {
    uint32_t at;
    uint32_t machine;
    uint32_t frame;
};

/* Pairs of numbers that were met, forgotten all at once. */
struct pair_table {
    uint64_t *keys;
    uint32_t *values;
    uint32_t *rounds; /* a slot is taken when it is of this round */
    uint32_t slot_count;
    uint32_t count;
    uint32_t round;
};

/* The beginning of a block from malloc(), which the memo frees. */
struct memo_note {
    size_t bytes;
};

struct item_list {
    uint32_t *words;
    uint32_t count;
    uint32_t room;
};

struct memo {
    const struct automaton *automaton;
    struct interner sets;
    struct interner frames;   /* instruction, count, set */
    struct interner states;   /* whether it may end, then places in order */
    uint32_t *rows;           /* a state: the state behind each class of bytes, or STATE_UNKNOWN */
    struct memo_note **notes; /* a state: what the user of the memo keeps there, or NULL */
    uint32_t *marks;          /* a state: a number of the user's, 0 at first */
    uint32_t row_room;
    size_t note_bytes; /* of all notes */
    uint32_t start;
    uint64_t work;     /* places looked at; the user sets it back */
    uint64_t work_max; /* more is E_TOO_LARGE */
    /* For one step; fresh frames are those pushed in it. */
    struct item_list items;  /* at, frame */
    struct item_list places; /* struct place */
    struct item_list fresh;  /* at, count, first edge + 1, number or UINT32_MAX */
    struct item_list edges;  /* frame below, next edge + 1 */
    struct item_list below;
    struct item_list todo;
    struct pair_table seen;
    struct pair_table fresh_numbers;
};

int memo_init(struct memo *memo, const struct automaton *automaton, uint64_t work_max);
void memo_fini(struct memo *memo);

/* The state behind `state` and a byte of the class: 0, E_MEMORY, or E_TOO_LARGE when the work or
 * the places are too many. */
int memo_step(struct memo *memo, uint32_t state, uint32_t byte_class, uint32_t *ret_state);
static inline int memo_next(struct memo *memo, uint32_t state, uint32_t byte_class,
                            uint32_t *ret_state)
{
    uint32_t next = memo->rows[(size_t)state * memo->automaton->class_count + byte_class];

    if (next == STATE_UNKNOWN)
        return memo_step(memo, state, byte_class, ret_state);
    *ret_state = next;
    return 0;
}

bool memo_may_end(const struct memo *memo, uint32_t state);
const struct place *memo_places(const struct memo *memo, uint32_t state, uint32_t *ret_count);
/* The count of the repetition that a frame stands for. */
uint32_t memo_frame_count(const struct memo *memo, uint32_t frame);

void memo_note_put(struct memo *memo, uint32_t state, struct memo_note *note);

size_t memo_bytes(const struct memo *memo);
/* Keeps the `count` states that the numbers point to and renumbers them; all notes go. 0, or
 * E_MEMORY: nothing changed. */
int memo_forget(struct memo *memo, uint32_t **states, size_t count);

#endif
