/* ids.c -- a table of slots with generations and a chain of free ones. */
#include "config/base/ids.h"

#include <errno.h>
#include <stdlib.h>

enum { NO_SLOT = UINT32_MAX };

struct slot {
    void *thing; /* NULL while free */
    uint32_t generation;
    uint32_t next_free;
};

struct ids {
    uint32_t slot_count;
    uint32_t taken;
    uint32_t first_free;
    uint32_t last_free;
    struct slot slots[];
};

int ids_open(uint32_t slot_count, struct ids **ret_ids)
{
    struct ids *ids = calloc(1, sizeof *ids + (size_t)slot_count * sizeof ids->slots[0]);

    if (!ids)
        return -ENOMEM;
    ids->slot_count = slot_count;
    for (uint32_t i = 0; i < slot_count; i++) {
        ids->slots[i].generation = 1;
        ids->slots[i].next_free = i + 1 < slot_count ? i + 1 : NO_SLOT;
    }
    ids->first_free = slot_count ? 0 : NO_SLOT;
    ids->last_free = slot_count ? slot_count - 1 : NO_SLOT;
    *ret_ids = ids;
    return 0;
}

void ids_close(struct ids *ids)
{
    free(ids);
}

static struct slot *find(const struct ids *ids, uint64_t id)
{
    uint32_t index = id_slot(id);
    struct slot *slot;

    if (index >= ids->slot_count)
        return NULL;
    slot = (struct slot *)&ids->slots[index];
    return slot->thing && slot->generation == id >> 32 ? slot : NULL;
}

uint64_t ids_take(struct ids *ids, void *thing)
{
    uint32_t index = ids->first_free;
    struct slot *slot;

    if (index == NO_SLOT || !thing)
        return 0;
    slot = &ids->slots[index];
    ids->first_free = slot->next_free;
    if (ids->first_free == NO_SLOT)
        ids->last_free = NO_SLOT;
    slot->thing = thing;
    ids->taken++;
    return (uint64_t)slot->generation << 32 | index;
}

void *ids_find(const struct ids *ids, uint64_t id)
{
    struct slot *slot = find(ids, id);

    return slot ? slot->thing : NULL;
}

/* Freed slots go to the end of the chain, so that a generation wraps as late as possible. */
void ids_drop(struct ids *ids, uint64_t id)
{
    struct slot *slot = find(ids, id);
    uint32_t index = id_slot(id);

    if (!slot)
        return;
    slot->thing = NULL;
    slot->generation++;
    if (slot->generation == 0)
        slot->generation = 1;
    slot->next_free = NO_SLOT;
    if (ids->last_free == NO_SLOT)
        ids->first_free = index;
    else
        ids->slots[ids->last_free].next_free = index;
    ids->last_free = index;
    ids->taken--;
}

uint32_t ids_count(const struct ids *ids)
{
    return ids->taken;
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
