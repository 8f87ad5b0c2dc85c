/* utf8.h -- where one character of UTF-8 ends, and writing one.
 *
 * Well-formed is what Unicode's table 3-7 allows: no overlong forms, no surrogates, nothing above
 * U+10FFFF. An ill-formed part is measured as the standard recommends ("maximal subpart",
 * chapter 3.9), so that every reader of the same bytes counts the same number of U+FFFD. */
#ifndef WEFT_UTF8_H
#define WEFT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Looks at the start of `bytes` >= 1 bytes. true: a well-formed character of *ret_bytes bytes.
 * false: an ill-formed part of *ret_bytes >= 1 bytes; *ret_cut then says whether it is only short,
 * that is, whether more bytes after the end could still complete it. `ret_cut` may be NULL. */
bool utf8_next(const char *text, size_t bytes, size_t *ret_bytes, bool *ret_cut);

/* Writes the 1 to 4 bytes of a code point up to U+10FFFF that is no surrogate; returns how many. */
size_t utf8_put(uint32_t code, char to[4]);

#endif
