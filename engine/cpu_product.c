/* cpu_product.c -- see cpu_product.h. */
#include "engine/cpu_product.h"

unsigned cpu_form(const struct backend *b, const struct packed *w, uint32_t rows)
{
    return b->kernels->form(w->pack, b->precision, rows);
}

unsigned cpu_forms(const struct backend *b, const struct cpu_matrix *matrix, uint32_t rows)
{
    unsigned forms = 0;

    for (uint32_t i = 0; i < matrix->part_count; i++)
        forms |= cpu_form(b, &matrix->parts[i], rows);
    return forms;
}

void cpu_norm_row(const struct backend *b, const struct cpu_norm *norm, uint32_t columns,
                  const float *x, float *out)
{
    const struct norm how = {.centred = b->model->norm == NORM_LAYER,
                             .columns = columns,
                             .epsilon = b->model->norm_epsilon,
                             .gain = norm->gain,
                             .bias = norm->bias};

    b->kernels->norm(&how, x, out);
}

/* --- inputs -------------------------------------------------------------------------------- */

static void prepare_row(const struct backend *b, const struct pool_seat *seat,
                        const struct cpu_source *source, const struct activations *x, uint32_t row)
{
    const float *values =
        source->rows + (source->indices ? source->indices[row] : row) * source->stride;

    if (source->norm && source->norm->gain) {
        float *normed = b->seats[seat->index].row;

        cpu_norm_row(b, source->norm, source->columns, values, normed);
        values = normed;
    }
    b->kernels->put(x, row, 0, x->blocks, values);
}

struct activations cpu_prepare(const struct backend *b, const struct pool_seat *seat,
                               const struct cpu_source *source)
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

/* The bias of outputs 16 first .. 16 end - 1. */
static void add_bias(const float *bias, uint64_t first, uint64_t end, uint32_t rows, float *y,
                     size_t stride)
{
    for (uint32_t row = 0; row < rows; row++) {
        for (uint64_t i = first * GROUP_ROWS; i < end * GROUP_ROWS; i++)
            y[row * stride + i] += bias[i];
    }
}

void cpu_product_groups(const struct backend *b, const struct pool_seat *seat,
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
    if (matrix->bias)
        add_bias(matrix->bias, first, end, x->rows, y, stride);
}

struct pool_work *cpu_work(struct backend *b, uint32_t phase, uint32_t rows)
{
    return rows <= OWN_ROWS ? NULL : &b->works[phase];
}

void cpu_product_share(struct backend *b, const struct pool_seat *seat, struct pool_work *work,
                       const struct cpu_matrix *matrix, const struct activations *x, float *y,
                       size_t stride, bool add)
{
    struct pool_part part = {0};

    while (pool_take(seat, work, matrix->groups, GROUPS_PER_BLOCK, &part))
        cpu_product_groups(b, seat, matrix, part.first, part.end, x, y, stride, add);
}

/* --- branches ------------------------------------------------------------------------------ */

void cpu_add_row(const struct backend *b, float *branch, const struct cpu_norm *post, float *x)
{
    const struct model *m = b->model;

    if (post->gain)
        cpu_norm_row(b, post, m->width, branch, branch);
    for (uint32_t i = 0; i < m->width; i++)
        x[i] += m->residual_scale * branch[i];
}

void cpu_add_branch(struct backend *b, const struct pool_seat *seat, uint32_t phase,
                    const struct cpu_matrix *matrix, const struct activations *x,
                    const struct cpu_norm *post, const struct cpu_norm *stream)
{
    struct pool_work *work = cpu_work(b, phase, x->rows);
    bool defers = b->branch != NULL;

    cpu_product_share(b, seat, work, matrix, x, defers ? b->branch : b->x, b->strides.width,
                      !defers);
    if (!defers && !b->model->norms_stream)
        return;
    pool_barrier(seat);
    for (uint32_t row = seat->index; row < x->rows && defers; row += seat->count)
        cpu_add_row(b, cpu_row(b->branch, b->strides.width, row), post,
                    cpu_row(b->x, b->strides.width, row));
    for (uint32_t row = seat->index; row < x->rows && b->model->norms_stream; row += seat->count) {
        float *to = cpu_row(b->x, b->strides.width, row);

        cpu_norm_row(b, stream, b->model->width, to, to);
    }
}

void cpu_run(struct backend *b, pool_function function)
{
    for (size_t i = 0; i < sizeof b->works / sizeof *b->works; i++)
        atomic_store_explicit(&b->works[i].taken, 0, memory_order_relaxed);
    pool_run(b->pool, function, b);
}
