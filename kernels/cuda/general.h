/* general.h -- kernels for what the fused and fast ones (kernels.h) leave out: every operation that
 * struct model can ask for, of any size, between cuBLAS's products.
 *
 * What products give is float32 here, what they take is `type`; the residual stream is float32 as
 * everywhere. All of it only enqueues, as kernels.h says. */
#ifndef WEFT_CUDA_GENERAL_H
#define WEFT_CUDA_GENERAL_H

#include "kernels/activation.h"
#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_ROPES_MAX = 2,
    CUDA_ANY_HEAD_MAX = 1024, /* elements of a head in cuda_attention_any() */
};

/* x / rms(x) x gain, or (x - mean) / deviation x gain; plus bias. */
struct cuda_norm_form {
    const float *gain; /* NULL: no norm, x as it is */
    const float *bias; /* NULL: none */
    float epsilon;
    uint32_t centred;
};

/* --- embedding (general_embed.cu) ---------------------------------------------------------- */

struct cuda_general_rope {
    const float *frequencies;      /* [pairs] */
    const float *long_frequencies; /* of rows whose prompt is longer than long_from; NULL: none */
    uint32_t long_from;
    float scale; /* of cosines and sines */
};

/* Rows of the table, times scale, and the rotary table of the step. Counts the step on. */
struct cuda_general_embed {
    enum dtype type;
    uint32_t tokens;
    const struct cuda_token *placed;
    const void *table; /* [vocabulary][columns], type */
    uint32_t columns;
    float scale;
    float *residual; /* [tokens][columns]; NULL: `narrow` is written instead */
    void *narrow;    /* [tokens][columns], type */
    uint32_t rope_count, rope_pairs;
    struct cuda_general_rope ropes[CUDA_ROPES_MAX];
    const struct cuda_sampling *samplings; /* [rows]: for the prompts' lengths */
    float *rotary;                         /* [tokens][ropes][pairs][cosine, sine] */
    uint32_t *step;
};
int cuda_general_embed(const struct cuda_stream *stream, const struct cuda_general_embed *args);

/* residual = norm(residual + positions[position + offset]) */
struct cuda_general_positions {
    enum dtype type;
    uint32_t tokens, width;
    const struct cuda_token *placed;
    const void *positions; /* [..][width], type; NULL: none */
    uint32_t offset;
    struct cuda_norm_form norm;
    float *residual;
};
int cuda_general_positions(const struct cuda_stream *stream,
                           const struct cuda_general_positions *args);

/* --- rows (general_rows.cu) ---------------------------------------------------------------- */

/* x[i] = norm(from[outputs ? outputs[i].token : i]), `count` rows. */
struct cuda_general_norm {
    enum dtype type;
    uint32_t count, width;
    const float *from; /* rows `stride` apart */
    uint32_t stride;
    const struct cuda_output *outputs; /* NULL: all, in order */
    struct cuda_norm_form norm;
    void *x; /* [count][width], type */
};
int cuda_general_norm(const struct cuda_stream *stream, const struct cuda_general_norm *args);

/* residual += scale x post(branch + bias); then residual = stream(residual), where there is one. */
struct cuda_general_branch {
    uint32_t tokens, width;
    const float *branch; /* [tokens][width] */
    const float *bias;   /* NULL: none */
    struct cuda_norm_form post;
    float scale;
    float *residual;
    struct cuda_norm_form stream;
};
int cuda_general_branch(const struct cuda_stream *stream, const struct cuda_general_branch *args);

/* x = activation(gate) x up of [gate, up] + bias; without a gate, activation(up). */
struct cuda_general_activate {
    enum dtype type;
    uint32_t tokens, ffn;
    enum activation activation;
    uint32_t gated;
    float limit;          /* of ACTIVATION_SWIGLU_OAI */
    const float *gate_up; /* [tokens][ffn or 2 ffn] */
    const float *bias;    /* of the same; NULL: none */
    void *x;              /* [tokens][ffn], type */
};
int cuda_general_activate(const struct cuda_stream *stream,
                          const struct cuda_general_activate *args);

/* logits = cap tanh(scale x (logits + bias) / cap); cap 0: none. */
struct cuda_general_logits {
    uint32_t count, vocabulary, stride;
    float *logits;
    const float *bias; /* [vocabulary]; NULL: none */
    float scale, cap;
};
int cuda_general_logits(const struct cuda_stream *stream, const struct cuda_general_logits *args);

/* --- q, k, v (general_qkv.cu) -------------------------------------------------------------- */

/* KV pages: [page][kv_head][K, V][CUDA_PAGE_TOKENS] rows of head_size (K) or value_size (V)
 * elements, in the order of cuda_kv_chunk(); where both are one size, as kernels.h has them. */
struct cuda_general_kv {
    enum dtype type;
    uint32_t heads, kv_heads, head_size, value_size;
    void *pages;
    const uint32_t *page_table; /* [rows][pages_per_row] */
    uint32_t pages_per_row;
};

enum cuda_head_norm {
    CUDA_HEAD_NORM_NONE,
    CUDA_HEAD_NORM_SHARED, /* each head by itself, one gain for all */
    CUDA_HEAD_NORM_OWN,    /* each head by itself with a gain of its own */
    CUDA_HEAD_NORM_WIDE,   /* all heads together */
};

/* From the product: adds the bias, normalises, rotates, and puts q in place and k, v into the
 * pages. */
struct cuda_general_qkv {
    struct cuda_general_kv kv;
    uint32_t tokens;
    const struct cuda_token *placed;
    const float *qkv;  /* [tokens][heads x head + kv_heads x (head + value)] */
    const float *bias; /* NULL: none */
    enum cuda_head_norm norm;
    const float *q_norm; /* gains; NULL: no norm */
    const float *k_norm;
    float epsilon;
    uint32_t centred;
    uint32_t rotary_size; /* 0: nothing rotates */
    uint32_t rotary_halves;
    uint32_t rotary_stride; /* floats from one token's table to the next */
    const float *rotary;    /* the layer's, of token 0 */
    void *q;                /* [tokens][heads][head_size], type */
};
int cuda_general_qkv(const struct cuda_stream *stream, const struct cuda_general_qkv *args);

/* --- attention (attention_any.cu) ---------------------------------------------------------- */

struct cuda_attention_any {
    struct cuda_general_kv kv;
    float scale;
    float softcap;       /* 0: none */
    uint32_t window;     /* 0: all */
    const float *slopes; /* [heads]: + slope x (key's - query's position); NULL: none */
    const float *sinks;  /* [heads]: a score that takes its share and adds nothing; NULL: none */
    const void *q;       /* [tokens][heads][head_size] */
    void *out;           /* [tokens][heads][value_size] */
    const struct cuda_segment *segments;
};
/* Segments of at most one token each. */
int cuda_attention_any_decode(const struct cuda_stream *stream,
                              const struct cuda_attention_any *args, uint32_t sequences);
/* As cuda_attention_prefill(). */
int cuda_attention_any_prefill(const struct cuda_stream *stream,
                               const struct cuda_attention_any *args,
                               const struct cuda_prefill_tile *tiles, uint32_t tile_count);

/* --- mixtures of experts (general_mixture.cu) ---------------------------------------------- */

enum cuda_router {
    CUDA_ROUTER_SOFTMAX,        /* softmax over all, then the best */
    CUDA_ROUTER_SOFTMAX_CHOSEN, /* the best, then softmax over them */
    CUDA_ROUTER_SIGMOID,        /* the best of sigmoid plus bias, within the best groups */
};
enum { CUDA_EXPERTS_MAX = 1024 };

/* Of a step: a pair is a token's k-th choice, number token * used + k. */
struct cuda_mixture {
    uint32_t tokens, experts, used;
    enum cuda_router router;
    uint32_t groups, groups_used; /* 0: from all */
    uint32_t normalizes;          /* the shares sum to 1 */
    float scale;                  /* of the shares, after that */
    const float *scores;          /* [tokens][experts], the router's product */
    const float *router_bias;     /* NULL: none */
    uint32_t *chosen;             /* [tokens][used] */
    float *shares;                /* [tokens][used] */
    uint32_t *lists;              /* [experts][list_stride]: pairs of each expert */
    uint32_t list_stride;
    uint32_t *counts; /* [experts] */
};
int cuda_mixture_choose(const struct cuda_stream *stream, const struct cuda_mixture *args);

/* out[pair] = w[its expert] x + bias[its expert] */
struct cuda_expert_product {
    struct cuda_mixture mixture;
    enum dtype type;
    uint32_t outputs, columns;
    const void *w;     /* [experts][outputs][columns] */
    const float *bias; /* [experts][outputs]; NULL: none */
    const void *x;     /* [pairs][columns], or by token */
    uint32_t x_by_token;
    float *out; /* [pairs][outputs] */
};
int cuda_expert_product(const struct cuda_stream *stream, const struct cuda_expert_product *args);

/* branch[token] = sum of shares x outputs, + sigmoid(shared_gate . x) x shared */
struct cuda_expert_sum {
    struct cuda_mixture mixture;
    enum dtype type;
    uint32_t width;
    const float *outputs;     /* [pairs][width] */
    const float *shared;      /* [tokens][width]; NULL: none */
    const float *shared_gate; /* [width]; NULL: all of it */
    const void *x;            /* [tokens][width]: what the branch read */
    float *branch;
};
int cuda_expert_sum(const struct cuda_stream *stream, const struct cuda_expert_sum *args);

/* --- latent attention (general_latent.cu) -------------------------------------------------- */

struct cuda_latent {
    struct cuda_general_kv kv; /* one KV head; head_size: latent and rope, value_size: latent */
    uint32_t tokens;
    const struct cuda_token *placed;
    uint32_t query_size; /* of a head of q as it comes from its product, the rope part last */
    uint32_t value_size; /* of a head of values */
    uint32_t rope_size;
    uint32_t rotary_halves;
    uint32_t rotary_stride;
    const float *rotary;
    struct cuda_norm_form norm; /* of the latent */
    const float *kv_down;       /* [tokens][kv.head_size] */
    const float *queries;       /* [tokens][heads][query_size] */
    const void *kv_up;          /* [heads][query_size - rope_size + value_size][latent], type */
    void *q;                    /* [tokens][heads][kv.head_size], type: what attention reads */
    const void *summed;         /* [tokens][heads][latent], type: what it gives */
    void *attended;             /* [tokens][heads][value_size], type */
};
int cuda_latent_in(const struct cuda_stream *stream, const struct cuda_latent *args);
int cuda_latent_out(const struct cuda_stream *stream, const struct cuda_latent *args);

#ifdef __cplusplus
}
#endif

#endif
