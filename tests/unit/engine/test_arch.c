/* Protects the table of architectures: each row's lines stand for places in the model, name each
 * tensor once for a place, and every class of Transformers has a row and reads the keys that are
 * its own. That the arithmetic is the reference's, tests/golden shows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/arch_table.h"
#include "engine/hf_class.h"

enum { TEXT_BYTES = 1024 };

static void lines_are_places(void **state)
{
    (void)state;
    for (size_t i = 0; i < arch_table_count; i++) {
        const struct arch *arch = &arch_table[i], *found = NULL;

        assert_int_equal(
            arch_find((struct gguf_string){arch->name, strlen(arch->name)}, &found, NULL), 0);
        assert_ptr_equal(found, arch);
        for (uint32_t j = 0; j < arch->weight_count; j++) {
            const struct arch_weight *line = &arch->weights[j];
            size_t room =
                line->flags & WEIGHT_PER_LAYER ? sizeof(struct layer) : sizeof(struct model);

            assert_true(line->name || line->hf_name);
            assert_true(line->weight_offset + sizeof(struct weight) <= room);
            assert_true(line->part < WEIGHT_PARTS_MAX);
            assert_true(line->slice != SLICE_QKV || line->part < 3);
            if (line->name) /* a layer's tensor has its number in the name */
                assert_int_equal(strstr(line->name, "%u") != NULL,
                                 (line->flags & WEIGHT_PER_LAYER) != 0);
            if (line->hf_name && !(line->flags & WEIGHT_HF_EACH_HEAD))
                assert_int_equal(strstr(line->hf_name, "%u") != NULL,
                                 (line->flags & WEIGHT_PER_LAYER) != 0);
            for (uint32_t k = 0; k < j; k++) {
                const struct arch_weight *other = &arch->weights[k];

                if (line->hf_name && other->hf_name && !strcmp(line->hf_name, other->hf_name) &&
                    line->part == other->part)
                    fail_msg("%s: %s stands twice", arch->name, line->hf_name);
            }
        }
    }
}

static void names_have_numbers(void **state)
{
    char name[ARCH_NAME_BYTES];

    (void)state;
    arch_weight_name("h.%u.q.%u.weight", 12, 3, name);
    assert_string_equal(name, "h.12.q.3.weight");
    arch_weight_name("lm_head.weight", 12, 3, name);
    assert_string_equal(name, "lm_head.weight");
}

/* Is the model a part of the class's? */
static bool text_of(const char *name)
{
    for (size_t i = 0; i < hf_class_count; i++)
        if (strcmp(hf_classes[i].name, name) == 0)
            return hf_classes[i].text != NULL;
    return false;
}

static struct model_plan read_class(const char *name, const char *more)
{
    static struct hf_config config;
    struct fault fault = {0};
    char text[TEXT_BYTES];

    snprintf(text, sizeof text,
             "{\"architectures\":[\"%s\"],%s\"hidden_size\":64,\"num_hidden_layers\":6,"
             "\"num_attention_heads\":4,\"intermediate_size\":96,\"vocab_size\":256%s%s}",
             name, text_of(name) ? "\"text_config\":{" : "", more, text_of(name) ? "}" : "");
    if (hf_config_read(text, strlen(text), &config, &fault) < 0)
        fail_msg("%s: %s", name, fault.message);
    return config.plan;
}

static void every_class_has_a_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < hf_class_count; i++) {
        const char *kv = hf_classes[i].kv_heads > 4 ? ",\"num_key_value_heads\":4" : "";
        struct model_plan plan =
            read_class(hf_classes[i].name, hf_classes[i].rope_part == 0 ? ",\"rotary_dim\":8" : kv);

        assert_string_equal(plan.arch->name, hf_classes[i].arch);
        assert_int_equal(plan.sizes.width, 64);
        assert_true(plan.sizes.norm_epsilon > 0);
    }
}

static void classes_have_their_own_keys(void **state)
{
    struct model_plan plan;

    (void)state;
    plan = read_class("Gemma2ForCausalLM", ",\"final_logit_softcapping\":null");
    assert_true(plan.sizes.embedding_scale == 8.0f && plan.sizes.logit_softcap == 0);
    assert_true(plan.sizes.attention_softcap == 50.0f && plan.sizes.attention_scale == 0.0625f);
    assert_int_equal(plan.sizes.window, 4096);
    assert_int_equal(plan.layers[0], PLAN_LAYER_SLIDES);
    assert_int_equal(plan.layers[1], 0);
    assert_true(plan.tied);
    plan = read_class("Gemma3ForCausalLM", "");
    assert_int_equal(plan.sizes.rope_count, 2);
    assert_true(plan.ropes[0].base == 1e6 && plan.ropes[1].base == 1e4);
    assert_int_equal(plan.layers[4], PLAN_LAYER_SLIDES);
    assert_int_equal(plan.layers[5], 0);
    plan = read_class("Gemma3ForConditionalGeneration", "");
    assert_true(plan.nested && plan.tied && plan.sizes.rope_count == 2);
    plan = read_class("SmolLM3ForCausalLM", "");
    assert_int_equal(plan.layers[2], 0);
    assert_int_equal(plan.layers[3], PLAN_LAYER_NO_ROPE);
    plan = read_class("FalconForCausalLM", ",\"num_kv_heads\":2");
    assert_int_equal(plan.sizes.kv_heads, 1); /* num_kv_heads counts in the newer form alone */
    plan = read_class("FalconForCausalLM", ",\"num_kv_heads\":2,\"new_decoder_architecture\":true");
    assert_int_equal(plan.sizes.kv_heads, 2);
    plan = read_class("OPTForCausalLM", ",\"word_embed_proj_dim\":40,\"enable_bias\":false");
    assert_int_equal(plan.sizes.embedding_width, 40);
    assert_int_equal(plan.sizes.position_offset, 2);
    assert_int_equal(plan.features, 0);
    plan = read_class("Qwen2ForCausalLM", ",\"num_key_value_heads\":4,\"sliding_window\":100,"
                                          "\"use_sliding_window\":true,\"max_window_layers\":5");
    assert_int_equal(plan.layers[4], 0);
    assert_int_equal(plan.layers[5], PLAN_LAYER_SLIDES);
    plan = read_class("ChatGLMModel", ",\"multi_query_attention\":true,\"multi_query_group_num\":2,"
                                      "\"rope_ratio\":500");
    assert_int_equal(plan.sizes.kv_heads, 2);
    assert_true(plan.ropes[0].base == 5e6);
    plan = read_class("GPTNeoXForCausalLM", ",\"use_parallel_residual\":false");
    assert_false(plan.sizes.parallel);
    assert_int_equal(plan.sizes.ropes[0].size, 4);
    plan = read_class("CohereForCausalLM", ",\"use_qk_norm\":true");
    assert_int_equal(plan.features, WEIGHT_IF_QK_NORM);
    assert_true(plan.sizes.logit_scale == 0.0625f && plan.sizes.parallel);
}

/* Transformers' numbers, for what no golden checkpoint has. */
static void frequencies_scale(void **state)
{
    struct rope_plan plan;
    struct rope rope;

    (void)state;
    rope_plan_init(&plan);
    plan.scaling = ROPE_SCALING_YARN;
    plan.factor = 40;
    plan.context_original = 4096;
    plan.mscale = 1.0;
    plan.mscale_all_dim = 0.5;
    assert_int_equal(rope_open(&plan, 64, &rope, NULL), 0);
    /* find_correction_range(32, 1, 64, 10000, 4096) is (10, 23). */
    assert_true(fabsf(rope.frequencies[10] * powf(10000.0f, 20.0f / 64) - 1) < 1e-5f);
    assert_true(fabsf(rope.frequencies[23] * powf(10000.0f, 46.0f / 64) * 40 - 1) < 1e-5f);
    assert_true(rope.frequencies[16] < powf(10000.0f, -0.5f));
    assert_true(fabsf(rope.scale - 1.368888f / 1.184444f) < 1e-5f);
    rope_close(&rope);
    plan.scaling = ROPE_SCALING_LONGROPE;
    plan.short_count = plan.long_count = 3; /* not as many as pairs */
    assert_int_equal(rope_open(&plan, 64, &rope, NULL), E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_places),      cmocka_unit_test(names_have_numbers),
        cmocka_unit_test(every_class_has_a_row), cmocka_unit_test(classes_have_their_own_keys),
        cmocka_unit_test(frequencies_scale),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
