/* test_limits.c -- protects the small rules about headers, waiting and health: what a client may
 * send us to echo and log, which bodies are taken, and what a refused client and a probe are
 * told. */
#include "server/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/health.h"

#define SECOND UINT64_C(1000000000)

static void request_ids(void **state)
{
    char id[REQUEST_ID_BYTES_MAX + 2];

    (void)state;
    assert_true(request_id_valid("a"));
    assert_true(request_id_valid("0aZ-_.:/+=@~"));
    assert_false(request_id_valid(""));
    assert_false(request_id_valid("two words"));
    assert_false(request_id_valid("new\nline"));
    assert_false(request_id_valid("quo\"te"));
    assert_false(request_id_valid("\xc3\xa4"));
    memset(id, 'x', sizeof id);
    id[REQUEST_ID_BYTES_MAX] = '\0';
    assert_true(request_id_valid(id));
    id[REQUEST_ID_BYTES_MAX] = 'x';
    id[REQUEST_ID_BYTES_MAX + 1] = '\0';
    assert_false(request_id_valid(id));
}

static void content_types(void **state)
{
    (void)state;
    assert_int_equal(content_type_read(NULL), CONTENT_TYPE_JSON);
    assert_int_equal(content_type_read(""), CONTENT_TYPE_JSON);
    assert_int_equal(content_type_read("application/json"), CONTENT_TYPE_JSON);
    assert_int_equal(content_type_read(" Application/JSON ; charset=utf-8"), CONTENT_TYPE_JSON);
    assert_int_equal(content_type_read("application/jsonl"), CONTENT_TYPE_OTHER);
    assert_int_equal(content_type_read("application/x-www-form-urlencoded"), CONTENT_TYPE_FORM);
    assert_int_equal(content_type_read("text/plain"), CONTENT_TYPE_OTHER);
    assert_true(content_encoding_plain(NULL));
    assert_true(content_encoding_plain("Identity"));
    assert_false(content_encoding_plain("gzip"));
}

static void bodies_that_look_like_json(void **state)
{
    (void)state;
    assert_true(body_looks_like_json("{", 1));
    assert_true(body_looks_like_json(" \t\r\n{}", 6));
    assert_false(body_looks_like_json("prompt=x", 8));
    assert_false(body_looks_like_json("", 0));
    assert_false(body_looks_like_json("   {", 3)); /* what lies behind the end does not count */
}

static void waiting_times_follow_the_queue_and_have_bounds(void **state)
{
    (void)state;
    assert_int_equal(retry_after_ms(1000, 0), 1000);
    assert_int_equal(retry_after_ms(0, 10), 1000);
    assert_int_equal(retry_after_ms(100, 10), 5000);
    assert_int_equal(retry_after_ms(UINT64_MAX, 0.001), 60000);
    assert_int_equal(retry_after_ms(10, (double)NAN), 1000);
    assert_int_equal(retry_after_ms(10, -1), 1000);
}

static void health_is_work_that_moves(void **state)
{
    struct scheduler_stats stats = {.heartbeat_ns = 100 * SECOND};

    (void)state;
    assert_null(health_trouble(&stats, 1000 * SECOND)); /* idle for long: nothing waits */
    stats.work_waiting = true;
    assert_null(health_trouble(&stats, 130 * SECOND));
    assert_non_null(health_trouble(&stats, 130 * SECOND + 1));
    assert_null(health_trouble(&stats, 99 * SECOND)); /* the other thread's clock is ahead */
    stats.work_waiting = false;
    stats.device_failed = true;
    assert_non_null(health_trouble(&stats, 100 * SECOND));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_ids),
        cmocka_unit_test(content_types),
        cmocka_unit_test(bodies_that_look_like_json),
        cmocka_unit_test(waiting_times_follow_the_queue_and_have_bounds),
        cmocka_unit_test(health_is_work_that_moves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
