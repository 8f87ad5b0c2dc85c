/* gguf_stream.h -- writes the metadata of a GGUF file of any size into memory, for tests that make
 * a model's tokenizer or template up.
 *
 *     struct gguf_stream stream;
 *     gguf_stream_open(&stream);
 *     gguf_stream_string(&stream, "tokenizer.ggml.model", "gpt2");
 *     struct gguf *file = gguf_stream_finish(&stream);     ... gguf_close(file);
 * free(stream.bytes); */
#ifndef WEFT_TEST_GGUF_STREAM_H
#define WEFT_TEST_GGUF_STREAM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf.h"

struct gguf_stream {
    FILE *to;
    char *bytes;
    size_t size;
    uint64_t key_count;
};

static inline void gguf_stream_u32(struct gguf_stream *stream, uint32_t value)
{
    fwrite(&value, sizeof value, 1, stream->to);
}

static inline void gguf_stream_u64(struct gguf_stream *stream, uint64_t value)
{
    fwrite(&value, sizeof value, 1, stream->to);
}

static inline void gguf_stream_text(struct gguf_stream *stream, const char *text, size_t bytes)
{
    gguf_stream_u64(stream, bytes);
    if (bytes > 0)
        fwrite(text, bytes, 1, stream->to);
}

static inline void gguf_stream_open(struct gguf_stream *stream)
{
    *stream = (struct gguf_stream){0};
    stream->to = open_memstream(&stream->bytes, &stream->size);
    if (!stream->to)
        abort();
    fwrite("GGUF", 4, 1, stream->to);
    gguf_stream_u32(stream, 3);
    gguf_stream_u64(stream, 0); /* tensors */
    gguf_stream_u64(stream, 0); /* keys: known at the end */
}

/* A key and its type; the value follows. */
static inline void gguf_stream_key(struct gguf_stream *stream, const char *key, uint32_t type)
{
    gguf_stream_text(stream, key, strlen(key));
    gguf_stream_u32(stream, type);
    stream->key_count++;
}

/* The elements follow. */
static inline void gguf_stream_array(struct gguf_stream *stream, const char *key, uint32_t type,
                                     uint64_t count)
{
    gguf_stream_key(stream, key, GGUF_ARRAY);
    gguf_stream_u32(stream, type);
    gguf_stream_u64(stream, count);
}

static inline void gguf_stream_string(struct gguf_stream *stream, const char *key, const char *text)
{
    gguf_stream_key(stream, key, GGUF_STRING);
    gguf_stream_text(stream, text, strlen(text));
}

static inline void gguf_stream_number(struct gguf_stream *stream, const char *key, uint32_t value)
{
    gguf_stream_key(stream, key, GGUF_U32);
    gguf_stream_u32(stream, value);
}

static inline void gguf_stream_flag(struct gguf_stream *stream, const char *key, bool value)
{
    gguf_stream_key(stream, key, GGUF_BOOL);
    fputc(value ? 1 : 0, stream->to);
}

/* The bytes stay at stream->bytes, for the caller to free after the file. NULL: the reader refused.
 * */
static inline struct gguf *gguf_stream_finish(struct gguf_stream *stream)
{
    struct gguf *file = NULL;

    if (fclose(stream->to) != 0)
        abort();
    memcpy(stream->bytes + 16, &stream->key_count, sizeof stream->key_count);
    gguf_open_memory(stream->bytes, stream->size, "made up", &file, NULL);
    return file;
}

#endif
