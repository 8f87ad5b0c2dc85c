/* specials.h -- the tokens that are recognized in a text before anything is merged: control tokens
 * such as <|im_start|>, and others that the makers added.
 *
 * An automaton over bytes (Aho and Corasick's): the leftmost match wins, and of those that start
 * together the longest. It reads each byte of a text once, and after a match again at most the
 * SPECIAL_BYTES_MAX bytes that could have made it longer. Embedded in the tokenizer; immutable
 * after init. */
#ifndef WEFT_SPECIALS_H
#define WEFT_SPECIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"

enum { SPECIAL_BYTES_MAX = 512 };

/* One to recognize; lent while making. */
struct special {
    const char *text;
    size_t bytes;
    int32_t id;
    bool control;     /* plain text where the caller wants control tokens to be */
    bool left_strip;  /* takes the white space before it */
    bool right_strip; /* takes the white space behind it */
    bool single_word; /* only where no letter, digit or mark touches it */
};

struct special_node;
struct special_end;
struct specials {
    struct special_node *nodes; /* [0] is the root; NULL: there are no special tokens */
    uint32_t node_count;
    struct special_end *ends; /* what the nodes' `end` index */
    uint32_t end_count;
    uint32_t children[256]; /* the root's, by byte; 0: none */
};

/* Of two with the same text the last counts; those without text do not. E_CORRUPT for one longer
 * than SPECIAL_BYTES_MAX. On failure nothing is left to free. */
int specials_init(struct specials *specials, const struct special *list, uint32_t count,
                  struct fault *fault);
void specials_fini(struct specials *specials);

struct special_match {
    size_t start; /* with the white space that it takes */
    size_t end;
    int32_t id;
};
/* The first at or after `from`; with `controls_as_text` those that are control tokens are passed
 * over. `text` is well-formed UTF-8, `from` where the last match ended, or 0. */
bool specials_next(const struct specials *specials, bool controls_as_text, const char *text,
                   size_t bytes, size_t from, struct special_match *ret_match);
/* The special token that is exactly this text; -1: none. */
int32_t specials_find(const struct specials *specials, const char *text, size_t bytes);

#endif
