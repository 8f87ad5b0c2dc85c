/* cuda_weights.c -- a model's weights into the device's memory, once, at load.
 *
 *     disk --> page cache --> pinned piece (as stored, or float32) --copy--> device --> packed
 *
 * Each step overlaps with the next: a thread asks the disk for what comes (weight_prefetch.h), some
 * threads fill one pinned piece together, while those before it are copied: one thread reads the
 * page cache at some 7 GB/s (measured on a Xeon), where PCI Express 5 takes 64. Weights of the
 * computing type are copied as they lie; others become float32 on the host by the oracle's own
 * decoder, and are rounded on the device. The walk over the model is made twice: to learn how many
 * bytes everything takes and in which order, and to place it. */
#include <stdlib.h>
#include <string.h>

#include "config/base/clock.h"
#include "engine/cuda_internal.h"
#include "engine/weight_part.h"
#include "engine/weight_prefetch.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/pool.h"

enum { PIECES = 3, PIECE_BYTES = 32 << 20, FILLING_THREADS_MAX = 12, REPORT_NS = 50 * 1000 * 1000 };

struct loader {
    struct backend *b;
    struct carve carve; /* base NULL: only counting */
    bool packs;
    struct weight_list *list; /* while counting: what will be placed; NULL: nobody asks */
    struct weight_prefetch *prefetch;
    struct pool *pool;
    void *host[PIECES];
    void *staging[PIECES]; /* device */
    struct CUevent_st *free[PIECES];
    uint32_t piece;
    uint64_t done;
    uint64_t total;
    uint64_t began_ns;
    uint64_t reported_ns;
    int result;
};

static void report(struct loader *l, uint64_t bytes)
{
    const struct engine_progress *progress = &l->b->progress;
    uint64_t now = clock_now();

    l->done += bytes;
    weight_prefetch_passed(l->prefetch, bytes);
    if (!progress->report || now - l->reported_ns < REPORT_NS || l->done >= l->total)
        return;
    l->reported_ns = now;
    progress->report(progress->data, "loading weights", l->done, l->total,
                     clock_seconds(now - l->began_ns));
}

static void note(struct loader *l, int r)
{
    if (r < 0 && l->result == 0)
        l->result = r;
}

/* --- pieces -------------------------------------------------------------------------------- */

/* Rows of a part, divided among threads. */
struct filling {
    const struct weight_part *part;
    uint32_t columns;
    uint32_t first;
    uint32_t rows;
    enum dtype wire;
    uint8_t *to;
};

static void fill_share(void *data, const struct pool_seat *seat)
{
    const struct filling *filling = data;
    uint64_t first, end;

    pool_share(seat, filling->rows, 1, &first, &end);
    weight_part_read(filling->part, filling->columns, filling->first + (uint32_t)first,
                     (uint32_t)(end - first), filling->wire,
                     filling->to + dtype_bytes(filling->wire, first * filling->columns));
}

/* Rows of a part to `to` as `type`: as they are stored, or as float32 that the device rounds. */
static void place_piece(struct loader *l, const struct weight_part *part, uint32_t columns,
                        uint32_t first, uint32_t rows, enum dtype type, void *to)
{
    struct backend *b = l->b;
    enum dtype wire = part->type == type ? type : DT_F32;
    uint64_t elements = (uint64_t)rows * columns;
    uint32_t piece = l->piece++ % PIECES;
    void *arrival = wire == type ? to : l->staging[piece];

    note(l, cuda_event_wait(&b->context, l->free[piece]));
    if (l->result < 0)
        return;
    pool_run(l->pool, fill_share,
             &(struct filling){part, columns, first, rows, wire, l->host[piece]});
    note(l, cuda_copy(&b->copies, arrival, l->host[piece], dtype_bytes(wire, elements)));
    if (wire != type)
        note(l, cuda_convert(&b->copies, type, arrival, to, elements));
    note(l, cuda_event_record(&b->copies, l->free[piece]));
    report(l, dtype_bytes(part->type, elements));
}

static void place_part(struct loader *l, const struct weight_part *part, uint32_t columns,
                       enum dtype type, uint8_t *to)
{
    uint32_t step = PIECE_BYTES / (columns * (uint32_t)sizeof(float));

    must(step > 0);
    if (weight_part_generated(part)) {
        note(l, cuda_random(&l->b->copies, type, part->random, to, (uint64_t)part->rows * columns));
        report(l, dtype_bytes(part->type, (uint64_t)part->rows * columns));
        return;
    }
    for (uint32_t first = 0; first < part->rows && l->result == 0; first += step) {
        uint32_t rows = part->rows - first < step ? part->rows - first : step;

        place_piece(l, part, columns, first, rows, type,
                    to + (size_t)first * columns * dtype_bytes(type, 1));
    }
}

/* --- weights ------------------------------------------------------------------------------- */

static void list_parts(struct loader *l, const struct weight *weight)
{
    for (uint32_t i = 0; i < weight->part_count; i++)
        weight_list_add(l->list, &weight->parts[i], weight->columns);
}

static const float *place_vector(struct loader *l, const struct weight *weight)
{
    uint64_t count = (uint64_t)weight->rows * weight->columns;
    float *to;

    if (weight->rows == 0)
        return NULL;
    list_parts(l, weight);
    to = carve_take(&l->carve, count, sizeof *to);
    if (to) {
        uint8_t *at = (uint8_t *)to;

        for (uint32_t i = 0; i < weight->part_count; i++) {
            place_part(l, &weight->parts[i], weight->columns, DT_F32, at);
            at += (size_t)weight->parts[i].rows * weight->columns * sizeof(float);
        }
    }
    return to;
}

static struct cuda_matrix place_rows(struct loader *l, const struct weight *weight)
{
    struct cuda_matrix matrix = {.outputs = weight->rows, .columns = weight->columns};
    uint8_t *to;

    if (weight->rows == 0)
        return matrix;
    to = carve_take(&l->carve, (size_t)weight->rows * weight->columns, l->b->element_bytes);
    list_parts(l, weight);
    matrix.rows = to;
    for (uint32_t i = 0; i < weight->part_count && to; i++) {
        place_part(l, &weight->parts[i], weight->columns, l->b->type, to);
        to += (size_t)weight->parts[i].rows * weight->columns * l->b->element_bytes;
    }
    return matrix;
}

static void pack(struct loader *l, struct cuda_matrix *matrix, struct cuda_pack order)
{
    if (!l->packs)
        return;
    order.outputs = matrix->outputs;
    order.columns = matrix->columns;
    matrix->packed = carve_take(&l->carve, cuda_pack_bytes(matrix->outputs, matrix->columns), 1);
    if (matrix->packed)
        note(l, cuda_pack(&l->b->copies, &order, matrix->rows, matrix->packed));
}

static struct cuda_matrix place_matrix(struct loader *l, const struct weight *weight,
                                       struct cuda_pack order)
{
    struct cuda_matrix matrix = place_rows(l, weight);

    pack(l, &matrix, order);
    return matrix;
}

/* One weight of every expert, one after another as `type`; NULL: they have none. `offset` is the
 * weight's in struct ffn. */
static void *place_stack(struct loader *l, const struct model *m, const struct layer *layer,
                         size_t offset, enum dtype type)
{
    const struct weight *first = (const void *)((const char *)layer->experts + offset);
    size_t bytes = dtype_bytes(type, (uint64_t)first->rows * first->columns);
    uint8_t *to, *at;

    if (first->rows == 0)
        return NULL;
    to = at = carve_take(&l->carve, m->expert_count, bytes);
    for (uint32_t i = 0; i < m->expert_count; i++) {
        const struct weight *weight = (const void *)((const char *)&layer->experts[i] + offset);

        list_parts(l, weight);
        for (uint32_t j = 0; j < weight->part_count && to; j++) {
            place_part(l, &weight->parts[j], weight->columns, type, at);
            at += dtype_bytes(type, (uint64_t)weight->parts[j].rows * weight->columns);
        }
    }
    return to;
}

static void place_mixture(struct loader *l, const struct model *m, const struct layer *from,
                          struct cuda_layer *to)
{
    enum dtype type = l->b->type;

    to->router = place_vector(l, &from->router);
    to->router_bias = place_vector(l, &from->router_bias);
    to->experts_gate_up = place_stack(l, m, from, offsetof(struct ffn, gate_up), type);
    to->experts_gate_up_bias = place_stack(l, m, from, offsetof(struct ffn, gate_up_bias), DT_F32);
    to->experts_down = place_stack(l, m, from, offsetof(struct ffn, down), type);
    to->experts_down_bias = place_stack(l, m, from, offsetof(struct ffn, down_bias), DT_F32);
    to->shared_gate_up = place_rows(l, &from->shared.gate_up);
    to->shared_down = place_rows(l, &from->shared.down);
    to->shared_gate = place_vector(l, &from->shared_gate);
}

static void place_latent(struct loader *l, const struct layer *from, struct cuda_layer *to)
{
    to->q_down = place_rows(l, &from->q_down);
    to->q_down_norm = place_vector(l, &from->q_down_norm);
    to->q_up = place_rows(l, &from->q_up);
    to->kv_down = place_rows(l, &from->kv_down);
    to->kv_down_norm = place_vector(l, &from->kv_down_norm);
    to->kv_up = place_rows(l, &from->kv_up);
}

/* What only the general path reads. */
static void place_layer_rest(struct loader *l, const struct layer *from, struct cuda_layer *to)
{
    to->attention_norm_bias = place_vector(l, &from->attention_norm_bias);
    to->out_bias = place_vector(l, &from->attention_out_bias);
    to->post_attention_norm = place_vector(l, &from->post_attention_norm);
    to->post_attention_norm_bias = place_vector(l, &from->post_attention_norm_bias);
    to->ffn_norm_bias = place_vector(l, &from->ffn_norm_bias);
    to->gate_up_bias = place_vector(l, &from->ffn.gate_up_bias);
    to->down_bias = place_vector(l, &from->ffn.down_bias);
    to->post_ffn_norm = place_vector(l, &from->post_ffn_norm);
    to->post_ffn_norm_bias = place_vector(l, &from->post_ffn_norm_bias);
    to->sinks = place_vector(l, &from->sinks);
}

static void place_rest(struct loader *l, const struct model *m, struct cuda_weights *weights)
{
    weights->positions = place_rows(l, &m->positions);
    weights->embedding_in = place_rows(l, &m->embedding_in);
    weights->embedding_out = place_rows(l, &m->embedding_out);
    weights->embedding_norm = place_vector(l, &m->embedding_norm);
    weights->embedding_norm_bias = place_vector(l, &m->embedding_norm_bias);
    weights->final_norm_bias = place_vector(l, &m->final_norm_bias);
    weights->head_bias = place_vector(l, &m->head_bias);
}

static void walk(struct loader *l, const struct model *m, struct cuda_weights *weights)
{
    const struct cuda_pack plain = {.order = CUDA_PACK_PLAIN};
    const struct cuda_pack gate_up = {.order = CUDA_PACK_GATE_UP, .ffn = m->ffn_width};
    const struct cuda_pack pairs = {.order = CUDA_PACK_PAIRS,
                                    .paired_rows = (m->heads + m->kv_heads) * m->head_size,
                                    .head_size = m->head_size,
                                    .rotary_size = m->ropes[0].size,
                                    .rotary_halves = m->rope == ROPE_HALVES};

    for (uint32_t i = 0; i < m->layer_count; i++) {
        const struct layer *from = &m->layers[i];
        struct cuda_layer scratch, *to = weights->layers ? &weights->layers[i] : &scratch;

        to->attention_norm = place_vector(l, &from->attention_norm);
        to->qkv = place_matrix(l, &from->qkv, l->b->fuses_rotary ? pairs : plain);
        to->qkv_bias = place_vector(l, &from->qkv_bias);
        to->q_norm = place_vector(l, &from->q_norm);
        to->k_norm = place_vector(l, &from->k_norm);
        to->out = place_matrix(l, &from->attention_out, plain);
        to->ffn_norm = place_vector(l, &from->ffn_norm);
        to->gate_up = place_matrix(l, &from->ffn.gate_up, gate_up);
        to->down = place_matrix(l, &from->ffn.down, plain);
        place_layer_rest(l, from, to);
        if (from->experts)
            place_mixture(l, m, from, to);
        place_latent(l, from, to);
    }
    weights->final_norm = place_vector(l, &m->final_norm);
    place_rest(l, m, weights);
    weights->embedding = place_rows(l, &m->embedding);
    if (weight_part_same(&m->head.parts[0], &m->embedding.parts[0]))
        weights->head = weights->embedding; /* tied */
    else
        weights->head = place_rows(l, &m->head);
    pack(l, &weights->head, plain);
}

static uint64_t count_bytes(const struct backend *b, const struct model *model, bool packs,
                            struct weight_list *list)
{
    struct loader loader = {.b = (struct backend *)b, .packs = packs, .list = list};
    struct cuda_weights weights = {0};

    walk(&loader, model, &weights);
    return loader.carve.bytes;
}

uint64_t cuda_weights_bytes(const struct backend *b, const struct model *model, bool packs)
{
    return count_bytes(b, model, packs, NULL);
}

uint64_t cuda_weights_step_bytes(const struct backend *b, const struct model *model)
{
    uint64_t bytes = cuda_weights_bytes(b, model, false);

    if (weight_part_same(&model->head.parts[0], &model->embedding.parts[0]))
        return bytes;
    return bytes - (uint64_t)model->embedding.rows * model->embedding.columns * b->element_bytes;
}

/* --- loading ------------------------------------------------------------------------------- */

static int open_pieces(struct loader *l, struct fault *fault)
{
    struct cuda_context *context = &l->b->context;
    uint32_t threads = cpu_threads_available();
    int r;

    r = pool_open(threads < FILLING_THREADS_MAX ? threads : FILLING_THREADS_MAX, &l->pool, fault);

    for (int i = 0; i < PIECES && r == 0; i++) {
        void *mapped;

        r = cuda_pinned_allocate(context, PIECE_BYTES, &l->host[i], &mapped);
        if (r == 0)
            r = cuda_allocate(context, PIECE_BYTES, &l->staging[i]);
        if (r == 0)
            r = cuda_event_open(context, false, &l->free[i]);
    }
    return r;
}

static void close_pieces(struct loader *l)
{
    weight_prefetch_close(l->prefetch);
    pool_close(l->pool);
    for (int i = 0; i < PIECES; i++) {
        cuda_pinned_release(&l->b->context, l->host[i]);
        cuda_release(&l->b->context, l->staging[i]);
        cuda_event_close(&l->b->context, l->free[i]);
    }
}

int cuda_weights_load(struct backend *b, const struct model *model, struct fault *fault)
{
    struct loader loader = {
        .b = b, .packs = b->packs, .total = model->weight_bytes, .began_ns = clock_now()};
    struct weight_list list = {0};
    uint64_t bytes;
    int r;

    b->weights.layers = calloc(model->layer_count, sizeof *b->weights.layers);
    if (!b->weights.layers)
        return fault_set(fault, E_MEMORY, "out of memory for %u layers", model->layer_count);
    b->weights.layer_count = model->layer_count;
    bytes = count_bytes(b, model, b->packs, &list);
    loader.prefetch = weight_prefetch_open(&list);
    r = cuda_allocate(&b->context, bytes, &b->weights.region);
    if (r == 0)
        r = open_pieces(&loader, fault);
    if (r == 0) {
        loader.carve.base = b->weights.region;
        walk(&loader, model, &b->weights);
        r = loader.result;
    }
    if (r == 0)
        r = cuda_stream_synchronize(&b->copies);
    close_pieces(&loader);
    if (r == E_MEMORY)
        return fault_set(fault, r,
                         "the GPU has no room left for the weights: other programs took memory "
                         "since it was planned");
    if (r == 0 && b->progress.report)
        b->progress.report(b->progress.data, "loading weights", loader.total, loader.total,
                           clock_seconds(clock_now() - loader.began_ns));
    return r;
}

void cuda_weights_close(struct backend *b)
{
    cuda_release(&b->context, b->weights.region);
    free(b->weights.layers);
    b->weights = (struct cuda_weights){0};
}
