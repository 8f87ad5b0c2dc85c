/* fuzz_grammar.c -- libFuzzer target: any bytes as a grammar in GBNF. What is taken must give masks
 * whose every bit agrees with taking the token, along a path of tokens that the input chooses, with
 * a cache that forgets all the time. Corpus: tests/fuzz/corpus_grammar. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TOKENS = 280, WORDS = TOKENS / 32 + 1, STEPS = 6, END = 256 };

static struct vocabulary_trie *vocabulary(void)
{
    static const char *const longer[] = {"ab",   "abc", "\"}",  "\": \"",    "true", "12",
                                         "12.5", "  ",  "\n\n", "\xc3\xa9z", "[[",   "], \"",
                                         "a\"",  "zzz", "\\\"", "\xe3\x81",  "- a"};
    static struct vocabulary_trie *trie;
    static char bytes[256];
    static const int32_t ends[] = {END};
    struct vocabulary_token tokens[TOKENS] = {{0}};

    if (trie)
        return trie;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct vocabulary_token){&bytes[i], 1};
    }
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
        tokens[END + 1 + i] = (struct vocabulary_token){longer[i], strlen(longer[i])};
    must(vocabulary_trie_open(tokens, TOKENS, ends, 1, &trie, NULL) == 0);
    return trie;
}

/* Checks a mask bit for bit; returns an allowed token that `choice` picks, -1 when there is none or
 * the grammar is beyond its limits. */
static int32_t check_mask(struct constraint_state *state, struct constraint_state *copy,
                          uint32_t choice)
{
    uint32_t words[WORDS];
    int32_t allowed[TOKENS], count = 0;
    int any = constraint_state_mask(state, words, WORDS, NULL);

    if (any < 0)
        return -1;
    for (int32_t id = 0; id < TOKENS; id++) {
        int alive;

        constraint_state_copy(copy, state);
        alive = constraint_state_token(copy, id, NULL);
        if (alive < 0)
            return -1;
        must(alive == (int)(words[id / 32] >> id % 32 & 1));
        if (alive)
            allowed[count++] = id;
    }
    must(any == (count > 0));
    /* All single bytes are tokens, so nothing that is alive is stuck. */
    must(count > 0 || constraint_state_is_dead(state) || constraint_state_is_ended(state));
    return count > 0 ? allowed[choice % (uint32_t)count] : -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct constraint_limits limits = {.cache_bytes = size % 2 ? 1 : 0, .work_max = 20000};
    struct constraint_state *state = NULL, *copy = NULL;
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    uint32_t choice = 1;

    if (gbnf_parse((const char *)data, size, &grammar, NULL) == 0 &&
        constraint_open(grammar, vocabulary(), &limits, &constraint, NULL) == 0) {
        must(constraint_state_open(constraint, &state, NULL) == 0);
        must(constraint_state_open(constraint, &copy, NULL) == 0);
        for (int step = 0; step < STEPS; step++) {
            int32_t id;

            choice = choice * 1664525u + 1013904223u + data[size * (size_t)step / STEPS];
            id = check_mask(state, copy, choice >> 8);
            if (id < 0)
                break;
            must(constraint_state_token(state, id, NULL) == 1);
        }
    }
    constraint_state_close(copy);
    constraint_state_close(state);
    constraint_close(constraint);
    grammar_close(grammar);
    return 0;
}
