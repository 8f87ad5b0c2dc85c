/* cpu_sample.c -- from the outputs' logits to tokens and log-probabilities.
 *
 * The head has left the best logit of each piece of the vocabulary, so a plain greedy row without
 * log-probabilities is done by comparing those. Every other output is drawn by whichever thread is
 * free, each with its own scratch. Moving the rows on is left to the calling thread, in the order
 * of the outputs. */
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
    return host_sample_is_greedy(row, row->generated);
}

/* One output, on any thread. */
static void sample_output(struct backend *b, struct cpu_seat *seat, uint32_t chunk_index)
{
    const struct work_output *output = &b->work->outputs[b->head_first + chunk_index];
    const struct request_row *row = request_table_row(b->table, output->row);
    const float *logits = logits_of(b, chunk_index);

    if (output->sample) {
        struct step_row *result = &b->step->rows[output->result];

        result->token = plain_greedy(row) ? best_token(b, chunk_index)
                                          : host_sample_draw(&seat->sampler, row, row->generated,
                                                             row->position + 1, logits);
        host_sample_describe(&seat->sampler, row, logits, result);
    }
    if (output->target >= 0)
        host_sample_prompt(&seat->sampler, row, logits, &b->step->prompts[output->prompt]);
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

/* --- all outputs --------------------------------------------------------------------------- */

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
