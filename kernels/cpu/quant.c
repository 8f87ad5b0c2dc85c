/* quant.c -- see quant.h; layouts are those of dequant_ref.c.
 *
 * Two problems occur, each for 16 or 32 numbers x and small integers q:
 *
 *     symmetric   x = a q         Q4_0, Q5_0, and the 16 parts of Q6_K
 *     affine      x = a q + b     Q4_1, and the 8 parts of Q4_K (there b is never positive)
 *
 * For given q the best a and b are a least squares fit; for given a and b the best q is rounding.
 * Both are alternated, from scales a little above and below the one that reaches the extremes.
 * Then a and b are rounded as the format stores them. In the K formats they are small integers
 * times the block's d: the neighbours of each integer are tried too, and d is fitted to all. */
#include "kernels/cpu/quant.h"

#include <math.h>
#include <string.h>

#include "config/base/fault.h"
#include "kernels/cpu/half.h"

enum {
    PART_MAX = 32,
    LANES = 4,
    STEPS = 6,  /* scales tried on each side of the plain one, a sixth of a quant apart */
    ROUNDS = 3, /* of fitting and rounding after that */
    K_STEPS =
        6, /* values of a K block's d, which is often so small an f16 that few digits are left */
    K_PARTS = 16,
    K_BLOCK = 256,
};

/* Every processor has vectors of this size; the compilers write them as arithmetic. */
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t lane_bits __attribute__((vector_size(4 * LANES)));

static inline lanes lanes_load(const float *from)
{
    lanes value;

    memcpy(&value, from, sizeof value);
    return value;
}

static inline lanes lanes_choose(lane_bits mask, lanes yes, lanes no)
{
    return (lanes)((mask & (lane_bits)yes) | (~mask & (lane_bits)no));
}

/* To the nearest of the whole numbers from low to high (below 2^22), ties to even. */
static inline lanes lanes_round(lanes value, float low, float high)
{
    lanes lowest = (lanes){0} + low, highest = (lanes){0} + high;

    value = lanes_choose(value < lowest, lowest, value);
    value = lanes_choose(value > highest, highest, value);
    return (value + 0x1.8p23f) - 0x1.8p23f;
}

static inline float lanes_sum(lanes value)
{
    return (value[0] + value[2]) + (value[1] + value[3]);
}

static inline float between(float value, float low, float high)
{
    value = value < low ? low : value;
    return value > high ? high : value;
}

static inline float nearest(float value)
{
    return (value + 0x1.8p23f) - 0x1.8p23f;
}

static float round_f16(float value)
{
    return float_from_f16(f16_from_float(value));
}

static void put_f16(uint8_t *to, float value)
{
    uint16_t half = f16_from_float(value);

    memcpy(to, &half, sizeof half);
}

static bool all_finite(const float *x, uint32_t count)
{
    float sum = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += x[i] * 0;
    return sum == 0;
}

/* The number of the largest magnitude, with its sign. */
static float largest(const float *x, int count)
{
    float found = 0;

    for (int i = 0; i < count; i++)
        found = fabsf(x[i]) > fabsf(found) ? x[i] : found;
    return found;
}

/* --- symmetric ------------------------------------------------------------------------------- */

/* The quants for a scale, and the squared error that they leave. */
static float round_symmetric(const float *x, int count, float low, float high, float scale,
                             float *q)
{
    float inverse = scale != 0 ? 1 / scale : 0;
    lanes error = {0};

    if (!isfinite(inverse))
        inverse = scale = 0;
    for (int i = 0; i < count; i += LANES) {
        lanes value = lanes_load(x + i), quant = lanes_round(value * inverse, low, high);
        lanes rest = value - scale * quant;

        memcpy(q + i, &quant, sizeof quant);
        error += rest * rest;
    }
    return lanes_sum(error);
}

/* Of the quants that a scale gives, the scale that fits best. */
static float refit_symmetric(const float *x, int count, float low, float high, float scale)
{
    float inverse = scale != 0 ? 1 / scale : 0, squares;
    lanes products = {0}, sum_qq = {0};

    if (!isfinite(inverse))
        return scale;
    for (int i = 0; i < count; i += LANES) {
        lanes value = lanes_load(x + i), quant = lanes_round(value * inverse, low, high);

        products += quant * value;
        sum_qq += quant * quant;
    }
    squares = lanes_sum(sum_qq);
    return squares > 0 ? lanes_sum(products) / squares : scale;
}

static void keep_symmetric(const float *x, int count, float low, float high, float scale,
                           float *best, float *least)
{
    float q[PART_MAX], error = round_symmetric(x, count, low, high, scale, q);

    if (error < *least) {
        *least = error;
        *best = scale;
    }
}

/* low = -(high + 1): the largest number may be the lowest quant, with a negative scale. `rounded`:
 * as an f16. */
static float fit_symmetric(const float *x, int count, float low, float high, bool rounded)
{
    float most = largest(x, count), best = most / low, least = INFINITY;

    if (rounded)
        best = round_f16(best);
    keep_symmetric(x, count, low, high, best, &best, &least);
    for (int step = -STEPS; step <= STEPS && most != 0; step++) {
        float scale = most / (low + (float)step / STEPS);

        scale = refit_symmetric(x, count, low, high, scale);
        keep_symmetric(x, count, low, high, rounded ? round_f16(scale) : scale, &best, &least);
    }
    for (int i = 0; i < ROUNDS && most != 0; i++) {
        float scale = refit_symmetric(x, count, low, high, best);

        keep_symmetric(x, count, low, high, rounded ? round_f16(scale) : scale, &best, &least);
    }
    return best;
}

/* --- affine ---------------------------------------------------------------------------------- */

struct affine {
    float scale;
    float minimum;
};

static float round_affine(const float *x, int count, float most, struct affine fit, float *q)
{
    float inverse = fit.scale != 0 ? 1 / fit.scale : 0;
    lanes error = {0};

    if (!isfinite(inverse))
        inverse = fit.scale = 0;
    for (int i = 0; i < count; i += LANES) {
        lanes value = lanes_load(x + i);
        lanes quant = lanes_round((value - fit.minimum) * inverse, 0, most);
        lanes rest = value - (fit.scale * quant + fit.minimum);

        memcpy(q + i, &quant, sizeof quant);
        error += rest * rest;
    }
    return lanes_sum(error);
}

static struct affine refit_affine(const float *x, int count, float most, bool negative,
                                  struct affine fit)
{
    float inverse = fit.scale != 0 ? 1 / fit.scale : 0, n = (float)count;
    lanes all_q = {0}, all_qq = {0}, all_x = {0}, all_qx = {0};
    float sum_q, sum_qq, sum_x, sum_qx, determinant;

    if (!isfinite(inverse))
        return fit;
    for (int i = 0; i < count; i += LANES) {
        lanes value = lanes_load(x + i);
        lanes quant = lanes_round((value - fit.minimum) * inverse, 0, most);

        all_q += quant;
        all_qq += quant * quant;
        all_x += value;
        all_qx += quant * value;
    }
    sum_q = lanes_sum(all_q);
    sum_qq = lanes_sum(all_qq);
    sum_x = lanes_sum(all_x);
    sum_qx = lanes_sum(all_qx);
    determinant = n * sum_qq - sum_q * sum_q;
    if (determinant <= 0)
        return fit;
    fit.scale = (n * sum_qx - sum_q * sum_x) / determinant;
    fit.minimum = (sum_qq * sum_x - sum_q * sum_qx) / determinant;
    if (negative && fit.minimum > 0)
        fit = (struct affine){sum_qx / sum_qq, 0};
    return fit;
}

static void keep_affine(const float *x, int count, float most, struct affine fit, bool rounded,
                        struct affine *best, float *least)
{
    float q[PART_MAX], error;

    if (rounded)
        fit = (struct affine){round_f16(fit.scale), round_f16(fit.minimum)};
    error = round_affine(x, count, most, fit, q);
    if (error < *least) {
        *least = error;
        *best = fit;
    }
}

/* negative: the minimum is not above zero. */
static struct affine fit_affine(const float *x, int count, float most, bool negative, bool rounded)
{
    float low = negative ? 0 : x[0], high = x[0], least = INFINITY;
    struct affine best, fit;

    for (int i = 0; i < count; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    best = (struct affine){(high - low) / most, low};
    if (rounded)
        best = (struct affine){round_f16(best.scale), round_f16(best.minimum)};
    keep_affine(x, count, most, best, rounded, &best, &least);
    for (int step = -STEPS; step <= STEPS && high > low; step++) {
        fit = (struct affine){(high - low) / (most + (float)step / STEPS), low};
        fit = refit_affine(x, count, most, negative, fit);
        keep_affine(x, count, most, fit, rounded, &best, &least);
    }
    for (int i = 0; i < ROUNDS && high > low; i++) {
        fit = refit_affine(x, count, most, negative, best);
        keep_affine(x, count, most, fit, rounded, &best, &least);
    }
    return best;
}

/* --- blocks of 32 ---------------------------------------------------------------------------- */

static bool f32_block(const float *x, uint8_t *to)
{
    memcpy(to, x, sizeof *x);
    return true;
}

static bool f16_block(const float *x, uint8_t *to)
{
    put_f16(to, *x);
    return (to[1] & 0x7c) != 0x7c;
}

static bool bf16_block(const float *x, uint8_t *to)
{
    uint16_t half = bf16_from_float(*x);

    memcpy(to, &half, sizeof half);
    return (half & 0x7f80) != 0x7f80;
}

static bool q4_0_block(const float *x, uint8_t *to)
{
    float d = fit_symmetric(x, 32, -8, 7, true), q[32];

    if (!isfinite(d))
        return false;
    round_symmetric(x, 32, -8, 7, d, q);
    put_f16(to, d);
    for (int i = 0; i < 16; i++)
        to[2 + i] = (uint8_t)((int)q[i] + 8 + (((int)q[i + 16] + 8) << 4));
    return true;
}

static bool q5_0_block(const float *x, uint8_t *to)
{
    float d = fit_symmetric(x, 32, -16, 15, true), q[32];
    uint32_t high = 0;

    if (!isfinite(d))
        return false;
    round_symmetric(x, 32, -16, 15, d, q);
    put_f16(to, d);
    for (int i = 0; i < 32; i++)
        high |= (uint32_t)((int)q[i] + 16) >> 4 << i;
    memcpy(to + 2, &high, sizeof high);
    for (int i = 0; i < 16; i++)
        to[6 + i] = (uint8_t)((((int)q[i] + 16) & 15) | (((int)q[i + 16] + 16) & 15) << 4);
    return true;
}

static bool q4_1_block(const float *x, uint8_t *to)
{
    struct affine fit = fit_affine(x, 32, 15, false, true);
    float q[32];

    if (!isfinite(fit.scale) || !isfinite(fit.minimum))
        return false;
    round_affine(x, 32, 15, fit, q);
    put_f16(to, fit.scale);
    put_f16(to + 2, fit.minimum);
    for (int i = 0; i < 16; i++)
        to[4 + i] = (uint8_t)((int)q[i] | (int)q[i + 16] << 4);
    return true;
}

static bool q8_0_block(const float *x, uint8_t *to)
{
    float d = fabsf(largest(x, 32)) / 127, inverse = d != 0 ? 1 / d : 0;

    if (!isfinite(inverse))
        inverse = 0;
    put_f16(to, d);
    for (int i = 0; i < 32; i++)
        to[2 + i] = (uint8_t)(int8_t)between(roundf(x[i] * inverse), -128, 127);
    return isfinite(round_f16(d));
}

/* --- Q4_K ------------------------------------------------------------------------------------ */

/* A block's 8 parts: x = d s q - dmin m, with integers s and m of six bits. */
struct q4_k {
    float d;
    float dmin;
    float s[8];
    float m[8];
};

static struct affine part_of_q4_k(const struct q4_k *block, int part)
{
    return (struct affine){block->d * block->s[part], -(block->dmin * block->m[part])};
}

/* The best integers next to the ones that a part has. */
static void settle_q4_k(const float *x, struct q4_k *block, int part)
{
    float s = block->s[part], m = block->m[part], least = INFINITY;

    for (int i = 0; i < 9; i++) {
        struct q4_k trial = *block;
        float q[32], error;

        trial.s[part] = between(s + (float)(i % 3 - 1), 0, 63);
        trial.m[part] = between(m + (float)(i / 3 - 1), 0, 63);
        error = round_affine(x, 32, 15, part_of_q4_k(&trial, part), q);
        if (error < least) {
            least = error;
            block->s[part] = trial.s[part];
            block->m[part] = trial.m[part];
        }
    }
}

static float error_of_q4_k(const float *x, const struct q4_k *block)
{
    float q[32], error = 0;

    for (int p = 0; p < 8; p++)
        error += round_affine(x + 32 * p, 32, 15, part_of_q4_k(block, p), q);
    return error;
}

/* d and dmin by least squares, where that is better: x = d (s q) + dmin (-m). */
static void refit_q4_k(const float *x, struct q4_k *block)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0, determinant;
    struct q4_k trial = *block;
    float q[32];

    for (int p = 0; p < 8; p++) {
        round_affine(x + 32 * p, 32, 15, part_of_q4_k(block, p), q);
        for (int i = 0; i < 32; i++) {
            double a = (double)(block->s[p] * q[i]), b = -(double)block->m[p];
            double value = (double)x[32 * p + i];

            aa += a * a;
            ab += a * b;
            bb += b * b;
            ax += a * value;
            bx += b * value;
        }
    }
    determinant = aa * bb - ab * ab;
    if (determinant > 1e-9 * aa * bb) {
        trial.d = round_f16((float)((ax * bb - bx * ab) / determinant));
        trial.dmin = round_f16((float)((bx * aa - ax * ab) / determinant));
    } else if (aa > 0) {
        trial.d = round_f16((float)(ax / aa));
    }
    if (trial.dmin >= 0 && error_of_q4_k(x, &trial) < error_of_q4_k(x, block))
        *block = trial;
}

static void put_q4_k(const float *x, const struct q4_k *block, uint8_t *to)
{
    float q[K_BLOCK];

    for (int p = 0; p < 8; p++)
        round_affine(x + 32 * p, 32, 15, part_of_q4_k(block, p), q + 32 * p);
    memset(to, 0, 16);
    put_f16(to, block->d);
    put_f16(to + 2, block->dmin);
    for (int p = 0; p < 4; p++) {
        int s = (int)block->s[p], m = (int)block->m[p];
        int s_later = (int)block->s[p + 4], m_later = (int)block->m[p + 4];

        to[4 + p] = (uint8_t)(s | s_later >> 4 << 6);
        to[8 + p] = (uint8_t)(m | m_later >> 4 << 6);
        to[12 + p] = (uint8_t)((s_later & 15) | (m_later & 15) << 4);
    }
    for (int i = 0; i < 128; i++) {
        int at = i / 32 * 64 + i % 32;

        to[16 + i] = (uint8_t)((int)q[at] | (int)q[at + 32] << 4);
    }
}

static bool q4_k_block(const float *x, uint8_t *to)
{
    float scale = 0, minimum = 0, error, least = INFINITY;
    struct q4_k best = {0};
    struct affine fits[8];

    for (int p = 0; p < 8; p++) {
        fits[p] = fit_affine(x + 32 * p, 32, 15, true, false);
        scale = fits[p].scale > scale ? fits[p].scale : scale;
        minimum = -fits[p].minimum > minimum ? -fits[p].minimum : minimum;
    }
    for (int step = 0; step < K_STEPS; step++) {
        float top = 63 - 4 * (float)step; /* what the largest scale and minimum become */
        struct q4_k block = {.d = round_f16(scale / top), .dmin = round_f16(minimum / top)};

        for (int p = 0; p < 8; p++) {
            if (block.d > 0)
                block.s[p] = between(nearest(fits[p].scale / block.d), 0, 63);
            if (block.dmin > 0)
                block.m[p] = between(nearest(-fits[p].minimum / block.dmin), 0, 63);
            settle_q4_k(x + 32 * p, &block, p);
        }
        refit_q4_k(x, &block);
        error = error_of_q4_k(x, &block);
        if (step == 0 || error < least) {
            least = error;
            best = block;
        }
    }
    if (!isfinite(best.d) || !isfinite(best.dmin))
        return false;
    put_q4_k(x, &best, to);
    return true;
}

/* --- Q6_K ------------------------------------------------------------------------------------ */

/* A block's 16 parts: x = d s q, with q from -32 to 31. */
struct q6_k {
    float d;
    float s[K_PARTS];
};

static float error_of_q6_k(const float *x, const struct q6_k *block)
{
    float q[16], error = 0;

    for (int p = 0; p < K_PARTS; p++)
        error += round_symmetric(x + 16 * p, 16, -32, 31, block->d * block->s[p], q);
    return error;
}

static void refit_q6_k(const float *x, struct q6_k *block)
{
    double aa = 0, ax = 0;
    struct q6_k trial = *block;
    float q[16];

    for (int p = 0; p < K_PARTS; p++) {
        round_symmetric(x + 16 * p, 16, -32, 31, block->d * block->s[p], q);
        for (int i = 0; i < 16; i++) {
            aa += (double)(block->s[p] * q[i]) * (double)(block->s[p] * q[i]);
            ax += (double)(block->s[p] * q[i]) * (double)x[16 * p + i];
        }
    }
    if (aa > 0)
        trial.d = round_f16((float)(ax / aa));
    if (error_of_q6_k(x, &trial) < error_of_q6_k(x, block))
        *block = trial;
}

static void settle_q6_k(const float *x, struct q6_k *block, int part)
{
    float s = block->s[part], least = INFINITY;

    for (int i = -1; i <= 1; i++) {
        float trial = between(s + (float)i, -128, 127), q[16];
        float error = round_symmetric(x, 16, -32, 31, block->d * trial, q);

        if (error < least) {
            least = error;
            block->s[part] = trial;
        }
    }
}

static void put_q6_k(const float *x, const struct q6_k *block, uint8_t *to)
{
    float q[K_BLOCK];

    for (int p = 0; p < K_PARTS; p++) {
        round_symmetric(x + 16 * p, 16, -32, 31, block->d * block->s[p], q + 16 * p);
        to[192 + p] = (uint8_t)(int8_t)block->s[p];
    }
    put_f16(to + 208, block->d);
    memset(to, 0, 192);
    for (int i = 0; i < K_BLOCK; i++) {
        int half = i / 128, quarter = i % 128 / 32, value = (int)q[i] + 32;

        to[64 * half + 32 * (quarter % 2) + i % 32] |= (uint8_t)((value & 15) << 4 * (quarter / 2));
        to[128 + 32 * half + i % 32] |= (uint8_t)(value >> 4 << 2 * quarter);
    }
}

static bool q6_k_block(const float *x, uint8_t *to)
{
    float fits[K_PARTS], error, least = INFINITY;
    struct q6_k best = {0};

    for (int p = 0; p < K_PARTS; p++)
        fits[p] = fit_symmetric(x + 16 * p, 16, -32, 31, false);
    for (int step = 0; step < K_STEPS; step++) {
        float top = -128 + 8 * (float)step; /* what the largest scale becomes */
        struct q6_k block = {.d = round_f16(largest(fits, K_PARTS) / top)};

        for (int p = 0; p < K_PARTS; p++) {
            if (block.d != 0)
                block.s[p] = between(nearest(fits[p] / block.d), -128, 127);
            settle_q6_k(x + 16 * p, &block, p);
        }
        refit_q6_k(x, &block);
        error = error_of_q6_k(x, &block);
        if (step == 0 || error < least) {
            least = error;
            best = block;
        }
    }
    if (!isfinite(best.d))
        return false;
    put_q6_k(x, &best, to);
    return true;
}

/* --- rows ------------------------------------------------------------------------------------ */

static bool (*const blocks[DTYPE_COUNT])(const float *x, uint8_t *to) = {
    [DT_F32] = f32_block,   [DT_F16] = f16_block,   [DT_BF16] = bf16_block,
    [DT_Q4_0] = q4_0_block, [DT_Q4_1] = q4_1_block, [DT_Q5_0] = q5_0_block,
    [DT_Q8_0] = q8_0_block, [DT_Q4_K] = q4_k_block, [DT_Q6_K] = q6_k_block,
};

bool quant_supported(enum dtype type)
{
    return blocks[type] != NULL;
}

bool quant_row(enum dtype type, const float *from, uint64_t elements, void *to)
{
    const struct dtype_info *info = dtype_get(type);
    uint8_t *block = to;
    bool fits = true;

    must(blocks[type] && elements % info->block == 0);
    for (uint64_t i = 0; i < elements; i += info->block, block += info->bytes)
        fits = fits && all_finite(from + i, info->block) && blocks[type](from + i, block);
    return fits;
}
