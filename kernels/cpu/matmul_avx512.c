/* matmul_avx512.c -- products with AVX-512 and VNNI, and the forms of activations they read.
 *
 * One call of a kernel is one tile of 8, 4, 2 or 1 rows against one group of 16 outputs (two groups
 * where the rows are few), over all blocks. The tile's running sums stay in registers; a block's
 * weights are unpacked once for all rows of the tile:
 *
 *     bytes   vpdpbusd: unsigned quants x signed bytes; 16-bit inputs as two bytes. One or two
 *             rows, where unpacking counts and memory is the limit; and 8-bit inputs
 *     words   vpdpwssd: quants widened to 16 bits x 16-bit inputs: no second pass. More rows
 *     f32     quants or stored floats as floats x float inputs
 *
 * bytes and words give the same integers, so the same sums: a row's result does not depend on how
 * many rows there are. Weights are read from memory once, some three kilobytes ahead. */
#include "kernels/cpu/matmul_avx512.h"

#include <string.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/matmul_ref.h"

enum {
    AHEAD_BYTES = 3072,
    WORD_PAIRS = BLOCK_COLUMNS / 2,
    QUADS = BLOCK_COLUMNS / 4,
    BYTE_ROWS_MAX = 2, /* with 16-bit inputs; more rows are faster as words */
};

/* A tile's inputs, from its first unit on. */
struct tile {
    const float *f32;
    const int16_t *words;
    const int8_t *high;
    const int8_t *low;
    const float *sums_f32;
    const float *scales;
    const float *sums;
    const int32_t *offsets;
};

/* Where a group's data lies. */
struct group {
    const uint8_t *lines; /* block b at lines + b x line_bytes */
    const uint8_t *scales;
    size_t line_bytes;
    size_t scale_bytes;
    bool zeros;
    bool wide;
    bool e2m1;
};

/* Where a tile's results go. */
struct output {
    float *to; /* first row, first group */
    size_t stride;
    int rows;   /* that are not empty */
    int groups; /* at most as many as the kernel takes */
    bool add;
};

static struct tile tile_at(const struct activations *x, uint32_t first_row, uint32_t block)
{
    uint32_t n = tile_places(x->rows, first_row);
    size_t unit = (size_t)first_row * x->blocks + (size_t)block * n;

    return (struct tile){
        .f32 = x->f32 + unit * BLOCK_COLUMNS,
        .words = x->words + unit * BLOCK_COLUMNS,
        .high = x->high + unit * BLOCK_COLUMNS,
        .low = x->low + unit * BLOCK_COLUMNS,
        .sums_f32 = x->sums_f32 + unit,
        .scales = x->scales + unit,
        .sums = x->sums + unit,
        .offsets = x->offsets + unit,
    };
}

static struct group group_at(const struct packed *w, uint32_t index)
{
    const uint8_t *data = w->data + index * w->group_bytes;
    size_t q8_scales = ((size_t)w->blocks * Q8_SCALES_BYTES + 63) / 64 * 64;
    struct group group = {
        .lines = data, .scales = data, .zeros = w->zeros, .wide = w->wide, .e2m1 = w->e2m1};

    switch (w->pack) {
    case PACK_Q4:
        group.scales = data + 256;
        group.line_bytes = w->wide ? Q4_WIDE_BYTES : Q4_BLOCK_BYTES;
        break;
    case PACK_Q8:
        group.lines = data + q8_scales;
        group.scales = data;
        group.line_bytes = Q8_LINES_BYTES;
        break;
    case PACK_Q8_HALVES:
        group.scales = data + Q8_LINES_BYTES;
        group.line_bytes = HALVES_BLOCK_BYTES;
        break;
    case PACK_F8:
        group.scales = data + F8_LINES_BYTES;
        group.line_bytes = F8_BLOCK_BYTES;
        break;
    default:
        group.line_bytes = (size_t)BLOCK_COLUMNS * GROUP_ROWS * (w->pack == PACK_F32 ? 4 : 2);
    }
    group.scale_bytes = w->pack == PACK_Q8 ? Q8_SCALES_BYTES : group.line_bytes;
    return group;
}

INLINE __m512i load_line(const uint8_t *from)
{
    return _mm512_load_si512((const void *)from);
}

/* Four bytes or two words of an input in every lane. */
INLINE __m512i spread(const void *from)
{
    int32_t four;

    memcpy(&four, from, sizeof four);
    return _mm512_set1_epi32(four);
}

INLINE void ahead(const uint8_t *from, const size_t bytes)
{
    UNROLL
    for (size_t at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)from + AHEAD_BYTES + at, _MM_HINT_T0);
}

INLINE floats16 floats_at(const uint8_t *from)
{
    return lanes_load((const float *)(const void *)from);
}

INLINE floats16 scale_of(const struct group *group, const uint8_t *scales)
{
    return group->wide ? floats_at(scales) : lanes_load_f16(scales);
}

/* Nibbles, a byte or a word or a lane each, to what they stand for. */
INLINE __m512i e2m1_of(__m512i nibbles, const int above)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)(const void *)packed_e2m1);
    __m512i values = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), nibbles);

    /* The bytes above a nibble are zeros, which stand for something too. */
    return above == 0   ? values
           : above == 1 ? _mm512_and_si512(values, _mm512_set1_epi16(255))
                        : _mm512_and_si512(values, _mm512_set1_epi32(255));
}

/* The minimums of a block of PACK_Q4. */
INLINE floats16 minimum_of(const struct group *group, const uint8_t *scales, floats16 scale)
{
    floats16 minimum;

    if (group->wide)
        return floats_at(scales + 64);
    minimum = lanes_load_f16(scales + 32);
    return group->zeros ? lanes_mul(minimum, scale) : minimum;
}

INLINE void put_tile(const struct output *y, int group, const floats16 *sums, const int rows)
{
    UNROLL
    for (int r = 0; r < rows; r++) {
        float *to;

        if (r >= y->rows)
            continue;
        to = y->to + group * GROUP_ROWS + (size_t)r * y->stride;
        lanes_store(to, y->add ? lanes_add(lanes_load(to), sums[r]) : sums[r]);
    }
}

/* --- integers --------------------------------------------------------------------------------- */

/* The block's quants as 8 lines of four unsigned bytes a lane. */
INLINE void bytes_of(const uint8_t *lines, const bool q4, __m512i *quads)
{
    const __m512i nibble = _mm512_set1_epi8(15);

    if (q4) {
        UNROLL
        for (int j = 0; j < QUADS / 2; j++) {
            __m512i line = load_line(lines + 64 * j);

            quads[2 * j] = _mm512_and_si512(line, nibble);
            quads[2 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(line, 4), nibble);
        }
    } else {
        UNROLL
        for (int j = 0; j < QUADS; j++)
            quads[j] = load_line(lines + 64 * j);
    }
}

/* The block's quants as 16 lines of two words a lane, in the order of FORM_WORDS. */
INLINE void words_of(const uint8_t *lines, const bool q4, __m512i *pairs)
{
    const __m512i nibble = _mm512_set1_epi16(15), byte = _mm512_set1_epi16(255);

    if (q4) {
        UNROLL
        for (int j = 0; j < WORD_PAIRS / 4; j++) {
            __m512i line = load_line(lines + 64 * j);

            pairs[4 * j] = _mm512_and_si512(line, nibble);
            pairs[4 * j + 1] = _mm512_and_si512(_mm512_srli_epi16(line, 8), nibble);
            pairs[4 * j + 2] = _mm512_and_si512(_mm512_srli_epi16(line, 4), nibble);
            pairs[4 * j + 3] = _mm512_srli_epi16(line, 12);
        }
    } else {
        UNROLL
        for (int j = 0; j < WORD_PAIRS / 2; j++) {
            __m512i line = load_line(lines + 64 * j);

            pairs[2 * j] = _mm512_and_si512(line, byte);
            pairs[2 * j + 1] = _mm512_srli_epi16(line, 8);
        }
    }
}

/* sum + the block's integer dot product, scaled; and the minimum's part. */
INLINE floats16 scaled(floats16 sum, __m512i dot, floats16 scale, floats16 minimum,
                       const struct tile *x, size_t unit, const bool q4)
{
    sum = lanes_fma(_mm512_cvtepi32_ps(dot), lanes_mul(scale, lanes_set(x->scales[unit])), sum);
    return q4 ? lanes_fma(minimum, lanes_set(x->sums[unit]), sum) : sum;
}

/* A lone last group comes twice and is written once. */
INLINE void bytes_tile(const struct group *groups, uint32_t blocks, const struct tile *x,
                       const struct output *y, const int rows, const int group_count, const bool q4,
                       const bool two)
{
    floats16 sums[2][TILE_ROWS];

    UNROLL
    for (int g = 0; g < group_count; g++) {
        UNROLL
        for (int r = 0; r < rows; r++)
            sums[g][r] = lanes_zero();
    }
    for (uint32_t b = 0; b < blocks; b++) {
        UNROLL
        for (int g = 0; g < group_count; g++) {
            const uint8_t *lines = groups[g].lines + b * groups[g].line_bytes;
            const uint8_t *scales = groups[g].scales + b * groups[g].scale_bytes;
            floats16 scale = q4 ? scale_of(&groups[g], scales) : lanes_load_f16(scales);
            floats16 minimum = q4 ? minimum_of(&groups[g], scales, scale) : lanes_zero();
            __m512i quads[QUADS];

            ahead(lines, q4 ? Q4_BLOCK_BYTES : Q8_LINES_BYTES);
            bytes_of(lines, q4, quads);
            if (q4 && groups[g].e2m1) {
                UNROLL
                for (int j = 0; j < QUADS; j++)
                    quads[j] = e2m1_of(quads[j], 0);
            }
            UNROLL
            for (int r = 0; r < rows; r++) {
                size_t unit = (size_t)b * (size_t)rows + (size_t)r;
                const int8_t *high = x->high + unit * BLOCK_COLUMNS;
                const int8_t *low = x->low + unit * BLOCK_COLUMNS;
                __m512i dot[2] = {q4 ? _mm512_setzero_si512() : _mm512_set1_epi32(x->offsets[unit]),
                                  _mm512_setzero_si512()};

                if (two) {
                    UNROLL
                    for (int j = 0; j < QUADS; j++) {
                        dot[1] = _mm512_dpbusd_epi32(dot[1], quads[j], spread(high + 4 * j));
                        dot[0] = _mm512_dpbusd_epi32(dot[0], quads[j], spread(low + 4 * j));
                    }
                    dot[1] = _mm512_slli_epi32(dot[1], 8);
                } else {
                    UNROLL
                    for (int j = 0; j < QUADS; j++)
                        dot[j % 2] =
                            _mm512_dpbusd_epi32(dot[j % 2], quads[j], spread(high + 4 * j));
                }
                sums[g][r] = scaled(sums[g][r], _mm512_add_epi32(dot[0], dot[1]), scale, minimum, x,
                                    unit, q4);
            }
        }
    }
    UNROLL
    for (int g = 0; g < group_count; g++)
        if (g < y->groups)
            put_tile(y, g, sums[g], rows);
}

/* sum += the two words at `from` x the pairs. The instruction can read and spread the two words
 * itself, which gcc 12 does not make of the intrinsics: 8 to 20% of these kernels' time. */
INLINE void add_pair(__m512i *sum, __m512i pairs, const int16_t *from)
{
    __asm__("vpdpwssd %2%{1to16%}, %1, %0"
            : "+v"(*sum)
            : "v"(pairs), "m"(*(const int16_t(*)[2])from));
}

INLINE void words_tile(const struct group *group, uint32_t blocks, const struct tile *x,
                       const struct output *y, const int rows, const bool q4)
{
    /* Few rows are few sums, and each product waits for the one before: two sums a row then. */
    const int chains = rows <= 4 ? 2 : 1;
    floats16 sums[TILE_ROWS];

    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = lanes_zero();
    for (uint32_t b = 0; b < blocks; b++) {
        const uint8_t *lines = group->lines + b * group->line_bytes;
        const uint8_t *scales = group->scales + b * group->scale_bytes;
        const int16_t *words = x->words + (size_t)b * (size_t)rows * BLOCK_COLUMNS;
        size_t unit = (size_t)b * (size_t)rows;
        __m512i pairs[WORD_PAIRS], dots[TILE_ROWS][2];
        floats16 scale = q4 ? scale_of(group, scales) : lanes_load_f16(scales);
        floats16 minimum = q4 ? minimum_of(group, scales, scale) : lanes_zero();

        ahead(lines, q4 ? Q4_BLOCK_BYTES : Q8_LINES_BYTES);
        words_of(lines, q4, pairs);
        if (q4 && group->e2m1) {
            UNROLL
            for (int p = 0; p < WORD_PAIRS; p++)
                pairs[p] = e2m1_of(pairs[p], 1);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            dots[r][0] =
                q4 ? _mm512_setzero_si512() : _mm512_set1_epi32(x->offsets[unit + (size_t)r]);
            dots[r][1] = _mm512_setzero_si512();
        }
        UNROLL
        for (int p = 0; p < WORD_PAIRS; p++) {
            UNROLL
            for (int r = 0; r < rows; r++)
                add_pair(&dots[r][p % chains], pairs[p], words + r * BLOCK_COLUMNS + 2 * p);
        }
        UNROLL
        for (int r = 0; r < rows; r++)
            sums[r] = scaled(sums[r], _mm512_add_epi32(dots[r][0], dots[r][1]), scale, minimum, x,
                             unit + (size_t)r, q4);
    }
    put_tile(y, 0, sums, rows);
}

/* The same of PACK_Q8_HALVES: each half of a block has a sum of its own. */
INLINE void halves_tile(const struct group *group, uint32_t blocks, const struct tile *x,
                        const struct output *y, const int rows)
{
    floats16 sums[TILE_ROWS];

    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = lanes_zero();
    for (uint32_t b = 0; b < blocks; b++) {
        const uint8_t *lines = group->lines + b * group->line_bytes;
        const uint8_t *scales = group->scales + b * group->scale_bytes;
        const int16_t *words = x->words + (size_t)b * (size_t)rows * BLOCK_COLUMNS;
        size_t unit = (size_t)b * (size_t)rows;
        __m512i pairs[WORD_PAIRS], dots[TILE_ROWS][2];

        ahead(lines, HALVES_BLOCK_BYTES);
        words_of(lines, false, pairs);
        UNROLL
        for (int r = 0; r < rows; r++)
            dots[r][0] = dots[r][1] = _mm512_setzero_si512();
        UNROLL
        for (int p = 0; p < WORD_PAIRS; p++) {
            __m512i signed_pairs = _mm512_sub_epi16(pairs[p], _mm512_set1_epi16(128));

            UNROLL
            for (int r = 0; r < rows; r++)
                add_pair(&dots[r][p / (WORD_PAIRS / 2)], signed_pairs,
                         words + r * BLOCK_COLUMNS + 2 * p);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            size_t at = unit + (size_t)r;
            floats16 input = lanes_set(x->scales[at]);

            UNROLL
            for (int half = 0; half < 2; half++)
                sums[r] = lanes_fma(_mm512_cvtepi32_ps(dots[r][half]),
                                    lanes_mul(floats_at(scales + 64 * half), input), sums[r]);
            sums[r] = lanes_fma(floats_at(scales + 128), lanes_set(x->sums[at]), sums[r]);
        }
    }
    put_tile(y, 0, sums, rows);
}

/* --- floats ----------------------------------------------------------------------------------- */

/* Column `column` of a block as floats; constant after unrolling. */
INLINE floats16 column_of(const uint8_t *lines, const enum pack pack, const int column)
{
    const floats16 nibbles = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i line;
    __m256i half;

    switch (pack) {
    case PACK_F32:
        return lanes_load((const float *)lines + column * GROUP_ROWS);
    case PACK_F16:
        return lanes_load_f16(lines + 2 * column * GROUP_ROWS);
    case PACK_BF16:
        line = _mm512_cvtepu16_epi32(
            _mm256_load_si256((const __m256i *)(lines + 2 * column * GROUP_ROWS)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(line, 16));
    case PACK_F8: /* sign to the top bit, the rest to where an f16 has it */
        half = _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(lines + column * GROUP_ROWS)));
        half = _mm256_and_si256(_mm256_slli_epi16(half, 7), _mm256_set1_epi16((short)0xbf80));
        return _mm512_cvtph_ps(half);
    case PACK_Q4:
        /* vpermps looks at four bits of each lane: a nibble is its own index. */
        line = load_line(lines + 64 * (column / 8));
        return _mm512_permutexvar_ps(
            _mm512_srli_epi32(line, (unsigned)(8 * (column % 4) + column % 8 / 4 * 4)), nibbles);
    default:
        line = _mm512_xor_si512(load_line(lines + 64 * (column / 4)), _mm512_set1_epi8(-128));
        line = _mm512_slli_epi32(line, (unsigned)(24 - 8 * (column % 4)));
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(line, 24));
    }
}

INLINE void f32_tile(const struct group *group, uint32_t blocks, const struct tile *x,
                     const struct output *y, const int rows, const enum pack pack)
{
    floats16 sums[TILE_ROWS];

    UNROLL
    for (int r = 0; r < rows; r++)
        sums[r] = lanes_zero();
    for (uint32_t b = 0; b < blocks; b++) {
        const uint8_t *lines = group->lines + b * group->line_bytes;
        const uint8_t *scales = group->scales + b * group->scale_bytes;
        const float *values = x->f32 + (size_t)b * (size_t)rows * BLOCK_COLUMNS;
        const float *block_sums = x->sums_f32 + (size_t)b * (size_t)rows;
        floats16 dots[TILE_ROWS][2];

        UNROLL
        for (int r = 0; r < rows; r++)
            dots[r][0] = dots[r][1] = lanes_zero();
        UNROLL
        for (int c = 0; c < BLOCK_COLUMNS; c += 2) {
            floats16 even = column_of(lines, pack, c), odd = column_of(lines, pack, c + 1);
            if (pack == PACK_Q4 && group->e2m1) {
                even = _mm512_cvtepi32_ps(e2m1_of(_mm512_cvtps_epi32(even), 3));
                odd = _mm512_cvtepi32_ps(e2m1_of(_mm512_cvtps_epi32(odd), 3));
            }
            /* Two sums for even and odd columns, or for the halves with a scale each. */
            const int first = pack == PACK_Q8_HALVES ? c / 16 : 0;
            const int second = pack == PACK_Q8_HALVES ? c / 16 : 1;

            if (pack != PACK_F8)
                _mm_prefetch((const char *)lines + AHEAD_BYTES + 64 * (c / 2), _MM_HINT_T0);
            else if (c % 4 == 0)
                _mm_prefetch((const char *)lines + AHEAD_BYTES + 16 * c, _MM_HINT_T0);
            UNROLL
            for (int r = 0; r < rows; r++) {
                const float *at = values + r * BLOCK_COLUMNS + c;

                dots[r][first] = lanes_fma(even, lanes_set(at[0]), dots[r][first]);
                dots[r][second] = lanes_fma(odd, lanes_set(at[1]), dots[r][second]);
            }
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            floats16 dot = lanes_add(dots[r][0], dots[r][1]);

            if (pack == PACK_Q8_HALVES) {
                sums[r] = lanes_fma(dots[r][0], floats_at(scales), sums[r]);
                sums[r] = lanes_fma(dots[r][1], floats_at(scales + 64), sums[r]);
                sums[r] = lanes_fma(floats_at(scales + 128), lanes_set(block_sums[r]), sums[r]);
                continue;
            }
            if (pack == PACK_Q4 || pack == PACK_Q8)
                sums[r] = lanes_fma(dot, scale_of(group, scales), sums[r]);
            else if (pack == PACK_F8)
                sums[r] = lanes_fma(dot, floats_at(scales), sums[r]);
            else
                sums[r] = lanes_add(sums[r], dot);
            if (pack == PACK_Q4)
                sums[r] = lanes_fma(minimum_of(group, scales, scale_of(group, scales)),
                                    lanes_set(block_sums[r]), sums[r]);
        }
    }
    put_tile(y, 0, sums, rows);
}

/* --- the instances ---------------------------------------------------------------------------- */

/* Group `first`, and the next where y->groups is 2; one tile. */
typedef void tile_kernel(const struct packed *w, uint32_t first, const struct tile *x,
                         const struct output *y);

#define BYTES(NAME, ROWS, GROUPS, Q4, TWO)                                                   \
    static void NAME(const struct packed *w, uint32_t first, const struct tile *x,           \
                     const struct output *y)                                                 \
    {                                                                                        \
        struct group groups[2] = {group_at(w, first), group_at(w, first + (y->groups > 1))}; \
                                                                                             \
        bytes_tile(groups, w->blocks, x, y, ROWS, GROUPS, Q4, TWO);                          \
    }
#define ONE_GROUP(NAME, BODY, ROWS, WHAT)                                          \
    static void NAME(const struct packed *w, uint32_t first, const struct tile *x, \
                     const struct output *y)                                       \
    {                                                                              \
        struct group group = group_at(w, first);                                   \
                                                                                   \
        BODY(&group, w->blocks, x, y, ROWS, WHAT);                                 \
    }

#define HALVES(NAME, ROWS)                                                         \
    static void NAME(const struct packed *w, uint32_t first, const struct tile *x, \
                     const struct output *y)                                       \
    {                                                                              \
        struct group group = group_at(w, first);                                   \
                                                                                   \
        halves_tile(&group, w->blocks, x, y, ROWS);                                \
    }

HALVES(halves_1, 1)
HALVES(halves_2, 2)
HALVES(halves_4, 4)
HALVES(halves_8, 8)
BYTES(q4_two_1, 1, 2, true, true)
BYTES(q4_two_2, 2, 2, true, true)
BYTES(q8_two_1, 1, 2, false, true)
BYTES(q8_two_2, 2, 2, false, true)
BYTES(q4_one_1, 1, 2, true, false)
BYTES(q4_one_2, 2, 2, true, false)
BYTES(q4_one_4, 4, 1, true, false)
BYTES(q4_one_8, 8, 1, true, false)
BYTES(q8_one_1, 1, 2, false, false)
BYTES(q8_one_2, 2, 2, false, false)
BYTES(q8_one_4, 4, 1, false, false)
BYTES(q8_one_8, 8, 1, false, false)
ONE_GROUP(q4_words_1, words_tile, 1, true)
ONE_GROUP(q4_words_2, words_tile, 2, true)
ONE_GROUP(q4_words_4, words_tile, 4, true)
ONE_GROUP(q4_words_8, words_tile, 8, true)
ONE_GROUP(q8_words_1, words_tile, 1, false)
ONE_GROUP(q8_words_2, words_tile, 2, false)
ONE_GROUP(q8_words_4, words_tile, 4, false)
ONE_GROUP(q8_words_8, words_tile, 8, false)
ONE_GROUP(f32_1, f32_tile, 1, PACK_F32)
ONE_GROUP(f32_2, f32_tile, 2, PACK_F32)
ONE_GROUP(f32_4, f32_tile, 4, PACK_F32)
ONE_GROUP(f32_8, f32_tile, 8, PACK_F32)
ONE_GROUP(f16_1, f32_tile, 1, PACK_F16)
ONE_GROUP(f16_2, f32_tile, 2, PACK_F16)
ONE_GROUP(f16_4, f32_tile, 4, PACK_F16)
ONE_GROUP(f16_8, f32_tile, 8, PACK_F16)
ONE_GROUP(bf16_1, f32_tile, 1, PACK_BF16)
ONE_GROUP(bf16_2, f32_tile, 2, PACK_BF16)
ONE_GROUP(bf16_4, f32_tile, 4, PACK_BF16)
ONE_GROUP(bf16_8, f32_tile, 8, PACK_BF16)
ONE_GROUP(f8_1, f32_tile, 1, PACK_F8)
ONE_GROUP(f8_2, f32_tile, 2, PACK_F8)
ONE_GROUP(f8_4, f32_tile, 4, PACK_F8)
ONE_GROUP(f8_8, f32_tile, 8, PACK_F8)
ONE_GROUP(halves_f32_1, f32_tile, 1, PACK_Q8_HALVES)
ONE_GROUP(halves_f32_2, f32_tile, 2, PACK_Q8_HALVES)
ONE_GROUP(halves_f32_4, f32_tile, 4, PACK_Q8_HALVES)
ONE_GROUP(halves_f32_8, f32_tile, 8, PACK_Q8_HALVES)
ONE_GROUP(q4_f32_1, f32_tile, 1, PACK_Q4)
ONE_GROUP(q4_f32_2, f32_tile, 2, PACK_Q4)
ONE_GROUP(q4_f32_4, f32_tile, 4, PACK_Q4)
ONE_GROUP(q4_f32_8, f32_tile, 8, PACK_Q4)
ONE_GROUP(q8_f32_1, f32_tile, 1, PACK_Q8)
ONE_GROUP(q8_f32_2, f32_tile, 2, PACK_Q8)
ONE_GROUP(q8_f32_4, f32_tile, 4, PACK_Q8)
ONE_GROUP(q8_f32_8, f32_tile, 8, PACK_Q8)

/* For tiles of 1, 2, 4 and 8 rows. */
static tile_kernel *const two_kernels[PACK_COUNT][4] = {
    [PACK_Q4] = {q4_two_1, q4_two_2},
    [PACK_Q8] = {q8_two_1, q8_two_2},
};
static tile_kernel *const one_kernels[PACK_COUNT][4] = {
    [PACK_Q4] = {q4_one_1, q4_one_2, q4_one_4, q4_one_8},
    [PACK_Q8] = {q8_one_1, q8_one_2, q8_one_4, q8_one_8},
};
static tile_kernel *const words_kernels[PACK_COUNT][4] = {
    [PACK_Q4] = {q4_words_1, q4_words_2, q4_words_4, q4_words_8},
    [PACK_Q8] = {q8_words_1, q8_words_2, q8_words_4, q8_words_8},
    [PACK_Q8_HALVES] = {halves_1, halves_2, halves_4, halves_8},
};
static tile_kernel *const f32_kernels[PACK_COUNT][4] = {
    [PACK_F32] = {f32_1, f32_2, f32_4, f32_8},
    [PACK_F16] = {f16_1, f16_2, f16_4, f16_8},
    [PACK_BF16] = {bf16_1, bf16_2, bf16_4, bf16_8},
    [PACK_F8] = {f8_1, f8_2, f8_4, f8_8},
    [PACK_Q8_HALVES] = {halves_f32_1, halves_f32_2, halves_f32_4, halves_f32_8},
    [PACK_Q4] = {q4_f32_1, q4_f32_2, q4_f32_4, q4_f32_8},
    [PACK_Q8] = {q8_f32_1, q8_f32_2, q8_f32_4, q8_f32_8},
};

/* --- the contract ----------------------------------------------------------------------------- */

enum form form_avx512(enum pack pack, enum precision precision, uint32_t rows)
{
    if (precision == PRECISION_F32 || pack < PACK_Q4 || pack > PACK_Q8_HALVES)
        return FORM_F32;
    if (pack == PACK_Q8_HALVES)
        return FORM_WORDS;
    if (precision == PRECISION_INT8 || rows <= BYTE_ROWS_MAX)
        return FORM_BYTES;
    return FORM_WORDS;
}

static tile_kernel *const *kernels_for(const struct packed *w, const struct activations *x)
{
    bool quantized = w->pack >= PACK_Q4 && w->pack <= PACK_Q8_HALVES;

    if (!quantized || x->precision == PRECISION_F32)
        return f32_kernels[w->pack];
    if (!(x->forms & FORM_BYTES) || w->pack == PACK_Q8_HALVES)
        return words_kernels[w->pack];
    return x->precision == PRECISION_INT8 ? one_kernels[w->pack] : two_kernels[w->pack];
}

/* All rows of x, tile by tile; `block` is where in x the weights begin. */
static void all_tiles(tile_kernel *const *kernels, const struct packed *w, uint32_t group,
                      const struct activations *x, uint32_t block, struct output y)
{
    for (uint32_t row = 0; row < x->rows; row += TILE_ROWS) {
        struct tile tile = tile_at(x, row, block);

        y.rows = (int)(x->rows - row);
        kernels[__builtin_ctz(tile_places(x->rows, row))](w, group, &tile, &y);
        y.to += TILE_ROWS * y.stride;
    }
}

/* Rows as the file has them: a piece at a time is made into floats and multiplied. */
static void product_raw(const struct packed *w, uint32_t group, const struct activations *x,
                        struct output y, const struct kernel_scratch *scratch)
{
    for (uint32_t b = 0; b < w->blocks; b += RAW_BLOCKS) {
        uint32_t count = w->blocks - b < RAW_BLOCKS ? w->blocks - b : RAW_BLOCKS;
        struct packed piece = {
            .pack = PACK_F32, .blocks = count, .data = (const uint8_t *)scratch->raw};

        packed_raw_blocks(w, group, b, count, scratch->raw);
        all_tiles(f32_kernels[PACK_F32], &piece, 0, x, b, y);
        y.add = true;
    }
}

void product_avx512(const struct packed *w, uint32_t first, uint32_t count,
                    const struct activations *x, float *y, size_t stride, bool add,
                    const struct kernel_scratch *scratch)
{
    tile_kernel *const *kernels = kernels_for(w, x);
    /* Byte kernels of one and two rows take groups by two; with so few rows there is one tile. */
    bool bytes = kernels == one_kernels[w->pack] || kernels == two_kernels[w->pack];
    uint32_t together = bytes && x->rows <= BYTE_ROWS_MAX ? 2 : 1;

    for (uint32_t g = 0; g < count; g += together) {
        struct output output = {
            .to = y + g * GROUP_ROWS,
            .stride = stride,
            .groups = count - g < together ? 1 : (int)together,
            .add = add,
        };

        if (w->pack == PACK_RAW)
            product_raw(w, first + g, x, output, scratch);
        else
            all_tiles(kernels, w, first + g, x, 0, output);
    }
}

/* --- inputs ----------------------------------------------------------------------------------- */

/* Only where there is NaN, which is converted to INT32_MIN and may hide the largest value, is
 * anything out of range. */
static __m512i to_range(floats16 values, float most)
{
    __m512i q = _mm512_min_epi32(_mm512_cvtps_epi32(values), _mm512_set1_epi32((int)most));

    return _mm512_max_epi32(q, _mm512_set1_epi32(-(int)most));
}

static void put_integers(const struct activations *x, size_t unit, floats16 first, floats16 second)
{
    const float most =
        x->precision == PRECISION_INT8 ? ACTIVATION_INT8_MOST : ACTIVATION_INT16_MOST;
    float largest = lanes_largest(lanes_max(lanes_abs(first), lanes_abs(second)));
    bool zeros = !(largest > ACTIVATION_LEAST);
    floats16 inverse = lanes_set(zeros ? 0 : most / largest);
    __m512i q[2] = {to_range(lanes_mul(first, inverse), most),
                    to_range(lanes_mul(second, inverse), most)};
    int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(q[0], q[1]));

    x->scales[unit] = zeros ? 0 : largest / most;
    x->sums[unit] = x->scales[unit] * (float)sum;
    x->offsets[unit] = -128 * sum;
    for (int i = 0; i < 2; i++) {
        size_t at = unit * BLOCK_COLUMNS + (size_t)i * LANES;

        if (x->forms & FORM_WORDS) {
            __m512i ordered = _mm512_shuffle_epi32(q[i], _MM_PERM_DBCA);

            _mm256_storeu_si256((__m256i *)(x->words + at), _mm512_cvtepi32_epi16(ordered));
        }
        if (x->forms & FORM_BYTES) {
            __m512i high = q[i];

            if (x->precision != PRECISION_INT8) {
                high = _mm512_srai_epi32(_mm512_add_epi32(high, _mm512_set1_epi32(128)), 8);
                _mm_storeu_si128((__m128i *)(x->low + at), _mm512_cvtepi32_epi8(q[i]));
            }
            _mm_storeu_si128((__m128i *)(x->high + at), _mm512_cvtepi32_epi8(high));
        }
    }
}

void put_avx512(const struct activations *x, uint32_t row, uint32_t first_block,
                uint32_t block_count, const float *values)
{
    for (uint32_t b = first_block; b < first_block + block_count; b++, values += BLOCK_COLUMNS) {
        floats16 first = lanes_load(values), second = lanes_load(values + LANES);
        size_t unit = unit_of(x, row, b);

        if (x->forms & FORM_F32) {
            lanes_store(x->f32 + unit * BLOCK_COLUMNS, first);
            lanes_store(x->f32 + unit * BLOCK_COLUMNS + LANES, second);
            x->sums_f32[unit] = lanes_sum(lanes_add(first, second));
        }
        if (x->forms & (FORM_WORDS | FORM_BYTES))
            put_integers(x, unit, first, second);
    }
}
