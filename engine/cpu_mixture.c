/* cpu_mixture.c -- a layer's mixture of experts on the CPU: one run of the pool.
 *
 *     norm, inputs of router and shared expert | router, shared expert's gate
 *     | each token's experts | rows sorted by expert | inputs of the experts
 *     | gate and up, activation, inputs of down | down | each token's sum onto x
 *
 * "|" is a barrier. Each chosen expert, and the shared one, is a job: its tokens' rows go through
 * its products together, and experts that nobody chose are not read. All jobs' blocks are one piece
 * of work for the seats to share.
 *
 * The rules of choice are those of Transformers' modeling_mixtral.py, modeling_qwen2_moe.py,
 * modeling_gpt_oss.py, modeling_deepseek_v2.py and modeling_deepseek_v3.py. A tie goes to the lower
 * number. */
#include <math.h>

#include "engine/cpu_product.h"

/* A seat's tile while it chooses: three arrays over the experts. */
struct choice {
    float *values; /* what is compared */
    float *groups; /* of each group, its best */
    float *taken;  /* 1: not to be chosen (again) */
};

static struct choice choice_of(const struct backend *b, const struct pool_seat *seat)
{
    float *tile = b->seats[seat->index].tile;

    _Static_assert(CPU_TILE_FLOATS >= 3 * MODEL_EXPERTS_MAX, "three arrays lie in a tile");
    return (struct choice){tile, tile + MODEL_EXPERTS_MAX, tile + (size_t)2 * MODEL_EXPERTS_MAX};
}

/* --- choosing ------------------------------------------------------------------------------ */

/* The largest that is not taken; some of them, even if none is a number. */
static uint32_t take_best(const float *values, float *taken, uint32_t count)
{
    uint32_t best = count;

    for (uint32_t i = 0; i < count; i++)
        if (taken[i] == 0 && (best == count || values[i] > values[best]))
            best = i;
    must(best < count);
    taken[best] = 1;
    return best;
}

static void softmax(const float *from, uint32_t count, float *to)
{
    float largest = from[0], total = 0;

    for (uint32_t i = 1; i < count; i++)
        largest = fmaxf(largest, from[i]);
    for (uint32_t i = 0; i < count; i++)
        total += to[i] = expf(from[i] - largest);
    for (uint32_t i = 0; i < count; i++)
        to[i] /= total;
}

/* How good a group of experts is: its best value, or the sum of its two best (ROUTER_SIGMOID). */
static float group_value(const float *values, uint32_t count, bool two)
{
    float first = -INFINITY, second = -INFINITY;

    for (uint32_t i = 0; i < count; i++) {
        if (values[i] > first) {
            second = first;
            first = values[i];
        } else if (values[i] > second) {
            second = values[i];
        }
    }
    return two && count > 1 ? first + second : first;
}

/* All experts outside of the best groups become taken. */
static void keep_groups(const struct model *m, const struct choice *choice)
{
    uint32_t groups = m->router_groups, size = m->expert_count / groups;

    for (uint32_t i = 0; i < groups; i++)
        choice->groups[i] =
            group_value(choice->values + i * size, size, m->router == ROUTER_SIGMOID);
    for (uint32_t i = 0; i < m->expert_count; i++)
        choice->taken[i] = 1;
    for (uint32_t k = 0; k < m->router_groups_used; k++) {
        uint32_t best = groups;

        for (uint32_t i = 0; i < groups; i++)
            if (choice->taken[i * size] != 0 &&
                (best == groups || choice->groups[i] > choice->groups[best]))
                best = i;
        must(best < groups);
        for (uint32_t i = 0; i < size; i++)
            choice->taken[best * size + i] = 0;
    }
}

/* The chosen experts' scores become their shares. */
static void set_shares(const struct model *m, float *shares)
{
    uint32_t used = m->experts_used;
    float total = 0;

    if (m->router == ROUTER_SOFTMAX_CHOSEN)
        softmax(shares, used, shares);
    for (uint32_t k = 0; k < used; k++)
        total += shares[k];
    if (m->router == ROUTER_SIGMOID)
        total += 1e-20f; /* all may be 0 */
    for (uint32_t k = 0; k < used; k++)
        shares[k] *= m->router_normalizes ? m->router_scale / total : m->router_scale;
}

static void choose(const struct backend *b, const struct pool_seat *seat, uint32_t token)
{
    const struct model *m = b->model;
    const struct cpu_mixture *mixture = &b->mixture;
    struct choice choice = choice_of(b, seat);
    float *scores = mixture->scores + token * mixture->scores_stride;
    float *shares = mixture->shares + (size_t)token * m->experts_used;
    uint32_t *chosen = mixture->chosen + (size_t)token * m->experts_used;

    if (m->router == ROUTER_SOFTMAX)
        softmax(scores, m->expert_count, scores);
    for (uint32_t i = 0; i < m->expert_count; i++) {
        if (m->router == ROUTER_SIGMOID)
            scores[i] = 1.0f / (1.0f + expf(-scores[i]));
        choice.values[i] = scores[i] + (b->layer->router_bias ? b->layer->router_bias[i] : 0);
        choice.taken[i] = 0;
    }
    if (m->router_groups > 0)
        keep_groups(m, &choice);
    for (uint32_t k = 0; k < m->experts_used; k++) {
        chosen[k] = take_best(choice.values, choice.taken, m->expert_count);
        shares[k] = scores[chosen[k]];
    }
    set_shares(m, shares);
}

/* --- sorting ------------------------------------------------------------------------------- */

static void add_job(struct backend *b, const struct cpu_ffn *ffn, uint32_t first, uint32_t rows)
{
    struct cpu_mixture *mixture = &b->mixture;
    struct cpu_ffn_job *job = &mixture->jobs[mixture->job_count++];
    struct activations x = mixture->input, hidden = mixture->hidden;

    *job = (struct cpu_ffn_job){
        .ffn = ffn,
        .x = activations_rows(&x, first, rows),
        .hidden = activations_rows(&hidden, first, rows),
        .first_row = first,
        .y = mixture->outputs + first * b->strides.width,
    };
    cpu_ffn_forms(b, job, rows);
}

static void add_shared_job(struct backend *b)
{
    struct cpu_mixture *mixture = &b->mixture;
    struct cpu_ffn_job *job = &mixture->jobs[mixture->job_count++];

    *job = (struct cpu_ffn_job){.ffn = &b->layer->shared, .x = b->input, .hidden = b->hidden};
    cpu_ffn_forms(b, job, b->work->token_count);
    job->x.rows = b->work->token_count;
    job->x.blocks = (uint32_t)(b->strides.width / BLOCK_COLUMNS);
    job->y = mixture->shared;
}

/* Jobs, and which of their rows are whose. By one seat. */
static void sort_rows(struct backend *b)
{
    struct cpu_mixture *mixture = &b->mixture;
    const struct model *m = b->model;
    uint32_t pairs = b->work->token_count * m->experts_used, first = 0;

    for (uint32_t i = 0; i < m->expert_count; i++)
        mixture->counts[i] = 0;
    for (uint32_t i = 0; i < pairs; i++)
        mixture->counts[mixture->chosen[i]]++;
    mixture->job_count = 0;
    for (uint32_t i = 0; i < m->expert_count; i++) {
        uint32_t rows = mixture->counts[i];

        if (rows == 0)
            continue;
        mixture->job_of[i] = mixture->job_count;
        mixture->counts[i] = first;
        add_job(b, &b->layer->experts[i], first, rows);
        first += (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    }
    for (uint32_t i = 0; i < pairs; i++)
        mixture->places[i] = mixture->counts[mixture->chosen[i]]++;
    if (b->layer->shared.width > 0)
        add_shared_job(b);
}

/* --- phases -------------------------------------------------------------------------------- */

static struct activations prepare_tokens(const struct backend *b, const struct pool_seat *seat)
{
    const struct cpu_layer *layer = b->layer;
    struct activations x = b->input;

    x.rows = b->work->token_count;
    x.blocks = (uint32_t)(b->strides.width / BLOCK_COLUMNS);
    x.forms = cpu_forms(b, &layer->router, x.rows) | cpu_forms(b, &layer->shared_gate, x.rows);
    if (layer->shared.width > 0) {
        x.forms |= cpu_form(b, &layer->shared.gate, x.rows);
        if (layer->shared.up.groups > 0)
            x.forms |= cpu_form(b, &layer->shared.up, x.rows);
    }
    for (uint32_t row = seat->index; row < x.rows; row += seat->count) {
        float *normed = b->mixture.normed + row * b->strides.width;

        cpu_norm_row(b, &layer->ffn_norm, b->model->width, cpu_row(b->x, b->strides.width, row),
                     normed);
        b->kernels->put(&x, row, 0, x.blocks, normed);
    }
    pool_barrier(seat);
    return x;
}

static void gather(const struct backend *b, const struct pool_seat *seat)
{
    const struct cpu_mixture *mixture = &b->mixture;
    uint32_t used = b->model->experts_used;
    uint64_t first, end;

    pool_share(seat, (uint64_t)b->work->token_count * used, 1, &first, &end);
    for (uint64_t i = first; i < end; i++) {
        const struct cpu_ffn_job *job = &mixture->jobs[mixture->job_of[mixture->chosen[i]]];

        b->kernels->put(&job->x, mixture->places[i] - job->first_row, 0, job->x.blocks,
                        mixture->normed + i / used * b->strides.width);
    }
}

static void down_share(struct backend *b, const struct pool_seat *seat, struct pool_work *work)
{
    const struct cpu_mixture *mixture = &b->mixture;
    struct pool_part part = {0};
    uint64_t total = 0;

    for (uint32_t i = 0; i < mixture->job_count; i++)
        total += mixture->jobs[i].ffn->down.groups;
    while (pool_take(seat, work, total, GROUPS_PER_BLOCK, &part)) {
        uint64_t before = 0;

        for (uint32_t i = 0; i < mixture->job_count && before < part.end; i++) {
            const struct cpu_ffn_job *job = &mixture->jobs[i];
            uint64_t end = before + job->ffn->down.groups;
            uint64_t from = part.first > before ? part.first : before;
            uint64_t to = part.end < end ? part.end : end;

            if (from < to)
                cpu_product_groups(b, seat, &job->ffn->down, from - before, to - before,
                                   &job->hidden, job->y, b->strides.width, false);
            before = end;
        }
    }
}

static void combine(const struct backend *b, const struct pool_seat *seat, uint32_t token)
{
    const struct cpu_mixture *mixture = &b->mixture;
    size_t width = b->strides.width;
    uint32_t used = b->model->experts_used;
    float *sum = b->seats[seat->index].row;

    for (size_t i = 0; i < width; i++)
        sum[i] = 0;
    for (uint32_t k = 0; k < used; k++) {
        size_t pair = (size_t)token * used + k;
        const float *output = mixture->outputs + mixture->places[pair] * width;

        for (size_t i = 0; i < width; i++)
            sum[i] += mixture->shares[pair] * output[i];
    }
    if (b->layer->shared.width > 0) {
        const float *output = mixture->shared + token * width;
        float share = 1;

        if (b->layer->shared_gate.part_count > 0)
            share = 1.0f / (1.0f + expf(-mixture->gates[(size_t)token * GROUP_ROWS]));
        for (size_t i = 0; i < width; i++)
            sum[i] += share * output[i];
    }
    cpu_add_row(b, sum, &b->layer->post_ffn_norm, cpu_row(b->x, width, token));
}

static void mixture_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct cpu_layer *layer = b->layer;
    uint32_t tokens = b->work->token_count;
    struct activations x = prepare_tokens(b, seat);

    cpu_product_share(b, seat, NULL, &layer->router, &x, b->mixture.scores,
                      b->mixture.scores_stride, false);
    if (layer->shared_gate.part_count > 0)
        cpu_product_share(b, seat, NULL, &layer->shared_gate, &x, b->mixture.gates, GROUP_ROWS,
                          false);
    pool_barrier(seat);
    for (uint32_t token = seat->index; token < tokens; token += seat->count)
        choose(b, seat, token);
    pool_barrier(seat);
    if (seat->index == 0)
        sort_rows(b);
    pool_barrier(seat);
    gather(b, seat);
    pool_barrier(seat);
    cpu_hidden_share(b, seat, cpu_work(b, 0, tokens), b->mixture.jobs, b->mixture.job_count);
    pool_barrier(seat);
    down_share(b, seat, cpu_work(b, 1, tokens));
    pool_barrier(seat);
    for (uint32_t token = seat->index; token < tokens; token += seat->count)
        combine(b, seat, token);
}

void cpu_mixture(struct backend *b, uint32_t layer)
{
    cpu_run_layer(b, layer, mixture_share);
}
