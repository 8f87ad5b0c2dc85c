/* regex_grammar.h -- regular expressions as grammars.
 *
 * What Python's `re` and ECMA 262 write the same way: literals, `.` (any character but the ends of
 * lines), classes with ranges and negation, \d \w \s and their opposites (as ECMA has them, but \s
 * is ASCII only), escapes, groups (captured or not, named or not), `|`, the repetitions * + ? {m}
 * {m,} {m,n} (lazy ones too: what matches is the same), ^ and $ where a text can begin and end.
 * Characters are code points.
 *
 * Refused by name, since no automaton can do them or none is needed: look-ahead and look-behind,
 * back-references, possessive and atomic groups, flags, \b and \B, \p, anchors elsewhere. */
#ifndef WEFT_REGEX_GRAMMAR_H
#define WEFT_REGEX_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/text/grammar.h"

struct regex_options {
    bool search; /* somewhere in the text, unless ^ and $ say otherwise; else the whole text */
};

/* The expression as a node of `grammar`. `options` may be NULL: all zero. Faults: E_INVALID,
 * E_UNSUPPORTED, E_TOO_LARGE, E_MEMORY. */
int regex_grammar_build(struct grammar *grammar, const char *pattern, size_t bytes,
                        const struct regex_options *options, int32_t *ret_node,
                        struct fault *fault);

/* A grammar of its own for whole texts. The caller owns it; its root is set. */
int regex_grammar_open(const char *pattern, size_t bytes, struct grammar **ret_grammar,
                       struct fault *fault);

#endif
