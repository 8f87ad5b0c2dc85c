/* forward.h -- the one walk over a model's layers, for every architecture and every backend. */
#ifndef WEFT_FORWARD_H
#define WEFT_FORWARD_H

#include "engine/backend.h"
#include "engine/model.h"

/* One step: computes the work's tokens and lets the backend sample its outputs into `step`, which
 * request_table_begin() has set up. Work without tokens costs nothing. Returns 0 or the backend's
 * code. */
int forward(const struct backend_ops *ops, struct backend *backend, const struct model *model,
            struct work *work, struct request_table *table, struct step *step);

/* The operations alone, from embed to head: what a backend captures as a graph. */
void forward_layers(const struct backend_ops *ops, struct backend *backend,
                    const struct model *model);

#endif
