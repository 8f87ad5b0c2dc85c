/* metrics.c -- see metrics.h. The table is metrics.def; here is how its kinds are counted and
 * written.
 *
 * Nothing here can fail a request: what does not fit its table goes to a row named "other". */
#include "server/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "config/base/clock.h"

enum {
    BOUNDS_MAX = 24,
    HTTP_ROWS_MAX = 256,
    HTTP_NAME_BYTES = 48,
    LABELS_BYTES_MAX = 2048,
    DEVICE_LABEL_BYTES_MAX = 256,
};

/* The bounds are vLLM's, with finer ones below where its first are too coarse for us. */
static const double bounds_first_token[] = {.001, .005, .01, .02, .04, .06, .08, .1,
                                            .25,  .5,   .75, 1,   2.5, 5,   7.5, 10,
                                            20,   40,   80,  160, 640, 2560};
static const double bounds_token_gap[] = {.001, .002, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                          .4,   .5,   .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
static const double bounds_request[] = {.01, .03, .1, .3, .5, .8, 1,   1.5, 2,   2.5, 5,    10,
                                        15,  20,  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double bounds_tokens[] = {1,     2,      5,      10,     20,     50,    100,
                                       200,   500,    1000,   2000,   5000,   10000, 20000,
                                       50000, 100000, 200000, 500000, 1000000};
static const double bounds_http[] = {.001, .0025, .005, .01, .025, .05, .1, .25,
                                     .5,   1,     2.5,  5,   10,   30,  60, 300};

struct histogram {
    uint64_t
        buckets[BOUNDS_MAX + 1]; /* [i]: up to bounds[i]; the one after the last bound: above all */
    uint64_t count;
    double sum;
};

struct http_row {
    char route[HTTP_NAME_BYTES];
    char method[8];
    int status;
    uint64_t count;
};

enum request_end { END_STOP, END_LENGTH, END_ABORT, END_ERROR, END_COUNT };

struct metrics {
    char labels[LABELS_BYTES_MAX]; /* model_name="...",engine="0" */
    char device[DEVICE_LABEL_BYTES_MAX];
    uint32_t page_tokens;
    double started_seconds;
    uint64_t requests_finished[END_COUNT];
    uint32_t http_count;
    struct http_row http_rows[HTTP_ROWS_MAX]; /* the last one takes what finds no room */
#define HISTOGRAM(member, name, alias, bounds, help) struct histogram member;
#include "server/metrics.def"
};

#define HISTOGRAM(member, name, alias, bounds, help) \
    _Static_assert(sizeof bounds / sizeof *bounds <= BOUNDS_MAX, "too many bounds");
#include "server/metrics.def"

/* --- counting --------------------------------------------------------------------------------- */

static void observe(struct histogram *histogram, const double *bounds, size_t count, double value)
{
    size_t i = 0;

    if (!(value >= 0)) /* a clock that went wrong must not make a counter fall */
        value = 0;
    while (i < count && value > bounds[i])
        i++;
    histogram->buckets[i]++;
    histogram->count++;
    histogram->sum += value;
}
#define OBSERVE(histogram, bounds, value) \
    observe((histogram), (bounds), sizeof(bounds) / sizeof *(bounds), (value))

static const char *known_method(const char *method)
{
    static const char *const known[] = {"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(method, known[i]) == 0)
            return known[i];
    }
    return "other";
}

static struct http_row *http_row(struct metrics *metrics, const char *route, const char *method,
                                 int status)
{
    struct http_row *row;

    for (uint32_t i = 0; i < metrics->http_count; i++) {
        row = &metrics->http_rows[i];
        if (row->status == status && !strcmp(row->method, method) && !strcmp(row->route, route))
            return row;
    }
    if (metrics->http_count == HTTP_ROWS_MAX)
        return &metrics->http_rows[HTTP_ROWS_MAX - 1];
    row = &metrics->http_rows[metrics->http_count++];
    if (metrics->http_count == HTTP_ROWS_MAX) {
        route = method = "other";
        status = 0;
    }
    (void)snprintf(row->route, sizeof row->route, "%s", route);
    (void)snprintf(row->method, sizeof row->method, "%s", method);
    row->status = status;
    return row;
}

void metrics_http(struct metrics *metrics, const char *route, const char *method, int status,
                  double seconds)
{
    http_row(metrics, route, known_method(method), status)->count++;
    OBSERVE(&metrics->http, bounds_http, seconds);
}

static enum request_end end_of(const char *finish)
{
    if (strcmp(finish, "stop") == 0)
        return END_STOP;
    if (strcmp(finish, "length") == 0)
        return END_LENGTH;
    return strcmp(finish, "error") == 0 ? END_ERROR : END_ABORT;
}

void metrics_request(struct metrics *metrics, const struct reply_summary *summary, double seconds)
{
    double queue = clock_seconds(summary->queued_ns);
    double prefill = clock_seconds(summary->prefill_ns);
    double decode = clock_seconds(summary->decode_ns);

    metrics->requests_finished[end_of(summary->finish)]++;
    OBSERVE(&metrics->request, bounds_request, seconds);
    OBSERVE(&metrics->prompt_tokens, bounds_tokens, summary->prompt_tokens);
    OBSERVE(&metrics->generated_tokens, bounds_tokens, summary->generated_tokens);
    if (summary->prefill_ns == 0)
        return; /* it was never admitted */
    OBSERVE(&metrics->queue, bounds_request, queue);
    OBSERVE(&metrics->prefill, bounds_request, prefill);
    OBSERVE(&metrics->inference, bounds_request, prefill + decode);
    if (summary->generated_tokens > 0) {
        OBSERVE(&metrics->first_token, bounds_first_token, queue + prefill);
        OBSERVE(&metrics->decode, bounds_request, decode);
    }
}

void metrics_token_gap(struct metrics *metrics, uint64_t gap_ns)
{
    OBSERVE(&metrics->token_gap, bounds_token_gap, clock_seconds(gap_ns));
}

/* --- what the kernel knows about this process ------------------------------------------------- */

struct process {
    double resident_bytes;
    double cpu_seconds;
    double descriptors;
    double descriptors_max;
    double started_seconds;
};

/* /proc is memory, not a disk: reading it does not hold up the loop. */
static bool read_proc(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes;

    if (fd < 0)
        return false;
    bytes = read(fd, text, room - 1);
    (void)close(fd);
    if (bytes <= 0)
        return false;
    text[bytes] = '\0';
    return true;
}

static double count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    double count = -1; /* the folder's own */

    if (!folder)
        return 0;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        count += entry->d_name[0] != '.';
    (void)closedir(folder);
    return count;
}

/* Field 22 of /proc/self/stat (proc(5)): clock ticks from boot to the process's start. */
static double process_started(void)
{
    char text[1024];
    struct timespec since_boot;
    unsigned long long ticks = 0;
    const char *fields =
        read_proc("/proc/self/stat", text, sizeof text) ? strrchr(text, ')') : NULL;

    if (!fields ||
        sscanf(fields,
               ") %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
               &ticks) != 1 ||
        clock_gettime(CLOCK_BOOTTIME, &since_boot) < 0)
        return (double)clock_wall_seconds();
    return (double)clock_wall_seconds() - (double)since_boot.tv_sec +
           (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static double timeval_seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static struct process process_read(const struct metrics *metrics)
{
    struct process process = {.started_seconds = metrics->started_seconds};
    char text[256];
    struct rusage usage;
    struct rlimit limit;
    unsigned long long pages;

    if (read_proc("/proc/self/statm", text, sizeof text) && sscanf(text, "%*s %llu", &pages) == 1)
        process.resident_bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        process.cpu_seconds = timeval_seconds(usage.ru_utime) + timeval_seconds(usage.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        process.descriptors_max = (double)limit.rlim_cur;
    process.descriptors = count_descriptors();
    return process;
}

/* --- writing: https://prometheus.io/docs/instrumenting/exposition_formats/ -------------------- */

static double kv_usage(const struct scheduler_stats *stats)
{
    if (stats->pages_total == 0)
        return 0;
    return 1 - (double)stats->pages_free / (double)stats->pages_total;
}

static void put_number(struct buf *text, double value)
{
    buf_format(text, value == floor(value) && fabs(value) < 0x1p53 ? "%.0f" : "%.13g", value);
}

enum metric_kind { COUNTER, GAUGE, BUCKETS };

static void put_head(struct buf *text, const char *name, const char *type, const char *help)
{
    buf_format(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const char *type_name(enum metric_kind kind)
{
    static const char *const names[] = {
        [COUNTER] = "counter", [GAUGE] = "gauge", [BUCKETS] = "histogram"};

    return names[kind];
}

/* Metrics of the process and of HTTP carry no model's name. */
static const char *labels_of(const struct metrics *metrics, const char *name)
{
    return strncmp(name, "weft_", 5) == 0 || strncmp(name, "vllm:", 5) == 0 ? metrics->labels : "";
}

static void write_value(const struct metrics *metrics, struct buf *text, enum metric_kind kind,
                        const char *name, double value, const char *help)
{
    const char *labels = labels_of(metrics, name);

    if (!*name)
        return;
    put_head(text, name, type_name(kind), help);
    buf_format(text, *labels ? "%s{%s} " : "%s%s ", name, labels);
    put_number(text, value);
    buf_byte(text, '\n');
}

static void write_buckets(const struct metrics *metrics, struct buf *text, const char *name,
                          const struct histogram *histogram, const double *bounds, size_t count)
{
    const char *labels = labels_of(metrics, name);
    const char *comma = *labels ? "," : "";
    uint64_t below = 0;

    for (size_t i = 0; i < count; i++) {
        below += histogram->buckets[i];
        buf_format(text, "%s_bucket{%s%sle=\"%g\"} ", name, labels, comma, bounds[i]);
        buf_u64(text, below);
        buf_byte(text, '\n');
    }
    buf_format(text, "%s_bucket{%s%sle=\"+Inf\"} ", name, labels, comma);
    buf_u64(text, histogram->count);
    buf_format(text, *labels ? "\n%s_count{%s} " : "\n%s_count%s ", name, labels);
    buf_u64(text, histogram->count);
    buf_format(text, *labels ? "\n%s_sum{%s} %.9g\n" : "\n%s_sum%s %.9g\n", name, labels,
               histogram->sum);
}

static void write_histogram(const struct metrics *metrics, struct buf *text, const char *name,
                            const struct histogram *histogram, const double *bounds, size_t count,
                            const char *help)
{
    if (!*name)
        return;
    put_head(text, name, "histogram", help);
    write_buckets(metrics, text, name, histogram, bounds, count);
}

/* What the functions of families are given. */
struct view {
    const struct metrics *metrics;
    const struct scheduler_stats *stats;
};

static void write_series(const struct view *view, struct buf *text, const char *name,
                         const char *label, const char *word, uint64_t value)
{
    buf_format(text, "%s{%s,%s=\"%s\"} ", name, view->metrics->labels, label, word);
    buf_u64(text, value);
    buf_byte(text, '\n');
}

static void write_sequences_finished(const struct view *view, struct buf *text, const char *name)
{
    const struct scheduler_stats *stats = view->stats;

    write_series(view, text, name, "reason", "stop", stats->finished_stop_total);
    write_series(view, text, name, "reason", "length", stats->finished_length_total);
    write_series(view, text, name, "reason", "cancelled", stats->cancelled_total);
    write_series(view, text, name, "reason", "failed", stats->failed_total);
}

static void write_mask_seconds(const struct view *view, struct buf *text, const char *name)
{
    struct histogram histogram = {.sum = clock_seconds(view->stats->mask_ns_total)};
    double bounds[MASK_BOUNDS];

    for (uint32_t i = 0; i <= MASK_BOUNDS; i++) {
        histogram.buckets[i] = view->stats->masks[i];
        histogram.count += view->stats->masks[i];
    }
    for (uint32_t i = 0; i < MASK_BOUNDS; i++)
        bounds[i] = clock_seconds(scheduler_mask_bound_ns(i));
    write_buckets(view->metrics, text, name, &histogram, bounds, MASK_BOUNDS);
}

static void write_requests_finished(const struct view *view, struct buf *text, const char *name)
{
    static const char *const words[END_COUNT] = {"stop", "length", "abort", "error"};

    for (unsigned i = 0; i < END_COUNT; i++)
        write_series(view, text, name, "finished_reason", words[i],
                     view->metrics->requests_finished[i]);
}

static void write_cache_config(const struct view *view, struct buf *text, const char *name)
{
    buf_format(text, "%s{%s,block_size=\"%u\",num_gpu_blocks=\"%llu\"} 1\n", name,
               view->metrics->labels, view->metrics->page_tokens,
               (unsigned long long)view->stats->pages_total);
}

static void write_device(const struct view *view, struct buf *text, const char *name)
{
    buf_format(text, "%s{%s,device=\"%s\"} 1\n", name, view->metrics->labels,
               view->metrics->device);
}

static void write_build(const struct view *view, struct buf *text, const char *name)
{
    buf_format(text, "%s{%s,version=\"" WEFT_VERSION "\",commit=\"" WEFT_COMMIT "\"} 1\n", name,
               view->metrics->labels);
}

static void write_http(const struct view *view, struct buf *text, const char *name)
{
    for (uint32_t i = 0; i < view->metrics->http_count; i++) {
        const struct http_row *row = &view->metrics->http_rows[i];

        buf_format(text, "%s{handler=\"%s\",method=\"%s\",status=\"%d\"} ", name, row->route,
                   row->method, row->status);
        buf_u64(text, row->count);
        buf_byte(text, '\n');
    }
}

static void write_family(const struct view *view, struct buf *text, enum metric_kind kind,
                         const char *name,
                         void (*write)(const struct view *, struct buf *, const char *),
                         const char *help)
{
    if (!*name)
        return;
    put_head(text, name, type_name(kind), help);
    write(view, text, name);
}

void metrics_write(const struct metrics *metrics, const struct scheduler_stats *stats,
                   const struct constraints_stats *constraints, struct buf *text)
{
    const struct process process = process_read(metrics);
    const struct view view = {metrics, stats};

#define VALUE(kind, name, alias, expression, help)                      \
    write_value(metrics, text, kind, name, (double)(expression), help); \
    write_value(metrics, text, kind, alias, (double)(expression), help);
#define HISTOGRAM(member, name, alias, bounds, help)                                               \
    write_histogram(metrics, text, name, &metrics->member, bounds, sizeof bounds / sizeof *bounds, \
                    help);                                                                         \
    write_histogram(metrics, text, alias, &metrics->member, bounds,                                \
                    sizeof bounds / sizeof *bounds, help);
#define FAMILY(kind, name, alias, labels, function, help)  \
    write_family(&view, text, kind, name, function, help); \
    write_family(&view, text, kind, alias, function, help);
#include "server/metrics.def"
}

static void docs_row(struct buf *text, const char *name, const char *type, const char *alias,
                     const char *labels, const char *help)
{
    buf_format(text, "| `%s` | %s | ", name, type);
    if (*alias)
        buf_format(text, "`%s`", alias);
    buf_format(text, " | %s | %s |\n", labels, help);
}

void metrics_docs(struct buf *text)
{
    buf_text(
        text,
        "# Metrics\n\n"
        "`GET /metrics` gives these in Prometheus' text format. Times are in seconds, counters "
        "count from the start of the process and\nnever fall. Names that start with `weft_` or "
        "`vllm:` carry the labels `model_name` and `engine` (always 0).\n"
        "Where a name that dashboards and gateways made for vLLM look for means the same "
        "number, it is given under that name too.\n"
        "Gauges are read when they are asked for, so they are right when nothing runs.\n\n"
        "This page is made from `server/metrics.def` by `weft docs metrics`.\n\n"
        "| name | type | also as | more labels | what it says |\n"
        "|---|---|---|---|---|\n");
#define VALUE(kind, name, alias, expression, help) \
    docs_row(text, name, type_name(kind), alias, "", help);
#define HISTOGRAM(member, name, alias, bounds, help) \
    docs_row(text, name, "histogram", alias, "", help);
#define FAMILY(kind, name, alias, labels, function, help) \
    docs_row(text, name, type_name(kind), alias, labels, help);
#include "server/metrics.def"
}

/* --- opening ---------------------------------------------------------------------------------- */

/* A label's value, cut where there is no room for more. */
static void put_label(struct buf *labels, const char *value, size_t bytes_max)
{
    for (const char *at = value; *at && labels->bytes <= bytes_max; at++) {
        if (*at == '\\' || *at == '"')
            buf_byte(labels, '\\');
        buf_byte(labels, *at == '\n' ? ' ' : *at);
    }
}

static void write_labels(struct metrics *metrics, const char *model_id, const char *device)
{
    struct buf labels;

    buf_init_fixed(&labels, metrics->labels, sizeof metrics->labels);
    buf_text(&labels, "model_name=\"");
    put_label(&labels, model_id, sizeof metrics->labels - 32);
    buf_text(&labels, "\",engine=\"0\"");
    must(!buf_failed(&labels));
    buf_init_fixed(&labels, metrics->device, sizeof metrics->device);
    put_label(&labels, device, sizeof metrics->device - 4);
    must(!buf_failed(&labels));
}

int metrics_open(const char *model_id, const char *device, uint32_t page_tokens,
                 struct metrics **ret_metrics)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);

    if (!metrics)
        return -ENOMEM;
    write_labels(metrics, model_id, device);
    metrics->page_tokens = page_tokens;
    metrics->started_seconds = process_started();
    *ret_metrics = metrics;
    return 0;
}

void metrics_close(struct metrics *metrics)
{
    free(metrics);
}
