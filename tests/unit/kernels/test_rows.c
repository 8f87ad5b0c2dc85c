/* Protects the operations on rows and heads: norm, activation, rotary, argmax, and the KV cache
 * with attention, each instruction set that this machine has against plain C; and that a token's
 * attention has the same bits whichever rows are computed beside it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/kernels.h"

static uint32_t random_state = 521288629u;

static float draw_real(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return (float)(int32_t)random_state / 2147483648.0f;
}

static void *aligned(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(memory);
    memset(memory, 0, (bytes + 63) / 64 * 64);
    return memory;
}

static void expect_close(const float *got, const float *wanted, uint32_t count, float bound)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - wanted[i]) <= bound * (1 + fabsf(wanted[i]))))
            fail_msg("element %u: %g, not %g", i, (double)got[i], (double)wanted[i]);
}

static void check_norm(const struct cpu_kernels *k)
{
    static const uint32_t columns[] = {1, 31, 32, 48, 333, 576};
    float *x = aligned(640 * 4), *gamma = aligned(640 * 4), *out = aligned(640 * 4),
          *wanted = aligned(640 * 4), *bias = aligned(640 * 4);

    for (size_t i = 0; i < 3 * sizeof columns / sizeof *columns; i++) {
        uint32_t count = columns[i / 3], padded = (count + 31) / 32 * 32;
        struct norm norm = {i % 3 > 0, count, 1e-5f, gamma, i % 3 > 1 ? bias : NULL};

        memset(x, 0, 640 * 4);
        memset(gamma, 0, 640 * 4);
        memset(bias, 0, 640 * 4);
        for (uint32_t c = 0; c < count; c++) {
            x[c] = draw_real() * 5 + 3;
            gamma[c] = draw_real();
            bias[c] = draw_real();
        }
        memset(out, 0xff, 640 * 4);
        k->norm(&norm, x, out);
        cpu_kernels_plain.norm(&norm, x, wanted);
        expect_close(out, wanted, padded, 3e-6f);
        for (uint32_t c = count; c < padded; c++)
            assert_true(out[c] == 0);
        k->norm(&norm, x, x); /* in place */
        assert_memory_equal(x, out, padded * 4);
    }
    free(bias);
    free(x);
    free(gamma);
    free(out);
    free(wanted);
}

static void check_activations(const struct cpu_kernels *k)
{
    _Alignas(64) float gate[32], up[32], out[32], wanted[32];
    static const float extremes[] = {0, -0.0f, 100, -100, 80, -80, 1e-20f, 88.7f, -88.7f};

    for (int round = 0; round < 100 * ACTIVATION_COUNT; round++) {
        enum activation activation = round % ACTIVATION_COUNT;

        for (int i = 0; i < 32; i++) {
            gate[i] = round < ACTIVATION_COUNT && i < 9 ? extremes[i] : draw_real() * 20;
            up[i] = draw_real() * 3;
        }
        k->activate(activation, gate, up, 7.0f, out);
        cpu_kernels_plain.activate(activation, gate, up, 7.0f, wanted);
        expect_close(out, wanted, 32, 4e-6f);
        k->activate(activation, gate, NULL, 7.0f, out);
        cpu_kernels_plain.activate(activation, gate, NULL, 7.0f, wanted);
        expect_close(out, wanted, 32, 4e-6f);
    }
}

static void check_softcap(const struct cpu_kernels *k)
{
    _Alignas(64) float values[64], wanted[64];

    for (int i = 0; i < 64; i++)
        values[i] = wanted[i] = draw_real() * (i < 32 ? 5 : 1000);
    k->softcap(values, 64, 30.0f);
    cpu_kernels_plain.softcap(wanted, 64, 30.0f);
    expect_close(values, wanted, 64, 1e-5f);
}

static void check_rotate(const struct cpu_kernels *k)
{
    static const struct {
        uint32_t head_size, rotates;
    } shapes[] = {{64, 64}, {20, 20}, {80, 32}, {128, 128}, {16, 8}, {6, 2}};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (int halves = 0; halves < 2; halves++) {
            _Alignas(64) float head[128], wanted[128], cosines[128] = {0}, sines[128] = {0};
            struct rotary rotary = {shapes[i].rotates, halves, cosines, sines};

            for (uint32_t d = 0; d < shapes[i].head_size; d++)
                head[d] = wanted[d] = draw_real();
            for (uint32_t p = 0; p < shapes[i].rotates / 2; p++) {
                uint32_t a = halves ? p : 2 * p, b = halves ? p + shapes[i].rotates / 2 : 2 * p + 1;
                float angle = draw_real() * 10;

                cosines[a] = cosines[b] = cosf(angle);
                sines[a] = -sinf(angle);
                sines[b] = sinf(angle);
            }
            k->rotate(head, shapes[i].head_size, &rotary, 0.25f);
            cpu_kernels_plain.rotate(wanted, shapes[i].head_size, &rotary, 0.25f);
            expect_close(head, wanted, shapes[i].head_size, 1e-6f);
        }
    }
}

static void check_argmax(const struct cpu_kernels *k)
{
    _Alignas(64) float values[200];
    float value;

    for (uint32_t count = 1; count < 200; count++) {
        uint32_t best = 0;

        for (uint32_t i = 0; i < count; i++)
            values[i] = floorf(draw_real() * 8); /* many ties */
        for (uint32_t i = 1; i < count; i++)
            if (values[i] > values[best])
                best = i;
        assert_int_equal(k->argmax(values, count, &value), best);
        assert_true(value == values[best]);
        if (count > 2) {
            values[best] = NAN;
            assert_int_not_equal(k->argmax(values, count, &value), best);
        }
    }
}

struct attention_case {
    uint32_t kv_heads, head_size, group, tokens, position;
    bool f32;
    uint32_t value_size; /* 0: head_size */
    uint32_t window;
    float softcap;
    bool slopes, sinks;
    bool both_ways; /* every token sees all */
};

struct attention_world {
    struct kv_shape shape;
    struct attend attend;
    struct kernel_scratch scratch;
    uint8_t *pages;
    uint32_t table[64];
    float *queries, *out;
    float slopes[32], sinks[32];
    uint32_t width, out_width;
};

static void world_open(struct attention_world *w, const struct cpu_kernels *k,
                       const struct attention_case *c)
{
    uint32_t total = c->position + c->tokens, pages = (total + PAGE_TOKENS - 1) / PAGE_TOKENS;
    float *key = aligned(c->head_size * 4), *value = aligned(c->head_size * 4);
    uint32_t value_size = c->value_size ? c->value_size : c->head_size;
    size_t block;

    w->shape = (struct kv_shape){.kv_heads = c->kv_heads,
                                 .head_size = c->head_size,
                                 .value_size = value_size,
                                 .value_padded = (value_size + 15) / 16 * 16,
                                 .f32 = c->f32};
    block = kv_block_bytes(&w->shape);
    w->pages = aligned(block * c->kv_heads * (pages + 3));
    for (uint32_t i = 0; i < pages; i++)
        w->table[i] = pages + 2 - i; /* not in order */
    for (uint32_t p = 0; p < total; p++) {
        for (uint32_t h = 0; h < c->kv_heads; h++) {
            for (uint32_t d = 0; d < c->head_size; d++) {
                key[d] = draw_real() * 2;
                value[d] = draw_real() * 2;
            }
            k->kv_write(&w->shape, w->pages + (w->table[p / PAGE_TOKENS] * c->kv_heads + h) * block,
                        p % PAGE_TOKENS, key, value);
        }
    }
    w->width = c->kv_heads * c->group * c->head_size;
    w->queries = aligned((size_t)c->tokens * w->width * 4);
    w->out_width = c->kv_heads * c->group * value_size;
    w->out = aligned((size_t)c->tokens * w->out_width * 4);
    for (uint32_t i = 0; i < c->tokens * w->width; i++)
        w->queries[i] = draw_real();
    w->scratch = (struct kernel_scratch){
        .queries = aligned((size_t)c->head_size * ATTEND_ROWS_MAX * 4),
        .scores = aligned((size_t)ATTEND_ROWS_MAX * (ATTEND_CHUNK + LANES) * 4),
        .sums = aligned((size_t)ATTEND_ROWS_MAX * w->shape.value_padded * 4)};
    w->attend = (struct attend){.shape = &w->shape,
                                .pages = w->pages,
                                .page_table = w->table,
                                .group = c->group,
                                .position = c->position,
                                .queries = w->queries,
                                .query_stride = w->width,
                                .out = w->out,
                                .out_stride = w->out_width,
                                .window = c->window,
                                .keys = c->both_ways ? total : 0,
                                .softcap = c->softcap,
                                .slopes = c->slopes ? w->slopes : NULL,
                                .sinks = c->sinks ? w->sinks : NULL};
    for (uint32_t i = 0; i < 32; i++) {
        w->slopes[i] = exp2f(-(float)(i % 8));
        w->sinks[i] = draw_real() * 4;
    }
    free(key);
    free(value);
}

static void world_close(struct attention_world *w)
{
    free(w->pages);
    free(w->queries);
    free(w->out);
    free(w->scratch.queries);
    free(w->scratch.scores);
    free(w->scratch.sums);
}

static void run_attention(struct attention_world *w, const struct cpu_kernels *k, uint32_t at_once,
                          float *to, uint32_t tokens)
{
    uint32_t rows = tokens * w->attend.group;

    memset(w->out, 0xff, (size_t)tokens * w->out_width * 4);
    for (uint32_t h = 0; h < w->shape.kv_heads; h++) {
        w->attend.kv_head = h;
        for (uint32_t first = 0; first < rows; first += at_once)
            k->attend(&w->attend, first, rows - first < at_once ? rows - first : at_once,
                      &w->scratch);
    }
    memcpy(to, w->out, (size_t)tokens * w->out_width * 4);
}

static void check_attention(const struct cpu_kernels *k)
{
    static const struct attention_case cases[] = {
        {.kv_heads = 1, .head_size = 64, .group = 1, .tokens = 1},
        {.kv_heads = 3, .head_size = 64, .group = 3, .tokens = 1, .position = 100},
        {.kv_heads = 2, .head_size = 20, .group = 4, .tokens = 7, .position = 13, .f32 = true},
        {.kv_heads = 1, .head_size = 80, .group = 5, .tokens = 33},
        {.kv_heads = 2, .head_size = 16, .group = 1, .tokens = 5, .position = 600},
        {.kv_heads = 2, .head_size = 64, .group = 2, .tokens = 3, .position = 255, .f32 = true},
        /* Windows: within a page, over a chunk's border, reaching no chunk of earlier rows. */
        {2, 16, 2, 9, 40, true, .window = 5},
        {1, 32, 3, 40, 500, false, .window = 256},
        {1, 16, 2, 30, 770, true, .window = 17},
        {2, 16, 2, 9, 300, false, .softcap = 4.0f},
        {2, 20, 3, 9, 300, true, .slopes = true},
        {2, 16, 4, 20, 250, false, .window = 30, .sinks = true},
        {2, 16, 4, 3, 0, true, .sinks = true},
        /* Values smaller than keys. */
        {1, 40, 5, 7, 300, true, .value_size = 32},
        {1, 300, 4, 3, 20, false, .value_size = 24},
        {2, 16, 2, 9, 300, true, .window = 100, .softcap = 2.0f, .slopes = true, .sinks = true},
        {3, 20, 1, 70, 0, false, .both_ways = true},
        {2, 16, 2, 300, 0, true, .both_ways = true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attention_world w;
        size_t count;
        float *wanted, *got, *again;

        world_open(&w, &cpu_kernels_plain, &cases[i]);
        count = (size_t)cases[i].tokens * w.out_width;
        wanted = aligned(count * 4);
        got = aligned(count * 4);
        again = aligned(count * 4);
        run_attention(&w, &cpu_kernels_plain, ATTEND_ROWS_MAX, wanted, cases[i].tokens);
        run_attention(&w, k, ATTEND_ROWS_MAX, got, cases[i].tokens);
        expect_close(got, wanted, (uint32_t)count, 2e-5f);
        run_attention(&w, k, 1, again, cases[i].tokens);
        assert_memory_equal(again, got, count * 4);
        run_attention(&w, k, 5, again, cases[i].tokens);
        assert_memory_equal(again, got, count * 4);
        world_close(&w);
        free(wanted);
        free(got);
        free(again);
    }
}

/* What one family writes into a page another must read as the same numbers. */
static void check_kv_write(const struct cpu_kernels *k)
{
    const struct attention_case c = {
        .kv_heads = 2, .head_size = 40, .group = 3, .tokens = 4, .position = 30};
    struct attention_world w;
    float *wanted, *got;
    size_t count;
    uint32_t seed = random_state;

    world_open(&w, &cpu_kernels_plain, &c);
    count = (size_t)c.tokens * w.out_width;
    wanted = aligned(count * 4);
    got = aligned(count * 4);
    run_attention(&w, &cpu_kernels_plain, ATTEND_ROWS_MAX, wanted, c.tokens);
    world_close(&w);
    random_state = seed;
    world_open(&w, k, &c);
    run_attention(&w, &cpu_kernels_plain, ATTEND_ROWS_MAX, got, c.tokens);
    expect_close(got, wanted, (uint32_t)count, 1e-4f);
    world_close(&w);
    free(wanted);
    free(got);
}

static void check_level(enum cpu_level level)
{
    const struct cpu_kernels *k = cpu_kernels_get(level);

    if (level > cpu_level_detect()) {
        printf("skip: this processor cannot run level %d\n", (int)level);
        skip();
    }
    check_norm(k);
    check_activations(k);
    check_softcap(k);
    check_rotate(k);
    check_argmax(k);
    check_attention(k);
    check_kv_write(k);
}

static void plain_rows(void **state)
{
    (void)state;
    check_level(CPU_PLAIN);
}

static void avx2_rows(void **state)
{
    (void)state;
    check_level(CPU_AVX2);
}

static void avx512_rows(void **state)
{
    (void)state;
    check_level(CPU_AVX512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rows),
        cmocka_unit_test(avx2_rows),
        cmocka_unit_test(avx512_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
