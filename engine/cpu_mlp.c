/* cpu_mlp.c -- a layer's feed-forward network on the CPU: one run of the pool. See cpu_step.c.
 * Mixtures use the same for each expert's rows (cpu_mixture.c). */
#include <string.h>

#include "engine/cpu_product.h"

/* How many values of a block the tile has: 32 of gate before 32 of up, or 32 of up alone. */
static uint32_t block_values(const struct backend *b)
{
    return b->model->gated ? 2 * BLOCK_COLUMNS : BLOCK_COLUMNS;
}

/* Gate and up of blocks first .. first + count - 1 into tile[row][count x block_values]. */
static void gate_up(const struct backend *b, const struct pool_seat *seat,
                    const struct cpu_ffn_job *job, uint32_t first, uint32_t count, float *tile)
{
    const struct packed *gate = &job->ffn->gate, *up = &job->ffn->up;
    const struct activations *x = &job->x;
    const struct kernel_scratch *scratch = &b->seats[seat->index].kernel;
    uint32_t values = block_values(b), whole = values / GROUP_ROWS; /* groups of a block */
    size_t stride = (size_t)values * count;

    if (up->groups == 0 && whole * (first + count) <= gate->groups) {
        cpu_product(b->kernels, gate, whole * first, whole * count, x, tile, stride, false,
                    scratch);
        return;
    }
    for (uint32_t i = 0; i < count; i++, tile += values) {
        uint32_t group = GROUPS_PER_BLOCK * (first + i);
        uint32_t groups = gate->groups - group < GROUPS_PER_BLOCK ? 1 : GROUPS_PER_BLOCK;

        if (groups < GROUPS_PER_BLOCK) /* half a block: the other half is zeros */
            for (uint32_t row = 0; row < x->rows; row++)
                memset(tile + row * stride, 0, values * sizeof *tile);
        cpu_product(b->kernels, gate, group, groups, x, tile, stride, false, scratch);
        if (up->groups > 0)
            cpu_product(b->kernels, up, group, groups, x, tile + BLOCK_COLUMNS, stride, false,
                        scratch);
    }
}

/* The bias of one block's values. */
static void add_block_bias(const struct backend *b, const struct cpu_ffn *ffn, uint32_t block,
                           float *values)
{
    const float *bias = ffn->gate_up_bias;
    size_t padded = padded_to_blocks(ffn->width);

    for (uint32_t i = 0; i < block_values(b); i++)
        values[i] +=
            bias[i / BLOCK_COLUMNS * padded + (size_t)block * BLOCK_COLUMNS + i % BLOCK_COLUMNS];
}

/* Past the last hidden value an activation may be anything, as GPT-OSS's of 0 and 0 is not 0. */
static void clear_padding(const struct cpu_ffn *ffn, uint32_t block, float *values)
{
    for (uint32_t i = ffn->width - block * BLOCK_COLUMNS; i < BLOCK_COLUMNS; i++)
        values[i] = 0;
}

/* Blocks first .. first + count - 1 of the hidden layer, as inputs of down. */
static void hidden_blocks(const struct backend *b, const struct pool_seat *seat,
                          const struct cpu_ffn_job *job, uint32_t first, uint32_t count)
{
    const struct cpu_ffn *ffn = job->ffn;
    float *tile = b->seats[seat->index].tile;
    uint32_t size = block_values(b);
    float values[BLOCK_COLUMNS] __attribute__((aligned(LINE_BYTES)));

    gate_up(b, seat, job, first, count, tile);
    for (uint32_t row = 0; row < job->x.rows; row++) {
        float *block = tile + (size_t)row * size * count;

        for (uint32_t i = 0; i < count; i++, block += size) {
            if (ffn->gate_up_bias)
                add_block_bias(b, ffn, first + i, block);
            b->kernels->activate(b->model->activation, block,
                                 b->model->gated ? block + BLOCK_COLUMNS : NULL,
                                 b->model->activation_limit, values);
            if ((first + i + 1) * BLOCK_COLUMNS > ffn->width)
                clear_padding(ffn, first + i, values);
            b->kernels->put(&job->hidden, row, first + i, 1, values);
        }
    }
}

/* As many blocks at once as the tile has room for. */
static void hidden_range(const struct backend *b, const struct pool_seat *seat,
                         const struct cpu_ffn_job *job, uint64_t first, uint64_t end)
{
    uint32_t chunk = CPU_TILE_FLOATS / (2 * BLOCK_COLUMNS * job->x.rows);

    if (chunk == 0)
        chunk = 1;
    for (; first < end; first += chunk)
        hidden_blocks(b, seat, job, (uint32_t)first,
                      end - first < chunk ? (uint32_t)(end - first) : chunk);
}

void cpu_hidden_share(struct backend *b, const struct pool_seat *seat, struct pool_work *work,
                      const struct cpu_ffn_job *jobs, uint32_t count)
{
    struct pool_part part = {0};
    uint64_t total = 0;

    for (uint32_t i = 0; i < count; i++)
        total += jobs[i].hidden.blocks;
    while (pool_take(seat, work, total, 1, &part)) {
        uint64_t before = 0;

        for (uint32_t i = 0; i < count && before < part.end; i++) {
            uint64_t end = before + jobs[i].hidden.blocks;
            uint64_t from = part.first > before ? part.first : before;
            uint64_t to = part.end < end ? part.end : end;

            if (from < to)
                hidden_range(b, seat, &jobs[i], from - before, to - before);
            before = end;
        }
    }
}

void cpu_ffn_forms(const struct backend *b, struct cpu_ffn_job *job, uint32_t rows)
{
    job->x.forms = cpu_form(b, &job->ffn->gate, rows);
    if (job->ffn->up.groups > 0)
        job->x.forms |= cpu_form(b, &job->ffn->up, rows);
    job->hidden.forms = cpu_forms(b, &job->ffn->down, rows);
    job->hidden.blocks = (uint32_t)(padded_to_blocks(job->ffn->width) / BLOCK_COLUMNS);
    job->hidden.rows = rows;
}

static void mlp_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;
    const struct cpu_layer *layer = b->layer;
    uint32_t rows = b->work->token_count;
    struct cpu_ffn_job job = {.ffn = &layer->ffn, .hidden = b->hidden};
    struct cpu_source source = {.rows = b->x,
                                .stride = b->strides.width,
                                .row_count = rows,
                                .columns = b->model->width,
                                .norm = b->model->norms_stream ? NULL : &layer->ffn_norm};

    cpu_ffn_forms(b, &job, rows);
    source.forms = job.x.forms;
    job.x = cpu_prepare(b, seat, &source);
    cpu_hidden_share(b, seat, cpu_work(b, 0, rows), &job, 1);
    pool_barrier(seat);
    cpu_add_branch(b, seat, 1, &layer->ffn.down, &job.hidden, &layer->post_ffn_norm,
                   &layer->ffn_norm);
}

void cpu_mlp(struct backend *b, uint32_t layer)
{
    cpu_run_layer(b, layer, mlp_share);
}
