/* arch.h -- architectures as rows: what a model family computes and how its files name the weights.
 *
 * A new family that is made of known parts is one row in arch.c and its list of names. */
#ifndef WEFT_ARCH_H
#define WEFT_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/model.h"

enum { ARCH_NAME_BYTES = 96 };

/* A size that the file's metadata fixes; see arch_weight. */
enum arch_dim {
    DIM_ONE,
    DIM_WIDTH,
    DIM_VOCABULARY, /* taken from the embedding, not checked there */
    DIM_Q,          /* heads x head_size */
    DIM_KV,         /* kv_heads x head_size */
    DIM_HEAD,
    DIM_FFN,
    DIM_ROPE, /* rope_size / 2 */
};

/* Where in struct model or struct layer a tensor goes: the weight's offset and which part of it. */
struct arch_weight {
    const char *name;     /* in GGUF; "%u" is the layer's number: one for each layer */
    const char *hf_name;  /* in Transformers' checkpoints; NULL: not stored there */
    size_t weight_offset; /* of the struct weight */
    uint32_t part;
    enum arch_dim rows;
    enum arch_dim columns;
    unsigned flags;
};
enum {
    WEIGHT_PER_LAYER = 1 << 0,
    WEIGHT_OPTIONAL = 1 << 1,
    WEIGHT_FLOAT =
        1 << 2, /* a float format in the file, or it is refused: norms, biases, factors */
};

struct arch {
    const char *name; /* general.architecture */
    enum norm_kind norm;
    enum ffn_kind ffn;
    enum rope_kind rope; /* of GGUF's files; Transformers' are all ROPE_HALVES */
    const struct arch_weight *weights;
    uint32_t weight_count;
};

/* The row of that name. E_UNSUPPORTED names the known ones and the closest. */
int arch_find(struct gguf_string name, const struct arch **ret_arch, struct fault *fault);

/* The size of that dimension in this model. */
uint32_t arch_dim_value(const struct model *model, enum arch_dim dim);
/* The weight that a line of the row describes, in the model or in its layer. */
struct weight *arch_weight_at(const struct arch_weight *line, struct model *model, uint32_t layer);
/* Appends the part that the line describes to its weight, whose rows and columns it sets, and
 * counts it in the model's parameters. The part's rows are set here. */
void arch_weight_add(const struct arch_weight *line, struct model *model, struct weight *weight,
                     struct weight_part part);
/* `format` is one of a line's names; its "%u" becomes the layer's number. */
void arch_weight_name(const char *format, uint32_t layer, char name[static ARCH_NAME_BYTES]);

#endif
