/* packed.c -- puts the file's rows into the packed layout, once, when a model is loaded. */
#include "kernels/cpu/packed.h"

#include <stdbool.h>
#include <string.h>

#include "config/base/fault.h"
#include "kernels/cpu/dequant.h"
#include "kernels/cpu/dequant_tables.h"
#include "kernels/cpu/half.h"

enum { LINE = 64, LANE_BYTES = 4, K_BLOCK = 256 };

static const enum pack packs[DTYPE_COUNT] = {
    [DT_F32] = PACK_F32,        [DT_F16] = PACK_F16,   [DT_BF16] = PACK_BF16,
    [DT_Q4_0] = PACK_Q4,        [DT_Q4_1] = PACK_Q4,   [DT_Q5_0] = PACK_Q8,
    [DT_Q5_1] = PACK_RAW,       [DT_Q8_0] = PACK_Q8,   [DT_Q2_K] = PACK_RAW,
    [DT_Q3_K] = PACK_Q8_HALVES, [DT_Q4_K] = PACK_Q4,   [DT_Q5_K] = PACK_Q8_HALVES,
    [DT_Q6_K] = PACK_Q8_HALVES, [DT_IQ4_NL] = PACK_Q8, [DT_IQ4_XS] = PACK_RAW,
    [DT_IQ3_XXS] = PACK_RAW,    [DT_IQ3_S] = PACK_RAW, [DT_IQ2_XXS] = PACK_RAW,
    [DT_IQ2_XS] = PACK_RAW,     [DT_IQ2_S] = PACK_RAW, [DT_IQ1_S] = PACK_RAW,
    [DT_IQ1_M] = PACK_RAW,      [DT_TQ1_0] = PACK_RAW, [DT_TQ2_0] = PACK_RAW,
    [DT_MXFP4] = PACK_Q4,       [DT_NVFP4] = PACK_RAW, [DT_F8_E4M3] = PACK_RAW,
    [DT_F8_E8M0] = PACK_RAW,    [DT_I8] = PACK_RAW,    [DT_INT4] = PACK_RAW,
    [DT_GPTQ4] = PACK_RAW,      [DT_AWQ4] = PACK_RAW,  [DT_E2M1] = PACK_RAW,
};

/* Of a block of 16 rows x 32 columns. */
static const size_t block_bytes[PACK_COUNT] = {
    [PACK_F32] = BLOCK_COLUMNS * GROUP_ROWS * 4,
    [PACK_F16] = BLOCK_COLUMNS * GROUP_ROWS * 2,
    [PACK_BF16] = BLOCK_COLUMNS * GROUP_ROWS * 2,
    [PACK_Q4] = Q4_BLOCK_BYTES,
    [PACK_F8] = F8_BLOCK_BYTES,
    [PACK_Q8_HALVES] = HALVES_BLOCK_BYTES,
    [PACK_Q8] = Q8_LINES_BYTES + Q8_SCALES_BYTES,
};

static struct packed shape_as(enum pack pack, enum dtype type, uint32_t rows, uint32_t columns)
{
    struct packed packed = {.pack = pack, .type = type, .rows = rows, .columns = columns};

    packed.groups = rows / GROUP_ROWS + (rows % GROUP_ROWS != 0);
    packed.blocks = columns / BLOCK_COLUMNS + (columns % BLOCK_COLUMNS != 0);
    if (packed.pack == PACK_RAW)
        packed.group_bytes = GROUP_ROWS * dtype_bytes(type, columns);
    else
        /* Whole lines, so that each group begins on one. */
        packed.group_bytes = (packed.blocks * block_bytes[packed.pack] + LINE - 1) / LINE * LINE;
    packed.e2m1 = packed.pack == PACK_Q4 && (type == DT_MXFP4 || type == DT_E2M1);
    packed.wide = type == DT_Q4_K || packed.e2m1;
    if (packed.wide)
        packed.group_bytes = (size_t)packed.blocks * Q4_WIDE_BYTES;
    return packed;
}

struct packed packed_shape(enum dtype type, uint32_t rows, uint32_t columns)
{
    return shape_as(packs[type], type, rows, columns);
}

struct packed packed_shape_tables(const struct quant_tables *tables, uint32_t rows,
                                  uint32_t columns)
{
    bool whole = tables->scale_columns % BLOCK_COLUMNS == 0 || tables->groups == 1;
    enum pack pack = PACK_RAW;
    struct packed packed;

    if (tables->type == DT_F8_E4M3)
        pack = PACK_F8;
    else if (tables->type == DT_I8 && tables->zero_kind == ZEROS_NONE)
        pack = PACK_Q8;
    else if (tables->type == DT_INT4 || tables->type == DT_GPTQ4 || tables->type == DT_AWQ4 ||
             tables->type == DT_E2M1)
        pack = PACK_Q4;
    packed = shape_as(whole && !tables->group_of ? pack : PACK_RAW, tables->type, rows, columns);
    packed.zeros = packed.pack == PACK_Q4 && !packed.e2m1;
    return packed;
}

size_t packed_bytes(const struct packed *packed)
{
    return packed->pack == PACK_RAW ? 0 : packed->groups * packed->group_bytes;
}

/* Where a block's lines begin in its group. */
static size_t q8_lines_at(const struct packed *packed, uint32_t block)
{
    size_t scales = ((size_t)packed->blocks * Q8_SCALES_BYTES + LINE - 1) / LINE * LINE;

    return scales + (size_t)block * Q8_LINES_BYTES;
}

static void put_u16(uint8_t *to, uint32_t index, uint16_t value)
{
    memcpy(to + 2 * index, &value, sizeof value);
}

static void put_float(uint8_t *to, uint32_t index, float value)
{
    memcpy(to + 4 * index, &value, sizeof value);
}

/* --- one source row into lane `lane` of a group ----------------------------------------------- */

static void put_floats(const struct packed *packed, const uint8_t *source, uint32_t lane,
                       uint32_t first_column, uint8_t *to)
{
    size_t bytes = packed->pack == PACK_F32 ? 4 : 2;

    for (uint32_t column = first_column; column < packed->columns; column++)
        memcpy(to + (column * GROUP_ROWS + lane) * bytes, source + column * bytes, bytes);
}

/* --- a whole group of floats: rows become columns --------------------------------------------- */

typedef uint16_t halves __attribute__((vector_size(16)));
typedef uint32_t words __attribute__((vector_size(16)));

/* 8 rows of 8 halves, `stride` bytes apart, to 8 columns, each in a line of 16 halves. */
static void turn_halves(const uint8_t *from, size_t stride, uint8_t *to)
{
    halves rows[8], pairs[8];

    for (int i = 0; i < 8; i++)
        memcpy(&rows[i], from + i * stride, sizeof rows[i]);
    /* Three rounds of interleaving row i with row i + 4: each moves one bit of the row's number
     * to the column's. */
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            pairs[2 * i] = __builtin_shufflevector(rows[i], rows[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            pairs[2 * i + 1] =
                __builtin_shufflevector(rows[i], rows[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        memcpy(rows, pairs, sizeof rows);
    }
    for (int i = 0; i < 8; i++)
        memcpy(to + i * GROUP_ROWS * sizeof(uint16_t), &rows[i], sizeof rows[i]);
}

/* The same for 4 rows of 4 floats. */
static void turn_words(const uint8_t *from, size_t stride, uint8_t *to)
{
    words rows[4], pairs[4];

    for (int i = 0; i < 4; i++)
        memcpy(&rows[i], from + i * stride, sizeof rows[i]);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2; i++) {
            pairs[2 * i] = __builtin_shufflevector(rows[i], rows[i + 2], 0, 4, 1, 5);
            pairs[2 * i + 1] = __builtin_shufflevector(rows[i], rows[i + 2], 2, 6, 3, 7);
        }
        memcpy(rows, pairs, sizeof rows);
    }
    for (int i = 0; i < 4; i++)
        memcpy(to + i * GROUP_ROWS * sizeof(uint32_t), &rows[i], sizeof rows[i]);
}

/* 16 whole rows, as many whole lines of 64 bytes as they have; returns the columns done. A line of
 * each row is brought together first: rows often lie a multiple of 4 KiB apart, where a cache
 * cannot hold sixteen of them. */
static uint32_t put_lines(const struct packed *packed, const uint8_t *source, size_t row_bytes,
                          uint8_t *to)
{
    bool wide = packed->pack == PACK_F32;
    size_t bytes = wide ? 4 : 2, square = wide ? 4 : 8; /* rows and columns of one turn */
    uint32_t columns = LINE / (uint32_t)bytes, lines = packed->columns / columns;
    uint8_t together[GROUP_ROWS * LINE];

    for (uint32_t line = 0; line < lines; line++) {
        for (uint32_t row = 0; row < GROUP_ROWS; row++)
            memcpy(together + row * LINE, source + row * row_bytes + line * (size_t)LINE, LINE);
        for (size_t row = 0; row < GROUP_ROWS; row += square) {
            for (size_t column = 0; column < columns; column += square) {
                const uint8_t *from = together + row * LINE + column * bytes;
                uint8_t *at = to + ((line * columns + column) * GROUP_ROWS + row) * bytes;

                if (wide)
                    turn_words(from, LINE, at);
                else
                    turn_halves(from, LINE, at);
            }
        }
    }
    return lines * columns;
}

static uint32_t load_u32(const uint8_t *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof value);
    return value;
}

static void put_q4(const struct packed *packed, const uint8_t *source, uint32_t lane, uint8_t *to)
{
    bool centred = packed->type == DT_Q4_0;
    uint32_t source_bytes = dtype_get(packed->type)->bytes;

    for (uint32_t b = 0; b < packed->blocks; b++, source += source_bytes, to += Q4_BLOCK_BYTES) {
        const uint8_t *nibbles = source + (centred ? 2 : 4);

        /* Four columns a word. The source has columns 0..15 in low nibbles and 16..31 in high. */
        for (int j = 0; j < 4; j++) {
            int shift = j < 2 ? 0 : 4;
            uint32_t low = load_u32(nibbles + 8 * (j % 2)) >> shift & 0x0f0f0f0f;
            uint32_t high = load_u32(nibbles + 8 * (j % 2) + 4) >> shift & 0x0f0f0f0f;
            uint32_t word = low | high << 4;

            memcpy(to + LINE * j + LANE_BYTES * lane, &word, sizeof word);
        }
        put_u16(to + 256, lane, load_u16(source));
        /* Eight times a scale is exact in f16 (a scale above 8,188 would overflow to infinity). */
        put_u16(to + 288, lane,
                centred ? f16_from_float(-8 * load_f16(source)) : load_u16(source + 2));
    }
}

/* A row of a K type: blocks of 256, each eight of ours. */
static void put_k(const struct packed *packed, const uint8_t *source, uint32_t lane, uint8_t *to)
{
    float scales[16], minimums[16];
    int8_t q[K_BLOCK];

    for (uint32_t b = 0; b < packed->blocks; b++) {
        uint32_t part = b % 8 * 2;
        uint8_t *block = to + (size_t)b * (packed->wide ? Q4_WIDE_BYTES : HALVES_BLOCK_BYTES);
        uint8_t *after = block + (packed->wide ? 256 : Q8_LINES_BYTES);

        if (part == 0)
            dequant_parts(packed->type, source + b / 8 * dtype_get(packed->type)->bytes, q, scales,
                          minimums);
        for (uint32_t i = 0; i < BLOCK_COLUMNS; i++) {
            int8_t value = q[16 * part + i];

            if (packed->wide)
                block[LINE * (i / 8) + LANE_BYTES * lane + i % 4] |=
                    (uint8_t)(value << (i % 8 < 4 ? 0 : 4));
            else
                block[LINE * (i / 4) + LANE_BYTES * lane + i % 4] = (uint8_t)(value + 128);
        }
        put_float(after, lane, scales[part]);
        if (!packed->wide)
            put_float(after += LINE, lane, scales[part + 1]);
        put_float(after + LINE, lane, -minimums[part]);
    }
}

static void q8_values(enum dtype type, const uint8_t *source, uint8_t *values)
{
    for (int i = 0; i < 16; i++) {
        switch (type) {
        case DT_Q5_0:
            values[i] = (uint8_t)((source[6 + i] & 15) | (source[2 + i / 8] >> i % 8 & 1) << 4);
            values[i + 16] = (uint8_t)(source[6 + i] >> 4 | (source[4 + i / 8] >> i % 8 & 1) << 4);
            values[i] = (uint8_t)(values[i] - 16);
            values[i + 16] = (uint8_t)(values[i + 16] - 16);
            break;
        case DT_IQ4_NL:
            values[i] = (uint8_t)dequant_iq4_nl_values[source[2 + i] & 15];
            values[i + 16] = (uint8_t)dequant_iq4_nl_values[source[2 + i] >> 4];
            break;
        default:
            values[i] = source[2 + i];
            values[i + 16] = source[2 + i + 16];
        }
    }
}

static void put_q8(const struct packed *packed, const uint8_t *source, uint32_t lane, uint8_t *to)
{
    uint32_t source_bytes = dtype_get(packed->type)->bytes;

    for (uint32_t b = 0; b < packed->blocks; b++, source += source_bytes) {
        uint8_t *lines = to + q8_lines_at(packed, b);
        uint8_t values[BLOCK_COLUMNS];

        q8_values(packed->type, source, values);
        put_u16(to + Q8_SCALES_BYTES * b, lane, load_u16(source));
        for (int j = 0; j < BLOCK_COLUMNS / LANE_BYTES; j++) {
            /* + 128 in two's complement: the uppermost bit turns over. */
            uint32_t word = load_u32(values + LANE_BYTES * j) ^ 0x80808080;

            memcpy(lines + LINE * j + LANE_BYTES * lane, &word, sizeof word);
        }
    }
}

/* Where a row lies in the tables. */
static uint32_t tables_row(const struct packed *packed, uint32_t row)
{
    if (packed->block_rows > 0)
        row = row / packed->block_rows * packed->block_stride + row % packed->block_rows;
    return packed->first_row + row;
}

/* 32 floats of 4 bits; `scale` of the doubled ones. */
static void put_e2m1(const uint8_t *nibbles, float scale, uint32_t lane, uint8_t *block)
{
    for (uint32_t i = 0; i < BLOCK_COLUMNS; i++)
        block[LINE * (i / 8) + LANE_BYTES * lane + i % 4] |=
            (uint8_t)(nibbles[i] << (i % 8 < 4 ? 0 : 4));
    put_float(block + 256, lane, scale);
    put_float(block + 320, lane, -12 * scale);
}

/* A row of MXFP4, in GGUF's blocks. */
static void put_mxfp4(const struct packed *packed, const uint8_t *source, uint32_t lane,
                      uint8_t *to)
{
    for (uint32_t b = 0; b < packed->blocks; b++, source += 17, to += Q4_WIDE_BYTES) {
        uint8_t nibbles[BLOCK_COLUMNS];

        for (int i = 0; i < 16; i++) {
            nibbles[i] = source[1 + i] & 15;
            nibbles[i + 16] = source[1 + i] >> 4;
        }
        put_e2m1(nibbles, dequant_mxfp4_scale(source[0]), lane, to);
    }
}

/* One row with tables; each block has one scale and one zero. */
static void put_tables(const struct packed *packed, uint32_t row, uint32_t lane, uint8_t *to)
{
    uint32_t from = tables_row(packed, row);

    for (uint32_t b = 0; b < packed->blocks; b++) {
        uint32_t first = b * BLOCK_COLUMNS, left = packed->columns - first;
        uint32_t count = left < BLOCK_COLUMNS ? left : BLOCK_COLUMNS;
        float scale = tables_scale(packed->tables, from, first);
        float zero = tables_zero(packed->tables, from, first), values[BLOCK_COLUMNS];

        for (uint32_t i = 0; i < BLOCK_COLUMNS; i++)
            values[i] = zero;
        tables_elements(packed->tables, from, first, count, values);
        if (packed->e2m1) {
            uint8_t nibbles[BLOCK_COLUMNS] = {0};

            for (uint32_t i = 0; i < count; i++)
                nibbles[i] = tables_nibble(packed->tables, from, first + i);
            put_e2m1(nibbles, scale / 2, lane, to + b * Q4_WIDE_BYTES);
        } else if (packed->pack == PACK_Q4) {
            uint8_t *block = to + b * Q4_BLOCK_BYTES;

            for (uint32_t i = 0; i < BLOCK_COLUMNS; i++)
                block[LINE * (i / 8) + LANE_BYTES * lane + i % 4] |=
                    (uint8_t)((int)values[i] << (i % 8 < 4 ? 0 : 4));
            put_u16(block + 256, lane, f16_from_float(scale));
            put_u16(block + 288, lane, f16_from_float(-zero));
        } else {
            uint8_t *lines = to + q8_lines_at(packed, b);

            put_u16(to + Q8_SCALES_BYTES * b, lane, f16_from_float(scale));
            for (uint32_t i = 0; i < BLOCK_COLUMNS; i++)
                lines[LINE * (i / 4) + LANE_BYTES * lane + i % 4] = (uint8_t)((int)values[i] + 128);
        }
    }
}

static void put_f8(const struct packed *packed, uint32_t row, uint32_t lane, uint8_t *to)
{
    const struct quant_tables *tables = packed->tables;
    uint32_t from = tables_row(packed, row);
    const uint8_t *bytes = (const uint8_t *)tables->data + (size_t)from * tables->columns;

    for (uint32_t b = 0; b < packed->blocks; b++, to += F8_BLOCK_BYTES) {
        uint32_t first = b * BLOCK_COLUMNS, left = packed->columns - first;
        float scale = 256 * tables_scale(tables, from, first);

        for (uint32_t i = 0; i < BLOCK_COLUMNS && i < left; i++)
            to[GROUP_ROWS * i + lane] = bytes[first + i];
        memcpy(to + F8_LINES_BYTES + 4 * lane, &scale, sizeof scale);
    }
}

/* 16 rows, or as many as there are, that need no tables. */
static void put_rows(const struct packed *packed, const void *source, uint32_t group, uint8_t *to)
{
    size_t row_bytes = dtype_bytes(packed->type, packed->columns);
    uint32_t first = group * GROUP_ROWS;
    const uint8_t *row = (const uint8_t *)source + first * row_bytes;
    size_t done = 0;      /* bytes of the group, from its beginning */
    uint32_t columns = 0; /* the same in columns, of floats */

    if (packed->pack <= PACK_BF16 && packed->rows - first >= GROUP_ROWS) {
        columns = put_lines(packed, row, row_bytes, to);
        done = columns * (block_bytes[packed->pack] / BLOCK_COLUMNS);
    }
    memset(to + done, 0, packed->group_bytes - done);
    if (columns == packed->columns)
        return;
    for (uint32_t lane = 0; lane < GROUP_ROWS && first + lane < packed->rows; lane++) {
        if (packed->e2m1)
            put_mxfp4(packed, row, lane, to);
        else if (packed->wide || packed->pack == PACK_Q8_HALVES)
            put_k(packed, row, lane, to);
        else if (packed->pack == PACK_Q4)
            put_q4(packed, row, lane, to);
        else if (packed->pack == PACK_Q8)
            put_q8(packed, row, lane, to);
        else
            put_floats(packed, row, lane, columns, to);
        row += row_bytes;
    }
}

void packed_group(const struct packed *packed, const void *source, uint32_t group, uint8_t *to)
{
    uint32_t first = group * GROUP_ROWS;

    must(packed->pack != PACK_RAW);
    if (!packed->tables) {
        put_rows(packed, source, group, to);
        return;
    }
    memset(to, 0, packed->group_bytes);
    for (uint32_t lane = 0; lane < GROUP_ROWS && first + lane < packed->rows; lane++) {
        if (packed->pack == PACK_F8)
            put_f8(packed, first + lane, lane, to);
        else
            put_tables(packed, first + lane, lane, to);
    }
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Columns first .. + count - 1 of a row that is not packed; whole blocks of its format. */
static void read_raw(const struct packed *packed, uint32_t row, uint32_t first, uint32_t count,
                     float *to)
{
    const struct dtype_info *info = dtype_get(packed->type);

    if (packed->tables)
        dequant_tables(packed->tables, tables_row(packed, row), first, count, to);
    else
        dequant_row(packed->type,
                    packed->data + row * dtype_bytes(packed->type, packed->columns) +
                        first / info->block * info->bytes,
                    count, to);
}

void packed_raw_blocks(const struct packed *packed, uint32_t group, uint32_t first_block,
                       uint32_t block_count, float *to)
{
    uint32_t first = first_block * BLOCK_COLUMNS, row = group * GROUP_ROWS;
    uint32_t end = first + block_count * BLOCK_COLUMNS;

    for (uint32_t lane = 0; lane < GROUP_ROWS; lane++, row++) {
        for (uint32_t at = first; at < end; at += K_BLOCK) {
            uint32_t count = end - at < K_BLOCK ? end - at : K_BLOCK;
            uint32_t there =
                at >= packed->columns || row >= packed->rows ? 0 : packed->columns - at;
            float values[K_BLOCK] = {0};

            if (there > 0)
                read_raw(packed, row, at, there < count ? there : count, values);
            for (uint32_t i = 0; i < count; i++)
                to[(at - first + i) * GROUP_ROWS + lane] = values[i];
        }
    }
}

const uint8_t packed_e2m1[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

static float load_float(const uint8_t *from, uint32_t index)
{
    float value;

    memcpy(&value, from + 4 * index, sizeof value);
    return value;
}

static void row_q4(const struct packed *packed, const uint8_t *group, uint32_t lane, float *to)
{
    for (uint32_t b = 0; b < packed->blocks; b++) {
        float scale =
            packed->wide ? load_float(group + 256, lane) : load_f16(group + 256 + 2 * lane);
        float minimum =
            packed->wide ? load_float(group + 320, lane) : load_f16(group + 288 + 2 * lane);

        if (packed->zeros)
            minimum *= scale;
        for (int i = 0; i < BLOCK_COLUMNS; i++) {
            uint8_t byte = group[LINE * (i / 8) + LANE_BYTES * lane + i % 4];

            int q = i % 8 < 4 ? byte & 15 : byte >> 4;

            *to++ = scale * (float)(packed->e2m1 ? packed_e2m1[q] : q) + minimum;
        }
        group += packed->wide ? Q4_WIDE_BYTES : Q4_BLOCK_BYTES;
    }
}

static void row_halves(const struct packed *packed, const uint8_t *group, uint32_t lane, float *to)
{
    for (uint32_t b = 0; b < packed->blocks; b++, group += HALVES_BLOCK_BYTES) {
        const uint8_t *after = group + Q8_LINES_BYTES;

        for (uint32_t i = 0; i < BLOCK_COLUMNS; i++)
            *to++ = load_float(after + LINE * (i / 16), lane) *
                        (float)(group[LINE * (i / 4) + LANE_BYTES * lane + i % 4] - 128) +
                    load_float(after + 2 * LINE, lane);
    }
}

static void row_q8(const struct packed *packed, const uint8_t *group, uint32_t lane, float *to)
{
    for (uint32_t b = 0; b < packed->blocks; b++) {
        const uint8_t *lines = group + q8_lines_at(packed, b);
        float scale = load_f16(group + Q8_SCALES_BYTES * b + 2 * lane);

        for (int i = 0; i < BLOCK_COLUMNS; i++)
            *to++ = scale * (float)(lines[LINE * (i / 4) + LANE_BYTES * lane + i % 4] - 128);
    }
}

static void row_f8(const struct packed *packed, const uint8_t *group, uint32_t lane, float *to)
{
    for (uint32_t b = 0; b < packed->blocks; b++, group += F8_BLOCK_BYTES) {
        float scale;

        memcpy(&scale, group + F8_LINES_BYTES + 4 * lane, sizeof scale);
        for (uint32_t i = 0; i < BLOCK_COLUMNS; i++)
            *to++ = scale * f8_value(group[GROUP_ROWS * i + lane]);
    }
}

static void row_floats(const struct packed *packed, const uint8_t *group, uint32_t lane, float *to)
{
    for (uint32_t i = lane; i < packed->blocks * BLOCK_COLUMNS * GROUP_ROWS; i += GROUP_ROWS) {
        if (packed->pack == PACK_F32)
            memcpy(to++, group + 4 * i, sizeof *to);
        else if (packed->pack == PACK_F16)
            *to++ = load_f16(group + 2 * i);
        else
            *to++ = float_from_bf16(load_u16(group + 2 * i));
    }
}

void packed_row(const struct packed *packed, uint32_t row, float *to)
{
    const uint8_t *group = packed->data + row / GROUP_ROWS * packed->group_bytes;
    uint32_t lane = row % GROUP_ROWS;

    switch (packed->pack) {
    case PACK_RAW:
        memset(to, 0, packed->blocks * BLOCK_COLUMNS * sizeof *to);
        read_raw(packed, row, 0, packed->columns, to);
        break;
    case PACK_Q4:
        row_q4(packed, group, lane, to);
        break;
    case PACK_Q8:
        row_q8(packed, group, lane, to);
        break;
    case PACK_F8:
        row_f8(packed, group, lane, to);
        break;
    case PACK_Q8_HALVES:
        row_halves(packed, group, lane, to);
        break;
    default:
        row_floats(packed, group, lane, to);
    }
}
