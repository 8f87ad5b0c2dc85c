/* model_plain.c -- see model_plain.h. One line for each field of struct model that adds work. */
#include "engine/model_plain.h"

/* Of any layer; they are alike but for windows and rotary. */
static const char *layer_beyond(const struct model *m)
{
    for (uint32_t i = 0; i < m->layer_count; i++) {
        const struct layer *layer = &m->layers[i];

        if (layer->experts || layer->shared.gate_up.rows)
            return "mixtures of experts";
        if (layer->window > 0)
            return "sliding windows";
        if (layer->rope != 0)
            return "layers without rotary, or with a base of their own";
        if (!layer->attention_norm.rows || !layer->ffn_norm.rows)
            return "layers without norms before their branches";
        if (layer->post_attention_norm.rows || layer->post_ffn_norm.rows)
            return "norms after branches";
        if (layer->attention_norm_bias.rows || layer->ffn_norm_bias.rows)
            return "norms with biases";
        if (layer->attention_out_bias.rows || layer->ffn.gate_up_bias.rows ||
            layer->ffn.down_bias.rows)
            return "biases outside of q, k and v";
        if (layer->sinks.rows)
            return "attention sinks";
    }
    return NULL;
}

static const char *beyond(const struct model *m)
{
    const struct {
        bool is;
        const char *what;
    } lines[] = {
        {m->norm != NORM_RMS, "layer norms"},
        {m->parallel, "parallel branches"},
        {m->encoder, "attention both ways"},
        {m->norms_stream, "norms of the residual stream"},
        {m->attention != ATTENTION_HEADS, "latent attention"},
        {m->attention_softcap != 0, "capped scores"},
        {m->logit_softcap != 0, "capped logits"},
        {m->alibi != NULL, "ALiBi"},
        {m->qk_norm > QK_NORM_HEAD, "q and k norms of this kind"},
        {m->value_size != m->head_size, "values of another size than keys"},
        {!m->gated || m->activation != ACTIVATION_SILU, "feed-forward parts other than SwiGLU"},
        {m->embedding_scale != 1, "scaled embeddings"},
        {m->residual_scale != 1, "scaled branches"},
        {m->logit_scale != 1, "scaled logits"},
        {m->positions.rows > 0, "learned positions"},
        {m->embedding_width != m->width, "embeddings narrower than the model"},
        {m->embedding_norm.rows > 0, "norms of embeddings"},
        {m->final_norm.rows == 0 || m->final_norm_bias.rows > 0, "final norms of this kind"},
        {m->head_bias.rows > 0, "biases of the head"},
        {m->rope_count != 1, "positions without rotary, or with several"},
        {m->ropes[0].long_frequencies != NULL, "rotary by the length of the prompt (longrope)"},
        {m->ropes[0].scale != 1 && m->rope_count > 0, "rotary that scales (YaRN)"},
    };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (lines[i].is)
            return lines[i].what;
    }
    return layer_beyond(m);
}

int model_check_plain(const struct model *model, const char *device, struct fault *fault)
{
    const char *what = beyond(model);

    if (!what)
        return 0;
    return fault_set(fault, E_UNSUPPORTED,
                     "the architecture %s needs %s, which are not computed %s yet",
                     model->architecture, what, device);
}
