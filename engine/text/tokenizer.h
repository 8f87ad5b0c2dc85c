/* tokenizer.h -- text to token ids and back, exactly as the model's makers do it.
 *
 * Immutable after opening: any number of threads encode at once. Encoding takes time
 * linear in the text, and n log n for a piece of n bytes that cannot be cut. Ill-formed UTF-8 is
 * read as one U+FFFD for each maximal ill-formed part. */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "engine/gguf.h"
#include "engine/text/tokens.h"

struct tokenizer;

enum {
    ENCODE_ADD_SPECIAL = 1 << 0, /* what the model wants before or after a text (BOS ...) */
    /* As the makers' library alone would: sentencepiece's and Mistral's recognize no control token
     * in a text, where prompts that a chat template has made need them. */
    ENCODE_AS_LIBRARY = 1 << 2,
    ENCODE_SPECIALS_AS_TEXT = 1 << 1, /* "<|im_start|>" in the text is plain text */
};

/* Faults: a model or pre-tokenizer name that is not known (named), a vocabulary that contradicts
 * itself. */
int tokenizer_open_gguf(const struct gguf *file, struct tokenizer **ret_tokenizer,
                        struct fault *fault);
/* A model's folder: tokenizer.json and the files beside it. E_NOT_FOUND when it holds none. */
int tokenizer_open_dir(const char *folder, struct tokenizer **ret_tokenizer, struct fault *fault);
/* Either of the two, by what `path` is; a .safetensors file stands for its folder. */
int tokenizer_open_path(const char *path, struct tokenizer **ret_tokenizer, struct fault *fault);
void tokenizer_close(struct tokenizer *tokenizer); /* NULL is fine */

/* Appends. 0, E_MEMORY, or E_TOO_LARGE when the tokens' ceiling is passed (the count so far stays
 * in `tokens`). */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                     unsigned flags, struct tokens *tokens, struct fault *fault);

/* The bytes that a token adds to the text; possibly part of a character. Never NULL for id < count.
 * */
const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, size_t *ret_bytes);
/* The same for the first token of a whole text, before which some decoders leave out a space. */
const char *tokenizer_first_piece(const struct tokenizer *tokenizer, int32_t id, size_t *ret_bytes);
bool tokenizer_is_special(const struct tokenizer *tokenizer,
                          int32_t id);                       /* control token: hidden by default */
uint32_t tokenizer_count(const struct tokenizer *tokenizer); /* NULL: 0 */
int32_t tokenizer_bos(const struct tokenizer *tokenizer);    /* -1: none */
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
int32_t tokenizer_find(const struct tokenizer *tokenizer,
                       const char *piece); /* a special token by name; -1 */
/* Tokens that end generation: the file's eos and eot, and those known by name (<|im_end|>,
 * <|endoftext|> ...). NULL: none. */
uint32_t tokenizer_ends(const struct tokenizer *tokenizer, const int32_t **ret_ids);

/* The text that all these tokens are, from its start: what the makers' decoder drops there (a
 * space) or says differently of the whole is done here, where detok.h only adds piece to piece.
 * Appends to `text`; look at buf_failed(). `piece`, unless it is NULL, is told the bytes that each
 * token adds, none for those that are skipped. Ids outside the vocabulary add nothing. */
void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                      bool skip_special, struct buf *text,
                      void (*piece)(void *data, const char *bytes, size_t count), void *data);

#endif
