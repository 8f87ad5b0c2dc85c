/* Protects: an id finds its thing while it lives and nothing afterwards, however often its slot is
 * used again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "config/base/ids.h"
#include "tests/lib/failing_malloc.h"

static void test_find_and_drop(void **state)
{
    int things[3];
    uint64_t id[3];
    struct ids *ids;

    (void)state;
    assert_int_equal(ids_open(3, &ids), 0);
    for (int i = 0; i < 3; i++) {
        id[i] = ids_take(ids, &things[i]);
        assert_true(id[i] != 0);
    }
    assert_true(ids_take(ids, &things[0]) == 0); /* full */
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(ids_find(ids, id[i]), &things[i]);
    assert_int_equal(ids_count(ids), 3);
    ids_drop(ids, id[1]);
    ids_drop(ids, id[1]);
    assert_null(ids_find(ids, id[1]));
    assert_int_equal(ids_count(ids), 2);
    assert_null(ids_find(ids, 0));
    assert_null(ids_find(ids, UINT64_MAX));
    assert_null(ids_find(ids, id[0] ^ (uint64_t)1 << 63)); /* another generation */
    ids_close(ids);
    ids_close(NULL);
}

static void test_old_ids_stay_dead(void **state)
{
    enum { ROUNDS = 1000 };
    static uint64_t old[ROUNDS];
    int thing;
    struct ids *ids;

    (void)state;
    assert_int_equal(ids_open(2, &ids), 0);
    for (int round = 0; round < ROUNDS; round++) {
        old[round] = ids_take(ids, &thing);
        assert_true(id_slot(old[round]) < 2);
        for (int i = 0; i < round; i++) {
            assert_true(old[i] != old[round]);
            assert_null(ids_find(ids, old[i]));
        }
        ids_drop(ids, old[round]);
    }
    ids_close(ids);
}

static void test_walk(void **state)
{
    int things[5];
    uint64_t id[5];
    struct ids *ids;
    uint32_t cursor = 0;
    int seen = 0;
    int *thing;

    (void)state;
    assert_int_equal(ids_open(8, &ids), 0);
    for (int i = 0; i < 5; i++) {
        things[i] = 0;
        id[i] = ids_take(ids, &things[i]);
    }
    ids_drop(ids, id[2]);
    while ((thing = ids_next(ids, &cursor))) {
        seen++;
        (*thing)++;
        ids_drop(ids, id[thing - things]); /* the current one may go */
    }
    assert_int_equal(seen, 4);
    for (int i = 0; i < 5; i++)
        assert_int_equal(things[i], i == 2 ? 0 : 1);
    assert_int_equal(ids_count(ids), 0);
    ids_close(ids);
}

static void test_no_memory(void **state)
{
    struct ids *ids = NULL;

    (void)state;
    failing_malloc_arm(1);
    assert_true(ids_open(8, &ids) < 0);
    assert_true(failing_malloc_disarm());
    assert_null(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_and_drop),
        cmocka_unit_test(test_old_ids_stay_dead),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
