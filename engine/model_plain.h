/* model_plain.h -- what sets a model apart from Llama's plain shape, for backends that compute no
 * more than that yet. */
#ifndef WEFT_MODEL_PLAIN_H
#define WEFT_MODEL_PLAIN_H

#include "engine/model.h"

/* Refuses whatever goes beyond RMS norms before two branches in sequence, q, k and v with biases
 * or head norms, one rotary for whole or partial heads, and SwiGLU. E_UNSUPPORTED names the first
 * such thing; `device` is for the message: "on GPUs". */
int model_check_plain(const struct model *model, const char *device, struct fault *fault);

#endif
