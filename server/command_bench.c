/* command_bench.c -- `weft bench`: the engine's speed at given batch sizes and prompt lengths,
 * without HTTP.
 *
 * Every figure is the median of --repeats measurements. Prefill counts all prompts' tokens over the
 * time until the last prompt has its first token; decode counts the tokens of all sequences. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/buf.h"
#include "server/bench_run.h"
#include "server/commands.h"
#include "server/progress.h"
#include "server/startup.h"

enum {
    LIST_MAX = 32,
    REPEATS_MAX = 1000,
    ROWS_MAX = 4096,
    LENGTH_MAX = 1 << 24,
    OUTPUT_BYTES_MAX = 1 << 20
};

struct list {
    uint32_t count;
    uint32_t values[LIST_MAX];
};

struct medians {
    double prefill_seconds;
    double decode_seconds;
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

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static int measure(struct bench_run *run, const struct config *config, uint32_t rows,
                   uint32_t context, struct medians *ret_medians, struct fault *fault)
{
    double prefill[REPEATS_MAX], decode[REPEATS_MAX];

    for (uint32_t i = 0; i < config->repeats; i++) {
        struct bench_result result;
        int r = bench_run_measure(run, rows, context, config->steps, &result, fault);

        if (r < 0)
            return r;
        prefill[i] = result.prefill_seconds;
        decode[i] = result.decode_seconds;
    }
    ret_medians->prefill_seconds = median(prefill, config->repeats);
    ret_medians->decode_seconds = median(decode, config->repeats);
    return 0;
}

static void put_result(const struct config *config, uint32_t rows, uint32_t context,
                       const struct medians *medians, bool first, struct buf *out)
{
    double prefill = (double)rows * context / medians->prefill_seconds;
    double decode = (double)rows * config->steps / medians->decode_seconds;
    double step_ms = medians->decode_seconds * 1e3 / config->steps;

    if (config->json)
        buf_format(out,
                   "%s\n  {\"batch\":%" PRIu32 ",\"context\":%" PRIu32
                   ",\"prefill_tokens_per_second\":%.6g,\"decode_step_ms\":%.6g,"
                   "\"decode_tokens_per_second\":%.6g}",
                   first ? "" : ",", rows, context, prefill, step_ms, decode);
    else
        buf_format(out, "%8" PRIu32 " %9" PRIu32 " %14.1f %14.3f %14.1f\n", rows, context, prefill,
                   step_ms, decode);
}

static void put_head(const struct config *config, const struct engine *engine, struct buf *out)
{
    const char *device = engine_device_name(engine), *model = engine_model_name(engine);

    if (config->json) {
        buf_text(out, "{\"model\":");
        buf_json_string(out, model, strlen(model));
        buf_text(out, ",\"device\":");
        buf_json_string(out, device, strlen(device));
        buf_format(out, ",\"steps\":%" PRIu32 ",\"repeats\":%" PRIu32 ",\"results\":[",
                   config->steps, config->repeats);
    } else {
        buf_format(out, "%s, %" PRIu32 " steps, median of %" PRIu32 "\n", device, config->steps,
                   config->repeats);
        buf_format(out, "%8s %9s %14s %14s %14s\n", "batch", "context", "prefill tok/s", "step ms",
                   "decode tok/s");
    }
}

/* Rows that are ready are shown at once. */
static int show(struct buf *out, struct fault *fault)
{
    if (buf_failed(out) || fputs(buf_string(out), stdout) < 0 || fflush(stdout) != 0)
        return fault_errno(fault, "Cannot write to standard output");
    buf_reset(out);
    return 0;
}

static int measure_all(struct bench_run *run, const struct config *config, const struct list *sizes,
                       const struct list *lengths, struct buf *out, struct fault *fault)
{
    bool first = true;
    int r = 0;

    put_head(config, run->engine, out);
    for (uint32_t i = 0; i < lengths->count; i++) {
        for (uint32_t j = 0; j < sizes->count; j++) {
            uint32_t context = lengths->values[i], rows = sizes->values[j];
            const char *misfit = bench_run_misfit(run, rows, context, config->steps);
            struct medians medians;

            if (misfit) {
                fprintf(stderr, "left out: %" PRIu32 " sequences of %" PRIu32 " tokens: %s\n", rows,
                        context, misfit);
                continue;
            }
            r = measure(run, config, rows, context, &medians, fault);
            if (r < 0)
                return r;
            put_result(config, rows, context, &medians, first, out);
            first = false;
            r = show(out, fault);
            if (r < 0)
                return r;
        }
    }
    if (config->json)
        buf_text(out, "\n]}\n");
    return show(out, fault);
}

int command_bench(const struct config *config, struct fault *fault)
{
    struct config wide = *config;
    struct bench_run run = {0};
    struct engine *engine = NULL;
    struct progress progress;
    struct list sizes, lengths;
    struct buf out;
    int r;

    if ((r = read_list("batch-sizes", config->batch_sizes, ROWS_MAX, &sizes, fault)) < 0 ||
        (r = read_list("context-lengths", config->context_lengths, LENGTH_MAX, &lengths, fault)) <
            0)
        return r;
    wide.max_batch = 1;
    for (uint32_t i = 0; i < sizes.count; i++)
        wide.max_batch = sizes.values[i] > wide.max_batch ? sizes.values[i] : wide.max_batch;
    buf_init(&out, OUTPUT_BYTES_MAX);
    progress_init(&progress, false);
    r = startup_engine_open(&wide, &progress, &engine, fault);
    if (r == 0) {
        progress_memory(&progress, engine);
        r = bench_run_init(&run, engine, fault);
    }
    if (r == 0)
        r = measure_all(&run, config, &sizes, &lengths, &out, fault);
    engine_close(engine); /* before the batches: steps may still be in flight after a fault */
    bench_run_fini(&run);
    buf_fini(&out);
    return r;
}
