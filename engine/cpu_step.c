/* cpu_step.c -- the operations of a step on the CPU.
 *
 * Each operation is one run of the pool, in which every thread does its share of each phase:
 *
 *     attention_in    norm, inputs | q k v products | per head: bias, norm, rotary, KV pages
 *     attention       queries x KV heads, divided by how much context they see
 *     attention_out   inputs | product onto x
 *     mlp             norm, inputs | gate and up, activation, inputs of down | down onto x
 *     head            norm, inputs | product, best of each piece of the vocabulary
 *
 * "|" is a barrier. With one or two rows each thread prepares the inputs for itself, which is
 * cheaper than dividing them and waiting. */
#include <math.h>
#include <string.h>

#include "engine/cpu_internal.h"

static float *row_of(float *rows, size_t stride, uint32_t row)
{
    return rows + row * stride;
}

static unsigned form_of(const struct backend *b, const struct packed *w, uint32_t rows)
{
    return b->kernels->form(w->pack, b->precision, rows);
}

static unsigned forms_of(const struct backend *b, const struct cpu_matrix *matrix, uint32_t rows)
{
    unsigned forms = 0;

    for (uint32_t i = 0; i < matrix->part_count; i++)
        forms |= form_of(b, &matrix->parts[i], rows);
    return forms;
}

/* --- inputs -------------------------------------------------------------------------------- */

/* What goes into a product. */
struct source {
    const float *rows;
    size_t stride;
    const uint32_t *indices; /* which rows; NULL: all in order */
    uint32_t row_count;
    uint32_t columns;
    const float *gamma; /* NULL: no norm */
    unsigned forms;
};

static void prepare_row(const struct backend *b, const struct pool_seat *seat,
                        const struct source *source, const struct activations *x, uint32_t row)
{
    const float *values =
        source->rows + (source->indices ? source->indices[row] : row) * source->stride;

    if (source->gamma) {
        float *normed = b->seats[seat->index].row;

        b->kernels->norm(values, source->gamma, source->columns, b->model->norm_epsilon, normed);
        values = normed;
    }
    b->kernels->put(x, row, 0, x->blocks, values);
}

/* By every seat. Returns (by value: the memory is shared, the shape is this product's) what the
 * product reads. */
static struct activations prepare(const struct backend *b, const struct pool_seat *seat,
                                  const struct source *source)
{
    bool own = source->row_count <= OWN_ROWS;
    struct activations x = own ? b->seats[seat->index].own : b->input;
    uint32_t step = own ? 1 : seat->count;

    x.rows = source->row_count;
    x.blocks = (uint32_t)(padded_to_blocks(source->columns) / BLOCK_COLUMNS);
    x.forms = source->forms;
    for (uint32_t row = own ? 0 : seat->index; row < x.rows; row += step)
        prepare_row(b, seat, source, &x, row);
    if (!own)
        pool_barrier(seat);
    return x;
}

/* Groups first .. end - 1 of a matrix of several parts. y is the first group's output. */
static void product(const struct backend *b, const struct pool_seat *seat,
                    const struct cpu_matrix *matrix, uint64_t first, uint64_t end,
                    const struct activations *x, float *y, size_t stride, bool add)
{
    uint64_t part_first = 0;

    for (uint32_t i = 0; i < matrix->part_count; i++) {
        const struct packed *part = &matrix->parts[i];
        uint64_t part_end = part_first + part->groups;
        uint64_t from = first > part_first ? first : part_first;
        uint64_t to = end < part_end ? end : part_end;

        if (from < to)
            cpu_product(b->kernels, part, (uint32_t)(from - part_first), (uint32_t)(to - from), x,
                        y + from * GROUP_ROWS, stride, add, &b->seats[seat->index].kernel);
        part_first = part_end;
    }
}

/* What seats take from in phase `phase` of a run; with few rows a phase is too short for that. */
static struct pool_work *work_of(struct backend *b, uint32_t phase, uint32_t rows)
{
    return rows <= OWN_ROWS ? NULL : &b->works[phase];
}

static void product_share(struct backend *b, const struct pool_seat *seat, struct pool_work *work,
                          const struct cpu_matrix *matrix, const struct activations *x, float *y,
                          size_t stride, bool add)
{
    struct pool_part part = {0};

    while (pool_take(seat, work, matrix->groups, GROUPS_PER_BLOCK, &part))
        product(b, seat, matrix, part.first, part.end, x, y, stride, add);
}

/* A run of the pool for which all that can be taken is there. */
static void run(struct backend *b, pool_function function)
{
    for (size_t i = 0; i < sizeof b->works / sizeof *b->works; i++)
        atomic_store_explicit(&b->works[i].taken, 0, memory_order_relaxed);
    pool_run(b->pool, function, b);
}

/* --- begin and embed ----------------------------------------------------------------------- */

/* Angles in float32, as the models were trained and as their references compute them. */
static void rotary_row(const struct backend *b, uint32_t token)
{
    uint32_t size = b->model->ropes[0].size, half = size / 2;
    float *cosines = b->rotary + (size_t)token * 2 * size, *sines = cosines + size;

    for (uint32_t i = 0; i < half; i++) {
        float angle = (float)b->work->positions[token] * b->model->ropes[0].frequencies[i];
        float cosine = cosf(angle), sine = sinf(angle);
        bool halves = b->model->rope == ROPE_HALVES;
        uint32_t left = halves ? i : 2 * i, right = halves ? i + half : 2 * i + 1;

        cosines[left] = cosine;
        cosines[right] = cosine;
        sines[left] = -sine;
        sines[right] = sine;
    }
}

static void embed_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;

    for (uint32_t i = seat->index; i < b->work->token_count; i += seat->count) {
        packed_row(&b->weights.embedding, (uint32_t)b->work->tokens[i],
                   row_of(b->x, b->strides.width, i));
        rotary_row(b, i);
    }
}

int cpu_begin(struct backend *b, const struct model *model, struct work *work)
{
    must(model == b->model && work->token_count <= b->token_max);
    b->work = work;
    pool_enter(b->pool);
    return 0;
}

void cpu_embed(struct backend *b)
{
    pool_run(b->pool, embed_share, b);
}

/* --- attention ----------------------------------------------------------------------------- */

static const struct work_segment *segment_of(const struct work *work, uint32_t token)
{
    uint32_t low = 0, high = work->segment_count;

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;

        if (work->segments[middle].first_token <= token)
            low = middle;
        else
            high = middle;
    }
    return &work->segments[low];
}

static uint8_t *layer_pages(const struct backend *b)
{
    size_t page_bytes = b->kv_shape.kv_heads * kv_block_bytes(&b->kv_shape);

    return b->kv.data + b->layer_index * (b->page_count * page_bytes);
}

static uint32_t up_to_groups(uint32_t rows)
{
    return (rows + GROUP_ROWS - 1) / GROUP_ROWS * GROUP_ROWS;
}

static void finish_head(const struct backend *b, const struct pool_seat *seat, float *head,
                        const float *norm, const struct rotary *rotary, float scale)
{
    uint32_t size = b->model->head_size;

    if (norm) {
        float *row = b->seats[seat->index].row;

        memset(row, 0, padded_to_blocks(size) * sizeof *row);
        memcpy(row, head, size * sizeof *row);
        b->kernels->norm(row, norm, size, b->model->norm_epsilon, row);
        memcpy(head, row, size * sizeof *row);
    }
    b->kernels->rotate(head, size, rotary, scale);
}

/* Query heads of a token, and keys and values into its page; heads first .. end - 1, queries before
 * KV heads. */
static void finish_token(const struct backend *b, const struct pool_seat *seat, uint32_t token,
                         uint32_t first, uint32_t end)
{
    const struct model *m = b->model;
    float *q = row_of(b->qkv, b->strides.qkv, token);
    float *k = q + up_to_groups(m->heads * m->head_size);
    float *v = k + up_to_groups(m->kv_heads * m->head_size);
    const float *cosines = b->rotary + (size_t)token * 2 * m->ropes[0].size;
    struct rotary rotary = {m->ropes[0].size, m->rope == ROPE_HALVES, cosines,
                            cosines + m->ropes[0].size};
    const struct work_segment *segment = segment_of(b->work, token);
    uint32_t position = b->work->positions[token];
    size_t page = segment->pages[position / PAGE_TOKENS];

    for (uint32_t i = first; i < end; i++) {
        uint32_t kv_head = i - m->heads;
        uint8_t *block;

        if (i < m->heads) {
            finish_head(b, seat, q + i * m->head_size, b->layer->q_norm, &rotary,
                        m->attention_scale);
            continue;
        }
        finish_head(b, seat, k + kv_head * m->head_size, b->layer->k_norm, &rotary, 1);
        block = layer_pages(b) + (page * m->kv_heads + kv_head) * kv_block_bytes(&b->kv_shape);
        b->kernels->kv_write(&b->kv_shape, block, position % PAGE_TOKENS,
                             k + kv_head * m->head_size, v + kv_head * m->head_size);
    }
}

/* The biases of this seat's outputs, right after its products. */
static void add_bias(const struct backend *b, uint64_t first, uint64_t end)
{
    for (uint32_t token = 0; token < b->work->token_count; token++) {
        float *row = row_of(b->qkv, b->strides.qkv, token);

        for (uint64_t i = first * GROUP_ROWS; i < end * GROUP_ROWS; i++)
            row[i] += b->layer->qkv_bias[i];
    }
}

static void attention_in_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct model *m = b->model;
    uint32_t tokens = b->work->token_count, heads = m->heads + m->kv_heads;
    struct source source = {.rows = b->x,
                            .stride = b->strides.width,
                            .row_count = tokens,
                            .columns = m->width,
                            .gamma = b->layer->attention_norm,
                            .forms = forms_of(b, &b->layer->qkv, tokens)};
    struct activations x = prepare(b, seat, &source);
    struct pool_part part = {0};
    uint64_t first, end;

    while (pool_take(seat, work_of(b, 0, tokens), b->layer->qkv.groups, GROUPS_PER_BLOCK, &part)) {
        product(b, seat, &b->layer->qkv, part.first, part.end, &x, b->qkv, b->strides.qkv, false);
        if (b->layer->qkv_bias)
            add_bias(b, part.first, part.end);
    }
    pool_barrier(seat);
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
static uint64_t segment_cost(const struct model *m, const struct work_segment *segment)
{
    uint64_t keys = segment->position + (segment->token_count + 1) / 2 + PAGE_TOKENS;

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
        .pages = layer_pages(b),
        .page_table = segment->pages,
        .group = group,
        .position = segment->position,
        .queries = row_of(b->qkv, b->strides.qkv, segment->first_token),
        .query_stride = b->strides.qkv,
        .out = row_of(b->attention, b->strides.attention, segment->first_token),
        .out_stride = b->strides.attention,
    };

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
        total += segment_cost(b->model, &work->segments[i]);
    pool_share(seat, total, 1, &low, &high);
    for (uint32_t i = 0; i < work->segment_count && before < high; i++) {
        const struct work_segment *segment = &work->segments[i];
        uint64_t cost = segment_cost(b->model, segment);
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
    struct source source = {.rows = b->attention,
                            .stride = b->strides.attention,
                            .row_count = b->work->token_count,
                            .columns = b->model->heads * b->model->head_size,
                            .forms = forms_of(b, &b->layer->out, b->work->token_count)};
    struct activations x = prepare(b, seat, &source);

    product_share(b, seat, work_of(b, 0, x.rows), &b->layer->out, &x, b->x, b->strides.width, true);
}

/* --- mlp ----------------------------------------------------------------------------------- */

/* Gate and up of blocks first .. first + count - 1 into tile[row][64 x count], 32 of gate before 32
 * of up for each block. */
static void gate_up(const struct backend *b, const struct pool_seat *seat, uint32_t first,
                    uint32_t count, const struct activations *x, float *tile)
{
    const struct packed *gate = &b->layer->gate, *up = &b->layer->up;
    const struct kernel_scratch *scratch = &b->seats[seat->index].kernel;
    size_t stride = (size_t)2 * BLOCK_COLUMNS * count;

    if (up->groups == 0) {
        cpu_product(b->kernels, gate, 2 * GROUPS_PER_BLOCK * first, 2 * GROUPS_PER_BLOCK * count, x,
                    tile, stride, false, scratch);
        return;
    }
    for (uint32_t i = 0; i < count; i++, tile += 2 * BLOCK_COLUMNS) {
        uint32_t group = GROUPS_PER_BLOCK * (first + i);
        uint32_t groups = gate->groups - group < GROUPS_PER_BLOCK ? 1 : GROUPS_PER_BLOCK;

        if (groups < GROUPS_PER_BLOCK) /* half a block: the other half is zeros */
            for (uint32_t row = 0; row < x->rows; row++)
                memset(tile + row * stride, 0, 2 * BLOCK_COLUMNS * sizeof *tile);
        cpu_product(b->kernels, gate, group, groups, x, tile, stride, false, scratch);
        cpu_product(b->kernels, up, group, groups, x, tile + BLOCK_COLUMNS, stride, false, scratch);
    }
}

/* Blocks first .. first + count - 1 of the hidden layer, as inputs of down. */
static void hidden_blocks(const struct backend *b, const struct pool_seat *seat,
                          const struct activations *x, const struct activations *hidden,
                          uint32_t first, uint32_t count)
{
    float *tile = b->seats[seat->index].tile;
    float values[BLOCK_COLUMNS] __attribute__((aligned(LINE_BYTES)));

    gate_up(b, seat, first, count, x, tile);
    for (uint32_t row = 0; row < x->rows; row++) {
        const float *pair = tile + (size_t)row * 2 * BLOCK_COLUMNS * count;

        for (uint32_t i = 0; i < count; i++, pair += 2 * BLOCK_COLUMNS) {
            b->kernels->swiglu(pair, pair + BLOCK_COLUMNS, values);
            b->kernels->put(hidden, row, first + i, 1, values);
        }
    }
}

static void hidden_share(struct backend *b, const struct pool_seat *seat,
                         const struct activations *x, const struct activations *hidden)
{
    uint32_t chunk = CPU_TILE_FLOATS / (2 * BLOCK_COLUMNS * x->rows);
    struct pool_part part = {0};

    if (chunk == 0)
        chunk = 1;
    while (pool_take(seat, work_of(b, 0, x->rows), hidden->blocks, 1, &part)) {
        for (uint64_t first = part.first; first < part.end; first += chunk) {
            uint64_t left = part.end - first;

            hidden_blocks(b, seat, x, hidden, (uint32_t)first,
                          left < chunk ? (uint32_t)left : chunk);
        }
    }
}

static void mlp_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct cpu_layer *layer = b->layer;
    uint32_t rows = b->work->token_count;
    struct source source = {.rows = b->x,
                            .stride = b->strides.width,
                            .row_count = rows,
                            .columns = b->model->width,
                            .gamma = layer->ffn_norm,
                            .forms = form_of(b, &layer->gate, rows)};
    struct activations hidden = b->hidden, x;

    if (layer->up.groups > 0)
        source.forms |= form_of(b, &layer->up, rows);
    x = prepare(b, seat, &source);
    hidden.rows = rows;
    hidden.forms = forms_of(b, &layer->down, rows);
    hidden_share(b, seat, &x, &hidden);
    pool_barrier(seat);
    product_share(b, seat, work_of(b, 1, rows), &layer->down, &hidden, b->x, b->strides.width,
                  true);
}

/* --- head ---------------------------------------------------------------------------------- */

/* Takes the outputs' best of vocabulary ids first .. end - 1 into account. Parts come in rising
 * order, so on a tie the lower id stays. */
static void find_best(const struct backend *b, const struct pool_seat *seat, uint64_t first,
                      uint64_t end)
{
    if (end > b->vocabulary)
        end = b->vocabulary;
    for (uint32_t i = 0; i < b->head_count && first < end; i++) {
        struct cpu_best *best = &b->best[i * pool_threads(b->pool) + seat->index], found;

        found.index =
            (uint32_t)first + b->kernels->argmax(row_of(b->logits, b->strides.logits, i) + first,
                                                 (uint32_t)(end - first), &found.value);
        if (found.value > best->value)
            *best = found;
    }
}

static void head_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct cpu_matrix *head = &b->weights.head;
    uint32_t indices[HEAD_ROWS];
    struct source source = {.rows = b->x,
                            .stride = b->strides.width,
                            .indices = indices,
                            .row_count = b->head_count,
                            .columns = b->model->width,
                            .gamma = b->weights.final_norm,
                            .forms = forms_of(b, head, b->head_count)};
    struct pool_part part = {0};
    struct activations x;

    for (uint32_t i = 0; i < b->head_count; i++)
        indices[i] = b->work->outputs[b->head_first + i].token;
    x = prepare(b, seat, &source);
    while (pool_take(seat, work_of(b, 0, x.rows), head->groups, GROUPS_PER_BLOCK, &part)) {
        product(b, seat, head, part.first, part.end, &x, b->logits, b->strides.logits, false);
        find_best(b, seat, part.first * GROUP_ROWS, part.end * GROUP_ROWS);
    }
}

void cpu_head_chunk(struct backend *b, uint32_t first)
{
    uint32_t left = b->work->output_count - first;

    b->head_first = first;
    b->head_count = left < HEAD_ROWS ? left : HEAD_ROWS;
    for (uint32_t i = 0; i < b->head_count * pool_threads(b->pool); i++)
        b->best[i] = (struct cpu_best){0, -INFINITY};
    run(b, head_share);
}

void cpu_head(struct backend *b)
{
    if (b->work->output_count > 0)
        cpu_head_chunk(b, 0);
}

/* --- layers -------------------------------------------------------------------------------- */

static void run_layer(struct backend *b, uint32_t layer, pool_function function)
{
    b->layer_index = layer;
    b->layer = &b->weights.layers[layer];
    run(b, function);
}

void cpu_attention_in(struct backend *b, uint32_t layer)
{
    run_layer(b, layer, attention_in_share);
}

void cpu_attention(struct backend *b, uint32_t layer)
{
    run_layer(b, layer, attention_share);
}

void cpu_attention_out(struct backend *b, uint32_t layer)
{
    run_layer(b, layer, attention_out_share);
}

void cpu_mlp(struct backend *b, uint32_t layer)
{
    run_layer(b, layer, mlp_share);
}
