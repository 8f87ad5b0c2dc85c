/* tokenizer_spm.c -- see tokenizer_spm.h. */
#include "engine/text/tokenizer_spm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/utf8.h"

struct spm {
    const struct vocabulary *vocabulary;
    struct spm_options options;
    uint32_t *ranks; /* [count]: falling scores as rising ranks */
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

int spm_open(const struct vocabulary *vocabulary, const struct spm_options *options,
             struct spm **ret_spm, struct fault *fault)
{
    struct spm *spm = calloc(1, sizeof *spm);

    if (spm)
        spm->ranks = malloc(((size_t)vocabulary->count + 1) * sizeof *spm->ranks);
    if (!spm || !spm->ranks) {
        spm_close(spm);
        return fault_set(fault, E_MEMORY, "out of memory for the tokenizer's scores");
    }
    spm->vocabulary = vocabulary;
    spm->options = *options;
    for (uint32_t id = 0; id < vocabulary->count; id++)
        spm->ranks[id] = rank_of(0);
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

void spm_set_score(struct spm *spm, int32_t id, float score)
{
    spm->ranks[id] = rank_of(score);
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
    int r = 0;

    for (size_t i = 0; i < bytes && r == 0; i++) {
        int32_t id = spm->vocabulary->byte_tokens[(uint8_t)text[i]];

        if (id < 0)
            id = spm->options.unknown;
        r = id < 0 ? 0 : tokens_put(tokens, id);
    }
    return r;
}

/* The symbols that are left, as tokens. */
static int put_symbols(const struct spm *spm, const char *text, const struct merge_work *work,
                       struct tokens *tokens)
{
    bool last_unknown = false;
    int r = 0;

    if (work->symbol_count == 0)
        return 0;
    for (uint32_t i = 0; i != UINT32_MAX && r == 0; i = work->symbols[i].next) {
        const struct merge_symbol *symbol = &work->symbols[i];
        bool unknown = symbol->id < 0;

        if (!unknown)
            r = tokens_put(tokens, symbol->id);
        else if (spm->options.byte_fallback)
            r = put_bytes(spm, text + symbol->start, symbol->bytes, tokens);
        else if (spm->options.unknown >= 0 && !(last_unknown && spm->options.fuse_unknown))
            r = tokens_put(tokens, spm->options.unknown);
        last_unknown = unknown;
    }
    return r;
}

int spm_encode(const struct spm *spm, const char *text, size_t bytes, struct merge_work *work,
               struct tokens *tokens)
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
    return r < 0 ? r : put_symbols(spm, text, work, tokens);
}
