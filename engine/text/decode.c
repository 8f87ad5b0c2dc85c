/* decode.c -- tokenizer_decode(): whole sequences of tokens as their makers' decoders read them. */
#include <string.h>

#include "config/base/utf8.h"
#include "engine/text/detok.h"
#include "engine/text/tokenizer_internal.h"

static const char replacement[] = "\xef\xbf\xbd";

struct decoding {
    const struct tokenizer *tokenizer;
    struct buf *text;
    size_t start;       /* of what this decoding has written */
    struct detok detok; /* tokens of any bytes */
    struct buf run;     /* neighbouring byte tokens that wait */
    struct buf scratch; /* a piece that had to be changed */
    bool started;       /* a token has been read */
};

static bool is_byte(const struct tokenizer *tokenizer, int32_t id)
{
    return tokenizer->vocabulary.types[id] == TOKEN_BYTE;
}

static bool is_well_formed(const char *text, size_t bytes)
{
    for (size_t at = 0, taken; at < bytes; at += taken)
        if (!utf8_next(text + at, bytes - at, &taken, NULL))
            return false;
    return true;
}

static void end_run(struct decoding *decoding)
{
    const char *run = buf_string(&decoding->run);
    size_t bytes = decoding->run.bytes, taken;
    bool by_run = decoding->tokenizer->decode.bytes == BYTES_BY_RUN;

    if (by_run && is_well_formed(run, bytes)) {
        buf_put(decoding->text, run, bytes);
    } else if (by_run) {
        for (size_t i = 0; i < bytes; i++)
            buf_text(decoding->text, replacement);
    } else {
        for (size_t at = 0; at < bytes; at += taken) {
            if (utf8_next(run + at, bytes - at, &taken, NULL)) {
                buf_put(decoding->text, run + at, taken);
            } else {
                buf_text(decoding->text, replacement);
                taken = 1;
            }
        }
    }
    buf_reset(&decoding->run);
}

const char *tokenizer_first_piece(const struct tokenizer *tokenizer, int32_t id, size_t *ret_bytes)
{
    const char *piece = tokenizer_piece(tokenizer, id, ret_bytes);
    bool known = id >= 0 && (uint32_t)id < tokenizer->vocabulary.count;

    if (known && tokenizer->decode.start == START_WITH_KEY)
        return vocabulary_key(&tokenizer->vocabulary, id, ret_bytes);
    if (known && tokenizer->decode.start != START_AS_IS && *ret_bytes > 0 && *piece == ' ') {
        (*ret_bytes)--;
        return piece + 1;
    }
    return piece;
}

/* The bytes that the token adds here. */
static const char *piece_here(struct decoding *decoding, int32_t id, size_t *ret_bytes)
{
    const struct vocabulary *vocabulary = &decoding->tokenizer->vocabulary;
    const char *piece = vocabulary_piece(vocabulary, id, ret_bytes);
    bool first = !decoding->started;

    decoding->started = true;
    if (decoding->tokenizer->decode.hides_controls &&
        decoding->tokenizer->vocabulary.types[id] == TOKEN_UNKNOWN)
        return piece; /* its spaces are its own */
    switch (decoding->tokenizer->decode.start) {
    case START_AS_IS:
        break;
    case START_WITHOUT_SPACE:
    case START_WITHOUT_ANY:
        decoding->started = !first || *ret_bytes > 0;
        if (!first || *ret_bytes == 0 || *piece != ' ')
            break;
        (*ret_bytes)--;
        if (decoding->tokenizer->decode.start == START_WITHOUT_ANY)
            decoding->started = *ret_bytes > 0;
        return piece + 1;
    case START_WITHOUT_SPACES:
        if (!first || !memchr(piece, ' ', *ret_bytes))
            break;
        buf_reset(&decoding->scratch);
        for (size_t i = 0; i < *ret_bytes; i++)
            if (piece[i] != ' ')
                buf_byte(&decoding->scratch, piece[i]);
        *ret_bytes = decoding->scratch.bytes;
        return buf_string(&decoding->scratch);
    case START_WITH_KEY:
        if (first)
            return vocabulary_key(vocabulary, id, ret_bytes);
        break;
    }
    return piece;
}

static void put_piece(struct decoding *decoding, int32_t id, const char *piece, size_t bytes)
{
    if (decoding->tokenizer->decode.bytes == BYTES_LOSSY) {
        detok_feed_bytes(&decoding->detok, piece, bytes, decoding->text);
    } else if (is_byte(decoding->tokenizer, id)) {
        buf_put(&decoding->run, piece, bytes);
        decoding->text->failed = decoding->text->failed || buf_failed(&decoding->run);
    } else {
        end_run(decoding);
        detok_feed_bytes(&decoding->detok, piece, bytes, decoding->text);
    }
}

/* sentencepiece hides control tokens always, and the unknown one never. */
static bool adds_text(const struct tokenizer *tokenizer, int32_t id, bool skip_special)
{
    if (id < 0 || (uint32_t)id >= tokenizer->vocabulary.count)
        return false;
    if (tokenizer->decode.hides_controls)
        return tokenizer->vocabulary.types[id] != TOKEN_CONTROL;
    return !skip_special || !tokenizer_is_special(tokenizer, id);
}

void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                      bool skip_special, struct buf *text,
                      void (*piece)(void *data, const char *bytes, size_t count), void *data)
{
    struct decoding decoding = {.tokenizer = tokenizer, .text = text, .start = text->bytes};

    detok_init(&decoding.detok, tokenizer, false);
    buf_init(&decoding.run, count + 1);
    buf_init(&decoding.scratch, (size_t)UINT32_MAX);
    for (size_t i = 0; i < count; i++) {
        const char *bytes = "";
        size_t byte_count = 0;

        if (adds_text(tokenizer, ids[i], skip_special)) {
            bytes = piece_here(&decoding, ids[i], &byte_count);
            put_piece(&decoding, ids[i], bytes, byte_count);
        } else if (tokenizer->decode.hides_controls) {
            end_run(&decoding);
        }
        if (piece)
            piece(data, bytes, byte_count);
    }
    end_run(&decoding);
    detok_flush(&decoding.detok, text);
    if (tokenizer->decode.end_without_space && text->bytes > decoding.start &&
        text->data[text->bytes - 1] == ' ')
        buf_cut(text, text->bytes - 1);
    buf_fini(&decoding.run);
    buf_fini(&decoding.scratch);
}
