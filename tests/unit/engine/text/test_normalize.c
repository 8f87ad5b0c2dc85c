/* test_normalize.c -- protects: form C equal to utf8proc's own, for any mix of letters and marks,
 * and in a time that a long run of marks does not blow up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "engine/text/normalize.h"

static uint32_t random_below(uint32_t bound)
{
    static uint64_t random_state = 17;

    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

/* Letters that compose, decompose or are excluded from composition, Hangul, marks of many classes.
 * */
static size_t put_character(uint8_t *to)
{
    static const int32_t odd[] = {0x958,  0x212b, 0x344,   0x1e9b, 0x1100, 0x1161, 0x11a8, 0xac00,
                                  0xac01, 0xfb2e, 0x1d160, 0x1f82, 0x3099, 0x2adc, 0xe9,   0x1e69};
    int32_t character;

    switch (random_below(4)) {
    case 0:
        character = 'a' + (int32_t)random_below(26);
        break;
    case 1:
        character = odd[random_below(sizeof odd / sizeof *odd)];
        break;
    case 2:
        do
            character = (int32_t)random_below(0x110000);
        while (character >= 0xd800 && character < 0xe000);
        break;
    default:
        character = 0x300 + (int32_t)random_below(0x70);
        break;
    }
    return (size_t)utf8proc_encode_char(character, to);
}

static void test_equals_utf8proc(void **state)
{
    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint8_t text[200], *expected = NULL;
        size_t bytes = 0;
        ssize_t expected_bytes;
        struct buf normal;

        for (uint32_t i = random_below(40); i > 0; i--)
            bytes += put_character(text + bytes);
        expected_bytes =
            utf8proc_map(text, (ssize_t)bytes, &expected, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        assert_true(expected_bytes >= 0);
        buf_init(&normal, 3 * bytes);
        assert_int_equal(normalize_append(FORM_C, &normal, (const char *)text, bytes), 0);
        assert_int_equal(normal.bytes, expected_bytes);
        if (expected_bytes > 0)
            assert_memory_equal(normal.data, expected, expected_bytes);
        if (normalize_is_plain(FORM_C, (const char *)text, bytes))
            assert_true(normal.bytes == bytes && (bytes == 0 || !memcmp(normal.data, text, bytes)));
        buf_fini(&normal);
        free(expected);
    }
}

static void test_a_megabyte_of_marks(void **state)
{
    enum { PAIRS = 250000 };
    char *text = malloc(4 * PAIRS);
    struct buf normal;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < PAIRS; i++)
        memcpy(text + 4 * i, "\xcc\x81\xcc\xa3", 4); /* above, then below: to be exchanged */
    buf_init(&normal, 12 * PAIRS);
    assert_int_equal(normalize_append(FORM_C, &normal, text, 4 * PAIRS), 0);
    assert_int_equal(normal.bytes, 4 * PAIRS);
    assert_memory_equal(normal.data, "\xcc\xa3\xcc\xa3", 4);
    assert_memory_equal(normal.data + 4 * PAIRS - 4, "\xcc\x81\xcc\x81", 4);
    buf_fini(&normal);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_utf8proc),
        cmocka_unit_test(test_a_megabyte_of_marks),
    };

    return cmocka_run_group_tests_name("engine/text/normalize", tests, NULL, NULL);
}
