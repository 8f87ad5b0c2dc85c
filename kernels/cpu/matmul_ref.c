/* matmul_ref.c -- products in plain C, and the forms of activations: the oracle, and what runs
 * where nothing better does.
 *
 * For each output the blocks are summed in order, and a block is one dot product of 32, scaled
 * once. */
#include "kernels/cpu/matmul_ref.h"

#include <math.h>

#include "kernels/cpu/half.h"

enum form form_ref(enum pack pack, enum precision precision, uint32_t rows)
{
    (void)rows;
    if (precision == PRECISION_F32 || pack < PACK_Q4 || pack > PACK_Q8_HALVES)
        return FORM_F32;
    return FORM_WORDS;
}

static void put_integers(const struct activations *x, size_t unit, const float *values)
{
    float most = x->precision == PRECISION_INT8 ? ACTIVATION_INT8_MOST : ACTIVATION_INT16_MOST;
    float largest = 0, inverse;
    int32_t sum = 0;

    for (int i = 0; i < BLOCK_COLUMNS; i++)
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    inverse = largest > ACTIVATION_LEAST ? most / largest : 0;
    x->scales[unit] = largest > ACTIVATION_LEAST ? largest / most : 0;
    for (int i = 0; i < BLOCK_COLUMNS; i++) {
        /* 0 1 2 3 -> 0 2 1 3: bits 0 and 1 change places */
        int at = (i & ~3) | (i & 1) << 1 | (i >> 1 & 1);
        float scaled = values[i] * inverse;
        int q = isnan(scaled) ? -(int)most : (int)lrintf(scaled);

        sum += q;
        if (x->forms & FORM_WORDS)
            x->words[unit * BLOCK_COLUMNS + at] = (int16_t)q;
        if (x->forms & FORM_BYTES) {
            int high = x->precision == PRECISION_INT8 ? q : (q + 128) >> 8;

            x->high[unit * BLOCK_COLUMNS + i] = (int8_t)high;
            x->low[unit * BLOCK_COLUMNS + i] = (int8_t)(q - 256 * high);
        }
    }
    x->sums[unit] = x->scales[unit] * (float)sum;
    x->offsets[unit] = -128 * sum;
}

void put_ref(const struct activations *x, uint32_t row, uint32_t first_block, uint32_t block_count,
             const float *values)
{
    for (uint32_t b = first_block; b < first_block + block_count; b++, values += BLOCK_COLUMNS) {
        size_t unit = unit_of(x, row, b);

        if (x->forms & FORM_F32) {
            float sum = 0;

            for (int i = 0; i < BLOCK_COLUMNS; i++) {
                x->f32[unit * BLOCK_COLUMNS + i] = values[i];
                sum += values[i];
            }
            x->sums_f32[unit] = sum;
        }
        if (x->forms & (FORM_WORDS | FORM_BYTES))
            put_integers(x, unit, values);
    }
}

/* One lane of a block of a packed integer format: value = scales[column / 16] q + minimum. */
struct lane_block {
    int q[BLOCK_COLUMNS];
    float scales[2];
    float minimum;
};

static float load_float(const uint8_t *from, int index)
{
    float value;

    memcpy(&value, from + 4 * index, sizeof value);
    return value;
}

static void unpack_q4(const struct packed *w, const uint8_t *group, uint32_t block, int lane,
                      struct lane_block *to)
{
    const uint8_t *lines = group + (size_t)block * (w->wide ? Q4_WIDE_BYTES : Q4_BLOCK_BYTES);
    const uint8_t *scales = lines + 256;

    for (int i = 0; i < BLOCK_COLUMNS; i++) {
        uint8_t byte = lines[64 * (i / 8) + 4 * lane + i % 4];

        to->q[i] = i % 8 < 4 ? byte & 15 : byte >> 4;
        if (w->e2m1)
            to->q[i] = packed_e2m1[to->q[i]];
    }
    to->scales[0] = w->wide ? load_float(scales, lane) : load_f16(scales + 2 * lane);
    to->minimum = w->wide ? load_float(scales + 64, lane) : load_f16(scales + 32 + 2 * lane);
    if (w->zeros)
        to->minimum *= to->scales[0];
}

static void unpack_q8(const struct packed *w, const uint8_t *group, uint32_t block, int lane,
                      struct lane_block *to)
{
    bool halves = w->pack == PACK_Q8_HALVES;
    size_t scales = ((size_t)w->blocks * Q8_SCALES_BYTES + 63) / 64 * 64;
    const uint8_t *lines = halves ? group + (size_t)block * HALVES_BLOCK_BYTES
                                  : group + scales + (size_t)block * Q8_LINES_BYTES;

    for (int i = 0; i < BLOCK_COLUMNS; i++)
        to->q[i] = lines[64 * (i / 4) + 4 * lane + i % 4] - 128;
    to->minimum = 0;
    to->scales[0] = halves ? load_float(lines + Q8_LINES_BYTES, lane)
                           : load_f16(group + (size_t)block * Q8_SCALES_BYTES + 2 * lane);
    if (!halves)
        return;
    to->scales[1] = load_float(lines + Q8_LINES_BYTES + 64, lane);
    to->minimum = load_float(lines + Q8_LINES_BYTES + 128, lane);
}

/* One block of one lane with a quantized weight. */
static float block_quantized(const struct packed *w, const uint8_t *group, uint32_t block, int lane,
                             const struct activations *x, size_t unit)
{
    int columns = w->pack == PACK_Q8_HALVES ? BLOCK_COLUMNS / 2 : BLOCK_COLUMNS;
    bool words = x->precision != PRECISION_F32;
    struct lane_block b;
    float sum;

    if (w->pack == PACK_Q4)
        unpack_q4(w, group, block, lane, &b);
    else
        unpack_q8(w, group, block, lane, &b);
    sum = b.minimum * (words ? x->sums[unit] : x->sums_f32[unit]);
    for (int first = 0; first < BLOCK_COLUMNS; first += columns) {
        float scale = b.scales[first / columns], real = 0;
        int32_t dot = 0;

        for (int i = first; i < first + columns && words; i++)
            dot +=
                b.q[i] * x->words[unit * BLOCK_COLUMNS + ((i & ~3) | (i & 1) << 1 | (i >> 1 & 1))];
        for (int i = first; i < first + columns && !words; i++)
            real += (float)b.q[i] * x->f32[unit * BLOCK_COLUMNS + i];
        sum += words ? (float)dot * (scale * x->scales[unit]) : real * scale;
    }
    return sum;
}

static float block_floats(enum pack pack, const uint8_t *group, uint32_t block, int lane,
                          const float *x)
{
    size_t at = (size_t)block * BLOCK_COLUMNS * GROUP_ROWS + (size_t)lane;
    float dot = 0;

    for (int i = 0; i < BLOCK_COLUMNS; i++, at += GROUP_ROWS) {
        float weight;

        if (pack == PACK_F32)
            memcpy(&weight, group + 4 * at, sizeof weight);
        else if (pack == PACK_F16)
            weight = load_f16(group + 2 * at);
        else
            weight = float_from_bf16(load_u16(group + 2 * at));
        dot += weight * x[i];
    }
    return dot;
}

static float block_f8(const uint8_t *block, int lane, const float *x)
{
    float dot = 0, scale;

    memcpy(&scale, block + F8_LINES_BYTES + 4 * lane, sizeof scale);
    for (int i = 0; i < BLOCK_COLUMNS; i++)
        dot += f8_value(block[GROUP_ROWS * i + lane]) * x[i];
    return dot * scale;
}

static float one_output(const struct packed *w, const uint8_t *group, int lane,
                        const struct activations *x, uint32_t row)
{
    bool quantized = w->pack >= PACK_Q4 && w->pack <= PACK_Q8_HALVES;
    float sum = 0;

    for (uint32_t b = 0; b < w->blocks; b++) {
        size_t unit = unit_of(x, row, b);

        if (quantized)
            sum += block_quantized(w, group, b, lane, x, unit);
        else if (w->pack == PACK_F8)
            sum +=
                block_f8(group + (size_t)b * F8_BLOCK_BYTES, lane, x->f32 + unit * BLOCK_COLUMNS);
        else
            sum += block_floats(w->pack, group, b, lane, x->f32 + unit * BLOCK_COLUMNS);
    }
    return sum;
}

/* A piece of PACK_RAW at a time, made into floats. */
static void product_raw_ref(const struct packed *w, uint32_t group, const struct activations *x,
                            float *y, size_t stride, const struct kernel_scratch *scratch)
{
    for (uint32_t b = 0; b < w->blocks; b += RAW_BLOCKS) {
        uint32_t count = w->blocks - b < RAW_BLOCKS ? w->blocks - b : RAW_BLOCKS;

        packed_raw_blocks(w, group, b, count, scratch->raw);
        for (uint32_t row = 0; row < x->rows; row++)
            for (int lane = 0; lane < GROUP_ROWS; lane++)
                for (uint32_t i = 0; i < count; i++)
                    y[row * stride + (size_t)lane] +=
                        block_floats(PACK_F32, (const uint8_t *)scratch->raw, i, lane,
                                     x->f32 + unit_of(x, row, b + i) * BLOCK_COLUMNS);
    }
}

void product_ref(const struct packed *w, uint32_t first, uint32_t count,
                 const struct activations *x, float *y, size_t stride, bool add,
                 const struct kernel_scratch *scratch)
{
    for (uint32_t g = 0; g < count; g++, y += GROUP_ROWS) {
        const uint8_t *group = w->data + (first + g) * w->group_bytes;

        if (w->pack == PACK_RAW && !add)
            for (uint32_t row = 0; row < x->rows; row++)
                memset(y + row * stride, 0, GROUP_ROWS * sizeof *y);
        if (w->pack == PACK_RAW) {
            product_raw_ref(w, first + g, x, y, stride, scratch);
            continue;
        }
        for (uint32_t row = 0; row < x->rows; row++) {
            for (int lane = 0; lane < GROUP_ROWS; lane++) {
                float sum = one_output(w, group, lane, x, row);

                y[row * stride + (size_t)lane] = add ? y[row * stride + (size_t)lane] + sum : sum;
            }
        }
    }
}
