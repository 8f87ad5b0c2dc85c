/* vocabulary_slices.h -- sets of characters whose tokens are allowed all at once.
 *
 * Most tokens of a vocabulary are plain text, and most of a long text is written where any plain
 * character may follow (inside a JSON string, say). Where a class that holds a whole slice goes
 * round freely, every token made of the slice's characters is allowed without looking: its mask is
 * made once for the vocabulary, one for each number of characters that still fit, and the walk over
 * the vocabulary leaves those tokens out. */
#ifndef WEFT_VOCABULARY_SLICES_H
#define WEFT_VOCABULARY_SLICES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/text/grammar.h"

enum { VOCABULARY_SLICE_COUNT = 3 };

struct vocabulary_slice {
    const struct grammar_range *ranges; /* sorted and apart; of those above ASCII, all that
                                         * constraint_cover.c follows, or none */
    size_t range_count;
};

extern const struct vocabulary_slice vocabulary_slices[VOCABULARY_SLICE_COUNT];

#endif
