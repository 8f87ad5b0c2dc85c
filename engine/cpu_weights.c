/* cpu_weights.c -- packs a model's weights once, at load.
 *
 * The same walk over the model is made twice: to learn how many bytes everything takes (for the
 * memory plan, without reading a weight) and to place it. Packing is divided among the pool's
 * threads, matrix by matrix. Formats without a packed form of their own stay in the mapped file
 * (PACK_RAW), and are only brought into memory. Random weights are made 16 rows at a time, by the
 * thread that packs them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config/base/clock.h"
#include "engine/cpu_internal.h"
#include "engine/weight_part.h"
#include "engine/weight_prefetch.h"

enum {
    HUGE_PAGE = 2 << 20,
    REPORT_NS = 50 * 1000 * 1000,
    PAGE_BYTES_LEAST = 4096,
    TOUCHED_TOGETHER = 1 << 20, /* bytes of a file that stays one thread's */
};

int region_open(struct region *region, size_t bytes, const char *what, struct fault *fault)
{
    size_t whole = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *data;

    if (whole == 0)
        return 0;
    data = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        fault_errno(fault, "cannot take %zu MiB for the %s", whole >> 20, what);
        return fault ? (fault->code = E_MEMORY) : E_MEMORY;
    }
    madvise(data, whole, MADV_HUGEPAGE); /* where it is not granted, all works as well */
    *region = (struct region){data, whole};
    return 0;
}

void region_close(struct region *region)
{
    if (region->data)
        munmap(region->data, region->bytes);
    *region = (struct region){0};
}

/* --- packing ------------------------------------------------------------------------------- */

/* The walk: where it stands, and what it does on the way. */
struct loader {
    struct carve carve; /* base NULL: only counting */
    struct cpu_weights *weights;
    struct pool *pool;
    const struct engine_progress *progress;
    struct weight_list *list; /* while counting: what will be placed; NULL: nobody asks */
    struct weight_prefetch *prefetch;
    struct region rows; /* for each thread, 16 rows that do not lie in a file as they are */
    size_t rows_bytes;  /* of one thread */
    uint64_t done;
    uint64_t total;
    uint64_t began_ns;
    uint64_t reported_ns;
};

/* One matrix for the pool: group g goes to `to` + slot(g) x group_bytes, in chunks of `together`
 * groups at distance `step` chunks. */
struct packing {
    const struct loader *loader;
    const struct packed *packed;
    const struct weight_part *part;
    uint8_t *to;
    uint32_t together;
    uint32_t step;
};

static void pack_read(const struct packing *packing, uint32_t group, uint32_t seat, uint8_t *to)
{
    struct packed alone = *packing->packed;
    uint8_t *rows = packing->loader->rows.data + seat * packing->loader->rows_bytes;

    alone.rows -= group * GROUP_ROWS;
    if (alone.rows > GROUP_ROWS)
        alone.rows = GROUP_ROWS;
    weight_part_read(packing->part, alone.columns, group * GROUP_ROWS, alone.rows, alone.type,
                     rows);
    packed_group(&alone, rows, 0, to);
}

static void pack_share(void *data, const struct pool_seat *seat)
{
    const struct packing *packing = data;
    uint64_t first, end;

    pool_share(seat, packing->packed->groups, 1, &first, &end);
    for (uint64_t g = first; g < end; g++) {
        uint64_t slot =
            g / packing->together * packing->together * packing->step + g % packing->together;
        uint8_t *to = packing->to + slot * packing->packed->group_bytes;

        if (weight_part_plain(packing->part) ||
            (packing->part->tables && packing->part->transposed == 0))
            packed_group(packing->packed, packing->part->data, (uint32_t)g, to);
        else
            pack_read(packing, (uint32_t)g, seat->index, to);
    }
}

static void report(struct loader *loader, uint64_t bytes)
{
    uint64_t now = clock_now();

    loader->done += bytes;
    weight_prefetch_passed(loader->prefetch, bytes);
    if (!loader->progress->report || now - loader->reported_ns < REPORT_NS ||
        loader->done >= loader->total)
        return;
    loader->reported_ns = now;
    loader->progress->report(loader->progress->data, "loading weights", loader->done, loader->total,
                             clock_seconds(now - loader->began_ns));
}

static void pack(struct loader *loader, const struct packed *packed, const struct weight_part *part,
                 uint8_t *to, uint32_t together, uint32_t step)
{
    struct packing packing = {loader, packed, part, to, together, step};

    pool_run(loader->pool, pack_share, &packing);
    report(loader, packed->rows * dtype_bytes(packed->type, packed->columns));
}

/* Weights that stay in the file are read from the disk now, and not while the first client waits:
 * a byte of each page brings it into the page cache. */
static void touch_share(void *data, const struct pool_seat *seat)
{
    const struct weight_range *range = data;
    const volatile uint8_t *bytes = range->data;
    uint64_t first, end;

    pool_share(seat, range->bytes, TOUCHED_TOGETHER, &first, &end);
    for (uint64_t at = first; at < end; at += PAGE_BYTES_LEAST)
        (void)bytes[at];
}

static void touch(struct loader *loader, const struct weight_part *part, uint32_t columns)
{
    struct weight_range range = weight_part_range(part, columns);

    if (range.bytes > 0)
        pool_run(loader->pool, touch_share, &range);
    report(loader, range.bytes);
}

static struct packed shape_of(const struct weight_part *part, uint32_t columns)
{
    struct packed packed;

    if (part->tables && part->transposed > 0)
        return packed_shape(DT_F32, part->rows, columns);
    if (!part->tables)
        return packed_shape(part->type, part->rows, columns);
    packed = packed_shape_tables(part->tables, part->rows, columns);
    packed.tables = part->tables;
    packed.first_row = part->first_row;
    packed.block_rows = part->block_rows;
    packed.block_stride = part->block_stride;
    return packed;
}

static struct packed place_part(struct loader *loader, const struct weight_part *part,
                                uint32_t columns)
{
    struct packed packed = shape_of(part, columns);
    uint8_t *to = carve_take(&loader->carve, packed_bytes(&packed), 1);

    weight_list_add(loader->list, part, columns);
    packed.data = packed.pack == PACK_RAW ? part->data : to;
    if (to && packed.pack == PACK_RAW)
        touch(loader, part, columns);
    else if (to)
        pack(loader, &packed, part, to, packed.groups ? packed.groups : 1, 1);
    return packed;
}

/* Float vectors: norms, and biases by padded part. NULL: the model has none. */
static const float *place_vector(struct loader *loader, const struct weight *weight, uint32_t each)
{
    size_t room = 0, at = 0;
    float *to;

    if (!weight || weight->rows == 0)
        return NULL;
    for (uint32_t i = 0; i < weight->part_count; i++) {
        size_t count = (size_t)weight->parts[i].rows * weight->columns;

        room += (count + each - 1) / each * each;
        weight_list_add(loader->list, &weight->parts[i], weight->columns);
    }
    /* A block more: gains of one head are read in whole blocks. */
    to = carve_take(&loader->carve, padded_to_blocks(room) + BLOCK_COLUMNS, sizeof *to);
    for (uint32_t i = 0; i < weight->part_count && to; i++) {
        size_t count = (size_t)weight->parts[i].rows * weight->columns;

        weight_part_read(&weight->parts[i], weight->columns, 0, weight->parts[i].rows, DT_F32,
                         to + at);
        report(loader, dtype_bytes(weight->parts[i].type, count));
        at += (count + each - 1) / each * each;
    }
    return to;
}

static struct cpu_norm place_norm(struct loader *loader, const struct weight *gain,
                                  const struct weight *bias)
{
    struct cpu_norm norm = {.gain = place_vector(loader, gain, 1)};

    norm.bias = place_vector(loader, bias, 1);
    return norm;
}

static struct cpu_matrix place_matrix(struct loader *loader, const struct weight *weight,
                                      const struct weight *bias)
{
    struct cpu_matrix matrix = {.part_count = weight->part_count};

    for (uint32_t i = 0; i < weight->part_count; i++) {
        matrix.parts[i] = place_part(loader, &weight->parts[i], weight->columns);
        matrix.groups += matrix.parts[i].groups;
    }
    matrix.bias = place_vector(loader, bias, GROUP_ROWS);
    return matrix;
}

/* Gate and up of one format become one matrix: 32 outputs of gate, the same 32 of up, and so on. */
static void place_gate_up(struct loader *loader, const struct ffn *ffn, struct cpu_ffn *layer)
{
    const struct weight *weight = &ffn->gate_up;
    const struct weight_part *gate = &weight->parts[0], *up = &weight->parts[1];
    struct packed one = shape_of(gate, weight->columns), two = shape_of(up, weight->columns);
    uint32_t groups = (one.groups + 1) / GROUPS_PER_BLOCK * GROUPS_PER_BLOCK;
    uint8_t *to;

    layer->gate_up_bias = place_vector(loader, &ffn->gate_up_bias, BLOCK_COLUMNS);
    if (weight->part_count == 1 || gate->type != up->type || one.pack != two.pack ||
        one.zeros != two.zeros || one.pack == PACK_RAW) {
        layer->gate = place_part(loader, gate, weight->columns);
        layer->up = (struct packed){0};
        if (weight->part_count > 1)
            layer->up = place_part(loader, up, weight->columns);
        return;
    }
    weight_list_add(loader->list, gate, weight->columns);
    weight_list_add(loader->list, up, weight->columns);
    to = carve_take(&loader->carve, 2 * groups, one.group_bytes);
    if (to) {
        pack(loader, &one, gate, to, GROUPS_PER_BLOCK, 2);
        pack(loader, &two, up, to + GROUPS_PER_BLOCK * one.group_bytes, GROUPS_PER_BLOCK, 2);
    }
    layer->gate = one;
    layer->gate.rows = 2 * groups * GROUP_ROWS;
    layer->gate.groups = 2 * groups;
    layer->gate.data = to;
    layer->up = (struct packed){0};
}

static struct cpu_ffn place_ffn(struct loader *loader, const struct ffn *from)
{
    struct cpu_ffn ffn = {.width = from->down.columns};

    if (from->down.rows == 0)
        return ffn;
    place_gate_up(loader, from, &ffn);
    ffn.down = place_matrix(loader, &from->down, &from->down_bias);
    return ffn;
}

/* Only ROUTER_SIGMOID keeps the bias apart from the scores. */
static void place_mixture(struct loader *loader, const struct model *model,
                          const struct layer *from, struct cpu_layer *to, struct cpu_ffn *experts)
{
    bool apart = model->router == ROUTER_SIGMOID;

    to->router = place_matrix(loader, &from->router, apart ? NULL : &from->router_bias);
    to->router_bias = apart ? place_vector(loader, &from->router_bias, 1) : NULL;
    for (uint32_t i = 0; i < model->expert_count; i++) {
        struct cpu_ffn expert = place_ffn(loader, &from->experts[i]);

        if (experts)
            experts[i] = expert;
    }
    to->experts = experts;
    to->shared = place_ffn(loader, &from->shared);
    to->shared_gate = place_matrix(loader, &from->shared_gate, NULL);
}

struct copying {
    const struct weight_part *part;
    uint32_t columns;
    uint8_t *to;
};

static void copy_share(void *data, const struct pool_seat *seat)
{
    const struct copying *copying = data;
    const struct weight_part *part = copying->part;
    uint64_t first, end;

    pool_share(seat, part->rows, 1, &first, &end);
    weight_part_read(part, copying->columns, (uint32_t)first, (uint32_t)(end - first), part->type,
                     copying->to + first * dtype_bytes(part->type, copying->columns));
}

/* Rows to look up, copied as they are, so that the file need not stay in memory. */
static struct packed place_rows(struct loader *loader, const struct weight *weight)
{
    const struct weight_part *part = &weight->parts[0];
    size_t bytes = part->rows * dtype_bytes(part->type, weight->columns);
    struct packed rows;
    uint8_t *to;

    if (weight->rows == 0)
        return (struct packed){0};
    if (part->tables) /* a plain copy would not do */
        return place_part(loader, part, weight->columns);
    rows = packed_shape(part->type, part->rows, weight->columns);
    rows.pack = PACK_RAW;
    weight_list_add(loader->list, part, weight->columns);
    to = carve_take(&loader->carve, bytes, 1);
    if (to) {
        struct copying copying = {part, weight->columns, to};

        pool_run(loader->pool, copy_share, &copying);
        report(loader, bytes);
    }
    rows.data = to;
    return rows;
}

/* Rows first ... of a part as a part of its own; turned: [columns][rows] instead. */
static struct weight_part rows_of(const struct weight_part *part, uint32_t columns, uint32_t first,
                                  uint32_t rows, bool turned)
{
    struct weight_part slice = *part;

    slice.rows = turned ? columns : rows;
    slice.transposed = turned ? columns : 0;
    if (part->tables || !part->data)
        slice.first_row += first;
    else
        slice.data = (const uint8_t *)part->data + first * dtype_bytes(part->type, columns);
    return slice;
}

/* What the heads have of kv_up: each its keys' rows, turned round, and its values'. */
static void place_heads(struct loader *loader, const struct model *model,
                        const struct weight *kv_up, struct packed *keys, struct packed *values)
{
    uint32_t plain = model->head_size - model->ropes[0].size;
    uint32_t each = plain + model->value_size;

    for (uint32_t i = 0; i < model->heads; i++) {
        struct weight_part key = rows_of(&kv_up->parts[0], kv_up->columns, i * each, plain, true);
        struct weight_part value =
            rows_of(&kv_up->parts[0], kv_up->columns, i * each + plain, model->value_size, false);
        struct packed key_packed = place_part(loader, &key, plain);
        struct packed value_packed = place_part(loader, &value, kv_up->columns);

        if (keys) {
            keys[i] = key_packed;
            values[i] = value_packed;
        }
    }
}

static void place_latent(struct loader *loader, const struct model *model, uint32_t index,
                         struct cpu_latent *to)
{
    const struct layer *from = &model->layers[index];
    struct packed *parts = loader->weights->head_parts;

    if (parts) {
        to->keys = parts + (size_t)2 * index * model->heads;
        to->values = to->keys + model->heads;
    }
    to->q_down = place_matrix(loader, &from->q_down, NULL);
    to->q_norm = place_norm(loader, &from->q_down_norm, NULL);
    to->q_up = place_matrix(loader, &from->q_up, NULL);
    to->kv_down = place_matrix(loader, &from->kv_down, NULL);
    to->kv_norm = place_norm(loader, &from->kv_down_norm, NULL);
    place_heads(loader, model, &from->kv_up, to->keys, to->values);
}

static void place_layer(struct loader *loader, const struct model *model, uint32_t index,
                        struct cpu_layer *to)
{
    const struct layer *from = &model->layers[index];
    struct cpu_ffn *experts = loader->weights->experts;

    *to = (struct cpu_layer){0};
    to->attention_norm = place_norm(loader, &from->attention_norm, &from->attention_norm_bias);
    if (model->attention == ATTENTION_LATENT)
        place_latent(loader, model, index, &to->latent);
    to->qkv = place_matrix(loader, &from->qkv, &from->qkv_bias);
    to->q_norm = place_vector(loader, &from->q_norm, 1);
    to->k_norm = place_vector(loader, &from->k_norm, 1);
    to->sinks = place_vector(loader, &from->sinks, 1);
    to->out = place_matrix(loader, &from->attention_out, &from->attention_out_bias);
    to->post_attention_norm =
        place_norm(loader, &from->post_attention_norm, &from->post_attention_norm_bias);
    to->ffn_norm = place_norm(loader, &from->ffn_norm, &from->ffn_norm_bias);
    if (from->experts)
        place_mixture(loader, model, from, to,
                      experts ? experts + (size_t)index * model->expert_count : NULL);
    else
        to->ffn = place_ffn(loader, &from->ffn);
    to->post_ffn_norm = place_norm(loader, &from->post_ffn_norm, &from->post_ffn_norm_bias);
}

static void walk(struct loader *loader, const struct model *model)
{
    struct cpu_weights *weights = loader->weights;

    weights->embedding_in = place_matrix(loader, &model->embedding_in, NULL);
    weights->embedding_norm =
        place_norm(loader, &model->embedding_norm, &model->embedding_norm_bias);
    weights->positions = place_rows(loader, &model->positions);
    weights->types = place_rows(loader, &model->types);
    for (uint32_t i = 0; i < model->layer_count; i++) {
        struct cpu_layer scratch;

        place_layer(loader, model, i, weights->layers ? &weights->layers[i] : &scratch);
    }
    weights->final_norm = place_norm(loader, &model->final_norm, &model->final_norm_bias);
    weights->embedding_out = place_matrix(loader, &model->embedding_out, NULL);
    weights->head = place_matrix(loader, &model->head, &model->head_bias);
    /* The head's rows serve look-ups too where they are the embedding. */
    if (weight_part_same(&model->head.parts[0], &model->embedding.parts[0]))
        weights->embedding = weights->head.parts[0];
    else
        weights->embedding = place_rows(loader, &model->embedding);
}

static uint64_t count_bytes(const struct model *model, struct weight_list *list)
{
    struct cpu_weights weights = {0};
    struct loader loader = {.weights = &weights, .list = list};

    walk(&loader, model);
    return loader.carve.bytes;
}

uint64_t cpu_weights_bytes(const struct model *model)
{
    return count_bytes(model, NULL);
}

/* Room for rows that do not lie in a file as they are needed. */
static int open_rows(struct loader *loader, const struct model *model, struct fault *fault)
{
    const uint32_t columns[] = {model->width,
                                model->heads * model->head_size,
                                model->ffn_width,
                                model->embedding_width,
                                model->heads * model->value_size,
                                model->q_latent,
                                model->kv_latent,
                                model->expert_width,
                                model->shared_width};
    size_t bytes;

    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        bytes = GROUP_ROWS * sizeof(float) * columns[i];
        if (bytes > loader->rows_bytes)
            loader->rows_bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    }
    return region_open(&loader->rows, pool_threads(loader->pool) * loader->rows_bytes,
                       "rows of weights", fault);
}

static int open_layers(struct cpu_weights *weights, const struct model *model)
{
    size_t layers = model->layer_count, experts = layers * model->expert_count;
    size_t parts = model->attention == ATTENTION_LATENT ? 2 * layers * model->heads : 0;

    weights->layer_count = model->layer_count;
    weights->layers = calloc(layers, sizeof *weights->layers);
    if (experts > 0)
        weights->experts = calloc(experts, sizeof *weights->experts);
    if (parts > 0)
        weights->head_parts = calloc(parts, sizeof *weights->head_parts);
    if (!weights->layers || (experts > 0 && !weights->experts) ||
        (parts > 0 && !weights->head_parts))
        return E_MEMORY;
    return 0;
}

int cpu_weights_load(struct cpu_weights *weights, const struct model *model, struct pool *pool,
                     const struct engine_progress *progress, struct fault *fault)
{
    struct loader loader = {.weights = weights,
                            .pool = pool,
                            .progress = progress,
                            .total = model->weight_bytes,
                            .began_ns = clock_now()};
    struct weight_list list = {0};
    uint64_t bytes;
    int r;

    if (open_layers(weights, model) < 0)
        return fault_set(fault, E_MEMORY, "out of memory for %u layers", model->layer_count);
    bytes = count_bytes(model, &list);
    loader.prefetch = weight_prefetch_open(&list);
    r = region_open(&weights->region, bytes, "weights", fault);
    if (r == 0)
        r = open_rows(&loader, model, fault);
    if (r == 0) {
        loader.carve.base = weights->region.data;
        walk(&loader, model);
    }
    region_close(&loader.rows);
    weight_prefetch_close(loader.prefetch);
    if (r < 0)
        return r;
    if (progress->report)
        progress->report(progress->data, "loading weights", loader.total, loader.total,
                         clock_seconds(clock_now() - loader.began_ns));
    return 0;
}

void cpu_weights_fini(struct cpu_weights *weights)
{
    region_close(&weights->region);
    free(weights->layers);
    free(weights->experts);
    free(weights->head_parts);
    *weights = (struct cpu_weights){0};
}
