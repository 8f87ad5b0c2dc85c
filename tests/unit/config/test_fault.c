/* Protects: faults keep their code, their message is whole valid UTF-8 whatever is put into it, and
 * NULL is taken everywhere. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/fault.h"
#include "config/base/utf8.h"

static void assert_utf8(const char *text)
{
    size_t bytes = strlen(text);

    for (size_t at = 0; at < bytes;) {
        size_t part;

        assert_true(utf8_next(text + at, bytes - at, &part, NULL));
        at += part;
    }
}

static void test_code_and_message(void **state)
{
    struct fault fault = {0};

    (void)state;
    assert_int_equal(fault_set(&fault, E_CORRUPT, "tensor %d of %s", 3, "x"), E_CORRUPT);
    assert_int_equal(fault.code, E_CORRUPT);
    assert_string_equal(fault.message, "tensor 3 of x");
    assert_string_equal(fault.field, "");
    assert_int_equal(fault_field(&fault, E_INVALID, "messages[2].role", "no"), E_INVALID);
    assert_string_equal(fault.field, "messages[2].role");
    assert_int_equal(fault_prefix(&fault, "line %d", 7), E_INVALID);
    assert_string_equal(fault.message, "line 7: no");
    assert_string_equal(fault.field, "messages[2].role");
    assert_int_equal(fault_set(&fault, E_FULL, "later"), E_FULL);
    assert_string_equal(fault.field, ""); /* the earlier field is gone with its fault */
    fault_set(&fault, E_FULL, "again: %s", fault.message);
    assert_string_equal(fault.message, "again: later");
}

static void test_errno(void **state)
{
    struct fault fault = {0};

    (void)state;
    errno = ENOENT;
    assert_int_equal(fault_errno(&fault, "cannot open %s", "a.gguf"), -ENOENT);
    assert_string_equal(fault.message, "cannot open a.gguf: No such file or directory");
    errno = 0; /* whoever calls it reports a failure: it must not become a success */
    assert_true(fault_errno(&fault, "cannot") < 0);
}

static void test_null(void **state)
{
    (void)state;
    errno = EACCES;
    assert_int_equal(fault_set(NULL, E_FULL, "x"), E_FULL);
    assert_int_equal(fault_field(NULL, E_FULL, "f", "x"), E_FULL);
    assert_int_equal(fault_errno(NULL, "x"), -EACCES);
    assert_true(fault_prefix(NULL, "x") < 0);
}

static void test_cut_at_a_character(void **state)
{
    struct fault fault = {0};
    char text[2000];

    (void)state;
    /* Two-byte characters after a prefix of either parity: one of the two would be cut in half. */
    for (size_t i = 0; i + 1 < sizeof text; i += 2)
        memcpy(text + i, "\xc3\xa4", 2);
    text[sizeof text - 2] = '\0';
    for (int prefix = 0; prefix < 2; prefix++) {
        fault_field(&fault, E_INVALID, text, "%.*s%s", prefix, "x", text);
        assert_utf8(fault.message);
        assert_utf8(fault.field);
        assert_true(strlen(fault.message) >= sizeof fault.message - 2);
        assert_true(strlen(fault.field) >= sizeof fault.field - 2);
        fault_prefix(&fault, "%s", text);
        assert_utf8(fault.message);
    }
}

static void test_ill_formed_bytes(void **state)
{
    struct fault fault = {0};

    (void)state;
    fault_set(&fault, E_CORRUPT, "a%sb%sc", "\xff\xfe", "\xe2\x82");
    assert_string_equal(fault.message, "a??b??c");
    fault_set(&fault, E_CORRUPT, "a\n%s", "\x1b[31m\x7f\xc2\x9b\xc2\xa0\xc3\xa4");
    assert_string_equal(fault.message, "a??[31m???\xc2\xa0\xc3\xa4");
    fault_set(&fault, E_CORRUPT, "end %s", "\xe2\x82"); /* not cut by us: it stays visible */
    assert_string_equal(fault.message, "end ??");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_code_and_message),
        cmocka_unit_test(test_errno),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_cut_at_a_character),
        cmocka_unit_test(test_ill_formed_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
