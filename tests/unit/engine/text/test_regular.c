/* test_regular.c -- protects: intersection, difference, lengths and lists of words hold exactly
 * the texts they should, whatever sets they are made of, and no state of a set leads nowhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/fault.h"
#include "engine/text/regular.h"
#include "tests/lib/failing_malloc.h"

enum { TEXT_MAX = 6 };

static struct regular_space space_open(void)
{
    struct regular_space space = {.state_max = 4096, .work_left = 1 << 24};

    assert_int_equal(arena_open(4096, 64 << 20, &space.arena), 0);
    return space;
}

static uint32_t random_below(uint32_t bound)
{
    static uint64_t random_state = 5;

    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

/* A random automaton over 'a'..'d': states of one word, edges to random states. */
static const struct regular *random_set(struct regular_space *space)
{
    uint32_t states = 1 + random_below(6), key = 0, words;
    const struct regular *set;
    struct regular_maker *maker;

    assert_int_equal(regular_maker_open(space, &maker), 0);
    regular_maker_state(maker, &key, 1);
    for (uint32_t i = 0; i < regular_maker_count(maker); i++) {
        assert_true(*regular_maker_key(maker, i, &words) < states);
        regular_maker_begin(maker, random_below(3) == 0);
        for (uint32_t c = 'a'; c <= 'd'; c++) {
            key = random_below(states);
            if (random_below(4) > 0)
                regular_maker_edge(maker, c, c, regular_maker_state(maker, &key, 1));
        }
    }
    assert_int_equal(regular_maker_finish(maker, &set), 0);
    return set;
}

/* The `number`-th text over 'a'..'d', shortest first; its length. */
static size_t text_of(uint32_t number, char *text)
{
    size_t bytes = 0;

    for (; number > 0; number = (number - 1) / 4)
        text[bytes++] = (char)('a' + (number - 1) % 4);
    return bytes;
}

static uint32_t text_count(void)
{
    uint32_t count = 1;

    for (int i = 0; i < TEXT_MAX; i++)
        count = count * 4 + 1;
    return count;
}

static bool alive_everywhere(const struct regular *set)
{
    for (uint32_t s = 1; s < set->state_count; s++)
        if (set->states[s].edge_count == 0 && !set->states[s].accepts)
            return false;
    return true;
}

static void test_products(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct regular_space space = space_open();
        const struct regular *a = random_set(&space), *b = random_set(&space), *both, *only;
        int64_t shortest, longest, least = -1, most = -1;

        assert_int_equal(regular_intersect(&space, a, b, &both), 0);
        assert_int_equal(regular_subtract(&space, a, b, &only), 0);
        assert_true(alive_everywhere(both) && alive_everywhere(only));
        for (uint32_t i = 0; i < text_count(); i++) {
            char text[TEXT_MAX + 1];
            size_t bytes = text_of(i, text);
            bool in_a = regular_matches(a, text, bytes), in_b = regular_matches(b, text, bytes);

            assert_int_equal(regular_matches(both, text, bytes), in_a && in_b);
            assert_int_equal(regular_matches(only, text, bytes), in_a && !in_b);
            if (in_a && (least < 0 || (int64_t)bytes < least))
                least = (int64_t)bytes;
            if (in_a && (int64_t)bytes > most)
                most = (int64_t)bytes;
        }
        if (!regular_is_empty(a)) {
            assert_int_equal(regular_measure(&space, a, &shortest, &longest), 0);
            assert_int_equal(shortest, least);
            if (longest != REGULAR_UNBOUNDED)
                assert_int_equal(longest, most);
        } else {
            assert_int_equal(most, -1);
        }
        arena_close(space.arena);
    }
}

static void test_words(void **state)
{
    static const char *const texts[] = {
        "b", "", "abc", "ab", "\xc3\xa9t\xc3\xa9", "ab", "\xf0\x9f\x98\x80"};
    static const char *const others[] = {"a", "abcd", "bc", "\xc3\xa9", "c", "\xc3\xa8t\xc3\xa9"};
    struct regular_space space = space_open();
    const struct regular *set;
    size_t bytes[sizeof texts / sizeof *texts];
    int64_t shortest, longest;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        bytes[i] = strlen(texts[i]);
    assert_int_equal(regular_words(&space, texts, bytes, sizeof texts / sizeof *texts, &set), 0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(regular_matches(set, texts[i], bytes[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(regular_matches(set, others[i], strlen(others[i])));
    assert_int_equal(regular_measure(&space, set, &shortest, &longest), 0);
    assert_int_equal(shortest, 0);
    assert_int_equal(longest, 3);
    assert_int_equal(regular_words(&space, NULL, NULL, 0, &set), 0);
    assert_true(regular_is_empty(set));
    bytes[0] = 1;
    assert_int_equal(regular_words(&space, &(const char *){"\xff"}, bytes, 1, &set), E_INVALID);
    arena_close(space.arena);
}

static void test_lengths(void **state)
{
    struct regular_space space = space_open();
    const struct regular *set;
    int64_t shortest, longest;

    (void)state;
    assert_int_equal(regular_lengths(&space, 2, 3, &set), 0);
    assert_false(regular_matches(set, "\xc3\xa9", 2));
    assert_true(regular_matches(set, "\xc3\xa9\xc3\xa9", 4));
    assert_true(regular_matches(set, "abc", 3));
    assert_false(regular_matches(set, "abcd", 4));
    assert_false(regular_matches(set, "ab\xff", 3));
    assert_int_equal(regular_lengths(&space, 2, REGULAR_UNBOUNDED, &set), 0);
    assert_false(regular_matches(set, "a", 1));
    assert_true(regular_matches(set, "abcdefgh", 8));
    assert_int_equal(regular_measure(&space, set, &shortest, &longest), 0);
    assert_int_equal(shortest, 2);
    assert_int_equal(longest, REGULAR_UNBOUNDED);
    assert_int_equal(regular_lengths(&space, 0, 5000, &set), E_TOO_LARGE);
    arena_close(space.arena);
}

static void test_limits(void **state)
{
    struct regular_space space = space_open();
    const struct regular *long_one, *longer, *set;

    (void)state;
    assert_int_equal(regular_lengths(&space, 0, 4000, &long_one), 0);
    assert_int_equal(regular_lengths(&space, 100, 200, &longer), 0);
    space.work_left = 100;
    assert_int_equal(regular_intersect(&space, long_one, longer, &set), E_TOO_LARGE);
    arena_close(space.arena);
}

static int build_some(void)
{
    struct regular_space space = {.state_max = 4096, .work_left = 1 << 20};
    const struct regular *a, *b, *c;
    const char *texts[] = {"one", "two", "three"};
    size_t bytes[] = {3, 3, 5};
    int64_t shortest, longest;
    int r = arena_open(64, 1 << 20, &space.arena);

    if (r < 0)
        return r;
    r = regular_words(&space, texts, bytes, 3, &a);
    r = r < 0 ? r : regular_lengths(&space, 1, 40, &b);
    r = r < 0 ? r : regular_subtract(&space, b, a, &c);
    r = r < 0 ? r : regular_measure(&space, c, &shortest, &longest);
    if (r == 0) {
        assert_int_equal(shortest, 1);
        assert_int_equal(longest, 40);
    }
    arena_close(space.arena);
    return r;
}

static void test_without_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        int r;

        failing_malloc_arm(n);
        r = build_some();
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            break;
        }
        assert_true(r < 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),       cmocka_unit_test(test_words),
        cmocka_unit_test(test_lengths),        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
