/* test_attention.c -- paged attention on a GPU against float64: every element type, odd head sizes,
 * groups and contexts, shuffled pages, decode and prefill in one step; the same bits again and
 * again, and alone as in a batch. `test_attention bench [decode|prefill]` measures;
 * `test_attention small` is for compute-sanitizer: some shapes only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/half.h"
#include "kernels/cuda/cuda_api.h"
#include "kernels/cuda/kernels.h"

enum { PAGE = CUDA_PAGE_TOKENS, SEGMENTS_MAX = 600, POISON = 0xff };

/* A buffer of the host, pinned, and its twin on the device. */
struct twin {
    void *host, *host_on_device, *device;
    size_t bytes;
};

struct shape {
    enum dtype type;
    uint32_t heads, kv_heads, head_size;
};

/* One step: `decodes` segments of one token first, then prompt chunks. */
struct step {
    struct shape shape;
    uint32_t segment_count, decodes, token_count, pages_per_row, page_count, tile_count, layers;
    bool fragments;
    size_t layer_bytes;
    struct twin q, out, pages, page_table, segments, tiles, scratch;
};

static struct cuda_context context;
static struct cuda_stream stream;
static bool small; /* every sixth shape only */
static uint64_t random_state = 88172645463325252ull;

static uint32_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 24);
}

/* Of deviation `sd`. */
static float random_value(float sd)
{
    return ((float)(random_next() >> 8) * 0x1p-23f - 1.0f) * 1.7320508f * sd;
}

static size_t type_bytes(enum dtype type)
{
    return type == DT_F32 ? 4 : 2;
}

static void element_store(enum dtype type, void *base, size_t index, float value)
{
    if (type == DT_F32)
        ((float *)base)[index] = value;
    else if (type == DT_F16)
        ((uint16_t *)base)[index] = f16_from_float(value);
    else
        ((uint16_t *)base)[index] = (uint16_t)((float_bits(value) + 0x8000) >> 16);
}

static float element_load(enum dtype type, const void *base, size_t index)
{
    if (type == DT_F32)
        return ((const float *)base)[index];
    if (type == DT_F16)
        return float_from_f16(((const uint16_t *)base)[index]);
    return float_from_bf16(((const uint16_t *)base)[index]);
}

/* --- setting a step up ---------------------------------------------------------------------- */

static void twin_open(struct twin *twin, size_t bytes)
{
    twin->bytes = bytes;
    assert_int_equal(cuda_pinned_allocate(&context, bytes, &twin->host, &twin->host_on_device), 0);
    assert_int_equal(cuda_allocate(&context, bytes, &twin->device), 0);
}

static void twin_close(struct twin *twin)
{
    cuda_pinned_release(&context, twin->host);
    cuda_release(&context, twin->device);
}

static void twin_up(const struct twin *twin)
{
    assert_int_equal(cuda_copy(&stream, twin->device, twin->host, twin->bytes), 0);
}

static void finish(void)
{
    if (cuda_stream_synchronize(&stream) < 0)
        fail_msg("%s", context.failure.message);
}

static void twin_down(const struct twin *twin)
{
    assert_int_equal(cuda_copy(&stream, twin->host, twin->device, twin->bytes), 0);
    finish();
}

/* The place of an element in the layer's pages, in elements: the layout of kernels.h by itself. */
static size_t page_element(const struct shape *s, uint32_t page, uint32_t kv_head, uint32_t half,
                           uint32_t token, uint32_t element)
{
    uint32_t per_chunk = (uint32_t)(16 / type_bytes(s->type));
    uint32_t chunks = s->head_size / per_chunk, chunk = element / per_chunk;

    if (chunk / 8 < chunks / 8)
        chunk ^= token % 8;
    return ((((size_t)page * s->kv_heads + kv_head) * 2 + half) * PAGE + token) * s->head_size +
           chunk * per_chunk + element % per_chunk;
}

static size_t fragment_element(uint32_t token, uint32_t column, uint32_t tiles)
{
    uint32_t lane = token % 8 * 4 + column % 8 / 2;

    return ((size_t)(column / 16) * tiles + token / 8) * 128 + lane * 4 + column % 2 +
           column / 8 % 2 * 2;
}

static size_t out_element(const struct step *s, uint32_t token, uint32_t column)
{
    if (s->fragments)
        return fragment_element(token, column, (s->token_count + 7) / 8);
    return (size_t)token * s->shape.heads * s->shape.head_size + column;
}

static uint32_t page_of(const struct step *s, uint32_t row, uint32_t index)
{
    return ((const uint32_t *)s->page_table.host)[(size_t)row * s->pages_per_row + index];
}

/* Random keys and values where there are tokens, NaN (all bits set) everywhere else. */
static void pages_fill(struct step *s)
{
    const struct cuda_segment *segments = s->segments.host;

    memset(s->pages.host, POISON, s->pages.bytes);
    for (uint32_t i = 0; i < s->segment_count; i++)
        for (uint32_t t = 0; t < segments[i].position + segments[i].token_count; t++)
            for (uint32_t h = 0; h < s->shape.kv_heads; h++)
                for (uint32_t half = 0; half < 2; half++)
                    for (uint32_t e = 0; e < s->shape.head_size; e++)
                        element_store(s->shape.type, s->pages.host,
                                      page_element(&s->shape, page_of(s, segments[i].row, t / PAGE),
                                                   h, half, t % PAGE, e),
                                      random_value(1.0f));
}

static void page_table_shuffle(struct step *s)
{
    uint32_t *table = s->page_table.host, count = s->page_count;

    for (uint32_t i = 0; i < count; i++)
        table[i] = i;
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t other = random_next() % (i + 1), page = table[i];

        table[i] = table[other];
        table[other] = page;
    }
}

static void tiles_list(struct step *s)
{
    const struct cuda_segment *segments = s->segments.host;
    struct cuda_prefill_tile *tiles = s->tiles.host;

    s->tile_count = 0;
    for (uint32_t i = s->decodes; i < s->segment_count; i++)
        for (uint32_t first = 0; first < segments[i].token_count; first += CUDA_PREFILL_TILE)
            tiles[s->tile_count++] = (struct cuda_prefill_tile){i, first};
}

/* contexts[i] tokens with the chunk's own; the chunk is its last chunks[i] (0: an unused slot). */
static void step_open(struct step *s, const struct shape *shape, const uint32_t *contexts,
                      const uint32_t *chunks, uint32_t count, uint32_t decodes, uint32_t layers)
{
    size_t columns = (size_t)shape->heads * shape->head_size, bytes = type_bytes(shape->type);
    struct cuda_segment *segments;
    uint32_t longest = 1, tiles = 0;

    *s = (struct step){
        .shape = *shape, .segment_count = count, .decodes = decodes, .layers = layers};
    assert_true(count <= SEGMENTS_MAX);
    twin_open(&s->segments, count * sizeof *segments);
    segments = s->segments.host;
    for (uint32_t i = 0; i < count; i++) {
        segments[i] = (struct cuda_segment){(i * 7 + 3) % count, s->token_count, chunks[i],
                                            contexts[i] - chunks[i]};
        if (count % 7 == 0)
            segments[i].row = count - 1 - i;
        s->token_count += i < decodes ? 1 : chunks[i];
        longest = contexts[i] > longest ? contexts[i] : longest;
        tiles += (chunks[i] + CUDA_PREFILL_TILE - 1) / CUDA_PREFILL_TILE;
    }
    s->pages_per_row = (longest + PAGE - 1) / PAGE;
    s->page_count = count * s->pages_per_row;
    s->layer_bytes = (size_t)s->page_count * shape->kv_heads * 2 * PAGE * shape->head_size * bytes;
    twin_open(&s->page_table, s->page_count * sizeof(uint32_t));
    page_table_shuffle(s);
    twin_open(&s->q, s->token_count * columns * bytes);
    twin_open(&s->out, (s->token_count + 8) * columns * bytes);
    twin_open(&s->tiles, (tiles + 1) * sizeof(struct cuda_prefill_tile));
    tiles_list(s);
    twin_open(&s->scratch, cuda_attention_scratch(&context.properties, shape->heads,
                                                  shape->kv_heads, shape->head_size, decodes));
    for (size_t i = 0; i < s->token_count * columns; i++)
        element_store(shape->type, s->q.host, i, random_value(2.0f));
    twin_up(&s->segments);
    twin_up(&s->page_table);
    twin_up(&s->q);
    twin_up(&s->tiles);
    assert_int_equal(cuda_fill(&stream, s->scratch.device, 0, s->scratch.bytes), 0);
    if (layers > 0)
        return;
    twin_open(&s->pages, s->layer_bytes);
    pages_fill(s);
    twin_up(&s->pages);
}

static void step_close(struct step *s)
{
    struct twin *twins[] = {&s->q,        &s->out,   &s->pages,  &s->page_table,
                            &s->segments, &s->tiles, &s->scratch};

    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        twin_close(twins[i]);
}

static struct cuda_attention step_args(const struct step *s)
{
    return (struct cuda_attention){
        .type = s->shape.type,
        .heads = s->shape.heads,
        .kv_heads = s->shape.kv_heads,
        .head_size = s->shape.head_size,
        .scale = 1.0f / sqrtf((float)s->shape.head_size),
        .q = s->q.device,
        .out = s->out.device,
        .out_tiles = s->fragments ? (s->token_count + 7) / 8 : 0,
        .pages = s->pages.device,
        .page_table = s->page_table.device,
        .pages_per_row = s->pages_per_row,
        .segments = s->segments.device,
    };
}

static void step_run(struct step *s, bool fixed_splits)
{
    struct cuda_attention args = step_args(s);

    assert_int_equal(cuda_fill(&stream, s->out.device, POISON, s->out.bytes), 0);
    if (s->decodes > 0) {
        cuda_attention_plan(&stream, &args, s->decodes, fixed_splits, s->scratch.device, false);
        cuda_attention_decode(&stream, &args, s->decodes, s->scratch.device, true);
    }
    if (s->tile_count > 0)
        cuda_attention_prefill(&stream, &args, s->tiles.device, s->tile_count);
    twin_down(&s->out);
}

/* --- the reference -------------------------------------------------------------------------- */

struct unpacked {
    float *keys, *values; /* [context][head_size] of one row and kv head */
};

static void unpack(const struct step *s, uint32_t row, uint32_t kv_head, uint32_t keys,
                   struct unpacked *into)
{
    for (uint32_t t = 0; t < keys; t++)
        for (uint32_t e = 0; e < s->shape.head_size; e++) {
            uint32_t page = page_of(s, row, t / PAGE);
            size_t at = (size_t)t * s->shape.head_size + e;

            into->keys[at] = element_load(s->shape.type, s->pages.host,
                                          page_element(&s->shape, page, kv_head, 0, t % PAGE, e));
            into->values[at] = element_load(s->shape.type, s->pages.host,
                                            page_element(&s->shape, page, kv_head, 1, t % PAGE, e));
        }
}

/* One head of one token; the result is in `want`, of head_size elements. */
static void reference(const struct step *s, const struct unpacked *kv, uint32_t token,
                      uint32_t head, uint32_t keys, double *weights, double *want)
{
    uint32_t size = s->shape.head_size;
    size_t q = ((size_t)token * s->shape.heads + head) * size;
    double most = -INFINITY, sum = 0;

    for (uint32_t k = 0; k < keys; k++) {
        weights[k] = 0;
        for (uint32_t e = 0; e < size; e++)
            weights[k] += (double)element_load(s->shape.type, s->q.host, q + e) *
                          kv->keys[(size_t)k * size + e];
        weights[k] /= sqrt(size);
        most = fmax(most, weights[k]);
    }
    memset(want, 0, size * sizeof *want);
    for (uint32_t k = 0; k < keys; k++) {
        double weight = exp(weights[k] - most);

        sum += weight;
        for (uint32_t e = 0; e < size; e++)
            want[e] += weight * kv->values[(size_t)k * size + e];
    }
    for (uint32_t e = 0; e < size; e++)
        want[e] /= sum;
}

struct error {
    double squares, reference, worst; /* worst: of an element, in units of its row's deviation */
    uint32_t unwritten;
};

static void compare(const struct step *s, uint32_t token, uint32_t head, const double *want,
                    struct error *error)
{
    uint32_t size = s->shape.head_size;
    double worst = 0, squares = 0;

    for (uint32_t e = 0; e < size; e++) {
        double got =
            element_load(s->shape.type, s->out.host, out_element(s, token, head * size + e));

        if (isnan(got)) {
            error->unwritten++;
            continue;
        }
        worst = fmax(worst, fabs(got - want[e]));
        error->squares += (got - want[e]) * (got - want[e]);
        squares += want[e] * want[e];
    }
    error->reference += squares;
    error->worst = fmax(error->worst, worst / sqrt(squares / size));
}

/* Every head of every `stride`-th token of a segment (and of its last one). */
static void segment_check(const struct step *s, uint32_t index, uint32_t stride,
                          struct error *error)
{
    const struct cuda_segment *segment = (const struct cuda_segment *)s->segments.host + index;
    uint32_t keys = segment->position + segment->token_count, size = s->shape.head_size;
    struct unpacked kv = {malloc(sizeof(float) * keys * size + 1),
                          malloc(sizeof(float) * keys * size + 1)};
    double *weights = malloc(sizeof(double) * (keys + 1)), *want = malloc(sizeof(double) * size);

    for (uint32_t h = 0; h < s->shape.kv_heads && segment->token_count > 0; h++) {
        uint32_t group = s->shape.heads / s->shape.kv_heads;

        unpack(s, segment->row, h, keys, &kv);
        for (uint32_t t = 0; t < segment->token_count; t++) {
            if (t % stride != 0 && t != segment->token_count - 1)
                continue;
            for (uint32_t head = h * group; head < (h + 1) * group; head++) {
                reference(s, &kv, segment->first_token + t, head, segment->position + t + 1,
                          weights, want);
                compare(s, segment->first_token + t, head, want, error);
            }
        }
    }
    free(kv.keys);
    free(kv.values);
    free(weights);
    free(want);
}

/* What is no token's stays as it was. */
static uint32_t unused_written(const struct step *s)
{
    size_t columns = (size_t)s->shape.heads * s->shape.head_size;
    size_t bytes = type_bytes(s->shape.type), written = 0, total = s->token_count + 8;
    unsigned char *used = calloc(total * columns, 1);
    const struct cuda_segment *segments = s->segments.host;
    const unsigned char *out = s->out.host;

    for (uint32_t i = 0; i < s->segment_count; i++)
        for (uint32_t t = 0; t < segments[i].token_count; t++)
            for (uint32_t column = 0; column < columns; column++)
                used[out_element(s, segments[i].first_token + t, column)] = 1;
    for (size_t i = 0; i < total * columns; i++)
        for (size_t b = 0; !used[i] && b < bytes; b++)
            written += out[i * bytes + b] != POISON;
    free(used);
    return (uint32_t)written;
}

static void step_check(const struct step *s, uint32_t stride, const char *name)
{
    struct error error = {0};
    enum dtype type = s->shape.type;
    double bound = type == DT_F32 ? 1e-5 : type == DT_F16 ? 1.5e-3 : 6e-3, relative;
    uint32_t unused = unused_written(s);

    for (uint32_t i = 0; i < s->segment_count; i++)
        segment_check(s, i, stride, &error);
    relative = sqrt(error.squares / error.reference);
    if (relative > bound || error.worst > 8 * bound || error.unwritten > 0 || unused > 0)
        fail_msg("%s: %s, %u heads of %u over %u: error %.2e (bound %.0e), worst element %.2e, "
                 "%u unwritten, %u unused written",
                 name, dtype_get(type)->name, s->shape.heads, s->shape.head_size, s->shape.kv_heads,
                 relative, bound, error.worst, error.unwritten, unused);
    print_message("%-10s %-4s heads %2u/%u of %3u%s: error %.1e, worst %.1e\n", name,
                  dtype_get(type)->name, s->shape.heads, s->shape.kv_heads, s->shape.head_size,
                  s->fragments ? ", fragments" : "", relative, error.worst);
}

/* --- tests ---------------------------------------------------------------------------------- */

static const struct shape shapes[] = {
    {DT_BF16, 32, 8, 128}, {DT_F16, 8, 2, 128},  {DT_BF16, 9, 3, 64},  {DT_F16, 8, 8, 64},
    {DT_BF16, 4, 2, 128},  {DT_BF16, 14, 2, 64}, {DT_BF16, 8, 1, 128}, {DT_F16, 18, 2, 128},
    {DT_BF16, 16, 1, 64},  {DT_BF16, 20, 1, 64}, {DT_BF16, 8, 4, 96},  {DT_BF16, 8, 1, 256},
    {DT_F16, 4, 2, 80},    {DT_BF16, 4, 4, 8},   {DT_BF16, 6, 2, 24},  {DT_F16, 4, 2, 16},
    {DT_BF16, 8, 2, 32},   {DT_F32, 4, 2, 64},   {DT_F32, 9, 3, 8},    {DT_F32, 4, 1, 24},
    {DT_F32, 8, 2, 128},   {DT_F32, 2, 1, 256},  {DT_F32, 4, 4, 80},   {DT_BF16, 18, 1, 256},
};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

static const uint32_t decode_contexts[] = {1, 63,  64,  65,  511, 513,  0,    3000,
                                           2, 127, 128, 129, 0,   1000, 1025, 700};
enum { DECODES = sizeof decode_contexts / sizeof *decode_contexts };

static void decode_open(struct step *s, const struct shape *shape, bool fragments)
{
    uint32_t chunks[DECODES];

    for (uint32_t i = 0; i < DECODES; i++)
        chunks[i] = decode_contexts[i] > 0;
    step_open(s, shape, decode_contexts, chunks, DECODES, DECODES, 0);
    s->fragments = fragments;
}

static void test_decode(void **state)
{
    struct step s;

    (void)state;
    for (uint32_t i = small ? 1 : 0; i < SHAPE_COUNT; i += small ? 6 : 1) {
        bool fragments = i % 2 == 1 && shapes[i].heads * shapes[i].head_size % 16 == 0;

        decode_open(&s, &shapes[i], fragments);
        step_run(&s, false);
        step_check(&s, 1, "decode");
        step_run(&s, true);
        step_check(&s, 1, "fixed");
        step_close(&s);
    }
}

/* One sequence, from short to long: every way of cutting it. */
static void test_decode_single(void **state)
{
    static const uint32_t contexts[] = {1, 64, 65, 300, 640, 1024, 1056, 2047, 5000, 20000};
    struct step s;

    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t j = 0; j < sizeof contexts / sizeof *contexts; j++) {
            uint32_t chunk = 1;

            step_open(&s, &shapes[i], &contexts[j], &chunk, 1, 1, 0);
            step_run(&s, j % 2 == 1);
            step_check(&s, 1, "single");
            step_close(&s);
        }
}

static void test_mixed(void **state)
{
    static const uint32_t chunks[] = {1, 1, 0, 1, 70, 130, 64, 63, 300, 65, 1, 33};
    static const uint32_t contexts[] = {5, 700, 0, 64, 70, 200, 64, 127, 1000, 129, 513, 2100};
    enum { COUNT = sizeof chunks / sizeof *chunks };
    struct step s;

    (void)state;
    for (uint32_t i = small ? 1 : 0; i < SHAPE_COUNT; i += small ? 6 : 1) {
        step_open(&s, &shapes[i], contexts, chunks, COUNT, 4, 0);
        s.fragments = i % 2 == 0 && shapes[i].heads * shapes[i].head_size % 16 == 0;
        step_run(&s, false);
        step_check(&s, 13, "mixed");
        step_close(&s);
    }
}

static void test_repeated(void **state)
{
    struct step s;
    void *first;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        decode_open(&s, &shapes[i], false);
        step_run(&s, false);
        first = malloc(s.out.bytes);
        memcpy(first, s.out.host, s.out.bytes);
        for (uint32_t repeat = 0; repeat < 50; repeat++) {
            step_run(&s, false);
            assert_memory_equal(first, s.out.host, s.out.bytes);
        }
        free(first);
        step_close(&s);
    }
}

/* With fixed splits, each sequence alone gives the bits that it has in the batch. */
static void test_alone(void **state)
{
    struct step s;

    (void)state;
    for (uint32_t i = small ? 1 : 0; i < SHAPE_COUNT; i += small ? 6 : 1) {
        struct cuda_segment segments[DECODES];
        size_t row;
        char *batch;

        decode_open(&s, &shapes[i], false);
        row = (size_t)s.shape.heads * s.shape.head_size * type_bytes(s.shape.type);
        step_run(&s, true);
        batch = malloc(s.out.bytes);
        memcpy(batch, s.out.host, s.out.bytes);
        memcpy(segments, s.segments.host, sizeof segments);
        for (uint32_t j = 0; j < DECODES; j++) {
            memcpy(s.segments.host, &segments[j], sizeof segments[j]);
            twin_up(&s.segments);
            s.decodes = 1;
            step_run(&s, true);
            assert_memory_equal(batch + segments[j].first_token * row,
                                (char *)s.out.host + segments[j].first_token * row, row);
        }
        free(batch);
        step_close(&s);
    }
}

/* --- bench ---------------------------------------------------------------------------------- */

static double replay_us(struct CUgraphExec_st *graph, uint32_t repeats)
{
    struct CUevent_st *from, *to;
    float times[32];

    assert_true(repeats <= 32);
    cuda_event_open(&context, true, &from);
    cuda_event_open(&context, true, &to);
    for (uint32_t i = 0; i < repeats; i++) {
        cuda_event_record(&stream, from);
        cuda_graph_launch(&stream, graph);
        cuda_event_record(&stream, to);
        finish();
        cuda_event_between(&context, from, to, &times[i]);
    }
    for (uint32_t i = 0; i < repeats; i++)
        for (uint32_t j = i + 1; j < repeats; j++)
            if (times[j] < times[i]) {
                float t = times[i];

                times[i] = times[j];
                times[j] = t;
            }
    cuda_event_close(&context, from);
    cuda_event_close(&context, to);
    return (double)times[repeats / 2] * 1e3;
}

static void bench_pages(struct step *s)
{
    struct twin chunk;

    twin_open(&chunk, 16 << 20);
    for (size_t i = 0; i < chunk.bytes / 2; i++)
        element_store(s->shape.type, chunk.host, i, random_value(1.0f));
    assert_int_equal(cuda_allocate(&context, s->layer_bytes * s->layers, &s->pages.device), 0);
    for (size_t at = 0; at < s->layer_bytes * s->layers; at += chunk.bytes) {
        size_t left = s->layer_bytes * s->layers - at;

        cuda_copy(&stream, (char *)s->pages.device + at, chunk.host,
                  left < chunk.bytes ? left : chunk.bytes);
    }
    finish();
    twin_close(&chunk);
}

/* Contexts of `keys` tokens, or, if `uneven`, from an eighth of that to nearly twice as many. */
static void bench_decode(const struct shape *shape, uint32_t batch, uint32_t keys, bool fixed,
                         bool uneven)
{
    uint32_t contexts[SEGMENTS_MAX], chunks[SEGMENTS_MAX];
    double bytes = 0, us, plan_us;
    struct CUgraphExec_st *graph, *plan;
    struct cuda_attention args;
    struct step s;
    uint32_t layers;

    for (uint32_t i = 0; i < batch; i++) {
        contexts[i] = uneven ? keys / 8 + random_next() % (keys * 7 / 4) : keys;
        chunks[i] = 1;
        bytes += (double)contexts[i] * shape->kv_heads * shape->head_size * 4;
    }
    layers = bytes > 5e8 ? 3 : bytes > 1e8 ? 8 : 32;
    step_open(&s, shape, contexts, chunks, batch, batch, layers);
    bench_pages(&s);
    args = step_args(&s);
    args.out_tiles = (batch + 7) / 8;
    cuda_capture_begin(&stream);
    for (uint32_t i = 0; i < 8; i++)
        cuda_attention_plan(&stream, &args, batch, fixed, s.scratch.device, i > 0);
    cuda_capture_end(&stream, &plan);
    cuda_capture_begin(&stream);
    for (uint32_t i = 0; i < layers * 2; i++) {
        args.pages = (char *)s.pages.device + i % layers * s.layer_bytes;
        cuda_attention_decode(&stream, &args, batch, s.scratch.device, i > 0);
    }
    cuda_capture_end(&stream, &graph);
    plan_us = replay_us(plan, 11) / 8;
    replay_us(graph, 3);
    us = replay_us(graph, 15) / (layers * 2);
    printf("decode  %s %2u/%u of %3u  batch %3u x %5u%s: %7.1f us  %.2f TB/s  (plan %.1f us)\n",
           dtype_get(shape->type)->name, shape->heads, shape->kv_heads, shape->head_size, batch,
           keys,
           fixed    ? " fixed "
           : uneven ? " uneven"
                    : "       ",
           us, bytes / us * 1e-6, plan_us);
    cuda_graph_close(&context, graph);
    cuda_graph_close(&context, plan);
    step_close(&s);
}

static void bench_prefill(const struct shape *shape, uint32_t sequences, uint32_t tokens,
                          uint32_t before)
{
    uint32_t contexts[SEGMENTS_MAX], chunks[SEGMENTS_MAX];
    double pairs = (double)sequences * tokens * (before + (tokens + 1) / 2.0), us;
    struct CUgraphExec_st *graph;
    struct cuda_prefill_tile *tiles;
    struct cuda_attention args;
    struct step s;

    for (uint32_t i = 0; i < sequences; i++) {
        contexts[i] = before + tokens;
        chunks[i] = tokens;
    }
    step_open(&s, shape, contexts, chunks, sequences, 0, 4);
    tiles = s.tiles.host;
    for (uint32_t i = 0; i < s.tile_count / 2; i++) { /* longest first */
        struct cuda_prefill_tile tile = tiles[i];

        tiles[i] = tiles[s.tile_count - 1 - i];
        tiles[s.tile_count - 1 - i] = tile;
    }
    twin_up(&s.tiles);
    bench_pages(&s);
    args = step_args(&s);
    cuda_capture_begin(&stream);
    for (uint32_t i = 0; i < 8; i++) {
        args.pages = (char *)s.pages.device + i % s.layers * s.layer_bytes;
        cuda_attention_prefill(&stream, &args, s.tiles.device, s.tile_count);
    }
    cuda_capture_end(&stream, &graph);
    replay_us(graph, 2);
    us = replay_us(graph, 11) / 8;
    printf("prefill %s %2u/%u of %3u  %u x %5u after %5u: %8.1f us  %.0f TFLOP/s\n",
           dtype_get(shape->type)->name, shape->heads, shape->kv_heads, shape->head_size, sequences,
           tokens, before, us, pairs * shape->heads * shape->head_size * 4 / us * 1e-6);
    cuda_graph_close(&context, graph);
    step_close(&s);
}

static void bench(const char *which)
{
    static const uint32_t sizes[][2] = {
        {1, 128},   {1, 1024},  {1, 1056},  {1, 8192},  {2, 1024},  {3, 1024},  {4, 1024},
        {8, 1024},  {8, 1056},  {8, 8192},  {9, 1024},  {10, 1024}, {12, 1024}, {16, 1024},
        {24, 1024}, {32, 1024}, {32, 1056}, {40, 1024}, {64, 1024}, {64, 8192}, {256, 1024}};
    struct shape shape = {DT_BF16, 32, 8, 128}, narrow = {DT_BF16, 32, 8, 64};

    if (strcmp(which, "prefill") != 0) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            bench_decode(&shape, sizes[i][0], sizes[i][1], false, false);
        bench_decode(&shape, 8, 1024, false, true);
        bench_decode(&shape, 32, 1024, false, true);
        bench_decode(&shape, 1, 1024, true, false);
        bench_decode(&shape, 8, 1024, true, false);
        bench_decode(&shape, 64, 1024, true, false);
        bench_decode(&narrow, 1, 1024, false, false);
        bench_decode(&narrow, 32, 1024, false, false);
    }
    if (strcmp(which, "decode") != 0) {
        bench_prefill(&shape, 1, 128, 0);
        bench_prefill(&shape, 1, 2048, 0);
        bench_prefill(&shape, 1, 8192, 0);
        bench_prefill(&shape, 1, 512, 8192);
        bench_prefill(&shape, 8, 256, 0);
        bench_prefill(&narrow, 1, 2048, 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode), cmocka_unit_test(test_decode_single),
        cmocka_unit_test(test_mixed),  cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_alone),
    };
    const struct CMUnitTest small_tests[] = {
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_mixed),
    };
    struct fault fault = {0};
    int r = cuda_context_open(&context, &fault);

    if (r == 0)
        r = cuda_stream_open(&context, &stream);
    if (r < 0) {
        fprintf(stderr, "%s\n", fault.code ? fault.message : context.failure.message);
        return 77;
    }
    small = argc > 1 && strcmp(argv[1], "small") == 0;
    if (argc > 1 && strcmp(argv[1], "bench") == 0)
        bench(argc > 2 ? argv[2] : "");
    else if (small)
        r = cmocka_run_group_tests(small_tests, NULL, NULL);
    else
        r = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_stream_close(&stream);
    return r;
}
