/* arena.h -- memory with one lifetime: many allocations, one release.
 *
 * A request's arena is sized by the body that came and freed in one call. Blocks are chained; each
 * is at least as large as the one before, but for the last under the ceiling. The ceiling counts
 * every byte taken from the system, so a hostile request cannot make the arena outgrow it.
 *
 * Not thread-safe: an arena moves between threads with the thing it carries. */
#ifndef WEFT_ARENA_H
#define WEFT_ARENA_H

#include <stddef.h>

struct arena;

/* `first_bytes` is the size of the first block, `ceiling_bytes` the most it may ever take.
 * Returns 0, or -ENOMEM. */
int arena_open(size_t first_bytes, size_t ceiling_bytes, struct arena **ret_arena);
void arena_close(struct arena *arena); /* NULL is fine */

/* Zeroed memory, aligned to 16 bytes; NULL when the ceiling or the system says no. `count * bytes`
 * is checked for overflow. Zero-sized requests give a valid pointer. */
void *arena_take(struct arena *arena, size_t count, size_t bytes);
/* A NUL-terminated copy of `bytes` bytes. */
char *arena_copy(struct arena *arena, const void *from, size_t bytes);
size_t arena_bytes(const struct arena *arena); /* taken from the system so far */

#endif
