/* lane.c -- the lane's thread, two counters, and two places to sleep.
 *
 * Sleeping is a futex on the counter itself: the kernel puts a thread to sleep only if the counter
 * still has the value that the thread saw, so no wake-up is lost. Whoever raises a counter pays the
 * system call only when the other side said that it sleeps. */
#include "engine/lane.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/base/clock.h"

/* A number that only rises, and one thread that may wait for it to. */
struct counter {
    _Atomic uint32_t value;
    _Atomic bool sleeping;
};

struct lane {
    void (*run)(void *data, uint32_t job);
    void *data;
    pthread_t thread;
    struct counter posted;
    struct counter done;
    _Atomic uint64_t end; /* the job that will not come; UINT64_MAX while the lane is open */
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void counter_raise(struct counter *counter)
{
    atomic_fetch_add(&counter->value, 1);
    if (atomic_load(&counter->sleeping))
        syscall(SYS_futex, &counter->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Sleeps while the counter is `seen`; may return early. */
static void counter_sleep(struct counter *counter, uint32_t seen)
{
    atomic_store(&counter->sleeping, true);
    if (atomic_load(&counter->value) == seen)
        syscall(SYS_futex, &counter->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_store(&counter->sleeping, false);
}

/* Waits until `job` is posted. false: the lane closes instead. */
static bool next_job(struct lane *lane, uint32_t job)
{
    uint64_t spin_end = clock_now() + LANE_SPIN_US * 1000;

    while (atomic_load(&lane->posted.value) == job && clock_now() < spin_end)
        pause_briefly();
    while (atomic_load(&lane->posted.value) == job)
        counter_sleep(&lane->posted, job);
    return atomic_load(&lane->end) != job;
}

static void *lane_main(void *data)
{
    struct lane *lane = data;

    for (uint32_t job = 0; next_job(lane, job); job++) {
        lane->run(lane->data, job);
        counter_raise(&lane->done);
    }
    return NULL;
}

int lane_open(void (*run)(void *data, uint32_t job), void *data, struct lane **ret_lane,
              struct fault *fault)
{
    struct lane *lane = calloc(1, sizeof *lane);
    sigset_t all, before;
    int r;

    if (!lane)
        return fault_set(fault, E_MEMORY, "out of memory for the compute thread");
    lane->run = run;
    lane->data = data;
    atomic_store(&lane->end, UINT64_MAX);
    /* Signals are the loop's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&lane->thread, NULL, lane_main, lane);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        free(lane);
        return fault_set(fault, -r, "cannot start the compute thread (error %d)", r);
    }
    pthread_setname_np(lane->thread, "weft-lane");
    *ret_lane = lane;
    return 0;
}

void lane_close(struct lane *lane)
{
    if (!lane)
        return;
    /* The end is one more post, so that it comes after every job and wakes the lane like one. */
    atomic_store(&lane->end, atomic_load(&lane->posted.value));
    counter_raise(&lane->posted);
    pthread_join(lane->thread, NULL);
    free(lane);
}

void lane_post(struct lane *lane)
{
    counter_raise(&lane->posted);
}

void lane_wait(struct lane *lane, uint32_t job)
{
    for (;;) {
        uint32_t done = atomic_load(&lane->done.value);

        if ((int32_t)(done - job) > 0)
            return;
        counter_sleep(&lane->done, done);
    }
}
