/* half.h -- 16-bit floats in plain C: IEEE 754 binary16 and bfloat16, to and from float. */
#ifndef WEFT_CPU_HALF_H
#define WEFT_CPU_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_from_bf16(uint16_t half)
{
    return float_from_bits((uint32_t)half << 16);
}

static inline float float_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;

    if (exponent == 0x1f)
        return float_from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0) /* subnormal: fraction x 2^-24, exact in float */
        return float_from_bits(sign | float_bits((float)fraction * 0x1p-24f));
    return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* To nearest, ties to even; too large becomes infinite. */
static inline uint16_t f16_from_float(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t rest = bits & 0x7fffffff;

    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x47800000)
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) { /* adding 0.5 puts the 2^-24 unit at the last bit and rounds there */
        float shifted = float_from_bits(rest) + 0.5f;

        return (uint16_t)(sign | (float_bits(shifted) - 0x3f000000));
    }
    rest += 0xfff + (rest >> 13 & 1);
    return (uint16_t)(sign | (rest - 0x38000000) >> 13);
}

/* To nearest, ties to even; too large becomes infinite. */
static inline uint16_t bf16_from_float(float value)
{
    uint32_t bits = float_bits(value);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40); /* not a number stays one */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* An E4M3 byte divided by 256: its exponent and fraction where an f16 has them. */
static inline float f8_value(uint8_t byte)
{
    return float_from_f16((uint16_t)((byte & 0x80) << 8 | (byte & 0x7f) << 7));
}

/* A 16-bit number at any address. */
static inline uint16_t load_u16(const void *from)
{
    uint16_t value;

    memcpy(&value, from, sizeof value);
    return value;
}

static inline float load_f16(const void *from)
{
    return float_from_f16(load_u16(from));
}

#endif
