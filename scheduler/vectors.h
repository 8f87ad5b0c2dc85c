/* vectors.h -- the vectors of a request for embeddings: one block, made with the request.
 *
 * Two own it, the request and the reply, and the last one frees it. Between the submit of a
 * sequence and its EVENT_FINISH its vector is the engine's to write; afterwards it is the reply's
 * to read. A sequence that was cancelled or failed leaves a vector that nobody may look at. */
#ifndef WEFT_VECTORS_H
#define WEFT_VECTORS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct vectors {
    atomic_uint owners;
    uint32_t count;
    uint32_t width;
    float values[]; /* [count][width] */
};

/* With one owner. NULL: no memory, or more than can be addressed. */
struct vectors *vectors_open(uint32_t count, uint32_t width);
/* One owner more. */
struct vectors *vectors_share(struct vectors *vectors);
/* One owner less. NULL is fine. */
void vectors_close(struct vectors *vectors);
float *vectors_at(struct vectors *vectors, uint32_t index);

#endif
