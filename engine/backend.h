/* backend.h -- what a device must be able to do: at most 20 functions, coarse on purpose.
 *
 * forward.c walks the layers and calls the operations below; a backend is free to fuse inside one,
 * and to skip what it did in the one before. A backend is opened once, loads the weights, reserves
 * all memory, and from then on allocates nothing.
 *
 * The CPU backend computes when it is called (`synchronous`): lane.c gives it a thread, so that
 * submit returns at once. A CUDA backend only enqueues, on the scheduler's thread: sample() leaves
 * promises, and complete() waits for the tokens.
 *
 * `struct work` is one step seen by rows of tokens: what begin() derived from the batch and the
 * request table. A segment is one sequence's consecutive tokens: a prefill chunk, or one decode
 * token. */
#ifndef WEFT_BACKEND_H
#define WEFT_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "engine/model.h"

struct backend;       /* each backend's own */
struct request_table; /* request_table.h */

struct work_segment {
    uint32_t row;         /* of the request table */
    uint32_t first_token; /* index into the step's tokens */
    uint32_t token_count;
    uint32_t position;     /* of the first token */
    bool decode;           /* one token, the one that the row sampled last */
    const uint32_t *pages; /* the row's page table, page numbers by position / page_tokens */
};

/* A position whose logits are wanted. */
struct work_output {
    uint32_t token; /* index into the step's tokens */
    uint32_t row;
    bool sample;     /* draw the row's next token */
    int32_t target;  /* prompt log-probabilities: the next prompt token, else -1 */
    uint32_t result; /* index into step.rows (sample) */
    uint32_t prompt; /* index into step.prompts (target >= 0) */
};

struct work {
    const struct batch *batch;   /* the changes, which are applied already */
    struct request_table *table; /* the rows as they are before the step */
    uint32_t token_count;
    int32_t *tokens; /* a decode row's is the last that the host knows */
    uint32_t *positions;
    uint32_t segment_count;
    struct work_segment *segments;
    uint32_t output_count;
    struct work_output *outputs;
};

struct backend_options {
    uint32_t threads;
    enum cpu_activations cpu_activations;
    struct cuda_options cuda;
    uint32_t null_step_us;
    uint32_t null_fail_step;
    struct engine_progress progress;
    struct engine_trace trace;
};

/* What the memory plan needs to know before anything is taken, in bytes. */
struct backend_costs {
    uint64_t weights;     /* what is kept for the model's weights beside the mapped file */
    uint64_t activations; /* for the given limits */
    uint64_t page;        /* one KV page, all layers */
    uint64_t available;   /* what may be taken of this device now */
    uint64_t free;        /* what it has free, where that is more; else 0 */
    uint64_t pages_most;  /* bytes that the KV cache takes at most unless told otherwise */
    uint64_t step;        /* weights that every step reads; 0: not known */
};

struct backend_ops {
    const char *name;
    size_t options_bytes; /* sizeof(struct backend_options): backends in other files must agree */
    bool synchronous;
    bool gives_vectors; /* head() fills the vectors that openings ask for */
    uint32_t page_tokens;
    uint32_t prefill_tokens; /* most prompt tokens in a step that it is fast with */
    uint32_t loaded_tokens;  /* that cost decode rows next to nothing; 0: there are none */

    int (*open)(const struct backend_options *options, struct backend **ret_backend,
                struct fault *fault);
    void (*close)(struct backend *backend);
    /* "cpu (2 threads, avx512-vnni)"; whole once costs() has seen the model */
    const char *(*describe)(struct backend *backend);
    int (*costs)(struct backend *backend, const struct model *model,
                 const struct engine_limits *limits, struct backend_costs *ret_costs,
                 struct fault *fault);
    int (*load)(struct backend *backend, struct model *model, struct fault *fault);
    int (*reserve)(struct backend *backend, const struct model *model,
                   const struct engine_limits *limits, struct fault *fault);

    /* Where masks lie that the device reads, [rows][mask words] and [rows], after reserve(). NULL:
     * it draws through host_sample.h, from the request table's own. */
    uint32_t *(*masks)(struct backend *backend, _Atomic uint32_t **ret_positions);

    /* Reads much of the device's memory, several times: the median rate. Before the first step, as
     * the KV pages are overwritten (and zero afterwards). NULL where nothing measures that. */
    int (*read_bandwidth)(struct backend *backend, double *ret_bytes_per_second,
                          struct fault *fault);

    /* How often the device was called for what, ever; NULL where that is not counted. */
    void (*calls)(const struct backend *backend, struct engine_calls *ret_calls);
    /* Why a call returned E_DEVICE, fit to show a user; NULL where that cannot be. */
    const struct fault *(*failure)(const struct backend *backend);

    /* One step, in this order, over the work that begin() was given. begin() may return 1: the
     * operations up to head() are under way already (a replayed graph). */
    int (*begin)(struct backend *backend, const struct model *model, struct work *work);
    void (*embed)(struct backend *backend);
    /* norm, q k v products and biases, q and k norms, rotary, write k and v into the pages */
    void (*attention_in)(struct backend *backend, uint32_t layer);
    void (*attention)(struct backend *backend, uint32_t layer);
    void (*attention_out)(struct backend *backend, uint32_t layer); /* product, plus the residual */
    /* norm, gate and up, activation, down, residual */
    void (*mlp)(struct backend *backend, uint32_t layer);
    /* The same where the layer has experts: norm, router, the chosen ones' and the shared one's,
     * residual. NULL where models that have experts are refused. */
    void (*mixture)(struct backend *backend, uint32_t layer);
    /* final norm and logits of the outputs; vectors (pooling.h) of rows that ask for one */
    void (*head)(struct backend *backend);
    /* Samples the outputs by the request table and writes results into the step. */
    int (*sample)(struct backend *backend, struct request_table *table, struct step *step);
    /* Waits for the oldest step that sample() enqueued and fills in its results. NULL where the
     * backend is synchronous. */
    int (*complete)(struct backend *backend, struct request_table *table, struct step *step);
};

extern const struct backend_ops backend_cpu;
extern const struct backend_ops backend_null;
extern const struct backend_ops backend_cuda; /* in libweft-cuda.so: cuda_library.h opens it */

#endif
