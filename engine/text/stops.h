/* stops.h -- stop strings, found in a stream of text across token borders.
 *
 * An automaton (Aho-Corasick over bytes) walks the text once; it holds back exactly the longest end
 * that may still become a stop string. Constant work per byte. A match is the one that ends first,
 * and among those that end at the same byte the longest. */
#ifndef WEFT_STOPS_H
#define WEFT_STOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/arena.h"
#include "config/base/fault.h"

enum { STOP_STRINGS_MAX = 16, STOP_STRING_BYTES_MAX = 1024 };

struct stops; /* immutable: one may serve many streams */

/* Built in the arena and freed with it. Empty strings are E_INVALID. `count` 0 gives a matcher that
 * never holds anything back. */
int stops_build(struct arena *arena, const char *const *strings, const size_t *bytes,
                uint32_t count, struct stops **ret_stops, struct fault *fault);

/* One stream's state. */
struct stop_walk {
    const struct stops *stops;
    uint32_t state;
    int32_t matched; /* index of the string that ended the text, -1 while none has */
};

void stop_walk_init(struct stop_walk *walk, const struct stops *stops);
/* Walks over `bytes` new bytes. Returns true when a stop string ended in them: *ret_used is then
 * how many of the new bytes belong to the text up to and including the stop string. */
bool stop_walk_feed(struct stop_walk *walk, const char *text, size_t bytes, size_t *ret_used);
/* How many bytes at the end of all text so far must be held back. */
size_t stop_walk_held(const struct stop_walk *walk);
size_t stop_string_bytes(const struct stops *stops, int32_t index);
const char *stop_string_text(const struct stops *stops, int32_t index);

#endif
