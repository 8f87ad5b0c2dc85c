/* interner.h -- lists of numbers, each kept once and known by a small number.
 *
 * Equal lists have equal numbers, which are given in order from 0. A lent list is valid until the
 * next put. Not thread-safe. */
#ifndef WEFT_INTERNER_H
#define WEFT_INTERNER_H

#include <stddef.h>
#include <stdint.h>

struct interner {
    uint32_t *words;
    uint32_t *starts; /* list i is words[starts[i] .. starts[i + 1]) */
    uint32_t *slots;  /* hash table of list numbers + 1 */
    uint32_t count;
    uint32_t word_count;
    uint32_t word_room;
    uint32_t start_room;
    uint32_t slot_count;
};

void interner_init(struct interner *interner);
void interner_fini(struct interner *interner);
/* Drops all lists, keeps the memory. */
void interner_reset(struct interner *interner);
/* 0 and the list's number, or E_MEMORY (nothing changed). */
int interner_put(struct interner *interner, const uint32_t *words, uint32_t count,
                 uint32_t *ret_number);
const uint32_t *interner_get(const struct interner *interner, uint32_t number, uint32_t *ret_count);
size_t interner_bytes(const struct interner *interner); /* in use */

#endif
