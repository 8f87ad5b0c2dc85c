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

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_PAGE_TOKENS = 64,
    CUDA_PREFILL_TILE = 64, /* query tokens of a tile in prefill attention */
    CUDA_TOP_MAX = 20,      /* alternatives that sampling reports */
    CUDA_STOP_MAX = 32,     /* end and stop tokens of a row that the device knows */
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
    int32_t stops[CUDA_STOP_MAX]; /* end tokens among them, unless they are ignored */
};

struct cuda_bias {
    int32_t token;
    float bias;
};

/* What the device keeps of a row between steps. */
struct cuda_row {
    int32_t last_token; /* sampled last: the next decode step's input */
    uint32_t ended;     /* 1: an end token was sampled, later steps leave the row alone */
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
    const uint32_t *masks;       /* [rows][mask_words]: a bit per allowed token */
    const uint32_t *mask_steps;  /* [rows]: for which position the mask was made */
    uint32_t mask_words;         /* (vocabulary + 31) / 32 */
    struct cuda_choice *mapped_choices;
};

uint64_t cuda_sample_scratch(uint32_t vocabulary, uint32_t outputs);
/* Vocabularies go up to 2^20 (E_UNSUPPORTED). At most one output of a row draws in a call. A mask
 * counts once its row's entry of mask_steps says the output's position, written after it.
 *
 * Draws for the outputs, updates rows (last_token, ended) and counts, and writes the choices. */
int cuda_sample(const struct cuda_stream *stream, const struct cuda_sample *args,
                uint32_t output_count, void *scratch, bool dependent);

#ifdef __cplusplus
}
#endif

#endif
