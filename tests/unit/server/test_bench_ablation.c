/* test_bench_ablation.c -- protects: the table of `weft bench --ablation`. Engines made of
 * arithmetic stand for the GPU's: each line opens its own with the options it names, ratios are to
 * the line before, what does not fit is left out of its column alone, and faults end it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config/base/json.h"
#include "server/bench_ablation.h"
#include "server/bench_run.h"
#include "server/progress.h"
#include "server/startup.h"
#include "tests/lib/timed_engine.h"

enum { LINES = 5, OUTPUT_BYTES = 1 << 16 };

/* Milliseconds a step, by line: the last but one does not pay. */
static const uint64_t step_ms[LINES] = {8, 4, 2, 4, 1};

static struct {
    struct config opened[LINES];
    uint32_t count;
    uint32_t closed;
    uint32_t rows; /* that fit */
    int fails;     /* code of the next opening */
    struct engine engine;
} world;

/* --- what the code under test calls --------------------------------------------------------- */

void progress_init(struct progress *progress, bool log)
{
    (void)log;
    *progress = (struct progress){0};
}

int startup_engine_open(const struct config *config, struct progress *progress,
                        struct engine **ret_engine, struct fault *fault)
{
    (void)progress;
    if (world.fails)
        return fault_set(fault, world.fails, "no driver");
    assert_true(world.count < LINES);
    world.engine = timed_engine(step_ms[world.count] * 1000000);
    world.engine.limits.batch.rows = world.rows;
    world.engine.plain = config->sync;
    world.opened[world.count++] = *config;
    *ret_engine = &world.engine;
    return 0;
}

void engine_close(struct engine *engine)
{
    world.closed += engine != NULL;
}

const char *engine_model_name(const struct engine *engine)
{
    (void)engine;
    return "shape";
}

const char *engine_device_name(const struct engine *engine)
{
    (void)engine;
    return "cuda (\"card\")";
}

/* --- running -------------------------------------------------------------------------------- */

static const struct config settings = {.steps = 10, .repeats = 1, .max_batch = 4};

/* What it printed. */
static int run(const struct config *config, const char **ret_text, struct fault *fault)
{
    static const uint32_t sizes[] = {1, 4};
    static char text[OUTPUT_BYTES];
    FILE *file = tmpfile();
    int output = dup(STDOUT_FILENO), r;
    size_t bytes;

    assert_non_null(file);
    fflush(stdout);
    assert_true(output >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    world.count = world.closed = 0;
    r = bench_ablation(config, sizes, 2, 100, fault);
    fflush(stdout);
    assert_true(dup2(output, STDOUT_FILENO) >= 0);
    close(output);
    rewind(file);
    bytes = fread(text, 1, sizeof text - 1, file);
    text[bytes] = '\0';
    fclose(file);
    *ret_text = text;
    return r;
}

static void each_line_has_one_mechanism_more(void **state)
{
    const char *text;

    (void)state;
    world.rows = 4;
    assert_int_equal(run(&settings, &text, NULL), 0);
    assert_int_equal(world.count, LINES);
    assert_int_equal(world.closed, LINES);
    for (uint32_t i = 0; i < LINES; i++) {
        const struct config *config = &world.opened[i];

        assert_int_equal(config->device, CONFIG_DEVICE_CUDA);
        assert_int_equal(config->no_graphs, i < 1);
        assert_int_equal(config->sync, i < 2);
        assert_int_equal(config->sampling_stream, i >= 3);
        assert_int_equal(config->streams, i >= 4 ? 2 : 1); /* the word of that index */
    }
}

static void the_table_has_times_and_ratios(void **state)
{
    const char *text;

    (void)state;
    world.rows = 4;
    assert_int_equal(run(&settings, &text, NULL), 0);
    /* The plain loop's step is the host's time too. */
    assert_string_equal(
        text,
        "shape, cuda (\"card\"), context 100, 10 steps, median of 1\n"
        "ms a step, and how many times as fast as the line before\n"
        "batch                        1                4       \n"
        "plain loop               8.050            8.050         --sync --no-graphs\n"
        "+ graphs                 4.050 x1.99      4.050 x1.99   --sync\n"
        "+ device-fed tokens      2.000 x2.02      2.000 x2.02   (default)\n"
        "+ sampling stream        4.000 x0.50      4.000 x0.50   --sampling-stream\n"
        "+ lanes                  1.000 x4.00      1.000 x4.00   --sampling-stream --streams 2\n");
}

static void json_has_the_same(void **state)
{
    struct config config = settings;
    const char *text;
    json_t *root, *lines, *result;

    (void)state;
    world.rows = 4;
    config.json = true;
    assert_int_equal(run(&config, &text, NULL), 0);
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "device")), "cuda (\"card\")");
    assert_int_equal(json_integer_value(json_object_get(root, "context")), 100);
    lines = json_object_get(root, "ablation");
    assert_int_equal(json_array_size(lines), LINES);
    result = json_array_get(json_object_get(json_array_get(lines, 0), "results"), 1);
    assert_int_equal(json_integer_value(json_object_get(result, "batch")), 4);
    assert_null(json_object_get(result, "ratio"));
    result = json_array_get(json_object_get(json_array_get(lines, 3), "results"), 0);
    assert_true(fabs(json_number_value(json_object_get(result, "ratio")) - 0.5) < 1e-6);
    assert_true(fabs(json_number_value(json_object_get(result, "decode_step_ms")) - 4) < 1e-6);
    assert_true(fabs(json_number_value(json_object_get(result, "host_step_us")) - 50) < 1e-6);
    json_decref(root);
}

static void what_does_not_fit_leaves_its_column_empty(void **state)
{
    struct config config = settings;
    const char *text;
    json_t *root;

    (void)state;
    world.rows = 3;
    assert_int_equal(run(&settings, &text, NULL), 0);
    assert_non_null(strstr(text, "+ lanes                  1.000 x4.00          -         --samp"));
    config.json = true;
    assert_int_equal(run(&config, &text, NULL), 0);
    root = json_loads(text, 0, NULL);
    assert_non_null(root);
    json_decref(root);
}

static void without_a_gpu_it_says_so(void **state)
{
    struct config config = settings;
    struct fault fault = {0};
    const char *text;

    (void)state;
    world.fails = E_UNSUPPORTED;
    assert_int_equal(run(&config, &text, &fault), E_UNSUPPORTED);
    assert_string_equal(fault.message, "--ablation needs a GPU: no driver");
    assert_string_equal(text, "");
    world.fails = 0;
    config.device = CONFIG_DEVICE_CPU;
    assert_int_equal(run(&config, &text, &fault), E_UNSUPPORTED);
    assert_int_equal(world.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_line_has_one_mechanism_more),
        cmocka_unit_test(the_table_has_times_and_ratios),
        cmocka_unit_test(json_has_the_same),
        cmocka_unit_test(what_does_not_fit_leaves_its_column_empty),
        cmocka_unit_test(without_a_gpu_it_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
