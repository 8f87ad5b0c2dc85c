/* tokenizer.c -- see tokenizer.h. */
#include "engine/text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/base/utf8.h"
#include "engine/text/tokenizer_internal.h"

enum { TEXT_BYTES_MAX = 1 << 30 };

/* ---- making ---- */

int tokenizer_open_empty(struct tokenizer **ret_tokenizer, struct fault *fault)
{
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);

    if (!tokenizer)
        return fault_set(fault, E_MEMORY, "out of memory for a tokenizer");
    tokenizer->bos = tokenizer->eos = -1;
    *ret_tokenizer = tokenizer;
    return 0;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    if (tokenizer->model.close)
        tokenizer->model.close(tokenizer->model.data);
    pretokenizer_close(tokenizer->pretokenizer);
    normalizer_close(tokenizer->normalizer);
    specials_fini(&tokenizer->specials);
    specials_fini(&tokenizer->normalized_specials);
    vocabulary_fini(&tokenizer->vocabulary);
    free(tokenizer);
}

void tokenizer_add_end(struct tokenizer *tokenizer, int32_t id)
{
    for (uint32_t i = 0; i < tokenizer->end_count; i++)
        if (tokenizer->ends[i] == id)
            return;
    if (id >= 0 && tokenizer->end_count < TOKENIZER_ENDS_MAX)
        tokenizer->ends[tokenizer->end_count++] = id;
}

void tokenizer_add_known_ends(struct tokenizer *tokenizer)
{
    static const char *const names[] = {
        "<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
        "<|end_of_text|>", "<end_of_turn>", "<|EOT|>",
    };
    /* Where an answer has several messages, <|end|> is behind each of them. */
    bool harmony = tokenizer_find(tokenizer, "<|channel|>") >= 0;

    tokenizer_add_end(tokenizer, tokenizer_find(tokenizer, harmony ? "<|return|>" : "<|end|>"));
    if (harmony)
        tokenizer_add_end(tokenizer, tokenizer_find(tokenizer, "<|call|>"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tokenizer_add_end(tokenizer, tokenizer_find(tokenizer, names[i]));
}

/* ---- encoding ---- */

static size_t well_formed_bytes(const char *text, size_t bytes)
{
    size_t at = 0, taken;

    while (at < bytes) {
        if ((unsigned char)text[at] < 0x80)
            taken = 1;
        else if (!utf8_next(text + at, bytes - at, &taken, NULL))
            break;
        at += taken;
    }
    return at;
}

/* Appends the text with one U+FFFD for each ill-formed part. */
static void repair(struct buf *ret_text, const char *text, size_t bytes)
{
    for (size_t at = 0, taken; at < bytes; at += taken) {
        taken = well_formed_bytes(text + at, bytes - at);
        buf_put(ret_text, text + at, taken);
        at += taken;
        taken = 0;
        if (at < bytes && !utf8_next(text + at, bytes - at, &taken, NULL))
            buf_text(ret_text, "\xef\xbf\xbd");
    }
}

/* One call of tokenizer_encode(). */
struct encoding {
    const struct tokenizer *tokenizer;
    struct encode_work *work;
    struct tokens *tokens;
    struct fault *fault;
    bool controls_as_text;
};

static int encode_piece(void *data, const char *piece, size_t bytes)
{
    const struct encoding *encoding = data;
    const struct token_model *model = &encoding->tokenizer->model;

    return model->encode(model->data, piece, bytes, encoding->work, encoding->tokens);
}

/* Normalized text without special tokens. */
static int encode_plain(struct encoding *encoding, const char *text, size_t bytes, bool first)
{
    if (bytes == 0)
        return 0;
    if (!encoding->tokenizer->pretokenizer)
        return encode_piece(encoding, text, bytes);
    return pretokenizer_split(encoding->tokenizer->pretokenizer, &encoding->work->pretokenizer,
                              text, bytes, first, encode_piece, encoding, encoding->fault);
}

typedef int encode_stretch(struct encoding *encoding, const char *text, size_t bytes, bool first);

/* Cuts special tokens out and encodes what lies between them. */
static int encode_around(struct encoding *encoding, const struct specials *specials,
                         encode_stretch *stretch, const char *text, size_t bytes, bool first)
{
    struct special_match match;
    struct special_hits hits;
    size_t at = 0;
    int r;

    special_hits_init(&hits);
    r = specials_scan(specials, text, bytes, &hits);
    while (r == 0 &&
           specials_next(specials, &hits, encoding->controls_as_text, text, bytes, at, &match)) {
        if (match.start > at)
            r = stretch(encoding, text + at, match.start - at, first && at == 0);
        if (r == 0)
            r = tokens_put(encoding->tokens, match.id);
        at = match.end;
    }
    if (r == 0 && at < bytes)
        r = stretch(encoding, text + at, bytes - at, first && at == 0);
    special_hits_fini(&hits);
    return r;
}

static int encode_normalized(struct encoding *encoding, const char *text, size_t bytes, bool first)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;

    if (tokenizer->normalizer) {
        int r = normalizer_apply(tokenizer->normalizer, &encoding->work->normalizer, text, bytes,
                                 &text, &bytes, encoding->fault);

        if (r < 0)
            return r;
    }
    return encode_around(encoding, &tokenizer->normalized_specials, encode_plain, text, bytes,
                         first);
}

static int put_affix(const struct token_affix *affix, struct tokens *tokens)
{
    int r = 0;

    for (uint32_t i = 0; i < affix->count && r == 0; i++)
        r = tokens_put(tokens, affix->ids[i]);
    return r;
}

static int encode(struct encoding *encoding, const char *text, size_t bytes, bool add_special)
{
    const struct tokenizer *tokenizer = encoding->tokenizer;
    int r = add_special ? put_affix(&tokenizer->before, encoding->tokens) : 0;

    if (r == 0)
        r = encode_around(encoding, &tokenizer->specials, encode_normalized, text, bytes, true);
    if (r == 0 && add_special)
        r = put_affix(&tokenizer->after, encoding->tokens);
    return r;
}

static void work_init(struct encode_work *work)
{
    merge_work_init(&work->merge);
    normalizer_work_init(&work->normalizer);
    pretokenizer_work_init(&work->pretokenizer);
    buf_init(&work->text, SIZE_MAX / 2);
}

static void work_fini(struct encode_work *work)
{
    merge_work_fini(&work->merge);
    normalizer_work_fini(&work->normalizer);
    pretokenizer_work_fini(&work->pretokenizer);
    buf_fini(&work->text);
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                     unsigned flags, struct tokens *tokens, struct fault *fault)
{
    bool as_text = (flags & ENCODE_SPECIALS_AS_TEXT) ||
                   ((flags & ENCODE_AS_LIBRARY) && tokenizer->reads_controls_as_text);
    struct encode_work work;
    struct buf repaired;
    struct fault unread;
    int r = 0;

    if (!fault)
        fault = &unread;
    fault->code = 0;
    if (bytes > TEXT_BYTES_MAX)
        return fault_set(fault, E_TOO_LARGE,
                         "a text of %zu bytes is more than the %d that are read", bytes,
                         TEXT_BYTES_MAX);
    work_init(&work);
    buf_init(&repaired, 3 * bytes); /* each ill-formed byte may become three */
    if (well_formed_bytes(text, bytes) < bytes) {
        repair(&repaired, text, bytes);
        if (buf_failed(&repaired))
            r = -ENOMEM;
        text = repaired.data;
        bytes = repaired.bytes;
    }
    if (r == 0)
        r = encode(&(struct encoding){.tokenizer = tokenizer,
                                      .work = &work,
                                      .tokens = tokens,
                                      .fault = fault,
                                      .controls_as_text = as_text},
                   text, bytes, flags & ENCODE_ADD_SPECIAL);
    /* Below here a full list and a failed allocation come without words. */
    if (r < 0 && fault->code != r)
        r = r == E_TOO_LARGE ? fault_set(fault, E_TOO_LARGE, "the text has more than %zu tokens",
                                         tokens->ceiling)
                             : fault_set(fault, E_MEMORY, "out of memory while tokenizing");
    buf_fini(&repaired);
    work_fini(&work);
    return r;
}

/* ---- looking up ---- */

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, size_t *ret_bytes)
{
    if (id < 0 || (uint32_t)id >= tokenizer->vocabulary.count) {
        *ret_bytes = 0;
        return "";
    }
    return vocabulary_piece(&tokenizer->vocabulary, id, ret_bytes);
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || (uint32_t)id >= tokenizer->vocabulary.count)
        return false;
    return tokenizer->vocabulary.types[id] == TOKEN_CONTROL ||
           tokenizer->vocabulary.types[id] == TOKEN_UNKNOWN;
}

uint32_t tokenizer_count(const struct tokenizer *tokenizer)
{
    return tokenizer ? tokenizer->vocabulary.count : 0;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos >= 0 && tokenizer->before.count > 0 &&
           tokenizer->before.ids[0] == tokenizer->bos;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *piece)
{
    int32_t id = specials_find(&tokenizer->specials, piece, strlen(piece));

    return id >= 0 ? id : specials_find(&tokenizer->normalized_specials, piece, strlen(piece));
}

uint32_t tokenizer_ends(const struct tokenizer *tokenizer, const int32_t **ret_ids)
{
    *ret_ids = tokenizer ? tokenizer->ends : NULL;
    return tokenizer ? tokenizer->end_count : 0;
}
