/* merge.c -- see merge.h. */
#include "engine/text/merge.h"

#include <errno.h>
#include <stdlib.h>

enum { ROOM_FIRST = 256 };

struct merge_entry {
    uint64_t order; /* rank, then the left symbol's index: the heap's key */
    uint32_t bytes; /* of both when they were neighbours */
    int32_t id;
};

void merge_work_init(struct merge_work *work)
{
    *work = (struct merge_work){0};
}

void merge_work_fini(struct merge_work *work)
{
    free(work->symbols);
    free(work->heap);
    merge_work_init(work);
}

void merge_begin(struct merge_work *work)
{
    work->symbol_count = 0;
    work->heap_count = 0;
}

static int grow(void **memory, size_t *room, size_t bytes)
{
    size_t wish = *room ? *room * 2 : ROOM_FIRST;
    void *grown = realloc(*memory, wish * bytes);

    if (!grown)
        return -ENOMEM;
    *memory = grown;
    *room = wish;
    return 0;
}

int merge_add(struct merge_work *work, uint32_t start, uint32_t bytes, int32_t id)
{
    size_t index = work->symbol_count;

    if (index == work->symbol_room) {
        void *memory = work->symbols;
        int r = grow(&memory, &work->symbol_room, sizeof *work->symbols);

        if (r < 0)
            return r;
        work->symbols = memory;
    }
    if (index > 0)
        work->symbols[index - 1].next = (uint32_t)index;
    work->symbols[index] =
        (struct merge_symbol){.start = start,
                              .bytes = bytes,
                              .id = id,
                              .previous = index > 0 ? (uint32_t)index - 1 : UINT32_MAX,
                              .next = UINT32_MAX};
    work->symbol_count++;
    return 0;
}

static int heap_push(struct merge_work *work, struct merge_entry entry)
{
    size_t at = work->heap_count;

    if (at == work->heap_room) {
        void *memory = work->heap;
        int r = grow(&memory, &work->heap_room, sizeof *work->heap);

        if (r < 0)
            return r;
        work->heap = memory;
    }
    work->heap_count++;
    while (at > 0 && entry.order < work->heap[(at - 1) / 2].order) {
        work->heap[at] = work->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    work->heap[at] = entry;
    return 0;
}

static struct merge_entry heap_pop(struct merge_work *work)
{
    struct merge_entry *heap = work->heap, top = heap[0], last = heap[--work->heap_count];
    size_t at = 0, count = work->heap_count;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= count)
            break;
        if (child + 1 < count && heap[child + 1].order < heap[child].order)
            child++;
        if (heap[child].order >= last.order)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Puts the pair that starts with `left` on the heap, if there is one. */
static int push_pair(struct merge_work *work, const struct merge_rules *rules, const char *text,
                     uint32_t left)
{
    const struct merge_symbol *first, *second;
    struct merge_pair pair;

    if (left == UINT32_MAX || work->symbols[left].next == UINT32_MAX)
        return 0;
    first = &work->symbols[left];
    second = &work->symbols[first->next];
    if (!rules->find(rules->model, text, first, second, &pair))
        return 0;
    return heap_push(work, (struct merge_entry){.order = (uint64_t)pair.rank << 32 | left,
                                                .bytes = first->bytes + second->bytes,
                                                .id = pair.id});
}

int merge_run(struct merge_work *work, const struct merge_rules *rules, const char *text)
{
    struct merge_symbol *symbols = work->symbols;

    for (size_t i = 0; i < work->symbol_count; i++) {
        int r = push_pair(work, rules, text, (uint32_t)i);

        if (r < 0)
            return r;
    }
    while (work->heap_count > 0) {
        struct merge_entry entry = heap_pop(work);
        uint32_t index = (uint32_t)entry.order;
        struct merge_symbol *left = &symbols[index], *right;
        int r;

        if (left->bytes == 0 || left->next == UINT32_MAX)
            continue;
        right = &symbols[left->next];
        if (left->bytes + right->bytes != entry.bytes)
            continue;
        left->bytes = entry.bytes;
        left->id = entry.id;
        left->next = right->next;
        right->bytes = 0;
        if (left->next != UINT32_MAX)
            symbols[left->next].previous = index;
        r = push_pair(work, rules, text, left->previous);
        if (r == 0)
            r = push_pair(work, rules, text, index);
        if (r < 0)
            return r;
    }
    return 0;
}
