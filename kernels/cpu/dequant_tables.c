/* dequant_tables.c -- see dequant_tables.h and, for the layouts, kernels/quant_tables.h. */
#include "kernels/cpu/dequant_tables.h"

#include <stddef.h>

#include "config/base/fault.h"
#include "kernels/cpu/dequant.h"
#include "kernels/cpu/half.h"

/* Where the number of row r stands in one of AWQ's words, in units of four bits. */
static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t load_word(const void *words, size_t index)
{
    uint32_t word;

    memcpy(&word, (const uint8_t *)words + 4 * index, sizeof word);
    return word;
}

static int four_bits(uint32_t word, uint32_t place)
{
    return (int)(word >> 4 * place & 15);
}

static float zero_at(const struct quant_tables *t, uint32_t row, uint32_t group)
{
    size_t by_row = (size_t)row / 8 * t->groups + group;
    size_t by_group = (size_t)group * (t->rows / 8) + row / 8;

    switch (t->zero_kind) {
    case ZEROS_NONE:
        break;
    case ZEROS_8:
        return 8;
    case ZEROS_I8:
        return (float)((const int8_t *)t->zeros)[(size_t)row * t->groups + group];
    case ZEROS_ROW_WORDS:
        return (float)four_bits(load_word(t->zeros, by_row), row % 8);
    case ZEROS_GPTQ:
        return (float)four_bits(load_word(t->zeros, by_group), row % 8);
    case ZEROS_GPTQ_LESS:
        return (float)((four_bits(load_word(t->zeros, by_group), row % 8) + 1) & 15);
    case ZEROS_AWQ:
        return (float)four_bits(load_word(t->zeros, by_group), awq_place[row % 8]);
    }
    return 0;
}

static float scale_at(const struct quant_tables *t, uint32_t row, uint32_t group)
{
    size_t index = t->scales_by_group ? (size_t)group * t->rows + row
                                      : (size_t)(row / t->scale_rows) * t->groups + group;
    const uint8_t *scale = (const uint8_t *)t->scales + index * dtype_get(t->scale_type)->bytes;
    float value;

    dequant_row(t->scale_type, scale, 1, &value);
    return value;
}

static uint32_t group_at(const struct quant_tables *t, uint32_t column)
{
    return t->group_of ? load_word(t->group_of, column) : column / t->scale_columns;
}

void tables_elements(const struct quant_tables *t, uint32_t row, uint32_t first, uint32_t count,
                     float *to)
{
    const uint8_t *bytes = t->data;
    size_t at = (size_t)row * t->columns + first;

    switch (t->type) {
    case DT_F8_E4M3:
        dequant_row(DT_F8_E4M3, bytes + at, count, to);
        break;
    case DT_I8:
        dequant_row(DT_I8, bytes + at, count, to);
        break;
    case DT_INT4:
        for (uint32_t i = 0; i < count; i++, at++)
            to[i] = (float)(bytes[at / 2] >> 4 * (at % 2) & 15);
        break;
    case DT_E2M1:
        for (uint32_t i = 0; i < count; i++, at++)
            to[i] = 0.5f * (float)dequant_e2m1_values[bytes[at / 2] >> 4 * (at % 2) & 15];
        break;
    case DT_GPTQ4:
        for (uint32_t i = 0, c = first; i < count; i++, c++)
            to[i] = (float)four_bits(load_word(bytes, (size_t)c / 8 * t->rows + row), c % 8);
        break;
    default:
        must(t->type == DT_AWQ4);
        for (uint32_t i = 0, c = first; i < count; i++, c++)
            to[i] = (float)four_bits(load_word(bytes, (size_t)c * (t->rows / 8) + row / 8),
                                     awq_place[row % 8]);
    }
}

void dequant_tables(const struct quant_tables *t, uint32_t row, uint32_t first_column,
                    uint32_t count, float *to)
{
    uint32_t group = UINT32_MAX;
    float scale = 0, zero = 0;

    tables_elements(t, row, first_column, count, to);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t now = group_at(t, first_column + i);

        if (now != group) {
            group = now;
            scale = scale_at(t, row, group);
            zero = zero_at(t, row, group);
        }
        to[i] = (to[i] - zero) * scale;
    }
}

float tables_scale(const struct quant_tables *t, uint32_t row, uint32_t column)
{
    return scale_at(t, row, group_at(t, column));
}

float tables_zero(const struct quant_tables *t, uint32_t row, uint32_t column)
{
    return zero_at(t, row, group_at(t, column));
}

uint8_t tables_nibble(const struct quant_tables *t, uint32_t row, uint32_t column)
{
    size_t at = (size_t)row * t->columns + column;

    return ((const uint8_t *)t->data)[at / 2] >> 4 * (at % 2) & 15;
}
