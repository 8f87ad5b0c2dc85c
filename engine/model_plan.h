/* model_plan.h -- what a file says about a model before a weight is read.
 *
 * hf_config.c makes one from config.json, gguf_plan.c from GGUF's metadata; model_begin() makes the
 * model of it, whose weights are then bound to a file (model.c) or computed (model_random.c). */
#ifndef WEFT_MODEL_PLAN_H
#define WEFT_MODEL_PLAN_H

#include "engine/arch.h"
#include "engine/rope.h"

/* What tells a layer from the others. */
enum {
    PLAN_LAYER_SLIDES = 1 << 0,  /* has the model's window */
    PLAN_LAYER_NO_ROPE = 1 << 1, /* q and k do not rotate */
    PLAN_LAYER_SPARSE = 1 << 2,  /* a mixture of experts */
};

struct model_plan {
    /* Its numbers only: no name, no layers, no weights; of the ropes, how many and their sizes. */
    struct model sizes;
    const struct arch *arch;
    unsigned features; /* WEIGHT_IF_: which optional weights there have to be */
    bool tied;         /* the head is the embedding, even where a file has both */
    bool nested;       /* the text model is a part of a larger one: its names have a prefix */
    float alibi_scale; /* of the slopes; 0: no ALiBi */
    /* [sizes.rope_count]; where there are two, layers that slide have the second */
    struct rope_plan ropes[MODEL_ROPES_MAX];
    uint8_t layers[MODEL_LAYERS_MAX];
};

/* The row's own: its norm, activation, rope kind of GGUF and so on; scales are 1. */
void model_plan_init(struct model_plan *plan, const struct arch *arch);
/* The model without weights, which the caller owns. E_MEMORY; E_INVALID for rotary factors. */
int model_begin(const struct model_plan *plan, struct model **ret_model, struct fault *fault);
/* Zeroed memory that lives as long as the model, for weights that no file has as they are needed.
 * NULL: out of memory. */
void *model_own(struct model *model, size_t bytes);
/* After the weights: a parallel layer with one norm reads it in both branches, a model without a
 * head has its embedding, and what has to be there is. The fault names the layer and what lacks. */
int model_finish(struct model *model, const struct arch *arch, struct fault *fault);

#endif
