/* gguf_config.c -- see gguf_config.h. Every number is bounded before it is multiplied.
 *
 * Most keys mean the same for every architecture that has them. A few facts stand in no file, as
 * llama.cpp knows them by the architecture's name: set_unsaid() has those. */
#include "engine/gguf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 96, NAME_BYTES = 96 };

/* What reading needs besides the numbers. */
struct reading {
    const struct gguf *file;
    const struct arch *arch;
    struct model_plan *plan;
    struct model *model; /* the plan's sizes */
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

/* An optional real number that may be zero. */
static int read_plain(const struct reading *reading, const char *suffix, float *ret_value)
{
    return read_real(reading, suffix, -1e-30, 1e6, ret_value);
}

static int read_attention_sizes(const struct reading *reading)
{
    struct model *model = reading->model;
    int r;

    if (strcmp(reading->arch->name, "deepseek2") == 0)
        return fault_set(reading->fault, E_UNSUPPORTED,
                         "%s: latent attention is not read from GGUF files yet",
                         gguf_path(reading->file));
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
    model->value_size = model->head_size;
    r = read_size(reading, "attention.value_length", MODEL_HEAD_SIZE_MAX, &model->value_size);
    if (r < 0)
        return r;
    if (model->value_size != model->head_size)
        return fault_set(
            reading->fault, E_UNSUPPORTED,
            "%s: keys of %u and values of %u numbers a head: only equal ones are supported",
            gguf_path(reading->file), model->head_size, model->value_size);
    model->attention_scale = 1.0f / sqrtf((float)model->head_size);
    return read_real(reading, "attention.scale", 0, 1e6, &model->attention_scale);
}

static int read_vocabulary(const struct reading *reading)
{
    const struct gguf_tensor *embedding = gguf_tensor_find(reading->file, "token_embd.weight");

    if (!embedding)
        return fault_set(reading->fault, E_CORRUPT, "%s: the tensor token_embd.weight is missing",
                         gguf_path(reading->file));
    if (embedding->dimensions[1] > MODEL_VOCABULARY_MAX)
        return fault_set(reading->fault, E_CORRUPT,
                         "%s: token_embd.weight has %llu rows; more than %d tokens are not served",
                         gguf_path(reading->file), (unsigned long long)embedding->dimensions[1],
                         MODEL_VOCABULARY_MAX);
    reading->model->vocabulary = (uint32_t)embedding->dimensions[1];
    return 0;
}

/* --- experts ------------------------------------------------------------------------------- */

/* What llama.cpp knows by the architecture's name: how scores become shares. */
static const struct mixture {
    const char *arch;
    enum router_kind router;
    bool normalizes;
    float activation_limit;
} mixtures[] = {
    {"llama", ROUTER_SOFTMAX, true, 0},
    {"qwen2moe", ROUTER_SOFTMAX, false, 0},
    {"qwen3moe", ROUTER_SOFTMAX, true, 0},
    {"gpt-oss", ROUTER_SOFTMAX_CHOSEN, false, 7.0f},
};

static bool layer_has(const struct reading *reading, uint32_t layer, const char *suffix)
{
    char name[NAME_BYTES];

    snprintf(name, sizeof name, "blk.%u.%s", layer, suffix);
    return gguf_tensor_find(reading->file, name) != NULL;
}

/* Layers with a router are those with experts. Returns whether there is a shared one. */
static bool set_sparse(const struct reading *reading)
{
    bool shares = false;

    for (uint32_t i = 0; i < reading->model->layer_count; i++) {
        if (layer_has(reading, i, "ffn_gate_inp.weight"))
            reading->plan->layers[i] |= PLAN_LAYER_SPARSE;
        shares = shares || layer_has(reading, i, "ffn_up_shexp.weight");
    }
    return shares;
}

static int read_expert_sizes(const struct reading *reading)
{
    struct model *model = reading->model;
    bool shares = set_sparse(reading);
    int r;

    model->expert_width = model->ffn_width;
    model->shared_width = shares ? model->ffn_width : 0;
    r = read_size(reading, "expert_used_count", MODEL_EXPERTS_MAX, &model->experts_used);
    if (r == 0)
        r = read_size(reading, "expert_feed_forward_length", MODEL_FFN_WIDTH_MAX,
                      &model->expert_width);
    if (r == 0 && shares)
        r = read_size(reading, "expert_shared_feed_forward_length", MODEL_FFN_WIDTH_MAX,
                      &model->shared_width);
    if (r == 0 && model->experts_used > model->expert_count)
        r = fault_set(reading->fault, E_CORRUPT, "%s: tokens use %u of %u experts",
                      gguf_path(reading->file), model->experts_used, model->expert_count);
    return r;
}

static int read_experts(const struct reading *reading)
{
    struct model *model = reading->model;
    char key[KEY_BYTES];
    uint64_t experts = 0;
    int r;

    key_name(reading, "expert_count", key);
    r = gguf_get_u64(reading->file, key, &experts, reading->fault);
    if (r < 0 || experts == 0)
        return r < 0 ? r : 0;
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
        if (strcmp(reading->arch->name, mixtures[i].arch) != 0)
            continue;
        model->router = mixtures[i].router;
        model->router_normalizes = mixtures[i].normalizes;
        model->activation_limit = mixtures[i].activation_limit;
        r = read_size(reading, "expert_count", MODEL_EXPERTS_MAX, &model->expert_count);
        return r == 0 ? read_expert_sizes(reading) : r;
    }
    return fault_set(reading->fault, E_UNSUPPORTED,
                     "%s: experts of the architecture %s are not read from GGUF files yet",
                     gguf_path(reading->file), reading->arch->name);
}

static int read_sizes(const struct reading *reading)
{
    struct model *model = reading->model;
    int r;

    r = read_size(reading, "block_count", MODEL_LAYERS_MAX, &model->layer_count);
    if (r == 0)
        r = read_size(reading, "embedding_length", MODEL_WIDTH_MAX, &model->width);
    if (r == 0)
        r = read_size(reading, "feed_forward_length", MODEL_FFN_WIDTH_MAX, &model->ffn_width);
    if (r == 0)
        r = read_size(reading, "context_length", MODEL_CONTEXT_MAX, &model->context);
    if (r == 0)
        r = read_experts(reading);
    if (r == 0)
        r = read_attention_sizes(reading);
    model->embedding_width = model->width;
    return r < 0 ? r : read_vocabulary(reading);
}

static int read_norm(const struct reading *reading)
{
    struct model *model = reading->model;

    model->norm_epsilon = NAN;
    return read_real(reading,
                     model->norm == NORM_RMS ? "attention.layer_norm_rms_epsilon"
                                             : "attention.layer_norm_epsilon",
                     0, 0.1, &model->norm_epsilon);
}

/* --- rotary -------------------------------------------------------------------------------- */

/* A list of the file's own factors, which are tensors here. */
static int read_factors(const struct reading *reading, const char *name, float *factors,
                        uint32_t *ret_count)
{
    const struct gguf_tensor *tensor = gguf_tensor_find(reading->file, name);
    uint32_t pairs = reading->model->ropes[0].size / 2;

    if (!tensor)
        return 0;
    if (!tensor->known || tensor->type != DT_F32 || tensor->dimensions[0] != pairs ||
        tensor->dimensions[1] != 1)
        return fault_set(reading->fault, E_CORRUPT,
                         "%s: the tensor %s must hold %u factors in F32, one for each pair that "
                         "rotates",
                         gguf_path(reading->file), name, pairs);
    memcpy(factors, tensor->data, pairs * sizeof *factors);
    for (uint32_t i = 0; i < pairs; i++)
        if (!(factors[i] > 0.0f && factors[i] < 1e30f))
            return fault_set(reading->fault, E_CORRUPT,
                             "%s: a rotary factor in %s is not a positive number",
                             gguf_path(reading->file), name);
    *ret_count = pairs;
    return 0;
}

static int read_yarn(const struct reading *reading, struct rope_plan *plan)
{
    float fast = 32, slow = 1, factor = 1;
    uint32_t original = reading->model->context;
    int r = read_real(reading, "rope.scaling.yarn_beta_fast", 0, 1e6, &fast);

    if (r == 0)
        r = read_real(reading, "rope.scaling.yarn_beta_slow", 0, 1e6, &slow);
    if (r == 0)
        r = read_real(reading, "rope.scaling.attn_factor", 0, 1e6, &factor);
    if (r == 0)
        r = read_size(reading, "rope.scaling.original_context_length", MODEL_CONTEXT_MAX,
                      &original);
    plan->scaling = ROPE_SCALING_YARN;
    plan->beta_fast = (double)fast;
    plan->beta_slow = (double)slow;
    plan->context_original = original;
    if (factor != 1.0f)
        plan->attention_factor = (double)factor * (0.1 * log(plan->factor) + 1.0);
    return r;
}

static int read_longrope(const struct reading *reading, struct rope_plan *plan)
{
    float factor = 0;
    uint32_t original = reading->model->context;
    int r = read_plain(reading, "rope.scaling.attn_factor", &factor);

    if (r == 0)
        r = read_size(reading, "rope.scaling.original_context_length", MODEL_CONTEXT_MAX,
                      &original);
    if (r == 0)
        r = read_factors(reading, "rope_factors_short.weight", plan->short_factors,
                         &plan->short_count);
    if (r == 0)
        r = read_factors(reading, "rope_factors_long.weight", plan->long_factors,
                         &plan->long_count);
    if (plan->short_count == 0 || plan->long_count == 0)
        return r;
    plan->scaling = ROPE_SCALING_LONGROPE;
    plan->context_original = original > 1 ? original : 2;
    plan->factor = (double)reading->model->context / plan->context_original;
    plan->attention_factor = (double)factor;
    return r;
}

static int read_scaling(const struct reading *reading, struct rope_plan *plan)
{
    char key[KEY_BYTES], printed[NAME_BYTES];
    struct gguf_string kind = {"none", 4};
    float factor = 1.0f;
    int r;

    key_name(reading, "rope.scaling.type", key);
    r = gguf_get_string(reading->file, key, &kind, reading->fault);
    if (r < 0)
        return r;
    gguf_string_print(kind, printed, sizeof printed);
    r = read_real(reading, "rope.scale_linear", 0, 1e6, &factor); /* the older name */
    if (r == 0 && strcmp(printed, "none") != 0)
        r = read_real(reading, "rope.scaling.factor", 0, 1e6, &factor);
    if (r < 0)
        return r;
    plan->factor = (double)factor;
    if (strcmp(printed, "yarn") == 0)
        return read_yarn(reading, plan);
    if (strcmp(printed, "none") != 0 && strcmp(printed, "linear") != 0 &&
        strcmp(printed, "longrope") != 0)
        return fault_set(reading->fault, E_UNSUPPORTED,
                         "%s: rotary scaling \"%s\" is not supported (known: none, linear, yarn, "
                         "longrope)",
                         gguf_path(reading->file), printed);
    if (factor != 1.0f && strcmp(printed, "longrope") != 0)
        plan->scaling = ROPE_SCALING_LINEAR;
    return read_longrope(reading, plan);
}

static int read_rope(const struct reading *reading)
{
    struct model *model = reading->model;
    struct rope_plan *plan = &reading->plan->ropes[0];
    uint32_t size = model->head_size;
    float base = 10000.0f;
    int r;

    if (model->rope_count == 0)
        return 0;
    r = read_size(reading, "rope.dimension_count", model->head_size, &size);
    if (r < 0)
        return r;
    if (size % 2 != 0)
        return fault_set(reading->fault, E_CORRUPT, "%s: %u dimensions cannot rotate in pairs",
                         gguf_path(reading->file), size);
    for (uint32_t i = 0; i < MODEL_ROPES_MAX; i++)
        model->ropes[i].size = size;
    r = read_real(reading, "rope.freq_base", 1, 1e12, &base);
    plan->base = (double)base;
    if (r == 0)
        r = read_scaling(reading, plan);
    if (r == 0 && plan->scaling != ROPE_SCALING_LONGROPE)
        r = read_factors(reading, "rope_freqs.weight", plan->short_factors, &plan->short_count);
    return r;
}

/* --- what some architectures have ---------------------------------------------------------- */

static int read_bool(const struct reading *reading, const char *suffix, bool *ret_value)
{
    char key[KEY_BYTES];
    int r;

    key_name(reading, suffix, key);
    r = gguf_get_bool(reading->file, key, ret_value, reading->fault);
    return r < 0 ? r : 0;
}

static int read_extras(const struct reading *reading)
{
    struct model *model = reading->model;
    float logit_scale = 1;
    int r = read_plain(reading, "attn_logit_softcapping", &model->attention_softcap);

    if (r == 0)
        r = read_plain(reading, "final_logit_softcapping", &model->logit_softcap);
    if (r == 0)
        r = read_real(reading, "embedding_scale", 0, 1e6, &model->embedding_scale);
    if (r == 0)
        r = read_real(reading, "residual_scale", 0, 1e6, &model->residual_scale);
    if (r == 0)
        r = read_real(reading, "logit_scale", 0, 1e6, &logit_scale);
    if (r == 0)
        r = read_bool(reading, "use_parallel_residual", &model->parallel);
    model->logit_scale = logit_scale;
    return r;
}

/* The layers that slide are told by a pattern that stands in no file: `full` is how often one does
 * not (0: none is full). */
static int read_window(const struct reading *reading, uint32_t full)
{
    struct model *model = reading->model;
    uint32_t window = MODEL_CONTEXT_MAX;
    int r = read_size(reading, "attention.sliding_window", MODEL_CONTEXT_MAX, &window);

    if (r < 0)
        return r;
    if (window < model->context)
        model->window = window;
    else if (model->rope_count < 2) /* else they rotate by a base of their own all the same */
        return 0;
    for (uint32_t i = 0; i < model->layer_count; i++)
        if (full == 0 || (i + 1) % full != 0)
            reading->plan->layers[i] |= PLAN_LAYER_SLIDES;
    return 0;
}

/* Gemma scales queries by the head's size, but in its largest models by the width for each head. */
static void set_gemma(const struct reading *reading, uint32_t largest_layers)
{
    struct model *model = reading->model;

    model->embedding_scale = sqrtf((float)model->width);
    if (model->layer_count == largest_layers)
        model->attention_scale = 1.0f / sqrtf((float)model->width / (float)model->heads);
}

static int set_unsaid(const struct reading *reading)
{
    const char *name = reading->arch->name;
    struct model *model = reading->model;
    struct rope_plan *local = &reading->plan->ropes[1];

    if (strcmp(name, "gemma2") == 0) {
        set_gemma(reading, 46);
        return read_window(reading, 2);
    }
    if (strcmp(name, "gemma3") == 0) {
        float base = 10000.0f;
        int r = read_real(reading, "rope.freq_base_swa", 1, 1e12, &base);

        set_gemma(reading, 62);
        model->rope_count = 2;
        local->base = (double)base;
        return r < 0 ? r : read_window(reading, 6);
    }
    if (strcmp(name, "gpt-oss") == 0) {
        reading->plan->ropes[0].truncate = false;
        return read_window(reading, 2);
    }
    if (strcmp(name, "granite") == 0)
        model->logit_scale = 1.0f / model->logit_scale;
    if (strcmp(name, "smollm3") == 0)
        for (uint32_t i = 3; i < model->layer_count; i += 4)
            reading->plan->layers[i] |= PLAN_LAYER_NO_ROPE;
    return read_window(reading, 0);
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

int gguf_config_read(const struct gguf *file, struct model_plan *ret_plan, struct fault *fault)
{
    struct reading reading = {
        .file = file, .plan = ret_plan, .model = &ret_plan->sizes, .fault = fault};
    static int (*const parts[])(const struct reading *) = {
        read_sizes, read_norm, read_rope, read_extras, set_unsaid,
    };
    int r = find_arch(&reading);

    if (r < 0)
        return r;
    model_plan_init(ret_plan, reading.arch);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && r == 0; i++)
        r = parts[i](&reading);
    return r;
}
