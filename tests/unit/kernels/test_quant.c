/* Protects the making of quantized blocks: for numbers as weights have them, and for odd ones, the
 * squared error is at most that of plain rounding (the block's extremes become the extreme quants),
 * formats that need no search are exact, and what cannot be stored is said. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/dequant.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/quant.h"

enum { COUNT = 4096, BYTES = 4 * COUNT };

static uint64_t random_state = 88172645463325252u;

static double draw(void) /* 0 to 1 */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) * 0x1p-53;
}

static double draw_normal(void)
{
    double sum = 0;

    for (int i = 0; i < 12; i++)
        sum += draw();
    return sum - 6;
}

/* What weights look like, and what they seldom do. */
static void fill(int kind, float *x)
{
    for (int i = 0; i < COUNT; i++) {
        double value = draw_normal();

        if (kind == 1) /* heavy tails */
            value = (draw() < 0.5 ? -1 : 1) * -log(draw() + 1e-12);
        if (kind == 2) /* a few outliers */
            value *= draw() < 0.01 ? 20 : 1;
        if (kind == 3) /* shifted: all above zero */
            value = 7 + value;
        if (kind == 4) /* all below */
            value = -9 + value;
        if (kind == 5) /* parts of very different size */
            value *= exp(4 * sin(i / 32));
        if (kind == 6) /* three values, as in ternary models */
            value = (int)(3 * draw()) - 1;
        if (kind == 7)
            value = i / 32 % 3 ? 0 : 0.25;
        x[i] = (float)(0.02 * value);
    }
}
enum { KINDS = 8 };

static double error_of(const float *x, const float *y, int count)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

static float half(float value)
{
    return float_from_f16(f16_from_float(value));
}

/* y: `count` numbers by the scale and minimum given, as plain rounding stores them. */
static void plain(const float *x, int count, float scale, float minimum, float low, float high,
                  float *y)
{
    for (int i = 0; i < count; i++) {
        float q = scale != 0 ? roundf((x[i] - minimum) / scale) : 0;

        q = fmaxf(low, fminf(high, q));
        y[i] = scale * q + minimum;
    }
}

static void extremes(const float *x, int count, float *low, float *high, float *most)
{
    *low = *high = *most = x[0];
    for (int i = 1; i < count; i++) {
        *low = fminf(*low, x[i]);
        *high = fmaxf(*high, x[i]);
        *most = fabsf(x[i]) > fabsf(*most) ? x[i] : *most;
    }
}

/* 256 numbers, rounded plainly into the format. */
static void plain_block(enum dtype type, const float *x, float *y)
{
    float low[16], high[16], most[16], d = 0, dmin = 0;

    for (int p = 0; p < 8; p++) {
        const float *part = x + 32 * p;

        extremes(part, 32, &low[p], &high[p], &most[p]);
        if (type == DT_Q4_0)
            plain(part, 32, half(most[p] / -8), 0, -8, 7, y + 32 * p);
        if (type == DT_Q5_0)
            plain(part, 32, half(most[p] / -16), 0, -16, 15, y + 32 * p);
        if (type == DT_Q4_1)
            plain(part, 32, half((high[p] - low[p]) / 15), half(low[p]), 0, 15, y + 32 * p);
        low[p] = fminf(low[p], 0);
        d = fmaxf(d, (high[p] - low[p]) / 15 / 63);
        dmin = fmaxf(dmin, -low[p] / 63);
    }
    for (int p = 0; p < 8 && type == DT_Q4_K; p++) {
        float s = d != 0 ? fminf(63, roundf((high[p] - low[p]) / 15 / half(d))) : 0;
        float m = dmin != 0 ? fminf(63, roundf(-low[p] / half(dmin))) : 0;

        plain(x + 32 * p, 32, half(d) * s, -(half(dmin) * m), 0, 15, y + 32 * p);
    }
    d = 0;
    for (int p = 0; p < 16; p++) {
        extremes(x + 16 * p, 16, &low[p], &high[p], &most[p]);
        d = fabsf(most[p] / -32) > fabsf(d) ? most[p] / -32 : d;
    }
    for (int p = 0; p < 16 && type == DT_Q6_K; p++) {
        float s = d != 0 ? fminf(127, roundf(most[p] / -32 / half(d / -128))) : 0;

        plain(x + 16 * p, 16, half(d / -128) * s, 0, -32, 31, y + 16 * p);
    }
}

static void no_worse_than_plain_rounding(void **state)
{
    static const enum dtype types[] = {DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q4_K, DT_Q6_K};
    static float x[COUNT], y[COUNT], z[COUNT];
    static uint8_t stored[BYTES];

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int kind = 0; kind < KINDS; kind++) {
            double ours, theirs;

            fill(kind, x);
            assert_true(quant_row(types[t], x, COUNT, stored));
            dequant_row(types[t], stored, COUNT, y);
            for (int b = 0; b < COUNT; b += 256)
                plain_block(types[t], x + b, z + b);
            ours = sqrt(error_of(x, y, COUNT) / COUNT);
            theirs = sqrt(error_of(x, z, COUNT) / COUNT);
            printf("%s, kind %d: %.3e, plain rounding %.3e (%.1f %%)\n", dtype_get(types[t])->name,
                   kind, ours, theirs, theirs > 0 ? 100 * ours / theirs : 0);
            if (ours > theirs + 1e-9)
                fail_msg("%s, kind %d: %g, plain rounding %g", dtype_get(types[t])->name, kind,
                         ours, theirs);
            for (int b = 0; b < COUNT; b += 256)
                if (error_of(x + b, y + b, 256) > 1.0001 * error_of(x + b, z + b, 256) + 1e-12)
                    fail_msg("%s, kind %d, block %d: %g, plain rounding %g",
                             dtype_get(types[t])->name, kind, b / 256, error_of(x + b, y + b, 256),
                             error_of(x + b, z + b, 256));
        }
    }
}

/* d = 1 and every quant: nothing is lost. */
static void whole_numbers_are_exact(void **state)
{
    static const struct {
        enum dtype type;
        int low, high;
    } ranges[] = {{DT_Q4_0, -8, 7},  {DT_Q4_1, 3, 18},   {DT_Q5_0, -16, 15}, {DT_Q8_0, -127, 127},
                  {DT_Q4_K, -4, 11}, {DT_Q6_K, -32, 31}, {DT_F16, -9, 9},    {DT_BF16, -9, 9}};
    float x[256], y[256];
    uint8_t stored[1024];

    (void)state;
    for (size_t t = 0; t < sizeof ranges / sizeof *ranges; t++) {
        int count = ranges[t].high - ranges[t].low + 1;

        assert_true(quant_supported(ranges[t].type));
        for (int i = 0; i < 256; i++) {
            x[i] = (float)(ranges[t].low + (i * 7) % count);
            if (i % 16 == 0) /* both ends in every part */
                x[i] = (float)ranges[t].low;
            if (i % 16 == 5)
                x[i] = (float)ranges[t].high;
        }
        assert_true(quant_row(ranges[t].type, x, 256, stored));
        dequant_row(ranges[t].type, stored, 256, y);
        for (int i = 0; i < 256; i++)
            if (fabsf(x[i] - y[i]) > 1e-3f * (float)ranges[t].high)
                fail_msg("%s: %g became %g", dtype_get(ranges[t].type)->name, (double)x[i],
                         (double)y[i]);
    }
    assert_false(quant_supported(DT_Q2_K));
}

static void extremes_are_told(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    float x[256], y[256];
    uint8_t stored[1024];

    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!quant_supported((enum dtype)type))
            continue;
        for (size_t b = 0; b < 3; b++) {
            memset(x, 0, sizeof x);
            x[77] = bad[b];
            assert_false(quant_row((enum dtype)type, x, 256, stored));
        }
        for (int i = 0; i < 256; i++)
            x[i] = i % 3 ? 1e9f : -3e9f;
        assert_int_equal(quant_row((enum dtype)type, x, 256, stored),
                         type == DT_F32 || type == DT_BF16);
        /* Zeros, and numbers too small for a scale, are zeros. */
        for (int i = 0; i < 256; i++)
            x[i] = i % 2 ? 1e-42f : 0;
        assert_true(quant_row((enum dtype)type, x, 256, stored));
        dequant_row((enum dtype)type, stored, 256, y);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(y[i]) <= 2e-42f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_worse_than_plain_rounding),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(extremes_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
