/* Protects the stickiness of a device's failure: the step that failed, the one behind it and every
 * later call say E_DEVICE, nothing is computed any more, and closing still ends. The device is a
 * fake in the null device's place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/request_table.h"

#define MODEL "tests/data/arch/gguf_qwen3_iq4_nl/qwen3-IQ4_NL.gguf"

enum { FAILS_AT = 2 };

struct backend {
    uint32_t begun;
    const struct work *work;
};
static struct backend fake;

static int fake_open(const struct backend_options *options, struct backend **ret_backend,
                     struct fault *fault)
{
    (void)options;
    (void)fault;
    fake = (struct backend){0};
    *ret_backend = &fake;
    return 0;
}

static void fake_close(struct backend *backend)
{
    (void)backend;
}

static const char *fake_describe(struct backend *backend)
{
    (void)backend;
    return "fake";
}

static int fake_costs(struct backend *backend, const struct model *model,
                      const struct engine_limits *limits, struct backend_costs *ret_costs,
                      struct fault *fault)
{
    (void)backend;
    (void)model;
    (void)limits;
    (void)fault;
    *ret_costs = (struct backend_costs){.page = 1, .available = 1 << 30, .pages_most = 1 << 29};
    return 0;
}

static int fake_load(struct backend *backend, struct model *model, struct fault *fault)
{
    (void)backend;
    (void)model;
    (void)fault;
    return 0;
}

static int fake_reserve(struct backend *backend, const struct model *model,
                        const struct engine_limits *limits, struct fault *fault)
{
    (void)backend;
    (void)model;
    (void)limits;
    (void)fault;
    return 0;
}

static int fake_begin(struct backend *backend, const struct model *model, struct work *work)
{
    (void)model;
    backend->work = work;
    return backend->begun++ == FAILS_AT ? E_DEVICE : 0;
}

static void fake_whole(struct backend *backend)
{
    (void)backend;
}

static void fake_layer(struct backend *backend, uint32_t layer)
{
    (void)backend;
    (void)layer;
}

static int fake_sample(struct backend *backend, struct request_table *table, struct step *step)
{
    const struct work_output *output = &backend->work->outputs[0];

    step->rows[output->result].token = 1;
    step->rows[output->result].state = request_table_advance(table, output->row, 1);
    return 0;
}

const struct backend_ops backend_null = {
    .name = "fake",
    .synchronous = true,
    .page_tokens = 16,
    .open = fake_open,
    .close = fake_close,
    .describe = fake_describe,
    .costs = fake_costs,
    .load = fake_load,
    .reserve = fake_reserve,
    .begin = fake_begin,
    .embed = fake_whole,
    .attention_in = fake_layer,
    .attention = fake_layer,
    .attention_out = fake_layer,
    .mlp = fake_layer,
    .head = fake_whole,
    .sample = fake_sample,
};

static void a_failure_is_final(void **state)
{
    struct engine_options options = {.model_path = MODEL,
                                     .device = DEVICE_NULL,
                                     .max_batch = 1,
                                     .max_context = 64,
                                     .prefill_tokens = 16};
    struct engine *engine = NULL;
    struct batch *batches[3];
    struct sampling sampling;
    struct fault fault = {0};
    int32_t prompt[1] = {5};
    struct step step;

    (void)state;
    assert_int_equal(engine_open(&options, &engine, &fault), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(batch_open(&engine_limits(engine)->batch, &batches[i], NULL), 0);
    sampling_init(&sampling);
    batches[0]->openings[batches[0]->opening_count++] =
        (struct batch_opening){.tokens = prompt,
                               .token_count = 1,
                               .prompt_count = 1,
                               .tokens_left = 20,
                               .sampling = &sampling};
    batches[0]->grants[batches[0]->grant_count++] = (struct batch_grant){0, 0, 0};
    batches[0]->prefills[batches[0]->prefill_count++] = (struct batch_prefill){0, 0, 1};
    for (uint32_t i = 0; i < FAILS_AT + 2; i++) {
        struct batch *batch = batches[i % 3];

        if (i > 0) {
            batch_reset(batch);
            batch->number = i;
            batch->decode_rows[batch->decode_count++] = 0;
        }
        assert_int_equal(engine_submit(engine, batch, &fault), 0);
        if (i > 0 && i <= FAILS_AT) {
            assert_int_equal(engine_complete(engine, &step, &fault), 0);
            assert_int_equal(step.rows[0].state, STEP_ROW_TOKEN);
        }
    }
    assert_int_equal(engine_complete(engine, &step, &fault), E_DEVICE);
    assert_int_equal(engine_complete(engine, &step, &fault), E_DEVICE);
    assert_int_equal(engine_submit(engine, batches[0], &fault), E_DEVICE);
    engine_close(engine);
    assert_int_equal(fake.begun, FAILS_AT + 1); /* the step behind the failed one did not run */
    for (uint32_t i = 0; i < 3; i++)
        batch_close(batches[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_failure_is_final)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
