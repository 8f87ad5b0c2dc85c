/* file_map.h -- a whole file, mapped for reading.
 *
 * Nothing is copied: what is read comes through the page cache, and may go from this process's
 * memory again (file_map_rest). A file that others cut while it is mapped is beyond help. Immutable
 * after opening: any thread may read. */
#ifndef WEFT_FILE_MAP_H
#define WEFT_FILE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"

struct file_map {
    const uint8_t *base; /* NULL: nothing is mapped */
    size_t bytes;
    bool borrowed; /* the bytes are somebody else's: set by hand, never unmapped */
};

/* `path` must be a regular file that is not empty; `kind` says in the fault what it should have
 * been: "a GGUF file". */
int file_map_open(const char *path, const char *kind, struct file_map *ret_map,
                  struct fault *fault);
void file_map_close(struct file_map *map); /* a zeroed one is fine */
/* What was read need not stay in this process's memory: it comes back when it is read again. */
void file_map_rest(const struct file_map *map);

#endif
