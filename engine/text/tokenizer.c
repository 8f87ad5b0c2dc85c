/* tokenizer.c -- see tokenizer.h.
 *
 *     text -> well-formed UTF-8 -> special tokens | stretches of plain text -> bpe or spm -> ids
 */
#include "engine/text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/base/utf8.h"
#include "engine/text/merge.h"
#include "engine/text/specials.h"
#include "engine/text/tokenizer_bpe.h"
#include "engine/text/tokenizer_spm.h"
#include "engine/text/vocabulary.h"

enum { ENDS_MAX = 16, TEXT_BYTES_MAX = 1 << 30 };

struct tokenizer {
    struct vocabulary vocabulary;
    struct specials specials;
    struct bpe *bpe; /* one of the two */
    struct spm *spm;
    int32_t bos; /* -1: none */
    int32_t eos;
    bool adds_bos;
    bool adds_eos;
    uint32_t end_count;
    int32_t ends[ENDS_MAX];
};

/* ---- tokens ---- */

void tokens_init(struct tokens *tokens, size_t ceiling)
{
    *tokens = (struct tokens){.ceiling = ceiling};
}

void tokens_fini(struct tokens *tokens)
{
    free(tokens->ids);
    tokens_init(tokens, tokens->ceiling);
}

int tokens_put(struct tokens *tokens, int32_t id)
{
    if (tokens->count == tokens->ceiling)
        return E_TOO_LARGE;
    if (tokens->count == tokens->room) {
        size_t room = tokens->room > 0 ? tokens->room * 2 : 64;
        int32_t *ids;

        if (room > tokens->ceiling)
            room = tokens->ceiling;
        ids = realloc(tokens->ids, room * sizeof *ids);
        if (!ids)
            return -ENOMEM;
        tokens->ids = ids;
        tokens->room = room;
    }
    tokens->ids[tokens->count++] = id;
    return 0;
}

/* ---- opening ---- */

/* An id from the file: 0 when the key is absent (*ret_id stays). */
static int read_id(const struct tokenizer *tokenizer, const struct gguf *file, const char *key,
                   int32_t *ret_id, struct fault *fault)
{
    uint64_t id;
    int r = gguf_get_u64(file, key, &id, fault);

    if (r <= 0)
        return r;
    if (id >= tokenizer->vocabulary.count)
        return fault_set(fault, E_CORRUPT, "%s: %s is not a token of the vocabulary",
                         gguf_path(file), key);
    *ret_id = (int32_t)id;
    return 0;
}

static void add_end(struct tokenizer *tokenizer, int32_t id)
{
    for (uint32_t i = 0; i < tokenizer->end_count; i++)
        if (tokenizer->ends[i] == id)
            return;
    if (id >= 0 && tokenizer->end_count < ENDS_MAX)
        tokenizer->ends[tokenizer->end_count++] = id;
}

static int read_ends(struct tokenizer *tokenizer, const struct gguf *file, struct fault *fault)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    /* Files often name one end token only, while the model also ends with others. */
    static const char *const names[] = {
        "<|im_end|>",      "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
        "<|end_of_text|>", "<end_of_turn>", "<|end|>",    "<|EOT|>",
    };

    add_end(tokenizer, tokenizer->eos);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int32_t id = -1;
        int r = read_id(tokenizer, file, keys[i], &id, fault);

        if (r < 0)
            return r;
        add_end(tokenizer, id);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_end(tokenizer, tokenizer_find(tokenizer, names[i]));
    return 0;
}

static int read_special_ids(struct tokenizer *tokenizer, const struct gguf *file,
                            struct fault *fault)
{
    int r;

    tokenizer->bos = tokenizer->eos = -1;
    if (tokenizer->spm && tokenizer->vocabulary.count > 2) { /* sentencepiece's own numbers */
        tokenizer->bos = 1;
        tokenizer->eos = 2;
    }
    tokenizer->adds_bos = tokenizer->spm ? true : bpe_adds_bos(tokenizer->bpe);
    r = read_id(tokenizer, file, "tokenizer.ggml.bos_token_id", &tokenizer->bos, fault);
    if (r == 0)
        r = read_id(tokenizer, file, "tokenizer.ggml.eos_token_id", &tokenizer->eos, fault);
    if (r == 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_bos_token", &tokenizer->adds_bos, fault);
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_eos_token", &tokenizer->adds_eos, fault);
    return r < 0 ? r : read_ends(tokenizer, file, fault);
}

static int read_model(const struct gguf *file, bool *ret_bpe, struct fault *fault)
{
    struct gguf_string model = {"", 0};
    char printable[64];
    int r = gguf_get_string(file, "tokenizer.ggml.model", &model, fault);

    if (r < 0)
        return r;
    if (r == 0)
        return fault_set(fault, E_UNSUPPORTED, "%s holds no tokenizer", gguf_path(file));
    *ret_bpe = model.bytes == 4 && memcmp(model.text, "gpt2", 4) == 0;
    if (*ret_bpe || (model.bytes == 5 && memcmp(model.text, "llama", 5) == 0))
        return 0;
    gguf_string_print(model, printable, sizeof printable);
    return fault_set(fault, E_UNSUPPORTED,
                     "tokenizer model '%s' is not supported by this version (it knows gpt2, llama)",
                     printable);
}

int tokenizer_open_gguf(const struct gguf *file, struct tokenizer **ret_tokenizer,
                        struct fault *fault)
{
    struct tokenizer *tokenizer;
    bool is_bpe;
    int r = read_model(file, &is_bpe, fault);

    if (r < 0)
        return r;
    tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer)
        return fault_set(fault, E_MEMORY, "out of memory for the tokenizer of %s", gguf_path(file));
    r = vocabulary_init_gguf(&tokenizer->vocabulary, file,
                             is_bpe ? PIECES_BYTE_LEVEL : PIECES_SPACED, fault);
    if (r == 0)
        r = specials_init(&tokenizer->specials, &tokenizer->vocabulary, fault);
    if (r == 0)
        r = is_bpe ? bpe_open_gguf(file, &tokenizer->vocabulary, &tokenizer->bpe, fault)
                   : spm_open_gguf(file, &tokenizer->vocabulary, &tokenizer->spm, fault);
    if (r == 0)
        r = read_special_ids(tokenizer, file, fault);
    if (r < 0) {
        tokenizer_close(tokenizer);
        return r;
    }
    *ret_tokenizer = tokenizer;
    return 0;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    bpe_close(tokenizer->bpe);
    spm_close(tokenizer->spm);
    specials_fini(&tokenizer->specials);
    vocabulary_fini(&tokenizer->vocabulary);
    free(tokenizer);
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

static int encode_plain(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                        struct merge_work *work, struct tokens *tokens, struct fault *fault)
{
    if (bytes == 0)
        return 0;
    return tokenizer->bpe ? bpe_encode(tokenizer->bpe, text, bytes, work, tokens, fault)
                          : spm_encode(tokenizer->spm, text, bytes, work, tokens, fault);
}

static int encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, unsigned flags,
                  struct merge_work *work, struct tokens *tokens, struct fault *fault)
{
    bool add = flags & ENCODE_ADD_SPECIAL;
    struct special_match special;
    size_t at = 0;
    int r = 0;

    if (add && tokenizer->adds_bos && tokenizer->bos >= 0)
        r = tokens_put(tokens, tokenizer->bos);
    while (r == 0 && specials_next(&tokenizer->specials, &tokenizer->vocabulary,
                                   flags & ENCODE_SPECIALS_AS_TEXT, text, bytes, at, &special)) {
        r = encode_plain(tokenizer, text + at, special.start - at, work, tokens, fault);
        if (r == 0)
            r = tokens_put(tokens, special.id);
        at = special.start + special.bytes;
    }
    if (r == 0)
        r = encode_plain(tokenizer, text + at, bytes - at, work, tokens, fault);
    if (r == 0 && add && tokenizer->adds_eos && tokenizer->eos >= 0)
        r = tokens_put(tokens, tokenizer->eos);
    return r;
}

int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                     unsigned flags, struct tokens *tokens, struct fault *fault)
{
    struct merge_work work;
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
    merge_work_init(&work);
    buf_init(&repaired, 3 * bytes); /* each ill-formed byte may become three */
    if (well_formed_bytes(text, bytes) < bytes) {
        repair(&repaired, text, bytes);
        if (buf_failed(&repaired))
            r = -ENOMEM;
        text = repaired.data;
        bytes = repaired.bytes;
    }
    if (r == 0)
        r = encode(tokenizer, text, bytes, flags, &work, tokens, fault);
    /* Below here a full list and a failed allocation come without words. */
    if (r < 0 && fault->code != r)
        r = r == E_TOO_LARGE ? fault_set(fault, E_TOO_LARGE, "the text has more than %zu tokens",
                                         tokens->ceiling)
                             : fault_set(fault, E_MEMORY, "out of memory while tokenizing");
    buf_fini(&repaired);
    merge_work_fini(&work);
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
    return tokenizer->adds_bos && tokenizer->bos >= 0;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *piece)
{
    return specials_find(&tokenizer->specials, piece, strlen(piece));
}

uint32_t tokenizer_ends(const struct tokenizer *tokenizer, const int32_t **ret_ids)
{
    *ret_ids = tokenizer ? tokenizer->ends : NULL;
    return tokenizer ? tokenizer->end_count : 0;
}
