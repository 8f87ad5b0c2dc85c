/* Protects the reading ahead of weights: pages that nobody has touched come into memory, no farther
 * ahead than allowed until some were placed, and it ends when it is told to. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/weight_prefetch.h"
#include "tests/lib/failing_malloc.h"

enum { COLUMNS = 1 << 20, ROWS = 3 * (WEIGHT_PREFETCH_BYTES >> 20) / 4, PAGE = 4096 };

/* A file of three quarters more than may be read ahead (holes: it takes no disk), mapped. */
static uint8_t *map_file(size_t *ret_bytes)
{
    char path[] = "/tmp/weft_prefetch_XXXXXX";
    size_t bytes = (size_t)2 * ROWS * COLUMNS;
    int fd = mkstemp(path);
    uint8_t *base;

    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(base != MAP_FAILED);
    close(fd);
    *ret_bytes = bytes;
    return base;
}

static bool is_in_memory(uint8_t *at)
{
    unsigned char present = 0;

    assert_int_equal(mincore(at, PAGE, &present), 0);
    return present & 1;
}

/* Some seconds at most; false: in vain. */
static bool comes_into_memory(uint8_t *at)
{
    uint64_t began = clock_now();

    while (!is_in_memory(at)) {
        if (clock_now() - began > (uint64_t)20 * 1000 * 1000 * 1000)
            return false;
        (void)sched_yield();
    }
    return true;
}

static void reads_ahead_as_far_as_allowed(void **state)
{
    struct weight_list list = {0};
    struct weight_part part = {.type = DT_BF16, .rows = ROWS / 2};
    struct weight_prefetch *prefetch;
    size_t bytes;
    uint8_t *base = map_file(&bytes);

    (void)state;
    weight_list_add(NULL, &part, COLUMNS);
    weight_list_add(&list, &part, COLUMNS); /* random: nothing to read */
    assert_int_equal(list.count, 0);
    part.data = base + bytes / 2; /* the second half first */
    weight_list_add(&list, &part, COLUMNS);
    part.data = base;
    weight_list_add(&list, &part, COLUMNS);
    prefetch = weight_prefetch_open(&list);
    assert_non_null(prefetch);
    assert_int_equal(list.count, 0);
    assert_true(comes_into_memory(base + bytes / 2));
    assert_true(comes_into_memory(base + bytes - PAGE));
    assert_true(comes_into_memory(base));
    assert_false(is_in_memory(base + bytes / 2 - PAGE)); /* too far yet */
    weight_prefetch_passed(prefetch, bytes / 2);
    assert_true(comes_into_memory(base + bytes / 2 - PAGE));
    weight_prefetch_close(prefetch);
    munmap(base, bytes);
}

static void ends_at_any_time(void **state)
{
    struct weight_part part = {.type = DT_BF16, .rows = ROWS};
    size_t bytes;
    uint8_t *base = map_file(&bytes);

    (void)state;
    part.data = base;
    for (int i = 0; i < 20; i++) {
        struct weight_list list = {0};

        weight_list_add(&list, &part, COLUMNS);
        weight_prefetch_close(weight_prefetch_open(&list));
    }
    munmap(base, bytes);
}

static void goes_without_where_there_is_no_memory(void **state)
{
    struct weight_part part = {.type = DT_F32, .rows = 1, .data = "four"};
    struct weight_list list = {0};

    (void)state;
    failing_malloc_arm(1);
    weight_list_add(&list, &part, 1);
    assert_true(failing_malloc_disarm());
    assert_null(weight_prefetch_open(&list));
    weight_list_add(&list, &part, 1);
    failing_malloc_arm(1);
    assert_null(weight_prefetch_open(&list));
    assert_true(failing_malloc_disarm());
    assert_null(list.ranges);
    weight_prefetch_passed(NULL, 1);
    weight_prefetch_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_ahead_as_far_as_allowed),
        cmocka_unit_test(ends_at_any_time),
        cmocka_unit_test(goes_without_where_there_is_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
