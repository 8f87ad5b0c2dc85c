/* gguf_builder.h -- writes small GGUF files into memory, right or wrong in one place, for tests.
 *
 * Bytes go where the test says; nothing is checked here. */
#ifndef WEFT_TEST_GGUF_BUILDER_H
#define WEFT_TEST_GGUF_BUILDER_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct gguf_builder {
    _Alignas(16) uint8_t bytes[16384];
    size_t used;
};

static inline void put_bytes(struct gguf_builder *builder, const void *data, size_t bytes)
{
    if (bytes > sizeof builder->bytes - builder->used)
        abort(); /* a test that writes too much */
    memcpy(builder->bytes + builder->used, data, bytes);
    builder->used += bytes;
}

static inline void put_u32(struct gguf_builder *builder, uint32_t value)
{
    put_bytes(builder, &value, sizeof value);
}

static inline void put_u64(struct gguf_builder *builder, uint64_t value)
{
    put_bytes(builder, &value, sizeof value);
}

static inline void put_string(struct gguf_builder *builder, const char *text)
{
    put_u64(builder, strlen(text));
    put_bytes(builder, text, strlen(text));
}

static inline void put_header(struct gguf_builder *builder, uint32_t version, uint64_t tensors,
                              uint64_t keys)
{
    builder->used = 0;
    put_bytes(builder, "GGUF", 4);
    put_u32(builder, version);
    put_u64(builder, tensors);
    put_u64(builder, keys);
}

/* A key and its type's number; the value follows. */
static inline void put_key(struct gguf_builder *builder, const char *name, uint32_t type)
{
    put_string(builder, name);
    put_u32(builder, type);
}

static inline void put_tensor(struct gguf_builder *builder, const char *name, uint64_t columns,
                              uint64_t rows, uint32_t type, uint64_t offset)
{
    put_string(builder, name);
    put_u32(builder, rows > 1 ? 2 : 1);
    put_u64(builder, columns);
    if (rows > 1)
        put_u64(builder, rows);
    put_u32(builder, type);
    put_u64(builder, offset);
}

/* Zeros up to a multiple of 32, then `bytes` more: a data section. */
static inline void put_data(struct gguf_builder *builder, size_t bytes)
{
    static const uint8_t zeros[4096];

    put_bytes(builder, zeros, (32 - builder->used % 32) % 32);
    put_bytes(builder, zeros, bytes);
}

#endif
