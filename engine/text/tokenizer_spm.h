/* tokenizer_spm.h -- sentencepiece's byte-pair encoding with scores and byte fallback (Llama 2's):
 * "tokenizer.ggml.model" is "llama".
 *
 * A text starts as one symbol a character, spaces being part of pieces; the neighbouring pair whose
 * joined text is a token of the highest score joins until none is left. A character that is no
 * token is spelled in byte tokens. Each stretch between special tokens gets a space before it, as
 * the file says. Immutable after opening; any thread encodes, with a workspace of its own. */
#ifndef WEFT_TOKENIZER_SPM_H
#define WEFT_TOKENIZER_SPM_H

#include "config/base/fault.h"
#include "engine/gguf.h"
#include "engine/text/merge.h"
#include "engine/text/tokens.h"
#include "engine/text/vocabulary.h"

struct spm;

/* `vocabulary` must outlive it. E_CORRUPT for missing scores. */
int spm_open_gguf(const struct gguf *file, const struct vocabulary *vocabulary,
                  struct spm **ret_spm, struct fault *fault);
void spm_close(struct spm *spm); /* NULL is fine */

/* Appends the tokens of well-formed UTF-8 that holds no special token. */
int spm_encode(const struct spm *spm, const char *text, size_t bytes, struct merge_work *work,
               struct tokens *tokens);

#endif
