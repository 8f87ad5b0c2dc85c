/* Protects: a log line is one line whatever its fields hold, is valid JSON in that format, keeps
 * its end when fields do not fit, and allocates nothing. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/log.h"
#include "tests/lib/failing_malloc.h"

static char text[65536];

/* Standard error goes into a file while `write_lines` runs; `text` is then what was written. */
static void capture(void (*write_lines)(void))
{
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);
    ssize_t bytes;

    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    write_lines();
    dup2(saved, STDERR_FILENO);
    close(saved);
    bytes = pread(fileno(file), text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    fclose(file);
}

static void write_fields(void)
{
    log_event(LOG_INFO, "listening", LOG_STR("address", "127.0.0.1"), LOG_INT("port", 8000),
              LOG_REAL("seconds", 0.25), LOG_STR("left_out", NULL), LOG_STR("empty", ""),
              LOG_STR("nasty", "a \"b\"\n=\xff\x1b"), LOG_REAL("inf", INFINITY));
}

static void test_text(void **state)
{
    (void)state;
    log_setup(LOG_INFO, LOG_TEXT);
    capture(write_fields);
    assert_int_equal(text[10], 'T');
    assert_int_equal(text[23], 'Z');
    assert_string_equal(text + 24,
                        " info listening address=127.0.0.1 port=8000 seconds=0.25 empty=\"\" "
                        "nasty=\"a \\\"b\\\"\\n=\xef\xbf\xbd\\u001b\" inf=9999.0\n");
}

static void test_json(void **state)
{
    json_t *line;

    (void)state;
    log_setup(LOG_INFO, LOG_JSON);
    capture(write_fields);
    line = json_loads(text, 0, NULL);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, "level")), "info");
    assert_string_equal(json_string_value(json_object_get(line, "event")), "listening");
    assert_int_equal(json_integer_value(json_object_get(line, "port")), 8000);
    assert_string_equal(json_string_value(json_object_get(line, "nasty")),
                        "a \"b\"\n=\xef\xbf\xbd\x1b");
    assert_null(json_object_get(line, "left_out"));
    assert_int_equal(strlen(text), strcspn(text, "\n") + 1);
    json_decref(line);
}

static void write_long(void)
{
    static char value[10000];

    memset(value, 'x', sizeof value - 1);
    failing_malloc_arm(1);
    log_event(LOG_WARN, "long", LOG_INT("before", 1), LOG_STR("value", value), LOG_INT("after", 2));
    assert_false(failing_malloc_disarm());
}

static void test_long_field_is_left_out(void **state)
{
    json_t *line;

    (void)state;
    log_setup(LOG_INFO, LOG_JSON);
    capture(write_long);
    line = json_loads(text, 0, NULL);
    assert_non_null(line);
    assert_int_equal(json_integer_value(json_object_get(line, "before")), 1);
    assert_null(json_object_get(line, "value"));
    assert_int_equal(json_integer_value(json_object_get(line, "after")), 2);
    json_decref(line);
    log_setup(LOG_INFO, LOG_TEXT);
    capture(write_long);
    assert_string_equal(text + 24, " warn long before=1 after=2\n");
}

static void write_levels(void)
{
    log_event(LOG_DEBUG, "d", LOG_INT("n", 1));
    log_event(LOG_INFO, "i", LOG_INT("n", 1));
    log_event(LOG_ERROR, "e", LOG_INT("n", 1));
}

static void test_levels(void **state)
{
    (void)state;
    log_setup(LOG_WARN, LOG_TEXT);
    capture(write_levels);
    assert_string_equal(text + 24, " error e n=1\n");
    assert_false(log_enabled(LOG_INFO));
    assert_true(log_enabled(LOG_WARN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_long_field_is_left_out),
        cmocka_unit_test(test_levels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
