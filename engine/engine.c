/* engine.c -- opens a model on a device, plans its memory, and runs steps two deep.
 *
 *     slots      [ 0 | 1 | 2 ]    step n lies in slot n mod 3: two are in flight, and the one
 *     submitted    ^ n            completed last is still being read by the scheduler
 *
 * The scheduler's thread posts a batch to the lane and later waits for it; in between a slot
 * belongs to the lane's thread. Whoever has a slot owns everything in it, so there is no lock. */
#include "engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/clock.h"
#include "engine/backend.h"
#include "engine/checkpoint.h"
#include "engine/cuda_library.h"
#include "engine/forward.h"
#include "engine/lane.h"
#include "engine/model.h"
#include "engine/request_table.h"
#include "engine/step_budget.h"
#include "engine/text/tokenizer.h"

enum {
    SLOTS = ENGINE_STEPS_IN_FLIGHT + 1,
    ROWS_MAX = 4096,
    PREFILL_TOKENS_MAX = 1 << 15, /* with ROWS_MAX below a CUDA grid's 65,535 in y */
};

struct slot {
    const struct batch *batch;
    struct step step;
    int result;
};

struct engine {
    const struct backend_ops *ops;
    struct backend *backend;
    struct checkpoint *checkpoint; /* NULL: the weights are random */
    struct generation_config generation;
    struct model *model;
    struct tokenizer *tokenizer;
    struct fault tokenizer_fault; /* why there is none */
    enum pooling pooling;
    struct fault pooling_fault; /* code < 0: the makers' mode is not computed */
    struct request_table *table;
    struct lane *lane;
    struct engine_trace trace;
    struct engine_limits limits;
    struct engine_memory memory;
    struct backend_costs costs;
    int32_t end_tokens[END_TOKENS_MAX];
    char device_name[DEVICE_NAME_BYTES];
    struct fault device_note; /* why DEVICE_AUTO is the CPU; code 0: it is not, or was asked for */
    struct slot slots[SLOTS];
    uint32_t submitted; /* steps ever; the lane's job numbers */
    uint32_t completed;
    uint64_t ended_ns; /* of the last step that was enqueued and waited for */
    bool failed;       /* the scheduler's side has heard of it */
    bool lane_failed;  /* the lane's own: nothing runs after a failure */
};

/* --- the step ------------------------------------------------------------------------------ */

/* Computes a step on the lane's thread, or enqueues it on the scheduler's. */
static void run_step(void *data, uint32_t job)
{
    struct engine *engine = data;
    struct slot *slot = &engine->slots[job % SLOTS];
    struct work work;

    slot->step.started_ns = clock_now();
    slot->step.waited_ns = 0;
    slot->result = E_DEVICE;
    if (!engine->lane_failed) {
        request_table_begin(engine->table, slot->batch, &work, &slot->step);
        slot->result =
            forward(engine->ops, engine->backend, engine->model, &work, engine->table, &slot->step);
        engine->lane_failed = slot->result < 0;
    }
    slot->step.ended_ns = clock_now();
}

static void trace(const struct engine *engine, struct engine_span span)
{
    if (engine->trace.span)
        engine->trace.span(engine->trace.data, &span);
}

static void trace_host(const struct engine *engine, const char *name, uint64_t began_ns,
                       uint64_t step)
{
    trace(engine, (struct engine_span){.track = TRACK_HOST,
                                       .name = name,
                                       .began_ns = began_ns,
                                       .ended_ns = clock_now(),
                                       .step = step});
}

/* What the lane computed. */
static void trace_lane(const struct engine *engine, const struct slot *slot)
{
    const struct batch *batch = slot->batch;
    const char *prefill = batch->decode_count > 0 ? "prefill + decode" : "prefill";
    uint32_t tokens = batch->decode_count;

    for (uint32_t i = 0; i < batch->prefill_count; i++)
        tokens += batch->prefills[i].count;
    trace(engine, (struct engine_span){.track = TRACK_LANES,
                                       .name = batch->prefill_count > 0 ? prefill : "decode",
                                       .began_ns = slot->step.started_ns,
                                       .ended_ns = slot->step.ended_ns,
                                       .step = batch->number,
                                       .tokens = tokens});
}

/* Waits for a step that the lane computes. */
static void wait_for_lane(struct engine *engine, struct slot *slot)
{
    uint64_t began = clock_now();

    lane_wait(engine->lane, engine->completed);
    slot->step.waited_ns = clock_now() - began;
    trace_host(engine, "wait", began, slot->batch->number);
    trace_lane(engine, slot);
}

/* Waits for a step that was enqueued. */
static void finish_step(struct engine *engine, struct slot *slot)
{
    /* It began when it was submitted, or when the one before it ended. */
    if (slot->step.started_ns < engine->ended_ns)
        slot->step.started_ns = engine->ended_ns;
    if (slot->result == 0)
        slot->result = engine->ops->complete(engine->backend, engine->table, &slot->step);
    engine->lane_failed = engine->lane_failed || slot->result < 0;
    slot->step.ended_ns = engine->ended_ns = clock_now();
}

static int device_failed(const struct engine *engine, struct fault *fault)
{
    const struct fault *reason =
        engine->ops->failure ? engine->ops->failure(engine->backend) : NULL;

    if (reason && reason->code < 0)
        return fault_set(fault, E_DEVICE, "%.400s; the server has to be restarted",
                         reason->message);
    return fault_set(fault, E_DEVICE, "the compute device failed; the server has to be restarted");
}

int engine_submit(struct engine *engine, const struct batch *batch, struct fault *fault)
{
    uint64_t began = clock_now();

    if (engine->failed)
        return device_failed(engine, fault);
    if (engine_in_flight(engine) == ENGINE_STEPS_IN_FLIGHT)
        return fault_set(fault, E_FULL, "%d steps are in flight already", ENGINE_STEPS_IN_FLIGHT);
    engine->slots[engine->submitted % SLOTS].batch = batch;
    engine->submitted++;
    if (engine->ops->synchronous)
        lane_post(engine->lane);
    else
        run_step(engine, engine->submitted - 1);
    trace_host(engine, "submit", began, batch->number);
    return 0;
}

int engine_complete(struct engine *engine, struct step *ret_step, struct fault *fault)
{
    struct slot *slot = &engine->slots[engine->completed % SLOTS];
    uint64_t began = clock_now();

    if (engine->failed)
        return device_failed(engine, fault);
    if (engine_in_flight(engine) == 0)
        return fault_set(fault, E_INVALID, "no step is in flight");
    if (engine->ops->synchronous)
        wait_for_lane(engine, slot);
    else
        finish_step(engine, slot);
    engine->completed++;
    if (slot->result < 0) {
        engine->failed = true;
        return device_failed(engine, fault);
    }
    trace_host(engine, "complete", began, slot->step.number);
    *ret_step = slot->step;
    return 0;
}

uint32_t engine_in_flight(const struct engine *engine)
{
    return engine->submitted - engine->completed;
}

/* --- opening ------------------------------------------------------------------------------- */

static void report(const struct engine_options *options, const char *phase, uint64_t began_ns)
{
    if (options->progress.report)
        options->progress.report(options->progress.data, phase, 1, 1,
                                 clock_seconds(clock_now() - began_ns));
}

/* Opens a GPU where one can be used; otherwise `fault` says why not. */
static int open_cuda(struct engine *engine, const struct backend_options *options,
                     struct fault *fault)
{
    int r = cuda_library_open(&engine->ops, fault);

    return r < 0 ? r : engine->ops->open(options, &engine->backend, fault);
}

static int open_device(struct engine *engine, const struct engine_options *options,
                       struct fault *fault)
{
    const struct backend_options backend_options = {.threads = options->threads,
                                                    .cpu_activations = options->cpu_activations,
                                                    .cuda = options->cuda,
                                                    .null_step_us = options->null_step_us,
                                                    .null_fail_step = options->null_fail_step,
                                                    .progress = options->progress,
                                                    .trace = options->trace};

    if (options->device == DEVICE_CUDA)
        return open_cuda(engine, &backend_options, fault);
    if (options->device == DEVICE_AUTO &&
        open_cuda(engine, &backend_options, &engine->device_note) == 0)
        return 0;
    engine->ops = options->device == DEVICE_NULL ? &backend_null : &backend_cpu;
    return engine->ops->open(&backend_options, &engine->backend, fault);
}

static int check_options(const struct engine_options *options, struct fault *fault)
{
    if (options->max_batch < 1 || options->max_batch > ROWS_MAX)
        return fault_field(fault, E_INVALID, "max_batch", "max-batch is %u; it must be 1 to %d",
                           options->max_batch, ROWS_MAX);
    if (options->prefill_tokens > PREFILL_TOKENS_MAX)
        return fault_field(fault, E_INVALID, "prefill_tokens",
                           "prefill-tokens is %u; it must be at most %d", options->prefill_tokens,
                           PREFILL_TOKENS_MAX);
    return 0;
}

static void add_end_token(struct engine *engine, uint64_t token)
{
    if (token >= engine->model->vocabulary || engine->limits.end_count == END_TOKENS_MAX)
        return;
    for (uint32_t i = 0; i < engine->limits.end_count; i++)
        if ((uint64_t)engine->end_tokens[i] == token)
            return;
    engine->end_tokens[engine->limits.end_count++] = (int32_t)token;
}

/* What the file says, and what the tokenizer knows by name. Ids outside the vocabulary cannot be
 * drawn. */
static void find_end_tokens(struct engine *engine)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};

    const struct gguf *gguf = engine_gguf(engine);

    engine->limits.end_tokens = engine->end_tokens;
    for (uint32_t i = 0; i < engine->model->end_count; i++)
        add_end_token(engine, (uint64_t)engine->model->end_tokens[i]);
    for (uint32_t i = 0; i < engine->generation.end_count; i++)
        add_end_token(engine, (uint64_t)engine->generation.end_tokens[i]);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && gguf; i++) {
        uint64_t token;

        if (gguf_get_u64(gguf, keys[i], &token, NULL) == 1)
            add_end_token(engine, token);
    }
    if (engine->tokenizer) {
        const int32_t *ends;
        uint32_t count = tokenizer_ends(engine->tokenizer, &ends);

        for (uint32_t i = 0; i < count; i++)
            add_end_token(engine, (uint64_t)ends[i]);
    }
}

/* Out of the model's own files. E_NOT_FOUND: they hold none. */
static int read_tokenizer(struct engine *engine, struct fault *fault)
{
    const struct gguf *gguf = engine_gguf(engine);
    struct gguf_string kind;
    int r;

    if (!engine->checkpoint)
        return fault_set(fault, E_NOT_FOUND, "random weights come without a tokenizer");
    if (!gguf)
        return tokenizer_open_path(checkpoint_path(engine->checkpoint), &engine->tokenizer, fault);
    r = gguf_get_string(gguf, "tokenizer.ggml.model", &kind, fault);
    if (r == 0)
        return fault_set(fault, E_NOT_FOUND, "%s holds no tokenizer", gguf_path(gguf));
    return r < 0 ? r : tokenizer_open_gguf(gguf, &engine->tokenizer, fault);
}

/* A tokenizer that is missing, or not read here, does not keep the model from serving token ids. */
static int open_tokenizer(struct engine *engine, bool skip, struct fault *fault)
{
    int r = skip ? fault_set(&engine->tokenizer_fault, E_NOT_FOUND, "--skip-tokenizer is given")
                 : read_tokenizer(engine, &engine->tokenizer_fault);

    if (r == E_UNSUPPORTED || r == E_NOT_FOUND)
        return 0;
    if (r < 0) {
        if (fault)
            *fault = engine->tokenizer_fault;
        return r;
    }
    /* Fewer is common (embeddings are padded); more would be tokens that cannot be computed. */
    if (tokenizer_count(engine->tokenizer) > engine->model->vocabulary)
        return fault_set(fault, E_CORRUPT, "%s: the tokenizer has %u tokens, the model only %u",
                         engine_model_path(engine), tokenizer_count(engine->tokenizer),
                         engine->model->vocabulary);
    return 0;
}

static int open_model(struct engine *engine, const struct engine_options *options,
                      struct fault *fault)
{
    int r;

    generation_config_init(&engine->generation);
    if (!options->model_path)
        return model_open_random(options->random_shape, &engine->model, fault);
    r = checkpoint_open(options->model_path, &engine->checkpoint, fault);
    if (r < 0)
        return r;
    r = model_open(engine->checkpoint, &engine->model, fault);
    if (r < 0)
        return r;
    engine->pooling = engine->model->encoder ? POOLING_MEAN : POOLING_LAST;
    r = pooling_read(engine->checkpoint, &engine->pooling, &engine->pooling_fault);
    if (r < 0 && r != E_UNSUPPORTED) {
        if (fault)
            *fault = engine->pooling_fault;
        return r;
    }
    if (checkpoint_gguf(engine->checkpoint))
        return 0;
    return generation_config_open(checkpoint_path(engine->checkpoint), &engine->generation, fault);
}

static int set_limits(struct engine *engine, const struct engine_options *options,
                      struct fault *fault)
{
    struct engine_limits *limits = &engine->limits;
    uint32_t context = options->max_context ? options->max_context : engine->model->context;

    if (context > engine->model->context)
        return fault_field(fault, E_INVALID, "max_context",
                           "--max-context is %u, but the model was made for %u tokens at most",
                           context, engine->model->context);
    limits->context = context;
    limits->page_tokens = engine->ops->page_tokens;
    limits->pages_per_row = (context + limits->page_tokens - 1) / limits->page_tokens;
    limits->vocabulary = engine->model->vocabulary;
    limits->long_prompt = engine->model->ropes[0].long_from;
    /* Where the final norm's output is not the last thing before the head, it is no vector. */
    if (engine->ops->gives_vectors && engine->model->embedding_out.rows == 0)
        limits->vector_width = engine->model->width;
    limits->batch.rows = options->max_batch;
    limits->batch.prefill_tokens =
        options->prefill_tokens ? options->prefill_tokens : engine->ops->prefill_tokens;
    limits->encoder = engine->model->encoder;
    if (limits->encoder && limits->batch.prefill_tokens < context)
        limits->batch.prefill_tokens = context;
    limits->loaded_tokens =
        options->loaded_tokens ? options->loaded_tokens : engine->ops->loaded_tokens;
    if (limits->loaded_tokens == 0)
        limits->loaded_tokens = limits->batch.prefill_tokens + limits->batch.rows;
    return 0;
}

/* --- the memory plan ----------------------------------------------------------------------- */

static uint64_t steps_bytes(const struct engine_limits *limits)
{
    return SLOTS * ((uint64_t)limits->batch.rows * sizeof(struct step_row) +
                    (uint64_t)limits->batch.prefill_tokens * sizeof(struct step_prompt));
}

static uint64_t mebibytes(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
}

static int plan_refused(const struct engine *engine, const struct engine_options *options,
                        uint64_t kv_bytes, struct fault *fault)
{
    const struct engine_memory *memory = &engine->memory;
    const struct backend_costs *costs = &engine->costs;
    uint64_t wanted_bytes = engine->limits.pages_per_row * costs->page;
    const char *advice = "Try a smaller --max-context or --max-batch";
    char share[96] = "";

    if (costs->free > memory->available)
        snprintf(share, sizeof share, " of the %llu MiB that are free (--memory-fraction %g)",
                 (unsigned long long)mebibytes(costs->free), options->cuda.memory_fraction);
    if (memory->weights > memory->available)
        advice = "The weights alone are larger";
    else if (options->kv_bytes + options->kv_pages > 0 && kv_bytes < wanted_bytes)
        advice = "Try a larger --kv-bytes (or --kv-pages) or a smaller --max-context";
    else if (options->kv_bytes + options->kv_pages > 0)
        advice = "Try a smaller --kv-bytes (or --kv-pages), or none, to have it planned";

    return fault_set(
        fault, E_MEMORY,
        "the model does not fit on %.60s: weights %llu MiB, activations %llu MiB, request table "
        "%llu MiB and a KV cache of %llu MiB, where one sequence of %u tokens needs %llu "
        "MiB; %llu MiB%s are available. %s",
        engine->ops->describe(engine->backend), (unsigned long long)mebibytes(memory->weights),
        (unsigned long long)mebibytes(memory->activations),
        (unsigned long long)mebibytes(memory->request_table),
        (unsigned long long)mebibytes(kv_bytes), engine->limits.context,
        (unsigned long long)mebibytes(wanted_bytes),
        (unsigned long long)mebibytes(memory->available), share, advice);
}

/* Weights, activations and tables first, then pages: as many as every row could fill, within what
 * the device lends to them (the CPU half of what is available, so that a small model leaves the
 * machine its memory), or as many as --kv-bytes or --kv-pages says. */
static int plan_memory(struct engine *engine, const struct engine_options *options,
                       struct fault *fault)
{
    struct engine_limits *limits = &engine->limits;
    struct engine_memory *memory = &engine->memory;
    struct backend_costs *costs = &engine->costs;
    uint64_t fixed, free_bytes, kv_bytes, pages;
    int r;

    r = engine->ops->costs(engine->backend, engine->model, limits, costs, fault);
    if (r < 0)
        return r;
    must(costs->page > 0);
    memory->weights = costs->weights;
    memory->activations = costs->activations;
    memory->request_table = request_table_bytes(limits) + steps_bytes(limits);
    memory->available = costs->available;
    fixed = memory->weights + memory->activations + memory->request_table;
    free_bytes = fixed < costs->available ? costs->available - fixed : 0;
    kv_bytes = options->kv_pages ? options->kv_pages * costs->page : options->kv_bytes;
    if (kv_bytes == 0) {
        kv_bytes = (uint64_t)limits->batch.rows * limits->pages_per_row * costs->page;
        if (kv_bytes > costs->pages_most)
            kv_bytes = costs->pages_most;
        if (kv_bytes > free_bytes)
            kv_bytes = free_bytes;
    }
    pages = kv_bytes / costs->page;
    if (pages > UINT32_MAX - limits->batch.rows)
        pages = UINT32_MAX - limits->batch.rows;
    memory->kv_cache = pages * costs->page;
    if (memory->kv_cache > free_bytes || pages < limits->pages_per_row)
        return plan_refused(engine, options, kv_bytes, fault);
    limits->page_count = (uint32_t)pages;
    limits->batch.grants = limits->page_count + limits->batch.rows;
    return 0;
}

static int open_slots(struct engine *engine, struct fault *fault)
{
    for (size_t i = 0; i < SLOTS; i++) {
        struct step *step = &engine->slots[i].step;

        step->rows = calloc(engine->limits.batch.rows, sizeof *step->rows);
        step->prompts = calloc(engine->limits.batch.prefill_tokens, sizeof *step->prompts);
        if (!step->rows || !step->prompts)
            return fault_set(fault, E_MEMORY, "out of memory for the results of %u rows",
                             engine->limits.batch.rows);
    }
    return 0;
}

/* All that the plan needs; nothing large is taken. */
static int open_planned(struct engine *engine, const struct engine_options *options,
                        struct fault *fault)
{
    int r;

    r = check_options(options, fault);
    if (r < 0)
        return r;
    r = open_model(engine, options, fault);
    if (r < 0)
        return r;
    r = open_device(engine, options, fault);
    if (r < 0)
        return r;
    r = set_limits(engine, options, fault);
    if (r < 0)
        return r;
    r = plan_memory(engine, options, fault);
    snprintf(engine->device_name, sizeof engine->device_name, "%s",
             engine->ops->describe(engine->backend));
    return r;
}

static int take_memory(struct engine *engine, const struct engine_options *options,
                       struct fault *fault)
{
    uint64_t began;
    int r;

    r = engine->ops->load(engine->backend, engine->model, fault);
    if (r < 0)
        return r;
    if (engine->checkpoint)
        checkpoint_rest(engine->checkpoint); /* the backend has its own copy of most */
    began = clock_now();
    r = engine->ops->reserve(engine->backend, engine->model, &engine->limits, fault);
    if (r < 0)
        return r;
    r = request_table_open(&engine->limits, &engine->table, fault);
    if (r < 0)
        return r;
    if (engine->ops->masks) {
        _Atomic uint32_t *positions;
        uint32_t *words = engine->ops->masks(engine->backend, &positions);

        request_table_place_masks(engine->table, words, positions);
    }
    r = open_slots(engine, fault);
    if (r < 0)
        return r;
    if (engine->ops->synchronous) {
        r = lane_open(run_step, engine, &engine->lane, fault);
        if (r < 0)
            return r;
    }
    report(options, "taking memory", began);
    return 0;
}

/* A small model reads much more of prompts in the time that nobody feels than a large one. */
static int measure_steps(struct engine *engine, const struct engine_options *options,
                         struct fault *fault)
{
    uint64_t began = clock_now();
    int r;

    if (options->token_gap_ns == 0 || options->loaded_tokens > 0 || engine->ops->loaded_tokens == 0)
        return 0;
    r = step_budget_measure(engine, options->token_gap_ns, engine->ops->loaded_tokens,
                            &engine->limits.loaded_tokens, fault);
    report(options, "measuring steps", began);
    return r;
}

int engine_open(const struct engine_options *options, struct engine **ret_engine,
                struct fault *fault)
{
    struct engine *engine = calloc(1, sizeof *engine);
    uint64_t began = clock_now();
    int r;

    if (!engine)
        return fault_set(fault, E_MEMORY, "out of memory for the engine");
    engine->trace = options->trace;
    r = open_planned(engine, options, fault);
    if (r < 0)
        goto out;
    report(options, "reading model file", began);
    began = clock_now();
    r = open_tokenizer(engine, options->skip_tokenizer, fault);
    if (r < 0)
        goto out;
    report(options, "reading tokenizer", began);
    find_end_tokens(engine);
    r = take_memory(engine, options, fault);
    if (r == 0)
        r = measure_steps(engine, options, fault);
    if (r < 0)
        goto out;
    *ret_engine = engine;
    engine = NULL;
out:
    engine_close(engine);
    return r;
}

int engine_plan(const struct engine_options *options, struct engine_outline *ret_outline,
                struct fault *fault)
{
    struct engine *engine = calloc(1, sizeof *engine);
    int r;

    if (!engine)
        return fault_set(fault, E_MEMORY, "out of memory for the engine");
    r = open_planned(engine, options, fault);
    if (r == 0) {
        ret_outline->memory = engine->memory;
        ret_outline->limits = engine->limits;
        ret_outline->device_note = engine->device_note;
        memcpy(ret_outline->device_name, engine->device_name, sizeof engine->device_name);
    }
    engine_close(engine);
    return r;
}

int engine_find_gpu(char ret_name[static DEVICE_NAME_BYTES], struct fault *fault)
{
    const struct backend_options options = {.cuda = {.streams = 1}};
    struct engine *engine = calloc(1, sizeof *engine);
    int r;

    if (!engine)
        return fault_set(fault, E_MEMORY, "out of memory for the engine");
    r = open_cuda(engine, &options, fault);
    if (r == 0)
        snprintf(ret_name, DEVICE_NAME_BYTES, "%s", engine->ops->describe(engine->backend));
    engine_close(engine);
    return r;
}

void engine_close(struct engine *engine)
{
    if (!engine)
        return;
    lane_close(engine->lane); /* ends after the steps in flight */
    for (size_t i = 0; i < SLOTS; i++) {
        free(engine->slots[i].step.rows);
        free(engine->slots[i].step.prompts);
    }
    request_table_close(engine->table);
    if (engine->backend)
        engine->ops->close(engine->backend);
    tokenizer_close(engine->tokenizer);
    model_close(engine->model);
    checkpoint_close(engine->checkpoint);
    free(engine);
}

/* --- facts --------------------------------------------------------------------------------- */

const struct engine_limits *engine_limits(const struct engine *engine)
{
    return &engine->limits;
}

const struct engine_memory *engine_memory(const struct engine *engine)
{
    return &engine->memory;
}

static uint64_t products_of(const struct weight *weight)
{
    return (uint64_t)weight->rows * weight->columns;
}

static uint64_t ffn_products(const struct ffn *ffn)
{
    return products_of(&ffn->gate_up) + products_of(&ffn->down);
}

/* Of a layer, for each token. Latent attention: with kv_up folded into the queries and the sums. */
static uint64_t layer_products(const struct model *m, const struct layer *layer)
{
    const struct weight *weights[] = {&layer->qkv,    &layer->attention_out, &layer->q_down,
                                      &layer->q_up,   &layer->kv_down,       &layer->kv_up,
                                      &layer->router, &layer->shared_gate};
    uint64_t products = ffn_products(&layer->ffn) + ffn_products(&layer->shared);

    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        products += products_of(weights[i]);
    return products + (layer->experts ? m->experts_used * ffn_products(&layer->experts[0]) : 0);
}

struct engine_costs engine_costs(const struct engine *engine)
{
    const struct model *m = engine->model;
    uint64_t numbers = m->attention == ATTENTION_LATENT
                           ? 2 * (uint64_t)m->kv_latent + m->ropes[0].size
                           : 2 * (uint64_t)m->head_size; /* of a key and a value */
    struct engine_costs costs = {
        .weight_bytes = engine->costs.step,
        .kv_token_bytes = engine->costs.page / engine->limits.page_tokens,
        .output_products = (uint64_t)m->head.rows * m->head.columns,
        .pair_products = (uint64_t)m->layer_count * m->heads * numbers,
    };

    for (uint32_t i = 0; i < m->layer_count; i++)
        costs.token_products += layer_products(m, &m->layers[i]);
    return costs;
}

int engine_read_bandwidth(struct engine *engine, double *ret_bytes_per_second, struct fault *fault)
{
    int r;

    if (engine->failed)
        return device_failed(engine, fault);
    must(engine->submitted == 0);
    if (!engine->ops->read_bandwidth)
        return fault_set(fault, E_UNSUPPORTED, "%s does not measure its memory",
                         engine->device_name);
    r = engine->ops->read_bandwidth(engine->backend, ret_bytes_per_second, fault);
    engine->failed = engine->lane_failed = r == E_DEVICE;
    return r;
}

struct row_mask engine_mask(const struct engine *engine, uint32_t row)
{
    return request_table_row(engine->table, row)->mask;
}

const char *engine_model_name(const struct engine *engine)
{
    return engine->model->name;
}

bool engine_calls(const struct engine *engine, struct engine_calls *ret_calls)
{
    if (engine->ops->calls)
        engine->ops->calls(engine->backend, ret_calls);
    return engine->ops->calls != NULL;
}

const char *engine_device_note(const struct engine *engine)
{
    return engine->device_note.code < 0 ? engine->device_note.message : "";
}

const char *engine_device_name(const struct engine *engine)
{
    return engine->device_name;
}

const struct gguf *engine_gguf(const struct engine *engine)
{
    return engine->checkpoint ? checkpoint_gguf(engine->checkpoint) : NULL;
}

const char *engine_model_path(const struct engine *engine)
{
    return engine->checkpoint ? checkpoint_path(engine->checkpoint) : NULL;
}

const struct generation_config *engine_generation_config(const struct engine *engine)
{
    return &engine->generation;
}

int engine_pooling(const struct engine *engine, enum pooling *ret_pooling, struct fault *fault)
{
    *ret_pooling = engine->pooling;
    if (engine->pooling_fault.code < 0 && fault)
        *fault = engine->pooling_fault;
    return engine->pooling_fault.code;
}

uint32_t engine_ignored(const struct engine *engine, const char **ret_first)
{
    *ret_first = engine->model->ignored;
    return engine->model->ignored_count;
}

int engine_tokenizer(const struct engine *engine, const struct tokenizer **ret_tokenizer,
                     struct fault *fault)
{
    if (!engine->tokenizer) {
        if (fault)
            *fault = engine->tokenizer_fault;
        return engine->tokenizer_fault.code;
    }
    *ret_tokenizer = engine->tokenizer;
    return 0;
}
