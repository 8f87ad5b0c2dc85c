/* model.c -- reads a file's hyperparameters and binds its tensors by the architecture's row.
 *
 * Every number is bounded before it is multiplied, and every tensor's shape is compared with what
 * the numbers say, so a backend may trust both. A tensor that no line of the row names is a fault
 * too: computing without it would silently give another model's answers. */
#include "engine/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch.h"

enum { KEY_BYTES = 96, NAME_BYTES = 96 };

/* What binding needs besides the model. */
struct binding {
    const struct gguf *file;
    const struct arch *arch;
    struct model *model;
    bool *bound; /* [tensors of the file] */
    struct fault *fault;
};

/* --- hyperparameters ----------------------------------------------------------------------- */

static void key_name(const struct binding *binding, const char *suffix, char *ret_key)
{
    snprintf(ret_key, KEY_BYTES, "%s.%s", binding->arch->name, suffix);
}

/* A size from 1 to `most`. Absent: stays at its default, or is refused when that is 0. */
static int read_size(const struct binding *binding, const char *suffix, uint64_t most,
                     uint32_t *ret_size)
{
    char key[KEY_BYTES];
    uint64_t value = *ret_size;
    int r;

    key_name(binding, suffix, key);
    r = gguf_get_u64(binding->file, key, &value, binding->fault);
    if (r < 0)
        return r;
    if (r == 0 && value == 0)
        return fault_set(binding->fault, E_CORRUPT, "%s: the metadata lack %s",
                         gguf_path(binding->file), key);
    if (value < 1 || value > most)
        return fault_set(binding->fault, E_CORRUPT, "%s: %s is %llu; it must be from 1 to %llu",
                         gguf_path(binding->file), key, (unsigned long long)value,
                         (unsigned long long)most);
    *ret_size = (uint32_t)value;
    return 0;
}

/* A finite number above `low` and at most `high`. Absent: stays at its default, or is refused when
 * that is NAN. */
static int read_real(const struct binding *binding, const char *suffix, double low, double high,
                     float *ret_value)
{
    char key[KEY_BYTES];
    double value = (double)*ret_value;
    int r;

    key_name(binding, suffix, key);
    r = gguf_get_f64(binding->file, key, &value, binding->fault);
    if (r < 0)
        return r;
    if (r == 0 && isnan(value))
        return fault_set(binding->fault, E_CORRUPT, "%s: the metadata lack %s",
                         gguf_path(binding->file), key);
    if (!(value > low && value <= high))
        return fault_set(binding->fault, E_CORRUPT,
                         "%s: %s is %g; it must be above %g and at most %g",
                         gguf_path(binding->file), key, value, low, high);
    *ret_value = (float)value;
    return 0;
}

static int read_attention_sizes(const struct binding *binding)
{
    struct model *model = binding->model;
    uint32_t value_size;
    int r;

    r = read_size(binding, "attention.head_count", MODEL_HEADS_MAX, &model->heads);
    if (r < 0)
        return r;
    model->kv_heads = model->heads;
    r = read_size(binding, "attention.head_count_kv", MODEL_HEADS_MAX, &model->kv_heads);
    if (r < 0)
        return r;
    if (model->heads % model->kv_heads != 0)
        return fault_set(binding->fault, E_CORRUPT, "%s: %u heads cannot share %u key-value heads",
                         gguf_path(binding->file), model->heads, model->kv_heads);
    model->head_size = model->width / model->heads;
    r = read_size(binding, "attention.key_length", MODEL_HEAD_SIZE_MAX, &model->head_size);
    if (r < 0)
        return r;
    value_size = model->head_size;
    r = read_size(binding, "attention.value_length", MODEL_HEAD_SIZE_MAX, &value_size);
    if (r < 0)
        return r;
    if (value_size != model->head_size)
        return fault_set(
            binding->fault, E_UNSUPPORTED,
            "%s: keys of %u and values of %u numbers a head: only equal ones are supported",
            gguf_path(binding->file), model->head_size, value_size);
    model->attention_scale = 1.0f / sqrtf((float)model->head_size);
    return read_real(binding, "attention.scale", 0, 1e6, &model->attention_scale);
}

/* Linear scaling divides every frequency by its factor; other kinds are refused by name. */
static int read_rope_scaling(const struct binding *binding, float *ret_factor)
{
    char key[KEY_BYTES], printed[NAME_BYTES];
    struct gguf_string kind = {"none", 4};
    bool linear;
    int r;

    key_name(binding, "rope.scaling.type", key);
    r = gguf_get_string(binding->file, key, &kind, binding->fault);
    if (r < 0)
        return r;
    linear = kind.bytes == 6 && memcmp(kind.text, "linear", 6) == 0;
    if (!linear && !(kind.bytes == 4 && memcmp(kind.text, "none", 4) == 0)) {
        gguf_string_print(kind, printed, sizeof printed);
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: rotary scaling \"%s\" is not supported (known: none, linear)",
                         gguf_path(binding->file), printed);
    }
    *ret_factor = 1.0f;
    r = read_real(binding, "rope.scale_linear", 0, 1e6, ret_factor); /* the older name */
    if (r < 0 || !linear)
        return r;
    return read_real(binding, "rope.scaling.factor", 0, 1e6, ret_factor);
}

static int read_sizes(const struct binding *binding)
{
    struct model *model = binding->model;
    const struct gguf_tensor *embedding;
    char key[KEY_BYTES];
    uint64_t experts = 0;
    int r;

    r = read_size(binding, "block_count", MODEL_LAYERS_MAX, &model->layer_count);
    if (r < 0)
        return r;
    r = read_size(binding, "embedding_length", MODEL_WIDTH_MAX, &model->width);
    if (r < 0)
        return r;
    r = read_size(binding, "feed_forward_length", MODEL_FFN_WIDTH_MAX, &model->ffn_width);
    if (r < 0)
        return r;
    r = read_size(binding, "context_length", MODEL_CONTEXT_MAX, &model->context);
    if (r < 0)
        return r;
    key_name(binding, "expert_count", key);
    r = gguf_get_u64(binding->file, key, &experts, binding->fault);
    if (r < 0)
        return r;
    if (experts)
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: a mixture of %llu experts is not supported yet",
                         gguf_path(binding->file), (unsigned long long)experts);
    r = read_attention_sizes(binding);
    if (r < 0)
        return r;
    embedding = gguf_tensor_find(binding->file, "token_embd.weight");
    if (!embedding)
        return fault_set(binding->fault, E_CORRUPT, "%s: the tensor token_embd.weight is missing",
                         gguf_path(binding->file));
    if (embedding->dimensions[1] > MODEL_VOCABULARY_MAX)
        return fault_set(binding->fault, E_CORRUPT,
                         "%s: token_embd.weight has %llu rows; more than %d tokens are not served",
                         gguf_path(binding->file), (unsigned long long)embedding->dimensions[1],
                         MODEL_VOCABULARY_MAX);
    model->vocabulary = (uint32_t)embedding->dimensions[1];
    return 0;
}

static int read_rope_and_norm(const struct binding *binding)
{
    struct model *model = binding->model;
    int r;

    model->rope_size = model->head_size;
    r = read_size(binding, "rope.dimension_count", model->head_size, &model->rope_size);
    if (r < 0)
        return r;
    if (model->rope_size % 2 != 0)
        return fault_set(binding->fault, E_CORRUPT, "%s: %u dimensions cannot rotate in pairs",
                         gguf_path(binding->file), model->rope_size);
    model->rope_base = 10000.0f;
    r = read_real(binding, "rope.freq_base", 1, 1e12, &model->rope_base);
    if (r < 0)
        return r;
    model->norm_epsilon = NAN;
    return read_real(binding, "attention.layer_norm_rms_epsilon", 0, 0.1, &model->norm_epsilon);
}

/* --- tensors ------------------------------------------------------------------------------- */

/* A vector stands in the file as one dimension, whether it is a row or a column here. */
static int check_tensor(const struct binding *binding, const struct arch_weight *line,
                        const char *name, const struct gguf_tensor *tensor)
{
    uint32_t rows = arch_dim_value(binding->model, line->rows);
    uint32_t columns = arch_dim_value(binding->model, line->columns);
    uint64_t wanted[2] = {columns, rows};

    if (line->columns == DIM_ONE) {
        wanted[0] = rows;
        wanted[1] = 1;
    }
    if (tensor->dimensions[0] != wanted[0] || tensor->dimensions[1] != wanted[1] ||
        tensor->dimensions[2] != 1 || tensor->dimensions[3] != 1)
        return fault_set(binding->fault, E_CORRUPT,
                         "%s: the tensor %s is %llu x %llu x %llu x %llu, not %llu x %llu as the "
                         "metadata say",
                         gguf_path(binding->file), name, (unsigned long long)tensor->dimensions[0],
                         (unsigned long long)tensor->dimensions[1],
                         (unsigned long long)tensor->dimensions[2],
                         (unsigned long long)tensor->dimensions[3], (unsigned long long)wanted[0],
                         (unsigned long long)wanted[1]);
    if (!tensor->known)
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: the tensor %s is of type %u (%s), in which weights are not read",
                         gguf_path(binding->file), name, tensor->code,
                         dtype_gguf_refused(tensor->code));
    if ((line->flags & WEIGHT_FLOAT) && tensor->type != DT_F32)
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: the tensor %s is %s; only F32 is read there",
                         gguf_path(binding->file), name, dtype_get(tensor->type)->name);
    return 0;
}

/* Binds one tensor to its part of a weight. 1: bound; 0: an optional one that is absent. */
static int bind_tensor(struct binding *binding, const struct arch_weight *line, uint32_t layer,
                       struct weight *weight)
{
    const struct gguf_tensor *tensor;
    char name[ARCH_NAME_BYTES];
    int r;

    arch_weight_name(line->name, layer, name);
    tensor = gguf_tensor_find(binding->file, name);
    if (!tensor) {
        if (line->flags & WEIGHT_OPTIONAL)
            return 0;
        return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s is missing",
                         gguf_path(binding->file), name);
    }
    r = check_tensor(binding, line, name, tensor);
    if (r < 0)
        return r;
    /* Parts are stacked in their order; a later one without those before it has no place. */
    if (weight->part_count != line->part)
        return fault_set(binding->fault, E_CORRUPT, "%s: the tensor %s stands without its fellows",
                         gguf_path(binding->file), name);
    arch_weight_add(line, binding->model, weight,
                    (struct weight_part){.type = tensor->type, .data = tensor->data});
    binding->bound[tensor - gguf_tensor_at(binding->file, 0)] = true;
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
                         "%s: layer %u has a bias for some of q, k and v only",
                         gguf_path(binding->file), layer);
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
    for (uint64_t i = 0; i < gguf_tensor_count(binding->file); i++) {
        char printed[NAME_BYTES];

        if (binding->bound[i])
            continue;
        gguf_string_print(gguf_tensor_at(binding->file, i)->name, printed, sizeof printed);
        return fault_set(binding->fault, E_UNSUPPORTED,
                         "%s: the tensor %s is not one that the architecture %s knows here",
                         gguf_path(binding->file), printed, binding->arch->name);
    }
    return 0;
}

/* The file's factors and linear scaling become one list. */
static int set_rope_factors(struct binding *binding)
{
    struct model *model = binding->model;
    uint32_t pairs = model->rope_size / 2;
    const float *from = model->rope_freqs.rows ? model->rope_freqs.parts[0].data : NULL;
    float scale = 1.0f;
    int r;

    r = read_rope_scaling(binding, &scale);
    if (r < 0)
        return r;
    if (!from && scale == 1.0f)
        return 0;
    model->rope_factors = calloc(pairs, sizeof *model->rope_factors);
    if (!model->rope_factors)
        return fault_set(binding->fault, E_MEMORY, "out of memory for the rotary factors");
    for (uint32_t i = 0; i < pairs; i++) {
        model->rope_factors[i] = (from ? from[i] : 1.0f) * scale;
        if (!(model->rope_factors[i] > 0.0f && model->rope_factors[i] < 1e30f))
            return fault_set(binding->fault, E_CORRUPT,
                             "%s: a rotary factor in rope_freqs.weight is not a positive number",
                             gguf_path(binding->file));
    }
    return 0;
}

/* --- the model ----------------------------------------------------------------------------- */

static int find_arch(struct binding *binding)
{
    struct gguf_string name = {"", 0};
    int r = gguf_get_string(binding->file, "general.architecture", &name, binding->fault);

    if (r < 0)
        return r;
    if (r == 0)
        return fault_set(binding->fault, E_CORRUPT, "%s: the metadata lack general.architecture",
                         gguf_path(binding->file));
    r = arch_find(name, &binding->arch, binding->fault);
    if (r < 0)
        return fault_prefix(binding->fault, "%s", gguf_path(binding->file));
    return 0;
}

static void set_name(struct binding *binding)
{
    const char *slash = strrchr(gguf_path(binding->file), '/');
    struct gguf_string name = {slash ? slash + 1 : gguf_path(binding->file), 0};

    name.bytes = strlen(name.text);
    /* A name of another type is no reason to refuse the model. */
    (void)gguf_get_string(binding->file, "general.name", &name, NULL);
    gguf_string_print(name, binding->model->name, sizeof binding->model->name);
}

static int fill(struct binding *binding)
{
    struct model *model = binding->model;
    int r;

    r = find_arch(binding);
    if (r < 0)
        return r;
    model->architecture = binding->arch->name;
    model->norm = binding->arch->norm;
    model->ffn = binding->arch->ffn;
    model->rope = binding->arch->rope;
    set_name(binding);
    r = read_sizes(binding);
    if (r < 0)
        return r;
    r = read_rope_and_norm(binding);
    if (r < 0)
        return r;
    model->layers = calloc(model->layer_count, sizeof *model->layers);
    binding->bound = calloc(gguf_tensor_count(binding->file) + 1, sizeof *binding->bound);
    if (!model->layers || !binding->bound)
        return fault_set(binding->fault, E_MEMORY, "out of memory for %u layers",
                         model->layer_count);
    r = bind_all(binding);
    if (r < 0)
        return r;
    return set_rope_factors(binding);
}

int model_open(const struct gguf *file, struct model **ret_model, struct fault *fault)
{
    struct binding binding = {.file = file, .fault = fault};
    int r;

    binding.model = calloc(1, sizeof *binding.model);
    if (!binding.model)
        return fault_set(fault, E_MEMORY, "out of memory opening %s", gguf_path(file));
    r = fill(&binding);
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
