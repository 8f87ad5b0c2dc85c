/* backend_null.c -- a device that computes nothing and yields tokens at a given pace.
 *
 * For tests and load measurements of everything above the engine. The token at absolute position p
 * is the row's own prompt again, from its beginning: tokens[(p - prompt_count) mod prompt_count].
 * It depends on nothing else, so a stream that got another's token shows it, and so does one that
 * lost or repeated a token when it was preempted. The model's end tokens in the prompt are echoed
 * as another token, so that a row ends by its length (or by a stop token of its own).
 *
 * It can be told to fail in a step, as a lost GPU would: to test what follows.
 *
 * A token's state, of which vectors are made, is 1 at its id modulo the width and 0 elsewhere.
 *
 * Log-probabilities are fixed: -0.5 for the token, then falling by 1 for each alternative. */
#include <math.h>
#include <stdlib.h>

#include "config/base/clock.h"
#include "engine/backend.h"
#include "engine/memory.h"
#include "engine/request_table.h"

enum { NULL_PAGE_TOKENS = 16, NULL_PAGE_BYTES = 64 };

struct backend {
    uint64_t step_ns;
    uint64_t steps;
    uint64_t fail_step; /* 0: none */
    struct fault failure;
    uint32_t vocabulary;
    float *state; /* [width] of the model */
    uint32_t width;
    uint32_t end_count;
    const int32_t *end_tokens;
    int32_t end_substitute; /* the lowest token that is no end token */
    const struct work *work;
    uint64_t began_ns;
};

static int null_open(const struct backend_options *options, struct backend **ret_backend,
                     struct fault *fault)
{
    struct backend *backend = calloc(1, sizeof *backend);

    if (!backend)
        return fault_set(fault, E_MEMORY, "out of memory for the null device");
    backend->step_ns = (uint64_t)options->null_step_us * 1000;
    backend->fail_step = options->null_fail_step;
    *ret_backend = backend;
    return 0;
}

static void null_close(struct backend *backend)
{
    free(backend->state);
    free(backend);
}

static const char *null_describe(struct backend *backend)
{
    (void)backend;
    return "null (computes nothing)";
}

static const struct fault *null_failure(const struct backend *backend)
{
    return &backend->failure;
}

/* A page costs next to nothing, but something: the plan's arithmetic stays as on a real device. */
static int null_costs(struct backend *backend, const struct model *model,
                      const struct engine_limits *limits, struct backend_costs *ret_costs,
                      struct fault *fault)
{
    (void)backend;
    (void)model;
    (void)limits;
    (void)fault;
    *ret_costs = (struct backend_costs){.page = NULL_PAGE_BYTES, .available = memory_available()};
    ret_costs->pages_most = ret_costs->available / 2;
    return 0;
}

static int null_load(struct backend *backend, struct model *model, struct fault *fault)
{
    (void)backend;
    (void)model;
    (void)fault;
    return 0;
}

static bool is_end(const struct backend *backend, int32_t token)
{
    for (uint32_t i = 0; i < backend->end_count; i++)
        if (backend->end_tokens[i] == token)
            return true;
    return false;
}

static int null_reserve(struct backend *backend, const struct model *model,
                        const struct engine_limits *limits, struct fault *fault)
{
    backend->width = model->width;
    backend->state = calloc(model->width, sizeof *backend->state);
    if (!backend->state)
        return fault_set(fault, E_MEMORY, "out of memory for the null device");
    backend->vocabulary = limits->vocabulary;
    backend->end_count = limits->end_count;
    backend->end_tokens = limits->end_tokens;
    while (is_end(backend, backend->end_substitute))
        backend->end_substitute++;
    if ((uint32_t)backend->end_substitute >= limits->vocabulary)
        backend->end_substitute = 0; /* a vocabulary of nothing but ends */
    return 0;
}

static int null_begin(struct backend *backend, const struct model *model, struct work *work)
{
    (void)model;
    backend->began_ns = clock_now();
    backend->work = work;
    if (++backend->steps == backend->fail_step)
        return fault_set(&backend->failure, E_DEVICE,
                         "the null device failed in step %llu, as it was told to",
                         (unsigned long long)backend->steps);
    return 0;
}

static void null_whole(struct backend *backend)
{
    (void)backend;
}

static void null_layer(struct backend *backend, uint32_t layer)
{
    (void)backend;
    (void)layer;
}

static void null_head(struct backend *backend)
{
    const struct work *work = backend->work;

    for (uint32_t i = 0; i < work->segment_count; i++) {
        const struct work_segment *segment = &work->segments[i];
        const struct batch_opening *opening =
            &request_table_row(work->table, segment->row)->opening;

        for (uint32_t j = 0; opening->vector && j < segment->token_count; j++) {
            float *at =
                &backend->state[(uint32_t)work->tokens[segment->first_token + j] % backend->width];

            *at = 1;
            pooling_take(opening, segment->position + j, backend->state, backend->width);
            *at = 0;
        }
    }
}

/* Fills the log-probabilities that were asked for; returns the token's own. */
static float null_logprobs(const struct backend *backend, int32_t token, int32_t wanted,
                           uint32_t *ret_rank, uint32_t *ret_top_count, struct token_logprob *top)
{
    uint32_t count = wanted > 0 ? (uint32_t)wanted : 0;

    if (wanted == LOGPROBS_NONE)
        return NAN;
    if (count > backend->vocabulary)
        count = backend->vocabulary;
    for (uint32_t i = 0; i < count; i++) {
        top[i].token = (int32_t)(((uint32_t)token + i) % backend->vocabulary);
        top[i].logprob = -0.5f - (float)i;
    }
    *ret_rank = 1;
    *ret_top_count = count;
    return -0.5f;
}

/* The first token from `token` on, round and round, that the row's mask allows, an end last. */
static int32_t null_masked(const struct backend *backend, const struct request_row *row,
                           int32_t token)
{
    int32_t end = token;

    for (uint32_t i = 0; i < backend->vocabulary; i++) {
        uint32_t id = ((uint32_t)token + i) % backend->vocabulary;

        if (!(row->mask.words[id / 32] >> id % 32 & 1))
            continue;
        if (!is_end(backend, (int32_t)id))
            return (int32_t)id;
        end = (int32_t)id;
    }
    return end;
}

/* -1: the mask is late. */
static int32_t null_token(const struct backend *backend, const struct request_row *row,
                          uint32_t position)
{
    const struct batch_opening *opening = &row->opening;
    int32_t token = opening->tokens[(position - opening->prompt_count) % opening->prompt_count];

    if (!request_row_may_draw(row, position))
        return -1;
    if (opening->masked)
        return null_masked(backend, row, token);
    return is_end(backend, token) ? backend->end_substitute : token;
}

static int null_sample(struct backend *backend, struct request_table *table, struct step *step)
{
    /* A step lasts its time from its beginning, whatever the bookkeeping took; asleep, not
     * spinning. It draws at its end, as the others do: masks are made meanwhile. */
    clock_sleep_until(backend->began_ns + backend->step_ns);
    for (uint32_t i = 0; i < backend->work->output_count; i++) {
        const struct work_output *output = &backend->work->outputs[i];
        const struct request_row *row = request_table_row(table, output->row);
        const struct batch_opening *opening = &row->opening;

        if (output->sample) {
            struct step_row *result = &step->rows[output->result];

            result->token = null_token(backend, row, backend->work->positions[output->token] + 1);
            result->logprob = null_logprobs(backend, result->token, opening->sampling->logprobs,
                                            &result->rank, &result->top_count, result->top);
            result->state = request_table_advance(table, output->row, result->token);
        } else {
            struct step_prompt *result = &step->prompts[output->prompt];

            result->logprob =
                null_logprobs(backend, result->token, opening->sampling->prompt_logprobs,
                              &result->rank, &result->top_count, result->top);
        }
    }
    return 0;
}

const struct backend_ops backend_null = {
    .name = "null",
    .options_bytes = sizeof(struct backend_options),
    .synchronous = true,
    .gives_vectors = true,
    .page_tokens = NULL_PAGE_TOKENS,
    .prefill_tokens = 256,
    .open = null_open,
    .close = null_close,
    .describe = null_describe,
    .costs = null_costs,
    .load = null_load,
    .reserve = null_reserve,
    .failure = null_failure,
    .begin = null_begin,
    .embed = null_whole,
    .attention_in = null_layer,
    .attention = null_layer,
    .attention_out = null_layer,
    .mlp = null_layer,
    .mixture = null_layer,
    .head = null_head,
    .sample = null_sample,
};
