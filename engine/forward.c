/* forward.c -- the one place where a transformer is written.
 *
 * Backends fuse inside an operation; what an architecture is made of, they read from the model's
 * row. */
#include "engine/forward.h"

static void feed_forward(const struct backend_ops *ops, struct backend *backend,
                         const struct model *model, uint32_t layer)
{
    if (model->layers[layer].experts)
        ops->mixture(backend, layer);
    else
        ops->mlp(backend, layer);
}

void forward_layers(const struct backend_ops *ops, struct backend *backend,
                    const struct model *model)
{
    ops->embed(backend);
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        ops->attention_in(backend, layer);
        ops->attention(backend, layer);
        /* Parallel branches read the same x, so neither may change it before the other has read. */
        if (model->parallel)
            feed_forward(ops, backend, model, layer);
        ops->attention_out(backend, layer);
        if (!model->parallel)
            feed_forward(ops, backend, model, layer);
    }
    ops->head(backend);
}

int forward(const struct backend_ops *ops, struct backend *backend, const struct model *model,
            struct work *work, struct request_table *table, struct step *step)
{
    int r;

    if (work->token_count == 0 && ops->synchronous)
        return 0;
    r = ops->begin(backend, model, work);
    if (r < 0)
        return r;
    if (r == 0)
        forward_layers(ops, backend, model);
    return ops->sample(backend, table, step);
}
