/* Protects: every seat runs each function once and no seat passes a barrier before all have come;
 * shares cover everything once; an idle pool uses no processor time; and when a seat does not get
 * its processor the pool goes on with fewer, to use them all again later. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "kernels/cpu/pool.h"

enum { SEATS_MAX = 5, RUNS = 3000, PHASES = 4 };

struct counts {
    uint32_t runs[SEATS_MAX];
    _Atomic uint32_t arrived;
    uint32_t count;
    _Atomic uint32_t early; /* seats that passed a barrier before the others came */
};

static void count_run(void *data, const struct pool_seat *seat)
{
    struct counts *counts = data;

    counts->runs[seat->index]++;
    for (uint32_t phase = 1; phase <= PHASES; phase++) {
        atomic_fetch_add(&counts->arrived, 1);
        pool_barrier(seat);
        if (atomic_load(&counts->arrived) < phase * seat->count)
            atomic_fetch_add(&counts->early, 1);
        pool_barrier(seat);
    }
    if (seat->index == 0)
        counts->count = seat->count;
}

static void seats_and_barriers(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= SEATS_MAX; threads += 2) {
        struct counts counts = {0};
        struct pool *pool;

        assert_int_equal(pool_open(threads, &pool, NULL), 0);
        assert_int_equal(pool_threads(pool), threads);
        assert_int_equal(pool_active(pool), threads);
        for (uint32_t run = 0; run < RUNS / threads; run++) {
            atomic_store(&counts.arrived, 0);
            pool_run(pool, count_run, &counts);
            assert_int_equal(counts.count, threads);
            assert_int_equal(atomic_load(&counts.arrived), threads * PHASES);
        }
        for (uint32_t i = 0; i < threads; i++)
            assert_int_equal(counts.runs[i], RUNS / threads);
        assert_int_equal(atomic_load(&counts.early), 0);
        pool_close(pool);
    }
}

static void shares_cover_all(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 7; count++) {
        for (uint64_t items = 0; items <= 40; items++) {
            for (uint64_t unit = 1; unit <= 4; unit++) {
                uint64_t next = 0;

                for (uint32_t i = 0; i < count; i++) {
                    struct pool_seat seat = {.index = i, .count = count};
                    uint64_t first, end;

                    pool_share(&seat, items, unit, &first, &end);
                    assert_int_equal(first, next);
                    assert_true(end >= first);
                    assert_true(first == items || first % unit == 0);
                    next = end;
                }
                assert_int_equal(next, items);
            }
        }
    }
}

struct takes {
    uint64_t count;
    uint64_t unit;
    bool fixed;
    struct pool_work work;
    _Atomic uint32_t times[100];
};

static void take_all(void *data, const struct pool_seat *seat)
{
    struct takes *takes = data;
    struct pool_part part = {0};

    while (pool_take(seat, takes->fixed ? NULL : &takes->work, takes->count, takes->unit, &part)) {
        must(part.first % takes->unit == 0);
        for (uint64_t i = part.first; i < part.end; i++)
            atomic_fetch_add(&takes->times[i], 1);
    }
}

static void everything_is_taken_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= SEATS_MAX; threads++) {
        struct pool *pool;

        assert_int_equal(pool_open(threads, &pool, NULL), 0);
        for (uint64_t count = 0; count <= 100; count++) {
            struct takes takes = {
                .count = count, .unit = 1 + count % 3, .fixed = count % 2 == threads % 2};

            pool_run(pool, take_all, &takes);
            for (uint64_t i = 0; i < 100; i++)
                assert_int_equal(takes.times[i], i < count);
        }
        pool_close(pool);
    }
}

static uint64_t processor_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void idle_costs_nothing(void **state)
{
    struct counts counts = {0};
    struct pool *pool;
    uint64_t used;

    (void)state;
    assert_int_equal(pool_open(3, &pool, NULL), 0);
    pool_run(pool, count_run, &counts);
    used = processor_ns();
    clock_sleep_until(clock_now() + 200 * 1000000); /* what is measured is the time itself */
    used = processor_ns() - used;
    assert_true(used < 20 * 1000000); /* spinning would take 400 ms */
    pool_run(pool, count_run, &counts);
    assert_int_equal(counts.runs[2], 2);
    pool_close(pool);
}

static void watch_drops_and_tries_again(void **state)
{
    enum { MS = 1000000 };
    struct pool_watch watch = {.threads = 3, .active = 3};
    uint64_t now = 1000 * (uint64_t)MS, before;

    (void)state;
    pool_watch_update(&watch, now, 100, 30);
    assert_int_equal(watch.active, 3); /* three lose less than one is worth */
    pool_watch_update(&watch, now, 100, 35);
    assert_int_equal(watch.active, 2);
    pool_watch_update(&watch, now, 100, 35);
    assert_int_equal(watch.active, 2); /* of two, one is worth more */
    pool_watch_update(&watch, now + 1, 100, 60);
    assert_int_equal(watch.active, 1);
    pool_watch_update(&watch, now + 2, 100, 99);
    assert_int_equal(watch.active, 1); /* never none */
    pool_watch_update(&watch, watch.retry_ns - 1, 100, 0);
    assert_int_equal(watch.active, 1); /* not before its time */
    pool_watch_update(&watch, watch.retry_ns, 100, 0);
    assert_int_equal(watch.active, 2); /* one at a time */
    before = watch.hold_ns;
    now = watch.retry_ns;
    pool_watch_update(&watch, now, 100, 60);
    assert_int_equal(watch.active, 1);
    assert_true(watch.hold_ns == 2 * before); /* a failed try: longer until the next */
    for (int i = 0; i < 100; i++)
        pool_watch_update(&watch, watch.retry_ns, 100, i % 2 ? 60 : 0);
    assert_true(watch.hold_ns <= 8000 * (uint64_t)MS);
    while (watch.active < 3)
        pool_watch_update(&watch, watch.retry_ns, 100, 0);
    pool_watch_update(&watch, watch.retry_ns + watch.hold_ns, 100, 0);
    assert_int_equal(watch.hold_ns, 0); /* forgotten after a good time */
}

/* A thread that sleeps of its own in a run looks like one that others keep from its processor. */
static void lose_time(void *data, const struct pool_seat *seat)
{
    count_run(data, seat);
    if (seat->index > 0)
        clock_sleep_until(clock_now() + 20 * 1000000);
}

static void pool_drops_seats_and_takes_them_back(void **state)
{
    struct counts counts = {0};
    uint64_t end = clock_now() + 20 * (uint64_t)1000000000;
    uint64_t lost = 0, regained = 0;
    struct pool *pool;

    (void)state;
    assert_int_equal(pool_open(2, &pool, NULL), 0);
    while (pool_active(pool) == 2 && clock_now() < end) {
        pool_enter(pool);
        for (int i = 0; i < 10; i++, lost++)
            pool_run(pool, lose_time, &counts);
        pool_leave(pool);
    }
    assert_int_equal(pool_active(pool), 1);
    while (pool_active(pool) == 1 && clock_now() < end) {
        pool_enter(pool);
        for (int i = 0; i < 1000; i++, regained++)
            pool_run(pool, count_run, &counts);
        pool_leave(pool);
    }
    assert_int_equal(pool_active(pool), 2);
    assert_int_equal(counts.runs[0], lost + regained);
    assert_int_equal(counts.runs[1], lost); /* left out meanwhile */
    for (int i = 0; i < 100; i++)
        pool_run(pool, count_run, &counts);
    assert_int_equal(counts.runs[1], lost + 100);
    pool_close(pool);
}

static void refused(void **state)
{
    struct fault fault = {0};
    struct pool *pool = NULL;

    (void)state;
    assert_int_equal(pool_open(0, &pool, &fault), E_INVALID);
    assert_string_equal(fault.field, "threads");
    assert_int_equal(pool_open(POOL_THREADS_MAX + 1, &pool, &fault), E_INVALID);
    assert_null(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seats_and_barriers),
        cmocka_unit_test(shares_cover_all),
        cmocka_unit_test(everything_is_taken_once),
        cmocka_unit_test(idle_costs_nothing),
        cmocka_unit_test(watch_drops_and_tries_again),
        cmocka_unit_test(pool_drops_seats_and_takes_them_back),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
