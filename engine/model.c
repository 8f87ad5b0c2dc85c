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

#include "engine/arch.h"
#include "engine/gguf_config.h"
#include "engine/hf_config.h"
#include "engine/weight_part.h"

enum { NAME_BYTES = 96, SHAPE_BYTES = 96 };

/* What binding needs besides the model. */
struct binding {
    const struct checkpoint *checkpoint;
    const struct arch *arch;
    struct model *model;
    bool hf;     /* names and conventions of Transformers */
    bool tied;   /* the head is the embedding, whatever the file has */
    bool *bound; /* [tensors of the checkpoint] */
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

/* What a line of the row wants of a tensor's shape: a vector stands in the file as one dimension,
 * whether it is a row or a column here. */
static struct stored_tensor wanted_shape(const struct binding *binding,
                                         const struct arch_weight *line)
{
    uint32_t rows = arch_dim_value(binding->model, line->rows);
    uint32_t columns = arch_dim_value(binding->model, line->columns);

    if (line->rows == DIM_ONE || line->columns == DIM_ONE)
        return (struct stored_tensor){.dimension_count = 1, .dimensions = {rows * columns, 1}};
    return (struct stored_tensor){.dimension_count = 2, .dimensions = {columns, rows}};
}

/* GGUF leaves out dimensions of 1 as it likes. */
static bool has_shape(const struct binding *binding, const struct stored_tensor *tensor,
                      const struct stored_tensor *wanted)
{
    for (uint32_t i = 2; i < TENSOR_DIMENSIONS_MAX; i++) {
        if (tensor->dimensions[i] != 1)
            return false;
    }
    return tensor->dimensions[0] == wanted->dimensions[0] &&
           tensor->dimensions[1] == wanted->dimensions[1] &&
           (!binding->hf || tensor->dimension_count == wanted->dimension_count);
}

static int check_tensor(const struct binding *binding, const struct arch_weight *line,
                        const char *name, const struct stored_tensor *tensor)
{
    const struct stored_tensor wanted = wanted_shape(binding, line);
    char has[SHAPE_BYTES], wants[SHAPE_BYTES];

    if (!has_shape(binding, tensor, &wanted)) {
        checkpoint_print_shape(binding->checkpoint, tensor, has, sizeof has);
        checkpoint_print_shape(binding->checkpoint, &wanted, wants, sizeof wants);
        return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s is %s, not %s as %s",
                         path_of(binding), name, has, wants,
                         binding->hf ? "config.json says" : "the metadata say");
    }
    if (!tensor->known)
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: the tensor %s is of %s%s, in which weights are not read",
                         path_of(binding), name, binding->hf ? "dtype " : "", tensor->format);
    if ((line->flags & WEIGHT_FLOAT) && !is_float(tensor->type))
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: the tensor %s is %s; only F32, F16 and BF16 are read there",
                         path_of(binding), name, tensor->format);
    return 0;
}

/* Checkpoints of bare models leave out the prefix that those with a head have. */
static const struct stored_tensor *find_tensor(const struct binding *binding, const char *name)
{
    const struct stored_tensor *tensor = checkpoint_tensor_find(binding->checkpoint, name);
    static const char *const prefixes[] = {"model.", "transformer."};

    for (size_t i = 0; !tensor && binding->hf && i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t bytes = strlen(prefixes[i]);

        if (strncmp(name, prefixes[i], bytes) == 0)
            tensor = checkpoint_tensor_find(binding->checkpoint, name + bytes);
    }
    return tensor;
}

/* Binds one tensor to its part of a weight. 1: bound; 0: an optional one that is absent. */
static int bind_tensor(struct binding *binding, const struct arch_weight *line, uint32_t layer,
                       struct weight *weight)
{
    const char *format = binding->hf ? line->hf_name : line->name;
    const struct stored_tensor *tensor;
    char name[ARCH_NAME_BYTES];
    bool required = !(line->flags & WEIGHT_OPTIONAL);
    int r;

    if (!format)
        return 0;
    if (binding->hf && weight == &binding->model->head) {
        if (binding->tied)
            return 0;
        required = true;
    }
    arch_weight_name(format, layer, name);
    tensor = find_tensor(binding, name);
    if (!tensor) {
        if (!required)
            return 0;
        return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s is missing",
                         path_of(binding), name);
    }
    r = check_tensor(binding, line, name, tensor);
    if (r < 0)
        return r;
    /* Parts are stacked in their order; a later one without those before it has no place. */
    if (weight->part_count != line->part)
        return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s stands without its fellows",
                         path_of(binding), name);
    arch_weight_add(
        line, binding->model, weight,
        (struct weight_part){.type = tensor->type, .data = tensor->data, .tables = tensor->tables});
    binding->bound[tensor - checkpoint_tensor_at(binding->checkpoint, 0)] = true;
    binding->model->weight_bytes += tensor->bytes;
    return 1;
}

static int bind_layer(struct binding *binding, uint32_t layer)
{
    const struct layer *bound = &binding->model->layers[layer];
    int r;

    for (uint32_t i = 0; i < binding->arch->weight_count; i++) {
        const struct arch_weight *line = &binding->arch->weights[i];

        if (!(line->flags & WEIGHT_PER_LAYER))
            continue;
        r = bind_tensor(binding, line, layer, arch_weight_at(line, binding->model, layer));
        if (r < 0)
            return r;
    }
    if (bound->qkv_bias.rows && bound->qkv_bias.rows != bound->qkv.rows)
        return fault_set(binding->fault, E_CORRUPT,
                         "%s: layer %u has a bias for some of q, k and v only", path_of(binding),
                         layer);
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
    int r;

    for (uint32_t i = 0; i < binding->arch->weight_count; i++) {
        const struct arch_weight *line = &binding->arch->weights[i];

        if (line->flags & WEIGHT_PER_LAYER)
            continue;
        r = bind_tensor(binding, line, 0, arch_weight_at(line, model, 0));
        if (r < 0)
            return r;
    }
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        r = bind_layer(binding, layer);
        if (r < 0)
            return r;
    }
    if (!model->head.rows)
        model->head = model->embedding;
    return check_rest(binding);
}

/* --- the model ----------------------------------------------------------------------------- */

static int take_factors(struct binding *binding)
{
    struct model *model = binding->model;

    model->rope_factors = calloc(model->rope_size / 2, sizeof *model->rope_factors);
    return model->rope_factors
               ? 0
               : fault_set(binding->fault, E_MEMORY, "out of memory for the rotary factors");
}

/* The file's factors and linear scaling become one list. */
static int set_gguf_factors(struct binding *binding, float scale)
{
    struct model *model = binding->model;
    bool stored = model->rope_freqs.rows > 0;
    int r;

    if (!stored && scale == 1.0f)
        return 0;
    r = take_factors(binding);
    if (r < 0)
        return r;
    if (stored)
        weight_part_read(&model->rope_freqs.parts[0], model->rope_size / 2, 0, 1, DT_F32,
                         model->rope_factors);
    for (uint32_t i = 0; i < model->rope_size / 2; i++) {
        float *factor = &model->rope_factors[i];

        *factor = (stored ? *factor : 1.0f) * scale;
        if (!(*factor > 0.0f && *factor < 1e30f))
            return fault_set(binding->fault, E_CORRUPT,
                             "%s: a rotary factor in rope_freqs.weight is not a positive number",
                             path_of(binding));
    }
    return 0;
}

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

static int bind_sized(struct binding *binding, const struct arch *arch, const struct model *sizes)
{
    struct model *model = binding->model;

    binding->arch = arch;
    *model = *sizes;
    set_name(binding);
    model->layers = calloc(model->layer_count, sizeof *model->layers);
    binding->bound =
        calloc((size_t)checkpoint_tensor_count(binding->checkpoint) + 1, sizeof *binding->bound);
    if (!model->layers || !binding->bound)
        return fault_set(binding->fault, E_MEMORY, "out of memory for %u layers",
                         model->layer_count);
    return bind_all(binding);
}

static int fill_from_gguf(struct binding *binding)
{
    struct gguf_config config;
    int r = gguf_config_read(checkpoint_gguf(binding->checkpoint), &config, binding->fault);

    if (r == 0)
        r = bind_sized(binding, config.arch, &config.sizes);
    return r < 0 ? r : set_gguf_factors(binding, config.rope_scale);
}

static int fill_from_folder(struct binding *binding)
{
    const struct buf *text = checkpoint_config(binding->checkpoint);
    struct hf_config config;
    int r = hf_config_read(buf_string(text), text->bytes, &config, binding->fault);

    if (r < 0)
        return fault_prefix(binding->fault, "%s/config.json", path_of(binding)), r;
    binding->hf = true;
    binding->tied = config.tied;
    r = bind_sized(binding, config.arch, &config.sizes);
    if (r < 0)
        return r;
    must(config.end_count <= MODEL_END_TOKENS_MAX);
    binding->model->end_count = config.end_count;
    memcpy(binding->model->end_tokens, config.end_tokens, sizeof config.end_tokens);
    if (config.rope_scaling.kind == HF_ROPE_NONE)
        return 0;
    r = take_factors(binding);
    if (r == 0)
        hf_config_rope_factors(&config, binding->model->rope_factors);
    return r;
}

int model_open(const struct checkpoint *checkpoint, struct model **ret_model, struct fault *fault)
{
    struct binding binding = {.checkpoint = checkpoint, .fault = fault};
    int r;

    binding.model = calloc(1, sizeof *binding.model);
    if (!binding.model)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", checkpoint_path(checkpoint));
    r = checkpoint_gguf(checkpoint) ? fill_from_gguf(&binding) : fill_from_folder(&binding);
    free(binding.bound);
    if (r < 0) {
        model_close(binding.model);
        return r;
    }
    *ret_model = binding.model;
    return 0;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    free(model->layers);
    free(model->rope_factors);
    free(model);
}
