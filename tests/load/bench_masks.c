/* bench_masks.c -- what constrained answers cost beside plain ones, through the scheduler: a
 * program for measuring.
 *
 *     bench_masks VOCABULARY SHAPE DEVICE SEQUENCES TOKENS [SCHEMA_FILE]
 *
 * VOCABULARY: hex_vocabulary.h, as many tokens as the shape has. Random weights of SHAPE answer
 * SEQUENCES prompts with up to TOKENS tokens each: all plain, then half of them, then all of them
 * held to the schema. Prints a line for each: tokens a second that plain and constrained answers
 * got while all of them ran, steps, milliseconds a step, late masks, jumped tokens, and how long a
 * mask took. */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/clock.h"
#include "config/base/json.h"
#include "engine/engine.h"
#include "engine/text/constraint.h"
#include "engine/text/schema.h"
#include "scheduler/scheduler.h"
#include "tests/lib/hex_vocabulary.h"

enum { PROMPT = 64, SEQUENCES_MAX = 256 };

static const char schema_of_text[] =
    "{\"type\": \"object\", \"properties\": {\"title\": {\"type\": \"string\"},"
    "\"year\": {\"type\": \"integer\"}, \"items\": {\"type\": \"array\", \"minItems\": 200,"
    "\"items\": {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\","
    "\"maxLength\": 60}, \"price\": {\"type\": \"number\"}, \"kind\": {\"enum\": [\"new\","
    "\"used\", \"refurbished\"]}}, \"required\": [\"name\", \"price\", \"kind\"],"
    "\"additionalProperties\": false}}}, \"required\": [\"title\", \"year\", \"items\"],"
    "\"additionalProperties\": false}";

struct run {
    struct engine *engine;
    struct scheduler *scheduler;
    sem_t bell;
    uint32_t sequences;
    uint32_t tokens;
    int32_t prompts[SEQUENCES_MAX][PROMPT];
    uint64_t counts[2]; /* plain, constrained */
    uint32_t ended[2];
};

static void check(int r, const struct fault *fault)
{
    if (r >= 0)
        return;
    fprintf(stderr, "%s\n", fault->message);
    exit(2);
}

static void on_bell(void *data)
{
    struct run *run = data;

    sem_post(&run->bell);
}

static void submit(struct run *run, uint32_t number, struct constraint *constraint)
{
    struct arena *arena;
    struct request *request;

    must(arena_open(4 << 10, 16 << 20, &arena) == 0);
    request = arena_take(arena, 1, sizeof *request);
    must(request);
    for (uint32_t i = 0; i < PROMPT; i++)
        run->prompts[number][i] = (int32_t)((number * 7919 + i * 104729) % 30000);
    request->arena = arena;
    request->exchange_id = constraint != NULL;
    request->prompt_count = 1;
    request->prompts = arena_take(arena, 1, sizeof *request->prompts);
    request->prompts[0] = (struct request_prompt){.tokens = run->prompts[number], .count = PROMPT};
    request->choices = 1;
    request->max_tokens = run->tokens;
    request->arrived_ns = clock_now();
    sampling_init(&request->sampling);
    request->sampling.temperature = 1.0f;
    request->sampling.seed = number;
    request->sampling.ignore_eos = true;
    if (constraint)
        request->constraint.constraint = constraint_share(constraint);
    must(scheduler_submit(run->scheduler, request) == 0);
}

static void print_run(const struct run *run, uint32_t constrained, double seconds,
                      const struct scheduler_stats *before)
{
    struct scheduler_stats after;
    uint64_t masks = 0;

    scheduler_stats_get(run->scheduler, &after);
    for (int i = 0; i <= MASK_BOUNDS; i++)
        masks += after.masks[i] - before->masks[i];
    printf("%3u plain, %3u constrained: ", run->sequences - constrained, constrained);
    printf("%9.1f and %9.1f tokens/s, %5llu steps of %.3f ms, %4llu late, %5llu jumped, "
           "%6llu masks of %.1f us\n",
           (double)run->counts[0] / seconds, (double)run->counts[1] / seconds,
           (unsigned long long)(after.steps_total - before->steps_total),
           seconds * 1e3 / (double)(after.steps_total - before->steps_total),
           (unsigned long long)(after.masks_late_total - before->masks_late_total),
           (unsigned long long)(after.jump_tokens_total - before->jump_tokens_total),
           (unsigned long long)masks,
           masks ? (double)(after.mask_ns_total - before->mask_ns_total) * 1e-3 / (double)masks
                 : 0.0);
}

/* Ends when the first answer does: until then all run. */
static void measure(struct run *run, struct constraint *constraint, uint32_t constrained)
{
    struct scheduler_stats before;
    uint64_t began_ns = 0;
    uint32_t started = 0, ended = 0;

    memset(run->counts, 0, sizeof run->counts);
    for (uint32_t i = 0; i < run->sequences; i++)
        submit(run, i, i < constrained ? constraint : NULL);
    while (ended < run->sequences) {
        struct event event;

        if (!scheduler_next(run->scheduler, &event)) {
            sem_wait(&run->bell);
            continue;
        }
        if (event.kind == EVENT_FAILURE) {
            fprintf(stderr, "%s\n", event.failure.message);
            exit(2);
        }
        if (event.kind == EVENT_TOKEN && began_ns > 0)
            run->counts[event.exchange_id]++;
        if (event.kind == EVENT_STARTED && ++started == run->sequences) {
            scheduler_stats_get(run->scheduler, &before);
            began_ns = clock_now();
        }
        if (event.kind == EVENT_FINISH && ended++ == 0)
            print_run(run, constrained, clock_seconds(clock_now() - began_ns), &before);
    }
}

static struct constraint *open_constraint(const char *path, const struct vocabulary_trie *trie)
{
    json_t *schema = path ? json_load_file(path, 0, NULL) : json_loads(schema_of_text, 0, NULL);
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};

    must(schema);
    check(schema_compile(schema, NULL, &grammar, &fault), &fault);
    check(constraint_open(grammar, trie, NULL, &constraint, &fault), &fault);
    grammar_close(grammar);
    json_decref(schema);
    return constraint;
}

int main(int count, char **arguments)
{
    struct engine_options options = {.max_context = 4096};
    struct scheduler_options scheduling = {
        .queue_length_max = SEQUENCES_MAX, .prefills_max = 8, .bell = on_bell};
    struct run *run = calloc(1, sizeof *run);
    struct vocabulary_trie *trie;
    struct constraint *constraint;
    struct fault fault = {0};

    must(run && count >= 6);
    run->sequences = (uint32_t)strtoul(arguments[4], NULL, 10);
    run->tokens = (uint32_t)strtoul(arguments[5], NULL, 10);
    must(run->sequences >= 1 && run->sequences <= SEQUENCES_MAX);
    trie = read_vocabulary(arguments[1]);
    constraint = open_constraint(count > 6 ? arguments[6] : NULL, trie);
    options.random_shape = arguments[2];
    options.device = strcmp(arguments[3], "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    options.max_batch = run->sequences;
    options.cuda.memory_fraction = 0.9;
    check(engine_open(&options, &run->engine, &fault), &fault);
    sem_init(&run->bell, 0, 0);
    scheduling.bell_data = run;
    check(scheduler_open(run->engine, &scheduling, &run->scheduler, &fault), &fault);
    for (uint32_t part = 0; part <= 2; part++)
        measure(run, constraint, run->sequences * part / 2);
    measure(run, constraint, 0);
    scheduler_close(run->scheduler);
    engine_close(run->engine);
    constraint_close(constraint);
    vocabulary_trie_close(trie);
    free(run);
    return 0;
}
