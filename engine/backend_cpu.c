/* backend_cpu.c -- the processor as a device: opening, the memory plan, and the table of
 * operations.
 *
 * Memory is three regions, each taken once: packed weights (load), KV pages and activations
 * (reserve). The sizes in the plan come from the same code that places the pieces, run without
 * memory. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/cpu_internal.h"
#include "engine/memory.h"

static enum precision precision_of(enum cpu_activations activations)
{
    switch (activations) {
    case ACTIVATIONS_F32:
        return PRECISION_F32;
    case ACTIVATIONS_INT8:
        return PRECISION_INT8;
    default:
        return PRECISION_INT16;
    }
}

static int open_backend(const struct backend_options *options, struct backend **ret_backend,
                        struct fault *fault)
{
    static const char *const precisions[] = {"16-bit", "float32", "8-bit"};
    uint32_t threads = options->threads ? options->threads : cpu_threads_available();
    struct backend *b = calloc(1, sizeof *b);
    int r;

    if (!b)
        return fault_set(fault, E_MEMORY, "out of memory for the CPU device");
    if (threads > POOL_THREADS_MAX && options->threads == 0)
        threads = POOL_THREADS_MAX;
    b->kernels = cpu_kernels_get(cpu_level_detect());
    b->precision = precision_of(options->cpu_activations);
    b->progress = options->progress;
    r = pool_open(threads, &b->pool, fault);
    if (r < 0) {
        free(b);
        return r;
    }
    snprintf(b->description, sizeof b->description, "cpu (%u thread%s, %s, %s activations)",
             threads, threads == 1 ? "" : "s", b->kernels->name, precisions[b->precision]);
    *ret_backend = b;
    return 0;
}

static void close_backend(struct backend *b)
{
    if (!b)
        return;
    pool_close(b->pool);
    cpu_weights_fini(&b->weights);
    region_close(&b->kv);
    region_close(&b->activation);
    free(b);
}

static const char *describe_backend(struct backend *b)
{
    return b->description;
}

/* --- shapes -------------------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t to_groups(size_t rows)
{
    return (rows + GROUP_ROWS - 1) / GROUP_ROWS * GROUP_ROWS;
}

static struct kv_shape kv_shape_of(const struct backend *b, const struct model *m)
{
    bool latent = m->attention == ATTENTION_LATENT;
    uint32_t value_size = latent ? m->kv_latent : m->value_size;

    return (struct kv_shape){.kv_heads = m->kv_heads,
                             .head_size = latent ? m->kv_latent + m->ropes[0].size : m->head_size,
                             .value_size = value_size,
                             .value_padded = (value_size + LANES - 1) / LANES * LANES,
                             .f32 = b->precision == PRECISION_F32};
}

static struct cpu_strides strides_of(const struct model *m)
{
    bool latent = m->attention == ATTENTION_LATENT;
    size_t q = (size_t)m->heads * m->head_size;
    size_t kv = latent ? 0 : (size_t)m->kv_heads * m->head_size;
    size_t key = latent ? m->kv_latent + m->ropes[0].size : 0;

    return (struct cpu_strides){
        .width = padded_to_blocks(m->width),
        .qkv = padded_to_blocks(to_groups(q) + 2 * to_groups(kv)),
        .attention = padded_to_blocks((size_t)m->heads * m->value_size),
        .latent = padded_to_blocks(m->q_latent),
        .kv_down = padded_to_blocks(key),
        .absorbed = padded_to_blocks(m->heads * key),
        .summed = latent ? padded_to_blocks((size_t)m->heads * m->kv_latent) : 0,
        .ffn = padded_to_blocks(larger(m->ffn_width, m->shared_width)),
        .narrow = m->embedding_width == m->width ? 0 : padded_to_blocks(m->embedding_width),
        .logits = to_groups(m->vocabulary) + GROUP_ROWS,
    };
}

/* The longest row that goes into a product, but for down's. */
static size_t input_width(const struct cpu_strides *strides)
{
    return larger(larger(strides->width, strides->attention),
                  larger(strides->narrow, strides->latent));
}

static struct activations place_activations(struct carve *carve, size_t rows, size_t columns,
                                            enum precision precision)
{
    size_t units = units_of(rows, columns / BLOCK_COLUMNS);

    return (struct activations){
        .blocks = (uint32_t)(columns / BLOCK_COLUMNS),
        .precision = precision,
        .f32 = carve_take(carve, units * BLOCK_COLUMNS, sizeof(float)),
        .words = carve_take(carve, units * BLOCK_COLUMNS, sizeof(int16_t)),
        .high = carve_take(carve, units * BLOCK_COLUMNS, 1),
        .low = carve_take(carve, units * BLOCK_COLUMNS, 1),
        .sums_f32 = carve_take(carve, units, sizeof(float)),
        .scales = carve_take(carve, units, sizeof(float)),
        .sums = carve_take(carve, units, sizeof(float)),
        .offsets = carve_take(carve, units, sizeof(int32_t)),
    };
}

static struct cpu_seat place_seat(const struct backend *b, struct carve *carve,
                                  const struct model *m, const struct cpu_strides *strides,
                                  const struct engine_limits *limits)
{
    size_t tokens = (size_t)limits->batch.prefill_tokens + limits->batch.rows;
    size_t input = input_width(strides);
    struct kv_shape shape = kv_shape_of(b, m);
    size_t head = padded_to_blocks(larger(m->head_size, shape.head_size));
    size_t tile = larger(CPU_TILE_FLOATS, 2 * BLOCK_COLUMNS * tokens);
    struct cpu_seat seat = {
        .own = place_activations(carve, OWN_ROWS, input, b->precision),
        .head = place_activations(carve, strides->kv_down ? TILE_ROWS : 0, head, b->precision),
        .row = carve_take(carve, larger(input, head), sizeof(float)),
        .tile = carve_take(carve, tile, sizeof(float)),
        .kernel =
            {
                .raw = carve_take(carve, RAW_BLOCKS * BLOCK_COLUMNS * GROUP_ROWS, sizeof(float)),
                .queries =
                    carve_take(carve, (size_t)shape.head_size * ATTEND_ROWS_MAX, sizeof(float)),
                .scores =
                    carve_take(carve, ATTEND_ROWS_MAX * (ATTEND_CHUNK + LANES), sizeof(float)),
                .sums =
                    carve_take(carve, (size_t)shape.value_padded * ATTEND_ROWS_MAX, sizeof(float)),
            },
        .sampler = host_sampler_place(carve, m->vocabulary, limits),
    };

    return seat;
}

/* Rows of the experts' products: each one's begin at a multiple of 8. */
static struct cpu_mixture place_mixture(struct carve *carve, const struct model *m, size_t tokens,
                                        size_t width, enum precision precision)
{
    size_t pairs = tokens * m->experts_used;
    size_t most = pairs < m->expert_count ? pairs : m->expert_count; /* experts at once */
    size_t rows = pairs + most * (TILE_ROWS - 1);
    struct cpu_mixture mixture = {.scores_stride = to_groups(m->expert_count)};

    if (m->expert_count == 0)
        return mixture;
    mixture.normed = carve_take(carve, tokens * width, sizeof(float));
    mixture.scores = carve_take(carve, tokens * mixture.scores_stride, sizeof(float));
    mixture.gates = carve_take(carve, tokens * GROUP_ROWS, sizeof(float));
    mixture.chosen = carve_take(carve, pairs, sizeof(uint32_t));
    mixture.shares = carve_take(carve, pairs, sizeof(float));
    mixture.places = carve_take(carve, pairs, sizeof(uint32_t));
    mixture.job_of = carve_take(carve, m->expert_count, sizeof(uint32_t));
    mixture.counts = carve_take(carve, m->expert_count, sizeof(uint32_t));
    mixture.jobs = carve_take(carve, most + 1, sizeof(struct cpu_ffn_job));
    mixture.input = place_activations(carve, rows, width, precision);
    mixture.hidden = place_activations(carve, rows, padded_to_blocks(m->expert_width), precision);
    mixture.outputs = carve_take(carve, rows * width, sizeof(float));
    mixture.shared = carve_take(carve, m->shared_width ? tokens * width : 0, sizeof(float));
    return mixture;
}

/* Places all that a step writes; with carve->base NULL only counts. */
static void place(struct backend *b, struct carve *carve, const struct model *m,
                  const struct engine_limits *limits)
{
    size_t tokens = (size_t)limits->batch.prefill_tokens + limits->batch.rows;
    uint32_t threads = pool_threads(b->pool);
    struct cpu_strides strides = strides_of(m);
    struct cpu_seat *seats;

    b->x = carve_take(carve, tokens * strides.width, sizeof(float));
    b->qkv = carve_take(carve, tokens * strides.qkv, sizeof(float));
    b->attention = carve_take(carve, tokens * strides.attention, sizeof(float));
    b->latent = carve_take(carve, tokens * strides.latent, sizeof(float));
    b->kv_down = carve_take(carve, tokens * strides.kv_down, sizeof(float));
    b->absorbed = carve_take(carve, tokens * strides.absorbed, sizeof(float));
    b->summed = carve_take(carve, tokens * strides.summed, sizeof(float));
    if (cpu_defers_branches(m))
        b->branch = carve_take(carve, tokens * strides.width, sizeof(float));
    b->narrow = carve_take(carve, larger(tokens, HEAD_ROWS) * strides.narrow, sizeof(float));
    b->rotary = carve_take(carve, tokens * m->rope_count * 2 * m->ropes[0].size, sizeof(float));
    b->logits = carve_take(carve, HEAD_ROWS * strides.logits, sizeof(float));
    b->input = place_activations(carve, tokens, input_width(&strides), b->precision);
    b->hidden = place_activations(carve, tokens, strides.ffn, b->precision);
    b->mixture = place_mixture(carve, m, tokens, strides.width, b->precision);
    b->best = carve_take(carve, (size_t)HEAD_ROWS * threads, sizeof *b->best);
    seats = carve_take(carve, threads, sizeof *seats);
    for (uint32_t i = 0; i < threads; i++) {
        struct cpu_seat seat = place_seat(b, carve, m, &strides, limits);

        if (seats)
            seats[i] = seat;
    }
    b->seats = seats;
}

static size_t page_bytes(const struct backend *b, const struct model *m)
{
    struct kv_shape shape = kv_shape_of(b, m);

    return m->layer_count * m->kv_heads * kv_block_bytes(&shape);
}

static int check_model(const struct model *m, struct fault *fault)
{
    if (m->attention == ATTENTION_LATENT || m->value_size == m->head_size)
        return 0;
    return fault_set(fault, E_UNSUPPORTED,
                     "the architecture %s needs values of another size than keys, which are not "
                     "computed on the CPU yet",
                     m->architecture);
}

static int costs(struct backend *b, const struct model *model, const struct engine_limits *limits,
                 struct backend_costs *ret_costs, struct fault *fault)
{
    struct carve carve = {0};
    int r = check_model(model, fault);

    if (r < 0)
        return r;
    place(b, &carve, model, limits);
    *ret_costs = (struct backend_costs){.weights = cpu_weights_bytes(model),
                                        .activations = carve.bytes,
                                        .page = page_bytes(b, model),
                                        .available = memory_available()};
    /* Others live on this machine too. */
    ret_costs->pages_most = ret_costs->available / 2;
    return 0;
}

static int load(struct backend *b, struct model *model, struct fault *fault)
{
    b->model = model;
    return cpu_weights_load(&b->weights, model, b->pool, &b->progress, fault);
}

static int reserve(struct backend *b, const struct model *model, const struct engine_limits *limits,
                   struct fault *fault)
{
    struct carve carve = {0};
    int r;

    must(model == b->model && limits->page_tokens == PAGE_TOKENS);
    place(b, &carve, model, limits);
    r = region_open(&b->activation, carve.bytes, "activations", fault);
    if (r < 0)
        return r;
    r = region_open(&b->kv, limits->page_count * page_bytes(b, model), "KV cache", fault);
    if (r < 0)
        return r;
    carve = (struct carve){.base = b->activation.data};
    place(b, &carve, model, limits);
    b->kv_shape = kv_shape_of(b, model);
    b->strides = strides_of(model);
    b->token_max = limits->batch.prefill_tokens + limits->batch.rows;
    b->page_count = limits->page_count;
    b->vocabulary = limits->vocabulary;
    b->end_count = limits->end_count;
    b->end_tokens = limits->end_tokens;
    return 0;
}

const struct backend_ops backend_cpu = {
    .name = "cpu",
    .options_bytes = sizeof(struct backend_options),
    .synchronous = true,
    .gives_vectors = true,
    .page_tokens = PAGE_TOKENS,
    .prefill_tokens = 256,
    .open = open_backend,
    .close = close_backend,
    .describe = describe_backend,
    .costs = costs,
    .load = load,
    .reserve = reserve,
    .begin = cpu_begin,
    .embed = cpu_embed,
    .attention_in = cpu_attention_in,
    .attention = cpu_attention,
    .attention_out = cpu_attention_out,
    .mlp = cpu_mlp,
    .mixture = cpu_mixture,
    .head = cpu_head,
    .sample = cpu_sample,
};
