/* model_plan.c -- see model_plan.h. */
#include "engine/model_plan.h"

#include <math.h>
#include <stdlib.h>

enum { TOKEN_TYPES = 2 /* BERT's, where the file does not say */ };

void model_plan_init(struct model_plan *plan, const struct arch *arch)
{
    struct model *sizes = &plan->sizes;

    *plan = (struct model_plan){.arch = arch};
    for (uint32_t i = 0; i < MODEL_ROPES_MAX; i++)
        rope_plan_init(&plan->ropes[i]);
    sizes->architecture = arch->name;
    sizes->norm = arch->norm;
    sizes->activation = arch->activation;
    sizes->gated = arch->gated;
    sizes->rope = arch->rope;
    sizes->qk_norm = arch->qk_norm;
    sizes->parallel = arch->flags & ARCH_PARALLEL;
    sizes->encoder = arch->flags & ARCH_ENCODER;
    sizes->norms_stream = sizes->encoder;
    sizes->token_types = sizes->encoder ? TOKEN_TYPES : 0;
    sizes->rope_count = arch->flags & ARCH_NO_ROPE ? 0 : 1;
    plan->alibi_scale = arch->flags & ARCH_ALIBI ? 1.0f : 0.0f;
    sizes->embedding_scale = 1.0f;
    sizes->residual_scale = 1.0f;
    sizes->logit_scale = 1.0f;
    sizes->router_scale = 1.0f;
}

/* Press, Smith and Lewis: for a power of two heads, the powers of 2^(-8 / heads); others take every
 * other one of the next power's for the rest. */
static void set_slopes(float *slopes, uint32_t heads, double scale)
{
    uint32_t whole = 1;
    double base, extra;

    while (whole * 2 <= heads)
        whole *= 2;
    base = pow(2.0, -8.0 / whole);
    extra = pow(2.0, -4.0 / whole);
    for (uint32_t i = 0; i < heads; i++)
        slopes[i] =
            (float)(scale * (i < whole ? pow(base, i + 1.0) : pow(extra, 2.0 * (i - whole) + 1.0)));
}

static void set_layer(struct layer *layer, const struct model *model, unsigned flags)
{
    layer->window = flags & PLAN_LAYER_SLIDES ? model->window : 0;
    layer->rope = ROPE_NONE;
    if (model->rope_count > 0 && !(flags & PLAN_LAYER_NO_ROPE))
        layer->rope = flags & PLAN_LAYER_SLIDES ? model->rope_count - 1 : 0;
}

static int fill(const struct model_plan *plan, struct model *model, struct fault *fault)
{
    bool alibi = plan->alibi_scale > 0;

    model->layers = calloc(model->layer_count, sizeof *model->layers);
    if (alibi)
        model->alibi = calloc(model->heads, sizeof *model->alibi);
    if (!model->layers || (alibi && !model->alibi))
        return fault_set(fault, E_MEMORY, "out of memory for %u layers", model->layer_count);
    if (alibi)
        set_slopes(model->alibi, model->heads, (double)plan->alibi_scale);
    for (uint32_t i = 0; i < model->rope_count; i++) {
        int r = rope_open(&plan->ropes[i], model->ropes[i].size, &model->ropes[i], fault);

        if (r < 0)
            return r;
    }
    for (uint32_t i = 0; i < model->layer_count; i++) {
        struct layer *layer = &model->layers[i];

        set_layer(layer, model, plan->layers[i]);
        if (!(plan->layers[i] & PLAN_LAYER_SPARSE))
            continue;
        layer->experts = calloc(model->expert_count, sizeof *layer->experts);
        if (!layer->experts)
            return fault_set(fault, E_MEMORY, "out of memory for %u experts", model->expert_count);
    }
    return 0;
}

int model_begin(const struct model_plan *plan, struct model **ret_model, struct fault *fault)
{
    struct model *model = calloc(1, sizeof *model);
    int r;

    if (!model)
        return fault_set(fault, E_MEMORY, "out of memory for the model");
    *model = plan->sizes;
    r = fill(plan, model, fault);
    if (r < 0) {
        model_close(model);
        return r;
    }
    *ret_model = model;
    return 0;
}

void model_close(struct model *model)
{
    if (!model)
        return;
    for (uint32_t i = 0; i < model->layer_count && model->layers; i++)
        free(model->layers[i].experts);
    for (uint32_t i = 0; i < model->owned_count; i++)
        free(model->owned[i]);
    for (uint32_t i = 0; i < MODEL_ROPES_MAX; i++)
        rope_close(&model->ropes[i]);
    free(model->owned);
    free(model->alibi);
    free(model->layers);
    free(model);
}

void *model_own(struct model *model, size_t bytes)
{
    void **owned = realloc(model->owned, (model->owned_count + 1) * sizeof *owned);
    void *memory;

    if (!owned)
        return NULL;
    model->owned = owned;
    memory = calloc(1, bytes + 1);
    if (memory)
        owned[model->owned_count++] = memory;
    return memory;
}

/* Files may keep experts in several forms, each of which is optional. */
static const char *experts_lack(const struct layer *layer, const struct model *model)
{
    if (!layer->router.rows)
        return "router";
    for (uint32_t i = 0; i < model->expert_count; i++) {
        const struct ffn *expert = &layer->experts[i];

        if (expert->gate_up.part_count != (model->gated ? 2 : 1) || !expert->down.rows)
            return "weights for some of its experts";
        if (expert->gate_up_bias.rows && expert->gate_up_bias.rows != expert->gate_up.rows)
            return "bias for one of gate and up of some expert";
        if (expert->gate_up_bias.rows != layer->experts[0].gate_up_bias.rows ||
            expert->down_bias.rows != layer->experts[0].down_bias.rows)
            return "biases for some of its experts";
    }
    return NULL;
}

static const char *lacks(const struct layer *layer, const struct model *model,
                         const struct arch *arch)
{
    if (!layer->attention_norm.rows && !(arch->flags & ARCH_NO_PRE_NORM))
        return "norm before its attention";
    if (!layer->ffn_norm.rows && !(arch->flags & ARCH_NO_PRE_NORM))
        return "norm before its feed-forward part";
    if (layer->qkv.part_count != 3 && !layer->kv_down.rows)
        return "queries, keys and values";
    if (layer->qkv_bias.rows && layer->qkv_bias.rows != layer->qkv.rows)
        return "bias for some of q, k and v";
    if (layer->ffn.gate_up_bias.rows && layer->ffn.gate_up_bias.rows != layer->ffn.gate_up.rows)
        return "bias for one of gate and up";
    return layer->experts ? experts_lack(layer, model) : NULL;
}

int model_finish(struct model *model, const struct arch *arch, struct fault *fault)
{
    for (uint32_t i = 0; i < model->layer_count; i++) {
        struct layer *layer = &model->layers[i];
        const char *what;

        if (model->parallel && !layer->ffn_norm.rows) {
            layer->ffn_norm = layer->attention_norm;
            layer->ffn_norm_bias = layer->attention_norm_bias;
        }
        if (!layer->q_norm.rows && !layer->q_down.rows)
            model->qk_norm = QK_NORM_NONE;
        what = lacks(layer, model, arch);
        if (what)
            return fault_set(fault, E_CORRUPT, "layer %u has no %s", i, what);
    }
    if (!model->final_norm.rows && !(arch->flags & ARCH_NO_FINAL_NORM))
        return fault_set(fault, E_CORRUPT, "there is no final norm");
    if (!model->head.rows)
        model->head = model->embedding;
    return 0;
}
