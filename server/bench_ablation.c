/* bench_ablation.c -- see bench_ablation.h. A line is printed as soon as it is measured. */
#include "server/bench_ablation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config/base/buf.h"
#include "server/bench_run.h"
#include "server/progress.h"
#include "server/startup.h"

enum { SIZES_MAX = 32, OUTPUT_BYTES_MAX = 1 << 20, STREAMS_ONE = 1, STREAMS_TWO = 2 };

/* The options of each line; the one before has one mechanism less. */
static const struct mechanism {
    const char *name;
    const char *flags; /* that give the same by hand */
    bool sync, no_graphs, sampling_stream;
    unsigned streams; /* the word of --streams */
} mechanisms[] = {
    {"plain loop", "--sync --no-graphs", true, true, false, STREAMS_ONE},
    {"+ graphs", "--sync", true, false, false, STREAMS_ONE},
    {"+ device-fed tokens", "", false, false, false, STREAMS_ONE},
    {"+ sampling stream", "--sampling-stream", false, false, true, STREAMS_ONE},
    {"+ lanes", "--sampling-stream --streams 2", false, false, true, STREAMS_TWO},
};

struct ablation {
    const struct config *config;
    const uint32_t *sizes;
    uint32_t size_count;
    uint32_t context;
    double before[SIZES_MAX]; /* seconds a step, of the line before; NAN: not measured */
    struct buf out;
};

static int show(struct buf *out, struct fault *fault)
{
    if (buf_failed(out) || fputs(buf_string(out), stdout) < 0 || fflush(stdout) != 0)
        return fault_errno(fault, "Cannot write to standard output");
    buf_reset(out);
    return 0;
}

static void put_head(struct ablation *ablation, const struct engine *engine)
{
    const struct config *config = ablation->config;
    const char *model = engine_model_name(engine), *device = engine_device_name(engine);
    struct buf *out = &ablation->out;

    if (config->json) {
        buf_text(out, "{\"model\":");
        buf_json_string(out, model, strlen(model));
        buf_text(out, ",\"device\":");
        buf_json_string(out, device, strlen(device));
        buf_format(out,
                   ",\"context\":%" PRIu32 ",\"steps\":%" PRIu32 ",\"repeats\":%" PRIu32
                   ",\"ablation\":[",
                   ablation->context, config->steps, config->repeats);
        return;
    }
    buf_format(out,
               "%s, %s, context %" PRIu32 ", %" PRIu32 " steps, median of %" PRIu32
               "\nms a step, and how many times as fast as the line before\n%-20s",
               model, device, ablation->context, config->steps, config->repeats, "batch");
    for (uint32_t i = 0; i < ablation->size_count; i++)
        buf_format(out, " %9" PRIu32 "       ", ablation->sizes[i]);
    buf_text(out, "\n");
}

/* `seconds` of a step is NAN where the size did not fit. */
static void put_cell(struct ablation *ablation, uint32_t index, bool first,
                     const struct bench_result *result)
{
    double seconds = result->step_seconds, ratio = ablation->before[index] / seconds;
    struct buf *out = &ablation->out;

    if (!ablation->config->json) {
        if (isnan(seconds))
            buf_format(out, " %9s       ", "-");
        else if (isnan(ratio))
            buf_format(out, " %9.3f       ", seconds * 1e3);
        else
            buf_format(out, " %9.3f x%-5.2f", seconds * 1e3, ratio);
    } else if (!isnan(seconds)) {
        buf_format(out,
                   "%s\n    {\"batch\":%" PRIu32 ",\"decode_step_ms\":%.6g,\"host_step_us\":%.6g",
                   first ? "" : ",", ablation->sizes[index], seconds * 1e3,
                   result->step_host_seconds * 1e6);
        if (!isnan(ratio))
            buf_format(out, ",\"ratio\":%.6g", ratio);
        buf_text(out, "}");
    }
}

static int measure_sizes(struct ablation *ablation, struct bench_run *run, struct fault *fault)
{
    const struct config *config = ablation->config;
    bool first = true;

    for (uint32_t i = 0; i < ablation->size_count; i++) {
        struct bench_result result = {.step_seconds = NAN};
        const char *misfit =
            bench_run_misfit(run, ablation->sizes[i], ablation->context, config->steps);

        if (misfit) {
            fprintf(stderr, "left out: %" PRIu32 " sequences of %" PRIu32 " tokens: %s\n",
                    ablation->sizes[i], ablation->context, misfit);
        } else {
            int r = bench_run_measure(run, ablation->sizes[i], ablation->context, config->steps,
                                      config->repeats, &result, fault);

            if (r < 0)
                return r;
        }
        put_cell(ablation, i, first, &result);
        first = first && misfit;
        ablation->before[i] = result.step_seconds;
    }
    return 0;
}

static int measure_mechanism(struct ablation *ablation, const struct mechanism *mechanism,
                             struct fault *fault)
{
    struct config changed = *ablation->config;
    struct engine *engine = NULL;
    struct bench_run run = {0};
    struct buf *out = &ablation->out;
    bool first = mechanism == mechanisms;
    struct progress progress;
    int r;

    changed.device = CONFIG_DEVICE_CUDA;
    changed.sync = mechanism->sync;
    changed.no_graphs = mechanism->no_graphs;
    changed.sampling_stream = mechanism->sampling_stream;
    changed.streams = mechanism->streams;
    progress_init(&progress, false);
    r = startup_engine_open(&changed, &progress, &engine, fault);
    if (r == E_UNSUPPORTED)
        fault_prefix(fault, "--ablation needs a GPU");
    if (r == 0)
        r = bench_run_init(&run, engine, fault);
    if (r == 0) {
        if (first)
            put_head(ablation, engine);
        if (ablation->config->json)
            buf_format(out, "%s\n  {\"mechanism\":\"%s\",\"flags\":\"%s\",\"results\":[",
                       first ? "" : ",", mechanism->name, mechanism->flags);
        else
            buf_format(out, "%-20s", mechanism->name);
        r = measure_sizes(ablation, &run, fault);
    }
    engine_close(engine); /* before the batches: steps may still be in flight after a fault */
    bench_run_fini(&run);
    if (r < 0)
        return r;
    if (ablation->config->json)
        buf_text(out, "]}");
    else
        buf_format(out, "  %s\n", *mechanism->flags ? mechanism->flags : "(default)");
    return show(out, fault);
}

int bench_ablation(const struct config *config, const uint32_t *sizes, uint32_t size_count,
                   uint32_t context, struct fault *fault)
{
    struct ablation ablation = {
        .config = config, .sizes = sizes, .size_count = size_count, .context = context};
    int r = 0;

    must(size_count <= SIZES_MAX);
    if (config->device == CONFIG_DEVICE_CPU || config->device == CONFIG_DEVICE_NULL)
        return fault_field(fault, E_UNSUPPORTED, "ablation",
                           "--ablation needs a GPU: elsewhere there is nothing to switch off");
    for (uint32_t i = 0; i < size_count; i++)
        ablation.before[i] = NAN;
    buf_init(&ablation.out, OUTPUT_BYTES_MAX);
    for (size_t i = 0; i < sizeof mechanisms / sizeof *mechanisms && r == 0; i++)
        r = measure_mechanism(&ablation, &mechanisms[i], fault);
    if (r == 0 && config->json) {
        buf_text(&ablation.out, "\n]}\n");
        r = show(&ablation.out, fault);
    }
    buf_fini(&ablation.out);
    return r;
}
