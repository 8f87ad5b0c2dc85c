/* cuda_buckets.c -- the sizes of decode steps, and a captured graph for each.
 *
 * A step of n sequences runs as the smallest bucket that holds them, the rest padding. Sizes are
 * close where the products' time depends on them: up to 8 rows cost the same, then tiles of 8, then
 * what cuBLAS rounds to. */
#include <stdio.h>

#include "config/base/clock.h"
#include "engine/cuda_internal.h"
#include "engine/forward.h"

static uint32_t next_size(uint32_t rows)
{
    if (rows < 8)
        return rows * 2;
    return rows + (rows < 64 ? 8 : rows < 128 ? 16 : rows < 256 ? 32 : rows < 1024 ? 64 : 512);
}

void cuda_buckets_list(struct backend *b)
{
    uint32_t most = b->limits.batch.rows;

    b->bucket_count = 0;
    for (uint32_t rows = 1; rows < most; rows = next_size(rows))
        b->buckets[b->bucket_count++] = rows;
    must(b->bucket_count < CUDA_BUCKETS_MAX);
    b->buckets[b->bucket_count++] = most;
}

uint32_t cuda_bucket_find(const struct backend *b, uint32_t rows)
{
    uint32_t i = 0;

    while (i < b->bucket_count && b->buckets[i] < rows)
        i++;
    return i;
}

uint32_t cuda_rows_padded(uint32_t rows)
{
    uint32_t step = rows <= 64 ? 8 : rows <= 256 ? 32 : CUDA_ROW_STEP;

    return (rows + step - 1) / step * step;
}

/* --- cuBLAS's choices ---------------------------------------------------------------------- */

static int measure_product(struct backend *b, const struct cublas_product *product)
{
    return cublas_measure(b->cublas, &b->lanes[0].stream, product, b->lanes[0].workspace);
}

/* The products of one layer, and the head, for so many rows. */
static int measure_rows(struct backend *b, uint32_t rows)
{
    const struct cuda_lane *lane = &b->lanes[0];
    const struct cuda_layer *layer = &b->weights.layers[b->weights.layer_count / 2];
    float *branch = b->general ? lane->branch : lane->residual;
    const struct {
        const struct cuda_matrix *matrix;
        const void *x;
        void *out;
        bool residual, logits;
    } products[] = {
        {&layer->qkv, lane->x, lane->qkv, false, false},
        {&layer->out, b->general ? lane->attended : lane->x, branch, !b->general, false},
        {&layer->gate_up, lane->x, lane->gate_up, false, false},
        {&layer->down, lane->hidden, branch, !b->general, false},
        {&b->weights.head, lane->x, lane->logits, false, true},
    };
    int r = 0;

    for (size_t i = 0; i < sizeof products / sizeof *products && r == 0; i++) {
        const struct cuda_matrix *matrix = products[i].matrix;
        bool wide = products[i].residual || products[i].logits || b->general;
        struct cublas_product product = {
            .type = b->type,
            .out_type = wide ? DT_F32 : b->type,
            .accumulate = products[i].residual,
            .rows = rows,
            .outputs = matrix->outputs,
            .columns = matrix->columns,
            .out_stride = products[i].logits ? b->logits_stride : matrix->outputs,
            .w = matrix->rows,
            .x = products[i].x,
            .out = products[i].out,
        };

        if (products[i].logits && rows > b->head_rows)
            continue;
        r = measure_product(b, &product);
    }
    return r;
}

int cuda_buckets_measure(struct backend *b, struct fault *fault)
{
    uint64_t began = clock_now();
    int r = 0;

    /* Only the sizes that will run through cuBLAS in graphs; larger ones take its first proposal.
     */
    for (uint32_t i = 0; i < b->bucket_count && r == 0; i++)
        if (!b->packs || b->buckets[i] > CUDA_SKINNY_TOKENS) {
            r = measure_rows(b, cuda_rows_padded(b->buckets[i]));
            if (b->progress.report)
                b->progress.report(b->progress.data, "choosing products", i + 1, b->bucket_count,
                                   clock_seconds(clock_now() - began));
        }
    (void)fault;
    return r;
}

/* --- graphs -------------------------------------------------------------------------------- */

static void enqueue(struct backend *b, struct cuda_lane *lane, uint32_t rows)
{
    b->result = 0;
    b->captured = lane;
    lane->active = lane->decodes = true;
    lane->replayed = false;
    lane->fused = b->packs && rows <= CUDA_SKINNY_TOKENS;
    lane->tokens = lane->fused ? rows : cuda_rows_padded(rows);
    lane->outputs = lane->tokens;
    lane->first_decode = 0;
    lane->decode_segments = lane->tokens;
    lane->tile_count = 0;
    cuda_op_prepare(b, lane);
    forward_layers(&backend_cuda, b, b->model);
}

/* A step of padding alone, so that cuBLAS loads its code for products that were not measured: that
 * may not happen while a graph is captured. The step does not count. */
static int warm(struct backend *b, struct cuda_lane *lane, uint32_t rows)
{
    *lane->slots[0].counts = (struct cuda_step_counts){0};
    enqueue(b, lane, rows);
    cuda_note(b, cuda_fill(&lane->stream, lane->step_counter, 0, sizeof *lane->step_counter));
    cuda_note(b, cuda_stream_synchronize(&lane->stream));
    return b->result;
}

static int capture(struct backend *b, struct cuda_lane *lane, uint32_t bucket)
{
    int r = b->general ? warm(b, lane, b->buckets[bucket]) : 0;

    if (r == 0)
        r = cuda_capture_begin(&lane->stream);
    if (r < 0)
        return r;
    enqueue(b, lane, b->buckets[bucket]);
    if (!b->options.host_sampling && !b->options.sampling_stream)
        cuda_op_sample(b, lane, 0, lane->outputs);
    lane->active = false;
    b->captured = NULL;
    r = cuda_capture_end(&lane->stream, &lane->graphs[bucket]);
    return b->result < 0 ? b->result : r;
}

int cuda_buckets_capture(struct backend *b, struct fault *fault)
{
    uint32_t total = b->bucket_count * b->decode_lanes, done = 0;
    uint64_t began = clock_now();
    int r = 0;

    (void)fault;
    for (uint32_t i = 0; i < b->decode_lanes && r == 0; i++)
        for (uint32_t j = 0; j < b->bucket_count && r == 0; j++) {
            r = capture(b, &b->lanes[i], j);
            done++;
            if (b->progress.report)
                b->progress.report(b->progress.data, "capturing graphs", done, total,
                                   clock_seconds(clock_now() - began));
        }
    return r;
}

void cuda_buckets_close(struct backend *b)
{
    for (uint32_t i = 0; i < CUDA_LANES_MAX; i++)
        for (uint32_t j = 0; j < CUDA_BUCKETS_MAX; j++)
            cuda_graph_close(&b->context, b->lanes[i].graphs[j]);
}
