/* rows_lanes.h -- norm, activation, rotary, KV cache and argmax over lanes.h, for the .c file of
 * each instruction set to include once. */
#ifndef WEFT_CPU_ROWS_LANES_H
#define WEFT_CPU_ROWS_LANES_H

#include <math.h>
#include <string.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/lanes.h"

/* Vector i of a row of `columns` values less `mean`, zeros beyond its end. */
INLINE floats16 centred_at(const float *x, uint32_t i, uint32_t columns, floats16 mean)
{
    floats16 a = lanes_sub(lanes_load(x + i), mean);

    return columns - i < LANES ? lanes_first(a, columns - i, lanes_zero()) : a;
}

/* The mean of a row whose padding is zero. */
static float mean_lanes(const float *x, uint32_t columns)
{
    floats16 sum[2] = {lanes_zero(), lanes_zero()};

    for (uint32_t i = 0; i < columns; i += 2 * LANES) {
        sum[0] = lanes_add(sum[0], lanes_load(x + i));
        sum[1] = lanes_add(sum[1], lanes_load(x + i + LANES));
    }
    return lanes_sum(lanes_add(sum[0], sum[1])) / (float)columns;
}

static void zero_padding(uint32_t columns, float *out)
{
    if (columns % (2 * LANES) > 0 && columns % (2 * LANES) <= LANES)
        lanes_store(out + columns / (2 * LANES) * (2 * LANES) + LANES, lanes_zero());
}

static void layer_norm_lanes(const struct norm *norm, const float *x, float *out)
{
    uint32_t columns = norm->columns;
    floats16 mean = lanes_set(mean_lanes(x, columns)), sum = lanes_zero(), inverse;

    for (uint32_t i = 0; i < columns; i += LANES) {
        floats16 a = centred_at(x, i, columns, mean);

        sum = lanes_fma(a, a, sum);
    }
    inverse = lanes_set(1.0f / sqrtf(lanes_sum(sum) / (float)columns + norm->epsilon));
    for (uint32_t i = 0; i < columns; i += LANES) {
        floats16 a = lanes_mul(centred_at(x, i, columns, mean), inverse);

        a = lanes_mul(a, lanes_load(norm->gain + i));
        lanes_store(out + i, norm->bias ? lanes_add(a, lanes_load(norm->bias + i)) : a);
    }
    zero_padding(columns, out);
}

static void norm_lanes(const struct norm *norm, const float *x, float *out)
{
    uint32_t columns = norm->columns;
    floats16 sum[2] = {lanes_zero(), lanes_zero()};
    floats16 inverse;

    if (norm->centred) {
        layer_norm_lanes(norm, x, out);
        return;
    }
    for (uint32_t i = 0; i < columns; i += 2 * LANES) {
        floats16 a = lanes_load(x + i), b = lanes_load(x + i + LANES);

        sum[0] = lanes_fma(a, a, sum[0]);
        sum[1] = lanes_fma(b, b, sum[1]);
    }
    inverse = lanes_set(
        1.0f / sqrtf(lanes_sum(lanes_add(sum[0], sum[1])) / (float)columns + norm->epsilon));
    for (uint32_t i = 0; i < columns; i += LANES)
        lanes_store(out + i,
                    lanes_mul(lanes_mul(lanes_load(x + i), inverse), lanes_load(norm->gain + i)));
    zero_padding(columns, out);
}

/* --- activations ------------------------------------------------------------------------------ */

INLINE floats16 activation_lanes(enum activation activation, floats16 x)
{
    floats16 half = lanes_mul(x, lanes_set(0.5f)), cube;

    switch (activation) {
    case ACTIVATION_GELU:
        return lanes_fma(half, lanes_erf(lanes_mul(x, lanes_set(0.70710678f))), half);
    case ACTIVATION_GELU_TANH:
        cube = lanes_mul(lanes_mul(x, x), lanes_mul(x, lanes_set(0.044715f)));
        return lanes_fma(half, lanes_tanh(lanes_mul(lanes_add(x, cube), lanes_set(0.79788456f))),
                         half);
    case ACTIVATION_GELU_QUICK:
    case ACTIVATION_SWIGLU_OAI:
        return lanes_gated(x, 1.702f);
    case ACTIVATION_RELU:
        return lanes_max(x, lanes_zero());
    default:
        return lanes_gated(x, 1.0f);
    }
}

static void activate_lanes(enum activation activation, const float *gate, const float *up,
                           float limit, float *out)
{
    bool limits = activation == ACTIVATION_SWIGLU_OAI;

    for (int i = 0; i < BLOCK_COLUMNS; i += LANES) {
        floats16 g = lanes_load(gate + i), u = up ? lanes_load(up + i) : lanes_set(1.0f);

        if (limits) {
            g = lanes_min(g, lanes_set(limit));
            u = lanes_min(lanes_max(u, lanes_set(-limit)), lanes_set(limit));
            u = lanes_add(u, lanes_set(1.0f));
        }
        lanes_store(out + i, lanes_mul(activation_lanes(activation, g), u));
    }
}

static void softcap_lanes(float *values, uint32_t count, float cap)
{
    floats16 inverse = lanes_set(1.0f / cap), most = lanes_set(cap);

    for (uint32_t i = 0; i < count; i += LANES)
        lanes_store(values + i,
                    lanes_mul(lanes_tanh(lanes_mul(lanes_load(values + i), inverse)), most));
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

enum { KEY_PIECE = 256 }; /* of a key that is rounded at once; a multiple of the lanes */

/* The scale with which values[] are 16-bit integers, and its inverse. */
static float integer_scale(const float *values, uint32_t count, float *ret_inverse)
{
    floats16 most = lanes_zero();
    float largest;
    uint32_t i;

    for (i = 0; i + LANES <= count; i += LANES)
        most = lanes_max(lanes_abs(lanes_load(values + i)), most);
    largest = lanes_largest(most);
    for (; i < count; i++)
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    *ret_inverse = largest > ACTIVATION_LEAST ? KV_INT_MOST / largest : 0;
    return largest > ACTIVATION_LEAST ? largest / KV_INT_MOST : 0;
}

static void to_integers(const float *values, uint32_t count, float inverse, int16_t *to)
{
    uint32_t i;

    for (i = 0; i + LANES <= count; i += LANES)
        lanes_store_i16(to + i, lanes_mul(lanes_load(values + i), lanes_set(inverse)));
    for (; i < count; i++)
        to[i] = (int16_t)lrintf(values[i] * inverse);
}

/* Keys lie across tokens, so a token's key goes to head_size places; values lie together. */
static void kv_write_i16(const struct kv_shape *shape, float *scales, int16_t *keys, uint32_t token,
                         const float *key, const float *value)
{
    int16_t *values =
        keys + (size_t)shape->head_size * PAGE_TOKENS + (size_t)token * shape->value_padded;

    int16_t rounded[KEY_PIECE];
    float inverse;

    scales[token] = integer_scale(key, shape->head_size, &inverse);
    for (uint32_t i = 0; i < shape->head_size; i += KEY_PIECE) {
        uint32_t count = shape->head_size - i < KEY_PIECE ? shape->head_size - i : KEY_PIECE;

        to_integers(key + i, count, inverse, rounded);
        for (uint32_t j = 0; j < count; j++)
            keys[(i + j) * PAGE_TOKENS + token] = rounded[j];
    }
    scales[PAGE_TOKENS + token] = integer_scale(value, shape->value_size, &inverse);
    to_integers(value, shape->value_size, inverse, values);
}

static void kv_write_f32(const struct kv_shape *shape, float *keys, uint32_t token,
                         const float *key, const float *value)
{
    float *values =
        keys + (size_t)shape->head_size * PAGE_TOKENS + (size_t)token * shape->value_padded;

    for (uint32_t i = 0; i < shape->head_size; i++)
        keys[i * PAGE_TOKENS + token] = key[i];
    memcpy(values, value, shape->value_size * sizeof *values);
}

static void kv_write_lanes(const struct kv_shape *shape, uint8_t *block, uint32_t token,
                           const float *key, const float *value)
{
    void *keys = block + KV_SCALES_BYTES;

    if (shape->f32)
        kv_write_f32(shape, keys, token, key, value);
    else
        kv_write_i16(shape, (void *)block, keys, token, key, value);
}

/* --- argmax ----------------------------------------------------------------------------------- */

/* One pass for the value, which only waits for memory, and a shorter one for its place. */
static uint32_t argmax_lanes(const float *values, uint32_t count, float *ret_value)
{
    floats16 most[4];
    float largest;
    uint32_t i = 0;

    UNROLL
    for (int c = 0; c < 4; c++)
        most[c] = lanes_set(-INFINITY);
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        UNROLL
    for (uint32_t c = 0; c < 4; c++)
        most[c] = lanes_max(lanes_load(values + i + c * LANES), most[c]);
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
