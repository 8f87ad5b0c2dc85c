/* Protects: a buffer never passes its ceiling and stays whole when it fails; JSON text written by
 * it is what RFC 8259 allows. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "config/base/buf.h"
#include "tests/lib/failing_malloc.h"

static void test_ceiling_is_exact(void **state)
{
    struct buf buf;

    (void)state;
    for (size_t ceiling = 0; ceiling < 300; ceiling++) {
        buf_init(&buf, ceiling);
        for (size_t i = 0; i < ceiling; i++)
            buf_byte(&buf, 'x');
        assert_false(buf_failed(&buf));
        assert_int_equal(buf.bytes, ceiling);
        buf_byte(&buf, 'y');
        assert_true(buf_failed(&buf));
        assert_int_equal(buf.bytes, ceiling);
        assert_int_equal(strlen(buf_string(&buf)), ceiling);
        assert_true(buf.room <= ceiling + 1);
        buf_fini(&buf);
    }
}

static void test_failed_stays_failed_until_reset(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 8);
    buf_text(&buf, "12345");
    buf_text(&buf, "6789"); /* does not fit: nothing of it is there */
    buf_text(&buf, "6");    /* would fit, but comes after a failure */
    assert_true(buf_failed(&buf));
    assert_string_equal(buf_string(&buf), "12345");
    buf_format(&buf, "%s", "");
    buf_json_string(&buf, "", 0);
    assert_string_equal(buf_string(&buf), "12345");
    buf_reset(&buf);
    assert_false(buf_failed(&buf));
    assert_string_equal(buf_string(&buf), "");
    buf_text(&buf, "12345678");
    assert_false(buf_failed(&buf));
    buf_fini(&buf);
    assert_string_equal(buf_string(&buf), "");
}

static void test_format_drop_cut(void **state)
{
    struct buf buf;
    char long_text[1000];

    (void)state;
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    buf_init(&buf, 4096);
    buf_format(&buf, "%d-%s|", 7, long_text);
    assert_int_equal(buf.bytes, 999 + 3);
    buf_u64(&buf, 0);
    buf_u64(&buf, UINT64_MAX);
    buf_drop(&buf, 1002);
    assert_string_equal(buf_string(&buf), "018446744073709551615");
    buf_drop(&buf, 0);
    buf_cut(&buf, 4);
    assert_string_equal(buf_string(&buf), "0184");
    buf_drop(&buf, 4);
    assert_string_equal(buf_string(&buf), "");
    buf_fini(&buf);
}

static void test_json_strings(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
        const char *json;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain \xc3\xa4 \xf0\x9f\x98\x80", 13, "\"plain \xc3\xa4 \xf0\x9f\x98\x80\""},
        {"\"\\/", 3, "\"\\\"\\\\/\""},
        {"\b\f\n\r\t", 5, "\"\\b\\f\\n\\r\\t\""},
        {"\0\x1f", 2, "\"\\u0000\\u001f\""},
        {"a\xff\xfe", 3, "\"a\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xe2\x82 \xe2\x82", 5, "\"\xef\xbf\xbd \xef\xbf\xbd\""}, /* maximal parts: one each */
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* a surrogate */
        {"\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong */
        {"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf buf;

        buf_init(&buf, 1000);
        buf_json_string(&buf, cases[i].text, cases[i].bytes);
        assert_string_equal(buf_string(&buf), cases[i].json);
        buf_fini(&buf);
    }
}

/* Every string of two bytes comes back as jansson reads it. */
static void test_json_strings_are_json(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 1000);
    for (unsigned pair = 0; pair < 65536; pair++) {
        char text[2] = {(char)(pair >> 8), (char)pair};
        json_t *value;

        buf_reset(&buf);
        buf_json_string(&buf, text, 2);
        value = json_loadb(buf.data, buf.bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_non_null(value);
        if (pair >> 8 < 0x80 && (pair & 0xff) < 0x80) {
            assert_int_equal(json_string_length(value), 2);
            assert_memory_equal(json_string_value(value), text, 2);
        }
        json_decref(value);
    }
    buf_fini(&buf);
}

static void test_no_half_json_string(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 6);
    buf_text(&buf, "ab");
    buf_json_string(&buf, "12345", 5);
    assert_true(buf_failed(&buf));
    assert_string_equal(buf_string(&buf), "ab");
    buf_fini(&buf);
}

static void test_json_numbers(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 1000);
    buf_json_number(&buf, -0.125, 6);
    buf_byte(&buf, ' ');
    buf_json_number(&buf, 3, 6);
    buf_byte(&buf, ' ');
    buf_json_number(&buf, -INFINITY, 6);
    buf_byte(&buf, ' ');
    buf_json_number(&buf, INFINITY, 6);
    buf_byte(&buf, ' ');
    buf_json_number(&buf, NAN, 6);
    assert_string_equal(buf_string(&buf), "-0.125 3 -9999.0 9999.0 -9999.0");
    buf_fini(&buf);
}

static void test_fixed_memory(void **state)
{
    char memory[8];
    struct buf buf;

    (void)state;
    failing_malloc_arm(1);
    buf_init_fixed(&buf, memory, sizeof memory);
    buf_text(&buf, "1234567");
    assert_false(buf_failed(&buf));
    buf_text(&buf, "8");
    assert_true(buf_failed(&buf));
    assert_string_equal(buf_string(&buf), "1234567");
    buf_fini(&buf);
    assert_false(failing_malloc_disarm());
    assert_int_equal(failing_malloc_count(), 0);
}

static void test_failing_allocation(void **state)
{
    struct buf buf;

    (void)state;
    buf_init(&buf, 1 << 20);
    buf_text(&buf, "kept");
    failing_malloc_arm(1);
    for (int i = 0; i < 100; i++)
        buf_text(&buf, "0123456789");
    assert_true(failing_malloc_disarm());
    assert_true(buf_failed(&buf));
    assert_memory_equal(buf_string(&buf), "kept0123456789", 14);
    assert_int_equal((buf.bytes - 4) % 10, 0);
    buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ceiling_is_exact),
        cmocka_unit_test(test_failed_stays_failed_until_reset),
        cmocka_unit_test(test_format_drop_cut),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_strings_are_json),
        cmocka_unit_test(test_no_half_json_string),
        cmocka_unit_test(test_json_numbers),
        cmocka_unit_test(test_fixed_memory),
        cmocka_unit_test(test_failing_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
