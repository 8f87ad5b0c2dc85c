/* gguf_config.h -- a GGUF file's metadata to a model's plan, as hf_config.h has it for config.json.
 */
#ifndef WEFT_GGUF_CONFIG_H
#define WEFT_GGUF_CONFIG_H

#include "engine/gguf.h"
#include "engine/model_plan.h"

/* Faults: an architecture that is not in the table (with the list and the closest); a key that is
 * missing, out of range or not supported, by name. */
int gguf_config_read(const struct gguf *file, struct model_plan *ret_plan, struct fault *fault);

#endif
