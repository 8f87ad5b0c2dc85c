/* arch.c -- finding rows and what their lines mean. The table itself is arch_table.c. */
#include "engine/arch.h"

#include <limits.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/option.h"
#include "engine/arch_table.h"

enum { NAME_MAX_BYTES = 32, LIST_BYTES = 384 };

int arch_find(struct gguf_string name, const struct arch **ret_arch, struct fault *fault)
{
    const struct arch *archs = arch_table, *closest = &archs[0];
    char printed[NAME_MAX_BYTES + 1], known[LIST_BYTES];
    unsigned edits_least = UINT_MAX;
    size_t used = 0;

    gguf_string_print(name, printed, sizeof printed);
    for (size_t i = 0; i < arch_table_count; i++) {
        size_t bytes = strlen(archs[i].name);
        unsigned edits = edit_distance(printed, archs[i].name);

        if (bytes == name.bytes && memcmp(archs[i].name, name.text, bytes) == 0) {
            *ret_arch = &archs[i];
            return 0;
        }
        if (edits < edits_least) {
            edits_least = edits;
            closest = &archs[i];
        }
        must(used + bytes + 3 <= sizeof known);
        if (i > 0) {
            memcpy(known + used, ", ", 2);
            used += 2;
        }
        memcpy(known + used, archs[i].name, bytes);
        used += bytes;
    }
    known[used] = '\0';
    return fault_set(
        fault, E_UNSUPPORTED,
        "the architecture \"%s\" is not supported (the closest is %s); known ones are %s", printed,
        closest->name, known);
}

static uint32_t kv_up_rows(const struct model *model)
{
    return model->heads * (model->head_size - model->ropes[0].size + model->value_size);
}

static uint32_t qk_norm_size(const struct model *model, uint32_t heads)
{
    return model->qk_norm == QK_NORM_HEAD ? model->head_size : heads * model->head_size;
}

uint32_t arch_dim_value(const struct model *model, enum arch_dim dim)
{
    const uint32_t values[] = {
        [DIM_ONE] = 1,
        [DIM_WIDTH] = model->width,
        [DIM_VOCABULARY] = model->vocabulary,
        [DIM_EMBEDDING] = model->embedding_width,
        [DIM_POSITIONS] = model->context + model->position_offset,
        [DIM_TYPES] = model->token_types,
        [DIM_Q] = model->heads * model->head_size,
        [DIM_KV] = model->kv_heads * model->head_size,
        [DIM_V] = model->kv_heads * model->value_size,
        [DIM_ATTENTION] = model->heads * model->value_size,
        [DIM_HEAD] = model->head_size,
        [DIM_HEADS] = model->heads,
        [DIM_QK_NORM] = qk_norm_size(model, model->heads),
        [DIM_QK_NORM_KV] = qk_norm_size(model, model->kv_heads),
        [DIM_FFN] = model->ffn_width,
        [DIM_EXPERTS] = model->expert_count,
        [DIM_EXPERT_FFN] = model->expert_width,
        [DIM_SHARED_FFN] = model->shared_width,
        [DIM_Q_LATENT] = model->q_latent,
        [DIM_Q_UP] = model->q_latent ? model->q_latent : model->width,
        [DIM_KV_LATENT] = model->kv_latent,
        [DIM_KV_DOWN] = model->kv_latent + model->ropes[0].size,
        [DIM_KV_UP] = kv_up_rows(model),
        [DIM_ROPE] = model->ropes[0].size / 2,
    };

    must((size_t)dim < sizeof values / sizeof *values);
    return values[dim];
}

uint32_t arch_weight_count(const struct arch_weight *line, const struct model *model,
                           uint32_t layer)
{
    const size_t ffn = offsetof(struct layer, ffn);
    bool sparse;

    if (!(line->flags & WEIGHT_PER_LAYER))
        return 1;
    sparse = model->layers[layer].experts != NULL;
    if (line->slice == SLICE_EXPERTS)
        return sparse ? model->expert_count : 0;
    if (line->flags & WEIGHT_SPARSE)
        return sparse;
    return !sparse || line->weight_offset < ffn || line->weight_offset >= ffn + sizeof(struct ffn);
}

struct weight *arch_weight_at(const struct arch_weight *line, struct model *model, uint32_t layer,
                              uint32_t expert)
{
    char *base = line->flags & WEIGHT_PER_LAYER ? (char *)&model->layers[layer] : (char *)model;

    if (line->slice == SLICE_EXPERTS)
        base = (char *)&model->layers[layer].experts[expert];
    return (struct weight *)(void *)(base + line->weight_offset);
}

void arch_weight_add(const struct arch_weight *line, struct model *model, struct weight *weight,
                     struct weight_part part)
{
    must(weight->part_count == line->part);
    part.rows = arch_dim_value(model, line->rows);
    weight->parts[weight->part_count++] = part;
    weight->rows += part.rows;
    weight->columns = arch_dim_value(model, line->columns);
    model->parameters += (uint64_t)part.rows * weight->columns;
}

bool arch_weight_is_vector(const struct arch_weight *line)
{
    return line->columns == DIM_ONE || (line->rows == DIM_ONE && (line->flags & WEIGHT_FLOAT));
}

bool arch_weight_is_down(const struct arch_weight *line)
{
    const size_t down = offsetof(struct ffn, down);

    if (line->slice == SLICE_EXPERTS)
        return line->weight_offset == down;
    return (line->flags & WEIGHT_PER_LAYER) &&
           (line->weight_offset == offsetof(struct layer, ffn) + down ||
            line->weight_offset == offsetof(struct layer, shared) + down);
}

bool arch_name_has_inner(const char *format)
{
    const char *first = strchr(format, '%');

    return first && strchr(first + 1, '%');
}

void arch_weight_name(const char *format, uint32_t layer, uint32_t inner,
                      char name[static ARCH_NAME_BYTES])
{
    struct buf text;

    buf_init_fixed(&text, name, ARCH_NAME_BYTES);
    for (uint32_t number = layer; *format; format++) {
        if (format[0] != '%') {
            buf_byte(&text, *format);
            continue;
        }
        buf_format(&text, "%u", number);
        number = inner;
        format++;
    }
    (void)buf_string(&text);
}
