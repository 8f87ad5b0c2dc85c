/* Protects the general path of GPUs, apart from the goldens: attention with all that scores may go
 * through against float64, with odd sizes; and a model that the fused path computes too, which has
 * to give the same log-probabilities by both. */
#include "tests/lib/engine_runner.h"

#include <math.h>
#include <stdio.h>

#include "kernels/cuda/general.h"

enum { JOBS = 6, PROMPT = 70, ANSWER = 24, TOKENS = 150, ROWS = 3, PAGES_PER_ROW = 3 };

/* --- attention ------------------------------------------------------------------------------ */

static struct cuda_context context;
static struct cuda_stream stream;

struct shape {
    uint32_t heads, kv_heads, head_size, value_size, window;
    float softcap;
    bool slopes, sinks;
};

/* A buffer that host and device both see. */
static void *buffer(size_t bytes, void **ret_host)
{
    void *device = NULL;

    assert_int_equal(cuda_pinned_allocate(&context, bytes, ret_host, &device), 0);
    memset(*ret_host, 0, bytes);
    return device;
}

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

struct inputs {
    float *qkv, *slopes, *sinks, *out;
};

/* The result of one head of the last token, by the formula. */
static void expect_last(const struct shape *s, const struct inputs *in, uint32_t head)
{
    uint32_t q_width = s->heads * s->head_size, kv_head = head / (s->heads / s->kv_heads);
    uint32_t width = q_width + s->kv_heads * (s->head_size + s->value_size), last = TOKENS - 1;
    const float *q = in->qkv + (size_t)last * width + head * s->head_size;
    double weights[TOKENS], sum = s->sinks ? exp((double)in->sinks[head]) : 0;
    uint32_t first = s->window > 0 && s->window < TOKENS ? TOKENS - s->window : 0;

    for (uint32_t key = first; key < TOKENS; key++) {
        const float *k = in->qkv + (size_t)key * width + q_width + kv_head * s->head_size;
        double score = 0;

        for (uint32_t i = 0; i < s->head_size; i++)
            score += (double)q[i] * (double)k[i];
        if (s->softcap > 0)
            score = (double)s->softcap * tanh(score / (double)s->softcap);
        if (s->slopes)
            score -= (double)in->slopes[head] * (last - key);
        weights[key] = exp(score);
        sum += weights[key];
    }
    for (uint32_t e = 0; e < s->value_size; e++) {
        double wanted = 0;
        float got = in->out[((size_t)last * s->heads + head) * s->value_size + e];

        for (uint32_t key = first; key < TOKENS; key++)
            wanted += weights[key] / sum *
                      (double)in->qkv[(size_t)key * width + q_width + s->kv_heads * s->head_size +
                                      kv_head * s->value_size + e];
        if (!(fabs((double)got - wanted) <= 1e-4))
            fail_msg("heads of %u and %u, head %u, element %u: %g instead of %g", s->head_size,
                     s->value_size, head, e, (double)got, wanted);
    }
}

static void check_attention(const struct shape *s)
{
    uint32_t q_width = s->heads * s->head_size, state = 1;
    uint32_t width = q_width + s->kv_heads * (s->head_size + s->value_size);
    size_t page = (size_t)s->kv_heads * (s->head_size + s->value_size) * CUDA_PAGE_TOKENS * 4;
    struct inputs in;
    uint32_t *table;
    struct cuda_token *tokens;
    struct cuda_segment *segment;
    struct cuda_prefill_tile *tiles;
    void *host;
    struct cuda_general_qkv qkv = {.tokens = TOKENS,
                                   .qkv = buffer(TOKENS * width * 4, (void **)&in.qkv)};
    struct cuda_attention_any attention = {.scale = 1, .softcap = s->softcap, .window = s->window};

    qkv.kv =
        (struct cuda_general_kv){.type = DT_F32,
                                 .heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_size = s->head_size,
                                 .value_size = s->value_size,
                                 .pages = buffer(ROWS * PAGES_PER_ROW * page, &host),
                                 .page_table = buffer(ROWS * PAGES_PER_ROW * 4, (void **)&table),
                                 .pages_per_row = PAGES_PER_ROW};
    qkv.placed = buffer(TOKENS * sizeof *tokens, (void **)&tokens);
    qkv.q = buffer((size_t)TOKENS * q_width * 4, &host);
    attention.kv = qkv.kv;
    attention.q = qkv.q;
    attention.out = buffer((size_t)TOKENS * s->heads * s->value_size * 4, (void **)&in.out);
    attention.segments = buffer(sizeof *segment, (void **)&segment);
    attention.slopes = buffer(s->heads * 4, (void **)&in.slopes);
    attention.sinks = buffer(s->heads * 4, (void **)&in.sinks);
    const struct cuda_prefill_tile *mapped = buffer(3 * sizeof *tiles, (void **)&tiles);

    for (size_t i = 0; i < (size_t)TOKENS * width; i++)
        in.qkv[i] = noise(&state);
    for (uint32_t i = 0; i < s->heads; i++) {
        in.slopes[i] = 0.05f * (float)(i + 1);
        in.sinks[i] = noise(&state);
    }
    if (!s->slopes)
        attention.slopes = NULL;
    if (!s->sinks)
        attention.sinks = NULL;
    for (uint32_t i = 0; i < ROWS * PAGES_PER_ROW; i++)
        table[i] = (i * 5 + 2) % (ROWS * PAGES_PER_ROW); /* shuffled */
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (struct cuda_token){.row = 1, .position = i};
    *segment = (struct cuda_segment){.row = 1, .token_count = TOKENS};
    for (uint32_t i = 0; i < 3; i++)
        tiles[i] = (struct cuda_prefill_tile){.first = i * CUDA_PREFILL_TILE};
    assert_int_equal(cuda_general_qkv(&stream, &qkv), 0);
    assert_int_equal(cuda_attention_any_prefill(&stream, &attention, mapped, 3), 0);
    if (cuda_stream_synchronize(&stream) < 0)
        fail_msg("%s", context.failure.message);
    for (uint32_t head = 0; head < s->heads; head++)
        expect_last(s, &in, head);
    *segment = (struct cuda_segment){
        .row = 1, .first_token = TOKENS - 1, .token_count = 1, .position = TOKENS - 1};
    memset(in.out, 0xff, (size_t)TOKENS * s->heads * s->value_size * 4);
    assert_int_equal(cuda_attention_any_decode(&stream, &attention, 1), 0);
    if (cuda_stream_synchronize(&stream) < 0)
        fail_msg("%s", context.failure.message);
    for (uint32_t head = 0; head < s->heads; head++)
        expect_last(s, &in, head);
}

/* The process ends soon: what is pinned here is not given back. */
static void attention_of_any_shape_is_the_formula(void **state)
{
    static const struct shape shapes[] = {
        {6, 3, 20, 12, 0, 0, false, false},     {4, 1, 7, 33, 37, 0, false, true},
        {5, 5, 80, 80, 64, 5.0f, false, false}, {3, 1, 576, 512, 0, 0, false, false},
        {8, 2, 64, 64, 0, 0, true, true},
    };
    struct fault fault = {0};

    (void)state;
    if (cuda_context_open(&context, &fault) < 0)
        fail_msg("%s", fault.message);
    assert_int_equal(cuda_stream_open(&context, &stream), 0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_attention(&shapes[i]);
    cuda_stream_close(&stream);
}

/* --- both paths on one model ---------------------------------------------------------------- */

static void run(bool general, struct job *jobs, int32_t prompts[JOBS][PROMPT])
{
    struct engine_options options = {.random_shape = "tiny.json",
                                     .device = DEVICE_CUDA,
                                     .cuda = {.general = general, .memory_fraction = 0.3},
                                     .max_batch = JOBS,
                                     .max_context = 128,
                                     .prefill_tokens = 256};
    struct engine *engine = NULL;
    struct fault fault = {0};

    options.cuda.type = CUDA_TYPE_F32;
    if (engine_open(&options, &engine, &fault) < 0)
        fail_msg("%s", fault.message);
    for (uint32_t i = 0; i < JOBS; i++) {
        for (uint32_t t = 0; t < PROMPT; t++)
            prompts[i][t] = (int32_t)((i * 37 + t * 11) % engine_limits(engine)->vocabulary);
        job_init(&jobs[i], prompts[i], PROMPT - 11 * i, ANSWER);
        jobs[i].sampling.ignore_eos = true;
        jobs[i].sampling.logprobs = 0;
        jobs[i].joins_at = i;
    }
    run_jobs(engine, jobs, JOBS, 48);
    engine_close(engine);
}

static void both_paths_give_the_same(void **state)
{
    static struct job fused[JOBS], general[JOBS];
    static int32_t prompts[JOBS][PROMPT];

    (void)state;
    run(false, fused, prompts);
    run(true, general, prompts);
    for (uint32_t i = 0; i < JOBS; i++)
        for (uint32_t t = 0; t < ANSWER; t++) {
            if (fused[i].rows[t].token != general[i].rows[t].token)
                break; /* from a tie on the paths part */
            assert_true(fabsf(fused[i].rows[t].logprob - general[i].rows[t].logprob) < 1e-3f);
        }
    for (uint32_t i = 0; i < JOBS; i++)
        assert_int_equal(fused[i].rows[0].token, general[i].rows[0].token);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_any_shape_is_the_formula),
        cmocka_unit_test(both_paths_give_the_same),
    };

    return cmocka_run_group_tests_name("general", tests, NULL, NULL);
}
