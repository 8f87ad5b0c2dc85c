/* cpu_sample.c -- from the outputs' logits to tokens and log-probabilities.
 *
 * The head has left the best logit of each piece of the vocabulary, so a plain greedy row without
 * log-probabilities is done by comparing those. Every other output is drawn by whichever thread is
 * free, each with its own scratch. Moving the rows on is left to the calling thread, in the order
 * of the outputs. */
#include <math.h>
#include <stdatomic.h>

#include "engine/cpu_internal.h"
#include "engine/request_table.h"

static const float *logits_of(const struct backend *b, uint32_t chunk_index)
{
    return b->logits + chunk_index * b->strides.logits;
}

static int32_t best_token(const struct backend *b, uint32_t chunk_index)
{
    uint32_t threads = pool_threads(b->pool);
    const struct cpu_best *best = &b->best[chunk_index * threads], *most = best;

    /* On a tie the lowest id. */
    for (uint32_t i = 1; i < threads; i++)
        if (best[i].value > most->value ||
            (best[i].value == most->value && best[i].index < most->index))
            most = &best[i];
    return (int32_t)most->index;
}

static bool needs_logprobs(const struct request_row *row)
{
    return row->opening.sampling->logprobs != LOGPROBS_NONE;
}

static bool plain_greedy(const struct request_row *row)
{
    const struct sampling *sampling = row->opening.sampling;

    return sampling->temperature == 0 && sampling->bias_count == 0 && !row->counted &&
           request_row_may_end(row);
}

/* --- one output, on any thread ---------------------------------------------------------------- */

static void ban(const struct backend *b, struct cpu_seat *seat, struct sample_params *params,
                const int32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count && params->banned_count < b->vocabulary; i++)
        seat->banned[params->banned_count++] = tokens[i];
}

/* Before min_tokens the stop tokens cannot be drawn, nor the model's ends where they would end it.
 * */
static struct sample_params params_of(const struct backend *b, struct cpu_seat *seat,
                                      const struct request_row *row)
{
    const struct sampling *sampling = row->opening.sampling;
    struct sample_params params = {
        .temperature = sampling->temperature,
        .top_k = sampling->top_k,
        .top_p = sampling->top_p,
        .min_p = sampling->min_p,
        .typical_p = sampling->typical_p,
        .repetition_penalty = sampling->repetition_penalty,
        .frequency_penalty = sampling->frequency_penalty,
        .presence_penalty = sampling->presence_penalty,
        .seed = sampling->seed,
        .stream = sampling->stream,
        .position = row->position + 1,
        .biases = seat->biases,
        .banned = seat->banned,
        .generated_counts = row->counted ? row->generated_counts : NULL,
        .prompt_seen = row->counted ? row->prompt_seen : NULL,
    };

    for (uint32_t i = 0; i < sampling->bias_count && i < b->vocabulary; i++)
        seat->biases[params.bias_count++] =
            (struct sample_bias){sampling->biases[i].token, sampling->biases[i].bias};
    if (!request_row_may_end(row)) {
        ban(b, seat, &params, sampling->stop_tokens, sampling->stop_count);
        if (!sampling->ignore_eos)
            ban(b, seat, &params, b->end_tokens, b->end_count);
    }
    return params;
}

/* Fills in what was asked for about `token`; returns its log-probability. */
static float describe(const struct backend *b, const float *logits, int32_t token, int32_t wanted,
                      uint32_t *ret_rank, uint32_t *ret_top_count, struct token_logprob *ret_top)
{
    struct sample_candidate top[TOP_LOGPROBS_MAX];
    float log_sum = sample_log_sum(logits, b->vocabulary);
    uint32_t count = wanted < TOP_LOGPROBS_MAX ? (uint32_t)wanted : TOP_LOGPROBS_MAX;

    if (count > b->vocabulary)
        count = b->vocabulary;
    if (count > 0)
        sample_top(logits, b->vocabulary, count, top);
    for (uint32_t i = 0; i < count; i++)
        ret_top[i] = (struct token_logprob){top[i].token, top[i].value - log_sum};
    *ret_top_count = count;
    *ret_rank = sample_rank(logits, b->vocabulary, token);
    return logits[token] - log_sum;
}

static void sample_output(struct backend *b, struct cpu_seat *seat, uint32_t chunk_index)
{
    const struct work_output *output = &b->work->outputs[b->head_first + chunk_index];
    const struct request_row *row = request_table_row(b->table, output->row);
    const struct sampling *sampling = row->opening.sampling;
    const float *logits = logits_of(b, chunk_index);

    if (output->sample) {
        struct step_row *result = &b->step->rows[output->result];

        if (plain_greedy(row)) {
            result->token = best_token(b, chunk_index);
        } else {
            struct sample_params params = params_of(b, seat, row);

            result->token = sample_draw(logits, &params, &seat->sample);
        }
        result->logprob = NAN;
        if (needs_logprobs(row))
            result->logprob = describe(b, logits, result->token, sampling->logprobs, &result->rank,
                                       &result->top_count, result->top);
    }
    if (output->target >= 0) {
        struct step_prompt *result = &b->step->prompts[output->prompt];

        result->logprob = describe(b, logits, output->target, sampling->prompt_logprobs,
                                   &result->rank, &result->top_count, result->top);
    }
}

static void sample_share(void *data, const struct pool_seat *seat)
{
    struct backend *b = data;

    for (;;) {
        uint32_t index = atomic_fetch_add(&b->next_output, 1);

        if (index >= b->head_count)
            return;
        sample_output(b, &b->seats[seat->index], index);
    }
}

/* --- all outputs ------------------------------------------------------------------------------ */

/* Is there enough to do to divide it? */
static bool worth_dividing(const struct backend *b)
{
    uint32_t heavy = 0;

    for (uint32_t i = 0; i < b->head_count; i++) {
        const struct work_output *output = &b->work->outputs[b->head_first + i];
        const struct request_row *row = request_table_row(b->table, output->row);

        heavy += output->target >= 0 || !plain_greedy(row) || needs_logprobs(row);
    }
    return heavy > 1;
}

static void sample_chunk(struct backend *b)
{
    atomic_store(&b->next_output, 0);
    if (worth_dividing(b))
        pool_run(b->pool, sample_share, b);
    else
        for (uint32_t i = 0; i < b->head_count; i++)
            sample_output(b, &b->seats[0], i);
    for (uint32_t i = 0; i < b->head_count; i++) {
        const struct work_output *output = &b->work->outputs[b->head_first + i];

        if (output->sample) {
            struct step_row *result = &b->step->rows[output->result];

            result->state = request_table_advance(b->table, output->row, result->token);
        }
    }
}

int cpu_sample(struct backend *b, struct request_table *table, struct step *step)
{
    b->table = table;
    b->step = step;
    for (uint32_t first = 0; first < b->work->output_count; first += HEAD_ROWS) {
        if (first > 0)
            cpu_head_chunk(b, first);
        sample_chunk(b);
    }
    pool_leave(b->pool);
    return 0;
}
