/* cuda_changes.c -- what a batch changes in the request table, packed and copied beside the
 * computing.
 *
 *     host slot  --copy lane-->  device slot  --kernel on the row's lane-->  the tables
 *
 * The copy runs under the step before; only the kernel, which takes microseconds, stands between
 * two steps, and only where there are changes. Four slots go round, so a slot is normally long free
 * again when its turn comes. What does not fit one slot takes several. */
#include <string.h>

#include "engine/cuda_internal.h"

/* What a slot takes: at least one opening of any size. */
struct change_room {
    uint32_t openings, grants, biases, tokens;
};

static struct change_room room_of(const struct engine_limits *limits)
{
    struct change_room room = {
        .openings = limits->batch.rows < 64 ? limits->batch.rows : 64,
        .grants = 8192,
        .biases = 4 * CUDA_BIAS_MAX,
        .tokens = limits->context,
    };

    return room;
}

/* The slot's lists, one behind the other. */
static void place_lists(const struct change_room *room, struct carve *carve,
                        struct cuda_opening **openings, struct cuda_grant **grants,
                        struct cuda_bias **biases, int32_t **tokens)
{
    *openings = carve_take(carve, room->openings, sizeof **openings);
    *grants = carve_take(carve, room->grants, sizeof **grants);
    *biases = carve_take(carve, room->biases, sizeof **biases);
    *tokens = carve_take(carve, room->tokens, sizeof **tokens);
}

int cuda_changes_open(struct backend *b, struct cuda_lane *lane, struct carve *device,
                      struct carve *host)
{
    const struct change_room room = room_of(&b->limits);
    int r = 0;

    for (int i = 0; i < CUDA_CHANGE_SLOTS && r == 0; i++) {
        struct cuda_change_slot *slot = &lane->changes[i];
        struct cuda_opening *openings;
        struct cuda_grant *grants;
        struct cuda_bias *biases;
        int32_t *tokens;

        place_lists(&room, device, &openings, &grants, &biases, &tokens);
        slot->placed = (struct cuda_changes){
            .openings = openings,
            .grants = grants,
            .biases = biases,
            .tokens = tokens,
            .vocabulary = b->limits.vocabulary,
            .pages_per_row = b->limits.pages_per_row,
            .mask_words = (b->limits.vocabulary + 31) / 32,
            .bias_max = CUDA_BIAS_MAX,
            .samplings = b->samplings,
            .rows = b->rows,
            .row_biases = b->biases,
            .generated_counts = b->generated_counts,
            .prompt_seen = b->prompt_seen,
            .page_table = b->page_table,
        };
        place_lists(&room, host, &slot->openings, &slot->grants, &slot->biases, &slot->tokens);
        if (!device->base)
            continue;
        r = cuda_event_open(&b->context, false, &slot->copied);
        if (r == 0)
            r = cuda_event_open(&b->context, false, &slot->applied);
    }
    return r;
}

void cuda_changes_close(struct backend *b, struct cuda_lane *lane)
{
    for (int i = 0; i < CUDA_CHANGE_SLOTS; i++) {
        cuda_event_close(&b->context, lane->changes[i].copied);
        cuda_event_close(&b->context, lane->changes[i].applied);
    }
}

static int copy_list(struct backend *b, const void *placed, const void *host, size_t bytes)
{
    return bytes > 0 ? cuda_copy(&b->copies, (void *)placed, host, bytes) : 0;
}

/* Sends the lane's slot on its way, if it holds anything, and takes the next. */
static int flush(struct backend *b, struct cuda_lane *lane)
{
    struct cuda_change_slot *slot = &lane->changes[lane->change_slot % CUDA_CHANGE_SLOTS];
    struct cuda_changes *placed = &slot->placed;
    int r = 0;

    if (slot->opening_count + slot->grant_count == 0)
        return 0;
    placed->opening_count = slot->opening_count;
    placed->grant_count = slot->grant_count;
    /* The device's slot may still be read by the kernel of its last turn. */
    if (slot->used)
        r = cuda_stream_wait(&b->copies, slot->applied);
    if (r == 0)
        r = cuda_trace_copy_begin(b, slot);
    if (r == 0)
        r = copy_list(b, placed->openings, slot->openings,
                      slot->opening_count * sizeof *slot->openings);
    if (r == 0)
        r = copy_list(b, placed->grants, slot->grants, slot->grant_count * sizeof *slot->grants);
    if (r == 0)
        r = copy_list(b, placed->biases, slot->biases, slot->bias_count * sizeof *slot->biases);
    if (r == 0)
        r = copy_list(b, placed->tokens, slot->tokens, slot->token_count * sizeof *slot->tokens);
    if (r == 0)
        r = cuda_trace_copy_end(b, slot);
    if (r == 0)
        r = cuda_event_record(&b->copies, slot->copied);
    if (r == 0)
        r = cuda_stream_wait(&lane->stream, slot->copied);
    if (r == 0)
        r = cuda_apply_changes(&lane->stream, placed);
    if (r == 0)
        r = cuda_event_record(&lane->stream, slot->applied);
    slot->used = true;
    slot->opening_count = slot->grant_count = slot->bias_count = slot->token_count = 0;
    lane->change_slot++;
    return r;
}

/* The slot to write into; one that the copy lane still reads is waited for. */
static int current(struct backend *b, struct cuda_lane *lane, struct cuda_change_slot **ret_slot)
{
    struct cuda_change_slot *slot = &lane->changes[lane->change_slot % CUDA_CHANGE_SLOTS];
    int r = 0;

    if (slot->used && slot->opening_count + slot->grant_count == 0)
        r = cuda_event_wait(&b->context, slot->copied);
    *ret_slot = slot;
    return r;
}

static void add_stop(struct cuda_sampling *placed, int32_t token)
{
    if (placed->stop_count < CUDA_STOP_MAX)
        placed->stops[placed->stop_count++] = token;
}

static struct cuda_sampling sampling_of(const struct backend *b, const struct sampling *s,
                                        bool counted)
{
    struct cuda_sampling placed = {
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .typical_p = s->typical_p,
        .repetition_penalty = s->repetition_penalty,
        .frequency_penalty = s->frequency_penalty,
        .presence_penalty = s->presence_penalty,
        .seed = s->seed,
        .stream = s->stream,
        .logprobs = s->logprobs,
        .prompt_logprobs = s->prompt_logprobs,
        .counted = counted,
        .bias_count = s->bias_count < CUDA_BIAS_MAX ? s->bias_count : CUDA_BIAS_MAX,
        .min_tokens = s->min_tokens,
    };

    if (!s->ignore_eos)
        for (uint32_t i = 0; i < b->limits.end_count; i++)
            add_stop(&placed, b->limits.end_tokens[i]);
    for (uint32_t i = 0; i < s->stop_count; i++)
        add_stop(&placed, s->stop_tokens[i]);
    return placed;
}

static int add_opening(struct backend *b, struct cuda_lane *lane, const struct change_room *room,
                       const struct batch_opening *opening)
{
    const struct request_row *row = request_table_row(b->table, opening->row);
    struct cuda_sampling sampling = sampling_of(b, opening->sampling, row->counted);
    uint32_t tokens = row->counted ? opening->token_count : 0;
    struct cuda_change_slot *slot;
    int r = current(b, lane, &slot);

    sampling.prompt_count = opening->prompt_count;
    if (r == 0 && (slot->opening_count == room->openings ||
                   slot->bias_count + sampling.bias_count > room->biases ||
                   slot->token_count + tokens > room->tokens)) {
        r = flush(b, lane);
        if (r == 0)
            r = current(b, lane, &slot);
    }
    if (r < 0)
        return r;
    slot->openings[slot->opening_count++] =
        (struct cuda_opening){.row = opening->row,
                              .first_bias = slot->bias_count,
                              .first_token = slot->token_count,
                              .prompt_count = opening->prompt_count,
                              .token_count = opening->token_count,
                              .sampling = sampling};
    for (uint32_t i = 0; i < sampling.bias_count; i++)
        slot->biases[slot->bias_count++] = (struct cuda_bias){opening->sampling->biases[i].token,
                                                              opening->sampling->biases[i].bias};
    memcpy(slot->tokens + slot->token_count, opening->tokens, tokens * sizeof *slot->tokens);
    slot->token_count += tokens;
    return 0;
}

static int add_grant(struct backend *b, struct cuda_lane *lane, const struct change_room *room,
                     const struct batch_grant *grant)
{
    struct cuda_change_slot *slot;
    int r = current(b, lane, &slot);

    if (r == 0 && slot->grant_count == room->grants) {
        r = flush(b, lane);
        if (r == 0)
            r = current(b, lane, &slot);
    }
    if (r == 0)
        slot->grants[slot->grant_count++] =
            (struct cuda_grant){grant->row, grant->index, grant->page};
    return r;
}

/* The lane with the fewest rows. */
static uint8_t choose_lane(const struct backend *b)
{
    uint8_t least = 0;

    for (uint8_t i = 1; i < b->decode_lanes; i++)
        if (b->lanes[i].rows_open < b->lanes[least].rows_open)
            least = i;
    return least;
}

/* Rows and pages that a sequence on one lane gave up may be taken by one on another: where any are
 * given up or taken, every lane first waits for what the others have enqueued. */
static int order_lanes(struct backend *b)
{
    int r = 0;

    for (uint32_t i = 0; i < b->lane_count; i++)
        for (uint32_t j = 0; j < b->lane_count && r == 0; j++) {
            const struct cuda_lane *other = &b->lanes[j];

            if (i != j && other->steps != other->completed)
                r = cuda_stream_wait(&b->lanes[i].stream,
                                     other->done[(other->steps - 1) % CUDA_STEP_SLOTS]);
        }
    return r;
}

int cuda_changes_apply(struct backend *b, const struct batch *batch)
{
    const struct change_room room = room_of(&b->limits);
    int r = 0;

    if (batch->close_count + batch->opening_count > 0)
        r = order_lanes(b);
    for (uint32_t i = 0; i < batch->close_count; i++)
        b->lanes[b->row_lanes[batch->close_rows[i]]].rows_open--;
    for (uint32_t i = 0; i < batch->opening_count && r == 0; i++) {
        const struct batch_opening *opening = &batch->openings[i];

        b->row_lanes[opening->row] = choose_lane(b);
        b->lanes[b->row_lanes[opening->row]].rows_open++;
        r = add_opening(b, &b->lanes[b->row_lanes[opening->row]], &room, opening);
    }
    for (uint32_t i = 0; i < batch->grant_count && r == 0; i++)
        r = add_grant(b, &b->lanes[b->row_lanes[batch->grants[i].row]], &room, &batch->grants[i]);
    for (uint32_t i = 0; i < b->lane_count && r == 0; i++)
        r = flush(b, &b->lanes[i]);
    return r;
}
