/* Protects every product kernel: each instruction set that this machine has, each stored type, odd
 * shapes and row counts, each precision of activations, against float64 sums over the dequantized
 * weights; and that a row has the same bits alone and beside others. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/dequant.h"
#include "kernels/cpu/dequant_tables.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/kernels.h"

enum {
    ROWS_MAX = 19,
    COLUMNS_MAX = 1024,
    OUTPUTS = 71, /* four groups and seven rows */
    OUTPUTS_MAX = 80,
};

static uint32_t random_state = 2463534242u;

static uint32_t draw(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

static float draw_real(void)
{
    return (float)(int32_t)draw() / 2147483648.0f;
}

static void *aligned(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 4096 + 63) / 64 * 64); /* prefetches run ahead */

    assert_non_null(memory);
    memset(memory, 0, (bytes + 4096 + 63) / 64 * 64);
    return memory;
}

/* Any bits are quants; halves and floats must be moderate numbers. */
static void fill_source(enum dtype type, uint8_t *to, size_t bytes)
{
    const struct dtype_info *info = dtype_get(type);

    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)draw();
    for (size_t at = 0; at < bytes; at += info->bytes) {
        uint16_t halves[2] = {f16_from_float(draw_real() / 8), f16_from_float(draw_real() / 8)};
        float value = draw_real();

        switch (type) {
        case DT_F32:
            memcpy(to + at, &value, 4);
            break;
        case DT_F16:
            memcpy(to + at, halves, 2);
            break;
        case DT_BF16:
            memcpy(to + at, (const uint8_t *)&value + 2, 2);
            break;
        case DT_Q2_K:
            memcpy(to + at + 80, halves, 4);
            break;
        case DT_Q3_K:
            memcpy(to + at + 108, halves, 2);
            break;
        case DT_Q6_K:
            memcpy(to + at + 208, halves, 2);
            break;
        case DT_Q4_1:
        case DT_Q5_1:
        case DT_Q4_K:
        case DT_Q5_K:
            memcpy(to + at, halves, 4);
            break;
        case DT_IQ1_M: /* the highest four bits of the f16 */
            to[at + 55] = (uint8_t)(0x20 | (to[at + 55] & 0x8f));
            break;
        case DT_TQ1_0:
            memcpy(to + at + 52, halves, 2);
            break;
        case DT_TQ2_0:
            memcpy(to + at + 64, halves, 2);
            break;
        case DT_MXFP4: /* an exponent */
            to[at] = (uint8_t)(118 + to[at] % 8);
            break;
        case DT_NVFP4:
            for (size_t i = at; i < at + 4; i++)
                to[i] &= 0x3f;
            break;
        case DT_F8_E4M3:
        case DT_F8_E8M0: /* no infinities */
        case DT_I8:
            to[at] = type == DT_F8_E8M0 ? (uint8_t)(118 + to[at] % 8) : (uint8_t)(to[at] & 0xbf);
            break;
        default:
            memcpy(to + at, halves, 2);
            break;
        }
    }
}

struct bench {
    struct activations x;
    struct kernel_scratch scratch;
    float *values; /* [ROWS_MAX][COLUMNS_MAX] */
    float *y;
};

static void bench_init(struct bench *bench)
{
    size_t units = units_of(ROWS_MAX, COLUMNS_MAX / BLOCK_COLUMNS);

    bench->x = (struct activations){.f32 = aligned(units * BLOCK_COLUMNS * 4),
                                    .words = aligned(units * BLOCK_COLUMNS * 2),
                                    .high = aligned(units * BLOCK_COLUMNS),
                                    .low = aligned(units * BLOCK_COLUMNS),
                                    .sums_f32 = aligned(units * 4),
                                    .scales = aligned(units * 4),
                                    .sums = aligned(units * 4),
                                    .offsets = aligned(units * 4)};
    bench->scratch.raw = aligned((size_t)RAW_BLOCKS * BLOCK_COLUMNS * GROUP_ROWS * 4);
    bench->values = aligned((size_t)ROWS_MAX * COLUMNS_MAX * 4);
    bench->y = aligned((size_t)ROWS_MAX * OUTPUTS_MAX * 4);
}

static void bench_fini(struct bench *bench)
{
    free(bench->x.f32);
    free(bench->x.words);
    free(bench->x.high);
    free(bench->x.low);
    free(bench->x.sums_f32);
    free(bench->x.scales);
    free(bench->x.sums);
    free(bench->x.offsets);
    free(bench->scratch.raw);
    free(bench->values);
    free(bench->y);
}

static void put_rows(const struct cpu_kernels *kernels, struct bench *bench, const struct packed *w,
                     enum precision precision, uint32_t first, uint32_t rows)
{
    bench->x.rows = rows;
    bench->x.blocks = w->blocks;
    bench->x.precision = precision;
    bench->x.forms = kernels->form(w->pack, precision, rows);
    for (uint32_t row = 0; row < rows; row++)
        kernels->put(&bench->x, row, 0, w->blocks,
                     bench->values + (size_t)(first + row) * COLUMNS_MAX);
}

static void multiply(const struct cpu_kernels *kernels, struct bench *bench, const struct packed *w)
{
    kernels->product(w, 0, w->groups, &bench->x, bench->y, OUTPUTS_MAX, false, &bench->scratch);
}

/* The largest error relative to the size that the sum's terms give it. */
static double worst_error(const struct bench *bench, const uint8_t *source, const struct packed *w,
                          uint32_t rows)
{
    float *weights = aligned(COLUMNS_MAX * 4);
    uint32_t columns = w->columns;
    double worst = 0;

    for (uint32_t o = 0; o < w->rows; o++) {
        uint32_t from = w->block_rows ? o / w->block_rows * w->block_stride + o % w->block_rows : o;

        if (w->tables)
            dequant_tables(w->tables, w->first_row + from, 0, columns, weights);
        else
            dequant_row(w->type, source + o * dtype_bytes(w->type, columns), columns, weights);
        for (uint32_t row = 0; row < rows; row++) {
            const float *x = bench->values + (size_t)row * COLUMNS_MAX;
            double sum = 0, squares = 0, error;

            for (uint32_t i = 0; i < columns; i++) {
                sum += (double)weights[i] * (double)x[i];
                squares += (double)weights[i] * (double)weights[i] * (double)x[i] * (double)x[i];
            }
            error = fabs((double)bench->y[(size_t)row * OUTPUTS_MAX + o] - sum) / sqrt(squares);
            worst = error > worst ? error : worst;
        }
    }
    free(weights);
    return worst;
}

static void check_alone(const struct cpu_kernels *kernels, struct bench *bench,
                        const struct packed *w, enum precision precision, uint32_t rows)
{
    float *together = aligned((size_t)ROWS_MAX * OUTPUTS_MAX * 4);

    memcpy(together, bench->y, (size_t)ROWS_MAX * OUTPUTS_MAX * 4);
    for (uint32_t row = 0; row < rows; row++) {
        put_rows(kernels, bench, w, precision, row, 1);
        multiply(kernels, bench, w);
        assert_memory_equal(bench->y, together + (size_t)row * OUTPUTS_MAX,
                            w->groups * GROUP_ROWS * 4);
    }
    free(together);
}

/* `w` but its data, of `source` or of its tables. */
static void check_packed(const struct cpu_kernels *kernels, struct bench *bench, struct packed w,
                         const uint8_t *source, enum precision precision)
{
    static const uint32_t rows[] = {1, 2, 3, 5, 8, 13, ROWS_MAX};
    static const double bounds[] = {
        [PRECISION_INT16] = 3e-4, [PRECISION_F32] = 2e-5, [PRECISION_INT8] = 3e-2};
    uint8_t *data = w.pack == PACK_RAW ? NULL : aligned(packed_bytes(&w));

    for (uint32_t g = 0; data && g < w.groups; g++)
        packed_group(&w, source, g, data + g * w.group_bytes);
    w.data = data ? data : source;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double error;

        for (uint32_t r = 0; r < rows[i]; r++)
            for (uint32_t c = 0; c < w.blocks * BLOCK_COLUMNS; c++)
                bench->values[(size_t)r * COLUMNS_MAX + c] = c < w.columns ? draw_real() * 3 : 0;
        put_rows(kernels, bench, &w, precision, 0, rows[i]);
        multiply(kernels, bench, &w);
        error = worst_error(bench, source, &w, rows[i]);
        if (!(error < bounds[precision]))
            fail_msg("%s %s, precision %d, %u rows: error %g", kernels->name,
                     dtype_get(w.type)->name, (int)precision, rows[i], error);
        check_alone(kernels, bench, &w, precision, rows[i]);
    }
    free(data);
}

static void check_type(const struct cpu_kernels *kernels, struct bench *bench, enum dtype type,
                       enum precision precision)
{
    uint32_t columns = dtype_get(type)->block == 1 ? 333 : dtype_get(type)->block * 3;
    struct packed w = packed_shape(type, OUTPUTS, columns);
    uint8_t *source = aligned(OUTPUTS * dtype_bytes(type, columns));

    fill_source(type, source, OUTPUTS * dtype_bytes(type, columns));
    check_packed(kernels, bench, w, source, precision);
    free(source);
}

enum { TABLES_ROWS = 128, TABLES_COLUMNS = 336, ELEMENTS = TABLES_ROWS * TABLES_COLUMNS };

/* Rows with tables, packed and not, scattered and not. */
/* clang-format off */
static const struct {
    enum dtype type;
    uint32_t scale_rows, scale_columns;
    enum quant_zeros zeros;
    enum pack pack;
    uint32_t first, block_rows, block_stride;
} table_cases[] = {
    {DT_F8_E4M3, 16, 64, ZEROS_NONE, PACK_F8, 3, 0, 0},
    {DT_F8_E4M3, 16, 48, ZEROS_NONE, PACK_RAW, 3, 5, 8},
    {DT_F8_E4M3, TABLES_ROWS, TABLES_COLUMNS, ZEROS_NONE, PACK_F8, 0, 5, 8},
    {DT_I8, 1, TABLES_COLUMNS, ZEROS_NONE, PACK_Q8, 0, 5, 8},
    {DT_INT4, 1, 32, ZEROS_8, PACK_Q4, 7, 0, 0},
    {DT_GPTQ4, 1, 128, ZEROS_GPTQ_LESS, PACK_Q4, 0, 5, 8},
    {DT_AWQ4, 1, 64, ZEROS_AWQ, PACK_Q4, 1, 0, 0},
    {DT_AWQ4, 1, 48, ZEROS_AWQ, PACK_RAW, 1, 0, 0},
    {DT_E2M1, 1, 48, ZEROS_NONE, PACK_RAW, 1, 0, 0},
    {DT_E2M1, 1, 32, ZEROS_NONE, PACK_Q4, 1, 5, 8},
};
/* clang-format on */

static void check_tables(const struct cpu_kernels *kernels, struct bench *bench,
                         enum precision precision)
{
    uint8_t *elements = aligned(ELEMENTS), *scales = aligned(2 * ELEMENTS);
    uint8_t *zeros = aligned(ELEMENTS);

    for (int i = 0; i < ELEMENTS; i++) {
        uint16_t scale = f16_from_float((1.5f + draw_real()) / 8);

        elements[i] = (uint8_t)(draw() & 0xbf); /* no NaN */
        zeros[i] = (uint8_t)draw();
        memcpy(scales + 2 * i, &scale, sizeof scale);
    }
    for (size_t i = 0; i < sizeof table_cases / sizeof *table_cases; i++) {
        uint32_t group = table_cases[i].scale_columns;
        struct quant_tables tables = {.type = table_cases[i].type,
                                      .data = elements,
                                      .rows = TABLES_ROWS,
                                      .columns = TABLES_COLUMNS,
                                      .scale_type = DT_F16,
                                      .scales = scales,
                                      .scale_rows = table_cases[i].scale_rows,
                                      .scale_columns = group,
                                      .groups = (TABLES_COLUMNS + group - 1) / group,
                                      .zero_kind = table_cases[i].zeros,
                                      .zeros = zeros};
        struct packed w;

        tables.scales_by_group = tables.type == DT_GPTQ4 || tables.type == DT_AWQ4;
        w = packed_shape_tables(&tables, OUTPUTS, TABLES_COLUMNS);
        assert_int_equal(w.pack, table_cases[i].pack);
        w.tables = &tables;
        w.first_row = table_cases[i].first;
        w.block_rows = table_cases[i].block_rows;
        w.block_stride = table_cases[i].block_stride;
        check_packed(kernels, bench, w, NULL, precision);
    }
    free(elements);
    free(scales);
    free(zeros);
}

static void check_level(enum cpu_level level)
{
    const struct cpu_kernels *kernels = cpu_kernels_get(level);
    struct bench bench;

    if (level > cpu_level_detect()) {
        printf("skip: this processor cannot run level %d\n", (int)level);
        skip();
    }
    bench_init(&bench);
    for (int type = 0; type < DTYPE_COUNT; type++) {
        if (!dequant_supported((enum dtype)type))
            continue; /* it needs tables */
        check_type(kernels, &bench, (enum dtype)type, PRECISION_INT16);
        check_type(kernels, &bench, (enum dtype)type, PRECISION_F32);
        check_type(kernels, &bench, (enum dtype)type, PRECISION_INT8);
    }
    check_tables(kernels, &bench, PRECISION_INT16);
    check_tables(kernels, &bench, PRECISION_F32);
    check_tables(kernels, &bench, PRECISION_INT8);
    bench_fini(&bench);
}

static void plain_products(void **state)
{
    (void)state;
    check_level(CPU_PLAIN);
}

static void avx2_products(void **state)
{
    (void)state;
    check_level(CPU_AVX2);
}

static void avx512_products(void **state)
{
    (void)state;
    check_level(CPU_AVX512);
}

/* Inputs too long for the first cache are used some rows at a time, onto what is there. */
static void pieces_give_the_same_bits(void **state)
{
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_Q4_1, DT_Q8_0};
    struct bench bench;

    (void)state;
    bench_init(&bench);
    for (size_t i = 0; i < ROWS_MAX * COLUMNS_MAX; i++)
        bench.values[i] = draw_real();
    for (int level = CPU_PLAIN; level <= (int)cpu_level_detect(); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_level)level);

        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            struct packed w = packed_shape(types[i], OUTPUTS_MAX, COLUMNS_MAX);
            size_t bytes = OUTPUTS_MAX * dtype_bytes(types[i], COLUMNS_MAX);
            uint8_t *source = aligned(bytes), *data = aligned(packed_bytes(&w));
            float *whole = aligned((size_t)ROWS_MAX * OUTPUTS_MAX * 4);

            fill_source(types[i], source, bytes);
            for (uint32_t g = 0; g < w.groups; g++)
                packed_group(&w, source, g, data + g * w.group_bytes);
            w.data = data;
            put_rows(kernels, &bench, &w, PRECISION_INT16, 0, ROWS_MAX);
            multiply(kernels, &bench, &w);
            kernels->product(&w, 0, w.groups, &bench.x, bench.y, OUTPUTS_MAX, true, &bench.scratch);
            memcpy(whole, bench.y, (size_t)ROWS_MAX * OUTPUTS_MAX * 4);
            for (int twice = 0; twice < 2; twice++)
                cpu_product(kernels, &w, 0, w.groups, &bench.x, bench.y, OUTPUTS_MAX, twice > 0,
                            &bench.scratch);
            assert_memory_equal(bench.y, whole, (size_t)ROWS_MAX * OUTPUTS_MAX * 4);
            free(source);
            free(data);
            free(whole);
        }
    }
    bench_fini(&bench);
}

/* A broken model computes infinity and NaN; what the integers are then is no matter, but they stay
 * in their range, and the sums are theirs. */
static void inputs_that_are_no_numbers(void **state)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, -NAN, 3e38f, -3e38f, 1e-44f, 0, 1};
    enum { ODD_COUNT = sizeof odd / sizeof *odd };
    struct bench bench;

    (void)state;
    bench_init(&bench);
    for (int level = CPU_PLAIN; level <= (int)cpu_level_detect(); level++) {
        const struct cpu_kernels *kernels = cpu_kernels_get((enum cpu_level)level);

        for (int i = 0; i < 2000; i++) {
            bool bytes = i % 2 == 1;
            int32_t most = bytes ? ACTIVATION_INT8_MOST : ACTIVATION_INT16_MOST, sum = 0;

            bench.x.rows = bench.x.blocks = 1;
            bench.x.precision = bytes ? PRECISION_INT8 : PRECISION_INT16;
            bench.x.forms = FORM_WORDS;
            for (int c = 0; c < BLOCK_COLUMNS; c++)
                bench.values[c] = draw() % 4 ? draw_real() : odd[draw() % ODD_COUNT];
            kernels->put(&bench.x, 0, 0, 1, bench.values);
            for (int c = 0; c < BLOCK_COLUMNS; c++) {
                assert_in_range(bench.x.words[c] + most, 0, 2 * most);
                sum += bench.x.words[c];
            }
            assert_int_equal(bench.x.offsets[0], -128 * sum);
        }
    }
    bench_fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_products),
        cmocka_unit_test(avx2_products),
        cmocka_unit_test(avx512_products),
        cmocka_unit_test(pieces_give_the_same_bits),
        cmocka_unit_test(inputs_that_are_no_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
