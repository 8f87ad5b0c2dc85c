/* Protects the reading of quantized checkpoints: each method's packing, put together here the slow
 * way from numbers that are known, gives these numbers back; and what is missing, misshapen or not
 * read is refused by name. The golden checkpoints (tests/golden) protect whole models of each kind.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/hf_quantization.h"
#include "kernels/cpu/dequant_tables.h"
#include "kernels/cpu/half.h"
#include "tests/lib/failing_malloc.h"

enum { ROWS = 16, COLUMNS = 96, GROUP = 32, GROUPS = COLUMNS / GROUP, TENSORS = 8 };

/* The weight as a method sees it: (q - zero) x scale. */
static int quants[ROWS][COLUMNS]; /* 0 to 15 */
static int zeros[ROWS][GROUPS];
static float scales[ROWS][GROUPS];
static int group_of[COLUMNS];

/* What a checkpoint holds. */
static struct stored_tensor tensors[TENSORS];
static uint32_t count;
static uint8_t memory[TENSORS][ROWS * COLUMNS * 4 + 1];

static uint32_t random_state = 12345;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % below;
}

static void draw_weight(bool shuffled)
{
    for (int c = 0; c < COLUMNS; c++)
        group_of[c] = shuffled ? (int)draw(GROUPS) : c / GROUP;
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++)
            quants[r][c] = (int)draw(16);
        for (int g = 0; g < GROUPS; g++) {
            zeros[r][g] = (int)draw(16);
            scales[r][g] = (float)(1 + draw(100)) / 128;
        }
    }
}

/* Adds a tensor of the shape [rows][columns] (rows 0: a vector), at an odd address. */
static uint8_t *add(const char *name, const char *format, uint64_t rows, uint64_t columns)
{
    struct stored_tensor *tensor = &tensors[count];

    *tensor = (struct stored_tensor){.name = {name, strlen(name)},
                                     .dimension_count = rows ? 2 : 1,
                                     .data = memory[count] + 1,
                                     .bytes = 1};
    for (int i = 0; i < TENSOR_DIMENSIONS_MAX; i++)
        tensor->dimensions[i] = 1;
    tensor->dimensions[0] = columns;
    tensor->dimensions[1] = rows ? rows : 1;
    snprintf(tensor->format, sizeof tensor->format, "%s", format);
    tensor->known = strcmp(format, "F32") == 0 || strcmp(format, "F16") == 0;
    tensor->type = strcmp(format, "F16") == 0 ? DT_F16 : DT_F32;
    memset(memory[count], 0, sizeof memory[count]);
    return memory[count++] + 1;
}

static void or_word(uint8_t *words, size_t index, uint32_t bits)
{
    uint32_t word;

    memcpy(&word, words + 4 * index, 4);
    word |= bits;
    memcpy(words + 4 * index, &word, 4);
}

static void put_float(uint8_t *to, size_t index, float value)
{
    memcpy(to + 4 * index, &value, 4);
}

static int apply(const char *config, struct hf_quantization **made, struct fault *fault)
{
    char text[512];

    snprintf(text, sizeof text, "{\"quantization_config\":%s}", config);
    *made = NULL;
    return hf_quantization_apply(text, strlen(text), tensors, &count, made, fault);
}

static const struct stored_tensor *only_weight(const char *name)
{
    assert_int_equal(count, 1);
    assert_int_equal(tensors[0].name.bytes, strlen(name));
    assert_memory_equal(tensors[0].name.text, name, strlen(name));
    assert_true(tensors[0].known);
    assert_non_null(tensors[0].tables);
    return &tensors[0];
}

static void expect_weight(const char *config)
{
    struct hf_quantization *made;
    struct fault fault = {0};
    const struct stored_tensor *weight;
    float row[COLUMNS], part[COLUMNS];

    if (apply(config, &made, &fault) < 0)
        fail_msg("%s", fault.message);
    weight = only_weight("model.q_proj.weight");
    assert_int_equal(weight->dimensions[0], COLUMNS);
    assert_int_equal(weight->dimensions[1], ROWS);
    for (uint32_t r = 0; r < ROWS; r++) {
        dequant_tables(weight->tables, r, 0, COLUMNS, row);
        dequant_tables(weight->tables, r, 13, 60, part); /* from the middle of a word */
        for (int c = 0; c < COLUMNS; c++) {
            float wanted = (float)(quants[r][c] - zeros[r][group_of[c]]) * scales[r][group_of[c]];

            if (row[c] != wanted)
                fail_msg("[%u][%d]: %g, not %g", r, c, (double)row[c], (double)wanted);
            if (c >= 13 && c < 73)
                assert_true(part[c - 13] == wanted);
        }
    }
    hf_quantization_close(made);
}

static void scales_by_group(uint8_t *to)
{
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t r = 0; r < ROWS; r++)
            put_float(to, g * ROWS + r, scales[r][g]);
}

static void put_gptq(bool older, bool shuffled)
{
    uint8_t *words, *zero_words, *order;

    draw_weight(shuffled);
    count = 0;
    words = add("model.q_proj.qweight", "I32", COLUMNS / 8, ROWS);
    zero_words = add("model.q_proj.qzeros", "I32", GROUPS, ROWS / 8);
    scales_by_group(add("model.q_proj.scales", "F32", GROUPS, ROWS));
    order = add("model.q_proj.g_idx", "I32", 0, COLUMNS);
    for (size_t c = 0; c < COLUMNS; c++) {
        memcpy(order + 4 * c, &group_of[c], 4);
        for (size_t r = 0; r < ROWS; r++)
            or_word(words, c / 8 * ROWS + r, (uint32_t)quants[r][c] << 4 * (c % 8));
    }
    for (size_t g = 0; g < GROUPS; g++)
        for (size_t r = 0; r < ROWS; r++)
            or_word(zero_words, g * (ROWS / 8) + r / 8,
                    (uint32_t)((zeros[r][g] - older) & 15) << 4 * (r % 8));
}

static void gptq(void **state)
{
    (void)state;
    put_gptq(true, false);
    expect_weight("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}");
    put_gptq(false, false);
    expect_weight("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,"
                  "\"checkpoint_format\":\"gptq_v2\"}");
    put_gptq(true, true);
    expect_weight("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,\"desc_act\":true}");
}

static void put_awq(void)
{
    /* AWQ's own words: number i of a word is row order[i]. */
    static const size_t order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    uint8_t *words, *zero_words;

    draw_weight(false);
    count = 0;
    words = add("model.q_proj.qweight", "I32", COLUMNS, ROWS / 8);
    zero_words = add("model.q_proj.qzeros", "I32", GROUPS, ROWS / 8);
    scales_by_group(add("model.q_proj.scales", "F32", GROUPS, ROWS));
    for (size_t w = 0; w < ROWS / 8; w++) {
        for (size_t i = 0; i < 8; i++) {
            size_t r = 8 * w + order[i];

            for (size_t c = 0; c < COLUMNS; c++)
                or_word(words, c * (ROWS / 8) + w, (uint32_t)quants[r][c] << 4 * i);
            for (size_t g = 0; g < GROUPS; g++)
                or_word(zero_words, g * (ROWS / 8) + w, (uint32_t)zeros[r][g] << 4 * i);
        }
    }
}

static void awq(void **state)
{
    (void)state;
    put_awq();
    expect_weight("{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":32,\"version\":\"gemm\"}");
}

static void put_packed(bool symmetric)
{
    static const int64_t shape[2] = {ROWS, COLUMNS};
    uint8_t *words, *zero_words, *to;

    draw_weight(false);
    count = 0;
    words = add("model.q_proj.weight_packed", "I32", ROWS, COLUMNS / 8);
    to = add("model.q_proj.weight_scale", "F32", ROWS, GROUPS);
    memcpy(add("model.q_proj.weight_shape", "I64", 0, 2), shape, sizeof shape);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < COLUMNS; c++)
            or_word(words, r * (COLUMNS / 8) + c / 8, (uint32_t)quants[r][c] << 4 * (c % 8));
        for (size_t g = 0; g < GROUPS; g++)
            put_float(to, r * GROUPS + g, scales[r][g]);
    }
    zero_words = symmetric ? NULL : add("model.q_proj.weight_zero_point", "I32", ROWS / 8, GROUPS);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t g = 0; g < GROUPS; g++) {
            if (symmetric)
                zeros[r][g] = 8;
            else
                or_word(zero_words, r / 8 * GROUPS + g, (uint32_t)zeros[r][g] << 4 * (r % 8));
        }
    }
}

static const char packed_config[] = "{\"quant_method\":\"compressed-tensors\","
                                    "\"format\":\"pack-quantized\"}";

static void compressed_four_bits(void **state)
{
    (void)state;
    put_packed(true);
    expect_weight(packed_config);
    put_packed(false);
    expect_weight(packed_config);
}

static void compressed_eight_bits(void **state)
{
    uint8_t *bytes, *to;

    (void)state;
    draw_weight(false);
    count = 0;
    bytes = add("model.q_proj.weight", "I8", ROWS, COLUMNS);
    to = add("model.q_proj.weight_scale", "F32", ROWS, 1);
    for (size_t r = 0; r < ROWS; r++) {
        put_float(to, r, scales[r][0]);
        for (size_t g = 0; g < GROUPS; g++) {
            scales[r][g] = scales[r][0];
            zeros[r][g] = 0;
        }
        for (size_t c = 0; c < COLUMNS; c++) {
            quants[r][c] = quants[r][c] * 16 - 128;
            bytes[r * COLUMNS + c] = (uint8_t)(int8_t)quants[r][c];
        }
    }
    expect_weight("{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\"}");
}

/* e4m3 of whole numbers and halves, by its definition. */
static float e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15, fraction = bits & 7;
    float value =
        exponent ? ldexpf(1 + (float)fraction / 8, exponent - 7) : ldexpf((float)fraction / 8, -6);

    return bits & 0x80 ? -value : value;
}

/* scale_rows x scale_columns share a scale, the last ones fewer. */
static void check_fp8(const char *config, const char *ending, uint32_t scale_rows,
                      uint32_t scale_columns)
{
    uint32_t down = (ROWS + scale_rows - 1) / scale_rows;
    uint32_t across = (COLUMNS + scale_columns - 1) / scale_columns;
    struct hf_quantization *made;
    struct fault fault = {0};
    uint8_t *bytes, *to;
    float row[COLUMNS];

    count = 0;
    bytes = add("model.q_proj.weight", "F8_E4M3", ROWS, COLUMNS);
    to = add(ending, "F32", down, across);
    add("model.q_proj.input_scale", "F32", 0, 1);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        bytes[i] = (uint8_t)(draw(2) << 7 | draw(127));
    for (uint32_t i = 0; i < down * across; i++)
        put_float(to, i, (float)(i + 1));
    if (apply(config, &made, &fault) < 0)
        fail_msg("%s", fault.message);
    only_weight("model.q_proj.weight");
    for (uint32_t r = 0; r < ROWS; r++) {
        dequant_tables(tensors[0].tables, r, 0, COLUMNS, row);
        for (uint32_t c = 0; c < COLUMNS; c++) {
            float scale = (float)(r / scale_rows * across + c / scale_columns + 1);

            assert_true(row[c] == e4m3(bytes[r * COLUMNS + c]) * scale);
        }
    }
    hf_quantization_close(made);
}

static void fp8(void **state)
{
    (void)state;
    check_fp8("{\"quant_method\":\"fp8\",\"weight_block_size\":[10,40]}",
              "model.q_proj.weight_scale_inv", 10, 40);
    check_fp8("{\"quant_method\":\"fp8\"}", "model.q_proj.weight_scale_inv", 128, 128);
    check_fp8("{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}",
              "model.q_proj.weight_scale", ROWS, COLUMNS);
    check_fp8("{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\"}",
              "model.q_proj.weight_scale", 1, COLUMNS);
}

static void mxfp4(void **state)
{
    static const float values[16] = {0,  0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    uint8_t *blocks, *exponents;
    struct hf_quantization *made;
    struct fault fault = {0};
    float row[COLUMNS];

    (void)state;
    count = 0;
    blocks = add("experts.down_proj_blocks", "U8", GROUPS, 16);
    exponents = add("experts.down_proj_scales", "U8", ROWS / 2, GROUPS);
    tensors[0].dimensions[2] = ROWS / 2;
    tensors[0].dimensions[3] = tensors[1].dimensions[2] = 2; /* experts */
    for (int i = 0; i < ROWS * GROUPS; i++)
        exponents[i] = (uint8_t)draw(255);
    for (int i = 0; i < ROWS * COLUMNS / 2; i++)
        blocks[i] = (uint8_t)draw(256);
    assert_int_equal(apply("{\"quant_method\":\"mxfp4\"}", &made, &fault), 0);
    only_weight("experts.down_proj.weight");
    assert_int_equal(tensors[0].dimensions[0], COLUMNS);
    assert_int_equal(tensors[0].dimensions[1], ROWS / 2);
    assert_int_equal(tensors[0].dimensions[2], 2);
    for (uint32_t r = 0; r < ROWS; r++) {
        dequant_tables(tensors[0].tables, r, 0, COLUMNS, row);
        for (uint32_t c = 0; c < COLUMNS; c++) {
            uint8_t pair = blocks[(r * COLUMNS + c) / 2];
            int exponent = exponents[r * GROUPS + c / 32] - 127;

            assert_true(row[c] == ldexpf(values[c % 2 ? pair >> 4 : pair & 15], exponent));
        }
    }
    hf_quantization_close(made);
}

static void expect_refusal(const char *config, int code, const char *words)
{
    struct hf_quantization *made;
    struct fault fault = {0};

    assert_int_equal(apply(config, &made, &fault), code);
    assert_null(made);
    if (!strstr(fault.message, words))
        fail_msg("\"%s\" lacks \"%s\"", fault.message, words);
}

static const char gptq_config[] = "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}";

static void refuses_by_name(void **state)
{
    (void)state;
    put_gptq(true, false);
    expect_refusal("{\"quant_method\":\"bitsandbytes\"}", E_UNSUPPORTED,
                   "\"bitsandbytes\" is not read; known ones are fp8, compressed-tensors, gptq");
    expect_refusal("7", E_INVALID, "'quantization_config' must be an object, not an integer");
    expect_refusal("{}", E_INVALID, "'quantization_config.quant_method' is missing");
    expect_refusal("{\"quant_method\":7}", E_INVALID, "quant_method' must be a string");
    expect_refusal("{\"quant_method\":\"gptq\",\"checkpoint_format\":2}", E_INVALID,
                   "'quantization_config.checkpoint_format' must be a string");
    expect_refusal("{\"quant_method\":\"awq\",\"version\":[]}", E_INVALID,
                   "'quantization_config.version' must be a string");
    expect_refusal("{\"quant_method\":\"compressed-tensors\",\"format\":1}", E_INVALID,
                   "'quantization_config.format' must be a string");
    expect_refusal("{\"quant_method\":\"compressed-tensors\",\"config_groups\":[]}", E_INVALID,
                   "'quantization_config.config_groups' must be an object");
    expect_refusal("{\"quant_method\":\"compressed-tensors\",\"sparsity_config\":\"x\"}", E_INVALID,
                   "'quantization_config.sparsity_config' must be an object");
    expect_refusal("{\"quant_method\":\"gptq\",\"bits\":3}", E_UNSUPPORTED, "gptq of 3 bits");
    expect_refusal("{\"quant_method\":\"gptq\",\"group_size\":0}", E_INVALID, "group_size");
    expect_refusal("{\"quant_method\":\"gptq\",\"checkpoint_format\":\"marlin\"}", E_UNSUPPORTED,
                   "marlin");
    expect_refusal("{\"quant_method\":\"awq\",\"version\":\"gemv\"}", E_UNSUPPORTED, "gemv");
    expect_refusal("{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}",
                   E_UNSUPPORTED, "marlin-24");
    expect_refusal("{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}", E_INVALID, "block");
    expect_refusal("{\"quant_method\":\"gptq\",\"group_size\":64}", E_CORRUPT,
                   "model.q_proj.scales is not F32 [2, 16]");
    tensors[1].dimensions[0] = 7;
    expect_refusal(gptq_config, E_CORRUPT, "model.q_proj.qzeros is not I32 [3, 2]");
    put_gptq(true, false);
    tensors[1].name.bytes--;
    expect_refusal(gptq_config, E_CORRUPT, "ends in \"qzeros\" is missing");
    put_gptq(true, false);
    memcpy(memory[3] + 1 + 4 * 5, &(int32_t){GROUPS}, 4);
    expect_refusal(gptq_config, E_CORRUPT, "model.q_proj.g_idx names a group");
    put_gptq(true, false);
    snprintf(tensors[2].format, sizeof tensors[2].format, "I32");
    tensors[2].known = false;
    expect_refusal(gptq_config, E_CORRUPT, "model.q_proj.scales is not F32, F16 or BF16");
    put_packed(true);
    memset(memory[2] + 1, 0xff, 8);
    expect_refusal(packed_config, E_CORRUPT, "weight_shape is not a shape");
    put_packed(true);
    memory[2][1 + 8]++;
    expect_refusal(packed_config, E_CORRUPT, "weight_packed has rows that are not whole words");
}

static void leaves_the_rest(void **state)
{
    struct hf_quantization *made;
    struct fault fault = {0};

    (void)state;
    put_gptq(true, false);
    add("model.norm.weight", "F32", 0, COLUMNS);
    add("lm_head.weight", "F16", ROWS, COLUMNS);
    assert_int_equal(apply(gptq_config, &made, &fault), 0);
    assert_int_equal(count, 3);
    for (uint32_t i = 1; i < 3; i++)
        assert_null(tensors[i].tables);
    hf_quantization_close(made);
    count = 1;
    assert_int_equal(apply("null", &made, &fault), 0);
    assert_null(made);
}

static void survives_failing_allocations(void **state)
{
    int failures = 0;

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct hf_quantization *made;
        struct fault fault = {0};
        int r;

        put_gptq(true, true);
        failing_malloc_arm(nth);
        r = apply(gptq_config, &made, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            hf_quantization_close(made);
            break;
        }
        if (r == 0) { /* the config could not be read, which is for others to tell */
            hf_quantization_close(made);
            continue;
        }
        failures++;
        assert_int_equal(r, E_MEMORY);
        assert_int_equal(fault.code, E_MEMORY);
        assert_null(made);
    }
    assert_true(failures >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptq),
        cmocka_unit_test(awq),
        cmocka_unit_test(compressed_four_bits),
        cmocka_unit_test(compressed_eight_bits),
        cmocka_unit_test(fp8),
        cmocka_unit_test(mxfp4),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(leaves_the_rest),
        cmocka_unit_test(survives_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
