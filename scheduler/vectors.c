/* vectors.c -- see vectors.h. */
#include "scheduler/vectors.h"

#include <stdlib.h>

#include "config/base/fault.h"

struct vectors *vectors_open(uint32_t count, uint32_t width)
{
    uint64_t values = (uint64_t)count * width;
    struct vectors *vectors;

    if (values > (SIZE_MAX - sizeof *vectors) / sizeof(float))
        return NULL;
    vectors = calloc(1, sizeof *vectors + (size_t)values * sizeof(float));
    if (!vectors)
        return NULL;
    atomic_init(&vectors->owners, 1);
    vectors->count = count;
    vectors->width = width;
    return vectors;
}

struct vectors *vectors_share(struct vectors *vectors)
{
    atomic_fetch_add(&vectors->owners, 1);
    return vectors;
}

void vectors_close(struct vectors *vectors)
{
    if (vectors && atomic_fetch_sub(&vectors->owners, 1) == 1)
        free(vectors);
}

float *vectors_at(struct vectors *vectors, uint32_t index)
{
    must(index < vectors->count);
    return vectors->values + (size_t)index * vectors->width;
}
