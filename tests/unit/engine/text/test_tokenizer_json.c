/* test_tokenizer_json.c -- protects: files of tokenizers that are wrong are refused with a reason,
 * no matter where memory ends; every pre-tokenizer that GGUF names can be made; no text takes long.
 * (That the ids are right is compared with the makers' libraries: tests/golden/test_tokenizer.c.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/digit_groups.h"
#include "engine/text/tokenizer_files.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/tiny_vocabulary.h"

static json_t *tree_of(const char *text)
{
    json_error_t error;
    json_t *tree = json_loads(text, JSON_ALLOW_NUL, &error);

    if (!tree)
        fail_msg("%s", error.text);
    return tree;
}

/* "a" "b" "ab" "c" and an added token, around which a test writes what it needs. */
#define MODEL                                                                              \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3},\"merges\":" \
    "[\"a b\"]}"
#define ADDED(flags) "\"added_tokens\":[{\"id\":4,\"content\":\"<x>\",\"special\":true" flags "}]"

static void refuse(const char *text, int code, const char *words)
{
    struct tokenizer *tokenizer = NULL;
    struct fault fault = {0};
    json_t *tree = tree_of(text);
    int r = tokenizer_open_json(tree, &tokenizer, &fault);

    if (r != code || !strstr(fault.message, words))
        fail_msg("%s: %d, '%s'", text, r, fault.message);
    assert_null(tokenizer);
    json_decref(tree);
}

/* A decoder that makes much more of each token than the file has. */
static void refuse_long_pieces(void)
{
    static char json[8192], piece[3001];

    memset(piece, 'a', sizeof piece - 1);
    snprintf(json, sizeof json,
             "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"%s\":0}},\"decoder\":{\"type\":"
             "\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"bbbbbbbbbbbbbbbb\"}}",
             piece);
    refuse(json, E_TOO_LARGE, "pieces too long");
}

static void test_what_is_refused(void **state)
{
    (void)state;
    refuse("{}", E_CORRUPT, "no vocabulary");
    refuse("{\"model\":{\"type\":\"XYZ\",\"vocab\":{\"a\":0}}}", E_UNSUPPORTED, "model 'XYZ'");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"type\":\"BPE\"}}", E_CORRUPT, "no list of merges");
    refuse("{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", E_CORRUPT, "no vocabulary");
    refuse("{\"model\":{\"vocab\":{\"a\":0,\"b\":-1},\"merges\":[]}}", E_CORRUPT, "'b'");
    refuse("{\"model\":{\"vocab\":{\"a\":99999999},\"merges\":[]}}", E_TOO_LARGE, "ids above");
    refuse("{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}", E_CORRUPT, "merge 0");
    refuse("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", E_CORRUPT, "merge 0");
    refuse("{" MODEL ",\"normalizer\":{\"type\":\"Q\"}}", E_UNSUPPORTED, "normalizer 'Q'");
    refuse("{" MODEL ",\"normalizer\":{\"type\":\"Replace\"}}", E_CORRUPT, "Replace");
    refuse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Q\"}}", E_UNSUPPORTED, "pre-tokenizer 'Q'");
    refuse("{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"}}}",
           E_UNSUPPORTED, "cannot be read");
    refuse("{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", E_UNSUPPORTED, "decoder 'CTC'");
    refuse("{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"q\",9]}}",
           E_CORRUPT, "post-processor");
    refuse("{" MODEL ",\"added_tokens\":[{\"id\":4}]}", E_CORRUPT, "no content");
    refuse_long_pieces();
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", E_CORRUPT, "no score");
    refuse("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":5}}", E_CORRUPT, "");
}

static void assert_ids(const char *json, const char *text, unsigned flags, const int32_t *ids,
                       size_t count)
{
    struct tokenizer *tokenizer = NULL;
    json_t *tree = tree_of(json);
    struct tokens tokens;

    assert_int_equal(tokenizer_open_json(tree, &tokenizer, NULL), 0);
    tokens_init(&tokens, 100);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), flags, &tokens, NULL), 0);
    assert_int_equal(tokens.count, count);
    if (count > 0)
        assert_memory_equal(tokens.ids, ids, count * sizeof *ids);
    tokens_fini(&tokens);
    tokenizer_close(tokenizer);
    json_decref(tree);
}

#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4

static void test_added_tokens(void **state)
{
    (void)state;
    assert_ids("{" MODEL "," ADDED("") "}", "ab<x>c", 0, IDS(2, 4, 3));
    assert_ids("{" MODEL "," ADDED("") "}", "a<x>", ENCODE_SPECIALS_AS_TEXT, IDS(0));
    assert_ids("{" MODEL "," ADDED(",\"single_word\":true") "}", "a<x>", 0, IDS(0));
    assert_ids("{" MODEL "," ADDED(",\"single_word\":true") "}", "a <x>.", 0, IDS(0, 4));
    /* A merge to a control token is passed over: no text becomes one by merging. */
    assert_ids("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]},"
               "\"added_tokens\":[{\"id\":2,\"content\":\"ab\",\"special\":true}]}",
               "ab", ENCODE_SPECIALS_AS_TEXT, IDS(0, 1));
}

/* Names that nearly match at every place of a text: each byte is read once all the same. */
static void test_names_that_nearly_match(void **state)
{
    enum { BYTES = 1000000, NAME = 500 };
    static char json[4096];
    char *text = malloc(BYTES), name[NAME + 1];
    struct tokenizer *tokenizer = NULL;
    struct tokens tokens;
    json_t *tree;

    (void)state;
    assert_non_null(text);
    memset(text, 'a', BYTES);
    memset(name, 'a', NAME);
    name[NAME] = 0;
    snprintf(json, sizeof json,
             "{" MODEL ",\"added_tokens\":[{\"id\":4,\"content\":\"a\",\"special\":true},"
             "{\"id\":5,\"content\":\"%sb\"},{\"id\":6,\"content\":\"b%s\"}]}",
             name, name);
    tree = tree_of(json);
    assert_int_equal(tokenizer_open_json(tree, &tokenizer, NULL), 0);
    tokens_init(&tokens, 2 * BYTES);
    assert_int_equal(tokenizer_encode(tokenizer, text, BYTES, 0, &tokens, NULL), 0);
    assert_int_equal(tokens.count, BYTES);
    tokens.count = 0;
    memset(text + 600, 'b', 1); /* both long names could start or end here; the leftmost is taken */
    assert_int_equal(tokenizer_encode(tokenizer, text, 1200, 0, &tokens, NULL), 0);
    assert_int_equal(tokens.count, 100 + 1 + 599);
    assert_int_equal(tokens.ids[100], 5);
    tokens_fini(&tokens);
    tokenizer_close(tokenizer);
    json_decref(tree);
    free(text);
}

/* Every file, with the n-th allocation failing: E_MEMORY, or it was not needed. */
static void test_failing_allocations(void **state)
{
    static const char *const files[] = {
        "{" MODEL "," ADDED(",\"normalized\":true") ",\"normalizer\":{\"type\":\"Sequence\","
                                                    "\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
                                                    "\"Replace\",\"pattern\":{\"Regex\":\"x+\"},"
                                                    "\"content\":\"a\"}]},\"pre_tokenizer\":{"
                                                    "\"type\":\"Metaspace\"},\"decoder\":{\"type\":"
                                                    "\"Metaspace\"}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"ab\",-1]],\"unk_id\":0}}",
        "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0,\"##b\":1}},\"decoder\":{\"type\":"
        "\"WordPiece\"}}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        json_t *tree = tree_of(files[i]);

        for (uint64_t nth = 1;; nth++) {
            struct tokenizer *tokenizer = NULL;
            struct tokens tokens;
            int r;

            tokens_init(&tokens, 100);
            failing_malloc_arm(nth);
            r = tokenizer_open_json(tree, &tokenizer, NULL);
            if (r == 0)
                r = tokenizer_encode(tokenizer, "a xxab b", 8, 0, &tokens, NULL);
            tokens_fini(&tokens);
            tokenizer_close(tokenizer);
            if (!failing_malloc_disarm())
                break;
            assert_int_equal(r, E_MEMORY);
            assert_true(nth < 1000);
        }
        json_decref(tree);
    }
}

static const char *const names[] = {
    "default",
    "gpt-2",
    "phi-2",
    "jina-es",
    "jina-de",
    "gigachat",
    "jina-v2-es",
    "jina-v2-de",
    "a.x-4.0",
    "mellum",
    "modern-bert",
    "mpt",
    "olmo",
    "jais",
    "trillion",
    "granite-docling",
    "exaone4",
    "jina-v1-en",
    "jina-v2-code",
    "roberta-bpe",
    "smollm",
    "starcoder",
    "refact",
    "command-r",
    "codeshell",
    "exaone",
    "minerva-7b",
    "mellum2",
    "llama-bpe",
    "llama3",
    "llama-v3",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "dbrx",
    "smaug-bpe",
    "chatglm-bpe",
    "glm4",
    "qwen2",
    "deepseek-r1-qwen",
    "kormo",
    "f2llmv2",
    "megrez",
    "stablelm2",
    "hunyuan",
    "solar-open",
    "grok-2",
    "qwen35",
    "ufakzeka",
    "laguna",
    "minicpm5",
    "jais-2",
    "seed-coder",
    "bailingmoe",
    "bailingmoe2",
    "llada-moe",
    "exaone-moe",
    "gpt-4o",
    "llama4",
    "kanana2",
    "talkie",
    "minimax-m2",
    "tiny_aya",
    "granite-embed-multi-97m",
    "cohere2moe",
    "youtu",
    "tekken",
    "kimi-k2",
    "superbpe",
    "falcon",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "hunyuan-dense",
    "joyai-llm",
    "hy_v4",
    "spark2_5",
    "afmoe",
    "bloom",
    "gpt3-finnish",
    "poro-chat",
    "viking",
    "chameleon",
    "gemma4",
    "sarvam-moe",
    "granite-embed-multi-311m",
    "whitespace",
};

/* Runs of one thing, which a pattern that starts again at each place would be slow on. */
static void test_every_name_of_gguf(void **state)
{
    static const char *const units[] = {"a", " ", "1", "\n", "Aa ", "\xe4\xb8\xad", "1a"};
    enum { BYTES = 30000 };
    char *text = malloc(BYTES + 16);

    (void)state;
    assert_non_null(text);
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct tokenizer *tokenizer = NULL;
        struct gguf_stream stream;
        struct fault fault = {0};
        struct gguf *file;

        gguf_stream_open(&stream);
        tiny_write(&stream, names[n]);
        file = gguf_stream_finish(&stream);
        if (tokenizer_open_gguf(file, &tokenizer, &fault) < 0)
            fail_msg("%s: %s", names[n], fault.message);
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            size_t unit = strlen(units[u]), bytes = BYTES / unit * unit;
            struct tokens tokens;

            for (size_t i = 0; i < bytes; i++)
                text[i] = units[u][i % unit];
            memcpy(text + bytes, "\xe4\xb8\xad", 3);
            tokens_init(&tokens, 1 << 20);
            assert_int_equal(tokenizer_encode(tokenizer, text, bytes + 3, 0, &tokens, NULL), 0);
            tokens_fini(&tokens);
        }
        tokenizer_close(tokenizer);
        gguf_close(file);
        free(stream.bytes);
    }
    free(text);
}

static void assert_groups(enum digit_grouping grouping, const char *text, const char *expected)
{
    struct digit_walk walk = {0};
    size_t from = 0, start, end;
    char found[64] = "";

    while (digit_walk_next(&walk, grouping, text, strlen(text), from, &start, &end)) {
        size_t used = strlen(found);

        snprintf(found + used, sizeof found - used, "%zu-%zu ", start, end);
        from = end > start ? end : start + 1;
    }
    assert_string_equal(found, expected);
}

static void test_digits_in_groups(void **state)
{
    (void)state;
    assert_groups(DIGITS_AS_GROUPS, "12345 x1", "0-2 2-5 7-8 ");
    assert_groups(DIGITS_AS_GROUPS, "", "");
    assert_groups(DIGITS_AS_STARTS, "1234567", "1-1 4-4 ");
    assert_groups(DIGITS_AS_STARTS, "123a12", "0-0 ");
    assert_groups(DIGITS_OF_WHOLE_WORDS, "1234a 1234.", "6-7 7-10 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused),         cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_names_that_nearly_match), cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_every_name_of_gguf),      cmocka_unit_test(test_digits_in_groups),
    };

    return cmocka_run_group_tests_name("engine/text/tokenizer_json", tests, NULL, NULL);
}
