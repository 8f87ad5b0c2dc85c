/* rows_lanes.h -- norm, activation, rotary, KV cache and argmax over lanes.h, for the .c file of
 * each instruction set to include once. */
#ifndef WEFT_CPU_ROWS_LANES_H
#define WEFT_CPU_ROWS_LANES_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/lanes.h"

static void norm_lanes(const float *x, const float *gamma, uint32_t columns, float epsilon,
                       float *out)
{
    floats16 sum[2] = {lanes_zero(), lanes_zero()};
    floats16 inverse;

    for (uint32_t i = 0; i < columns; i += 2 * LANES) {
        floats16 a = lanes_load(x + i), b = lanes_load(x + i + LANES);

        sum[0] = lanes_fma(a, a, sum[0]);
        sum[1] = lanes_fma(b, b, sum[1]);
    }
    inverse =
        lanes_set(1.0f / sqrtf(lanes_sum(lanes_add(sum[0], sum[1])) / (float)columns + epsilon));
    for (uint32_t i = 0; i < columns; i += LANES)
        lanes_store(out + i,
                    lanes_mul(lanes_mul(lanes_load(x + i), inverse), lanes_load(gamma + i)));
    if (columns % (2 * LANES) > 0 && columns % (2 * LANES) <= LANES)
        lanes_store(out + columns / (2 * LANES) * (2 * LANES) + LANES, lanes_zero());
}

static void swiglu_lanes(const float *gate, const float *up, float *out)
{
    for (int i = 0; i < BLOCK_COLUMNS; i += LANES) {
        floats16 g = lanes_load(gate + i);
        floats16 e = lanes_exp(lanes_min(lanes_sub(lanes_zero(), g), lanes_set(88.0f)));
        floats16 sigmoid_g = lanes_div(g, lanes_add(lanes_set(1.0f), e));

        lanes_store(out + i, lanes_mul(sigmoid_g, lanes_load(up + i)));
    }
}

/* --- rotary ----------------------------------------------------------------------------------- */

static void rotate_neighbours(float *head, const struct rotary *rotary)
{
    uint32_t i = 0;

    for (; i + LANES <= rotary->size; i += LANES) {
        floats16 a = lanes_load(head + i);
        floats16 turned = lanes_mul(lanes_swap_pairs(a), lanes_load(rotary->sines + i));

        lanes_store(head + i, lanes_fma(a, lanes_load(rotary->cosines + i), turned));
    }
    for (; i < rotary->size; i += 2) {
        float left = head[i], right = head[i + 1];

        head[i] = left * rotary->cosines[i] + right * rotary->sines[i];
        head[i + 1] = right * rotary->cosines[i + 1] + left * rotary->sines[i + 1];
    }
}

static void rotate_halves(float *head, const struct rotary *rotary)
{
    uint32_t i = 0, half = rotary->size / 2;

    for (; i + LANES <= half; i += LANES) {
        floats16 left = lanes_load(head + i), right = lanes_load(head + half + i);
        floats16 to_left = lanes_mul(right, lanes_load(rotary->sines + i));
        floats16 to_right = lanes_mul(left, lanes_load(rotary->sines + half + i));

        lanes_store(head + i, lanes_fma(left, lanes_load(rotary->cosines + i), to_left));
        lanes_store(head + half + i,
                    lanes_fma(right, lanes_load(rotary->cosines + half + i), to_right));
    }
    for (; i < half; i++) {
        float left = head[i], right = head[half + i];

        head[i] = left * rotary->cosines[i] + right * rotary->sines[i];
        head[half + i] = right * rotary->cosines[half + i] + left * rotary->sines[half + i];
    }
}

static void rotate_lanes(float *head, uint32_t head_size, const struct rotary *rotary, float scale)
{
    uint32_t i = 0;

    if (rotary->halves)
        rotate_halves(head, rotary);
    else
        rotate_neighbours(head, rotary);
    if (scale == 1.0f)
        return;
    for (; i + LANES <= head_size; i += LANES)
        lanes_store(head + i, lanes_mul(lanes_load(head + i), lanes_set(scale)));
    for (; i < head_size; i++)
        head[i] *= scale;
}

/* --- KV cache --------------------------------------------------------------------------------- */

/* Keys lie across tokens, so a token's key goes to head_size places; values lie together. */
static void kv_write_f16(const struct kv_shape *shape, uint16_t *block, uint32_t token,
                         const float *key, const float *value)
{
    uint16_t *values =
        block + (size_t)shape->head_size * PAGE_TOKENS + (size_t)token * shape->head_padded;
    uint16_t halves[LANES];
    uint32_t i = 0;

    for (; i + LANES <= shape->head_size; i += LANES) {
        lanes_store_f16(halves, lanes_load(key + i));
        for (uint32_t lane = 0; lane < LANES; lane++)
            block[(i + lane) * PAGE_TOKENS + token] = halves[lane];
        lanes_store_f16(values + i, lanes_load(value + i));
    }
    for (; i < shape->head_size; i++) {
        block[i * PAGE_TOKENS + token] = f16_from_float(key[i]);
        values[i] = f16_from_float(value[i]);
    }
}

static void kv_write_f32(const struct kv_shape *shape, float *block, uint32_t token,
                         const float *key, const float *value)
{
    float *values =
        block + (size_t)shape->head_size * PAGE_TOKENS + (size_t)token * shape->head_padded;

    for (uint32_t i = 0; i < shape->head_size; i++)
        block[i * PAGE_TOKENS + token] = key[i];
    memcpy(values, value, shape->head_size * sizeof *values);
}

static void kv_write_lanes(const struct kv_shape *shape, uint8_t *block, uint32_t token,
                           const float *key, const float *value)
{
    if (shape->f32)
        kv_write_f32(shape, (float *)block, token, key, value);
    else
        kv_write_f16(shape, (uint16_t *)block, token, key, value);
}

/* --- argmax ----------------------------------------------------------------------------------- */

/* One pass for the value, which only waits for memory, and a shorter one for its place. */
static uint32_t argmax_lanes(const float *values, uint32_t count, float *ret_value)
{
    floats16 most[4];
    float largest;
    uint32_t i = 0;

    UNROLL for (int c = 0; c < 4; c++) most[c] = lanes_set(-INFINITY);
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        UNROLL for (uint32_t c = 0; c < 4; c++) most[c] =
            lanes_max(lanes_load(values + i + c * LANES), most[c]);
    largest = lanes_largest(lanes_max(lanes_max(most[0], most[1]), lanes_max(most[2], most[3])));
    for (; i < count; i++)
        if (values[i] > largest)
            largest = values[i];
    *ret_value = largest;
    for (i = 0; i + LANES <= count; i += LANES) {
        uint32_t equal = lanes_equal(lanes_load(values + i), lanes_set(largest));

        if (equal)
            return i + (uint32_t)__builtin_ctz(equal);
    }
    for (; i < count; i++)
        if (values[i] == largest)
            return i;
    return 0; /* no numbers at all */
}

#endif
