/* normalize.h -- Unicode normalization form C, in time that no text can make quadratic.
 *
 * Pure functions. */
#ifndef WEFT_NORMALIZE_H
#define WEFT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/buf.h"

/* true: certainly in form C already (nothing at or above U+0300). */
bool nfc_is_plain(const char *text, size_t bytes);
/* Appends form C of well-formed UTF-8, which is at most three times as long. 0 or -ENOMEM. */
int nfc_append(struct buf *ret_text, const char *text, size_t bytes);

#endif
