/* test_constraint_finish.c -- protects: the distance to the end is the true one wherever a text
 * stands, the shortest way has that many bytes and completes it, and a text that is given enough
 * tokens comes to its end within them, by any way that leaves time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/constraint.h"
#include "engine/text/gbnf.h"
#include "engine/text/schema.h"
#include "tests/lib/failing_malloc.h"

enum { BYTES = 256, WALKS = 30, WALK_BYTES = 60 };

static uint32_t random_below(uint32_t bound)
{
    static uint64_t random_state = 11;

    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

static const char *const schemas[] = {
    "{}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":3},\"tags\":"
    "{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"bcd\"]},\"minItems\":2,\"maxItems\":5}},"
    "\"required\":[\"name\",\"tags\"],\"additionalProperties\":false}",
    "{\"type\":\"array\",\"minItems\":3,\"items\":{\"type\":\"array\",\"minItems\":2,\"items\":{"
    "\"type\":\"string\",\"minLength\":2,\"maxLength\":4}}}",
    "{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\",\"minimum\":100},\"kids\":{"
    "\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}},\"required\":[\"v\",\"kids\"],"
    "\"additionalProperties\":false}",
    "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^(ab){2,7}$\"},{\"type\":\"number\","
    "\"minimum\":0.25,\"maximum\":0.5}]}",
};
static const char *const grammars[] = {
    "root ::= (\"ab\" | \"c\" root \"d\"){2,4} \"!\"",
    "root ::= a a b\na ::= (\"x\" b){3}\nb ::= [0-9]{2,} | \"(\" a \")\"",
    "root ::= \"a\" root \"b\" | \"c\"{5}",
    /* Far to go on from where it may end. */
    "root ::= call (\",\" call)*\ncall ::= \"do(\" [a-c]{20} \")\"",
};
enum {
    SCHEMAS = sizeof schemas / sizeof *schemas,
    GRAMMARS = sizeof grammars / sizeof *grammars,
};

static struct vocabulary_trie *byte_vocabulary(void)
{
    static char bytes[BYTES];
    struct vocabulary_token tokens[BYTES + 1] = {{0}};
    struct vocabulary_trie *trie = NULL;
    int32_t end = BYTES;

    for (int i = 0; i < BYTES; i++) {
        bytes[i] = (char)i;
        tokens[i] = (struct vocabulary_token){bytes + i, 1};
    }
    assert_int_equal(vocabulary_trie_open(tokens, BYTES + 1, &end, 1, &trie, NULL), 0);
    return trie;
}

static struct constraint *open_one(size_t index, const struct vocabulary_trie *trie)
{
    struct constraint_limits limits = {.cache_bytes = 256 << 10}; /* so that it forgets */
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    struct fault fault = {0};

    if (index < SCHEMAS) {
        json_t *schema = json_loads(schemas[index], 0, NULL);

        assert_non_null(schema);
        if (schema_compile(schema, NULL, &grammar, &fault) < 0)
            fail_msg("%s: %s", schemas[index], fault.message);
        json_decref(schema);
    } else {
        const char *text = grammars[index - SCHEMAS];

        if (gbnf_parse(text, strlen(text), &grammar, &fault) < 0)
            fail_msg("%s: %s", text, fault.message);
    }
    if (constraint_open(grammar, trie, &limits, &constraint, &fault) < 0)
        fail_msg("%zu: %s", index, fault.message);
    grammar_close(grammar);
    return constraint;
}

/* Distances a byte further are consistent; one of the bytes that may come is taken. */
static bool check_and_step(struct constraint_state *state, int64_t distance)
{
    uint8_t alive[BYTES];
    uint32_t count = 0;
    bool nearer = distance == 0;
    size_t taken;

    assert_int_equal(distance == 0, constraint_state_is_complete(state));
    for (int b = 0; b < BYTES; b++) {
        char byte = (char)b;
        int r = constraint_state_bytes(state, &byte, 1, &taken, NULL);

        assert_true(r >= 0);
        if (r == 1) {
            int64_t next = constraint_state_distance(state, NULL);

            assert_true(next >= distance - 1);
            nearer = nearer || next == distance - 1;
            alive[count++] = (uint8_t)b;
        }
        assert_int_equal(constraint_state_rollback(state, 1), 0);
    }
    assert_true(nearer);
    if (count == 0)
        return false;
    constraint_state_bytes(state, &(char){(char)alive[random_below(count)]}, 1, &taken, NULL);
    return true;
}

static void check_way(struct constraint *constraint, const struct constraint_state *from,
                      int64_t distance)
{
    struct constraint_state *state = NULL;
    char way[512];
    size_t taken;
    int count;

    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    constraint_state_copy(state, from);
    count = constraint_state_finish(state, way, sizeof way, NULL);
    assert_int_equal(count, distance);
    assert_int_equal(constraint_state_bytes(state, way, (size_t)count, &taken, NULL), 1);
    assert_true(constraint_state_is_complete(state));
    constraint_state_close(state);
}

static void test_distances(void **ignored)
{
    struct vocabulary_trie *trie = byte_vocabulary();

    (void)ignored;
    for (size_t index = 0; index < SCHEMAS + GRAMMARS; index++) {
        struct constraint *constraint = open_one(index, trie);

        for (int walk = 0; walk < WALKS; walk++) {
            struct constraint_state *state = NULL;
            int64_t distance = 0;

            assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
            for (int i = 0; i < WALK_BYTES; i++) {
                distance = constraint_state_distance(state, NULL);
                assert_true(distance >= 0);
                check_way(constraint, state, distance);
                if (!check_and_step(state, distance))
                    break;
            }
            constraint_state_close(state);
        }
        constraint_close(constraint);
    }
    vocabulary_trie_close(trie);
}

static int32_t draw(const uint32_t *mask)
{
    int32_t allowed[BYTES + 1];
    uint32_t count = 0;

    for (int32_t id = 0; id <= BYTES; id++)
        if (mask[id / 32] >> id % 32 & 1)
            allowed[count++] = id;
    assert_true(count > 0);
    return allowed[random_below(count)];
}

/* Of single bytes: none opens more than the margin, so every text ends in time. */
static void test_ends_in_time(void **ignored)
{
    struct vocabulary_trie *trie = byte_vocabulary();
    uint32_t mask[(BYTES + 1) / 32 + 1];

    (void)ignored;
    for (size_t index = 0; index < SCHEMAS + GRAMMARS; index++) {
        struct constraint *constraint = open_one(index, trie);

        for (int walk = 0; walk < 4 * WALKS; walk++) {
            struct constraint_state *state = NULL;
            uint32_t left;

            assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
            left = (uint32_t)constraint_state_distance(state, NULL) + 1 + random_below(150);
            for (; left > 0 && !constraint_state_is_ended(state); left--) {
                assert_int_equal(constraint_state_mask_within(state, left, mask,
                                                              sizeof mask / sizeof *mask, NULL),
                                 1);
                assert_int_equal(constraint_state_token(state, draw(mask), NULL), 1);
            }
            assert_true(constraint_state_is_ended(state));
            constraint_state_close(state);
        }
        constraint_close(constraint);
    }
    vocabulary_trie_close(trie);
}

/* Every token that the grammar allows and that leaves room for the end, and no other. */
static void check_within(struct constraint_state *state, uint32_t left)
{
    uint32_t within[(BYTES + 1) / 32 + 1], plain[(BYTES + 1) / 32 + 1];
    size_t words = sizeof plain / sizeof *plain;

    assert_int_equal(constraint_state_mask(state, plain, words, NULL), 1);
    assert_int_equal(constraint_state_mask_within(state, left, within, words, NULL), 1);
    for (int32_t id = 0; id <= BYTES; id++) {
        bool may = plain[id / 32] >> id % 32 & 1;

        if (may && id < BYTES) {
            assert_int_equal(constraint_state_token(state, id, NULL), 1);
            may = constraint_state_distance(state, NULL) + 2 <= left;
            assert_int_equal(constraint_state_rollback(state, 1), 0);
        }
        assert_int_equal(within[id / 32] >> id % 32 & 1, may);
    }
}

static void test_nothing_else_is_left_out(void **ignored)
{
    struct vocabulary_trie *trie = byte_vocabulary();
    uint32_t mask[(BYTES + 1) / 32 + 1];

    (void)ignored;
    for (size_t index = 0; index < SCHEMAS + GRAMMARS; index++) {
        struct constraint *constraint = open_one(index, trie);
        struct constraint_state *state = NULL;

        assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
        for (int i = 0; i < WALK_BYTES && !constraint_state_is_ended(state); i++) {
            int64_t distance = constraint_state_distance(state, NULL);

            for (int more = 1; more <= 1 + CONSTRAINT_FINISH_MARGIN; more += 7)
                check_within(state, (uint32_t)distance + (uint32_t)more);
            assert_int_equal(constraint_state_mask(state, mask, sizeof mask / sizeof *mask, NULL),
                             1);
            assert_int_equal(constraint_state_token(state, draw(mask), NULL), 1);
        }
        constraint_state_close(state);
        constraint_close(constraint);
    }
    vocabulary_trie_close(trie);
}

/* Choices of one token each: with room for them all, and with room for a token only. */
static void test_choices(void **ignored)
{
    static const char *const texts[] = {"yes", "no", "y", "n", "e", "s", "o"};
    enum { TOKENS = sizeof texts / sizeof *texts };
    struct vocabulary_token tokens[TOKENS + 1] = {{0}};
    struct vocabulary_trie *trie = NULL;
    struct constraint *constraint = NULL;
    struct constraint_state *state = NULL;
    struct grammar *grammar = NULL;
    const char *text = "root ::= \"yes\" | \"no\"";
    int32_t end = TOKENS;
    uint32_t mask;

    (void)ignored;
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (struct vocabulary_token){texts[i], strlen(texts[i])};
    assert_int_equal(vocabulary_trie_open(tokens, TOKENS + 1, &end, 1, &trie, NULL), 0);
    assert_int_equal(gbnf_parse(text, strlen(text), &grammar, NULL), 0);
    assert_int_equal(constraint_open(grammar, trie, NULL, &constraint, NULL), 0);
    grammar_close(grammar);
    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    for (uint32_t left = 16; left > 0; left--) {
        assert_int_equal(constraint_state_mask_within(state, left, &mask, 1, NULL), 1);
        assert_int_equal(mask, left >= 4 ? 0xf : left == 3 ? 0xb : 0x3);
    }
    constraint_state_close(state);
    constraint_close(constraint);
    vocabulary_trie_close(trie);
}

/* No room for a way of a byte a token, but for one of long tokens, to the last that it takes. */
static void test_long_tokens(void **ignored)
{
    static const char *const texts[] = {"abcdefghij", "abc", "defghij", "xx", "a", "b",
                                        "c",          "d",   "e",       "f",  "g", "h",
                                        "i",          "j",   "x",       "y",  "ja"};
    enum { TOKENS = sizeof texts / sizeof *texts, LONG = 9, WAY = 10 * LONG };
    const char *text = "root ::= \"abcdefghij\"{6} [xy]{0,30} \"abcdefghij\"{3} \"y\"*";
    struct vocabulary_token tokens[TOKENS + 1] = {{0}};
    struct vocabulary_trie *trie = NULL;
    struct constraint *constraint = NULL;
    struct grammar *grammar = NULL;
    int32_t end = TOKENS;

    (void)ignored;
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (struct vocabulary_token){texts[i], strlen(texts[i])};
    assert_int_equal(vocabulary_trie_open(tokens, TOKENS + 1, &end, 1, &trie, NULL), 0);
    assert_int_equal(gbnf_parse(text, strlen(text), &grammar, NULL), 0);
    assert_int_equal(constraint_open(grammar, trie, NULL, &constraint, NULL), 0);
    grammar_close(grammar);
    for (uint32_t room = LONG + 1; room <= WAY + 50; room++) {
        for (int walk = 0; walk < WALKS; walk++) {
            struct constraint_state *state = NULL;
            uint32_t mask, bits[TOKENS + 1], count;

            assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
            assert_int_equal(constraint_state_distance(state, NULL), WAY);
            for (uint32_t left = room; left > 0 && !constraint_state_is_ended(state); left--) {
                assert_int_equal(constraint_state_mask_within(state, left, &mask, 1, NULL), 1);
                count = 0;
                for (uint32_t i = 0; i <= TOKENS; i++)
                    if (mask >> i & 1)
                        bits[count++] = i;
                assert_true(count > 0);
                assert_int_equal(
                    constraint_state_token(state, (int32_t)bits[random_below(count)], NULL), 1);
            }
            assert_true(constraint_state_is_ended(state));
            constraint_state_close(state);
        }
    }
    constraint_close(constraint);
    vocabulary_trie_close(trie);
}

/* With too little room nothing is forced. */
static void test_no_room(void **ignored)
{
    struct vocabulary_trie *trie = byte_vocabulary();
    struct constraint *constraint = open_one(1, trie);
    struct constraint_state *state = NULL;
    uint32_t within[(BYTES + 1) / 32 + 1], plain[(BYTES + 1) / 32 + 1];
    size_t words = sizeof plain / sizeof *plain, taken;

    (void)ignored;
    assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
    assert_int_equal(constraint_state_bytes(state, "{\"name\":\"", 9, &taken, NULL), 1);
    assert_int_equal(constraint_state_mask(state, plain, words, NULL), 1);
    assert_int_equal(constraint_state_mask_within(state, 5, within, words, NULL), 1);
    assert_memory_equal(within, plain, sizeof plain);
    assert_int_equal(constraint_state_bytes(state, "\n", 1, &taken, NULL), 0);
    assert_int_equal(constraint_state_distance(state, NULL), 1 << 30);
    assert_int_equal(constraint_state_finish(state, (char *)within, 4, NULL), 0);
    constraint_state_close(state);
    constraint_close(constraint);
    vocabulary_trie_close(trie);
}

static void test_without_memory(void **ignored)
{
    struct vocabulary_trie *trie = byte_vocabulary();

    (void)ignored;
    for (uint64_t n = 1;; n++) {
        struct constraint *constraint = open_one(2, trie);
        struct constraint_state *state = NULL;
        uint32_t mask[(BYTES + 1) / 32 + 1];
        struct fault fault = {0};
        int r;

        assert_int_equal(constraint_state_open(constraint, &state, NULL), 0);
        failing_malloc_arm(n);
        r = constraint_state_mask_within(state, 70, mask, sizeof mask / sizeof *mask, &fault);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 1);
            constraint_state_close(state);
            constraint_close(constraint);
            break;
        }
        assert_int_equal(r, E_MEMORY);
        assert_int_equal(fault.code, E_MEMORY);
        constraint_state_close(state);
        constraint_close(constraint);
    }
    vocabulary_trie_close(trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distances),
        cmocka_unit_test(test_ends_in_time),
        cmocka_unit_test(test_nothing_else_is_left_out),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_long_tokens),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
