/* checkpoint_index.h -- model.safetensors.index.json: which tensor is in which file.
 *
 *     {"metadata": {...}, "weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
 *
 * A name of a file is refused where it could leave the folder. */
#ifndef WEFT_CHECKPOINT_INDEX_H
#define WEFT_CHECKPOINT_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"

struct indexed_tensor {
    const char *name;
    uint32_t file; /* position in the list of files */
};

struct checkpoint_index {
    char *text; /* what the names lie in */
    uint32_t tensor_count;
    struct indexed_tensor *tensors;
    uint32_t file_count; /* at least 1 */
    const char **files;  /* in their names' order, each once */
};

/* `text` is the whole file. Close it after success only. Codes: E_CORRUPT, E_TOO_LARGE, E_MEMORY.
 */
int checkpoint_index_read(const char *text, size_t bytes, struct checkpoint_index *ret_index,
                          struct fault *fault);
void checkpoint_index_fini(struct checkpoint_index *index); /* a zeroed one is fine */
bool checkpoint_index_names(const struct checkpoint_index *index, const char *file);

#endif
