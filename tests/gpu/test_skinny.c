/* Protects the fused products of few rows: logits, residual and SwiGLU, every type and number of
 * tokens against float64, on odd shapes. (q, k and v have the goldens.)
 *
 *     test_skinny          the tests
 *     test_skinny bench    microseconds of each product of an 8B model, in chains of dependent
 *                          launches as a step has them, and of a layer's one after another */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/half.h"
#include "kernels/cuda/kernels.h"

enum { HEAD_SIZE = 64, PAGES_PER_ROW = 4, BENCH_LAYERS = 16 };

static struct cuda_context context;
static struct cuda_stream stream;

static void check(int r)
{
    if (r < 0)
        fail_msg("%s", context.failure.message);
}

static void *take(size_t bytes)
{
    void *memory = NULL;

    check(cuda_allocate(&context, bytes, &memory));
    check(cuda_fill(&stream, memory, 0, bytes));
    return memory;
}

static void send(void *to, const void *from, size_t bytes)
{
    check(cuda_copy(&stream, to, from, bytes));
    check(cuda_stream_synchronize(&stream));
}

static void fetch(void *to, const void *from, size_t bytes)
{
    check(cuda_copy(&stream, to, from, bytes));
    check(cuda_stream_synchronize(&stream));
}

/* --- numbers -------------------------------------------------------------------------------- */

static uint64_t random_state = 1;

static float random_number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 11) / (double)(1ull << 53) * 2.0 - 1.0);
}

static uint16_t narrow(enum dtype type, float v)
{
    return type == DT_F16 ? f16_from_float(v) : bf16_from_float(v);
}

static float widen(enum dtype type, uint16_t v)
{
    return type == DT_F16 ? float_from_f16(v) : float_from_bf16(v);
}

/* Random numbers as the type has them: as stored, and as float. */
struct numbers {
    uint16_t *stored;
    float *wide;
};

static struct numbers numbers_make(enum dtype type, size_t count, float scale)
{
    struct numbers n = {calloc(count, 2), calloc(count, sizeof(float))};

    assert_true(n.stored && n.wide);
    for (size_t i = 0; i < count; i++) {
        n.stored[i] = narrow(type, random_number() * scale);
        n.wide[i] = widen(type, n.stored[i]);
    }
    return n;
}

static void numbers_free(struct numbers *n)
{
    free(n->stored);
    free(n->wide);
}

static size_t fragment(uint32_t token, uint32_t column)
{
    return (size_t)(column >> 4) * 128 + (token * 4 + ((column & 7) >> 1)) * 4 + (column & 1) +
           ((column >> 3) & 1) * 2;
}

static uint32_t to_chunks(uint32_t columns)
{
    return (columns + CUDA_SKINNY_COLUMNS - 1) / CUDA_SKINNY_COLUMNS * CUDA_SKINNY_COLUMNS;
}

/* --- one product ---------------------------------------------------------------------------- */

struct fixture {
    enum dtype type;
    uint32_t tokens, outputs, columns;
    struct numbers w, x;
    float *squares; /* [tokens][count] */
    uint32_t squares_count;
    double *y; /* [tokens][outputs]: the reference, scaled */
    struct cuda_skinny args;
};

/* Packs the weight on the device. */
static void *place_weight(const struct fixture *f, struct cuda_pack order)
{
    void *rows = take((size_t)f->outputs * f->columns * 2);
    void *packed = take(cuda_pack_bytes(f->outputs, f->columns));

    order.outputs = f->outputs;
    order.columns = f->columns;
    send(rows, f->w.stored, (size_t)f->outputs * f->columns * 2);
    check(cuda_pack(&stream, &order, rows, packed));
    check(cuda_stream_synchronize(&stream));
    cuda_release(&context, rows);
    return packed;
}

static void *place_x(const struct fixture *f)
{
    size_t bytes = (size_t)CUDA_SKINNY_TOKENS * to_chunks(f->columns) * 2;
    uint16_t *host = calloc(1, bytes);
    void *x = take(bytes);

    assert_non_null(host);
    for (uint32_t t = 0; t < f->tokens; t++)
        for (uint32_t c = 0; c < f->columns; c++)
            host[fragment(t, c)] = f->x.stored[(size_t)t * f->columns + c];
    send(x, host, bytes);
    free(host);
    return x;
}

static void find_reference(struct fixture *f)
{
    f->y = calloc((size_t)f->tokens * f->outputs, sizeof *f->y);
    assert_non_null(f->y);
    for (uint32_t t = 0; t < f->tokens; t++) {
        double squares = 0, scale;

        for (uint32_t i = 0; i < f->squares_count; i++)
            squares += (double)f->squares[(size_t)t * f->squares_count + i];
        scale = 1 / sqrt(squares / f->columns + 1e-5);
        for (uint32_t o = 0; o < f->outputs; o++) {
            double sum = 0;

            for (uint32_t c = 0; c < f->columns; c++)
                sum += (double)f->w.wide[(size_t)o * f->columns + c] *
                       (double)f->x.wide[(size_t)t * f->columns + c];
            f->y[(size_t)t * f->outputs + o] = sum * scale;
        }
    }
}

static void open_product(struct fixture *f, enum dtype type, uint32_t tokens, uint32_t outputs,
                         uint32_t columns, struct cuda_pack order)
{
    void *squares;

    *f = (struct fixture){.type = type,
                          .tokens = tokens,
                          .outputs = outputs,
                          .columns = columns,
                          .squares_count = (columns + 15) / 16};
    f->w = numbers_make(type, (size_t)outputs * columns, 0.1f);
    f->x = numbers_make(type, (size_t)tokens * columns, 1.0f);
    f->squares = calloc((size_t)tokens * f->squares_count, sizeof *f->squares);
    assert_non_null(f->squares);
    for (uint32_t i = 0; i < tokens * f->squares_count; i++)
        f->squares[i] = 8 + 4 * random_number();
    squares = take((size_t)CUDA_SKINNY_TOKENS * f->squares_count * sizeof(float));
    send(squares, f->squares, (size_t)tokens * f->squares_count * sizeof(float));
    f->args = (struct cuda_skinny){
        .type = type,
        .tokens = tokens,
        .outputs = outputs,
        .columns = columns,
        .weights = place_weight(f, order),
        .x = place_x(f),
        .squares = squares,
        .squares_count = f->squares_count,
        .width = (float)columns,
        .epsilon = 1e-5f,
        .partials = take(cuda_skinny_scratch(&context.properties, outputs)),
    };
    find_reference(f);
}

static void close_product(struct fixture *f)
{
    cuda_release(&context, (void *)f->args.weights);
    cuda_release(&context, (void *)f->args.x);
    cuda_release(&context, (void *)f->args.squares);
    cuda_release(&context, f->args.partials);
    numbers_free(&f->w);
    numbers_free(&f->x);
    free(f->squares);
    free(f->y);
}

/* How far `got` may be from `wanted`: rounding of the result, and of sums of that size. */
static void expect_near(const struct fixture *f, const char *what, uint32_t token, uint32_t output,
                        double got, double wanted)
{
    double step = f->type == DT_F16 ? 1.0 / 1024 : 1.0 / 128;

    if (!(fabs(got - wanted) <= step * fabs(wanted) + 2e-3))
        fail_msg("%s %s %ux%u of %u: token %u, output %u is %g, not %g", what,
                 f->type == DT_F16 ? "f16" : "bf16", f->outputs, f->columns, f->tokens, token,
                 output, got, wanted);
}

/* --- tests by kind -------------------------------------------------------------------------- */

static const struct {
    uint32_t outputs, columns;
} shapes[] = {{64, 128}, {48, 16}, {192, 576}, {4096, 200}, {1000, 1536}, {20000, 96}, {80, 4100}};
static const uint32_t token_counts[] = {1, 2, 3, 7, 8};
static const enum dtype types[] = {DT_BF16, DT_F16};

#define EACH(i_, array_) for (size_t i_ = 0; i_ < sizeof(array_) / sizeof *(array_); i_++)

static void test_logits(void **state)
{
    (void)state;
    EACH(i, shapes) EACH(j, token_counts) EACH(k, types)
    {
        struct fixture f;
        uint32_t tokens = token_counts[j], outputs = shapes[i].outputs;
        float *got = calloc((size_t)tokens * outputs, sizeof *got);
        void *out;

        assert_non_null(got);
        open_product(&f, types[k], tokens, outputs, shapes[i].columns,
                     (struct cuda_pack){.order = CUDA_PACK_PLAIN});
        out = take((size_t)tokens * outputs * sizeof *got);
        f.args.kind = CUDA_SKINNY_LOGITS;
        f.args.out = out;
        f.args.out_stride = outputs;
        /* Twice: the counters of shared tiles must be as they were. */
        check(cuda_skinny(&stream, &f.args));
        check(cuda_fill(&stream, out, 0xff, (size_t)tokens * outputs * sizeof *got));
        check(cuda_skinny(&stream, &f.args));
        fetch(got, out, (size_t)tokens * outputs * sizeof *got);
        for (uint32_t t = 0; t < tokens; t++)
            for (uint32_t o = 0; o < outputs; o++)
                expect_near(&f, "logits", t, o, (double)got[(size_t)t * outputs + o],
                            f.y[(size_t)t * outputs + o]);
        cuda_release(&context, out);
        close_product(&f);
        free(got);
    }
}

/* With the shared memory of a block on cards of capability 12.0. */
static void test_small_block(void **state)
{
    const size_t bytes = context.properties.shared_bytes;

    context.properties.shared_bytes = 99 * 1024;
    test_logits(state);
    context.properties.shared_bytes = bytes;
}

static void test_residual(void **state)
{
    (void)state;
    EACH(i, shapes) EACH(j, token_counts)
    {
        struct fixture f;
        uint32_t tokens = token_counts[j], outputs = shapes[i].outputs / 16 * 16;
        uint32_t groups = outputs / 16, wide = to_chunks((outputs + 63) / 64 * 64);
        float *residual = calloc((size_t)tokens * outputs, sizeof *residual);
        float *got = calloc((size_t)tokens * outputs, sizeof *got);
        float *squares = calloc((size_t)tokens * groups, sizeof *squares);
        float *gamma = calloc(outputs, sizeof *gamma);
        uint16_t *x = calloc((size_t)CUDA_SKINNY_TOKENS * wide, 2);
        void *placed;

        assert_true(residual && got && squares && gamma && x);
        open_product(&f, types[i % 2], tokens, outputs, shapes[i].columns,
                     (struct cuda_pack){.order = CUDA_PACK_PLAIN});
        for (size_t n = 0; n < (size_t)tokens * outputs; n++)
            residual[n] = random_number();
        for (uint32_t n = 0; n < outputs; n++)
            gamma[n] = 1 + 0.1f * random_number();
        placed = take(outputs * sizeof *gamma);
        send(placed, gamma, outputs * sizeof *gamma);
        f.args.kind = CUDA_SKINNY_RESIDUAL;
        f.args.residual = take((size_t)tokens * outputs * sizeof(float));
        send(f.args.residual, residual, (size_t)tokens * outputs * sizeof(float));
        f.args.next_gamma = placed;
        f.args.next_x = take((size_t)CUDA_SKINNY_TOKENS * wide * 2);
        f.args.next_squares = take((size_t)CUDA_SKINNY_TOKENS * groups * sizeof(float));
        check(cuda_skinny(&stream, &f.args));
        fetch(got, f.args.residual, (size_t)tokens * outputs * sizeof *got);
        fetch(x, f.args.next_x, (size_t)CUDA_SKINNY_TOKENS * wide * 2);
        fetch(squares, f.args.next_squares, (size_t)tokens * groups * sizeof *squares);
        for (uint32_t t = 0; t < tokens; t++) {
            double sum = 0, found = 0;

            for (uint32_t o = 0; o < outputs; o++) {
                double after =
                    (double)residual[(size_t)t * outputs + o] + f.y[(size_t)t * outputs + o];

                sum += after * after;
                expect_near(&f, "residual", t, o, (double)got[(size_t)t * outputs + o], after);
                expect_near(&f, "next x", t, o, (double)widen(f.type, x[fragment(t, o)]),
                            after * (double)gamma[o]);
            }
            for (uint32_t g = 0; g < groups; g++)
                found += (double)squares[(size_t)t * groups + g];
            assert_true(fabs(found - sum) <= 1e-3 * sum + 1e-3);
        }
        cuda_release(&context, placed);
        cuda_release(&context, f.args.residual);
        cuda_release(&context, f.args.next_x);
        cuda_release(&context, f.args.next_squares);
        close_product(&f);
        free(residual);
        free(got);
        free(squares);
        free(gamma);
        free(x);
    }
}

static void test_swiglu(void **state)
{
    (void)state;
    EACH(i, shapes) EACH(j, token_counts)
    {
        struct fixture f;
        uint32_t tokens = token_counts[j], ffn = shapes[i].outputs / 16 * 8;
        uint32_t wide = to_chunks((ffn + 31) / 32 * 32);
        uint16_t *x = calloc((size_t)CUDA_SKINNY_TOKENS * wide, 2);

        assert_non_null(x);
        open_product(&f, types[i % 2], tokens, 2 * ffn, shapes[i].columns,
                     (struct cuda_pack){.order = CUDA_PACK_GATE_UP, .ffn = ffn});
        f.args.kind = CUDA_SKINNY_SWIGLU;
        f.args.next_x = take((size_t)CUDA_SKINNY_TOKENS * wide * 2);
        check(cuda_skinny(&stream, &f.args));
        fetch(x, f.args.next_x, (size_t)CUDA_SKINNY_TOKENS * wide * 2);
        for (uint32_t t = 0; t < tokens; t++)
            for (uint32_t c = 0; c < ffn; c++) {
                double gate = f.y[(size_t)t * 2 * ffn + c], up = f.y[(size_t)t * 2 * ffn + ffn + c];

                expect_near(&f, "swiglu", t, c, (double)widen(f.type, x[fragment(t, c)]),
                            gate / (1 + exp(-gate)) * up);
            }
        cuda_release(&context, f.args.next_x);
        close_product(&f);
        free(x);
    }
}

/* --- timing --------------------------------------------------------------------------------- */

enum {
    WIDTH = 4096,
    FFN = 14336,
    HEADS = 32,
    KV_HEADS = 8,
    HEAD = 128,
    VOCABULARY = 128256,
    KINDS = 5, /* of a layer, and the head */
    HEAD_KIND = KINDS - 1,
};

struct bench {
    void *weights[KINDS];
    size_t weight_bytes[KINDS];
    uint32_t layers[KINDS];
    struct cuda_skinny products[KINDS];
    struct cuda_qkv qkv;
};

static const struct {
    const char *name;
    enum cuda_skinny_kind kind;
    uint32_t outputs, columns;
} bench_kinds[KINDS] = {
    {"qkv", CUDA_SKINNY_QKV, (HEADS + 2 * KV_HEADS) * HEAD, WIDTH},
    {"out", CUDA_SKINNY_RESIDUAL, WIDTH, WIDTH},
    {"gate, up", CUDA_SKINNY_SWIGLU, 2 * FFN, WIDTH},
    {"down", CUDA_SKINNY_RESIDUAL, WIDTH, FFN},
    {"logits", CUDA_SKINNY_LOGITS, VOCABULARY, WIDTH},
};

static void *take_random(size_t elements, const char *name)
{
    void *memory = take(elements * 2);

    check(cuda_random(&stream, DT_BF16, random_weight_make(name, 0.0f, 0.02f), memory, elements));
    return memory;
}

static void bench_open(struct bench *b)
{
    void *residual = take((size_t)CUDA_SKINNY_TOKENS * WIDTH * sizeof(float));
    void *gamma = take(WIDTH * sizeof(float));
    void *squares = take((size_t)CUDA_SKINNY_TOKENS * WIDTH / 16 * sizeof(float));
    void *scratch = take(cuda_skinny_scratch(&context.properties, VOCABULARY));
    void *logits = take((size_t)CUDA_SKINNY_TOKENS * VOCABULARY * sizeof(float));
    void *x[2] = {take_random((size_t)CUDA_SKINNY_TOKENS * WIDTH, "x"),
                  take_random((size_t)CUDA_SKINNY_TOKENS * FFN, "hidden")};

    b->qkv = (struct cuda_qkv){
        .rows = {.type = DT_BF16, .placed = take(CUDA_SKINNY_TOKENS * sizeof(struct cuda_token))},
        .heads = HEADS,
        .kv_heads = KV_HEADS,
        .head_size = HEAD,
        .rotary = {.size = HEAD, .table = take(CUDA_SKINNY_TOKENS * HEAD * sizeof(float))},
        .q = take((size_t)CUDA_SKINNY_TOKENS * HEADS * HEAD * 2),
        .pages = take((size_t)KV_HEADS * 2 * CUDA_PAGE_TOKENS * HEAD * 2),
        .page_table = take(PAGES_PER_ROW * sizeof(uint32_t)),
        .pages_per_row = PAGES_PER_ROW,
    };
    for (int i = 0; i < KINDS; i++) {
        bool wide = bench_kinds[i].columns == FFN;

        b->weight_bytes[i] = cuda_pack_bytes(bench_kinds[i].outputs, bench_kinds[i].columns);
        b->layers[i] = i == HEAD_KIND ? 1 : BENCH_LAYERS; /* of weights: more than a cache holds */
        b->weights[i] = take_random(b->weight_bytes[i] / 2 * b->layers[i], bench_kinds[i].name);
        b->products[i] = (struct cuda_skinny){
            .kind = bench_kinds[i].kind,
            .type = DT_BF16,
            .outputs = bench_kinds[i].outputs,
            .columns = bench_kinds[i].columns,
            .x = x[wide],
            .squares = i % 2 == 0 ? squares : NULL,
            .squares_count = WIDTH / 16,
            .width = WIDTH,
            .epsilon = 1e-5f,
            .partials = scratch,
            .out = logits,
            .out_stride = VOCABULARY,
            .residual = residual,
            .next_gamma = gamma,
            .next_x = i == 2 ? x[1] : x[0],
            .next_squares = squares,
            .qkv = &b->qkv,
        };
    }
    check(cuda_stream_synchronize(&stream));
}

static int compare(const void *a, const void *b)
{
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

/* Microseconds of a replay. */
static double time_chain(struct bench *b, int first, int last, uint32_t tokens)
{
    enum { REPLAYS = 15 };
    struct CUgraphExec_st *graph = NULL;
    struct CUevent_st *events[2];
    float ms[REPLAYS];

    check(cuda_capture_begin(&stream));
    for (uint32_t layer = 0; layer < BENCH_LAYERS; layer++)
        for (int i = first; i <= last; i++) {
            struct cuda_skinny product = b->products[i];

            product.tokens = tokens;
            product.weights = (uint8_t *)b->weights[i] + layer % b->layers[i] * b->weight_bytes[i];
            check(cuda_skinny(&stream, &product));
        }
    check(cuda_capture_end(&stream, &graph));
    check(cuda_event_open(&context, true, &events[0]));
    check(cuda_event_open(&context, true, &events[1]));
    for (int i = -2; i < REPLAYS; i++) {
        check(cuda_event_record(&stream, events[0]));
        check(cuda_graph_launch(&stream, graph));
        check(cuda_event_record(&stream, events[1]));
        check(cuda_event_wait(&context, events[1]));
        if (i >= 0)
            check(cuda_event_between(&context, events[0], events[1], &ms[i]));
    }
    qsort(ms, REPLAYS, sizeof *ms, compare);
    cuda_graph_close(&context, graph);
    cuda_event_close(&context, events[0]);
    cuda_event_close(&context, events[1]);
    return (double)ms[REPLAYS / 2] * 1e3 / BENCH_LAYERS;
}

static int bench(void)
{
    static const uint32_t counts[] = {1, 2, 4, 8};
    struct bench b;

    bench_open(&b);
    printf("%-8s %9s %9s %9s %9s %9s %9s  us, %s\n", "tokens", bench_kinds[0].name,
           bench_kinds[1].name, bench_kinds[2].name, bench_kinds[3].name, bench_kinds[4].name,
           "a layer", context.properties.name);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        printf("%-8u", counts[i]);
        for (int kind = 0; kind < KINDS; kind++)
            printf(" %9.2f", time_chain(&b, kind, kind, counts[i]));
        printf(" %9.2f\n", time_chain(&b, 0, HEAD_KIND - 1, counts[i]));
    }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),
        cmocka_unit_test(test_small_block),
        cmocka_unit_test(test_residual),
        cmocka_unit_test(test_swiglu),
    };
    struct fault fault = {0};

    if (cuda_context_open(&context, &fault) < 0) {
        printf("skip: %s\n", fault.message);
        return 77;
    }
    if (cuda_stream_open(&context, &stream) < 0 || cuda_skinny_setup(&context) < 0)
        return 1;
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        return bench();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
