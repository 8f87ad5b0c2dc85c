/* masked_rows.h -- the test of masks in an engine, whatever its device: rows with masks beside a
 * plain one, two steps in flight, masks written while the step runs that draws from them. Some are
 * not written in time, some rows go on with tokens that nobody drew, and every row that was opened
 * again for that must have the keys and values that it would have had: each drawn token's
 * log-probability is held against that of a row that reads the whole text as a prompt. */
#ifndef WEFT_TEST_MASKED_ROWS_H
#define WEFT_TEST_MASKED_ROWS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine.h"

enum {
    MASKED_ROWS = 4, /* and row 0, which is plain */
    MASKED_PROMPT = 7,
    MASKED_TOKENS = 60,
    MASKED_TEXT = MASKED_PROMPT + MASKED_TOKENS,
    MASKED_JUMP = 3,
    MASKED_SLOTS = ENGINE_STEPS_IN_FLIGHT + 1,
};

struct masked_row {
    int32_t tokens[MASKED_TEXT];
    float logprobs[MASKED_TEXT]; /* NAN: not drawn */
    uint32_t count;
    uint32_t computed;
    bool open;
    bool held; /* to be opened again, when nothing in flight names it */
    bool decodes;
    uint32_t in_flight;
    struct sampling sampling;
};

struct masked_world {
    struct engine *engine;
    const struct engine_limits *limits;
    struct batch *batches[MASKED_SLOTS];
    struct masked_row rows[MASKED_ROWS + 1];
    bool masks; /* the rows but the first have them */
    uint64_t submitted;
    uint64_t completed;
    uint32_t late;
    uint32_t jumps;
};

/* A third of the vocabulary, another one for each place. */
static inline bool masked_allows(uint32_t position, int32_t token)
{
    return (uint32_t)token % 3 == position % 3;
}

static inline void masked_write(struct masked_world *world, uint32_t row)
{
    struct row_mask mask = engine_mask(world->engine, row);
    uint32_t position = world->rows[row].count;

    memset(mask.words, 0, mask.word_count * sizeof *mask.words);
    for (uint32_t id = position % 3; id < world->limits->vocabulary; id += 3)
        mask.words[id / 32] |= 1u << id % 32;
    atomic_store_explicit(mask.position, position, memory_order_release);
}

static inline void masked_open_row(struct masked_world *world, struct batch *batch, uint32_t index)
{
    struct masked_row *row = &world->rows[index];
    uint32_t pages = world->limits->pages_per_row;

    if (row->open)
        batch->close_rows[batch->close_count++] = index;
    batch->openings[batch->opening_count++] =
        (struct batch_opening){.row = index,
                               .tokens = row->tokens,
                               .token_count = row->count,
                               .prompt_count = MASKED_PROMPT,
                               .tokens_left = MASKED_TEXT - row->count,
                               .sampling = &row->sampling,
                               .masked = world->masks && index > 0};
    for (uint32_t i = 0; i < pages; i++)
        batch->grants[batch->grant_count++] = (struct batch_grant){index, i, index * pages + i};
    batch->prefills[batch->prefill_count++] =
        (struct batch_prefill){index, row->computed, row->count - row->computed};
    row->computed = row->count;
    row->open = row->decodes = true;
    row->held = false;
    row->in_flight++;
}

static inline bool masked_plan(struct masked_world *world)
{
    struct batch *batch = world->batches[world->submitted % MASKED_SLOTS];

    batch_reset(batch);
    batch->number = world->submitted;
    for (uint32_t i = 0; i <= MASKED_ROWS; i++) {
        struct masked_row *row = &world->rows[i];

        if (row->count == MASKED_TEXT)
            continue;
        if (!row->open || (row->held && row->in_flight == 0)) {
            masked_open_row(world, batch, i);
        } else if (row->decodes && !row->held) {
            batch->decode_rows[batch->decode_count++] = i;
            row->in_flight++;
        }
    }
    if (batch->prefill_count + batch->decode_count == 0)
        return false;
    assert_int_equal(engine_submit(world->engine, batch, NULL), 0);
    world->submitted++;
    return true;
}

/* Its next mask, or none, or tokens that nobody draws. */
static inline void masked_go_on(struct masked_world *world, uint32_t index)
{
    struct masked_row *row = &world->rows[index];
    uint32_t choice = (row->count * 7 + index) % 11;

    if (choice == 3)
        return; /* late */
    if (choice == 5 && row->count + MASKED_JUMP < MASKED_TEXT) {
        row->held = true;
        row->computed = row->count - 1;
        for (int i = 0; i < MASKED_JUMP; i++) {
            row->tokens[row->count] = (int32_t)(row->count % 3 + 3 * (uint32_t)i);
            row->logprobs[row->count++] = NAN;
        }
        world->jumps++;
    }
    masked_write(world, index);
}

static inline void masked_hear(struct masked_world *world, const struct step_row *result)
{
    struct masked_row *row = &world->rows[result->row];

    row->in_flight--;
    if (row->held || result->state == STEP_ROW_IDLE)
        return; /* in flight when it was held */
    if (result->state == STEP_ROW_LATE) {
        assert_true(world->masks && result->row > 0);
        row->held = true;
        row->computed = row->count - 1;
        world->late++;
        masked_write(world, result->row);
        return;
    }
    assert_true(result->state == STEP_ROW_TOKEN || result->state == STEP_ROW_LENGTH);
    if (world->masks && result->row > 0)
        assert_true(masked_allows(row->count, result->token));
    row->logprobs[row->count] = result->logprob;
    row->tokens[row->count++] = result->token;
    if (world->masks && result->row > 0 && row->count < MASKED_TEXT)
        masked_go_on(world, result->row);
}

static inline void masked_run(struct masked_world *world)
{
    for (;;) {
        struct step step;

        if (engine_in_flight(world->engine) < ENGINE_STEPS_IN_FLIGHT && masked_plan(world))
            continue;
        if (engine_in_flight(world->engine) == 0)
            break;
        assert_int_equal(engine_complete(world->engine, &step, NULL), 0);
        world->completed++;
        for (uint32_t i = 0; i < step.row_count; i++)
            masked_hear(world, &step.rows[i]);
    }
}

static inline void masked_open(struct masked_world *world, const struct engine_options *options,
                               bool masks)
{
    struct fault fault = {0};

    *world = (struct masked_world){.masks = masks};
    if (engine_open(options, &world->engine, &fault) < 0)
        fail_msg("%s", fault.message);
    world->limits = engine_limits(world->engine);
    assert_true(world->limits->context >= MASKED_TEXT && world->limits->batch.rows > MASKED_ROWS);
    for (int i = 0; i < MASKED_SLOTS; i++)
        assert_int_equal(batch_open(&world->limits->batch, &world->batches[i], NULL), 0);
    for (uint32_t i = 0; i <= MASKED_ROWS; i++) {
        struct masked_row *row = &world->rows[i];

        for (uint32_t k = 0; k < MASKED_PROMPT; k++)
            row->tokens[k] = (int32_t)((i * 31 + k * 17) % 200);
        row->count = MASKED_PROMPT;
        sampling_init(&row->sampling);
        row->sampling.ignore_eos = true;
        row->sampling.logprobs = 0;
        row->sampling.temperature = i % 2 ? 1.0f : 0.0f;
        row->sampling.frequency_penalty = i == 3 ? 0.5f : 0.0f;
        row->sampling.top_k = i == 4 ? 20 : 0;
        row->sampling.seed = i;
        if (masks && i > 0)
            masked_write(world, i);
    }
}

static inline void masked_close(struct masked_world *world)
{
    engine_close(world->engine);
    for (int i = 0; i < MASKED_SLOTS; i++)
        batch_close(world->batches[i]);
}

/* The same text as a prompt: what was drawn had these log-probabilities. */
static inline void masked_score(struct masked_world *world, uint32_t index, float tolerance)
{
    struct masked_row *row = &world->rows[index];
    struct batch *batch = world->batches[world->submitted % MASKED_SLOTS];
    struct step step;
    uint32_t pages = world->limits->pages_per_row;

    row->sampling.prompt_logprobs = 0;
    batch_reset(batch);
    batch->number = world->submitted++;
    batch->close_rows[batch->close_count++] = index;
    batch->openings[batch->opening_count++] = (struct batch_opening){.row = index,
                                                                     .tokens = row->tokens,
                                                                     .token_count = MASKED_TEXT,
                                                                     .prompt_count = MASKED_TEXT,
                                                                     .sampling = &row->sampling};
    for (uint32_t i = 0; i < pages; i++)
        batch->grants[batch->grant_count++] = (struct batch_grant){index, i, index * pages + i};
    batch->prefills[batch->prefill_count++] = (struct batch_prefill){index, 0, MASKED_TEXT};
    assert_int_equal(engine_submit(world->engine, batch, NULL), 0);
    assert_int_equal(engine_complete(world->engine, &step, NULL), 0);
    assert_int_equal(step.prompt_count, MASKED_TEXT - 1);
    for (uint32_t i = 0; i < step.prompt_count; i++) {
        const struct step_prompt *prompt = &step.prompts[i];
        float drawn = row->logprobs[prompt->position];

        if (prompt->position < MASKED_PROMPT || isnan(drawn))
            continue;
        if (fabsf(drawn - prompt->logprob) > tolerance)
            fail_msg("row %u, position %u: %g drawn, %g read", index, prompt->position,
                     (double)drawn, (double)prompt->logprob);
    }
}

/* `exact`: the plain row gives the same tokens in whatever company. */
static inline void masked_rows_follow_their_masks(const struct engine_options *options, bool exact,
                                                  float tolerance)
{
    struct masked_world *world = malloc(sizeof *world), *plain = malloc(sizeof *plain);

    assert_true(world && plain);
    masked_open(world, options, true);
    masked_run(world);
    masked_open(plain, options, false);
    masked_run(plain);
    for (uint32_t i = 0; i <= MASKED_ROWS; i++) {
        assert_int_equal(world->rows[i].count, MASKED_TEXT);
        for (uint32_t k = MASKED_PROMPT; i > 0 && k < MASKED_TEXT; k++)
            assert_true(masked_allows(k, world->rows[i].tokens[k]));
        masked_score(world, i, tolerance);
    }
    if (exact)
        assert_memory_equal(world->rows[0].tokens, plain->rows[0].tokens,
                            sizeof plain->rows[0].tokens);
    printf("%u masks late, %u jumps, %llu steps; %llu without masks\n", world->late, world->jumps,
           (unsigned long long)world->submitted, (unsigned long long)plain->submitted);
    assert_true(world->late >= MASKED_ROWS && world->jumps >= MASKED_ROWS);
    masked_close(world);
    masked_close(plain);
    free(world);
    free(plain);
}

#endif
