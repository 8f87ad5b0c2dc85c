/* quantize_list.h -- what model_quantize.c writes: each tensor of the new file and where its
 * numbers come from. */
#ifndef WEFT_QUANTIZE_LIST_H
#define WEFT_QUANTIZE_LIST_H

#include "engine/checkpoint.h"
#include "engine/gguf_write.h"
#include "engine/model.h"

struct quantize_tensor {
    struct gguf_string name; /* lent by the file or, for folders, by the list */
    uint32_t dimension_count;
    uint64_t dimensions[GGUF_DIMENSIONS_MAX];
    struct weight_part part; /* all rows */
    uint32_t columns;
    enum dtype to;
    uint64_t bytes; /* as `to` */
};

struct quantize_list {
    struct quantize_tensor *tensors;
    uint32_t count;
    bool tied; /* the embedding is the head */
};

/* The tensors of a GGUF file, in its order, and into `writer` its keys but those that change. */
int quantize_list_gguf(const struct checkpoint *checkpoint, struct quantize_list *list,
                       struct gguf_writer *writer, struct fault *fault);
void quantize_list_fini(struct quantize_list *list);

#endif
