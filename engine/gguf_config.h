/* gguf_config.h -- a GGUF file's metadata to the sizes of a model, as hf_config.h has it for
 * config.json. */
#ifndef WEFT_GGUF_CONFIG_H
#define WEFT_GGUF_CONFIG_H

#include "engine/arch.h"
#include "engine/gguf.h"

struct gguf_config {
    struct model sizes; /* its numbers only: no name, no layers, no weights, no rope_factors */
    const struct arch *arch;
    float rope_scale; /* what every frequency is divided by, beside the file's factors */
};

/* Faults: an architecture that is not in the table (with the list and the closest); a key that is
 * missing, out of range or not supported, by name. */
int gguf_config_read(const struct gguf *file, struct gguf_config *ret_config, struct fault *fault);

#endif
