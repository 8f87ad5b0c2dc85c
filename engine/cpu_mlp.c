/* cpu_mlp.c -- a layer's feed-forward network on the CPU: one run of the pool. See cpu_step.c. */
#include <string.h>

#include "engine/cpu_product.h"

/* How many values of a block the tile has: 32 of gate before 32 of up, or 32 of up alone. */
static uint32_t block_values(const struct backend *b)
{
    return b->model->gated ? 2 * BLOCK_COLUMNS : BLOCK_COLUMNS;
}

/* Gate and up of blocks first .. first + count - 1 into tile[row][count x block_values]. */
static void gate_up(const struct backend *b, const struct pool_seat *seat, uint32_t first,
                    uint32_t count, const struct activations *x, float *tile)
{
    const struct packed *gate = &b->layer->gate, *up = &b->layer->up;
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
static void add_block_bias(const struct backend *b, uint32_t block, float *values)
{
    const float *bias = b->layer->gate_up_bias;
    size_t padded = padded_to_blocks(b->model->ffn_width);

    for (uint32_t i = 0; i < block_values(b); i++)
        values[i] +=
            bias[i / BLOCK_COLUMNS * padded + (size_t)block * BLOCK_COLUMNS + i % BLOCK_COLUMNS];
}

/* Blocks first .. first + count - 1 of the hidden layer, as inputs of down. */
static void hidden_blocks(const struct backend *b, const struct pool_seat *seat,
                          const struct activations *x, const struct activations *hidden,
                          uint32_t first, uint32_t count)
{
    float *tile = b->seats[seat->index].tile;
    uint32_t size = block_values(b);
    float values[BLOCK_COLUMNS] __attribute__((aligned(LINE_BYTES)));

    gate_up(b, seat, first, count, x, tile);
    for (uint32_t row = 0; row < x->rows; row++) {
        float *block = tile + (size_t)row * size * count;

        for (uint32_t i = 0; i < count; i++, block += size) {
            if (b->layer->gate_up_bias)
                add_block_bias(b, first + i, block);
            b->kernels->activate(b->model->activation, block,
                                 b->model->gated ? block + BLOCK_COLUMNS : NULL,
                                 b->model->activation_limit, values);
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
    while (pool_take(seat, cpu_work(b, 0, x->rows), hidden->blocks, 1, &part)) {
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
    struct cpu_source source = {.rows = b->x,
                                .stride = b->strides.width,
                                .row_count = rows,
                                .columns = b->model->width,
                                .norm = b->model->norms_stream ? NULL : &layer->ffn_norm,
                                .forms = cpu_form(b, &layer->gate, rows)};
    struct activations hidden = b->hidden, x;

    if (layer->up.groups > 0)
        source.forms |= cpu_form(b, &layer->up, rows);
    x = cpu_prepare(b, seat, &source);
    hidden.rows = rows;
    hidden.forms = cpu_forms(b, &layer->down, rows);
    hidden_share(b, seat, &x, &hidden);
    pool_barrier(seat);
    cpu_add_branch(b, seat, 1, &layer->down, &hidden, &layer->post_ffn_norm, &layer->ffn_norm);
}

void cpu_mlp(struct backend *b, uint32_t layer)
{
    cpu_run_layer(b, layer, mlp_share);
}
