/* normalizer.h -- what a model's makers change in a text before it is cut into pieces.
 *
 *     "Café"  --form D-->  "Cafe´"  --strip accents-->  "Cafe"  --lowercase-->  "cafe"
 *
 * A list of steps, each on the whole result of the one before it. Immutable when all steps are
 * there; any thread applies it, with a workspace of its own. */
#ifndef WEFT_NORMALIZER_H
#define WEFT_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "engine/text/charsmap.h"
#include "engine/text/normalize.h"
#include "engine/text/pattern.h"
#include "engine/text/sentencepiece_text.h"

struct normalizer;

int normalizer_open(struct normalizer **ret_normalizer, struct fault *fault);
void normalizer_close(struct normalizer *normalizer); /* NULL is fine */

int normalizer_add_form(struct normalizer *normalizer, enum normalization form,
                        struct fault *fault);
/* Before every text that is not empty. */
int normalizer_add_prepend(struct normalizer *normalizer, const char *text, size_t bytes,
                           struct fault *fault);
/* Every match of a pattern, or of a literal text, becomes `to`. */
int normalizer_add_replace(struct normalizer *normalizer, const char *pattern, size_t pattern_bytes,
                           bool literal, const char *to, size_t to_bytes, struct fault *fault);
/* White space at the ends goes. */
int normalizer_add_strip(struct normalizer *normalizer, bool left, bool right, struct fault *fault);
/* Takes the map, also when it fails. */
int normalizer_add_charsmap(struct normalizer *normalizer, struct charsmap *map,
                            enum charsmap_reading reading, struct fault *fault);

/* Takes the rules, also when it fails. */
int normalizer_add_sentencepiece(struct normalizer *normalizer, struct sentencepiece_rules *rules,
                                 struct fault *fault);

/* What is done to each character alone. */
enum character_rule {
    CHARACTERS_LOWERCASE = 1 << 0,
    CHARACTERS_NO_MARKS = 1 << 1,            /* drops every combining mark (M) */
    CHARACTERS_NO_NONSPACING_MARKS = 1 << 2, /* only Mn */
    CHARACTERS_CLEAN = 1 << 3, /* BERT: drops NUL, U+FFFD, controls; white space is a space */
    CHARACTERS_APART = 1 << 4, /* BERT: a space on both sides of a CJK ideograph */
};
int normalizer_add_characters(struct normalizer *normalizer, unsigned rules, struct fault *fault);

/* One thread's. */
struct normalizer_work {
    struct buf results[2];
    struct pattern_work *pattern; /* NULL until needed */
};
void normalizer_work_init(struct normalizer_work *work);
void normalizer_work_fini(struct normalizer_work *work);

/* *ret_text is the text itself where nothing changes, else lies in `work` until the next call. 0,
 * -ENOMEM or E_TOO_LARGE. */
int normalizer_apply(const struct normalizer *normalizer, struct normalizer_work *work,
                     const char *text, size_t bytes, const char **ret_text, size_t *ret_bytes,
                     struct fault *fault);

#endif
