/* backend_cuda.c -- a GPU as a device: opening, the memory plan, and the table of operations.
 *
 * Device memory is three regions, each taken once: weights (load), KV pages and everything else
 * (reserve); and one region of mapped host memory. The sizes in the plan come from the same code
 * that places the pieces, run without memory. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/clock.h"
#include "engine/cuda_internal.h"

enum {
    /* Fused products and dependent launches begin here, bf16 matrix instructions there. */
    CAPABILITY_FUSED = 90,
    CAPABILITY_BF16 = 80,
    GRAPH_BYTES = 4 << 20, /* the driver's memory for one graph, with room to spare */
    HEAD_ROWS_LEAST = 64,
};

/* --- opening ------------------------------------------------------------------------------- */

static void close_lane(struct backend *b, struct cuda_lane *lane)
{
    cuda_changes_close(b, lane);
    for (int i = 0; i < CUDA_STEP_SLOTS; i++) {
        cuda_event_close(&b->context, lane->done[i]);
        free(lane->pending[i].outputs);
    }
    cuda_stream_close(&lane->stream);
}

static void close_backend(struct backend *b)
{
    if (!b)
        return;
    cuda_buckets_close(b);
    cuda_trace_close(b);
    for (uint32_t i = 0; i < CUDA_LANES_MAX; i++)
        close_lane(b, &b->lanes[i]);
    cuda_event_close(&b->context, b->ordered);
    cuda_stream_close(&b->sampling);
    cuda_stream_close(&b->copies);
    cuda_weights_close(b);
    cuda_release(&b->context, b->kv);
    cuda_release(&b->context, b->activation);
    cuda_pinned_release(&b->context, b->pinned);
    cublas_close(b->cublas);
    free(b->row_lanes);
    free(b->row_prefilled);
    free(b->sampler_memory);
    free(b);
}

static int open_backend(const struct backend_options *options, struct backend **ret_backend,
                        struct fault *fault)
{
    struct backend *b = calloc(1, sizeof *b);
    int r;

    if (!b)
        return fault_set(fault, E_MEMORY, "out of memory for the CUDA device");
    b->options = options->cuda;
    b->progress = options->progress;
    b->trace = options->trace;
    b->decode_lanes = options->cuda.streams ? options->cuda.streams : 1;
    b->lane_count = b->decode_lanes + options->cuda.prefill_lane;
    must(b->lane_count <= CUDA_LANES_MAX);
    r = cuda_context_open(&b->context, fault);
    if (r == 0)
        r = cuda_kernels_check(&b->context, fault);
    if (r == 0)
        r = cublas_open(&b->context, &b->cublas, fault);
    if (r == 0)
        r = cuda_stream_open(&b->context, &b->copies);
    if (r < 0) {
        if (fault && fault->code == 0)
            *fault = b->context.failure;
        close_backend(b);
        return r;
    }
    *ret_backend = b;
    return 0;
}

static const char *type_name(enum dtype type)
{
    return type == DT_BF16 ? "bf16" : type == DT_F16 ? "f16" : "f32";
}

static const char *describe_backend(struct backend *b)
{
    snprintf(b->description, sizeof b->description, "cuda (%s%s%s)", b->context.properties.name,
             b->model ? ", " : "", b->model ? type_name(b->type) : "");
    return b->description;
}

static void calls(const struct backend *b, struct engine_calls *ret_calls)
{
    const uint64_t *counts = b->context.calls;

    *ret_calls = (struct engine_calls){.allocations = counts[CUDA_CALL_ALLOCATE],
                                       .synchronizations = counts[CUDA_CALL_SYNCHRONIZE],
                                       .event_waits = counts[CUDA_CALL_EVENT_WAIT],
                                       .copies = counts[CUDA_CALL_COPY],
                                       .launches = counts[CUDA_CALL_LAUNCH],
                                       .graphs = counts[CUDA_CALL_GRAPH]};
}

static const struct fault *failure(const struct backend *b)
{
    return &b->context.failure;
}

/* --- the plan ------------------------------------------------------------------------------ */

/* The type that the model's largest weights are stored in, or one that holds them. */
static enum dtype choose_type(const struct backend *b, const struct model *m)
{
    const struct layer *layer = &m->layers[0];
    const struct weight_part *part =
        layer->experts ? &layer->experts[0].gate_up.parts[0] : &layer->ffn.gate_up.parts[0];
    enum dtype stored = part->tables ? DT_BF16 : part->type, type;

    switch (b->options.type) {
    case CUDA_TYPE_BF16:
        return DT_BF16;
    case CUDA_TYPE_F16:
        return DT_F16;
    case CUDA_TYPE_F32:
        return DT_F32;
    default:
        break;
    }
    type = stored == DT_F32 || stored == DT_BF16 ? stored : DT_F16;
    return type == DT_BF16 && b->context.properties.capability < CAPABILITY_BF16 ? DT_F16 : type;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t to_chunks(size_t columns)
{
    return (columns + CUDA_SKINNY_COLUMNS - 1) / CUDA_SKINNY_COLUMNS * CUDA_SKINNY_COLUMNS;
}

static void set_sizes(struct backend *b, const struct model *m, const struct engine_limits *limits)
{
    uint32_t rows = cuda_rows_padded(limits->batch.rows);

    b->model = m;
    b->limits = *limits;
    b->type = choose_type(b, m);
    b->element_bytes = b->type == DT_F32 ? 4 : 2;
    b->tokens_max = cuda_rows_padded(limits->batch.prefill_tokens + limits->batch.rows);
    b->head_rows = rows < HEAD_ROWS_LEAST ? HEAD_ROWS_LEAST : rows;
    if (b->head_rows > b->tokens_max)
        b->head_rows = b->tokens_max;
    b->logits_stride = (m->vocabulary + 63) / 64 * 64;
    b->page_bytes = (size_t)m->kv_heads *
                    (cuda_general_key_size(m) + cuda_general_kv_value_size(m)) * CUDA_PAGE_TOKENS *
                    b->element_bytes;
    b->general = cuda_general_needed(b, m);
    /* Whole tiles of 16 rows to a head, eight pairs of one kind in each. */
    b->fuses_rotary = !b->general && m->head_size % 16 == 0 && m->layers[0].q_norm.rows == 0 &&
                      m->layers[0].k_norm.rows == 0 &&
                      (m->rope != ROPE_HALVES || m->ropes[0].size % 16 == 0);
    cuda_buckets_list(b);
}

/* What the products of the fused and fast path read and write. */
static void place_rows(struct backend *b, struct carve *carve, struct cuda_lane *lane)
{
    const struct model *m = b->model;
    const struct cuda_properties *properties = &b->context.properties;
    size_t tokens = b->tokens_max, element = b->element_bytes;
    size_t q = (size_t)m->heads * m->head_size, kv = (size_t)m->kv_heads * m->head_size;
    size_t inputs[] = {to_chunks(m->width), to_chunks(q), to_chunks(m->ffn_width)};
    uint32_t outputs = m->vocabulary > 2 * m->ffn_width ? m->vocabulary : 2 * m->ffn_width;

    if (outputs < q + 2 * kv)
        outputs = (uint32_t)(q + 2 * kv);
    lane->rotary = carve_take(carve, tokens * m->ropes[0].size, sizeof(float));
    lane->x = carve_take(carve, tokens * larger(m->width, q), element);
    lane->qkv = carve_take(carve, tokens * (q + 2 * kv), element);
    lane->q = carve_take(carve, tokens * q, element);
    lane->gate_up = carve_take(carve, tokens * 2 * m->ffn_width, element);
    lane->hidden = carve_take(carve, tokens * m->ffn_width, element);
    for (int i = 0; i < 3; i++)
        lane->fragments[i] = carve_take(carve, CUDA_SKINNY_TOKENS * inputs[i], element);
    lane->squares = carve_take(carve, CUDA_SKINNY_TOKENS * ((m->width + 15) / 16), sizeof(float));
    lane->skinny_scratch = carve_take(carve, cuda_skinny_scratch(properties, outputs), 1);
}

/* A lane's activations. */
static void place_lane(struct backend *b, struct carve *carve, struct cuda_lane *lane)
{
    const struct model *m = b->model;
    const struct cuda_properties *properties = &b->context.properties;
    size_t tokens = b->tokens_max;

    lane->residual = carve_take(carve, tokens * m->width, sizeof(float));
    lane->logits = carve_take(carve, (size_t)b->head_rows * b->logits_stride, sizeof(float));
    if (b->general)
        cuda_general_place_lane(b, carve, lane);
    else
        place_rows(b, carve, lane);
    lane->attention_scratch =
        carve_take(carve,
                   cuda_attention_scratch(properties, m->heads, m->kv_heads, m->head_size,
                                          cuda_rows_padded(b->limits.batch.rows)),
                   1);
    lane->sample_scratch = carve_take(carve, cuda_sample_scratch(m->vocabulary, b->head_rows), 1);
    lane->workspace = carve_take(carve, CUBLAS_WORKSPACE_BYTES, 1);
    lane->step_counter = carve_take(carve, 1, sizeof(uint32_t));
    lane->prepare.placed.tokens = carve_take(carve, tokens, sizeof(struct cuda_token));
    lane->prepare.placed.segments = carve_take(carve, tokens, sizeof(struct cuda_segment));
    lane->prepare.placed.outputs = carve_take(carve, tokens, sizeof(struct cuda_output));
    lane->prepare.step = lane->step_counter;
    lane->prepare.rows = b->rows;
}

/* The request table, and what all lanes share. */
static void place_tables(struct backend *b, struct carve *carve)
{
    size_t rows = b->limits.batch.rows, vocabulary = b->limits.vocabulary;
    size_t mask_words = (vocabulary + 31) / 32;

    if (b->general)
        cuda_general_place_tables(b, carve);
    else
        b->frequencies = carve_take(carve, b->model->ropes[0].size / 2 + 1, sizeof(float));
    b->samplings = carve_take(carve, rows, sizeof *b->samplings);
    b->rows = carve_take(carve, rows, sizeof *b->rows);
    b->biases = carve_take(carve, rows * CUDA_BIAS_MAX, sizeof *b->biases);
    b->generated_counts = carve_take(carve, rows * vocabulary, sizeof *b->generated_counts);
    b->prompt_seen = carve_take(carve, rows * mask_words, sizeof *b->prompt_seen);
    b->page_table = carve_take(carve, rows * b->limits.pages_per_row, sizeof *b->page_table);
}

/* Mapped memory, which has two addresses: `carve` runs over the host's. */
static void place_mapped(struct backend *b, struct carve *carve, struct cuda_lane *lane)
{
    size_t tokens = b->tokens_max;

    for (int i = 0; i < CUDA_STEP_SLOTS; i++) {
        struct cuda_step_slot *slot = &lane->slots[i];

        slot->counts = carve_take(carve, 1, sizeof *slot->counts);
        slot->tokens = carve_take(carve, tokens, sizeof *slot->tokens);
        slot->segments = carve_take(carve, tokens, sizeof *slot->segments);
        slot->outputs = carve_take(carve, tokens, sizeof *slot->outputs);
    }
    lane->choices = carve_take(carve, CUDA_STEP_SLOTS * tokens, sizeof *lane->choices);
    lane->tiles = carve_take(carve, CUDA_STEP_SLOTS * tokens, sizeof *lane->tiles);
}

static int place_all(struct backend *b, struct carve *device, struct carve *host)
{
    size_t rows = b->limits.batch.rows, mask_words = (b->limits.vocabulary + (size_t)31) / 32;
    int r = 0;

    place_tables(b, device);
    for (uint32_t i = 0; i < b->lane_count && r == 0; i++) {
        place_lane(b, device, &b->lanes[i]);
        place_mapped(b, host, &b->lanes[i]);
        r = cuda_changes_open(b, &b->lanes[i], device, host);
    }
    b->host_masks = carve_take(host, rows * mask_words, sizeof *b->host_masks);
    b->host_mask_steps = carve_take(host, rows, sizeof *b->host_mask_steps);
    if (b->options.host_sampling)
        b->host_logits = carve_take(host, (size_t)b->head_rows * b->logits_stride, sizeof(float));
    return r;
}

static int costs(struct backend *b, const struct model *model, const struct engine_limits *limits,
                 struct backend_costs *ret_costs, struct fault *fault)
{
    struct carve device = {0}, host = {0};
    uint64_t packed, plain, budget;
    size_t free_bytes;
    int r;

    set_sizes(b, model, limits);
    r = cuda_general_check(model, fault);
    if (r == 0)
        r = cuda_memory_free(&b->context, &free_bytes);
    if (r == 0)
        r = place_all(b, &device, &host);
    if (r < 0)
        return r;
    budget = (uint64_t)((double)free_bytes * b->options.memory_fraction);
    plain = cuda_weights_bytes(b, model, false);
    packed = cuda_weights_bytes(b, model, true);
    /* Twice the weights where they leave most of the memory to the pages. */
    b->packs = b->context.properties.capability >= CAPABILITY_FUSED && b->type != DT_F32 &&
               !b->general && packed <= budget / 2;
    *ret_costs = (struct backend_costs){
        .weights = b->packs ? packed : plain,
        .activations = device.bytes + (uint64_t)GRAPH_BYTES * b->bucket_count * b->lane_count,
        .page = b->page_bytes * model->layer_count,
        .available = budget,
        .free = free_bytes,
        .pages_most = budget,
        .step = cuda_weights_step_bytes(b, model),
    };
    return 0;
}

/* --- taking memory ------------------------------------------------------------------------- */

static int said(struct backend *b, int r, const char *what, struct fault *fault)
{
    if (r == E_MEMORY)
        return fault_set(fault, r,
                         "the GPU has no room left for the %s: other programs took memory since it "
                         "was planned, or --memory-fraction is too large",
                         what);
    if (r < 0 && fault)
        *fault = b->context.failure;
    return r;
}

static int load(struct backend *b, struct model *model, struct fault *fault)
{
    int r = cuda_weights_load(b, model, fault);

    return r == E_DEVICE ? said(b, r, "", fault) : r;
}

/* Through mapped memory. */
static int place_frequencies(struct backend *b)
{
    const struct rope *rope = &b->model->ropes[0];
    size_t bytes = rope->size / 2 * sizeof *rope->frequencies;

    memcpy(b->pinned, rope->frequencies, bytes);
    return cuda_copy(&b->copies, b->frequencies, b->pinned, bytes);
}

static void map_masks(struct backend *b, uint8_t *mapped)
{
    const uint8_t *host = b->pinned;

    b->masks = (void *)(mapped + ((const uint8_t *)b->host_masks - host));
    b->mask_steps = (void *)(mapped + ((const uint8_t *)b->host_mask_steps - host));
    for (uint32_t i = 0; i < b->limits.batch.rows; i++)
        atomic_store_explicit(&b->host_mask_steps[i], 0, memory_order_relaxed);
}

/* The device's addresses of what place_mapped() placed. */
static void map_lane(struct backend *b, struct cuda_lane *lane, uint8_t *mapped)
{
    const uint8_t *host = b->pinned;

#define MAPPED(pointer_) (void *)(mapped + ((const uint8_t *)(pointer_)-host))
    for (int i = 0; i < CUDA_STEP_SLOTS; i++)
        lane->prepare.mapped[i] = (struct cuda_step_slot){
            .counts = MAPPED(lane->slots[i].counts),
            .tokens = MAPPED(lane->slots[i].tokens),
            .segments = MAPPED(lane->slots[i].segments),
            .outputs = MAPPED(lane->slots[i].outputs),
        };
    lane->mapped_choices = MAPPED(lane->choices);
    lane->mapped_tiles_all = MAPPED(lane->tiles);
#undef MAPPED
}

static int open_lane(struct backend *b, struct cuda_lane *lane, uint8_t *mapped)
{
    int r = cuda_stream_open(&b->context, &lane->stream);

    map_lane(b, lane, mapped);
    for (int i = 0; i < CUDA_STEP_SLOTS && r == 0; i++) {
        lane->pending[i].outputs = calloc(b->tokens_max, sizeof *lane->pending[i].outputs);
        if (!lane->pending[i].outputs)
            return E_MEMORY;
        r = cuda_event_open(&b->context, false, &lane->done[i]);
    }
    return r;
}

static int open_host(struct backend *b)
{
    struct carve carve = {0};

    b->row_lanes = calloc(b->limits.batch.rows, sizeof *b->row_lanes);
    host_sampler_place(&carve, b->limits.vocabulary, NULL);
    b->sampler_memory = aligned_alloc(CARVE_LINE_BYTES, carve.bytes);
    b->row_prefilled = calloc(b->limits.batch.rows, sizeof *b->row_prefilled);
    if (!b->row_lanes || !b->row_prefilled || !b->sampler_memory)
        return E_MEMORY;
    carve = (struct carve){.base = b->sampler_memory};
    b->sampler = host_sampler_place(&carve, b->limits.vocabulary, &b->limits);
    return 0;
}

static int take(struct backend *b)
{
    struct carve device = {0}, host = {0};
    void *mapped = NULL;
    int r = place_all(b, &device, &host);

    if (r == 0)
        r = cuda_allocate(&b->context, device.bytes, &b->activation);
    if (r == 0)
        r = cuda_fill(&b->copies, b->activation, 0, device.bytes);
    if (r == 0)
        r = cuda_pinned_allocate(&b->context, host.bytes, &b->pinned, &mapped);
    if (r == 0)
        r = cuda_allocate(&b->context,
                          (size_t)b->limits.page_count * b->page_bytes * b->model->layer_count,
                          &b->kv);
    if (r == 0)
        r = cuda_fill(&b->copies, b->kv, 0,
                      (size_t)b->limits.page_count * b->page_bytes * b->model->layer_count);
    device = (struct carve){.base = b->activation};
    host = (struct carve){.base = b->pinned};
    if (r == 0)
        r = place_all(b, &device, &host);
    if (r == 0)
        map_masks(b, mapped);
    for (uint32_t i = 0; i < b->lane_count && r == 0; i++)
        r = open_lane(b, &b->lanes[i], mapped);
    if (r == 0)
        r = cuda_trace_open(b);
    if (r == 0)
        r = b->general ? cuda_general_fill_tables(b) : place_frequencies(b);
    if (r == 0 && b->packs)
        r = cuda_skinny_setup(&b->context);
    if (r == 0)
        r = cuda_stream_open(&b->context, &b->sampling);
    if (r == 0)
        r = cuda_event_open(&b->context, false, &b->ordered);
    if (r == 0)
        r = open_host(b);
    return r < 0 ? r : cuda_stream_synchronize(&b->copies);
}

static uint32_t *masks(struct backend *b, _Atomic uint32_t **ret_positions)
{
    *ret_positions = b->host_mask_steps;
    return b->host_masks;
}

static int reserve(struct backend *b, const struct model *model, const struct engine_limits *limits,
                   struct fault *fault)
{
    int r;

    must(model == b->model && limits->page_tokens == CUDA_PAGE_TOKENS);
    b->limits = *limits;
    r = take(b);
    if (r == 0)
        r = cuda_buckets_measure(b, fault);
    if (r == 0 && !b->options.no_graphs)
        r = cuda_buckets_capture(b, fault);
    return said(b, r, "KV cache and the activations", fault);
}

__attribute__((visibility("default"))) const struct backend_ops backend_cuda = {
    .name = "cuda",
    .options_bytes = sizeof(struct backend_options),
    .synchronous = false,
    .page_tokens = CUDA_PAGE_TOKENS,
    .prefill_tokens = 2048,
    .loaded_tokens = 128, /* measured on an H200: the products' time bends upwards there */
    .open = open_backend,
    .close = close_backend,
    .describe = describe_backend,
    .costs = costs,
    .load = load,
    .reserve = reserve,
    .masks = masks,
    .read_bandwidth = cuda_read_bandwidth,
    .calls = calls,
    .failure = failure,
    .begin = cuda_begin,
    .embed = cuda_op_embed,
    .attention_in = cuda_op_attention_in,
    .attention = cuda_op_attention,
    .attention_out = cuda_op_attention_out,
    .mlp = cuda_op_mlp,
    .mixture = cuda_op_mixture,
    .head = cuda_op_head,
    .sample = cuda_sample_step,
    .complete = cuda_complete,
};
