/* engine_runner.h -- runs many sequences through an engine to their ends, for tests.
 *
 * A scheduler reduced to what a test needs: every row has all its pages for itself, prompts go in
 * by chunks, every row decodes in every step, two steps are in flight. A job may join late, so that
 * it computes beside others' prompts and answers. Results are copied out; what contradicts engine.h
 * fails the test. */
#ifndef WEFT_TEST_ENGINE_RUNNER_H
#define WEFT_TEST_ENGINE_RUNNER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"

#ifndef RUNNER_TOKENS
#define RUNNER_TOKENS 64 /* a test that wants longer answers says so before it includes this */
#endif
enum { RUNNER_ROWS_MAX = 64, RUNNER_TOKENS_MAX = RUNNER_TOKENS, RUNNER_BATCHES = 3 };

struct job {
    const int32_t *prompt;
    uint32_t prompt_count;
    uint32_t tokens_wanted; /* at most RUNNER_TOKENS_MAX; 0: score the prompt */
    uint32_t joins_at;      /* the first step that it may be part of */
    struct sampling sampling;

    uint32_t token_count; /* results: one row for each token */
    struct step_row rows[RUNNER_TOKENS_MAX];
    uint32_t logprob_count;      /* prompt log-probabilities; entry i is of position i + 1 */
    struct step_prompt *prompts; /* [prompt_count] or NULL */

    enum { JOB_WAITS, JOB_PREFILLS, JOB_DECODES, JOB_ENDED } state;
    uint32_t row;
    uint32_t computed; /* prompt tokens given to the engine */
};

struct runner {
    struct engine *engine;
    const struct engine_limits *limits;
    struct job *jobs;
    uint32_t job_count;
    uint32_t chunk; /* most prompt tokens of one job in a step */
    struct batch *batches[RUNNER_BATCHES];
    struct job *heard_by[RUNNER_BATCHES][RUNNER_ROWS_MAX]; /* who had the row in that batch */
    struct job *by_row[RUNNER_ROWS_MAX];
    uint32_t step; /* submitted */
    uint32_t completed;
};

static inline void job_init(struct job *job, const int32_t *prompt, uint32_t count, uint32_t wanted)
{
    memset(job, 0, sizeof *job);
    job->prompt = prompt;
    job->prompt_count = count;
    job->tokens_wanted = wanted;
    sampling_init(&job->sampling);
}

static inline void runner_admit(struct runner *runner, struct batch *batch, struct job *job)
{
    uint32_t pages = runner->limits->pages_per_row;

    for (uint32_t row = 0; row < runner->limits->batch.rows; row++) {
        if (runner->by_row[row])
            continue;
        runner->by_row[row] = job;
        job->row = row;
        job->state = JOB_PREFILLS;
        batch->openings[batch->opening_count++] =
            (struct batch_opening){.row = row,
                                   .tokens = job->prompt,
                                   .token_count = job->prompt_count,
                                   .prompt_count = job->prompt_count,
                                   .tokens_left = job->tokens_wanted,
                                   .sampling = &job->sampling};
        for (uint32_t i = 0; i < pages; i++)
            batch->grants[batch->grant_count++] = (struct batch_grant){row, i, row * pages + i};
        return;
    }
}

/* Frees rows of jobs whose end was heard, admits, and fills the step. Returns how many rows it has.
 */
static inline uint32_t runner_plan(struct runner *runner, struct batch *batch)
{
    uint32_t budget = runner->limits->batch.prefill_tokens;

    batch_reset(batch);
    batch->number = runner->step;
    for (uint32_t row = 0; row < runner->limits->batch.rows; row++) {
        if (runner->by_row[row] && runner->by_row[row]->state == JOB_ENDED) {
            batch->close_rows[batch->close_count++] = row;
            runner->by_row[row] = NULL;
        }
    }
    for (uint32_t i = 0; i < runner->job_count; i++)
        if (runner->jobs[i].state == JOB_WAITS && runner->jobs[i].joins_at <= runner->step)
            runner_admit(runner, batch, &runner->jobs[i]);
    for (uint32_t row = 0; row < runner->limits->batch.rows; row++) {
        struct job *job = runner->by_row[row];

        if (job && job->state == JOB_DECODES)
            batch->decode_rows[batch->decode_count++] = row;
    }
    for (uint32_t row = 0; row < runner->limits->batch.rows && budget > 0; row++) {
        struct job *job = runner->by_row[row];
        uint32_t count;

        if (!job || job->state != JOB_PREFILLS)
            continue;
        count = job->prompt_count - job->computed;
        count = count < runner->chunk ? count : runner->chunk;
        count = count < budget ? count : budget;
        batch->prefills[batch->prefill_count++] = (struct batch_prefill){row, job->computed, count};
        budget -= count;
        job->computed += count;
        if (job->computed == job->prompt_count)
            job->state = JOB_DECODES; /* from the next batch on, unless it ends here */
    }
    memcpy(runner->heard_by[runner->step % RUNNER_BATCHES], runner->by_row, sizeof runner->by_row);
    return batch->prefill_count + batch->decode_count;
}

static inline void runner_hear(struct runner *runner, const struct step *step)
{
    struct job **heard_by = runner->heard_by[step->number % RUNNER_BATCHES];

    assert_int_equal(step->number, runner->completed - 1);
    for (uint32_t i = 0; i < step->prompt_count; i++) {
        const struct step_prompt *prompt = &step->prompts[i];
        struct job *job = heard_by[prompt->row];

        assert_non_null(job->prompts);
        assert_int_equal(prompt->position, job->logprob_count + 1);
        assert_int_equal(prompt->token, job->prompt[prompt->position]);
        job->prompts[job->logprob_count++] = *prompt;
    }
    for (uint32_t i = 0; i < step->row_count; i++) {
        const struct step_row *row = &step->rows[i];
        struct job *job = heard_by[row->row];

        assert_non_null(job);
        if (job->state == JOB_ENDED) {
            assert_int_equal(row->state, STEP_ROW_IDLE);
        } else if (row->state == STEP_ROW_SCORED) {
            job->state = JOB_ENDED;
        } else if (row->state != STEP_ROW_PARTIAL) {
            assert_int_not_equal(row->state, STEP_ROW_IDLE);
            assert_true(job->token_count < job->tokens_wanted);
            job->rows[job->token_count++] = *row;
            if (row->state != STEP_ROW_TOKEN)
                job->state = JOB_ENDED;
        }
    }
}

static inline void runner_complete(struct runner *runner)
{
    struct step step;
    struct fault fault = {0};

    if (engine_complete(runner->engine, &step, &fault) < 0)
        fail_msg("%s", fault.message);
    runner->completed++;
    runner_hear(runner, &step);
}

/* Runs every job to its end. */
static inline void run_jobs(struct engine *engine, struct job *jobs, uint32_t count, uint32_t chunk)
{
    struct runner runner = {.engine = engine,
                            .limits = engine_limits(engine),
                            .jobs = jobs,
                            .job_count = count,
                            .chunk = chunk};
    uint32_t ended = 0;

    assert_true(runner.limits->batch.rows <= RUNNER_ROWS_MAX);
    assert_true(runner.limits->page_count >=
                runner.limits->batch.rows * runner.limits->pages_per_row);
    for (int i = 0; i < RUNNER_BATCHES; i++)
        assert_int_equal(batch_open(&runner.limits->batch, &runner.batches[i], NULL), 0);
    while (ended < count || engine_in_flight(engine) > 0) {
        struct batch *batch = runner.batches[runner.step % RUNNER_BATCHES];
        struct fault fault = {0};

        if (ended < count) { /* an empty step is one too: late jobs count them */
            runner_plan(&runner, batch);
            if (engine_submit(engine, batch, &fault) < 0)
                fail_msg("%s", fault.message);
            runner.step++;
        }
        if (engine_in_flight(engine) == ENGINE_STEPS_IN_FLIGHT || ended == count)
            runner_complete(&runner);
        ended = 0;
        for (uint32_t i = 0; i < count; i++)
            ended += jobs[i].state == JOB_ENDED;
    }
    /* Rows are left open: the engine's next run must not start with them. */
    batch_reset(runner.batches[0]);
    for (uint32_t row = 0; row < runner.limits->batch.rows; row++)
        if (runner.by_row[row])
            runner.batches[0]->close_rows[runner.batches[0]->close_count++] = row;
    runner.batches[0]->number = runner.step;
    assert_int_equal(engine_submit(engine, runner.batches[0], NULL), 0);
    runner_complete(&runner);
    for (int i = 0; i < RUNNER_BATCHES; i++)
        batch_close(runner.batches[i]);
}

#endif
