/* cpu_internal.h -- what the files of the CPU backend share.
 *
 *     backend_cpu.c   opening, costs, memory, the table of operations
 *     cpu_weights.c   the model's weights into the packed layout
 *     cpu_step.c      the operations of a step, each one run of the pool (and cpu_attention.c,
 *                     cpu_mlp.c, cpu_mixture.c)
 *     cpu_sample.c    logits to tokens
 *
 * Only the lane's thread calls in; the pool's threads work inside pool_run(). */
#ifndef WEFT_CPU_INTERNAL_H
#define WEFT_CPU_INTERNAL_H

#include "engine/backend.h"
#include "engine/carve.h"
#include "engine/host_sample.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/pool.h"

enum {
    LINE_BYTES = 64,
    HEAD_ROWS = 32, /* outputs whose logits are kept at once */
    OWN_ROWS = 2,   /* up to so many rows each thread prepares inputs itself: no barrier */
    GROUPS_PER_BLOCK = BLOCK_COLUMNS / GROUP_ROWS,
    /* Gate and up outputs that a thread computes before it goes on to the activation: they stay in
     * its cache. */
    CPU_TILE_FLOATS = 32768,
};

/* Zeroed pages, huge ones where the kernel grants them. */
struct region {
    uint8_t *data;
    size_t bytes;
};
int region_open(struct region *region, size_t bytes, const char *what, struct fault *fault);
void region_close(struct region *region);

/* A weight's parts, each padded to whole groups of 16 outputs. */
struct cpu_matrix {
    uint32_t part_count; /* 0: the model has no such weight */
    uint32_t groups;     /* of all parts */
    struct packed parts[WEIGHT_PARTS_MAX];
    const float *bias; /* by padded output; NULL: none */
};

/* Padded with zeros like all rows; gain NULL: no norm. */
struct cpu_norm {
    const float *gain;
    const float *bias; /* NULL: none */
};

/* A feed-forward network. Gate and up for the same 32 outputs lie together: two groups of gate, two
 * of up. When their formats allow it they are one matrix (up.groups == 0), else two. Without a
 * gate, up alone is `gate`. */
struct cpu_ffn {
    uint32_t width; /* of the hidden layer */
    struct packed gate;
    struct packed up;
    const float *gate_up_bias; /* [2][padded width]: gate's, up's; without a gate [padded width] */
    struct cpu_matrix down;
};

/* Latent attention's; see cpu_latent.c. */
struct cpu_latent {
    struct cpu_matrix q_down; /* part_count 0: none */
    struct cpu_norm q_norm;
    struct cpu_matrix q_up;
    struct cpu_matrix kv_down;
    struct cpu_norm kv_norm;
    struct packed *keys;   /* [heads]: [kv_latent][head_size - rope size], kv_up's turned round */
    struct packed *values; /* [heads]: [value_size][kv_latent] */
};

struct cpu_layer {
    struct cpu_matrix qkv; /* part_count 0: latent attention */
    struct cpu_latent latent;
    struct cpu_matrix out;
    struct cpu_ffn ffn;
    /* A mixture, instead of ffn. */
    struct cpu_matrix router;
    const float *router_bias; /* [experts]: of the choice alone, ROUTER_SIGMOID's; NULL: none */
    struct cpu_ffn *experts;  /* [experts]; NULL: a dense layer */
    struct cpu_ffn shared;    /* width 0: none */
    struct cpu_matrix shared_gate; /* part_count 0: none */
    struct cpu_norm attention_norm;
    struct cpu_norm post_attention_norm;
    struct cpu_norm ffn_norm;
    struct cpu_norm post_ffn_norm;
    const float *q_norm; /* shaped as the model's qk_norm says; NULL: none */
    const float *k_norm;
    const float *sinks; /* [heads]; NULL: none */
};

struct cpu_weights {
    struct region region;
    struct cpu_layer *layers;
    struct cpu_ffn *experts;   /* of all layers */
    struct packed *head_parts; /* of all layers: latent attention's keys, then values */
    uint32_t layer_count;
    struct cpu_matrix head;
    struct packed embedding; /* rows to look up: the head's memory where the two are tied */
    struct packed positions; /* rows to look up; groups == 0: none */
    struct packed types;
    struct cpu_matrix embedding_in;
    struct cpu_matrix embedding_out;
    struct cpu_norm embedding_norm;
    struct cpu_norm final_norm;
};

uint64_t cpu_weights_bytes(const struct model *model);
int cpu_weights_load(struct cpu_weights *weights, const struct model *model, struct pool *pool,
                     const struct engine_progress *progress, struct fault *fault);
void cpu_weights_fini(struct cpu_weights *weights);

/* Scratch of one thread. */
struct cpu_seat {
    struct activations own;  /* OWN_ROWS rows */
    struct activations head; /* TILE_ROWS rows of one head: latent attention's */
    float *row;              /* one normalised row */
    float *tile;             /* gate and up outputs */
    struct kernel_scratch kernel;
    struct host_sampler sampler;
};

/* The largest values of a piece of the vocabulary, by seat and output. */
struct cpu_best {
    uint32_t index;
    float value;
};

/* Row lengths, in floats, padded to blocks of 32. */
struct cpu_strides {
    size_t width;
    size_t qkv;
    size_t attention; /* heads x value_size */
    size_t latent;    /* q_down's outputs; 0: none */
    size_t kv_down;   /* 0: no latent attention */
    size_t absorbed;  /* heads x (kv_latent + rope size) */
    size_t summed;    /* heads x kv_latent */
    size_t ffn;
    size_t narrow; /* embedding_width, where that is not the width; else 0 */
    size_t logits; /* padded by a line more: rows do not meet in the cache */
};

/* Rows that go through one feed-forward network. */
struct cpu_ffn_job {
    const struct cpu_ffn *ffn;
    struct activations x;
    struct activations hidden;
    uint32_t first_row; /* mixtures: in the outputs */
    float *y;           /* mixtures: what down's product gives, [rows][width] */
};

/* A mixture's state between the phases of a step; see cpu_mixture.c. */
struct cpu_mixture {
    float *normed;            /* [tokens][width] */
    float *scores;            /* [tokens][experts padded]: the router's */
    float *gates;             /* [tokens][GROUP_ROWS], the first one: the shared expert's share */
    uint32_t *chosen;         /* [tokens][used]: experts */
    float *shares;            /* [tokens][used]: of their outputs */
    uint32_t *places;         /* [tokens][used]: rows of `outputs` */
    uint32_t *job_of;         /* [experts] */
    uint32_t *counts;         /* [experts] */
    struct cpu_ffn_job *jobs; /* of the chosen experts, then the shared one's */
    uint32_t job_count;
    size_t scores_stride;
    struct activations input;  /* rows by expert, each expert's from a multiple of 8 on */
    struct activations hidden; /* the same rows */
    float *outputs;            /* the same rows, [width] */
    float *shared;             /* [tokens][width] */
};

struct backend {
    const struct cpu_kernels *kernels;
    enum precision precision;
    struct engine_progress progress;
    struct pool *pool;
    char description[96];

    const struct model *model;
    struct cpu_weights weights;
    struct kv_shape kv_shape;
    struct cpu_strides strides;
    uint32_t token_max;
    uint32_t page_count;
    uint32_t vocabulary;
    uint32_t end_count;
    const int32_t *end_tokens;
    struct region kv;         /* [layer][page][kv head] blocks */
    struct region activation; /* everything below */
    float *x;                 /* [tokens][width]: the residual stream */
    float *qkv;               /* [tokens][qkv] */
    float *attention;         /* [tokens][attention] */
    float *latent;            /* [tokens][latent] */
    float *kv_down;           /* [tokens][kv_down] */
    float *absorbed;          /* [tokens][absorbed]: queries as the latent's keys want them */
    float *summed;            /* [tokens][summed]: what attention gives, in latents */
    float *branch; /* [tokens][width]: what a branch adds, where it is not added at once */
    float *narrow; /* [tokens or HEAD_ROWS][narrow] */
    float *rotary; /* [tokens][ropes][2][rope size]: cosines, sines */
    float *logits; /* [HEAD_ROWS][logits] */
    struct activations input;  /* of every product but down's */
    struct activations hidden; /* of down's */
    struct cpu_mixture mixture;
    struct cpu_seat *seats;
    struct cpu_best *best; /* [HEAD_ROWS][threads] */

    /* The step. */
    struct work *work;
    const struct cpu_layer *layer; /* of the operation that runs */
    uint32_t layer_index;
    struct pool_work works[2]; /* of its phases that seats share by taking */
    uint32_t head_first;       /* the chunk of outputs whose logits are kept */
    uint32_t head_count;
    struct request_table *table;
    struct step *step;
    _Atomic uint32_t next_output;
};

int cpu_begin(struct backend *backend, const struct model *model, struct work *work);
void cpu_embed(struct backend *backend);
void cpu_attention_in(struct backend *backend, uint32_t layer);
void cpu_attention(struct backend *backend, uint32_t layer);
void cpu_attention_out(struct backend *backend, uint32_t layer);
void cpu_mlp(struct backend *backend, uint32_t layer);
void cpu_mixture(struct backend *backend, uint32_t layer);
void cpu_head(struct backend *backend);
/* Logits of the outputs from `first` on, at most HEAD_ROWS. */
void cpu_head_chunk(struct backend *backend, uint32_t first);
int cpu_sample(struct backend *backend, struct request_table *table, struct step *step);

/* Is something done to what a branch gives before it is added to the residual stream? */
static inline bool cpu_defers_branches(const struct model *m)
{
    return m->residual_scale != 1 || m->layers[0].post_attention_norm.rows ||
           m->layers[0].post_ffn_norm.rows;
}

static inline size_t padded_to_blocks(size_t count)
{
    return (count + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS * BLOCK_COLUMNS;
}

#endif
