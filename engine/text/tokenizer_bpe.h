/* tokenizer_bpe.h -- byte-level byte-pair encoding (GPT-2's): "tokenizer.ggml.model" is "gpt2".
 *
 * A piece of the pre-tokenizer starts as one token a byte; the neighbouring pair of the lowest rank
 * (its line in the list of merges) is joined until none is left. A byte that has no token vanishes,
 * and its neighbours meet. Immutable after opening; any thread encodes, with a workspace of its
 * own. */
#ifndef WEFT_TOKENIZER_BPE_H
#define WEFT_TOKENIZER_BPE_H

#include <stdbool.h>

#include "config/base/fault.h"
#include "engine/gguf.h"
#include "engine/text/merge.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"

struct bpe;

/* `vocabulary` must outlive it. Faults: no merges, one that names no tokens, an unknown
 * pre-tokenizer. */
int bpe_open_gguf(const struct gguf *file, const struct vocabulary *vocabulary,
                  struct bpe **ret_bpe, struct fault *fault);
void bpe_close(struct bpe *bpe);          /* NULL is fine */
bool bpe_adds_bos(const struct bpe *bpe); /* unless the file says otherwise */

/* Appends the tokens of well-formed UTF-8 that holds no special token. */
int bpe_encode(const struct bpe *bpe, const char *text, size_t bytes, struct merge_work *work,
               struct tokens *tokens, struct fault *fault);

#endif
