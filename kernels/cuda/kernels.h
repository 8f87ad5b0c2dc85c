/* kernels.h -- what the CUDA kernels offer the engine: arithmetic on device pointers, enqueued.
 *
 * Every function only enqueues on the stream that it is given and returns 0 or E_DEVICE (the
 * stream's context then says why). All pointers are to device memory unless their name says
 * `mapped`. Nothing here allocates, so that all of it can be captured into graphs; whatever changes
 * from step to step is therefore read from device arrays, and the numbers given by value are those
 * of the graph's bucket.
 *
 * Tokens of a step lie one after another; a *segment* is one sequence's run of them: a prefill
 * chunk, or one decode token. Element types are DT_BF16, DT_F16 or DT_F32, called `type`: of
 * weights as placed, of activations between kernels, and of the KV pages. The residual stream and
 * logits are always float32.
 *
 * `dependent`: launched as a programmatic dependent of the kernel before it on the stream (compute
 * capability 9.0): every such kernel waits (griddepcontrol.wait) before it touches anything that
 * another kernel wrote, and before it ends. */
#ifndef WEFT_CUDA_KERNELS_H
#define WEFT_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/cuda_api.h"
#include "kernels/dtype.h"
#include "kernels/random_weight.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_PAGE_TOKENS = 64,
    CUDA_PREFILL_TILE = 64, /* query tokens of a tile in prefill attention */
    CUDA_TOP_MAX = 20,      /* alternatives that sampling reports */
    CUDA_STOP_MAX = 144,    /* end and stop tokens of a row that the device knows */
};

struct cuda_segment {
    uint32_t row; /* of the request table: its page table, sampling parameters, counts */
    uint32_t first_token;
    uint32_t token_count; /* 0: padding, nothing to do */
    uint32_t position;    /* of the first token */
};

/* --- attention (attention_decode.cu, attention_prefill.cu) --------------------------------- */

/* KV pages of one layer: [page][kv_head][K, V][CUDA_PAGE_TOKENS][head_size] elements. The 16-byte
 * chunks of a token's head are stored in the order of cuda_kv_chunk() (common.cuh), so that a page
 * can be copied to shared memory as it lies and read there without bank conflicts. */
struct cuda_attention {
    enum dtype type;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_size;
    float scale;
    const void *q;      /* [tokens][heads * head_size] */
    void *out;          /* [tokens][heads * head_size], or in fragments of out_tiles */
    uint32_t out_tiles; /* 0: rows; else token tiles of 8 in the fragment order of common.cuh */
    const void *pages;
    const uint32_t *page_table; /* [rows][pages_per_row] */
    uint32_t pages_per_row;
    const struct cuda_segment *segments;
};

/* One tile of prefill queries: tokens first .. first + CUDA_PREFILL_TILE - 1 of a segment, as far
 * as it goes. The host lists them; longest contexts first is fastest. */
struct cuda_prefill_tile {
    uint32_t segment;
    uint32_t first; /* token of the segment, a multiple of CUDA_PREFILL_TILE */
};

/* Scratch that decode attention needs for at most `sequences` segments (4,096 is the most), in
 * bytes; zeroed once by the caller before the first use, and left so by each call. A dependent call
 * begins by the plan that it finds, which may be the last step's: a scratch is for one set of
 * buffers, and what is no longer in use among them may be read, but is not looked at. */
uint64_t cuda_attention_scratch(const struct cuda_properties *properties, uint32_t heads,
                                uint32_t kv_heads, uint32_t head_size, uint32_t sequences);

/* Attention of `sequences` segments (from args->segments[0] on) of at most one token each. The
 * work is divided on the device from the segments' own positions, the same way in every layer:
 * cuda_attention_plan() writes that division into the scratch, once a step, before the layers.
 * The result of a row does not depend on the others beside it beyond how its context was split;
 * with `fixed_splits` not even on that. */
int cuda_attention_plan(const struct cuda_stream *stream, const struct cuda_attention *args,
                        uint32_t sequences, bool fixed_splits, void *scratch, bool dependent);
int cuda_attention_decode(const struct cuda_stream *stream, const struct cuda_attention *args,
                          uint32_t sequences, void *scratch, bool dependent);
/* Causal attention of the tiles' tokens over all of their sequence up to themselves; the chunk's
 * own keys and values are in the pages already. */
int cuda_attention_prefill(const struct cuda_stream *stream, const struct cuda_attention *args,
                           const struct cuda_prefill_tile *tiles, uint32_t tile_count);

/* --- sampling (sample.cu) ------------------------------------------------------------------ */

/* How a row of the request table chooses, as placed on the device when the row is opened. Meaning
 * and order of the processors are those of engine/batch.h's `struct sampling`. */
struct cuda_sampling {
    float temperature; /* 0: greedy */
    uint32_t top_k;
    float top_p;
    float min_p;
    float typical_p;
    float repetition_penalty;
    float frequency_penalty;
    float presence_penalty;
    uint64_t seed;
    uint32_t stream;
    int32_t logprobs; /* -1: none */
    int32_t prompt_logprobs;
    uint32_t counted;    /* the row has penalties: its counts and prompt bits are kept */
    uint32_t bias_count; /* the row's first entries of `biases` */
    uint32_t stop_count; /* cannot be drawn while generated < min_tokens; end the row after */
    uint32_t min_tokens;
    uint32_t prompt_count;        /* tokens of the prompt: longrope's choice */
    int32_t stops[CUDA_STOP_MAX]; /* end tokens among them, unless they are ignored */
};

struct cuda_bias {
    int32_t token;
    float bias;
};

/* What the device keeps of a row between steps. */
struct cuda_row {
    int32_t last_token; /* sampled last: the next decode step's input */
    uint32_t ended; /* 1: an end token was sampled, or a mask was late: left alone from there on */
};

/* One position of the step whose logits are wanted. */
struct cuda_output {
    uint32_t token; /* index into the step's tokens: where the final norm reads */
    uint32_t row;
    uint32_t position;  /* of the token to be drawn */
    uint32_t generated; /* tokens generated before it */
    int32_t target;     /* >= 0: report this prompt token and draw nothing */
    uint32_t flags;
};
enum {
    CUDA_OUTPUT_UNUSED = 1 << 0, /* padding of the bucket */
    CUDA_OUTPUT_MASKED = 1 << 1, /* only tokens of the row's mask, if that is for `position` */
};

/* Lies in mapped memory; written once for each output, in the outputs' order. */
struct cuda_choice {
    int32_t token; /* drawn, or the target; -1: neither (ended before, or its mask was late) */
    float logprob; /* of the raw logits; NaN when not asked for */
    uint32_t rank;
    uint32_t top_count;
    struct {
        int32_t token;
        float logprob;
    } top[CUDA_TOP_MAX];
};

struct cuda_sample {
    uint32_t vocabulary;
    uint32_t logits_stride;
    float *logits; /* [outputs][logits_stride], raw; not changed */
    const struct cuda_output *outputs;
    const struct cuda_sampling *samplings; /* [rows] */
    struct cuda_row *rows;
    const struct cuda_bias *biases; /* [rows][bias_max] */
    uint32_t bias_max;
    uint16_t *generated_counts;  /* [rows][vocabulary], saturating; counted rows only */
    const uint32_t *prompt_seen; /* [rows][mask_words]: a bit per token; counted rows only */
    const uint32_t *masks;       /* [rows][mask_words]: a bit per allowed token; may be mapped */
    const uint32_t *mask_steps;  /* [rows]: for which position the mask was made; the same */
    uint32_t mask_words;         /* (vocabulary + 31) / 32 */
    /* A ring: the choices of step n, which *step has counted already, are n mod CUDA_STEP_SLOTS
     * strides on. NULL step: the first. */
    struct cuda_choice *mapped_choices;
    uint32_t choices_stride;
    const uint32_t *step;
};

uint64_t cuda_sample_scratch(uint32_t vocabulary, uint32_t outputs);
/* Vocabularies go up to 2^20 (E_UNSUPPORTED). At most one output of a row draws in a call. A mask
 * counts once its row's entry of mask_steps says the output's position, written after it; a row
 * whose mask is late draws nothing and is ended.
 *
 * Draws for the outputs, updates rows (last_token, ended) and counts, and writes the choices. */
int cuda_sample(const struct cuda_stream *stream, const struct cuda_sample *args,
                uint32_t output_count, void *scratch, bool dependent);

/* --- a step's description (step.cu) -------------------------------------------------------- */

struct cuda_token {
    int32_t token; /* -1: the row's last token, which the device sampled */
    uint32_t row;  /* CUDA_ROW_NONE: padding */
    uint32_t position;
};
#define CUDA_ROW_NONE 0xffffffffu

/* How the host describes steps: a ring of CUDA_STEP_SLOTS slots in mapped memory, step n in slot
 * n mod CUDA_STEP_SLOTS. The device counts steps itself, so a graph reads the next slot each time
 * it is replayed. */
enum { CUDA_STEP_SLOTS = 4 };
struct cuda_step_counts {
    uint32_t tokens;
    uint32_t segments;
    uint32_t outputs;
    uint32_t spare;
};
struct cuda_step_slot {
    struct cuda_step_counts *counts;
    struct cuda_token *tokens;
    struct cuda_segment *segments;
    struct cuda_output *outputs;
};
/* Copies the next slot to where the kernels read it, tokens that the device knows filled in and
 * rows that ended turned into padding, and pads up to the given sizes. */
struct cuda_prepare {
    struct cuda_step_slot mapped[CUDA_STEP_SLOTS];
    struct cuda_step_slot placed;       /* counts: unused */
    uint32_t tokens, segments, outputs; /* sizes of the bucket */
    uint32_t *step;                     /* how many steps there were; cuda_embed() counts on */
    const struct cuda_row *rows;
};
int cuda_prepare(const struct cuda_stream *stream, const struct cuda_prepare *args);
/* E_UNSUPPORTED: this build has no code for the GPU. */
int cuda_kernels_check(struct cuda_context *context, struct fault *fault);

/* What opening a row sets; a list of them lies in memory that the device can read. */
struct cuda_opening {
    uint32_t row;
    uint32_t first_bias;  /* into the list's biases */
    uint32_t first_token; /* counted rows: into the list's tokens */
    uint32_t prompt_count;
    uint32_t token_count;
    uint32_t spare;
    struct cuda_sampling sampling;
};
struct cuda_grant {
    uint32_t row;
    uint32_t index;
    uint32_t page;
};
struct cuda_changes {
    const struct cuda_opening *openings;
    const struct cuda_grant *grants;
    const struct cuda_bias *biases;
    const int32_t *tokens;
    uint32_t opening_count;
    uint32_t grant_count;
    uint32_t vocabulary;
    uint32_t pages_per_row;
    uint32_t mask_words;
    uint32_t bias_max;
    struct cuda_sampling *samplings; /* the tables that change, by row */
    struct cuda_row *rows;
    struct cuda_bias *row_biases;
    uint16_t *generated_counts;
    uint32_t *prompt_seen;
    uint32_t *page_table;
};
int cuda_apply_changes(const struct cuda_stream *stream, const struct cuda_changes *args);

/* --- rows: embedding, rotary (rows.cu), norm, activation (between.cu) ---------------------- */

struct cuda_rows {
    enum dtype type;
    uint32_t tokens; /* of the bucket */
    uint32_t width;
    float epsilon;
    float *residual; /* [tokens][width] */
    const struct cuda_token *placed;
};

/* residual = embedding's rows; rotary[token][pair] = cosine, sine; and for the fused products
 * (`tiles` > 0) x = residual * gamma in fragments with the sums of squares. Counts the step on. */
struct cuda_embed {
    struct cuda_rows rows;
    const void *table;        /* [vocabulary][width], type */
    const float *frequencies; /* [rotary_pairs] */
    uint32_t rotary_pairs;
    float *rotary; /* [tokens][rotary_pairs][2] */
    const float *gamma;
    uint32_t tiles;
    void *x;
    float *squares; /* [tokens][width / 16 rounded up] */
    uint32_t *step;
};
int cuda_embed(const struct cuda_stream *stream, const struct cuda_embed *args, bool dependent);

/* x[i] = rmsnorm(residual[outputs ? outputs[i].token : i]) * gamma, `count` rows. */
int cuda_norm(const struct cuda_stream *stream, const struct cuda_rows *rows, const float *gamma,
              const struct cuda_output *outputs, uint32_t count, void *x);

/* How a head's elements pair for rotation. */
struct cuda_rotary {
    uint32_t size;      /* elements of a head that rotate */
    uint32_t halves;    /* pairs (i, i + size / 2); else (2 i, 2 i + 1) */
    const float *table; /* [tokens][size / 2][2] */
};

/* From the product of norm and qkv ([tokens][(heads + 2 kv_heads) * head_size]): adds the bias,
 * normalises q's and k's heads where the model does, rotates, and puts q in place and k, v into the
 * pages. */
struct cuda_qkv {
    struct cuda_rows rows;
    uint32_t heads, kv_heads, head_size;
    const void *qkv;
    const float *bias;   /* NULL: none */
    const float *q_norm; /* [head_size]; NULL: none */
    const float *k_norm;
    struct cuda_rotary rotary;
    void *q; /* [tokens][heads * head_size] */
    void *pages;
    const uint32_t *page_table;
    uint32_t pages_per_row;
};
int cuda_qkv(const struct cuda_stream *stream, const struct cuda_qkv *args, bool dependent);

/* x[i][j] = silu(gate_up[i][j]) * gate_up[i][ffn + j] */
int cuda_swiglu(const struct cuda_stream *stream, enum dtype type, uint32_t tokens, uint32_t ffn,
                const void *gate_up, void *x);

/* --- fused products of few rows (skinny.cu; capability 9.0, bf16 and f16) ------------------ */

enum {
    CUDA_SKINNY_TOKENS = 8,
    CUDA_SKINNY_OUTPUTS = 64,  /* weights are padded to multiples of this many rows */
    CUDA_SKINNY_COLUMNS = 128, /* and columns */
};
enum cuda_skinny_kind {
    CUDA_SKINNY_PLAIN,    /* out[token][output] = y, type */
    CUDA_SKINNY_QKV,      /* rotary and pages: for weights packed with cuda_pack's pairing */
    CUDA_SKINNY_RESIDUAL, /* residual += y; next_x = residual * next_gamma, next_squares */
    CUDA_SKINNY_SWIGLU,   /* next_x = silu(gate) * up: gate and up rows packed 8 and 8 */
    CUDA_SKINNY_LOGITS,   /* out[token][output] = y, float32 */
};
struct cuda_skinny {
    enum cuda_skinny_kind kind;
    enum dtype type;
    uint32_t tokens;     /* <= CUDA_SKINNY_TOKENS */
    uint32_t outputs;    /* rows of the weight, unpadded */
    uint32_t columns;    /* unpadded */
    const void *weights; /* packed */
    const void *x;       /* fragments; zeros beyond the columns */
    /* y is multiplied by 1 / sqrt(mean of squares + epsilon) of its token; NULL: by 1. */
    const float *squares; /* [tokens][squares_count] */
    uint32_t squares_count;
    float width, epsilon; /* how many elements the squares are of */
    float *partials;      /* scratch of cuda_skinny_scratch() bytes */
    void *out;
    uint32_t out_stride;
    float *residual;         /* [tokens][outputs] */
    const float *next_gamma; /* NULL: no next_x */
    void *next_x;
    float *next_squares;        /* [tokens][outputs / 16 rounded up] */
    const struct cuda_qkv *qkv; /* CUDA_SKINNY_QKV: host memory, read when launched */
};
/* Zeroed once by the caller; `outputs` is the largest of the model's products. */
uint64_t cuda_skinny_scratch(const struct cuda_properties *properties, uint32_t outputs);
/* Once, before the first use and capture. */
int cuda_skinny_setup(struct cuda_context *context);
int cuda_skinny(const struct cuda_stream *stream, const struct cuda_skinny *args);

/* --- the card itself (bandwidth.cu) -------------------------------------------------------- */

/* Reads `bytes` of device memory once, as fast as the card does, down to what its blocks can share
 * out evenly: *ret_bytes. `memory` is aligned to 16 bytes; *sink (device) may be written. */
int cuda_read_memory(const struct cuda_stream *stream, const void *memory, size_t bytes,
                     uint32_t *sink, size_t *ret_bytes);

/* --- weights into place (place.cu) --------------------------------------------------------- */

/* Elements from float32 to `type`, or float32 again. */
int cuda_convert(const struct cuda_stream *stream, enum dtype type, const float *from, void *to,
                 uint64_t count);

/* Elements 0 .. count - 1 of random weights. */
int cuda_random(const struct cuda_stream *stream, enum dtype type, struct random_weight random,
                void *to, uint64_t count);

/* Which row of a row-major weight lies in which row of the packed one. */
enum cuda_pack_order {
    CUDA_PACK_PLAIN,
    CUDA_PACK_GATE_UP, /* 8 gates, 8 ups, 8 gates ...: of [gates; ups] */
    CUDA_PACK_PAIRS,   /* q and k heads: the first 8 elements of pairs, their second, ... */
};
struct cuda_pack {
    enum cuda_pack_order order;
    uint32_t outputs, columns;
    uint32_t ffn;                    /* CUDA_PACK_GATE_UP */
    uint32_t paired_rows, head_size; /* CUDA_PACK_PAIRS: the first paired_rows rows */
    uint32_t rotary_size, rotary_halves;
};
/* Bytes of the packed form of 16-bit elements. */
uint64_t cuda_pack_bytes(uint32_t outputs, uint32_t columns);
int cuda_pack(const struct cuda_stream *stream, const struct cuda_pack *args, const void *from,
              void *to);

#ifdef __cplusplus
}
#endif

#endif
