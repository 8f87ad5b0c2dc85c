/* model_random.c -- a model of a given shape with random weights.
 *
 * Deviations follow what training ends near, so that the numbers inside stay in their usual range
 * at every depth: 1 / sqrt(inputs) keeps a product's outputs as large as its inputs; the products
 * that add to the residual stream do so 2 x layers times, hence 1 / sqrt(2 layers) for them; norms
 * scatter around 1.
 *
 * Three numbers are for the tokens' sake, which would soon repeat otherwise. What the layers add
 * outweighs the embedding that the stream begins with, or a tied head would answer each token with
 * itself. Attention adds less than the feed-forward part: it averages over the context, which the
 * next position sees too, and so makes neighbours alike. And the last norm widens the logits until
 * likely and unlikely tokens differ as a trained model's do (their deviation is 2 to 4). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model.h"
#include "engine/shape.h"

#define NORM_DEVIATION    0.0625f
#define FINAL_NORM_CENTRE 4.0f
#define EMBEDDING_SHARE   0.5f  /* of 1 / sqrt(width) */
#define ATTENTION_SHARE   0.25f /* of what the feed-forward part adds */

static struct random_weight choose(const struct arch_weight *line, const struct model *model,
                                   const struct weight *weight, uint32_t layer, const char *name)
{
    const struct layer *in = line->flags & WEIGHT_PER_LAYER ? &model->layers[layer] : NULL;
    float deviation = 1.0f / sqrtf((float)arch_dim_value(model, line->columns));
    float centre = line->columns == DIM_ONE ? 0.0f : 1.0f;

    if (weight == &model->final_norm)
        centre = FINAL_NORM_CENTRE;
    if (line->flags & WEIGHT_FLOAT)
        return random_weight_make(name, centre, NORM_DEVIATION);
    if (weight == &model->embedding)
        deviation *= EMBEDDING_SHARE;
    if (in && (weight == &in->attention_out || arch_weight_is_down(line)))
        deviation /= sqrtf(2.0f * (float)model->layer_count);
    if (in && weight == &in->attention_out)
        deviation *= ATTENTION_SHARE;
    return random_weight_make(name, 0.0f, deviation);
}

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
    if (line->slice == SLICE_EXPERTS)
        return true; /* of several forms the first one's */
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

static void add_weight(const struct hf_config *config, const struct arch_weight *line,
                       struct model *model, uint32_t layer, uint32_t expert)
{
    struct weight *weight = arch_weight_at(line, model, layer, expert);
    struct weight_part part = {.type = config->type};
    char name[ARCH_NAME_BYTES];
    uint64_t parameters = model->parameters;
    size_t used;

    if (!is_there(config, line, weight, model, layer))
        return;
    /* Parts of one tensor are told apart by the part's number. */
    arch_weight_name(line->hf_name, layer, expert, name);
    used = strlen(name);
    if (line->slice == SLICE_EXPERTS)
        snprintf(name + used, sizeof name - used, "#%u.%u", line->part, expert);
    else if (line->slice != SLICE_WHOLE)
        snprintf(name + used, sizeof name - used, "#%u", line->part);
    part.random = choose(line, model, weight, layer, name);
    arch_weight_add(line, model, weight, part);
    model->weight_bytes += dtype_bytes(part.type, model->parameters - parameters);
}

static void add_weights(const struct hf_config *config, struct model *model)
{
    const struct arch *arch = config->plan.arch;

    for (uint32_t i = 0; i < arch->weight_count; i++) {
        const struct arch_weight *line = &arch->weights[i];
        uint32_t layers = line->flags & WEIGHT_PER_LAYER ? model->layer_count : 1;

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
    add_weights(&config, model);
    r = model_finish(model, config.plan.arch, fault);
    if (r < 0) {
        model_close(model);
        return r;
    }
    *ret_model = model;
    return 0;
}
