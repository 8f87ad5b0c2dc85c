/* charsmap.c -- see charsmap.h. */
#include "engine/text/charsmap.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "config/base/utf8.h"

enum { CHARSMAP_BYTES_MAX = 64 << 20, CLUSTER_BYTES_MAX = 6 };

struct charsmap {
    uint32_t *units;
    size_t unit_count;
    char *texts; /* NUL at the end, whatever the file says */
    size_t text_bytes;
};

static uint32_t read_u32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

int charsmap_open(const void *bytes, size_t count, struct charsmap **ret_map, struct fault *fault)
{
    const uint8_t *from = bytes;
    struct charsmap *map;
    size_t trie_bytes;

    if (count < 4 || count > CHARSMAP_BYTES_MAX)
        return fault_set(fault, E_CORRUPT, "a map of characters of %zu bytes", count);
    trie_bytes = read_u32(from);
    if (trie_bytes > count - 4 || trie_bytes % 4 != 0)
        return fault_set(fault, E_CORRUPT, "a map of characters of %zu bytes whose trie takes %zu",
                         count, trie_bytes);
    map = calloc(1, sizeof *map);
    if (map) {
        map->unit_count = trie_bytes / 4;
        map->text_bytes = count - 4 - trie_bytes;
        map->units = malloc(trie_bytes + 1);
        map->texts = calloc(map->text_bytes + 1, 1);
    }
    if (!map || !map->units || !map->texts) {
        charsmap_close(map);
        return fault_set(fault, E_MEMORY, "out of memory for a map of characters");
    }
    for (size_t i = 0; i < map->unit_count; i++)
        map->units[i] = read_u32(from + 4 + 4 * i);
    memcpy(map->texts, from + 4 + trie_bytes, map->text_bytes);
    *ret_map = map;
    return 0;
}

void charsmap_close(struct charsmap *map)
{
    if (!map)
        return;
    free(map->units);
    free(map->texts);
    free(map);
}

/* ---- the double array ---- */

static uint32_t children_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

static bool has_leaf(uint32_t unit)
{
    return unit >> 8 & 1;
}

static uint32_t label_of(uint32_t unit)
{
    return unit & (1u << 31 | 0xff);
}

static const char *text_at(const struct charsmap *map, uint32_t value, size_t *ret_bytes)
{
    if (value > map->text_bytes)
        value = (uint32_t)map->text_bytes;
    *ret_bytes = strlen(map->texts + value);
    return map->texts + value;
}

static bool is_well_formed(const char *text, size_t bytes)
{
    for (size_t at = 0, taken; at < bytes; at += taken)
        if (!utf8_next(text + at, bytes - at, &taken, NULL))
            return false;
    return true;
}

/* Walks the text down the trie and returns the replacement of the first or the last entry passed;
 * NULL: there is none. An entry that ends within a character, or becomes anything but UTF-8, is
 * none. */
static const char *walk(const struct charsmap *map, const char *text, size_t bytes, bool first,
                        size_t *ret_taken, size_t *ret_bytes)
{
    const char *found = NULL;
    size_t node;

    if (map->unit_count == 0)
        return NULL;
    node = children_of(map->units[0]);
    for (size_t i = 0; i < bytes; i++) {
        const char *becomes;
        size_t count;
        uint32_t unit;

        node ^= (uint8_t)text[i];
        if (node >= map->unit_count)
            break;
        unit = map->units[node];
        if (label_of(unit) != (uint8_t)text[i] || text[i] == 0)
            break;
        node ^= children_of(unit);
        if (!has_leaf(unit))
            continue;
        if (node >= map->unit_count)
            break;
        becomes = text_at(map, map->units[node] & 0x7fffffffu, &count);
        if ((i + 1 < bytes && ((uint8_t)text[i + 1] & 0xc0) == 0x80) ||
            !is_well_formed(becomes, count))
            continue;
        found = becomes;
        *ret_taken = i + 1;
        *ret_bytes = count;
        if (first)
            break;
    }
    return found;
}

const char *charsmap_longest(const struct charsmap *map, const char *text, size_t bytes,
                             size_t *ret_taken, size_t *ret_bytes)
{
    return walk(map, text, bytes, false, ret_taken, ret_bytes);
}

/* ---- whole texts ---- */

static void apply_longest(const struct charsmap *map, const char *text, size_t bytes,
                          struct buf *to)
{
    for (size_t at = 0; at < bytes;) {
        size_t taken, count;
        const char *becomes = charsmap_longest(map, text + at, bytes - at, &taken, &count);

        if (becomes) {
            buf_put(to, becomes, count);
        } else {
            utf8_next(text + at, bytes - at, &taken, NULL);
            buf_put(to, text + at, taken);
        }
        at += taken;
    }
}

/* true: an entry was found at the start, and its replacement stands for all of the part. */
static bool put_replacement(const struct charsmap *map, const char *part, size_t bytes,
                            struct buf *to)
{
    size_t taken, count;
    const char *becomes = walk(map, part, bytes, true, &taken, &count);

    if (becomes)
        buf_put(to, becomes, count);
    return becomes != NULL;
}

static void put_cluster(const struct charsmap *map, const char *cluster, size_t bytes,
                        struct buf *to)
{
    if (bytes < CLUSTER_BYTES_MAX && put_replacement(map, cluster, bytes, to))
        return;
    for (size_t at = 0, taken; at < bytes; at += taken) {
        utf8_next(cluster + at, bytes - at, &taken, NULL);
        if (!put_replacement(map, cluster + at, taken, to))
            buf_put(to, cluster + at, taken);
    }
}

static void apply_clusters(const struct charsmap *map, const char *text, size_t bytes,
                           struct buf *to)
{
    int32_t state = 0, last = -1;
    size_t start = 0;

    for (size_t at = 0; at < bytes;) {
        int32_t character;
        ssize_t taken =
            utf8proc_iterate((const uint8_t *)text + at, (ssize_t)(bytes - at), &character);

        if (taken <= 0)
            break; /* not well-formed: against the contract */
        if (last >= 0 && utf8proc_grapheme_break_stateful(last, character, &state)) {
            put_cluster(map, text + start, at - start, to);
            start = at;
        }
        last = character;
        at += (size_t)taken;
    }
    put_cluster(map, text + start, bytes - start, to);
}

void charsmap_apply(const struct charsmap *map, enum charsmap_reading reading, const char *text,
                    size_t bytes, struct buf *to)
{
    if (reading == CHARSMAP_LONGEST)
        apply_longest(map, text, bytes, to);
    else
        apply_clusters(map, text, bytes, to);
}
