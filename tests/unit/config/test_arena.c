/* Protects: an arena gives zeroed, aligned, separate memory, and never takes more than its ceiling.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/arena.h"
#include "tests/lib/failing_malloc.h"

static void test_takes_are_zeroed_aligned_and_apart(void **state)
{
    struct arena *arena;
    unsigned char *taken[200];

    (void)state;
    assert_int_equal(arena_open(100, 1 << 20, &arena), 0);
    for (size_t i = 0; i < 200; i++) {
        size_t bytes = i % 37;

        taken[i] = arena_take(arena, bytes, 1);
        assert_non_null(taken[i]);
        assert_int_equal((uintptr_t)taken[i] % 16, 0);
        for (size_t j = 0; j < bytes; j++)
            assert_int_equal(taken[i][j], 0);
        memset(taken[i], (int)i + 1, bytes);
    }
    for (size_t i = 0; i < 200; i++) {
        for (size_t j = 0; j < i % 37; j++)
            assert_int_equal(taken[i][j], (unsigned char)(i + 1));
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(taken[i], taken[j]); /* empty ones too */
    }
    arena_close(arena);
}

static void test_ceiling_counts_everything(void **state)
{
    enum { CEILING = 10000 };
    struct arena *arena;
    size_t given = 0;

    (void)state;
    assert_int_equal(arena_open(64, CEILING, &arena), 0);
    while (arena_take(arena, 1, 16)) {
        given += 16;
        assert_true(arena_bytes(arena) <= CEILING);
    }
    assert_true(given < CEILING);
    assert_true(given > CEILING / 2); /* and the ceiling is of use */
    assert_null(arena_take(arena, 1, CEILING));
    arena_close(arena);
}

static void test_overflow(void **state)
{
    struct arena *arena;

    (void)state;
    assert_int_equal(arena_open(64, SIZE_MAX / 2, &arena), 0);
    assert_null(arena_take(arena, SIZE_MAX / 2, 3));
    assert_null(arena_take(arena, SIZE_MAX, 1));
    assert_null(arena_take(arena, 1, SIZE_MAX));
    assert_null(arena_copy(arena, "x", SIZE_MAX));
    assert_non_null(arena_take(arena, 1, 8)); /* a refusal harms nothing */
    arena_close(arena);
}

static void test_copy_ends_in_nul(void **state)
{
    struct arena *arena;
    char *copy;

    (void)state;
    assert_int_equal(arena_open(0, 4096, &arena), 0);
    copy = arena_copy(arena, "abcdef", 3);
    assert_string_equal(copy, "abc");
    assert_string_equal(arena_copy(arena, NULL, 0), "");
    arena_close(arena);
    arena_close(NULL);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct arena *arena = NULL;
        void *big = NULL;
        int r;

        failing_malloc_arm(n);
        r = arena_open(64, 1 << 20, &arena);
        if (r == 0)
            big = arena_take(arena, 1, 5000);
        if (!failing_malloc_disarm()) {
            assert_non_null(big);
            assert_true(n > 2); /* the loop did reach the second block */
            arena_close(arena);
            return;
        }
        assert_null(big);
        if (r == 0)
            assert_non_null(arena_take(arena, 1, 5000)); /* it recovers */
        else
            assert_int_equal(r, -ENOMEM);
        arena_close(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_takes_are_zeroed_aligned_and_apart),
        cmocka_unit_test(test_ceiling_counts_everything),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_copy_ends_in_nul),
        cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
