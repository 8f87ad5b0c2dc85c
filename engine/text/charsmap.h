/* charsmap.h -- sentencepiece's table of what characters become: its "precompiled_charsmap".
 *
 *     u32 n | n bytes: a double array (darts-clone), u32 a unit | replacements, NUL after each
 *
 * The double array is a trie over bytes whose values are offsets of replacements. A unit is:
 * bit 31: a leaf, whose lower bits are the value; else bits 0-7 (and 31) the label, bit 8: a leaf
 * hangs below it, bits 10-30 the offset to its children, shifted by 8 more where bit 9 is set.
 * Immutable; any thread reads. (sentencepiece, src/normalizer.cc; darts-clone, darts.h.) */
#ifndef WEFT_CHARSMAP_H
#define WEFT_CHARSMAP_H

#include <stddef.h>

#include "config/base/buf.h"
#include "config/base/fault.h"

struct charsmap;

/* Who looks what up. */
enum charsmap_reading {
    CHARSMAP_LONGEST,  /* sentencepiece: the longest entry at each place of the text */
    CHARSMAP_CLUSTERS, /* the `tokenizers` library: the first entry at the start of each grapheme
                          cluster of fewer than six bytes stands for all of it, else of each
                          character */
};

/* Copies the bytes. E_CORRUPT for what is cut short. */
int charsmap_open(const void *bytes, size_t count, struct charsmap **ret_map, struct fault *fault);
void charsmap_close(struct charsmap *map); /* NULL is fine */

/* The replacement of the longest entry that `text` starts with, and that entry's length in
 * *ret_taken; NULL: none. */
const char *charsmap_longest(const struct charsmap *map, const char *text, size_t bytes,
                             size_t *ret_taken, size_t *ret_bytes);
/* Appends what well-formed UTF-8 becomes. */
void charsmap_apply(const struct charsmap *map, enum charsmap_reading reading, const char *text,
                    size_t bytes, struct buf *to);

#endif
