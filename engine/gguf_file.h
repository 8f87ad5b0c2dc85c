/* gguf_file.h -- what gguf.c parsed, for gguf.c and gguf_keys.c only. */
#ifndef WEFT_GGUF_FILE_H
#define WEFT_GGUF_FILE_H

#include "engine/file_map.h"
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

struct gguf {
    char *path;
    struct file_map map;
    uint32_t version;
    uint32_t key_count;
    struct gguf_key *keys;
    struct name_index key_index;
    uint32_t tensor_count;
    struct gguf_tensor *tensors;
    struct name_index tensor_index;
};

#endif
