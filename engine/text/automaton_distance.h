/* automaton_distance.h -- how few bytes lead to the end.
 *
 * For each instruction the least number of bytes from there to the end of its rule, or of its round
 * of a repetition, calls and inner repetitions included; for each state of a machine the least to
 * the machine's end. constraint_finish.c adds up what the frames still ask for. */
#ifndef WEFT_AUTOMATON_DISTANCE_H
#define WEFT_AUTOMATON_DISTANCE_H

#include "engine/text/automaton.h"

enum { DISTANCE_MAX = 1 << 30 }; /* and more */

struct automaton_distances {
    uint32_t *code;
    uint32_t *states;
    uint32_t *rounds; /* an instruction: the repetition whose round begins there, plus 1 */
};

int automaton_distances_init(struct automaton_distances *distances,
                             const struct automaton *automaton); /* E_MEMORY */
void automaton_distances_fini(struct automaton_distances *distances);

/* a + times * b, DISTANCE_MAX at most. */
static inline uint32_t distance_add(uint32_t a, uint32_t b, uint32_t times)
{
    uint64_t sum = a + (uint64_t)b * times;

    return sum < DISTANCE_MAX ? (uint32_t)sum : DISTANCE_MAX;
}

#endif
