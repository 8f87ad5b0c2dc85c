/* matmul_avx2.c -- products with AVX2 and FMA, and the forms of activations they read.
 *
 * Without VNNI the cheapest exact integer product is vpmaddwd: two 16-bit quants times two 16-bit
 * inputs a lane, added. So integers have one form here, words, for 8-bit inputs too. A packed line
 * holds its even and its odd bytes as two lines of pairs; of nibbles there are four.
 *
 * A group of 16 outputs is two registers of eight, computed one after the other; a tile's rows by
 * four, two and one, since 16 registers hold no more sums. A row's result does not depend on how
 * many rows there are. */
#include "kernels/cpu/matmul_avx2.h"

#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul_ref.h"

enum { HALF = 8, SUMS_MAX = 4, WORD_PAIRS = BLOCK_COLUMNS / 2 };

/* Some rows of a tile, from its first unit on: row r of block b is unit b x stride + r. */
struct part {
    const float *f32;
    const int16_t *words;
    const float *sums_f32;
    const float *scales;
    const float *sums;
    const int32_t *offsets;
    uint32_t stride;
};

/* Half a group's data: block b's lines at lines + b x line_bytes, a line being 64 bytes of which
 * this half has 32 (of float columns: its half of each). */
struct half_group {
    const uint8_t *lines;
    const uint8_t *scales;
    size_t line_bytes;
    size_t scale_bytes;
    uint32_t blocks;
    bool zeros;
    bool wide;
    bool e2m1;
};

static struct part part_at(const struct activations *x, uint32_t row, uint32_t block)
{
    size_t unit = unit_of(x, row, block);

    return (struct part){.f32 = x->f32 + unit * BLOCK_COLUMNS,
                         .words = x->words + unit * BLOCK_COLUMNS,
                         .sums_f32 = x->sums_f32 + unit,
                         .scales = x->scales + unit,
                         .sums = x->sums + unit,
                         .offsets = x->offsets + unit,
                         .stride = tile_places(x->rows, row / TILE_ROWS * TILE_ROWS)};
}

static struct half_group half_at(const struct packed *w, uint32_t group, uint32_t half)
{
    const uint8_t *data = w->data + group * w->group_bytes;
    size_t q8_scales = ((size_t)w->blocks * Q8_SCALES_BYTES + 63) / 64 * 64;
    struct half_group at = {.lines = data + 32 * half,
                            .scales = data + 32 * half,
                            .blocks = w->blocks,
                            .zeros = w->zeros,
                            .wide = w->wide,
                            .e2m1 = w->e2m1};

    switch (w->pack) {
    case PACK_Q4:
        at.scales = data + 256 + (w->wide ? 32 : 16) * half;
        at.line_bytes = w->wide ? Q4_WIDE_BYTES : Q4_BLOCK_BYTES;
        break;
    case PACK_Q8:
        at.lines = data + q8_scales + 32 * half;
        at.scales = data + 16 * half;
        at.line_bytes = Q8_LINES_BYTES;
        break;
    case PACK_Q8_HALVES:
        at.scales = data + Q8_LINES_BYTES + 32 * half;
        at.line_bytes = HALVES_BLOCK_BYTES;
        break;
    case PACK_F8:
        at.lines = data + 8 * half;
        at.scales = data + F8_LINES_BYTES + 32 * half;
        at.line_bytes = F8_BLOCK_BYTES;
        break;
    case PACK_F32:
        at.line_bytes = BLOCK_COLUMNS * GROUP_ROWS * 4;
        break;
    default:
        at.lines = data + 16 * half;
        at.line_bytes = BLOCK_COLUMNS * GROUP_ROWS * 2;
    }
    at.scale_bytes = w->pack == PACK_Q8 ? Q8_SCALES_BYTES : at.line_bytes;
    return at;
}

INLINE __m256i load_line(const uint8_t *from)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)from);
}

INLINE __m256 load_halves(const uint8_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

INLINE __m256 floats_at(const uint8_t *from)
{
    return _mm256_loadu_ps((const float *)(const void *)from);
}

INLINE __m256 scale_of(const struct half_group *w, const uint8_t *scales)
{
    return w->wide ? floats_at(scales) : load_halves(scales);
}

/* Nibbles, a word or a lane each, to what they stand for; `mask` of such a byte. */
INLINE __m256i e2m1_of(__m256i nibbles, __m256i mask)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)packed_e2m1);

    return _mm256_and_si256(_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles), mask);
}

/* The minimums of a block of PACK_Q4. */
INLINE __m256 minimum_of(const struct half_group *w, const uint8_t *scales)
{
    __m256 minimum = w->wide ? floats_at(scales + 64) : load_halves(scales + 32);

    return w->zeros ? _mm256_mul_ps(minimum, load_halves(scales)) : minimum;
}

/* Two words of an input in every lane. */
INLINE __m256i spread(const int16_t *from)
{
    int32_t two;

    memcpy(&two, from, sizeof two);
    return _mm256_set1_epi32(two);
}

INLINE void put_sums(float *y, size_t stride, bool add, const __m256 *sums, const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        float *to = y + (size_t)r * stride;

        _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), sums[r]) : sums[r]);
    }
}

/* --- integers --------------------------------------------------------------------------------- */

/* Pair `pair` of the block's 16: two quants a lane as 16-bit numbers, in the order of FORM_WORDS.
 * */
INLINE __m256i words_of(const uint8_t *lines, const bool q4, const int pair)
{
    __m256i line = load_line(lines + 64 * (q4 ? pair / 4 : pair / 2));
    const int shift = q4 ? 8 * (pair % 2) + 4 * (pair % 4 / 2) : 8 * (pair % 2);

    return _mm256_and_si256(_mm256_srli_epi16(line, shift), _mm256_set1_epi16(q4 ? 15 : 255));
}

INLINE void words_part(const struct half_group *w, const struct part *x, float *y, size_t stride,
                       bool add, const int rows, const bool q4)
{
    __m256 sums[SUMS_MAX];

    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < w->blocks; b++) {
        const uint8_t *lines = w->lines + b * w->line_bytes;
        const uint8_t *scales = w->scales + b * w->scale_bytes;
        const int16_t *words = x->words + (size_t)b * x->stride * BLOCK_COLUMNS;
        size_t unit = (size_t)b * x->stride;
        __m256 scale = q4 ? scale_of(w, scales) : load_halves(scales);
        __m256i dots[SUMS_MAX];

        UNROLL
        for (int r = 0; r < rows; r++)
            dots[r] = q4 ? _mm256_setzero_si256() : _mm256_set1_epi32(x->offsets[unit + (size_t)r]);
        UNROLL
        for (int p = 0; p < WORD_PAIRS; p++) {
            __m256i pairs = words_of(lines, q4, p);

            if (q4 && w->e2m1)
                pairs = e2m1_of(pairs, _mm256_set1_epi16(255));
            UNROLL
            for (int r = 0; r < rows; r++)
                dots[r] = _mm256_add_epi32(
                    dots[r], _mm256_madd_epi16(pairs, spread(words + r * BLOCK_COLUMNS + 2 * p)));
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            size_t at = unit + (size_t)r;

            sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]),
                                      _mm256_mul_ps(scale, _mm256_set1_ps(x->scales[at])), sums[r]);
            if (q4)
                sums[r] =
                    _mm256_fmadd_ps(minimum_of(w, scales), _mm256_set1_ps(x->sums[at]), sums[r]);
        }
    }
    put_sums(y, stride, add, sums, rows);
}

/* The same of PACK_Q8_HALVES: each half of a block has a sum of its own. */
INLINE void halves_part(const struct half_group *w, const struct part *x, float *y, size_t stride,
                        bool add, const int rows)
{
    __m256 sums[SUMS_MAX];

    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < w->blocks; b++) {
        const uint8_t *lines = w->lines + b * w->line_bytes;
        const uint8_t *scales = w->scales + b * w->scale_bytes;
        const int16_t *words = x->words + (size_t)b * x->stride * BLOCK_COLUMNS;
        size_t unit = (size_t)b * x->stride;

        UNROLL
        for (int half = 0; half < 2; half++) {
            __m256 scale = floats_at(scales + 64 * half);
            __m256i dots[SUMS_MAX];

            UNROLL
            for (int r = 0; r < rows; r++)
                dots[r] = _mm256_setzero_si256();
            UNROLL
            for (int p = half * WORD_PAIRS / 2; p < (half + 1) * WORD_PAIRS / 2; p++) {
                __m256i pairs = _mm256_sub_epi16(words_of(lines, false, p), _mm256_set1_epi16(128));

                UNROLL
                for (int r = 0; r < rows; r++)
                    dots[r] = _mm256_add_epi32(
                        dots[r],
                        _mm256_madd_epi16(pairs, spread(words + r * BLOCK_COLUMNS + 2 * p)));
            }
            UNROLL
            for (int r = 0; r < rows; r++)
                sums[r] = _mm256_fmadd_ps(
                    _mm256_cvtepi32_ps(dots[r]),
                    _mm256_mul_ps(scale, _mm256_set1_ps(x->scales[unit + (size_t)r])), sums[r]);
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            sums[r] = _mm256_fmadd_ps(floats_at(scales + 128),
                                      _mm256_set1_ps(x->sums[unit + (size_t)r]), sums[r]);
    }
    put_sums(y, stride, add, sums, rows);
}

/* --- floats ----------------------------------------------------------------------------------- */

/* Column `column` of eight rows of a block as floats. */
INLINE __m256 column_of(const uint8_t *lines, const enum pack pack, const int column)
{
    const uint8_t *at = lines + column * GROUP_ROWS * (pack == PACK_F32 ? 4 : 2);
    __m256i line;
    __m128i half;

    switch (pack) {
    case PACK_F32:
        return _mm256_loadu_ps((const float *)(const void *)at);
    case PACK_F16:
        return load_halves(at);
    case PACK_BF16:
        line = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
        return _mm256_castsi256_ps(_mm256_slli_epi32(line, 16));
    case PACK_F8: /* sign to the top bit, the rest to where an f16 has it */
        half = _mm_loadl_epi64((const __m128i *)(const void *)(lines + column * GROUP_ROWS));
        half = _mm_slli_epi16(_mm_cvtepi8_epi16(half), 7);
        return _mm256_cvtph_ps(_mm_and_si128(half, _mm_set1_epi16((short)0xbf80)));
    case PACK_Q4:
        line = _mm256_srli_epi32(load_line(lines + 64 * (column / 8)),
                                 8 * (column % 4) + column % 8 / 4 * 4);
        return _mm256_cvtepi32_ps(_mm256_and_si256(line, _mm256_set1_epi32(15)));
    default:
        line = _mm256_srli_epi32(load_line(lines + 64 * (column / 4)), 8 * (column % 4));
        line = _mm256_and_si256(line, _mm256_set1_epi32(255));
        return _mm256_cvtepi32_ps(_mm256_sub_epi32(line, _mm256_set1_epi32(128)));
    }
}

INLINE void f32_part(const struct half_group *w, const struct part *x, float *y, size_t stride,
                     bool add, const int rows, const enum pack pack)
{
    __m256 sums[SUMS_MAX];

    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < w->blocks; b++) {
        const uint8_t *lines = w->lines + b * w->line_bytes;
        const uint8_t *scales = w->scales + b * w->scale_bytes;
        const float *values = x->f32 + (size_t)b * x->stride * BLOCK_COLUMNS;
        const float *block_sums = x->sums_f32 + (size_t)b * x->stride;
        __m256 dots[SUMS_MAX];

        UNROLL
        for (int r = 0; r < rows; r++)
            dots[r] = _mm256_setzero_ps();
        UNROLL
        for (int c = 0; c < BLOCK_COLUMNS; c++) {
            __m256 column = column_of(lines, pack, c);

            if (pack == PACK_Q4 && w->e2m1)
                column =
                    _mm256_cvtepi32_ps(e2m1_of(_mm256_cvtps_epi32(column), _mm256_set1_epi32(255)));
            if (pack == PACK_Q8_HALVES && c == BLOCK_COLUMNS / 2) {
                UNROLL
                for (int r = 0; r < rows; r++) {
                    sums[r] = _mm256_fmadd_ps(dots[r], floats_at(scales), sums[r]);
                    dots[r] = _mm256_setzero_ps();
                }
            }
            UNROLL
            for (int r = 0; r < rows; r++)
                dots[r] =
                    _mm256_fmadd_ps(column, _mm256_set1_ps(values[r * BLOCK_COLUMNS + c]), dots[r]);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            if (pack == PACK_Q8_HALVES)
                sums[r] = _mm256_fmadd_ps(dots[r], floats_at(scales + 64), sums[r]);
            else if (pack == PACK_Q4 || pack == PACK_Q8)
                sums[r] = _mm256_fmadd_ps(dots[r], scale_of(w, scales), sums[r]);
            else if (pack == PACK_F8)
                sums[r] = _mm256_fmadd_ps(dots[r], floats_at(scales), sums[r]);
            else
                sums[r] = _mm256_add_ps(sums[r], dots[r]);
            if (pack == PACK_Q4)
                sums[r] =
                    _mm256_fmadd_ps(minimum_of(w, scales), _mm256_set1_ps(block_sums[r]), sums[r]);
            if (pack == PACK_Q8_HALVES)
                sums[r] = _mm256_fmadd_ps(floats_at(scales + 128), _mm256_set1_ps(block_sums[r]),
                                          sums[r]);
        }
    }
    put_sums(y, stride, add, sums, rows);
}

/* --- the instances ---------------------------------------------------------------------------- */

typedef void part_kernel(const struct half_group *w, const struct part *x, float *y, size_t stride,
                         bool add);

#define INSTANCE(NAME, BODY, ROWS, WHAT)                                                        \
    static void NAME(const struct half_group *w, const struct part *x, float *y, size_t stride, \
                     bool add)                                                                  \
    {                                                                                           \
        BODY(w, x, y, stride, add, ROWS, WHAT);                                                 \
    }

#define HALVES(NAME, ROWS)                                                                      \
    static void NAME(const struct half_group *w, const struct part *x, float *y, size_t stride, \
                     bool add)                                                                  \
    {                                                                                           \
        halves_part(w, x, y, stride, add, ROWS);                                                \
    }

HALVES(halves_1, 1)
HALVES(halves_2, 2)
HALVES(halves_4, 4)
INSTANCE(q4_words_1, words_part, 1, true)
INSTANCE(q4_words_2, words_part, 2, true)
INSTANCE(q4_words_4, words_part, 4, true)
INSTANCE(q8_words_1, words_part, 1, false)
INSTANCE(q8_words_2, words_part, 2, false)
INSTANCE(q8_words_4, words_part, 4, false)
INSTANCE(f32_1, f32_part, 1, PACK_F32)
INSTANCE(f32_2, f32_part, 2, PACK_F32)
INSTANCE(f32_4, f32_part, 4, PACK_F32)
INSTANCE(f16_1, f32_part, 1, PACK_F16)
INSTANCE(f16_2, f32_part, 2, PACK_F16)
INSTANCE(f16_4, f32_part, 4, PACK_F16)
INSTANCE(bf16_1, f32_part, 1, PACK_BF16)
INSTANCE(bf16_2, f32_part, 2, PACK_BF16)
INSTANCE(bf16_4, f32_part, 4, PACK_BF16)
INSTANCE(f8_1, f32_part, 1, PACK_F8)
INSTANCE(f8_2, f32_part, 2, PACK_F8)
INSTANCE(f8_4, f32_part, 4, PACK_F8)
INSTANCE(halves_f32_1, f32_part, 1, PACK_Q8_HALVES)
INSTANCE(halves_f32_2, f32_part, 2, PACK_Q8_HALVES)
INSTANCE(halves_f32_4, f32_part, 4, PACK_Q8_HALVES)
INSTANCE(q4_f32_1, f32_part, 1, PACK_Q4)
INSTANCE(q4_f32_2, f32_part, 2, PACK_Q4)
INSTANCE(q4_f32_4, f32_part, 4, PACK_Q4)
INSTANCE(q8_f32_1, f32_part, 1, PACK_Q8)
INSTANCE(q8_f32_2, f32_part, 2, PACK_Q8)
INSTANCE(q8_f32_4, f32_part, 4, PACK_Q8)

/* For 1, 2 and 4 rows. */
static part_kernel *const words_kernels[PACK_COUNT][3] = {
    [PACK_Q4] = {q4_words_1, q4_words_2, q4_words_4},
    [PACK_Q8] = {q8_words_1, q8_words_2, q8_words_4},
    [PACK_Q8_HALVES] = {halves_1, halves_2, halves_4},
};
static part_kernel *const f32_kernels[PACK_COUNT][3] = {
    [PACK_F32] = {f32_1, f32_2, f32_4},
    [PACK_F16] = {f16_1, f16_2, f16_4},
    [PACK_BF16] = {bf16_1, bf16_2, bf16_4},
    [PACK_Q4] = {q4_f32_1, q4_f32_2, q4_f32_4},
    [PACK_Q8] = {q8_f32_1, q8_f32_2, q8_f32_4},
    [PACK_F8] = {f8_1, f8_2, f8_4},
    [PACK_Q8_HALVES] = {halves_f32_1, halves_f32_2, halves_f32_4},
};

/* --- the contract ----------------------------------------------------------------------------- */

enum form form_avx2(enum pack pack, enum precision precision, uint32_t rows)
{
    (void)rows;
    return precision == PRECISION_F32 || pack < PACK_Q4 || pack > PACK_Q8_HALVES ? FORM_F32
                                                                                 : FORM_WORDS;
}

/* All rows of x from block `block` on against one group. */
static void group_product(part_kernel *const *kernels, const struct packed *w, uint32_t group,
                          const struct activations *x, uint32_t block, float *y, size_t stride,
                          bool add)
{
    for (uint32_t half = 0; half < 2; half++) {
        struct half_group weights = half_at(w, group, half);

        for (uint32_t row = 0, together; row < x->rows; row += together) {
            uint32_t in_tile = TILE_ROWS - row % TILE_ROWS;
            uint32_t left = x->rows - row < in_tile ? x->rows - row : in_tile;
            struct part part = part_at(x, row, block);

            together = left >= SUMS_MAX ? SUMS_MAX : left >= 2 ? 2 : 1;
            kernels[__builtin_ctz(together)](&weights, &part, y + row * stride + half * HALF,
                                             stride, add);
        }
    }
}

/* Rows as the file has them: a piece at a time is made into floats and multiplied. */
static void product_raw(const struct packed *w, uint32_t group, const struct activations *x,
                        float *y, size_t stride, bool add, const struct kernel_scratch *scratch)
{
    for (uint32_t b = 0; b < w->blocks; b += RAW_BLOCKS) {
        uint32_t count = w->blocks - b < RAW_BLOCKS ? w->blocks - b : RAW_BLOCKS;
        struct packed piece = {
            .pack = PACK_F32, .blocks = count, .data = (const uint8_t *)scratch->raw};

        packed_raw_blocks(w, group, b, count, scratch->raw);
        group_product(f32_kernels[PACK_F32], &piece, 0, x, b, y, stride, add || b > 0);
    }
}

void product_avx2(const struct packed *w, uint32_t first, uint32_t count,
                  const struct activations *x, float *y, size_t stride, bool add,
                  const struct kernel_scratch *scratch)
{
    bool words = w->pack != PACK_RAW && form_avx2(w->pack, x->precision, x->rows) == FORM_WORDS;

    for (uint32_t g = 0; g < count; g++) {
        if (w->pack == PACK_RAW)
            product_raw(w, first + g, x, y + g * GROUP_ROWS, stride, add, scratch);
        else
            group_product(words ? words_kernels[w->pack] : f32_kernels[w->pack], w, first + g, x, 0,
                          y + g * GROUP_ROWS, stride, add);
    }
}

/* --- inputs ----------------------------------------------------------------------------------- */

/* Only where there is NaN, which is converted to INT32_MIN and may hide the largest value, is
 * anything out of range. */
static __m256i to_range(__m256 values, float most)
{
    __m256i q = _mm256_min_epi32(_mm256_cvtps_epi32(values), _mm256_set1_epi32((int)most));

    return _mm256_max_epi32(q, _mm256_set1_epi32(-(int)most));
}

static void put_integers(const struct activations *x, size_t unit, const float *values)
{
    const float most =
        x->precision == PRECISION_INT8 ? ACTIVATION_INT8_MOST : ACTIVATION_INT16_MOST;
    floats16 first = lanes_load(values), second = lanes_load(values + LANES);
    float largest = lanes_largest(lanes_max(lanes_abs(first), lanes_abs(second)));
    bool zeros = !(largest > ACTIVATION_LEAST);
    __m256 inverse = _mm256_set1_ps(zeros ? 0 : most / largest);
    int32_t q[BLOCK_COLUMNS], sum = 0;
    int16_t *words = x->words + unit * BLOCK_COLUMNS;

    for (int i = 0; i < BLOCK_COLUMNS; i += HALF)
        _mm256_storeu_si256((__m256i *)(void *)(q + i),
                            to_range(_mm256_mul_ps(_mm256_loadu_ps(values + i), inverse), most));
    for (int i = 0; i < BLOCK_COLUMNS; i += 4) {
        words[i] = (int16_t)q[i];
        words[i + 1] = (int16_t)q[i + 2];
        words[i + 2] = (int16_t)q[i + 1];
        words[i + 3] = (int16_t)q[i + 3];
        sum += q[i] + q[i + 1] + q[i + 2] + q[i + 3];
    }
    x->scales[unit] = zeros ? 0 : largest / most;
    x->sums[unit] = x->scales[unit] * (float)sum;
    x->offsets[unit] = -128 * sum;
}

void put_avx2(const struct activations *x, uint32_t row, uint32_t first_block, uint32_t block_count,
              const float *values)
{
    for (uint32_t b = first_block; b < first_block + block_count; b++, values += BLOCK_COLUMNS) {
        size_t unit = unit_of(x, row, b);

        if (x->forms & FORM_F32) {
            memcpy(x->f32 + unit * BLOCK_COLUMNS, values, BLOCK_COLUMNS * sizeof *values);
            x->sums_f32[unit] =
                lanes_sum(lanes_add(lanes_load(values), lanes_load(values + LANES)));
        }
        if (x->forms & (FORM_WORDS | FORM_BYTES))
            put_integers(x, unit, values);
    }
}
