/* cuda_internal.h -- what the files of the CUDA backend share.
 *
 *     backend_cuda.c   opening, the memory plan, the table of operations
 *     cuda_weights.c   the model's weights into the device's memory
 *     cuda_buckets.c   sizes of decode steps, and a graph for each
 *     cuda_changes.c   what opens rows and grants pages, packed and copied beside the computing
 *     cuda_step.c      a step: begin, results, waiting
 *     cuda_ops.c       the operations between begin and sample: what they launch
 *     cuda_general.c   the same for models that the fused and fast kernels do not compute
 *     cuda_trace.c     when steps and copies ran, while a trace is written
 *     cuda_measure.c   how fast the card reads its memory
 *
 * Everything is called by one thread, the scheduler's (start-up by the one that opens). Nothing
 * waits for the device except complete(), and whatever was asked to be plain (--sync). */
#ifndef WEFT_CUDA_INTERNAL_H
#define WEFT_CUDA_INTERNAL_H

#include "engine/backend.h"
#include "engine/carve.h"
#include "engine/host_sample.h"
#include "engine/request_table.h"
#include "kernels/cuda/cublas.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/kernels.h"

enum {
    CUDA_LANES_MAX = 4 + 1, /* one for prompts, where that is asked for */
    CUDA_BUCKETS_MAX = 64,
    CUDA_BIAS_MAX = LOGIT_BIAS_MAX,
    CUDA_CHANGE_SLOTS = 4,
    CUDA_ROW_STEP = 64, /* large steps are padded to multiples of so many rows */
};

/* A weight on the device: in rows for cuBLAS and look-ups, packed for few rows (NULL: not kept). */
struct cuda_matrix {
    void *rows;
    void *packed;
    uint32_t outputs;
    uint32_t columns;
};

/* What the model does not have is NULL, as with its `rows`. */
struct cuda_layer {
    struct cuda_matrix qkv, out, gate_up, down;
    const float *attention_norm;
    const float *ffn_norm;
    const float *qkv_bias;
    const float *q_norm;
    const float *k_norm;

    /* The general path's. */
    const float *attention_norm_bias;
    const float *out_bias;
    const float *post_attention_norm;
    const float *post_attention_norm_bias;
    const float *ffn_norm_bias;
    const float *gate_up_bias;
    const float *down_bias;
    const float *post_ffn_norm;
    const float *post_ffn_norm_bias;
    const float *sinks;
    /* A mixture, instead of gate_up and down: all experts' weights one after another. */
    const float *router; /* [experts][width] */
    const float *router_bias;
    void *experts_gate_up; /* NULL: a dense layer */
    void *experts_down;
    const float *experts_gate_up_bias;
    const float *experts_down_bias;
    struct cuda_matrix shared_gate_up, shared_down;
    const float *shared_gate;
    /* Latent attention, instead of qkv. */
    struct cuda_matrix q_down, q_up, kv_down, kv_up;
    const float *q_down_norm;
    const float *kv_down_norm;
};

struct cuda_weights {
    void *region;
    struct cuda_layer *layers;
    uint32_t layer_count;
    struct cuda_matrix embedding; /* never packed */
    struct cuda_matrix head;
    const float *final_norm;

    /* The general path's. */
    struct cuda_matrix positions;
    struct cuda_matrix embedding_in;
    struct cuda_matrix embedding_out;
    const float *embedding_norm;
    const float *embedding_norm_bias;
    const float *final_norm_bias;
    const float *head_bias;
};

/* A step that the host has not heard of yet: what to make of its choices. */
struct cuda_pending {
    uint32_t output_count;
    struct cuda_pending_output {
        struct row_promise promise;
        uint32_t result; /* of step.rows; step.prompts where `sampled` is false */
        bool sampled;
    } * outputs; /* [tokens_max] */
};

/* What a trace tells of a step on a lane, or of copies. */
struct cuda_timing {
    struct CUevent_st *began; /* NULL: there is no trace */
    struct CUevent_st *ended;
    const char *name; /* of copies: NULL once told */
    uint32_t tokens;
    uint64_t step;
};

/* Changes on their way: host memory, the device's copy, and when each is free again. */
struct cuda_change_slot {
    uint8_t *host;
    struct CUevent_st *copied;
    struct CUevent_st *applied;
    struct cuda_timing timing; /* of the copies */
    bool used;
    uint32_t opening_count, grant_count, bias_count, token_count;
    struct cuda_opening *openings;
    struct cuda_grant *grants;
    struct cuda_bias *biases;
    int32_t *tokens;
    struct cuda_changes placed; /* the same on the device, and the tables */
};

/* A stream with all that a step on it writes. */
struct cuda_lane {
    struct cuda_stream stream;
    uint32_t rows_open; /* rows that were given to it */
    uint32_t steps;     /* begun ever; slot and choices are this modulo CUDA_STEP_SLOTS */
    uint32_t completed;

    /* Mapped: described by the host, chosen by the device. */
    struct cuda_step_slot slots[CUDA_STEP_SLOTS]; /* as the host sees them */
    struct cuda_prepare prepare;                  /* with the device's addresses */
    struct cuda_choice *choices;                  /* [CUDA_STEP_SLOTS][tokens_max], host */
    struct cuda_choice *mapped_choices;
    struct cuda_pending pending[CUDA_STEP_SLOTS];
    struct CUevent_st *done[CUDA_STEP_SLOTS];
    struct cuda_timing timings[CUDA_STEP_SLOTS];

    struct cuda_change_slot changes[CUDA_CHANGE_SLOTS];
    uint32_t change_slot;

    /* Device memory of the activations. */
    float *residual; /* [tokens][width] */
    float *rotary;   /* [tokens][pairs][2] */
    void *x;         /* [tokens][widest input]: of every product but down's */
    void *qkv;       /* [tokens][heads + 2 kv heads][head_size]; general: products' float32 */
    void *q;         /* [tokens][heads][head_size] */
    void *gate_up;   /* [tokens][2 ffn]; the same */
    void *hidden;    /* [tokens][ffn] */
    float *logits;   /* [head_rows][logits_stride] */
    void *attended;  /* general: [tokens][heads][value_size] */
    float *scores;   /* mixtures: see kernels/cuda/general.h */
    uint32_t *chosen;
    float *shares;
    uint32_t *expert_lists;
    uint32_t *expert_counts;
    float *expert_outputs; /* [pairs][width] */
    float *shared;         /* [tokens][width] */
    float *kv_down;        /* latent attention: [tokens][kv_latent + rope size] */
    float *q_latent;       /* [tokens][q_latent] */
    void *summed;          /* [tokens][heads][kv_latent] */
    void *narrow;          /* general: [head_rows][embedding_width] */
    float *branch;         /* general: [tokens][width], what a branch adds */
    void *fragments[3];    /* x of the fused products: from the residual, attention, activation */
    float *squares;
    void *skinny_scratch;
    void *attention_scratch;
    void *sample_scratch;
    void *workspace; /* cuBLAS's */
    uint32_t *step_counter;

    struct CUgraphExec_st *graphs[CUDA_BUCKETS_MAX];

    /* The step being enqueued. */
    bool active;      /* it has tokens here */
    bool replayed;    /* by a graph: the operations have nothing to do */
    uint32_t follows; /* steps of the prefill lane that this step's rows come from; 0: none */
    bool decodes;     /* every token is a row's next: outputs are the tokens, in order */
    uint32_t tokens;  /* padded */
    uint32_t token_count;
    uint32_t outputs; /* padded */
    uint32_t output_count;
    uint32_t decode_segments;        /* padded where decodes */
    uint32_t first_decode;           /* index of the first decode segment */
    struct cuda_prefill_tile *tiles; /* host, [CUDA_STEP_SLOTS][tokens_max] */
    const struct cuda_prefill_tile *mapped_tiles_all;
    const struct cuda_prefill_tile *mapped_tiles; /* the step's */
    uint32_t tile_count;
    bool fused; /* the products of few rows; else cuBLAS */
};

struct backend {
    struct cuda_context context;
    struct cublas *cublas;
    struct cuda_options options;
    struct engine_progress progress;
    struct engine_trace trace;
    struct CUevent_st *trace_base; /* recorded at trace_base_ns of the host's clock */
    struct CUevent_st *trace_spare;
    uint64_t trace_base_ns;
    char description[160];
    const struct model *model;
    struct engine_limits limits;
    enum dtype type;
    uint32_t element_bytes;
    bool packs;        /* weights are kept packed too */
    bool general;      /* cuda_general.c computes this model */
    bool fuses_rotary; /* the fused qkv product turns and writes pages itself */
    struct cuda_weights weights;
    uint32_t tokens_max; /* of a step, padded */
    uint32_t head_rows;  /* outputs whose logits are kept at once */
    uint32_t logits_stride;
    uint32_t bucket_count;
    uint32_t buckets[CUDA_BUCKETS_MAX];

    void *kv;                        /* [layer][page] */
    void *activation;                /* all lanes' and the tables' */
    void *pinned;                    /* all mapped memory */
    size_t page_bytes;               /* of one layer */
    float *frequencies;              /* general: [ropes][usual, of long prompts][pairs] */
    float *slopes;                   /* general: the model's alibi; NULL: none */
    struct cuda_sampling *samplings; /* tables by row */
    struct cuda_row *rows;
    struct cuda_bias *biases;
    uint16_t *generated_counts;
    uint32_t *prompt_seen;
    uint32_t *masks; /* mapped: written while steps run */
    uint32_t *mask_steps;
    uint32_t *host_masks; /* the same for the host */
    _Atomic uint32_t *host_mask_steps;
    uint32_t *page_table;
    uint8_t *row_lanes; /* host: which lane a row runs on */

    /* The plain loop's: logits on the host, and what draws from them. */
    float *host_logits; /* pinned, [head_rows][logits_stride] */
    struct host_sampler sampler;
    void *sampler_memory;
    struct cuda_stream sampling; /* a stream of its own for the draw, where that is asked for */
    struct CUevent_st *ordered;

    struct cuda_stream copies;
    uint32_t lane_count;
    uint32_t decode_lanes;   /* the first ones; with --prefill-lane prompts have the last */
    uint32_t *row_prefilled; /* host: the prefill lane's steps when the row was last there */
    struct cuda_lane lanes[CUDA_LANES_MAX];
    const struct cuda_lane *captured; /* the only lane that operations look at meanwhile */
    struct work *work;
    struct request_table *table;
    struct step *step;
    int result; /* the first failure of the step */
    uint32_t submit_count;
    uint32_t complete_count;
    uint32_t submitted[CUDA_STEP_SLOTS]; /* by step: a bit for each lane that it ran on */
};

/* cuda_weights.c */
uint64_t cuda_weights_bytes(const struct backend *b, const struct model *model, bool packs);
/* That every step reads: all but an embedding that is not the head too. */
uint64_t cuda_weights_step_bytes(const struct backend *b, const struct model *model);
int cuda_weights_load(struct backend *b, const struct model *model, struct fault *fault);
void cuda_weights_close(struct backend *b);

/* cuda_buckets.c */
void cuda_buckets_list(struct backend *b);
/* The index of the smallest bucket of at least `rows`; bucket_count: none. */
uint32_t cuda_bucket_find(const struct backend *b, uint32_t rows);
uint32_t cuda_rows_padded(uint32_t rows); /* of a step that is no bucket */
int cuda_buckets_measure(struct backend *b, struct fault *fault);
int cuda_buckets_capture(struct backend *b, struct fault *fault);
void cuda_buckets_close(struct backend *b);

/* cuda_changes.c */
int cuda_changes_open(struct backend *b, struct cuda_lane *lane, struct carve *device,
                      struct carve *host);
void cuda_changes_close(struct backend *b, struct cuda_lane *lane);
int cuda_changes_apply(struct backend *b, const struct batch *batch);

/* cuda_step.c */
int cuda_begin(struct backend *b, const struct model *model, struct work *work);
int cuda_sample_step(struct backend *b, struct request_table *table, struct step *step);
int cuda_complete(struct backend *b, struct request_table *table, struct step *step);

/* cuda_measure.c */
int cuda_read_bandwidth(struct backend *b, double *ret_bytes_per_second, struct fault *fault);

/* cuda_trace.c */
int cuda_trace_open(struct backend *b); /* the lanes are open */
void cuda_trace_close(struct backend *b);
int cuda_trace_step(struct backend *b); /* a step comes; nothing of it is enqueued */
int cuda_trace_begin(struct backend *b, struct cuda_lane *lane);
int cuda_trace_end(struct cuda_lane *lane);
int cuda_trace_complete(struct backend *b, struct cuda_lane *lane, uint32_t slot);
int cuda_trace_copy_begin(struct backend *b, struct cuda_change_slot *slot);
int cuda_trace_copy_end(struct backend *b, struct cuda_change_slot *slot);
/* The host has slept for the device since then: for the step's account, and the trace. */
void cuda_waited(struct backend *b, struct step *step, uint64_t began_ns);

/* cuda_ops.c */
void cuda_op_prepare(struct backend *b, struct cuda_lane *lane);
void cuda_op_embed(struct backend *b);
void cuda_op_attention_in(struct backend *b, uint32_t layer);
void cuda_op_attention(struct backend *b, uint32_t layer);
void cuda_op_attention_out(struct backend *b, uint32_t layer);
void cuda_op_mlp(struct backend *b, uint32_t layer);
void cuda_op_mixture(struct backend *b, uint32_t layer);
void cuda_op_head(struct backend *b);
/* Logits of the outputs first .. first + head_rows - 1, and the draw from them. */
void cuda_op_head_chunk(struct backend *b, struct cuda_lane *lane, uint32_t first);
void cuda_op_sample(struct backend *b, struct cuda_lane *lane, uint32_t first, uint32_t count);

/* cuda_general.c: a lane's part of an operation. */
bool cuda_general_needed(const struct backend *b, const struct model *model);
int cuda_general_check(const struct model *model, struct fault *fault);
void cuda_general_place_lane(struct backend *b, struct carve *carve, struct cuda_lane *lane);
void cuda_general_place_tables(struct backend *b, struct carve *carve);
/* Through mapped memory, once. */
int cuda_general_fill_tables(struct backend *b);
void cuda_general_embed_lane(struct backend *b, struct cuda_lane *lane);
void cuda_general_attention_in(struct backend *b, struct cuda_lane *lane, uint32_t layer);
void cuda_general_attention(struct backend *b, struct cuda_lane *lane, uint32_t layer);
/* Do the fast kernels compute the attention of that layer, or of any? */
bool cuda_general_attends_fast(const struct backend *b, uint32_t layer);
bool cuda_general_plans(const struct backend *b);
void cuda_general_attention_out(struct backend *b, struct cuda_lane *lane, uint32_t layer);
/* Heads as the KV pages hold them. */
uint32_t cuda_general_key_size(const struct model *m);
uint32_t cuda_general_kv_value_size(const struct model *m);
void cuda_general_mixture(struct backend *b, struct cuda_lane *lane, uint32_t layer);
void cuda_general_mlp(struct backend *b, struct cuda_lane *lane, uint32_t layer);
/* `count` outputs from `first` on. */
void cuda_general_head(struct backend *b, struct cuda_lane *lane, uint32_t first, uint32_t count);

/* Keeps the first failure. */
static inline void cuda_note(struct backend *b, int r)
{
    if (r < 0 && b->result == 0)
        b->result = r;
}

#endif
