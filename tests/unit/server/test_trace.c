/* test_trace.c -- protects: the file of `weft bench --trace`. Whatever order spans come in, the
 * file is JSON with them in order of time, enclosing ones first, names of the tracks, and times
 * exact to the nanosecond; more spans than fit are counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/base/json.h"
#include "server/trace.h"
#include "tests/lib/failing_malloc.h"

static char path[] = "/tmp/weft-test-trace-XXXXXX";

static int make_path(void **state)
{
    int file = mkstemp(path);

    (void)state;
    return file < 0 ? -1 : close(file);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void add(const struct engine_trace *listener, uint32_t track, const char *name,
                uint64_t began_ns, uint64_t ended_ns)
{
    const struct engine_span span = {.track = track,
                                     .name = name,
                                     .began_ns = began_ns,
                                     .ended_ns = ended_ns,
                                     .step = began_ns % 10,
                                     .tokens = track == TRACK_HOST ? 0 : 7};

    listener->span(listener->data, &span);
}

static json_t *written(struct trace *trace, uint64_t left_out)
{
    uint64_t count = UINT64_MAX;
    json_t *root;

    assert_int_equal(trace_write(trace, "a \"title\"", &count, NULL), 0);
    assert_int_equal(count, left_out);
    trace_close(trace);
    root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

/* The n-th complete event. */
static const json_t *span_of(const json_t *root, size_t wanted)
{
    const json_t *events = json_object_get(root, "traceEvents");

    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);

        if (strcmp(text_of(event, "ph"), "X") == 0 && wanted-- == 0)
            return event;
    }
    return NULL;
}

static void spans_come_in_order_of_time(void **state)
{
    static const struct {
        const char *name;
        double ts, dur;
        uint32_t track;
    } expected[] = {
        {"complete", 0, 9.5, TRACK_HOST},      {"wait", 0, 9, TRACK_HOST},
        {"changes", 0.5, 0.001, TRACK_COPIES}, {"decode", 1, 6, TRACK_LANES},
        {"decode", 2.25, 0, TRACK_LANES + 1},  {"submit", 100000, 1000, TRACK_HOST},
    };
    const uint64_t base = UINT64_C(12345678901234567);
    struct engine_trace listener;
    struct trace *trace;
    json_t *root;

    (void)state;
    assert_int_equal(trace_open(path, &trace, NULL), 0);
    listener = trace_engine(trace);
    add(&listener, TRACK_HOST, "wait", base, base + 9000);
    add(&listener, TRACK_LANES, "decode", base + 1000, base + 7000);
    add(&listener, TRACK_LANES + 1, "decode", base + 2250, base + 2240); /* clocks differ */
    add(&listener, TRACK_COPIES, "changes", base + 500, base + 501);
    add(&listener, TRACK_HOST, "complete", base, base + 9500);
    add(&listener, TRACK_HOST, "submit", base + 100000000, base + 101000000);
    root = written(trace, 0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const json_t *span = span_of(root, i);

        assert_string_equal(text_of(span, "name"), expected[i].name);
        assert_int_equal(json_integer_value(json_object_get(span, "tid")), expected[i].track);
        assert_true(fabs(json_number_value(json_object_get(span, "ts")) - expected[i].ts) < 1e-6);
        assert_true(fabs(json_number_value(json_object_get(span, "dur")) - expected[i].dur) < 1e-6);
        assert_int_equal(json_object_get(json_object_get(span, "args"), "tokens") != NULL,
                         expected[i].track != TRACK_HOST);
    }
    assert_null(span_of(root, sizeof expected / sizeof *expected));
    json_decref(root);
}

static void tracks_have_names(void **state)
{
    struct engine_trace listener;
    struct trace *trace;
    const json_t *events;
    json_t *root;
    char names[256] = "";

    (void)state;
    assert_int_equal(trace_open(path, &trace, NULL), 0);
    listener = trace_engine(trace);
    add(&listener, TRACK_LANES + 3, "decode", 5, 6);
    add(&listener, TRACK_HOST, "submit", 7, 8);
    root = written(trace, 0);
    events = json_object_get(root, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        const char *name = text_of(json_object_get(event, "args"), "name");

        if (name)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%lld %s|",
                     (long long)json_integer_value(json_object_get(event, "tid")), name);
    }
    assert_string_equal(names, "0 a \"title\"|0 host|5 lane 3|");
    json_decref(root);
}

static void an_empty_trace_is_whole(void **state)
{
    struct trace *trace;
    json_t *root;

    (void)state;
    assert_int_equal(trace_open(path, &trace, NULL), 0);
    root = written(trace, 0);
    assert_null(span_of(root, 0));
    json_decref(root);
}

static void too_many_spans_are_counted(void **state)
{
    struct engine_trace listener;
    struct trace *trace;
    json_t *root;

    (void)state;
    assert_int_equal(trace_open(path, &trace, NULL), 0);
    listener = trace_engine(trace);
    for (uint64_t i = 0; i < TRACE_SPANS_MAX + 5; i++)
        add(&listener, TRACK_HOST, "submit", 10 * i, 10 * i + 5);
    root = written(trace, 5);
    json_decref(root);
}

static void failures_are_faults(void **state)
{
    struct fault fault = {0};
    struct trace *trace = NULL;
    uint64_t left_out;
    int r;

    (void)state;
    assert_int_equal(trace_open("/nonexistent/trace", &trace, &fault), -ENOENT);
    assert_non_null(strstr(fault.message, "/nonexistent/trace"));
    for (uint64_t nth = 1;; nth++) {
        failing_malloc_arm(nth);
        r = trace_open(path, &trace, &fault);
        if (!failing_malloc_disarm())
            break;
        assert_true(r < 0);
    }
    trace_close(trace);
    assert_int_equal(trace_open("/dev/full", &trace, NULL), 0);
    assert_true(trace_write(trace, "", &left_out, &fault) < 0);
    failing_malloc_arm(1);
    assert_true(trace_write(trace, "", &left_out, &fault) < 0);
    failing_malloc_disarm();
    trace_close(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_come_in_order_of_time), cmocka_unit_test(tracks_have_names),
        cmocka_unit_test(an_empty_trace_is_whole),     cmocka_unit_test(too_many_spans_are_counted),
        cmocka_unit_test(failures_are_faults),
    };

    return cmocka_run_group_tests(tests, make_path, remove_path);
}
