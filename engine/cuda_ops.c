/* cuda_ops.c -- the operations of a step: which kernels each one launches.
 *
 *     few rows (up to 8, decode steps; capability 9.0)       more rows, or prefill
 *     qkv product: norm, rotary, pages fused in              norm | product | bias, rotary, pages
 *     attention                                              attention
 *     out product: residual, next norm's squares fused in    product onto the residual
 *     gate and up product: norm, SwiGLU fused in             norm | product | SwiGLU
 *     down product: as out                                   product onto the residual
 *
 * On the left x travels between kernels in the order of fragments, on the right in rows. An
 * operation does its part for every lane that has tokens in this step and does not replay a graph;
 * while a graph is captured, for the captured lane alone. */
#include "engine/cuda_internal.h"

/* The lanes an operation works for: a loop body follows. */
static struct cuda_lane *next_lane(struct backend *b, uint32_t *index)
{
    while (*index < b->lane_count) {
        struct cuda_lane *lane = &b->lanes[(*index)++];

        if (lane->active && !lane->replayed && (!b->captured || b->captured == lane))
            return lane;
    }
    return NULL;
}

#define EACH_LANE(lane_) \
    for (uint32_t index_ = 0; ((lane_) = next_lane(b, &index_)) != NULL && b->result == 0;)

static struct cuda_rows rows_of(const struct backend *b, const struct cuda_lane *lane)
{
    return (struct cuda_rows){.type = b->type,
                              .tokens = lane->tokens,
                              .width = b->model->width,
                              .epsilon = b->model->norm_epsilon,
                              .residual = lane->residual,
                              .placed = lane->prepare.placed.tokens};
}

/* Which of the lane's fragment buffers holds what. */
enum { FROM_RESIDUAL, FROM_ATTENTION, FROM_ACTIVATION };

static uint32_t square_count(const struct backend *b)
{
    return (b->model->width + 15) / 16;
}

/* --- products ------------------------------------------------------------------------------ */

static void product(struct backend *b, struct cuda_lane *lane, const struct cuda_matrix *matrix,
                    const void *x, void *out, uint32_t rows, bool onto_residual)
{
    struct cublas_product product = {
        .type = b->type,
        .out_type = onto_residual ? DT_F32 : b->type,
        .accumulate = onto_residual,
        .rows = rows,
        .outputs = matrix->outputs,
        .columns = matrix->columns,
        .out_stride = matrix->outputs,
        .w = matrix->rows,
        .x = x,
        .out = out,
    };

    cuda_note(b, cublas_run(b->cublas, &lane->stream, &product, lane->workspace));
}

/* What every fused product of the lane's step has in common. */
static struct cuda_skinny skinny_of(const struct backend *b, const struct cuda_lane *lane,
                                    enum cuda_skinny_kind kind, const struct cuda_matrix *matrix,
                                    int from)
{
    struct cuda_skinny skinny = {
        .kind = kind,
        .type = b->type,
        .tokens = lane->tokens,
        .outputs = matrix->outputs,
        .columns = matrix->columns,
        .weights = matrix->packed,
        .x = lane->fragments[from],
        .partials = lane->skinny_scratch,
        .residual = lane->residual,
    };

    if (from == FROM_RESIDUAL) {
        skinny.squares = lane->squares;
        skinny.squares_count = square_count(b);
        skinny.width = (float)b->model->width;
        skinny.epsilon = b->model->norm_epsilon;
    }
    return skinny;
}

/* Onto the residual, and what the next product reads: its norm's weights are `next_gamma`. */
static void skinny_residual(struct backend *b, struct cuda_lane *lane,
                            const struct cuda_matrix *matrix, int from, const float *next_gamma)
{
    struct cuda_skinny skinny = skinny_of(b, lane, CUDA_SKINNY_RESIDUAL, matrix, from);

    skinny.next_gamma = next_gamma;
    skinny.next_x = lane->fragments[FROM_RESIDUAL];
    skinny.next_squares = lane->squares;
    cuda_note(b, cuda_skinny(&lane->stream, &skinny));
}

/* --- the operations ------------------------------------------------------------------------ */

static struct cuda_attention attention_of(const struct backend *b, const struct cuda_lane *lane,
                                          uint32_t layer)
{
    const struct model *m = b->model;

    return (struct cuda_attention){
        .type = b->type,
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_size = m->head_size,
        .scale = m->attention_scale,
        .q = lane->q,
        .out = b->general    ? lane->attended
               : lane->fused ? lane->fragments[FROM_ATTENTION]
                             : lane->x,
        .out_tiles = lane->fused,
        .pages = (uint8_t *)b->kv + (size_t)layer * b->limits.page_count * b->page_bytes,
        .page_table = b->page_table,
        .pages_per_row = b->limits.pages_per_row,
        .segments = lane->prepare.placed.segments,
    };
}

static struct cuda_qkv qkv_of(const struct backend *b, const struct cuda_lane *lane, uint32_t layer)
{
    const struct cuda_layer *weights = &b->weights.layers[layer];
    const struct cuda_attention attention = attention_of(b, lane, layer);

    return (struct cuda_qkv){
        .rows = rows_of(b, lane),
        .heads = attention.heads,
        .kv_heads = attention.kv_heads,
        .head_size = attention.head_size,
        .qkv = lane->qkv,
        .bias = weights->qkv_bias,
        .q_norm = weights->q_norm,
        .k_norm = weights->k_norm,
        .rotary = {.size = b->model->ropes[0].size,
                   .halves = b->model->rope == ROPE_HALVES,
                   .table = lane->rotary},
        .q = lane->q,
        .pages = (void *)attention.pages,
        .page_table = attention.page_table,
        .pages_per_row = attention.pages_per_row,
    };
}

void cuda_op_prepare(struct backend *b, struct cuda_lane *lane)
{
    struct cuda_prepare prepare = lane->prepare;

    prepare.tokens = lane->tokens;
    prepare.segments = lane->first_decode + lane->decode_segments;
    prepare.outputs = lane->outputs;
    cuda_note(b, cuda_prepare(&lane->stream, &prepare));
}

void cuda_op_embed(struct backend *b)
{
    struct cuda_lane *lane;

    EACH_LANE(lane)
    {
        struct cuda_embed embed = {
            .rows = rows_of(b, lane),
            .table = b->weights.embedding.rows,
            .frequencies = b->frequencies,
            .rotary_pairs = b->model->ropes[0].size / 2,
            .rotary = lane->rotary,
            .gamma = b->weights.layers[0].attention_norm,
            .tiles = lane->fused,
            .x = lane->fragments[FROM_RESIDUAL],
            .squares = lane->squares,
            .step = lane->step_counter,
        };
        const struct cuda_attention attention = attention_of(b, lane, 0);

        if (b->general)
            cuda_general_embed_lane(b, lane);
        else
            cuda_note(b, cuda_embed(&lane->stream, &embed, true));
        if (lane->decode_segments > 0 && (!b->general || cuda_general_plans(b))) {
            struct cuda_attention decode = attention;

            decode.segments += lane->first_decode;
            cuda_note(b, cuda_attention_plan(&lane->stream, &decode, lane->decode_segments, false,
                                             lane->attention_scratch, true));
        }
    }
}

void cuda_op_attention_in(struct backend *b, uint32_t layer)
{
    const struct cuda_layer *weights = &b->weights.layers[layer];
    struct cuda_lane *lane;

    EACH_LANE(lane)
    {
        struct cuda_qkv qkv = qkv_of(b, lane, layer);

        if (b->general) {
            cuda_general_attention_in(b, lane, layer);
            continue;
        }
        if (lane->fused) {
            struct cuda_skinny skinny =
                skinny_of(b, lane, b->fuses_rotary ? CUDA_SKINNY_QKV : CUDA_SKINNY_PLAIN,
                          &weights->qkv, FROM_RESIDUAL);

            skinny.out = lane->qkv;
            skinny.out_stride = weights->qkv.outputs;
            skinny.qkv = &qkv;
            cuda_note(b, cuda_skinny(&lane->stream, &skinny));
        } else {
            const struct cuda_rows rows = rows_of(b, lane);

            cuda_note(b, cuda_norm(&lane->stream, &rows, weights->attention_norm, NULL,
                                   lane->tokens, lane->x));
            product(b, lane, &weights->qkv, lane->x, lane->qkv, lane->tokens, false);
        }
        if (!lane->fused || !b->fuses_rotary)
            cuda_note(b, cuda_qkv(&lane->stream, &qkv, true));
    }
}

void cuda_op_attention(struct backend *b, uint32_t layer)
{
    struct cuda_lane *lane;

    EACH_LANE(lane)
    {
        struct cuda_attention attention = attention_of(b, lane, layer);

        if (b->general && !cuda_general_attends_fast(b, layer)) {
            cuda_general_attention(b, lane, layer);
            continue;
        }
        if (lane->tile_count > 0)
            cuda_note(b, cuda_attention_prefill(&lane->stream, &attention, lane->mapped_tiles,
                                                lane->tile_count));
        attention.segments += lane->first_decode;
        if (lane->decode_segments > 0)
            cuda_note(b, cuda_attention_decode(&lane->stream, &attention, lane->decode_segments,
                                               lane->attention_scratch, true));
    }
}

void cuda_op_attention_out(struct backend *b, uint32_t layer)
{
    const struct cuda_layer *weights = &b->weights.layers[layer];
    struct cuda_lane *lane;

    EACH_LANE(lane)
    {
        if (b->general)
            cuda_general_attention_out(b, lane, layer);
        else if (lane->fused)
            skinny_residual(b, lane, &weights->out, FROM_ATTENTION, weights->ffn_norm);
        else
            product(b, lane, &weights->out, lane->x, lane->residual, lane->tokens, true);
    }
}

void cuda_op_mlp(struct backend *b, uint32_t layer)
{
    const struct cuda_layer *weights = &b->weights.layers[layer];
    const float *next_gamma = layer + 1 < b->weights.layer_count
                                  ? b->weights.layers[layer + 1].attention_norm
                                  : b->weights.final_norm;
    struct cuda_lane *lane;

    EACH_LANE(lane)
    {
        const struct cuda_rows rows = rows_of(b, lane);

        if (b->general) {
            cuda_general_mlp(b, lane, layer);
            continue;
        }
        if (lane->fused) {
            struct cuda_skinny skinny =
                skinny_of(b, lane, CUDA_SKINNY_SWIGLU, &weights->gate_up, FROM_RESIDUAL);

            skinny.next_x = lane->fragments[FROM_ACTIVATION];
            cuda_note(b, cuda_skinny(&lane->stream, &skinny));
            skinny_residual(b, lane, &weights->down, FROM_ACTIVATION, next_gamma);
            continue;
        }
        cuda_note(b,
                  cuda_norm(&lane->stream, &rows, weights->ffn_norm, NULL, lane->tokens, lane->x));
        product(b, lane, &weights->gate_up, lane->x, lane->gate_up, lane->tokens, false);
        cuda_note(b, cuda_swiglu(&lane->stream, b->type, lane->tokens, b->model->ffn_width,
                                 lane->gate_up, lane->hidden));
        product(b, lane, &weights->down, lane->hidden, lane->residual, lane->tokens, true);
    }
}

void cuda_op_mixture(struct backend *b, uint32_t layer)
{
    struct cuda_lane *lane;

    EACH_LANE(lane)
    cuda_general_mixture(b, lane, layer);
}

/* --- logits and the draw ------------------------------------------------------------------- */

void cuda_op_head_chunk(struct backend *b, struct cuda_lane *lane, uint32_t first)
{
    const struct cuda_matrix *head = &b->weights.head;
    uint32_t count = lane->outputs - first < b->head_rows ? lane->outputs - first : b->head_rows;

    if (b->general) {
        cuda_general_head(b, lane, first, count);
    } else if (lane->fused) {
        struct cuda_skinny skinny = skinny_of(b, lane, CUDA_SKINNY_LOGITS, head, FROM_RESIDUAL);

        skinny.out = lane->logits;
        skinny.out_stride = b->logits_stride;
        cuda_note(b, cuda_skinny(&lane->stream, &skinny));
    } else {
        const struct cuda_rows rows = rows_of(b, lane);
        struct cublas_product logits = {
            .type = b->type,
            .out_type = DT_F32,
            .rows = count,
            .outputs = head->outputs,
            .columns = head->columns,
            .out_stride = b->logits_stride,
            .w = head->rows,
            .x = lane->x,
            .out = lane->logits,
        };

        cuda_note(b, cuda_norm(&lane->stream, &rows, b->weights.final_norm,
                               lane->prepare.placed.outputs + first, count, lane->x));
        cuda_note(b, cublas_run(b->cublas, &lane->stream, &logits, lane->workspace));
    }
}

void cuda_op_head(struct backend *b)
{
    struct cuda_lane *lane;

    EACH_LANE(lane)
    {
        if (lane->outputs > 0)
            cuda_op_head_chunk(b, lane, 0);
    }
}

void cuda_op_sample(struct backend *b, struct cuda_lane *lane, uint32_t first, uint32_t count)
{
    struct cuda_sample sample = {
        .vocabulary = b->limits.vocabulary,
        .logits_stride = b->logits_stride,
        .logits = lane->logits,
        .outputs = lane->prepare.placed.outputs + first,
        .samplings = b->samplings,
        .rows = b->rows,
        .biases = b->biases,
        .bias_max = CUDA_BIAS_MAX,
        .generated_counts = b->generated_counts,
        .prompt_seen = b->prompt_seen,
        .masks = b->masks,
        .mask_steps = b->mask_steps,
        .mask_words = (b->limits.vocabulary + 31) / 32,
        .mapped_choices = lane->mapped_choices + first,
        .choices_stride = b->tokens_max,
        .step = lane->step_counter,
    };

    cuda_note(b, cuda_sample(&lane->stream, &sample, count, lane->sample_scratch, true));
}
