/* step_budget.c -- see the header. Which tokens the prompts have does not matter, only that they
 * differ. Each size runs once to warm up (products choose how they run), then counts. */
#include "engine/step_budget.h"

#include <stdlib.h>

enum {
    TOKENS_STEP = 32, /* the result is a multiple of it */
    MEASURED = 2,     /* runs that count, of which the fastest is taken */
};

struct meter {
    struct engine *engine;
    const struct engine_limits *limits;
    struct batch *batch;
    struct sampling sampling;
    int32_t *tokens; /* [context] */
    uint32_t open_rows;
    uint64_t steps;
};

static int meter_open(struct meter *meter, struct engine *engine, struct fault *fault)
{
    uint32_t state = 1;

    *meter = (struct meter){.engine = engine, .limits = engine_limits(engine)};
    sampling_init(&meter->sampling);
    meter->tokens = calloc(meter->limits->context, sizeof *meter->tokens);
    if (!meter->tokens)
        return fault_set(fault, E_MEMORY, "out of memory for measuring steps");
    for (uint32_t i = 0; i < meter->limits->context; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
        meter->tokens[i] = (int32_t)((state >> 8) % meter->limits->vocabulary);
    }
    return batch_open(&meter->limits->batch, &meter->batch, fault);
}

static void meter_close(struct meter *meter)
{
    batch_close(meter->batch);
    free(meter->tokens);
}

/* A row takes this much, and one token more is drawn. */
static uint32_t row_tokens(const struct meter *meter)
{
    return meter->limits->context - 1;
}

static uint32_t pages_for(const struct meter *meter, uint32_t tokens)
{
    return (tokens + meter->limits->page_tokens - 1) / meter->limits->page_tokens;
}

static bool fits(const struct meter *meter, uint32_t tokens)
{
    uint32_t rows, pages;

    if (tokens > meter->limits->batch.prefill_tokens || row_tokens(meter) == 0)
        return false;
    rows = (tokens + row_tokens(meter) - 1) / row_tokens(meter);
    pages = rows * pages_for(meter, tokens < row_tokens(meter) ? tokens : row_tokens(meter));
    return rows <= meter->limits->batch.rows && pages <= meter->limits->page_count;
}

static void add_row(struct meter *meter, uint32_t row, uint32_t count, uint32_t *page)
{
    struct batch *batch = meter->batch;

    batch->openings[batch->opening_count++] = (struct batch_opening){.row = row,
                                                                     .tokens = meter->tokens,
                                                                     .token_count = count,
                                                                     .prompt_count = count,
                                                                     .tokens_left = 1,
                                                                     .sampling = &meter->sampling};
    for (uint32_t i = 0; i < pages_for(meter, count); i++)
        batch->grants[batch->grant_count++] =
            (struct batch_grant){.row = row, .index = i, .page = (*page)++};
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){.row = row, .count = count};
}

/* One step that reads so many tokens of prompts, after closing the rows of the one before. */
static int run(struct meter *meter, uint32_t tokens, uint64_t *ret_ns, struct fault *fault)
{
    struct batch *batch = meter->batch;
    uint32_t rows = 0, page = 0;
    struct step step;
    int r;

    batch_reset(batch);
    batch->number = meter->steps++;
    for (uint32_t row = 0; row < meter->open_rows; row++)
        batch->close_rows[batch->close_count++] = row;
    while (tokens > 0) {
        uint32_t count = tokens < row_tokens(meter) ? tokens : row_tokens(meter);

        add_row(meter, rows++, count, &page);
        tokens -= count;
    }
    meter->open_rows = rows;
    r = engine_submit(meter->engine, batch, fault);
    if (r == 0)
        r = engine_complete(meter->engine, &step, fault);
    if (r < 0)
        return r;
    *ret_ns = step.ended_ns - step.started_ns;
    return 0;
}

static int measure(struct meter *meter, uint32_t tokens, uint64_t *ret_ns, struct fault *fault)
{
    uint64_t ns, best = UINT64_MAX;

    for (int i = 0; i < 1 + MEASURED; i++) {
        int r = run(meter, tokens, &ns, fault);

        if (r < 0)
            return r;
        if (i > 0 && ns < best)
            best = ns;
    }
    *ret_ns = best;
    return 0;
}

static int find_budget(struct meter *meter, uint64_t step_ns, uint32_t *tokens, struct fault *fault)
{
    uint64_t below_ns = 0, ns;

    for (uint32_t size = *tokens; fits(meter, size); size *= 2) {
        int r = measure(meter, size, &ns, fault);

        if (r < 0)
            return r;
        if (ns > step_ns) {
            if (size > *tokens)
                *tokens += (uint32_t)((size - *tokens) * (step_ns - below_ns) / (ns - below_ns));
            break;
        }
        *tokens = size;
        below_ns = ns;
    }
    return run(meter, 0, &ns, fault);
}

int step_budget_measure(struct engine *engine, uint64_t step_ns, uint32_t least,
                        uint32_t *ret_tokens, struct fault *fault)
{
    struct meter meter;
    uint32_t tokens = least;
    int r = meter_open(&meter, engine, fault);

    if (r == 0)
        r = find_budget(&meter, step_ns, &tokens, fault);
    if (r == 0) {
        tokens = tokens / TOKENS_STEP * TOKENS_STEP;
        *ret_tokens = tokens > least ? tokens : least;
    }
    meter_close(&meter);
    return r;
}
