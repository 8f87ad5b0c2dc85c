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
    if (in && (weight == &in->attention_out || weight == &in->down))
        deviation /= sqrtf(2.0f * (float)model->layer_count);
    if (in && weight == &in->attention_out)
        deviation *= ATTENTION_SHARE;
    return random_weight_make(name, 0.0f, deviation);
}

/* Optional weights are left out, but for a head of its own. */
static bool is_there(const struct hf_config *config, const struct arch_weight *line,
                     const struct weight *weight, const struct model *model)
{
    if (!line->hf_name)
        return false;
    if (weight == &model->head)
        return !config->tied;
    return !(line->flags & WEIGHT_OPTIONAL);
}

static void add_weight(const struct hf_config *config, const struct arch_weight *line,
                       struct model *model, uint32_t layer)
{
    struct weight *weight = arch_weight_at(line, model, layer);
    struct weight_part part = {.type = config->type};
    char name[ARCH_NAME_BYTES];
    uint64_t parameters = model->parameters;

    if (!is_there(config, line, weight, model))
        return;
    arch_weight_name(line->hf_name, layer, name);
    part.random = choose(line, model, weight, layer, name);
    arch_weight_add(line, model, weight, part);
    model->weight_bytes += dtype_bytes(part.type, model->parameters - parameters);
}

static int fill(const struct hf_config *config, struct model *model, struct fault *fault)
{
    model->layers = calloc(model->layer_count, sizeof *model->layers);
    if (!model->layers)
        return fault_set(fault, E_MEMORY, "out of memory for %u layers", model->layer_count);
    if (config->rope_scaling.kind != HF_ROPE_NONE) {
        model->rope_factors = calloc(model->rope_size / 2, sizeof *model->rope_factors);
        if (!model->rope_factors)
            return fault_set(fault, E_MEMORY, "out of memory for the rotary factors");
        hf_config_rope_factors(config, model->rope_factors);
    }
    for (uint32_t i = 0; i < config->arch->weight_count; i++) {
        const struct arch_weight *line = &config->arch->weights[i];
        uint32_t count = line->flags & WEIGHT_PER_LAYER ? model->layer_count : 1;

        for (uint32_t layer = 0; layer < count; layer++)
            add_weight(config, line, model, layer);
    }
    if (!model->head.rows)
        model->head = model->embedding;
    return 0;
}

int model_open_random(const char *shape, struct model **ret_model, struct fault *fault)
{
    struct hf_config config;
    char name[SHAPE_NAME_BYTES];
    struct model *model;
    int r = shape_read(shape, &config, name, fault);

    if (r < 0)
        return r;
    model = calloc(1, sizeof *model);
    if (!model)
        return fault_set(fault, E_MEMORY, "out of memory for the model");
    *model = config.sizes;
    snprintf(model->name, sizeof model->name, "%s", name);
    r = fill(&config, model, fault);
    if (r < 0) {
        model_close(model);
        return r;
    }
    *ret_model = model;
    return 0;
}
