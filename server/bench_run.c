/* bench_run.c -- see bench_run.h. Pages are dealt out by number, row after row; between two
 * measurements nothing is in flight, so they can be dealt again. */
#include "server/bench_run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/clock.h"

enum { REPEATS_MAX = 1000 };

/* Tokens of a sequence: its prompt, one from the prompt's last chunk, one from each step. */
static uint32_t tokens_of(uint32_t context, uint32_t steps)
{
    return context + 1 + BENCH_WARM_STEPS + steps + BENCH_TAIL_STEPS;
}

static uint32_t pages_of(const struct bench_run *run, uint32_t tokens)
{
    return (tokens + run->limits->page_tokens - 1) / run->limits->page_tokens;
}

int bench_run_init(struct bench_run *run, struct engine *engine, struct fault *fault)
{
    const struct engine_limits *limits = engine_limits(engine);
    uint32_t state = 1;
    size_t count = (size_t)limits->context + limits->batch.rows;
    int r;

    *run = (struct bench_run){.engine = engine, .limits = limits};
    run->granted = calloc(limits->batch.rows, sizeof *run->granted);
    run->tokens = calloc(count, sizeof *run->tokens);
    if (!run->granted || !run->tokens)
        return fault_set(fault, E_MEMORY, "There is no memory left for the prompts");
    /* Numerical Recipes' generator: which tokens does not matter, only that they differ. */
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        run->tokens[i] = (int32_t)((state >> 8) % limits->vocabulary);
    }
    for (unsigned i = 0; i < BENCH_BATCHES; i++) {
        r = batch_open(&limits->batch, &run->batches[i], fault);
        if (r < 0)
            return r;
    }
    sampling_init(&run->sampling);
    run->sampling.ignore_eos = true;
    return 0;
}

void bench_run_fini(struct bench_run *run)
{
    for (unsigned i = 0; i < BENCH_BATCHES; i++)
        batch_close(run->batches[i]);
    free(run->granted);
    free(run->tokens);
}

const char *bench_run_misfit(const struct bench_run *run, uint32_t rows, uint32_t context,
                             uint32_t steps)
{
    const struct engine_limits *limits = run->limits;

    if (rows > limits->batch.rows)
        return "more sequences than rows";
    if (tokens_of(context, steps) > limits->context)
        return "longer than the model's context";
    if ((uint64_t)rows * pages_of(run, tokens_of(context, steps)) > limits->page_count)
        return "more than the KV cache holds";
    return NULL;
}

static struct batch *next_batch(struct bench_run *run)
{
    struct batch *batch = run->batches[run->submitted % BENCH_BATCHES];

    batch_reset(batch);
    batch->number = run->submitted;
    return batch;
}

static int complete(struct bench_run *run, uint64_t in_flight_max, struct fault *fault)
{
    while (run->submitted - run->completed > in_flight_max) {
        struct step step;
        uint64_t began = clock_now();
        int r = engine_complete(run->engine, &step, fault);

        if (r < 0)
            return r;
        run->host_ns += clock_now() - began - step.waited_ns;
        run->completed++;
    }
    return 0;
}

static int submit(struct bench_run *run, const struct batch *batch, struct fault *fault)
{
    uint64_t began = clock_now();
    int r = engine_submit(run->engine, batch, fault);

    if (r < 0)
        return r;
    run->host_ns += clock_now() - began;
    run->submitted++;
    return complete(run, ENGINE_STEPS_IN_FLIGHT - 1, fault);
}

/* Pages for the row's positions below `tokens`; false when the batch holds no more grants. */
static bool grant(struct bench_run *run, struct batch *batch, uint32_t row, uint32_t tokens,
                  uint32_t pages_per_row)
{
    for (; run->granted[row] < pages_of(run, tokens); run->granted[row]++) {
        if (batch->grant_count == run->limits->batch.grants)
            return false;
        batch->grants[batch->grant_count++] =
            (struct batch_grant){.row = row,
                                 .index = run->granted[row],
                                 .page = row * pages_per_row + run->granted[row]};
    }
    return true;
}

static void open_rows(struct bench_run *run, struct batch *batch, uint32_t rows, uint32_t context,
                      uint32_t steps)
{
    for (uint32_t row = 0; row < run->open_rows; row++)
        batch->close_rows[batch->close_count++] = row;
    for (uint32_t row = 0; row < rows; row++) {
        batch->openings[batch->opening_count++] =
            (struct batch_opening){.row = row,
                                   .tokens = run->tokens + row,
                                   .token_count = context,
                                   .prompt_count = context,
                                   .tokens_left = tokens_of(context, steps) - context,
                                   .sampling = &run->sampling};
        run->granted[row] = 0;
    }
    run->open_rows = rows;
}

static int prefill(struct bench_run *run, uint32_t rows, uint32_t context, uint32_t steps,
                   uint32_t pages_per_row, struct fault *fault)
{
    uint32_t row = 0, position = 0;
    bool opened = false;

    while (row < rows) {
        struct batch *batch = next_batch(run);
        uint32_t budget = run->limits->batch.prefill_tokens;
        int r;

        if (!opened)
            open_rows(run, batch, rows, context, steps);
        opened = true;
        while (row < rows && budget > 0) {
            uint32_t count = context - position < budget ? context - position : budget;

            if (!grant(run, batch, row, position + count, pages_per_row))
                break;
            batch->prefills[batch->prefill_count++] =
                (struct batch_prefill){.row = row, .position = position, .count = count};
            budget -= count;
            position += count;
            if (position == context) {
                position = 0;
                row++;
            }
        }
        if (batch->prefill_count == 0)
            return fault_set(fault, E_FULL, "A batch cannot hold the pages of one prompt chunk");
        r = submit(run, batch, fault);
        if (r < 0)
            return r;
    }
    return complete(run, 0, fault);
}

/* A submit returns when the step before it has completed. */
static int decode(struct bench_run *run, uint32_t rows, uint32_t context, uint32_t steps,
                  uint32_t pages_per_row, struct bench_result *ret_result, struct fault *fault)
{
    uint32_t last = BENCH_WARM_STEPS + steps;
    uint64_t began_ns = 0, began_host_ns = 0;
    int64_t host_ns;

    for (uint32_t step = 0; step <= last; step++) {
        struct batch *batch = next_batch(run);
        int r;

        for (uint32_t row = 0; row < rows; row++) {
            if (!grant(run, batch, row, context + step + 1, pages_per_row))
                return fault_set(fault, E_FULL, "A batch cannot hold a page for every row");
            batch->decode_rows[batch->decode_count++] = row;
        }
        r = submit(run, batch, fault);
        if (r < 0)
            return r;
        if (step == BENCH_WARM_STEPS) {
            began_ns = clock_now();
            began_host_ns = run->host_ns;
        }
    }
    ret_result->step_seconds = clock_seconds(clock_now() - began_ns) / steps;
    /* What --sync waits for within a submit is known only at its step's completion: one step of
     * many may be on the wrong side. */
    host_ns = (int64_t)(run->host_ns - began_host_ns);
    ret_result->step_host_seconds = host_ns > 0 ? clock_seconds((uint64_t)host_ns) / steps : 0;
    return complete(run, 0, fault);
}

static int measure(struct bench_run *run, uint32_t rows, uint32_t context, uint32_t steps,
                   struct bench_result *ret_result, struct fault *fault)
{
    uint32_t pages_per_row = pages_of(run, tokens_of(context, steps));
    uint64_t started = clock_now();
    int r;

    r = prefill(run, rows, context, steps, pages_per_row, fault);
    if (r < 0)
        return r;
    ret_result->prefill_seconds = clock_seconds(clock_now() - started);
    return decode(run, rows, context, steps, pages_per_row, ret_result, fault);
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

int bench_run_measure(struct bench_run *run, uint32_t rows, uint32_t context, uint32_t steps,
                      uint32_t repeats, struct bench_result *ret_result, struct fault *fault)
{
    double prefills[REPEATS_MAX], decodes[REPEATS_MAX], hosts[REPEATS_MAX];

    must(repeats > 0 && repeats <= REPEATS_MAX);
    for (uint32_t i = 0; i < repeats; i++) {
        struct bench_result result = {0};
        int r = measure(run, rows, context, steps, &result, fault);

        if (r < 0)
            return r;
        prefills[i] = result.prefill_seconds;
        decodes[i] = result.step_seconds;
        hosts[i] = result.step_host_seconds;
    }
    *ret_result = (struct bench_result){
        .prefill_seconds = median(prefills, repeats),
        .step_seconds = median(decodes, repeats),
        .step_host_seconds = median(hosts, repeats),
    };
    return 0;
}

double bench_run_step_tokens(uint32_t context, uint32_t steps)
{
    /* The first step that is timed reads the prompt, the warm steps' tokens and its own. */
    return (double)context + BENCH_WARM_STEPS + 1 + (double)(steps - 1) / 2;
}
