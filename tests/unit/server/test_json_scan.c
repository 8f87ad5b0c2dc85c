/* test_json_scan.c -- protects: the automaton ends a value exactly where a JSON parser would, and
 * refuses what one refuses: tool calls are cut out of text by it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/json.h"
#include "server/json_scan.h"

enum { ROUNDS = 200000, BYTES_MAX = 64 };

/* Where the value ends: after so many bytes; 0: it is none, or not all of one. A number that the
 * text ends with has ended too. */
static size_t scan_end(const char *text, size_t bytes)
{
    struct json_scan scan;

    json_scan_init(&scan);
    for (size_t i = 0; i < bytes; i++) {
        switch (json_scan_byte(&scan, text[i])) {
        case JSON_SCAN_BAD:
            return 0;
        case JSON_SCAN_END:
            return i + 1;
        case JSON_SCAN_END_BEFORE:
            return i;
        case JSON_SCAN_MORE:
            break;
        }
    }
    return json_scan_may_end(&scan) ? bytes : 0;
}

static void check(const char *text, size_t end)
{
    if (scan_end(text, strlen(text)) != end)
        fail_msg("%s ends at %zu, not %zu", text, scan_end(text, strlen(text)), end);
}

static void test_values(void **state)
{
    (void)state;
    check("{}", 2);
    check(" [1, {\"a\": null}] x", 17);
    check("\"a\\\"b\" \"", 6);
    check("-0.5e+3,", 7);
    check("10", 2);
    check("true}", 4);
    check("\"\\u00e9\"", 8);
    check("\"\n\"", 3); /* a control character: whoever passes it on escapes it */
    check("\"\xc3\xa9\"", 4);
    check("{\"a\":1,}", 0);
    check("[1,]", 0);
    check("[1 2]", 0);
    check("{\"a\" 1}", 0);
    check("{a:1}", 0);
    check("{\"a\":}", 0);
    check("]", 0);
    check("01", 0);
    check("-", 0);
    check("1.", 0);
    check("1e", 0);
    check(".5", 0);
    check("+1", 0);
    check("nul", 0);
    check("nulx", 0);
    check("True", 0);
    check("\"\\x41\"", 0);
    check("\"\\u12g4\"", 0);
    check("'a'", 0);
    check("\xc3\xa9", 0);
    check("", 0);
}

static void test_depth(void **state)
{
    char text[2 * JSON_SCAN_DEPTH_MAX + 3];

    (void)state;
    memset(text, '[', JSON_SCAN_DEPTH_MAX);
    memset(text + JSON_SCAN_DEPTH_MAX, ']', JSON_SCAN_DEPTH_MAX);
    assert_int_equal(scan_end(text, 2 * (size_t)JSON_SCAN_DEPTH_MAX), 2 * JSON_SCAN_DEPTH_MAX);
    memset(text, '[', JSON_SCAN_DEPTH_MAX + 1);
    memset(text + JSON_SCAN_DEPTH_MAX + 1, ']', JSON_SCAN_DEPTH_MAX + 1);
    assert_int_equal(scan_end(text, 2 * (size_t)JSON_SCAN_DEPTH_MAX + 2), 0);
}

static void test_in_string(void **state)
{
    static const char text[] = "{\"a\\n\":\"\\u0041\"}", inside[] = "0111100111111100";
    struct json_scan scan;

    (void)state;
    json_scan_init(&scan);
    for (size_t i = 0; i < sizeof text - 1; i++) {
        (void)json_scan_byte(&scan, text[i]);
        assert_int_equal(json_scan_in_string(&scan), inside[i] == '1');
    }
}

static uint32_t random_below(uint32_t bound)
{
    static uint64_t random_state = 7;

    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

/* jansson judges whole texts, which must then end where the scanner says. */
static bool jansson_takes(const char *text, size_t bytes)
{
    json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);

    json_decref(value);
    return value != NULL;
}

static void test_random_texts(void **state)
{
    static const char *const parts[] = {"{", "}",  "[",  "]",     ",", ":",      "\"a\"", "\"",
                                        "1", "0",  "-",  ".",     "e", "+",      "true",  "null",
                                        " ", "\n", "\\", "u00e9", "b", "\"k\":1"};
    size_t taken = 0;

    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        char text[BYTES_MAX] = "";
        size_t bytes = 0, end;
        bool whole;

        for (unsigned n = 1 + random_below(7); n > 0; n--) {
            const char *part = parts[random_below(sizeof parts / sizeof *parts)];

            memcpy(text + bytes, part, strlen(part));
            bytes += strlen(part);
        }
        end = scan_end(text, bytes);
        if (memchr(text, '\n', bytes) && memchr(text, '"', bytes))
            continue; /* perhaps inside a string, which jansson does not take */
        whole = end > 0 && strspn(text + end, " \n") == bytes - end;
        if (whole != jansson_takes(text, bytes))
            fail_msg("'%s' ends at %zu", text, end);
        taken += whole;
    }
    assert_true(taken > ROUNDS / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_in_string),
        cmocka_unit_test(test_random_texts),
    };

    return cmocka_run_group_tests_name("server/json_scan", tests, NULL, NULL);
}
