/* weight_part.c -- see weight_part.h. What is neither copied nor random goes through floats, a
 * piece at a time. */
#include "engine/weight_part.h"

#include <string.h>

#include "kernels/cpu/dequant.h"
#include "kernels/cpu/dequant_tables.h"
#include "kernels/cpu/half.h"

enum { PIECE = 1024 }; /* elements; a multiple of every format's block */

static void put_floats(const float *from, uint32_t count, enum dtype type, void *to)
{
    if (type == DT_F32)
        memcpy(to, from, count * sizeof *from);
    for (uint32_t i = 0; i < count && type != DT_F32; i++) {
        uint16_t half = type == DT_F16 ? f16_from_float(from[i]) : bf16_from_float(from[i]);

        memcpy((char *)to + i * sizeof half, &half, sizeof half);
    }
}

/* As the part stores them: a weight that is random in BF16 has no more digits in F32. */
static void make_floats(const struct weight_part *part, uint64_t index, uint32_t count, float *to)
{
    for (uint32_t i = 0; i < count; i++) {
        if (part->type == DT_BF16)
            to[i] = float_from_bf16(random_weight_bf16(part->random, index + i));
        else
            to[i] = random_weight_value(part->random, index + i);
    }
    for (uint32_t i = 0; i < count && part->type == DT_F16; i++)
        to[i] = float_from_f16(f16_from_float(to[i]));
    for (uint32_t i = 0; i < count && part->plus != 0; i++)
        to[i] += part->plus;
}

static void read_random(const struct weight_part *part, uint64_t index, uint64_t count,
                        enum dtype type, void *to)
{
    float piece[PIECE];
    char *at = to;

    must(part->type == DT_F32 || part->type == DT_F16 || part->type == DT_BF16);
    if (type == DT_BF16 && part->type == DT_BF16 &&
        part->plus == 0) { /* the usual case takes no detour */
        for (uint64_t i = 0; i < count; i++) {
            uint16_t half = random_weight_bf16(part->random, index + i);

            memcpy(at + i * sizeof half, &half, sizeof half);
        }
        return;
    }
    while (count > 0) {
        uint32_t now = count < PIECE ? (uint32_t)count : PIECE;

        make_floats(part, index, now, piece);
        put_floats(piece, now, type, at);
        at += dtype_bytes(type, now);
        index += now;
        count -= now;
    }
}

static void read_stored(const struct weight_part *part, const uint8_t *from, uint64_t count,
                        enum dtype type, void *to)
{
    float piece[PIECE];
    char *at = to;

    while (count > 0) {
        uint32_t now = count < PIECE ? (uint32_t)count : PIECE;

        dequant_row(part->type, from, now, piece);
        put_floats(piece, now, type, at);
        from += dtype_bytes(part->type, now);
        at += dtype_bytes(type, now);
        count -= now;
    }
}

/* --- scattered, or with tables ------------------------------------------------------------- */

bool weight_part_plain(const struct weight_part *part)
{
    return part->data && !part->tables && part->block_rows == 0 && part->transposed == 0 &&
           part->plus == 0;
}

bool weight_part_generated(const struct weight_part *part)
{
    return !part->data && part->first_row == 0 && part->transposed == 0 && part->plus == 0;
}

/* Columns first .. first + count - 1 of a row; see model.h for where they lie. */
static void gather(const struct weight_part *part, uint32_t columns, uint32_t row, uint32_t first,
                   uint32_t count, float *to)
{
    size_t element = dtype_bytes(part->type, 1);
    const uint8_t *from = part->data;
    uint64_t at = row;

    if (part->block_rows > 0)
        at = (uint64_t)(row / part->block_rows) * part->block_stride + row % part->block_rows;
    if (!part->data) { /* random, and turned round */
        for (uint32_t i = 0; i < count; i++)
            make_floats(part, (uint64_t)(part->first_row + first + i) * part->transposed + at, 1,
                        to + i);
        return;
    }
    if (part->tables && part->transposed == 0)
        dequant_tables(part->tables, part->first_row + (uint32_t)at, first, count, to);
    for (uint32_t i = 0; i < count && part->tables && part->transposed > 0; i++)
        dequant_tables(part->tables, part->first_row + first + i, (uint32_t)at, 1, to + i);
    if (!part->tables && part->transposed == 0)
        dequant_row(part->type, from + (at * columns + first) * element, count, to);
    for (uint32_t i = 0; i < count && !part->tables && part->transposed > 0; i++)
        dequant_row(part->type, from + (at + (uint64_t)(first + i) * part->transposed) * element, 1,
                    to + i);
    for (uint32_t i = 0; i < count && part->plus != 0; i++)
        to[i] += part->plus;
}

static void read_scattered(const struct weight_part *part, uint32_t columns, uint32_t first_row,
                           uint32_t rows, enum dtype type, void *to)
{
    float piece[PIECE];
    char *at = to;

    must(part->tables || part->type == DT_F32 || part->type == DT_F16 || part->type == DT_BF16);
    for (uint32_t row = first_row; row < first_row + rows; row++) {
        for (uint32_t first = 0; first < columns; first += PIECE) {
            uint32_t count = columns - first < PIECE ? columns - first : PIECE;

            gather(part, columns, row, first, count, piece);
            put_floats(piece, count, type, at);
            at += dtype_bytes(type, count);
        }
    }
}

void weight_part_read(const struct weight_part *part, uint32_t columns, uint32_t first_row,
                      uint32_t rows, enum dtype type, void *to)
{
    uint64_t first = (uint64_t)first_row * columns, count = (uint64_t)rows * columns;
    const uint8_t *from = part->data;

    must((type == part->type && !part->tables) || type == DT_F32 || type == DT_F16 ||
         type == DT_BF16);
    must((uint64_t)first_row + rows <= part->rows);
    if (!from && part->transposed == 0)
        read_random(part, first + (uint64_t)part->first_row * columns, count, type, to);
    else if (!weight_part_plain(part))
        read_scattered(part, columns, first_row, rows, type, to);
    else if (type == part->type)
        memcpy(to, from + dtype_bytes(type, first), dtype_bytes(type, count));
    else
        read_stored(part, from + dtype_bytes(part->type, first), count, type, to);
}

void weight_part_read_element(const struct weight_part *part, uint32_t columns, uint32_t row,
                              uint32_t column, enum dtype type, void *to)
{
    must(!part->data && part->transposed == 0 && row < part->rows && column < columns);
    row += part->first_row;
    read_random(part, (uint64_t)row * columns + column, 1, type, to);
}

bool weight_part_same(const struct weight_part *a, const struct weight_part *b)
{
    return a->data == b->data && a->type == b->type && a->rows == b->rows &&
           a->first_row == b->first_row && (a->data || a->random.seed == b->random.seed);
}
