/* interner.c -- see interner.h: an open hash table over lists that lie one behind the other. */
#include "engine/text/interner.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/fault.h"

enum { SLOTS_FIRST = 256, WORDS_FIRST = 1024, STARTS_FIRST = 128, WORDS_MAX = 1 << 28 };

void interner_init(struct interner *interner)
{
    *interner = (struct interner){0};
}

void interner_fini(struct interner *interner)
{
    free(interner->words);
    free(interner->starts);
    free(interner->slots);
    *interner = (struct interner){0};
}

void interner_reset(struct interner *interner)
{
    if (interner->slots)
        memset(interner->slots, 0, interner->slot_count * sizeof *interner->slots);
    interner->count = 0;
    interner->word_count = 0;
}

static uint32_t hash_words(const uint32_t *words, uint32_t count)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ count;

    for (uint32_t i = 0; i < count; i++)
        hash = (hash ^ words[i]) * 0xFF51AFD7ED558CCDu, hash ^= hash >> 32;
    return (uint32_t)hash;
}

const uint32_t *interner_get(const struct interner *interner, uint32_t number, uint32_t *ret_count)
{
    *ret_count = interner->starts[number + 1] - interner->starts[number];
    return interner->words + interner->starts[number];
}

static int slots_grow(struct interner *interner)
{
    uint32_t slot_count = interner->slot_count ? interner->slot_count * 2 : SLOTS_FIRST;
    uint32_t *slots = calloc(slot_count, sizeof *slots);

    if (!slots)
        return E_MEMORY;
    for (uint32_t i = 0; i < interner->count; i++) {
        uint32_t count, at;
        const uint32_t *words = interner_get(interner, i, &count);

        at = hash_words(words, count) & (slot_count - 1);
        while (slots[at] != 0)
            at = (at + 1) & (slot_count - 1);
        slots[at] = i + 1;
    }
    free(interner->slots);
    interner->slots = slots;
    interner->slot_count = slot_count;
    return 0;
}

static int reserve(uint32_t **items, uint32_t *room, uint32_t first, size_t wanted)
{
    size_t grown = *room ? *room : first;
    uint32_t *moved;

    if (wanted <= *room)
        return 0;
    if (wanted > WORDS_MAX)
        return E_MEMORY;
    while (grown < wanted)
        grown *= 2;
    moved = realloc(*items, grown * sizeof *moved);
    if (!moved)
        return E_MEMORY;
    *items = moved;
    *room = (uint32_t)grown;
    return 0;
}

static int make_room(struct interner *interner, uint32_t more)
{
    int r = 0;

    if (2 * (interner->count + 1) > interner->slot_count)
        r = slots_grow(interner);
    if (r == 0)
        r = reserve(&interner->starts, &interner->start_room, STARTS_FIRST,
                    (size_t)interner->count + 2);
    if (r == 0)
        r = reserve(&interner->words, &interner->word_room, WORDS_FIRST,
                    (size_t)interner->word_count + more + 1);
    return r;
}

int interner_put(struct interner *interner, const uint32_t *words, uint32_t count,
                 uint32_t *ret_number)
{
    uint32_t hash = hash_words(words, count), at;
    int r = make_room(interner, count);

    if (r < 0)
        return r;
    for (at = hash & (interner->slot_count - 1); interner->slots[at] != 0;
         at = (at + 1) & (interner->slot_count - 1)) {
        uint32_t number = interner->slots[at] - 1, there;
        const uint32_t *found = interner_get(interner, number, &there);

        if (there == count && (count == 0 || memcmp(found, words, count * sizeof *words) == 0)) {
            *ret_number = number;
            return 0;
        }
    }
    interner->slots[at] = interner->count + 1;
    if (count > 0)
        memcpy(interner->words + interner->word_count, words, count * sizeof *words);
    interner->starts[interner->count] = interner->word_count;
    interner->word_count += count;
    *ret_number = interner->count++;
    interner->starts[interner->count] = interner->word_count;
    return 0;
}

size_t interner_bytes(const struct interner *interner)
{
    return (interner->word_count + (size_t)interner->count + interner->slot_count) *
           sizeof *interner->words;
}
