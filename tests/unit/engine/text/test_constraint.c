/* test_constraint.c -- protects: on random grammars the automaton accepts what a slow recognizer
 * accepts, a mask's bit is set exactly when a copy of the state survives that token, what is alive
 * can end, rollback is replay, and none of it changes when the cache forgets all the time. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"
#include "tests/lib/failing_malloc.h"
#include "tests/lib/random_grammar.h"

enum { TOKEN_COUNT = 300, WORDS = TOKEN_COUNT / 32 + 2, END_TOKEN = 20, CONTROL_TOKEN = 30 };

/* ---- a vocabulary of random tokens ---- */

static const char *const bricks[] = {"a", "b", "ab", "\"", "\\", " ", "\xc3\xa9", "\xc3", "\xa9",
                                     /* U+0085, U+2028, U+2030, U+AC00, U+1F600 */
                                     "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xb0", "\xea\xb0\x80",
                                     "\xf0\x9f\x98\x80"};
enum { BRICKS = sizeof bricks / sizeof *bricks };

struct random_vocabulary {
    char text[TOKEN_COUNT][64];
    struct vocabulary_token tokens[TOKEN_COUNT];
    struct vocabulary_trie *trie;
};

static void vocabulary_open(struct random_vocabulary *vocabulary, struct random_source *source)
{
    static const int32_t ends[] = {END_TOKEN};

    for (int id = 0; id < TOKEN_COUNT; id++) {
        uint32_t parts = 1 + random_below(source, id % 9 == 0 ? 10 : 3);
        char *text = vocabulary->text[id];

        text[0] = 0;
        for (uint32_t i = 0; i < parts; i++) {
            const char *brick = bricks[id < BRICKS ? (uint32_t)id : random_below(source, BRICKS)];

            memcpy(text + strlen(text), brick, strlen(brick) + 1);
            if (id < BRICKS)
                break;
        }
        vocabulary->tokens[id] = (struct vocabulary_token){text, strlen(text)};
    }
    vocabulary->tokens[CONTROL_TOKEN].bytes = NULL;
    assert_int_equal(
        vocabulary_trie_open(vocabulary->tokens, TOKEN_COUNT, ends, 1, &vocabulary->trie, NULL), 0);
}

/* A constraint of a random grammar; those that are refused are passed over, for known reasons. */
static struct constraint *constraint_random(struct random_source *source,
                                            const struct vocabulary_trie *trie, size_t cache_bytes,
                                            struct grammar **ret_grammar)
{
    struct constraint_limits limits = {.cache_bytes = cache_bytes};

    for (;;) {
        struct constraint *constraint = NULL;
        struct grammar *grammar = random_grammar(source);
        struct fault fault = {0};
        int r = constraint_open(grammar, trie, &limits, &constraint, &fault);

        if (r == 0) {
            *ret_grammar = grammar;
            return constraint;
        }
        grammar_close(grammar);
        assert_true(strstr(fault.message, "left-recursive") || strstr(fault.message, "never ends"));
    }
}

static struct constraint_state *state_at(struct constraint *constraint, const char *text,
                                         size_t bytes)
{
    struct constraint_state *state = NULL;
    size_t taken;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    assert_true(constraint_state_bytes(state, text, bytes, &taken, NULL) >= 0);
    return state;
}

/* ---- against the recognizer ---- */

static void check_texts(struct constraint *constraint, const struct grammar *grammar,
                        struct recognizer *recognizer, struct random_source *source)
{
    for (int round = 0; round < 60; round++) {
        char text[RECOGNIZER_BYTES_MAX + 4] = "";
        struct constraint_state *state;
        bool accepted;

        for (uint32_t parts = random_below(source, 8); parts > 0; parts--) {
            const char *brick = bricks[random_below(source, 9)];

            memcpy(text + strlen(text), brick, strlen(brick) + 1);
        }
        accepted = recognize(recognizer, grammar, text, (uint32_t)strlen(text));
        state = state_at(constraint, text, strlen(text));
        assert_int_equal(constraint_state_is_complete(state), accepted);
        constraint_state_close(state);
        for (size_t cut = 0; accepted && cut < strlen(text); cut++) {
            state = state_at(constraint, text, cut);
            assert_false(constraint_state_is_dead(state));
            constraint_state_close(state);
        }
    }
}

static void it_accepts_what_the_recognizer_accepts(void **state)
{
    struct recognizer *recognizer = malloc(sizeof *recognizer);
    struct random_source source = {1};

    (void)state;
    for (int round = 0; round < 400; round++) {
        struct grammar *grammar;
        struct constraint *constraint =
            constraint_random(&source, NULL, round % 2 ? 1 : 0, &grammar);

        check_texts(constraint, grammar, recognizer, &source);
        constraint_close(constraint);
        grammar_close(grammar);
    }
    free(recognizer);
}

/* ---- masks ---- */

static bool mask_has(const uint32_t *words, int32_t id)
{
    return words[id / 32] >> id % 32 & 1;
}

/* Every bit, by trying the token on a copy. Returns some allowed token, or -1. */
static int32_t check_mask(struct constraint_state *state, struct constraint_state *copy,
                          struct random_source *source)
{
    uint32_t words[WORDS], again[WORDS], seen = 0;
    int32_t picked = -1;
    int any = constraint_state_mask(state, words, WORDS, NULL);

    for (int32_t id = 0; id < TOKEN_COUNT; id++) {
        int alive;

        constraint_state_copy(copy, state);
        alive = constraint_state_token(copy, id, NULL);
        assert_int_equal(alive, mask_has(words, id));
        assert_int_equal(alive, !constraint_state_is_dead(copy));
        if (alive && random_below(source, ++seen) == 0)
            picked = id;
    }
    for (int32_t id = TOKEN_COUNT; id < WORDS * 32; id++)
        assert_false(mask_has(words, id));
    assert_int_equal(any, picked >= 0);
    assert_false(mask_has(words, CONTROL_TOKEN));
    assert_int_equal(mask_has(words, END_TOKEN),
                     constraint_state_is_complete(state) && !constraint_state_is_ended(state));
    assert_int_equal(constraint_state_mask(state, again, WORDS, NULL), any);
    assert_memory_equal(words, again, sizeof words);
    return picked;
}

static void check_walk(struct constraint *constraint, struct random_source *source)
{
    struct constraint_state *state = NULL, *copy = NULL;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    assert_int_equal(constraint_state_open(constraint, &copy, NULL), 0);
    for (int step = 0; step < 8; step++) {
        int32_t picked = check_mask(state, copy, source);

        if (picked < 0)
            break;
        assert_int_equal(constraint_state_token(state, picked, NULL), 1);
        assert_int_equal(constraint_state_is_ended(state), picked == END_TOKEN);
    }
    constraint_state_close(copy);
    constraint_state_close(state);
}

static void a_bit_is_set_when_the_token_survives(void **state)
{
    struct random_source source = {2};

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct random_vocabulary vocabulary;
        struct grammar *grammar;
        struct constraint *constraint;

        vocabulary_open(&vocabulary, &source);
        constraint = constraint_random(&source, vocabulary.trie, round % 2 ? 1 : 0, &grammar);
        check_walk(constraint, &source);
        constraint_close(constraint);
        grammar_close(grammar);
        vocabulary_trie_close(vocabulary.trie);
    }
}

static struct constraint *constraint_gbnf(const char *source, const struct vocabulary_trie *trie,
                                          const struct constraint_limits *limits)
{
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};

    if (gbnf_parse(source, strlen(source), &grammar, &fault) < 0 ||
        constraint_open(grammar, trie, limits, &constraint, &fault) < 0)
        fail_msg("%s", fault.message);
    grammar_close(grammar);
    return constraint;
}

/* Grammars whose texts go through slices: free, counted, nested, beside others, within rules. */
static void slices_are_exact(void **state)
{
    static const char *const sources[] = {
        "root ::= \"\\\"\" [^\"\\\\\\n]* \"\\\"\"",
        "root ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" [\"\\\\]){2,5} \"\\\"\"",
        "root ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" [\"\\\\]){4,} \"\\\"\" \" \"{0,3}",
        "root ::= [a-zA-Z0-9]{1,7} | [ab ]+ | .{3}",
        "root ::= ([^\"]{2} \"\\\"\"?){0,3}",
        "root ::= (.{0,2}){0,2} \"\\\"\"",
        "root ::= c{1,4}\nc ::= [^\"\\\\] | \"\\\\\" (\"a\" | \"b\")",
        "root ::= ((.){1,2} | \"ab\" root)*",
        "root ::= [^\"\\u2028]*",
        "root ::= [^\"\\u0085\\u2030]{0,20}",
        "root ::= \"\\\"\" [^\"\\\\\\u0085\\u2028\\u2029]{0,6} \"\\\"\"",
    };
    struct random_source source = {3};

    (void)state;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        for (int round = 0; round < 20; round++) {
            struct constraint_limits limits = {.cache_bytes = round % 2 ? 1 : 0};
            struct random_vocabulary vocabulary;
            struct constraint *constraint;

            vocabulary_open(&vocabulary, &source);
            constraint = constraint_gbnf(sources[i], vocabulary.trie, &limits);
            check_walk(constraint, &source);
            constraint_close(constraint);
            vocabulary_trie_close(vocabulary.trie);
        }
    }
}

static size_t encode(uint32_t c, char *to)
{
    size_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t marks[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = bytes; i-- > 1; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(marks[bytes] | c);
    return bytes;
}

/* Anything but one character: "aX", "Xa" and "X" are not allowed, the character beside it is. */
static void expect_excluded(uint32_t excluded)
{
    char text[4][8] = {"a", "a"};
    size_t bytes = encode(excluded, text[1] + 1);
    struct vocabulary_token tokens[4] = {{text[0], 1}, {text[1], 1 + bytes}, {text[2], 0}};
    struct vocabulary_trie *trie = NULL;
    struct constraint_state *one = NULL;
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    int32_t rule;
    uint32_t word;

    tokens[2].count = encode(excluded, text[2]);
    text[2][tokens[2].count++] = 'a';
    tokens[3] = (struct vocabulary_token){text[3], encode(excluded ^ 1, text[3])};
    assert_int_equal(vocabulary_trie_open(tokens, 4, NULL, 0, &trie, NULL), 0);
    assert_int_equal(grammar_open(20, &grammar, NULL), 0);
    rule = grammar_rule(grammar, "root");
    grammar_set_root(grammar, rule);
    assert_int_equal(
        grammar_define(
            grammar, rule,
            grammar_repeat(
                grammar,
                grammar_class(grammar, &(struct grammar_range){excluded, excluded}, 1, true), 0,
                GRAMMAR_UNBOUNDED)),
        0);
    assert_int_equal(constraint_open(grammar, trie, NULL, &constraint, NULL), 0);
    assert_int_equal(constraint_state_open(constraint, &one, NULL), 0);
    assert_int_equal(constraint_state_mask(one, &word, 1, NULL), 1);
    if (word != (excluded == 'a' ? 0x8 : 0x9))
        fail_msg("U+%04X: tokens %x", excluded, word);
    constraint_state_close(one);
    constraint_close(constraint);
    grammar_close(grammar);
    vocabulary_trie_close(trie);
}

static void an_excluded_character_is_excluded(void **state)
{
    static const uint32_t edges[] = {
        0x20,   0x22,   0x5C,    0x61,    0x7E,    0x80,    0x85,     0x9F,     0xA0,   0xBF,
        0xC0,   0x7FF,  0x800,   0xFFF,   0x1000,  0x1FFF,  0x2000,   0x2027,   0x2028, 0x2029,
        0x202A, 0x203F, 0x2040,  0x2FFF,  0x3000,  0xCFFF,  0xD000,   0xD7FF,   0xE000, 0xEFFF,
        0xF000, 0xFFFF, 0x10000, 0x3FFFF, 0x40000, 0xFFFFF, 0x100000, 0x10FFFF,
    };
    struct random_source source = {9};

    (void)state;
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        expect_excluded(edges[i]);
    for (int i = 0; i < 3000; i++) {
        uint32_t c = 0x20 + random_below(&source, i % 3 ? 0x3000 : 0x10FFDF);

        if (c < 0xD800 || c > 0xDFFF)
            expect_excluded(c);
    }
}

/* ---- rollback, copies, ends ---- */

static void check_same(struct constraint_state *a, struct constraint_state *b)
{
    uint32_t left[WORDS], right[WORDS];

    assert_int_equal(constraint_state_is_dead(a), constraint_state_is_dead(b));
    assert_int_equal(constraint_state_is_complete(a), constraint_state_is_complete(b));
    assert_int_equal(constraint_state_is_ended(a), constraint_state_is_ended(b));
    assert_int_equal(constraint_state_mask(a, left, WORDS, NULL),
                     constraint_state_mask(b, right, WORDS, NULL));
    assert_memory_equal(left, right, sizeof left);
}

/* Random tokens, allowed or not, and rollbacks by as many as there are. */
static void check_rollback(struct constraint *constraint, struct random_source *source)
{
    struct constraint_state *state = NULL, *replay = NULL;
    int32_t taken[40];
    uint32_t count = 0;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    for (int step = 0; step < 30; step++) {
        if (random_below(source, 3) == 0) {
            uint32_t back = random_below(source, count + 1);

            assert_int_equal(constraint_state_rollback(state, back), 0);
            count -= back;
        } else {
            taken[count] = (int32_t)random_below(source, 9);
            assert_true(constraint_state_token(state, taken[count++], NULL) >= 0);
        }
        assert_int_equal(constraint_state_open(constraint, &replay, NULL), 0);
        for (uint32_t i = 0; i < count; i++)
            assert_true(constraint_state_token(replay, taken[i], NULL) >= 0);
        check_same(state, replay);
        assert_int_equal(constraint_state_rollback(state, count + 1), E_INVALID);
        constraint_state_close(replay);
    }
    constraint_state_close(state);
}

static void rollback_is_replay(void **state)
{
    struct random_source source = {4};

    (void)state;
    for (int round = 0; round < 150; round++) {
        struct random_vocabulary vocabulary;
        struct grammar *grammar;
        struct constraint *constraint;

        vocabulary_open(&vocabulary, &source);
        constraint = constraint_random(&source, vocabulary.trie, round % 2 ? 1 : 0, &grammar);
        check_rollback(constraint, &source);
        constraint_close(constraint);
        grammar_close(grammar);
        vocabulary_trie_close(vocabulary.trie);
    }
}

static void rollback_reaches_back_so_many_steps(void **state)
{
    struct constraint *constraint = constraint_gbnf("root ::= \"a\"* \"b\"", NULL, NULL);
    struct constraint_state *one = NULL;
    size_t taken;

    (void)state;
    assert_int_equal(constraint_state_open(constraint, &one, NULL), 0);
    for (int i = 0; i < 3 * CONSTRAINT_ROLLBACK_MAX; i++)
        assert_int_equal(constraint_state_bytes(one, "a", 1, &taken, NULL), 1);
    assert_int_equal(constraint_state_bytes(one, "ba", 2, &taken, NULL), 0);
    assert_int_equal(taken, 1);
    assert_true(constraint_state_is_dead(one));
    assert_int_equal(constraint_state_rollback(one, CONSTRAINT_ROLLBACK_MAX + 1), E_INVALID);
    assert_int_equal(constraint_state_rollback(one, CONSTRAINT_ROLLBACK_MAX), 0);
    assert_false(constraint_state_is_dead(one));
    assert_int_equal(constraint_state_bytes(one, "ab", 2, &taken, NULL), 1);
    assert_true(constraint_state_is_complete(one));
    assert_int_equal(constraint_state_rollback(one, 2), E_INVALID);
    constraint_state_close(one);
    constraint_close(constraint);
}

/* From wherever a random text leads, some text leads to the end: looked for breadth first. */
static bool can_end(struct constraint_state *state, struct constraint *constraint)
{
    enum { QUEUE = 400 };
    struct constraint_state *queue[QUEUE];
    uint32_t first = 0, count = 0;
    bool found = false;

    assert_int_equal(constraint_state_open(constraint, &queue[count++], NULL), 0);
    constraint_state_copy(queue[0], state);
    for (; !found && first < count; first++) {
        found = constraint_state_is_complete(queue[first]);
        for (int i = 0; !found && i < 9 && count < QUEUE; i++) {
            size_t taken;

            assert_int_equal(constraint_state_open(constraint, &queue[count], NULL), 0);
            constraint_state_copy(queue[count], queue[first]);
            if (constraint_state_bytes(queue[count], bricks[i], strlen(bricks[i]), &taken, NULL))
                count++;
            else
                constraint_state_close(queue[count]);
        }
    }
    while (count > 0)
        constraint_state_close(queue[--count]);
    return found || first >= QUEUE / 2; /* so far away is not looked for further */
}

static void what_is_alive_can_end(void **state)
{
    struct random_source source = {5};

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct grammar *grammar;
        struct constraint *constraint = constraint_random(&source, NULL, 0, &grammar);
        struct constraint_state *one = state_at(constraint, "", 0);

        for (int step = 0; step < 6; step++) {
            const char *brick = bricks[random_below(&source, 9)];
            size_t taken;

            if (!constraint_state_bytes(one, brick, strlen(brick), &taken, NULL))
                assert_int_equal(constraint_state_rollback(one, 1), 0);
        }
        assert_true(can_end(one, constraint));
        constraint_state_close(one);
        constraint_close(constraint);
        grammar_close(grammar);
    }
}

static void nothing_follows_the_end(void **state)
{
    struct random_source source = {6};
    struct random_vocabulary vocabulary;
    struct constraint *constraint;
    struct constraint_state *one = NULL;
    uint32_t words[WORDS];
    size_t taken;

    (void)state;
    vocabulary_open(&vocabulary, &source);
    constraint = constraint_gbnf("root ::= \"a\"", vocabulary.trie, NULL);
    assert_int_equal(constraint_state_open(constraint, &one, NULL), 0);
    assert_int_equal(constraint_state_token(one, END_TOKEN, NULL), 0); /* too early */
    assert_int_equal(constraint_state_rollback(one, 1), 0);
    assert_int_equal(constraint_state_token(one, 0, NULL), 1);
    assert_int_equal(constraint_state_mask(one, words, WORDS, NULL), 1);
    for (int32_t id = 0; id < TOKEN_COUNT; id++)
        assert_int_equal(mask_has(words, id), id == END_TOKEN);
    assert_int_equal(constraint_state_token(one, END_TOKEN, NULL), 1);
    assert_true(constraint_state_is_ended(one));
    assert_int_equal(constraint_state_mask(one, words, WORDS, NULL), 0);
    assert_int_equal(constraint_state_bytes(one, "a", 1, &taken, NULL), 0);
    assert_int_equal(constraint_state_rollback(one, 2), 0);
    assert_int_equal(constraint_state_token(one, CONTROL_TOKEN, NULL), 0);
    constraint_state_close(one);
    constraint_close(constraint);
    vocabulary_trie_close(vocabulary.trie);
}

/* ---- threads ---- */

struct walker {
    struct constraint *constraint;
    uint64_t seed;
    pthread_t thread;
};

static void *walk_alone(void *data)
{
    struct walker *walker = data;
    struct random_source source = {walker->seed};

    for (int i = 0; i < 5; i++)
        check_walk(walker->constraint, &source);
    return NULL;
}

/* One constraint, its cache forgetting all the time, and a state for each thread. */
static void threads_share_a_constraint(void **state)
{
    enum { THREADS = 4 };
    static const char source[] = "root ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" root){0,9} \"\\\"\"";
    struct constraint_limits limits = {.cache_bytes = 1};
    struct random_source random = {10};
    struct random_vocabulary vocabulary;
    struct walker walkers[THREADS];
    struct constraint *constraint;

    (void)state;
    vocabulary_open(&vocabulary, &random);
    constraint = constraint_gbnf(source, vocabulary.trie, &limits);
    for (int i = 0; i < THREADS; i++) {
        walkers[i] = (struct walker){.constraint = constraint_share(constraint), .seed = 20 + i};
        assert_int_equal(pthread_create(&walkers[i].thread, NULL, walk_alone, &walkers[i]), 0);
    }
    constraint_close(constraint);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(walkers[i].thread, NULL), 0);
        constraint_close(walkers[i].constraint);
    }
    vocabulary_trie_close(vocabulary.trie);
}

/* ---- what must follow ---- */

static void expect_forced(const char *source, const char *before, const char *expected)
{
    struct constraint *constraint = constraint_gbnf(source, NULL, NULL);
    struct constraint_state *one = state_at(constraint, before, strlen(before));
    char text[64];
    int count = constraint_state_forced(one, text, sizeof text, NULL);

    assert_int_equal(count, strlen(expected));
    assert_memory_equal(text, expected, strlen(expected));
    if (count > 1)
        assert_int_equal(constraint_state_forced(one, text, 1, NULL), 1);
    constraint_state_close(one);
    constraint_close(constraint);
}

static void forced_text_goes_as_far_as_there_is_one_way(void **state)
{
    const char *object = "root ::= \"{\\\"name\\\": \" (\"true\" | \"false\" | \"tree\") \"}\"";

    (void)state;
    expect_forced(object, "", "{\"name\": ");
    expect_forced(object, "{\"name\": t", "r");
    expect_forced(object, "{\"name\": f", "alse}");
    expect_forced(object, "{\"name\": false}", "");
    expect_forced("root ::= \"a\" \"b\"?", "", "a");
    expect_forced("root ::= \"ab\" \"c\"{2} [d] | \"abcc\" [d-d]", "a", "bccd");
    expect_forced("root ::= \"\xc3\xa9\" | \"\xc3\xa8\"", "", "\xc3");
    expect_forced("root ::= \"a\"{100}", "", /* as much as there is room for */
                  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}

static void expect_jump(const struct vocabulary_trie *trie, const char *source, const char *before,
                        uint32_t least, uint32_t room, const char *expected)
{
    struct constraint *constraint = constraint_gbnf(source, trie, NULL);
    struct constraint_state *one = state_at(constraint, before, strlen(before));
    struct constraint_state *other = state_at(constraint, before, strlen(before));
    char text[64] = "";
    int32_t tokens[16];
    int count = constraint_state_jump(one, least, tokens, room, NULL);
    uint32_t words[WORDS], other_words[WORDS];

    assert_in_range(count, 0, room);
    for (int i = 0; i < count; i++) {
        size_t bytes;
        const char *piece = constraint_token_text(constraint, tokens[i], &bytes);

        memcpy(text + strlen(text), piece, bytes);
        if (i + 1 < count)
            text[strlen(text)] = '|'; /* the rest is zeros */
        assert_int_equal(constraint_state_token(other, tokens[i], NULL), 1);
    }
    assert_string_equal(text, expected);
    /* It has moved as one that takes the tokens. */
    assert_int_equal(constraint_state_mask(one, words, WORDS, NULL),
                     constraint_state_mask(other, other_words, WORDS, NULL));
    assert_memory_equal(words, other_words, sizeof words);
    constraint_state_close(one);
    constraint_state_close(other);
    constraint_close(constraint);
}

static void jumps_take_the_longest_tokens_but_the_last(void **state)
{
    static const char *const texts[] = {"a", "b", "c", "ab", "abca", "bc", " ", "\xc3", "\xa9"};
    enum { COUNT = sizeof texts / sizeof *texts };
    struct vocabulary_token tokens[COUNT];
    struct vocabulary_trie *trie;

    (void)state;
    for (int i = 0; i < COUNT; i++)
        tokens[i] = (struct vocabulary_token){texts[i], strlen(texts[i])};
    assert_int_equal(vocabulary_trie_open(tokens, COUNT, NULL, 0, &trie, NULL), 0);
    expect_jump(trie, "root ::= \"abcabcab\" [ab]", "", 1, 16, "abca|bc");
    expect_jump(trie, "root ::= \"abcabcab\" [ab]", "", 1, 1, "abca");
    expect_jump(trie, "root ::= \"abcabcab\" [ab]", "", 3, 16, "");
    expect_jump(trie, "root ::= \"abcabcab\" [ab]", "a", 1, 16, "bc|abca");
    expect_jump(trie, "root ::= [ab] \"abc\"", "", 1, 16, "");
    expect_jump(trie, "root ::= \"\xc3\xa9\xc3\xa9\" [ab]", "", 1, 16, "\xc3|\xa9|\xc3");
    expect_jump(trie, "root ::= \"a b\"", "", 1, 16, "a| ");
    expect_jump(trie, "root ::= \"abxa\" [ab]", "", 1, 16, "ab"); /* no token has an x */
    vocabulary_trie_close(trie);
}

/* ---- memory ---- */

/* A text that leads to ever new places, far more than fit. */
static void the_cache_is_bounded(void **state)
{
    enum { CACHE_BYTES = 256 << 10 };
    struct constraint_limits limits = {.cache_bytes = CACHE_BYTES};
    struct constraint *constraint =
        constraint_gbnf("root ::= .* \"a\" .{40} [b-c] .*", NULL, &limits);
    struct constraint_state *one = state_at(constraint, "", 0);
    struct random_source source = {12};
    size_t most = 0;

    (void)state;
    for (int i = 0; i < 5000; i++) {
        size_t taken, bytes;

        assert_int_equal(
            constraint_state_bytes(one, random_below(&source, 2) ? "a" : "b", 1, &taken, NULL), 1);
        bytes = constraint_cache_bytes(constraint);
        most = bytes > most ? bytes : most;
    }
    assert_in_range(most, CACHE_BYTES / 2, CACHE_BYTES + CACHE_BYTES / 2);
    constraint_state_close(one);
    constraint_close(constraint);
}

static int use(const struct vocabulary_token *tokens)
{
    static const int32_t ends[] = {END_TOKEN};
    struct constraint_limits limits = {.cache_bytes = 3000};
    struct constraint_state *one = NULL;
    struct constraint *constraint = NULL;
    struct vocabulary_trie *trie = NULL;
    struct grammar *grammar = NULL;
    static const char source[] =
        "root ::= \"\\\"\" (c | \"\\\\\" root){0,9} \"\\\"\"\nc ::= [^\"\\\\]";
    uint32_t words[WORDS];
    int r = gbnf_parse(source, strlen(source), &grammar, NULL);

    if (r == 0)
        r = vocabulary_trie_open(tokens, TOKEN_COUNT, ends, 1, &trie, NULL);
    if (r == 0)
        r = constraint_open(grammar, trie, &limits, &constraint, NULL);
    if (r == 0)
        r = constraint_state_open(constraint, &one, NULL);
    for (int i = 0; r >= 0 && i < 6; i++) {
        r = constraint_state_mask(one, words, WORDS, NULL);
        if (r >= 0)
            r = constraint_state_token(one, i % 2 ? 0 : 3, NULL);
    }
    constraint_state_close(one);
    constraint_close(constraint);
    vocabulary_trie_close(trie);
    grammar_close(grammar);
    return r < 0 ? r : 0;
}

static void every_allocation_may_fail(void **state)
{
    struct random_source source = {8};
    struct random_vocabulary vocabulary;

    (void)state;
    vocabulary_open(&vocabulary, &source);
    for (uint64_t n = 1;; n++) {
        int r;

        failing_malloc_arm(n);
        r = use(vocabulary.tokens);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            break;
        }
        assert_int_equal(r, E_MEMORY);
    }
    vocabulary_trie_close(vocabulary.trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_accepts_what_the_recognizer_accepts),
        cmocka_unit_test(a_bit_is_set_when_the_token_survives),
        cmocka_unit_test(slices_are_exact),
        cmocka_unit_test(an_excluded_character_is_excluded),
        cmocka_unit_test(rollback_is_replay),
        cmocka_unit_test(rollback_reaches_back_so_many_steps),
        cmocka_unit_test(what_is_alive_can_end),
        cmocka_unit_test(nothing_follows_the_end),
        cmocka_unit_test(threads_share_a_constraint),
        cmocka_unit_test(forced_text_goes_as_far_as_there_is_one_way),
        cmocka_unit_test(jumps_take_the_longest_tokens_but_the_last),
        cmocka_unit_test(the_cache_is_bounded),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
