/* logits.h -- the passes over one row of logits that sampling and log-probabilities are made of.
 *
 * A weight is exp((logit - max) * inverse temperature): 1 for the likeliest, 0 for what is below
 * exp(-87) and for NaN. Pure functions; any thread. */
#ifndef WEFT_CPU_LOGITS_H
#define WEFT_CPU_LOGITS_H

#include <stdint.h>

enum { LOGITS_BLOCK = 256 }; /* logits a float sum covers; these sums add up in double */

/* exp(x) for x <= 0 or NaN, as the weights have it, relative error below 2e-7. */
float logits_exp(float x);

/* The largest value that is not NaN; -INFINITY when there is none. */
float logits_max(const float *row, uint32_t count);
/* The sum of the weights, which it also stores where `weights` is not NULL (it may be `row`). `max`
 * is finite and no logit is larger. */
double logits_weigh(const float *row, uint32_t count, float max, float inverse, float *weights);
/* The sum of one block of weights, a shorter last one filled up with zeros, bit for bit as
 * logits_weigh() formed it. */
float logits_block_sum(const float block[LOGITS_BLOCK]);
/* How many logits are greater than `value`. */
uint32_t logits_greater(const float *row, uint32_t count, float value);

#endif
