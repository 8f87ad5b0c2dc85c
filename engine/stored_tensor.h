/* stored_tensor.h -- a tensor as it lies in a checkpoint, whatever the kind of its file. */
#ifndef WEFT_STORED_TENSOR_H
#define WEFT_STORED_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/name_index.h"
#include "kernels/quant_tables.h"

enum { TENSOR_DIMENSIONS_MAX = 8, TENSOR_FORMAT_BYTES = 40 };

struct stored_tensor {
    struct gguf_string name;          /* first: indexes sort by it */
    char format[TENSOR_FORMAT_BYTES]; /* as its file calls it: "BF16", "I64", "type 24 (I8)" */
    bool known;                       /* false: a format whose numbers are not read here */
    enum dtype type;                  /* when known */
    uint32_t dimension_count;
    uint64_t dimensions[TENSOR_DIMENSIONS_MAX]; /* fastest first: [columns, rows, ...]; unused ones
                                                   are 1 */
    const void *data;                  /* into the mapping, `bytes` long; not aligned to anything */
    uint64_t bytes;                    /* 0 where the file does not say the size of that format */
    const struct quant_tables *tables; /* what its elements need to be numbers; or NULL */
};

#endif
