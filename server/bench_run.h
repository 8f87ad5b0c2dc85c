/* bench_run.h -- one measurement of the engine alone: prefill some rows, then decode them together.
 *
 *     submit 0 | submit 1 | complete 0, submit 2 | complete 1, submit 3 | ...
 *
 * Two steps deep, as the scheduler drives it. Decoding is timed from the completion of one step to
 * that of another, with the next one submitted both times: no filling and no draining is in it. A
 * few steps before the first are not timed.
 *
 * Belongs to the thread that calls the engine. */
#ifndef WEFT_BENCH_RUN_H
#define WEFT_BENCH_RUN_H

#include <stdint.h>

#include "config/base/fault.h"
#include "engine/batch.h"
#include "engine/engine.h"

enum {
    BENCH_BATCHES = ENGINE_STEPS_IN_FLIGHT + 1,
    BENCH_WARM_STEPS = 4,
    BENCH_TAIL_STEPS = ENGINE_STEPS_IN_FLIGHT - 1, /* behind the last one that is timed */
};

struct bench_run {
    struct engine *engine;
    const struct engine_limits *limits;
    struct batch *batches[BENCH_BATCHES]; /* a batch is free again when its step has completed */
    uint64_t submitted;
    uint64_t completed;
    uint64_t host_ns;   /* spent within submit and complete, without waiting */
    uint32_t open_rows; /* of the measurement before: closed by the next one's first step */
    uint32_t *granted;  /* [rows] pages of each row */
    int32_t *tokens;    /* [context + rows] arbitrary ids; row r's prompt starts at tokens[r] */
    struct sampling sampling;
};

struct bench_result {
    double prefill_seconds;   /* all rows, from nothing to the first token of the last */
    double step_seconds;      /* one decode step of all rows */
    double step_host_seconds; /* of it in the engine's calls, without waiting */
};

int bench_run_init(struct bench_run *run, struct engine *engine, struct fault *fault);
void bench_run_fini(struct bench_run *run);
/* Why `rows` sequences of `context` prompt tokens and `steps` timed ones do not fit; NULL when they
 * do. */
const char *bench_run_misfit(const struct bench_run *run, uint32_t rows, uint32_t context,
                             uint32_t steps);
/* Medians of `repeats` measurements of `steps` decode steps each. */
int bench_run_measure(struct bench_run *run, uint32_t rows, uint32_t context, uint32_t steps,
                      uint32_t repeats, struct bench_result *ret_result, struct fault *fault);
/* What a decode step reads from the KV cache on average: tokens of one row. */
double bench_run_step_tokens(uint32_t context, uint32_t steps);

#endif
