/* tokenizer_unigram.h -- the unigram language model (sentencepiece's, T5's): of all ways to cut a
 * text into tokens the one whose scores sum highest.
 *
 *     text       h e l l o         best[i]: the highest sum of a way to i, and its last token.
 *     best       0 1 2 3 4 5       One walk down a trie of the tokens at each place: time linear
 *                                  in the text, times the longest token.
 *
 * A character that no token starts with is unknown, at ten below the lowest score. (Kudo 2018,
 * "Subword Regularization"; sentencepiece, src/unigram_model.cc.) Immutable when all tokens are
 * there; any thread encodes. */
#ifndef WEFT_TOKENIZER_UNIGRAM_H
#define WEFT_TOKENIZER_UNIGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "engine/text/tokens.h"
#include "engine/text/vocabulary.h"

struct unigram;

struct unigram_options {
    bool single_precision; /* sums are floats, as sentencepiece's are */
    bool byte_fallback;    /* what is unknown is spelled in byte tokens */
    int32_t unknown;       /* -1: what is unknown vanishes */
};

int unigram_open(const struct vocabulary *vocabulary, const struct unigram_options *options,
                 struct unigram **ret_unigram, struct fault *fault);
void unigram_close(struct unigram *unigram); /* NULL is fine */
/* By its key; of two with the same key the first counts. A user-defined token is always taken. 0 or
 * E_MEMORY. */
int unigram_add(struct unigram *unigram, int32_t id, double score, bool user_defined);
/* The score of a token that is never found, such as the unknown one, still counts for the lowest
 * and the highest. */
void unigram_see_score(struct unigram *unigram, double score);

/* Appends the tokens of well-formed UTF-8, written as the vocabulary's keys are. `work` is one
 * thread's. */
int unigram_encode(const struct unigram *unigram, const char *text, size_t bytes, struct buf *work,
                   struct tokens *tokens);

#endif
