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
#include "kernels/activation.h"
#include "kernels/quant_tables.h"
#include "kernels/random_weight.h"

enum { WEIGHT_PARTS_MAX = 3, MODEL_ROPES_MAX = 2, ROPE_NONE = MODEL_ROPES_MAX };

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
    MODEL_EXPERTS_MAX = 4096,
};

/* Rows of a weight, wherever and however they are stored: read them with weight_part.h.
 *
 * A part that is cut out of a larger tensor begins at `data` and may lie scattered there: row r is
 * the tensor's row (r / block_rows) block_stride + r % block_rows. A transposed tensor has
 * `transposed` elements from column to column, and its rows are neighbours; with tables, or
 * random, its column c is their row first_row + c. */
struct weight_part {
    enum dtype type;
    uint32_t rows;
    const void *data; /* in the file: rows of `columns` elements; NULL: `random` */
    struct random_weight random;
    uint32_t block_rows; /* 0: the rows follow each other */
    uint32_t block_stride;
    uint32_t transposed; /* 0: a row's elements follow each other */
    float plus;          /* to be added to every element: Gemma's norms are stored less 1 */
    /* What the elements need to be numbers, or NULL. With them the part's row r is row
     * first_row + r of theirs, and `data` only tells parts apart. So it is of random weights. */
    const struct quant_tables *tables;
    uint32_t first_row;
};

struct weight {
    uint32_t rows; /* sum over the parts; 0: the model has no such weight */
    uint32_t columns;
    uint32_t part_count;
    struct weight_part parts[WEIGHT_PARTS_MAX];
};

enum norm_kind {
    NORM_RMS,   /* x / rms(x) x gain */
    NORM_LAYER, /* (x - mean) / deviation x gain + bias */
};
enum rope_kind {
    ROPE_INTERLEAVED, /* pairs (0,1) (2,3) ...: how GGUF stores llama's q and k rows */
    ROPE_HALVES,      /* pairs (0, n/2) (1, n/2+1) ...: qwen and most others */
};
/* What q and k are divided by before they rotate (after the model's norm kind, without bias). */
enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_HEAD,  /* each head by itself, one gain for all: q_norm, k_norm [1][head_size] */
    QK_NORM_HEADS, /* each head by itself with a gain of its own: [1][heads x head_size] */
    QK_NORM_WIDE,  /* all heads together: [1][heads x head_size] */
};
enum attention_kind {
    ATTENTION_HEADS,  /* q, k and v of the input */
    ATTENTION_LATENT, /* DeepSeek's: k and v of a small latent, k's rotating part shared by heads */
};
/* How a mixture's scores become the weights of the chosen experts. */
enum router_kind {
    ROUTER_SOFTMAX,        /* softmax over all, then the best */
    ROUTER_SOFTMAX_CHOSEN, /* the best, then softmax over them */
    ROUTER_SIGMOID,        /* sigmoid; chosen by that plus router_bias, within groups */
};

/* A feed-forward network: the layer's own, one expert, or the shared one. Not gated: gate_up has
 * one part, up. */
struct ffn {
    struct weight gate_up; /* parts gate, up */
    struct weight gate_up_bias;
    struct weight down;
    struct weight down_bias;
};

/* How positions turn queries and keys. */
struct rope {
    uint32_t size;           /* dimensions of a head that rotate, from the first on */
    float *frequencies;      /* [size / 2], radians for each position */
    float *long_frequencies; /* of sequences whose prompt is longer than long_from; or NULL */
    uint32_t long_from;      /* tokens */
    float scale;             /* of all cosines and sines (YaRN, longrope); usually 1 */
};

/* One layer. What has no rows, the model does not have. Every norm has a gain [1][width] in any
 * float format and, where the family has one, a bias of the same shape.
 *
 *     h = attention_norm(x)                              without one: x itself
 *     a = post_attention_norm(out(attention(qkv(h))))    biases after products
 *     x = x + residual_scale a                           parallel: later, together with f
 *     f = post_ffn_norm(ffn(ffn_norm(x)))                parallel: of the x that attention saw
 *     x = x + residual_scale f
 *
 * norms_stream (OPT 350M): x = attention_norm(x + a), x = ffn_norm(x + f), and no norm before. */
struct layer {
    uint32_t window; /* a token sees itself and the window - 1 before it; 0: all */
    uint32_t rope;   /* which of the model's; ROPE_NONE: q and k do not rotate */
    struct weight attention_norm;
    struct weight attention_norm_bias;
    struct weight qkv;      /* parts q, k, v */
    struct weight qkv_bias; /* parts q, k, v, columns == 1; rows 0: none */
    struct weight q_norm;   /* shaped as qk_norm says; rows 0: none */
    struct weight k_norm;
    struct weight sinks; /* [heads][1]: a score that takes its share and adds nothing */
    struct weight attention_out;
    struct weight attention_out_bias;
    struct weight post_attention_norm;
    struct weight post_attention_norm_bias;
    struct weight ffn_norm;
    struct weight ffn_norm_bias;
    struct ffn ffn; /* dense layers' */
    struct weight post_ffn_norm;
    struct weight post_ffn_norm_bias;

    /* ATTENTION_LATENT, instead of qkv. q_down has no rows where q comes of the input at once. */
    struct weight q_down;       /* [q_latent][width] */
    struct weight q_down_norm;  /* [1][q_latent] */
    struct weight q_up;         /* [heads x head_size][q_latent or width] */
    struct weight kv_down;      /* [kv_latent + rope size][width]: latent, then k's rotating part */
    struct weight kv_down_norm; /* [1][kv_latent] */
    struct weight kv_up;        /* [heads x (head_size - rope size + value_size)][kv_latent] */

    /* A mixture, instead of ffn. */
    struct weight router;      /* [experts][width] */
    struct weight router_bias; /* [experts][1] */
    struct ffn *experts;       /* [expert_count]; NULL: a dense layer */
    struct ffn shared;         /* runs for every token */
    struct weight shared_gate; /* [1][width]: the shared one's share is its sigmoid */
};

struct model {
    const char *architecture; /* the table's name: "llama" */
    char name[128];           /* general.name, printable, or the file's name */

    uint32_t layer_count;
    uint32_t width;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size;  /* of queries and keys */
    uint32_t value_size; /* of values: head_size, but in ATTENTION_LATENT */
    uint32_t ffn_width;
    uint32_t vocabulary;
    uint32_t context; /* as trained */

    enum norm_kind norm;
    float norm_epsilon;
    bool parallel;     /* attention and ffn read the same x; see struct layer */
    bool norms_stream; /* see struct layer */
    bool encoder;      /* tokens see those after them too; it generates nothing */

    enum attention_kind attention;
    float attention_scale;   /* of scores; 1 / sqrt(head_size) unless the file says otherwise */
    float attention_softcap; /* c: scores become c tanh(score / c); 0: none */
    enum qk_norm qk_norm;
    float *alibi;    /* [heads]: score += alibi[head] x (key's - query's position); NULL: none */
    uint32_t window; /* of the layers that slide */
    enum rope_kind rope;
    uint32_t rope_count; /* 0: no layer rotates */
    struct rope ropes[MODEL_ROPES_MAX];
    uint32_t q_latent;
    uint32_t kv_latent;

    enum activation activation;
    bool gated; /* activation(gate) x up; else activation(up) */
    float activation_limit;
    uint32_t expert_count; /* 0: every layer is dense */
    uint32_t experts_used; /* by a token */
    uint32_t expert_width; /* of a hidden layer, and of the shared one's */
    uint32_t shared_width;
    enum router_kind router;
    bool router_normalizes; /* the chosen weights sum to 1 */
    float router_scale;     /* of the weights, after that */
    uint32_t router_groups; /* experts are chosen from the best groups; 0: from all */
    uint32_t router_groups_used;

    float embedding_scale;    /* of the token's row; 1 */
    float residual_scale;     /* of what a branch adds; 1 */
    float logit_scale;        /* before the cap; 1 */
    float logit_softcap;      /* 0: none */
    uint32_t embedding_width; /* width, unless embedding_in and embedding_out stand between */
    uint32_t position_offset; /* row of `positions` for position 0 */
    uint32_t token_types;     /* rows of `types` */

    /* x = embedding_norm(embedding_in(embedding_scale x embedding[token]) + positions[position] +
     *                    types[0])
     * logits = head(embedding_out(final_norm(x))) + head_bias */
    struct weight embedding; /* [vocabulary][embedding_width] */
    struct weight positions; /* [context + position_offset][width] */
    struct weight types; /* [token_types][width]: BERT's kinds of text, of which one is served */
    struct weight embedding_in;   /* [width][embedding_width] */
    struct weight embedding_norm; /* [1][width] */
    struct weight embedding_norm_bias;
    struct weight final_norm;
    struct weight final_norm_bias;
    struct weight embedding_out; /* [embedding_width][width] */
    struct weight head;          /* as the embedding, whose part it is where they are tied */
    struct weight head_bias;     /* [vocabulary][1] */
    struct weight rope_freqs;    /* the file's factors, if it has any; in ropes[].frequencies */
    struct weight rope_long;     /* longrope's factors in GGUF: of short and of long sequences */
    struct weight rope_short;
    struct layer *layers;
    uint64_t weight_bytes; /* as in the file, or as one would be */
    uint64_t parameters;
    uint32_t end_count; /* eos_token_id of config.json: none, one or a list */
    int32_t end_tokens[MODEL_END_TOKENS_MAX];
    uint32_t ignored_count; /* tensors of a folder's files that the architecture has no use for */
    char ignored[96];       /* the first one's name */
    void **owned;           /* what the model allocated for single weights */
    uint32_t owned_count;
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
