/* hf_mixture.c -- keys of the classes of Transformers whose layers have experts, and of DeepSeek's
 * attention, which only they have. Defaults are those of Transformers 5.24. */
#include <math.h>
#include <string.h>

#include "engine/hf_class.h"

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))

/* --- sizes --------------------------------------------------------------------------------- */

/* From 1 to `high`. Absent: stays, and is refused when that is 0. */
static int read_count(struct hf_reading *reading, const char *key, uint32_t high,
                      uint32_t *ret_value)
{
    int64_t value = *ret_value;
    int r = json_get_int(reading->root, "", key, 1, high, &value, reading->fault);

    if (r == 0 && value == 0)
        return hf_refuse(reading, E_INVALID, key, "is missing");
    *ret_value = (uint32_t)value;
    return r < 0 ? r : 0;
}

/* The same, but 0 and null are numbers too: there is none of it. */
static int read_optional(struct hf_reading *reading, const char *key, uint32_t high,
                         uint32_t *ret_value)
{
    const json_t *there = json_object_get(reading->root, key);
    int64_t value = there ? 0 : *ret_value;
    int r = json_get_int(reading->root, "", key, 0, high, &value, reading->fault);

    *ret_value = (uint32_t)value;
    return r < 0 ? r : 0;
}

/* A class's names for the sizes of its experts, and what they are where the file says nothing. */
struct expert_keys {
    const char *count;
    const char *used;
    const char *width;
    uint32_t otherwise[3];
};

static int read_experts(struct hf_reading *reading, const struct expert_keys *keys)
{
    struct model *sizes = &reading->config.plan.sizes;
    int r;

    sizes->expert_count = keys->otherwise[0];
    sizes->experts_used = keys->otherwise[1];
    sizes->expert_width = keys->otherwise[2];
    r = read_count(reading, keys->count, MODEL_EXPERTS_MAX, &sizes->expert_count);
    if (r == 0)
        r = read_count(reading, keys->used, MODEL_EXPERTS_MAX, &sizes->experts_used);
    if (r == 0)
        r = read_count(reading, keys->width, MODEL_FFN_WIDTH_MAX, &sizes->expert_width);
    if (r == 0 && sizes->experts_used > sizes->expert_count)
        r = hf_refuse(reading, E_INVALID, keys->used, "is more than there are experts");
    return r;
}

/* Layers first, first + step ... have experts. */
static void set_sparse(struct model_plan *plan, uint32_t first, uint32_t step)
{
    for (uint32_t i = 0; i < plan->sizes.layer_count; i++)
        if (i >= first && (i - first) % step == 0)
            plan->layers[i] |= PLAN_LAYER_SPARSE;
}

/* --- Mixtral, Qwen, GPT-OSS ---------------------------------------------------------------- */

int hf_read_mixtral(struct hf_reading *reading)
{
    static const struct expert_keys keys = {
        "num_local_experts", "num_experts_per_tok", "intermediate_size", {8, 2, 0}};
    struct model_plan *plan = &reading->config.plan;

    plan->sizes.router = ROUTER_SOFTMAX;
    plan->sizes.router_normalizes = true;
    set_sparse(plan, 0, 1);
    return read_experts(reading, &keys);
}

/* Every decoder_sparse_step-th layer, but for those that mlp_only_layers lists. */
static int read_sparse_layers(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;
    json_t *list = NULL;
    uint32_t step = 1;
    int r = read_count(reading, "decoder_sparse_step", MODEL_LAYERS_MAX, &step);

    if (r == 0)
        r = json_get_array(reading->root, "", "mlp_only_layers", &list, reading->fault);
    if (r < 0)
        return r;
    set_sparse(plan, step - 1, step);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t layer;

        if (!json_integral(json_array_get(list, i), &layer) || layer < 0)
            return hf_refuse(reading, E_INVALID, "mlp_only_layers", "must hold layers' numbers");
        if (layer < plan->sizes.layer_count)
            plan->layers[layer] &= (uint8_t)~PLAN_LAYER_SPARSE;
    }
    return 0;
}

static int read_qwen(struct hf_reading *reading, const struct expert_keys *keys)
{
    struct model *sizes = &reading->config.plan.sizes;
    int r = read_experts(reading, keys);

    sizes->router = ROUTER_SOFTMAX;
    if (r == 0)
        r = hf_read_bool(reading, "norm_topk_prob", &sizes->router_normalizes);
    return r == 0 ? read_sparse_layers(reading) : r;
}

int hf_read_qwen2_moe(struct hf_reading *reading)
{
    static const struct expert_keys keys = {
        "num_experts", "num_experts_per_tok", "moe_intermediate_size", {60, 4, 1408}};
    struct model *sizes = &reading->config.plan.sizes;
    int r;

    sizes->shared_width = 5632;
    r = read_count(reading, "shared_expert_intermediate_size", MODEL_FFN_WIDTH_MAX,
                   &sizes->shared_width);
    return r == 0 ? read_qwen(reading, &keys) : r;
}

int hf_read_qwen3_moe(struct hf_reading *reading)
{
    static const struct expert_keys keys = {
        "num_experts", "num_experts_per_tok", "moe_intermediate_size", {128, 8, 768}};

    return read_qwen(reading, &keys);
}

int hf_read_gpt_oss(struct hf_reading *reading)
{
    static const struct expert_keys keys = {
        "num_local_experts", "num_experts_per_tok", "intermediate_size", {128, 4, 0}};
    struct model_plan *plan = &reading->config.plan;
    double limit = 7;
    int r = hf_read_positive(reading, reading->root, "", "swiglu_limit", 1e6, &limit);

    plan->sizes.activation_limit = (float)limit;
    plan->sizes.router = ROUTER_SOFTMAX_CHOSEN;
    set_sparse(plan, 0, 1);
    return r == 0 ? read_experts(reading, &keys) : r;
}

/* --- DeepSeek ------------------------------------------------------------------------------ */

static int read_latent_attention(struct hf_reading *reading)
{
    struct model *sizes = &reading->config.plan.sizes;
    const struct rope_plan *rope = &reading->config.plan.ropes[0];
    uint32_t plain = 128, rotates = 64;
    int r;

    sizes->attention = ATTENTION_LATENT;
    sizes->q_latent = 1536;
    sizes->kv_latent = 512;
    sizes->value_size = 128;
    r = read_optional(reading, "q_lora_rank", MODEL_WIDTH_MAX, &sizes->q_latent);
    if (r == 0)
        r = read_count(reading, "kv_lora_rank", MODEL_HEAD_SIZE_MAX / 2, &sizes->kv_latent);
    if (r == 0)
        r = read_count(reading, "qk_nope_head_dim", MODEL_HEAD_SIZE_MAX / 2, &plain);
    if (r == 0)
        r = read_count(reading, "qk_rope_head_dim", MODEL_HEAD_SIZE_MAX / 2, &rotates);
    if (r == 0)
        r = read_count(reading, "v_head_dim", MODEL_HEAD_SIZE_MAX, &sizes->value_size);
    if (r < 0)
        return r;
    if (rotates % 2 != 0)
        return hf_refuse(reading, E_INVALID, "qk_rope_head_dim", "must be even");
    sizes->head_size = plain + rotates;
    sizes->kv_heads = 1; /* the latent, which all heads share */
    sizes->ropes[0].size = rotates;
    sizes->attention_scale = 1.0f / sqrtf((float)sizes->head_size);
    /* Longer contexts have sharper scores: YaRN's growth by mscale_all_dim, squared. */
    if (rope->scaling == ROPE_SCALING_YARN && rope->mscale_all_dim > 0 && rope->factor > 1) {
        double growth = 0.1 * rope->mscale_all_dim * log(rope->factor) + 1.0;

        sizes->attention_scale *= (float)(growth * growth);
    }
    return 0;
}

static int read_groups(struct hf_reading *reading)
{
    struct model *sizes = &reading->config.plan.sizes;
    int r = read_optional(reading, "n_group", MODEL_EXPERTS_MAX, &sizes->router_groups);

    if (r == 0)
        r = read_optional(reading, "topk_group", MODEL_EXPERTS_MAX, &sizes->router_groups_used);
    if (r < 0 || sizes->router_groups == 0)
        return r;
    if (sizes->expert_count % sizes->router_groups != 0)
        return hf_refuse(reading, E_INVALID, "n_group", "does not divide 'n_routed_experts'");
    if (sizes->router_groups_used == 0 || sizes->router_groups_used > sizes->router_groups ||
        sizes->experts_used >
            sizes->router_groups_used * (sizes->expert_count / sizes->router_groups))
        return hf_refuse(reading, E_INVALID, "topk_group",
                         "leaves less experts than a token needs, or more groups than there are");
    return 0;
}

/* How experts are chosen, by the name that the file has for it. */
static int read_method(struct hf_reading *reading, const char *otherwise)
{
    static const struct {
        const char *name;
        enum router_kind router;
        bool groups;
    } methods[] = {
        {"greedy", ROUTER_SOFTMAX, false},
        {"group_limited_greedy", ROUTER_SOFTMAX, true},
        {"noaux_tc", ROUTER_SIGMOID, true},
    };
    struct model *sizes = &reading->config.plan.sizes;
    const char *name = otherwise;
    size_t bytes;
    int r = json_get_string(reading->root, "", "topk_method", &name, &bytes, reading->fault);

    if (r < 0)
        return r;
    for (size_t i = 0; i < COUNT_OF(methods); i++) {
        if (strcmp(name, methods[i].name) != 0)
            continue;
        sizes->router = methods[i].router;
        return methods[i].groups ? read_groups(reading) : 0;
    }
    return hf_refuse(reading, E_UNSUPPORTED, "topk_method",
                     "may be greedy, group_limited_greedy or noaux_tc only");
}

static int check_scoring(struct hf_reading *reading)
{
    const char *wanted =
        reading->config.plan.sizes.router == ROUTER_SIGMOID ? "sigmoid" : "softmax";
    const char *name = wanted;
    size_t bytes;
    int r = json_get_string(reading->root, "", "scoring_func", &name, &bytes, reading->fault);

    if (r >= 0 && strcmp(name, wanted) != 0)
        return hf_refuse(reading, E_UNSUPPORTED, "scoring_func",
                         "is not supported together with this 'topk_method'");
    return r < 0 ? r : 0;
}

static int read_deepseek_experts(struct hf_reading *reading, const struct expert_keys *keys,
                                 const char *method, uint32_t shared, uint32_t dense)
{
    struct model_plan *plan = &reading->config.plan;
    struct model *sizes = &plan->sizes;
    const json_t *count = json_object_get(reading->root, "n_routed_experts");
    uint32_t step = 1;
    double scale = sizes->router_scale;
    int r;

    if (count && json_is_null(count)) /* every layer is dense */
        return 0;
    r = read_experts(reading, keys);
    if (r == 0)
        r = read_optional(reading, "n_shared_experts", MODEL_EXPERTS_MAX, &shared);
    if (r == 0)
        r = read_optional(reading, "first_k_dense_replace", MODEL_LAYERS_MAX, &dense);
    if (r == 0)
        r = read_count(reading, "moe_layer_freq", MODEL_LAYERS_MAX, &step);
    if (r == 0)
        r = hf_read_bool(reading, "norm_topk_prob", &sizes->router_normalizes);
    if (r == 0)
        r = hf_read_positive(reading, reading->root, "", "routed_scaling_factor", 1e6, &scale);
    if (r == 0)
        r = read_method(reading, method);
    if (r == 0)
        r = check_scoring(reading);
    if (r < 0)
        return r;
    if ((uint64_t)shared * sizes->expert_width > MODEL_FFN_WIDTH_MAX)
        return hf_refuse(reading, E_INVALID, "n_shared_experts", "is too large");
    sizes->shared_width = shared * sizes->expert_width;
    sizes->router_scale = (float)scale;
    set_sparse(plan, (dense + step - 1) / step * step, step);
    return 0;
}

int hf_read_deepseek_v2(struct hf_reading *reading)
{
    static const struct expert_keys keys = {
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", {64, 6, 1407}};
    int r = read_latent_attention(reading);

    return r == 0 ? read_deepseek_experts(reading, &keys, "greedy", 2, 0) : r;
}

int hf_read_deepseek_v3(struct hf_reading *reading)
{
    static const struct expert_keys keys = {
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", {256, 8, 2048}};
    struct model *sizes = &reading->config.plan.sizes;
    int r = hf_require_bool(reading, "rope_interleave", true);

    sizes->router_normalizes = true;
    sizes->router_groups = 8;
    sizes->router_groups_used = 4;
    sizes->router_scale = 2.5f;
    if (r == 0)
        r = read_latent_attention(reading);
    return r == 0 ? read_deepseek_experts(reading, &keys, "noaux_tc", 1, 3) : r;
}
