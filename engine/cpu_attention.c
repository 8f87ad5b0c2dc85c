/* cpu_attention.c -- a layer's attention on the CPU: three runs of the pool. See cpu_step.c; what
 * latent attention does otherwise is in cpu_latent.c. */
#include <string.h>

#include "engine/cpu_product.h"

uint8_t *cpu_layer_pages(const struct backend *b)
{
    size_t page_bytes = b->kv_shape.kv_heads * kv_block_bytes(&b->kv_shape);

    return b->kv.data + b->layer_index * (b->page_count * page_bytes);
}

static uint32_t up_to_groups(uint32_t rows)
{
    return (rows + GROUP_ROWS - 1) / GROUP_ROWS * GROUP_ROWS;
}

void cpu_norm_values(const struct backend *b, const struct pool_seat *seat, const float *gain,
                     uint32_t count, float *values)
{
    const struct cpu_norm norm = {.gain = gain};
    float *row = b->seats[seat->index].row;

    memset(row, 0, padded_to_blocks(count) * sizeof *row);
    memcpy(row, values, count * sizeof *row);
    cpu_norm_row(b, &norm, count, row, row);
    memcpy(values, row, count * sizeof *row);
}

/* norm: q_norm or k_norm, of all heads; head: which of them this is. */
static void finish_head(const struct backend *b, const struct pool_seat *seat, float *values,
                        const float *norm, uint32_t head, const struct rotary *rotary, float scale)
{
    uint32_t size = b->model->head_size;

    if (norm && b->model->qk_norm == QK_NORM_HEAD)
        cpu_norm_values(b, seat, norm, size, values);
    if (norm && b->model->qk_norm == QK_NORM_HEADS)
        cpu_norm_values(b, seat, norm + head * size, size, values);
    b->kernels->rotate(values, size, rotary, scale);
}

struct rotary cpu_rotary(const struct backend *b, uint32_t token)
{
    const struct model *m = b->model;
    uint32_t rope = m->layers[b->layer_index].rope, size = m->ropes[0].size;
    struct rotary rotary = {.halves = m->rope == ROPE_HALVES};

    if (rope == ROPE_NONE)
        return rotary;
    rotary.size = size;
    rotary.cosines = b->rotary + ((size_t)token * m->rope_count + rope) * 2 * size;
    rotary.sines = rotary.cosines + size;
    return rotary;
}

/* Query heads of a token, and keys and values into its page; heads first .. end - 1, queries before
 * KV heads. */
static void finish_token(const struct backend *b, const struct pool_seat *seat, uint32_t token,
                         uint32_t first, uint32_t end)
{
    const struct model *m = b->model;
    float *q = cpu_row(b->qkv, b->strides.qkv, token);
    float *k = q + up_to_groups(m->heads * m->head_size);
    float *v = k + up_to_groups(m->kv_heads * m->head_size);
    struct rotary rotary = cpu_rotary(b, token);
    const struct work_segment *segment = cpu_segment(b->work, token);
    uint32_t position = b->work->positions[token];
    size_t page = segment->pages[position / PAGE_TOKENS];

    for (uint32_t i = first; i < end; i++) {
        uint32_t kv_head = i - m->heads;
        uint8_t *block;

        if (i < m->heads) {
            finish_head(b, seat, q + i * m->head_size, b->layer->q_norm, i, &rotary,
                        m->attention_scale);
            continue;
        }
        finish_head(b, seat, k + kv_head * m->head_size, b->layer->k_norm, kv_head, &rotary, 1);
        block = cpu_layer_pages(b) + (page * m->kv_heads + kv_head) * kv_block_bytes(&b->kv_shape);
        b->kernels->kv_write(&b->kv_shape, block, position % PAGE_TOKENS,
                             k + kv_head * m->head_size, v + kv_head * m->head_size);
    }
}

/* All heads of a token together, before they are finished one by one. */
static void norm_wide(const struct backend *b, const struct pool_seat *seat)
{
    const struct model *m = b->model;
    uint32_t q_width = m->heads * m->head_size, k_width = m->kv_heads * m->head_size;

    for (uint32_t token = seat->index; token < b->work->token_count; token += seat->count) {
        float *q = cpu_row(b->qkv, b->strides.qkv, token);

        cpu_norm_values(b, seat, b->layer->q_norm, q_width, q);
        cpu_norm_values(b, seat, b->layer->k_norm, k_width, q + up_to_groups(q_width));
    }
    pool_barrier(seat);
}

static void latent_in_share(void *data, const struct pool_seat *seat)
{
    cpu_latent_in(data, seat);
}

static void attention_in_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct model *m = b->model;
    uint32_t tokens = b->work->token_count, heads = m->heads + m->kv_heads;
    struct cpu_source source = {.rows = b->x,
                                .stride = b->strides.width,
                                .row_count = tokens,
                                .columns = m->width,
                                .norm = m->norms_stream ? NULL : &b->layer->attention_norm,
                                .forms = cpu_forms(b, &b->layer->qkv, tokens)};
    struct activations x = cpu_prepare(b, seat, &source);
    uint64_t first, end;

    cpu_product_share(b, seat, cpu_work(b, 0, tokens), &b->layer->qkv, &x, b->qkv, b->strides.qkv,
                      false);
    pool_barrier(seat);
    if (m->qk_norm == QK_NORM_WIDE)
        norm_wide(b, seat);
    pool_share(seat, (uint64_t)tokens * heads, 1, &first, &end);
    while (first < end) {
        uint32_t token = (uint32_t)(first / heads), head = (uint32_t)(first % heads);
        uint64_t left = end - first;
        uint32_t last = left < heads - head ? head + (uint32_t)left : heads;

        finish_token(b, seat, token, head, last);
        first += last - head;
    }
}

/* What a segment's attention costs, in keys read by all its queries of all heads. */
static uint64_t segment_cost(const struct backend *b, const struct work_segment *segment)
{
    const struct model *m = b->model;
    uint64_t keys = segment->position + (segment->token_count + 1) / 2 + PAGE_TOKENS;
    uint32_t window = m->layers[b->layer_index].window;

    if (window > 0 && keys > window)
        keys = window;
    return (uint64_t)m->heads * segment->token_count * keys;
}

/* Rows first .. end - 1 of a segment: (KV head, token, head of the group), the last fastest. */
static void attend_rows(const struct backend *b, const struct pool_seat *seat,
                        const struct work_segment *segment, uint64_t first, uint64_t end)
{
    const struct model *m = b->model;
    uint32_t group = m->heads / m->kv_heads;
    uint64_t rows = (uint64_t)segment->token_count * group; /* of one KV head */
    struct attend attend = {
        .shape = &b->kv_shape,
        .pages = cpu_layer_pages(b),
        .page_table = segment->pages,
        .group = group,
        .position = segment->position,
        .queries = cpu_row(b->qkv, b->strides.qkv, segment->first_token),
        .query_stride = b->strides.qkv,
        .out = cpu_row(b->attention, b->strides.attention, segment->first_token),
        .out_stride = b->strides.attention,
        .window = m->layers[b->layer_index].window,
        .keys = m->encoder ? segment->position + segment->token_count : 0,
        .softcap = m->attention_softcap,
        .slopes = m->alibi,
        .sinks = b->layer->sinks,
    };

    if (m->attention == ATTENTION_LATENT) {
        attend.queries = cpu_row(b->absorbed, b->strides.absorbed, segment->first_token);
        attend.query_stride = b->strides.absorbed;
        attend.out = cpu_row(b->summed, b->strides.summed, segment->first_token);
        attend.out_stride = b->strides.summed;
    }
    while (first < end) {
        uint64_t row = first % rows, count = rows - row;

        if (count > ATTEND_ROWS_MAX)
            count = ATTEND_ROWS_MAX;
        if (count > end - first)
            count = end - first;
        attend.kv_head = (uint32_t)(first / rows);
        b->kernels->attend(&attend, (uint32_t)row, (uint32_t)count, &b->seats[seat->index].kernel);
        first += count;
    }
}

static void attention_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct work *work = b->work;
    uint64_t total = 0, before = 0, low, high;

    for (uint32_t i = 0; i < work->segment_count; i++)
        total += segment_cost(b, &work->segments[i]);
    pool_share(seat, total, 1, &low, &high);
    for (uint32_t i = 0; i < work->segment_count && before < high; i++) {
        const struct work_segment *segment = &work->segments[i];
        uint64_t cost = segment_cost(b, segment);
        uint64_t rows = (uint64_t)b->model->heads * segment->token_count;
        uint64_t from = low > before ? low - before : 0;
        uint64_t to = high < before + cost ? high - before : cost;

        /* A border inside a row belongs to the row's end: neighbours round alike. */
        if (from < cost)
            attend_rows(b, seat, segment, (from * rows + cost - 1) / cost,
                        (to * rows + cost - 1) / cost);
        before += cost;
    }
}

static void attention_out_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    struct cpu_source source = {.rows = b->attention,
                                .stride = b->strides.attention,
                                .row_count = b->work->token_count,
                                .columns = b->model->heads * b->model->value_size,
                                .forms = cpu_forms(b, &b->layer->out, b->work->token_count)};
    struct activations x;

    if (b->model->attention == ATTENTION_LATENT)
        cpu_latent_out(b, seat);
    x = cpu_prepare(b, seat, &source);
    cpu_add_branch(b, seat, 0, &b->layer->out, &x, &b->layer->post_attention_norm,
                   &b->layer->attention_norm);
}

void cpu_attention_in(struct backend *b, uint32_t layer)
{
    cpu_run_layer(b, layer,
                  b->model->attention == ATTENTION_LATENT ? latent_in_share : attention_in_share);
}

void cpu_attention(struct backend *b, uint32_t layer)
{
    cpu_run_layer(b, layer, attention_share);
}

void cpu_attention_out(struct backend *b, uint32_t layer)
{
    cpu_run_layer(b, layer, attention_out_share);
}
