/* engine.h -- a model that can take one step for a batch: all that the scheduler sees.
 *
 *     engine_submit(batch N)          returns at once
 *     engine_submit(batch N+1)        two may be in flight: N+1 starts from tokens
 *     engine_complete() -> step N     that the host does not know yet
 *     engine_submit(batch N+2) ...
 *
 * One thread (the scheduler's) calls everything here except engine_limits() and engine_mask(). A
 * device error is sticky: once a call returned E_DEVICE every later one does, and the engine looks
 * at nothing that it was lent any more. */
#ifndef WEFT_ENGINE_H
#define WEFT_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/batch.h"
#include "engine/generation_config.h"

struct engine;
struct gguf;
struct tokenizer; /* engine/text/tokenizer.h */

enum { ENGINE_STEPS_IN_FLIGHT = 2 };

enum engine_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA, DEVICE_NULL };
/* ACTIVATIONS_INT16: 16 bits per block of 32, as exact as float32 in practice. */
enum cpu_activations { ACTIVATIONS_INT16, ACTIVATIONS_F32, ACTIVATIONS_INT8 };

/* Long work shows itself: called on the opening thread, at most every 50 ms and at the end of a
 * phase (done == total, then with its seconds). NULL is fine. */
struct engine_progress {
    void (*report)(void *data, const char *phase, uint64_t done, uint64_t total, double seconds);
    void *data;
};

/* When something ran, for a trace: in clock_now()'s nanoseconds. Device times are taken by the
 * device and are right to a few microseconds. */
enum engine_track { TRACK_HOST, TRACK_COPIES, TRACK_LANES /* and the lane's number */ };
struct engine_span {
    uint32_t track;
    const char *name; /* static: "submit", "decode", ... */
    uint64_t began_ns;
    uint64_t ended_ns;
    uint64_t step;   /* the batch's number */
    uint32_t tokens; /* that the step computed on its lane; 0: not its business */
};
/* Called within engine_submit() and engine_complete(), on their thread; the span is lent for the
 * call. A step's own spans come when it completes, so they are not in the order of time. */
struct engine_trace {
    void (*span)(void *data, const struct engine_span *span); /* NULL: nobody listens */
    void *data;
};

enum cuda_type { CUDA_TYPE_AUTO, CUDA_TYPE_BF16, CUDA_TYPE_F16, CUDA_TYPE_F32 };

/* How the CUDA device runs steps. What is on by default can be switched off, to measure it. */
struct cuda_options {
    enum cuda_type type;    /* of weights, activations and KV cache; auto: the model's */
    double memory_fraction; /* of the free memory that may be taken */
    uint32_t streams;       /* compute lanes, 1, 2 or 4; 0: one */
    bool no_graphs;         /* every step kernel by kernel */
    bool host_sampling;     /* wait for each step, draw on the host: the plain loop */
    bool sampling_stream;   /* draw on a stream of its own */
    bool prefill_lane;      /* prompts on a lane of their own */
    bool general;           /* the kernels for any model, even where fused ones serve: for tests */
};

struct engine_options {
    const char *model_path;   /* checkpoint_open(); NULL: random weights of `random_shape` */
    const char *random_shape; /* model_open_random() */
    bool skip_tokenizer;      /* serve token ids only */
    enum engine_device device;
    uint32_t threads;        /* 0 = as many as affinity and the cgroup's quota allow */
    uint32_t max_batch;      /* rows */
    uint32_t max_context;    /* 0 = the model's own */
    uint64_t kv_bytes;       /* 0 = planned from the memory that is free */
    uint32_t kv_pages;       /* the same as a number of pages; 0 = not given */
    uint32_t prefill_tokens; /* of prompts, in a step; 0 = the device's own */
    uint32_t loaded_tokens;  /* engine_limits; 0 = the device's own */
    uint64_t token_gap_ns;   /* measure loaded_tokens where the device has its own; 0 = do not */
    enum cpu_activations cpu_activations; /* ACTIVATIONS_F32 keeps the KV cache in float32 too */
    struct cuda_options cuda;
    uint32_t null_step_us;   /* DEVICE_NULL: how long a step takes */
    uint32_t null_fail_step; /* DEVICE_NULL: which step fails, counted from 1; 0: none */
    struct engine_progress progress;
    struct engine_trace trace;
};

struct engine_limits {
    struct batch_limits batch;
    uint32_t page_tokens;
    uint32_t page_count;
    uint32_t context;       /* tokens a sequence may hold, prompt and answer */
    uint32_t pages_per_row; /* (context + page_tokens - 1) / page_tokens */
    uint32_t loaded_tokens; /* what a step with decode rows should hold at most, these included */
    uint32_t vocabulary;    /* token ids are below this */
    uint32_t long_prompt;   /* prompts longer than this give the same tokens other keys and values
                               than shorter ones do (longrope); 0: that is not so */
    bool encoder;           /* prompts are prefilled in one piece, and nothing is generated */
    uint32_t vector_width;  /* of batch_opening.vector; 0: this device or model gives none */
    uint32_t end_count;     /* the model's end-of-generation tokens */
    const int32_t *end_tokens;
};

/* What memory went where, in bytes; `inspect` and the start-up log print it. */
struct engine_memory {
    uint64_t weights;
    uint64_t kv_cache;
    uint64_t activations;
    uint64_t request_table;
    uint64_t available; /* what the plan was made against */
};

/* Reads the model and takes all memory that will ever be needed. Faults: a missing, hostile or
 * unsupported file; a plan that cannot fit (with the numbers). */
int engine_open(const struct engine_options *options, struct engine **ret_engine,
                struct fault *fault);

enum { DEVICE_NAME_BYTES = 160 };

struct engine_outline {
    struct engine_memory memory;
    struct engine_limits limits; /* `end_tokens` is NULL */
    char device_name[DEVICE_NAME_BYTES];
    struct fault device_note; /* code 0: none */
};

/* The memory plan alone, for `inspect`: what engine_open() would take, with the same faults, but
 * nothing is taken and no weight is read. */
int engine_plan(const struct engine_options *options, struct engine_outline *ret_outline,
                struct fault *fault);
/* The GPU that DEVICE_AUTO would take, as engine_device_name() has it but for the model's type.
 * Faults: why there is none. */
int engine_find_gpu(char ret_name[static DEVICE_NAME_BYTES], struct fault *fault);
void engine_close(struct engine *engine); /* NULL is fine; waits for steps in flight */

const struct engine_limits *engine_limits(const struct engine *engine);
const struct engine_memory *engine_memory(const struct engine *engine);
const char *engine_model_name(const struct engine *engine); /* the shape's, or in the file */
/* Why DEVICE_AUTO computes on the CPU, or "". */
const char *engine_device_note(const struct engine *engine);
const char *engine_device_name(const struct engine *engine); /* "cpu (2 threads, avx512-vnni)" */
/* The GGUF file, for the tokenizer and templates; lives as long as the engine. NULL: the model is a
 * folder, or the weights are random. */
const struct gguf *engine_gguf(const struct engine *engine);
/* The file or folder; NULL: the weights are random. */
const char *engine_model_path(const struct engine *engine);
/* What the folder says about drawing tokens; nothing for other models. Its end tokens are among
 * engine_limits' already. */
const struct generation_config *engine_generation_config(const struct engine *engine);
/* How the model's makers pool; or the code and fault of a mode that is not computed here. */
int engine_pooling(const struct engine *engine, enum pooling *ret_pooling, struct fault *fault);
/* How many tensors of a folder's files the architecture has no use for; the first one's name. */
uint32_t engine_ignored(const struct engine *engine, const char **ret_first);
/* The file's tokenizer, immutable and the engine's own. A file without one, or with one that is not
 * read here, still opens (token ids in, token ids out): then this returns E_NOT_FOUND or
 * E_UNSUPPORTED and says why. */
int engine_tokenizer(const struct engine *engine, const struct tokenizer **ret_tokenizer,
                     struct fault *fault);

/* How often the device was called, ever: what tests of the decode loop look at. */
struct engine_calls {
    uint64_t allocations;      /* memory taken or given back */
    uint64_t synchronizations; /* the host waited for a stream or the device */
    uint64_t event_waits;      /* the host slept until a step was done */
    uint64_t copies;
    uint64_t launches; /* kernels one by one */
    uint64_t graphs;   /* replays */
};
/* false: this device does not count. */
bool engine_calls(const struct engine *engine, struct engine_calls *ret_calls);

enum step_row_state {
    STEP_ROW_IDLE,    /* had ended before this step: nothing to read */
    STEP_ROW_PARTIAL, /* a prefill chunk that was not the last: no token */
    STEP_ROW_TOKEN,   /* `token` was sampled; the row goes on */
    STEP_ROW_END,     /* `token` was sampled and is an end or stop token */
    STEP_ROW_LENGTH,  /* `token` was sampled and was the last allowed */
    STEP_ROW_SCORED,  /* a last chunk with tokens_left 0: prompt log-probabilities only */
    STEP_ROW_LATE,    /* no token, its mask was not there; the row is idle until opened again */
};

struct token_logprob {
    int32_t token;
    float logprob;
};

/* Log-probabilities are of the raw logits, natural logarithm, before any processor. */
struct step_row {
    uint32_t row;
    enum step_row_state state;
    int32_t token;
    float logprob;      /* of `token`; NAN when sampling.logprobs is LOGPROBS_NONE */
    uint32_t rank;      /* of `token` among the raw logits, 1 = likeliest; 0 when not asked */
    uint32_t top_count; /* likeliest first, lowest id first on a tie */
    struct token_logprob top[TOP_LOGPROBS_MAX];
};

/* The log-probability of a prompt token given those before it; position 0 has none. */
struct step_prompt {
    uint32_t row;
    uint32_t position; /* of `token` in the row's tokens, >= 1 */
    int32_t token;
    float logprob;
    uint32_t rank;
    uint32_t top_count;
    struct token_logprob top[TOP_LOGPROBS_MAX];
};

/* Which tokens a masked row may draw next: bit id % 32 of word id / 32. A mask is made while the
 * step runs that draws from it: first the words are written, then `position` with release order,
 * the place in the sequence of the token to be drawn. The step looks when its logits are there;
 * when it finds another position the mask was late. Who writes sets `position` to 0 before the row
 * is opened for somebody else, and leaves a mask alone until the token drawn from it is known.
 * Any thread may write, one at a time. */
struct row_mask {
    uint32_t *words;
    uint32_t word_count; /* (vocabulary + 31) / 32 */
    _Atomic uint32_t *position;
};

/* Results of one batch: first one step_row per prefill in the batch's order, then one per decode
 * row. */
struct step {
    uint64_t number; /* the batch's */
    uint32_t row_count;
    struct step_row *rows; /* lent by the engine until the next engine_complete() */
    uint32_t prompt_count;
    struct step_prompt *prompts; /* by row, then position */
    uint64_t started_ns;         /* clock_now() when the device began and ended */
    uint64_t ended_ns;
    uint64_t waited_ns; /* how long the calls that made and completed it slept for the device */
};

/* What steps of this model move and multiply on this device, to hold their speed against. */
struct engine_costs {
    uint64_t weight_bytes;    /* that every decode step reads, each once; 0: not known */
    uint64_t kv_token_bytes;  /* of one token in the KV cache, all layers */
    uint64_t token_products;  /* multiplications of one token with the layers' weights */
    uint64_t output_products; /* with the head's, where logits are wanted */
    uint64_t pair_products;   /* in attention: a token with itself or one before it, all layers */
};
struct engine_costs engine_costs(const struct engine *engine);
/* Measures how fast the device reads its own memory, in well under a second. Only before the first
 * step: the KV cache is overwritten. E_UNSUPPORTED where nothing measures that; E_DEVICE. */
int engine_read_bandwidth(struct engine *engine, double *ret_bytes_per_second, struct fault *fault);

/* The row's mask; the engine's memory, at this address until it closes. Any thread. */
struct row_mask engine_mask(const struct engine *engine, uint32_t row);

/* Submits the next step. Never waits. Returns 0; E_FULL with two in flight; E_DEVICE. The batch's
 * lists are free for reuse when its step has completed, not before. */
int engine_submit(struct engine *engine, const struct batch *batch, struct fault *fault);
/* Waits for the oldest step in flight. Returns 0, E_INVALID when none is in flight, E_DEVICE. */
int engine_complete(struct engine *engine, struct step *ret_step, struct fault *fault);
uint32_t engine_in_flight(const struct engine *engine);

#endif
