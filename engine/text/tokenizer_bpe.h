/* tokenizer_bpe.h -- byte-pair encoding with a list of merges (GPT-2's and most since).
 *
 * A piece starts as one symbol a byte or a character; the neighbouring pair of the lowest rank (its
 * line in the list of merges) is joined until none is left. A byte that has no token vanishes, and
 * its neighbours meet. Immutable when all merges are there; any thread encodes, with a workspace of
 * its own. */
#ifndef WEFT_TOKENIZER_BPE_H
#define WEFT_TOKENIZER_BPE_H

#include <stdbool.h>

#include "config/base/fault.h"
#include "engine/gguf.h"
#include "engine/text/merge.h"
#include "engine/text/tokens.h"
#include "engine/text/vocabulary.h"

struct bpe;

struct bpe_options {
    bool byte_level;     /* symbols are bytes, else characters */
    bool whole_pieces;   /* a piece that is a token by itself is not merged */
    bool whole_newlines; /* nor is a piece of newlines alone */
    bool byte_fallback;  /* a character that is no token is spelled in byte tokens */
    bool fuse_unknown;   /* neighbours that are unknown are one unknown token */
    int32_t unknown;     /* stands for a character that is no token; -1: nothing does */
    const char *prefix;  /* of a symbol that does not start a word; "": none */
    const char *suffix;  /* of a symbol that ends a word */
};

/* `vocabulary` must outlive it; then at most `merge_count` merges. */
int bpe_open(const struct vocabulary *vocabulary, const struct bpe_options *options,
             uint64_t merge_count, struct bpe **ret_bpe, struct fault *fault);
void bpe_close(struct bpe *bpe); /* NULL is fine */

/* By keys of the vocabulary. A pair that comes twice keeps its first rank. 1; 0: they do not join
 * two tokens to a third; -ENOMEM. */
int bpe_add_merge(struct bpe *bpe, const char *left, size_t left_bytes, const char *right,
                  size_t right_bytes, uint32_t rank);
void bpe_add_pair(struct bpe *bpe, int32_t left, int32_t right, int32_t joined, uint32_t rank);

/* Appends the tokens of one piece, which is well-formed UTF-8. */
int bpe_encode(const struct bpe *bpe, const char *piece, size_t bytes, struct merge_work *work,
               struct tokens *tokens);

#endif
