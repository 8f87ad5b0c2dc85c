/* gguf_file.h -- what gguf.c parsed, for gguf.c and gguf_keys.c only. */
#ifndef WEFT_GGUF_FILE_H
#define WEFT_GGUF_FILE_H

#include "engine/gguf.h"

/* One metadata entry. Everything it points to was checked to lie inside the file. */
struct gguf_key {
    struct gguf_string name; /* first, as in struct gguf_tensor: the indexes sort both by it */
    enum gguf_type type;
    enum gguf_type element; /* GGUF_ARRAY: the elements' type */
    uint64_t count;         /* GGUF_ARRAY: elements; GGUF_STRING: bytes */
    const uint8_t *value;   /* unaligned */
    uint64_t *string_at;    /* arrays of strings: where each one's length stands in the file */
};

/* Positions in `keys` or `tensors`, sorted by name, so that a hostile count costs n log n and no
 * more. */
struct gguf_index {
    uint32_t *order;
    uint32_t count;
};

struct gguf {
    char *path;
    const uint8_t *base;
    size_t bytes;
    bool mapped; /* false: the bytes are somebody else's */
    uint32_t version;
    uint32_t key_count;
    struct gguf_key *keys;
    struct gguf_index key_index;
    uint32_t tensor_count;
    struct gguf_tensor *tensors;
    struct gguf_index tensor_index;
};

size_t gguf_scalar_bytes(enum gguf_type type); /* 0 for strings and arrays */
/* The entry named so among `items`, which lie `stride` bytes apart and begin with their name; or
 * NULL. */
const void *gguf_index_find(const struct gguf_index *index, const void *items, size_t stride,
                            struct gguf_string name);

#endif
