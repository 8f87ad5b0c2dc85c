/* Protects random weights: the values are pinned, so that a saved model is the same tomorrow and on
 * every device; their statistics are those asked for; no row or tensor repeats another. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cpu/half.h"
#include "kernels/random_weight.h"

static void values_are_pinned(void **state)
{
    struct random_weight weight = random_weight_make("model.embed_tokens.weight", 0.0f, 0.02f);
    struct random_weight norm = random_weight_make("model.norm.weight", 1.0f, 0.0625f);

    (void)state;
    assert_true(random_weight_seed("") == 0xcbf29ce484222325u); /* FNV's own check values */
    assert_true(random_weight_seed("a") == 0xaf63dc4c8601ec8cu);
    assert_true(random_weight_seed("foobar") == 0x85944171f73967e8u);
    assert_int_equal(float_bits(random_weight_value(weight, 0)), 0x3c2429f5);
    assert_int_equal(float_bits(random_weight_value(weight, 1)), 0xbc43f6e1);
    assert_int_equal(float_bits(random_weight_value(weight, (uint64_t)1 << 40)), 0x3b92193e);
    assert_int_equal(random_weight_bf16(norm, 5), 0x3f86);
}

/* The first numbers of SplitMix64 from the seed 0, which its authors' program prints too. */
static void hashes_as_published(void **state)
{
    /* 0xe220a8397b1dcdaf: the sum of its pieces less 2 x 65535. */
    struct random_weight weight = {0, 0, 1.0f};

    (void)state;
    assert_true(random_weight_value(weight, 0) ==
                (float)(0xe220 + 0xa839 + 0x7b1d + 0xcdaf - 2 * 0xffff));
    /* 0x6e789e6aa1b965f4 */
    assert_true(random_weight_value(weight, 1) ==
                (float)(0x6e78 + 0x9e6a + 0xa1b9 + 0x65f4 - 2 * 0xffff));
}

static void check_statistics(const char *name, float centre, float deviation)
{
    enum { COUNT = 1 << 20 };
    struct random_weight weight = random_weight_make(name, centre, deviation);
    double sum = 0, squares = 0, fourths = 0, neighbours = 0, before = 0, far = 0;

    for (uint64_t i = 0; i < COUNT; i++) {
        double z = ((double)random_weight_value(weight, i) - (double)centre) / (double)deviation;

        sum += z;
        squares += z * z;
        fourths += z * z * z * z;
        neighbours += z * before;
        before = z;
        far = fabs(z) > far ? fabs(z) : far;
    }
    /* Five standard errors of a million draws. Fourth moment of four uniform pieces: 2.7. */
    assert_true(fabs(sum / COUNT) < 0.005);
    assert_true(fabs(squares / COUNT - 1) < 0.007);
    assert_true(fabs(fourths / COUNT - 2.7) < 0.03);
    assert_true(fabs(neighbours / COUNT) < 0.005);
    assert_true(far > 3.0 && far < 3.47);
}

static void statistics_are_as_asked(void **state)
{
    (void)state;
    check_statistics("model.layers.0.mlp.down_proj.weight", 0.0f, 0.01f);
    check_statistics("model.norm.weight", 1.0f, 0.0625f);
    check_statistics("another", 0.0f, 3.0f);
}

/* bfloat16 keeps the statistics, and rounds as the CPU's conversion does. */
static void bf16_is_the_nearest(void **state)
{
    struct random_weight weight = random_weight_make("rounded", 0.0f, 0.02f);

    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        float value = random_weight_value(weight, i);
        float half = float_from_bf16(random_weight_bf16(weight, i));

        assert_int_equal(random_weight_bf16(weight, i), bf16_from_float(value));
        assert_true(fabsf(half - value) <= fabsf(value) * 0x1p-8f);
    }
}

/* Rows of one tensor, and the same elements of two tensors, have nothing in common. */
static void nothing_repeats(void **state)
{
    struct random_weight a = random_weight_make("model.layers.0.self_attn.q_proj.weight", 0, 1);
    struct random_weight b = random_weight_make("model.layers.1.self_attn.q_proj.weight", 0, 1);
    double rows = 0, tensors = 0;

    (void)state;
    for (uint64_t i = 0; i < 65536; i++) {
        rows += (double)random_weight_value(a, i) * (double)random_weight_value(a, i + 4096);
        tensors += (double)random_weight_value(a, i) * (double)random_weight_value(b, i);
    }
    assert_true(fabs(rows / 65536) < 0.02);
    assert_true(fabs(tensors / 65536) < 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_pinned),       cmocka_unit_test(hashes_as_published),
        cmocka_unit_test(statistics_are_as_asked), cmocka_unit_test(bf16_is_the_nearest),
        cmocka_unit_test(nothing_repeats),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
