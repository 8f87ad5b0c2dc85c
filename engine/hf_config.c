/* hf_config.c -- see hf_config.h. Keys that are sizes are a table; the rest has rules. */
#include "engine/hf_config.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "config/base/buf.h"
#include "config/option.h"
#include "engine/hf_class.h"

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))
#define LEAST            1e-12 /* what is smaller than this vanishes in float32's products */

enum { SIZE_KEYS_MAX = 4, KNOWN_BYTES = 768, STEM_BYTES = 64 };

/* One name for each size in every class that has the key: a file's own first. */
static const struct size_key {
    size_t offset; /* in struct model; what stands there before is the default, 0: required */
    uint32_t high;
    const char *keys[SIZE_KEYS_MAX];
} size_keys[] = {
    {offsetof(struct model, width), MODEL_WIDTH_MAX, {"hidden_size", "n_embed", "n_embd"}},
    {offsetof(struct model, layer_count),
     MODEL_LAYERS_MAX,
     {"num_hidden_layers", "n_layer", "num_layers"}},
    {offsetof(struct model, heads), MODEL_HEADS_MAX, {"num_attention_heads", "n_head"}},
    {offsetof(struct model, vocabulary), MODEL_VOCABULARY_MAX, {"vocab_size", "padded_vocab_size"}},
    {offsetof(struct model, context),
     MODEL_CONTEXT_MAX,
     {"max_position_embeddings", "n_positions", "seq_length"}},
    {offsetof(struct model, ffn_width),
     MODEL_FFN_WIDTH_MAX,
     {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"}},
    {offsetof(struct model, kv_heads), MODEL_HEADS_MAX, {"num_key_value_heads"}},
    {offsetof(struct model, head_size), MODEL_HEAD_SIZE_MAX, {"head_dim", "kv_channels"}},
};
enum { SIZES_INDEPENDENT = 5 }; /* the first ones; the others' defaults depend on them */

int hf_refuse(struct hf_reading *reading, int code, const char *key, const char *what)
{
    return fault_field(reading->fault, code, key, "'%s' %s", key, what);
}

int hf_read_positive(struct hf_reading *reading, const json_t *object, const char *path,
                     const char *key, double high, double *ret_value)
{
    int r = json_get_real(object, path, key, LEAST, high, ret_value, reading->fault);

    if (r == 0 && *ret_value == 0)
        return fault_field(reading->fault, E_INVALID, key, "'%s%s' is missing", path, key);
    return r < 0 ? r : 0;
}

int hf_read_bool(struct hf_reading *reading, const char *key, bool *ret_value)
{
    int r = json_get_bool(reading->root, "", key, ret_value, reading->fault);

    return r < 0 ? r : 0;
}

int hf_require_bool(struct hf_reading *reading, const char *key, bool only)
{
    bool value = only;
    int r = hf_read_bool(reading, key, &value);

    if (r == 0 && value != only)
        return hf_refuse(reading, E_UNSUPPORTED, key,
                         only ? "is supported as true only" : "is supported as false only");
    return r;
}

/* --- sizes --------------------------------------------------------------------------------- */

static int read_size(struct hf_reading *reading, const struct size_key *line)
{
    uint32_t *size = (uint32_t *)(void *)((char *)&reading->config.plan.sizes + line->offset);
    int64_t value;
    int r = 0;

    for (size_t i = 0; i < SIZE_KEYS_MAX && line->keys[i] && r == 0; i++)
        r = json_get_int(reading->root, "", line->keys[i], 1, line->high, &value, reading->fault);
    if (r < 0)
        return r;
    if (r == 0 && *size == 0)
        return hf_refuse(reading, E_INVALID, line->keys[0],
                         line->offset == offsetof(struct model, head_size)
                             ? "is missing, and the number of heads does not divide the width"
                             : "is missing");
    if (r > 0)
        *size = (uint32_t)value;
    return 0;
}

static void set_dependent(struct model *sizes, const struct hf_class *class_)
{
    sizes->kv_heads = class_->kv_heads ? class_->kv_heads : sizes->heads;
    sizes->head_size = class_->head_size;
    if (sizes->head_size == 0 && sizes->width % sizes->heads == 0)
        sizes->head_size = sizes->width / sizes->heads;
    sizes->ffn_width = class_->ffn_factor * sizes->width;
}

static int read_sizes(struct hf_reading *reading)
{
    struct model *sizes = &reading->config.plan.sizes;

    sizes->context = reading->class_->context;
    sizes->heads = reading->class_->heads;
    sizes->vocabulary = reading->class_->vocabulary;
    for (size_t i = 0; i < COUNT_OF(size_keys); i++) {
        int r;

        if (i == SIZES_INDEPENDENT)
            set_dependent(sizes, reading->class_);
        r = read_size(reading, &size_keys[i]);
        if (r < 0)
            return r;
    }
    sizes->value_size = sizes->head_size;
    sizes->embedding_width = sizes->width;
    sizes->attention_scale = 1.0f / sqrtf((float)sizes->head_size);
    if (reading->config.plan.arch->flags & ARCH_SCALES_EMBEDDING)
        sizes->embedding_scale = sqrtf((float)sizes->width);
    return 0;
}

/* After the class's own keys. */
static int check_sizes(struct hf_reading *reading)
{
    const struct model *sizes = &reading->config.plan.sizes;

    if (sizes->heads % sizes->kv_heads != 0)
        return hf_refuse(reading, E_INVALID, "num_key_value_heads",
                         "does not divide 'num_attention_heads'");
    return 0;
}

/* --- what is no size ----------------------------------------------------------------------- */

static int read_type(struct hf_reading *reading)
{
    static const struct {
        const char *name;
        enum dtype type;
    } types[] = {{"bfloat16", DT_BF16}, {"float16", DT_F16}, {"float32", DT_F32}};
    const char *name = "float32", *key = "dtype";
    size_t bytes;
    int r = json_get_string(reading->file, "", key, &name, &bytes, reading->fault);

    if (r == 0) {
        key = "torch_dtype";
        r = json_get_string(reading->file, "", key, &name, &bytes, reading->fault);
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

static int read_activation(struct hf_reading *reading)
{
    static const struct {
        const char *name;
        enum activation activation;
    } activations[] = {
        {"silu", ACTIVATION_SILU},
        {"swish", ACTIVATION_SILU},
        {"gelu", ACTIVATION_GELU},
        {"gelu_new", ACTIVATION_GELU_TANH},
        {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
        {"gelu_fast", ACTIVATION_GELU_TANH},
        {"quick_gelu", ACTIVATION_GELU_QUICK},
        {"relu", ACTIVATION_RELU},
    };
    const char *name, *key = reading->class_->activation;
    size_t bytes;
    int r;

    if (!key)
        return 0;
    r = json_get_string(reading->root, "", key, &name, &bytes, reading->fault);
    if (r <= 0)
        return r;
    for (size_t i = 0; i < COUNT_OF(activations); i++) {
        if (strcmp(name, activations[i].name) == 0) {
            reading->config.plan.sizes.activation = activations[i].activation;
            return 0;
        }
    }
    return fault_field(reading->fault, E_UNSUPPORTED, key,
                       "'%s' is '%.60s'; silu, gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, "
                       "quick_gelu and relu are computed",
                       key, name);
}

static int read_switches(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;

    for (size_t i = 0; i < HF_SWITCHES_MAX && reading->class_->switches[i].key; i++) {
        const struct hf_switch *line = &reading->class_->switches[i];
        bool on = line->otherwise;
        int r = hf_read_bool(reading, line->key, &on);

        if (r < 0)
            return r;
        if (on && line->features == 0)
            return hf_refuse(reading, E_UNSUPPORTED, line->key, "is supported as false only");
        if (on)
            plan->features |= line->features;
    }
    plan->tied = reading->class_->tied;
    return hf_read_bool(reading, "tie_word_embeddings", &plan->tied);
}

/* --- windows ------------------------------------------------------------------------------- */

/* Which layers slide, as the file lists them. 1: it does. */
static int read_layer_types(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;
    json_t *types = NULL;
    int r = json_get_array(reading->root, "", "layer_types", &types, reading->fault);

    if (r <= 0)
        return r;
    if (json_array_size(types) < plan->sizes.layer_count)
        return hf_refuse(reading, E_INVALID, "layer_types", "does not name every layer");
    for (uint32_t i = 0; i < plan->sizes.layer_count; i++) {
        const char *type = json_string_value(json_array_get(types, i));

        if (type && strcmp(type, "sliding_attention") == 0)
            plan->layers[i] |= PLAN_LAYER_SLIDES;
        else if (!type || strcmp(type, "full_attention") != 0)
            return hf_refuse(reading, E_UNSUPPORTED, "layer_types",
                             "may hold sliding_attention and full_attention only");
    }
    return 1;
}

static int set_layers(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;
    enum hf_window rule = reading->class_->window_rule;
    int64_t from = 28, period = 6;
    int r =
        json_get_int(reading->root, "", "max_window_layers", 0, INT64_MAX, &from, reading->fault);

    if (r >= 0)
        r = json_get_int(reading->root, "", "sliding_window_pattern", 1, INT64_MAX, &period,
                         reading->fault);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < plan->sizes.layer_count; i++) {
        bool slides = rule == HF_WINDOW_ALL || (rule == HF_WINDOW_SWITCH && i >= from) ||
                      (rule == HF_WINDOW_ALTERNATE && i % 2 == 0) ||
                      (rule == HF_WINDOW_PATTERN && (i + 1) % period != 0);

        if (slides)
            plan->layers[i] |= PLAN_LAYER_SLIDES;
    }
    return 0;
}

static int read_window(struct hf_reading *reading)
{
    const struct hf_class *class_ = reading->class_;
    struct model *sizes = &reading->config.plan.sizes;
    bool slides = class_->window_rule != HF_WINDOW_SWITCH;
    int64_t window = class_->window;
    int r = hf_read_bool(reading, "use_sliding_window", &slides);

    if (r < 0 || class_->window_rule == HF_WINDOW_NONE)
        return r;
    if (json_object_get(reading->root, "sliding_window"))
        window = 0; /* null: none */
    r = json_get_int(reading->root, "", "sliding_window", 1, INT64_MAX, &window, reading->fault);
    if (r < 0)
        return r;
    if (slides && window > 0 && window < sizes->context)
        sizes->window = (uint32_t)window;
    r = read_layer_types(reading);
    return r == 0 ? set_layers(reading) : r < 0 ? r : 0;
}

/* --- all of it ----------------------------------------------------------------------------- */

static int add_end_token(struct hf_reading *reading, const json_t *value)
{
    struct model *sizes = &reading->config.plan.sizes;
    int64_t token;

    if (!json_integral(value, &token) || token < 0)
        return hf_refuse(reading, E_INVALID, "eos_token_id",
                         "must be a token id or a list of them");
    if (token < sizes->vocabulary && sizes->end_count < MODEL_END_TOKENS_MAX)
        sizes->end_tokens[sizes->end_count++] = (int32_t)token;
    return 0;
}

static int read_end_tokens(struct hf_reading *reading)
{
    const json_t *value = json_object_get(reading->file, "eos_token_id");
    int r = 0;

    if (!value || json_is_null(value))
        return 0;
    if (!json_is_array(value))
        return add_end_token(reading, value);
    for (size_t i = 0; i < json_array_size(value) && r == 0; i++)
        r = add_end_token(reading, json_array_get(value, i));
    return r;
}

/* What names the family: "Llama" of LlamaForCausalLM and of LlamaModel. */
static void class_stem(const char *name, char stem[STEM_BYTES])
{
    static const char *const endings[] = {"For", "LMHead", "Model"};
    size_t bytes = strnlen(name, STEM_BYTES - 1);

    for (size_t i = 0; i < COUNT_OF(endings); i++) {
        const char *end = strstr(name, endings[i]);

        if (end && end > name && (size_t)(end - name) < bytes)
            bytes = (size_t)(end - name);
    }
    memcpy(stem, name, bytes);
    stem[bytes] = '\0';
}

/* The family counts first, then the rest of the name. */
static unsigned class_distance(const char *left, const char *right)
{
    char left_stem[STEM_BYTES], right_stem[STEM_BYTES];

    class_stem(left, left_stem);
    class_stem(right, right_stem);
    return edit_distance(left_stem, right_stem) * STEM_BYTES + edit_distance(left, right);
}

static int unknown_class(struct hf_reading *reading, const char *name)
{
    const char *closest = hf_classes[0].name, *end;
    unsigned edits_least = UINT_MAX;
    char known[KNOWN_BYTES];
    struct buf names;

    buf_init_fixed(&names, known, sizeof known);
    for (size_t i = 0; i < hf_class_count; i++) {
        unsigned edits = class_distance(name, hf_classes[i].name);

        end = strstr(hf_classes[i].name, "ForCausalLM");
        buf_format(&names, "%s%.*s", i ? ", " : "",
                   (int)(end ? (size_t)(end - hf_classes[i].name) : strlen(hf_classes[i].name)),
                   hf_classes[i].name);
        if (edits < edits_least) {
            edits_least = edits;
            closest = hf_classes[i].name;
        }
    }
    return fault_field(reading->fault, E_UNSUPPORTED, "architectures",
                       "the architecture '%.60s' is not supported (the closest is %s); known ones "
                       "are, without ForCausalLM, %s",
                       name, closest, buf_string(&names));
}

/* The model's object inside of a larger model's. */
static int enter_text(struct hf_reading *reading)
{
    json_t *text = NULL;
    int r = json_get_object(reading->file, "", reading->class_->text, &text, reading->fault);

    if (r == 0)
        return hf_refuse(reading, E_INVALID, reading->class_->text, "is missing");
    reading->root = text;
    reading->config.plan.nested = true;
    return r < 0 ? r : 0;
}

static int read_class(struct hf_reading *reading)
{
    json_t *names = NULL;
    const char *name;
    int r = json_get_array(reading->root, "", "architectures", &names, reading->fault);

    if (r < 0)
        return r;
    name = r ? json_string_value(json_array_get(names, 0)) : NULL;
    if (!name)
        return hf_refuse(reading, E_INVALID, "architectures",
                         r ? "must be a list that begins with the name of a class" : "is missing");
    for (size_t i = 0; i < hf_class_count; i++) {
        const struct hf_class *class_ = &hf_classes[i];
        const struct arch *arch;

        if (strcmp(name, class_->name) != 0)
            continue;
        reading->class_ = class_;
        reading->config.class_name = class_->name;
        r = arch_find((struct gguf_string){class_->arch, strlen(class_->arch)}, &arch,
                      reading->fault);
        must(r == 0);
        model_plan_init(&reading->config.plan, arch);
        reading->config.plan.sizes.rope = arch->hf_rope;
        return class_->text ? enter_text(reading) : 0;
    }
    return unknown_class(reading, name);
}

static int read_epsilon(struct hf_reading *reading)
{
    double epsilon = reading->class_->norm_epsilon;
    int r = 0;

    if (reading->class_->epsilon)
        r = hf_read_positive(reading, reading->root, "", reading->class_->epsilon, 0.1, &epsilon);
    reading->config.plan.sizes.norm_epsilon = (float)epsilon;
    return r;
}

static int read_own(struct hf_reading *reading)
{
    return reading->class_->own ? reading->class_->own(reading) : 0;
}

static int read_all(struct hf_reading *reading)
{
    static int (*const parts[])(struct hf_reading *) = {
        read_class,    read_sizes,  hf_read_rope, read_type,   read_activation, read_epsilon,
        read_switches, read_window, read_own,     check_sizes, read_end_tokens,
    };

    if (!json_is_object(reading->root))
        return fault_set(reading->fault, E_INVALID, "It is no JSON object");
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        int r = parts[i](reading);

        if (r < 0)
            return r;
    }
    return 0;
}

int hf_config_read(const char *text, size_t bytes, struct hf_config *ret_config,
                   struct fault *fault)
{
    struct hf_reading reading = {.fault = fault};
    json_t *root = NULL;
    int r = json_parse(text, bytes, &root, fault);

    if (r < 0)
        return r;
    reading.file = root;
    reading.root = root;
    r = read_all(&reading);
    if (r == 0)
        *ret_config = reading.config;
    json_decref(root);
    return r;
}
