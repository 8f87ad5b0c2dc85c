/* Protects what engine.h promises, on the null device: submit never waits, two steps are in flight,
 * rows move on without the host, every row gets its own tokens, and nothing is allocated once the
 * engine is open. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/engine.h"
#include "tests/lib/failing_malloc.h"

#define MODEL "tests/data/arch/gguf_qwen3_iq4_nl/qwen3-IQ4_NL.gguf"

enum { ROWS = 8, PREFILL = 64, END_TOKEN = 300, STEP_US = 100000 };

struct fixture {
    struct engine *engine;
    struct batch *batches[3];
    uint64_t number;
};

static struct engine_options options(void)
{
    return (struct engine_options){
        .model_path = MODEL,
        .device = DEVICE_NULL,
        .max_batch = ROWS,
        .max_context = 256,
        .prefill_tokens = PREFILL,
    };
}

static void open_fixture(struct fixture *fixture, const struct engine_options *with)
{
    struct fault fault = {0};

    memset(fixture, 0, sizeof *fixture);
    if (engine_open(with, &fixture->engine, &fault) < 0)
        fail_msg("%s", fault.message);
    for (int i = 0; i < 3; i++)
        assert_int_equal(
            batch_open(&engine_limits(fixture->engine)->batch, &fixture->batches[i], &fault), 0);
}

static void close_fixture(struct fixture *fixture)
{
    engine_close(fixture->engine);
    for (int i = 0; i < 3; i++)
        batch_close(fixture->batches[i]);
}

/* The next batch, empty. */
static struct batch *next_batch(struct fixture *fixture)
{
    struct batch *batch = fixture->batches[fixture->number % 3];

    batch_reset(batch);
    batch->number = fixture->number++;
    return batch;
}

/* Opens a row with all its pages (its own ones) and its whole prompt as one chunk. */
static void add_row(struct fixture *fixture, struct batch *batch, uint32_t row,
                    const int32_t *tokens, uint32_t count, uint32_t prompt_count, uint32_t left,
                    const struct sampling *sampling)
{
    uint32_t pages = engine_limits(fixture->engine)->pages_per_row;

    batch->openings[batch->opening_count++] = (struct batch_opening){.row = row,
                                                                     .tokens = tokens,
                                                                     .token_count = count,
                                                                     .prompt_count = prompt_count,
                                                                     .tokens_left = left,
                                                                     .sampling = sampling};
    for (uint32_t i = 0; i < pages; i++)
        batch->grants[batch->grant_count++] = (struct batch_grant){row, i, row * pages + i};
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){row, 0, count};
}

static void submit(struct fixture *fixture, const struct batch *batch)
{
    struct fault fault = {0};

    assert_int_equal(engine_submit(fixture->engine, batch, &fault), 0);
}

static struct step complete(struct fixture *fixture)
{
    struct fault fault = {0};
    struct step step;

    assert_int_equal(engine_complete(fixture->engine, &step, &fault), 0);
    return step;
}

static struct step run(struct fixture *fixture, const struct batch *batch)
{
    submit(fixture, batch);
    return complete(fixture);
}

static void opens_with_its_limits(void **state)
{
    struct fixture fixture;
    struct engine_options with = options();
    const struct engine_limits *limits;

    (void)state;
    open_fixture(&fixture, &with);
    limits = engine_limits(fixture.engine);
    assert_int_equal(limits->context, 256);
    assert_int_equal(limits->pages_per_row, 256 / limits->page_tokens);
    assert_int_equal(limits->page_count, ROWS * limits->pages_per_row);
    assert_int_equal(limits->vocabulary, 301);
    assert_int_equal(limits->batch.rows, ROWS);
    assert_true(limits->end_count >= 1);
    assert_int_equal(limits->end_tokens[0], END_TOKEN);
    assert_true(engine_memory(fixture.engine)->available > 0);
    assert_non_null(engine_gguf(fixture.engine));
    assert_non_null(strstr(engine_device_name(fixture.engine), "null"));
    close_fixture(&fixture);
}

static void expect_no_engine(const struct engine_options *with, int code, const char *text)
{
    struct engine *engine = NULL;
    struct fault fault = {0};
    int r = engine_open(with, &engine, &fault);

    assert_null(engine);
    if (r != code || !strstr(fault.message, text))
        fail_msg("code %d, message \"%s\"; expected %d and \"%s\"", r, fault.message, code, text);
}

static void refuses_what_cannot_be(void **state)
{
    struct engine_options with = options();

    (void)state;
    with.device = DEVICE_CUDA;
    expect_no_engine(&with, E_UNSUPPORTED, "CUDA");
    with = options();
    with.max_context = 5000; /* the model has 4,096 */
    expect_no_engine(&with, E_INVALID, "--max-context is 5000, but the model was made for 4096");
    with = options();
    with.max_batch = 0;
    expect_no_engine(&with, E_INVALID, "max-batch");
    with = options();
    with.kv_bytes = 64; /* one page, where a sequence needs 16 */
    expect_no_engine(&with, E_MEMORY, "256 tokens");
    expect_no_engine(&with, E_MEMORY, "a larger --kv-bytes");
    with = options();
    with.kv_bytes = 1ull << 60;
    expect_no_engine(&with, E_MEMORY, "a smaller --kv-bytes");
    with = options();
    with.model_path = "/nonexistent";
    expect_no_engine(&with, -ENOENT, "/nonexistent");
}

static void plans_without_taking(void **state)
{
    struct engine_options with = options();
    struct engine_outline outline;
    const struct engine_limits *limits = &outline.limits;
    struct fault fault = {0};

    (void)state;
    assert_int_equal(engine_plan(&with, &outline, &fault), 0);
    assert_int_equal(limits->page_count, ROWS * limits->pages_per_row);
    assert_null(limits->end_tokens);
    assert_true(outline.memory.kv_cache > 0 && outline.memory.request_table > 0);
    assert_string_equal(outline.device_name, "null (computes nothing)");
    assert_int_equal(outline.device_note.code, 0);
    with.kv_bytes = 64;
    assert_int_equal(engine_plan(&with, &outline, &fault), E_MEMORY);
}

/* What a step may hold is the caller's, or else the device's own. */
static void budgets_of_a_step(void **state)
{
    struct engine_options with = options();
    struct engine_outline outline;
    const struct engine_limits *limits = &outline.limits;

    (void)state;
    with.prefill_tokens = 0;
    assert_int_equal(engine_plan(&with, &outline, NULL), 0);
    assert_int_equal(limits->batch.prefill_tokens, 256);
    assert_int_equal(limits->loaded_tokens, 256 + ROWS);
    with.prefill_tokens = 32769;
    assert_int_equal(engine_plan(&with, &outline, NULL), E_INVALID);
    with.prefill_tokens = 48;
    assert_int_equal(engine_plan(&with, &outline, NULL), 0);
    assert_int_equal(limits->batch.prefill_tokens, 48);
    assert_int_equal(limits->loaded_tokens, 48 + ROWS);
    with.loaded_tokens = 20;
    assert_int_equal(engine_plan(&with, &outline, NULL), 0);
    assert_int_equal(limits->loaded_tokens, 20);
}

static void keeps_two_steps_in_flight(void **state)
{
    struct fixture fixture;
    struct engine_options with = options();
    struct sampling sampling;
    struct fault fault = {0};
    int32_t prompt[3] = {5, 6, 7};
    struct step step;
    struct batch *batch;
    uint64_t began;

    (void)state;
    with.null_step_us = STEP_US;
    open_fixture(&fixture, &with);
    sampling_init(&sampling);
    assert_int_equal(engine_complete(fixture.engine, &step, &fault), E_INVALID);
    began = clock_now();
    batch = next_batch(&fixture);
    add_row(&fixture, batch, 2, prompt, 3, 3, 100, &sampling);
    submit(&fixture, batch);
    batch = next_batch(&fixture);
    batch->decode_rows[batch->decode_count++] = 2;
    submit(&fixture, batch);
    assert_true(clock_now() - began <
                STEP_US * 1000ull); /* both were submitted while the first ran */
    assert_int_equal(engine_in_flight(fixture.engine), 2);
    batch = next_batch(&fixture);
    batch->decode_rows[batch->decode_count++] = 2;
    assert_int_equal(engine_submit(fixture.engine, batch, &fault), E_FULL);
    step = complete(&fixture);
    assert_int_equal(step.number, 0);
    assert_int_equal(step.rows[0].token, 5);
    submit(&fixture, batch); /* step 0 is still lent, 1 and 2 in flight */
    assert_int_equal(step.rows[0].token, 5);
    step = complete(&fixture);
    assert_int_equal(step.number, 1);
    assert_int_equal(step.rows[0].token, 6);
    assert_true(step.ended_ns - step.started_ns >= STEP_US * 1000ull);
    step = complete(&fixture);
    assert_int_equal(step.number, 2);
    assert_int_equal(step.rows[0].token, 7);
    assert_true(clock_now() - began >= 3 * STEP_US * 1000ull); /* three steps at the asked pace */
    assert_int_equal(engine_in_flight(fixture.engine), 0);
    close_fixture(&fixture);
}

/* Rows with prompts of different lengths, decoded together with two steps in flight: each hears its
 * own prompt again, until its length ends it on the device. */
static void echoes_every_row_its_own_prompt(void **state)
{
    struct fixture fixture;
    struct engine_options with = options();
    struct sampling sampling;
    int32_t prompts[ROWS][ROWS];
    uint32_t heard[ROWS] = {0};
    bool ended[ROWS] = {false};
    struct batch *batch;

    (void)state;
    open_fixture(&fixture, &with);
    sampling_init(&sampling);
    batch = next_batch(&fixture);
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t i = 0; i <= row; i++)
            prompts[row][i] = (int32_t)(row * 20 + i);
        add_row(&fixture, batch, row, prompts[row], row + 1, row + 1, 10 + row, &sampling);
    }
    submit(&fixture, batch);
    for (uint32_t n = 0; n < 30; n++) {
        struct step step;

        batch = next_batch(&fixture);
        for (uint32_t row = 0; row < ROWS; row++)
            batch->decode_rows[batch->decode_count++] = row;
        submit(&fixture, batch);
        step = complete(&fixture);
        assert_int_equal(step.row_count, ROWS);
        for (uint32_t row = 0; row < ROWS; row++) {
            const struct step_row *result = &step.rows[row];

            assert_int_equal(result->row, row);
            if (ended[row]) {
                assert_int_equal(result->state, STEP_ROW_IDLE);
                continue;
            }
            assert_int_equal(result->token, prompts[row][heard[row] % (row + 1)]);
            assert_true(isnan(result->logprob));
            ended[row] = ++heard[row] == 10 + row;
            assert_int_equal(result->state, ended[row] ? STEP_ROW_LENGTH : STEP_ROW_TOKEN);
        }
    }
    for (uint32_t row = 0; row < ROWS; row++)
        assert_true(ended[row]);
    close_fixture(&fixture);
}

/* A prompt in chunks, then a preemption: the row is opened anew with what it had generated and goes
 * on where it was, with counted tokens and all. */
static void resumes_after_a_preemption(void **state)
{
    struct fixture fixture;
    struct engine_options with = options();
    struct sampling sampling;
    int32_t tokens[16] = {10, 11, 12, 13, 14};
    struct batch *batch;
    struct step step;

    (void)state;
    open_fixture(&fixture, &with);
    sampling_init(&sampling);
    batch = next_batch(&fixture);
    add_row(&fixture, batch, 0, tokens, 5, 5, 8, &sampling);
    batch->prefills[0].count = 2;
    step = run(&fixture, batch);
    assert_int_equal(step.rows[0].state, STEP_ROW_PARTIAL);
    batch = next_batch(&fixture);
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){0, 2, 3};
    step = run(&fixture, batch);
    assert_int_equal(step.rows[0].state, STEP_ROW_TOKEN);
    tokens[5] = step.rows[0].token;
    batch = next_batch(&fixture);
    batch->decode_rows[batch->decode_count++] = 0;
    step = run(&fixture, batch);
    tokens[6] = step.rows[0].token;
    assert_int_equal(tokens[5], 10);
    assert_int_equal(tokens[6], 11);

    batch = next_batch(&fixture); /* closed and opened anew, as another row */
    batch->close_rows[batch->close_count++] = 0;
    add_row(&fixture, batch, 3, tokens, 7, 5, 6, &sampling);
    step = run(&fixture, batch);
    assert_int_equal(step.rows[0].token, 12);
    for (int32_t i = 1; i < 6; i++) {
        batch = next_batch(&fixture);
        batch->decode_rows[batch->decode_count++] = 3;
        step = run(&fixture, batch);
        assert_int_equal(step.rows[0].token, tokens[(7 + i) % 5]);
        assert_int_equal(step.rows[0].state, i == 5 ? STEP_ROW_LENGTH : STEP_ROW_TOKEN);
    }
    close_fixture(&fixture);
}

static void reports_log_probabilities_when_asked(void **state)
{
    struct fixture fixture;
    struct engine_options with = options();
    struct sampling sampling;
    int32_t prompt[4] = {5, 6, 7, 8};
    struct batch *batch;
    struct step step;

    (void)state;
    open_fixture(&fixture, &with);
    sampling_init(&sampling);
    sampling.logprobs = 3;
    sampling.prompt_logprobs = 0;
    batch = next_batch(&fixture);
    add_row(&fixture, batch, 0, prompt, 4, 4, 1, &sampling);
    batch->prefills[0].count = 3;
    step = run(&fixture, batch);
    assert_int_equal(step.prompt_count,
                     3); /* positions 1, 2 and 3: the last is known though not computed */
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(step.prompts[i].position, i + 1);
        assert_int_equal(step.prompts[i].token, prompt[i + 1]);
        assert_true(step.prompts[i].logprob < 0);
        assert_int_equal(step.prompts[i].top_count, 0);
    }
    batch = next_batch(&fixture);
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){0, 3, 1};
    step = run(&fixture, batch);
    assert_int_equal(step.prompt_count, 0);
    assert_int_equal(step.rows[0].top_count, 3);
    assert_int_equal(step.rows[0].top[0].token, step.rows[0].token);
    assert_true(step.rows[0].top[1].logprob < step.rows[0].top[0].logprob);

    batch = next_batch(&fixture); /* only scoring */
    batch->close_rows[batch->close_count++] = 0;
    add_row(&fixture, batch, 0, prompt, 4, 4, 0, &sampling);
    step = run(&fixture, batch);
    assert_int_equal(step.rows[0].state, STEP_ROW_SCORED);
    assert_int_equal(step.prompt_count, 3);
    close_fixture(&fixture);
}

static void ends_by_stop_tokens_but_not_by_the_echo_of_an_end(void **state)
{
    struct fixture fixture;
    struct engine_options with = options();
    struct sampling sampling, stopping;
    int32_t prompt[3] = {5, END_TOKEN, 7}, stop[1] = {7};
    struct batch *batch;
    struct step step;

    (void)state;
    open_fixture(&fixture, &with);
    sampling_init(&sampling);
    stopping = sampling;
    stopping.stop_count = 1;
    stopping.stop_tokens = stop;
    batch = next_batch(&fixture);
    add_row(&fixture, batch, 0, prompt, 3, 3, 6, &sampling);
    add_row(&fixture, batch, 1, prompt, 3, 3, 6, &stopping);
    run(&fixture, batch);
    for (uint32_t i = 1; i < 6; i++) {
        batch = next_batch(&fixture);
        batch->decode_rows[batch->decode_count++] = 0;
        batch->decode_rows[batch->decode_count++] = 1;
        step = run(&fixture, batch);
        assert_int_not_equal(step.rows[0].token, END_TOKEN);
        assert_int_equal(step.rows[0].state, i == 5 ? STEP_ROW_LENGTH : STEP_ROW_TOKEN);
        assert_int_equal(step.rows[1].state, i == 1   ? STEP_ROW_TOKEN
                                             : i == 2 ? STEP_ROW_END
                                                      : STEP_ROW_IDLE);
    }
    close_fixture(&fixture);
}

static void closes_with_steps_in_flight(void **state)
{
    struct fixture fixture;
    struct engine_options with = options();
    struct sampling sampling;
    int32_t prompt[1] = {5};
    struct batch *batch;

    (void)state;
    with.null_step_us = 5000;
    open_fixture(&fixture, &with);
    sampling_init(&sampling);
    batch = next_batch(&fixture);
    add_row(&fixture, batch, 0, prompt, 1, 1, 6, &sampling);
    submit(&fixture, batch);
    batch = next_batch(&fixture);
    batch->decode_rows[batch->decode_count++] = 0;
    submit(&fixture, batch);
    close_fixture(&fixture); /* the batches are freed only after this */
}

static void check_allocations(enum engine_device device, uint32_t steps)
{
    struct fixture fixture;
    struct engine_options with = options();
    struct sampling sampling;
    int32_t prompt[20];

    with.device = device;
    open_fixture(&fixture, &with);
    sampling_init(&sampling);
    sampling.temperature = 0.8f;
    sampling.top_p = 0.9f;
    sampling.logprobs = 5;
    sampling.ignore_eos = true;
    sampling.repetition_penalty = 1.5f;
    for (int32_t i = 0; i < 20; i++)
        prompt[i] = i;
    failing_malloc_arm(UINT64_MAX); /* only counts */
    for (uint32_t n = 0; n < steps; n++) {
        struct batch *batch = next_batch(&fixture);

        if (n % 50 == 0) {
            for (uint32_t row = 0; row < 3; row++) {
                if (n > 0)
                    batch->close_rows[batch->close_count++] = row;
                add_row(&fixture, batch, row, prompt, 20, 20, 100, &sampling);
            }
        } else {
            for (uint32_t row = 0; row < 3; row++)
                batch->decode_rows[batch->decode_count++] = row;
        }
        submit(&fixture, batch);
        if (n > 0)
            complete(&fixture);
    }
    complete(&fixture);
    assert_int_equal(failing_malloc_count(), 0);
    assert_false(failing_malloc_disarm());
    close_fixture(&fixture);
}

static void allocates_nothing_in_a_thousand_steps(void **state)
{
    (void)state;
    check_allocations(DEVICE_NULL, 1000);
    check_allocations(DEVICE_CPU, 1000);
}

static void survives_a_failing_allocation(void **state)
{
    struct engine_options with = options();

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct engine *engine = NULL;
        struct fault fault = {0};
        int r;

        failing_malloc_arm(nth);
        r = engine_open(&with, &engine, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            engine_close(engine);
            return;
        }
        assert_true(r < 0 ||
                    engine); /* a tokenizer may be lost to it, the engine may not be half-open */
        assert_true(r == 0 || fault.message[0]);
        engine_close(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_with_its_limits),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(plans_without_taking),
        cmocka_unit_test(budgets_of_a_step),
        cmocka_unit_test(keeps_two_steps_in_flight),
        cmocka_unit_test(echoes_every_row_its_own_prompt),
        cmocka_unit_test(resumes_after_a_preemption),
        cmocka_unit_test(reports_log_probabilities_when_asked),
        cmocka_unit_test(ends_by_stop_tokens_but_not_by_the_echo_of_an_end),
        cmocka_unit_test(closes_with_steps_in_flight),
        cmocka_unit_test(allocates_nothing_in_a_thousand_steps),
        cmocka_unit_test(survives_a_failing_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
