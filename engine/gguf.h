/* gguf.h -- a GGUF file, memory-mapped: its metadata and where its tensors lie.
 *
 *     "GGUF" | version 2 or 3 | tensor count | key count | keys ... | tensors ... | padding | data
 *
 * (Format: ggml's docs/gguf.md.) Nothing is copied: strings and arrays point into the mapping.
 * Every offset, count, size and string length is checked against the file before use, so a
 * truncated or hostile file is a fault and never a crash (a file that others cut while it is mapped
 * is beyond help). Immutable after opening: any thread may read. */
#ifndef WEFT_GGUF_H
#define WEFT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/name_index.h"
#include "kernels/dtype.h"

enum { GGUF_DIMENSIONS_MAX = 4 };

/* Value types, numbered as in the file. */
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT,
};

struct gguf_tensor {
    struct gguf_string name;
    bool known;      /* false: a type that this version of weft does not read */
    uint32_t code;   /* the file's own type number */
    enum dtype type; /* when known */
    uint32_t dimension_count;
    uint64_t dimensions[GGUF_DIMENSIONS_MAX]; /* fastest first: [columns, rows, ...]; unused ones
                                                 are 1 */
    const void *data; /* into the mapping, `bytes` long; aligned to 8 at least */
    size_t bytes;     /* 0 when the type is not known */
};

struct gguf;

/* `path` must be a regular file. */
int gguf_open(const char *path, struct gguf **ret_file, struct fault *fault);
/* The same over bytes in memory, aligned to 16, that outlive the file; `name` stands for the path.
 */
int gguf_open_memory(const void *data, size_t bytes, const char *name, struct gguf **ret_file,
                     struct fault *fault);
void gguf_close(struct gguf *file); /* NULL is fine */
/* What was read of a mapped file need not stay in this process's memory: it comes back when it is
 * read again. */
void gguf_rest(const struct gguf *file);

const char *gguf_path(const struct gguf *file);
uint64_t gguf_bytes(const struct gguf *file);
uint32_t gguf_version(const struct gguf *file);

size_t gguf_scalar_bytes(enum gguf_type type); /* 0 for strings and arrays */

/* Metadata. Each returns 1 with the value, 0 when the key is absent, E_CORRUPT when it is there
 * with another type (the fault names the key). Integers of any width are accepted where they fit.
 */
int gguf_get_u64(const struct gguf *file, const char *key, uint64_t *ret_value,
                 struct fault *fault);
int gguf_get_f64(const struct gguf *file, const char *key, double *ret_value, struct fault *fault);
int gguf_get_bool(const struct gguf *file, const char *key, bool *ret_value, struct fault *fault);
int gguf_get_string(const struct gguf *file, const char *key, struct gguf_string *ret_value,
                    struct fault *fault);

/* An array; elements are read by index below. */
struct gguf_array {
    enum gguf_type type; /* of the elements; never GGUF_ARRAY */
    uint64_t count;
    const uint8_t *data; /* fixed-size elements, unaligned */
    const uint64_t
        *string_at; /* strings: offset of each from the start of the file; owned by the file */
    const struct gguf *file;
};
int gguf_get_array(const struct gguf *file, const char *key, struct gguf_array *ret_value,
                   struct fault *fault);
struct gguf_string gguf_array_string(const struct gguf_array *array, uint64_t index);
int64_t gguf_array_int(const struct gguf_array *array, uint64_t index);
double gguf_array_real(const struct gguf_array *array, uint64_t index);

/* Writes a name or value for people: what is not printable UTF-8 becomes '?', what does not fit is
 * cut. */
void gguf_string_print(struct gguf_string string, char *ret_text, size_t room);

/* Walks the metadata for `inspect`: index < gguf_key_count(). Writes a short printable form of the
 * value. */
uint64_t gguf_key_count(const struct gguf *file);
struct gguf_string gguf_key_name(const struct gguf *file, uint64_t index);
/* A key's value as it stands in the file, after its type, which is returned. */
enum gguf_type gguf_key_raw(const struct gguf *file, uint64_t index, const void **ret_value,
                            size_t *ret_bytes);
void gguf_key_print(const struct gguf *file, uint64_t index, char *ret_text, size_t room);

uint64_t gguf_tensor_count(const struct gguf *file);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *file, uint64_t index);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *file, const char *name);

#endif
