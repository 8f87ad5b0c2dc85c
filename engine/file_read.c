/* file_read.c -- see file_read.h. */
#include "engine/file_read.h"

#include <errno.h>
#include <stdio.h>

enum { PIECE_BYTES = 4096 };

int file_read(const char *path, struct buf *text, struct fault *fault)
{
    FILE *stream = fopen(path, "rbe");
    char piece[PIECE_BYTES];
    size_t bytes = 0;
    int r = 0;

    if (!stream)
        return fault_errno(fault, "cannot open %.300s", path);
    errno = 0;
    while (!buf_failed(text) && (bytes = fread(piece, 1, sizeof piece, stream)) > 0)
        buf_put(text, piece, bytes);
    if (ferror(stream))
        r = fault_errno(fault, "cannot read %.300s", path);
    else if (buf_failed(text) && bytes <= text->ceiling - text->bytes)
        r = fault_set(fault, E_MEMORY, "out of memory for %.300s", path);
    else if (buf_failed(text))
        r = fault_set(fault, E_TOO_LARGE, "%.300s is larger than %zu bytes", path, text->ceiling);
    fclose(stream);
    return r;
}
