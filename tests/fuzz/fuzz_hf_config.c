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
    const struct model *sizes = &config->plan.sizes;

    must(config->plan.arch && config->class_name);
    must(sizes->width >= 1 && sizes->width <= MODEL_WIDTH_MAX);
    must(sizes->layer_count >= 1 && sizes->layer_count <= MODEL_LAYERS_MAX);
    must(sizes->heads >= 1 && sizes->heads <= MODEL_HEADS_MAX);
    must(sizes->kv_heads >= 1 && sizes->heads % sizes->kv_heads == 0);
    must(sizes->head_size >= 1 && sizes->head_size <= MODEL_HEAD_SIZE_MAX);
    must(sizes->ffn_width >= 1 && sizes->ffn_width <= MODEL_FFN_WIDTH_MAX);
    must(sizes->vocabulary >= 1 && sizes->vocabulary <= MODEL_VOCABULARY_MAX);
    must(sizes->context >= 1 && sizes->context <= MODEL_CONTEXT_MAX);
    must(sizes->norm_epsilon > 0 && sizes->norm_epsilon < 1);
    must(sizes->end_count <= MODEL_END_TOKENS_MAX);
    for (uint32_t i = 0; i < sizes->end_count; i++)
        must((uint32_t)sizes->end_tokens[i] < sizes->vocabulary);
}

/* A plan that was read makes a model: its frequencies are finite, its layers' facts in range. */
static void check_model(const struct hf_config *config)
{
    struct fault fault = {0};
    struct model *model;

    if (config->plan.sizes.layer_count * (uint64_t)(1 + config->plan.sizes.expert_count) > 4096)
        return;
    if (model_begin(&config->plan, &model, &fault) < 0) {
        must(fault.message[0]);
        return;
    }
    for (uint32_t i = 0; i < model->rope_count; i++) {
        must(model->ropes[i].size >= 2 && model->ropes[i].size <= model->head_size);
        must(model->ropes[i].size % 2 == 0 && isfinite(model->ropes[i].scale));
        for (uint32_t pair = 0; pair < model->ropes[i].size / 2; pair++)
            must(isfinite(model->ropes[i].frequencies[pair]));
    }
    for (uint32_t i = 0; i < model->layer_count; i++)
        must(model->layers[i].rope == ROPE_NONE || model->layers[i].rope < model->rope_count);
    model_close(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hf_config config;
    struct fault fault = {0};

    if (hf_config_read((const char *)data, size, &config, &fault) < 0) {
        must(fault.code < 0 && fault.message[0]);
        return 0;
    }
    check(&config);
    check_model(&config);
    return 0;
}
