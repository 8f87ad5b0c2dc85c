/* host_sample.h -- drawing tokens and describing log-probabilities on the host: from a row of the
 * request table to the arithmetic of kernels/cpu/sample.h.
 *
 * A sampler is the scratch of one thread. `generated` is how many tokens the row has generated
 * before the one to be drawn, `position` that token's place in the sequence. A masked row whose
 * mask is not there draws -1. */
#ifndef WEFT_HOST_SAMPLE_H
#define WEFT_HOST_SAMPLE_H

#include "engine/carve.h"
#include "engine/engine.h"
#include "engine/request_table.h"
#include "kernels/cpu/sample.h"

struct host_sampler {
    uint32_t vocabulary;
    uint32_t end_count;
    const int32_t *end_tokens;
    struct sample_scratch scratch;
    struct sample_bias *biases; /* [vocabulary] */
    int32_t *banned;            /* [vocabulary] */
};

/* Takes its memory from `carve`, or only counts it; `limits` may be NULL while counting. */
struct host_sampler host_sampler_place(struct carve *carve, uint32_t vocabulary,
                                       const struct engine_limits *limits);

/* Nothing but the likeliest token is asked for. */
bool host_sample_is_greedy(const struct request_row *row, uint32_t generated);
int32_t host_sample_draw(struct host_sampler *sampler, const struct request_row *row,
                         uint32_t generated, uint32_t position, const float *logits);
/* Fills in what was asked for about row->token. */
void host_sample_describe(const struct host_sampler *sampler, const struct request_row *row,
                          const float *logits, struct step_row *result);
void host_sample_prompt(const struct host_sampler *sampler, const struct request_row *row,
                        const float *logits, struct step_prompt *result);

#endif
