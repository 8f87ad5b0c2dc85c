/* Protects what the mask threads promise: whatever is posted is done once and given back in that
 * order, quiet work never; slow work leaves a thread free; closing does what is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include <semaphore.h>
#include <time.h>

#include "scheduler/mask_pool.h"
#include "tests/lib/failing_malloc.h"

enum { THREADS = 3, WORDS = 4, COUNT = 1000, PATIENCE_S = 60 };

struct piece {
    struct mask_work work;
    sem_t *waits_for; /* NULL: nothing */
    sem_t *began;
    atomic_uint *done;
};

struct fixture {
    struct mask_pool *pool;
    sem_t bell;
    sem_t gate;
    sem_t began;
    atomic_uint done;
    struct piece pieces[COUNT];
};

static void on_bell(void *data)
{
    struct fixture *fixture = data;

    sem_post(&fixture->bell);
}

static void run(struct mask_work *work, uint32_t *words)
{
    struct piece *piece = (struct piece *)work;

    for (uint32_t i = 0; i < WORDS; i++)
        words[i]++; /* nobody else's scratch: the thread sanitizer would say so */
    if (piece->began)
        sem_post(piece->began);
    if (piece->waits_for)
        sem_wait(piece->waits_for);
    atomic_fetch_add(piece->done, 1);
}

static void wait_for(sem_t *semaphore)
{
    struct timespec deadline;

    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += PATIENCE_S;
    assert_int_equal(sem_timedwait(semaphore, &deadline), 0);
}

static void open_fixture(struct fixture *fixture, uint32_t threads)
{
    sem_init(&fixture->bell, 0, 0);
    sem_init(&fixture->gate, 0, 0);
    sem_init(&fixture->began, 0, 0);
    atomic_init(&fixture->done, 0);
    for (uint32_t i = 0; i < COUNT; i++)
        fixture->pieces[i] = (struct piece){.work = {.run = run}, .done = &fixture->done};
    assert_int_equal(mask_pool_open(threads, WORDS, on_bell, fixture, &fixture->pool, NULL), 0);
}

static void close_fixture(struct fixture *fixture)
{
    mask_pool_close(fixture->pool);
    sem_destroy(&fixture->bell);
    sem_destroy(&fixture->gate);
    sem_destroy(&fixture->began);
    free(fixture);
}

static void everything_is_done_once(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= THREADS; threads++) {
        struct fixture *fixture = calloc(1, sizeof *fixture);
        uint32_t given_back = 0;

        assert_non_null(fixture);
        open_fixture(fixture, threads);
        for (uint32_t i = 0; i < COUNT; i++) {
            fixture->pieces[i].work.quiet = i % 10 == 0;
            mask_pool_post(fixture->pool, &fixture->pieces[i].work, i % 3 == 0);
        }
        while (given_back < COUNT - COUNT / 10) {
            wait_for(&fixture->bell);
            for (struct mask_work *work = mask_pool_done(fixture->pool); work; work = work->next) {
                assert_false(work->quiet);
                given_back++;
            }
        }
        assert_null(mask_pool_done(fixture->pool));
        mask_pool_close(fixture->pool);
        fixture->pool = NULL;
        assert_int_equal(fixture->done, COUNT);
        close_fixture(fixture);
    }
}

/* More slow pieces than threads, none of which goes on: prompt ones are done all the same. */
static void slow_work_leaves_a_thread_free(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    uint32_t given_back = 0;

    (void)state;
    assert_non_null(fixture);
    open_fixture(fixture, THREADS);
    for (uint32_t i = 0; i < 2 * THREADS; i++) {
        fixture->pieces[i].waits_for = &fixture->gate;
        fixture->pieces[i].began = &fixture->began;
        mask_pool_post(fixture->pool, &fixture->pieces[i].work, true);
    }
    for (uint32_t i = 0; i < THREADS - 1; i++)
        wait_for(&fixture->began);
    for (uint32_t i = 2 * THREADS; i < COUNT; i++)
        mask_pool_post(fixture->pool, &fixture->pieces[i].work, false);
    while (given_back < COUNT - 2 * THREADS) {
        wait_for(&fixture->bell);
        for (struct mask_work *work = mask_pool_done(fixture->pool); work; work = work->next)
            given_back++;
    }
    assert_int_equal(fixture->done, COUNT - 2 * THREADS);
    assert_int_equal(sem_trywait(&fixture->began), -1); /* no other has begun */
    for (uint32_t i = 0; i < 2 * THREADS; i++)
        sem_post(&fixture->gate);
    close_fixture(fixture); /* does the rest */
}

static void survives_a_failing_allocation(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct mask_pool *pool = NULL;
        struct fixture fixture;
        int r;

        failing_malloc_arm(n);
        r = mask_pool_open(2, WORDS, on_bell, &fixture, &pool, NULL);
        if (!failing_malloc_disarm()) {
            assert_int_equal(r, 0);
            mask_pool_close(pool);
            break;
        }
        assert_true(r < 0 && !pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_done_once),
        cmocka_unit_test(slow_work_leaves_a_thread_free),
        cmocka_unit_test(survives_a_failing_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
