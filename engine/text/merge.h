/* merge.h -- joins neighbouring symbols, best pair first, until no pair is left to join.
 *
 *     h e l l o   ->   h e ll o   ->   h ell o ...     symbols: a doubly linked list in one array
 *                                                      pairs:   a heap by (rank, position)
 *
 * Each join adds at most two pairs to the heap, so n symbols take O(n log n) whatever the text is.
 * Pairs that an earlier join has used up stay in the heap and are told by their length: symbols
 * only grow. One workspace serves one encoding thread. */
#ifndef WEFT_MERGE_H
#define WEFT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge_symbol {
    uint32_t start; /* in the text, in bytes */
    uint32_t bytes; /* 0: joined into the one before */
    int32_t id;     /* -1: not a token by itself */
    uint32_t previous;
    uint32_t next; /* UINT32_MAX: none */
};

struct merge_pair {
    uint32_t rank; /* the lowest joins first; of equal ones the leftmost */
    int32_t id;    /* what they become */
};

struct merge_rules {
    /* Whether two neighbours join, and how. */
    bool (*find)(const void *model, const char *text, const struct merge_symbol *left,
                 const struct merge_symbol *right, struct merge_pair *ret_pair);
    const void *model;
};

struct merge_entry;
struct merge_work {
    struct merge_symbol *symbols;
    size_t symbol_count;
    size_t symbol_room;
    struct merge_entry *heap;
    size_t heap_count;
    size_t heap_room;
};

void merge_work_init(struct merge_work *work);
void merge_work_fini(struct merge_work *work);

/* Builds the list: forget the last text, then add symbols from left to right. -ENOMEM. */
void merge_begin(struct merge_work *work);
int merge_add(struct merge_work *work, uint32_t start, uint32_t bytes, int32_t id);
/* Afterwards symbols[0] and what follows by `next` are the result. -ENOMEM. */
int merge_run(struct merge_work *work, const struct merge_rules *rules, const char *text);

#endif
