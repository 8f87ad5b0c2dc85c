/* ids.h -- names for things that may be gone: slot + generation.
 *
 * Ids cross threads, pointers do not. A slot is reused, its generation is not, so a late message
 * for something that ended finds nobody and is dropped: no lock, no use after free.
 *
 *     id = generation (32 bits) << 32 | slot (32 bits)        0 is never a valid id
 *
 * The table belongs to one thread. */
#ifndef WEFT_IDS_H
#define WEFT_IDS_H

#include <stdint.h>

struct ids;

int ids_open(uint32_t slot_count, struct ids **ret_ids); /* 0 or -ENOMEM */
void ids_close(struct ids *ids);

/* Gives `thing` a slot and a fresh generation. Returns the id, or 0 when all slots are taken. */
uint64_t ids_take(struct ids *ids, void *thing);
void *ids_find(const struct ids *ids, uint64_t id); /* NULL when it is gone */
void ids_drop(struct ids *ids, uint64_t id);        /* harmless when it is gone */

uint32_t ids_count(const struct ids *ids); /* taken slots */
/* Walks the live things: start with *cursor = 0; NULL at the end. Dropping the current one is
 * allowed. */
void *ids_next(const struct ids *ids, uint32_t *cursor);

static inline uint32_t id_slot(uint64_t id)
{
    return (uint32_t)id;
}

#endif
