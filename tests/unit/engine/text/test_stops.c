/* test_stops.c -- protects: stop strings are found where a naive search finds them, whatever way
 * the text is cut into pieces, and exactly what may still become one is held back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/text/stops.h"
#include "tests/lib/failing_malloc.h"

enum { ARENA_BYTES = 4 << 20 };

static uint32_t random_below(uint32_t bound)
{
    static uint64_t random_state = 3;

    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % bound;
}

struct set {
    struct arena *arena;
    struct stops *stops;
    uint32_t count;
    const char *texts[STOP_STRINGS_MAX];
    size_t bytes[STOP_STRINGS_MAX];
};

static void set_open(struct set *set)
{
    assert_int_equal(arena_open(4096, ARENA_BYTES, &set->arena), 0);
    for (uint32_t i = 0; i < set->count; i++)
        set->bytes[i] = strlen(set->texts[i]);
    assert_int_equal(stops_build(set->arena, set->texts, set->bytes, set->count, &set->stops, NULL),
                     0);
}

static bool ends_with(const char *text, size_t end, const char *string, size_t bytes)
{
    return end >= bytes && memcmp(text + end - bytes, string, bytes) == 0;
}

/* The string that ends at `end`, the longest of those; -1: none. */
static int32_t naive_match(const struct set *set, const char *text, size_t end)
{
    int32_t best = -1;

    for (uint32_t i = 0; i < set->count; i++)
        if (ends_with(text, end, set->texts[i], set->bytes[i]) &&
            (best < 0 || set->bytes[i] > set->bytes[best]))
            best = (int32_t)i;
    return best;
}

/* The longest end of the text that begins a stop string and is not all of it. */
static size_t naive_held(const struct set *set, const char *text, size_t end)
{
    size_t held = 0;

    for (uint32_t i = 0; i < set->count; i++)
        for (size_t bytes = 1; bytes < set->bytes[i]; bytes++)
            if (bytes > held && ends_with(text, end, set->texts[i], bytes))
                held = bytes;
    return held;
}

/* Feeds the text in random pieces and looks at every border; goes on after a match, as one does
 * that came before the least number of tokens. */
static void check_text(const struct set *set, const char *text, size_t length)
{
    struct stop_walk walk;
    size_t at = 0;

    stop_walk_init(&walk, set->stops);
    assert_int_equal(walk.matched, -1);
    while (at < length) {
        size_t piece = random_below((uint32_t)(length - at)) + 1, used = 0, end = at;
        int32_t expected = -1;

        while (end < at + piece && expected < 0)
            expected = naive_match(set, text, ++end);
        if (stop_walk_feed(&walk, text + at, piece, &used)) {
            assert_int_equal(walk.matched, expected);
            assert_int_equal(at + used, end);
            walk.matched = -1;
            at = end;
        } else {
            assert_int_equal(expected, -1);
            at += piece;
        }
        assert_int_equal(stop_walk_held(&walk), naive_held(set, text, at));
    }
}

static void test_against_a_naive_search(void **state)
{
    (void)state;
    for (int round = 0; round < 3000; round++) {
        char strings[STOP_STRINGS_MAX][16], text[80];
        uint32_t letters = 1 + random_below(3);
        struct set set = {.count = random_below(6)};

        if (round % 50 == 0)
            set.count = STOP_STRINGS_MAX;
        for (uint32_t i = 0; i < set.count; i++) {
            uint32_t bytes = 1 + random_below(8);

            for (uint32_t j = 0; j < bytes; j++)
                strings[i][j] = (char)('a' + random_below(letters));
            strings[i][bytes] = 0;
            set.texts[i] = strings[i];
        }
        set_open(&set);
        for (int i = 0; i < 5; i++) {
            for (size_t j = 0; j < sizeof text; j++)
                text[j] = (char)('a' + random_below(letters + (i > 2)));
            check_text(&set, text, sizeof text);
        }
        arena_close(set.arena);
    }
}

static void test_the_first_to_end_wins(void **state)
{
    struct set set = {.count = 4, .texts = {"hello world", "lo", "llo", "llo"}};
    struct stop_walk walk;
    size_t used = 0;

    (void)state;
    set_open(&set);
    stop_walk_init(&walk, set.stops);
    assert_false(stop_walk_feed(&walk, "say hel", 7, &used));
    assert_int_equal(stop_walk_held(&walk), 3);
    assert_true(stop_walk_feed(&walk, "lo world", 8, &used));
    assert_int_equal(used, 2);
    assert_int_equal(walk.matched, 2); /* longer than "lo", and the first of two equal ones */
    assert_int_equal(stop_string_bytes(set.stops, walk.matched), 3);
    assert_string_equal(stop_string_text(set.stops, 0), "hello world");
    arena_close(set.arena);
}

static void test_without_strings_nothing_is_held(void **state)
{
    struct set set = {.count = 0};
    struct stop_walk walk;
    size_t used;

    (void)state;
    set_open(&set);
    stop_walk_init(&walk, set.stops);
    assert_false(stop_walk_feed(&walk, "anything\0at all", 15, &used));
    assert_int_equal(stop_walk_held(&walk), 0);
    arena_close(set.arena);
}

/* The largest set there may be, and a text that almost matches all the time. */
static void test_the_largest_set(void **state)
{
    static char strings[STOP_STRINGS_MAX][STOP_STRING_BYTES_MAX + 1];
    struct set set = {.count = STOP_STRINGS_MAX};
    struct stop_walk walk;
    size_t used;

    (void)state;
    for (int i = 0; i < STOP_STRINGS_MAX; i++) {
        memset(strings[i], 'a', STOP_STRING_BYTES_MAX);
        strings[i][STOP_STRING_BYTES_MAX - 1] = (char)('b' + i);
        set.texts[i] = strings[i];
    }
    set_open(&set);
    stop_walk_init(&walk, set.stops);
    for (int i = 0; i < 100000; i++)
        assert_false(stop_walk_feed(&walk, "a", 1, &used));
    assert_int_equal(stop_walk_held(&walk), STOP_STRING_BYTES_MAX - 1);
    assert_true(stop_walk_feed(&walk, "q", 1, &used));
    assert_int_equal(walk.matched, 15);
    assert_int_equal(stop_walk_held(&walk), 0);
    arena_close(set.arena);
}

static void test_what_is_refused(void **state)
{
    const char *texts[STOP_STRINGS_MAX + 1];
    size_t bytes[STOP_STRINGS_MAX + 1];
    struct arena *arena, *small;
    struct stops *stops = NULL;
    static char large[STOP_STRING_BYTES_MAX + 1];

    (void)state;
    assert_int_equal(arena_open(4096, ARENA_BYTES, &arena), 0);
    assert_int_equal(arena_open(64, 256, &small), 0);
    for (int i = 0; i <= STOP_STRINGS_MAX; i++) {
        texts[i] = large;
        bytes[i] = 1;
    }
    assert_int_equal(stops_build(arena, texts, bytes, STOP_STRINGS_MAX + 1, &stops, NULL),
                     E_INVALID);
    assert_int_equal(stops_build(small, texts, bytes, STOP_STRINGS_MAX, &stops, NULL), E_MEMORY);
    bytes[1] = 0;
    assert_int_equal(stops_build(arena, texts, bytes, 2, &stops, NULL), E_INVALID);
    bytes[1] = STOP_STRING_BYTES_MAX + 1;
    assert_int_equal(stops_build(arena, texts, bytes, 2, &stops, NULL), E_INVALID);
    assert_null(stops);
    arena_close(arena);
    arena_close(small);
}

static void test_failing_allocations(void **state)
{
    const char *const texts[] = {"one", "two"};
    const size_t bytes[] = {3, 3};

    (void)state;
    for (uint64_t nth = 1;; nth++) {
        struct arena *arena;
        struct stops *stops = NULL;
        int r;

        assert_int_equal(arena_open(1, ARENA_BYTES, &arena), 0);
        failing_malloc_arm(nth);
        r = stops_build(arena, texts, bytes, 2, &stops, NULL);
        arena_close(arena);
        if (!failing_malloc_disarm())
            break;
        assert_int_equal(r, E_MEMORY);
        assert_null(stops);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_naive_search),
        cmocka_unit_test(test_the_first_to_end_wins),
        cmocka_unit_test(test_without_strings_nothing_is_held),
        cmocka_unit_test(test_the_largest_set),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests_name("engine/text/stops", tests, NULL, NULL);
}
