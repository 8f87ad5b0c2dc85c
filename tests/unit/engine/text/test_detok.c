/* test_detok.c -- protects: however tokens cut the bytes of a text, what comes out is the same, is
 * UTF-8 after every token, never lags behind what is certain, and equals the text with one U+FFFD
 * for each ill-formed part. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/utf8.h"
#include "engine/text/detok.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/tiny_vocabulary.h"

struct tiny {
    struct gguf_stream stream;
    struct gguf *file;
    struct tokenizer *tokenizer;
};

static int tiny_open(void **state)
{
    static struct tiny tiny;

    gguf_stream_open(&tiny.stream);
    tiny_write(&tiny.stream, "gpt-2");
    tiny.file = gguf_stream_finish(&tiny.stream);
    *state = &tiny;
    return tokenizer_open_gguf(tiny.file, &tiny.tokenizer, NULL);
}

static int tiny_close(void **state)
{
    struct tiny *tiny = *state;

    tokenizer_close(tiny->tokenizer);
    gguf_close(tiny->file);
    free(tiny->stream.bytes);
    return 0;
}

static uint32_t random_below(uint32_t bound)
{
    static uint64_t random_state = 11;

    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

/* The text that bytes are, all at once. */
static void reference(const uint8_t *bytes, size_t count, struct buf *text)
{
    for (size_t at = 0, taken; at < count; at += taken) {
        if (utf8_next((const char *)bytes + at, count - at, &taken, NULL))
            buf_put(text, bytes + at, taken);
        else
            buf_text(text, "\xef\xbf\xbd");
    }
}

static bool is_utf8(const struct buf *text)
{
    for (size_t at = 0, taken; at < text->bytes; at += taken)
        if (!utf8_next(text->data + at, text->bytes - at, &taken, NULL))
            return false;
    return true;
}

/* Random bytes, mostly parts of characters, a token for each byte or pair. */
static void test_any_bytes_come_out_as_utf8(void **state)
{
    static const char *const parts[] = {"a",
                                        "\xc3\xa9",
                                        "\xe2\x82\xac",
                                        "\xf0\x9f\x98\x80",
                                        "\xe2\x82",
                                        "\xf0\x9f",
                                        "\x80",
                                        "\xc0\xaf",
                                        "\xed\xa0\x80",
                                        "\xf4\x90",
                                        "\xf0\x80\x80\x80",
                                        "\xff",
                                        "\xef\xbf\xbd"};
    const struct tiny *tiny = *state;

    for (int round = 0; round < 5000; round++) {
        uint8_t bytes[64];
        size_t count = 0;
        struct buf text, expected;
        struct detok detok;

        while (count < 56) {
            const char *part = parts[random_below(sizeof parts / sizeof *parts)];
            size_t length = strlen(part);

            if (random_below(4) == 0)
                length = random_below((uint32_t)length) + 1;
            memcpy(bytes + count, part, length);
            count += length;
            if (random_below(20) == 0)
                break;
        }
        buf_init(&text, 1000);
        buf_init(&expected, 1000);
        detok_init(&detok, tiny->tokenizer, false);
        for (size_t i = 0; i < count; i++) {
            size_t before = text.bytes;

            detok_feed(&detok, bytes[i], &text); /* the token of a byte has its number */
            assert_true(is_utf8(&text));
            assert_true(bytes[i] >= 0x80 || text.bytes > before); /* ASCII never waits */
        }
        detok_flush(&detok, &text);
        detok_flush(&detok, &text); /* twice says nothing more */
        reference(bytes, count, &expected);
        assert_int_equal(text.bytes, expected.bytes);
        assert_memory_equal(text.data, expected.data, expected.bytes);
        buf_fini(&text);
        buf_fini(&expected);
    }
}

/* A character is shown with the token that completes it, not later. */
static void test_nothing_lags(void **state)
{
    static const char euro[] = "\xe2\x82\xac";
    const struct tiny *tiny = *state;
    struct detok detok;
    struct buf text;

    buf_init(&text, 100);
    detok_init(&detok, tiny->tokenizer, false);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(text.bytes, 0);
        detok_feed(&detok, (uint8_t)euro[i], &text);
    }
    assert_string_equal(buf_string(&text), euro);
    detok_feed(&detok, 0xe2, &text);
    detok_feed(&detok, 0x82, &text);
    detok_feed(&detok, 'x', &text); /* what waited can never be a character: known at once */
    assert_string_equal(buf_string(&text), "\xe2\x82\xac\xef\xbf\xbdx");
    detok_feed(&detok, 0xff, &text); /* starts no character */
    assert_string_equal(buf_string(&text), "\xe2\x82\xac\xef\xbf\xbdx\xef\xbf\xbd");
    buf_fini(&text);
}

static void test_special_tokens(void **state)
{
    const struct tiny *tiny = *state;
    const int32_t ids[] = {'h', TINY_A, 0xc3, TINY_END, 0xa9, TINY_USER, 0xe2};
    struct detok detok;
    struct buf text;

    buf_init(&text, 1000);
    detok_init(&detok, tiny->tokenizer, true);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        detok_feed(&detok, ids[i], &text);
    detok_flush(&detok, &text);
    /* A hidden token leaves no trace: the character around it stays whole. */
    assert_string_equal(buf_string(&text), "h\xc3\xa9<u>\xef\xbf\xbd");
    buf_reset(&text);
    detok_init(&detok, tiny->tokenizer, false);
    for (size_t i = 0; i < 5; i++)
        detok_feed(&detok, ids[i], &text);
    assert_string_equal(buf_string(&text), "h<|a|>\xef\xbf\xbd<|im_end|>\xef\xbf\xbd");
    buf_fini(&text);
}

static void test_ids_that_are_none(void **state)
{
    const struct tiny *tiny = *state;
    struct detok detok;
    struct buf text;

    buf_init(&text, 100);
    detok_init(&detok, tiny->tokenizer, true);
    detok_feed(&detok, -1, &text);
    detok_feed(&detok, TINY_COUNT, &text);
    detok_feed(&detok, INT32_MIN, &text);
    detok_flush(&detok, &text);
    assert_int_equal(text.bytes, 0);
    buf_fini(&text);
}

static void test_pieces(void **state)
{
    const struct tiny *tiny = *state;
    struct buf text;

    buf_init(&text, 100);
    detok_piece(tiny->tokenizer, 259, &text);
    detok_piece(tiny->tokenizer, 0xc3, &text);
    detok_piece(tiny->tokenizer, TINY_A, &text);
    assert_string_equal(buf_string(&text), "hello\xef\xbf\xbd<|a|>");
    buf_fini(&text);
}

static void test_feeding_allocates_nothing(void **state)
{
    const struct tiny *tiny = *state;
    char memory[256];
    struct detok detok;
    struct buf text;

    buf_init_fixed(&text, memory, sizeof memory);
    detok_init(&detok, tiny->tokenizer, true);
    failing_malloc_arm(UINT64_MAX);
    for (int32_t id = 0; id < 64; id++)
        detok_feed(&detok, id * 4, &text);
    assert_int_equal(failing_malloc_count(), 0);
    failing_malloc_disarm();
    assert_true(text.bytes > 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_bytes_come_out_as_utf8),
        cmocka_unit_test(test_nothing_lags),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_ids_that_are_none),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_feeding_allocates_nothing),
    };

    return cmocka_run_group_tests_name("engine/text/detok", tests, tiny_open, tiny_close);
}
