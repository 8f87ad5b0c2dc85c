/* fake_engine.h -- engine.h without a model, for tests of the scheduler: it computes nothing,
 * checks everything that batch.h demands, and answers as the null device does.
 *
 * Tokens. A row echoes its prompt, round and round: the token at position p is
 * prompt[(p - prompt_count) mod prompt_count]. It ends by its length or by one of its stop tokens.
 * A masked row draws the first token from there on, round and round, that its mask allows; and the
 * end token where that is allowed and wanted, or alone is.
 *
 * Memory. A page's slot for position p holds a hash of the row's tokens 0 .. p, as a real key and
 * value depend on all before them. Whoever computes a token looks at all slots before it, so a page
 * that was given to two, given too early to another, shared wrongly or never granted shows at once.
 * What a row was lent is compared with a copy in each step.
 *
 * When a step runs is the test's choice: within engine_submit(), as late as engine_complete(), or
 * on a thread of its own. Steps may be made to wait for permission, and to fail.
 *
 * Everything is here, so one file of a program includes it. What contradicts the contract aborts
 * (must): the scheduler's thread is not cmocka's. */
#ifndef WEFT_TEST_FAKE_ENGINE_H
#define WEFT_TEST_FAKE_ENGINE_H

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/clock.h"
#include "engine/engine.h"

enum {
    FAKE_SLOTS = ENGINE_STEPS_IN_FLIGHT + 1,
    FAKE_VOCABULARY = 1000,
    FAKE_MASK_WORDS = (FAKE_VOCABULARY + 31) / 32,
};

enum fake_timing { FAKE_AT_SUBMIT, FAKE_AT_COMPLETE, FAKE_ON_THREAD, FAKE_TIMINGS };

struct fake_options {
    enum fake_timing timing;
    uint32_t rows;
    uint32_t page_tokens;
    uint32_t page_count;
    uint32_t context;
    uint32_t prefill_tokens;
    uint32_t loaded_tokens;  /* 0: no limit */
    uint64_t token_ns;       /* steps say that they took so long a prompt token, and as much; 0:
                                what they took */
    int32_t end_token;       /* the model's; 0: it has none */
    bool draws_ends;         /* a masked row draws it wherever it may */
    uint32_t late_every;     /* so many masks are found, then one is said to be late; 0: never */
    bool waits_for_permits;  /* a step runs when fake_engine_permit() allows it; on a thread only */
    uint64_t complete_fails; /* so many steps succeed, then engine_complete() fails; 0: never */
    uint64_t submit_fails;   /* the same for engine_submit() */
};

/* What happened so far; any thread may read. */
struct fake_counts {
    _Atomic uint64_t submitted;
    _Atomic uint64_t completed;
    _Atomic uint64_t prefilled; /* tokens */
    _Atomic uint64_t decoded;
    _Atomic uint64_t sampled;
    _Atomic uint64_t idle;        /* rows that had ended */
    _Atomic uint64_t late;        /* masks that were */
    _Atomic uint64_t masked;      /* looked at */
    _Atomic uint64_t plain;       /* tokens of rows without masks */
    _Atomic uint64_t late_grants; /* pages granted in the batch that writes them, while decoding */
};

enum fake_state { FAKE_FREE, FAKE_PREFILL, FAKE_DECODE, FAKE_ENDED };

struct fake_row {
    enum fake_state state;
    struct batch_opening opening;
    int32_t *tokens; /* a copy of the opening's, and what followed; [context + 1] */
    struct sampling sampling;
    uint32_t token_count;
    uint32_t computed;
    uint32_t tokens_left;
    uint32_t *pages; /* UINT32_MAX: not granted */
    uint64_t *granted_in;
    uint64_t last_batch; /* that named it */
};

struct fake_slot {
    const struct batch *batch;
    struct step step;
};

struct engine {
    struct fake_options options;
    struct engine_limits limits;
    struct fake_counts counts;
    struct fake_row *rows;
    uint64_t *memory; /* [page_count][page_tokens] */
    uint32_t *masks;  /* [rows][FAKE_MASK_WORDS] */
    _Atomic uint32_t *mask_positions;
    struct fake_slot slots[FAKE_SLOTS];
    uint64_t submitted;
    uint64_t completed;
    bool failed;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    uint64_t posted;
    uint64_t done;
    uint64_t permitted;
    bool running;
    bool closing; /* or failed: no step runs any more */
};

static inline int32_t fake_echo(const int32_t *prompt, uint32_t prompt_count, uint32_t position)
{
    return prompt[(position - prompt_count) % prompt_count];
}

/* FNV-1a, a token at a time. */
static inline uint64_t fake_hash(uint64_t before, int32_t token)
{
    return (before ^ (uint64_t)token) * UINT64_C(0x100000001b3);
}

/* --- changes ---------------------------------------------------------------------------------- */

static inline void fake_open_row(struct engine *engine, const struct batch_opening *opening)
{
    struct fake_row *row = &engine->rows[opening->row];

    must(opening->row < engine->limits.batch.rows && row->state == FAKE_FREE);
    must(opening->prompt_count >= 1 && opening->prompt_count <= opening->token_count);
    must(opening->token_count + opening->tokens_left <= engine->limits.context);
    must(opening->token_count == opening->prompt_count || opening->tokens_left > 0);
    row->state = FAKE_PREFILL;
    row->opening = *opening;
    row->sampling = *opening->sampling;
    memcpy(row->tokens, opening->tokens, opening->token_count * sizeof *row->tokens);
    for (uint32_t i = opening->prompt_count; i < opening->token_count; i++)
        must(opening->masked || row->tokens[i] == fake_echo(row->tokens, opening->prompt_count, i));
    row->token_count = opening->token_count;
    row->tokens_left = opening->tokens_left;
    row->computed = UINT32_MAX; /* until its first chunk says where it begins */
    for (uint32_t i = 0; i < engine->limits.pages_per_row; i++)
        row->pages[i] = UINT32_MAX;
}

static inline void fake_apply_changes(struct engine *engine, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->close_count; i++) {
        must(engine->rows[batch->close_rows[i]].state != FAKE_FREE);
        engine->rows[batch->close_rows[i]].state = FAKE_FREE;
    }
    for (uint32_t i = 0; i < batch->opening_count; i++)
        fake_open_row(engine, &batch->openings[i]);
    for (uint32_t i = 0; i < batch->grant_count; i++) {
        const struct batch_grant *grant = &batch->grants[i];
        struct fake_row *row = &engine->rows[grant->row];

        must(row->state != FAKE_FREE && grant->index < engine->limits.pages_per_row);
        must(grant->page < engine->limits.page_count && row->pages[grant->index] == UINT32_MAX);
        row->pages[grant->index] = grant->page;
        row->granted_in[grant->index] = batch->number;
    }
}

/* What was lent is there still, at its address, and as it was. */
static inline void fake_check_lent(const struct engine *engine)
{
    for (uint32_t i = 0; i < engine->limits.batch.rows; i++) {
        const struct fake_row *row = &engine->rows[i];

        if (row->state == FAKE_FREE)
            continue;
        must(memcmp(row->tokens, row->opening.tokens,
                    row->opening.token_count * sizeof *row->tokens) == 0);
        must(memcmp(&row->sampling, row->opening.sampling, sizeof row->sampling) == 0);
    }
}

/* --- computing -------------------------------------------------------------------------------- */

static inline uint64_t *fake_cell(const struct engine *engine, const struct fake_row *row,
                                  uint32_t position)
{
    uint32_t page = row->pages[position / engine->limits.page_tokens];

    must(page != UINT32_MAX);
    return &engine->memory[(size_t)page * engine->limits.page_tokens +
                           position % engine->limits.page_tokens];
}

/* Nobody else may know the page that is written to. */
static inline void fake_check_alone(const struct engine *engine, const struct fake_row *row,
                                    uint32_t page)
{
    for (uint32_t i = 0; i < engine->limits.batch.rows; i++) {
        const struct fake_row *other = &engine->rows[i];

        if (other == row || other->state == FAKE_FREE)
            continue;
        for (uint32_t k = 0; k < engine->limits.pages_per_row; k++)
            must(other->pages[k] != page);
    }
}

static inline void fake_compute(struct engine *engine, struct fake_row *row, uint32_t position,
                                uint32_t count)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    must(position + count <= row->token_count);
    for (uint32_t i = 0; i < position; i++) {
        hash = fake_hash(hash, row->tokens[i]);
        must(*fake_cell(engine, row, i) == hash);
    }
    for (uint32_t i = position; i < position + count; i++) {
        if (i == position || i % engine->limits.page_tokens == 0)
            fake_check_alone(engine, row, row->pages[i / engine->limits.page_tokens]);
        hash = fake_hash(hash, row->tokens[i]);
        *fake_cell(engine, row, i) = hash;
    }
    row->computed = position + count;
}

static inline bool fake_ends(const struct fake_row *row, int32_t token)
{
    uint32_t generated = row->token_count - row->opening.prompt_count;

    if (generated <= row->sampling.min_tokens) /* the token is counted already */
        return false;
    for (uint32_t i = 0; i < row->sampling.stop_count; i++)
        if (row->sampling.stop_tokens[i] == token)
            return true;
    return false;
}

static inline bool fake_may_draw(const struct engine *engine, const struct fake_row *row,
                                 int32_t token)
{
    const uint32_t *mask = engine->masks + (row - engine->rows) * FAKE_MASK_WORDS;

    return mask[token / 32] >> token % 32 & 1;
}

/* -1: the mask is late. */
static inline int32_t fake_masked(struct engine *engine, const struct fake_row *row, int32_t token)
{
    int32_t end = engine->options.end_token;
    uint64_t number = atomic_fetch_add(&engine->counts.masked, 1) + 1;

    if (atomic_load_explicit(&engine->mask_positions[row - engine->rows], memory_order_acquire) !=
            row->token_count ||
        (engine->options.late_every > 0 && number % engine->options.late_every == 0)) {
        atomic_fetch_add(&engine->counts.late, 1);
        return -1;
    }
    if (engine->options.draws_ends && fake_may_draw(engine, row, end))
        return end;
    for (int32_t i = 0; i < FAKE_VOCABULARY; i++)
        if ((token + i) % FAKE_VOCABULARY != end &&
            fake_may_draw(engine, row, (token + i) % FAKE_VOCABULARY))
            return (token + i) % FAKE_VOCABULARY;
    must(fake_may_draw(engine, row, end));
    return end;
}

static inline void fake_sample(struct engine *engine, struct fake_row *row, struct step_row *result)
{
    int32_t token = fake_echo(row->tokens, row->opening.prompt_count, row->token_count);

    must(row->tokens_left > 0);
    if (row->opening.masked)
        token = fake_masked(engine, row, token);
    else
        atomic_fetch_add(&engine->counts.plain, 1);
    if (token < 0) {
        result->state = STEP_ROW_LATE;
        row->state = FAKE_ENDED;
        return;
    }
    atomic_fetch_add(&engine->counts.sampled, 1);
    row->tokens[row->token_count++] = token;
    row->tokens_left--;
    result->token = token;
    result->logprob = row->sampling.logprobs == LOGPROBS_NONE ? NAN : -0.5f;
    result->rank = row->sampling.logprobs == LOGPROBS_NONE ? 0 : 1;
    row->state = FAKE_DECODE;
    result->state = STEP_ROW_TOKEN;
    if (fake_ends(row, token) || (row->opening.masked && token == engine->options.end_token))
        result->state = STEP_ROW_END;
    else if (row->tokens_left == 0)
        result->state = STEP_ROW_LENGTH;
    if (result->state != STEP_ROW_TOKEN)
        row->state = FAKE_ENDED;
}

static inline void fake_report_prompt(const struct fake_row *row,
                                      const struct batch_prefill *prefill, struct step *step)
{
    if (row->sampling.prompt_logprobs == LOGPROBS_NONE)
        return;
    for (uint32_t i = 1; i <= prefill->count; i++)
        if (prefill->position + i < row->opening.prompt_count)
            step->prompts[step->prompt_count++] =
                (struct step_prompt){.row = prefill->row,
                                     .position = prefill->position + i,
                                     .token = row->tokens[prefill->position + i],
                                     .logprob = -0.5f};
}

static inline void fake_prefill(struct engine *engine, const struct batch_prefill *prefill,
                                struct step *step)
{
    struct fake_row *row = &engine->rows[prefill->row];
    struct step_row *result = &step->rows[step->row_count++];

    *result = (struct step_row){.row = prefill->row, .state = STEP_ROW_PARTIAL, .token = -1};
    must(row->state == FAKE_PREFILL && prefill->count >= 1);
    must(row->computed == UINT32_MAX || row->computed == prefill->position);
    must(prefill->position + prefill->count <= row->opening.token_count);
    fake_compute(engine, row, prefill->position, prefill->count);
    fake_report_prompt(row, prefill, step);
    atomic_fetch_add(&engine->counts.prefilled, prefill->count);
    if (row->computed < row->opening.token_count)
        return;
    if (row->tokens_left > 0) {
        fake_sample(engine, row, result);
    } else {
        result->state = STEP_ROW_SCORED;
        row->state = FAKE_ENDED;
    }
}

static inline void fake_decode(struct engine *engine, uint32_t index, uint64_t number,
                               struct step *step)
{
    struct fake_row *row = &engine->rows[index];
    struct step_row *result = &step->rows[step->row_count++];

    *result = (struct step_row){.row = index, .state = STEP_ROW_IDLE, .token = -1};
    must(row->state == FAKE_DECODE || row->state == FAKE_ENDED);
    if (row->state == FAKE_ENDED) {
        atomic_fetch_add(&engine->counts.idle, 1);
        return;
    }
    if (row->granted_in[row->computed / engine->limits.page_tokens] == number)
        atomic_fetch_add(&engine->counts.late_grants, 1);
    fake_compute(engine, row, row->computed, 1);
    fake_sample(engine, row, result);
    atomic_fetch_add(&engine->counts.decoded, 1);
}

static inline void fake_name_row(struct engine *engine, uint32_t row, uint64_t number)
{
    must(row < engine->limits.batch.rows);
    must(engine->rows[row].last_batch != number + 1); /* once a batch */
    engine->rows[row].last_batch = number + 1;
}

static inline void fake_run(struct engine *engine, struct fake_slot *slot)
{
    const struct batch *batch = slot->batch;
    uint32_t prefill_tokens = 0;

    slot->step.number = batch->number;
    slot->step.row_count = 0;
    slot->step.prompt_count = 0;
    slot->step.started_ns = clock_now();
    must(batch->prefill_count + batch->decode_count <= engine->limits.batch.rows);
    must(batch->grant_count <= engine->limits.batch.grants);
    fake_apply_changes(engine, batch);
    fake_check_lent(engine);
    for (uint32_t i = 0; i < batch->prefill_count; i++) {
        fake_name_row(engine, batch->prefills[i].row, batch->number);
        prefill_tokens += batch->prefills[i].count;
        must(prefill_tokens <= engine->limits.batch.prefill_tokens);
        fake_prefill(engine, &batch->prefills[i], &slot->step);
    }
    for (uint32_t i = 0; i < batch->decode_count; i++) {
        fake_name_row(engine, batch->decode_rows[i], batch->number);
        fake_decode(engine, batch->decode_rows[i], batch->number, &slot->step);
    }
    slot->step.ended_ns = clock_now();
    if (engine->options.token_ns > 0)
        slot->step.ended_ns =
            slot->step.started_ns + (1 + prefill_tokens) * engine->options.token_ns;
}

static inline void *fake_thread(void *data)
{
    struct engine *engine = data;

    pthread_mutex_lock(&engine->lock);
    for (;;) {
        uint64_t number = engine->done;

        while (!engine->closing && (engine->posted == number || engine->permitted <= number))
            pthread_cond_wait(&engine->changed, &engine->lock);
        if (engine->closing)
            break;
        engine->running = true;
        pthread_mutex_unlock(&engine->lock);
        fake_run(engine, &engine->slots[number % FAKE_SLOTS]);
        pthread_mutex_lock(&engine->lock);
        engine->running = false;
        engine->done++;
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}

/* --- engine.h --------------------------------------------------------------------------------- */

const struct engine_limits *engine_limits(const struct engine *engine)
{
    return &engine->limits;
}

struct row_mask engine_mask(const struct engine *engine, uint32_t row)
{
    return (struct row_mask){.words = engine->masks + row * FAKE_MASK_WORDS,
                             .word_count = FAKE_MASK_WORDS,
                             .position = &engine->mask_positions[row]};
}

uint32_t engine_in_flight(const struct engine *engine)
{
    return (uint32_t)(engine->submitted - engine->completed);
}

/* After a failure nothing is looked at that was lent. */
static inline int fake_fail(struct engine *engine, struct fault *fault)
{
    pthread_mutex_lock(&engine->lock);
    engine->failed = engine->closing = true;
    while (engine->running)
        pthread_cond_wait(&engine->changed, &engine->lock);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    return fault_set(fault, E_DEVICE, "the device failed, as it was told to");
}

int engine_submit(struct engine *engine, const struct batch *batch, struct fault *fault)
{
    struct fake_slot *slot = &engine->slots[engine->submitted % FAKE_SLOTS];

    must(engine_in_flight(engine) < ENGINE_STEPS_IN_FLIGHT);
    if (engine->failed ||
        (engine->options.submit_fails && engine->submitted >= engine->options.submit_fails))
        return fake_fail(engine, fault);
    must(batch->number == engine->submitted);
    slot->batch = batch;
    if (engine->options.timing == FAKE_AT_SUBMIT)
        fake_run(engine, slot);
    pthread_mutex_lock(&engine->lock);
    engine->posted++;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    engine->submitted++;
    atomic_fetch_add(&engine->counts.submitted, 1);
    return 0;
}

int engine_complete(struct engine *engine, struct step *ret_step, struct fault *fault)
{
    struct fake_slot *slot = &engine->slots[engine->completed % FAKE_SLOTS];

    if (engine->failed)
        return fake_fail(engine, fault);
    must(engine_in_flight(engine) > 0);
    if (engine->options.complete_fails && engine->completed >= engine->options.complete_fails)
        return fake_fail(engine, fault);
    if (engine->options.timing == FAKE_AT_COMPLETE)
        fake_run(engine, slot);
    pthread_mutex_lock(&engine->lock);
    while (engine->options.timing == FAKE_ON_THREAD && engine->done <= engine->completed)
        pthread_cond_wait(&engine->changed, &engine->lock);
    pthread_mutex_unlock(&engine->lock);
    engine->completed++;
    atomic_fetch_add(&engine->counts.completed, 1);
    *ret_step = slot->step;
    return 0;
}

/* --- the test's side -------------------------------------------------------------------------- */

static inline void *fake_take(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);

    must(memory != NULL);
    return memory;
}

static inline struct engine *fake_engine_open(const struct fake_options *options)
{
    struct engine *engine = fake_take(1, sizeof *engine);
    struct engine_limits *limits = &engine->limits;

    engine->options = *options;
    limits->page_tokens = options->page_tokens;
    limits->page_count = options->page_count;
    limits->context = options->context;
    limits->pages_per_row = (options->context + options->page_tokens - 1) / options->page_tokens;
    limits->vocabulary = FAKE_VOCABULARY;
    limits->end_count = options->end_token > 0;
    limits->end_tokens = &engine->options.end_token;
    engine->masks = fake_take(options->rows, FAKE_MASK_WORDS * sizeof *engine->masks);
    engine->mask_positions = fake_take(options->rows, sizeof *engine->mask_positions);
    limits->batch = (struct batch_limits){.rows = options->rows,
                                          .grants = options->page_count + options->rows,
                                          .prefill_tokens = options->prefill_tokens};
    limits->loaded_tokens = options->loaded_tokens ? options->loaded_tokens : UINT32_MAX;
    must(limits->page_count >= limits->pages_per_row);
    engine->rows = fake_take(options->rows, sizeof *engine->rows);
    for (uint32_t i = 0; i < options->rows; i++) {
        engine->rows[i].tokens = fake_take(options->context + 1, sizeof(int32_t));
        engine->rows[i].pages = fake_take(limits->pages_per_row, sizeof(uint32_t));
        engine->rows[i].granted_in = fake_take(limits->pages_per_row, sizeof(uint64_t));
    }
    engine->memory =
        fake_take((size_t)options->page_count * options->page_tokens, sizeof *engine->memory);
    for (int i = 0; i < FAKE_SLOTS; i++) {
        engine->slots[i].step.rows = fake_take(options->rows, sizeof(struct step_row));
        engine->slots[i].step.prompts =
            fake_take(options->prefill_tokens, sizeof(struct step_prompt));
    }
    engine->permitted = options->waits_for_permits ? 0 : UINT64_MAX;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->changed, NULL);
    if (options->timing == FAKE_ON_THREAD)
        must(pthread_create(&engine->thread, NULL, fake_thread, engine) == 0);
    return engine;
}

/* `count` more steps may run; UINT64_MAX: all that come. */
static inline void fake_engine_permit(struct engine *engine, uint64_t count)
{
    pthread_mutex_lock(&engine->lock);
    engine->permitted =
        count > UINT64_MAX - engine->permitted ? UINT64_MAX : engine->permitted + count;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

static inline void fake_engine_close(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    engine->closing = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
    if (engine->options.timing == FAKE_ON_THREAD)
        pthread_join(engine->thread, NULL);
    for (uint32_t i = 0; i < engine->limits.batch.rows; i++) {
        free(engine->rows[i].tokens);
        free(engine->rows[i].pages);
        free(engine->rows[i].granted_in);
    }
    for (int i = 0; i < FAKE_SLOTS; i++) {
        free(engine->slots[i].step.rows);
        free(engine->slots[i].step.prompts);
    }
    free(engine->rows);
    free(engine->memory);
    free(engine->masks);
    free(engine->mask_positions);
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->changed);
    free(engine);
}

#endif
