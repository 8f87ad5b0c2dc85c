/* weight_prefetch.h -- asks the disk for weights before they are placed.
 *
 *     loader's first walk    notes what it will place, in that order
 *     loader's second walk   places it, and tells how far it has come
 *     this thread            walks ahead, by WEIGHT_PREFETCH_BYTES at most, and asks the kernel for
 *                            those pages (MADV_WILLNEED), 2 MiB at a time
 *
 * So reading and placing overlap, and the disk always has many requests, whatever its own
 * read-ahead; what is in the page cache already costs next to nothing. All of this is advice: where
 * memory or a thread is refused, the weights are read when they are touched. */
#ifndef WEFT_WEIGHT_PREFETCH_H
#define WEFT_WEIGHT_PREFETCH_H

#include "engine/model.h"

enum { WEIGHT_PREFETCH_BYTES = 128 << 20 };

struct weight_range {
    const void *data;
    size_t bytes; /* 0: nothing to read */
};
/* Where in a file the part lies. Nothing for one that is random or strewn among others, and for
 * parts that share a tensor with tables, but for the first. */
struct weight_range weight_part_range(const struct weight_part *part, uint32_t columns);

/* What will be placed, in order. Zero it to begin. */
struct weight_list {
    struct weight_range *ranges;
    uint32_t count;
    uint32_t room;
};
/* `list` may be NULL. */
void weight_list_add(struct weight_list *list, const struct weight_part *part, uint32_t columns);

struct weight_prefetch;

/* Begins to read. The list is the prefetch's from here on, and is zeroed. NULL: no memory, no
 * thread, or nothing to read. */
struct weight_prefetch *weight_prefetch_open(struct weight_list *list);
/* So many bytes of the list were placed. Any one thread; NULL is fine. */
void weight_prefetch_passed(struct weight_prefetch *prefetch, uint64_t bytes);
void weight_prefetch_close(struct weight_prefetch *prefetch); /* NULL is fine */

#endif
