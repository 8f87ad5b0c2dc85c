/* detok.h -- token ids to text, a token at a time, never half a character.
 *
 * Bytes wait until they are whole UTF-8. A byte that cannot become part of a character is U+FFFD at
 * once; what is pending at the end is one U+FFFD for each maximal ill-formed part. Constant work
 * per token. */
#ifndef WEFT_DETOK_H
#define WEFT_DETOK_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/buf.h"
#include "engine/text/tokenizer.h"

struct detok {
    const struct tokenizer *tokenizer;
    bool skip_special;
    bool at_start; /* of a whole text */
    uint8_t pending[4];
    uint8_t pending_bytes;
};

void detok_init(struct detok *detok, const struct tokenizer *tokenizer, bool skip_special);
/* The same for tokens from the start of a whole text, where some tokenizers leave out a space; what
 * a model writes goes on with its prompt. */
void detok_init_start(struct detok *detok, const struct tokenizer *tokenizer, bool skip_special);
/* Appends what can be shown now to `text`. */
void detok_feed(struct detok *detok, int32_t token, struct buf *text);
/* The same for bytes that stand for a token. */
void detok_feed_bytes(struct detok *detok, const char *piece, size_t count, struct buf *text);
void detok_flush(struct detok *detok, struct buf *text);
/* The text of one token alone, ill-formed parts as U+FFFD: for log-probability entries. */
void detok_piece(const struct tokenizer *tokenizer, int32_t token, struct buf *text);

#endif
