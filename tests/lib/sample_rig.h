/* sample_rig.h -- sampling on the device with everything that it reads and writes, and the host's
 * copies of all of it; logits of many shapes and rows of many mixes. For one test file. */
#ifndef WEFT_TEST_SAMPLE_RIG_H
#define WEFT_TEST_SAMPLE_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/sample.h"
#include "kernels/cuda/kernels.h"

enum { ROWS = 64, BIAS_MAX = 8 };

/* --- the device's arrays and the host's copies of them ------------------------------------ */

struct rig {
    struct cuda_context context;
    struct cuda_stream stream;
    uint32_t vocabulary, stride, words;
    float *logits; /* [ROWS][stride] */
    struct cuda_output outputs[ROWS];
    struct cuda_sampling samplings[ROWS];
    struct cuda_row rows[ROWS];
    struct cuda_bias biases[ROWS][BIAS_MAX];
    uint16_t *counts; /* [ROWS][vocabulary] */
    uint32_t *seen;   /* [ROWS][words] */
    uint32_t *masks;
    uint32_t mask_steps[ROWS];
    struct cuda_choice *choices; /* mapped */
    struct cuda_sample args;     /* the device's side */
    void *scratch;
    struct sample_scratch reference;
    void *reference_memory;
};

static void *device_memory(struct rig *rig, size_t bytes)
{
    void *memory = NULL;

    assert_int_equal(cuda_allocate(&rig->context, bytes, &memory), 0);
    assert_int_equal(cuda_fill(&rig->stream, memory, 0xa5, bytes), 0);
    return memory;
}

static void rig_open(struct rig *rig, uint32_t vocabulary, uint32_t stride)
{
    struct fault fault;
    void *choices;

    memset(rig, 0, sizeof *rig);
    if (cuda_context_open(&rig->context, &fault) < 0)
        fail_msg("%s", fault.message);
    assert_int_equal(cuda_stream_open(&rig->context, &rig->stream), 0);
    rig->vocabulary = vocabulary;
    rig->stride = stride;
    rig->words = (vocabulary + 31) / 32;
    rig->logits = calloc((size_t)ROWS * stride, sizeof *rig->logits);
    rig->counts = calloc((size_t)ROWS * vocabulary, sizeof *rig->counts);
    rig->seen = calloc((size_t)ROWS * rig->words, sizeof *rig->seen);
    rig->masks = calloc((size_t)ROWS * rig->words, sizeof *rig->masks);
    rig->reference_memory = aligned_alloc(64, sample_scratch_bytes(vocabulary));
    assert_non_null(rig->reference_memory);
    sample_scratch_init(&rig->reference, vocabulary, rig->reference_memory);
    rig->args = (struct cuda_sample){
        .vocabulary = vocabulary,
        .logits_stride = stride,
        .bias_max = BIAS_MAX,
        .mask_words = rig->words,
        .logits = device_memory(rig, (size_t)ROWS * stride * sizeof(float)),
        .outputs = device_memory(rig, sizeof rig->outputs),
        .samplings = device_memory(rig, sizeof rig->samplings),
        .rows = device_memory(rig, sizeof rig->rows),
        .biases = device_memory(rig, sizeof rig->biases),
        .generated_counts = device_memory(rig, (size_t)ROWS * vocabulary * sizeof(uint16_t)),
        .prompt_seen = device_memory(rig, (size_t)ROWS * rig->words * sizeof(uint32_t)),
        .masks = device_memory(rig, (size_t)ROWS * rig->words * sizeof(uint32_t)),
        .mask_steps = device_memory(rig, sizeof rig->mask_steps),
    };
    rig->scratch = device_memory(rig, cuda_sample_scratch(vocabulary, ROWS));
    assert_int_equal(cuda_pinned_allocate(&rig->context, ROWS * sizeof *rig->choices, &choices,
                                          (void **)&rig->args.mapped_choices),
                     0);
    rig->choices = choices;
}

static void rig_close(struct rig *rig)
{
    const void *memory[] = {rig->args.logits,      rig->args.outputs, rig->args.samplings,
                            rig->args.rows,        rig->args.biases,  rig->args.generated_counts,
                            rig->args.prompt_seen, rig->args.masks,   rig->args.mask_steps,
                            rig->scratch};

    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        cuda_release(&rig->context, (void *)memory[i]);
    cuda_pinned_release(&rig->context, rig->choices);
    cuda_stream_close(&rig->stream);
    free(rig->logits);
    free(rig->counts);
    free(rig->seen);
    free(rig->masks);
    free(rig->reference_memory);
    assert_int_equal(rig->context.failure.code, 0);
}

static void to_device(struct rig *rig, const void *to, const void *from, size_t bytes)
{
    assert_int_equal(cuda_copy(&rig->stream, (void *)to, from, bytes), 0);
}

static void upload(struct rig *rig)
{
    const struct cuda_sample *args = &rig->args;
    const size_t words = (size_t)ROWS * rig->words * sizeof(uint32_t);

    to_device(rig, args->logits, rig->logits, (size_t)ROWS * rig->stride * sizeof(float));
    to_device(rig, args->outputs, rig->outputs, sizeof rig->outputs);
    to_device(rig, args->samplings, rig->samplings, sizeof rig->samplings);
    to_device(rig, args->rows, rig->rows, sizeof rig->rows);
    to_device(rig, args->biases, rig->biases, sizeof rig->biases);
    to_device(rig, args->generated_counts, rig->counts,
              (size_t)ROWS * rig->vocabulary * sizeof(uint16_t));
    to_device(rig, args->prompt_seen, rig->seen, words);
    to_device(rig, args->masks, rig->masks, words);
    to_device(rig, args->mask_steps, rig->mask_steps, sizeof rig->mask_steps);
}

/* Uploads everything, samples the first `outputs`, and waits; outputs are poisoned before. */
static void sample(struct rig *rig, uint32_t outputs)
{
    upload(rig);
    memset(rig->choices, 0xa5, ROWS * sizeof *rig->choices);
    assert_int_equal(
        cuda_fill(&rig->stream, rig->scratch, 0xff, cuda_sample_scratch(rig->vocabulary, ROWS)), 0);
    assert_int_equal(cuda_sample(&rig->stream, &rig->args, outputs, rig->scratch, false), 0);
    assert_int_equal(cuda_stream_synchronize(&rig->stream), 0);
}

/* What the device has made of rows and counts. */
static void download(struct rig *rig, struct cuda_row *rows, uint16_t *counts)
{
    assert_int_equal(cuda_copy(&rig->stream, rows, rig->args.rows, sizeof rig->rows), 0);
    assert_int_equal(cuda_copy(&rig->stream, counts, rig->args.generated_counts,
                               (size_t)ROWS * rig->vocabulary * sizeof *counts),
                     0);
    assert_int_equal(cuda_stream_synchronize(&rig->stream), 0);
}

/* --- inputs ------------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

static float next_normal(uint64_t *state)
{
    float u = ((float)(next_random(state) >> 8) + 0.5f) * 0x1p-24f;
    float v = (float)(next_random(state) >> 8) * 0x1p-24f;

    return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
}

enum shape {
    SHAPE_PEAKED,
    SHAPE_ZIPF,
    SHAPE_FLAT,
    SHAPE_TIES,
    SHAPE_EQUAL,
    SHAPE_ONE,
    SHAPE_NANS,
    SHAPE_INFINITE,
    SHAPE_FAR,
    SHAPE_NOTHING,
    SHAPES
};

static float shaped_logit(enum shape shape, uint32_t vocabulary, uint32_t token, uint64_t *state)
{
    const uint32_t rank = (uint32_t)(((uint64_t)token * 90007u + 12345u) % vocabulary);
    const float zipf = -logf((float)rank + 1.0f), noise = next_normal(state);
    const uint32_t dice = next_random(state) % 100;

    switch (shape) {
    case SHAPE_PEAKED:
        return 12.0f + 2.5f * zipf + 0.3f * noise;
    case SHAPE_ZIPF:
        return 12.0f + 1.3f * zipf + 0.7f * noise;
    case SHAPE_TIES:
        return roundf((1.5f * zipf + noise) * 2.0f) / 2.0f;
    case SHAPE_EQUAL:
        return 1.5f;
    case SHAPE_ONE:
        return token == vocabulary / 3 ? -3.0f : -INFINITY;
    case SHAPE_NANS:
        return dice < 20 ? NAN : dice < 30 ? -INFINITY : 1.7f * zipf + noise;
    case SHAPE_INFINITE:
        return dice < 3 ? INFINITY : noise;
    case SHAPE_FAR: /* an own temperature of a hundredth, and numbers used for "never" */
        return dice < 30 ? -3e38f : 100.0f * (1.5f * zipf + noise);
    case SHAPE_NOTHING:
        return dice < 50 ? NAN : -INFINITY;
    default:
        return noise;
    }
}

static float *row_logits(struct rig *rig, uint32_t output)
{
    return rig->logits + (size_t)output * rig->stride;
}

static void fill_row(struct rig *rig, uint32_t output, enum shape shape, uint64_t seed)
{
    uint64_t state = seed * 1000003u + (uint64_t)shape;
    float *logits = row_logits(rig, output);

    for (uint32_t token = 0; token < rig->vocabulary; token++)
        logits[token] = shaped_logit(shape, rig->vocabulary, token, &state);
    for (uint32_t i = rig->vocabulary; i < rig->stride; i++)
        logits[i] = 1e30f; /* padding that nobody may read */
}

static const struct cuda_sampling plain = {.temperature = 1.0f,
                                           .top_p = 1.0f,
                                           .typical_p = 1.0f,
                                           .repetition_penalty = 1.0f,
                                           .logprobs = -1,
                                           .prompt_logprobs = -1};

/* The mixes that go through every shape and size. */
static const struct mix {
    struct cuda_sampling sampling; /* zeros stand for what switches a processor off */
    uint32_t biases;
    bool masked;
} mixes[] = {
    {.sampling = {.logprobs = 5}},
    {.sampling = {.repetition_penalty = 1.3f, .frequency_penalty = 0.2f, .counted = 1}},
    {.sampling = {.temperature = 1.0f}},
    {.sampling = {.temperature = 0.7f, .logprobs = 20}},
    {.sampling = {.temperature = 0.8f, .top_k = 50}},
    {.sampling = {.temperature = 0.8f, .top_p = 0.9f}},
    {.sampling = {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .logprobs = 0}},
    {.sampling = {.temperature = 1.0f, .min_p = 0.05f}},
    {.sampling = {.temperature = 1.0f, .typical_p = 0.9f}},
    {.sampling = {.temperature = 1.0f, .top_k = 40, .typical_p = 0.8f}},
    {.sampling = {.temperature = 1.2f, .top_p = 0.95f, .min_p = 0.002f, .typical_p = 0.9f}},
    {.sampling = {.temperature = 1.5f, .top_p = 0.999f, .logprobs = 20}},
    {.sampling = {.temperature = 1.0f, .top_k = 1500}},
    {.sampling = {.temperature = 3.0f, .top_k = 30000, .top_p = 0.98f, .min_p = 1e-4f}},
    {.sampling = {.temperature = 1.0f, .top_k = 1}},
    {.sampling = {.temperature = 1.0f, .top_p = 1e-9f}},
    {.sampling = {.temperature = 1e-3f, .top_p = 0.5f}},
    {.sampling = {.temperature = 100.0f, .min_p = 0.5f}},
    {.sampling = {.temperature = 1.0f, .top_k = 20, .logprobs = 3}, .biases = 8},
    {.sampling = {.temperature = 0.9f,
                  .top_k = 100,
                  .top_p = 0.9f,
                  .repetition_penalty = 1.2f,
                  .frequency_penalty = 0.3f,
                  .presence_penalty = 0.4f,
                  .counted = 1,
                  .min_tokens = 9},
     .biases = 3},
    {.sampling = {.temperature = 1.0f, .top_p = 0.9f, .logprobs = 2}, .masked = true},
    {.sampling = {.temperature = 1.0f, .presence_penalty = -0.5f, .counted = 1, .min_tokens = 9},
     .biases = 8,
     .masked = true},
};
enum { MIXES = sizeof mixes / sizeof *mixes };

static void fill_counts(struct rig *rig, uint32_t row, uint64_t *state)
{
    for (uint32_t i = 0; i < rig->vocabulary / 3 + 1 && i < 500; i++) {
        const uint32_t token = next_random(state) % rig->vocabulary;
        const uint32_t other = next_random(state) % rig->vocabulary;

        rig->counts[(size_t)row * rig->vocabulary + token]++;
        rig->seen[(size_t)row * rig->words + other / 32] |= 1u << (other % 32);
    }
}

/* A row of the mix; its table row is a permutation of the outputs. */
static void fill_mix(struct rig *rig, uint32_t output, const struct mix *mix, uint64_t seed)
{
    const uint32_t row = (output * 5 + 3) % ROWS;
    struct cuda_sampling *sampling = &rig->samplings[row];
    uint64_t state = seed;

    *sampling = mix->sampling;
    sampling->top_p = mix->sampling.top_p > 0 ? mix->sampling.top_p : 1.0f;
    sampling->typical_p = mix->sampling.typical_p > 0 ? mix->sampling.typical_p : 1.0f;
    sampling->repetition_penalty =
        mix->sampling.repetition_penalty > 0 ? mix->sampling.repetition_penalty : 1.0f;
    sampling->seed = seed * 0x123456789abcdefu;
    sampling->stream = (uint32_t)seed % 3;
    sampling->bias_count = mix->biases;
    sampling->stop_count = 3;
    for (uint32_t i = 0; i < 3; i++)
        sampling->stops[i] = (int32_t)(next_random(&state) % rig->vocabulary);
    for (uint32_t i = 0; i < BIAS_MAX; i++)
        rig->biases[row][i] = (struct cuda_bias){(int32_t)(next_random(&state) % rig->vocabulary),
                                                 2.0f * next_normal(&state)};
    rig->biases[row][1].token = rig->biases[row][0].token;
    fill_counts(rig, row, &state);
    for (uint32_t i = 0; i < rig->words; i++)
        rig->masks[(size_t)row * rig->words + i] = next_random(&state) & next_random(&state);
    rig->masks[(size_t)row * rig->words] |= 2;
    rig->rows[row] = (struct cuda_row){.last_token = -7};
    rig->outputs[output] = (struct cuda_output){.row = row,
                                                .position = 100 + (uint32_t)seed % 1000,
                                                .generated = 5,
                                                .target = -1,
                                                .flags = mix->masked ? CUDA_OUTPUT_MASKED : 0};
    rig->mask_steps[row] = rig->outputs[output].position;
}

#endif
