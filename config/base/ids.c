/* ids.c -- see ids.h. Free slots are chained through `next_free`, the slot given back last is taken
 * first. */
#include "config/base/ids.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

enum { NO_SLOT = UINT32_MAX };

struct slot {
    void *thing; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

struct ids {
    uint32_t slot_count;
    uint32_t taken_count;
    uint32_t first_free;
    struct slot slots[];
};

int ids_open(uint32_t slot_count, struct ids **ret_ids)
{
    struct ids *ids;
    size_t bytes;

    if (__builtin_mul_overflow((size_t)slot_count, sizeof(struct slot), &bytes) ||
        __builtin_add_overflow(bytes, sizeof *ids, &bytes))
        return -ENOMEM;
    ids = calloc(1, bytes);
    if (!ids)
        return -ENOMEM;
    ids->slot_count = slot_count;
    ids->first_free = slot_count > 0 ? 0 : NO_SLOT;
    for (uint32_t i = 0; i < slot_count; i++)
        ids->slots[i].next_free = i + 1 < slot_count ? i + 1 : NO_SLOT;
    *ret_ids = ids;
    return 0;
}

void ids_close(struct ids *ids)
{
    free(ids);
}

uint64_t ids_take(struct ids *ids, void *thing)
{
    uint32_t index = ids->first_free;
    struct slot *slot;

    if (index == NO_SLOT || !thing)
        return 0;
    slot = &ids->slots[index];
    ids->first_free = slot->next_free;
    slot->thing = thing;
    slot->generation++;
    if (slot->generation == 0) /* wrapped: 0 would make id 0 possible */
        slot->generation = 1;
    ids->taken_count++;
    return (uint64_t)slot->generation << 32 | index;
}

static struct slot *find(const struct ids *ids, uint64_t id)
{
    uint32_t index = id_slot(id);
    const struct slot *slot;

    if (index >= ids->slot_count)
        return NULL;
    slot = &ids->slots[index];
    return slot->thing && slot->generation == id >> 32 ? (struct slot *)slot : NULL;
}

void *ids_find(const struct ids *ids, uint64_t id)
{
    const struct slot *slot = find(ids, id);

    return slot ? slot->thing : NULL;
}

void ids_drop(struct ids *ids, uint64_t id)
{
    struct slot *slot = find(ids, id);

    if (!slot)
        return;
    slot->thing = NULL;
    slot->next_free = ids->first_free;
    ids->first_free = id_slot(id);
    ids->taken_count--;
}

uint32_t ids_count(const struct ids *ids)
{
    return ids->taken_count;
}

void *ids_next(const struct ids *ids, uint32_t *cursor)
{
    while (*cursor < ids->slot_count) {
        void *thing = ids->slots[(*cursor)++].thing;

        if (thing)
            return thing;
    }
    return NULL;
}
