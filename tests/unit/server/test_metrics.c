/* test_metrics.c -- protects what dashboards and scalers read: a text that Prometheus can parse,
 * counters that count, gauges that are read anew, vLLM's names beside our own, and a page that is
 * the table's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/metrics.h"
#include "tests/lib/page.h"

#define LABELS "{model_name=\"the \\\"model\\\"\",engine=\"0\""

static struct metrics *open_metrics(void)
{
    struct metrics *metrics = NULL;

    assert_int_equal(metrics_open("the \"model\"", "cuda (\"H\")", 16, &metrics), 0);
    return metrics;
}

static void write_text(const struct metrics *metrics, const struct scheduler_stats *stats,
                       struct buf *text)
{
    static const struct constraints_stats constraints = {
        .count = 3, .bytes = 4096, .hits = 7, .misses = 5, .build_ns = 250000000};

    buf_reset(text);
    metrics_write(metrics, stats, &constraints, text);
    assert_false(buf_failed(text));
}

/* The value of the series, written as in the text without its value. */
static double value_of(const struct buf *text, const char *series)
{
    char line[256];
    const char *at;

    (void)snprintf(line, sizeof line, "\n%s ", series);
    at = strstr(buf_string(text), line);
    if (!at)
        fail_msg("there is no %s", series);
    return strtod(at + strlen(line), NULL);
}

static void test_gauges_and_counters(void **state)
{
    struct scheduler_stats stats = {.running = 3,
                                    .waiting = 4,
                                    .pages_total = 100,
                                    .pages_free = 75,
                                    .prompt_tokens_total = UINT64_C(12345678901),
                                    .generated_tokens_total = 7,
                                    .preemptions_total = 2,
                                    .step_ns_total = UINT64_C(2500000000),
                                    .cancelled_total = 5};
    struct metrics *metrics = open_metrics();
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    write_text(metrics, &stats, &text);
    assert_true(value_of(&text, "vllm:num_requests_running" LABELS "}") == 3);
    assert_true(value_of(&text, "weft_sequences_waiting" LABELS "}") == 4);
    assert_true(value_of(&text, "weft_constraints" LABELS "}") == 3);
    assert_true(value_of(&text, "weft_constraint_bytes" LABELS "}") == 4096);
    assert_true(value_of(&text, "weft_constraint_hits_total" LABELS "}") == 7);
    assert_true(value_of(&text, "weft_constraints_compiled_total" LABELS "}") == 5);
    assert_true(value_of(&text, "weft_constraint_compile_seconds_total" LABELS "}") == 0.25);
    assert_true(value_of(&text, "vllm:kv_cache_usage_perc" LABELS "}") == 0.25);
    assert_true(value_of(&text, "vllm:prompt_tokens_total" LABELS "}") == 12345678901.0);
    assert_true(value_of(&text, "weft_generated_tokens_total" LABELS "}") == 7);
    assert_true(value_of(&text, "vllm:num_preemptions_total" LABELS "}") == 2);
    assert_true(value_of(&text, "weft_sequences_finished_total" LABELS ",reason=\"cancelled\"}") ==
                5);
    assert_true(value_of(&text, "vllm:cache_config_info" LABELS
                                ",block_size=\"16\",num_gpu_blocks=\"100\"}") == 1);
    assert_true(value_of(&text, "weft_device_info" LABELS ",device=\"cuda (\\\"H\\\")\"}") == 1);
    assert_true(value_of(&text, "weft_busy_seconds_total" LABELS "}") == 2.5);
    assert_true(value_of(&text, "process_resident_memory_bytes") > 100000);
    assert_true(value_of(&text, "process_cpu_seconds_total") >= 0);
    assert_true(value_of(&text, "process_open_fds") >= 3);
    assert_true(value_of(&text, "process_start_time_seconds") > (double)time(NULL) - 600);
    assert_true(value_of(&text, "process_start_time_seconds") <= (double)time(NULL) + 2);
    stats.pages_total = stats.pages_free = 0;
    stats.running = 0;
    write_text(metrics, &stats, &text);
    assert_true(value_of(&text, "vllm:num_requests_running" LABELS "}") == 0);
    assert_true(value_of(&text, "vllm:kv_cache_usage_perc" LABELS "}") == 0);
    buf_fini(&text);
    metrics_close(metrics);
}

static void test_requests(void **state)
{
    static const char *const finishes[] = {"stop", "length", "cancelled", "error", "stop"};
    const struct scheduler_stats stats = {0};
    struct metrics *metrics = open_metrics();
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    for (size_t i = 0; i < 5; i++) {
        struct reply_summary summary = {.prompt_tokens = 10,
                                        .generated_tokens = 20,
                                        .queued_ns = 1000000000,
                                        .prefill_ns = 500000000,
                                        .decode_ns = 2000000000,
                                        .finish = finishes[i]};

        if (i == 3) /* it failed in the queue */
            summary.prefill_ns = summary.decode_ns = summary.generated_tokens = 0;
        metrics_request(metrics, &summary, 4);
    }
    metrics_token_gap(metrics, 1500000);
    metrics_token_gap(metrics, 1000000); /* a bound belongs to its bucket */
    write_text(metrics, &stats, &text);
    assert_true(value_of(&text, "vllm:request_success_total" LABELS ",finished_reason=\"stop\"}") ==
                2);
    assert_true(
        value_of(&text, "vllm:request_success_total" LABELS ",finished_reason=\"length\"}") == 1);
    assert_true(
        value_of(&text, "vllm:request_success_total" LABELS ",finished_reason=\"abort\"}") == 1);
    assert_true(
        value_of(&text, "vllm:request_success_total" LABELS ",finished_reason=\"error\"}") == 1);
    assert_true(value_of(&text, "vllm:e2e_request_latency_seconds_count" LABELS "}") == 5);
    assert_true(value_of(&text, "vllm:e2e_request_latency_seconds_sum" LABELS "}") == 20);
    assert_true(value_of(&text, "vllm:time_to_first_token_seconds_sum" LABELS "}") == 6);
    assert_true(value_of(&text, "vllm:time_to_first_token_seconds_bucket" LABELS ",le=\"1\"}") ==
                0);
    assert_true(value_of(&text, "vllm:time_to_first_token_seconds_bucket" LABELS ",le=\"2.5\"}") ==
                4);
    assert_true(value_of(&text, "vllm:request_queue_time_seconds_sum" LABELS "}") == 4);
    assert_true(value_of(&text, "vllm:request_prefill_time_seconds_sum" LABELS "}") == 2);
    assert_true(value_of(&text, "vllm:request_decode_time_seconds_sum" LABELS "}") == 8);
    assert_true(
        value_of(&text, "vllm:inter_token_latency_seconds_bucket" LABELS ",le=\"0.001\"}") == 1);
    assert_true(
        value_of(&text, "vllm:inter_token_latency_seconds_bucket" LABELS ",le=\"0.002\"}") == 2);
    assert_true(value_of(&text, "weft_inter_token_latency_seconds_bucket" LABELS ",le=\"+Inf\"}") ==
                2);
    buf_fini(&text);
    metrics_close(metrics);
}

static void test_http(void **state)
{
    const struct scheduler_stats stats = {0};
    struct metrics *metrics = open_metrics();
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    metrics_http(metrics, "/health", "GET", 200, 0.5);
    metrics_http(metrics, "/health", "GET", 200, 0.5);
    metrics_http(metrics, "/health", "\"WEIRD\n", 405, -1);
    write_text(metrics, &stats, &text);
    assert_true(
        value_of(&text, "http_requests_total{handler=\"/health\",method=\"GET\",status=\"200\"}") ==
        2);
    assert_true(
        value_of(&text,
                 "http_requests_total{handler=\"/health\",method=\"other\",status=\"405\"}") == 1);
    assert_true(value_of(&text, "http_request_duration_seconds_sum") == 1);
    for (int status = 100; status < 1000; status++) /* more than there are rows */
        metrics_http(metrics, "/x", "GET", status, 0);
    write_text(metrics, &stats, &text);
    assert_true(
        value_of(&text, "http_requests_total{handler=\"other\",method=\"other\",status=\"0\"}") >
        500);
    assert_true(value_of(&text, "http_request_duration_seconds_count") == 903);
    buf_fini(&text);
    metrics_close(metrics);
}

static bool is_name(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (!isalnum((unsigned char)text[i]) && text[i] != '_' && text[i] != ':')
            return false;
    }
    return bytes > 0;
}

/* Each family is announced once by HELP and TYPE and followed by its own samples; buckets only
 * rise. */
static void test_format(void **state)
{
    const struct scheduler_stats stats = {.pages_total = 3};
    struct metrics *metrics = open_metrics();
    char family[128] = "", seen[64][128];
    unsigned seen_count = 0;
    double bucket = 0;
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 20);
    metrics_http(metrics, "/health", "GET", 200, 0.5);
    metrics_token_gap(metrics, 5000000);
    write_text(metrics, &stats, &text);
    for (char *line = text.data, *next; line < text.data + text.bytes; line = next) {
        size_t name = strcspn(line, "{ ");
        const char *last;
        char *end;

        next = line + strcspn(line, "\n") + 1;
        next[-1] = '\0'; /* every line ends in a line break */
        last = strrchr(line, ' ');
        if (!strncmp(line, "# HELP ", 7)) {
            name = strcspn(line + 7, " ");
            assert_true(is_name(line + 7, name));
            (void)snprintf(family, sizeof family, "%.*s", (int)name, line + 7);
            for (unsigned i = 0; i < seen_count; i++)
                assert_string_not_equal(seen[i], family);
            assert_true(seen_count < 64);
            memcpy(seen[seen_count++], family, sizeof family);
            bucket = 0;
            continue;
        }
        if (!strncmp(line, "# TYPE ", 7)) {
            assert_memory_equal(line + 7, family, strlen(family));
            continue;
        }
        assert_true(is_name(line, name));
        assert_memory_equal(line, family, strlen(family));
        assert_non_null(last);
        (void)strtod(last + 1, &end);
        assert_true(end > last + 1 && *end == '\0');
        if (strstr(line, "_bucket{")) {
            assert_true(strtod(last + 1, NULL) >= bucket);
            bucket = strtod(last + 1, NULL);
        }
    }
    assert_in_range(seen_count, 40, 64);
    buf_fini(&text);
    metrics_close(metrics);
}

static void test_committed_page(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text, 1 << 18);
    metrics_docs(&text);
    assert_page_is("docs/metrics.md", &text);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gauges_and_counters),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_http),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_committed_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
