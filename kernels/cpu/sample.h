/* sample.h -- from raw logits to a token: the processors, the draw and the log-probabilities of one
 * row.
 *
 * Pure arithmetic on one row in the caller's scratch memory; many rows run on as many threads at
 * once. Processors and their order are those of engine/batch.h's `struct sampling`; definitions:
 * bias is added; repetition r divides a positive logit and multiplies another, for tokens of prompt
 * or answer; frequency and presence subtract count x frequency + presence for generated tokens;
 * tokens that are banned, or not in the mask, are as if their logit were -infinity; the filters
 * (top_k, top_p, min_p, typical_p) each work on the renormalised result of the one before.
 *
 * The random number is a pure function of (seed, stream, position): Philox 4x32-10 (Salmon et al.,
 * SC11). */
#ifndef WEFT_CPU_SAMPLE_H
#define WEFT_CPU_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

struct sample_bias {
    int32_t token;
    float bias;
};

struct sample_params {
    float temperature;
    uint32_t top_k;
    float top_p;
    float min_p;
    float typical_p;
    float repetition_penalty;
    float frequency_penalty;
    float presence_penalty;
    uint64_t seed;
    uint32_t stream;
    uint32_t position; /* of the token to be drawn */
    uint32_t bias_count;
    const struct sample_bias *biases;
    uint32_t banned_count; /* tokens that cannot be drawn (end tokens before min_tokens) */
    const int32_t *banned;
    const uint16_t *generated_counts; /* [vocabulary] or NULL */
    const uint64_t *prompt_seen;      /* bits or NULL */
    const uint32_t *mask;             /* bits of the tokens that may be drawn, or NULL: all */
};

struct sample_candidate {
    int32_t token;
    float value; /* processed logit, later probability */
};

/* Scratch for one row of `vocabulary` logits; taken at start, reused. */
struct sample_scratch {
    uint32_t vocabulary;
    float *logits;                       /* [vocabulary] processed copy, or weights */
    struct sample_candidate *candidates; /* [vocabulary] */
};
uint64_t sample_scratch_bytes(uint32_t vocabulary);
/* Carves `memory` (sample_scratch_bytes long, aligned to 64). */
void sample_scratch_init(struct sample_scratch *scratch, uint32_t vocabulary, void *memory);

/* Draws. `logits` is not changed. A NaN logit counts as -infinity; with no logit above that the
 * lowest token that is not banned, and in the mask, is drawn. */
int32_t sample_draw(const float *logits, const struct sample_params *params,
                    struct sample_scratch *scratch);
/* The tokens that can still be drawn, likeliest first, with probabilities summing to 1 (for tests
 * and the draw itself). Returns how many; they are in scratch->candidates. */
uint32_t sample_keep(const float *logits, const struct sample_params *params,
                     struct sample_scratch *scratch);

/* log(sum(exp(logits))), accumulated so that the error stays below 1e-5. */
float sample_log_sum(const float *logits, uint32_t vocabulary);
/* 1 + how many logits are greater (on a tie, those with a lower id count as greater). */
uint32_t sample_rank(const float *logits, uint32_t vocabulary, int32_t token);
/* The `count` likeliest, in order. */
void sample_top(const float *logits, uint32_t vocabulary, uint32_t count,
                struct sample_candidate *ret_top);

/* The uniform number in [0, 1) that decides (seed, stream, position). */
float sample_uniform(uint64_t seed, uint32_t stream, uint32_t position);
/* The generator under it: sample_uniform() is the upper 24 bits of word 0 for the counter
 * (position, stream, 0, 0) and the key (low, high half of the seed). */
void sample_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4]);

#endif
