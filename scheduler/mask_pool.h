/* mask_pool.h -- the threads that make masks while the device runs, so that the scheduler's never
 * waits for one.
 *
 *     post: prompt ones, slow ones  -->  threads  -->  done, a bell  -->  the scheduler's thread
 *
 * Work that was slow last time, or that nobody waits for yet, is queued apart and comes after the
 * rest, and one thread always leaves it alone: an answer whose masks take long delays no other's.
 *
 * Everything but the threads' own part belongs to one thread, the scheduler's. */
#ifndef WEFT_MASK_POOL_H
#define WEFT_MASK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"

struct mask_pool;

/* A piece of work, the caller's memory, the pool's from mask_pool_post() until mask_pool_done()
 * gives it back. */
struct mask_work {
    struct mask_work *next;
    /* On one of the threads; `words` is its scratch for a mask. */
    void (*run)(struct mask_work *work, uint32_t *words);
    bool quiet; /* never given back: run() may free it */
};

/* `word_count` of a mask. `bell` is called by the threads when something is done; it must not
 * block. */
int mask_pool_open(uint32_t threads, uint32_t word_count, void (*bell)(void *data), void *data,
                   struct mask_pool **ret_pool, struct fault *fault);
void mask_pool_close(struct mask_pool *pool); /* does all that was posted first; NULL is fine */

void mask_pool_post(struct mask_pool *pool, struct mask_work *work, bool slow);
/* What has been done since the last call, in the order in which it was; NULL: nothing. */
struct mask_work *mask_pool_done(struct mask_pool *pool);

#endif
