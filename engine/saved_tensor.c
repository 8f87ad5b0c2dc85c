/* saved_tensor.c -- see saved_tensor.h. A tensor is a matrix of `rows` outputs, or one such for
 * each expert; each of its rows belongs to one part of one weight. */
#include "engine/saved_tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/weight_part.h"

/* --- the form of a line's tensor ----------------------------------------------------------- */

static bool is_stacked(const struct arch_weight *line)
{
    return line->slice == SLICE_EXPERTS && !arch_name_has_inner(line->hf_name);
}

/* Rows of q, k and v that follow each other: all, or those of one KV head. */
static void qkv_rows(const struct arch_weight *line, const struct model *model, uint32_t rows[3])
{
    uint32_t share = line->flags & WEIGHT_HF_BY_HEAD ? model->kv_heads : 1;

    rows[0] = arch_dim_value(model, DIM_Q) / share;
    rows[1] = arch_dim_value(model, DIM_KV) / share;
    rows[2] = arch_dim_value(model, DIM_V) / share;
}

/* Outputs of the tensor, of all its parts (of one expert). */
static uint32_t output_count(const struct arch_weight *line, const struct model *model)
{
    uint32_t rows = arch_dim_value(model, line->rows);

    if (line->slice == SLICE_QKV)
        return arch_dim_value(model, DIM_Q) + arch_dim_value(model, DIM_KV) +
               arch_dim_value(model, DIM_V);
    return line->slice == SLICE_GATE_UP || (line->flags & WEIGHT_HF_INTERLEAVED) ? 2 * rows : rows;
}

/* Which part, and which of its rows, an output is. */
static uint32_t find_output(const struct arch_weight *line, const struct model *model,
                            uint32_t output, uint32_t *ret_row)
{
    uint32_t rows[3], block, part = 0;

    *ret_row = output;
    if (line->flags & WEIGHT_HF_INTERLEAVED) {
        *ret_row = output / 2;
        return output % 2;
    }
    if (line->slice == SLICE_GATE_UP) {
        *ret_row = output % arch_dim_value(model, line->rows);
        return output / arch_dim_value(model, line->rows);
    }
    if (line->slice != SLICE_QKV)
        return line->part;
    qkv_rows(line, model, rows);
    block = output / (rows[0] + rows[1] + rows[2]);
    output %= rows[0] + rows[1] + rows[2];
    while (output >= rows[part])
        output -= rows[part++];
    *ret_row = block * rows[part] + output;
    return part;
}

static void set_shape(struct saved_tensor *tensor, const struct model *model, uint32_t outputs,
                      uint32_t inputs)
{
    const struct arch_weight *line = tensor->line;
    bool transposed = line->flags & WEIGHT_HF_TRANSPOSED;
    uint32_t n = 0;

    if (is_stacked(line))
        tensor->shape[n++] = model->expert_count;
    if (arch_weight_is_vector(line)) {
        bool by_head = (line->columns == DIM_QK_NORM || line->columns == DIM_QK_NORM_KV) &&
                       model->qk_norm == QK_NORM_HEADS && !(line->flags & WEIGHT_HF_EACH_HEAD);

        if (by_head)
            tensor->shape[n++] = inputs / model->head_size;
        tensor->shape[n++] = by_head ? model->head_size : (uint64_t)outputs * inputs;
    } else {
        tensor->shape[n++] = transposed ? inputs : outputs;
        tensor->shape[n++] = transposed ? outputs : inputs;
    }
    tensor->dimension_count = n;
}

static void set_sizes(struct saved_tensor *tensor, struct model *model)
{
    const struct arch_weight *line = tensor->line;
    bool each_head = line->flags & WEIGHT_HF_EACH_HEAD, stacked = is_stacked(line);
    uint32_t outputs = output_count(line, model);
    uint32_t inputs = each_head ? model->head_size : arch_dim_value(model, line->columns);
    uint32_t expert = each_head ? 0 : tensor->inner;

    set_shape(tensor, model, outputs, inputs);
    tensor->columns = line->flags & WEIGHT_HF_TRANSPOSED ? outputs : inputs;
    tensor->rows = (uint64_t)(line->flags & WEIGHT_HF_TRANSPOSED ? inputs : outputs) *
                   (stacked ? model->expert_count : 1);
    tensor->type = arch_weight_at(line, model, tensor->layer, expert)->parts[line->part].type;
    tensor->bytes = dtype_bytes(tensor->type, tensor->rows * tensor->columns);
}

/* --- the list ------------------------------------------------------------------------------ */

/* Does the line begin a tensor, and do not only add to one? */
static bool begins_tensor(const struct arch_weight *line, uint32_t expert)
{
    bool shares = line->slice == SLICE_QKV || line->slice == SLICE_GATE_UP ||
                  (line->flags & WEIGHT_HF_INTERLEAVED);

    return (!shares || line->part == 0) && (expert == 0 || !is_stacked(line));
}

/* How many tensors the line has in that layer, for each of its weights. */
static uint32_t tensor_count(const struct arch_weight *line, const struct model *model)
{
    if (!line->hf_name || !(line->flags & WEIGHT_HF_EACH_HEAD))
        return 1;
    return arch_dim_value(model, line->columns) / model->head_size;
}

static uint64_t count_at_most(const struct model *model, const struct arch *arch)
{
    uint64_t count = 0;

    for (uint32_t layer = 0; layer < model->layer_count; layer++)
        for (uint32_t i = 0; i < arch->weight_count; i++)
            count += (uint64_t)arch_weight_count(&arch->weights[i], model, layer) *
                     tensor_count(&arch->weights[i], model);
    return count;
}

static uint32_t list_line(struct model *model, const struct arch_weight *line, uint32_t layer,
                          bool nested, struct saved_tensor *tensors)
{
    uint32_t count = arch_weight_count(line, model, layer), listed = 0;

    for (uint32_t expert = 0; expert < count; expert++) {
        if (!model_random_has(line, model, layer, expert) || !begins_tensor(line, expert))
            continue;
        for (uint32_t i = 0; i < tensor_count(line, model); i++) {
            struct saved_tensor *tensor = &tensors[listed++];
            char name[ARCH_NAME_BYTES];

            tensor->line = line;
            tensor->layer = layer;
            tensor->inner = expert + i; /* one of them is 0 */
            arch_weight_name(line->hf_name, layer, tensor->inner, name);
            snprintf(tensor->name, sizeof tensor->name, "%s%s", nested ? "language_model." : "",
                     name);
            set_sizes(tensor, model);
        }
    }
    return listed;
}

int saved_tensors_list(struct model *model, const struct arch *arch, bool nested,
                       struct saved_tensor **ret_tensors, uint32_t *ret_count, struct fault *fault)
{
    struct saved_tensor *tensors = calloc(count_at_most(model, arch), sizeof *tensors);
    uint32_t count = 0;

    if (!tensors)
        return fault_set(fault, E_MEMORY, "out of memory for the list of tensors");
    for (uint32_t layer = 0; layer < model->layer_count; layer++)
        for (uint32_t i = 0; i < arch->weight_count; i++)
            if (layer == 0 || (arch->weights[i].flags & WEIGHT_PER_LAYER))
                count += list_line(model, &arch->weights[i], layer, nested, tensors + count);
    *ret_tensors = tensors;
    *ret_count = count;
    return 0;
}

/* --- their values -------------------------------------------------------------------------- */

/* The part as a file has it: without what is added to it, heads as rows. */
static struct weight_part stored_part(const struct saved_tensor *tensor, struct model *model,
                                      uint32_t part, uint32_t expert)
{
    struct weight_part stored =
        arch_weight_at(tensor->line, model, tensor->layer, expert)->parts[part];

    stored.plus = 0;
    if (tensor->line->flags & WEIGHT_HF_EACH_HEAD)
        stored.rows = tensor_count(tensor->line, model);
    return stored;
}

static void read_row(const struct saved_tensor *tensor, struct model *model, uint32_t expert,
                     uint32_t row, uint8_t *to)
{
    const struct arch_weight *line = tensor->line;
    size_t element = dtype_bytes(tensor->type, 1);
    struct weight_part part;
    uint32_t from;

    if (line->flags & WEIGHT_HF_EACH_HEAD) {
        part = stored_part(tensor, model, line->part, 0);
        weight_part_read(&part, tensor->columns, tensor->inner, 1, tensor->type, to);
        return;
    }
    if (!(line->flags & WEIGHT_HF_TRANSPOSED)) {
        part = stored_part(tensor, model, find_output(line, model, row, &from), expert);
        weight_part_read(&part, tensor->columns, from, 1, tensor->type, to);
        return;
    }
    for (uint32_t output = 0; output < tensor->columns; output++) {
        part = stored_part(tensor, model, find_output(line, model, output, &from), expert);
        weight_part_read_element(&part, arch_dim_value(model, line->columns), from, row,
                                 tensor->type, to + output * element);
    }
}

void saved_tensor_read(const struct saved_tensor *tensor, struct model *model, uint64_t first,
                       uint64_t count, void *to)
{
    size_t row_bytes = dtype_bytes(tensor->type, tensor->columns);
    uint64_t rows = is_stacked(tensor->line) ? tensor->rows / model->expert_count : tensor->rows;

    for (uint64_t row = first; row < first + count; row++) {
        uint32_t expert = is_stacked(tensor->line) ? (uint32_t)(row / rows) : tensor->inner;

        read_row(tensor, model, expert, (uint32_t)(row % rows),
                 (uint8_t *)to + (row - first) * row_bytes);
    }
}
