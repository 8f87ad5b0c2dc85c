/* saved_tensor.h -- the tensors of a checkpoint of Transformers that a random model stands for.
 *
 * What model.c cuts out of a file's tensors is put together again here: q, k and v that are one
 * tensor, in turns or by heads; gate and up; all experts of a layer; transposed tensors; norms that
 * are stored less 1; a tensor for each head. */
#ifndef WEFT_SAVED_TENSOR_H
#define WEFT_SAVED_TENSOR_H

#include "engine/model_random.h"

enum { SAVED_NAME_BYTES = ARCH_NAME_BYTES + 32, SAVED_DIMENSIONS = 3 };

struct saved_tensor {
    char name[SAVED_NAME_BYTES];
    enum dtype type;
    uint32_t dimension_count;
    uint64_t shape[SAVED_DIMENSIONS]; /* as Transformers counts: the last one's are neighbours */
    uint64_t bytes;
    uint32_t file; /* the caller's */

    /* Its rows as they lie in the file, `columns` elements each. */
    uint64_t rows;
    uint32_t columns;
    /* Where they come from. */
    const struct arch_weight *line; /* the first of those that share it */
    uint32_t layer;
    uint32_t inner; /* the expert or the head; of stacked experts 0 */
};

/* All of the random model's tensors, layer by layer. `nested`: their names have the prefix of a
 * text model inside of a larger one. The caller frees *ret_tensors. E_MEMORY. */
int saved_tensors_list(struct model *model, const struct arch *arch, bool nested,
                       struct saved_tensor **ret_tensors, uint32_t *ret_count, struct fault *fault);
/* Writes rows `first` .. + `count` - 1 to `to` without gaps. Any thread. */
void saved_tensor_read(const struct saved_tensor *tensor, struct model *model, uint64_t first,
                       uint64_t count, void *to);

#endif
