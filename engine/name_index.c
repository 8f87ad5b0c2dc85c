/* name_index.c -- see name_index.h. */
#include "engine/name_index.h"

#include <stdlib.h>
#include <string.h>

#include "config/base/fault.h"

struct named_items {
    const char *items;
    size_t stride;
};

static int compare_names(const struct gguf_string *a, const struct gguf_string *b)
{
    size_t shorter = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order = memcmp(a->text, b->text, shorter);

    if (order)
        return order;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static const struct gguf_string *item_name(const struct named_items *named, uint32_t position)
{
    return (const struct gguf_string *)(const void *)(named->items + position * named->stride);
}

static int compare_positions(const void *a, const void *b, void *named)
{
    return compare_names(item_name(named, *(const uint32_t *)a),
                         item_name(named, *(const uint32_t *)b));
}

int name_index_build(struct name_index *index, const void *items, size_t stride, uint32_t count,
                     uint32_t *ret_twice)
{
    struct named_items named = {items, stride};

    index->count = count;
    index->order = malloc((count ? count : 1) * sizeof *index->order);
    if (!index->order)
        return E_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        index->order[i] = i;
    if (count > 1)
        qsort_r(index->order, count, sizeof *index->order, compare_positions, &named);
    for (uint32_t i = 1; i < count; i++) {
        if (compare_names(item_name(&named, index->order[i - 1]),
                          item_name(&named, index->order[i])) == 0) {
            *ret_twice = index->order[i];
            return 1;
        }
    }
    return 0;
}

void name_index_close(struct name_index *index)
{
    free(index->order);
    *index = (struct name_index){0};
}

const void *name_index_find(const struct name_index *index, const void *items, size_t stride,
                            struct gguf_string name)
{
    struct named_items named = {items, stride};
    uint32_t low = 0, high = index->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t position = index->order[middle];
        int order = compare_names(&name, item_name(&named, position));

        if (order == 0)
            return named.items + position * stride;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
