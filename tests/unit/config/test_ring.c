/* Protects: every item pushed is popped exactly once and in its producer's order, a full ring says
 * so, a waiter sleeps (uses no CPU time) and never sleeps over an item or a wake. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "config/base/fault.h"
#include "config/base/ring.h"
#include "tests/lib/failing_malloc.h"

enum { PRODUCERS = 3, CONSUMERS = 3, ITEMS = 20000 };

struct item {
    uint32_t producer;
    uint32_t number;
    char padding[17]; /* an odd size */
};

static void test_full_and_empty(void **state)
{
    struct ring *ring;
    uint64_t item = 0;

    (void)state;
    assert_int_equal(ring_open(0, 8, &ring), E_INVALID);
    assert_int_equal(ring_open(8, 0, &ring), E_INVALID);
    assert_int_equal(ring_open(SIZE_MAX, 8, &ring), E_INVALID);
    assert_int_equal(ring_open(5, sizeof item, &ring), 0);
    assert_int_equal(ring_capacity(ring), 8);
    for (int lap = 0; lap < 20; lap++) {
        assert_false(ring_pop(ring, &item));
        for (uint64_t i = 0; i < 8; i++) {
            assert_int_equal(ring_room(ring), 8 - i);
            assert_int_equal(ring_push(ring, &i), 0);
            assert_int_equal(ring_count(ring), i + 1);
        }
        assert_int_equal(ring_push(ring, &item), E_FULL);
        assert_int_equal(ring_room(ring), 0);
        for (uint64_t i = 0; i < 8; i++) {
            assert_true(ring_pop(ring, &item));
            assert_int_equal(item, i);
        }
        if (lap % 3 == 0) { /* laps that start anywhere */
            ring_push(ring, &item);
            ring_pop(ring, &item);
        }
    }
    ring_close(ring);
    ring_close(NULL);
}

struct crowd {
    struct ring *ring;
    uint32_t producer;
    atomic_uint *popped;
    atomic_bool *stop;
    uint32_t last[PRODUCERS]; /* per consumer: numbers of one producer only rise */
    uint64_t sum;
    bool out_of_order;
};

static void *produce(void *data)
{
    struct crowd *crowd = data;

    for (uint32_t i = 1; i <= ITEMS; i++) {
        struct item item = {.producer = crowd->producer, .number = i};

        while (ring_push(crowd->ring, &item) == E_FULL)
            sched_yield();
    }
    return NULL;
}

static void *consume(void *data)
{
    struct crowd *crowd = data;
    struct item item;

    while (!atomic_load(crowd->stop)) {
        if (!ring_pop_wait(crowd->ring, &item, UINT64_MAX))
            continue;
        if (item.number <= crowd->last[item.producer])
            crowd->out_of_order = true;
        crowd->last[item.producer] = item.number;
        crowd->sum += item.number;
        if (atomic_fetch_add(crowd->popped, 1) + 1 == PRODUCERS * ITEMS)
            atomic_store(crowd->stop, true);
    }
    ring_wake(crowd->ring); /* the next reader may be asleep */
    return NULL;
}

static void test_crowd(void **state)
{
    struct crowd crowds[PRODUCERS + CONSUMERS] = {0};
    pthread_t threads[PRODUCERS + CONSUMERS];
    atomic_uint popped = 0;
    atomic_bool stop = false;
    struct ring *ring;
    uint64_t sum = 0;

    (void)state;
    assert_int_equal(ring_open(16, sizeof(struct item), &ring), 0);
    for (uint32_t i = 0; i < PRODUCERS + CONSUMERS; i++) {
        crowds[i] = (struct crowd){.ring = ring, .producer = i, .popped = &popped, .stop = &stop};
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < PRODUCERS ? produce : consume, &crowds[i]), 0);
    }
    for (uint32_t i = 0; i < PRODUCERS + CONSUMERS; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = PRODUCERS; i < PRODUCERS + CONSUMERS; i++) {
        assert_false(crowds[i].out_of_order);
        sum += crowds[i].sum;
    }
    assert_int_equal(atomic_load(&popped), PRODUCERS * ITEMS);
    assert_int_equal(sum, (uint64_t)PRODUCERS * ITEMS * (ITEMS + 1) / 2);
    ring_close(ring);
}

/* One item to and fro: each side sleeps between, so a single lost wake-up would hang the test. */
static void *echo(void *data)
{
    struct ring *const *rings = data;
    uint32_t number = 0;

    while (number < ITEMS) {
        assert_true(ring_pop_wait(rings[0], &number, UINT64_MAX));
        assert_int_equal(ring_push(rings[1], &number), 0);
    }
    return NULL;
}

static void test_ping_pong(void **state)
{
    struct ring *rings[2];
    pthread_t thread;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ring_open(2, sizeof(uint32_t), &rings[i]), 0);
    assert_int_equal(pthread_create(&thread, NULL, echo, rings), 0);
    for (uint32_t i = 1; i <= ITEMS; i++) {
        uint32_t back;

        assert_int_equal(ring_push(rings[0], &i), 0);
        assert_true(ring_pop_wait(rings[1], &back, UINT64_MAX));
        assert_int_equal(back, i);
    }
    pthread_join(thread, NULL);
    for (int i = 0; i < 2; i++)
        ring_close(rings[i]);
}

static uint64_t thread_cpu_ns(void)
{
    struct timespec used;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static void test_time_out_sleeps(void **state)
{
    enum { WAIT_NS = 100000000 };
    struct ring *ring;
    uint32_t item;
    uint64_t before = clock_now(), cpu_before = thread_cpu_ns();

    (void)state;
    assert_int_equal(ring_open(2, sizeof item, &ring), 0);
    assert_false(ring_pop_wait(ring, &item, before + WAIT_NS));
    assert_true(clock_now() >= before + WAIT_NS);
    assert_true(thread_cpu_ns() - cpu_before < WAIT_NS / 4); /* asleep, not spinning */
    assert_false(ring_pop_wait(ring, &item, 0));             /* a deadline long past */
    ring_close(ring);
}

static void test_wake_is_remembered(void **state)
{
    struct ring *ring;
    uint32_t item = 7;

    (void)state;
    assert_int_equal(ring_open(2, sizeof item, &ring), 0);
    ring_wake(ring);
    assert_false(ring_pop_wait(ring, &item, UINT64_MAX)); /* would hang if it were lost */
    ring_wake(ring);
    ring_push(ring, &item);
    assert_true(ring_pop_wait(ring, &item, UINT64_MAX)); /* items first */
    assert_false(ring_pop_wait(ring, &item, UINT64_MAX));
    ring_close(ring);
}

static void test_failing_allocations(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct ring *ring = NULL;
        int r;

        failing_malloc_arm(n);
        r = ring_open(8, 8, &ring);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            assert_true(n > 2);
            ring_close(ring);
            return;
        }
        assert_true(r < 0);
        assert_null(ring);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_and_empty),     cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_ping_pong),          cmocka_unit_test(test_time_out_sleeps),
        cmocka_unit_test(test_wake_is_remembered), cmocka_unit_test(test_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
