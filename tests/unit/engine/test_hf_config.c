/* Protects the reading of config.json: sizes, defaults and rotary scaling are those of
 * Transformers, both of its spellings are read, and what is missing, of another type, absurd or not
 * built here is refused by its key. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/hf_config.h"
#include "engine/shape.h"
#include "tests/lib/failing_malloc.h"

#define SIZES                                                               \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"intermediate_size\":96,\"vocab_size\":256"

enum { TEXT_BYTES = 4096 };

static int read_text(const char *text, struct hf_config *config, struct fault *fault)
{
    memset(config, 0, sizeof *config);
    return hf_config_read(text, strlen(text), config, fault);
}

/* {"architectures":["NAME"], SIZES, more} */
static int read_more(const char *class_name, const char *more, struct hf_config *config,
                     struct fault *fault)
{
    char text[TEXT_BYTES];

    snprintf(text, sizeof text, "{\"architectures\":[\"%s\"]," SIZES "%s}", class_name, more);
    return read_text(text, config, fault);
}

static void opens(const char *class_name, const char *more, struct hf_config *config)
{
    struct fault fault = {0};

    if (read_more(class_name, more, config, &fault) < 0)
        fail_msg("%s: %s", more, fault.message);
}

static void refuses(const char *more, int code, const char *key)
{
    struct hf_config config;
    struct fault fault = {0};
    int r = read_more("LlamaForCausalLM", more, &config, &fault);

    if (r != code || !strstr(fault.message, key))
        fail_msg("%s: code %d, \"%s\"; expected %d and \"%s\"", more, r, fault.message, code, key);
    assert_null(config.plan.arch); /* untouched */
}

static void takes_defaults_of_each_class(void **state)
{
    struct hf_config config;

    (void)state;
    opens("LlamaForCausalLM", "", &config);
    assert_string_equal(config.plan.arch->name, "llama");
    assert_int_equal(config.plan.sizes.rope, ROPE_HALVES); /* not GGUF's order */
    assert_int_equal(config.plan.sizes.width, 64);
    assert_int_equal(config.plan.sizes.layer_count, 2);
    assert_int_equal(config.plan.sizes.heads, 4);
    assert_int_equal(config.plan.sizes.kv_heads, 4);
    assert_int_equal(config.plan.sizes.head_size, 16);
    assert_int_equal(config.plan.sizes.ropes[0].size, 16);
    assert_int_equal(config.plan.sizes.ffn_width, 96);
    assert_int_equal(config.plan.sizes.vocabulary, 256);
    assert_int_equal(config.plan.sizes.context, 2048);
    assert_true(config.plan.sizes.attention_scale == 0.25f);
    assert_true(config.plan.sizes.norm_epsilon == 1e-6f);
    assert_true(config.plan.ropes[0].base == 10000.0);
    assert_int_equal(config.type, DT_F32);
    assert_false(config.plan.tied);
    assert_int_equal(config.plan.sizes.end_count, 0);

    opens("MistralForCausalLM", ",\"num_key_value_heads\":2,\"sliding_window\":null", &config);
    assert_string_equal(config.plan.arch->name, "llama");
    assert_int_equal(config.plan.sizes.context, 131072);
    opens("Qwen3ForCausalLM", ",\"num_key_value_heads\":2", &config);
    assert_string_equal(config.plan.arch->name, "qwen3");
    assert_int_equal(config.plan.sizes.head_size, 128);
    assert_int_equal(config.plan.sizes.context, 32768);
}

static void reads_what_is_given(void **state)
{
    struct hf_config config;

    (void)state;
    opens("LlamaForCausalLM",
          ",\"num_key_value_heads\":2,\"head_dim\":32,\"max_position_embeddings\":512,"
          "\"rms_norm_eps\":1e-5,\"rope_theta\":500000,\"tie_word_embeddings\":true,"
          "\"torch_dtype\":\"bfloat16\",\"eos_token_id\":[2,7,300],\"use_cache\":true",
          &config);
    assert_int_equal(config.plan.sizes.kv_heads, 2);
    assert_int_equal(config.plan.sizes.head_size, 32);
    assert_int_equal(config.plan.sizes.context, 512);
    assert_true(config.plan.sizes.norm_epsilon == 1e-5f);
    assert_true(config.plan.ropes[0].base == 500000.0);
    assert_true(config.plan.tied);
    assert_int_equal(config.type, DT_BF16);
    assert_int_equal(config.plan.sizes.end_count, 2); /* 300 is outside the vocabulary */
    assert_int_equal(config.plan.sizes.end_tokens[1], 7);
    opens("LlamaForCausalLM", ",\"dtype\":\"float16\",\"eos_token_id\":0", &config);
    assert_int_equal(config.type, DT_F16);
    assert_int_equal(config.plan.sizes.end_count, 1);
}

static void assert_near(float got, float wanted)
{
    assert_true(fabsf(got / wanted - 1.0f) < 1e-5f);
}

/* What each frequency was divided by. */
static void find_factors(const struct hf_config *config, float *factors)
{
    const struct rope_plan *plan = &config->plan.ropes[0];
    uint32_t size = config->plan.sizes.ropes[0].size;
    struct rope rope;

    assert_int_equal(rope_open(plan, size, &rope, NULL), 0);
    for (uint32_t i = 0; i < size / 2; i++)
        factors[i] = (float)(pow(plan->base, -2.0 * i / size) / (double)rope.frequencies[i]);
    rope_close(&rope);
}

static void scales_the_rotary_frequencies(void **state)
{
    struct hf_config config;
    float factors[64];

    (void)state;
    opens("LlamaForCausalLM", ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}", &config);
    find_factors(&config, factors);
    assert_near(factors[0], 4.0f);
    assert_near(factors[7], 4.0f);
    opens("LlamaForCausalLM",
          ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1000}", &config);
    assert_true(config.plan.ropes[0].base == 1000.0);
    find_factors(&config, factors);
    assert_near(factors[0], 1.0f);
    assert_near(factors[7], 1.0f);

    /* Llama 3.1: the first 29 pairs stay, the last 29 are stretched; between them as the file
     * rope_freqs.weight of its conversion to GGUF says. */
    opens("LlamaForCausalLM",
          ",\"head_dim\":128,\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\","
          "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":8192}",
          &config);
    find_factors(&config, factors);
    for (int i = 0; i <= 28; i++)
        assert_near(factors[i], 1.0f);
    assert_true(fabsf(factors[29] - 1.207484f) < 1e-4f);
    assert_true(fabsf(factors[32] - 2.694530f) < 1e-4f);
    for (int i = 35; i < 64; i++)
        assert_near(factors[i], 8.0f);
}

static void refuses_by_the_key(void **state)
{
    static const char *const required[] = {"hidden_size", "num_hidden_layers",
                                           "num_attention_heads", "intermediate_size",
                                           "vocab_size"};

    (void)state;
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        char text[TEXT_BYTES] = "{\"architectures\":[\"LlamaForCausalLM\"]," SIZES "}";
        struct hf_config config;
        struct fault fault = {0};
        char *key = strstr(text, required[i]);

        assert_non_null(key);
        *key = '_'; /* a key that nobody knows */
        assert_int_equal(read_text(text, &config, &fault), E_INVALID);
        assert_non_null(strstr(fault.message, required[i]));
        assert_string_equal(fault.field, required[i]);
    }
    refuses(",\"hidden_size\":\"64\"", E_INVALID, "hidden_size");
    refuses(",\"hidden_size\":0", E_INVALID, "hidden_size");
    refuses(",\"hidden_size\":-64", E_INVALID, "hidden_size");
    refuses(",\"hidden_size\":64.5", E_INVALID, "hidden_size");
    refuses(",\"hidden_size\":1000000", E_INVALID, "hidden_size");
    refuses(",\"hidden_size\":66", E_INVALID,
            "'head_dim' is missing, and the number of heads does not divide the width");
    refuses(",\"num_hidden_layers\":100000", E_INVALID, "num_hidden_layers");
    refuses(",\"vocab_size\":4294967297", E_INVALID, "vocab_size");
    refuses(",\"max_position_embeddings\":true", E_INVALID, "max_position_embeddings");
    refuses(",\"num_key_value_heads\":3", E_INVALID, "num_key_value_heads");
    refuses(",\"head_dim\":15", E_INVALID, "head_dim");
    refuses(",\"rms_norm_eps\":\"1e-5\"", E_INVALID, "rms_norm_eps");
    refuses(",\"rms_norm_eps\":0", E_INVALID, "rms_norm_eps");
    refuses(",\"rope_theta\":0.5", E_INVALID, "rope_theta");
    refuses(",\"tie_word_embeddings\":1", E_INVALID, "tie_word_embeddings");
    refuses(",\"eos_token_id\":\"</s>\"", E_INVALID, "eos_token_id");
    refuses(",\"rope_scaling\":7", E_INVALID, "rope_scaling");
    refuses(",\"rope_scaling\":{\"type\":\"linear\"}", E_INVALID,
            "'rope_scaling.factor' is missing");
    /* Not 0, but 0 as a float. */
    refuses(",\"rms_norm_eps\":1e-300", E_INVALID, "rms_norm_eps");
    refuses(",\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e-300}", E_INVALID, "factor");
    refuses(",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
            "\"high_freq_factor\":1}",
            E_INVALID, "high_freq_factor");
    refuses(",\"rope_scaling\":{\"rope_type\":\"ntk\",\"factor\":8}", E_UNSUPPORTED, "ntk");
    refuses(",\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":[1,1]}", E_INVALID,
            "'rope_scaling.short_factor' must have 8 factors");
    refuses(",\"torch_dtype\":\"float8_e4m3fn\"", E_UNSUPPORTED, "torch_dtype");
    refuses(",\"hidden_act\":\"mish\"", E_UNSUPPORTED, "hidden_act");
    refuses(",\"attention_bias\":1", E_INVALID, "attention_bias");
    refuses(",\"partial_rotary_factor\":0.1", E_INVALID, "head_dim"); /* one dimension */
}

static void refuses_other_documents(void **state)
{
    struct hf_config config;
    struct fault fault = {0};

    (void)state;
    assert_int_equal(read_text("", &config, &fault), E_INVALID);
    assert_int_equal(read_text("[]", &config, &fault), E_INVALID);
    assert_int_equal(read_text("{}", &config, &fault), E_INVALID);
    assert_non_null(strstr(fault.message, "architectures"));
    assert_int_equal(read_text("{\"architectures\":[]}", &config, &fault), E_INVALID);
    assert_int_equal(read_text("{\"architectures\":[7]}", &config, &fault), E_INVALID);
    assert_int_equal(read_more("ElectraModel", "", &config, &fault), E_UNSUPPORTED);
    assert_non_null(strstr(fault.message, "ElectraModel"));
    assert_non_null(strstr(fault.message, "Llama, Mistral, "));
    assert_non_null(strstr(fault.message, ", BertModel")); /* the last of all */
    assert_int_equal(read_more("GemmaTwoForCausalLM", "", &config, &fault), E_UNSUPPORTED);
    assert_non_null(strstr(fault.message, "the closest is Gemma2ForCausalLM"));
}

/* By the family, whatever else the class is made for. */
static void names_the_closest_family(void **state)
{
    static const char *const names[][2] = {
        {"LlamaModel", "LlamaForCausalLM"},
        {"llama", "LlamaForCausalLM"},
        {"LlamaForSequenceClassification", "LlamaForCausalLM"},
        {"Qwen3Model", "Qwen3ForCausalLM"},
        {"Qwen3_5ForConditionalGeneration", "Qwen3ForCausalLM"},
        {"GPT2Model", "GPT2LMHeadModel"},
        {"ChatGlmForConditionalGeneration", "ChatGLMForConditionalGeneration"},
        {"Gemma3nForConditionalGeneration", "Gemma3ForConditionalGeneration"},
    };
    struct hf_config config;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fault fault = {0};
        char wanted[80];

        snprintf(wanted, sizeof wanted, "(the closest is %s)", names[i][1]);
        assert_int_equal(read_more(names[i][0], "", &config, &fault), E_UNSUPPORTED);
        if (!strstr(fault.message, wanted))
            fail_msg("\"%s\" lacks \"%s\"", fault.message, wanted);
    }
}

static void every_shape_is_read(void **state)
{
    static const struct {
        const char *name;
        uint32_t layers;
        enum dtype type;
    } shapes[] = {{"gpt-neox-20b", 44, DT_F16},  {"llama-3.1-8b", 32, DT_BF16},
                  {"llama-3.2-1b", 16, DT_BF16}, {"llama-3.3-70b", 80, DT_BF16},
                  {"mistral-7b", 32, DT_BF16},   {"qwen3-8b", 36, DT_BF16},
                  {"smollm2-135m", 30, DT_BF16}};
    struct hf_config config;
    struct fault fault = {0};
    char name[SHAPE_NAME_BYTES], path[256];

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (shape_read(shapes[i].name, &config, name, &fault) < 0)
            fail_msg("%s: %s", shapes[i].name, fault.message);
        assert_string_equal(name, shapes[i].name);
        assert_int_equal(config.plan.sizes.layer_count, shapes[i].layers);
        assert_int_equal(config.type, shapes[i].type);
        snprintf(path, sizeof path, "config/shapes/%s.json", shapes[i].name);
        assert_int_equal(shape_read(path, &config, name, &fault), 0);
        assert_string_equal(name, shapes[i].name);
        assert_int_equal(config.plan.sizes.layer_count, shapes[i].layers);
    }
    assert_int_equal(shape_read("llama", &config, name, &fault), E_NOT_FOUND);
    assert_non_null(strstr(fault.message, "llama-3.1-8b, llama-3.2-1b"));
    assert_int_equal(shape_read("./missing/config.json", &config, name, &fault), -ENOENT);
    assert_int_equal(shape_read("config/shapes/", &config, name, &fault), -EISDIR);
    assert_int_equal(shape_read("./Makefile", &config, name, &fault), E_INVALID);
    assert_non_null(strstr(fault.message, "./Makefile: "));
}

static void survives_failing_allocations(void **state)
{
    struct hf_config config;
    char name[SHAPE_NAME_BYTES];
    int failures = 0;

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct fault fault = {0};
        int r;

        failing_malloc_arm(nth);
        r = shape_read("config/shapes/llama-3.1-8b.json", &config, name, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            break;
        }
        failures += r < 0;
        assert_true(r == 0 || fault.code == r);
    }
    assert_true(failures > 0); /* jansson has an allocator of its own */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_defaults_of_each_class),
        cmocka_unit_test(reads_what_is_given),
        cmocka_unit_test(scales_the_rotary_frequencies),
        cmocka_unit_test(refuses_by_the_key),
        cmocka_unit_test(refuses_other_documents),
        cmocka_unit_test(names_the_closest_family),
        cmocka_unit_test(every_shape_is_read),
        cmocka_unit_test(survives_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
