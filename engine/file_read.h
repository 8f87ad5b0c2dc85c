/* file_read.h -- a small file as a whole, into a buffer whose ceiling bounds it. */
#ifndef WEFT_FILE_READ_H
#define WEFT_FILE_READ_H

#include "config/base/buf.h"
#include "config/base/fault.h"

/* Appends the file to `text`. Faults: -errno, E_TOO_LARGE at the buffer's ceiling. */
int file_read(const char *path, struct buf *text, struct fault *fault);

#endif
