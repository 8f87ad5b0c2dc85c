/* fuzz_hf_config.c -- libFuzzer target: any bytes at all as a checkpoint's config.json.
 *
 * What is read must be sizes that a model can be made of: within their bounds, dividing each other,
 * with finite rotary factors. Corpus: tests/fuzz/corpus_hf_config. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct hf_config *config)
{
    const struct model *sizes = &config->sizes;
    static float factors[MODEL_HEAD_SIZE_MAX / 2];

    must(config->arch && config->class_name);
    must(sizes->width >= 1 && sizes->width <= MODEL_WIDTH_MAX);
    must(sizes->layer_count >= 1 && sizes->layer_count <= MODEL_LAYERS_MAX);
    must(sizes->heads >= 1 && sizes->heads <= MODEL_HEADS_MAX);
    must(sizes->kv_heads >= 1 && sizes->heads % sizes->kv_heads == 0);
    must(sizes->head_size >= 2 && sizes->head_size <= MODEL_HEAD_SIZE_MAX);
    must(sizes->rope_size >= 2 && sizes->rope_size <= sizes->head_size);
    must(sizes->rope_size % 2 == 0);
    must(sizes->ffn_width >= 1 && sizes->ffn_width <= MODEL_FFN_WIDTH_MAX);
    must(sizes->vocabulary >= 1 && sizes->vocabulary <= MODEL_VOCABULARY_MAX);
    must(sizes->context >= 1 && sizes->context <= MODEL_CONTEXT_MAX);
    must(sizes->norm_epsilon > 0 && sizes->norm_epsilon < 1);
    must(sizes->rope_base >= 1 && sizes->rope_base < 1e13f);
    must(config->end_count <= MODEL_END_TOKENS_MAX);
    for (uint32_t i = 0; i < config->end_count; i++)
        must((uint32_t)config->end_tokens[i] < sizes->vocabulary);
    hf_config_rope_factors(config, factors);
    for (uint32_t i = 0; i < sizes->rope_size / 2; i++)
        must(factors[i] > 0 && isfinite(factors[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_config config;
    struct fault fault = {0};

    if (hf_config_read((const char *)data, size, &config, &fault) == 0)
        check(&config);
    else
        must(fault.code < 0 && fault.message[0]);
    return 0;
}
