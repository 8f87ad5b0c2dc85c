/* Protects the binding of a file to its architecture: real files are bound as their metadata say,
 * defaults are those that converters leave out, and what does not fit or is not known is refused by
 * name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/model.h"
#include "tests/lib/gguf_model.h"

#define LLAMA  "tests/data/arch/gguf_llama_q4_1/llama-Q4_1.gguf"
#define LLAMA3 "tests/data/arch/gguf_llama3_q8_0/llama-Q8_0.gguf"
#define QWEN3  "tests/data/arch/gguf_qwen3_q8_0/qwen3-Q8_0.gguf"

/* A file in memory, to be changed before it is opened. */
struct image {
    uint8_t *bytes;
    size_t size;
    struct gguf *file;
    struct model *model;
};

static void image_read(struct image *image, const char *path)
{
    FILE *stream = fopen(path, "rb");

    memset(image, 0, sizeof *image);
    assert_non_null(stream);
    assert_int_equal(fseek(stream, 0, SEEK_END), 0);
    image->size = (size_t)ftell(stream);
    rewind(stream);
    image->bytes = aligned_alloc(16, (image->size + 15) / 16 * 16);
    assert_non_null(image->bytes);
    assert_int_equal(fread(image->bytes, 1, image->size, stream), image->size);
    fclose(stream);
}

static void image_drop(struct image *image)
{
    model_close(image->model);
    gguf_close(image->file);
    free(image->bytes);
}

/* Where the name stands (with its length before it, so that no longer name matches). */
static uint8_t *find_name(const struct image *image, const char *name)
{
    uint8_t pattern[128];
    uint64_t bytes = strlen(name);
    uint8_t *at;

    memcpy(pattern, &bytes, sizeof bytes);
    memcpy(pattern + sizeof bytes, name, bytes);
    at = memmem(image->bytes, image->size, pattern, sizeof bytes + bytes);
    assert_non_null(at);
    return at + sizeof bytes;
}

/* Overwrites the 4-byte value of a metadata key. */
static void set_key(const struct image *image, const char *name, const void *value)
{
    memcpy(find_name(image, name) + strlen(name) + 4, value, 4);
}

static void set_u32(const struct image *image, const char *name, uint32_t value)
{
    set_key(image, name, &value);
}

static void set_f32(const struct image *image, const char *name, float value)
{
    set_key(image, name, &value);
}

static void rename_to(const struct image *image, const char *name, const char *other)
{
    assert_int_equal(strlen(name), strlen(other));
    memcpy(find_name(image, name), other, strlen(other));
}

static int image_open(struct image *image, struct fault *fault)
{
    int r = gguf_open_memory(image->bytes, image->size, "image", &image->file, fault);

    assert_int_equal(r, 0);
    return gguf_model_open(image->file, &image->model, fault);
}

static void image_opens(struct image *image)
{
    struct fault fault = {0};

    if (image_open(image, &fault) < 0)
        fail_msg("%s", fault.message);
}

/* Opens and drops the image, which must be refused with a message that holds `text`. */
static void expect_refusal(struct image *image, int code, const char *text)
{
    struct fault fault = {0};
    int r = image_open(image, &fault);

    if (r != code || !strstr(fault.message, text))
        fail_msg("code %d, message \"%s\"; expected %d and \"%s\"", r, fault.message, code, text);
    assert_null(image->model);
    image_drop(image);
}

static void binds_llama(void **state)
{
    struct image image;
    const struct model *model;
    const struct layer *layer;

    (void)state;
    image_read(&image, LLAMA);
    image_opens(&image);
    model = image.model;
    assert_string_equal(model->architecture, "llama");
    assert_string_equal(model->name, "tiny llama");
    assert_int_equal(model->rope, ROPE_INTERLEAVED);
    assert_int_equal(model->layer_count, 2);
    assert_int_equal(model->width, 96);
    assert_int_equal(model->heads, 6);
    assert_int_equal(model->kv_heads, 2);
    assert_int_equal(model->head_size, 16);
    assert_int_equal(model->ropes[0].size, 16);
    assert_int_equal(model->ffn_width, 160);
    assert_int_equal(model->vocabulary, 291);
    assert_int_equal(model->context, 4096);
    assert_true(fabsf(model->attention_scale - 0.25f) < 1e-7f);
    assert_true(fabsf(model->norm_epsilon - 1e-5f) < 1e-9f);
    assert_true(model->ropes[0].frequencies[0] == 1.0f && model->ropes[0].scale == 1.0f);
    layer = &model->layers[1];
    assert_int_equal(layer->qkv.part_count, 3);
    assert_int_equal(layer->qkv.rows, 96 + 32 + 32);
    assert_int_equal(layer->qkv.columns, 96);
    assert_int_equal(layer->qkv.parts[1].rows, 32);
    assert_ptr_equal(layer->qkv.parts[1].data,
                     gguf_tensor_find(image.file, "blk.1.attn_k.weight")->data);
    assert_int_equal(layer->ffn.gate_up.part_count, 2);
    assert_ptr_equal(layer->ffn.gate_up.parts[1].data,
                     gguf_tensor_find(image.file, "blk.1.ffn_up.weight")->data);
    assert_int_equal(layer->qkv_bias.rows, 0);
    assert_int_equal(layer->q_norm.rows, 0);
    assert_int_equal(layer->attention_norm.rows, 1);
    assert_int_equal(layer->attention_norm.columns, 96);
    assert_ptr_not_equal(model->head.parts[0].data, model->embedding.parts[0].data);
    image_drop(&image);
}

static void binds_qwen3(void **state)
{
    struct image image;

    (void)state;
    image_read(&image, QWEN3);
    image_opens(&image);
    assert_int_equal(image.model->rope, ROPE_HALVES);
    assert_int_equal(image.model->head_size, 32); /* 4 heads of a width of 64: the file says so */
    assert_int_equal(image.model->layers[0].qkv.rows, 128 + 64 + 64);
    assert_int_equal(image.model->layers[0].q_norm.columns, 32);
    assert_int_equal(image.model->layers[0].k_norm.rows, 1);
    image_drop(&image);
}

static void reads_rotary_factors(void **state)
{
    struct image image;
    const float *factors;

    (void)state;
    image_read(&image, LLAMA3);
    image_opens(&image);
    factors = gguf_tensor_find(image.file, "rope_freqs.weight")->data;
    for (uint32_t i = 0; i < 8; i++) {
        double frequency = pow(500000.0, -(double)i / 8.0) / (double)factors[i];

        assert_true(fabs((double)image.model->ropes[0].frequencies[i] / frequency - 1.0) < 1e-6);
    }
    image_drop(&image);

    image_read(&image, LLAMA3);
    image_opens(&image);
    factors = gguf_tensor_find(image.file, "rope_freqs.weight")->data;
    model_close(image.model);
    image.model = NULL;
    gguf_close(image.file);
    image.file = NULL;
    memcpy((void *)(uintptr_t)factors, &(float){NAN}, sizeof(float));
    expect_refusal(&image, E_CORRUPT, "rope_freqs.weight");
}

static void ties_the_head_and_fills_in_defaults(void **state)
{
    struct image image;

    (void)state;
    image_read(&image, LLAMA);
    /* Keys and tensors that other readers ignore in their turn: renaming a key takes it away. */
    rename_to(&image, "llama.rope.freq_base", "llama.rope.free_base");
    rename_to(&image, "llama.rope.dimension_count", "llama.rope.dimension_comet");
    rename_to(&image, "general.name", "general.mame");
    image_opens(&image);
    assert_true(fabs(pow(image.model->ropes[0].frequencies[1], -8.0) - 10000.0) < 0.1);
    assert_int_equal(image.model->ropes[0].size, 16);
    assert_string_equal(image.model->name, "image");
    image_drop(&image);

    image_read(&image, LLAMA);
    image.bytes[8]--; /* one tensor less: the last entry is output.weight */
    image_opens(&image);
    assert_int_equal(image.model->head.rows, 291);
    assert_ptr_equal(image.model->head.parts[0].data, image.model->embedding.parts[0].data);
    image_drop(&image);

    image_read(&image, LLAMA);
    rename_to(&image, "llama.attention.head_count_kv", "llama.attention.head_count_ky");
    expect_refusal(&image, E_CORRUPT, "attn_k.weight"); /* as many as heads, so the shapes differ */
}

static void refuses_other_architectures(void **state)
{
    struct image image;

    (void)state;
    image_read(&image, LLAMA);
    memcpy(find_name(&image, "general.architecture") + 20 + 4 + 8, "lamma", 5);
    expect_refusal(
        &image, E_UNSUPPORTED,
        "\"lamma\" is not supported (the closest is llama); known ones are llama, qwen2, qwen3");
    image_read(&image, QWEN3);
    memcpy(find_name(&image, "general.architecture") + 20 + 4 + 8, "qwan3", 5);
    expect_refusal(&image, E_UNSUPPORTED, "the closest is qwen3");
    image_read(&image, LLAMA);
    rename_to(&image, "general.architecture", "general.architectura");
    expect_refusal(&image, E_CORRUPT, "lack general.architecture");
}

static void refuses_impossible_numbers(void **state)
{
    static const struct {
        const char *key;
        uint32_t value;
        const char *text;
    } sizes[] = {
        {"llama.block_count", 0, "llama.block_count"},
        {"llama.block_count", 3, "blk.2.attn_norm.weight is missing"},
        {"llama.block_count", 1, "blk.1."},
        {"llama.block_count", UINT32_MAX, "llama.block_count"},
        {"llama.embedding_length", 0, "llama.embedding_length"},
        {"llama.embedding_length", 97, "token_embd.weight"},
        {"llama.feed_forward_length", UINT32_MAX, "llama.feed_forward_length"},
        {"llama.feed_forward_length", 128, "ffn_gate.weight"},
        {"llama.context_length", 0, "llama.context_length"},
        {"llama.attention.head_count", 0, "llama.attention.head_count"},
        {"llama.attention.head_count", 5, "5 heads cannot share 2"},
        {"llama.attention.head_count", 4096, "attention.key_length"},
        {"llama.attention.head_count_kv", 0, "head_count_kv"},
        {"llama.attention.head_count_kv", 3, "attn_k.weight"},
        {"llama.rope.dimension_count", 15, "in pairs"},
        {"llama.rope.dimension_count", 18, "rope.dimension_count"},
    };
    static const struct {
        const char *key;
        float value;
    } reals[] = {
        {"llama.rope.freq_base", NAN},
        {"llama.rope.freq_base", 0.0f},
        {"llama.rope.freq_base", -5.0f},
        {"llama.rope.freq_base", INFINITY},
        {"llama.attention.layer_norm_rms_epsilon", NAN},
        {"llama.attention.layer_norm_rms_epsilon", -1e-5f},
        {"llama.attention.layer_norm_rms_epsilon", INFINITY},
    };
    struct image image;
    struct fault fault = {0};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        image_read(&image, LLAMA);
        set_u32(&image, sizes[i].key, sizes[i].value);
        if (image_open(&image, &fault) == 0 || !strstr(fault.message, sizes[i].text))
            fail_msg("%s = %u: \"%s\"", sizes[i].key, sizes[i].value, fault.message);
        image_drop(&image);
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        image_read(&image, LLAMA);
        set_f32(&image, reals[i].key, reals[i].value);
        expect_refusal(&image, E_CORRUPT, reals[i].key);
    }
}

static void refuses_tensors_by_name(void **state)
{
    struct image image;
    uint8_t *entry;

    (void)state;
    image_read(&image, LLAMA);
    rename_to(&image, "blk.1.attn_v.weight", "blk.1.attn_w.weight");
    expect_refusal(&image, E_CORRUPT, "blk.1.attn_v.weight is missing");

    image_read(&image, LLAMA);
    rename_to(&image, "output.weight", "outputs.wight"); /* tied then, and this one is left over */
    expect_refusal(&image, E_UNSUPPORTED, "outputs.wight is not one");

    image_read(&image, LLAMA);
    entry = find_name(&image, "blk.0.attn_q.weight");
    memcpy(entry + 19 + 4 + 16, &(uint32_t){28}, 4);
    expect_refusal(&image, E_UNSUPPORTED, "blk.0.attn_q.weight is of type 28 (F64)");

    image_read(&image, LLAMA);
    entry = find_name(&image, "blk.0.attn_norm.weight");
    memcpy(entry + 22 + 4 + 8, &(uint32_t){3}, 4); /* Q4_1 */
    expect_refusal(&image, E_UNSUPPORTED, "blk.0.attn_norm.weight is Q4_1; only F32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binds_llama),
        cmocka_unit_test(binds_qwen3),
        cmocka_unit_test(reads_rotary_factors),
        cmocka_unit_test(ties_the_head_and_fills_in_defaults),
        cmocka_unit_test(refuses_other_architectures),
        cmocka_unit_test(refuses_impossible_numbers),
        cmocka_unit_test(refuses_tensors_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
