/* model_plain.h -- whether a model is as plain as Llama, for backends with kernels made for it. */
#ifndef WEFT_MODEL_PLAIN_H
#define WEFT_MODEL_PLAIN_H

#include "engine/model.h"

/* RMS norms before two branches in sequence, q, k and v with biases or head norms, one rotary for
 * whole or partial heads, SwiGLU, and nothing else. */
bool model_is_plain(const struct model *model);

#endif
