/* hf_config.c -- see hf_config.h. Keys that are sizes are a table; the rest has rules of its own.
 *
 * The classes' defaults are those of Transformers 4.57 (configuration_llama.py and its like). */
#include "engine/hf_config.h"

#include <math.h>
#include <string.h>

#include "config/base/json.h"

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))
#define LEAST            1e-12 /* what is smaller than this vanishes in float32's products */

/* What a class takes where its file says nothing. */
struct hf_class {
    const char *name;
    const char *arch;   /* the row of arch.c */
    uint32_t kv_heads;  /* 0: as many as heads */
    uint32_t head_size; /* 0: width / heads */
    uint32_t context;
    int64_t window;     /* sliding_window; 0: the class has none */
    bool window_switch; /* it slides only where use_sliding_window is true */
    double norm_epsilon;
};

static const struct hf_class classes[] = {
    {"LlamaForCausalLM", "llama", 0, 0, 2048, 0, false, 1e-6},
    {"MistralForCausalLM", "llama", 8, 0, 131072, 4096, false, 1e-6},
    {"Qwen3ForCausalLM", "qwen3", 32, 128, 32768, 4096, true, 1e-6},
};

static const struct size_key {
    const char *key;
    size_t offset; /* in struct model; what stands there before is the default, 0: required */
    uint32_t high;
} size_keys[] = {
    {"hidden_size", offsetof(struct model, width), MODEL_WIDTH_MAX},
    {"num_hidden_layers", offsetof(struct model, layer_count), MODEL_LAYERS_MAX},
    {"num_attention_heads", offsetof(struct model, heads), MODEL_HEADS_MAX},
    {"intermediate_size", offsetof(struct model, ffn_width), MODEL_FFN_WIDTH_MAX},
    {"vocab_size", offsetof(struct model, vocabulary), MODEL_VOCABULARY_MAX},
    {"max_position_embeddings", offsetof(struct model, context), MODEL_CONTEXT_MAX},
    {"num_key_value_heads", offsetof(struct model, kv_heads), MODEL_HEADS_MAX},
    {"head_dim", offsetof(struct model, head_size), MODEL_HEAD_SIZE_MAX},
};
enum { SIZES_INDEPENDENT = 6 }; /* the first ones; the others' defaults depend on them */

/* What is read, and where it goes. */
struct reading {
    const json_t *root;
    const struct hf_class *class_;
    struct hf_config config;
    struct fault *fault;
};

static int refuse(struct reading *reading, int code, const char *key, const char *what)
{
    return fault_field(reading->fault, code, key, "'%s' %s", key, what);
}

static int read_size(struct reading *reading, const struct size_key *line)
{
    uint32_t *size = (uint32_t *)(void *)((char *)&reading->config.sizes + line->offset);
    int64_t value;
    int r = json_get_int(reading->root, "", line->key, 1, line->high, &value, reading->fault);

    if (r < 0)
        return r;
    if (r == 0 && *size == 0)
        return refuse(reading, E_INVALID, line->key, "is missing");
    if (r > 0)
        *size = (uint32_t)value;
    return 0;
}

static int read_sizes(struct reading *reading)
{
    struct model *sizes = &reading->config.sizes;
    int r;

    sizes->context = reading->class_->context;
    for (size_t i = 0; i < COUNT_OF(size_keys); i++) {
        if (i == SIZES_INDEPENDENT) {
            sizes->kv_heads = reading->class_->kv_heads ? reading->class_->kv_heads : sizes->heads;
            sizes->head_size = reading->class_->head_size;
            if (sizes->head_size == 0 && sizes->width % sizes->heads == 0)
                sizes->head_size = sizes->width / sizes->heads;
        }
        r = read_size(reading, &size_keys[i]);
        if (r < 0)
            return r;
    }
    if (sizes->heads % sizes->kv_heads != 0)
        return refuse(reading, E_INVALID, "num_key_value_heads",
                      "does not divide 'num_attention_heads'");
    if (sizes->head_size % 2 != 0)
        return refuse(reading, E_INVALID, "head_dim", "is odd: it cannot rotate in pairs");
    sizes->rope_size = sizes->head_size;
    sizes->attention_scale = 1.0f / sqrtf((float)sizes->head_size);
    return 0;
}

/* A number from LEAST to `high`. Absent: *ret_value stays, and is refused when that is 0. */
static int read_positive(struct reading *reading, const json_t *object, const char *path,
                         const char *key, double high, double *ret_value)
{
    int r = json_get_real(object, path, key, LEAST, high, ret_value, reading->fault);

    if (r == 0 && *ret_value == 0)
        return refuse(reading, E_INVALID, key, "is missing");
    return r < 0 ? r : 0;
}

static int read_llama3(struct reading *reading, const json_t *object, const char *path)
{
    struct hf_rope_scaling *scaling = &reading->config.rope_scaling;
    int64_t original = reading->config.sizes.context;
    int r;

    r = read_positive(reading, object, path, "low_freq_factor", 1e6,
                      &scaling->low_frequency_factor);
    if (r < 0)
        return r;
    r = read_positive(reading, object, path, "high_freq_factor", 1e6,
                      &scaling->high_frequency_factor);
    if (r < 0)
        return r;
    if (!(scaling->high_frequency_factor > scaling->low_frequency_factor))
        return refuse(reading, E_INVALID, "high_freq_factor", "must be above 'low_freq_factor'");
    r = json_get_int(object, path, "original_max_position_embeddings", 1, MODEL_CONTEXT_MAX,
                     &original, reading->fault);
    scaling->context_original = (uint32_t)original;
    return r < 0 ? r : 0;
}

static int read_scaling(struct reading *reading, const json_t *object, const char *path)
{
    struct hf_rope_scaling *scaling = &reading->config.rope_scaling;
    const char *kind = "default";
    size_t bytes;
    int r;

    r = json_get_string(object, path, "type", &kind, &bytes, reading->fault); /* the older name */
    if (r >= 0)
        r = json_get_string(object, path, "rope_type", &kind, &bytes, reading->fault);
    if (r < 0)
        return r;
    if (strcmp(kind, "default") == 0)
        return 0;
    if (strcmp(kind, "linear") != 0 && strcmp(kind, "llama3") != 0)
        return fault_field(reading->fault, E_UNSUPPORTED, "rope_type",
                           "the rotary scaling '%.60s' is not supported (known: default, linear, "
                           "llama3)",
                           kind);
    r = read_positive(reading, object, path, "factor", 1e6, &scaling->factor);
    if (r < 0)
        return r;
    scaling->kind = strcmp(kind, "linear") == 0 ? HF_ROPE_LINEAR : HF_ROPE_LLAMA3;
    return scaling->kind == HF_ROPE_LLAMA3 ? read_llama3(reading, object, path) : 0;
}

static int read_rope(struct reading *reading)
{
    double base = 10000.0, part = 1.0;
    json_t *object = NULL;
    const char *path = "rope_scaling.";
    int r;

    r = read_positive(reading, reading->root, "", "rope_theta", 1e12, &base);
    if (r < 0)
        return r;
    r = json_get_object(reading->root, "", "rope_scaling", &object, reading->fault);
    if (r == 0) {
        path = "rope_parameters.";
        r = json_get_object(reading->root, "", "rope_parameters", &object, reading->fault);
    }
    if (r < 0)
        return r;
    if (r > 0) {
        r = read_positive(reading, object, path, "rope_theta", 1e12, &base);
        if (r == 0)
            r = read_scaling(reading, object, path);
        if (r < 0)
            return r;
    }
    if (!(base >= 1))
        return refuse(reading, E_INVALID, "rope_theta", "must be at least 1");
    r = read_positive(reading, reading->root, "", "partial_rotary_factor", 1, &part);
    if (r == 0 && part != 1.0)
        r = refuse(reading, E_UNSUPPORTED, "partial_rotary_factor", "is supported as 1 only");
    reading->config.sizes.rope_base = (float)base;
    return r;
}

static int read_type(struct reading *reading)
{
    static const struct {
        const char *name;
        enum dtype type;
    } types[] = {{"bfloat16", DT_BF16}, {"float16", DT_F16}, {"float32", DT_F32}};
    const char *name = "float32", *key = "dtype";
    size_t bytes;
    int r = json_get_string(reading->root, "", key, &name, &bytes, reading->fault);

    if (r == 0) {
        key = "torch_dtype";
        r = json_get_string(reading->root, "", key, &name, &bytes, reading->fault);
    }
    if (r < 0)
        return r;
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        if (strcmp(name, types[i].name) == 0) {
            reading->config.type = types[i].type;
            return 0;
        }
    }
    return fault_field(reading->fault, E_UNSUPPORTED, key,
                       "'%s' is '%.60s'; bfloat16, float16 and float32 are read", key, name);
}

/* What would change the arithmetic into something that is not built. */
static int read_restrictions(struct reading *reading)
{
    static const char *const biases[] = {"attention_bias", "mlp_bias"};
    const char *activation = "silu";
    int64_t window = reading->class_->window;
    bool slides = !reading->class_->window_switch, bias;
    size_t bytes;
    int r;

    r = json_get_string(reading->root, "", "hidden_act", &activation, &bytes, reading->fault);
    if (r < 0)
        return r;
    if (strcmp(activation, "silu") != 0)
        return refuse(reading, E_UNSUPPORTED, "hidden_act", "is supported as silu only");
    for (size_t i = 0; i < COUNT_OF(biases); i++) {
        bias = false;
        r = json_get_bool(reading->root, "", biases[i], &bias, reading->fault);
        if (r < 0)
            return r;
        if (bias)
            return refuse(reading, E_UNSUPPORTED, biases[i], "is supported as false only");
    }
    r = json_get_bool(reading->root, "", "use_sliding_window", &slides, reading->fault);
    if (r < 0)
        return r;
    if (json_object_get(reading->root, "sliding_window"))
        window = 0; /* null: none */
    r = json_get_int(reading->root, "", "sliding_window", 1, INT64_MAX, &window, reading->fault);
    if (r < 0)
        return r;
    if (reading->class_->window > 0 && slides && window > 0 &&
        window < reading->config.sizes.context)
        return refuse(reading, E_UNSUPPORTED, "sliding_window",
                      "is shorter than the context: that is not supported yet");
    return 0;
}

static int add_end_token(struct reading *reading, const json_t *value)
{
    int64_t token;

    if (!json_integral(value, &token) || token < 0)
        return refuse(reading, E_INVALID, "eos_token_id", "must be a token id or a list of them");
    if (token < reading->config.sizes.vocabulary &&
        reading->config.end_count < MODEL_END_TOKENS_MAX)
        reading->config.end_tokens[reading->config.end_count++] = (int32_t)token;
    return 0;
}

static int read_end_tokens(struct reading *reading)
{
    const json_t *value = json_object_get(reading->root, "eos_token_id");
    int r = 0;

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_array(value))
        return add_end_token(reading, value);
    for (size_t i = 0; i < json_array_size(value) && r == 0; i++)
        r = add_end_token(reading, json_array_get(value, i));
    return r;
}

static int read_class(struct reading *reading)
{
    json_t *names = NULL;
    const char *name;
    int r = json_get_array(reading->root, "", "architectures", &names, reading->fault);

    if (r < 0)
        return r;
    name = r ? json_string_value(json_array_get(names, 0)) : NULL;
    if (!name)
        return refuse(reading, E_INVALID, "architectures",
                      r ? "must be a list that begins with the name of a class" : "is missing");
    for (size_t i = 0; i < COUNT_OF(classes); i++) {
        const struct hf_class *class_ = &classes[i];

        if (strcmp(name, class_->name) != 0)
            continue;
        reading->class_ = class_;
        reading->config.class_name = class_->name;
        return arch_find((struct gguf_string){class_->arch, strlen(class_->arch)},
                         &reading->config.arch, reading->fault);
    }
    return fault_field(reading->fault, E_UNSUPPORTED, "architectures",
                       "the architecture '%.80s' is not supported; known ones are "
                       "LlamaForCausalLM, MistralForCausalLM and Qwen3ForCausalLM",
                       name);
}

static int read_all(struct reading *reading)
{
    static int (*const parts[])(struct reading *) = {
        read_class, read_sizes, read_rope, read_type, read_restrictions, read_end_tokens,
    };
    struct hf_config *config = &reading->config;
    double epsilon;
    int r;

    if (!json_is_object(reading->root))
        return fault_set(reading->fault, E_INVALID, "It is no JSON object");
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        r = parts[i](reading);
        if (r < 0)
            return r;
    }
    epsilon = reading->class_->norm_epsilon;
    r = read_positive(reading, reading->root, "", "rms_norm_eps", 0.1, &epsilon);
    if (r < 0)
        return r;
    r = json_get_bool(reading->root, "", "tie_word_embeddings", &config->tied, reading->fault);
    if (r < 0)
        return r;
    config->sizes.norm_epsilon = (float)epsilon;
    config->sizes.architecture = config->arch->name;
    config->sizes.norm = config->arch->norm;
    config->sizes.ffn = config->arch->ffn;
    config->sizes.rope = ROPE_HALVES;
    return 0;
}

int hf_config_read(const char *text, size_t bytes, struct hf_config *ret_config,
                   struct fault *fault)
{
    struct reading reading = {.fault = fault};
    json_t *root = NULL;
    int r = json_parse(text, bytes, &root, fault);

    if (r < 0)
        return r;
    reading.root = root;
    r = read_all(&reading);
    if (r == 0)
        *ret_config = reading.config;
    json_decref(root);
    return r;
}

/* Llama 3.1's rule: wave lengths that fit into the original context `high` times stay, those that
 * fit fewer than `low` times are stretched, and those between are in between. */
static double llama3_factor(const struct hf_rope_scaling *scaling, double wave_length)
{
    double low = scaling->low_frequency_factor, high = scaling->high_frequency_factor;
    double fits = scaling->context_original / wave_length, share;

    if (fits > high)
        return 1.0;
    if (fits < low)
        return scaling->factor;
    share = (fits - low) / (high - low);
    return 1.0 / ((1.0 - share) / scaling->factor + share);
}

void hf_config_rope_factors(const struct hf_config *config, float *factors)
{
    const struct model *sizes = &config->sizes;

    for (uint32_t i = 0; i < sizes->rope_size / 2; i++) {
        double turns = pow((double)sizes->rope_base, 2.0 * i / sizes->rope_size);
        double factor =
            config->rope_scaling.kind == HF_ROPE_NONE ? 1.0 : config->rope_scaling.factor;

        if (config->rope_scaling.kind == HF_ROPE_LLAMA3)
            factor = llama3_factor(&config->rope_scaling, 2.0 * M_PI * turns);
        factors[i] = (float)factor;
    }
}
