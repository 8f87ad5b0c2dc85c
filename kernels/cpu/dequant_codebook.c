/* dequant_codebook.c -- ggml's formats whose quants are positions in a table.
 *
 * Blocks of 256: d is an f16, s are small integer scales of parts, `signs` one bit a number. IQ1,
 * IQ2 and IQ3 store whole vectors of 8 (IQ3: 4) numbers as positions in codebooks.h.
 *     IQ4_XS  | d | s high 2 | s low 4 | q 128 |      8 parts: d (s - 32) table[q], as IQ4_NL
 *     IQ3_XXS | d | q 64 | 8 words |                  word: 4 x 7 bits of signs, s; d (s + 1/2) / 2
 *     IQ3_S   | d | q 64 | h 8 | signs 32 | s 4 |     8 parts: d (2 s + 1); h is q's ninth bit
 *     IQ2_XXS | d | 8 x (q 4, word) |                 as in IQ3_XXS, d (s + 1/2) / 4
 *     IQ2_XS  | d | 32 x (q 9 bits, signs 7) | s 8 |  16 parts: d (s + 1/2) / 4
 *     IQ2_S   | d | q 32 | signs 32 | h 8 | s 8 |     the same; h are q's bits 8 and 9
 *     IQ1_S   | d | q 32 | h 8 x 16 bits |            8 parts; h: 4 x 3 bits of q, s 3, shift 1
 *     IQ1_M   | q 32 | h 16 | s 8 |                   16 parts; h: 3 bits of q, shift 1; s: 3 bits
 *                                                     and, in the top 4 of each 16, d
 *                                                     d (2 s + 1) (q +- 1/8)
 *     TQ1_0   | q 48 + 4 | d |                        5 (4) digits of base 3 a byte; d (q - 1)
 *     TQ2_0   | q 64 | d |                            d (q - 1)
 * Floats of 4 bits (E2M1), here as twice their value:
 *     MXFP4   | e | q 16 |         32: 2^(e - 128) table[q]
 *     NVFP4   | e 4 | q 32 |       4 parts of 16: e as an unsigned E4M3 / 2, table[q] */
#include "kernels/cpu/dequant_codebook.h"

#include "kernels/cpu/codebooks.h"
#include "kernels/cpu/dequant.h"
#include "kernels/cpu/half.h"

const int8_t dequant_e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static const uint8_t iq2_values[4] = {8, 25, 43, 0};
static const uint8_t iq3_xxs_values[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t iq3_s_values[8] = {1, 3, 5, 7, 9, 11, 13, 15};

static uint32_t load_u32(const uint8_t *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof value);
    return value;
}

/* Seven signs are stored; the eighth makes their number even. */
static uint8_t eight_signs(uint32_t seven)
{
    return (uint8_t)(seven | (uint32_t)__builtin_parity(seven) << 7);
}

static void put_8(uint16_t vector, float scale, uint8_t signs, float *to)
{
    for (int i = 0; i < 8; i++) {
        float value = scale * (float)iq2_values[vector >> 2 * i & 3];

        to[i] = signs >> i & 1 ? -value : value;
    }
}

/* Signs: the four lowest bits. */
static void put_4(uint16_t vector, const uint8_t *values, float scale, unsigned signs, float *to)
{
    for (int i = 0; i < 4; i++) {
        float value = scale * (float)values[vector >> 3 * i & 7];

        to[i] = signs >> i & 1 ? -value : value;
    }
}

static void put_shifted(uint16_t vector, float scale, float shift, float *to)
{
    for (int i = 0; i < 8; i++)
        to[i] = scale * ((float)((vector >> 2 * i & 3) - 1) + shift);
}

void iq4_xs_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);
    uint16_t high = load_u16(from + 2);

    for (int p = 0; p < 8; p++, to += 32) {
        const uint8_t *q = from + 8 + 16 * p;
        int s = (from[4 + p / 2] >> 4 * (p % 2) & 15) | (high >> 2 * p & 3) << 4;
        float scale = d * (float)(s - 32);

        for (int i = 0; i < 16; i++) {
            to[i] = scale * (float)dequant_iq4_nl_values[q[i] & 15];
            to[i + 16] = scale * (float)dequant_iq4_nl_values[q[i] >> 4];
        }
    }
}

void iq3_xxs_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int p = 0; p < 8; p++) {
        const uint8_t *q = from + 2 + 8 * p;
        uint32_t word = load_u32(from + 66 + 4 * p);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;

        for (int v = 0; v < 8; v++, to += 4) {
            uint8_t signs = eight_signs(word >> 7 * (v / 2) & 127);

            put_4(codebook_iq3_xxs[q[v]], iq3_xxs_values, scale, signs >> 4 * (v % 2), to);
        }
    }
}

void iq3_s_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int p = 0; p < 8; p++) {
        const uint8_t *q = from + 2 + 8 * p, *signs = from + 74 + 4 * p;
        float scale = d * (float)(1 + 2 * (from[106 + p / 2] >> 4 * (p % 2) & 15));

        for (int v = 0; v < 8; v++, to += 4)
            put_4(codebook_iq3_s[q[v] | (from[66 + p] >> v & 1) << 8], iq3_s_values, scale,
                  signs[v / 2] >> 4 * (v % 2), to);
    }
}

void iq2_xxs_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int p = 0; p < 8; p++) {
        const uint8_t *q = from + 2 + 8 * p;
        uint32_t word = load_u32(q + 4);
        float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;

        for (int v = 0; v < 4; v++, to += 8)
            put_8(codebook_iq2_xxs[q[v]], scale, eight_signs(word >> 7 * v & 127), to);
    }
}

void iq2_xs_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int p = 0; p < 16; p++) {
        float scale = d * (0.5f + (float)(from[66 + p / 2] >> 4 * (p % 2) & 15)) * 0.25f;

        for (int v = 0; v < 2; v++, to += 8) {
            uint16_t q = load_u16(from + 2 + 2 * (2 * p + v));

            put_8(codebook_iq2_xs[q & 511], scale, eight_signs(q >> 9), to);
        }
    }
}

void iq2_s_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int p = 0; p < 16; p++) {
        float scale = d * (0.5f + (float)(from[74 + p / 2] >> 4 * (p % 2) & 15)) * 0.25f;

        for (int v = 2 * p; v < 2 * p + 2; v++, to += 8) {
            int q = from[2 + v] | (from[66 + v / 4] >> 2 * (v % 4) & 3) << 8;

            put_8(codebook_iq2_s[q], scale, from[34 + v], to);
        }
    }
}

void iq1_s_block(const uint8_t *from, float *to)
{
    float d = load_f16(from);

    for (int p = 0; p < 8; p++) {
        uint16_t high = load_u16(from + 34 + 2 * p);
        float scale = d * (float)(2 * (high >> 12 & 7) + 1);
        float shift = high & 0x8000 ? -0.125f : 0.125f;

        for (int v = 0; v < 4; v++, to += 8)
            put_shifted(codebook_iq1[from[2 + 4 * p + v] | (high >> 3 * v & 7) << 8], scale, shift,
                        to);
    }
}

void iq1_m_block(const uint8_t *from, float *to)
{
    const uint8_t *scales = from + 48;
    unsigned bits = 0;
    float d;

    for (int i = 0; i < 4; i++)
        bits |= (unsigned)(load_u16(scales + 2 * i) >> 12) << 4 * i;
    d = float_from_f16((uint16_t)bits);
    for (int p = 0; p < 16; p++) {
        float scale = d * (float)(2 * (load_u16(scales + 2 * (p / 4)) >> 3 * (p % 4) & 7) + 1);

        for (int v = 2 * p; v < 2 * p + 2; v++, to += 8) {
            int high = from[32 + v / 2] >> 4 * (v % 2) & 15;

            put_shifted(codebook_iq1[from[v] | (high & 7) << 8], scale, high & 8 ? -0.125f : 0.125f,
                        to);
        }
    }
}

/* `count` bytes, `digits` ternary digits of each: first the first digit of all bytes. A byte is a
 * fraction of 256; times 3^k moves digit k to the front, and what overflows is what went before. */
static float *put_ternary(const uint8_t *q, int count, int digits, float d, float *to)
{
    unsigned power = 1;

    for (int k = 0; k < digits; k++, power *= 3)
        for (int i = 0; i < count; i++)
            *to++ = d * (float)((int)((q[i] * power & 255) * 3 >> 8) - 1);
    return to;
}

void tq1_0_block(const uint8_t *from, float *to)
{
    float d = load_f16(from + 52);

    to = put_ternary(from, 32, 5, d, to);
    to = put_ternary(from + 32, 16, 5, d, to);
    put_ternary(from + 48, 4, 4, d, to);
}

void tq2_0_block(const uint8_t *from, float *to)
{
    float d = load_f16(from + 64);

    for (int half = 0; half < 2; half++)
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < 32; i++)
                *to++ = d * (float)((from[32 * half + i] >> 2 * k & 3) - 1);
}

float dequant_mxfp4_scale(uint8_t exponent)
{
    /* Below 2 a subnormal float. */
    return float_from_bits(exponent < 2 ? UINT32_C(0x00200000) << exponent
                                        : (uint32_t)(exponent - 1) << 23);
}

void mxfp4_block(const uint8_t *from, float *to)
{
    float d = dequant_mxfp4_scale(from[0]);

    for (int i = 0; i < 16; i++) {
        to[i] = d * (float)dequant_e2m1_values[from[1 + i] & 15];
        to[i + 16] = d * (float)dequant_e2m1_values[from[1 + i] >> 4];
    }
}

static float half_of_e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15, fraction = bits & 7;

    if (bits == 0x7f) /* not a number */
        return 0;
    if (exponent == 0)
        return (float)fraction * 0x1p-10f;
    return (float)(8 + fraction) * float_from_bits((uint32_t)(exponent - 11 + 127) << 23);
}

void nvfp4_block(const uint8_t *from, float *to)
{
    for (int p = 0; p < 4; p++, to += 16) {
        const uint8_t *q = from + 4 + 8 * p;
        float d = half_of_e4m3(from[p]);

        for (int i = 0; i < 8; i++) {
            to[i] = d * (float)dequant_e2m1_values[q[i] & 15];
            to[i + 8] = d * (float)dequant_e2m1_values[q[i] >> 4];
        }
    }
}
