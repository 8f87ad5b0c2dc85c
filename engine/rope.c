/* rope.c -- see rope.h. */
#include "engine/rope.h"

#include <math.h>
#include <stdlib.h>

void rope_plan_init(struct rope_plan *plan)
{
    *plan = (struct rope_plan){
        .base = 10000.0, .factor = 1.0, .beta_fast = 32.0, .beta_slow = 1.0, .truncate = true};
}

/* base ^ (2 i / size) in float32, as it stands in every reference. */
static float turns_of(const struct rope_plan *plan, uint32_t size, uint32_t pair)
{
    double exponent = (double)((float)(2 * pair) / (float)size);

    return (float)pow(plan->base, exponent);
}

/* Llama 3.1's rule: wave lengths that fit into the original context `high` times stay, those that
 * fit fewer than `low` times are stretched, and those between are in between. */
static float llama3_frequency(const struct rope_plan *plan, float frequency)
{
    double low = plan->low_frequency_factor, high = plan->high_frequency_factor;
    double fits = plan->context_original / (2.0 * M_PI / (double)frequency), share;

    if (fits > high)
        return frequency;
    if (fits < low)
        return (float)((double)frequency / plan->factor);
    share = (fits - low) / (high - low);
    return (float)((1.0 - share) * (double)frequency / plan->factor + share * (double)frequency);
}

/* The dimension whose wave turns so often within the original context. */
static double yarn_dimension(const struct rope_plan *plan, uint32_t size, double turns)
{
    return size * log(plan->context_original / (turns * 2.0 * M_PI)) / (2.0 * log(plan->base));
}

/* How much of the pair's frequency is stretched, from 0 to 1. */
static double yarn_ramp(const struct rope_plan *plan, uint32_t size, uint32_t pair)
{
    double low = yarn_dimension(plan, size, plan->beta_fast);
    double high = yarn_dimension(plan, size, plan->beta_slow);
    double ramp;

    if (plan->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0.0);
    high = fmin(high, size - 1.0);
    if (low == high)
        high += 0.001;
    ramp = (pair - low) / (high - low);
    return fmin(fmax(ramp, 0.0), 1.0);
}

static float frequency_of(const struct rope_plan *plan, uint32_t size, uint32_t pair)
{
    float turns = turns_of(plan, size, pair), frequency = 1.0f / turns;

    switch (plan->scaling) {
    case ROPE_SCALING_LINEAR:
        return (float)((double)frequency / plan->factor);
    case ROPE_SCALING_LLAMA3:
        return llama3_frequency(plan, frequency);
    case ROPE_SCALING_YARN: {
        double ramp = yarn_ramp(plan, size, pair);

        return (float)(ramp / (plan->factor * (double)turns) + (1.0 - ramp) / (double)turns);
    }
    default:
        return frequency;
    }
}

static double yarn_growth(double factor, double share)
{
    return factor <= 1.0 ? 1.0 : 0.1 * share * log(factor) + 1.0;
}

static double scale_of(const struct rope_plan *plan)
{
    if (plan->attention_factor > 0)
        return plan->attention_factor;
    if (plan->scaling == ROPE_SCALING_YARN && plan->mscale > 0 && plan->mscale_all_dim > 0)
        return yarn_growth(plan->factor, plan->mscale) /
               yarn_growth(plan->factor, plan->mscale_all_dim);
    if (plan->scaling == ROPE_SCALING_YARN)
        return yarn_growth(plan->factor, 1.0);
    if (plan->scaling == ROPE_SCALING_LONGROPE && plan->factor > 1.0)
        return sqrt(1.0 + log(plan->factor) / log(plan->context_original));
    return 1.0;
}

static int fill(const struct rope_plan *plan, uint32_t size, const float *factors, uint32_t count,
                float *frequencies, struct fault *fault)
{
    uint32_t pairs = size / 2;

    if (count != 0 && count != pairs)
        return fault_set(fault, E_INVALID, "there are %u rotary factors for %u pairs", count,
                         pairs);
    for (uint32_t i = 0; i < pairs; i++) {
        float factor = count ? factors[i] : 1.0f;

        if (!(factor > 0.0f && factor < 1e30f))
            return fault_set(fault, E_INVALID, "a rotary factor is not a positive number");
        if (plan->scaling == ROPE_SCALING_LONGROPE)
            frequencies[i] = 1.0f / (factor * turns_of(plan, size, i));
        else
            frequencies[i] = frequency_of(plan, size, i) / factor;
    }
    return 0;
}

int rope_open(const struct rope_plan *plan, uint32_t size, struct rope *ret_rope,
              struct fault *fault)
{
    struct rope rope = {.size = size, .scale = (float)scale_of(plan)};
    int r;

    must(size % 2 == 0 && size <= MODEL_HEAD_SIZE_MAX);
    rope.frequencies = calloc(size / 2 + 1, sizeof *rope.frequencies);
    if (plan->long_count > 0) {
        rope.long_frequencies = calloc(size / 2 + 1, sizeof *rope.long_frequencies);
        rope.long_from = plan->context_original;
    }
    if (!rope.frequencies || (plan->long_count > 0 && !rope.long_frequencies)) {
        r = fault_set(fault, E_MEMORY, "out of memory for the rotary frequencies");
        goto out;
    }
    r = fill(plan, size, plan->short_factors, plan->short_count, rope.frequencies, fault);
    if (r == 0 && plan->long_count > 0)
        r = fill(plan, size, plan->long_factors, plan->long_count, rope.long_frequencies, fault);
    if (r == 0) {
        *ret_rope = rope;
        rope = (struct rope){0};
    }
out:
    rope_close(&rope);
    return r;
}

void rope_close(struct rope *rope)
{
    free(rope->frequencies);
    free(rope->long_frequencies);
    *rope = (struct rope){0};
}
