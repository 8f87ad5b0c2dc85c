/* sentencepiece_text.h -- how sentencepiece normalizes a text (src/normalizer.cc, in its rules).
 *
 *     "  Hello   world "  ->  "▁Hello▁world"
 *
 * The model's user-defined symbols stay as they are; everywhere else the longest entry of the
 * model's map of characters is replaced; then spaces are removed, escaped and added as the model
 * says. Immutable; any thread. */
#ifndef WEFT_SENTENCEPIECE_TEXT_H
#define WEFT_SENTENCEPIECE_TEXT_H

#include <stdbool.h>

#include "config/base/buf.h"
#include "engine/text/charsmap.h"
#include "engine/text/specials.h"

struct sentencepiece_rules {
    struct charsmap *map;    /* NULL: none */
    struct specials symbols; /* the user-defined */
    bool dummy_prefix;
    bool removes_spaces;
    bool escapes_spaces;
    bool space_is_suffix;
};

/* Frees what the rules own, and them. NULL is fine. */
void sentencepiece_rules_close(struct sentencepiece_rules *rules);
/* Appends what well-formed UTF-8 becomes. */
void sentencepiece_rules_apply(const struct sentencepiece_rules *rules, const char *text,
                               size_t bytes, struct buf *to);

#endif
