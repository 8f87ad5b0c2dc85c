/* dequant_ref.c -- the layouts of ggml's formats, one function a block.
 *
 * Blocks of 32:  d = scale, m = minimum (both f16), q = quants
 *     Q4_0   | d | q 16 bytes |   low nibbles: elements 0..15, high: 16..31; d (q - 8)
 *     Q4_1   | d | m | q 16 bytes |          d q + m
 *     Q5_0   | d | h 4 bytes | q 16 bytes |  bit i of h is the fifth bit of element i; d (q - 16)
 *     Q5_1   | d | m | h 4 bytes | q 16 |    d q + m
 *     Q8_0   | d | q 32 signed bytes |       d q
 *     IQ4_NL | d | q 16 bytes |              d table[q]
 *
 * Blocks of 256 ("K"): small integer scales for parts of 16 or 32, times the block's d (and dmin)
 *     Q2_K   | s 16 | q 64 | d | dmin |                   16 parts: d (s & 15) q - dmin (s >> 4)
 *     Q3_K   | h 32 | q 64 | s 12 | d |                   16 parts: d (s - 32) (q - (h ? 0 : 4))
 *     Q4_K   | d | dmin | s 12 | q 128 |                  8 parts: d s q - dmin m
 *     Q5_K   | d | dmin | s 12 | h 32 | q 128 |           8 parts, the same with a fifth bit
 *     Q6_K   | ql 128 | qh 64 | s 16 signed | d |         16 parts: d s (q - 32)
 *
 * Formats with tables are in dequant_codebook.c. */
#include "kernels/cpu/dequant.h"

#include <stddef.h>

#include "config/base/fault.h"
#include "kernels/cpu/dequant_codebook.h"
#include "kernels/cpu/half.h"

const int8_t dequant_iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

static void f32_block(const uint8_t *from, float *to)
{
    memcpy(to, from, sizeof *to);
}

static void f16_block(const uint8_t *from, float *to)
{
    *to = load_f16(from);
}

static void bf16_block(const uint8_t *from, float *to)
{
    *to = float_from_bf16(load_u16(from));
}

static void i8_block(const uint8_t *from, float *to)
{
    *to = (float)(int8_t)*from;
}

/* Sign, 4 bits of exponent, 3 of fraction; no infinity (OCP's 8-bit floats). */
static void f8_e4m3_block(const uint8_t *from, float *to)
{
    uint32_t sign = (uint32_t)(*from & 0x80) << 24, exponent = *from >> 3 & 15,
             fraction = *from & 7;

    if (exponent == 15 && fraction == 7)
        *to = float_from_bits(sign | 0x7fc00000);
    else if (exponent == 0)
        *to = float_from_bits(sign | float_bits((float)fraction * 0x1p-9f));
    else
        *to = float_from_bits(sign | (exponent + 120) << 23 | fraction << 20);
}

/* A power of two: 2^(x - 127). */
static void f8_e8m0_block(const uint8_t *from, float *to)
{
    if (*from == 0xff)
        *to = float_from_bits(0x7fc00000);
    else
        *to = float_from_bits(*from == 0 ? 0x00400000 : (uint32_t)*from << 23);
}

static void q4_0_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)((from[2 + i] & 15) - 8);
        to[i + 16] = d * (float)((from[2 + i] >> 4) - 8);
    }
}

static void q4_1_block(const uint8_t *from, float *to)
{
    float d = load_f16(from), m = load_f16(from + 2);

    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)(from[4 + i] & 15) + m;
        to[i + 16] = d * (float)(from[4 + i] >> 4) + m;
    }
}

/* The 32 quants of Q5_0 and Q5_1: four bits at `low`, the fifth at `high`. */
static void five_bits(const uint8_t *high, const uint8_t *low, int *to)
{
    for (int i = 0; i < 16; i++) {
        to[i] = (low[i] & 15) | (high[i / 8] >> i % 8 & 1) << 4;
        to[i + 16] = low[i] >> 4 | (high[2 + i / 8] >> i % 8 & 1) << 4;
    }
}

static void q5_0_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);
    int q[32];

    five_bits(from + 2, from + 6, q);
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)(q[i] - 16);
}

static void q5_1_block(const uint8_t *from, float *to)
{
    float d = load_f16(from), m = load_f16(from + 2);
    int q[32];

    five_bits(from + 4, from + 8, q);
    for (int i = 0; i < 32; i++)
        to[i] = d * (float)q[i] + m;
}

static void q8_0_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int i = 0; i < 32; i++)
        to[i] = d * (float)(int8_t)from[2 + i];
}

static void iq4_nl_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)dequant_iq4_nl_values[from[2 + i] & 15];
        to[i + 16] = d * (float)dequant_iq4_nl_values[from[2 + i] >> 4];
    }
}

/* --- K blocks as integers: sixteen parts of 16, see dequant_parts() ------------------------- */

struct parts {
    int8_t *q;
    float *scales;
    float *minimums;
};

static void q2_k_parts(const uint8_t *from, const struct parts *to)
{
    const uint8_t *scales = from, *q = from + 16;
    float d = load_f16(from + 80), dmin = load_f16(from + 82);

    /* Part p of 16: half h = p / 8 of the quants, bits 2 ((p % 8) / 2), sixteen bytes p % 2. */
    for (int p = 0; p < 16; p++) {
        const uint8_t *part = q + 32 * (p / 8) + 16 * (p % 2);

        to->scales[p] = d * (float)(scales[p] & 15);
        to->minimums[p] = dmin * (float)(scales[p] >> 4);
        for (int i = 0; i < 16; i++)
            to->q[16 * p + i] = (int8_t)(part[i] >> 2 * (p % 8 / 2) & 3);
    }
}

static void q3_k_parts(const uint8_t *from, const struct parts *to)
{
    const uint8_t *high = from, *q = from + 32, *scales = from + 96;
    float d = load_f16(from + 108);

    for (int p = 0; p < 16; p++) {
        int low_bits = p < 8 ? scales[p] & 15 : scales[p - 8] >> 4;
        int scale = (low_bits | (scales[8 + p % 4] >> 2 * (p / 4) & 3) << 4) - 32;
        const uint8_t *part = q + 32 * (p / 8) + 16 * (p % 2);
        const uint8_t *mask = high + 16 * (p % 2);

        to->scales[p] = d * (float)scale;
        to->minimums[p] = 0;
        for (int i = 0; i < 16; i++)
            to->q[16 * p + i] =
                (int8_t)((part[i] >> 2 * (p % 8 / 2) & 3) - (mask[i] >> p / 2 & 1 ? 0 : 4));
    }
}

/* Scale and minimum of part p of 8, six bits each, packed into 12 bytes (Q4_K, Q5_K). */
static void scale_and_minimum(const uint8_t *scales, int p, int *ret_scale, int *ret_minimum)
{
    if (p < 4) {
        *ret_scale = scales[p] & 63;
        *ret_minimum = scales[p + 4] & 63;
    } else {
        *ret_scale = (scales[p + 4] & 15) | scales[p - 4] >> 6 << 4;
        *ret_minimum = scales[p + 4] >> 4 | scales[p] >> 6 << 4;
    }
}

/* `high` is NULL for Q4_K. */
static void k45_parts(const uint8_t *from, const uint8_t *high, const uint8_t *q,
                      const struct parts *to)
{
    float d = load_f16(from), dmin = load_f16(from + 2);

    for (int p = 0; p < 8; p++) {
        const uint8_t *part = q + 32 * (p / 2);
        int scale, minimum;

        scale_and_minimum(from + 4, p, &scale, &minimum);
        to->scales[2 * p] = to->scales[2 * p + 1] = d * (float)scale;
        to->minimums[2 * p] = to->minimums[2 * p + 1] = dmin * (float)minimum;
        for (int i = 0; i < 32; i++) {
            int value = p % 2 ? part[i] >> 4 : part[i] & 15;

            if (high)
                value |= (high[i] >> p & 1) << 4;
            to->q[32 * p + i] = (int8_t)value;
        }
    }
}

static void q4_k_parts(const uint8_t *from, const struct parts *to)
{
    k45_parts(from, NULL, from + 16, to);
}

static void q5_k_parts(const uint8_t *from, const struct parts *to)
{
    k45_parts(from, from + 16, from + 48, to);
}

static void q6_k_parts(const uint8_t *from, const struct parts *to)
{
    float d = load_f16(from + 208);

    for (int p = 0; p < 16; p++) {
        const uint8_t *low = from + 64 * (p / 8) + 16 * (p % 4);
        const uint8_t *high = from + 128 + 32 * (p / 8) + 16 * (p % 2);
        int quarter = p % 8 / 2;

        to->scales[p] = d * (float)(int8_t)from[192 + p];
        to->minimums[p] = 0;
        for (int i = 0; i < 16; i++) {
            int value = quarter < 2 ? low[i] & 15 : low[i] >> 4;

            value |= (high[i] >> 2 * quarter & 3) << 4;
            to->q[16 * p + i] = (int8_t)(value - 32);
        }
    }
}

static void (*const k_parts[DTYPE_COUNT])(const uint8_t *from, const struct parts *to) = {
    [DT_Q2_K] = q2_k_parts, [DT_Q3_K] = q3_k_parts, [DT_Q4_K] = q4_k_parts,
    [DT_Q5_K] = q5_k_parts, [DT_Q6_K] = q6_k_parts,
};

void dequant_parts(enum dtype type, const void *from, int8_t *q, float *scales, float *minimums)
{
    must(k_parts[type]);
    k_parts[type](from, &(struct parts){q, scales, minimums});
}

static void k_block(enum dtype type, const uint8_t *from, float *to)
{
    float scales[16], minimums[16];
    int8_t q[256];

    dequant_parts(type, from, q, scales, minimums);
    for (int i = 0; i < 256; i++)
        to[i] = scales[i / 16] * (float)q[i] - minimums[i / 16];
}

static void q2_k_block(const uint8_t *from, float *to)
{
    k_block(DT_Q2_K, from, to);
}

static void q3_k_block(const uint8_t *from, float *to)
{
    k_block(DT_Q3_K, from, to);
}

static void q4_k_block(const uint8_t *from, float *to)
{
    k_block(DT_Q4_K, from, to);
}

static void q5_k_block(const uint8_t *from, float *to)
{
    k_block(DT_Q5_K, from, to);
}

static void q6_k_block(const uint8_t *from, float *to)
{
    k_block(DT_Q6_K, from, to);
}

/* --- all formats ------------------------------------------------------------------------ */

static void (*const blocks[DTYPE_COUNT])(const uint8_t *from, float *to) = {
    [DT_F32] = f32_block,         [DT_F16] = f16_block,       [DT_BF16] = bf16_block,
    [DT_Q4_0] = q4_0_block,       [DT_Q4_1] = q4_1_block,     [DT_Q5_0] = q5_0_block,
    [DT_Q5_1] = q5_1_block,       [DT_Q8_0] = q8_0_block,     [DT_Q2_K] = q2_k_block,
    [DT_Q3_K] = q3_k_block,       [DT_Q4_K] = q4_k_block,     [DT_Q5_K] = q5_k_block,
    [DT_Q6_K] = q6_k_block,       [DT_IQ4_NL] = iq4_nl_block, [DT_IQ4_XS] = iq4_xs_block,
    [DT_IQ3_XXS] = iq3_xxs_block, [DT_IQ3_S] = iq3_s_block,   [DT_IQ2_XXS] = iq2_xxs_block,
    [DT_IQ2_XS] = iq2_xs_block,   [DT_IQ2_S] = iq2_s_block,   [DT_IQ1_S] = iq1_s_block,
    [DT_IQ1_M] = iq1_m_block,     [DT_TQ1_0] = tq1_0_block,   [DT_TQ2_0] = tq2_0_block,
    [DT_MXFP4] = mxfp4_block,     [DT_NVFP4] = nvfp4_block,   [DT_F8_E4M3] = f8_e4m3_block,
    [DT_F8_E8M0] = f8_e8m0_block, [DT_I8] = i8_block,
};

bool dequant_supported(enum dtype type)
{
    return blocks[type] != NULL;
}

void dequant_row(enum dtype type, const void *from, uint64_t elements, float *to)
{
    const struct dtype_info *info = dtype_get(type);
    const uint8_t *block = from;

    must(blocks[type] && elements % info->block == 0);
    for (uint64_t i = 0; i < elements; i += info->block, block += info->bytes)
        blocks[type](block, to + i);
}
