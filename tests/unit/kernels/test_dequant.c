/* Protects what the bits of every stored format mean, against another implementation's values; that
 * packing keeps them; and the 16-bit floats. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/dequant.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/packed.h"
#include "tests/unit/kernels/dequant_blocks.h"

static const struct known {
    enum dtype type;
    const uint8_t *block;
    size_t bytes;
    const uint32_t *values; /* the bits of floats */
    uint32_t count;
} knowns[] = {
#define KNOWN(NAME)                                                                           \
    {                                                                                         \
        DT_##NAME, block_##NAME, sizeof block_##NAME, values_##NAME, sizeof values_##NAME / 4 \
    }
    KNOWN(Q4_0),    KNOWN(Q4_1),  KNOWN(Q5_0),    KNOWN(Q5_1),   KNOWN(Q8_0),   KNOWN(Q2_K),
    KNOWN(Q3_K),    KNOWN(Q4_K),  KNOWN(Q5_K),    KNOWN(Q6_K),   KNOWN(IQ4_NL), KNOWN(IQ4_XS),
    KNOWN(IQ3_XXS), KNOWN(IQ3_S), KNOWN(IQ2_XXS), KNOWN(IQ2_XS), KNOWN(IQ2_S),  KNOWN(IQ1_S),
    KNOWN(IQ1_M),   KNOWN(TQ1_0), KNOWN(TQ2_0),   KNOWN(MXFP4),  KNOWN(NVFP4),
};
enum { KNOWN_COUNT = sizeof knowns / sizeof *knowns, ELEMENTS_MAX = 256, ROWS = 19, BLOCKS = 3 };

/* Bit for bit. */
static void expect_values(const float *got, const struct known *known)
{
    for (uint32_t i = 0; i < known->count; i++)
        if (got[i] != float_from_bits(known->values[i]))
            fail_msg("%s, element %u: %.9g, not %.9g", dtype_get(known->type)->name, i,
                     (double)got[i], (double)float_from_bits(known->values[i]));
}

static void known_blocks(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KNOWN_COUNT; k++) {
        const struct known *known = &knowns[k];
        float values[2 * ELEMENTS_MAX];
        uint8_t twice[2 * 256 + 1];

        assert_int_equal(known->bytes, dtype_get(known->type)->bytes);
        assert_int_equal(known->count, dtype_get(known->type)->block);
        memcpy(twice + 1, known->block, known->bytes); /* at an odd address */
        memcpy(twice + 1 + known->bytes, known->block, known->bytes);
        dequant_row(known->type, twice + 1, 2 * known->count, values);
        expect_values(values, known);
        expect_values(values + known->count, known);
    }
}

/* Rows of three blocks, 19 rows: the second group is not full. */
static void packing_keeps_values(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < KNOWN_COUNT; k++) {
        const struct known *known = &knowns[k];
        struct packed packed = packed_shape(known->type, ROWS, BLOCKS * known->count);
        uint8_t *source = malloc(ROWS * BLOCKS * known->bytes);
        uint8_t *to = NULL;
        float row[BLOCKS * ELEMENTS_MAX];

        assert_non_null(source);
        for (uint32_t i = 0; i < ROWS * BLOCKS; i++)
            memcpy(source + i * known->bytes, known->block, known->bytes);
        packed.data = source;
        assert_int_equal(packed.groups, 2);
        if (packed.pack != PACK_RAW) {
            to = aligned_alloc(64, packed_bytes(&packed));
            assert_non_null(to);
            packed_group(&packed, source, 0, to);
            packed_group(&packed, source, 1, to + packed.group_bytes);
            packed.data = to;
        }
        for (uint32_t i = 0; i < ROWS; i++) {
            packed_row(&packed, i, row);
            for (uint32_t b = 0; b < BLOCKS; b++)
                expect_values(row + b * known->count, known);
        }
        free(to);
        free(source);
    }
}

static void raw_blocks_are_columns_of_16_rows(void **state)
{
    const struct known *known = &knowns[11];
    struct packed packed = packed_shape(known->type, ROWS, 256);
    uint8_t *source = calloc(ROWS, known->bytes);
    float *columns = malloc(256 * GROUP_ROWS * sizeof *columns), row[256];

    (void)state;
    assert_int_equal(known->type, DT_IQ4_XS);
    assert_int_equal(packed.pack, PACK_RAW);
    assert_true(source && columns);
    memcpy(source + 17 * known->bytes, known->block,
           known->bytes); /* one row of the second group */
    packed.data = source;
    packed_raw_blocks(&packed, 1, 0, 256 / BLOCK_COLUMNS, columns);
    for (uint32_t lane = 0; lane < GROUP_ROWS; lane++) {
        for (uint32_t i = 0; i < 256; i++)
            row[i] = columns[i * GROUP_ROWS + lane];
        if (lane == 1)
            expect_values(row, known);
        for (uint32_t i = 0; lane != 1 && i < 256; i++)
            assert_true(row[i] == 0); /* other rows are zeros, missing ones too */
    }
    free(columns);
    free(source);
}

static void halves(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 1 << 16; bits++) {
        float value = float_from_f16((uint16_t)bits);

        if (isnan(value))
            assert_true((bits & 0x7c00) == 0x7c00 && (bits & 0x3ff));
        else
            assert_int_equal(f16_from_float(value), bits);
    }
    assert_true(float_from_f16(0x3c01) == 1.0f + 0x1p-10f);
    assert_true(float_from_f16(0x0001) == 0x1p-24f);
    assert_int_equal(f16_from_float(1.0f + 0x1p-11f), 0x3c00); /* half way: to even */
    assert_int_equal(f16_from_float(1.0f + 3 * 0x1p-11f), 0x3c02);
    assert_int_equal(f16_from_float(1.0f + 0x1.01p-11f), 0x3c01);
    assert_int_equal(f16_from_float(0x1p-25f), 0); /* half the smallest */
    assert_int_equal(f16_from_float(0x1.8p-24f), 2);
    assert_int_equal(f16_from_float(65519.0f), 0x7bff);
    assert_int_equal(f16_from_float(65520.0f), 0x7c00);
    assert_int_equal(f16_from_float(-1e30f), 0xfc00);
    assert_true(isnan(float_from_f16(f16_from_float(NAN))));
    assert_true(float_from_bf16(0x3f80) == 1.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_blocks),
        cmocka_unit_test(packing_keeps_values),
        cmocka_unit_test(raw_blocks_are_columns_of_16_rows),
        cmocka_unit_test(halves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
