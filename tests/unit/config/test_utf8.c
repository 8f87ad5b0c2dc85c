/* Protects: every character of Unicode and nothing else is well-formed, and ill-formed parts are
 * as long as the standard recommends (its examples in chapter 3.9, tables 3-8 to 3-11). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/utf8.h"

static size_t encode(uint32_t code, char text[static 4])
{
    if (code < 0x80) {
        text[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        text[0] = (char)(0xc0 | code >> 6);
        text[1] = (char)(0x80 | (code & 63));
        return 2;
    }
    if (code < 0x10000) {
        text[0] = (char)(0xe0 | code >> 12);
        text[1] = (char)(0x80 | (code >> 6 & 63));
        text[2] = (char)(0x80 | (code & 63));
        return 3;
    }
    text[0] = (char)(0xf0 | code >> 18);
    text[1] = (char)(0x80 | (code >> 12 & 63));
    text[2] = (char)(0x80 | (code >> 6 & 63));
    text[3] = (char)(0x80 | (code & 63));
    return 4;
}

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t code = 0; code < 0x120000; code++) {
        char text[5] = "";
        size_t bytes = encode(code, text), part = 0;
        bool good = code < 0x110000 && (code < 0xd800 || code > 0xdfff);
        bool cut = true;
        char put[5] = "";

        if (good) {
            assert_int_equal(utf8_put(code, put), bytes);
            assert_memory_equal(put, text, sizeof put);
        }
        assert_int_equal(utf8_next(text, bytes, &part, &cut), good);
        assert_int_equal(part, good ? bytes : 1);
        assert_false(cut);
        for (size_t shorter = 1; good && shorter < bytes; shorter++) {
            assert_false(utf8_next(text, shorter, &part, &cut));
            assert_int_equal(part, shorter);
            assert_true(cut);
        }
    }
}

static void test_maximal_parts(void **state)
{
    static const struct {
        const char *text;
        const char *parts; /* length of each; capital X: a good character of one byte */
    } cases[] = {
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "11111111X"},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "11111111X"},
        {"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "11111X11X"},
        {"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "2132X"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bytes = strlen(cases[i].text), at = 0, count = 0;

        while (at < bytes) {
            size_t part;
            bool good = utf8_next(cases[i].text + at, bytes - at, &part, NULL);
            char expected = cases[i].parts[count++];

            assert_int_equal(good, expected == 'X');
            assert_int_equal(part, expected == 'X' ? 1 : expected - '0');
            at += part;
        }
        assert_int_equal(count, strlen(cases[i].parts));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_maximal_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
