/* pooling.h -- one vector of a sequence's hidden states: how embeddings are made.
 *
 * The states are those behind the last layer and the final norm. A backend hands them over as it
 * computes them, chunk by chunk; what a sequence has so far lies in its own vector, so a chunk
 * needs nothing of the one before but that. (The modes are Sentence Transformers' Pooling.) */
#ifndef WEFT_POOLING_H
#define WEFT_POOLING_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"

struct batch_opening; /* batch.h */
struct checkpoint;

enum pooling {
    POOLING_LAST, /* the last token's state */
    POOLING_MEAN, /* of all tokens */
    POOLING_CLS,  /* the first token's */
};

/* Does the vector depend on the state at this position? */
bool pooling_wants(const struct batch_opening *opening, uint32_t position);
/* Takes the state at `position` into opening->vector, [width]; positions come in order, and from 0
 * again where a sequence is computed anew. The vector is whole with the last one. */
void pooling_take(const struct batch_opening *opening, uint32_t position, const float *state,
                  uint32_t width);

/* What the makers say: 1_Pooling/config.json of a folder, ARCHITECTURE.pooling_type of a GGUF file;
 * *ret_pooling stays where they say nothing. E_UNSUPPORTED: a mode that is not computed here; other
 * codes as a file that is wrong has them. */
int pooling_read(const struct checkpoint *checkpoint, enum pooling *ret_pooling,
                 struct fault *fault);
/* The same from the text of a Pooling's config.json. */
int pooling_read_config(const char *text, size_t bytes, enum pooling *ret_pooling,
                        struct fault *fault);

#endif
