/* tokenizer_spm.h -- sentencepiece's byte-pair encoding, with scores in place of a list of merges
 * (Llama 2's).
 *
 * A text starts as one symbol a character; the neighbouring pair whose joined text is a token of
 * the highest score joins until none is left. A character that is no token is spelled in byte
 * tokens, or is unknown. Immutable when all scores are there; any thread encodes, with a workspace
 * of its own. */
#ifndef WEFT_TOKENIZER_SPM_H
#define WEFT_TOKENIZER_SPM_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/merge.h"
#include "engine/text/tokens.h"
#include "engine/text/vocabulary.h"

struct spm;

struct spm_options {
    bool byte_fallback;
    bool fuse_unknown; /* neighbours that are unknown are one unknown token */
    int32_t unknown;   /* stands for a character, or a byte, that is no token; -1: nothing does */
};

/* `vocabulary` must outlive it. All scores are 0. */
int spm_open(const struct vocabulary *vocabulary, const struct spm_options *options,
             struct spm **ret_spm, struct fault *fault);
void spm_close(struct spm *spm); /* NULL is fine */
void spm_set_score(struct spm *spm, int32_t id, float score);

/* Appends the tokens of well-formed UTF-8, written as the vocabulary's keys are. */
int spm_encode(const struct spm *spm, const char *text, size_t bytes, struct merge_work *work,
               struct tokens *tokens);

#endif
