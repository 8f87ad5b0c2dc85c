/* carve.h -- pieces of one region, each on a line of its own.
 *
 * The same calls are made twice: once with `base` NULL to learn the size, once to place. What is
 * carved may be another device's memory; nothing here touches it. */
#ifndef WEFT_CARVE_H
#define WEFT_CARVE_H

#include <stddef.h>
#include <stdint.h>

enum { CARVE_LINE_BYTES = 256 }; /* what GPUs read best from; a multiple of the CPU's lines */

struct carve {
    uint8_t *base;
    size_t bytes;
};

static inline void *carve_take(struct carve *carve, size_t count, size_t bytes)
{
    void *piece = carve->base ? carve->base + carve->bytes : NULL;

    carve->bytes += (count * bytes + CARVE_LINE_BYTES - 1) / CARVE_LINE_BYTES * CARVE_LINE_BYTES;
    return piece;
}

#endif
