/* arena.c -- see arena.h.
 *
 *     arena -> newest block -> older -> first      Only the newest has room; what is left in an
 *              [used   |free]  [used ]  [used ]    older one is given up, which costs little
 *                                                  because blocks grow. */
#include "config/base/arena.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGNMENT = 16 };

struct block {
    struct block *older;
    size_t room; /* of data */
    size_t used;
    _Alignas(ARENA_ALIGNMENT) unsigned char data[];
};

struct arena {
    struct block *newest;
    size_t taken_bytes;
    size_t ceiling_bytes;
};

/* Blocks come from calloc, and no byte of a block is handed out twice: that is all the zeroing
 * there is. */
static int add_block(struct arena *arena, size_t need)
{
    size_t wish = arena->newest ? arena->newest->room : 0;
    size_t left = arena->ceiling_bytes - arena->taken_bytes;
    struct block *block;

    if (left < sizeof *block || need > left - sizeof *block)
        return -ENOMEM;
    if (wish < need)
        wish = need;
    if (wish > left - sizeof *block)
        wish = left - sizeof *block;
    block = calloc(1, sizeof *block + wish);
    if (!block)
        return -ENOMEM;
    block->older = arena->newest;
    block->room = wish;
    arena->newest = block;
    arena->taken_bytes += sizeof *block + wish;
    return 0;
}

int arena_open(size_t first_bytes, size_t ceiling_bytes, struct arena **ret_arena)
{
    struct arena *arena;

    if (ceiling_bytes < sizeof *arena + sizeof(struct block))
        return -ENOMEM;
    arena = calloc(1, sizeof *arena);
    if (!arena)
        return -ENOMEM;
    arena->taken_bytes = sizeof *arena;
    arena->ceiling_bytes = ceiling_bytes;
    if (first_bytes > ceiling_bytes - sizeof *arena - sizeof(struct block))
        first_bytes = ceiling_bytes - sizeof *arena - sizeof(struct block);
    if (add_block(arena, first_bytes) < 0) {
        arena_close(arena);
        return -ENOMEM;
    }
    *ret_arena = arena;
    return 0;
}

void arena_close(struct arena *arena)
{
    if (!arena)
        return;
    while (arena->newest) {
        struct block *block = arena->newest;

        arena->newest = block->older;
        free(block);
    }
    free(arena);
}

void *arena_take(struct arena *arena, size_t count, size_t bytes)
{
    struct block *block = arena->newest;
    size_t need;
    void *memory;

    if (__builtin_mul_overflow(count, bytes, &need) || need > SIZE_MAX - ARENA_ALIGNMENT)
        return NULL;
    /* At least one unit, so that two empty takes give two different pointers. */
    need =
        need ? (need + ARENA_ALIGNMENT - 1) / ARENA_ALIGNMENT * ARENA_ALIGNMENT : ARENA_ALIGNMENT;
    if (need > block->room - block->used) {
        if (add_block(arena, need) < 0)
            return NULL;
        block = arena->newest;
    }
    memory = block->data + block->used;
    block->used += need;
    return memory;
}

char *arena_copy(struct arena *arena, const void *from, size_t bytes)
{
    char *copy;

    if (bytes == SIZE_MAX)
        return NULL;
    copy = arena_take(arena, bytes + 1, 1);
    if (copy && bytes > 0)
        memcpy(copy, from, bytes);
    return copy;
}

size_t arena_bytes(const struct arena *arena)
{
    return arena->taken_bytes;
}
