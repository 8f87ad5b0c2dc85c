/* name_index.h -- finds named things of an array by their name.
 *
 * The things are structs that begin with a struct gguf_string; the index holds their positions in
 * the names' order, so that a hostile count costs n log n and no more. */
#ifndef WEFT_NAME_INDEX_H
#define WEFT_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of a name that lie elsewhere. */
struct gguf_string {
    const char *text; /* not NUL-terminated; any bytes */
    size_t bytes;
};

struct name_index {
    uint32_t *order; /* positions, sorted by name */
    uint32_t count;
};

/* `items` lie `stride` bytes apart. Returns 0; 1 where a name occurs twice, with the position of
 * one of the two; E_MEMORY. Close it in every case. */
int name_index_build(struct name_index *index, const void *items, size_t stride, uint32_t count,
                     uint32_t *ret_twice);
void name_index_close(struct name_index *index); /* a zeroed one is fine */
/* The thing of that name, or NULL. */
const void *name_index_find(const struct name_index *index, const void *items, size_t stride,
                            struct gguf_string name);

#endif
