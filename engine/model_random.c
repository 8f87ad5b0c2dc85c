/* model_random.c -- a model of a given shape with random weights.
 *
 * Deviations follow what training ends near, so that the numbers inside stay in their usual range
 * at every depth: 1 / sqrt(inputs) keeps a product's outputs as large as its inputs; the products
 * that add to the residual stream do so 2 x layers times, hence 1 / sqrt(2 layers) for them; norms
 * scatter around 1. Where a norm stands after a branch, its gain takes that part; a mixture's
 * experts make up for being averaged. Scales that the family multiplies by (embeddings, residuals,
 * logits) are divided out.
 *
 * Four numbers are for the tokens' sake, which would soon repeat otherwise. What the layers add
 * outweighs the embedding that the stream begins with, or a tied head would answer each token with
 * itself. Attention adds less than the feed-forward part: it averages over the context, which the
 * next position sees too, and so makes neighbours alike. Biases on the stream are as small as what
 * they are added to, being the same for all tokens. And the last norm widens the logits until
 * likely and unlikely tokens differ as a trained model's do (their deviation is 2 to 4).
 *
 * Routers are products like the others: their experts are chosen about evenly. */
#include "engine/model_random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/shape.h"

#define NORM_DEVIATION    0.0625f
#define FINAL_NORM_CENTRE 4.0f
#define EMBEDDING_SHARE   0.5f  /* of 1 / sqrt(width) */
#define ATTENTION_SHARE   0.25f /* of what the feed-forward part adds */
#define CHOICE_DEVIATION  0.01f /* of biases that correct a sigmoid router, whose scores are near */
#define NORMED_SHARE      4.0f  /* of a branch beside embeddings that have a norm */
#define STREAM_NORM_SHARE 1.0f  /* of a branch in a stream that norms_stream divides each time */

/* --- scales -------------------------------------------------------------------------------- */

/* How large a branch's sum with the stream is to be, relative to a model whose embedding is as wide
 * as 1 / sqrt(width). */
static float branch_size(const struct model *model)
{
    float size = model->embedding_scale / model->residual_scale;

    if (model->norms_stream)
        return STREAM_NORM_SHARE;
    if (model->embedding_norm.rows) /* the stream begins with 1, not with EMBEDDING_SHARE */
        size *= NORMED_SHARE * sqrtf((float)model->width);
    return size / sqrtf(2.0f * (float)model->layer_count);
}

/* A mixture's sum of independent outputs, each times its share, relative to one output. */
static float mixture_size(const struct model *model)
{
    float used = (float)model->experts_used, sum = 1.0f;

    if (!model->router_normalizes && model->router != ROUTER_SOFTMAX_CHOSEN)
        sum = fminf(1.0f, 4.0f * used / (float)model->expert_count); /* the best of a softmax */
    return model->router_scale * sum / sqrtf(used);
}

static bool is_attention(const struct layer *in, const struct weight *weight)
{
    return weight == &in->attention_out || weight == &in->attention_out_bias ||
           weight == &in->post_attention_norm;
}

/* By what the weight is to be scaled as one that ends a branch; 1: it does not. */
static float ending_scale(const struct arch_weight *line, const struct model *model,
                          const struct weight *weight, uint32_t layer)
{
    const struct layer *in = line->flags & WEIGHT_PER_LAYER ? &model->layers[layer] : NULL;
    float scale = branch_size(model);

    if (!in)
        return 1.0f;
    if (is_attention(in, weight))
        return scale * ATTENTION_SHARE;
    if (line->slice == SLICE_EXPERTS && arch_weight_is_down(line))
        return scale / mixture_size(model);
    if (arch_weight_is_down(line) || weight == &in->ffn.down_bias || weight == &in->post_ffn_norm ||
        (line->slice == SLICE_EXPERTS && line->rows == DIM_WIDTH))
        return scale;
    return 1.0f;
}

/* Gains and biases, around `*ret_centre`. */
static float choose_float(const struct arch_weight *line, const struct model *model,
                          const struct weight *weight, uint32_t layer, float *ret_centre)
{
    const struct layer *in = line->flags & WEIGHT_PER_LAYER ? &model->layers[layer] : NULL;
    float scale = ending_scale(line, model, weight, layer);

    *ret_centre = line->columns == DIM_ONE ? 0.0f : scale;
    if (weight == &model->final_norm)
        *ret_centre = FINAL_NORM_CENTRE / model->logit_scale;
    if (in && model->norms_stream && weight == &in->ffn_norm && layer + 1 == model->layer_count)
        *ret_centre = FINAL_NORM_CENTRE / model->logit_scale;
    if (in && weight == &in->router_bias && model->router == ROUTER_SIGMOID)
        return CHOICE_DEVIATION;
    return NORM_DEVIATION * scale;
}

static struct random_weight choose(const struct arch *arch, const struct arch_weight *line,
                                   const struct model *model, const struct weight *weight,
                                   uint32_t layer, const char *name)
{
    float deviation, centre = 0.0f;

    if (line->flags & WEIGHT_FLOAT) {
        deviation = choose_float(line, model, weight, layer, &centre);
        if (line->flags & WEIGHT_HF_PLUS_ONE)
            centre -= 1.0f;
        return random_weight_make(name, centre, deviation);
    }
    deviation = 1.0f / sqrtf((float)arch_dim_value(model, line->columns));
    if (weight == &model->embedding || weight == &model->positions)
        deviation *= EMBEDDING_SHARE;
    if (weight == &model->embedding && (arch->flags & ARCH_NO_PRE_NORM))
        deviation *= sqrtf((float)model->width); /* the first layer reads it as it is */
    deviation *= ending_scale(line, model, weight, layer);
    return random_weight_make(name, 0.0f, deviation);
}

/* --- which there are ----------------------------------------------------------------------- */

/* Of norms that have several names in files, the first one's; the others find it there. */
static bool is_norm(const struct weight *weight, const struct model *model, uint32_t layer)
{
    const struct layer *in = &model->layers[layer];

    if (weight == &model->final_norm || weight == &model->final_norm_bias)
        return !model->norms_stream;
    if (weight == &in->ffn_norm || weight == &in->ffn_norm_bias)
        return !model->parallel;
    return weight == &in->attention_norm || weight == &in->attention_norm_bias;
}

/* Optional weights are left out, but for what the shape asks for. */
static bool is_there(const struct hf_config *config, const struct arch_weight *line,
                     const struct weight *weight, const struct model *model, uint32_t layer)
{
    if (!line->hf_name || weight->part_count > line->part)
        return false;
    if (weight == &model->head)
        return !config->plan.tied;
    if (weight == &model->embedding_in || weight == &model->embedding_out)
        return model->embedding_width != model->width;
    if (line->slice == SLICE_EXPERTS) /* not those of quantized files */
        return !(line->flags & WEIGHT_OPTIONAL);
    if ((line->flags & WEIGHT_IF_TWO_NORMS) && !(config->plan.features & WEIGHT_IF_TWO_NORMS))
        return false;
    if (line->flags & WEIGHT_SHARED)
        return model->shared_width > 0;
    if (line->flags & WEIGHT_Q_LATENT)
        return model->q_latent > 0;
    if ((line->flags & WEIGHT_PER_LAYER) && weight == &model->layers[layer].router_bias)
        return !(line->flags & WEIGHT_OPTIONAL) || model->router == ROUTER_SIGMOID;
    if (!(line->flags & WEIGHT_OPTIONAL) || (line->flags & config->plan.features))
        return true;
    return is_norm(weight, model, layer);
}

/* What a part's values are computed from. Parts of one tensor are told apart by their numbers. */
static void part_name(const struct arch_weight *line, uint32_t layer, uint32_t expert,
                      char name[static ARCH_NAME_BYTES])
{
    size_t used;

    arch_weight_name(line->hf_name, layer, expert, name);
    used = strlen(name);
    if (line->slice == SLICE_EXPERTS)
        snprintf(name + used, ARCH_NAME_BYTES - used, "#%u.%u", line->part, expert);
    else if (line->slice != SLICE_WHOLE)
        snprintf(name + used, ARCH_NAME_BYTES - used, "#%u", line->part);
}

bool model_random_has(const struct arch_weight *line, struct model *model, uint32_t layer,
                      uint32_t expert)
{
    const struct weight *weight = arch_weight_at(line, model, layer, expert);
    char name[ARCH_NAME_BYTES];

    if (!line->hf_name || weight->part_count <= line->part || weight->parts[line->part].data)
        return false;
    part_name(line, layer, expert, name);
    return weight->parts[line->part].random.seed == random_weight_seed(name);
}

static void add_weight(const struct hf_config *config, const struct arch_weight *line,
                       struct model *model, uint32_t layer, uint32_t expert)
{
    struct weight *weight = arch_weight_at(line, model, layer, expert);
    struct weight_part part = {.type = config->type};
    char name[ARCH_NAME_BYTES];
    uint64_t parameters = model->parameters;

    if (!is_there(config, line, weight, model, layer))
        return;
    part_name(line, layer, expert, name);
    part.random = choose(config->plan.arch, line, model, weight, layer, name);
    if (weight == &model->layers[layer].router_bias && model->router == ROUTER_SIGMOID)
        part.type = DT_F32; /* as its checkpoints have it, whatever the others are */
    part.plus = line->flags & WEIGHT_HF_PLUS_ONE ? 1.0f : 0.0f;
    arch_weight_add(line, model, weight, part);
    model->weight_bytes += dtype_bytes(part.type, model->parameters - parameters);
}

static void add_weights(const struct hf_config *config, struct model *model, bool per_layer)
{
    const struct arch *arch = config->plan.arch;

    for (uint32_t i = 0; i < arch->weight_count; i++) {
        const struct arch_weight *line = &arch->weights[i];
        uint32_t layers = per_layer ? model->layer_count : 1;

        if (((line->flags & WEIGHT_PER_LAYER) != 0) != per_layer)
            continue;
        for (uint32_t layer = 0; layer < layers; layer++) {
            uint32_t count = arch_weight_count(line, model, layer);

            for (uint32_t expert = 0; expert < count; expert++)
                add_weight(config, line, model, layer, expert);
        }
    }
}

int model_open_random(const char *shape, struct model **ret_model, struct fault *fault)
{
    struct hf_config config;
    char name[SHAPE_NAME_BYTES];
    struct model *model;
    int r = shape_read(shape, &config, name, fault);

    if (r < 0)
        return r;
    r = model_begin(&config.plan, &model, fault);
    if (r < 0)
        return r;
    snprintf(model->name, sizeof model->name, "%s", name);
    add_weights(&config, model, false); /* layers are scaled by what the stream begins with */
    add_weights(&config, model, true);
    r = model_finish(model, config.plan.arch, fault);
    if (r < 0) {
        model_close(model);
        return r;
    }
    *ret_model = model;
    return 0;
}
