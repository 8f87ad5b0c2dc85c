/* normalize.h -- Unicode's normalization forms, in time that no text can make quadratic.
 *
 * Pure functions. */
#ifndef WEFT_NORMALIZE_H
#define WEFT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "config/base/buf.h"

enum normalization { FORM_C, FORM_D, FORM_KC, FORM_KD };

/* true: certainly in this form already. */
bool normalize_is_plain(enum normalization form, const char *text, size_t bytes);
/* Appends this form of well-formed UTF-8: at most three times as long for C and D, eleven times for
 * the others. 0 or -ENOMEM. */
int normalize_append(enum normalization form, struct buf *ret_text, const char *text, size_t bytes);

#endif
