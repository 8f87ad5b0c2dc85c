/* pattern.h -- a regular expression as tokenizers use them: where does it match next?
 *
 * Tokenizer files are written for Oniguruma or Rust's regex; PCRE2 reads the same but for a few
 * classes, which are rewritten: \s is Unicode's White_Space (PCRE2's has U+180E besides), \w has
 * marks and connectors, \p{Han} is the script alone, and Oniguruma's [a&&b] is spelled as
 * lookaheads. A pattern is immutable:
 * any thread matches, with a workspace of its own. */
#ifndef WEFT_PATTERN_H
#define WEFT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/fault.h"

struct pattern;

/* `literal`: the text itself is looked for. E_UNSUPPORTED for what PCRE2 cannot read. */
int pattern_open(const char *text, size_t bytes, bool literal, struct pattern **ret_pattern,
                 struct fault *fault);
void pattern_close(struct pattern *pattern); /* NULL is fine */

struct pattern_work;
int pattern_work_open(struct pattern_work **ret_work);
void pattern_work_close(struct pattern_work *work); /* NULL is fine */

/* The first match at or after `from` <= bytes in well-formed UTF-8; it may be empty. 1, 0: none,
 * E_MEMORY, or E_TOO_LARGE when the text takes more steps or memory than are spent on it. */
int pattern_next(const struct pattern *pattern, struct pattern_work *work, const char *text,
                 size_t bytes, size_t from, size_t *ret_start, size_t *ret_end,
                 struct fault *fault);

#endif
