/* Protects the whole way of a constrained answer on a real engine: of 200 random answers under each
 * of some grammars nearly all finish, whatever finishes is a text of the grammar, and whatever is
 * cut could have gone on; seeds decide, not company; and plain answers beside them are what they
 * are alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <semaphore.h>
#include <time.h>

#include "config/base/clock.h"
#include "config/base/json.h"
#include "engine/engine.h"
#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"
#include "engine/text/regex_grammar.h"
#include "engine/text/schema.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary_trie.h"
#include "scheduler/scheduler.h"

#define MODEL "tests/data/arch/gguf_qwen3_q8_0/qwen3-Q8_0.gguf"

enum {
    ANSWERS = 200, /* under each grammar */
    CHOICES = 8,
    REQUESTS = ANSWERS / CHOICES,
    AGAIN = 5, /* requests that are made twice */
    PLAIN = 4, /* requests beside those of a grammar */
    EXCHANGES = REQUESTS + PLAIN,
    TOKENS_MAX = 220,
    PROMPT = 12,
    PATIENCE_S = 120,
};

static const struct {
    const char *schema, *regex, *gbnf; /* one of them */
} cases[] = {
    {.schema = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"},"
               "\"age\": {\"type\": \"integer\", \"minimum\": 0, \"maximum\": 150},"
               "\"tags\": {\"type\": \"array\", \"items\": {\"enum\": [\"red\", \"green\"]}}},"
               "\"required\": [\"name\", \"age\", \"tags\"], \"additionalProperties\": false}"},
    {.schema = "{\"$ref\": \"#/$defs/node\", \"$defs\": {\"node\": {\"type\": \"object\","
               "\"properties\": {\"value\": {\"type\": \"number\"},"
               "\"next\": {\"anyOf\": [{\"type\": \"null\"}, {\"$ref\": \"#/$defs/node\"}]}},"
               "\"required\": [\"value\", \"next\"], \"additionalProperties\": false}}}"},
    {.schema = "{\"type\": \"object\"}"},
    {.schema = "{\"const\": {\"the only answer\": [1, 2, \"there is nothing to choose here\"]}}"},
    {.regex = "[A-Z][a-z]{2,12}( [A-Z][a-z]{2,12}){0,3}, \\d{4}-\\d{2}-\\d{2}"},
    {.regex = "(yes|no|maybe, but only (today|tomorrow))"},
    {.gbnf = "root ::= term ([-+*/] term)*\nterm ::= [0-9]{1,4} | \"(\" root \")\"\n"},
    {.gbnf = "root ::= \"\xc3\xa9\"{3,40} | [\xe2\x82\xac\xe2\x82\xad]+ \".\"\n"},
};
enum { CASES = sizeof cases / sizeof *cases };

struct answer {
    int32_t tokens[TOKENS_MAX];
    uint32_t count;
    bool ended;
    struct event_finish finish;
};

struct world {
    struct engine *engine;
    struct scheduler *scheduler;
    struct vocabulary_trie *trie;
    sem_t bell;
    struct answer answers[EXCHANGES][CHOICES];
    uint32_t left; /* answers that have not ended */
};

static void on_bell(void *data)
{
    struct world *world = data;

    sem_post(&world->bell);
}

static struct world *world_open(void)
{
    const struct engine_options options = {.model_path = MODEL,
                                           .device = DEVICE_CPU,
                                           .threads = 2,
                                           .max_batch = 24,
                                           .max_context = 512,
                                           .kv_pages = 200};
    struct world *world = calloc(1, sizeof *world);
    struct scheduler_options scheduling = {.queue_length_max = EXCHANGES * CHOICES,
                                           .prefills_max = 4,
                                           .bell = on_bell,
                                           .bell_data = world};
    const struct tokenizer *tokenizer;
    struct fault fault = {0};

    assert_non_null(world);
    sem_init(&world->bell, 0, 0);
    if (engine_open(&options, &world->engine, &fault) < 0 ||
        engine_tokenizer(world->engine, &tokenizer, &fault) < 0 ||
        vocabulary_trie_open_tokenizer(tokenizer, &world->trie, &fault) < 0 ||
        scheduler_open(world->engine, &scheduling, &world->scheduler, &fault) < 0)
        fail_msg("%s", fault.message);
    return world;
}

static void world_close(struct world *world)
{
    scheduler_close(world->scheduler);
    vocabulary_trie_close(world->trie);
    engine_close(world->engine);
    sem_destroy(&world->bell);
    free(world);
}

static struct constraint *open_case(const struct world *world, int number)
{
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    json_t *schema;
    int r;

    if (cases[number].schema) {
        schema = json_loads(cases[number].schema, 0, NULL);
        assert_non_null(schema);
        r = schema_compile(schema, NULL, &grammar, &fault);
        json_decref(schema);
    } else if (cases[number].regex) {
        r = regex_grammar_open(cases[number].regex, strlen(cases[number].regex), &grammar, &fault);
    } else {
        r = gbnf_parse(cases[number].gbnf, strlen(cases[number].gbnf), &grammar, &fault);
    }
    if (r == 0)
        r = constraint_open(grammar, world->trie, NULL, &constraint, &fault);
    grammar_close(grammar);
    if (r < 0)
        fail_msg("%s", fault.message);
    return constraint;
}

/* The seed is the exchange's number. */
static void submit(struct world *world, uint32_t number, struct constraint *constraint)
{
    static int32_t prompts[EXCHANGES][PROMPT];
    struct arena *arena;
    struct request *request;

    assert_int_equal(arena_open(4 << 10, 1 << 20, &arena), 0);
    request = arena_take(arena, 1, sizeof *request);
    assert_non_null(request);
    for (uint32_t i = 0; i < PROMPT; i++)
        prompts[number][i] = (int32_t)((number * 37 + i * 11) % 256);
    request->arena = arena;
    request->exchange_id = number + 1;
    request->prompt_count = 1;
    request->prompts = arena_take(arena, 1, sizeof *request->prompts);
    request->prompts[0] = (struct request_prompt){.tokens = prompts[number], .count = PROMPT};
    request->choices = CHOICES;
    request->max_tokens = TOKENS_MAX;
    request->arrived_ns = clock_now();
    sampling_init(&request->sampling);
    request->sampling.temperature = 1.5f;
    request->sampling.seed = number;
    request->sampling.frequency_penalty = number % 5 == 1 ? 0.3f : 0.0f;
    request->sampling.logprobs = number % 5 == 2 ? 1 : LOGPROBS_NONE;
    if (constraint)
        request->constraint.constraint = constraint_share(constraint);
    memset(world->answers[number], 0, sizeof world->answers[number]);
    world->left += CHOICES;
    assert_int_equal(scheduler_submit(world->scheduler, request), 0);
}

static void hear(struct world *world, const struct event *event)
{
    struct answer *answer = &world->answers[event->exchange_id - 1][event->choice];

    assert_false(answer->ended);
    if (event->kind == EVENT_TOKEN) {
        assert_int_equal(event->token.position, PROMPT + answer->count);
        answer->tokens[answer->count++] = event->token.token;
    } else if (event->kind == EVENT_FINISH) {
        answer->ended = true;
        answer->finish = event->finish;
        world->left--;
    } else if (event->kind == EVENT_FAILURE) {
        fail_msg("%s", event->failure.message);
    }
}

static void listen(struct world *world)
{
    struct timespec deadline;
    struct event event;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    while (world->left > 0) {
        if (scheduler_next(world->scheduler, &event))
            hear(world, &event);
        else
            assert_int_equal(sem_timedwait(&world->bell, &deadline), 0);
    }
}

/* Returns whether it finished. */
static bool check(struct constraint *constraint, const struct answer *answer, bool json)
{
    char text[TOKENS_MAX * 64];
    size_t bytes = 0, piece_bytes, taken;
    struct constraint_state *state;
    bool finished = answer->finish.reason == FINISH_STOP;
    json_t *value;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    for (uint32_t i = 0; i < answer->count; i++) {
        const char *piece = constraint_token_text(constraint, answer->tokens[i], &piece_bytes);

        assert_true(bytes + piece_bytes <= sizeof text);
        assert_true(piece_bytes > 0 || i + 1 == answer->count); /* an end token comes last */
        memcpy(text + bytes, piece, piece_bytes);
        bytes += piece_bytes;
    }
    assert_int_equal(constraint_state_bytes(state, text, bytes, &taken, NULL), 1);
    if (finished)
        assert_true(constraint_state_is_complete(state));
    else
        assert_int_equal(answer->count, TOKENS_MAX);
    if (finished && json) {
        value = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
                           NULL);
        assert_non_null(value);
        json_decref(value);
    }
    constraint_state_close(state);
    return finished;
}

static void run_case(struct world *world, struct constraint *constraint)
{
    for (uint32_t i = 0; i < EXCHANGES; i++)
        submit(world, i, i < REQUESTS ? constraint : NULL);
    listen(world);
}

static void answers_fit_their_grammars(void **state)
{
    struct world *world = world_open();
    struct answer(*first)[CHOICES] = malloc(sizeof world->answers);
    struct answer(*plain)[CHOICES] = malloc(sizeof world->answers);
    struct scheduler_stats stats;

    (void)state;
    assert_true(first && plain);
    for (uint32_t i = REQUESTS; i < EXCHANGES; i++)
        submit(world, i, NULL);
    listen(world);
    memcpy(plain, world->answers, sizeof world->answers);
    for (int i = 0; i < CASES; i++) {
        struct constraint *constraint = open_case(world, i);
        uint32_t finished = 0;

        run_case(world, constraint);
        memcpy(first, world->answers, sizeof world->answers);
        for (uint32_t k = AGAIN; k-- > 0;) /* in other company */
            submit(world, k, constraint);
        listen(world);
        for (uint32_t k = 0; k < AGAIN * CHOICES; k++)
            assert_memory_equal(first[k / CHOICES][k % CHOICES].tokens,
                                world->answers[k / CHOICES][k % CHOICES].tokens,
                                sizeof plain[0][0].tokens);
        memcpy(world->answers, first, sizeof world->answers);
        for (uint32_t k = 0; k < ANSWERS; k++)
            finished += check(constraint, &world->answers[k / CHOICES][k % CHOICES],
                              cases[i].schema != NULL);
        for (uint32_t k = REQUESTS; k < EXCHANGES; k++)
            assert_memory_equal(plain[k][0].tokens, world->answers[k][0].tokens,
                                sizeof plain[k][0].tokens);
        scheduler_stats_get(world->scheduler, &stats);
        printf("grammar %d: %u of %d finished, %llu steps, %llu late masks, %llu tokens jumped\n",
               i, finished, ANSWERS, (unsigned long long)stats.steps_total,
               (unsigned long long)stats.masks_late_total,
               (unsigned long long)stats.jump_tokens_total);
        assert_true(finished >= ANSWERS * 95 / 100);
        constraint_close(constraint);
    }
    world_close(world);
    free(first);
    free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_fit_their_grammars),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
