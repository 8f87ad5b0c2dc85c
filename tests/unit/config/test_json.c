/* Protects: bad JSON is refused with its place, depth is bounded before a tree is built, and fields
 * follow one rule for null, integers and ranges. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/json.h"
#include "tests/lib/failing_malloc.h"

static json_t *parse(const char *text)
{
    struct fault fault = {0};
    json_t *value = NULL;

    if (json_parse(text, strlen(text), &value, &fault) < 0)
        fail_msg("%s: %s", text, fault.message);
    return value;
}

static void assert_refused(const char *text, size_t bytes, const char *expected)
{
    struct fault fault = {0};
    json_t *value = NULL;

    assert_int_equal(json_parse(text, bytes, &value, &fault), E_INVALID);
    assert_null(value);
    if (!strstr(fault.message, expected))
        fail_msg("'%s' does not say '%s'", fault.message, expected);
}

static void test_broken(void **state)
{
    static const struct {
        const char *text;
        const char *expected;
    } cases[] = {
        {"", "it is empty"},
        {"{\"a\":1", "line 1"},
        {"{\n  \"a\": }", "line 2"},
        {"{} x", "end of file expected"},
        {"{\"a\":NaN}", "line 1"},
        {"{\"a\":Infinity}", "line 1"},
        {"{\"a\":1e999}", "too large for a double"},
        {"{\"seed\":18446744073709551615}", "too large for a signed 64-bit integer"},
        {"{\"a\":\"\\ud800\"}", "line 1"},
        {"{\"a\":\"\xff\"}", "line 1"},
        {"{\"a\":\"\\u0000\"}", "\\u0000 is not taken"},
        {"{'a':1}", "line 1"},
        {"[1,]", "line 1"},
        {"{\"a\":01}", "line 1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_refused(cases[i].text, strlen(cases[i].text), cases[i].expected);
    assert_refused("{\"a\":1}\0", 8, "line 1");
    assert_refused(NULL, 0, "it is empty");
}

static void test_depth(void **state)
{
    char text[100000];
    json_t *value = NULL;

    (void)state;
    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    assert_int_equal(json_parse(text, 2 * JSON_DEPTH_MAX, &value, NULL), 0);
    json_decref(value);
    memset(text, '[', sizeof text);
    assert_refused(text, sizeof text, "64 levels deep at line 1, column 65");
    /* Brackets in strings, after escaped quotes too, are text. */
    value = parse(
        "{\"a\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[[[\"}");
    json_decref(value);
    /* Many, but side by side. */
    text[0] = '[';
    for (size_t i = 1; i + 3 < sizeof text; i += 3)
        memcpy(text + i, "{},", 3);
    memcpy(text + sizeof text - 3, "{}]", 3);
    text[sizeof text - 4] = ',';
    assert_int_equal(json_parse(text, 1 + 3 * 100 - 1, &value, NULL), E_INVALID); /* cut */
    text[3 * 100] = ']';
    assert_int_equal(json_parse(text, 3 * 100 + 1, &value, NULL), 0);
    assert_int_equal(json_array_size(value), 100);
    json_decref(value);
}

static void test_integers(void **state)
{
    static const struct {
        const char *text;
        int result;
        int64_t value;
    } cases[] = {
        {"16", 1, 16},
        {"16.0", 1, 16},
        {"1.6e1", 1, 16},
        {"-0.0", 1, 0},
        {"16.5", -1, 0},
        {"\"16\"", -1, 0},
        {"true", -1, 0},
        {"null", 0, 0},
        {"[]", -1, 0},
        {"9007199254740993", 1, 9007199254740993},
        {"9223372036854775807", 1, INT64_MAX},
        {"-9223372036854775808", 1, INT64_MIN},
        {"9223372036854775808.0", -1, 0},
        {"-9.3e18", -1, 0},
        {"1e300", -1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[64];
        struct fault fault = {0};
        int64_t value = -77;
        json_t *object;
        int r;

        snprintf(text, sizeof text, "{\"n\":%s}", cases[i].text);
        object = parse(text);
        r = json_get_int(object, "options.", "n", INT64_MIN, INT64_MAX, &value, &fault);
        if (cases[i].result < 0) {
            assert_int_equal(r, E_INVALID);
            assert_string_equal(fault.field, "options.n");
            assert_non_null(strstr(fault.message, "options.n"));
        } else {
            assert_int_equal(r, cases[i].result);
        }
        assert_int_equal(value, cases[i].result == 1 ? cases[i].value : -77);
        json_decref(object);
    }
}

static void test_ranges(void **state)
{
    json_t *object = parse("{\"n\":0,\"m\":101,\"huge\":1e30,\"r\":2.5,\"s\":-1}");
    struct fault fault;
    int64_t integer = -77;
    double real = -77;

    (void)state;
    assert_int_equal(json_get_int(object, "", "n", 0, 100, &integer, &fault), 1);
    assert_int_equal(json_get_int(object, "", "n", 1, 100, &integer, &fault), E_INVALID);
    assert_string_equal(fault.message, "'n' must be between 1 and 100, not 0");
    assert_int_equal(json_get_int(object, "", "m", 1, 101, &integer, &fault), 1);
    assert_int_equal(json_get_int(object, "", "m", 1, 100, &integer, &fault), E_INVALID);
    assert_int_equal(json_get_int(object, "", "s", 0, INT64_MAX, &integer, &fault), E_INVALID);
    assert_string_equal(fault.message, "'s' must be at least 0, not -1");
    assert_int_equal(json_get_int(object, "", "huge", 0, INT64_MAX, &integer, &fault), E_INVALID);
    assert_string_equal(fault.message,
                        "'huge' must be between 0 and 9223372036854775807, not 1e+30");
    assert_int_equal(json_get_real(object, "", "r", 0, 2.5, &real, &fault), 1);
    assert_true(real == 2.5);
    assert_int_equal(json_get_real(object, "", "r", 0, 2, &real, &fault), E_INVALID);
    assert_string_equal(fault.message, "'r' must be between 0 and 2, not 2.5");
    assert_int_equal(json_get_real(object, "", "n", 0, 2, &real, &fault),
                     1); /* an integer is one too */
    json_decref(object);
}

static void test_types_null_and_absent(void **state)
{
    json_t *object = parse("{\"b\":true,\"s\":\"x\",\"o\":{},\"a\":[],\"none\":null,\"n\":1}");
    struct fault fault;
    const char *text = NULL;
    size_t bytes = 0;
    json_t *value = NULL;
    double real = 5;
    bool flag = false;

    (void)state;
    assert_int_equal(json_get_bool(object, "", "b", &flag, &fault), 1);
    assert_true(flag);
    assert_int_equal(json_get_string(object, "", "s", &text, &bytes, &fault), 1);
    assert_int_equal(bytes, 1);
    assert_int_equal(json_get_object(object, "", "o", &value, &fault), 1);
    assert_int_equal(json_get_array(object, "", "a", &value, &fault), 1);
    for (int i = 0; i < 2; i++) {
        const char *key = i == 0 ? "none" : "absent";

        assert_int_equal(json_get_bool(object, "", key, &flag, &fault), 0);
        assert_int_equal(json_get_string(object, "", key, &text, &bytes, &fault), 0);
        assert_int_equal(json_get_real(object, "", key, 0, 1, &real, &fault), 0);
        assert_int_equal(json_get_object(object, "", key, &value, &fault), 0);
        assert_int_equal(json_get_array(object, "", key, &value, &fault), 0);
    }
    assert_true(flag && real == 5);
    assert_int_equal(json_get_bool(object, "", "n", &flag, &fault), E_INVALID); /* 1 is not true */
    assert_int_equal(json_get_string(object, "", "n", &text, &bytes, &fault), E_INVALID);
    assert_string_equal(fault.message, "'n' must be a string, not an integer");
    assert_int_equal(json_get_object(object, "", "a", &value, &fault), E_INVALID);
    assert_int_equal(json_get_array(object, "", "o", &value, &fault), E_INVALID);
    assert_int_equal(json_get_real(object, "", "s", 0, 1, &real, &fault), E_INVALID);
    json_decref(object);
}

void *__wrap_malloc(
    size_t bytes); /* of failing_malloc.c: jansson's calls are not caught by the linker */

static void test_failing_allocations(void **state)
{
    static const char text[] = "{\"a\":[1,2.5,\"x\",{\"b\":null}],\"c\":true}";

    (void)state;
    json_set_alloc_funcs(__wrap_malloc, free);
    for (uint64_t n = 1;; n++) {
        struct fault fault = {0};
        json_t *value = NULL;
        int r;

        failing_malloc_arm(n);
        r = json_parse(text, sizeof text - 1, &value, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            assert_true(n > 5);
            json_decref(value);
            return;
        }
        assert_true(r < 0);
        assert_null(value);
        assert_true(fault.message[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_types_null_and_absent),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
