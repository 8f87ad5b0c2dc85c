/* tokenizer_json_decoder.c -- the "decoder" of a tokenizer.json, as what each token adds to a text
 * and a few rules for the whole. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer_json.h"

/* One list of decoders while it is read. */
struct reading {
    struct token_decoder *decoder;
    struct decode_rules *rules;
    bool fused; /* what follows sees the whole text, not each token */
};

static int copy_text(const json_t *value, char to[static DECODER_TEXT_MAX], struct fault *fault)
{
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);

    if (!text)
        return fault_set(fault, E_CORRUPT, "a decoder misses a text");
    if (bytes >= DECODER_TEXT_MAX || strlen(text) != bytes)
        return fault_set(fault, E_UNSUPPORTED, "a decoder's text of %zu bytes", bytes);
    memcpy(to, text, bytes + 1);
    return 0;
}

static int add_replace(struct token_decoder *decoder, const json_t *from, const json_t *to,
                       struct fault *fault)
{
    uint32_t i = decoder->replace_count;
    int r;

    if (i == DECODER_REPLACES_MAX)
        return fault_set(fault, E_UNSUPPORTED, "a decoder of more than %d replacements",
                         DECODER_REPLACES_MAX);
    r = copy_text(from, decoder->replaces[i].from, fault);
    if (r == 0)
        r = copy_text(to, decoder->replaces[i].to, fault);
    if (r == 0 && *decoder->replaces[i].from)
        decoder->replace_count++;
    return r;
}

static int read_replace(const json_t *part, struct reading *reading, struct fault *fault)
{
    const json_t *from = json_object_get(json_object_get(part, "pattern"), "String");

    if (!from)
        return fault_set(fault, E_UNSUPPORTED,
                         "a decoder that replaces a pattern is not supported by this version");
    return add_replace(reading->decoder, from, json_object_get(part, "content"), fault);
}

static int read_strip(const json_t *part, struct reading *reading, struct fault *fault)
{
    int64_t start = 0, stop = 0;
    int r;

    if (json_get_int(part, "decoder.", "start", 0, INT32_MAX, &start, fault) < 0 ||
        json_get_int(part, "decoder.", "stop", 0, INT32_MAX, &stop, fault) < 0)
        return E_INVALID;
    r = copy_text(json_object_get(part, "content"), reading->decoder->strip_text, fault);
    if (r < 0)
        return r;
    if (!reading->fused)
        reading->decoder->strip_left = (unsigned)start;
    else if (start > 0 && strcmp(reading->decoder->strip_text, " ") == 0)
        reading->rules->start = START_WITHOUT_SPACE;
    return 0;
}

static int read_metaspace(const json_t *part, struct reading *reading, struct fault *fault)
{
    const char *scheme = json_string_value(json_object_get(part, "prepend_scheme"));
    json_t *space = json_string(" "), *from = json_object_get(part, "replacement");
    json_t *usual = json_string("\xe2\x96\x81");
    bool prefix = true;
    int r;

    if (!space || !usual)
        r = fault_set(fault, E_MEMORY, "out of memory for a decoder");
    else
        r = add_replace(reading->decoder, from ? from : usual, space, fault);
    json_decref(space);
    json_decref(usual);
    if (r == 0)
        r = json_get_bool(part, "decoder.", "add_prefix_space", &prefix, fault);
    if (r < 0)
        return r;
    if (scheme ? strcmp(scheme, "never") != 0 : prefix)
        reading->rules->start = START_WITHOUT_SPACES;
    return 0;
}

static int read_word_piece(const json_t *part, struct reading *reading, struct fault *fault)
{
    const json_t *prefix = json_object_get(part, "prefix");

    reading->decoder->cleanup = true;
    reading->rules->start = START_WITH_KEY;
    if (json_get_bool(part, "decoder.", "cleanup", &reading->decoder->cleanup, fault) < 0)
        return E_INVALID;
    if (!prefix) {
        memcpy(reading->decoder->word_prefix, "##", 3);
        return 0;
    }
    return copy_text(prefix, reading->decoder->word_prefix, fault);
}

static int read_bpe(const json_t *part, struct reading *reading, struct fault *fault)
{
    const json_t *suffix = json_object_get(part, "suffix");

    reading->rules->end_without_space = true;
    if (!suffix) {
        memcpy(reading->decoder->word_suffix, "</w>", 5);
        return 0;
    }
    return copy_text(suffix, reading->decoder->word_suffix, fault);
}

static int read_part(const json_t *part, struct reading *reading, struct fault *fault)
{
    const char *type = tokenizer_json_type(part);
    const json_t *one;
    size_t i;

    if (strcmp(type, "ByteLevel") == 0) {
        reading->decoder->byte_level = true;
        return 0;
    }
    if (strcmp(type, "ByteFallback") == 0) {
        reading->decoder->byte_fallback = true;
        reading->rules->bytes = BYTES_BY_RUN;
        return 0;
    }
    if (strcmp(type, "Fuse") == 0) {
        reading->fused = true;
        return 0;
    }
    if (strcmp(type, "Replace") == 0)
        return read_replace(part, reading, fault);
    if (strcmp(type, "Strip") == 0)
        return read_strip(part, reading, fault);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(part, reading, fault);
    if (strcmp(type, "WordPiece") == 0)
        return read_word_piece(part, reading, fault);
    if (strcmp(type, "BPEDecoder") == 0)
        return read_bpe(part, reading, fault);
    if (strcmp(type, "Sequence") != 0)
        return tokenizer_json_unknown("decoder", type, fault);
    json_array_foreach(json_object_get(part, "decoders"), i, one)
    {
        int r = read_part(one, reading, fault);

        if (r < 0)
            return r;
    }
    return 0;
}

int tokenizer_json_decoder(const json_t *part, struct token_decoder *decoder,
                           struct decode_rules *rules, struct fault *fault)
{
    *decoder = (struct token_decoder){0};
    *rules = (struct decode_rules){0};
    if (!part || json_is_null(part)) { /* tokens are then words */
        decoder->joins_words = true;
        rules->start = START_WITH_KEY;
        return 0;
    }
    return read_part(part, &(struct reading){.decoder = decoder, .rules = rules}, fault);
}

/* ---- one token ---- */

static void replace_all(const char *text, size_t bytes, const char *from, const char *to,
                        struct buf *piece)
{
    size_t from_bytes = strlen(from);
    const char *end = text + bytes, *found;

    while ((found = memmem(text, (size_t)(end - text), from, from_bytes))) {
        buf_put(piece, text, (size_t)(found - text));
        buf_text(piece, to);
        text = found + from_bytes;
    }
    buf_put(piece, text, (size_t)(end - text));
}

static void strip_left(const struct token_decoder *decoder, const char **text, size_t *bytes)
{
    size_t one = strlen(decoder->strip_text);

    for (unsigned i = 0; one > 0 && i < decoder->strip_left; i++) {
        if (*bytes < one || memcmp(*text, decoder->strip_text, one) != 0)
            return;
        *text += one;
        *bytes -= one;
    }
}

/* BERT's: no space before punctuation and contractions. */
static void clean_up(struct buf *piece)
{
    static const char *const rows[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows && !buf_failed(piece); i++) {
        struct buf cleaned;

        if (!piece->data || !strstr(piece->data, rows[i][0]))
            continue;
        buf_init(&cleaned, 2 * piece->bytes + 1);
        replace_all(piece->data, piece->bytes, rows[i][0], rows[i][1], &cleaned);
        buf_reset(piece);
        buf_put(piece, buf_string(&cleaned), cleaned.bytes);
        piece->failed = piece->failed || buf_failed(&cleaned);
        buf_fini(&cleaned);
    }
}

void token_decoder_apply(const struct token_decoder *decoder, const char *text, size_t bytes,
                         struct buf *piece)
{
    size_t prefix = strlen(decoder->word_prefix), suffix = strlen(decoder->word_suffix);
    struct buf turns[2];

    if (decoder->byte_level) {
        char *room = malloc(bytes + 1);

        if (room)
            buf_put(piece, room, piece_decode(PIECES_BYTE_LEVEL, text, bytes, room, NULL));
        else
            piece->failed = true;
        free(room);
        return;
    }
    if (prefix > 0 && bytes >= prefix && memcmp(text, decoder->word_prefix, prefix) == 0) {
        text += prefix;
        bytes -= prefix;
    } else if (prefix > 0 || decoder->joins_words) {
        buf_byte(piece, ' ');
    }
    buf_init(&turns[0], 64 * (bytes + 1));
    buf_init(&turns[1], 64 * (bytes + 1));
    for (uint32_t i = 0; i < decoder->replace_count; i++) {
        buf_reset(&turns[i & 1]);
        replace_all(text, bytes, decoder->replaces[i].from, decoder->replaces[i].to, &turns[i & 1]);
        if (buf_failed(&turns[i & 1]))
            piece->failed = true;
        text = buf_string(&turns[i & 1]);
        bytes = turns[i & 1].bytes;
    }
    strip_left(decoder, &text, &bytes);
    if (suffix > 0)
        replace_all(text, bytes, decoder->word_suffix, " ", piece);
    else
        buf_put(piece, text, bytes);
    if (decoder->cleanup)
        clean_up(piece);
    buf_fini(&turns[0]);
    buf_fini(&turns[1]);
}
