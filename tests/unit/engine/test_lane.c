/* Protects the lane: jobs run once each and in order, posting does not wait for them, closing runs
 * what was posted, and an idle lane sleeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "engine/lane.h"

enum { JOBS = 20000, GATED = 2, SLOTS = 3 };

/* Written by the lane. A slot may be read after lane_wait() for its job, the rest after all jobs.
 */
struct record {
    uint32_t slots[SLOTS]; /* job + 1 */
    uint32_t ran;
    uint32_t wrong; /* jobs out of order */
    _Atomic bool gate;
};

static void run(void *data, uint32_t job)
{
    struct record *record = data;

    record->slots[job % SLOTS] = job + 1;
    record->wrong += job != record->ran;
    record->ran++;
}

static void run_behind_a_gate(void *data, uint32_t job)
{
    struct record *record = data;

    while (!atomic_load(&record->gate))
        clock_sleep_until(clock_now() + 1000000);
    run(data, job);
}

static void runs_jobs_in_order(void **state)
{
    struct record record = {0};
    struct lane *lane = NULL;

    (void)state;
    assert_int_equal(lane_open(run, &record, &lane, NULL), 0);
    lane_post(lane);
    for (uint32_t job = 0; job < JOBS; job++) { /* two deep, as the engine does */
        lane_post(lane);
        lane_wait(lane, job);
        assert_int_equal(record.slots[job % SLOTS], job + 1);
    }
    lane_wait(lane, JOBS);
    assert_int_equal(record.ran, JOBS + 1);
    assert_int_equal(record.wrong, 0);
    lane_close(lane);
}

static void wakes_after_every_sleep(void **state)
{
    struct record record = {0};
    struct lane *lane = NULL;

    (void)state;
    assert_int_equal(lane_open(run, &record, &lane, NULL), 0);
    for (uint32_t job = 0; job < 200;
         job++) { /* around the moment when spinning ends and sleep begins */
        clock_sleep_until(clock_now() + (LANE_SPIN_US - 20 + job % 40) * 1000);
        lane_post(lane);
        lane_wait(lane, job);
    }
    assert_int_equal(record.ran, 200);
    lane_close(lane);
}

static void posting_does_not_wait(void **state)
{
    struct record record = {0};
    struct lane *lane = NULL;

    (void)state;
    assert_int_equal(lane_open(run_behind_a_gate, &record, &lane, NULL), 0);
    for (uint32_t i = 0; i < GATED; i++)
        lane_post(lane); /* would never return if it waited: the gate opens below */
    atomic_store(&record.gate, true);
    lane_close(lane); /* without waiting first */
    assert_int_equal(record.ran, GATED);
}

static void idle_means_asleep(void **state)
{
    struct record record = {0};
    struct lane *lane = NULL;
    struct timespec before, after;
    double used;

    (void)state;
    assert_int_equal(lane_open(run, &record, &lane, NULL), 0);
    lane_post(lane);
    lane_wait(lane, 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    clock_sleep_until(clock_now() + 200000000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    used = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    assert_true(used < 0.02); /* of 0.2 s: a spinning thread uses all of it */
    lane_close(lane);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_jobs_in_order),
        cmocka_unit_test(wakes_after_every_sleep),
        cmocka_unit_test(posting_does_not_wait),
        cmocka_unit_test(idle_means_asleep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
