/* gguf_write.c -- see gguf_write.h. Numbers are written as they lie in memory: gguf.c asserts that
 * this is the file's order. */
#include "engine/gguf_write.h"

#include <string.h>

enum { PART_BYTES_MAX = 1 << 30, VERSION = 3 };

void gguf_writer_init(struct gguf_writer *writer)
{
    *writer = (struct gguf_writer){0};
    buf_init(&writer->keys, PART_BYTES_MAX);
    buf_init(&writer->tensors, PART_BYTES_MAX);
}

void gguf_writer_fini(struct gguf_writer *writer)
{
    buf_fini(&writer->keys);
    buf_fini(&writer->tensors);
}

static void put_u32(struct buf *to, uint32_t value)
{
    buf_put(to, &value, sizeof value);
}

static void put_u64(struct buf *to, uint64_t value)
{
    buf_put(to, &value, sizeof value);
}

static void put_string(struct buf *to, struct gguf_string string)
{
    put_u64(to, string.bytes);
    buf_put(to, string.text, string.bytes);
}

static void begin_key(struct gguf_writer *writer, struct gguf_string key, enum gguf_type type)
{
    put_string(&writer->keys, key);
    put_u32(&writer->keys, type);
    writer->key_count++;
}

static struct gguf_string as_string(const char *text)
{
    return (struct gguf_string){text, strlen(text)};
}

void gguf_put_u32(struct gguf_writer *writer, const char *key, uint32_t value)
{
    begin_key(writer, as_string(key), GGUF_U32);
    put_u32(&writer->keys, value);
}

void gguf_put_f32(struct gguf_writer *writer, const char *key, float value)
{
    begin_key(writer, as_string(key), GGUF_F32);
    buf_put(&writer->keys, &value, sizeof value);
}

void gguf_put_bool(struct gguf_writer *writer, const char *key, bool value)
{
    begin_key(writer, as_string(key), GGUF_BOOL);
    buf_byte(&writer->keys, value);
}

void gguf_put_string(struct gguf_writer *writer, const char *key, struct gguf_string value)
{
    begin_key(writer, as_string(key), GGUF_STRING);
    put_string(&writer->keys, value);
}

void gguf_put_array(struct gguf_writer *writer, const char *key, enum gguf_type type,
                    const void *values, uint64_t count)
{
    const struct gguf_string *strings = values;

    begin_key(writer, as_string(key), GGUF_ARRAY);
    put_u32(&writer->keys, type);
    put_u64(&writer->keys, count);
    if (type != GGUF_STRING)
        buf_put(&writer->keys, values, count * gguf_scalar_bytes(type));
    for (uint64_t i = 0; i < count && type == GGUF_STRING; i++)
        put_string(&writer->keys, strings[i]);
}

void gguf_put_key_of(struct gguf_writer *writer, const struct gguf *file, uint64_t index)
{
    const void *value;
    size_t bytes;
    enum gguf_type type = gguf_key_raw(file, index, &value, &bytes);

    begin_key(writer, gguf_key_name(file, index), type);
    buf_put(&writer->keys, value, bytes);
}

uint64_t gguf_padded(uint64_t bytes)
{
    return (bytes + GGUF_ALIGNMENT - 1) / GGUF_ALIGNMENT * GGUF_ALIGNMENT;
}

void gguf_put_tensor(struct gguf_writer *writer, struct gguf_string name, uint32_t dimension_count,
                     const uint64_t *dimensions, enum dtype type, uint64_t bytes)
{
    put_string(&writer->tensors, name);
    put_u32(&writer->tensors, dimension_count);
    buf_put(&writer->tensors, dimensions, dimension_count * sizeof *dimensions);
    put_u32(&writer->tensors, dtype_get(type)->gguf_code);
    put_u64(&writer->tensors, writer->data_bytes);
    writer->data_bytes += gguf_padded(bytes);
    writer->tensor_count++;
}

int gguf_writer_head(const struct gguf_writer *writer, struct buf *head, struct fault *fault)
{
    buf_text(head, "GGUF");
    put_u32(head, VERSION);
    put_u64(head, writer->tensor_count);
    put_u64(head, writer->key_count);
    buf_put(head, writer->keys.data, writer->keys.bytes);
    buf_put(head, writer->tensors.data, writer->tensors.bytes);
    while (head->bytes % GGUF_ALIGNMENT != 0 && !buf_failed(head))
        buf_byte(head, 0);
    if (buf_failed(&writer->keys) || buf_failed(&writer->tensors) || buf_failed(head))
        return fault_set(fault, E_MEMORY, "out of memory for the metadata of a GGUF file");
    return 0;
}
