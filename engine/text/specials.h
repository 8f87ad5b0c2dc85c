/* specials.h -- the tokens that are recognized in a text before anything is merged: control tokens
 * such as <|im_start|>, and others that the makers added.
 *
 * An automaton over bytes (Aho and Corasick's) of the names written backwards reads a text from its
 * end to its start and so knows at each place the longest name that starts there: every byte is
 * read once, whatever the names are. Of what was found the leftmost counts, then the leftmost
 * behind it. Embedded in the tokenizer; immutable after init. */
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

/* What was found in one text: the longest at each place where one starts. */
struct special_hit {
    size_t start;
    uint32_t special; /* index into ends */
};
struct special_hits {
    struct special_hit *list; /* the last one starts first */
    size_t count;
    size_t room;
};
void special_hits_init(struct special_hits *hits);
void special_hits_fini(struct special_hits *hits);
/* `text` is well-formed UTF-8. 0 or -ENOMEM. */
int specials_scan(const struct specials *specials, const char *text, size_t bytes,
                  struct special_hits *hits);

struct special_match {
    size_t start; /* with the white space that it takes */
    size_t end;
    int32_t id;
};
/* Takes the first at or after `from`, where the last match ended, or 0; with `controls_as_text`
 * those that are control tokens are passed over. */
bool specials_next(const struct specials *specials, struct special_hits *hits,
                   bool controls_as_text, const char *text, size_t bytes, size_t from,
                   struct special_match *ret_match);
/* The special token that is exactly this text; -1: none. */
int32_t specials_find(const struct specials *specials, const char *text, size_t bytes);

#endif
