/* host_sample.c -- see the header. */
#include "engine/host_sample.h"

#include <math.h>

struct host_sampler host_sampler_place(struct carve *carve, uint32_t vocabulary,
                                       const struct engine_limits *limits)
{
    struct host_sampler sampler = {
        .vocabulary = vocabulary,
        .end_count = limits ? limits->end_count : 0,
        .end_tokens = limits ? limits->end_tokens : NULL,
        .biases = carve_take(carve, vocabulary, sizeof(struct sample_bias)),
        .banned = carve_take(carve, vocabulary, sizeof(int32_t)),
    };
    void *scratch = carve_take(carve, sample_scratch_bytes(vocabulary), 1);

    if (scratch)
        sample_scratch_init(&sampler.scratch, vocabulary, scratch);
    return sampler;
}

bool host_sample_is_greedy(const struct request_row *row, uint32_t generated)
{
    const struct sampling *sampling = row->opening.sampling;

    return sampling->temperature == 0 && sampling->bias_count == 0 && !row->counted &&
           !row->opening.masked && request_row_may_end(row, generated);
}

static void ban(struct host_sampler *sampler, struct sample_params *params, const int32_t *tokens,
                uint32_t count)
{
    for (uint32_t i = 0; i < count && params->banned_count < sampler->vocabulary; i++)
        sampler->banned[params->banned_count++] = tokens[i];
}

/* Before min_tokens the stop tokens cannot be drawn, nor the model's ends where they would end it.
 */
int32_t host_sample_draw(struct host_sampler *sampler, const struct request_row *row,
                         uint32_t generated, uint32_t position, const float *logits)
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
        .position = position,
        .biases = sampler->biases,
        .banned = sampler->banned,
        .generated_counts = row->counted ? row->generated_counts : NULL,
        .prompt_seen = row->counted ? row->prompt_seen : NULL,
        .mask = row->opening.masked ? row->mask.words : NULL,
    };

    if (!request_row_may_draw(row, position))
        return -1;
    for (uint32_t i = 0; i < sampling->bias_count && i < sampler->vocabulary; i++)
        sampler->biases[params.bias_count++] =
            (struct sample_bias){sampling->biases[i].token, sampling->biases[i].bias};
    if (!request_row_may_end(row, generated)) {
        ban(sampler, &params, sampling->stop_tokens, sampling->stop_count);
        if (!sampling->ignore_eos)
            ban(sampler, &params, sampler->end_tokens, sampler->end_count);
    }
    return sample_draw(logits, &params, &sampler->scratch);
}

/* Fills in what was asked for about `token`; returns its log-probability. */
static float describe(const struct host_sampler *sampler, const float *logits, int32_t token,
                      int32_t wanted, uint32_t *ret_rank, uint32_t *ret_top_count,
                      struct token_logprob *ret_top)
{
    struct sample_candidate top[TOP_LOGPROBS_MAX];
    float log_sum = sample_log_sum(logits, sampler->vocabulary);
    uint32_t count = wanted < TOP_LOGPROBS_MAX ? (uint32_t)wanted : TOP_LOGPROBS_MAX;

    if (count > sampler->vocabulary)
        count = sampler->vocabulary;
    if (count > 0)
        sample_top(logits, sampler->vocabulary, count, top);
    for (uint32_t i = 0; i < count; i++)
        ret_top[i] = (struct token_logprob){top[i].token, top[i].value - log_sum};
    *ret_top_count = count;
    *ret_rank = sample_rank(logits, sampler->vocabulary, token);
    return logits[token] - log_sum;
}

void host_sample_describe(const struct host_sampler *sampler, const struct request_row *row,
                          const float *logits, struct step_row *result)
{
    int32_t wanted = row->opening.sampling->logprobs;

    result->logprob = NAN;
    if (wanted != LOGPROBS_NONE && result->token >= 0)
        result->logprob = describe(sampler, logits, result->token, wanted, &result->rank,
                                   &result->top_count, result->top);
}

void host_sample_prompt(const struct host_sampler *sampler, const struct request_row *row,
                        const float *logits, struct step_prompt *result)
{
    result->logprob =
        describe(sampler, logits, result->token, row->opening.sampling->prompt_logprobs,
                 &result->rank, &result->top_count, result->top);
}
