/* rows_ref.c -- norm, activation, rotary, KV cache, attention and argmax in plain C, and the plain
 * table.
 *
 * Attention is the definition: scores, softmax in double, sum of values. */
#include <math.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/matmul_ref.h"

static void norm_ref(const struct norm *norm, const float *x, float *out)
{
    uint32_t columns = norm->columns;
    uint32_t padded = (columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS * BLOCK_COLUMNS;
    double sum = 0, squares = 0, mean;
    float inverse;

    for (uint32_t i = 0; i < columns && norm->centred; i++)
        sum += (double)x[i];
    mean = sum / columns;
    for (uint32_t i = 0; i < columns; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    inverse = (float)(1.0 / sqrt(squares / columns + (double)norm->epsilon));
    for (uint32_t i = 0; i < columns; i++)
        out[i] = (x[i] - (float)mean) * inverse * norm->gain[i] + (norm->bias ? norm->bias[i] : 0);
    for (uint32_t i = columns; i < padded; i++)
        out[i] = 0;
}

static float activation_ref(enum activation activation, float x)
{
    switch (activation) {
    case ACTIVATION_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case ACTIVATION_GELU_TANH:
        return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    case ACTIVATION_GELU_QUICK:
    case ACTIVATION_SWIGLU_OAI:
        return x / (1.0f + expf(-1.702f * x));
    case ACTIVATION_RELU:
        return x > 0 ? x : 0;
    default:
        return x / (1.0f + expf(-x));
    }
}

static void activate_ref(enum activation activation, const float *gate, const float *up,
                         float limit, float *out)
{
    bool limits = activation == ACTIVATION_SWIGLU_OAI;

    for (int i = 0; i < BLOCK_COLUMNS; i++) {
        float g = gate[i], u = up ? up[i] : 1.0f;

        if (limits) {
            g = fminf(g, limit);
            u = fminf(fmaxf(u, -limit), limit) + 1.0f;
        }
        out[i] = activation_ref(activation, g) * u;
    }
}

static void softcap_ref(float *values, uint32_t count, float cap)
{
    for (uint32_t i = 0; i < count; i++)
        values[i] = cap * tanhf(values[i] / cap);
}

static void rotate_ref(float *head, uint32_t head_size, const struct rotary *rotary, float scale)
{
    uint32_t half = rotary->size / 2;

    for (uint32_t i = 0; i < half; i++) {
        uint32_t a = rotary->halves ? i : 2 * i, b = rotary->halves ? i + half : 2 * i + 1;
        float left = head[a], right = head[b];

        head[a] = left * rotary->cosines[a] + right * rotary->sines[a];
        head[b] = right * rotary->cosines[b] + left * rotary->sines[b];
    }
    for (uint32_t i = 0; i < head_size; i++)
        head[i] *= scale;
}

/* --- KV cache --------------------------------------------------------------------------------- */

enum { KEY_SCALES = 0, VALUE_SCALES = PAGE_TOKENS };

static void put_element(const struct kv_shape *shape, uint8_t *block, size_t at, float value,
                        float inverse)
{
    int16_t q;

    block += KV_SCALES_BYTES;
    if (shape->f32) {
        memcpy(block + 4 * at, &value, sizeof value);
        return;
    }
    q = (int16_t)lrintf(value * inverse);
    memcpy(block + 2 * at, &q, sizeof q);
}

static float get_element(const struct kv_shape *shape, const uint8_t *block, size_t at,
                         size_t scale_at)
{
    float value, scale;
    int16_t q;

    memcpy(&scale, block + 4 * scale_at, sizeof scale);
    block += KV_SCALES_BYTES;
    if (shape->f32) {
        memcpy(&value, block + 4 * at, sizeof value);
        return value;
    }
    memcpy(&q, block + 2 * at, sizeof q);
    return (float)q * scale;
}

/* Stores the scale; returns its inverse. */
static float put_scale(uint8_t *block, size_t at, const float *values, uint32_t count)
{
    float largest = 0, scale;

    for (uint32_t i = 0; i < count; i++)
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    scale = largest > ACTIVATION_LEAST ? largest / KV_INT_MOST : 0;
    memcpy(block + 4 * at, &scale, sizeof scale);
    return largest > ACTIVATION_LEAST ? KV_INT_MOST / largest : 0;
}

static void kv_write_ref(const struct kv_shape *shape, uint8_t *block, uint32_t token,
                         const float *key, const float *value)
{
    size_t values = (size_t)shape->head_size * PAGE_TOKENS + (size_t)token * shape->value_padded;
    float key_inverse = put_scale(block, KEY_SCALES + token, key, shape->head_size);
    float value_inverse = put_scale(block, VALUE_SCALES + token, value, shape->value_size);

    for (uint32_t i = 0; i < shape->head_size; i++)
        put_element(shape, block, (size_t)i * PAGE_TOKENS + token, key[i], key_inverse);
    for (uint32_t i = 0; i < shape->value_size; i++)
        put_element(shape, block, values + i, value[i], value_inverse);
}

/* --- attention -------------------------------------------------------------------------------- */

static const uint8_t *page_of(const struct attend *a, uint32_t position)
{
    size_t page = a->page_table[position / PAGE_TOKENS];

    return a->pages + (page * a->shape->kv_heads + a->kv_head) * kv_block_bytes(a->shape);
}

static float score(const struct attend *a, const float *query, uint32_t position)
{
    const uint8_t *block = page_of(a, position);
    float sum = 0;

    for (uint32_t i = 0; i < a->shape->head_size; i++)
        sum += query[i] * get_element(a->shape, block,
                                      (size_t)i * PAGE_TOKENS + position % PAGE_TOKENS,
                                      KEY_SCALES + position % PAGE_TOKENS);
    return sum;
}

/* What the family does to a score, for query head `head`. */
static float adjusted(const struct attend *a, float score, size_t head, uint32_t position)
{
    if (a->softcap > 0)
        score = a->softcap * tanhf(score / a->softcap);
    if (a->slopes)
        score += a->slopes[head] * (float)position;
    return score;
}

/* One query; the sums stay unnormalised until the end, with a running maximum, so no score is kept.
 * */
static void attend_one(const struct attend *a, const float *query, size_t head, uint32_t length,
                       float *sums, float *out)
{
    uint32_t size = a->shape->value_size;
    uint32_t first = a->window > 0 && length > a->window ? length - a->window : 0;
    float largest = a->sinks ? a->sinks[head] : -INFINITY;
    double total = a->sinks ? 1 : 0;

    memset(sums, 0, size * sizeof *sums);
    for (uint32_t position = first; position < length; position++) {
        const uint8_t *block = page_of(a, position);
        size_t at = (size_t)a->shape->head_size * PAGE_TOKENS +
                    (size_t)(position % PAGE_TOKENS) * a->shape->value_padded;
        float s = adjusted(a, score(a, query, position), head, position);
        float weight, shrink = 1;

        if (s > largest) {
            shrink = expf(largest - s);
            largest = s;
        }
        weight = expf(s - largest);
        total = total * (double)shrink + (double)weight;
        for (uint32_t i = 0; i < size; i++)
            sums[i] =
                sums[i] * shrink + weight * get_element(a->shape, block, at + i,
                                                        VALUE_SCALES + position % PAGE_TOKENS);
    }
    for (uint32_t i = 0; i < size; i++)
        out[i] = (float)((double)sums[i] / total);
}

static void attend_ref(const struct attend *a, uint32_t first, uint32_t count,
                       const struct kernel_scratch *scratch)
{
    for (uint32_t row = first; row < first + count; row++) {
        uint32_t token = row / a->group;
        size_t head = (size_t)a->kv_head * a->group + row % a->group;

        attend_one(a, a->queries + token * a->query_stride + head * a->shape->head_size, head,
                   a->keys ? a->keys : a->position + token + 1, scratch->sums,
                   a->out + token * a->out_stride + head * a->shape->value_size);
    }
}

static uint32_t argmax_ref(const float *values, uint32_t count, float *ret_value)
{
    float largest = -INFINITY;
    uint32_t index = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (values[i] > largest) {
            largest = values[i];
            index = i;
        }
    }
    *ret_value = largest;
    return index;
}

const struct cpu_kernels cpu_kernels_plain = {
    .name = "plain",
    .form = form_ref,
    .put = put_ref,
    .product = product_ref,
    .norm = norm_ref,
    .activate = activate_ref,
    .softcap = softcap_ref,
    .rotate = rotate_ref,
    .kv_write = kv_write_ref,
    .attend = attend_ref,
    .argmax = argmax_ref,
};
