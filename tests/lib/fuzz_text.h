/* fuzz_text.h -- what fuzzers do with a tokenizer that could be opened. */
#ifndef WEFT_TEST_FUZZ_TEXT_H
#define WEFT_TEST_FUZZ_TEXT_H

#include <stdlib.h>

#include "config/base/utf8.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer.h"

enum { FUZZ_TOKENS_MAX = 8000 };

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

#endif
