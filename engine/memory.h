/* memory.h -- how much memory this process may still take.
 *
 * The least of what the kernel says is available (MemAvailable of /proc/meminfo) and what is left
 * of the limit of each control group that the process lives in (version 2: memory.max and
 * memory.current; version 1: memory.limit_in_bytes and memory.usage_in_bytes), from its own group
 * up to the root. Page cache that a group can drop (inactive_file) counts as free. What cannot be
 * read does not limit. */
#ifndef WEFT_MEMORY_H
#define WEFT_MEMORY_H

#include <stdint.h>

uint64_t memory_available(void); /* bytes */
/* The same below another root, where `root`/proc and `root`/sys stand for /proc and /sys. */
uint64_t memory_available_under(const char *root);

#endif
