/* Protects the request table: what a batch asks for becomes exactly the work and results that
 * engine.h describes, and rows count, end and resume by the rules of batch.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/request_table.h"
#include "tests/lib/failing_malloc.h"

enum { ROWS = 4, PAGE = 4, CONTEXT = 32, VOCABULARY = 100, END_TOKEN = 99 };

static const int32_t end_tokens[] = {END_TOKEN};
static const int32_t prompt[] = {10, 11, 12, 11, 70};

struct fixture {
    struct request_table *table;
    struct batch *batch;
    struct work work;
    struct step step;
    struct step_row rows[ROWS];
    struct step_prompt prompts[64];
    struct sampling sampling;
};

static const struct engine_limits limits = {
    .batch = {.rows = ROWS, .grants = 64, .prefill_tokens = 16},
    .page_tokens = PAGE,
    .page_count = 64,
    .context = CONTEXT,
    .pages_per_row = CONTEXT / PAGE,
    .vocabulary = VOCABULARY,
    .end_count = 1,
    .end_tokens = end_tokens,
};

static void open_fixture(struct fixture *fixture)
{
    *fixture = (struct fixture){0};
    fixture->step.rows = fixture->rows;
    fixture->step.prompts = fixture->prompts;
    sampling_init(&fixture->sampling);
    assert_int_equal(request_table_open(&limits, &fixture->table, NULL), 0);
    assert_int_equal(batch_open(&limits.batch, &fixture->batch, NULL), 0);
}

static void close_fixture(struct fixture *fixture)
{
    request_table_close(fixture->table);
    batch_close(fixture->batch);
}

static void add_opening(struct fixture *fixture, uint32_t row, const int32_t *tokens,
                        uint32_t count, uint32_t prompt_count, uint32_t left)
{
    struct batch *batch = fixture->batch;

    batch->openings[batch->opening_count++] =
        (struct batch_opening){.row = row,
                               .tokens = tokens,
                               .token_count = count,
                               .prompt_count = prompt_count,
                               .tokens_left = left,
                               .sampling = &fixture->sampling};
    for (uint32_t i = 0; i < CONTEXT / PAGE; i++)
        batch->grants[batch->grant_count++] = (struct batch_grant){row, i, row * 8 + i};
}

static void add_prefill(struct fixture *fixture, uint32_t row, uint32_t position, uint32_t count)
{
    fixture->batch->prefills[fixture->batch->prefill_count++] =
        (struct batch_prefill){row, position, count};
}

/* Begins the batch as it stands and empties it. */
static bool row_may_end(struct fixture *fixture)
{
    const struct request_row *row = request_table_row(fixture->table, 0);

    return request_row_may_end(row, row->generated);
}

static void begin(struct fixture *fixture)
{
    request_table_begin(fixture->table, fixture->batch, &fixture->work, &fixture->step);
    batch_reset(fixture->batch);
}

static void prefill_and_decode_become_segments(void **state)
{
    struct fixture fixture;
    const struct work_segment *segments;

    (void)state;
    open_fixture(&fixture);
    add_opening(&fixture, 2, prompt, 5, 5, 3);
    add_opening(&fixture, 0, prompt, 2, 2, 3);
    add_prefill(&fixture, 2, 0, 3);
    add_prefill(&fixture, 0, 0, 2);
    begin(&fixture);
    segments = fixture.work.segments;
    assert_int_equal(fixture.work.token_count, 5);
    assert_int_equal(fixture.work.segment_count, 2);
    assert_int_equal(segments[0].row, 2);
    assert_int_equal(segments[0].token_count, 3);
    assert_int_equal(segments[1].first_token, 3);
    assert_int_equal(segments[1].pages[1], 1);
    assert_int_equal(fixture.work.output_count, 1); /* row 2 is not at its end */
    assert_int_equal(fixture.work.outputs[0].token, 4);
    assert_int_equal(fixture.work.outputs[0].result, 1);
    assert_true(fixture.work.outputs[0].sample);
    assert_int_equal(fixture.step.row_count, 2);
    assert_int_equal(fixture.rows[0].state, STEP_ROW_PARTIAL);
    assert_int_equal(request_table_advance(fixture.table, 0, 42), STEP_ROW_TOKEN);

    add_prefill(&fixture, 2, 3, 2);
    fixture.batch->decode_rows[fixture.batch->decode_count++] = 0;
    begin(&fixture);
    assert_int_equal(fixture.work.token_count, 3);
    assert_int_equal(fixture.work.tokens[0], 11);
    assert_int_equal(fixture.work.positions[0], 3);
    assert_int_equal(fixture.work.tokens[2], 42); /* what the device sampled */
    assert_int_equal(fixture.work.positions[2], 2);
    assert_int_equal(fixture.work.segments[1].position, 2);
    assert_int_equal(fixture.work.output_count, 2);
    close_fixture(&fixture);
}

static void rows_end_by_length_end_and_stop_tokens(void **state)
{
    static const int32_t stops[] = {50};
    struct fixture fixture;

    (void)state;
    open_fixture(&fixture);
    fixture.sampling.stop_count = 1;
    fixture.sampling.stop_tokens = stops;
    for (uint32_t row = 0; row < 3; row++) {
        add_opening(&fixture, row, prompt, 1, 1, 2);
        add_prefill(&fixture, row, 0, 1);
    }
    begin(&fixture);
    assert_int_equal(request_table_advance(fixture.table, 0, 1), STEP_ROW_TOKEN);
    assert_int_equal(request_table_advance(fixture.table, 1, END_TOKEN), STEP_ROW_END);
    assert_int_equal(request_table_advance(fixture.table, 2, 50), STEP_ROW_END);
    for (uint32_t row = 0; row < 3; row++)
        fixture.batch->decode_rows[fixture.batch->decode_count++] = row;
    begin(&fixture);
    assert_int_equal(fixture.work.token_count, 1); /* the others are padding rows */
    assert_int_equal(fixture.rows[1].state, STEP_ROW_IDLE);
    assert_int_equal(fixture.rows[2].state, STEP_ROW_IDLE);
    assert_int_equal(request_table_advance(fixture.table, 0, 1), STEP_ROW_LENGTH);
    /* A row may be closed and opened anew in one batch. */
    fixture.batch->close_rows[fixture.batch->close_count++] = 0;
    add_opening(&fixture, 0, prompt, 3, 3, 1);
    add_prefill(&fixture, 0, 0, 3);
    begin(&fixture);
    assert_int_equal(request_table_advance(fixture.table, 0, 50), STEP_ROW_END); /* not LENGTH */
    close_fixture(&fixture);
}

static void min_tokens_and_ignore_eos_hold_the_end_back(void **state)
{
    struct fixture fixture;

    (void)state;
    open_fixture(&fixture);
    fixture.sampling.min_tokens = 2;
    add_opening(&fixture, 0, prompt, 5, 4, 5); /* one token was generated before a preemption */
    add_prefill(&fixture, 0, 0, 5);
    begin(&fixture);
    assert_false(row_may_end(&fixture));
    assert_int_equal(request_table_advance(fixture.table, 0, 3), STEP_ROW_TOKEN);
    assert_true(row_may_end(&fixture));
    assert_int_equal(request_table_advance(fixture.table, 0, END_TOKEN), STEP_ROW_END);

    fixture.sampling.ignore_eos = true;
    fixture.batch->close_rows[fixture.batch->close_count++] = 0;
    add_opening(&fixture, 0, prompt, 5, 5, 3);
    add_prefill(&fixture, 0, 0, 5);
    begin(&fixture);
    for (int i = 0; i < 2; i++)
        assert_int_equal(request_table_advance(fixture.table, 0, END_TOKEN), STEP_ROW_TOKEN);
    assert_int_equal(request_table_advance(fixture.table, 0, END_TOKEN), STEP_ROW_LENGTH);
    close_fixture(&fixture);
}

/* A late row is idle until it is opened again; what was promised before that is void. */
static void a_row_whose_mask_is_late_is_idle(void **state)
{
    static const int32_t tokens[] = {10, 11, 12, 40, 41};
    struct fixture fixture;
    const struct request_row *row;
    struct row_promise promise;

    (void)state;
    open_fixture(&fixture);
    add_opening(&fixture, 0, tokens, 3, 3, 9);
    fixture.batch->openings[0].masked = true;
    add_prefill(&fixture, 0, 0, 3);
    begin(&fixture);
    row = request_table_row(fixture.table, 0);
    assert_false(request_row_may_draw(row, 3));
    *row->mask.position = 3;
    assert_true(request_row_may_draw(row, 3));
    assert_int_equal(request_table_advance(fixture.table, 0, 40), STEP_ROW_TOKEN);
    assert_false(request_row_may_draw(row, 4));
    assert_int_equal(request_table_advance(fixture.table, 0, -1), STEP_ROW_LATE);
    fixture.batch->decode_rows[fixture.batch->decode_count++] = 0;
    begin(&fixture);
    assert_int_equal(fixture.work.token_count, 0);
    assert_int_equal(fixture.rows[0].state, STEP_ROW_IDLE);

    fixture.batch->close_rows[fixture.batch->close_count++] = 0;
    add_opening(&fixture, 0, tokens, 5, 3, 7);
    fixture.batch->openings[0].masked = true;
    add_prefill(&fixture, 0, 3, 2);
    begin(&fixture);
    assert_int_equal(fixture.work.token_count, 2);
    assert_int_equal(fixture.work.positions[0], 3);
    *row->mask.position = 5;
    assert_true(request_row_may_draw(row, 5));
    promise = request_table_promise(fixture.table, 0);
    fixture.batch->close_rows[fixture.batch->close_count++] = 0;
    add_opening(&fixture, 0, tokens, 5, 3, 7);
    begin(&fixture);
    assert_int_equal(request_table_late(fixture.table, &promise), STEP_ROW_IDLE);
    assert_true(request_row_may_draw(row, 77)); /* not masked now */
    close_fixture(&fixture);
}

static void penalties_see_prompt_and_answer_apart(void **state)
{
    static const int32_t tokens[] = {10, 11, 70, 20, 20};
    struct fixture fixture;
    const struct request_row *row;

    (void)state;
    open_fixture(&fixture);
    fixture.sampling.frequency_penalty = 0.5f;
    for (int again = 0; again < 2; again++) { /* the second opening starts from nothing */
        add_opening(&fixture, 1, tokens, 5, 3, 5);
        add_prefill(&fixture, 1, 0, 5);
        begin(&fixture);
        row = request_table_row(fixture.table, 1);
        assert_true(row->counted);
        assert_int_equal(row->generated, 2);
        assert_int_equal(row->generated_counts[20], 2);
        assert_int_equal(row->generated_counts[10], 0);
        assert_true(row->prompt_seen[0] == ((1ull << 10) | (1ull << 11)));
        assert_true(row->prompt_seen[1] == 1ull << (70 - 64));
        request_table_advance(fixture.table, 1, 10);
        assert_int_equal(row->generated_counts[10], 1);
        fixture.batch->close_rows[fixture.batch->close_count++] = 1;
    }
    fixture.sampling.frequency_penalty = 0;
    add_opening(&fixture, 1, tokens, 5, 3, 5);
    begin(&fixture);
    assert_false(request_table_row(fixture.table, 1)->counted);
    close_fixture(&fixture);
}

static void prompt_logprobs_have_a_target_each(void **state)
{
    struct fixture fixture;

    (void)state;
    open_fixture(&fixture);
    fixture.sampling.prompt_logprobs = 0;
    add_opening(&fixture, 0, prompt, 5, 4, 5); /* the fifth token was generated: no target */
    add_prefill(&fixture, 0, 0, 2);
    begin(&fixture);
    assert_int_equal(fixture.step.prompt_count, 2);
    assert_int_equal(fixture.prompts[1].position, 2);
    assert_int_equal(fixture.prompts[1].token, 12);
    assert_int_equal(fixture.work.outputs[1].target, 12);
    assert_int_equal(fixture.work.outputs[1].prompt, 1);
    assert_false(fixture.work.outputs[1].sample);
    add_prefill(&fixture, 0, 2, 3);
    begin(&fixture);
    assert_int_equal(fixture.step.prompt_count, 1);
    assert_int_equal(fixture.prompts[0].position, 3);
    assert_int_equal(fixture.work.output_count, 2);
    assert_true(fixture.work.outputs[1].sample);
    close_fixture(&fixture);
}

static void survives_a_failing_allocation(void **state)
{
    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct request_table *table = NULL;
        struct batch *batch = NULL;
        int r;

        failing_malloc_arm(nth);
        r = request_table_open(&limits, &table, NULL);
        if (r == 0)
            r = batch_open(&limits.batch, &batch, NULL);
        if (!failing_malloc_disarm())
            nth = UINT64_MAX - 1; /* each one has failed once: the last round */
        else
            assert_int_equal(r, E_MEMORY);
        request_table_close(table);
        batch_close(batch);
        if (nth == UINT64_MAX - 1) {
            assert_int_equal(r, 0);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefill_and_decode_become_segments),
        cmocka_unit_test(rows_end_by_length_end_and_stop_tokens),
        cmocka_unit_test(min_tokens_and_ignore_eos_hold_the_end_back),
        cmocka_unit_test(a_row_whose_mask_is_late_is_idle),
        cmocka_unit_test(penalties_see_prompt_and_answer_apart),
        cmocka_unit_test(prompt_logprobs_have_a_target_each),
        cmocka_unit_test(survives_a_failing_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
