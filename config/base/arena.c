/* arena.c -- a chain of blocks, the newest first; allocation moves a cursor.
 *
 *     arena -> [block n: used ....|free] -> [block n-1: full] -> ... -> [first block, holds the
 * arena] */
#include "config/base/arena.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16 };

struct block {
    struct block *older;
    size_t bytes; /* of `data` */
    size_t used;
    _Alignas(ALIGNMENT) unsigned char data[];
};

struct arena {
    struct block *newest;
    size_t total_bytes;
    size_t ceiling_bytes;
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static struct block *block_open(size_t bytes, struct block *older)
{
    struct block *block = calloc(1, sizeof *block + bytes);

    if (block) {
        block->bytes = bytes;
        block->older = older;
    }
    return block;
}

int arena_open(size_t first_bytes, size_t ceiling_bytes, struct arena **ret_arena)
{
    size_t bytes = aligned(sizeof(struct arena)) + aligned(first_bytes);
    struct block *first;
    struct arena *arena;

    if (bytes < first_bytes || sizeof *first + bytes > ceiling_bytes)
        return -ENOMEM;
    first = block_open(bytes, NULL);
    if (!first)
        return -ENOMEM;
    arena = (struct arena *)(void *)first->data;
    first->used = aligned(sizeof *arena);
    arena->newest = first;
    arena->total_bytes = sizeof *first + bytes;
    arena->ceiling_bytes = ceiling_bytes;
    *ret_arena = arena;
    return 0;
}

void arena_close(struct arena *arena)
{
    struct block *block = arena ? arena->newest : NULL;

    while (block) {
        struct block *older = block->older;

        free(block); /* the last one holds the arena itself */
        block = older;
    }
}

void *arena_take(struct arena *arena, size_t count, size_t bytes)
{
    struct block *block = arena->newest;
    size_t need, grow;
    void *taken;

    if (__builtin_mul_overflow(count, bytes, &need) || need > SIZE_MAX / 4)
        return NULL;
    need = aligned(need ? need : 1);
    if (need > block->bytes - block->used) {
        grow = need > block->bytes ? need : block->bytes;
        /* A full-sized block may pass the ceiling where the need alone would not. */
        if (grow > arena->ceiling_bytes - arena->total_bytes)
            grow = need;
        if (sizeof *block + grow > arena->ceiling_bytes - arena->total_bytes)
            return NULL;
        block = block_open(grow, arena->newest);
        if (!block)
            return NULL;
        arena->newest = block;
        arena->total_bytes += sizeof *block + grow;
    }
    taken = block->data + block->used;
    block->used += need;
    return taken;
}

char *arena_copy(struct arena *arena, const void *from, size_t bytes)
{
    char *copy = bytes < SIZE_MAX ? arena_take(arena, bytes + 1, 1) : NULL;

    if (copy && bytes)
        memcpy(copy, from, bytes);
    return copy;
}

size_t arena_bytes(const struct arena *arena)
{
    return arena->total_bytes;
}
