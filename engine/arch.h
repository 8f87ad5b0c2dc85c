/* arch.h -- architectures as rows: what a model family computes and how its files name the weights.
 *
 * A row says what every model of the family has in common: its kind of norm, its block's shape, and
 * the list of its weights. What differs from model to model is read from the file's own words:
 * sizes and switches from GGUF's metadata (gguf_config.c) or from config.json (hf_config.c, whose
 * rows are the classes of Transformers). Together they fill struct model, which is all that
 * backends see; what each field makes them compute is told there (model.h).
 * A line of the list is one tensor, or a part that is cut out of one:
 *
 *     {name in GGUF, name in Transformers' files, which weight, which part, rows, columns, flags,
 *      slice}
 *
 * The weight is an offset into struct model, struct layer, or (SLICE_EXPERTS) the struct ffn of
 * each expert. Lines of the dense feed-forward part are those of layers without experts.
 * Parts stack: q, k and v are parts 0, 1 and 2 of one product, in this order. Where files keep
 * them in one tensor, several lines have its name, and `slice` says which of the tensor's rows are
 * whose. A name is NULL where that kind of file has no such tensor.
 * What only some models of a family have is optional; lines are tried in their order, and the first
 * whose tensor is there fills its part, so that one part may have several names.
 *
 * A family that is made of known parts is one row, its list, and its class in hf_class.c. One that
 * is not gets a field in struct model, and every backend either computes it or refuses it by name.
 */
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
    DIM_EMBEDDING,  /* embedding_width */
    DIM_POSITIONS,  /* context + position_offset */
    DIM_TYPES,      /* token_types */
    DIM_Q,          /* heads x head_size */
    DIM_KV,         /* kv_heads x head_size */
    DIM_V,          /* kv_heads x value_size */
    DIM_ATTENTION,  /* heads x value_size */
    DIM_HEAD,       /* head_size */
    DIM_HEADS,      /* heads */
    DIM_QK_NORM,    /* of a q_norm, as the model's qk_norm says */
    DIM_QK_NORM_KV, /* of a k_norm */
    DIM_FFN,
    DIM_EXPERTS, /* expert_count */
    DIM_EXPERT_FFN,
    DIM_SHARED_FFN,
    DIM_Q_LATENT,
    DIM_Q_UP, /* columns of q_up: q_latent, or width without one */
    DIM_KV_LATENT,
    DIM_KV_DOWN, /* kv_latent + rope size */
    DIM_KV_UP,   /* heads x (head_size - rope size + value_size) */
    DIM_ROPE,    /* half of the first rope's size */
};

/* Which of a tensor's rows a line means. */
enum arch_slice {
    SLICE_WHOLE,
    SLICE_QKV,     /* the tensor stacks the parts q, k, v */
    SLICE_GATE_UP, /* the tensor stacks the parts gate, up */
    SLICE_EXPERTS, /* [experts][rows][columns], or as many tensors: one weight for each expert */
};

struct arch_weight {
    const char *name;     /* "%u" is the layer's number: one for each layer */
    const char *hf_name;  /* a second "%u": the expert's or the head's number */
    size_t weight_offset; /* of the struct weight */
    uint32_t part;
    enum arch_dim rows;
    enum arch_dim columns;
    unsigned flags;
    enum arch_slice slice;
};
enum {
    WEIGHT_PER_LAYER = 1 << 0,
    WEIGHT_OPTIONAL = 1 << 1,
    WEIGHT_FLOAT = 1 << 2, /* a norm, a bias or factors: never quantized, float32 in GGUF */
    /* How Transformers' files differ from GGUF's, whose converter undoes it: */
    WEIGHT_HF_TRANSPOSED = 1 << 3,  /* [columns][rows] */
    WEIGHT_HF_BY_HEAD = 1 << 4,     /* SLICE_QKV for each KV head: its group's q, its k, its v */
    WEIGHT_HF_PLUS_ONE = 1 << 5,    /* 1 is to be added */
    WEIGHT_HF_EACH_HEAD = 1 << 6,   /* a tensor for each head, which together are the weight */
    WEIGHT_HF_INTERLEAVED = 1 << 7, /* SLICE_GATE_UP by turns: gate's row, up's row */
    /* Optional, but there where the model's `features` say so. */
    WEIGHT_IF_QKV_BIAS = 1 << 8,
    WEIGHT_IF_OUT_BIAS = 1 << 9,
    WEIGHT_IF_FFN_BIAS = 1 << 10,
    WEIGHT_IF_QK_NORM = 1 << 11,
    WEIGHT_SPARSE = 1 << 12,       /* only layers with experts have it */
    WEIGHT_SHARED = 1 << 13,       /* optional, but there where shared_width is not 0 */
    WEIGHT_Q_LATENT = 1 << 14,     /* optional, but there where q_latent is not 0 */
    WEIGHT_IF_TWO_NORMS = 1 << 15, /* a parallel layer has one for each branch */
    WEIGHT_IF_FEATURES = WEIGHT_IF_QKV_BIAS | WEIGHT_IF_OUT_BIAS | WEIGHT_IF_FFN_BIAS |
                         WEIGHT_IF_QK_NORM | WEIGHT_IF_TWO_NORMS,
};

enum {
    ARCH_PARALLEL = 1 << 0,         /* unless config.json has a switch for it */
    ARCH_NO_PRE_NORM = 1 << 1,      /* layers have norms after their branches only */
    ARCH_SCALES_EMBEDDING = 1 << 2, /* by sqrt(width) */
    ARCH_ALIBI = 1 << 3,
    ARCH_NO_ROPE = 1 << 4,
    ARCH_NO_FINAL_NORM = 1 << 5, /* it may be missing */
    ARCH_ENCODER = 1 << 6,       /* attends both ways, norms the stream */
};

struct arch {
    const char *name; /* general.architecture */
    enum norm_kind norm;
    enum activation activation; /* unless config.json names another */
    bool gated;
    enum rope_kind rope; /* of GGUF's files */
    enum rope_kind hf_rope;
    enum qk_norm qk_norm;
    unsigned flags;
    const char *hf_prefix; /* which files may leave out of their names; NULL: none */
    const struct arch_weight *weights;
    uint32_t weight_count;
};

/* The row of that name. E_UNSUPPORTED names the known ones and the closest. */
int arch_find(struct gguf_string name, const struct arch **ret_arch, struct fault *fault);

/* The size of that dimension in this model. */
uint32_t arch_dim_value(const struct model *model, enum arch_dim dim);
/* How many weights a line of the row describes in that layer: one, none, or one for each expert. */
uint32_t arch_weight_count(const struct arch_weight *line, const struct model *model,
                           uint32_t layer);
/* The weight that a line describes, in the model or in its layer; `expert` is below the count. */
struct weight *arch_weight_at(const struct arch_weight *line, struct model *model, uint32_t layer,
                              uint32_t expert);
/* Does the tensor have one dimension? A product's only row has two. */
bool arch_weight_is_vector(const struct arch_weight *line);
/* Is it the last product of a feed-forward network, of whichever? */
bool arch_weight_is_down(const struct arch_weight *line);
/* Does that name tell experts (or heads) apart by a number of their own? */
bool arch_name_has_inner(const char *format);
/* Appends the part that the line describes to its weight, whose rows and columns it sets, and
 * counts it in the model's parameters. The part's rows are set here. */
void arch_weight_add(const struct arch_weight *line, struct model *model, struct weight *weight,
                     struct weight_part part);
/* `format` is one of a line's names; its first "%u" becomes the layer's number, a second one the
 * expert's or the head's. */
void arch_weight_name(const char *format, uint32_t layer, uint32_t inner,
                      char name[static ARCH_NAME_BYTES]);

#endif
