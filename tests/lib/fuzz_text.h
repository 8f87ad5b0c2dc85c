/* fuzz_text.h -- what fuzzers of tokenizers have in common: opening one of a file's bytes, and what
 * is done with one that opened. */
#ifndef WEFT_TEST_FUZZ_TEXT_H
#define WEFT_TEST_FUZZ_TEXT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer.h"

enum { FUZZ_TOKENS_MAX = 8000, FUZZ_TEXT_BYTES_MAX = 200 };

static inline void check(bool right)
{
    if (!right)
        abort();
}

/* Whatever the tokenizer is: ids below its count, and their text is UTF-8 both ways of decoding. */
static inline void encode_and_decode(const struct tokenizer *tokenizer, const char *text,
                                     size_t bytes)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        struct tokens tokens;
        struct detok detok;
        struct buf decoded;
        int r;

        tokens_init(&tokens, FUZZ_TOKENS_MAX);
        buf_init(&decoded, 64 << 20);
        detok_init(&detok, tokenizer, flags & 1);
        r = tokenizer_encode(tokenizer, text, bytes, flags, &tokens, NULL);
        check(r == 0 || r == E_TOO_LARGE || r == E_MEMORY);
        for (size_t i = 0; i < tokens.count; i++) {
            check(tokens.ids[i] >= 0 && (uint32_t)tokens.ids[i] < tokenizer_count(tokenizer));
            detok_feed(&detok, tokens.ids[i], &decoded);
        }
        detok_flush(&detok, &decoded);
        for (size_t at = 0, taken; at < decoded.bytes; at += taken)
            check(utf8_next(decoded.data + at, decoded.bytes - at, &taken, NULL));
        buf_reset(&decoded);
        tokenizer_decode(tokenizer, tokens.ids, tokens.count, flags & 1, &decoded, NULL, NULL);
        for (size_t at = 0, taken; at < decoded.bytes; at += taken)
            check(utf8_next(decoded.data + at, decoded.bytes - at, &taken, NULL));
        buf_fini(&decoded);
        tokens_fini(&tokens);
    }
}

/* Opens the bytes as a tokenizer's file by `open`, and has it encode the last of them and some
 * fixed ones. */
static inline void fuzz_tokenizer_file(const uint8_t *data, size_t size,
                                       int (*open)(const char *text, size_t bytes,
                                                   struct tokenizer **ret_tokenizer))
{
    static const char fixed[] =
        " The  caf\xc3\xa9\xcc\x81 \xe4\xb8\xad 12345\n\n<s>\xf0\x9f\x98\x80 ##a</s>";
    size_t bytes = size < FUZZ_TEXT_BYTES_MAX ? size : FUZZ_TEXT_BYTES_MAX;
    struct tokenizer *tokenizer = NULL;
    char *copy = malloc(size + 1);

    if (!copy)
        return;
    memcpy(copy, data, size);
    copy[size] = 0;
    if (open(copy, size, &tokenizer) == 0) {
        encode_and_decode(tokenizer, copy + size - bytes, bytes);
        encode_and_decode(tokenizer, fixed, sizeof fixed - 1);
    }
    tokenizer_close(tokenizer);
    free(copy);
}

#endif
