/* quantize_list.h -- what model_quantize.c writes: each tensor of the new file and where its
 * numbers come from. */
#ifndef WEFT_QUANTIZE_LIST_H
#define WEFT_QUANTIZE_LIST_H

#include "engine/checkpoint.h"
#include "engine/gguf_write.h"
#include "engine/model.h"

/* Rows of q and k whose rotated pairs are halves of a head apart become neighbours, as some
 * architectures' GGUF files have them. */
struct quantize_turn {
    uint32_t head_size; /* 0: rows stay where they are */
    uint32_t rope_size;
};

struct quantize_tensor {
    struct gguf_string name; /* lent by the file or, for folders, by the list */
    uint32_t dimension_count;
    uint64_t dimensions[GGUF_DIMENSIONS_MAX];
    struct weight_part parts[WEIGHT_PARTS_MAX]; /* stacked by rows */
    struct quantize_turn turns[WEIGHT_PARTS_MAX];
    uint32_t part_count;
    uint32_t rows; /* of all parts */
    uint32_t columns;
    enum dtype kept; /* its type where it is not quantized */
    enum dtype to;
    uint64_t bytes; /* as `to` */
};

struct quantize_list {
    struct quantize_tensor *tensors;
    uint32_t count;
    bool tied;      /* the embedding is the head */
    bool tokenizer; /* a folder's: the keys have it */
    char (*names)[96];
    struct model *model; /* of a folder; its parts are the tensors' */
};

/* The tensors of a GGUF file, in its order, and into `writer` its keys but those that change. */
int quantize_list_gguf(const struct checkpoint *checkpoint, struct quantize_list *list,
                       struct gguf_writer *writer, struct fault *fault);
/* The tensors of a folder's model by its architecture's names in GGUF, and the keys that say what
 * config.json says. E_UNSUPPORTED: the architecture's files cannot. */
int quantize_list_folder(const struct checkpoint *checkpoint, struct quantize_list *list,
                         struct gguf_writer *writer, struct fault *fault);
/* What the two models differ in, in words, or NULL. Weights' numbers are not compared. */
const char *quantize_difference(const struct model *a, const struct model *b);
void quantize_list_fini(struct quantize_list *list);

#endif
