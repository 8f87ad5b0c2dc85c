/* model.c -- binds a checkpoint's tensors by the architecture's row.
 *
 * The sizes come from the file's metadata (gguf_config.c) or from config.json (hf_config.c). Every
 * tensor's shape is compared with what they say, so a backend may trust both. A tensor of a GGUF
 * file that no line of the row names is a fault too: computing without it would silently give
 * another model's answers. Transformers' checkpoints carry tensors that their own classes ignore;
 * as there, what config.json has no use for is left aside, and counted (model.ignored_count). */
#include "engine/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf_config.h"
#include "engine/hf_config.h"
#include "engine/weight_part.h"

enum { NAME_BYTES = 96, SHAPE_BYTES = 96 };

/* What binding needs besides the model. */
struct binding {
    const struct checkpoint *checkpoint;
    const struct arch *arch;
    struct model *model;
    bool hf;           /* names and conventions of Transformers */
    bool tied;         /* the head is the embedding, whatever the file has */
    bool nested;       /* names have a larger model's prefix */
    unsigned features; /* WEIGHT_IF_: what there has to be */
    bool *bound;       /* [tensors of the checkpoint] */
    struct fault *fault;
};

static const char *path_of(const struct binding *binding)
{
    return checkpoint_path(binding->checkpoint);
}

/* --- tensors ------------------------------------------------------------------------------- */

static bool is_float(enum dtype type)
{
    return type == DT_F32 || type == DT_F16 || type == DT_BF16;
}

static struct stored_tensor vector_of(uint64_t count)
{
    return (struct stored_tensor){.dimension_count = 1, .dimensions = {count, 1}};
}

/* GGUF leaves out dimensions of 1 as it likes. */
static bool has_shape(const struct binding *binding, const struct stored_tensor *tensor,
                      const struct stored_tensor *wanted)
{
    for (uint32_t i = 0; i < TENSOR_DIMENSIONS_MAX; i++) {
        uint64_t size = wanted->dimensions[i] ? wanted->dimensions[i] : 1;

        if (tensor->dimensions[i] != size)
            return false;
    }
    return !binding->hf || tensor->dimension_count == wanted->dimension_count;
}

static int misshapen(const struct binding *binding, const char *name,
                     const struct stored_tensor *tensor, const struct stored_tensor *wanted)
{
    char has[SHAPE_BYTES], wants[SHAPE_BYTES];

    checkpoint_print_shape(binding->checkpoint, tensor, has, sizeof has);
    checkpoint_print_shape(binding->checkpoint, wanted, wants, sizeof wants);
    return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s is %s, not %s as %s",
                     path_of(binding), name, has, wants,
                     binding->hf ? "config.json says" : "the metadata say");
}

/* --- lines that are cut out of a tensor ---------------------------------------------------- */

static bool has_flag(const struct binding *binding, const struct arch_weight *line, unsigned flag)
{
    return binding->hf && (line->flags & flag);
}

/* One tensor for all experts, and not one for each? */
static bool is_stacked(const struct binding *binding, const struct arch_weight *line)
{
    return line->slice == SLICE_EXPERTS &&
           !arch_name_has_inner(binding->hf ? line->hf_name : line->name);
}

/* How many rows the tensor of that line has, of all its parts (of one expert's). */
static uint32_t tensor_rows(const struct binding *binding, const struct arch_weight *line)
{
    const struct model *model = binding->model;

    switch (line->slice) {
    case SLICE_EXPERTS:
        return arch_dim_value(model, line->rows) *
               (has_flag(binding, line, WEIGHT_HF_INTERLEAVED) ? 2 : 1);
    case SLICE_QKV:
        return arch_dim_value(model, DIM_Q) + arch_dim_value(model, DIM_KV) +
               arch_dim_value(model, DIM_V);
    case SLICE_GATE_UP:
        return 2 * arch_dim_value(model, line->rows);
    default:
        return arch_dim_value(model, line->rows);
    }
}

/* Of q, k and v stacked: the part's first row. By head: in the first KV head's rows, and how they
 * lie scattered. */
static uint32_t cut_qkv(const struct binding *binding, const struct arch_weight *line,
                        struct weight_part *part)
{
    const struct model *model = binding->model;
    bool by_head = has_flag(binding, line, WEIGHT_HF_BY_HEAD);
    uint32_t share = by_head ? model->kv_heads : 1;
    uint32_t rows[3] = {arch_dim_value(model, DIM_Q) / share, arch_dim_value(model, DIM_KV) / share,
                        arch_dim_value(model, DIM_V) / share};
    uint32_t first = 0;

    for (uint32_t i = 0; i < line->part; i++)
        first += rows[i];
    if (by_head) {
        part->block_rows = rows[line->part];
        part->block_stride = rows[0] + rows[1] + rows[2];
    }
    return first;
}

/* The part of the tensor that the line means, of that expert where all are stacked. */
static struct weight_part cut(const struct binding *binding, const struct arch_weight *line,
                              const struct stored_tensor *tensor, uint32_t expert)
{
    const struct model *model = binding->model;
    struct weight_part part = {.type = tensor->type, .tables = tensor->tables};
    uint32_t columns = arch_dim_value(model, line->columns), first = 0;
    uint64_t before = is_stacked(binding, line) ? (uint64_t)expert * tensor_rows(binding, line) : 0;

    if (line->slice == SLICE_QKV)
        first = cut_qkv(binding, line, &part);
    if (line->slice == SLICE_GATE_UP)
        first = line->part * arch_dim_value(model, line->rows);
    if (has_flag(binding, line, WEIGHT_HF_INTERLEAVED)) {
        first = line->part;
        part.block_rows = 1;
        part.block_stride = 2;
    }
    part.data = (const uint8_t *)tensor->data + before * dtype_bytes(tensor->type, columns);
    if (has_flag(binding, line, WEIGHT_HF_TRANSPOSED)) {
        part.transposed = tensor_rows(binding, line);
        columns = 1;
    }
    if (has_flag(binding, line, WEIGHT_HF_PLUS_ONE))
        part.plus = 1.0f;
    if (part.tables) {
        part.data = tensor->data;
        part.first_row = (uint32_t)before + first;
    } else {
        part.data = (const uint8_t *)part.data + first * dtype_bytes(tensor->type, columns);
    }
    return part;
}

/* What a line of the row wants of a tensor's shape: a vector stands in the file as one dimension,
 * whether it is a row or a column here (but not a product's only row); gains of each head's own are
 * [heads][head_size]. */
static struct stored_tensor wanted_shape(const struct binding *binding,
                                         const struct arch_weight *line)
{
    const struct model *model = binding->model;
    uint32_t rows = tensor_rows(binding, line), columns = arch_dim_value(model, line->columns);
    struct stored_tensor stacked = {.dimension_count = 3, .dimensions = {columns, rows}};

    if ((line->columns == DIM_QK_NORM || line->columns == DIM_QK_NORM_KV) &&
        model->qk_norm == QK_NORM_HEADS)
        return (struct stored_tensor){
            .dimension_count = 2,
            .dimensions = {model->head_size, columns / model->head_size},
        };
    if (is_stacked(binding, line)) {
        if (line->columns == DIM_ONE)
            stacked = vector_of(rows);
        else if (has_flag(binding, line, WEIGHT_HF_TRANSPOSED))
            stacked = (struct stored_tensor){.dimension_count = 3, .dimensions = {rows, columns}};
        if (line->columns == DIM_ONE)
            stacked.dimension_count = 2;
        stacked.dimensions[stacked.dimension_count - 1] = model->expert_count;
        return stacked;
    }
    if (arch_weight_is_vector(line))
        return vector_of((uint64_t)rows * columns);
    if (has_flag(binding, line, WEIGHT_HF_TRANSPOSED))
        return (struct stored_tensor){.dimension_count = 2, .dimensions = {rows, columns}};
    return (struct stored_tensor){.dimension_count = 2, .dimensions = {columns, rows}};
}

static int check_tensor(const struct binding *binding, const struct arch_weight *line,
                        const char *name, const struct stored_tensor *tensor)
{
    unsigned scatters = WEIGHT_HF_TRANSPOSED | WEIGHT_HF_PLUS_ONE;
    const struct stored_tensor wanted = wanted_shape(binding, line);

    if (!has_shape(binding, tensor, &wanted))
        return misshapen(binding, name, tensor, &wanted);
    if (!tensor->known)
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: the tensor %s is of %s%s, in which weights are not read",
                         path_of(binding), name, binding->hf ? "dtype " : "", tensor->format);
    if (!tensor->tables) /* rows with tables may lie anywhere */
        scatters |= WEIGHT_HF_BY_HEAD | WEIGHT_HF_INTERLEAVED;
    if ((line->flags & WEIGHT_FLOAT || has_flag(binding, line, scatters)) &&
        (tensor->tables || !is_float(tensor->type)))
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: the tensor %s is %s; only F32, F16 and BF16 are read there",
                         path_of(binding), name, tensor->format);
    return 0;
}

/* A text model inside of a larger one: as it is shipped, and as Transformers 5 writes it. */
static const struct stored_tensor *find_nested(const struct binding *binding, const char *name)
{
    const struct stored_tensor *tensor;
    char longer[ARCH_NAME_BYTES + 32];

    snprintf(longer, sizeof longer, "language_model.%s", name);
    tensor = checkpoint_tensor_find(binding->checkpoint, longer);
    if (!tensor && strncmp(name, "model.", 6) == 0) {
        snprintf(longer, sizeof longer, "model.language_model.%s", name + 6);
        tensor = checkpoint_tensor_find(binding->checkpoint, longer);
    }
    return tensor;
}

/* Checkpoints of bare models leave out the prefix that those with a head have. */
static const struct stored_tensor *find_tensor(const struct binding *binding, const char *name)
{
    const struct stored_tensor *tensor = checkpoint_tensor_find(binding->checkpoint, name);
    const char *prefix = binding->arch->hf_prefix ? binding->arch->hf_prefix : "model.";
    size_t bytes = strlen(prefix);

    if (!tensor && binding->hf && strncmp(name, prefix, bytes) == 0)
        tensor = checkpoint_tensor_find(binding->checkpoint, name + bytes);
    return tensor || !binding->nested ? tensor : find_nested(binding, name);
}

static void note_bound(struct binding *binding, const struct stored_tensor *tensor)
{
    bool *bound = &binding->bound[tensor - checkpoint_tensor_at(binding->checkpoint, 0)];

    if (!*bound)
        binding->model->weight_bytes += tensor->bytes;
    *bound = true;
}

static int missing(const struct binding *binding, const char *name)
{
    return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s is missing", path_of(binding),
                     name);
}

static bool is_required(const struct binding *binding, const struct arch_weight *line,
                        const struct weight *weight)
{
    if (binding->hf && weight == &binding->model->head)
        return true;
    if (line->flags & WEIGHT_SHARED)
        return binding->model->shared_width > 0;
    if (line->flags & WEIGHT_Q_LATENT)
        return binding->model->q_latent > 0;
    return !(line->flags & WEIGHT_OPTIONAL) || (line->flags & binding->features);
}

/* A tensor for each head becomes one vector of the model's own. */
static int gather_heads(struct binding *binding, const struct arch_weight *line, uint32_t layer,
                        struct weight *weight)
{
    struct model *model = binding->model;
    uint32_t heads = arch_dim_value(model, line->columns) / model->head_size;
    const struct stored_tensor wanted = vector_of(model->head_size);
    float *gains = model_own(model, (size_t)heads * model->head_size * sizeof *gains);
    char name[ARCH_NAME_BYTES];

    if (!gains)
        return fault_set(binding->fault, E_MEMORY, "out of memory for the norms of heads");
    for (uint32_t head = 0; head < heads; head++) {
        const struct stored_tensor *tensor;
        struct weight_part part;

        arch_weight_name(line->hf_name, layer, head, name);
        tensor = find_tensor(binding, name);
        if (!tensor && head == 0 && !is_required(binding, line, weight))
            return 0;
        if (!tensor)
            return missing(binding, name);
        if (!has_shape(binding, tensor, &wanted))
            return misshapen(binding, name, tensor, &wanted);
        if (!tensor->known || !is_float(tensor->type))
            return fault_set(binding->fault, E_UNSUPPORTED,
                             "%s: the tensor %s is %s; only F32, F16 and BF16 are read there",
                             path_of(binding), name, tensor->format);
        part = (struct weight_part){.type = tensor->type, .rows = 1, .data = tensor->data};
        weight_part_read(&part, model->head_size, 0, 1, DT_F32, gains + head * model->head_size);
        note_bound(binding, tensor);
    }
    arch_weight_add(line, model, weight, (struct weight_part){.type = DT_F32, .data = gains});
    return 0;
}

/* Binds one tensor to its part of a weight, unless an earlier line has done so. */
static int bind_tensor(struct binding *binding, const struct arch_weight *line, uint32_t layer,
                       uint32_t expert)
{
    struct weight *weight = arch_weight_at(line, binding->model, layer, expert);
    const char *format = binding->hf ? line->hf_name : line->name;
    const struct stored_tensor *tensor;
    char name[ARCH_NAME_BYTES];
    int r;

    if (!format || weight->part_count > line->part)
        return 0;
    if (binding->hf && weight == &binding->model->head && binding->tied)
        return 0;
    if (has_flag(binding, line, WEIGHT_HF_EACH_HEAD))
        return gather_heads(binding, line, layer, weight);
    arch_weight_name(format, layer, expert, name);
    tensor = find_tensor(binding, name);
    if (!tensor)
        return is_required(binding, line, weight) ? missing(binding, name) : 0;
    r = check_tensor(binding, line, name, tensor);
    if (r < 0)
        return r;
    /* Parts are stacked in their order; a later one without those before it has no place. */
    if (weight->part_count != line->part)
        return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s stands without its fellows",
                         path_of(binding), name);
    arch_weight_add(line, binding->model, weight, cut(binding, line, tensor, expert));
    note_bound(binding, tensor);
    return 0;
}

/* The lines that belong to every layer, or those that belong to none. */
static int bind_lines(struct binding *binding, bool per_layer, uint32_t layer)
{
    for (uint32_t i = 0; i < binding->arch->weight_count; i++) {
        const struct arch_weight *line = &binding->arch->weights[i];
        uint32_t count;

        if (((line->flags & WEIGHT_PER_LAYER) != 0) != per_layer)
            continue;
        count = arch_weight_count(line, binding->model, layer);
        for (uint32_t expert = 0; expert < count; expert++) {
            int r = bind_tensor(binding, line, layer, expert);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* --- tensors that nothing is bound to ------------------------------------------------------ */

/* What Transformers' classes wrote once and compute themselves: rotary frequencies, causal masks.
 */
static bool is_leftover(struct gguf_string name)
{
    static const char *const endings[] = {".inv_freq", ".attn.bias", ".attn.masked_bias",
                                          ".attention.bias", ".attention.masked_bias"};

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t bytes = strlen(endings[i]);

        if (name.bytes >= bytes && memcmp(name.text + name.bytes - bytes, endings[i], bytes) == 0)
            return true;
    }
    return false;
}

static int check_rest(struct binding *binding)
{
    struct model *model = binding->model;

    for (uint32_t i = 0; i < checkpoint_tensor_count(binding->checkpoint); i++) {
        const struct stored_tensor *tensor = checkpoint_tensor_at(binding->checkpoint, i);
        char printed[NAME_BYTES];

        if (binding->bound[i] || (binding->hf && is_leftover(tensor->name)))
            continue;
        gguf_string_print(tensor->name, printed, sizeof printed);
        if (!binding->hf)
            return fault_set(binding->fault, E_UNSUPPORTED,
                             "%s: the tensor %s is not one that the architecture %s knows here",
                             path_of(binding), printed, binding->arch->name);
        if (model->ignored_count++ == 0)
            snprintf(model->ignored, sizeof model->ignored, "%s", printed);
    }
    return 0;
}

static int bind_all(struct binding *binding)
{
    struct model *model = binding->model;
    int r = bind_lines(binding, false, 0);

    for (uint32_t layer = 0; layer < model->layer_count && r == 0; layer++)
        r = bind_lines(binding, true, layer);
    if (r < 0)
        return r;
    r = model_finish(model, binding->arch, binding->fault);
    if (r < 0)
        return fault_prefix(binding->fault, "%s", path_of(binding));
    return check_rest(binding);
}

/* --- the model ----------------------------------------------------------------------------- */

/* general.name, or what the path ends in. */
static void set_name(struct binding *binding)
{
    const char *slash = strrchr(path_of(binding), '/');
    struct gguf_string name = {slash && slash[1] ? slash + 1 : path_of(binding), 0};

    name.bytes = strlen(name.text);
    /* A name of another type is no reason to refuse the model. */
    if (!binding->hf)
        (void)gguf_get_string(checkpoint_gguf(binding->checkpoint), "general.name", &name, NULL);
    gguf_string_print(name, binding->model->name, sizeof binding->model->name);
}

/* What the file says of the model. */
static int read_plan(struct binding *binding, struct model_plan *ret_plan)
{
    const struct buf *text;
    struct hf_config config;
    int r;

    if (!binding->hf)
        return gguf_config_read(checkpoint_gguf(binding->checkpoint), ret_plan, binding->fault);
    text = checkpoint_config(binding->checkpoint);
    r = hf_config_read(buf_string(text), text->bytes, &config, binding->fault);
    if (r < 0)
        return fault_prefix(binding->fault, "%s/config.json", path_of(binding)), r;
    *ret_plan = config.plan;
    return 0;
}

static int fill(struct binding *binding)
{
    struct model_plan plan;
    int r = read_plan(binding, &plan);

    if (r < 0)
        return r;
    binding->arch = plan.arch;
    binding->tied = plan.tied;
    binding->nested = plan.nested;
    binding->features = plan.features;
    r = model_begin(&plan, &binding->model, binding->fault);
    if (r < 0)
        return fault_prefix(binding->fault, "%s", path_of(binding));
    set_name(binding);
    binding->bound =
        calloc((size_t)checkpoint_tensor_count(binding->checkpoint) + 1, sizeof *binding->bound);
    if (!binding->bound)
        return fault_set(binding->fault, E_MEMORY, "out of memory for the list of tensors");
    return bind_all(binding);
}

int model_open(const struct checkpoint *checkpoint, struct model **ret_model, struct fault *fault)
{
    struct binding binding = {
        .checkpoint = checkpoint, .hf = !checkpoint_gguf(checkpoint), .fault = fault};
    int r = fill(&binding);

    free(binding.bound);
    if (r < 0) {
        model_close(binding.model);
        return r;
    }
    *ret_model = binding.model;
    return 0;
}
