/* tokens.h -- token ids that grow up to a ceiling. Not thread-safe. */
#ifndef WEFT_TOKENS_H
#define WEFT_TOKENS_H

#include <stddef.h>
#include <stdint.h>

struct tokens {
    int32_t *ids;
    size_t count;
    size_t room;
    size_t ceiling;
};
void tokens_init(struct tokens *tokens, size_t ceiling);
void tokens_fini(struct tokens *tokens);
int tokens_put(struct tokens *tokens, int32_t id); /* 0, -ENOMEM or E_TOO_LARGE */

#endif
