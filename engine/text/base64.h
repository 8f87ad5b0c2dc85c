/* base64.h -- bytes written as text (RFC 4648, section 4), as tokenizer files have them.
 *
 * Pure. */
#ifndef WEFT_BASE64_H
#define WEFT_BASE64_H

#include <stddef.h>

#include "config/base/buf.h"
#include "config/base/fault.h"

/* Appends what the text stands for; '=' at its end may be missing. 0, E_CORRUPT or E_MEMORY. */
int base64_append(const char *text, size_t bytes, struct buf *to);

/* Appends the text of bytes, with '=' at its end. */
void base64_write(const unsigned char *bytes, size_t count, struct buf *to);

#endif
