/* specials.h -- the tokens that are recognized in a text before anything is merged: control tokens
 * such as <|im_start|>, and the user-defined ones.
 *
 * A trie over bytes; the leftmost match wins, and of those that start together the longest. The
 * time for a text is bounded by its length times SPECIAL_BYTES_MAX, and nearly always by its
 * length. Embedded in the tokenizer; immutable after init. */
#ifndef WEFT_SPECIALS_H
#define WEFT_SPECIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/vocabulary.h"

enum { SPECIAL_BYTES_MAX = 512 };

struct special_node;
struct specials {
    struct special_node *nodes; /* [0] is the root */
    uint32_t node_count;
    bool starts[256]; /* bytes that some special token starts with */
};

/* E_CORRUPT for one longer than SPECIAL_BYTES_MAX. On failure nothing is left to free. */
int specials_init(struct specials *specials, const struct vocabulary *vocabulary,
                  struct fault *fault);
void specials_fini(struct specials *specials);

struct special_match {
    size_t start;
    size_t bytes;
    int32_t id;
};
/* The first at or after `from`; with `user_defined_only` control tokens are plain text. */
bool specials_next(const struct specials *specials, const struct vocabulary *vocabulary,
                   bool user_defined_only, const char *text, size_t bytes, size_t from,
                   struct special_match *ret_match);
/* The special token that is exactly this text; -1: none. */
int32_t specials_find(const struct specials *specials, const char *text, size_t bytes);

#endif
