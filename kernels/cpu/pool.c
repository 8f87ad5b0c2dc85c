/* pool.c -- generations, one barrier, and the watch on stolen processors.
 *
 * A run is published by a new value of `generation`, which also says how many seats take part, so a
 * thread that comes late cannot mistake one run for another. Seats beyond `active` wait on `active`
 * itself: runs do not wake them. All sleeping is futex on the word that is waited for: the kernel
 * puts a thread to sleep only if the word still has the value that was seen, so no wake-up is lost.
 * A waker pays the system call only when somebody said that it sleeps. */
#include "kernels/cpu/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/base/clock.h"

enum {
    LINE = 64,
    COUNT_BITS = 10, /* of a generation; the rest is a number that rises */
    COUNT_MASK = (1 << COUNT_BITS) - 1,
    SPAN_NS = 30 * 1000 * 1000, /* between judgements: a time slice is 3 ms and more */
};
#define HOLD_NS_MIN ((uint64_t)500 * 1000 * 1000)
#define HOLD_NS_MAX ((uint64_t)8 * 1000 * 1000 * 1000)

/* A word that threads wait for, on a cache line of its own. */
struct word {
    _Alignas(LINE) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct worker {
    _Alignas(LINE) struct pool_seat seat;
    pthread_t thread;
    bool running;
    uint32_t
        seen; /* the generation at which the pool took it back; set before `active` is raised */
};

struct pool {
    struct word generation;
    struct word active;
    struct word done;    /* workers that finished the run */
    struct word barrier; /* raised when all have arrived */
    _Alignas(LINE) _Atomic uint32_t arrived;
    _Alignas(LINE) pool_function function;
    void *data;
    bool closing;
    /* What the clocks said at pool_enter(), and sums since the last judgement. */
    uint64_t wall_entered_ns;
    uint64_t processor_entered_ns;
    uint64_t wall_ns;
    uint64_t processor_ns;
    uint32_t threads;
    struct pool_watch watch;
    struct worker *workers; /* [threads]; seat 0 is whoever calls */
};

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void word_wake(struct word *word)
{
    if (atomic_load(&word->sleepers) > 0)
        syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the word is no longer `seen`. */
static void word_wait(struct word *word, uint32_t seen, uint32_t spin)
{
    for (uint32_t i = 0; i < spin; i++) {
        if (atomic_load_explicit(&word->value, memory_order_acquire) != seen)
            return;
        pause_briefly();
    }
    atomic_fetch_add(&word->sleepers, 1);
    while (atomic_load(&word->value) == seen)
        syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&word->sleepers, 1);
}

/* --- the watch on stolen processors ----------------------------------------------------------- */

void pool_watch_update(struct pool_watch *watch, uint64_t now_ns, uint64_t wall_ns,
                       uint64_t lost_ns)
{
    /* What one of the threads is worth, and some more: two lose at 40%, eight at 21%. */
    bool lost_much = lost_ns * 100 > wall_ns * (15 + 50 / watch->active);

    if (lost_much && watch->active > 1) {
        watch->hold_ns = watch->hold_ns == 0                ? HOLD_NS_MIN
                         : watch->hold_ns * 2 < HOLD_NS_MAX ? watch->hold_ns * 2
                                                            : HOLD_NS_MAX;
        watch->active--;
        watch->retry_ns = now_ns + watch->hold_ns;
    } else if (watch->active < watch->threads && now_ns >= watch->retry_ns) {
        watch->active++;
        watch->retry_ns = now_ns + HOLD_NS_MIN;
    } else if (watch->active == watch->threads && watch->hold_ns > 0 &&
               now_ns >= watch->retry_ns + watch->hold_ns) {
        watch->hold_ns = 0; /* it went well as long as the last drop lasted */
    }
}

static uint64_t processor_time(void)
{
    struct timespec time;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void set_active(struct pool *pool, uint32_t active)
{
    uint32_t seen = atomic_load(&pool->generation.value);

    for (uint32_t i = atomic_load(&pool->active.value); i < active; i++)
        pool->workers[i].seen = seen;
    atomic_store(&pool->active.value, active);
    word_wake(&pool->active);
}

void pool_enter(struct pool *pool)
{
    if (pool->threads == 1)
        return;
    pool->wall_entered_ns = clock_now();
    pool->processor_entered_ns = processor_time();
}

void pool_leave(struct pool *pool)
{
    uint64_t now, lost;

    if (pool->threads == 1)
        return;
    now = clock_now();
    pool->wall_ns += now - pool->wall_entered_ns;
    pool->processor_ns += processor_time() - pool->processor_entered_ns;
    if (pool->wall_ns < SPAN_NS)
        return;
    lost = pool->processor_ns < pool->wall_ns ? pool->wall_ns - pool->processor_ns : 0;
    pool_watch_update(&pool->watch, now, pool->wall_ns, lost);
    pool->wall_ns = 0;
    pool->processor_ns = 0;
    if (pool->watch.active != atomic_load(&pool->active.value))
        set_active(pool, pool->watch.active);
}

/* --- running ---------------------------------------------------------------------------------- */

static void *worker_main(void *data)
{
    struct worker *worker = data;
    struct pool *pool = worker->seat.pool;
    uint32_t seen = worker->seen;

    for (;;) {
        uint32_t active = atomic_load(&pool->active.value);

        if (worker->seat.index >= active) {
            word_wait(&pool->active, active, 0);
            if (worker->seat.index < atomic_load(&pool->active.value))
                seen = worker->seen;
            continue;
        }
        word_wait(&pool->generation, seen, POOL_SPIN);
        seen = atomic_load(&pool->generation.value);
        worker->seat.count = seen & COUNT_MASK;
        if (worker->seat.index >= worker->seat.count)
            continue;
        if (pool->closing)
            return NULL;
        pool->function(pool->data, &worker->seat);
        if (atomic_fetch_add(&pool->done.value, 1) + 2 == worker->seat.count)
            word_wake(&pool->done);
    }
}

static void publish(struct pool *pool, uint32_t count)
{
    uint32_t number = (atomic_load(&pool->generation.value) >> COUNT_BITS) + 1;

    atomic_store(&pool->generation.value, number << COUNT_BITS | count);
    word_wake(&pool->generation);
}

void pool_run(struct pool *pool, pool_function function, void *data)
{
    struct worker *self = &pool->workers[0];
    uint32_t count = pool->watch.active;

    self->seat.count = count;
    if (count == 1) {
        function(data, &self->seat);
        return;
    }
    pool->function = function;
    pool->data = data;
    atomic_store(&pool->done.value, 0);
    publish(pool, count);
    function(data, &self->seat);
    for (uint32_t done; (done = atomic_load(&pool->done.value)) != count - 1;)
        word_wait(&pool->done, done, POOL_SPIN);
}

void pool_barrier(const struct pool_seat *seat)
{
    struct pool *pool = seat->pool;
    uint32_t seen;

    if (seat->count == 1)
        return;
    seen = atomic_load(&pool->barrier.value);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == seat->count) {
        atomic_store(&pool->arrived, 0);
        atomic_store(&pool->barrier.value, seen + 1);
        word_wake(&pool->barrier);
        return;
    }
    word_wait(&pool->barrier, seen, POOL_SPIN);
}

void pool_share(const struct pool_seat *seat, uint64_t count, uint64_t unit, uint64_t *ret_first,
                uint64_t *ret_end)
{
    uint64_t units = (count + unit - 1) / unit;
    uint64_t first = units * seat->index / seat->count * unit;
    uint64_t end = units * (seat->index + 1) / seat->count * unit;

    *ret_first = first < count ? first : count;
    *ret_end = end < count ? end : count;
}

static bool take_units(struct pool_part *part, uint64_t first, uint64_t end, uint64_t count,
                       uint64_t unit)
{
    part->first = first * unit;
    part->end = end * unit < count ? end * unit : count;
    return part->first < part->end;
}

bool pool_take(const struct pool_seat *seat, struct pool_work *work, uint64_t count, uint64_t unit,
               struct pool_part *part)
{
    enum { PIECES = 8 }; /* of the rest, for each seat */
    uint64_t units = (count + unit - 1) / unit, seats = seat->count;
    uint64_t fixed = seats == 1 ? units : units * 3 / 4 / seats, rest = units - fixed * seats;
    uint64_t piece = rest / (PIECES * seats) + 1, first;

    if (!work) {
        pool_share(seat, count, unit, &part->first, &part->end);
        first = part->begun ? part->end : part->first;
        part->begun = true;
        return first < part->end;
    }
    if (!part->begun) {
        part->begun = true;
        if (take_units(part, fixed * seat->index, fixed * (seat->index + 1), count, unit))
            return true;
    }
    if (rest == 0)
        return false;
    first = fixed * seats + atomic_fetch_add(&work->taken, 1) * piece;
    return take_units(part, first, first + piece, count, unit);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static int start_worker(struct worker *worker, struct fault *fault)
{
    sigset_t all, before;
    char name[16];
    int r;

    /* Signals are the loop's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return fault_set(fault, -r, "cannot start compute thread %u (error %d)", worker->seat.index,
                         r);
    worker->running = true;
    snprintf(name, sizeof name, "weft-cpu-%u", worker->seat.index);
    pthread_setname_np(worker->thread, name);
    return 0;
}

int pool_open(uint32_t threads, struct pool **ret_pool, struct fault *fault)
{
    struct pool *pool;
    int r = 0;

    if (threads < 1 || threads > POOL_THREADS_MAX)
        return fault_field(fault, E_INVALID, "threads", "threads is %u; it must be 1 to %d",
                           threads, POOL_THREADS_MAX);
    pool = aligned_alloc(LINE, sizeof *pool);
    if (!pool)
        return fault_set(fault, E_MEMORY, "out of memory for the compute threads");
    *pool = (struct pool){.threads = threads, .watch = {.threads = threads, .active = threads}};
    atomic_store(&pool->active.value, threads);
    pool->workers = aligned_alloc(LINE, threads * sizeof *pool->workers);
    if (!pool->workers) {
        r = fault_set(fault, E_MEMORY, "out of memory for %u compute threads", threads);
        goto out;
    }
    for (uint32_t i = 0; i < threads; i++)
        pool->workers[i] = (struct worker){.seat = {i, threads, pool}};
    for (uint32_t i = 1; i < threads && r == 0; i++)
        r = start_worker(&pool->workers[i], fault);
    if (r < 0)
        goto out;
    *ret_pool = pool;
    pool = NULL;
out:
    pool_close(pool);
    return r;
}

void pool_close(struct pool *pool)
{
    if (!pool)
        return;
    pool->closing = true;
    if (pool->workers)
        set_active(pool, pool->threads);
    publish(pool, pool->threads);
    for (uint32_t i = 1; pool->workers && i < pool->threads; i++)
        if (pool->workers[i].running)
            pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    free(pool);
}

uint32_t pool_threads(const struct pool *pool)
{
    return pool->threads;
}

uint32_t pool_active(const struct pool *pool)
{
    return pool->watch.active;
}
