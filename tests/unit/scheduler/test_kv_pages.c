/* Protects the page pool: no page is given twice, shared pages live as long as their last holder,
 * names follow content. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/base/fault.h"
#include "scheduler/kv_pages.h"
#include "tests/lib/failing_malloc.h"

enum { PAGES = 37, ROUNDS = 200000 };

static void takes_and_drops_at_random(void **state)
{
    uint32_t uses[PAGES] = {0}, used = 0, page;
    struct kv_pages *pages;

    (void)state;
    assert_int_equal(kv_pages_open(PAGES, &pages), 0);
    srand(1);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t any = (uint32_t)rand() % PAGES;

        if (rand() % 2) {
            int r = kv_pages_take(pages, &page);

            assert_int_equal(r, used == PAGES ? E_FULL : 0);
            if (r == 0) {
                assert_int_equal(uses[page], 0);
                assert_true(prefix_equal(kv_pages_hash(pages, page), (struct prefix_hash){0, 0}));
                kv_pages_name(pages, page, (struct prefix_hash){page, 1});
                uses[page] = 1;
                used++;
            }
        } else if (uses[any] && rand() % 3 == 0) {
            kv_pages_share(pages, any);
            uses[any]++;
        } else if (uses[any]) {
            assert_int_equal(kv_pages_hash(pages, any).low, any);
            kv_pages_drop(pages, any);
            used -= --uses[any] == 0;
        }
        assert_int_equal(kv_pages_free(pages), PAGES - used);
        assert_int_equal(kv_pages_uses(pages, any), uses[any]);
    }
    assert_int_equal(kv_pages_count(pages), PAGES);
    kv_pages_close(pages);
}

static void opening_survives_every_failing_allocation(void **state)
{
    struct kv_pages *pages = NULL;
    int r;

    (void)state;
    for (uint64_t n = 1;; n++) {
        failing_malloc_arm(n);
        r = kv_pages_open(PAGES, &pages);
        if (!failing_malloc_disarm())
            break;
        assert_true(r < 0);
    }
    assert_int_equal(r, 0);
    kv_pages_close(pages);
}

static void chains_differ_where_anything_before_does(void **state)
{
    int32_t first[16], second[16];
    struct prefix_key key, other;
    struct prefix_hash root, a, b;

    (void)state;
    for (int i = 0; i < 16; i++) {
        first[i] = i;
        second[i] = 100 + i;
    }
    assert_int_equal(prefix_key_init(&key), 0);
    assert_int_equal(prefix_key_init(&other), 0);
    root = prefix_root(&key, "", 0);
    a = prefix_next(&key, root, first, 16);
    b = prefix_next(&key, a, second, 16);
    assert_true(prefix_equal(b, prefix_next(&key, prefix_next(&key, root, first, 16), second, 16)));
    assert_false(prefix_equal(a, b));
    assert_false(prefix_equal(b, prefix_next(&key, root, second, 16)));
    assert_false(prefix_equal(a, prefix_next(&key, prefix_root(&key, "salt", 4), first, 16)));
    assert_false(prefix_equal(a, prefix_next(&other, prefix_root(&other, "", 0), first, 16)));
    first[15]++;
    assert_false(prefix_equal(a, prefix_next(&key, root, first, 16)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_and_drops_at_random),
        cmocka_unit_test(opening_survives_every_failing_allocation),
        cmocka_unit_test(chains_differ_where_anything_before_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
