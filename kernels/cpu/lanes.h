/* lanes.h -- sixteen floats at a time, as one AVX-512 register or two of AVX2.
 *
 * Norm, rotary, activation and attention are written once over these (rows_lanes.h,
 * attention_lanes.h) and compiled for each instruction set. Everything is inlined; fused
 * multiply-adds are explicit, so that a compiler has no choice in rounding. */
#ifndef WEFT_CPU_LANES_H
#define WEFT_CPU_LANES_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
/* Loops of known length over arrays that have to live in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__AVX512F__)

typedef __m512 floats16;

INLINE floats16 lanes_set(float a)
{
    return _mm512_set1_ps(a);
}
INLINE floats16 lanes_zero(void)
{
    return _mm512_setzero_ps();
}
INLINE floats16 lanes_load(const float *from)
{
    return _mm512_loadu_ps(from);
}
INLINE void lanes_store(float *to, floats16 a)
{
    _mm512_storeu_ps(to, a);
}
INLINE floats16 lanes_load_f16(const void *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(from));
}
INLINE floats16 lanes_load_i16(const int16_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)from)));
}
/* Rounded to nearest; what is too large becomes the largest. */
INLINE void lanes_store_i16(int16_t *to, floats16 a)
{
    _mm256_storeu_si256((void *)to, _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(a)));
}
INLINE floats16 lanes_add(floats16 a, floats16 b)
{
    return _mm512_add_ps(a, b);
}
INLINE floats16 lanes_sub(floats16 a, floats16 b)
{
    return _mm512_sub_ps(a, b);
}
INLINE floats16 lanes_mul(floats16 a, floats16 b)
{
    return _mm512_mul_ps(a, b);
}
INLINE floats16 lanes_div(floats16 a, floats16 b)
{
    return _mm512_div_ps(a, b);
}
/* The second where either is no number. */
INLINE floats16 lanes_max(floats16 a, floats16 b)
{
    return _mm512_max_ps(a, b);
}
INLINE floats16 lanes_min(floats16 a, floats16 b)
{
    return _mm512_min_ps(a, b);
}
/* a b + c */
INLINE floats16 lanes_fma(floats16 a, floats16 b, floats16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE floats16 lanes_abs(floats16 a)
{
    return _mm512_abs_ps(a);
}
INLINE floats16 lanes_round(floats16 a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* a 2^n for whole n from -126 to 127 */
INLINE floats16 lanes_scale(floats16 a, floats16 n)
{
    return _mm512_scalef_ps(a, n);
}
/* 1 0 3 2 ... */
INLINE floats16 lanes_swap_pairs(floats16 a)
{
    return _mm512_permute_ps(a, _MM_SHUFFLE(2, 3, 0, 1));
}
/* Bit i: lane i of both is equal. */
INLINE uint32_t lanes_equal(floats16 a, floats16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
/* The first `count` lanes of a, then those of b. */
INLINE floats16 lanes_first(floats16 a, uint32_t count, floats16 b)
{
    return _mm512_mask_blend_ps((__mmask16)((1u << count) - 1), b, a);
}
INLINE float lanes_sum(floats16 a)
{
    return _mm512_reduce_add_ps(a);
}
INLINE float lanes_largest(floats16 a)
{
    return _mm512_reduce_max_ps(a);
}

#else

/* A value like a register's, hence the typedef. */
typedef struct {
    __m256 low, high;
} floats16;

INLINE floats16 lanes_pair(__m256 low, __m256 high)
{
    return (floats16){low, high};
}
INLINE floats16 lanes_set(float a)
{
    return lanes_pair(_mm256_set1_ps(a), _mm256_set1_ps(a));
}
INLINE floats16 lanes_zero(void)
{
    return lanes_pair(_mm256_setzero_ps(), _mm256_setzero_ps());
}
INLINE floats16 lanes_load(const float *from)
{
    return lanes_pair(_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8));
}
INLINE void lanes_store(float *to, floats16 a)
{
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}
INLINE floats16 lanes_load_f16(const void *from)
{
    const __m128i *halves = from;

    return lanes_pair(_mm256_cvtph_ps(_mm_loadu_si128(halves)),
                      _mm256_cvtph_ps(_mm_loadu_si128(halves + 1)));
}
INLINE floats16 lanes_load_i16(const int16_t *from)
{
    __m128i low = _mm_loadu_si128((const void *)from);
    __m128i high = _mm_loadu_si128((const void *)(from + 8));

    return lanes_pair(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(low)),
                      _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(high)));
}
/* Rounded to nearest; what is too large becomes the largest. */
INLINE void lanes_store_i16(int16_t *to, floats16 a)
{
    __m256i both = _mm256_packs_epi32(_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high));

    _mm256_storeu_si256((void *)to, _mm256_permute4x64_epi64(both, _MM_SHUFFLE(3, 1, 2, 0)));
}
INLINE floats16 lanes_add(floats16 a, floats16 b)
{
    return lanes_pair(_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high));
}
INLINE floats16 lanes_sub(floats16 a, floats16 b)
{
    return lanes_pair(_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high));
}
INLINE floats16 lanes_mul(floats16 a, floats16 b)
{
    return lanes_pair(_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high));
}
INLINE floats16 lanes_div(floats16 a, floats16 b)
{
    return lanes_pair(_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high));
}
/* The second where either is no number. */
INLINE floats16 lanes_max(floats16 a, floats16 b)
{
    return lanes_pair(_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high));
}
INLINE floats16 lanes_min(floats16 a, floats16 b)
{
    return lanes_pair(_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high));
}
/* a b + c */
INLINE floats16 lanes_fma(floats16 a, floats16 b, floats16 c)
{
    return lanes_pair(_mm256_fmadd_ps(a.low, b.low, c.low),
                      _mm256_fmadd_ps(a.high, b.high, c.high));
}
INLINE floats16 lanes_abs(floats16 a)
{
    __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));

    return lanes_pair(_mm256_and_ps(a.low, mask), _mm256_and_ps(a.high, mask));
}
INLINE floats16 lanes_round(floats16 a)
{
    return lanes_pair(_mm256_round_ps(a.low, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                      _mm256_round_ps(a.high, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE __m256 lanes_power_of_two(__m256 n)
{
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));

    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
/* a 2^n for whole n from -126 to 127 */
INLINE floats16 lanes_scale(floats16 a, floats16 n)
{
    return lanes_mul(a, lanes_pair(lanes_power_of_two(n.low), lanes_power_of_two(n.high)));
}
/* 1 0 3 2 ... */
INLINE floats16 lanes_swap_pairs(floats16 a)
{
    return lanes_pair(_mm256_permute_ps(a.low, _MM_SHUFFLE(2, 3, 0, 1)),
                      _mm256_permute_ps(a.high, _MM_SHUFFLE(2, 3, 0, 1)));
}
/* Bit i: lane i of both is equal. */
INLINE uint32_t lanes_equal(floats16 a, floats16 b)
{
    int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ));
    int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ));

    return (uint32_t)low | (uint32_t)high << 8;
}
/* The first `count` lanes of a, then those of b. */
INLINE floats16 lanes_first(floats16 a, uint32_t count, floats16 b)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lane);
    __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count - 8), lane);

    return lanes_pair(_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(low)),
                      _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(high)));
}
INLINE float lanes_sum(floats16 a)
{
    __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float lanes_largest(floats16 a)
{
    __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));

    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#endif

/* e^x for x <= 88; 0 below -87 or so is given as 1e-38. Relative error below 2e-7. e^0 is 1.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts so that r is exact; e^r by its series. */
INLINE floats16 lanes_exp(floats16 x)
{
    floats16 clamped = lanes_max(x, lanes_set(-87.3f));
    floats16 n = lanes_round(lanes_mul(clamped, lanes_set(1.44269504f)));
    floats16 r = lanes_fma(n, lanes_set(-0.693359375f), clamped);
    floats16 sum = lanes_set(1.0f / 5040);

    r = lanes_fma(n, lanes_set(2.12194440e-4f), r);
    sum = lanes_fma(sum, r, lanes_set(1.0f / 720));
    sum = lanes_fma(sum, r, lanes_set(1.0f / 120));
    sum = lanes_fma(sum, r, lanes_set(1.0f / 24));
    sum = lanes_fma(sum, r, lanes_set(1.0f / 6));
    sum = lanes_fma(sum, r, lanes_set(0.5f));
    sum = lanes_fma(sum, r, lanes_set(1.0f));
    sum = lanes_fma(sum, r, lanes_set(1.0f));
    return lanes_scale(sum, n);
}

/* x / (1 + exp(-s x)) for finite x. */
INLINE floats16 lanes_gated(floats16 x, float s)
{
    floats16 e = lanes_exp(lanes_min(lanes_mul(x, lanes_set(-s)), lanes_set(88.0f)));

    return lanes_div(x, lanes_add(lanes_set(1.0f), e));
}

/* Absolute error below 2e-7: 1 - 2 / (1 + exp(2 x)). */
INLINE floats16 lanes_tanh(floats16 x)
{
    floats16 e = lanes_exp(lanes_min(lanes_add(x, x), lanes_set(80.0f)));

    return lanes_sub(lanes_set(1.0f), lanes_div(lanes_set(2.0f), lanes_add(lanes_set(1.0f), e)));
}

/* Absolute error below 3e-7. Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26:
 * erf(x) = 1 - (a1 t + ... + a5 t^5) exp(-x^2) for x >= 0, t = 1 / (1 + p x); erf(-x) = -erf(x). */
INLINE floats16 lanes_erf(floats16 x)
{
    floats16 one = lanes_set(1.0f), a = lanes_abs(x);
    floats16 t = lanes_div(one, lanes_fma(a, lanes_set(0.3275911f), one));
    floats16 sum = lanes_fma(lanes_set(1.061405429f), t, lanes_set(-1.453152027f));
    floats16 e = lanes_exp(lanes_mul(lanes_sub(lanes_zero(), a), a)), result;

    sum = lanes_fma(sum, t, lanes_set(1.421413741f));
    sum = lanes_fma(sum, t, lanes_set(-0.284496736f));
    sum = lanes_fma(sum, t, lanes_set(0.254829592f));
    result = lanes_sub(one, lanes_mul(lanes_mul(sum, t), e));
    /* The sign of x; 0 / tiny is 0, where the result is nearly 0 too. */
    return lanes_mul(result, lanes_div(x, lanes_max(a, lanes_set(1e-30f))));
}

#endif
