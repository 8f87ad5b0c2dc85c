/* cpu_step.c -- the operations of a step on the CPU: begin, embed and head.
 *
 * Each operation is one run of the pool, in which every thread does its share of each phase:
 *
 *     embed           rows of the table, scaled | (product) | positions, norm
 *     attention_in    norm, inputs | q k v products | per head: norm, rotary, KV pages
 *     attention       queries x KV heads, divided by how much context they see
 *     attention_out   inputs | product onto x
 *     mlp             norm, inputs | gate and up, activation, inputs of down | down onto x
 *     head            norm, inputs | (product | inputs |) product, best of each piece of the
 *                     vocabulary; norms of what goes into vectors, a sequence on one thread
 *
 * "|" is a barrier. With one or two rows each thread prepares the inputs for itself, which is
 * cheaper than dividing them and waiting. What a branch gives is added to x by its last product,
 * unless the model norms or scales it first: then it goes by way of `branch`, and a barrier more.
 * The layers' part is in cpu_attention.c and cpu_mlp.c. */
#include <math.h>
#include <string.h>

#include "engine/cpu_product.h"
#include "engine/request_table.h"

/* --- begin and embed ----------------------------------------------------------------------- */

const struct work_segment *cpu_segment(const struct work *work, uint32_t token)
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

/* The frequencies for a token: longrope's others where its sequence began with a long prompt. */
static const float *frequencies_of(const struct backend *b, const struct rope *rope, uint32_t token)
{
    const struct request_row *row;

    if (!rope->long_frequencies)
        return rope->frequencies;
    row = request_table_row(b->work->table, cpu_segment(b->work, token)->row);
    return row->opening.prompt_count > rope->long_from ? rope->long_frequencies : rope->frequencies;
}

/* Angles in float32, as the models were trained and as their references compute them. */
static void rotary_row(const struct backend *b, uint32_t token, uint32_t index)
{
    const struct rope *rope = &b->model->ropes[index];
    const float *frequencies = frequencies_of(b, rope, token);
    uint32_t size = rope->size, half = size / 2;
    float *cosines = b->rotary + ((size_t)token * b->model->rope_count + index) * 2 * size;
    float *sines = cosines + size;

    for (uint32_t i = 0; i < half; i++) {
        float angle = (float)b->work->positions[token] * frequencies[i];
        float cosine = cosf(angle) * rope->scale, sine = sinf(angle) * rope->scale;
        bool halves = b->model->rope == ROPE_HALVES;
        uint32_t left = halves ? i : 2 * i, right = halves ? i + half : 2 * i + 1;

        cosines[left] = cosine;
        cosines[right] = cosine;
        sines[left] = -sine;
        sines[right] = sine;
    }
}

/* What comes onto the embedding. */
static void finish_embedding(const struct backend *b, const struct pool_seat *seat, uint32_t token)
{
    const struct model *m = b->model;
    float *x = cpu_row(b->x, b->strides.width, token);

    float *row = b->seats[seat->index].row;

    if (b->weights.positions.rows > 0) {
        packed_row(&b->weights.positions, b->work->positions[token] + m->position_offset, row);
        for (uint32_t i = 0; i < m->width; i++)
            x[i] += row[i];
    }
    if (b->weights.types.rows > 0) {
        packed_row(&b->weights.types, 0, row);
        for (uint32_t i = 0; i < m->width; i++)
            x[i] += row[i];
    }
    if (b->weights.embedding_norm.gain)
        cpu_norm_row(b, &b->weights.embedding_norm, m->width, x, x);
}

static void embed_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct model *m = b->model;
    const struct cpu_matrix *between = &b->weights.embedding_in;
    bool narrow = between->part_count > 0;
    uint32_t tokens = b->work->token_count;

    for (uint32_t i = seat->index; i < tokens; i += seat->count) {
        float *row =
            narrow ? cpu_row(b->narrow, b->strides.narrow, i) : cpu_row(b->x, b->strides.width, i);

        packed_row(&b->weights.embedding, (uint32_t)b->work->tokens[i], row);
        for (uint32_t j = 0; j < m->embedding_width && m->embedding_scale != 1; j++)
            row[j] *= m->embedding_scale;
        for (uint32_t rope = 0; rope < m->rope_count; rope++)
            rotary_row(b, i, rope);
        if (!narrow)
            finish_embedding(b, seat, i);
    }
    if (narrow) {
        struct cpu_source source = {.rows = b->narrow,
                                    .stride = b->strides.narrow,
                                    .row_count = tokens,
                                    .columns = m->embedding_width,
                                    .forms = cpu_forms(b, between, tokens)};
        struct activations x;

        pool_barrier(seat);
        x = cpu_prepare(b, seat, &source);
        cpu_product_share(b, seat, cpu_work(b, 0, tokens), between, &x, b->x, b->strides.width,
                          false);
        pool_barrier(seat);
        for (uint32_t i = seat->index; i < tokens; i += seat->count)
            finish_embedding(b, seat, i);
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
    cpu_run(b, embed_share);
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
            (uint32_t)first + b->kernels->argmax(cpu_row(b->logits, b->strides.logits, i) + first,
                                                 (uint32_t)(end - first), &found.value);
        if (found.value > best->value)
            *best = found;
    }
}

/* Logits 16 first .. 16 end - 1 of every output, after their product. */
static void finish_logits(const struct backend *b, uint64_t first, uint64_t end)
{
    const struct model *m = b->model;
    uint32_t count = (uint32_t)(end - first) * GROUP_ROWS;

    for (uint32_t i = 0; i < b->head_count; i++) {
        float *logits = cpu_row(b->logits, b->strides.logits, i) + first * GROUP_ROWS;

        for (uint32_t j = 0; j < count && m->logit_scale != 1; j++)
            logits[j] *= m->logit_scale;
        if (m->logit_softcap > 0)
            b->kernels->softcap(logits, count, m->logit_softcap);
    }
}

/* The outputs' rows, normed; where the embedding is narrower, through the product between. */
static struct activations head_input(struct backend *b, const struct pool_seat *seat)
{
    const struct cpu_weights *weights = &b->weights;
    const struct cpu_matrix *between = &weights->embedding_out;
    bool narrow = between->part_count > 0;
    uint32_t indices[HEAD_ROWS];
    struct cpu_source source = {.rows = b->x,
                                .stride = b->strides.width,
                                .indices = indices,
                                .row_count = b->head_count,
                                .columns = b->model->width,
                                .norm = &weights->final_norm};
    struct activations x;

    for (uint32_t i = 0; i < b->head_count; i++)
        indices[i] = b->work->outputs[b->head_first + i].token;
    source.forms = cpu_forms(b, narrow ? between : &weights->head, b->head_count);
    x = cpu_prepare(b, seat, &source);
    if (!narrow)
        return x;
    cpu_product_share(b, seat, NULL, between, &x, b->narrow, b->strides.narrow, false);
    pool_barrier(seat);
    source = (struct cpu_source){.rows = b->narrow,
                                 .stride = b->strides.narrow,
                                 .row_count = b->head_count,
                                 .columns = b->model->embedding_width,
                                 .forms = cpu_forms(b, &weights->head, b->head_count)};
    return cpu_prepare(b, seat, &source);
}

static void head_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct cpu_matrix *head = &b->weights.head;
    bool finishes = b->model->logit_scale != 1 || b->model->logit_softcap > 0;
    struct pool_part part = {0};
    struct activations x = head_input(b, seat);

    while (pool_take(seat, cpu_work(b, 0, x.rows), head->groups, GROUPS_PER_BLOCK, &part)) {
        cpu_product_groups(b, seat, head, part.first, part.end, &x, b->logits, b->strides.logits,
                           false);
        if (finishes)
            finish_logits(b, part.first, part.end);
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
    cpu_run(b, head_share);
}

/* In the order of the tokens, so that a vector does not depend on the number of threads. */
static void vectors_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct cpu_norm *norm = &b->weights.final_norm;
    uint32_t width = b->model->width;

    for (uint32_t i = seat->index; i < b->work->segment_count; i += seat->count) {
        const struct work_segment *segment = &b->work->segments[i];
        const struct batch_opening *opening =
            &request_table_row(b->work->table, segment->row)->opening;

        for (uint32_t j = 0; opening->vector && j < segment->token_count; j++) {
            const float *state = cpu_row(b->x, b->strides.width, segment->first_token + j);

            if (!pooling_wants(opening, segment->position + j))
                continue;
            if (norm->gain) {
                cpu_norm_row(b, norm, width, state, b->seats[seat->index].row);
                state = b->seats[seat->index].row;
            }
            pooling_take(opening, segment->position + j, state, width);
        }
    }
}

static bool wants_vectors(const struct backend *b)
{
    for (uint32_t i = 0; i < b->work->segment_count; i++)
        if (request_table_row(b->work->table, b->work->segments[i].row)->opening.vector)
            return true;
    return false;
}

void cpu_head(struct backend *b)
{
    if (b->work->output_count > 0)
        cpu_head_chunk(b, 0);
    if (wants_vectors(b))
        cpu_run(b, vectors_share);
}

/* --- layers -------------------------------------------------------------------------------- */

void cpu_run_layer(struct backend *b, uint32_t layer, pool_function function)
{
    b->layer_index = layer;
    b->layer = &b->weights.layers[layer];
    cpu_run(b, function);
}
