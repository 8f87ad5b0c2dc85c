/* safetensors.h -- a safetensors file, memory-mapped: which tensors it holds and where they lie.
 *
 *     length of the header, 8 bytes | header: JSON | data
 *
 *     {"__metadata__": {"format": "pt"},
 *      "model.norm.weight": {"dtype": "BF16", "shape": [64], "data_offsets": [0, 128]}, ...}
 *
 * (Format: the README of Hugging Face's safetensors.) Nothing is copied but the names. As the
 * format wants it, the tensors fill the data without gaps and without overlap; each one's size is
 * what its shape and format say. All of that is checked once, so a truncated or hostile file is a
 * fault that names the tensor, and never a crash. Immutable after opening: any thread may read. */
#ifndef WEFT_SAFETENSORS_H
#define WEFT_SAFETENSORS_H

#include "config/base/fault.h"
#include "engine/stored_tensor.h"

struct safetensors;

/* `path` must be a regular file. */
int safetensors_open(const char *path, struct safetensors **ret_file, struct fault *fault);
/* The same over bytes in memory that outlive the file; `name` stands for the path. */
int safetensors_open_memory(const void *data, size_t bytes, const char *name,
                            struct safetensors **ret_file, struct fault *fault);
void safetensors_close(struct safetensors *file); /* NULL is fine */
/* What was read need not stay in this process's memory. */
void safetensors_rest(const struct safetensors *file);

const char *safetensors_path(const struct safetensors *file);
uint64_t safetensors_bytes(const struct safetensors *file);
uint32_t safetensors_count(const struct safetensors *file);
/* In the order in which their data lie. */
const struct stored_tensor *safetensors_at(const struct safetensors *file, uint32_t index);

#endif
