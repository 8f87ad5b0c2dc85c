/* gguf_write.h -- the head of a GGUF file, for writing one: metadata, and where each tensor lies.
 *
 *     "GGUF" | 3 | tensor count | key count | keys ... | tensors ... | padding | data
 *
 * (Format: ggml's docs/gguf.md.) Keys and tensors are appended in any order; the tensors' data
 * follow each other in the order in which they were added, each padded to GGUF_ALIGNMENT. What does
 * not fit in memory is told once, by gguf_writer_head(). Not thread-safe. */
#ifndef WEFT_GGUF_WRITE_H
#define WEFT_GGUF_WRITE_H

#include "config/base/buf.h"
#include "engine/gguf.h"

enum { GGUF_ALIGNMENT = 32 };

struct gguf_writer {
    struct buf keys;
    struct buf tensors;
    uint64_t key_count;
    uint64_t tensor_count;
    uint64_t data_bytes; /* of the tensors so far, padding included */
};

void gguf_writer_init(struct gguf_writer *writer);
void gguf_writer_fini(struct gguf_writer *writer);

void gguf_put_u32(struct gguf_writer *writer, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_writer *writer, const char *key, float value);
void gguf_put_bool(struct gguf_writer *writer, const char *key, bool value);
void gguf_put_string(struct gguf_writer *writer, const char *key, struct gguf_string value);
/* An array: `type` is a scalar's, whose values lie at `values`, or GGUF_STRING: struct
 * gguf_string[count]. */
void gguf_put_array(struct gguf_writer *writer, const char *key, enum gguf_type type,
                    const void *values, uint64_t count);
/* As another file has it: key `index` of it. */
void gguf_put_key_of(struct gguf_writer *writer, const struct gguf *file, uint64_t index);

/* Bytes that a tensor of so many takes, with its padding. */
uint64_t gguf_padded(uint64_t bytes);
/* `bytes` are the tensor's own, which dtype_bytes() says. */
void gguf_put_tensor(struct gguf_writer *writer, struct gguf_string name, uint32_t dimension_count,
                     const uint64_t *dimensions, enum dtype type, uint64_t bytes);

/* Appends all of it, padding included, to `head`; the data begin where it ends. E_MEMORY. */
int gguf_writer_head(const struct gguf_writer *writer, struct buf *head, struct fault *fault);

#endif
