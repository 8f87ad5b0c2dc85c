/* model.h -- a model as its architecture row describes it, bound to the memory of its file, or
 * with random weights that are computed where they are needed.
 *
 * Everything here is immutable after opening. Shapes: a weight has `rows` outputs and `columns`
 * inputs; y[rows] = W[rows][columns] x[columns].
 *
 * A weight may consist of several parts stacked by rows (q, k and v become one product), each with
 * its own number format, as files mix them. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/checkpoint.h"
#include "kernels/quant_tables.h"
#include "kernels/random_weight.h"

enum { WEIGHT_PARTS_MAX = 3 };

/* Bounds far above every known model; they keep products within 64 bits. */
enum {
    MODEL_LAYERS_MAX = 1024,
    MODEL_WIDTH_MAX = 1 << 18,
    MODEL_HEADS_MAX = 4096,
    MODEL_HEAD_SIZE_MAX = 4096,
    MODEL_FFN_WIDTH_MAX = 1 << 20,
    MODEL_VOCABULARY_MAX = 1 << 22,
    MODEL_CONTEXT_MAX = 1 << 26,
    MODEL_END_TOKENS_MAX = 16,
};

/* weight_part.h reads either kind. */
struct weight_part {
    enum dtype type;
    uint32_t rows;
    const void *data; /* in the file: `rows` rows of `columns` elements; NULL: `random` */
    struct random_weight random;
    /* What the elements need to be numbers, or NULL. With them the part's row r is row
     * first_row + r of theirs, and `data` only tells parts apart. */
    const struct quant_tables *tables;
    uint32_t first_row;
};

struct weight {
    uint32_t rows; /* sum over the parts; 0: the model has no such weight */
    uint32_t columns;
    uint32_t part_count;
    struct weight_part parts[WEIGHT_PARTS_MAX];
};

enum norm_kind { NORM_RMS };
enum rope_kind {
    ROPE_INTERLEAVED, /* pairs (0,1) (2,3) ...: how GGUF stores llama's q and k rows */
    ROPE_HALVES,      /* pairs (0, n/2) (1, n/2+1) ...: qwen and most others */
};
enum ffn_kind { FFN_SWIGLU };

struct layer {
    struct weight attention_norm; /* [1][width], in any float format */
    struct weight qkv;            /* parts q, k, v */
    struct weight qkv_bias;       /* parts q, k, v, columns == 1; rows 0: none */
    struct weight q_norm;         /* [1][head_size]; rows 0: none */
    struct weight k_norm;
    struct weight attention_out;
    struct weight ffn_norm;
    struct weight gate_up; /* parts gate, up */
    struct weight down;
};

struct model {
    const char *architecture; /* the table's name: "llama" */
    char name[128];           /* general.name, printable, or the file's name */
    enum norm_kind norm;
    enum ffn_kind ffn;
    enum rope_kind rope;
    float norm_epsilon;
    float rope_base;
    float *rope_factors; /* [rope_size / 2]: each frequency is divided by its factor; NULL: none */
    uint32_t rope_size;  /* dimensions of a head that rotate */
    uint32_t layer_count;
    uint32_t width;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size;
    uint32_t ffn_width;
    uint32_t vocabulary;
    uint32_t context;        /* as trained */
    float attention_scale;   /* 1 / sqrt(head_size) unless the file says otherwise */
    struct weight embedding; /* [vocabulary][width] */
    struct weight final_norm;
    struct weight head;       /* [vocabulary][width]; the embedding's part where they are tied */
    struct weight rope_freqs; /* the file's factors, if it has any; rope_factors includes them */
    struct layer *layers;
    uint64_t weight_bytes; /* as in the file, or as one would be */
    uint64_t parameters;
    uint32_t end_count; /* eos_token_id of config.json: none, one or a list */
    int32_t end_tokens[MODEL_END_TOKENS_MAX];
    uint32_t ignored_count; /* tensors of a folder's files that the architecture has no use for */
    char ignored[96];       /* the first one's name */
};

/* Binds an opened checkpoint by its architecture's row. `checkpoint` must outlive the model.
 * Faults: an architecture that is not in the table (with the list and the closest), a missing
 * tensor, a wrong shape, a format that is not read (all by name). */
int model_open(const struct checkpoint *checkpoint, struct model **ret_model, struct fault *fault);
/* A model of that shape (shape.h) whose weights are random: the same at every time and place, and
 * scaled like a trained model's, so that activations stay within their usual range. Faults: an
 * unknown name, a file that is no config.json or describes what is not served. */
int model_open_random(const char *shape, struct model **ret_model, struct fault *fault);
void model_close(struct model *model); /* NULL is fine */

#endif
