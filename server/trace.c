/* trace.c -- see trace.h. */
#include "server/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"

enum { EVENT_BYTES_MAX = 1 << 16, TRACKS_MAX = TRACK_LANES + 16 };

struct trace {
    FILE *file;
    struct engine_span *spans; /* [TRACE_SPANS_MAX] */
    uint64_t seen;             /* the first TRACE_SPANS_MAX were kept */
};

int trace_open(const char *path, struct trace **ret_trace, struct fault *fault)
{
    struct trace *trace = calloc(1, sizeof *trace);

    if (trace)
        trace->spans = calloc(TRACE_SPANS_MAX, sizeof *trace->spans);
    if (!trace || !trace->spans) {
        trace_close(trace);
        return fault_set(fault, E_MEMORY, "There is no memory left for the trace");
    }
    trace->file = fopen(path, "we");
    if (!trace->file) {
        int r = fault_errno(fault, "Cannot write the trace %.200s", path);

        trace_close(trace);
        return r;
    }
    *ret_trace = trace;
    return 0;
}

void trace_close(struct trace *trace)
{
    if (!trace)
        return;
    if (trace->file)
        fclose(trace->file);
    free(trace->spans);
    free(trace);
}

static void take(void *data, const struct engine_span *span)
{
    struct trace *trace = data;

    if (trace->seen < TRACE_SPANS_MAX)
        trace->spans[trace->seen] = *span;
    trace->seen++;
}

struct engine_trace trace_engine(struct trace *trace)
{
    return (struct engine_trace){.span = take, .data = trace};
}

/* --- writing ------------------------------------------------------------------------------- */

/* By beginning; what encloses another comes first. */
static int compare(const void *left, const void *right)
{
    const struct engine_span *a = left, *b = right;

    if (a->began_ns != b->began_ns)
        return a->began_ns < b->began_ns ? -1 : 1;
    return (a->ended_ns < b->ended_ns) - (a->ended_ns > b->ended_ns);
}

static void put_name(struct buf *out, const char *kind, uint32_t track, const char *name)
{
    buf_format(out,
               ",\n{\"name\":\"%s\",\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32 ",\"args\":{\"name\":",
               kind, track);
    buf_json_string(out, name, strlen(name));
    buf_text(out, "}}");
}

/* Names of the process and of the tracks that anything lies on; the order is that of numbers. */
static void put_names(const struct trace *trace, uint32_t count, const char *title, struct buf *out)
{
    bool used[TRACKS_MAX] = {false};

    buf_text(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                  "{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":1,"
                  "\"args\":{\"sort_index\":0}}");
    put_name(out, "process_name", 0, title);
    for (uint32_t i = 0; i < count; i++)
        if (trace->spans[i].track < TRACKS_MAX)
            used[trace->spans[i].track] = true;
    for (uint32_t i = 0; i < TRACKS_MAX; i++) {
        char lane[32];

        if (!used[i])
            continue;
        snprintf(lane, sizeof lane, "lane %" PRIu32, i - TRACK_LANES);
        put_name(out, "thread_name", i,
                 i == TRACK_HOST     ? "host"
                 : i == TRACK_COPIES ? "copies"
                                     : lane);
        buf_format(out,
                   ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":1,\"tid\":%" PRIu32
                   ",\"args\":{\"sort_index\":%" PRIu32 "}}",
                   i, i);
    }
}

static void put_span(const struct engine_span *span, uint64_t began_ns, struct buf *out)
{
    uint64_t at = span->began_ns - began_ns;
    uint64_t lasted = span->ended_ns > span->began_ns ? span->ended_ns - span->began_ns : 0;

    buf_format(out,
               ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%" PRIu32 ",\"ts\":%" PRIu64
               ".%03" PRIu64 ",\"dur\":%" PRIu64 ".%03" PRIu64 ",\"args\":{\"step\":%" PRIu64,
               span->name, span->track, at / 1000, at % 1000, lasted / 1000, lasted % 1000,
               span->step);
    if (span->tokens > 0)
        buf_format(out, ",\"tokens\":%" PRIu32, span->tokens);
    buf_text(out, "}}");
}

static int flush(struct trace *trace, struct buf *out, struct fault *fault)
{
    if (buf_failed(out))
        return fault_set(fault, E_MEMORY, "There is no memory left to write the trace");
    if (fwrite(out->data, 1, out->bytes, trace->file) != out->bytes)
        return fault_errno(fault, "Cannot write the trace");
    buf_reset(out);
    return 0;
}

int trace_write(struct trace *trace, const char *title, uint64_t *ret_left_out, struct fault *fault)
{
    uint32_t count = trace->seen < TRACE_SPANS_MAX ? (uint32_t)trace->seen : TRACE_SPANS_MAX;
    struct buf out;
    int r;

    qsort(trace->spans, count, sizeof *trace->spans, compare);
    buf_init(&out, EVENT_BYTES_MAX);
    put_names(trace, count, title, &out);
    r = flush(trace, &out, fault);
    for (uint32_t i = 0; i < count && r == 0; i++) {
        put_span(&trace->spans[i], trace->spans[0].began_ns, &out);
        r = flush(trace, &out, fault);
    }
    if (r == 0) {
        buf_text(&out, "\n]}\n");
        r = flush(trace, &out, fault);
    }
    buf_fini(&out);
    if (r < 0)
        return r;
    if (fflush(trace->file) != 0)
        return fault_errno(fault, "Cannot write the trace");
    *ret_left_out = trace->seen - count;
    return 0;
}
