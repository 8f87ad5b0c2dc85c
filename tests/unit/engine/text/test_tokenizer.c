/* test_tokenizer.c -- protects: merging by rank whatever the length of a piece, special tokens,
 * what is added before and after a text, texts that are not UTF-8 or that would make a naive merge
 * loop quadratic, and that no metadata, however wrong, does harm. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/tokenizer.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/tiny_vocabulary.h"

struct tiny {
    struct gguf_stream stream;
    struct gguf *file;
    struct tokenizer *tokenizer;
};

static uint64_t random_state = 5;

static uint32_t random_below(uint32_t bound)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

/* What tiny_write() or more has been written into the stream. */
static int tiny_finish(struct tiny *tiny, struct fault *fault)
{
    tiny->tokenizer = NULL;
    tiny->file = gguf_stream_finish(&tiny->stream);
    assert_non_null(tiny->file);
    return tokenizer_open_gguf(tiny->file, &tiny->tokenizer, fault);
}

static void tiny_open(struct tiny *tiny, const char *pre)
{
    gguf_stream_open(&tiny->stream);
    tiny_write(&tiny->stream, pre);
    assert_int_equal(tiny_finish(tiny, NULL), 0);
}

static void tiny_close(struct tiny *tiny)
{
    tokenizer_close(tiny->tokenizer);
    gguf_close(tiny->file);
    free(tiny->stream.bytes);
}

static void assert_ids(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                       unsigned flags, const int32_t *ids, size_t count)
{
    struct tokens tokens;

    tokens_init(&tokens, 10000);
    assert_int_equal(tokenizer_encode(tokenizer, text, bytes, flags, &tokens, NULL), 0);
    assert_int_equal(tokens.count, count);
    if (count > 0)
        assert_memory_equal(tokens.ids, ids, count * sizeof *ids);
    tokens_fini(&tokens);
}

/* A text without NUL, and the ids that it must give. */
#define ASSERT_IDS(tokenizer_, text_, flags_, ...)                                             \
    assert_ids((tokenizer_), (text_), strlen(text_), (flags_), (const int32_t[]){__VA_ARGS__}, \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

enum { LL = 256, HE, LLO, HELLO, SPACE_W, AA, AAA, AAAA, BC, AB, E_ACUTE };

static void test_merges_by_rank(void **state)
{
    struct tiny tiny;

    (void)state;
    tiny_open(&tiny, "gpt-2");
    ASSERT_IDS(tiny.tokenizer, "hello", 0, HELLO);
    ASSERT_IDS(tiny.tokenizer, "hello world", 0, HELLO, SPACE_W, 'o', 'r', 'l', 'd');
    ASSERT_IDS(tiny.tokenizer, "abc", 0, 'a', BC);   /* bc ranks before ab */
    ASSERT_IDS(tiny.tokenizer, "aaaaa", 0, AA, AAA); /* aa aa a: aaa ranks before aaaa */
    ASSERT_IDS(tiny.tokenizer, "lll", 0, LL, 'l');   /* of equal ones the leftmost */
    ASSERT_IDS(tiny.tokenizer, "\xc3\xa9", 0, E_ACUTE);
    assert_ids(tiny.tokenizer, "", 0, 0, NULL, 0);
    assert_ids(tiny.tokenizer, "a\0b", 3, 0, (const int32_t[]){'a', 0, 'b'}, 3);
    tiny_close(&tiny);
}

static void write_merges(struct gguf_stream *stream, const char *pre, const char *const *lines,
                         uint32_t count)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    gguf_stream_string(stream, "tokenizer.ggml.pre", pre);
    tiny_write_tokens(stream);
    gguf_stream_array(stream, "tokenizer.ggml.merges", GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_stream_text(stream, lines[i], strlen(lines[i]));
}

static void test_a_merge_that_comes_twice_keeps_its_first_rank(void **state)
{
    static const char *const lines[] = {"b c", "a b", "b c"};
    struct tiny tiny;

    (void)state;
    gguf_stream_open(&tiny.stream);
    write_merges(&tiny.stream, "gpt-2", lines, 3);
    assert_int_equal(tiny_finish(&tiny, NULL), 0);
    ASSERT_IDS(tiny.tokenizer, "abc", 0, 'a', BC);
    tiny_close(&tiny);
}

/* Llama 3's: a piece that is a token is that token, whatever the merges would make of it. */
static void test_whole_pieces(void **state)
{
    static const char *const lines[] = {"b c"};
    struct tiny tiny;

    (void)state;
    gguf_stream_open(&tiny.stream);
    write_merges(&tiny.stream, "llama-bpe", lines, 1);
    assert_int_equal(tiny_finish(&tiny, NULL), 0);
    ASSERT_IDS(tiny.tokenizer, "hello", 0, HELLO);
    ASSERT_IDS(tiny.tokenizer, "hellos", 0, 'h', 'e', 'l', 'l', 'o', 's');
    ASSERT_IDS(tiny.tokenizer, "<", 0, '<');
    tiny_close(&tiny);
}

/* Byte-pair encoding by its definition: look for the best pair again and again. */
static size_t naive_merge(int32_t *ids, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX, best_rank = TINY_MERGE_COUNT;

        for (size_t i = 0; i + 1 < count; i++)
            for (size_t rank = 0; rank < best_rank; rank++) {
                const struct tiny_merge *merge = &tiny_merges[rank];
                char joined[32], pair[32];
                const char *names[2];

                for (int k = 0; k < 2; k++) {
                    int32_t id = ids[i + (size_t)k];
                    static char texts[2][32];

                    if (id < 256)
                        snprintf(texts[k], 32, "%c", (char)id);
                    else
                        snprintf(texts[k], 32, "%s%s", tiny_merges[id - 256].left,
                                 tiny_merges[id - 256].right);
                    names[k] = texts[k];
                }
                snprintf(joined, sizeof joined, "%s|%s", merge->left, merge->right);
                snprintf(pair, sizeof pair, "%s|%s", names[0], names[1]);
                if (strcmp(joined, pair) == 0) {
                    best = i;
                    best_rank = rank;
                }
            }
        if (best == SIZE_MAX)
            return count;
        ids[best] = 256 + (int32_t)best_rank;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof *ids);
        count--;
    }
}

/* Short pieces and long ones take different ways; both must give what the definition gives. */
static void test_merging_equals_its_definition(void **state)
{
    struct tiny tiny;

    (void)state;
    tiny_open(&tiny, "gpt-2");
    for (int round = 0; round < 400; round++) {
        char text[100];
        int32_t ids[100];
        size_t length = 1 + random_below(round % 2 ? 99 : 40);

        for (size_t i = 0; i < length; i++) { /* letters only: one piece */
            text[i] = "aaabchel"[random_below(8)];
            ids[i] = text[i];
        }
        assert_ids(tiny.tokenizer, text, length, 0, ids, naive_merge(ids, length));
    }
    tiny_close(&tiny);
}

static void test_special_tokens(void **state)
{
    struct tiny tiny;
    const unsigned as_text = ENCODE_SPECIALS_AS_TEXT;
    const int32_t *ends;

    (void)state;
    tiny_open(&tiny, "gpt-2");
    ASSERT_IDS(tiny.tokenizer, "a<|a|>c", 0, 'a', TINY_A, 'c');
    ASSERT_IDS(tiny.tokenizer, "<|a|>bc", 0, TINY_AB, 'c'); /* the longest */
    ASSERT_IDS(tiny.tokenizer, "<|<|a|>", 0, '<', '|', TINY_A);
    ASSERT_IDS(tiny.tokenizer, "<|a|", 0, '<', '|', 'a', '|');
    ASSERT_IDS(tiny.tokenizer, "<u><u>", as_text, TINY_USER, TINY_USER);
    ASSERT_IDS(tiny.tokenizer, "<|a|>b", as_text, '<', '|', 'a', '|', '>', 'b');
    assert_int_equal(tokenizer_find(tiny.tokenizer, "<|a|>"), TINY_A);
    assert_int_equal(tokenizer_find(tiny.tokenizer, "<|a|"), -1);
    assert_int_equal(tokenizer_find(tiny.tokenizer, "hello"), -1);
    assert_int_equal(tokenizer_find(tiny.tokenizer, ""), -1);
    assert_true(tokenizer_is_special(tiny.tokenizer, TINY_A));
    assert_false(tokenizer_is_special(tiny.tokenizer, TINY_USER));
    assert_false(tokenizer_is_special(tiny.tokenizer, HELLO));
    assert_int_equal(tokenizer_ends(tiny.tokenizer, &ends), 2);
    assert_int_equal(ends[0], TINY_AB); /* the file's */
    assert_int_equal(ends[1], TINY_END);
    tiny_close(&tiny);
}

static void test_added_tokens(void **state)
{
    struct tiny tiny;

    (void)state;
    tiny_open(&tiny, "gpt-2");
    assert_false(tokenizer_adds_bos(tiny.tokenizer));
    ASSERT_IDS(tiny.tokenizer, "a", ENCODE_ADD_SPECIAL, 'a');
    tiny_close(&tiny);

    tiny_open(&tiny, "llama-bpe"); /* whose makers add it */
    assert_true(tokenizer_adds_bos(tiny.tokenizer));
    assert_int_equal(tokenizer_bos(tiny.tokenizer), TINY_A);
    ASSERT_IDS(tiny.tokenizer, "a", ENCODE_ADD_SPECIAL, TINY_A, 'a');
    ASSERT_IDS(tiny.tokenizer, "a", 0, 'a');
    tiny_close(&tiny);

    gguf_stream_open(&tiny.stream);
    tiny_write(&tiny.stream, "llama-bpe");
    gguf_stream_flag(&tiny.stream, "tokenizer.ggml.add_bos_token", false);
    gguf_stream_flag(&tiny.stream, "tokenizer.ggml.add_eos_token", true);
    assert_int_equal(tiny_finish(&tiny, NULL), 0);
    ASSERT_IDS(tiny.tokenizer, "a", ENCODE_ADD_SPECIAL, 'a', TINY_AB);
    ASSERT_IDS(tiny.tokenizer, "", ENCODE_ADD_SPECIAL, TINY_AB);
    tiny_close(&tiny);
}

static void test_pre_tokenizers(void **state)
{
    struct tiny tiny;

    (void)state;
    tiny_open(&tiny, "smollm"); /* a merge never joins a digit to the space before it */
    ASSERT_IDS(tiny.tokenizer, " 12", 0, ' ', '1', '2');
    tiny_close(&tiny);
    tiny_open(&tiny, "qwen2"); /* form C first: e and U+0301 become one letter */
    ASSERT_IDS(tiny.tokenizer, "e\xcc\x81", 0, E_ACUTE);
    tiny_close(&tiny);
    tiny_open(&tiny, "gpt-2");
    ASSERT_IDS(tiny.tokenizer, "aaaa", 0, AAAA); /* aa aa */
    ASSERT_IDS(tiny.tokenizer, "aaa", 0, AAA);
    ASSERT_IDS(tiny.tokenizer, "ab", 0, AB);
    tiny_close(&tiny);
}

#define ILL_FORMED "a\x80 \xe2\x82 \xc0\xaf \xed\xa0\x80z\xf0"
#define U          "\xef\xbf\xbd"

static void test_ill_formed_utf8(void **state)
{
    struct tiny tiny;
    struct tokens tokens, expected;

    (void)state;
    tiny_open(&tiny, "gpt-2");
    tokens_init(&tokens, 1000);
    tokens_init(&expected, 1000);
    /* A lone continuation, a cut character, an overlong form (two parts), a surrogate (three). */
    tokenizer_encode(tiny.tokenizer, ILL_FORMED, strlen(ILL_FORMED), 0, &tokens, NULL);
    tokenizer_encode(tiny.tokenizer, "a" U " " U " " U U " " U U U "z" U,
                     strlen("a" U " " U " " U U " " U U U "z" U), 0, &expected, NULL);
    assert_true(expected.count > 20);
    assert_int_equal(tokens.count, expected.count);
    assert_memory_equal(tokens.ids, expected.ids, expected.count * sizeof *expected.ids);
    tokens_fini(&tokens);
    tokens_fini(&expected);
    tiny_close(&tiny);
}

/* A loop that looks for the best pair again and again would need hours for these. */
static void test_a_megabyte_of_anything(void **state)
{
    static const char *const units[] = {"a", " ", "\n", " \n", "abc", "<|", "\xcc\x81\xcc\xa3"};
    static const char *const names[] = {"gpt-2", "smollm", "qwen2", "llama-bpe", "deepseek-coder"};
    enum { BYTES = 1000000 };
    char *text = malloc(BYTES + 8);

    (void)state;
    assert_non_null(text);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t unit = strlen(units[u]), length = BYTES / unit * unit;

        for (size_t i = 0; i < length; i++)
            text[i] = units[u][i % unit];
        for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
            struct tiny tiny;
            struct tokens tokens;

            tiny_open(&tiny, names[n]);
            tokens_init(&tokens, 2 * BYTES);
            assert_int_equal(tokenizer_encode(tiny.tokenizer, text, length, 0, &tokens, NULL), 0);
            assert_true(tokens.count >= BYTES / 4);
            tokens_fini(&tokens);
            tiny_close(&tiny);
        }
    }
    free(text);
}

static void test_a_ceiling_of_tokens(void **state)
{
    struct tiny tiny;
    struct tokens tokens;
    struct fault fault = {0};

    (void)state;
    tiny_open(&tiny, "gpt-2");
    tokens_init(&tokens, 3);
    assert_int_equal(tokenizer_encode(tiny.tokenizer, "x y z", 5, 0, &tokens, &fault), E_TOO_LARGE);
    assert_int_equal(tokens.count, 3);
    assert_non_null(strstr(fault.message, "3 tokens"));
    assert_int_equal(tokens_put(&tokens, 1), E_TOO_LARGE);
    tokens_fini(&tokens);
    tiny_close(&tiny);
}

/* ---- sentencepiece ---- */

enum { SPM_UNKNOWN, SPM_BOS, SPM_EOS, SPM_BYTE_0, SPM_SPACE = 3 + 256, SPM_FIRST_LETTER };
static const char spm_letters[] = "abeht";
static const char *const spm_words[] = {"th",
                                        "the",
                                        "\xe2\x96\x81the",
                                        "he",
                                        "at",
                                        "\xe2\x96\x81"
                                        "a",
                                        "be"};
enum { SPM_WORDS = sizeof spm_words / sizeof *spm_words };

static void spm_write(struct gguf_stream *stream)
{
    uint32_t letters = sizeof spm_letters - 1, count = SPM_FIRST_LETTER + letters + SPM_WORDS;

    gguf_stream_string(stream, "tokenizer.ggml.model", "llama");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, count);
    gguf_stream_text(stream, "<unk>", 5);
    gguf_stream_text(stream, "<s>", 3);
    gguf_stream_text(stream, "</s>", 4);
    for (int byte = 0; byte < 256; byte++) {
        char text[8];

        snprintf(text, sizeof text, "<0x%02X>", byte);
        gguf_stream_text(stream, text, 6);
    }
    gguf_stream_text(stream, "\xe2\x96\x81", 3);
    for (uint32_t i = 0; i < letters; i++)
        gguf_stream_text(stream, &spm_letters[i], 1);
    for (int i = 0; i < SPM_WORDS; i++)
        gguf_stream_text(stream, spm_words[i], strlen(spm_words[i]));
    gguf_stream_array(stream, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (uint32_t id = 0; id < count; id++)
        gguf_stream_u32(stream, id == 0 ? 2 : id < 3 ? 3 : id < SPM_SPACE ? 6 : 1);
    gguf_stream_array(stream, "tokenizer.ggml.scores", GGUF_F32, count);
    for (uint32_t id = 0; id < count; id++) {
        float score = id < SPM_SPACE ? 0 : -(float)(id - SPM_SPACE);

        fwrite(&score, sizeof score, 1, stream->to);
    }
}

static void test_sentencepiece(void **state)
{
    const int32_t first = SPM_FIRST_LETTER + (int32_t)sizeof spm_letters - 1;
    const int32_t a = SPM_FIRST_LETTER, t = SPM_FIRST_LETTER + 4;
    struct tiny tiny;
    size_t bytes;

    (void)state;
    gguf_stream_open(&tiny.stream);
    spm_write(&tiny.stream);
    assert_int_equal(tiny_finish(&tiny, NULL), 0);
    assert_true(tokenizer_adds_bos(tiny.tokenizer));
    ASSERT_IDS(tiny.tokenizer, "the", 0, first + 2);
    ASSERT_IDS(tiny.tokenizer, "the", ENCODE_ADD_SPECIAL, SPM_BOS, first + 2);
    ASSERT_IDS(tiny.tokenizer, "atat", 0, SPM_SPACE, first + 4, first + 4);
    ASSERT_IDS(tiny.tokenizer, "a t", 0, first + 5, SPM_SPACE, t);
    ASSERT_IDS(tiny.tokenizer, "a\xe2\x96\x81t", 0, first + 5, SPM_SPACE, t); /* is a space too */
    ASSERT_IDS(tiny.tokenizer, "<s>a", 0, SPM_BOS, first + 5); /* a space before each stretch */
    ASSERT_IDS(tiny.tokenizer, "<0x41>", 0, SPM_SPACE, SPM_BYTE_0 + '<', SPM_BYTE_0 + '0',
               SPM_BYTE_0 + 'x', SPM_BYTE_0 + '4', SPM_BYTE_0 + '1', SPM_BYTE_0 + '>');
    ASSERT_IDS(tiny.tokenizer,
               "\xc3\xa9"
               "a",
               0, SPM_SPACE, SPM_BYTE_0 + 0xc3, SPM_BYTE_0 + 0xa9, a);
    assert_string_equal(
        tokenizer_piece(tiny.tokenizer, SPM_BYTE_0 + 10, &bytes)[0] == '\n' ? "y" : "n", "y");
    assert_int_equal(bytes, 1);
    assert_memory_equal(tokenizer_piece(tiny.tokenizer, first + 2, &bytes), " the", 4);
    assert_int_equal(bytes, 4);
    tiny_close(&tiny);
}

/* ---- what opening refuses ---- */

static void assert_refused(void (*write)(struct gguf_stream *stream), int code, const char *word)
{
    struct fault fault = {0};
    struct tiny tiny;

    gguf_stream_open(&tiny.stream);
    write(&tiny.stream);
    assert_int_equal(tiny_finish(&tiny, &fault), code);
    assert_null(tiny.tokenizer);
    if (!strstr(fault.message, word))
        fail_msg("'%s' does not say '%s'", fault.message, word);
    tiny_close(&tiny);
}

static void write_foreign_model(struct gguf_stream *stream)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "bert\xff");
}

static void write_foreign_pre(struct gguf_stream *stream)
{
    tiny_write(stream, "gpt-5\n");
}

static void write_no_tokens(struct gguf_stream *stream)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    tiny_write_merges(stream);
}

static void write_tokens_of_numbers(struct gguf_stream *stream)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_U32, 1);
    gguf_stream_u32(stream, 7);
}

static void write_no_merges(struct gguf_stream *stream)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    tiny_write_tokens(stream);
}

static void write_merge(struct gguf_stream *stream, const char *line)
{
    write_no_merges(stream);
    gguf_stream_array(stream, "tokenizer.ggml.merges", GGUF_STRING, 2);
    gguf_stream_text(stream, "l l", 3);
    gguf_stream_text(stream, line, strlen(line));
}

static void write_merge_of_one(struct gguf_stream *stream)
{
    write_merge(stream, "hello");
}

static void write_empty_merge(struct gguf_stream *stream)
{
    write_merge(stream, "");
}

static void write_merge_to_nothing(struct gguf_stream *stream)
{
    write_merge(stream, "x y");
}

/* Else the text "ab" would become a control token. */
static void write_merge_to_control(struct gguf_stream *stream)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, 3);
    gguf_stream_text(stream, "a", 1);
    gguf_stream_text(stream, "b", 1);
    gguf_stream_text(stream, "ab", 2);
    gguf_stream_array(stream, "tokenizer.ggml.token_type", GGUF_I32, 3);
    gguf_stream_u32(stream, 1);
    gguf_stream_u32(stream, 1);
    gguf_stream_u32(stream, 3);
    gguf_stream_array(stream, "tokenizer.ggml.merges", GGUF_STRING, 1);
    gguf_stream_text(stream, "a b", 3);
}

static void write_few_types(struct gguf_stream *stream)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, 2);
    gguf_stream_text(stream, "a", 1);
    gguf_stream_text(stream, "b", 1);
    gguf_stream_array(stream, "tokenizer.ggml.token_type", GGUF_I32, 1);
    gguf_stream_u32(stream, 1);
}

static void write_foreign_end(struct gguf_stream *stream)
{
    tiny_write(stream, "gpt-2");
    gguf_stream_number(stream, "tokenizer.ggml.eot_token_id", TINY_COUNT);
}

static void write_long_special(struct gguf_stream *stream)
{
    static char text[5000];

    memset(text, 'x', sizeof text);
    gguf_stream_string(stream, "tokenizer.ggml.model", "gpt2");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_stream_text(stream, text, sizeof text);
    gguf_stream_array(stream, "tokenizer.ggml.token_type", GGUF_I32, 1);
    gguf_stream_u32(stream, 3);
}

static void write_no_scores(struct gguf_stream *stream)
{
    gguf_stream_string(stream, "tokenizer.ggml.model", "llama");
    gguf_stream_array(stream, "tokenizer.ggml.tokens", GGUF_STRING, 1);
    gguf_stream_text(stream, "a", 1);
}

static void write_nothing(struct gguf_stream *stream)
{
    (void)stream;
}

static void test_what_opening_refuses(void **state)
{
    (void)state;
    assert_refused(write_nothing, E_UNSUPPORTED, "no tokenizer");
    assert_refused(write_foreign_model, E_UNSUPPORTED, "bert");
    assert_refused(write_foreign_pre, E_UNSUPPORTED, "smollm");
    assert_refused(write_no_tokens, E_CORRUPT, "tokenizer.ggml.tokens");
    assert_refused(write_tokens_of_numbers, E_CORRUPT, "tokenizer.ggml.tokens");
    assert_refused(write_no_merges, E_CORRUPT, "tokenizer.ggml.merges");
    assert_refused(write_merge_of_one, E_CORRUPT, "merge 1 ('hello')");
    assert_refused(write_empty_merge, E_CORRUPT, "merge 1");
    assert_refused(write_merge_to_nothing, E_CORRUPT, "merge 1");
    assert_refused(write_merge_to_control, E_CORRUPT, "merge 0");
    assert_refused(write_few_types, E_CORRUPT, "token_type");
    assert_refused(write_foreign_end, E_CORRUPT, "eot_token_id");
    assert_refused(write_long_special, E_CORRUPT, "5000 bytes");
    assert_refused(write_no_scores, E_CORRUPT, "scores");
}

/* Tokens twice, empty, with NULs, in no alphabet; types that nobody knows; no byte but one. */
static void test_an_odd_vocabulary_is_taken(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
        uint32_t type;
    } odd[] = {{"a", 1, 1},    {"a", 1, 1},  {"", 0, 1},       {"", 0, 3},
               {"x\0y", 3, 3}, {"aa", 2, 1}, {"\xff\0", 2, 1}, {"\xe2\x82\xac", 3, 77},
               {"x\0", 2, 4}};
    const uint32_t count = sizeof odd / sizeof *odd;
    struct tiny tiny;
    size_t bytes;

    (void)state;
    gguf_stream_open(&tiny.stream);
    gguf_stream_string(&tiny.stream, "tokenizer.ggml.model", "gpt2");
    gguf_stream_array(&tiny.stream, "tokenizer.ggml.tokens", GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_stream_text(&tiny.stream, odd[i].text, odd[i].bytes);
    gguf_stream_array(&tiny.stream, "tokenizer.ggml.token_type", GGUF_I32, count);
    for (uint32_t i = 0; i < count; i++)
        gguf_stream_u32(&tiny.stream, odd[i].type);
    gguf_stream_array(&tiny.stream, "tokenizer.ggml.merges", GGUF_STRING, 2);
    gguf_stream_text(&tiny.stream, "a a", 3);
    gguf_stream_text(&tiny.stream, "a a", 3);
    assert_int_equal(tiny_finish(&tiny, NULL), 0);
    assert_ids(tiny.tokenizer, "aba\0x\0yx\0a", 10, 0, (const int32_t[]){5, 4, 8, 1}, 4);
    for (int32_t id = -2; id < (int32_t)count + 2; id++)
        assert_non_null(tokenizer_piece(tiny.tokenizer, id, &bytes));
    assert_memory_equal(tokenizer_piece(tiny.tokenizer, 7, &bytes), "\xe2\x82\xac", 3);
    assert_false(tokenizer_is_special(tiny.tokenizer, -1));
    assert_false(tokenizer_is_special(tiny.tokenizer, (int32_t)count));
    tiny_close(&tiny);
}

/* One byte of the file changed, at every place: refused or used, never a crash. */
static void test_flipped_bytes(void **state)
{
    struct tiny tiny;
    size_t size;

    (void)state;
    for (int spm = 0; spm < 2; spm++) {
        gguf_stream_open(&tiny.stream);
        if (spm)
            spm_write(&tiny.stream);
        else
            tiny_write(&tiny.stream, "smollm");
        assert_int_equal(tiny_finish(&tiny, NULL), 0);
        size = tiny.stream.size;
        for (size_t at = 24; at < size; at++) {
            char *copy = malloc(size);
            struct gguf *file = NULL;
            struct tokenizer *tokenizer = NULL;
            struct tokens tokens;

            assert_non_null(copy);
            memcpy(copy, tiny.stream.bytes, size);
            copy[at] = (char)(copy[at] ^ (1 << random_below(8)));
            tokens_init(&tokens, 100);
            if (gguf_open_memory(copy, size, "flipped", &file, NULL) == 0 &&
                tokenizer_open_gguf(file, &tokenizer, NULL) == 0)
                tokenizer_encode(tokenizer, "the hello <|a|>b <s> \xc3\xa9", 24, 1, &tokens, NULL);
            for (size_t i = 0; i < tokens.count; i++)
                assert_in_range(tokens.ids[i], 0, tokenizer_count(tokenizer) - 1);
            tokens_fini(&tokens);
            tokenizer_close(tokenizer);
            gguf_close(file);
            free(copy);
        }
        tiny_close(&tiny);
    }
}

static void test_failing_allocations(void **state)
{
    static const char text[] = "hello \xff <|a|> aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct tokenizer *tokenizer = NULL;
    struct tiny tiny;

    (void)state;
    tiny_open(&tiny, "qwen2");
    for (uint64_t nth = 1;; nth++) {
        int r;

        failing_malloc_arm(nth);
        r = tokenizer_open_gguf(tiny.file, &tokenizer, NULL);
        if (!failing_malloc_disarm())
            break;
        assert_int_equal(r, E_MEMORY);
        assert_null(tokenizer);
    }
    for (uint64_t nth = 1;; nth++) {
        struct tokens tokens;
        int r;

        tokens_init(&tokens, 1000);
        failing_malloc_arm(nth);
        r = tokenizer_encode(tokenizer, text, sizeof text - 1, 0, &tokens, NULL);
        tokens_fini(&tokens);
        if (!failing_malloc_disarm())
            break;
        assert_int_equal(r, E_MEMORY);
        assert_true(nth < 1000);
    }
    tokenizer_close(tokenizer);
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_by_rank),
        cmocka_unit_test(test_a_merge_that_comes_twice_keeps_its_first_rank),
        cmocka_unit_test(test_whole_pieces),
        cmocka_unit_test(test_merging_equals_its_definition),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_added_tokens),
        cmocka_unit_test(test_pre_tokenizers),
        cmocka_unit_test(test_ill_formed_utf8),
        cmocka_unit_test(test_a_megabyte_of_anything),
        cmocka_unit_test(test_a_ceiling_of_tokens),
        cmocka_unit_test(test_sentencepiece),
        cmocka_unit_test(test_what_opening_refuses),
        cmocka_unit_test(test_an_odd_vocabulary_is_taken),
        cmocka_unit_test(test_flipped_bytes),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests_name("engine/text/tokenizer", tests, NULL, NULL);
}
