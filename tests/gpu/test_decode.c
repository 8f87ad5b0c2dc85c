/* Protects the decode loop on a GPU: a thousand steps allocate nothing and synchronize nothing, and
 * every way to run them (graphs or not, lanes, drawing on the host, on a stream of its own, prompts
 * apart) gives the same tokens.
 *
 *     test_decode         a model of the shape smollm2-135m
 *     test_decode small   tiny.json beside this program: for compute-sanitizer */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RUNNER_TOKENS 1000
#include "engine/engine.h"
#include "tests/lib/engine_runner.h"

enum { ROWS = 8, PROMPT_MAX = 160, TOKENS = 40, LONG_TOKENS = 1000, CHUNK = 64 };

static const char *shape = "smollm2-135m";
static bool small;

static struct engine *open_engine(struct cuda_options cuda)
{
    struct engine_options options = {.random_shape = shape,
                                     .device = DEVICE_CUDA,
                                     .cuda = cuda,
                                     .max_batch = ROWS,
                                     .max_context = 1280,
                                     .prefill_tokens = 256};
    struct engine *engine = NULL;
    struct fault fault = {0};

    options.cuda.memory_fraction = 0.5;
    if (engine_open(&options, &engine, &fault) < 0)
        fail_msg("%s", fault.message);
    return engine;
}

/* Prompts of different lengths, made of different tokens. */
static struct job *make_jobs(uint32_t tokens)
{
    static int32_t prompts[ROWS][PROMPT_MAX];
    struct job *jobs = calloc(ROWS, sizeof *jobs);

    assert_non_null(jobs);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t count = 3 + i * 21;

        for (uint32_t j = 0; j < count; j++)
            prompts[i][j] = (int32_t)((i * 7919 + j * 104729 + 17) % 250);
        job_init(&jobs[i], prompts[i], count, tokens);
        jobs[i].sampling.ignore_eos = true;
        jobs[i].sampling.logprobs = 2;
        jobs[i].joins_at = i % 3;
    }
    return jobs;
}

static void a_thousand_steps_neither_allocate_nor_synchronize(void **state)
{
    struct engine *engine = open_engine((struct cuda_options){0});
    struct engine_calls before, after;
    struct job *jobs = make_jobs(small ? TOKENS : LONG_TOKENS);

    (void)state;
    assert_true(engine_calls(engine, &before));
    run_jobs(engine, jobs, ROWS, CHUNK);
    assert_true(engine_calls(engine, &after));
    printf("%u tokens a row: %llu graphs, %llu kernels, %llu copies, %llu sleeps, "
           "%llu allocations, %llu synchronizations\n",
           small ? TOKENS : LONG_TOKENS, (unsigned long long)(after.graphs - before.graphs),
           (unsigned long long)(after.launches - before.launches),
           (unsigned long long)(after.copies - before.copies),
           (unsigned long long)(after.event_waits - before.event_waits),
           (unsigned long long)(after.allocations - before.allocations),
           (unsigned long long)(after.synchronizations - before.synchronizations));
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.synchronizations, before.synchronizations);
    assert_true(after.graphs - before.graphs >= (small ? TOKENS : LONG_TOKENS) - 2);
    free(jobs);
    engine_close(engine);
}

/* Up to the first step whose two likeliest tokens are nearly tied. */
static void expect_same_tokens(const struct job *got, const struct job *wanted, const char *mode)
{
    uint32_t compared = 0;

    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < TOKENS; j++) {
            const struct step_row *row = &wanted[i].rows[j];

            if (row->top[0].logprob - row->top[1].logprob < 0.05f)
                break;
            if (got[i].rows[j].token != row->token)
                fail_msg("%s: row %u, token %u is %d, not %d", mode, i, j, got[i].rows[j].token,
                         row->token);
            assert_true(fabsf(got[i].rows[j].logprob - row->logprob) < 0.05f);
            compared++;
        }
    printf("%-16s %u tokens compared\n", mode, compared);
    assert_true(compared >= 2 * ROWS);
}

static void every_mode_gives_the_same_tokens(void **state)
{
    static const struct {
        const char *name;
        struct cuda_options options;
    } modes[] = {
        {"no graphs", {.no_graphs = true}},
        {"plain loop", {.no_graphs = true, .host_sampling = true}},
        {"host sampling", {.host_sampling = true}},
        {"sampling stream", {.sampling_stream = true}},
        {"two lanes", {.streams = 2}},
        {"four lanes", {.streams = 4}},
        {"prefill lane", {.prefill_lane = true}},
    };
    struct engine *engine = open_engine((struct cuda_options){0});
    struct job *wanted = make_jobs(TOKENS);

    (void)state;
    run_jobs(engine, wanted, ROWS, CHUNK);
    engine_close(engine);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct job *got = make_jobs(TOKENS);

        engine = open_engine(modes[i].options);
        run_jobs(engine, got, ROWS, CHUNK);
        engine_close(engine);
        expect_same_tokens(got, wanted, modes[i].name);
        free(got);
    }
    free(wanted);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_steps_neither_allocate_nor_synchronize),
        cmocka_unit_test(every_mode_gives_the_same_tokens),
    };
    static char path[512];
    const char *slash = strrchr(argv[0], '/');

    small = argc > 1 && strcmp(argv[1], "small") == 0;
    if (small) {
        snprintf(path, sizeof path, "%.*s/tiny.json", slash ? (int)(slash - argv[0]) : 1,
                 slash ? argv[0] : ".");
        shape = path;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
