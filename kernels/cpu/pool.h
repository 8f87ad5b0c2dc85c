/* pool.h -- threads that compute one thing together: fork, barriers inside, join.
 *
 *     caller (seat 0)   ---run---+--- work ---|barrier|--- work ---+---> pool_run returns
 *     worker (seat 1)     spins, +--- work ---|barrier|--- work ---+ spins, then sleeps
 *                         sleeps
 *
 * Whoever waits spins for at most POOL_SPIN pauses (some 60 us) and then sleeps in the kernel, so
 * an idle pool costs nothing. A barrier between two awake threads costs 0.3 us.
 *
 * Another process may hold a core that we count on. Then each barrier waits until the scheduler
 * runs our thread again, and fewer threads are faster. So the pool compares the time that a series
 * of runs took with the processor time that the caller got in it: the rest it slept, waiting for
 * others, or was kept from running. When that is more than one thread is worth, the pool goes on
 * with one less for a while and tries again later. What is computed must therefore not depend on
 * how many seats there are: a function divides its work by seat->count each time it runs.
 *
 * pool_enter(), pool_run() and pool_leave() are called by one thread at a time. */
#ifndef WEFT_CPU_POOL_H
#define WEFT_CPU_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"

enum { POOL_SPIN = 2000, POOL_THREADS_MAX = 512 };

struct pool;

/* One thread's place in the run that is going on. */
struct pool_seat {
    uint32_t index; /* 0 is the caller */
    uint32_t count;
    struct pool *pool;
};

typedef void (*pool_function)(void *data, const struct pool_seat *seat);

/* `threads` in all, the caller included. */
int pool_open(uint32_t threads, struct pool **ret_pool, struct fault *fault);
void pool_close(struct pool *pool); /* NULL is fine; no run may be going on */

uint32_t pool_threads(const struct pool *pool); /* as opened */
uint32_t pool_active(const struct pool *pool);  /* seats in the next run, at most */

/* Around a series of runs (a step): from enter to leave the caller wants a processor without a
 * break. */
void pool_enter(struct pool *pool);
void pool_leave(struct pool *pool);
void pool_run(struct pool *pool, pool_function function, void *data);
/* Only from inside a run, by every seat. What any seat wrote before is visible to all after. */
void pool_barrier(const struct pool_seat *seat);

/* The part of 0 .. count-1 that this seat takes, in multiples of `unit` (the last part takes the
 * rest): from *ret_first to *ret_end. */
void pool_share(const struct pool_seat *seat, uint64_t count, uint64_t unit, uint64_t *ret_first,
                uint64_t *ret_end);

/* Work that is not divided beforehand alone: each seat first takes a fixed part, three quarters of
 * its share, and then pieces of the rest, so that one that was slowed down leaves more to others.
 *
 *     struct pool_part part = {0};
 *     while (pool_take(seat, work, count, unit, &part))
 *         ... part.first .. part.end - 1
 *
 * Parts are multiples of `unit` but for the very last. `work` is zeroed before the run; NULL: each
 * seat has its whole share at once, which is cheaper where there is little to do. */
struct pool_work {
    _Alignas(64) _Atomic uint64_t taken; /* pieces of the rest */
};
struct pool_part {
    uint64_t first;
    uint64_t end;
    bool begun;
};
bool pool_take(const struct pool_seat *seat, struct pool_work *work, uint64_t count, uint64_t unit,
               struct pool_part *part);

/* How many seats to use next; pure arithmetic. */
struct pool_watch {
    uint32_t threads;
    uint32_t active;
    uint64_t retry_ns; /* when one more may be tried */
    uint64_t hold_ns;  /* how long the last drop was to last; 0: none lately */
};
/* `lost` of `wall` nanoseconds were not spent computing; `now` rises. */
void pool_watch_update(struct pool_watch *watch, uint64_t now_ns, uint64_t wall_ns,
                       uint64_t lost_ns);

#endif
