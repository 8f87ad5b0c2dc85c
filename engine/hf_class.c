/* hf_class.c -- the table of classes, and the keys that one class alone has.
 *
 * Defaults are those of Transformers 5.24 (configuration_llama.py and its like), which keeps those
 * of 4; where a class's own file was never written without a key, it is the usual value. */
#include "engine/hf_class.h"

#include <math.h>
#include <string.h>

#define COUNT_OF(array_) (sizeof(array_) / sizeof((array_)[0]))

/* --- keys of one class --------------------------------------------------------------------- */

static int read_real(struct hf_reading *reading, const char *key, double low, double high,
                     double otherwise, double *ret_value)
{
    int r;

    *ret_value = otherwise;
    r = json_get_real(reading->root, "", key, low, high, ret_value, reading->fault);
    return r < 0 ? r : 0;
}

/* A cap that null switches off. */
static int read_cap(struct hf_reading *reading, const char *key, double otherwise, float *ret_cap)
{
    const json_t *value = json_object_get(reading->root, key);
    double cap;
    int r = read_real(reading, key, 1e-3, 1e6, value ? 0 : otherwise, &cap);

    *ret_cap = (float)cap;
    return r;
}

static int read_gemma(struct hf_reading *reading, double attention_cap, double logit_cap)
{
    struct model *sizes = &reading->config.plan.sizes;
    double scalar;
    int r = read_real(reading, "query_pre_attn_scalar", 1e-3, 1e9, 256, &scalar);

    sizes->attention_scale = (float)(1.0 / sqrt(scalar));
    if (r == 0)
        r = read_cap(reading, "attn_logit_softcapping", attention_cap, &sizes->attention_softcap);
    if (r == 0)
        r = read_cap(reading, "final_logit_softcapping", logit_cap, &sizes->logit_softcap);
    if (r == 0)
        r = hf_require_bool(reading, "use_bidirectional_attention", false);
    return r;
}

static int read_gemma2(struct hf_reading *reading)
{
    return read_gemma(reading, 50.0, 30.0);
}

static int read_gemma3(struct hf_reading *reading)
{
    return read_gemma(reading, 0.0, 0.0);
}

static int read_granite(struct hf_reading *reading)
{
    struct model *sizes = &reading->config.plan.sizes;
    double embedding = 1, logits = 1, residual = 1, attention = 1;
    int r = hf_read_positive(reading, reading->root, "", "embedding_multiplier", 1e6, &embedding);

    if (r == 0)
        r = hf_read_positive(reading, reading->root, "", "logits_scaling", 1e6, &logits);
    if (r == 0)
        r = hf_read_positive(reading, reading->root, "", "residual_multiplier", 1e6, &residual);
    if (r == 0)
        r = hf_read_positive(reading, reading->root, "", "attention_multiplier", 1e6, &attention);
    sizes->embedding_scale = (float)embedding;
    sizes->logit_scale = (float)(1.0 / logits);
    sizes->residual_scale = (float)residual;
    sizes->attention_scale = (float)attention;
    return r;
}

/* no_rope_layers: for each layer 1 (it rotates) or 0. */
static int read_smollm3(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;
    int64_t interval = 4, rotates;
    json_t *list = NULL;
    int r = json_get_int(reading->root, "", "no_rope_layer_interval", 1, INT64_MAX, &interval,
                         reading->fault);

    if (r >= 0)
        r = json_get_array(reading->root, "", "no_rope_layers", &list, reading->fault);
    if (r < 0)
        return r;
    if (r > 0 && json_array_size(list) < plan->sizes.layer_count)
        return hf_refuse(reading, E_INVALID, "no_rope_layers", "does not name every layer");
    for (uint32_t i = 0; i < plan->sizes.layer_count; i++) {
        rotates = (i + 1) % interval != 0;
        if (list && (!json_integral(json_array_get(list, i), &rotates) || rotates < 0))
            return hf_refuse(reading, E_INVALID, "no_rope_layers", "must hold 0 and 1 only");
        if (!rotates)
            plan->layers[i] |= PLAN_LAYER_NO_ROPE;
    }
    return 0;
}

static int read_cohere(struct hf_reading *reading)
{
    double scale = 0.0625;
    int r = hf_read_positive(reading, reading->root, "", "logit_scale", 1e6, &scale);

    reading->config.plan.sizes.logit_scale = (float)scale;
    return r;
}

static int read_parallel(struct hf_reading *reading, const char *key, bool otherwise)
{
    bool *parallel = &reading->config.plan.sizes.parallel;

    *parallel = otherwise;
    return hf_read_bool(reading, key, parallel);
}

static int read_gptneox(struct hf_reading *reading)
{
    return read_parallel(reading, "use_parallel_residual", true);
}

static int read_stablelm(struct hf_reading *reading)
{
    return read_parallel(reading, "use_parallel_residual", false);
}

static int read_gpt2(struct hf_reading *reading)
{
    bool scales = true;
    int r = hf_read_bool(reading, "scale_attn_weights", &scales);

    if (r == 0 && !scales)
        reading->config.plan.sizes.attention_scale = 1.0f;
    if (r == 0)
        r = hf_require_bool(reading, "scale_attn_by_inverse_layer_idx", false);
    if (r == 0)
        r = hf_require_bool(reading, "add_cross_attention", false);
    return r;
}

static int read_bloom(struct hf_reading *reading)
{
    return hf_require_bool(reading, "apply_residual_connection_post_layernorm", false);
}

/* How many heads have keys: num_kv_heads counts only in the newer form. */
static int read_falcon(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;
    bool grouped = false, multi_query = true, alibi = false;
    int64_t kv_heads = plan->sizes.heads, norms = 2;
    int r = hf_read_bool(reading, "new_decoder_architecture", &grouped);

    if (r == 0)
        r = hf_read_bool(reading, "multi_query", &multi_query);
    if (r == 0)
        r = hf_read_bool(reading, "alibi", &alibi);
    if (r == 0)
        r = hf_require_bool(reading, "apply_residual_connection_post_layernorm", false);
    if (r == 0)
        r = json_get_int(reading->root, "", "num_kv_heads", 1, MODEL_HEADS_MAX, &kv_heads,
                         reading->fault);
    if (r >= 0)
        r = json_get_int(reading->root, "", "num_ln_in_parallel_attn", 1, 2, &norms,
                         reading->fault);
    if (r < 0)
        return r;
    if (grouped && norms == 2)
        plan->features |= WEIGHT_IF_TWO_NORMS;
    if (!grouped)
        kv_heads = multi_query ? 1 : plan->sizes.heads;
    plan->sizes.kv_heads = (uint32_t)kv_heads;
    /* ALiBi is divided by the root of the head's size together with the scores. Transformers'
     * plain ("eager") attention adds it there and once more with the causal mask; its other kinds
     * add it once. The references that we are compared with come from the plain one. */
    if (alibi) {
        plan->sizes.rope_count = 0;
        plan->alibi_scale = 2.0f * plan->sizes.attention_scale;
    }
    r = read_parallel(reading, "parallel_attn", true);
    if (grouped)
        plan->sizes.parallel = true;
    return r;
}

/* Positions begin at the table's third row. 350M: a narrower embedding, norms after the sums. */
static int read_opt(struct hf_reading *reading)
{
    struct model *sizes = &reading->config.plan.sizes;
    int64_t width = sizes->width;
    bool before = true;
    int r = json_get_int(reading->root, "", "word_embed_proj_dim", 1, MODEL_WIDTH_MAX, &width,
                         reading->fault);

    if (r >= 0)
        r = hf_read_bool(reading, "do_layer_norm_before", &before);
    if (r == 0)
        r = hf_require_bool(reading, "layer_norm_elementwise_affine", true);
    sizes->position_offset = 2;
    sizes->embedding_width = (uint32_t)width;
    sizes->norms_stream = !before;
    return r;
}

/* One kind of text is served, the first. */
static int read_bert(struct hf_reading *reading)
{
    const char *kind = "absolute";
    int64_t types = 2;
    size_t bytes;
    int r = json_get_int(reading->root, "", "type_vocab_size", 1, MODEL_WIDTH_MAX, &types,
                         reading->fault);

    if (r >= 0)
        r = json_get_string(reading->root, "", "position_embedding_type", &kind, &bytes,
                            reading->fault);
    if (r >= 0 && strcmp(kind, "absolute") != 0)
        return hf_refuse(reading, E_UNSUPPORTED, "position_embedding_type",
                         "is supported as absolute only");
    reading->config.plan.sizes.token_types = (uint32_t)types;
    return r < 0 ? r : hf_require_bool(reading, "is_decoder", false);
}

static int read_chatglm(struct hf_reading *reading)
{
    struct model_plan *plan = &reading->config.plan;
    bool multi_query = false;
    int64_t groups = 1;
    double ratio = 1;
    int r = hf_read_bool(reading, "multi_query_attention", &multi_query);

    if (r == 0)
        r = json_get_int(reading->root, "", "multi_query_group_num", 1, MODEL_HEADS_MAX, &groups,
                         reading->fault);
    if (r >= 0)
        r = hf_read_positive(reading, reading->root, "", "rope_ratio", 1e6, &ratio);
    if (r == 0)
        r = hf_require_bool(reading, "rmsnorm", true);
    if (r == 0)
        r = hf_require_bool(reading, "post_layer_norm", true);
    if (r == 0)
        r = hf_require_bool(reading, "apply_residual_connection_post_layernorm", false);
    if (multi_query)
        plan->sizes.kv_heads = (uint32_t)groups;
    plan->ropes[0].base *= ratio;
    return r;
}

/* --- the table ----------------------------------------------------------------------------- */

enum {
    QKV = WEIGHT_IF_QKV_BIAS,
    ATTENTION = WEIGHT_IF_QKV_BIAS | WEIGHT_IF_OUT_BIAS,
    FFN = WEIGHT_IF_FFN_BIAS,
    ALL = WEIGHT_IF_QKV_BIAS | WEIGHT_IF_OUT_BIAS | WEIGHT_IF_FFN_BIAS,
    QK_NORMS = WEIGHT_IF_QK_NORM,
    REFUSED = 0,
};

/* What nearly all have. */
#define ROTARY      .rope_base = 10000.0, .rope_part = 1.0
#define RMS_EPSILON .epsilon = "rms_norm_eps", .norm_epsilon = 1e-6
#define HIDDEN_ACT  .activation = "hidden_act"
#define MODERN      ROTARY, RMS_EPSILON, HIDDEN_ACT

const struct hf_class hf_classes[] = {
    {"LlamaForCausalLM", "llama", .context = 2048, MODERN,
     .switches = {{"attention_bias", false, ATTENTION}, {"mlp_bias", false, FFN}}},
    {"MistralForCausalLM", "llama", .kv_heads = 8, .context = 131072, MODERN,
     .window_rule = HF_WINDOW_ALL, .window = 4096},
    {"Qwen2ForCausalLM", "qwen2", .kv_heads = 32, .context = 32768, MODERN,
     .window_rule = HF_WINDOW_SWITCH, .window = 4096},
    {"Qwen3ForCausalLM", "qwen3", .kv_heads = 32, .head_size = 128, .context = 32768, MODERN,
     .window_rule = HF_WINDOW_SWITCH, .window = 4096,
     .switches = {{"attention_bias", false, ATTENTION}}},
    {"GraniteForCausalLM", "granite", .context = 2048, MODERN, .own = read_granite,
     .switches = {{"attention_bias", false, ATTENTION}, {"mlp_bias", false, FFN}}},
    {"SmolLM3ForCausalLM", "smollm3", .kv_heads = 4, .context = 32768, .tied = true, RMS_EPSILON,
     HIDDEN_ACT, .rope_base = 2000000.0, .rope_part = 1.0, .window_rule = HF_WINDOW_LISTED,
     .own = read_smollm3,
     .switches = {{"attention_bias", false, ATTENTION}, {"mlp_bias", false, FFN}}},
    {"Olmo2ForCausalLM", "olmo2", .context = 2048, ROTARY, HIDDEN_ACT, .epsilon = "rms_norm_eps",
     .norm_epsilon = 1e-5, .switches = {{"attention_bias", false, REFUSED}}},
    {"Gemma2ForCausalLM", "gemma2", .kv_heads = 4, .head_size = 256, .context = 8192, .tied = true,
     ROTARY, RMS_EPSILON, .activation = "hidden_activation", .window_rule = HF_WINDOW_ALTERNATE,
     .window = 4096, .own = read_gemma2, .switches = {{"attention_bias", false, REFUSED}}},
    {"Gemma3ForCausalLM", "gemma3", .kv_heads = 4, .head_size = 256, .context = 131072,
     .tied = true, RMS_EPSILON, .activation = "hidden_activation", .rope_base = 1000000.0,
     .rope_part = 1.0, .rope_local_base = 10000.0, .window_rule = HF_WINDOW_PATTERN, .window = 4096,
     .own = read_gemma3, .switches = {{"attention_bias", false, REFUSED}}},
    {"Gemma3ForConditionalGeneration", "gemma3", .text = "text_config", .heads = 8,
     .vocabulary = 262208, .kv_heads = 4, .head_size = 256, .context = 131072, .tied = true,
     RMS_EPSILON, .activation = "hidden_activation", .rope_base = 1000000.0, .rope_part = 1.0,
     .rope_local_base = 10000.0, .window_rule = HF_WINDOW_PATTERN, .window = 4096,
     .own = read_gemma3, .switches = {{"attention_bias", false, REFUSED}}},
    {"PhiForCausalLM", "phi2", .context = 2048, HIDDEN_ACT, .epsilon = "layer_norm_eps",
     .norm_epsilon = 1e-5, .rope_base = 10000.0, .rope_part = 0.5,
     .switches = {{"qk_layernorm", false, REFUSED}}},
    {"Phi3ForCausalLM", "phi3", .context = 4096, ROTARY, HIDDEN_ACT, .epsilon = "rms_norm_eps",
     .norm_epsilon = 1e-5, .window_rule = HF_WINDOW_ALL,
     .switches = {{"attention_bias", false, REFUSED}}},
    {"GlmForCausalLM", "glm", .kv_heads = 2, .head_size = 128, .context = 131072, HIDDEN_ACT,
     .epsilon = "rms_norm_eps", .norm_epsilon = 1.5625e-7, .rope_base = 10000.0, .rope_part = 0.5,
     .switches = {{"attention_bias", true, QKV}}},
    {"Glm4ForCausalLM", "glm4", .kv_heads = 2, .head_size = 128, .context = 131072, HIDDEN_ACT,
     .epsilon = "rms_norm_eps", .norm_epsilon = 1.5625e-7, .rope_base = 10000.0, .rope_part = 0.5,
     .switches = {{"attention_bias", true, QKV}}},
    {"ChatGLMModel", "chatglm", .context = 2048, .epsilon = "layernorm_epsilon",
     .norm_epsilon = 1e-5, .rope_base = 10000.0, .rope_part = 0.5, .own = read_chatglm,
     .switches = {{"add_qkv_bias", false, QKV}, {"add_bias_linear", false, REFUSED}}},
    {"ChatGLMForConditionalGeneration", "chatglm", .context = 2048, .epsilon = "layernorm_epsilon",
     .norm_epsilon = 1e-5, .rope_base = 10000.0, .rope_part = 0.5, .own = read_chatglm,
     .switches = {{"add_qkv_bias", false, QKV}, {"add_bias_linear", false, REFUSED}}},
    {"MixtralForCausalLM", "llama", .kv_heads = 8, .context = 131072, ROTARY, HIDDEN_ACT,
     .epsilon = "rms_norm_eps", .norm_epsilon = 1e-5, .window_rule = HF_WINDOW_ALL,
     .own = hf_read_mixtral},
    {"Qwen2MoeForCausalLM", "qwen2moe", .kv_heads = 16, .context = 32768, MODERN,
     .window_rule = HF_WINDOW_SWITCH, .window = 4096, .own = hf_read_qwen2_moe,
     .switches = {{"qkv_bias", true, QKV}}},
    {"Qwen3MoeForCausalLM", "qwen3moe", .kv_heads = 4, .context = 32768, MODERN,
     .window_rule = HF_WINDOW_SWITCH, .window = 4096, .own = hf_read_qwen3_moe,
     .switches = {{"attention_bias", false, ATTENTION}}},
    {"GptOssForCausalLM", "gpt-oss", .kv_heads = 8, .head_size = 64, .context = 131072,
     .epsilon = "rms_norm_eps", .norm_epsilon = 1e-5, .rope_base = 150000.0, .rope_part = 1.0,
     .window_rule = HF_WINDOW_ALTERNATE, .window = 128, .own = hf_read_gpt_oss},
    {"DeepseekV2ForCausalLM", "deepseek2", .head_size = 64, .context = 2048, MODERN,
     .own = hf_read_deepseek_v2, .switches = {{"attention_bias", false, REFUSED}}},
    {"DeepseekV3ForCausalLM", "deepseek2", .head_size = 64, .context = 4096, MODERN,
     .own = hf_read_deepseek_v3, .switches = {{"attention_bias", false, REFUSED}}},
    {"StableLmForCausalLM", "stablelm", .kv_heads = 32, .context = 4096, HIDDEN_ACT,
     .epsilon = "layer_norm_eps", .norm_epsilon = 1e-5, .rope_base = 10000.0, .rope_part = 0.25,
     .own = read_stablelm,
     .switches = {{"use_qkv_bias", false, QKV}, {"qk_layernorm", false, QK_NORMS}}},
    {"Starcoder2ForCausalLM", "starcoder2", .kv_heads = 2, .context = 4096, .tied = true, ROTARY,
     HIDDEN_ACT, .epsilon = "norm_epsilon", .norm_epsilon = 1e-5, .window_rule = HF_WINDOW_ALL,
     .switches = {{"use_bias", true, ALL}}},
    {"CohereForCausalLM", "command-r", .context = 8192, .tied = true, HIDDEN_ACT,
     .epsilon = "layer_norm_eps", .norm_epsilon = 1e-5, .rope_base = 500000.0, .rope_part = 1.0,
     .own = read_cohere,
     .switches = {{"attention_bias", false, ATTENTION}, {"use_qk_norm", false, QK_NORMS}}},
    {"GPT2LMHeadModel", "gpt2", .context = 1024, .ffn_factor = 4, .tied = true,
     .epsilon = "layer_norm_epsilon", .norm_epsilon = 1e-5, .activation = "activation_function",
     .own = read_gpt2},
    {"GPTJForCausalLM", "gptj", .context = 2048, .ffn_factor = 4, .epsilon = "layer_norm_epsilon",
     .norm_epsilon = 1e-5, .activation = "activation_function", .rope_base = 10000.0},
    {"GPTNeoXForCausalLM", "gptneox", .context = 2048, HIDDEN_ACT, .epsilon = "layer_norm_eps",
     .norm_epsilon = 1e-5, .rope_base = 10000.0, .rope_part = 0.25, .own = read_gptneox,
     .switches = {{"attention_bias", true, ATTENTION}}},
    {"BloomForCausalLM", "bloom", .context = 2048, .ffn_factor = 4, .tied = true,
     .epsilon = "layer_norm_epsilon", .norm_epsilon = 1e-5, .own = read_bloom},
    {"FalconForCausalLM", "falcon", .context = 2048, .ffn_factor = 4, .tied = true, ROTARY,
     .epsilon = "layer_norm_epsilon", .norm_epsilon = 1e-5, .activation = "activation",
     .own = read_falcon, .switches = {{"bias", false, ALL}}},
    {"OPTForCausalLM", "opt", .context = 2048, .tied = true, .norm_epsilon = 1e-5,
     .activation = "activation_function", .own = read_opt,
     .switches = {{"enable_bias", true, ALL}, {"_remove_final_layer_norm", false, REFUSED}}},
    {"BertModel", "bert", .context = 512, .tied = true, HIDDEN_ACT, .epsilon = "layer_norm_eps",
     .norm_epsilon = 1e-12, .own = read_bert},
};
const size_t hf_class_count = COUNT_OF(hf_classes);
