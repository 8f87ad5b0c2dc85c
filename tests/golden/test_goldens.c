/* Protects the arithmetic from end to end: every golden checkpoint, and the demo model, must give
 * the reference's log-probabilities and greedy tokens, in float32 and by default, alone and in
 * company.
 *
 * Checkpoints: tests/data/arch, and all of $WEFT_GOLDENS/arch when that is set. The demo model is
 * looked for where deploy/fetch-demo-model keeps it. Reference logits are compared as
 * log-probabilities, which is what the engine reports: the 20 likeliest of every prompt, and all of
 * the vocabulary for the second one (by scoring that prompt once with each token after it). */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/json.h"
#include "engine/engine.h"
#include "tests/lib/engine_runner.h"

enum {
    ROWS = 32,
    CHECKPOINTS_MAX = 256,
    PATH_BYTES = 512,
    PROMPTS = 4,
    PROMPT_MAX = 1024,
    VOCABULARY_MAX = 512,
    CHUNK = 48, /* so that longer prompts come in several steps */
    DEMO_TOKENS = 32,
};

/* How near is near: log-probabilities, and the margin below which a greedy path may part. Where a
 * checkpoint says how far a run in bf16 is off, twice that is near too (arch's README). */
struct tolerance {
    double logprob;
    double margin;
    bool coarse;
    enum cpu_activations activations;
    enum cuda_type cuda_type;
};
static const struct tolerance exact = {2e-3, 0.01, false, ACTIVATIONS_F32, CUDA_TYPE_F32};
static const struct tolerance by_default = {5e-2, 0.1, false, ACTIVATIONS_INT16, CUDA_TYPE_AUTO};
static const struct tolerance demo_exact = {0.03, 0.05, false, ACTIVATIONS_F32, CUDA_TYPE_F32};
static const struct tolerance demo_default = {0.03, 0.05, false, ACTIVATIONS_INT16, CUDA_TYPE_AUTO};
static const struct tolerance on_gpu = {0.15, 0.3, true, ACTIVATIONS_INT16, CUDA_TYPE_AUTO};
static const struct tolerance on_gpu_f16 = {0.15, 0.3, true, ACTIVATIONS_INT16, CUDA_TYPE_F16};

/* WEFT_TEST_DEVICE=cuda: the same on a GPU. */
static bool test_on_gpu(void)
{
    const char *device = getenv("WEFT_TEST_DEVICE");

    return device && strcmp(device, "cuda") == 0;
}

/* --- reading -------------------------------------------------------------------------------- */

static json_t *read_json(const char *path)
{
    FILE *stream = fopen(path, "rb");
    struct fault fault = {0};
    json_t *value = NULL;
    char *text;
    long bytes;

    if (!stream)
        fail_msg("cannot open %s", path);
    fseek(stream, 0, SEEK_END);
    bytes = ftell(stream);
    rewind(stream);
    text = malloc((size_t)bytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)bytes, stream), bytes);
    fclose(stream);
    if (json_parse(text, (size_t)bytes, &value, &fault) < 0)
        fail_msg("%s: %s", path, fault.message);
    free(text);
    return value;
}

static json_t *field(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    if (!value)
        fail_msg("the reference lacks %s", key);
    return value;
}

static double real_at(const json_t *array, size_t index)
{
    assert_true(index < json_array_size(array));
    return json_number_value(json_array_get(array, index));
}

static int32_t token_at(const json_t *array, size_t index)
{
    assert_true(index < json_array_size(array));
    return (int32_t)json_integer_value(json_array_get(array, index));
}

static uint32_t read_tokens(const json_t *array, int32_t *ret_tokens)
{
    size_t count = json_array_size(array);

    assert_true(count >= 1 && count <= PROMPT_MAX);
    for (size_t i = 0; i < count; i++)
        ret_tokens[i] = token_at(array, i);
    return (uint32_t)count;
}

static struct engine *open_engine(const char *path, const struct tolerance *tolerance,
                                  uint32_t context)
{
    struct engine_options options = {.model_path = path,
                                     .device = test_on_gpu() ? DEVICE_CUDA : DEVICE_CPU,
                                     .cuda = {.type = tolerance->cuda_type, .memory_fraction = 0.5},
                                     .max_batch = ROWS,
                                     .max_context = context,
                                     .prefill_tokens = 160,
                                     .cpu_activations = tolerance->activations};
    struct engine *engine = NULL;
    struct fault fault = {0};

    if (engine_open(&options, &engine, &fault) == 0)
        return engine;
    if (!test_on_gpu() || fault.code != E_UNSUPPORTED)
        fail_msg("%s", fault.message);
    printf("# left out on GPUs: %s\n", fault.message);
    return NULL;
}

/* --- comparing ------------------------------------------------------------------------------ */

static double farthest; /* that anything was off by, of the checkpoint */

static void expect_near(const char *what, uint32_t prompt, size_t index, double got, double wanted,
                        const struct tolerance *tolerance)
{
    farthest = fmax(farthest, fabs(got - wanted));
    if (!(fabs(got - wanted) <= tolerance->logprob))
        fail_msg("%s, prompt %u, %zu: %.6f where the reference has %.6f", what, prompt, index, got,
                 wanted);
}

/* log_softmax in double precision. */
static uint32_t read_logprobs(const json_t *logits, double *ret_logprobs)
{
    size_t count = json_array_size(logits);
    double most = -INFINITY, sum = 0;

    assert_true(count <= VOCABULARY_MAX);
    for (size_t i = 0; i < count; i++)
        most = fmax(most, real_at(logits, i));
    for (size_t i = 0; i < count; i++)
        sum += exp(real_at(logits, i) - most);
    for (size_t i = 0; i < count; i++)
        ret_logprobs[i] = real_at(logits, i) - most - log(sum);
    return (uint32_t)count;
}

/* The first sampled row of a job against the logits at its prompt's end. */
static void compare_last_logits(const struct step_row *row, const json_t *logits, uint32_t prompt,
                                const struct tolerance *tolerance)
{
    double logprobs[VOCABULARY_MAX];
    uint32_t count = read_logprobs(logits, logprobs);

    assert_int_equal(row->top_count, TOP_LOGPROBS_MAX);
    for (uint32_t i = 0; i < row->top_count; i++) {
        uint32_t greater = 0;

        assert_true((uint32_t)row->top[i].token < count);
        expect_near("last logits", prompt, i, (double)row->top[i].logprob,
                    logprobs[row->top[i].token], tolerance);
        for (uint32_t t = 0; t < count; t++)
            greater += logprobs[t] > logprobs[row->top[i].token] + 2 * tolerance->logprob;
        assert_true(greater <= i); /* nothing likelier was left out */
    }
}

/* Greedy tokens and their log-probabilities, up to the first step at which the path may part. */
static void compare_greedy(const struct job *job, const json_t *greedy, uint32_t prompt,
                           const struct tolerance *tolerance)
{
    const json_t *tokens = field(greedy, "tokens");

    for (size_t i = 0; i < json_array_size(tokens); i++) {
        if (real_at(field(greedy, "margins"), i) < tolerance->margin)
            return;
        assert_true(i < job->token_count);
        if (job->rows[i].token != token_at(tokens, i))
            fail_msg("prompt %u, greedy token %zu is %d where the reference has %d", prompt, i,
                     job->rows[i].token, token_at(tokens, i));
        expect_near("greedy", prompt, i, (double)job->rows[i].logprob,
                    real_at(field(greedy, "logprobs"), i), tolerance);
        assert_int_equal(job->rows[i].rank, 1);
    }
}

static void compare_prompt_logprobs(const struct job *job, const json_t *top5, uint32_t prompt,
                                    const struct tolerance *tolerance)
{
    assert_int_equal(job->logprob_count, job->prompt_count - 1);
    for (size_t i = 0; i < job->logprob_count; i++) {
        const struct step_prompt *got = &job->prompts[i];
        const json_t *logprobs = json_array_get(field(top5, "logprobs"), i);
        const json_t *tokens = json_array_get(field(top5, "tokens"), i);

        expect_near("prompt", prompt, i, (double)got->logprob,
                    real_at(field(top5, "next_token_logprobs"), i), tolerance);
        assert_int_equal(got->top_count, 5);
        for (size_t k = 0; k < 5; k++) {
            expect_near("prompt's top 5", prompt, i, (double)got->top[k].logprob,
                        real_at(logprobs, k), tolerance);
            /* Neighbours that are nearly tied may stand the other way round. */
            if ((k == 0 ||
                 real_at(logprobs, k - 1) - real_at(logprobs, k) > 2 * tolerance->logprob) &&
                (k == 4 ||
                 real_at(logprobs, k) - real_at(logprobs, k + 1) > 2 * tolerance->logprob) &&
                k < 4)
                assert_int_equal(got->top[k].token, token_at(tokens, k));
        }
    }
}

/* --- the golden checkpoints ----------------------------------------------------------------- */

/* All prompts at once, in chunks; each with every kind of log-probability. */
static void check_prompts(struct engine *engine, const json_t *golden,
                          const struct tolerance *tolerance)
{
    static int32_t prompts[PROMPTS][PROMPT_MAX];
    static struct step_prompt logprobs[PROMPT_MAX];
    struct job *jobs = calloc(PROMPTS, sizeof *jobs);
    uint32_t scored = (uint32_t)json_integer_value(field(field(golden, "top5"), "prompt"));

    assert_non_null(jobs);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        const json_t *prompt = json_array_get(field(golden, "prompts"), i);

        job_init(&jobs[i], prompts[i], read_tokens(field(prompt, "ids"), prompts[i]), 24);
        jobs[i].sampling.ignore_eos = true;
        jobs[i].sampling.logprobs = TOP_LOGPROBS_MAX;
    }
    jobs[scored].sampling.prompt_logprobs = 5;
    jobs[scored].prompts = logprobs;
    run_jobs(engine, jobs, PROMPTS, CHUNK);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        const json_t *prompt = json_array_get(field(golden, "prompts"), i);

        assert_int_equal(jobs[i].token_count, 24);
        compare_last_logits(&jobs[i].rows[0], field(prompt, "last_logits"), i, tolerance);
        compare_greedy(&jobs[i], json_array_get(field(golden, "greedy"), i), i, tolerance);
    }
    compare_prompt_logprobs(&jobs[scored], field(golden, "top5"), scored, tolerance);
    free(jobs);
}

/* The second prompt once with each token of the vocabulary after it: the whole of its last
 * logits. */
static void check_vocabulary(struct engine *engine, const json_t *golden,
                             const struct tolerance *tolerance)
{
    const json_t *prompt = json_array_get(field(golden, "prompts"), 1);
    static int32_t prompts[VOCABULARY_MAX][16];
    static struct step_prompt logprobs[VOCABULARY_MAX][16];
    double wanted[VOCABULARY_MAX];
    uint32_t vocabulary = read_logprobs(field(prompt, "last_logits"), wanted);
    struct job *jobs = calloc(vocabulary, sizeof *jobs);

    assert_non_null(jobs);
    assert_true(json_array_size(field(prompt, "ids")) < 16);
    assert_int_equal(engine_limits(engine)->vocabulary, vocabulary);
    for (uint32_t token = 0; token < vocabulary; token++) {
        uint32_t count = read_tokens(field(prompt, "ids"), prompts[token]);

        prompts[token][count] = (int32_t)token;
        job_init(&jobs[token], prompts[token], count + 1, 0);
        jobs[token].sampling.prompt_logprobs = 0;
        jobs[token].prompts = logprobs[token];
    }
    run_jobs(engine, jobs, vocabulary, CHUNK);
    for (uint32_t token = 0; token < vocabulary; token++) {
        uint32_t last = jobs[token].prompt_count - 2;

        assert_int_equal(jobs[token].logprob_count, last + 1);
        expect_near("vocabulary", 1, token, (double)logprobs[token][last].logprob, wanted[token],
                    tolerance);
    }
    free(jobs);
}

/* Every prompt eight times, joining at different steps and in different chunks. */
static void check_company(struct engine *engine, const json_t *golden,
                          const struct tolerance *tolerance)
{
    static int32_t prompts[PROMPTS][PROMPT_MAX];
    struct job *jobs = calloc(ROWS, sizeof *jobs);

    assert_non_null(jobs);
    for (uint32_t i = 0; i < ROWS; i++) {
        const json_t *prompt = json_array_get(field(golden, "prompts"), i % PROMPTS);
        uint32_t count = read_tokens(field(prompt, "ids"), prompts[i % PROMPTS]);

        job_init(&jobs[i], prompts[i % PROMPTS], count, 24);
        jobs[i].sampling.ignore_eos = true;
        jobs[i].sampling.logprobs = 0;
        jobs[i].joins_at = i * 7 % 13;
    }
    run_jobs(engine, jobs, ROWS, 11);
    for (uint32_t i = 0; i < ROWS; i++)
        compare_greedy(&jobs[i], json_array_get(field(golden, "greedy"), i % PROMPTS), i % PROMPTS,
                       tolerance);
    free(jobs);
}

struct golden {
    char name[96];
    char folder[PATH_BYTES];
    const struct tolerance *tolerance;
};

static void widen(struct tolerance *tolerance, const json_t *bf16_run)
{
    for (size_t i = 0; i < json_array_size(field(bf16_run, "max_abs_logit_diff")); i++)
        tolerance->logprob =
            fmax(tolerance->logprob, 2 * real_at(field(bf16_run, "max_abs_logit_diff"), i));
    tolerance->margin = 2 * tolerance->logprob;
}

static void checkpoint_is_the_reference(void **state)
{
    const struct golden *checkpoint = *state;
    struct tolerance tolerance = *checkpoint->tolerance;
    char path[PATH_BYTES + 96];
    struct engine *engine;
    json_t *golden;

    snprintf(path, sizeof path, "%s/golden.json", checkpoint->folder);
    golden = read_json(path);
    snprintf(path, sizeof path, "%s", checkpoint->folder);
    if (json_object_get(golden, "file")) /* GGUF */
        snprintf(path, sizeof path, "%s/%s", checkpoint->folder,
                 json_string_value(field(golden, "file")));
    farthest = 0;
    if (tolerance.coarse && json_object_get(golden, "bf16_run"))
        widen(&tolerance, field(golden, "bf16_run"));
    engine = open_engine(path, &tolerance, 192);
    if (!engine) { /* GPUs compute fewer families so far, and say so */
        json_decref(golden);
        skip();
    }
    check_prompts(engine, golden, &tolerance);
    check_vocabulary(engine, golden, &tolerance);
    check_company(engine, golden, &tolerance);
    printf("# %s: at most %.6f off\n", checkpoint->name, farthest);
    engine_close(engine);
    json_decref(golden);
}

/* --- the demo model ------------------------------------------------------------------------- */

static bool demo_path(char *ret_path, size_t room)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (cache && cache[0] == '/') /* as server/startup.c looks for it */
        snprintf(ret_path, room, "%s/weft/SmolLM2-135M-Instruct.Q4_1.gguf", cache);
    else
        snprintf(ret_path, room, "%s/.cache/weft/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : "");
    return access(ret_path, R_OK) == 0;
}

static void compare_demo_case(const struct job *job, const json_t *wanted, uint32_t number,
                              const struct tolerance *tolerance)
{
    const json_t *tokens = field(wanted, "greedy_token_ids");
    const json_t *top5 = field(wanted, "top5_logprobs");

    for (size_t i = 0; i < json_array_size(tokens); i++) {
        /* The log-probabilities of a step depend only on the path before it. */
        for (size_t k = 0; i < json_array_size(top5) && k < 5; k++) {
            const json_t *pair = json_array_get(json_array_get(top5, i), k);

            for (uint32_t t = 0; t < job->rows[i].top_count; t++)
                if (job->rows[i].top[t].token == token_at(pair, 0))
                    expect_near(json_string_value(field(wanted, "id")), number, i,
                                (double)job->rows[i].top[t].logprob, real_at(pair, 1), tolerance);
        }
        if (real_at(field(wanted, "margins"), i) < tolerance->margin)
            return;
        assert_true(i < job->token_count);
        if (job->rows[i].token != token_at(tokens, i))
            fail_msg("%s: greedy token %zu is %d where the reference has %d",
                     json_string_value(field(wanted, "id")), i, job->rows[i].token,
                     token_at(tokens, i));
    }
    /* The whole path was walked, so it must have ended as the reference's did. */
    assert_int_equal(job->rows[job->token_count - 1].state == STEP_ROW_END,
                     strcmp(json_string_value(field(wanted, "finish_reason")), "stop") == 0);
}

/* `copies` of every case at once, joining at different steps. */
static void check_demo(struct engine *engine, const json_t *cases, uint32_t copies,
                       const struct tolerance *tolerance)
{
    size_t case_count = json_array_size(cases);
    int32_t(*prompts)[PROMPT_MAX] = calloc(case_count, sizeof *prompts);
    struct job *jobs = calloc(case_count * copies, sizeof *jobs);
    uint32_t count = (uint32_t)case_count * copies;

    assert_true(prompts && jobs && count > 0);
    for (uint32_t i = 0; i < count; i++) {
        size_t number = i % case_count;
        const json_t *ids = field(json_array_get(cases, number), "prompt_token_ids");

        job_init(&jobs[i], prompts[number], read_tokens(ids, prompts[number]), DEMO_TOKENS);
        jobs[i].sampling.logprobs = 10;
        jobs[i].joins_at = copies > 1 ? i * 5 % 17 : 0;
    }
    if (copies == 1) /* each alone */
        for (uint32_t i = 0; i < count; i++)
            run_jobs(engine, &jobs[i], 1, CHUNK);
    else
        run_jobs(engine, jobs, count, CHUNK);
    for (uint32_t i = 0; i < count; i++)
        compare_demo_case(&jobs[i], json_array_get(cases, i % case_count),
                          (uint32_t)(i % case_count), tolerance);
    free(jobs);
    free(prompts);
}

static void demo_model_is_the_reference(void **state)
{
    const struct tolerance *tolerance = *state;
    char path[PATH_BYTES];
    struct engine *engine;
    json_t *reference;

    if (!demo_path(path, sizeof path)) {
        printf("skip: the demo model is not in the cache (deploy/fetch-demo-model)\n");
        skip();
    }
    reference = read_json("tests/data/smollm2_q4_1.json");
    engine = open_engine(path, tolerance, 256);
    if (tolerance == &demo_default)
        check_demo(engine, field(reference, "cases"), 1, tolerance);
    check_demo(engine, field(reference, "cases"), 3, tolerance); /* 42 sequences in 32 rows */
    engine_close(engine);
    json_decref(reference);
}

/* --- the list ------------------------------------------------------------------------------- */

static struct golden checkpoints[CHECKPOINTS_MAX];
static struct CMUnitTest tests[CHECKPOINTS_MAX + 2];
static size_t test_count;

static void add_checkpoint(const char *root, const char *name, CMUnitTestFunction test,
                           const struct tolerance *tolerance)
{
    struct golden *checkpoint = &checkpoints[test_count];

    must(test_count < CHECKPOINTS_MAX);
    snprintf(checkpoint->name, sizeof checkpoint->name, "%.64s_%s", name,
             tolerance->activations == ACTIVATIONS_F32 ? "exact" : "default");
    snprintf(checkpoint->folder, sizeof checkpoint->folder, "%s/%s", root, name);
    checkpoint->tolerance = tolerance;
    tests[test_count++] = (struct CMUnitTest){
        .name = checkpoint->name, .test_func = test, .initial_state = checkpoint};
}

static int is_checkpoint(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && !strchr(entry->d_name, '.'); /* a folder, not its README */
}

/* Mixtures where two experts score so nearly alike that rounding to bf16 chooses the other one, as
 * the goldens' README says it may; f16 does not. */
static const struct tolerance *gpu_tolerance(const char *name)
{
    bool flips = strcmp(name, "qwen3_moe") == 0 || strcmp(name, "deepseek_v2") == 0;

    return flips ? &on_gpu_f16 : &on_gpu;
}

/* Every folder there that `other` has not, in the names' order. */
static void add_checkpoints(const char *root, const char *other)
{
    struct dirent **entries = NULL;
    int count = scandir(root, &entries, is_checkpoint, alphasort);

    for (int i = 0; i < count; i++) {
        char path[PATH_BYTES];

        snprintf(path, sizeof path, "%s/%.200s", other, entries[i]->d_name);
        if (access(path, R_OK) == 0) {
            /* It is added from there. */
        } else {
            add_checkpoint(root, entries[i]->d_name, checkpoint_is_the_reference, &exact);
            add_checkpoint(root, entries[i]->d_name, checkpoint_is_the_reference,
                           test_on_gpu() ? gpu_tolerance(entries[i]->d_name) : &by_default);
        }
        free(entries[i]);
    }
    free(entries);
}

int main(void)
{
    const char *goldens = getenv("WEFT_GOLDENS");
    char root[PATH_BYTES / 2];

    snprintf(root, sizeof root, "%.200s/arch", goldens && *goldens ? goldens : "/nowhere");
    if (!goldens || !*goldens)
        printf("# WEFT_GOLDENS is not set: only the checkpoints in tests/data are compared\n");
    add_checkpoints("tests/data/arch", root);
    add_checkpoints(root, "/nowhere");
    tests[test_count++] = (struct CMUnitTest){.name = "demo_model_exact",
                                              .test_func = demo_model_is_the_reference,
                                              .initial_state = (void *)(uintptr_t)&demo_exact};
    tests[test_count++] = (struct CMUnitTest){.name = "demo_model_default",
                                              .test_func = demo_model_is_the_reference,
                                              .initial_state = (void *)(uintptr_t)&demo_default};
    return _cmocka_run_group_tests("goldens", tests, test_count, NULL, NULL);
}
