/* hf_config.h -- a checkpoint's config.json, as Transformers writes it, to the sizes of a model.
 *
 * What the file leaves out is what Transformers takes for that class; the sizes that decide the
 * tensors' shapes have to stand there. A key that would make the model compute something that is
 * not built here (another activation, biases, a sliding window, another rotary scaling) is refused
 * by its name and never ignored; quantization_config is hf_quantization.h's. Both of Transformers'
 * spellings are read: "torch_dtype" and "dtype", "rope_theta" with "rope_scaling" and
 * "rope_parameters". */
#ifndef WEFT_HF_CONFIG_H
#define WEFT_HF_CONFIG_H

#include "engine/arch.h"

enum { HF_ROPE_NONE = 0, HF_ROPE_LINEAR, HF_ROPE_LLAMA3 };

struct hf_rope_scaling {
    unsigned kind; /* HF_ROPE_ */
    double factor; /* above 0 */
    double low_frequency_factor;
    double high_frequency_factor; /* above the low one */
    uint32_t context_original;
};

struct hf_config {
    struct model sizes; /* its numbers only: no name, no layers, no weights, no rope_factors */
    const struct arch *arch;
    const char *class_name;                   /* "LlamaForCausalLM"; static */
    enum dtype type;                          /* DT_F32, DT_F16 or DT_BF16 */
    bool tied;                                /* the head is the embedding */
    uint32_t end_count;                       /* eos_token_id: none, one or a list */
    int32_t end_tokens[MODEL_END_TOKENS_MAX]; /* below the vocabulary */
    struct hf_rope_scaling rope_scaling;
};

/* `text` is the whole file. Codes: E_INVALID (the fault's field is the key), E_UNSUPPORTED,
 * E_MEMORY. */
int hf_config_read(const char *text, size_t bytes, struct hf_config *ret_config,
                   struct fault *fault);
/* What each frequency is divided by: sizes.rope_size / 2 factors. */
void hf_config_rope_factors(const struct hf_config *config, float *factors);

#endif
