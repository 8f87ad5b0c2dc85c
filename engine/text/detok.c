/* detok.c -- see detok.h.
 *
 * At most three bytes wait: the start of a character whose rest may still come. */
#include "engine/text/detok.h"

#include <string.h>

#include "config/base/utf8.h"

static const char replacement[] = "\xef\xbf\xbd";

void detok_init(struct detok *detok, const struct tokenizer *tokenizer, bool skip_special)
{
    *detok = (struct detok){.tokenizer = tokenizer, .skip_special = skip_special};
}

void detok_init_start(struct detok *detok, const struct tokenizer *tokenizer, bool skip_special)
{
    detok_init(detok, tokenizer, skip_special);
    detok->at_start = true;
}

/* Appends whole characters, U+FFFD for what can never be one, and returns how many bytes at the end
 * (fewer than four) are the start of one. */
static size_t put_whole(const char *bytes, size_t count, struct buf *text)
{
    size_t start = 0, at = 0, taken;
    bool cut = false;

    while (at < count) {
        if (utf8_next(bytes + at, count - at, &taken, &cut)) {
            at += taken;
            continue;
        }
        if (cut)
            break;
        buf_put(text, bytes + start, at - start);
        buf_text(text, replacement);
        at += taken;
        start = at;
    }
    buf_put(text, bytes + start, at - start);
    return count - at;
}

void detok_feed(struct detok *detok, int32_t token, struct buf *text)
{
    const char *piece;
    size_t count;

    if (detok->skip_special && tokenizer_is_special(detok->tokenizer, token))
        return;
    piece = detok->at_start ? tokenizer_first_piece(detok->tokenizer, token, &count)
                            : tokenizer_piece(detok->tokenizer, token, &count);
    detok->at_start = false;
    detok_feed_bytes(detok, piece, count, text);
}

void detok_feed_bytes(struct detok *detok, const char *piece, size_t count, struct buf *text)
{
    size_t used = 0;

    /* First what waits, a byte at a time until it is settled; then the piece where it lies. */
    while (detok->pending_bytes > 0 && used < count) {
        size_t left;

        detok->pending[detok->pending_bytes++] = (uint8_t)piece[used++];
        left = put_whole((const char *)detok->pending, detok->pending_bytes, text);
        memmove(detok->pending, detok->pending + detok->pending_bytes - left, left);
        detok->pending_bytes = (uint8_t)left;
    }
    if (used < count) {
        size_t left = put_whole(piece + used, count - used, text);

        memcpy(detok->pending, piece + count - left, left);
        detok->pending_bytes = (uint8_t)left;
    }
}

void detok_flush(struct detok *detok, struct buf *text)
{
    /* What waits is the start of one character: a single ill-formed part. */
    if (detok->pending_bytes > 0)
        buf_text(text, replacement);
    detok->pending_bytes = 0;
}

void detok_piece(const struct tokenizer *tokenizer, int32_t token, struct buf *text)
{
    struct detok alone;

    detok_init(&alone, tokenizer, false);
    detok_feed(&alone, token, text);
    detok_flush(&alone, text);
}
