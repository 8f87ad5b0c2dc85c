/* command_bench.c -- `weft bench`: the engine's speed at given batch sizes and prompt lengths,
 * without HTTP.
 *
 * Every figure is the median of --repeats measurements. Prefill counts all prompts' tokens over the
 * time until the last prompt has its first token; decode counts the tokens of all sequences.
 *
 *     floor = (weights, once + KV pages of all sequences) / the rate at which the card reads memory
 *     FLOP  = 2 (tokens x layers' weights + prompts x head + attention's pairs, causal)
 *
 * The rate is measured at the start, on the device's own memory. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "server/bench_ablation.h"
#include "server/bench_run.h"
#include "server/commands.h"
#include "server/progress.h"
#include "server/startup.h"
#include "server/trace.h"

enum {
    LIST_MAX = 32,
    ROWS_MAX = 4096,
    LENGTH_MAX = 1 << 24,
    OUTPUT_BYTES_MAX = 1 << 20,
    TITLE_BYTES = 512,
};

struct list {
    uint32_t count;
    uint32_t values[LIST_MAX];
};

struct bench {
    const struct config *config;
    const struct engine *engine;
    struct engine_costs costs;
    double read_rate; /* bytes a second; 0: the device does not measure it */
    struct bench_run run;
    struct list sizes;
    struct list lengths;
    bool first; /* no result has been printed */
    struct buf out;
};

static int read_list(const char *option, const char *text, uint32_t high, struct list *list,
                     struct fault *fault)
{
    const char *at = text;

    list->count = 0;
    while (list->count < LIST_MAX) {
        char *end;
        unsigned long value = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;

        if (value < 1 || value > high || (*end && *end != ','))
            break;
        list->values[list->count++] = (uint32_t)value;
        if (!*end)
            return 0;
        at = end + 1;
    }
    return fault_field(
        fault, E_INVALID, option,
        "--%s %.60s: accepted is a list like 1,4,16 of at most %d whole numbers from 1 to "
        "%" PRIu32,
        option, text, LIST_MAX, high);
}

/* The command line is wrong, which has an exit code of its own. */
static int refuse(const struct fault *fault)
{
    fprintf(stderr, "weft: %s\n", fault->message);
    return EXIT_USAGE;
}

/* Rows that are ready are shown at once. */
static int show(struct buf *out, struct fault *fault)
{
    if (buf_failed(out) || fputs(buf_string(out), stdout) < 0 || fflush(stdout) != 0)
        return fault_errno(fault, "Cannot write to standard output");
    buf_reset(out);
    return 0;
}

/* --- output -------------------------------------------------------------------------------- */

static void put_json_head(struct bench *bench)
{
    const char *device = engine_device_name(bench->engine);
    const char *model = engine_model_name(bench->engine);
    struct buf *out = &bench->out;

    buf_text(out, "{\"model\":");
    buf_json_string(out, model, strlen(model));
    buf_text(out, ",\"device\":");
    buf_json_string(out, device, strlen(device));
    if (bench->read_rate > 0)
        buf_format(out, ",\"read_bytes_per_second\":%.6g", bench->read_rate);
    buf_format(out, ",\"steps\":%" PRIu32 ",\"repeats\":%" PRIu32 ",\"results\":[",
               bench->config->steps, bench->config->repeats);
}

static void put_head(struct bench *bench)
{
    struct buf *out = &bench->out;

    if (bench->config->json) {
        put_json_head(bench);
        return;
    }
    buf_format(out, "%s, %s, %" PRIu32 " steps, median of %" PRIu32,
               engine_model_name(bench->engine), engine_device_name(bench->engine),
               bench->config->steps, bench->config->repeats);
    if (bench->read_rate > 0)
        buf_format(out, ", memory read at %.2f TB/s\n%8s %9s %14s %9s %10s %14s %9s %9s\n",
                   bench->read_rate * 1e-12, "batch", "context", "prefill tok/s", "TFLOP/s",
                   "step ms", "decode tok/s", "of floor", "host us");
    else
        buf_format(out, "\n%8s %9s %14s %10s %14s %9s\n", "batch", "context", "prefill tok/s",
                   "step ms", "decode tok/s", "host us");
}

static void put_result(struct bench *bench, uint32_t rows, uint32_t context,
                       const struct bench_result *result)
{
    const struct engine_costs *costs = &bench->costs;
    struct buf *out = &bench->out;
    double tokens = (double)rows * context;
    double pairs = tokens * ((double)context + 1) / 2;
    double products = tokens * (double)costs->token_products +
                      rows * (double)costs->output_products + pairs * (double)costs->pair_products;
    double tflops = 2e-12 * products / result->prefill_seconds;
    double cached = rows * bench_run_step_tokens(context, bench->config->steps);
    double bytes = (double)costs->weight_bytes + cached * (double)costs->kv_token_bytes;
    double floor_seconds = bench->read_rate > 0 ? bytes / bench->read_rate : 0;
    double prefill = tokens / result->prefill_seconds, decode = rows / result->step_seconds;
    double host_us = result->step_host_seconds * 1e6;

    if (bench->config->json) {
        buf_format(out,
                   "%s\n  {\"batch\":%" PRIu32 ",\"context\":%" PRIu32
                   ",\"prefill_tokens_per_second\":%.6g,\"prefill_tflop_per_second\":%.6g"
                   ",\"decode_step_ms\":%.6g,\"decode_tokens_per_second\":%.6g"
                   ",\"host_step_us\":%.6g",
                   bench->first ? "" : ",", rows, context, prefill, tflops,
                   result->step_seconds * 1e3, decode, host_us);
        if (floor_seconds > 0)
            buf_format(out, ",\"memory_floor_ms\":%.6g,\"memory_floor_share\":%.6g",
                       floor_seconds * 1e3, floor_seconds / result->step_seconds);
        buf_text(out, "}");
    } else if (floor_seconds > 0) {
        buf_format(out, "%8" PRIu32 " %9" PRIu32 " %14.1f %9.1f %10.3f %14.1f %8.1f%% %9.1f\n",
                   rows, context, prefill, tflops, result->step_seconds * 1e3, decode,
                   floor_seconds / result->step_seconds * 100, host_us);
    } else {
        buf_format(out, "%8" PRIu32 " %9" PRIu32 " %14.1f %10.3f %14.1f %9.1f\n", rows, context,
                   prefill, result->step_seconds * 1e3, decode, host_us);
    }
    bench->first = false;
}

/* --- measuring ----------------------------------------------------------------------------- */

static int measure_all(struct bench *bench, struct fault *fault)
{
    const struct config *config = bench->config;
    int r = 0;

    put_head(bench);
    for (uint32_t i = 0; i < bench->lengths.count; i++) {
        for (uint32_t j = 0; j < bench->sizes.count; j++) {
            uint32_t context = bench->lengths.values[i], rows = bench->sizes.values[j];
            const char *misfit = bench_run_misfit(&bench->run, rows, context, config->steps);
            struct bench_result result;

            if (misfit) {
                fprintf(stderr, "left out: %" PRIu32 " sequences of %" PRIu32 " tokens: %s\n", rows,
                        context, misfit);
                continue;
            }
            r = bench_run_measure(&bench->run, rows, context, config->steps, config->repeats,
                                  &result, fault);
            if (r < 0)
                return r;
            put_result(bench, rows, context, &result);
            r = show(&bench->out, fault);
            if (r < 0)
                return r;
        }
    }
    if (config->json)
        buf_text(&bench->out, "\n]}\n");
    return show(&bench->out, fault);
}

static int measure_device(struct bench *bench, struct engine *engine, struct fault *fault)
{
    int r = engine_read_bandwidth(engine, &bench->read_rate, fault);

    bench->engine = engine;
    bench->costs = engine_costs(engine);
    return r == E_UNSUPPORTED ? 0 : r;
}

static int write_trace(struct bench *bench, struct trace *trace, struct fault *fault)
{
    uint64_t left_out;
    char title[TITLE_BYTES];
    int r;

    snprintf(title, sizeof title, "weft bench: %s, %s", engine_model_name(bench->engine),
             engine_device_name(bench->engine));
    r = trace_write(trace, title, &left_out, fault);
    if (r == 0 && left_out > 0)
        fprintf(stderr, "the trace holds the first %d spans; %" PRIu64 " are left out\n",
                TRACE_SPANS_MAX, left_out);
    return r;
}

static int run(struct bench *bench, const struct config *wide, struct fault *fault)
{
    struct engine_trace listener = {0};
    struct engine *engine = NULL;
    struct trace *trace = NULL;
    struct progress progress;
    int r = 0;

    if (*wide->trace) {
        r = trace_open(wide->trace, &trace, fault);
        if (r < 0)
            return r;
        listener = trace_engine(trace);
    }
    buf_init(&bench->out, OUTPUT_BYTES_MAX);
    progress_init(&progress, false);
    r = startup_engine_open_traced(wide, &progress, listener, &engine, fault);
    if (r == 0)
        r = startup_check_generates(engine, fault);
    if (r == 0) {
        progress_memory(&progress, engine);
        r = measure_device(bench, engine, fault);
    }
    if (r == 0)
        r = bench_run_init(&bench->run, engine, fault);
    if (r == 0)
        r = measure_all(bench, fault);
    if (r == 0 && trace)
        r = write_trace(bench, trace, fault);
    engine_close(engine); /* before the batches: steps may still be in flight after a fault */
    bench_run_fini(&bench->run);
    buf_fini(&bench->out);
    trace_close(trace);
    return r;
}

int command_bench(const struct config *config, struct fault *fault)
{
    struct bench bench = {.config = config, .first = true};
    struct config wide = *config;

    if (read_list("batch-sizes", config->batch_sizes, ROWS_MAX, &bench.sizes, fault) < 0 ||
        read_list("context-lengths", config->context_lengths, LENGTH_MAX, &bench.lengths, fault) <
            0)
        return refuse(fault);
    wide.max_batch = 1;
    wide.token_gap = 0; /* its steps are of one kind */
    for (uint32_t i = 0; i < bench.sizes.count; i++)
        if (bench.sizes.values[i] > wide.max_batch)
            wide.max_batch = bench.sizes.values[i];
    if (!config->ablation)
        return run(&bench, &wide, fault);
    if (*config->trace) {
        fault_field(fault, E_INVALID, "trace",
                    "--trace is of one engine, and --ablation opens several: take one");
        return refuse(fault);
    }
    return bench_ablation(&wide, bench.sizes.values, bench.sizes.count,
                          bench.lengths.values[bench.lengths.count - 1], fault);
}
