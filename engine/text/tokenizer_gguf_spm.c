/* tokenizer_gguf_spm.c -- sentencepiece's models out of a GGUF file: "llama" is its BPE, "t5" its
 * unigram model. */
#include <stdlib.h>
#include <string.h>

#include "engine/text/tokenizer_gguf.h"

/* ---- "llama" ---- */

static int open_spaces(struct tokenizer *tokenizer, const struct gguf *file, struct fault *fault)
{
    static const char space[] = "\xe2\x96\x81";
    bool prefix = true;
    int r = gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &prefix, fault);

    if (r >= 0)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r == 0 && prefix)
        tokenizer->decode.start = START_WITHOUT_SPACE;
    if (r == 0 && prefix)
        r = normalizer_add_prepend(tokenizer->normalizer, space, strlen(space), fault);
    return r < 0 ? r
                 : normalizer_add_replace(tokenizer->normalizer, " ", 1, true, space, strlen(space),
                                          fault);
}

int tokenizer_gguf_scores(const struct gguf *file, const struct vocabulary *vocabulary,
                          struct gguf_array *ret_scores, struct fault *fault)
{
    int r = gguf_get_array(file, "tokenizer.ggml.scores", ret_scores, fault);

    if (r < 0)
        return r;
    if (r == 0 || ret_scores->type != GGUF_F32 || ret_scores->count != vocabulary->count)
        return fault_set(fault, E_CORRUPT,
                         "%s: tokenizer.ggml.scores does not match tokenizer.ggml.tokens",
                         gguf_path(file));
    return 0;
}

int tokenizer_gguf_spm(struct tokenizer *tokenizer, const struct gguf *file,
                       struct gguf_affixes *adds, struct fault *fault)
{
    struct spm_options options = {.byte_fallback = true};
    struct gguf_array scores = {0};
    struct spm *spm = NULL;
    int r = tokenizer_gguf_scores(file, &tokenizer->vocabulary, &scores, fault);

    if (r == 0)
        r = tokenizer_gguf_id(tokenizer, file, "tokenizer.ggml.unknown_token_id", &options.unknown,
                              fault);
    if (r == 0)
        r = open_spaces(tokenizer, file, fault);
    if (r == 0)
        r = spm_open(&tokenizer->vocabulary, &options, &spm, fault);
    if (r < 0)
        return r;
    for (uint32_t id = 0; id < tokenizer->vocabulary.count; id++)
        spm_set_score(spm, (int32_t)id, (float)gguf_array_real(&scores, id));
    tokenizer_use_spm(tokenizer, spm);
    adds->bos = true;
    if (tokenizer->vocabulary.count > 2) { /* sentencepiece's own numbers */
        tokenizer->bos = 1;
        tokenizer->eos = 2;
    }
    return 0;
}

/* ---- "t5" ---- */

static int read_charsmap(const struct gguf *file, struct charsmap **ret_map, struct fault *fault)
{
    struct gguf_array bytes;
    int r = gguf_get_array(file, "tokenizer.ggml.precompiled_charsmap", &bytes, fault);

    if (r <= 0 || bytes.count == 0)
        return r < 0 ? r : 0;
    if (bytes.type != GGUF_U8 && bytes.type != GGUF_I8)
        return fault_set(fault, E_CORRUPT, "%s: tokenizer.ggml.precompiled_charsmap is no bytes",
                         gguf_path(file));
    return charsmap_open(bytes.data, bytes.count, ret_map, fault);
}

static int open_rules(struct tokenizer *tokenizer, const struct gguf *file, struct fault *fault)
{
    struct sentencepiece_rules *rules = calloc(1, sizeof *rules);
    int r;

    if (!rules)
        return fault_set(fault, E_MEMORY, "out of memory for the normalizer");
    rules->escapes_spaces = true;
    r = gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &rules->dummy_prefix, fault);
    if (r >= 0)
        r = gguf_get_bool(file, "tokenizer.ggml.remove_extra_whitespaces", &rules->removes_spaces,
                          fault);
    if (r >= 0)
        r = read_charsmap(file, &rules->map, fault);
    if (r == 0)
        r = normalizer_open(&tokenizer->normalizer, fault);
    if (r < 0) {
        sentencepiece_rules_close(rules);
        return r;
    }
    if (rules->dummy_prefix)
        tokenizer->decode.start = START_WITHOUT_SPACE;
    return normalizer_add_sentencepiece(tokenizer->normalizer, rules, fault);
}

static int add_scores(struct unigram *unigram, const struct vocabulary *vocabulary,
                      const struct gguf_array *scores, struct fault *fault)
{
    for (uint32_t id = 0; id < vocabulary->count; id++) {
        enum token_type type = vocabulary->types[id];
        double score = gguf_array_real(scores, id);

        if (type == TOKEN_NORMAL)
            unigram_see_score(unigram, score);
        if (type == TOKEN_USER_DEFINED)
            score = 0; /* more likely than any other */
        if ((type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED) &&
            unigram_add(unigram, (int32_t)id, score, false) < 0)
            return fault_set(fault, E_MEMORY, "out of memory for the tokenizer's scores");
    }
    return 0;
}

int tokenizer_gguf_unigram(struct tokenizer *tokenizer, const struct gguf *file,
                           struct gguf_affixes *adds, struct fault *fault)
{
    struct unigram_options options = {.unknown = 2};
    struct gguf_array scores = {0};
    struct unigram *unigram = NULL;
    int r = tokenizer_gguf_scores(file, &tokenizer->vocabulary, &scores, fault);

    if (r == 0)
        r = tokenizer_gguf_id(tokenizer, file, "tokenizer.ggml.unknown_token_id", &options.unknown,
                              fault);
    if (r == 0)
        r = open_rules(tokenizer, file, fault);
    if (options.unknown >= (int32_t)tokenizer->vocabulary.count)
        options.unknown = -1;
    if (r == 0)
        r = unigram_open(&tokenizer->vocabulary, &options, &unigram, fault);
    if (r < 0)
        return r;
    tokenizer_use_unigram(tokenizer, unigram);
    adds->eos = true;
    if (tokenizer->vocabulary.count > 1) /* T5's own number */
        tokenizer->eos = 1;
    return add_scores(unigram, &tokenizer->vocabulary, &scores, fault);
}
