/* tokenizer_spm.c -- see tokenizer_spm.h. */
#include "engine/text/tokenizer_spm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/base/utf8.h"

struct spm {
    const struct vocabulary *vocabulary;
    uint32_t *ranks; /* [count]: falling scores as rising ranks */
    bool space_prefix;
    int32_t unknown; /* what stands for a byte that has no token; -1: nothing does */
};

/* Floats as unsigned numbers of the opposite order. NaN comes last. */
static uint32_t rank_of(float score)
{
    uint32_t bits;

    if (isnan(score))
        return UINT32_MAX;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

int spm_open_gguf(const struct gguf *file, const struct vocabulary *vocabulary,
                  struct spm **ret_spm, struct fault *fault)
{
    struct gguf_array scores = {0};
    struct spm *spm;
    uint64_t unknown = 0;
    bool prefix = true;
    int r;

    r = gguf_get_array(file, "tokenizer.ggml.scores", &scores, fault);
    if (r >= 0 && (r == 0 || scores.type != GGUF_F32 || scores.count != vocabulary->count))
        r = fault_set(fault, E_CORRUPT,
                      "%s: tokenizer.ggml.scores does not match tokenizer.ggml.tokens",
                      gguf_path(file));
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &prefix, fault);
    if (r >= 0)
        r = gguf_get_u64(file, "tokenizer.ggml.unknown_token_id", &unknown, fault);
    if (r < 0)
        return r;
    spm = calloc(1, sizeof *spm);
    if (spm)
        spm->ranks = malloc(vocabulary->count * sizeof *spm->ranks);
    if (!spm || !spm->ranks) {
        spm_close(spm);
        return fault_set(fault, E_MEMORY, "out of memory for the tokenizer of %s", gguf_path(file));
    }
    spm->vocabulary = vocabulary;
    spm->space_prefix = prefix;
    spm->unknown = unknown < vocabulary->count ? (int32_t)unknown : -1;
    for (uint32_t id = 0; id < vocabulary->count; id++)
        spm->ranks[id] = rank_of((float)gguf_array_real(&scores, id));
    *ret_spm = spm;
    return 0;
}

void spm_close(struct spm *spm)
{
    if (!spm)
        return;
    free(spm->ranks);
    free(spm);
}

static bool find_joined(const void *model, const char *text, const struct merge_symbol *left,
                        const struct merge_symbol *right, struct merge_pair *ret_pair)
{
    const struct spm *spm = model;
    int32_t id =
        vocabulary_find(spm->vocabulary, text + left->start, (size_t)left->bytes + right->bytes);

    if (id < 0)
        return false;
    *ret_pair = (struct merge_pair){spm->ranks[id], id};
    return true;
}

static int put_bytes(const struct spm *spm, const char *text, size_t bytes, struct tokens *tokens)
{
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = spm->vocabulary->byte_tokens[(uint8_t)text[i]];
        int r;

        if (id < 0)
            id = spm->unknown;
        r = id < 0 ? 0 : tokens_put(tokens, id);
        if (r < 0)
            return r;
    }
    return 0;
}

static int encode_spaced(const struct spm *spm, const char *text, size_t bytes,
                         struct merge_work *work, struct tokens *tokens)
{
    const struct merge_rules rules = {find_joined, spm};
    int r = 0;

    merge_begin(work);
    for (size_t at = 0, taken; at < bytes && r == 0; at += taken) {
        utf8_next(text + at, bytes - at, &taken, NULL);
        r = merge_add(work, (uint32_t)at, (uint32_t)taken,
                      vocabulary_find(spm->vocabulary, text + at, taken));
    }
    if (r == 0)
        r = merge_run(work, &rules, text);
    for (uint32_t i = 0; i != UINT32_MAX && r == 0; i = work->symbols[i].next) {
        const struct merge_symbol *symbol = &work->symbols[i];

        r = symbol->id >= 0 ? tokens_put(tokens, symbol->id)
                            : put_bytes(spm, text + symbol->start, symbol->bytes, tokens);
    }
    return r;
}

/* The pieces of the vocabulary are kept with plain spaces, so the text is too: U+2581, which stands
 * for the space in the makers' files, becomes one. */
int spm_encode(const struct spm *spm, const char *text, size_t bytes, struct merge_work *work,
               struct tokens *tokens)
{
    struct buf spaced;
    size_t start = 0;
    int r;

    buf_init(&spaced, bytes + 1);
    if (spm->space_prefix)
        buf_byte(&spaced, ' ');
    for (size_t i = 0; i + 3 <= bytes; i++) {
        if (memcmp(text + i, "\xe2\x96\x81", 3) != 0)
            continue;
        buf_put(&spaced, text + start, i - start);
        buf_byte(&spaced, ' ');
        start = i + 3;
        i += 2;
    }
    buf_put(&spaced, text + start, bytes - start);
    r = buf_failed(&spaced) ? E_MEMORY
                            : encode_spaced(spm, spaced.data, spaced.bytes, work, tokens);
    buf_fini(&spaced);
    return r;
}
