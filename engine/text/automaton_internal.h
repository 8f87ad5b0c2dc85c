/* automaton_internal.h -- an automaton while it is being built: shared by automaton.c, which writes
 * the instructions, automaton_machine.c, which makes the machines, and automaton_check.c, which
 * looks at the whole. */
#ifndef WEFT_AUTOMATON_INTERNAL_H
#define WEFT_AUTOMATON_INTERNAL_H

#include "engine/text/automaton.h"
#include "engine/text/grammar_internal.h"

enum { MACHINE_END = 0 };

struct automaton_build {
    struct automaton *automaton;
    const struct grammar *grammar;
    uint32_t code_room;
    uint32_t target_room;
    uint32_t repeat_room;
    uint32_t state_room;
    uint32_t edge_room;
    uint32_t full[4];    /* machines of any 1, 2 or 3 continuation bytes; 0: not made yet */
    uint32_t *rules;     /* a rule: its entry */
    uint8_t *productive; /* a node */
    uint8_t *nullable;   /* a node */
    uint8_t *small;      /* a node: instructions, 0 when it cannot be written in place */
};

/* Room for `more` items behind `count`: 0, E_MEMORY or E_TOO_LARGE past `ceiling`. */
int automaton_reserve(void *items_pointer, uint32_t *room, uint32_t count, size_t item_bytes,
                      size_t more, uint32_t ceiling);

struct machine_text {
    const char *bytes;
    uint32_t count; /* >= 1 */
};

int machine_add_end(struct automaton_build *build); /* MACHINE_END, the first */
/* Each returns 0 and the machine's first state, or E_MEMORY or E_TOO_LARGE. Texts are sorted in
 * place. */
int machine_add_texts(struct automaton_build *build, struct machine_text *texts, size_t count,
                      uint32_t *ret_state);
int machine_add_class(struct automaton_build *build, const struct grammar_range *ranges,
                      size_t count, uint32_t *ret_state);

/* Tail calls, left recursion, loops over slices, classes of bytes. */
int automaton_finish(struct automaton_build *build, struct fault *fault);

#endif
