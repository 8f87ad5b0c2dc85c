/* rope.h -- rotary frequencies, by the scaling that a model's file asks for.
 *
 * A plan is what the file says; rope_open() makes the frequencies that backends read. The formulas
 * are those of Transformers' modeling_rope_utils.py, in the same order of operations in float32
 * where it computes so. Immutable after opening. */
#ifndef WEFT_ROPE_H
#define WEFT_ROPE_H

#include "engine/model.h"

enum { ROPE_PAIRS_MAX = MODEL_HEAD_SIZE_MAX / 2 };

enum rope_scaling {
    ROPE_SCALING_NONE,
    ROPE_SCALING_LINEAR,   /* every frequency / factor */
    ROPE_SCALING_DYNAMIC,  /* none up to the trained context, and no more is served */
    ROPE_SCALING_LLAMA3,   /* long waves / factor, short ones not, those between in between */
    ROPE_SCALING_YARN,     /* the same by a ramp over dimensions; cosines and sines grow too */
    ROPE_SCALING_LONGROPE, /* a factor for each frequency: others for long sequences */
};

struct rope_plan {
    enum rope_scaling scaling;
    double base;   /* at least 1 */
    double factor; /* above 0 */
    double low_frequency_factor;
    double high_frequency_factor; /* above the low one */
    double beta_fast;
    double beta_slow;
    bool truncate;           /* YaRN's ramp begins and ends at whole dimensions */
    double attention_factor; /* 0: by the scaling's own rule */
    double mscale;           /* 0: not given */
    double mscale_all_dim;
    uint32_t context_original;
    uint32_t
        short_count; /* LONGROPE: as many as pairs; others: 0, or divisors besides the scaling */
    uint32_t long_count;
    float short_factors[ROPE_PAIRS_MAX];
    float long_factors[ROPE_PAIRS_MAX];
};

void rope_plan_init(struct rope_plan *plan); /* base 10,000 and no scaling */
/* `size`: dimensions that rotate, even and at most MODEL_HEAD_SIZE_MAX. E_INVALID where lists are
 * not of size / 2 positive factors; E_MEMORY. */
int rope_open(const struct rope_plan *plan, uint32_t size, struct rope *ret_rope,
              struct fault *fault);
void rope_close(struct rope *rope); /* a zeroed one is fine */

#endif
