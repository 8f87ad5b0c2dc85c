/* gguf_config.c -- see gguf_config.h. Every number is bounded before it is multiplied. */
#include "engine/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 96, NAME_BYTES = 96 };

/* What reading needs besides the numbers. */
struct reading {
    const struct gguf *file;
    const struct arch *arch;
    struct model *model; /* the sizes that are filled */
    struct fault *fault;
};

static void key_name(const struct reading *reading, const char *suffix, char *ret_key)
{
    snprintf(ret_key, KEY_BYTES, "%s.%s", reading->arch->name, suffix);
}

/* A size from 1 to `most`. Absent: stays at its default, or is refused when that is 0. */
static int read_size(const struct reading *reading, const char *suffix, uint64_t most,
                     uint32_t *ret_size)
{
    char key[KEY_BYTES];
    uint64_t value = *ret_size;
    int r;

    key_name(reading, suffix, key);
    r = gguf_get_u64(reading->file, key, &value, reading->fault);
    if (r < 0)
        return r;
    if (r == 0 && value == 0)
        return fault_set(reading->fault, E_CORRUPT, "%s: the metadata lack %s",
                         gguf_path(reading->file), key);
    if (value < 1 || value > most)
        return fault_set(reading->fault, E_CORRUPT, "%s: %s is %llu; it must be from 1 to %llu",
                         gguf_path(reading->file), key, (unsigned long long)value,
                         (unsigned long long)most);
    *ret_size = (uint32_t)value;
    return 0;
}

/* A finite number above `low` and at most `high`. Absent: stays at its default, or is refused when
 * that is NAN. */
static int read_real(const struct reading *reading, const char *suffix, double low, double high,
                     float *ret_value)
{
    char key[KEY_BYTES];
    double value = (double)*ret_value;
    int r;

    key_name(reading, suffix, key);
    r = gguf_get_f64(reading->file, key, &value, reading->fault);
    if (r < 0)
        return r;
    if (r == 0 && isnan(value))
        return fault_set(reading->fault, E_CORRUPT, "%s: the metadata lack %s",
                         gguf_path(reading->file), key);
    if (!(value > low && value <= high))
        return fault_set(reading->fault, E_CORRUPT,
                         "%s: %s is %g; it must be above %g and at most %g",
                         gguf_path(reading->file), key, value, low, high);
    *ret_value = (float)value;
    return 0;
}

static int read_attention_sizes(const struct reading *reading)
{
    struct model *model = reading->model;
    uint32_t value_size;
    int r;

    r = read_size(reading, "attention.head_count", MODEL_HEADS_MAX, &model->heads);
    if (r < 0)
        return r;
    model->kv_heads = model->heads;
    r = read_size(reading, "attention.head_count_kv", MODEL_HEADS_MAX, &model->kv_heads);
    if (r < 0)
        return r;
    if (model->heads % model->kv_heads != 0)
        return fault_set(reading->fault, E_CORRUPT, "%s: %u heads cannot share %u key-value heads",
                         gguf_path(reading->file), model->heads, model->kv_heads);
    model->head_size = model->width / model->heads;
    r = read_size(reading, "attention.key_length", MODEL_HEAD_SIZE_MAX, &model->head_size);
    if (r < 0)
        return r;
    value_size = model->head_size;
    r = read_size(reading, "attention.value_length", MODEL_HEAD_SIZE_MAX, &value_size);
    if (r < 0)
        return r;
    if (value_size != model->head_size)
        return fault_set(
            reading->fault, E_UNSUPPORTED,
            "%s: keys of %u and values of %u numbers a head: only equal ones are supported",
            gguf_path(reading->file), model->head_size, value_size);
    model->attention_scale = 1.0f / sqrtf((float)model->head_size);
    return read_real(reading, "attention.scale", 0, 1e6, &model->attention_scale);
}

/* Linear scaling divides every frequency by its factor; other kinds are refused by name. */
static int read_rope_scaling(const struct reading *reading, float *ret_factor)
{
    char key[KEY_BYTES], printed[NAME_BYTES];
    struct gguf_string kind = {"none", 4};
    bool linear;
    int r;

    key_name(reading, "rope.scaling.type", key);
    r = gguf_get_string(reading->file, key, &kind, reading->fault);
    if (r < 0)
        return r;
    linear = kind.bytes == 6 && memcmp(kind.text, "linear", 6) == 0;
    if (!linear && !(kind.bytes == 4 && memcmp(kind.text, "none", 4) == 0)) {
        gguf_string_print(kind, printed, sizeof printed);
        return fault_set(reading->fault, E_UNSUPPORTED,
                         "%s: rotary scaling \"%s\" is not supported (known: none, linear)",
                         gguf_path(reading->file), printed);
    }
    *ret_factor = 1.0f;
    r = read_real(reading, "rope.scale_linear", 0, 1e6, ret_factor); /* the older name */
    if (r < 0 || !linear)
        return r;
    return read_real(reading, "rope.scaling.factor", 0, 1e6, ret_factor);
}

static int read_sizes(const struct reading *reading)
{
    struct model *model = reading->model;
    const struct gguf_tensor *embedding;
    char key[KEY_BYTES];
    uint64_t experts = 0;
    int r;

    r = read_size(reading, "block_count", MODEL_LAYERS_MAX, &model->layer_count);
    if (r < 0)
        return r;
    r = read_size(reading, "embedding_length", MODEL_WIDTH_MAX, &model->width);
    if (r < 0)
        return r;
    r = read_size(reading, "feed_forward_length", MODEL_FFN_WIDTH_MAX, &model->ffn_width);
    if (r < 0)
        return r;
    r = read_size(reading, "context_length", MODEL_CONTEXT_MAX, &model->context);
    if (r < 0)
        return r;
    key_name(reading, "expert_count", key);
    r = gguf_get_u64(reading->file, key, &experts, reading->fault);
    if (r < 0)
        return r;
    if (experts)
        return fault_set(reading->fault, E_UNSUPPORTED,
                         "%s: a mixture of %llu experts is not supported yet",
                         gguf_path(reading->file), (unsigned long long)experts);
    r = read_attention_sizes(reading);
    if (r < 0)
        return r;
    embedding = gguf_tensor_find(reading->file, "token_embd.weight");
    if (!embedding)
        return fault_set(reading->fault, E_CORRUPT, "%s: the tensor token_embd.weight is missing",
                         gguf_path(reading->file));
    if (embedding->dimensions[1] > MODEL_VOCABULARY_MAX)
        return fault_set(reading->fault, E_CORRUPT,
                         "%s: token_embd.weight has %llu rows; more than %d tokens are not served",
                         gguf_path(reading->file), (unsigned long long)embedding->dimensions[1],
                         MODEL_VOCABULARY_MAX);
    model->vocabulary = (uint32_t)embedding->dimensions[1];
    return 0;
}

static int read_rope_and_norm(const struct reading *reading)
{
    struct model *model = reading->model;
    int r;

    model->rope_size = model->head_size;
    r = read_size(reading, "rope.dimension_count", model->head_size, &model->rope_size);
    if (r < 0)
        return r;
    if (model->rope_size % 2 != 0)
        return fault_set(reading->fault, E_CORRUPT, "%s: %u dimensions cannot rotate in pairs",
                         gguf_path(reading->file), model->rope_size);
    model->rope_base = 10000.0f;
    r = read_real(reading, "rope.freq_base", 1, 1e12, &model->rope_base);
    if (r < 0)
        return r;
    model->norm_epsilon = NAN;
    return read_real(reading, "attention.layer_norm_rms_epsilon", 0, 0.1, &model->norm_epsilon);
}

static int find_arch(struct reading *reading)
{
    struct gguf_string name = {"", 0};
    int r = gguf_get_string(reading->file, "general.architecture", &name, reading->fault);

    if (r < 0)
        return r;
    if (r == 0)
        return fault_set(reading->fault, E_CORRUPT, "%s: the metadata lack general.architecture",
                         gguf_path(reading->file));
    r = arch_find(name, &reading->arch, reading->fault);
    if (r < 0)
        return fault_prefix(reading->fault, "%s", gguf_path(reading->file));
    return 0;
}

int gguf_config_read(const struct gguf *file, struct gguf_config *ret_config, struct fault *fault)
{
    struct gguf_config config = {0};
    struct reading reading = {.file = file, .model = &config.sizes, .fault = fault};
    int r = find_arch(&reading);

    if (r < 0)
        return r;
    config.arch = reading.arch;
    config.sizes.architecture = reading.arch->name;
    config.sizes.norm = reading.arch->norm;
    config.sizes.ffn = reading.arch->ffn;
    config.sizes.rope = reading.arch->rope;
    r = read_sizes(&reading);
    if (r == 0)
        r = read_rope_and_norm(&reading);
    if (r == 0)
        r = read_rope_scaling(&reading, &config.rope_scale);
    if (r == 0)
        *ret_config = config;
    return r;
}
