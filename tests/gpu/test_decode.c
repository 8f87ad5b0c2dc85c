/* Protects the decode loop on a GPU: a thousand steps allocate nothing and synchronize nothing, and
 * every way to run them (graphs or not, lanes, drawing on the host, on a stream of its own, prompts
 * apart) gives the same tokens.
 *
 *     test_decode         a model of the shape smollm2-135m
 *     test_decode small [TEST]   tiny.json beside this program, few tokens; one test: for
 *                                compute-sanitizer */
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

enum { ROWS = 8, PROMPT_MAX = 160, TOKENS_MAX = 1000, CHUNK = 64 };

static const char *shape = "smollm2-135m";
static bool small;
static uint32_t compared_tokens = 40, long_tokens = TOKENS_MAX;

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
    struct job *jobs = make_jobs(long_tokens);

    (void)state;
    assert_true(engine_calls(engine, &before));
    run_jobs(engine, jobs, ROWS, CHUNK);
    assert_true(engine_calls(engine, &after));
    printf("%u tokens a row: %llu graphs, %llu kernels, %llu copies, %llu sleeps, "
           "%llu allocations, %llu synchronizations\n",
           long_tokens, (unsigned long long)(after.graphs - before.graphs),
           (unsigned long long)(after.launches - before.launches),
           (unsigned long long)(after.copies - before.copies),
           (unsigned long long)(after.event_waits - before.event_waits),
           (unsigned long long)(after.allocations - before.allocations),
           (unsigned long long)(after.synchronizations - before.synchronizations));
    assert_int_equal(after.allocations, before.allocations);
    assert_int_equal(after.synchronizations, before.synchronizations);
    assert_true(after.graphs - before.graphs >= long_tokens - 2);
    free(jobs);
    engine_close(engine);
}

/* Every token; log-probabilities are summed up on the host or on the device. */
static void expect_same(const struct job *got, const struct job *wanted, const char *mode)
{
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < compared_tokens; j++)
            if (got[i].rows[j].token != wanted[i].rows[j].token ||
                fabsf(got[i].rows[j].logprob - wanted[i].rows[j].logprob) > 1e-4f)
                fail_msg("%s: row %u, token %u is %d (%g), not %d (%g)", mode, i, j,
                         got[i].rows[j].token, (double)got[i].rows[j].logprob,
                         wanted[i].rows[j].token, (double)wanted[i].rows[j].logprob);
    printf("%-16s the same tokens\n", mode);
}

/* Up to the first step whose two likeliest tokens are nearly tied. */
static void expect_near(const struct job *got, const struct job *wanted, const char *mode)
{
    uint32_t compared = 0;

    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < compared_tokens; j++) {
            const struct step_row *row = &wanted[i].rows[j];

            if (row->top[0].logprob - row->top[1].logprob < 0.01f)
                break;
            if (got[i].rows[j].token != row->token ||
                fabsf(got[i].rows[j].logprob - row->logprob) > 2e-3f)
                fail_msg("%s: row %u, token %u is %d (%g), not %d (%g)", mode, i, j,
                         got[i].rows[j].token, (double)got[i].rows[j].logprob, row->token,
                         (double)row->logprob);
            compared++;
        }
    printf("%-16s %u tokens compared\n", mode, compared);
    assert_true(compared >= ROWS * compared_tokens / 4);
}

struct mode {
    const char *name;
    struct cuda_options options;
};

static void compare_modes(const struct mode *modes, size_t count, enum cuda_type type,
                          void (*expect)(const struct job *got, const struct job *wanted,
                                         const char *mode))
{
    struct engine *engine = open_engine((struct cuda_options){.type = type});
    struct job *wanted = make_jobs(compared_tokens);

    run_jobs(engine, wanted, ROWS, CHUNK);
    engine_close(engine);
    for (size_t i = 0; i < count; i++) {
        struct cuda_options options = modes[i].options;
        struct job *got = make_jobs(compared_tokens);

        options.type = type;
        engine = open_engine(options);
        run_jobs(engine, got, ROWS, CHUNK);
        engine_close(engine);
        expect(got, wanted, modes[i].name);
        free(got);
    }
    free(wanted);
}

/* The same kernels on the same rows, launched in another way. */
static void how_it_is_launched_changes_no_token(void **state)
{
    static const struct mode modes[] = {
        {"no graphs", {.no_graphs = true}},
        {"plain loop", {.no_graphs = true, .host_sampling = true}},
        {"host sampling", {.host_sampling = true}},
        {"sampling stream", {.sampling_stream = true}},
    };

    (void)state;
    compare_modes(modes, sizeof modes / sizeof *modes, CUDA_TYPE_BF16, expect_same);
}

/* Other rows beside one another, so sums in another order: in float32 that is little. */
static void lanes_give_the_same_tokens(void **state)
{
    static const struct mode modes[] = {
        {"two lanes", {.streams = 2}},
        {"four lanes", {.streams = 4}},
        {"prefill lane", {.prefill_lane = true}},
    };

    (void)state;
    compare_modes(modes, sizeof modes / sizeof *modes, CUDA_TYPE_F32, expect_near);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_steps_neither_allocate_nor_synchronize),
        cmocka_unit_test(how_it_is_launched_changes_no_token),
        cmocka_unit_test(lanes_give_the_same_tokens),
    };
    static char path[512];
    const char *slash = strrchr(argv[0], '/');

    small = argc > 1 && strcmp(argv[1], "small") == 0;
    if (small) {
        snprintf(path, sizeof path, "%.*s/tiny.json", slash ? (int)(slash - argv[0]) : 1,
                 slash ? argv[0] : ".");
        shape = path;
        long_tokens = 24;
        compared_tokens = 8;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
