/* hf_config.h -- a checkpoint's config.json, as Transformers writes it, to a model's plan.
 *
 * What the file leaves out is what Transformers takes for that class (hf_class.c); the sizes that
 * decide the tensors' shapes have to stand there. A key that would make the model compute something
 * that is not built here is refused by its name and never ignored; quantization_config is
 * hf_quantization.h's. Both of Transformers' spellings
 * are read: "torch_dtype" and "dtype", "rope_theta" with "rope_scaling" and "rope_parameters". */
#ifndef WEFT_HF_CONFIG_H
#define WEFT_HF_CONFIG_H

#include "engine/model_plan.h"

struct hf_config {
    struct model_plan plan;
    const char *class_name; /* "LlamaForCausalLM"; static */
    enum dtype type;        /* DT_F32, DT_F16 or DT_BF16 */
};

/* `text` is the whole file. Codes: E_INVALID (the fault's field is the key), E_UNSUPPORTED,
 * E_MEMORY. */
int hf_config_read(const char *text, size_t bytes, struct hf_config *ret_config,
                   struct fault *fault);

#endif
