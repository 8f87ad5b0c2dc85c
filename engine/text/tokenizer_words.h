/* tokenizer_words.h -- vocabularies of words: BERT's WordPiece, and whole words alone.
 *
 *     "tokenizers"  ->  "token", "##izer", "##s"
 *
 * WordPiece takes the longest token that the word starts with, then the longest that goes on with
 * it, and so on; where none does, or the word is too long, all of it is unknown. Immutable after
 * opening; any thread encodes. */
#ifndef WEFT_TOKENIZER_WORDS_H
#define WEFT_TOKENIZER_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "engine/text/tokens.h"
#include "engine/text/vocabulary.h"

struct words;

struct words_options {
    bool whole;              /* a word is one token or unknown */
    const char *start;       /* before the key of what starts a word; "" : nothing */
    const char *next;        /* before the key of what goes on with one: "##" */
    uint32_t characters_max; /* of a word */
    int32_t unknown;         /* -1: an unknown word vanishes */
};

int words_open(const struct vocabulary *vocabulary, const struct words_options *options,
               struct words **ret_words, struct fault *fault);
void words_close(struct words *words); /* NULL is fine */
/* Appends the tokens of one word. `work` is one thread's. */
int words_encode(const struct words *words, const char *word, size_t bytes, struct buf *work,
                 struct tokens *tokens);

#endif
