/* cuda_step.c -- a step from the batch to its results, without waiting for the device in between.
 *
 *     begin     changes to the tables; the step described in the lane's next mapped slot; then
 *               either the bucket's graph is launched, or forward.c calls the operations
 *     sample    the draw (unless the graph held it), promises for its tokens, an event
 *     complete  waits for the oldest step's events: tokens from the mapped choices
 *
 * Two steps are enqueued before the first is waited for, and the device feeds itself the tokens, so
 * it never waits for the host. With --sync (`host_sampling`) the step is waited for at once and the
 * host draws: the plain loop that the rest is measured against. */
#include <math.h>
#include <string.h>

#include "config/base/clock.h"
#include "engine/cuda_internal.h"
#include "engine/host_sample.h"

enum { SPIN_NS = 50 * 1000 };

/* The lane that a segment runs on: its row's, or the one for prompts. */
static uint32_t lane_of(const struct backend *b, const struct work_segment *segment)
{
    bool apart = b->lane_count > b->decode_lanes && !segment->decode;

    return apart ? b->decode_lanes : b->row_lanes[segment->row];
}

/* --- describing ---------------------------------------------------------------------------- */

static void begin_lane(struct cuda_lane *lane)
{
    lane->active = lane->replayed = false;
    lane->decodes = true;
    lane->token_count = 0;
    lane->output_count = 0;
    lane->tile_count = 0;
    lane->first_decode = 0;
    lane->decode_segments = 0;
    lane->fused = false;
    lane->follows = 0;
}

/* Segments come with prefills first, as the request table lists them. */
static void describe_segment(struct backend *b, const struct work_segment *segment)
{
    struct cuda_lane *lane = &b->lanes[lane_of(b, segment)];
    const struct cuda_step_slot *slot = &lane->slots[lane->steps % CUDA_STEP_SLOTS];
    uint32_t number = lane->first_decode + lane->decode_segments;

    slot->segments[number] = (struct cuda_segment){.row = segment->row,
                                                   .first_token = lane->token_count,
                                                   .token_count = segment->token_count,
                                                   .position = segment->position};
    for (uint32_t i = 0; i < segment->token_count; i++) {
        int32_t token = b->work->tokens[segment->first_token + i];

        slot->tokens[lane->token_count + i] =
            (struct cuda_token){.token = segment->decode && !b->options.host_sampling ? -1 : token,
                                .row = segment->row,
                                .position = segment->position + i};
    }
    lane->active = true;
    lane->token_count += segment->token_count;
    if (segment->decode) {
        lane->decode_segments++;
        if (b->row_prefilled[segment->row] > lane->follows)
            lane->follows = b->row_prefilled[segment->row];
        return;
    }
    b->row_prefilled[segment->row] = b->lane_count > b->decode_lanes ? lane->steps + 1 : 0;
    lane->decodes = false;
    lane->first_decode++;
    for (uint32_t first = 0; first < segment->token_count; first += CUDA_PREFILL_TILE)
        lane->tiles[(lane->steps % CUDA_STEP_SLOTS) * b->tokens_max + lane->tile_count++] =
            (struct cuda_prefill_tile){.segment = number, .first = first};
}

/* Where a token of the work's segment `segment` lies among its lane's. */
static uint32_t lane_token(const struct backend *b, uint32_t token, uint32_t segment)
{
    const struct work_segment *segments = b->work->segments;
    uint32_t before = 0;

    if (b->lane_count == 1)
        return token;
    for (uint32_t i = 0; i < segment; i++)
        if (lane_of(b, &segments[i]) == lane_of(b, &segments[segment]))
            before += segments[i].token_count;
    return before + token - segments[segment].first_token;
}

/* Of the work's segment `segment`. */
static void describe_output(struct backend *b, const struct work_output *output, uint32_t segment)
{
    struct cuda_lane *lane = &b->lanes[lane_of(b, &b->work->segments[segment])];
    const struct cuda_step_slot *slot = &lane->slots[lane->steps % CUDA_STEP_SLOTS];
    struct cuda_pending *pending = &lane->pending[lane->steps % CUDA_STEP_SLOTS];
    const struct request_row *row = request_table_row(b->table, output->row);

    slot->outputs[lane->output_count] = (struct cuda_output){
        .token = lane_token(b, output->token, segment),
        .row = output->row,
        .position = row->position + 1,
        .generated = row->generated,
        .target = output->sample ? -1 : output->target,
        .flags = output->sample && row->opening.masked ? CUDA_OUTPUT_MASKED : 0};
    pending->outputs[lane->output_count] = (struct cuda_pending_output){
        .sampled = output->sample, .result = output->sample ? output->result : output->prompt};
    if (output->sample)
        pending->outputs[lane->output_count].promise = request_table_promise(b->table, output->row);
    lane->output_count++;
}

static void describe(struct backend *b)
{
    uint32_t segment = 0;

    for (uint32_t i = 0; i < b->lane_count; i++)
        begin_lane(&b->lanes[i]);
    for (uint32_t i = 0; i < b->work->segment_count; i++)
        describe_segment(b, &b->work->segments[i]);
    for (uint32_t i = 0; i < b->work->output_count; i++) { /* in the order of segments */
        while (b->work->segments[segment].row != b->work->outputs[i].row)
            segment++;
        describe_output(b, &b->work->outputs[i], segment);
    }
    for (uint32_t i = 0; i < b->lane_count; i++) {
        struct cuda_lane *lane = &b->lanes[i];

        *lane->slots[lane->steps % CUDA_STEP_SLOTS].counts =
            (struct cuda_step_counts){.tokens = lane->token_count,
                                      .segments = lane->first_decode + lane->decode_segments,
                                      .outputs = lane->output_count};
        lane->pending[lane->steps % CUDA_STEP_SLOTS].output_count = lane->output_count;
    }
}

/* --- begin --------------------------------------------------------------------------------- */

/* Sizes as the kernels will see them, and whether a graph does it all. */
static void choose_path(struct backend *b, struct cuda_lane *lane)
{
    uint32_t bucket = cuda_bucket_find(b, lane->token_count);

    lane->mapped_tiles =
        lane->mapped_tiles_all + (size_t)(lane->steps % CUDA_STEP_SLOTS) * b->tokens_max;
    if (lane->decodes && bucket < b->bucket_count) {
        uint32_t rows = b->buckets[bucket];

        lane->fused = b->packs && rows <= CUDA_SKINNY_TOKENS;
        lane->tokens = lane->fused ? rows : cuda_rows_padded(rows);
        lane->outputs = lane->tokens;
        lane->decode_segments = lane->tokens;
        lane->replayed = lane->graphs[bucket] != NULL;
        if (lane->replayed)
            cuda_note(b, cuda_graph_launch(&lane->stream, lane->graphs[bucket]));
    } else {
        lane->tokens = cuda_rows_padded(lane->token_count);
        lane->outputs = lane->output_count > 0 ? cuda_rows_padded(lane->output_count) : 0;
    }
    if (!lane->replayed)
        cuda_op_prepare(b, lane);
}

/* Between the lane for prompts and the others: it comes after the changes, which were made on the
 * rows' own lanes; rows that it read in come after it. */
static void order_prefill(struct backend *b)
{
    struct cuda_lane *prefill = &b->lanes[b->decode_lanes];

    if (b->lane_count == b->decode_lanes)
        return;
    for (uint32_t i = 0; i < b->decode_lanes; i++) {
        const struct cuda_lane *lane = &b->lanes[i];

        if (prefill->active) {
            cuda_note(b, cuda_event_record(&lane->stream, b->ordered));
            cuda_note(b, cuda_stream_wait(&prefill->stream, b->ordered));
        }
        if (lane->follows > prefill->completed)
            cuda_note(b, cuda_stream_wait(&lane->stream,
                                          prefill->done[(lane->follows - 1) % CUDA_STEP_SLOTS]));
    }
}

int cuda_begin(struct backend *b, const struct model *model, struct work *work)
{
    bool whole = true;

    must(model == b->model);
    b->work = work;
    b->table = work->table;
    b->result = 0;
    cuda_note(b, cuda_trace_step(b));
    cuda_note(b, cuda_changes_apply(b, work->batch));
    describe(b);
    order_prefill(b);
    for (uint32_t i = 0; i < b->lane_count && b->result == 0; i++) {
        struct cuda_lane *lane = &b->lanes[i];

        if (!lane->active)
            continue;
        cuda_note(b, cuda_trace_begin(b, lane));
        choose_path(b, lane);
        whole = whole && lane->replayed;
    }
    return b->result < 0 ? b->result : whole;
}

/* --- results ------------------------------------------------------------------------------- */

static void fill_row(struct backend *b, const struct cuda_pending_output *output,
                     const struct cuda_choice *choice, struct step *step)
{
    struct step_row *row = &step->rows[output->result];

    if (choice->token <
        0) { /* its mask was late, or it ended before, which the host knows by now */
        row->state = request_table_row(b->table, output->promise.row)->opening.masked
                         ? request_table_late(b->table, &output->promise)
                         : STEP_ROW_IDLE;
        return;
    }
    row->state = request_table_learn(b->table, &output->promise, choice->token);
    row->token = choice->token;
    row->logprob = choice->logprob;
    row->rank = choice->rank;
    row->top_count = choice->top_count;
    for (uint32_t i = 0; i < choice->top_count; i++)
        row->top[i] = (struct token_logprob){choice->top[i].token, choice->top[i].logprob};
}

static void fill_prompt(const struct cuda_pending_output *output, const struct cuda_choice *choice,
                        struct step *step)
{
    struct step_prompt *prompt = &step->prompts[output->result];

    prompt->logprob = choice->logprob;
    prompt->rank = choice->rank;
    prompt->top_count = choice->top_count;
    for (uint32_t i = 0; i < choice->top_count; i++)
        prompt->top[i] = (struct token_logprob){choice->top[i].token, choice->top[i].logprob};
}

/* --- the plain loop ------------------------------------------------------------------------ */

/* Outputs first .. first + count - 1, whose logits the device holds: copied, waited for, drawn. */
static void sample_on_host(struct backend *b, struct cuda_lane *lane, uint32_t first,
                           uint32_t count)
{
    const struct cuda_pending *pending = &lane->pending[lane->steps % CUDA_STEP_SLOTS];
    const struct cuda_step_slot *slot = &lane->slots[lane->steps % CUDA_STEP_SLOTS];
    uint64_t began;

    cuda_note(b, cuda_copy(&lane->stream, b->host_logits, lane->logits,
                           (size_t)count * b->logits_stride * sizeof(float)));
    began = clock_now();
    cuda_note(b, cuda_stream_synchronize(&lane->stream));
    cuda_waited(b, b->step, began);
    for (uint32_t i = 0; i < count && b->result == 0; i++) {
        const struct cuda_pending_output *output = &pending->outputs[first + i];
        const float *logits = b->host_logits + (size_t)i * b->logits_stride;
        uint32_t row = slot->outputs[first + i].row;

        if (output->sampled) {
            struct step_row *result = &b->step->rows[output->result];

            result->token = host_sample_draw(&b->sampler, request_table_row(b->table, row),
                                             output->promise.generated,
                                             slot->outputs[first + i].position, logits);
            host_sample_describe(&b->sampler, request_table_row(b->table, row), logits, result);
            result->state = result->token < 0
                                ? request_table_late(b->table, &output->promise)
                                : request_table_learn(b->table, &output->promise, result->token);
        } else {
            host_sample_prompt(&b->sampler, request_table_row(b->table, row), logits,
                               &b->step->prompts[output->result]);
        }
    }
}

/* --- sample and complete ------------------------------------------------------------------- */

static void sample_elsewhere(struct backend *b, struct cuda_lane *lane)
{
    struct cuda_stream compute = lane->stream;

    cuda_note(b, cuda_event_record(&compute, b->ordered));
    cuda_note(b, cuda_stream_wait(&b->sampling, b->ordered));
    lane->stream = b->sampling;
    cuda_op_sample(b, lane, 0, lane->outputs);
    lane->stream = compute;
    cuda_note(b, cuda_event_record(&b->sampling, b->ordered));
    cuda_note(b, cuda_stream_wait(&compute, b->ordered));
}

static void sample_lane(struct backend *b, struct cuda_lane *lane)
{
    bool drawn = lane->replayed && !b->options.host_sampling && !b->options.sampling_stream;

    for (uint32_t first = 0; first < lane->output_count && !drawn; first += b->head_rows) {
        uint32_t left = lane->output_count - first;
        uint32_t count = left < b->head_rows ? left : b->head_rows;

        if (first > 0)
            cuda_op_head_chunk(b, lane, first);
        if (b->options.host_sampling)
            sample_on_host(b, lane, first, count);
        else if (b->options.sampling_stream && lane->decodes)
            sample_elsewhere(b, lane);
        else
            cuda_op_sample(b, lane, first, count);
    }
}

int cuda_sample_step(struct backend *b, struct request_table *table, struct step *step)
{
    must(table == b->table);
    b->step = step;
    b->submitted[b->submit_count % CUDA_STEP_SLOTS] = 0;
    for (uint32_t i = 0; i < b->lane_count; i++) {
        struct cuda_lane *lane = &b->lanes[i];

        if (!lane->active)
            continue;
        b->submitted[b->submit_count % CUDA_STEP_SLOTS] |= 1u << i;
        sample_lane(b, lane);
        cuda_note(b, cuda_trace_end(lane));
        cuda_note(b, cuda_event_record(&lane->stream, lane->done[lane->steps % CUDA_STEP_SLOTS]));
        lane->steps++;
    }
    b->submit_count++;
    return b->result;
}

/* Spins for as long as a wake-up would take, then sleeps in the driver. */
static int wait_for(struct backend *b, struct CUevent_st *event, struct step *step)
{
    uint64_t began = clock_now();
    bool done = false;
    int r;

    do {
        r = cuda_event_done(&b->context, event, &done);
    } while (r == 0 && !done && clock_now() - began < SPIN_NS);
    if (r == 0 && !done)
        r = cuda_event_wait(&b->context, event);
    cuda_waited(b, step, began);
    return r;
}

int cuda_complete(struct backend *b, struct request_table *table, struct step *step)
{
    uint32_t lanes = b->submitted[b->complete_count++ % CUDA_STEP_SLOTS];

    must(table == b->table);
    for (uint32_t i = 0; i < b->lane_count; i++) {
        struct cuda_lane *lane = &b->lanes[i];
        uint32_t slot = lane->completed % CUDA_STEP_SLOTS;
        const struct cuda_choice *choices = lane->choices + (size_t)slot * b->tokens_max;
        const struct cuda_pending *pending = &lane->pending[slot];
        int r;

        if (!(lanes >> i & 1))
            continue;
        r = wait_for(b, lane->done[slot], step);
        if (r == 0)
            r = cuda_trace_complete(b, lane, slot);
        if (r < 0)
            return r;
        lane->completed++;
        for (uint32_t j = 0; j < pending->output_count && !b->options.host_sampling; j++)
            if (pending->outputs[j].sampled)
                fill_row(b, &pending->outputs[j], &choices[j], step);
            else
                fill_prompt(&pending->outputs[j], &choices[j], step);
    }
    return 0;
}
