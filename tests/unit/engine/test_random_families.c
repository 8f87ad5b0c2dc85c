/* Protects random weights of every family: from each config.json of the golden checkpoints (those
 * in tests/data/arch, and those of $WEFT_GOLDENS/arch when that is set) a model is made that the
 * CPU computes, whose answers are finite and no constant; and the folder that `weft save` writes of
 * it loads back and gives the same tokens with the same log-probabilities. */
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
#include "engine/arch_table.h"
#include "engine/model_save.h"
#define RUNNER_TOKENS 24
#include "tests/lib/engine_runner.h"
#include "tests/lib/folder.h"

enum { PATH_ROOM = 512, PROMPTS = 4, PROMPT_TOKENS = 6, DISTINCT_MIN = 4 };

static struct engine *open_engine(const char *shape, const char *folder)
{
    struct engine_options options = {.random_shape = shape,
                                     .model_path = folder,
                                     .device = DEVICE_CPU,
                                     .threads = 1,
                                     .max_batch = PROMPTS,
                                     .max_context = 48,
                                     .prefill_tokens = 32,
                                     .cpu_activations = ACTIVATIONS_F32};
    struct engine *engine = NULL;
    struct fault fault = {0};

    if (engine_open(&options, &engine, &fault) < 0)
        fail_msg("%s: %s", shape ? shape : folder, fault.message);
    return engine;
}

static void decode(const char *shape, const char *folder, struct job jobs[PROMPTS])
{
    static const int32_t prompts[PROMPTS][PROMPT_TOKENS] = {
        {5, 17, 90, 3, 3, 8}, {44, 2, 61, 7, 30, 12}, {9, 9, 9, 9, 9, 9}, {1, 80, 20, 70, 33, 6}};
    struct engine *engine = open_engine(shape, folder);

    for (int i = 0; i < PROMPTS; i++) {
        job_init(&jobs[i], prompts[i], PROMPT_TOKENS, RUNNER_TOKENS_MAX);
        jobs[i].sampling.temperature = 0;
        jobs[i].sampling.logprobs = 0;
    }
    run_jobs(engine, jobs, PROMPTS, 32);
    engine_close(engine);
}

/* Tokens that occur among all answers. */
static uint32_t distinct(const struct job jobs[PROMPTS])
{
    int32_t seen[PROMPTS * RUNNER_TOKENS_MAX];
    uint32_t count = 0;

    for (int i = 0; i < PROMPTS; i++) {
        for (uint32_t t = 0; t < jobs[i].token_count; t++) {
            uint32_t at = 0;

            while (at < count && seen[at] != jobs[i].rows[t].token)
                at++;
            if (at == count)
                seen[count++] = jobs[i].rows[t].token;
        }
    }
    return count;
}

static void check_lively(const char *shape, const struct job jobs[PROMPTS])
{
    float least = INFINITY, most = -INFINITY;

    for (int i = 0; i < PROMPTS; i++) {
        assert_true(jobs[i].token_count > 0);
        for (uint32_t t = 0; t < jobs[i].token_count; t++) {
            float logprob = jobs[i].rows[t].logprob;

            if (!isfinite(logprob) || logprob > 0)
                fail_msg("%s: a log-probability of %g", shape, (double)logprob);
            least = fminf(least, logprob);
            most = fmaxf(most, logprob);
        }
    }
    if (distinct(jobs) < DISTINCT_MIN || most - least < 0.01f)
        fail_msg("%s: %u different tokens, log-probabilities %g to %g", shape, distinct(jobs),
                 (double)least, (double)most);
}

static void check_same(const char *shape, const struct job made[PROMPTS],
                       const struct job loaded[PROMPTS])
{
    for (int i = 0; i < PROMPTS; i++) {
        assert_int_equal(made[i].token_count, loaded[i].token_count);
        for (uint32_t t = 0; t < made[i].token_count; t++)
            if (made[i].rows[t].token != loaded[i].rows[t].token ||
                made[i].rows[t].logprob != loaded[i].rows[t].logprob)
                fail_msg("%s: token %u of prompt %d is %d (%g) and loaded %d (%g)", shape, t, i,
                         made[i].rows[t].token, (double)made[i].rows[t].logprob,
                         loaded[i].rows[t].token, (double)loaded[i].rows[t].logprob);
    }
}

/* --- the families -------------------------------------------------------------------------- */

static void check_family(const char *shape, const char *temporary, bool *covered)
{
    static struct job made[PROMPTS], loaded[PROMPTS];
    const struct engine_progress silent = {0};
    char folder[PATH_ROOM];
    struct model *model = NULL;
    struct fault fault = {0};

    if (model_open_random(shape, &model, &fault) < 0)
        fail_msg("%s: %s", shape, fault.message);
    for (size_t i = 0; i < arch_table_count; i++)
        covered[i] = covered[i] || strcmp(arch_table[i].name, model->architecture) == 0;
    model_close(model);
    decode(shape, NULL, made);
    check_lively(shape, made);
    snprintf(folder, sizeof folder, "%s/model", temporary);
    if (model_save(shape, folder, 0, &silent, &fault) < 0)
        fail_msg("%s: %s", shape, fault.message);
    decode(NULL, folder, loaded);
    remove_folder(folder);
    check_same(shape, made, loaded);
}

static uint32_t check_families_in(const char *root, bool *covered)
{
    char path[PATH_ROOM], temporary[] = "/tmp/weft-families-XXXXXX";
    const struct dirent *entry;
    DIR *folder = opendir(root);
    uint32_t count = 0;

    assert_non_null(folder);
    assert_non_null(mkdtemp(temporary));
    while ((entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "%s/%s/config.json", root, entry->d_name);
        if (access(path, R_OK) != 0)
            continue;
        check_family(path, temporary, covered);
        count++;
    }
    closedir(folder);
    assert_int_equal(rmdir(temporary), 0);
    return count;
}

static void every_family_computes_and_loads_back(void **state)
{
    bool *covered = calloc(arch_table_count, sizeof *covered);
    const char *goldens = getenv("WEFT_GOLDENS");
    char path[PATH_ROOM];

    (void)state;
    assert_non_null(covered);
    assert_true(check_families_in("tests/data/arch", covered) >= 20);
    if (goldens && *goldens) {
        snprintf(path, sizeof path, "%s/arch", goldens);
        assert_true(check_families_in(path, covered) > 0);
    } else {
        printf("left out: WEFT_GOLDENS names no folder of further configurations\n");
    }
    for (size_t i = 0; i < arch_table_count && goldens && *goldens; i++)
        if (!covered[i] && !(arch_table[i].flags & ARCH_ENCODER)) /* encoders draw no tokens */
            fail_msg("no configuration is of the architecture %s", arch_table[i].name);
    free(covered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_computes_and_loads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
