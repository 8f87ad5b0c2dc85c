/* automaton.h -- a grammar as instructions of a pushdown automaton over bytes.
 *
 *     root ::= "[" [0-9]+ "]"          0: MATCH '[' -> 1      machines: small automata over bytes,
 *                                      1: JUMP 2                 one for a literal, a set of
 *                                      2: MATCH 0-9 -> 3         literals or a character class;
 *                                      3: SPLIT 2, 4             their states are numbered through
 *                                      4: MATCH ']' -> 5         the whole automaton, 0 is the end
 *                                      5: RETURN                 of them all
 *
 * Where the automaton stands is a set of (instruction, machine state, frame); a frame says where a
 * rule returns to, or how often a counted repetition has gone round: constraint_memo.h. A call
 * whose rule would return only to return again pushes no frame, so right recursion needs no stack.
 *
 * Immutable once opened: any thread may read. */
#ifndef WEFT_AUTOMATON_H
#define WEFT_AUTOMATON_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/grammar.h"

enum automaton_op {
    OP_MATCH,  /* machine at state `to`, then `next` */
    OP_JUMP,   /* `next` */
    OP_SPLIT,  /* each of targets[to .. to + count) */
    OP_CALL,   /* entry of a rule at `to`; it returns to `next` */
    OP_RETURN, /* to where the frame says; at the bottom the text is complete */
    OP_REPEAT, /* enters repeats[to] */
    OP_AGAIN,  /* once round repeats[to] */
};

/* How a class that goes round and round can be left out of a walk: see vocabulary_slices.h. */
enum automaton_loop {
    LOOP_NONE,
    LOOP_FREE,    /* after the class it can be matched again, without end */
    LOOP_COUNTED, /* the same, as often as the frame's repetition allows */
};

struct automaton_instruction {
    uint8_t op;     /* enum automaton_op */
    uint8_t loop;   /* MATCH: enum automaton_loop */
    uint8_t slices; /* MATCH: a bit for each slice whose characters all match */
    bool tail;      /* CALL: pushes no frame */
    bool nullable;  /* CALL: the rule can match the empty text */
    uint32_t to;
    uint32_t count; /* SPLIT */
    uint32_t next;
};

struct automaton_repeat {
    uint32_t low;  /* 0 when the body can be empty */
    uint32_t high; /* UINT32_MAX: no bound; the count then stays at `low` */
    uint32_t body;
    uint32_t exit;
};

/* Matched so far: goes on over edges[first .. first + count), sorted and apart; `accept`: or ends
 * here. */
struct machine_state {
    uint32_t first;
    uint32_t count : 31;
    uint32_t accept : 1;
};

struct machine_edge {
    uint8_t low;
    uint8_t high;
    uint32_t next;
};

struct automaton {
    struct automaton_instruction *code;
    uint32_t *targets;
    struct automaton_repeat *repeats;
    struct machine_state *states;
    struct machine_edge *edges;
    uint32_t code_count;
    uint32_t target_count;
    uint32_t repeat_count;
    uint32_t state_count;
    uint32_t edge_count;
    uint32_t start; /* the root's entry */
    /* Bytes that no edge tells apart are one class. */
    uint8_t byte_class[256];
    uint8_t class_byte[256]; /* one byte of each */
    uint32_t class_count;
};

/* Faults: what grammar_check() finds, left recursion (E_UNSUPPORTED, naming the rule), a grammar
 * that is too large when written out (E_TOO_LARGE). */
int automaton_open(const struct grammar *grammar, struct automaton **ret_automaton,
                   struct fault *fault);
void automaton_close(struct automaton *automaton); /* NULL is fine */

/* The state behind `state` and `byte`; false: there is none. */
bool machine_step(const struct automaton *automaton, uint32_t state, uint8_t byte,
                  uint32_t *ret_state);

#endif
