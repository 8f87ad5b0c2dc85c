/* model_plain.c -- see model_plain.h. A condition for each field of struct model that adds work. */
#include "engine/model_plain.h"

/* Of any layer; they are alike but for windows and rotary. */
static bool layer_is_plain(const struct layer *layer)
{
    return !layer->experts && layer->shared.gate_up.rows == 0 && layer->window == 0 &&
           layer->rope == 0 && layer->attention_norm.rows > 0 && layer->ffn_norm.rows > 0 &&
           layer->attention_norm_bias.rows == 0 && layer->ffn_norm_bias.rows == 0 &&
           layer->post_attention_norm.rows == 0 && layer->post_ffn_norm.rows == 0 &&
           layer->attention_out_bias.rows == 0 && layer->ffn.gate_up_bias.rows == 0 &&
           layer->ffn.down_bias.rows == 0 && layer->sinks.rows == 0;
}

static bool attention_is_plain(const struct model *m)
{
    return m->attention == ATTENTION_HEADS && m->value_size == m->head_size && !m->encoder &&
           m->attention_softcap == 0 && !m->alibi && m->qk_norm <= QK_NORM_HEAD &&
           m->rope_count == 1 && !m->ropes[0].long_frequencies && m->ropes[0].scale == 1;
}

static bool ends_are_plain(const struct model *m)
{
    return m->embedding_scale == 1 && m->embedding_width == m->width && m->positions.rows == 0 &&
           m->embedding_norm.rows == 0 && m->final_norm.rows > 0 && m->final_norm_bias.rows == 0 &&
           m->head_bias.rows == 0 && m->logit_scale == 1 && m->logit_softcap == 0;
}

bool model_is_plain(const struct model *model)
{
    if (model->norm != NORM_RMS || model->parallel || model->norms_stream ||
        model->residual_scale != 1 || !model->gated || model->activation != ACTIVATION_SILU ||
        !attention_is_plain(model) || !ends_are_plain(model))
        return false;
    for (uint32_t i = 0; i < model->layer_count; i++) {
        if (!layer_is_plain(&model->layers[i]))
            return false;
    }
    return true;
}
