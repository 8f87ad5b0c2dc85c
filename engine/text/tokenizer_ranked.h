/* tokenizer_ranked.h -- byte-pair encoding where a token's rank is its number (OpenAI's tiktoken,
 * Mistral's tekken): two neighbours join when their bytes together are a token, that of the lowest
 * rank first. */
#ifndef WEFT_TOKENIZER_RANKED_H
#define WEFT_TOKENIZER_RANKED_H

#include "config/base/buf.h"
#include "engine/text/tokenizer_internal.h"

struct ranked_token {
    uint32_t start; /* in `bytes` */
    uint32_t count;
    bool known;
};

/* Lent while the tokenizer is made. */
struct ranked {
    struct ranked_token *tokens; /* by rank */
    uint32_t count;
    struct buf bytes;         /* of all tokens */
    struct special *specials; /* with their ids; all are control tokens but those that say not */
    uint32_t special_count;
    uint32_t first_id; /* of rank 0 */
    const char *pattern;
    bool nfc;
};

/* Fills in all but the tokens that go before and after a text. */
int tokenizer_make_ranked(struct tokenizer *tokenizer, const struct ranked *ranked,
                          struct fault *fault);

#endif
