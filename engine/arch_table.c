/* arch_table.c -- the table of architectures.
 *
 * A weight's names are the files'; where it goes is an offset into struct model or struct layer, so
 * that binding a model is one loop over its row (model.c). arch.h explains the columns. */
#include "engine/arch_table.h"

#define IN_MODEL(member_) offsetof(struct model, member_)
#define IN_LAYER(member_) offsetof(struct layer, member_)
#define IN_FFN(member_)   offsetof(struct ffn, member_) /* of each expert */
#define COUNT_OF(array_)  (sizeof(array_) / sizeof((array_)[0]))
#define WEIGHTS(array_)   array_, COUNT_OF(array_)

enum {
    MODEL = 0,
    LAYER = WEIGHT_PER_LAYER,
    FLOAT = WEIGHT_FLOAT,
    OPTIONAL = WEIGHT_OPTIONAL,
    NORM = WEIGHT_PER_LAYER | WEIGHT_FLOAT,
    QKV_BIAS = NORM | WEIGHT_OPTIONAL | WEIGHT_IF_QKV_BIAS,
    OUT_BIAS = NORM | WEIGHT_OPTIONAL | WEIGHT_IF_OUT_BIAS,
    FFN_BIAS = NORM | WEIGHT_OPTIONAL | WEIGHT_IF_FFN_BIAS,
    QK_NORM = NORM | WEIGHT_OPTIONAL | WEIGHT_IF_QK_NORM,
    SPARSE = WEIGHT_PER_LAYER | WEIGHT_SPARSE,
    SHARED = WEIGHT_PER_LAYER | WEIGHT_SPARSE | WEIGHT_SHARED,
    Q_LATENT = WEIGHT_PER_LAYER | WEIGHT_Q_LATENT,
    INTERLEAVED = WEIGHT_HF_INTERLEAVED,
    PLUS_ONE = WEIGHT_HF_PLUS_ONE,
    TRANSPOSED = WEIGHT_HF_TRANSPOSED,
    BY_HEAD = WEIGHT_HF_BY_HEAD,
};

/* clang-format off */

/* --- lines that many lists have; the macros' arguments are the names in Transformers' files --- */

#define EMBEDDING(hf_) \
    {"token_embd.weight", hf_, IN_MODEL(embedding), 0, DIM_VOCABULARY, DIM_EMBEDDING, MODEL, \
     SLICE_WHOLE}
#define HEAD(hf_) \
    {"output.weight", hf_, IN_MODEL(head), 0, DIM_VOCABULARY, DIM_EMBEDDING, OPTIONAL, SLICE_WHOLE}
#define HEAD_BIAS(hf_) \
    {"output.bias", hf_, IN_MODEL(head_bias), 0, DIM_VOCABULARY, DIM_ONE, FLOAT, SLICE_WHOLE}
#define FINAL_NORM(hf_, flags_) \
    {"output_norm.weight", hf_, IN_MODEL(final_norm), 0, DIM_ONE, DIM_WIDTH, FLOAT | (flags_), \
     SLICE_WHOLE}
#define FINAL_NORM_BIAS(hf_, flags_) \
    {"output_norm.bias", hf_, IN_MODEL(final_norm_bias), 0, DIM_WIDTH, DIM_ONE, \
     FLOAT | (flags_), SLICE_WHOLE}
/* The file's own rotary factors; GGUF only. */
#define ROPE_FREQS \
    {"rope_freqs.weight", NULL, IN_MODEL(rope_freqs), 0, DIM_ONE, DIM_ROPE, FLOAT | OPTIONAL, \
     SLICE_WHOLE}

#define GAIN(gguf_, hf_, member_, flags_) \
    {gguf_, hf_, IN_LAYER(member_), 0, DIM_ONE, DIM_WIDTH, NORM | (flags_), SLICE_WHOLE}
#define SHIFT(gguf_, hf_, member_, flags_) \
    {gguf_, hf_, IN_LAYER(member_), 0, DIM_WIDTH, DIM_ONE, NORM | (flags_), SLICE_WHOLE}
#define NORM_PAIR(gguf_, hf_, member_, flags_) \
    GAIN(gguf_ ".weight", hf_ ".weight", member_, flags_), \
    SHIFT(gguf_ ".bias", hf_ ".bias", member_##_bias, flags_)

/* Three tensors, one product. */
#define QKV_APART(q_, k_, v_, flags_) \
    {"blk.%u.attn_q.weight", q_ ".weight", IN_LAYER(qkv), 0, DIM_Q, DIM_WIDTH, LAYER | (flags_), \
     SLICE_WHOLE}, \
    {"blk.%u.attn_k.weight", k_ ".weight", IN_LAYER(qkv), 1, DIM_KV, DIM_WIDTH, LAYER | (flags_), \
     SLICE_WHOLE}, \
    {"blk.%u.attn_v.weight", v_ ".weight", IN_LAYER(qkv), 2, DIM_V, DIM_WIDTH, LAYER | (flags_), \
     SLICE_WHOLE}
#define QKV_APART_BIAS(q_, k_, v_, flags_) \
    {"blk.%u.attn_q.bias", q_ ".bias", IN_LAYER(qkv_bias), 0, DIM_Q, DIM_ONE, flags_, \
     SLICE_WHOLE}, \
    {"blk.%u.attn_k.bias", k_ ".bias", IN_LAYER(qkv_bias), 1, DIM_KV, DIM_ONE, flags_, \
     SLICE_WHOLE}, \
    {"blk.%u.attn_v.bias", v_ ".bias", IN_LAYER(qkv_bias), 2, DIM_V, DIM_ONE, flags_, SLICE_WHOLE}
/* One tensor. */
#define QKV_FUSED(gguf_, hf_, member_, columns_, flags_) \
    {gguf_, hf_, IN_LAYER(member_), 0, DIM_Q, columns_, flags_, SLICE_QKV}, \
    {gguf_, hf_, IN_LAYER(member_), 1, DIM_KV, columns_, flags_, SLICE_QKV}, \
    {gguf_, hf_, IN_LAYER(member_), 2, DIM_V, columns_, flags_, SLICE_QKV}
#define ATTENTION_OUT(hf_, flags_) \
    {"blk.%u.attn_output.weight", hf_, IN_LAYER(attention_out), 0, DIM_WIDTH, DIM_ATTENTION, \
     LAYER | (flags_), SLICE_WHOLE}
#define ATTENTION_OUT_BIAS(hf_, flags_) \
    {"blk.%u.attn_output.bias", hf_, IN_LAYER(attention_out_bias), 0, DIM_WIDTH, DIM_ONE, flags_, \
     SLICE_WHOLE}
#define HEAD_NORMS(q_, k_, flags_) \
    {"blk.%u.attn_q_norm.weight", q_, IN_LAYER(q_norm), 0, DIM_ONE, DIM_QK_NORM, flags_, \
     SLICE_WHOLE}, \
    {"blk.%u.attn_k_norm.weight", k_, IN_LAYER(k_norm), 0, DIM_ONE, DIM_QK_NORM_KV, flags_, \
     SLICE_WHOLE}

#define GATE_UP(gate_, up_) \
    {"blk.%u.ffn_gate.weight", gate_, IN_LAYER(ffn.gate_up), 0, DIM_FFN, DIM_WIDTH, LAYER, \
     SLICE_WHOLE}, \
    {"blk.%u.ffn_up.weight", up_, IN_LAYER(ffn.gate_up), 1, DIM_FFN, DIM_WIDTH, LAYER, SLICE_WHOLE}
#define GATE_UP_FUSED(hf_) \
    {"blk.%u.ffn_up.weight", hf_, IN_LAYER(ffn.gate_up), 0, DIM_FFN, DIM_WIDTH, LAYER, \
     SLICE_GATE_UP}, \
    {"blk.%u.ffn_up.weight", hf_, IN_LAYER(ffn.gate_up), 1, DIM_FFN, DIM_WIDTH, LAYER, \
     SLICE_GATE_UP}
#define UP(hf_, flags_) \
    {"blk.%u.ffn_up.weight", hf_, IN_LAYER(ffn.gate_up), 0, DIM_FFN, DIM_WIDTH, LAYER | (flags_), \
     SLICE_WHOLE}
#define UP_BIAS(hf_, flags_) \
    {"blk.%u.ffn_up.bias", hf_, IN_LAYER(ffn.gate_up_bias), 0, DIM_FFN, DIM_ONE, flags_, \
     SLICE_WHOLE}
#define DOWN(hf_, flags_) \
    {"blk.%u.ffn_down.weight", hf_, IN_LAYER(ffn.down), 0, DIM_WIDTH, DIM_FFN, LAYER | (flags_), \
     SLICE_WHOLE}
#define DOWN_BIAS(hf_, flags_) \
    {"blk.%u.ffn_down.bias", hf_, IN_LAYER(ffn.down_bias), 0, DIM_WIDTH, DIM_ONE, flags_, \
     SLICE_WHOLE}

#define ROUTER(hf_) \
    {"blk.%u.ffn_gate_inp.weight", hf_, IN_LAYER(router), 0, DIM_EXPERTS, DIM_WIDTH, SPARSE, \
     SLICE_WHOLE}
/* One line of all experts. */
#define EXPERT_UP(gguf_, hf_, part_, flags_) \
    {gguf_, hf_, IN_FFN(gate_up), part_, DIM_EXPERT_FFN, DIM_WIDTH, SPARSE | (flags_), \
     SLICE_EXPERTS}
#define EXPERT_UP_BIAS(gguf_, hf_, part_, flags_) \
    {gguf_, hf_, IN_FFN(gate_up_bias), part_, DIM_EXPERT_FFN, DIM_ONE, SPARSE | FLOAT | (flags_), \
     SLICE_EXPERTS}
#define EXPERT_DOWN(gguf_, hf_, flags_) \
    {gguf_, hf_, IN_FFN(down), 0, DIM_WIDTH, DIM_EXPERT_FFN, SPARSE | (flags_), SLICE_EXPERTS}
#define EXPERT_DOWN_BIAS(gguf_, hf_, flags_) \
    {gguf_, hf_, IN_FFN(down_bias), 0, DIM_WIDTH, DIM_ONE, SPARSE | FLOAT | (flags_), \
     SLICE_EXPERTS}
#define EXPERTS(gate_, up_, down_) \
    EXPERT_UP("blk.%u.ffn_gate_exps.weight", gate_, 0, 0), \
    EXPERT_UP("blk.%u.ffn_up_exps.weight", up_, 1, 0), \
    EXPERT_DOWN("blk.%u.ffn_down_exps.weight", down_, 0)
#define SHARED_EXPERT(hf_) \
    {"blk.%u.ffn_gate_shexp.weight", hf_ ".gate_proj.weight", IN_LAYER(shared.gate_up), 0, \
     DIM_SHARED_FFN, DIM_WIDTH, SHARED, SLICE_WHOLE}, \
    {"blk.%u.ffn_up_shexp.weight", hf_ ".up_proj.weight", IN_LAYER(shared.gate_up), 1, \
     DIM_SHARED_FFN, DIM_WIDTH, SHARED, SLICE_WHOLE}, \
    {"blk.%u.ffn_down_shexp.weight", hf_ ".down_proj.weight", IN_LAYER(shared.down), 0, DIM_WIDTH, \
     DIM_SHARED_FFN, SHARED, SLICE_WHOLE}

/* --- Llama and what is named like it ------------------------------------------------------ */

#define L "model.layers.%u."
#define ENDS(flags_) \
    EMBEDDING("model.embed_tokens.weight"), FINAL_NORM("model.norm.weight", flags_), \
    HEAD("lm_head.weight"), ROPE_FREQS
#define QKV        QKV_APART(L "self_attn.q_proj", L "self_attn.k_proj", L "self_attn.v_proj", 0)
#define QKV_BIASES(flags_) \
    QKV_APART_BIAS(L "self_attn.q_proj", L "self_attn.k_proj", L "self_attn.v_proj", flags_)
#define OUT        ATTENTION_OUT(L "self_attn.o_proj.weight", 0)
#define GATED      GATE_UP(L "mlp.gate_proj.weight", L "mlp.up_proj.weight"), \
                   DOWN(L "mlp.down_proj.weight", 0)
#define PRE_NORMS \
    GAIN("blk.%u.attn_norm.weight", L "input_layernorm.weight", attention_norm, 0), \
    GAIN("blk.%u.ffn_norm.weight", L "post_attention_layernorm.weight", ffn_norm, 0)
#define LLAMA ENDS(0), PRE_NORMS, QKV, OUT, GATED

/* Mixtral is a Llama in GGUF too, whose first files had a tensor for each expert. */
static const struct arch_weight llama_weights[] = {
    LLAMA,
    ROUTER(L "block_sparse_moe.gate.weight"),
    EXPERT_UP("blk.%u.ffn_gate.%u.weight", NULL, 0, OPTIONAL),
    EXPERT_UP("blk.%u.ffn_up.%u.weight", NULL, 1, OPTIONAL),
    EXPERT_DOWN("blk.%u.ffn_down.%u.weight", NULL, OPTIONAL),
    EXPERTS(L "block_sparse_moe.experts.%u.w1.weight", L "block_sparse_moe.experts.%u.w3.weight",
            L "block_sparse_moe.experts.%u.w2.weight"),
    QKV_BIASES(QKV_BIAS),
    ATTENTION_OUT_BIAS(L "self_attn.o_proj.bias", OUT_BIAS),
    {"blk.%u.ffn_gate.bias", L "mlp.gate_proj.bias", IN_LAYER(ffn.gate_up_bias), 0, DIM_FFN,
     DIM_ONE, FFN_BIAS, SLICE_WHOLE},
    {"blk.%u.ffn_up.bias", L "mlp.up_proj.bias", IN_LAYER(ffn.gate_up_bias), 1, DIM_FFN, DIM_ONE,
     FFN_BIAS, SLICE_WHOLE},
    DOWN_BIAS(L "mlp.down_proj.bias", FFN_BIAS),
};

static const struct arch_weight qwen2_weights[] = {LLAMA, QKV_BIASES(NORM)};

static const struct arch_weight qwen3_weights[] = {
    LLAMA,
    HEAD_NORMS(L "self_attn.q_norm.weight", L "self_attn.k_norm.weight", NORM),
    QKV_BIASES(QKV_BIAS),
    ATTENTION_OUT_BIAS(L "self_attn.o_proj.bias", OUT_BIAS),
};

#define QWEN_EXPERTS \
    ROUTER(L "mlp.gate.weight"), \
    EXPERTS(L "mlp.experts.%u.gate_proj.weight", L "mlp.experts.%u.up_proj.weight", \
            L "mlp.experts.%u.down_proj.weight")

static const struct arch_weight qwen2moe_weights[] = {
    LLAMA, QWEN_EXPERTS,
    QKV_BIASES(QKV_BIAS),
    SHARED_EXPERT(L "mlp.shared_expert"),
    {"blk.%u.ffn_gate_inp_shexp.weight", L "mlp.shared_expert_gate.weight", IN_LAYER(shared_gate),
     0, DIM_ONE, DIM_WIDTH, SHARED, SLICE_WHOLE},
};

static const struct arch_weight qwen3moe_weights[] = {
    LLAMA, QWEN_EXPERTS,
    HEAD_NORMS(L "self_attn.q_norm.weight", L "self_attn.k_norm.weight", NORM),
    QKV_BIASES(QKV_BIAS),
    ATTENTION_OUT_BIAS(L "self_attn.o_proj.bias", OUT_BIAS),
};

static const struct arch_weight deepseek2_weights[] = {
    ENDS(0), PRE_NORMS, OUT, GATED, QWEN_EXPERTS,
    {"blk.%u.exp_probs_b.bias", L "mlp.gate.e_score_correction_bias", IN_LAYER(router_bias), 0,
     DIM_EXPERTS, DIM_ONE, SPARSE | FLOAT | OPTIONAL, SLICE_WHOLE},
    SHARED_EXPERT(L "mlp.shared_experts"),
    {"blk.%u.attn_q_a.weight", L "self_attn.q_a_proj.weight", IN_LAYER(q_down), 0, DIM_Q_LATENT,
     DIM_WIDTH, Q_LATENT, SLICE_WHOLE},
    {"blk.%u.attn_q_a_norm.weight", L "self_attn.q_a_layernorm.weight", IN_LAYER(q_down_norm), 0,
     DIM_ONE, DIM_Q_LATENT, Q_LATENT | FLOAT, SLICE_WHOLE},
    {"blk.%u.attn_q_b.weight", L "self_attn.q_b_proj.weight", IN_LAYER(q_up), 0, DIM_Q, DIM_Q_UP,
     Q_LATENT, SLICE_WHOLE},
    {"blk.%u.attn_q.weight", L "self_attn.q_proj.weight", IN_LAYER(q_up), 0, DIM_Q, DIM_Q_UP,
     LAYER, SLICE_WHOLE},
    {"blk.%u.attn_kv_a_mqa.weight", L "self_attn.kv_a_proj_with_mqa.weight", IN_LAYER(kv_down), 0,
     DIM_KV_DOWN, DIM_WIDTH, LAYER, SLICE_WHOLE},
    {"blk.%u.attn_kv_a_norm.weight", L "self_attn.kv_a_layernorm.weight", IN_LAYER(kv_down_norm),
     0, DIM_ONE, DIM_KV_LATENT, NORM, SLICE_WHOLE},
    {"blk.%u.attn_kv_b.weight", L "self_attn.kv_b_proj.weight", IN_LAYER(kv_up), 0, DIM_KV_UP,
     DIM_KV_LATENT, LAYER, SLICE_WHOLE},
};

/* Experts are quantized (a weight of the usual form, MXFP4) or transposed floats; both have gate's
 * and up's rows by turns. */
static const struct arch_weight gptoss_weights[] = {
    ENDS(0), QKV, OUT,
    QKV_BIASES(NORM),
    ATTENTION_OUT_BIAS(L "self_attn.o_proj.bias", NORM),
    GAIN("blk.%u.attn_norm.weight", L "input_layernorm.weight", attention_norm, 0),
    GAIN("blk.%u.post_attention_norm.weight", L "post_attention_layernorm.weight", ffn_norm, 0),
    {"blk.%u.attn_sinks.weight", L "self_attn.sinks", IN_LAYER(sinks), 0, DIM_HEADS, DIM_ONE, NORM,
     SLICE_WHOLE},
    ROUTER(L "mlp.router.weight"),
    {"blk.%u.ffn_gate_inp.bias", L "mlp.router.bias", IN_LAYER(router_bias), 0, DIM_EXPERTS,
     DIM_ONE, SPARSE | FLOAT, SLICE_WHOLE},
    EXPERT_UP(NULL, L "mlp.experts.gate_up_proj.weight", 0, OPTIONAL | INTERLEAVED),
    EXPERT_UP(NULL, L "mlp.experts.gate_up_proj.weight", 1, OPTIONAL | INTERLEAVED),
    EXPERT_DOWN(NULL, L "mlp.experts.down_proj.weight", OPTIONAL),
    EXPERT_UP("blk.%u.ffn_gate_exps.weight", L "mlp.experts.gate_up_proj", 0,
              INTERLEAVED | TRANSPOSED),
    EXPERT_UP("blk.%u.ffn_up_exps.weight", L "mlp.experts.gate_up_proj", 1,
              INTERLEAVED | TRANSPOSED),
    EXPERT_DOWN("blk.%u.ffn_down_exps.weight", L "mlp.experts.down_proj", TRANSPOSED),
    EXPERT_UP_BIAS("blk.%u.ffn_gate_exps.bias", L "mlp.experts.gate_up_proj_bias", 0, INTERLEAVED),
    EXPERT_UP_BIAS("blk.%u.ffn_up_exps.bias", L "mlp.experts.gate_up_proj_bias", 1, INTERLEAVED),
    EXPERT_DOWN_BIAS("blk.%u.ffn_down_exps.bias", L "mlp.experts.down_proj_bias", 0),
};

static const struct arch_weight olmo2_weights[] = {
    ENDS(0), QKV, OUT, GATED,
    HEAD_NORMS(L "self_attn.q_norm.weight", L "self_attn.k_norm.weight", NORM),
    GAIN("blk.%u.post_attention_norm.weight", L "post_attention_layernorm.weight",
         post_attention_norm, 0),
    GAIN("blk.%u.post_ffw_norm.weight", L "post_feedforward_layernorm.weight", post_ffn_norm, 0),
};

#define GEMMA2 \
    ENDS(PLUS_ONE), QKV, OUT, GATED, \
    GAIN("blk.%u.attn_norm.weight", L "input_layernorm.weight", attention_norm, PLUS_ONE), \
    GAIN("blk.%u.post_attention_norm.weight", L "post_attention_layernorm.weight", \
         post_attention_norm, PLUS_ONE), \
    GAIN("blk.%u.ffn_norm.weight", L "pre_feedforward_layernorm.weight", ffn_norm, PLUS_ONE), \
    GAIN("blk.%u.post_ffw_norm.weight", L "post_feedforward_layernorm.weight", post_ffn_norm, \
         PLUS_ONE)

static const struct arch_weight gemma2_weights[] = {GEMMA2};
static const struct arch_weight gemma3_weights[] = {
    GEMMA2,
    HEAD_NORMS(L "self_attn.q_norm.weight", L "self_attn.k_norm.weight", NORM | PLUS_ONE),
};

/* Small checkpoints have no factors; GGUF keeps longrope's two lists. */
static const struct arch_weight phi3_weights[] = {
    ENDS(0), PRE_NORMS, OUT,
    QKV_FUSED("blk.%u.attn_qkv.weight", L "self_attn.qkv_proj.weight", qkv, DIM_WIDTH, LAYER),
    GATE_UP_FUSED(L "mlp.gate_up_proj.weight"),
    DOWN(L "mlp.down_proj.weight", 0),
    {"rope_factors_long.weight", NULL, IN_MODEL(rope_long), 0, DIM_ONE, DIM_ROPE,
     FLOAT | OPTIONAL, SLICE_WHOLE},
    {"rope_factors_short.weight", NULL, IN_MODEL(rope_short), 0, DIM_ONE, DIM_ROPE,
     FLOAT | OPTIONAL, SLICE_WHOLE},
};

static const struct arch_weight glm_weights[] = {
    ENDS(0), PRE_NORMS, QKV, OUT,
    QKV_BIASES(QKV_BIAS),
    GATE_UP_FUSED(L "mlp.gate_up_proj.weight"),
    DOWN(L "mlp.down_proj.weight", 0),
};

static const struct arch_weight glm4_weights[] = {
    ENDS(0), QKV, OUT,
    QKV_BIASES(QKV_BIAS),
    GATE_UP_FUSED(L "mlp.gate_up_proj.weight"),
    DOWN(L "mlp.down_proj.weight", 0),
    GAIN("blk.%u.attn_norm.weight", L "input_layernorm.weight", attention_norm, 0),
    GAIN("blk.%u.post_attention_norm.weight", L "post_self_attn_layernorm.weight",
         post_attention_norm, 0),
    GAIN("blk.%u.ffn_norm.weight", L "post_attention_layernorm.weight", ffn_norm, 0),
    GAIN("blk.%u.post_ffw_norm.weight", L "post_mlp_layernorm.weight", post_ffn_norm, 0),
};

/* Transformers keeps a norm for each head; GGUF stacks them. The parallel form has no ffn_norm. */
static const struct arch_weight stablelm_weights[] = {
    ENDS(0), QKV, OUT, GATED,
    FINAL_NORM_BIAS("model.norm.bias", 0),
    QKV_BIASES(QKV_BIAS),
    NORM_PAIR("blk.%u.attn_norm", L "input_layernorm", attention_norm, 0),
    NORM_PAIR("blk.%u.ffn_norm", L "post_attention_layernorm", ffn_norm, OPTIONAL),
    HEAD_NORMS(L "self_attn.q_layernorm.norms.%u.weight", L "self_attn.k_layernorm.norms.%u.weight",
               QK_NORM | WEIGHT_HF_EACH_HEAD),
};

static const struct arch_weight starcoder2_weights[] = {
    ENDS(0), QKV, OUT,
    FINAL_NORM_BIAS("model.norm.bias", 0),
    QKV_BIASES(QKV_BIAS),
    ATTENTION_OUT_BIAS(L "self_attn.o_proj.bias", OUT_BIAS),
    NORM_PAIR("blk.%u.attn_norm", L "input_layernorm", attention_norm, 0),
    NORM_PAIR("blk.%u.ffn_norm", L "post_attention_layernorm", ffn_norm, 0),
    UP(L "mlp.c_fc.weight", 0),
    UP_BIAS(L "mlp.c_fc.bias", FFN_BIAS),
    DOWN(L "mlp.c_proj.weight", 0),
    DOWN_BIAS(L "mlp.c_proj.bias", FFN_BIAS),
};

/* Layer norms without bias, one for both branches. */
static const struct arch_weight cohere_weights[] = {
    ENDS(0), QKV, OUT, GATED,
    GAIN("blk.%u.attn_norm.weight", L "input_layernorm.weight", attention_norm, 0),
    HEAD_NORMS(L "self_attn.q_norm.weight", L "self_attn.k_norm.weight", QK_NORM),
    QKV_BIASES(QKV_BIAS),
    ATTENTION_OUT_BIAS(L "self_attn.o_proj.bias", OUT_BIAS),
};

static const struct arch_weight phi2_weights[] = {
    EMBEDDING("model.embed_tokens.weight"),
    FINAL_NORM("model.final_layernorm.weight", 0),
    FINAL_NORM_BIAS("model.final_layernorm.bias", 0),
    HEAD("lm_head.weight"),
    HEAD_BIAS("lm_head.bias"),
    NORM_PAIR("blk.%u.attn_norm", L "input_layernorm", attention_norm, 0),
    QKV_FUSED("blk.%u.attn_qkv.weight", NULL, qkv, DIM_WIDTH, LAYER | OPTIONAL),
    QKV_FUSED("blk.%u.attn_qkv.bias", NULL, qkv_bias, DIM_ONE, NORM | OPTIONAL),
    QKV,
    QKV_BIASES(NORM),
    ATTENTION_OUT(L "self_attn.dense.weight", 0),
    ATTENTION_OUT_BIAS(L "self_attn.dense.bias", NORM),
    UP(L "mlp.fc1.weight", 0),
    UP_BIAS(L "mlp.fc1.bias", NORM),
    DOWN(L "mlp.fc2.weight", 0),
    DOWN_BIAS(L "mlp.fc2.bias", NORM),
};
#undef L

/* --- ChatGLM ------------------------------------------------------------------------------ */

/* GGUF has one architecture for it and for Transformers' GLM, whose q, k and v stay apart. */
#define APART(gguf_, part_, rows_) \
    {"blk.%u." gguf_ ".weight", NULL, IN_LAYER(qkv), part_, rows_, DIM_WIDTH, LAYER | OPTIONAL, \
     SLICE_WHOLE}, \
    {"blk.%u." gguf_ ".bias", NULL, IN_LAYER(qkv_bias), part_, rows_, DIM_ONE, NORM | OPTIONAL, \
     SLICE_WHOLE}
#define L "transformer.encoder.layers.%u."
static const struct arch_weight chatglm_weights[] = {
    EMBEDDING("transformer.embedding.word_embeddings.weight"),
    FINAL_NORM("transformer.encoder.final_layernorm.weight", 0),
    HEAD("transformer.output_layer.weight"),
    GAIN("blk.%u.attn_norm.weight", L "input_layernorm.weight", attention_norm, 0),
    GAIN("blk.%u.ffn_norm.weight", L "post_attention_layernorm.weight", ffn_norm, 0),
    APART("attn_q", 0, DIM_Q), APART("attn_k", 1, DIM_KV), APART("attn_v", 2, DIM_V),
    QKV_FUSED("blk.%u.attn_qkv.weight", L "self_attention.query_key_value.weight", qkv, DIM_WIDTH,
              LAYER),
    QKV_FUSED("blk.%u.attn_qkv.bias", L "self_attention.query_key_value.bias", qkv_bias, DIM_ONE,
              QKV_BIAS),
    ATTENTION_OUT(L "self_attention.dense.weight", 0),
    ATTENTION_OUT_BIAS(L "self_attention.dense.bias", OUT_BIAS),
    GATE_UP_FUSED(L "mlp.dense_h_to_4h.weight"),
    DOWN(L "mlp.dense_4h_to_h.weight", 0),
};
#undef L

/* --- GPT-2, GPT-J, GPT-NeoX --------------------------------------------------------------- */

#define L "transformer.h.%u."
static const struct arch_weight gpt2_weights[] = {
    EMBEDDING("transformer.wte.weight"),
    {"position_embd.weight", "transformer.wpe.weight", IN_MODEL(positions), 0, DIM_POSITIONS,
     DIM_WIDTH, MODEL, SLICE_WHOLE},
    FINAL_NORM("transformer.ln_f.weight", 0),
    FINAL_NORM_BIAS("transformer.ln_f.bias", 0),
    HEAD("lm_head.weight"),
    NORM_PAIR("blk.%u.attn_norm", L "ln_1", attention_norm, 0),
    QKV_FUSED("blk.%u.attn_qkv.weight", L "attn.c_attn.weight", qkv, DIM_WIDTH, LAYER | TRANSPOSED),
    QKV_FUSED("blk.%u.attn_qkv.bias", L "attn.c_attn.bias", qkv_bias, DIM_ONE, NORM),
    ATTENTION_OUT(L "attn.c_proj.weight", TRANSPOSED),
    ATTENTION_OUT_BIAS(L "attn.c_proj.bias", NORM),
    NORM_PAIR("blk.%u.ffn_norm", L "ln_2", ffn_norm, 0),
    UP(L "mlp.c_fc.weight", TRANSPOSED),
    UP_BIAS(L "mlp.c_fc.bias", NORM),
    DOWN(L "mlp.c_proj.weight", TRANSPOSED),
    DOWN_BIAS(L "mlp.c_proj.bias", NORM),
};

static const struct arch_weight gptj_weights[] = {
    EMBEDDING("transformer.wte.weight"),
    FINAL_NORM("transformer.ln_f.weight", 0),
    FINAL_NORM_BIAS("transformer.ln_f.bias", 0),
    HEAD("lm_head.weight"),
    HEAD_BIAS("lm_head.bias"),
    NORM_PAIR("blk.%u.attn_norm", L "ln_1", attention_norm, 0),
    QKV_APART(L "attn.q_proj", L "attn.k_proj", L "attn.v_proj", 0),
    ATTENTION_OUT(L "attn.out_proj.weight", 0),
    UP(L "mlp.fc_in.weight", 0),
    UP_BIAS(L "mlp.fc_in.bias", NORM),
    DOWN(L "mlp.fc_out.weight", 0),
    DOWN_BIAS(L "mlp.fc_out.bias", NORM),
};
#undef L

#define L "gpt_neox.layers.%u."
static const struct arch_weight gptneox_weights[] = {
    EMBEDDING("gpt_neox.embed_in.weight"),
    FINAL_NORM("gpt_neox.final_layer_norm.weight", 0),
    FINAL_NORM_BIAS("gpt_neox.final_layer_norm.bias", 0),
    HEAD("embed_out.weight"),
    NORM_PAIR("blk.%u.attn_norm", L "input_layernorm", attention_norm, 0),
    NORM_PAIR("blk.%u.ffn_norm", L "post_attention_layernorm", ffn_norm, 0),
    QKV_FUSED("blk.%u.attn_qkv.weight", L "attention.query_key_value.weight", qkv, DIM_WIDTH,
              LAYER | BY_HEAD),
    QKV_FUSED("blk.%u.attn_qkv.bias", L "attention.query_key_value.bias", qkv_bias, DIM_ONE,
              QKV_BIAS | BY_HEAD),
    ATTENTION_OUT(L "attention.dense.weight", 0),
    ATTENTION_OUT_BIAS(L "attention.dense.bias", OUT_BIAS),
    UP(L "mlp.dense_h_to_4h.weight", 0),
    UP_BIAS(L "mlp.dense_h_to_4h.bias", NORM),
    DOWN(L "mlp.dense_4h_to_h.weight", 0),
    DOWN_BIAS(L "mlp.dense_4h_to_h.bias", NORM),
};
#undef L

/* --- BLOOM and Falcon --------------------------------------------------------------------- */

#define L "transformer.h.%u."
#define MEGATRON(bias_) \
    QKV_FUSED("blk.%u.attn_qkv.weight", L "self_attention.query_key_value.weight", qkv, DIM_WIDTH, \
              LAYER | BY_HEAD), \
    QKV_FUSED("blk.%u.attn_qkv.bias", L "self_attention.query_key_value.bias", qkv_bias, DIM_ONE, \
              NORM | BY_HEAD | (bias_)), \
    ATTENTION_OUT(L "self_attention.dense.weight", 0), \
    ATTENTION_OUT_BIAS(L "self_attention.dense.bias", NORM | (bias_)), \
    UP(L "mlp.dense_h_to_4h.weight", 0), \
    UP_BIAS(L "mlp.dense_h_to_4h.bias", NORM | (bias_)), \
    DOWN(L "mlp.dense_4h_to_h.weight", 0), \
    DOWN_BIAS(L "mlp.dense_4h_to_h.bias", NORM | (bias_)), \
    EMBEDDING("transformer.word_embeddings.weight"), \
    FINAL_NORM("transformer.ln_f.weight", 0), \
    FINAL_NORM_BIAS("transformer.ln_f.bias", 0), \
    HEAD("lm_head.weight")

static const struct arch_weight bloom_weights[] = {
    MEGATRON(0),
    {"token_embd_norm.weight", "transformer.word_embeddings_layernorm.weight",
     IN_MODEL(embedding_norm), 0, DIM_ONE, DIM_WIDTH, FLOAT, SLICE_WHOLE},
    {"token_embd_norm.bias", "transformer.word_embeddings_layernorm.bias",
     IN_MODEL(embedding_norm_bias), 0, DIM_WIDTH, DIM_ONE, FLOAT, SLICE_WHOLE},
    NORM_PAIR("blk.%u.attn_norm", L "input_layernorm", attention_norm, 0),
    NORM_PAIR("blk.%u.ffn_norm", L "post_attention_layernorm", ffn_norm, 0),
};

/* 7B: one norm for both branches; 40B and larger: one each; RW: in sequence. */
static const struct arch_weight falcon_weights[] = {
    MEGATRON(OPTIONAL | WEIGHT_IF_FFN_BIAS),
    NORM_PAIR("blk.%u.attn_norm_2", L "ln_attn", attention_norm, OPTIONAL | WEIGHT_IF_TWO_NORMS),
    NORM_PAIR("blk.%u.attn_norm", L "input_layernorm", attention_norm, OPTIONAL),
    NORM_PAIR("blk.%u.attn_norm", L "ln_mlp", ffn_norm, OPTIONAL | WEIGHT_IF_TWO_NORMS),
    GAIN(NULL, L "post_attention_layernorm.weight", ffn_norm, OPTIONAL),
    SHIFT(NULL, L "post_attention_layernorm.bias", ffn_norm_bias, OPTIONAL),
};
#undef L

/* --- OPT ---------------------------------------------------------------------------------- */

#define L "model.decoder.layers.%u."
static const struct arch_weight opt_weights[] = {
    EMBEDDING("model.decoder.embed_tokens.weight"),
    {"position_embd.weight", "model.decoder.embed_positions.weight", IN_MODEL(positions), 0,
     DIM_POSITIONS, DIM_WIDTH, MODEL, SLICE_WHOLE},
    {NULL, "model.decoder.project_in.weight", IN_MODEL(embedding_in), 0, DIM_WIDTH, DIM_EMBEDDING,
     OPTIONAL, SLICE_WHOLE},
    {NULL, "model.decoder.project_out.weight", IN_MODEL(embedding_out), 0, DIM_EMBEDDING, DIM_WIDTH,
     OPTIONAL, SLICE_WHOLE},
    FINAL_NORM("model.decoder.final_layer_norm.weight", OPTIONAL),
    FINAL_NORM_BIAS("model.decoder.final_layer_norm.bias", OPTIONAL),
    HEAD("lm_head.weight"),
    NORM_PAIR("blk.%u.attn_norm", L "self_attn_layer_norm", attention_norm, 0),
    NORM_PAIR("blk.%u.ffn_norm", L "final_layer_norm", ffn_norm, 0),
    QKV_APART(L "self_attn.q_proj", L "self_attn.k_proj", L "self_attn.v_proj", 0),
    QKV_APART_BIAS(L "self_attn.q_proj", L "self_attn.k_proj", L "self_attn.v_proj", QKV_BIAS),
    ATTENTION_OUT(L "self_attn.out_proj.weight", 0),
    ATTENTION_OUT_BIAS(L "self_attn.out_proj.bias", OUT_BIAS),
    UP(L "fc1.weight", 0),
    UP_BIAS(L "fc1.bias", FFN_BIAS),
    DOWN(L "fc2.weight", 0),
    DOWN_BIAS(L "fc2.bias", FFN_BIAS),
};
#undef L

/* --- BERT --------------------------------------------------------------------------------- */

#define L "bert.encoder.layer.%u."
static const struct arch_weight bert_weights[] = {
    EMBEDDING("bert.embeddings.word_embeddings.weight"),
    {"position_embd.weight", "bert.embeddings.position_embeddings.weight", IN_MODEL(positions), 0,
     DIM_POSITIONS, DIM_WIDTH, MODEL, SLICE_WHOLE},
    {"token_types.weight", "bert.embeddings.token_type_embeddings.weight", IN_MODEL(types), 0,
     DIM_TYPES, DIM_WIDTH, MODEL, SLICE_WHOLE},
    {"token_embd_norm.weight", "bert.embeddings.LayerNorm.weight", IN_MODEL(embedding_norm), 0,
     DIM_ONE, DIM_WIDTH, FLOAT, SLICE_WHOLE},
    {"token_embd_norm.bias", "bert.embeddings.LayerNorm.bias", IN_MODEL(embedding_norm_bias), 0,
     DIM_WIDTH, DIM_ONE, FLOAT, SLICE_WHOLE},
    QKV_APART(L "attention.self.query", L "attention.self.key", L "attention.self.value", 0),
    QKV_APART_BIAS(L "attention.self.query", L "attention.self.key", L "attention.self.value",
                   NORM),
    ATTENTION_OUT(L "attention.output.dense.weight", 0),
    ATTENTION_OUT_BIAS(L "attention.output.dense.bias", NORM),
    NORM_PAIR("blk.%u.attn_output_norm", L "attention.output.LayerNorm", attention_norm, 0),
    UP(L "intermediate.dense.weight", 0),
    UP_BIAS(L "intermediate.dense.bias", NORM),
    DOWN(L "output.dense.weight", 0),
    DOWN_BIAS(L "output.dense.bias", NORM),
    NORM_PAIR("blk.%u.layer_output_norm", L "output.LayerNorm", ffn_norm, 0),
};
#undef L

/* --- the table ---------------------------------------------------------------------------- */

/* Converters to GGUF reorder llama's q and k rows so that rotated pairs are neighbours. */
#define PAIRS     ROPE_INTERLEAVED
#define HALVES    ROPE_HALVES
#define RMS       NORM_RMS
#define MEAN      NORM_LAYER
#define SILU      ACTIVATION_SILU
#define GELU      ACTIVATION_GELU
#define GELU_TANH ACTIVATION_GELU_TANH
#define RELU      ACTIVATION_RELU
#define NONE      QK_NORM_NONE
#define EACH      QK_NORM_HEAD
#define OWN       QK_NORM_HEADS
#define WIDE      QK_NORM_WIDE

/* name, norm, activation, gated, rope in GGUF, in Transformers, q and k norms, flags, prefix that
 * may be missing, weights */
const struct arch arch_table[] = {
    {"llama", RMS, SILU, true, PAIRS, HALVES, NONE, 0, NULL, WEIGHTS(llama_weights)},
    {"qwen2", RMS, SILU, true, HALVES, HALVES, NONE, 0, NULL, WEIGHTS(qwen2_weights)},
    {"qwen3", RMS, SILU, true, HALVES, HALVES, EACH, 0, NULL, WEIGHTS(qwen3_weights)},
    {"granite", RMS, SILU, true, PAIRS, HALVES, NONE, 0, NULL, WEIGHTS(llama_weights)},
    {"smollm3", RMS, SILU, true, PAIRS, HALVES, NONE, 0, NULL, WEIGHTS(llama_weights)},
    {"olmo2", RMS, SILU, true, HALVES, HALVES, WIDE, ARCH_NO_PRE_NORM, NULL,
     WEIGHTS(olmo2_weights)},
    {"qwen2moe", RMS, SILU, true, HALVES, HALVES, NONE, 0, NULL, WEIGHTS(qwen2moe_weights)},
    {"qwen3moe", RMS, SILU, true, HALVES, HALVES, EACH, 0, NULL, WEIGHTS(qwen3moe_weights)},
    {"deepseek2", RMS, SILU, true, PAIRS, PAIRS, NONE, 0, NULL, WEIGHTS(deepseek2_weights)},
    {"gpt-oss", RMS, ACTIVATION_SWIGLU_OAI, true, HALVES, HALVES, NONE, 0, NULL,
     WEIGHTS(gptoss_weights)},
    {"gemma2", RMS, GELU_TANH, true, HALVES, HALVES, NONE, ARCH_SCALES_EMBEDDING, NULL,
     WEIGHTS(gemma2_weights)},
    {"gemma3", RMS, GELU_TANH, true, HALVES, HALVES, EACH, ARCH_SCALES_EMBEDDING, NULL,
     WEIGHTS(gemma3_weights)},
    {"phi2", MEAN, GELU_TANH, false, HALVES, HALVES, NONE, ARCH_PARALLEL, NULL,
     WEIGHTS(phi2_weights)},
    {"phi3", RMS, SILU, true, HALVES, HALVES, NONE, 0, NULL, WEIGHTS(phi3_weights)},
    {"glm", RMS, SILU, true, PAIRS, PAIRS, NONE, 0, NULL, WEIGHTS(glm_weights)},
    {"glm4", RMS, SILU, true, PAIRS, PAIRS, NONE, 0, NULL, WEIGHTS(glm4_weights)},
    {"chatglm", RMS, SILU, true, PAIRS, PAIRS, NONE, 0, NULL, WEIGHTS(chatglm_weights)},
    {"stablelm", MEAN, SILU, true, HALVES, HALVES, OWN, 0, NULL, WEIGHTS(stablelm_weights)},
    {"starcoder2", MEAN, GELU_TANH, false, HALVES, HALVES, NONE, 0, NULL,
     WEIGHTS(starcoder2_weights)},
    {"command-r", MEAN, SILU, true, PAIRS, PAIRS, OWN, ARCH_PARALLEL, NULL,
     WEIGHTS(cohere_weights)},
    {"gpt2", MEAN, GELU_TANH, false, HALVES, HALVES, NONE, ARCH_NO_ROPE, "transformer.",
     WEIGHTS(gpt2_weights)},
    {"gptj", MEAN, GELU_TANH, false, PAIRS, PAIRS, NONE, ARCH_PARALLEL, "transformer.",
     WEIGHTS(gptj_weights)},
    {"gptneox", MEAN, GELU, false, HALVES, HALVES, NONE, ARCH_PARALLEL, NULL,
     WEIGHTS(gptneox_weights)},
    {"bloom", MEAN, GELU_TANH, false, HALVES, HALVES, NONE, ARCH_NO_ROPE | ARCH_ALIBI,
     "transformer.", WEIGHTS(bloom_weights)},
    {"falcon", MEAN, GELU, false, HALVES, HALVES, NONE, ARCH_PARALLEL, "transformer.",
     WEIGHTS(falcon_weights)},
    {"opt", MEAN, RELU, false, HALVES, HALVES, NONE, ARCH_NO_ROPE | ARCH_NO_FINAL_NORM,
     "model.", WEIGHTS(opt_weights)},
    {"bert", MEAN, GELU, false, HALVES, HALVES, NONE,
     ARCH_NO_ROPE | ARCH_NO_FINAL_NORM | ARCH_ENCODER, "bert.", WEIGHTS(bert_weights)},
};
const size_t arch_table_count = COUNT_OF(arch_table);
/* clang-format on */
