/* request_table.c -- rows in host memory; see the header.
 *
 * A batch comes from the scheduler, which is our own code: what contradicts the limits or a row's
 * state is a bug and must() says so before anything is written out of bounds.
 *
 *     FREE --open--> PREFILL --last chunk sampled--> DECODE --end or length--> ENDED
 *       ^                        '------- scored, end or length ---------------> |
 *       '------------------- close, from any state ------------------------------' */
#include "engine/request_table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_NONE = UINT32_MAX, BITS_PER_WORD = 64, MASK_WORD_BITS = 32 };

struct request_table {
    struct engine_limits limits;
    struct request_row *rows;
    uint32_t *pages;            /* [rows][pages_per_row] */
    uint16_t *generated_counts; /* [rows][vocabulary] */
    uint64_t *prompt_seen;      /* [rows][prompt_words] */
    uint32_t *masks;            /* [rows][mask_words] */
    _Atomic uint32_t *mask_positions;
    /* What `struct work` points to. */
    int32_t *tokens;
    uint32_t *positions;
    struct work_segment *segments;
    struct work_output *outputs;
};

static size_t prompt_words(const struct engine_limits *limits)
{
    return ((size_t)limits->vocabulary + BITS_PER_WORD - 1) / BITS_PER_WORD;
}

static uint32_t mask_words(const struct engine_limits *limits)
{
    return (limits->vocabulary + MASK_WORD_BITS - 1) / MASK_WORD_BITS;
}

/* Every row computes at most one token besides the prefill's. */
static size_t tokens_max(const struct engine_limits *limits)
{
    return (size_t)limits->batch.prefill_tokens + limits->batch.rows;
}

uint64_t request_table_bytes(const struct engine_limits *limits)
{
    uint64_t row =
        sizeof(struct request_row) + (uint64_t)limits->pages_per_row * sizeof(uint32_t) +
        (uint64_t)limits->vocabulary * sizeof(uint16_t) + prompt_words(limits) * sizeof(uint64_t) +
        (mask_words(limits) + (uint64_t)1) * sizeof(uint32_t) + sizeof(struct work_segment);
    uint64_t token = sizeof(int32_t) + sizeof(uint32_t) + sizeof(struct work_output);

    return sizeof(struct request_table) + row * limits->batch.rows + token * tokens_max(limits);
}

int request_table_open(const struct engine_limits *limits, struct request_table **ret_table,
                       struct fault *fault)
{
    struct request_table *table = calloc(1, sizeof *table);
    size_t rows = limits->batch.rows;

    if (!table)
        goto out;
    table->limits = *limits;
    table->rows = calloc(rows, sizeof *table->rows);
    table->pages = calloc(rows * limits->pages_per_row, sizeof *table->pages);
    table->generated_counts = calloc(rows * limits->vocabulary, sizeof *table->generated_counts);
    table->prompt_seen = calloc(rows * prompt_words(limits), sizeof *table->prompt_seen);
    table->masks = calloc(rows * mask_words(limits), sizeof *table->masks);
    table->mask_positions = calloc(rows, sizeof *table->mask_positions);
    table->tokens = calloc(tokens_max(limits), sizeof *table->tokens);
    table->positions = calloc(tokens_max(limits), sizeof *table->positions);
    table->segments = calloc(rows, sizeof *table->segments);
    table->outputs = calloc(tokens_max(limits), sizeof *table->outputs);
    if (!table->rows || !table->pages || !table->generated_counts || !table->prompt_seen ||
        !table->masks || !table->mask_positions || !table->tokens || !table->positions ||
        !table->segments || !table->outputs)
        goto out;
    for (size_t i = 0; i < rows; i++) {
        table->rows[i].pages = table->pages + i * limits->pages_per_row;
        table->rows[i].generated_counts = table->generated_counts + i * limits->vocabulary;
        table->rows[i].prompt_seen = table->prompt_seen + i * prompt_words(limits);
    }
    request_table_place_masks(table, table->masks, table->mask_positions);
    *ret_table = table;
    return 0;
out:
    request_table_close(table);
    return fault_set(fault, E_MEMORY, "out of memory for a request table of %zu rows", rows);
}

void request_table_place_masks(struct request_table *table, uint32_t *words,
                               _Atomic uint32_t *positions)
{
    uint32_t count = mask_words(&table->limits);

    for (size_t i = 0; i < table->limits.batch.rows; i++)
        table->rows[i].mask = (struct row_mask){
            .words = words + i * count, .word_count = count, .position = positions + i};
}

void request_table_close(struct request_table *table)
{
    if (!table)
        return;
    free(table->rows);
    free(table->pages);
    free(table->generated_counts);
    free(table->prompt_seen);
    free(table->masks);
    free(table->mask_positions);
    free(table->tokens);
    free(table->positions);
    free(table->segments);
    free(table->outputs);
    free(table);
}

struct request_row *request_table_row(struct request_table *table, uint32_t row)
{
    must(row < table->limits.batch.rows);
    return &table->rows[row];
}

/* --- changes ------------------------------------------------------------------------------- */

static void count_generated(struct request_row *row, int32_t token)
{
    if (row->generated_counts[token] < UINT16_MAX)
        row->generated_counts[token]++;
}

static void count_opening(const struct request_table *table, struct request_row *row)
{
    const struct batch_opening *opening = &row->opening;

    memset(row->generated_counts, 0, table->limits.vocabulary * sizeof *row->generated_counts);
    memset(row->prompt_seen, 0, prompt_words(&table->limits) * sizeof *row->prompt_seen);
    for (uint32_t i = 0; i < opening->prompt_count; i++) {
        uint32_t token = (uint32_t)opening->tokens[i];

        row->prompt_seen[token / BITS_PER_WORD] |= (uint64_t)1 << (token % BITS_PER_WORD);
    }
    for (uint32_t i = opening->prompt_count; i < opening->token_count; i++)
        count_generated(row, opening->tokens[i]);
}

static void open_row(struct request_table *table, const struct batch_opening *opening)
{
    struct request_row *row = request_table_row(table, opening->row);
    const struct sampling *sampling = opening->sampling;

    must(row->state == ROW_FREE);
    must(opening->prompt_count >= 1 && opening->prompt_count <= opening->token_count);
    must(opening->token_count <= table->limits.context);
    must(opening->tokens_left <= table->limits.context - opening->token_count);
    must(!table->limits.encoder || opening->tokens_left == 0);
    must(!opening->vector || (opening->tokens_left == 0 && table->limits.vector_width > 0));
    for (uint32_t i = 0; i < opening->token_count; i++)
        must((uint32_t)opening->tokens[i] < table->limits.vocabulary);
    row->state = ROW_PREFILL;
    row->stopped = false;
    row->opened++;
    row->opening = *opening;
    row->last_token = -1;
    row->position = opening->token_count - 1;
    row->tokens_left = opening->tokens_left;
    row->generated = opening->token_count - opening->prompt_count;
    row->counted = sampling->repetition_penalty != 1.0f || sampling->frequency_penalty != 0.0f ||
                   sampling->presence_penalty != 0.0f;
    if (row->counted)
        count_opening(table, row);
    for (uint32_t i = 0; i < table->limits.pages_per_row; i++)
        row->pages[i] = PAGE_NONE;
}

static void apply_changes(struct request_table *table, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->close_count; i++)
        request_table_row(table, batch->close_rows[i])->state = ROW_FREE;
    for (uint32_t i = 0; i < batch->opening_count; i++)
        open_row(table, &batch->openings[i]);
    for (uint32_t i = 0; i < batch->grant_count; i++) {
        const struct batch_grant *grant = &batch->grants[i];

        must(grant->index < table->limits.pages_per_row && grant->page < table->limits.page_count);
        request_table_row(table, grant->row)->pages[grant->index] = grant->page;
    }
}

/* --- work ---------------------------------------------------------------------------------- */

/* A segment of `count` tokens from `position` on, whose tokens the caller writes next. */
static struct work_segment *add_segment(struct request_table *table, struct work *work,
                                        uint32_t row_index, uint32_t position, uint32_t count)
{
    const struct request_row *row = &table->rows[row_index];
    struct work_segment *segment = &work->segments[work->segment_count];
    uint32_t page_tokens = table->limits.page_tokens;

    must(work->segment_count < table->limits.batch.rows);
    must(count <= tokens_max(&table->limits) - work->token_count);
    for (uint32_t i = position / page_tokens; i <= (position + count - 1) / page_tokens; i++)
        must(row->pages[i] != PAGE_NONE);
    *segment = (struct work_segment){.row = row_index,
                                     .first_token = work->token_count,
                                     .token_count = count,
                                     .position = position,
                                     .decode = row->state == ROW_DECODE,
                                     .pages = row->pages};
    for (uint32_t i = 0; i < count; i++)
        work->positions[work->token_count + i] = position + i;
    work->segment_count++;
    work->token_count += count;
    return segment;
}

static void add_sample(struct work *work, uint32_t token, uint32_t row, uint32_t result)
{
    work->outputs[work->output_count++] = (struct work_output){
        .token = token, .row = row, .sample = true, .target = -1, .result = result};
}

/* Outputs for the prompt tokens that follow the chunk's tokens, as far as they are prompt. */
static void add_targets(struct work *work, const struct request_row *row,
                        const struct work_segment *segment, struct step *step)
{
    for (uint32_t i = 0; i < segment->token_count; i++) {
        uint32_t position = segment->position + i + 1;

        if (position >= row->opening.prompt_count)
            break;
        work->outputs[work->output_count++] =
            (struct work_output){.token = segment->first_token + i,
                                 .row = segment->row,
                                 .target = row->opening.tokens[position],
                                 .prompt = step->prompt_count};
        step->prompts[step->prompt_count++] = (struct step_prompt){
            .row = segment->row, .position = position, .token = row->opening.tokens[position]};
    }
}

static void add_prefill(struct request_table *table, const struct batch_prefill *prefill,
                        struct work *work, struct step *step)
{
    struct request_row *row = request_table_row(table, prefill->row);
    struct step_row *result = &step->rows[step->row_count];
    const struct work_segment *segment;

    must(row->state == ROW_PREFILL && prefill->count >= 1);
    must(prefill->position < row->opening.token_count &&
         prefill->count <= row->opening.token_count - prefill->position);
    segment = add_segment(table, work, prefill->row, prefill->position, prefill->count);
    memcpy(work->tokens + segment->first_token, row->opening.tokens + prefill->position,
           prefill->count * sizeof *work->tokens);
    *result = (struct step_row){.row = prefill->row, .state = STEP_ROW_PARTIAL, .token = -1};
    if (row->opening.sampling->prompt_logprobs != LOGPROBS_NONE)
        add_targets(work, row, segment, step);
    if (prefill->position + prefill->count == row->opening.token_count) {
        if (row->tokens_left == 0) {
            result->state = STEP_ROW_SCORED;
            row->state = ROW_ENDED;
        } else {
            add_sample(work, segment->first_token + prefill->count - 1, prefill->row,
                       step->row_count);
        }
    }
    step->row_count++;
}

static void add_decode(struct request_table *table, uint32_t row_index, struct work *work,
                       struct step *step)
{
    struct request_row *row = request_table_row(table, row_index);
    const struct work_segment *segment;

    must(row->state == ROW_DECODE || row->state == ROW_ENDED);
    step->rows[step->row_count] =
        (struct step_row){.row = row_index, .state = STEP_ROW_IDLE, .token = -1};
    if (row->state == ROW_DECODE) {
        segment = add_segment(table, work, row_index, row->position, 1);
        work->tokens[segment->first_token] = row->last_token;
        add_sample(work, segment->first_token, row_index, step->row_count);
    }
    step->row_count++;
}

void request_table_begin(struct request_table *table, const struct batch *batch, struct work *work,
                         struct step *step)
{
    *work = (struct work){.batch = batch,
                          .table = table,
                          .tokens = table->tokens,
                          .positions = table->positions,
                          .segments = table->segments,
                          .outputs = table->outputs};
    step->number = batch->number;
    step->row_count = 0;
    step->prompt_count = 0;
    apply_changes(table, batch);
    must(batch->prefill_count <= table->limits.batch.rows &&
         batch->decode_count <= table->limits.batch.rows - batch->prefill_count);
    for (uint32_t i = 0; i < batch->prefill_count; i++)
        add_prefill(table, &batch->prefills[i], work, step);
    for (uint32_t i = 0; i < batch->decode_count; i++)
        add_decode(table, batch->decode_rows[i], work, step);
}

/* --- after sampling ------------------------------------------------------------------------ */

bool request_row_may_draw(const struct request_row *row, uint32_t position)
{
    return !row->opening.masked ||
           atomic_load_explicit(row->mask.position, memory_order_acquire) == position;
}

bool request_row_may_end(const struct request_row *row, uint32_t generated)
{
    return generated >= row->opening.sampling->min_tokens;
}

static bool contains(const int32_t *tokens, uint32_t count, int32_t token)
{
    for (uint32_t i = 0; i < count; i++)
        if (tokens[i] == token)
            return true;
    return false;
}

static bool ends_row(const struct request_table *table, const struct request_row *row,
                     uint32_t generated, int32_t token)
{
    const struct sampling *sampling = row->opening.sampling;

    if (!request_row_may_end(row, generated))
        return false;
    if (!sampling->ignore_eos && contains(table->limits.end_tokens, table->limits.end_count, token))
        return true;
    return contains(sampling->stop_tokens, sampling->stop_count, token);
}

struct row_promise request_table_promise(struct request_table *table, uint32_t row_index)
{
    struct request_row *row = request_table_row(table, row_index);
    struct row_promise promise = {.row = row_index,
                                  .opened = row->opened,
                                  .generated = row->generated,
                                  .last = row->tokens_left == 1};

    must(row->tokens_left > 0);
    row->position++;
    row->generated++;
    row->tokens_left--;
    row->state = row->tokens_left == 0 ? ROW_ENDED : ROW_DECODE;
    return promise;
}

enum step_row_state request_table_learn(struct request_table *table,
                                        const struct row_promise *promise, int32_t token)
{
    struct request_row *row = request_table_row(table, promise->row);

    if (row->opened != promise->opened || row->stopped)
        return STEP_ROW_IDLE;
    must((uint32_t)token < table->limits.vocabulary);
    row->last_token = token;
    if (row->counted)
        count_generated(row, token);
    if (ends_row(table, row, promise->generated, token)) {
        row->stopped = true;
        row->state = ROW_ENDED;
        return STEP_ROW_END;
    }
    return promise->last ? STEP_ROW_LENGTH : STEP_ROW_TOKEN;
}

enum step_row_state request_table_late(struct request_table *table,
                                       const struct row_promise *promise)
{
    struct request_row *row = request_table_row(table, promise->row);

    if (row->opened != promise->opened || row->stopped)
        return STEP_ROW_IDLE;
    must(row->opening.masked);
    row->stopped = true;
    row->state = ROW_ENDED;
    return STEP_ROW_LATE;
}

enum step_row_state request_table_advance(struct request_table *table, uint32_t row_index,
                                          int32_t token)
{
    struct row_promise promise = request_table_promise(table, row_index);

    if (token < 0)
        return request_table_late(table, &promise);
    return request_table_learn(table, &promise, token);
}
