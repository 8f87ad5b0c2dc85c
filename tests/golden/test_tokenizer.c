/* test_tokenizer.c -- protects: ids, pieces and decoded text of real tokenizers, equal to those of
 * their makers' libraries on hundreds of texts chosen to break tokenizers.
 *
 * SmolLM2 as its GGUF has it; Qwen 3 (NFC), Llama 3.1 (whole pieces), GPT-4o (matches kept), Llama
 * 2 (byte fallback), Mistral's sentencepiece model and tekken.json from their folders; llama.cpp's
 * own vocabulary tests for GPT-2, Falcon, DeepSeek Coder and, for sentencepiece's BPE, Llama 2.
 * Data: WEFT_GOLDENS/tokenizers, and the vocabularies in the folder `tokenizers` beside it.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "engine/gguf.h"
#include "engine/text/base64.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/tokenizer_files.h"
#include "tests/lib/gguf_stream.h"
#include "tests/lib/goldens.h"

struct model {
    char *bytes;
    struct gguf *file;
    struct tokenizer *tokenizer;
};

static void model_open(struct model *model, struct gguf *file, char *bytes)
{
    struct fault fault = {0};

    assert_non_null(file);
    model->bytes = bytes;
    model->file = file;
    if (tokenizer_open_gguf(file, &model->tokenizer, &fault) < 0)
        fail_msg("%s", fault.message);
}

static void model_open_command(struct model *model, const char *command)
{
    struct gguf *file = NULL;
    size_t bytes;
    char *data = command_output(command, &bytes);

    assert_int_equal(gguf_open_memory(data, bytes, "vocabulary", &file, NULL), 0);
    model_open(model, file, data);
}

static void model_close(struct model *model)
{
    tokenizer_close(model->tokenizer);
    gguf_close(model->file);
    free(model->bytes);
}

/* A folder of the archive of real tokenizers, unpacked for as long as it takes to open it. */
static void model_open_folder(struct model *model, const char *name)
{
    char folder[] = "/tmp/weft-tokenizer-XXXXXX", path[4096], command[4096];
    struct fault fault = {0};
    size_t bytes;

    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command, "tar -xJf '%s/../tokenizers/%s.tar.xz' -C '%s'",
             goldens_folder(), name, folder);
    free(command_output(command, &bytes));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    *model = (struct model){0};
    if (tokenizer_open_dir(path, &model->tokenizer, &fault) < 0)
        print_error("%s\n", fault.message);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    free(command_output(command, &bytes));
    assert_non_null(model->tokenizer);
}

/* ---- comparing ---- */

static void check_ids(const struct model *model, const json_t *one, const char *text, size_t bytes,
                      unsigned flags, const char *key)
{
    const json_t *ids = json_object_get(one, key);
    struct fault fault = {0};
    struct tokens tokens;

    if (json_is_null(ids))
        return;
    if (!ids)
        ids = json_object_get(one, "ids");
    tokens_init(&tokens, 1 << 20);
    if (tokenizer_encode(model->tokenizer, text, bytes, flags, &tokens, &fault) < 0)
        fail_msg("%s", fault.message);
    for (size_t i = 0; i < tokens.count || i < json_array_size(ids); i++) {
        int64_t expected = json_integer_value(json_array_get(ids, i));

        if (i >= json_array_size(ids) || i >= tokens.count || tokens.ids[i] != expected)
            fail_msg("case %s (%s): token %zu of %zu is %d, not %" PRId64 " (of %zu)",
                     json_string_value(json_object_get(one, "id")), key, i, tokens.count,
                     i < tokens.count ? tokens.ids[i] : -1, expected, json_array_size(ids));
    }
    tokens_fini(&tokens);
}

static void check_raw_bytes(const struct model *model, const json_t *one)
{
    const char *hex = json_string_value(json_object_get(one, "raw_hex"));
    size_t bytes = hex ? strlen(hex) / 2 : 0;
    char *raw;

    if (!hex)
        return;
    raw = malloc(bytes + 1);
    assert_non_null(raw);
    for (size_t i = 0; i < bytes; i++)
        raw[i] = (char)strtol((char[]){hex[2 * i], hex[2 * i + 1], 0}, NULL, 16);
    check_ids(model, one, raw, bytes, ENCODE_AS_LIBRARY, "ids");
    free(raw);
}

/* The pieces that decoding tells of, against the reference's. */
struct piece_check {
    const json_t *pieces;
    size_t at;
};

static void check_piece(void *data, const char *piece, size_t bytes)
{
    struct piece_check *check = data;
    const char *hex = json_string_value(json_array_get(check->pieces, check->at++));

    assert_non_null(hex);
    assert_int_equal(bytes, strlen(hex) / 2);
    for (size_t j = 0; j < bytes; j++)
        assert_int_equal((uint8_t)piece[j],
                         strtol((char[]){hex[2 * j], hex[2 * j + 1], 0}, NULL, 16));
}

static void check_decoded(const struct model *model, const json_t *one, bool skip_special)
{
    const json_t *ids = json_object_get(one, "ids"), *value;
    const json_t *expected = json_object_get(one, skip_special ? "decoded_skip" : "decoded");
    struct piece_check check = {json_object_get(one, "pieces_hex"), 0};
    struct tokens tokens;
    struct buf text;
    size_t i;

    if (!expected)
        expected = json_object_get(one, "decoded");
    buf_init(&text, 16 << 20);
    tokens_init(&tokens, 1 << 20);
    json_array_foreach(ids, i, value)
        assert_int_equal(tokens_put(&tokens, (int32_t)json_integer_value(value)), 0);
    tokenizer_decode(model->tokenizer, tokens.ids, tokens.count, skip_special, &text,
                     skip_special || !check.pieces ? NULL : check_piece, &check);
    assert_true(skip_special || check.at == json_array_size(check.pieces));
    if (text.bytes != json_string_length(expected) ||
        memcmp(buf_string(&text), json_string_value(expected), text.bytes) != 0)
        fail_msg("case %s decodes to '%s', not '%s'", json_string_value(json_object_get(one, "id")),
                 buf_string(&text), json_string_value(expected));
    buf_fini(&text);
    tokens_fini(&tokens);
}

static void check_cases(const struct model *model, const json_t *cases, size_t least)
{
    const json_t *one;
    size_t i;

    assert_true(json_array_size(cases) >= least);
    json_array_foreach(cases, i, one)
    {
        const json_t *text = json_object_get(one, "text");

        if (text) {
            const char *from = json_string_value(text);
            size_t bytes = json_string_length(text);

            check_ids(model, one, from, bytes, ENCODE_AS_LIBRARY, "ids");
            check_ids(model, one, from, bytes, ENCODE_AS_LIBRARY | ENCODE_ADD_SPECIAL,
                      "ids_special");
            check_ids(model, one, from, bytes, ENCODE_SPECIALS_AS_TEXT, "ids_specials_as_text");
            check_raw_bytes(model, one);
        }
        check_decoded(model, one, false);
        check_decoded(model, one, true);
    }
}

static void check_reference(struct model *model, const char *name)
{
    char command[4096];
    json_t *reference;

    snprintf(command, sizeof command, "xz -dc '%s/tokenizers/%s.json.xz'", goldens_folder(), name);
    reference = command_json(command, 0);
    check_cases(model, json_object_get(reference, "cases"), 500);
    check_cases(model, json_object_get(reference, "decode_only"), 60);
    json_decref(reference);
    model_close(model);
}

/* ---- the tokenizers ---- */

static void test_smollm2(void **state)
{
    struct model model;
    char command[4096];

    (void)state;
    snprintf(command, sizeof command, "tar -xJOf '%s/../tokenizers/smollm2_gguf.tar.xz' '%s'",
             goldens_folder(), "smollm2_gguf/smollm2_vocab.gguf");
    model_open_command(&model, command);
    check_reference(&model, "smollm2_gguf");
}

static void check_folder(const char *name)
{
    struct model model;

    model_open_folder(&model, name);
    check_reference(&model, name);
}

static void test_qwen3(void **state)
{
    (void)state;
    check_folder("qwen3");
}

static void test_llama3(void **state)
{
    (void)state;
    check_folder("llama3_1");
}

static void test_gpt4o(void **state)
{
    (void)state;
    check_folder("gpt4o");
}

static void test_llama2(void **state)
{
    (void)state;
    check_folder("llama2");
}

static void test_mistral_sentencepiece(void **state)
{
    (void)state;
    check_folder("mistral_v1_spm");
}

static void test_tekken(void **state)
{
    (void)state;
    check_folder("tekken_240718");
}

static void model_open_entry(struct model *model, const json_t *entry)
{
    const json_t *tree = json_object_get(entry, "tokenizer");
    struct fault fault = {0};
    struct buf bytes;
    int r;

    *model = (struct model){0};
    buf_init(&bytes, 1 << 20);
    if (tree) {
        r = tokenizer_open_json(tree, &model->tokenizer, &fault);
    } else {
        const json_t *text = json_object_get(entry, "model");

        r = base64_append(json_string_value(text), json_string_length(text), &bytes);
        assert_int_equal(r, 0);
        r = tokenizer_open_sentencepiece(buf_string(&bytes), bytes.bytes, &model->tokenizer,
                                         &fault);
    }
    buf_fini(&bytes);
    if (r < 0)
        fail_msg("%s: %s", json_string_value(json_object_get(entry, "name")), fault.message);
}

/* One of every kind of tokenizer.json and sentencepiece model, made for this test:
 * tests/golden/make_tokenizers.py. */
static void test_every_kind(void **state)
{
    json_t *entries = command_json("xz -dc tests/data/tokenizers.json.xz", 0);
    const json_t *entry;
    size_t i;

    (void)state;
    assert_true(json_array_size(entries) >= 20);
    json_array_foreach(entries, i, entry)
    {
        struct model model;

        print_message("%s\n", json_string_value(json_object_get(entry, "name")));
        model_open_entry(&model, entry);
        check_cases(&model, json_object_get(entry, "cases"), 30);
        model_close(&model);
    }
    json_decref(entries);
}

/* ---- the same as GGUF has them ---- */

static const json_t *find_entry(const json_t *entries, const char *name)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(entries, i, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0)
            return entry;
    }
    fail_msg("there is no entry %s", name);
    return NULL;
}

/* U+2581 before what starts a word, nothing before what goes on with one. */
static void write_bert_token(struct gguf_stream *stream, const char *text)
{
    char written[256];

    if (strncmp(text, "##", 2) == 0)
        snprintf(written, sizeof written, "%s", text + 2);
    else
        snprintf(written, sizeof written, "%s%s", *text == '<' ? "" : "\xe2\x96\x81", text);
    gguf_stream_text(stream, written, strlen(written));
}

static void write_bert(struct gguf_stream *stream, const json_t *entry)
{
    const json_t *model = json_object_get(json_object_get(entry, "tokenizer"), "model"), *id;
    const json_t *vocabulary = json_object_get(model, "vocab");
    uint32_t count = (uint32_t)json_object_size(vocabulary);
    const char **texts = calloc(count, sizeof *texts), *text;

    assert_non_null(texts);
    json_object_foreach((json_t *)vocabulary, text, id) texts[json_integer_value(id)] = text;
    gguf_stream_string(stream, "tokenizer.ggml.model", "bert");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++)
        write_bert_token(stream, texts[i]);
    gguf_stream_array(stream, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_stream_u32(stream, i < 3 ? TOKEN_CONTROL : TOKEN_NORMAL);
    gguf_stream_number(stream, "tokenizer.ggml.unknown_token_id", 0);
    gguf_stream_number(stream, "tokenizer.ggml.cls_token_id", 1);
    gguf_stream_number(stream, "tokenizer.ggml.seperator_token_id", 2);
    free(texts);
}

static void write_unigram(struct gguf_stream *stream, const struct sentencepiece *model)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "t5");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, model->count);
    for (uint32_t i = 0; i < model->count; i++)
        gguf_stream_text(stream, model->pieces[i].text, model->pieces[i].bytes);
    gguf_stream_array(stream, "tokenizer.ggml.scores", GGUF_F32, model->count);
    for (uint32_t i = 0; i < model->count; i++) {
        uint32_t bits;

        memcpy(&bits, &model->pieces[i].score, sizeof bits);
        gguf_stream_u32(stream, bits);
    }
    gguf_stream_array(stream, "tokenizer.ggml.token_type", GGUF_I32, model->count);
    for (uint32_t i = 0; i < model->count; i++)
        gguf_stream_u32(stream, model->pieces[i].type);
    gguf_stream_array(stream, "tokenizer.ggml.precompiled_charsmap", GGUF_U8,
                      model->charsmap_bytes);
    fwrite(model->charsmap, 1, model->charsmap_bytes, stream->to);
    gguf_stream_flag(stream, "tokenizer.ggml.add_space_prefix", model->dummy_prefix);
    gguf_stream_flag(stream, "tokenizer.ggml.remove_extra_whitespaces", model->removes_spaces);
    gguf_stream_number(stream, "tokenizer.ggml.unknown_token_id", (uint32_t)model->unknown);
}

static void check_gguf(struct gguf_stream *stream, const json_t *entry, const size_t *texts,
                       size_t count)
{
    struct model model = {0};
    struct fault fault = {0};
    char *bytes;

    model.file = gguf_stream_finish(stream);
    bytes = stream->bytes;
    if (tokenizer_open_gguf(model.file, &model.tokenizer, &fault) < 0)
        fail_msg("%s", fault.message);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(json_object_get(entry, "cases"), texts[i]);
        const json_t *text = json_object_get(one, "text");

        check_ids(&model, one, json_string_value(text), json_string_length(text), 0, "ids");
    }
    model_close(&model);
    free(bytes);
}

static void test_bert_and_t5_in_gguf(void **state)
{
    /* All but the one with U+2581 in it, which GGUF's pieces cannot tell from a word's start. */
    static const size_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    /* Without user-defined tokens, which GGUF's readers cut out before normalizing, and without
     * characters that it has no byte tokens for. */
    static const size_t plain[] = {0, 2, 3, 4, 5, 6, 7};
    json_t *entries = command_json("xz -dc tests/data/tokenizers.json.xz", 0);
    const json_t *entry = find_entry(entries, "bert"), *text;
    struct sentencepiece unigram;
    struct gguf_stream stream;
    struct buf bytes;

    (void)state;
    gguf_stream_open(&stream);
    write_bert(&stream, entry);
    check_gguf(&stream, entry, all, sizeof all / sizeof *all);

    entry = find_entry(entries, "sentencepiece unigram");
    text = json_object_get(entry, "model");
    buf_init(&bytes, 1 << 20);
    assert_int_equal(base64_append(json_string_value(text), json_string_length(text), &bytes), 0);
    assert_int_equal(sentencepiece_read(&unigram, bytes.data, bytes.bytes, NULL), 0);
    assert_true(unigram.charsmap_bytes > 0);
    gguf_stream_open(&stream);
    write_unigram(&stream, &unigram);
    check_gguf(&stream, entry, plain, sizeof plain / sizeof *plain);
    sentencepiece_fini(&unigram);
    buf_fini(&bytes);
    json_decref(entries);
}

static void check_ggml(const char *name)
{
    struct model model;
    char command[4096];
    const json_t *one;
    json_t *reference;
    size_t i;

    snprintf(command, sizeof command, "xz -dc '%s/tokenizers/ggml_vocab/%s.gguf.xz'",
             goldens_folder(), name);
    model_open_command(&model, command);
    snprintf(command, sizeof command, "cat '%s/tokenizers/ggml_vocab/%s.json'", goldens_folder(),
             name);
    reference = command_json(command, 0);
    assert_int_equal(json_array_size(json_object_get(reference, "cases")), 47);
    json_array_foreach(json_object_get(reference, "cases"), i, one)
    {
        const json_t *text = json_object_get(one, "text");

        check_ids(&model, one, json_string_value(text), json_string_length(text), 0, "ids");
    }
    json_decref(reference);
    model_close(&model);
}

static void test_ggml_vocabularies(void **state)
{
    (void)state;
    check_ggml("gpt-2");
    check_ggml("falcon");
    check_ggml("deepseek-coder");
    check_ggml("llama-spm");
}

/* The prompts whose continuations the engine is compared with. */
static void test_demo_prompts(void **state)
{
    struct model model = {0};
    struct gguf *file = NULL;
    const json_t *one;
    json_t *reference;
    size_t i;

    (void)state;
    assert_int_equal(gguf_open(demo_model(), &file, NULL), 0);
    model_open(&model, file, NULL);
    reference = command_json("cat tests/data/smollm2_q4_1.json", 0);
    assert_true(json_array_size(json_object_get(reference, "cases")) >= 10);
    json_array_foreach(json_object_get(reference, "cases"), i, one)
    {
        const json_t *text = json_object_get(one, "rendered");
        json_t *expected = json_pack("{s:O,s:O}", "id", json_object_get(one, "id"), "ids",
                                     json_object_get(one, "prompt_token_ids"));

        if (!text)
            text = json_object_get(one, "input");
        assert_non_null(expected);
        check_ids(&model, expected, json_string_value(text), json_string_length(text), 0, "ids");
        json_decref(expected);
    }
    json_decref(reference);
    model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind),   cmocka_unit_test(test_bert_and_t5_in_gguf),
        cmocka_unit_test(test_smollm2),      cmocka_unit_test(test_qwen3),
        cmocka_unit_test(test_llama3),       cmocka_unit_test(test_gpt4o),
        cmocka_unit_test(test_llama2),       cmocka_unit_test(test_mistral_sentencepiece),
        cmocka_unit_test(test_tekken),       cmocka_unit_test(test_ggml_vocabularies),
        cmocka_unit_test(test_demo_prompts),
    };

    return cmocka_run_group_tests_name("golden/tokenizer", tests, NULL, NULL);
}
