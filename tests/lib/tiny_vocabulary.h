/* tiny_vocabulary.h -- a byte-level BPE made up for tests: all 256 bytes, some merges, some special
 * tokens.
 *
 *     0..255      the bytes in order                 256..  what the merges make, one each
 *     then        <|a|>  <|a|>b  (control)  <u>  (user-defined)  <|im_end|>  (control)
 *
 * A test may leave bytes out, or spoil one thing, and see what opening says. */
#ifndef WEFT_TEST_TINY_VOCABULARY_H
#define WEFT_TEST_TINY_VOCABULARY_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tests/lib/gguf_stream.h"

struct tiny_merge {
    const char *left; /* plain bytes, without NUL */
    const char *right;
};

static const struct tiny_merge tiny_merges[] = {
    {"l", "l"},  {"h", "e"},   {"ll", "o"}, {"he", "llo"}, {" ", "w"},       {"a", "a"},
    {"aa", "a"}, {"aa", "aa"}, {"b", "c"},  {"a", "b"},    {"\xc3", "\xa9"},
};
enum {
    TINY_MERGE_COUNT = sizeof tiny_merges / sizeof *tiny_merges,
    TINY_A = 256 + TINY_MERGE_COUNT, /* <|a|> */
    TINY_AB,                         /* <|a|>b */
    TINY_USER,                       /* <u> */
    TINY_END,                        /* <|im_end|> */
    TINY_COUNT,
};
static const char *const tiny_specials[] = {"<|a|>", "<|a|>b", "<u>", "<|im_end|>"};

/* Writes a byte as GPT-2's alphabet has it; returns how many bytes of UTF-8 that takes. */
static inline size_t tiny_alphabet(uint8_t byte, char *to)
{
    uint32_t character = byte, shift = 0;

    if (!((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174)) {
        for (uint32_t b = 0; b < byte; b++)
            shift += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
        character = 256 + shift;
    }
    if (character < 0x80) {
        to[0] = (char)character;
        return 1;
    }
    to[0] = (char)(0xc0 | character >> 6);
    to[1] = (char)(0x80 | (character & 0x3f));
    return 2;
}

static inline size_t tiny_encode(const char *bytes, char *to)
{
    size_t used = 0;

    for (; *bytes; bytes++)
        used += tiny_alphabet((uint8_t)*bytes, to + used);
    return used;
}

static inline void tiny_write_tokens(struct gguf_stream *stream)
{
    char text[64];

    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, TINY_COUNT);
    for (int byte = 0; byte < 256; byte++)
        gguf_stream_text(stream, text, tiny_alphabet((uint8_t)byte, text));
    for (int i = 0; i < TINY_MERGE_COUNT; i++) {
        size_t left = tiny_encode(tiny_merges[i].left, text);

        gguf_stream_text(stream, text, left + tiny_encode(tiny_merges[i].right, text + left));
    }
    for (int i = 0; i < TINY_COUNT - TINY_A; i++)
        gguf_stream_text(stream, tiny_specials[i], strlen(tiny_specials[i]));
    gguf_stream_array(stream, "tokenizer.ggml.token_type", GGUF_I32, TINY_COUNT);
    for (uint32_t id = 0; id < TINY_COUNT; id++)
        gguf_stream_u32(stream, id < TINY_A ? 1 : id == TINY_USER ? 4 : 3);
}

static inline void tiny_write_merges(struct gguf_stream *stream)
{
    gguf_stream_array(stream, "tokenizer.ggml.merges", GGUF_STRING, TINY_MERGE_COUNT);
    for (int i = 0; i < TINY_MERGE_COUNT; i++) {
        char text[64];
        size_t used = tiny_encode(tiny_merges[i].left, text);

        text[used++] = ' ';
        used += tiny_encode(tiny_merges[i].right, text + used);
        gguf_stream_text(stream, text, used);
    }
}

/* A whole tokenizer; more keys may follow. */
static inline void tiny_write(struct gguf_stream *stream, const char *pre)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    gguf_stream_string(stream, "tokenizer.ggml.pre", pre);
    tiny_write_tokens(stream);
    tiny_write_merges(stream);
    gguf_stream_number(stream, "tokenizer.ggml.bos_token_id", TINY_A);
    gguf_stream_number(stream, "tokenizer.ggml.eos_token_id", TINY_AB);
}

#endif
