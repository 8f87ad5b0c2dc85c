/* Protects models without a checkpoint: a shape becomes a whole model; any piece of it can be read
 * alone and in any order; the CPU computes with exactly these values; what it decodes is finite and
 * lively; a number of threads changes nothing. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/gguf.h"
#include "engine/weight_part.h"
#include "kernels/cpu/dequant.h"
#include "kernels/cpu/half.h"
#include "tests/lib/engine_runner.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/gguf_model.h"

#define Q4_1 "tests/data/arch/gguf_llama_q4_1/llama-Q4_1.gguf"

/* Sizes that fill no block of the kernels. */
static const char small[] =
    "{\"architectures\":[\"%s\"],\"hidden_size\":72,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":12,"
    "\"intermediate_size\":100,\"vocab_size\":1003,\"max_position_embeddings\":512,"
    "\"tie_word_embeddings\":%s,\"torch_dtype\":\"%s\"}";

struct small_file {
    char path[64];
};

static void write_small(struct small_file *file, const char *class_name, bool tied,
                        const char *type)
{
    FILE *stream;
    int fd;

    snprintf(file->path, sizeof file->path, "/tmp/weft-shape-XXXXXX.json");
    fd = mkstemps(file->path, 5);
    assert_true(fd >= 0);
    stream = fdopen(fd, "w");
    assert_non_null(stream);
    assert_true(fprintf(stream, small, class_name, tied ? "true" : "false", type) > 0);
    assert_int_equal(fclose(stream), 0);
}

static struct model *open_shape(const char *shape)
{
    struct model *model = NULL;
    struct fault fault = {0};

    if (model_open_random(shape, &model, &fault) < 0)
        fail_msg("%s: %s", shape, fault.message);
    return model;
}

static void a_shape_becomes_a_model(void **state)
{
    struct model *model = open_shape("smollm2-135m");
    const struct layer *layer = &model->layers[29];
    const float *frequencies;

    (void)state;
    assert_string_equal(model->name, "smollm2-135m");
    assert_string_equal(model->architecture, "llama");
    assert_int_equal(model->rope, ROPE_HALVES);
    assert_int_equal(model->parameters, 134515008); /* as its checkpoint has */
    assert_int_equal(model->weight_bytes, 2 * 134515008);
    assert_int_equal(layer->qkv.part_count, 3);
    assert_int_equal(layer->qkv.rows, 576 + 2 * 192);
    assert_int_equal(layer->ffn.down.columns, 1536);
    assert_int_equal(layer->ffn_norm.rows, 1);
    assert_int_equal(layer->qkv_bias.rows, 0);
    assert_null(model->ropes[0].long_frequencies);
    assert_true(weight_part_same(&model->head.parts[0], &model->embedding.parts[0]));
    assert_null(layer->qkv.parts[1].data);
    assert_true(layer->qkv.parts[1].random.seed ==
                random_weight_seed("model.layers.29.self_attn.k_proj.weight"));
    model_close(model);

    model = open_shape("llama-3.1-8b");
    assert_true(model->parameters == 8030261248);
    assert_false(weight_part_same(&model->head.parts[0], &model->embedding.parts[0]));
    frequencies = model->ropes[0].frequencies;
    assert_true(frequencies[0] == 1.0f);
    assert_true(fabs((double)frequencies[63] * pow(500000.0, 63.0 / 64.0) * 8.0 - 1.0) < 1e-6);
    model_close(model);
    model = open_shape("qwen3-8b");
    assert_true(model->parameters == 8190735360);
    assert_int_equal(model->layers[0].q_norm.columns, 128);
    model_close(model);
}

/* What their makers' checkpoints count; DeepSeek-V3's less 54 layers of 11,507,286,272. */
static void shapes_have_their_sizes(void **state)
{
    static const struct {
        const char *shape;
        uint64_t parameters;
        uint32_t layers;
        uint32_t experts;
    } sizes[] = {
        {"llama-3.2-1b", 1235814400, 16, 0},
        {"llama-3.3-70b", 70553706496, 80, 0},
        {"mistral-7b", 7248023552, 32, 0},
        {"gpt-neox-20b", 20554567680, 44, 0},
        {"gemma-2-9b", 9241705984, 42, 0},
        {"mixtral-8x7b", 46702792704, 32, 8},
        {"qwen3-30b-a3b", 30532122624, 48, 128},
        {"gpt-oss-20b", 20914757184, 24, 32},
        {"deepseek-v3-7-layers", 671026419200 - UINT64_C(54) * 11507286272, 7, 256},
    };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct model *model = open_shape(sizes[i].shape);

        if (model->parameters != sizes[i].parameters)
            fail_msg("%s: %llu parameters", sizes[i].shape, (unsigned long long)model->parameters);
        assert_int_equal(model->layer_count, sizes[i].layers);
        assert_int_equal(model->expert_count, sizes[i].experts);
        model_close(model);
    }
}

/* Deviation of a part; asserts that it scatters around `centre` and that no row is constant. */
static double deviation_of(const struct weight *weight, uint32_t part_index, double centre)
{
    const struct weight_part *part = &weight->parts[part_index];
    float *row = malloc(weight->columns * sizeof *row);
    double sum = 0, squares = 0, count = (double)part->rows * weight->columns;

    assert_non_null(row);
    for (uint32_t r = 0; r < part->rows; r++) {
        float least = INFINITY, most = -INFINITY;

        weight_part_read(part, weight->columns, r, 1, DT_F32, row);
        for (uint32_t c = 0; c < weight->columns; c++) {
            double value = (double)row[c] - centre;

            sum += value;
            squares += value * value;
            least = fminf(least, row[c]);
            most = fmaxf(most, row[c]);
        }
        assert_true(most > least);
    }
    free(row);
    assert_true(fabs(sum / count) < 5 * sqrt(squares / count / count));
    return sqrt(squares / count);
}

static void is_scaled_like_a_trained_model(void **state)
{
    struct model *model = open_shape("smollm2-135m");
    const struct layer *layer = &model->layers[7];

    (void)state;
    assert_true(fabs(deviation_of(&layer->qkv, 0, 0) * sqrt(576) - 1) < 0.01);
    assert_true(fabs(deviation_of(&layer->ffn.gate_up, 1, 0) * sqrt(576) - 1) < 0.01);
    assert_true(fabs(deviation_of(&layer->attention_out, 0, 0) * sqrt(576 * 60) * 4 - 1) < 0.01);
    assert_true(fabs(deviation_of(&layer->ffn.down, 0, 0) * sqrt(1536 * 60) - 1) < 0.01);
    assert_true(fabs(deviation_of(&model->embedding, 0, 0) * sqrt(576) * 2 - 1) < 0.01);
    assert_true(fabs(deviation_of(&layer->ffn_norm, 0, 1) / 0.0625 - 1) < 0.15);
    assert_true(fabs(deviation_of(&model->final_norm, 0, 4) / 0.0625 - 1) < 0.15);
    model_close(model);
}

static bool is_about(double value, double expected)
{
    return fabs(value / expected - 1) < 0.15;
}

/* Norms that end a branch take its scale, and those that are stored less 1 lie around it all the
 * same; routers are products like others; what a mixture averages is made up for. */
static void families_are_scaled_alike(void **state)
{
    struct model *model = open_shape("gemma-2-9b");
    const struct layer *layer = &model->layers[5];
    double branch = (double)model->embedding_scale / sqrt(84);

    (void)state;
    assert_true(layer->ffn_norm.parts[0].plus == 1.0f);
    assert_true(is_about(deviation_of(&layer->ffn_norm, 0, 1), 0.0625));
    assert_true(is_about(deviation_of(&layer->post_ffn_norm, 0, branch), 0.0625 * branch));
    assert_true(
        is_about(deviation_of(&layer->post_attention_norm, 0, branch / 4), 0.0625 * branch / 4));
    assert_true(is_about(deviation_of(&model->final_norm, 0, 4), 0.0625));
    model_close(model);

    model = open_shape("qwen3-30b-a3b");
    layer = &model->layers[5];
    assert_true(is_about(deviation_of(&layer->router, 0, 0) * sqrt(2048), 1));
    assert_true(is_about(deviation_of(&layer->experts[127].gate_up, 1, 0) * sqrt(2048), 1));
    assert_true(is_about(deviation_of(&layer->experts[127].down, 0, 0) * sqrt(768 * 96 / 8.0), 1));
    assert_true(layer->experts[0].down.parts[0].random.seed !=
                layer->experts[1].down.parts[0].random.seed);
    model_close(model);

    model = open_shape("gpt-oss-20b");
    layer = &model->layers[5];
    assert_true(layer->sinks.rows == 64 && layer->qkv_bias.rows == 80 * 64);
    assert_true(layer->router_bias.rows == 32 && layer->experts[31].gate_up_bias.rows == 5760);
    assert_true(is_about(deviation_of(&layer->router, 0, 0) * sqrt(2880), 1));
    model_close(model);
}

/* Any rows, in any order and type, are the same values. */
static void pieces_are_the_whole(void **state)
{
    struct model *model = open_shape("smollm2-135m");
    const struct weight *weight = &model->layers[3].ffn.down;
    const struct weight_part *part = &weight->parts[0];
    size_t count = (size_t)part->rows * weight->columns;
    uint16_t *whole = malloc(count * sizeof *whole), *row = malloc(weight->columns * sizeof *row);
    float *floats = malloc(weight->columns * sizeof *floats);

    (void)state;
    assert_true(whole && row && floats);
    weight_part_read(part, weight->columns, 0, part->rows, DT_BF16, whole);
    for (uint32_t i = part->rows; i-- > 0;) {
        const uint16_t *expected = whole + (size_t)i * weight->columns;

        weight_part_read(part, weight->columns, i, 1, DT_BF16, row);
        assert_memory_equal(row, expected, weight->columns * sizeof *row);
        weight_part_read(part, weight->columns, i, 1, DT_F32, floats);
        for (uint32_t c = 0; c < weight->columns; c++) {
            assert_true(floats[c] == float_from_bf16(expected[c]));
            assert_int_equal(expected[c],
                             random_weight_bf16(part->random, (uint64_t)i * weight->columns + c));
        }
        weight_part_read(part, weight->columns, i, 1, DT_F16, row);
        assert_int_equal(row[0], f16_from_float(floats[0]));
    }
    free(whole);
    free(row);
    free(floats);
    model_close(model);
}

/* Parts in a file are read by the same function. */
static void reads_stored_parts_too(void **state)
{
    struct gguf *file = NULL;
    struct model *model = NULL;
    const struct weight *weight;
    float floats[2 * 96], expected[96];
    uint16_t halves[2 * 96];
    uint8_t raw[2 * 96];
    size_t row_bytes = dtype_bytes(DT_Q4_1, 96);

    (void)state;
    assert_int_equal(gguf_open(Q4_1, &file, NULL), 0);
    assert_int_equal(gguf_model_open(file, &model, NULL), 0);
    weight = &model->layers[1].qkv;
    assert_int_equal(weight->parts[0].type, DT_Q4_1);
    weight_part_read(&weight->parts[0], 96, 5, 2, DT_F32, floats);
    weight_part_read(&weight->parts[0], 96, 5, 2, DT_BF16, halves);
    weight_part_read(&weight->parts[0], 96, 5, 2, DT_Q4_1, raw);
    dequant_row(DT_Q4_1, (const uint8_t *)weight->parts[0].data + 6 * row_bytes, 96, expected);
    assert_memory_equal(floats + 96, expected, sizeof expected);
    assert_memory_equal(raw, (const uint8_t *)weight->parts[0].data + 5 * row_bytes, 2 * row_bytes);
    for (int i = 0; i < 2 * 96; i++)
        assert_int_equal(halves[i], bf16_from_float(floats[i]));
    model_close(model);
    gguf_close(file);
}

static struct engine *open_engine(const char *shape, uint32_t threads)
{
    struct engine_options options = {.random_shape = shape,
                                     .device = DEVICE_CPU,
                                     .threads = threads,
                                     .max_batch = 2,
                                     .max_context = 128,
                                     .prefill_tokens = 32,
                                     .cpu_activations = ACTIVATIONS_F32};
    struct engine *engine = NULL;
    struct fault fault = {0};

    if (engine_open(&options, &engine, &fault) < 0)
        fail_msg("%s: %s", shape, fault.message);
    return engine;
}

/* Greedy tokens, with their log-probabilities. */
static void decode(const char *shape, uint32_t threads, struct job *job)
{
    static const int32_t prompt[] = {5, 17, 900, 3, 3};
    struct engine *engine = open_engine(shape, threads);
    const struct tokenizer *tokenizer;

    assert_null(engine_gguf(engine));
    assert_int_equal(engine_tokenizer(engine, &tokenizer, NULL), E_NOT_FOUND);
    assert_int_equal(engine_limits(engine)->end_count, 0);
    job_init(job, prompt, 5, RUNNER_TOKENS_MAX);
    job->sampling.temperature = 0;
    job->sampling.logprobs = 0;
    run_jobs(engine, job, 1, 32);
    assert_int_equal(job->token_count, RUNNER_TOKENS_MAX);
    engine_close(engine);
}

static uint32_t distinct(const struct job *job)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < job->token_count; i++) {
        bool seen = false;

        for (uint32_t j = 0; j < i; j++)
            seen = seen || job->rows[j].token == job->rows[i].token;
        count += !seen;
    }
    return count;
}

static void decodes_lively(const char *shape, uint32_t distinct_min)
{
    static struct job one, two;

    decode(shape, 1, &one);
    decode(shape, 2, &two);
    for (uint32_t i = 0; i < one.token_count; i++) {
        assert_true(isfinite(one.rows[i].logprob) && one.rows[i].logprob < 0);
        assert_int_equal(one.rows[i].token, two.rows[i].token);
        assert_true(one.rows[i].logprob == two.rows[i].logprob);
    }
    if (distinct(&one) < distinct_min)
        fail_msg("%s: %u different tokens among %d", shape, distinct(&one), RUNNER_TOKENS_MAX);
}

static void decodes_small_shapes(void **state)
{
    static const char *const types[] = {"bfloat16", "float16", "float32"};

    (void)state;
    for (unsigned i = 0; i < 12; i++) {
        struct small_file file;

        write_small(&file, i / 6 ? "Qwen3ForCausalLM" : "LlamaForCausalLM", i % 2,
                    types[i / 2 % 3]);
        decodes_lively(file.path, 10); /* among so few tokens cycles are short */
        unlink(file.path);
    }
}

static void decodes_smollm2(void **state)
{
    (void)state;
    decodes_lively("smollm2-135m", 48);
}

static void survives_failing_allocations(void **state)
{
    struct small_file file;
    int failures = 0;

    (void)state;
    write_small(&file, "Qwen3ForCausalLM", true, "bfloat16");
    for (uint64_t nth = 1;; nth++) {
        struct model *model = NULL;
        struct fault fault = {0};
        int r;

        failing_malloc_arm(nth);
        r = model_open_random(file.path, &model, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            model_close(model);
            break;
        }
        if (r < 0)
            failures++;
        else
            model_close(model);
    }
    assert_true(failures >= 3);
    unlink(file.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shape_becomes_a_model),
        cmocka_unit_test(shapes_have_their_sizes),
        cmocka_unit_test(is_scaled_like_a_trained_model),
        cmocka_unit_test(families_are_scaled_alike),
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(reads_stored_parts_too),
        cmocka_unit_test(decodes_small_shapes),
        cmocka_unit_test(decodes_smollm2),
        cmocka_unit_test(survives_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
