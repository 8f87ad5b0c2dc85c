/* bench_constraint.c -- times compiling and token masks for bench_constraint.py.
 *
 *     bench_constraint VOCABULARY CASES
 *
 * VOCABULARY: hex_vocabulary.h. CASES: JSON lines {"kind": "schema", "gbnf" or "regex",
 * "source": ..., "texts": [[token ids]...]}, texts that fit. Prints {"compile": [...],
 * "cold": [...], "warm": [...], ...}, processor time in nanoseconds: for each case how long
 * compiling took, then for each token how long its mask took, the first time with a fresh
 * constraint and the second time with the same one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"
#include "engine/text/regex_grammar.h"
#include "engine/text/schema.h"
#include "tests/lib/hex_vocabulary.h"

enum { LINE_BYTES_MAX = 16 << 20 };

struct times {
    double *items;
    size_t count;
    size_t room;
};

static double now_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void times_put(struct times *times, double ns)
{
    if (times->count == times->room) {
        times->room = times->room ? 2 * times->room : 1024;
        times->items = realloc(times->items, times->room * sizeof *times->items);
        must(times->items);
    }
    times->items[times->count++] = ns;
}

static void times_print(const char *name, const struct times *times)
{
    printf("\"%s\": [", name);
    for (size_t i = 0; i < times->count; i++)
        printf("%s%.0f", i > 0 ? ", " : "", times->items[i]);
    printf("], ");
}

static struct constraint *compile(const json_t *one, const struct vocabulary_trie *trie)
{
    const char *kind = json_string_value(json_object_get(one, "kind"));
    const json_t *source = json_object_get(one, "source");
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};
    int r;

    if (strcmp(kind, "schema") == 0)
        r = schema_compile(source, NULL, &grammar, &fault);
    else if (strcmp(kind, "gbnf") == 0)
        r = gbnf_parse(json_string_value(source), json_string_length(source), &grammar, &fault);
    else
        r = regex_grammar_open(json_string_value(source), json_string_length(source), &grammar,
                               &fault);
    if (r == 0)
        r = constraint_open(grammar, trie, NULL, &constraint, &fault);
    grammar_close(grammar);
    if (r < 0)
        fprintf(stderr, "refused: %s\n", fault.message);
    return constraint;
}

/* Returns whether the text went through to its end. */
static bool run_text(struct constraint *constraint, const json_t *text, uint32_t *words,
                     size_t word_count, struct times *times)
{
    struct constraint_state *state = NULL;
    bool alive = true;
    const json_t *id;
    size_t i;

    must(constraint_state_open(constraint, &state, NULL) == 0);
    for (i = 0; alive && i <= json_array_size(text); i++) {
        double begin = now_ns();

        must(constraint_state_mask(state, words, word_count, NULL) >= 0);
        times_put(times, now_ns() - begin);
        id = json_array_get(text, i);
        if (id)
            alive = constraint_state_token(state, (int32_t)json_integer_value(id), NULL) == 1;
    }
    alive = alive && constraint_state_is_complete(state);
    constraint_state_close(state);
    return alive;
}

int main(int argc, char **argv)
{
    struct times compile_times = {0}, cold = {0}, warm = {0};
    struct vocabulary_trie *trie;
    size_t room = 0, memory = 0, word_count, unfit = 0;
    uint32_t *words;
    char *line = NULL;
    FILE *cases;

    must(argc >= 3);
    trie = read_vocabulary(argv[1]);
    word_count = trie->word_count;
    words = calloc(word_count, sizeof *words);
    cases = fopen(argv[2], "r");
    must(cases && words);
    while (getline(&line, &room, cases) > 0) {
        json_t *one = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *texts = json_object_get(one, "texts"), *text;
        double begin = now_ns();
        struct constraint *constraint = compile(one, trie);
        size_t i, bytes;

        times_put(&compile_times, now_ns() - begin);
        if (constraint) {
            json_array_foreach(texts, i, text) unfit +=
                !run_text(constraint, text, words, word_count, &cold);
            json_array_foreach(texts, i, text) run_text(constraint, text, words, word_count, &warm);
            bytes = constraint_cache_bytes(constraint);
            memory = bytes > memory ? bytes : memory;
        }
        constraint_close(constraint);
        json_decref(one);
    }
    printf("{");
    times_print("compile", &compile_times);
    times_print("cold", &cold);
    times_print("warm", &warm);
    printf("\"unfit\": %zu, \"nodes\": %u, \"memory\": %zu}\n", unfit, trie->all.node_count,
           memory);
    fclose(cases);
    free(line);
    free(words);
    free(compile_times.items);
    free(cold.items);
    free(warm.items);
    vocabulary_trie_close(trie);
    return 0;
}
