/* lane.h -- a thread of its own for a backend that computes when it is called.
 *
 *     lane_post()   posted: 7 ---.            the lane runs jobs 0, 1, 2 ... in order;
 *     lane          done:   5     > in flight job n is "slot n mod slots" to whoever posted it
 *     lane_wait()   waits until done > n
 *
 * Two counters and no lock: posting returns at once, whatever the lane does. An idle lane spins for
 * at most LANE_SPIN_US, then sleeps in the kernel until the next post. Waiting does not spin: a
 * step is long beside a wake-up, and the core is better left to those who compute.
 *
 * lane_post(), lane_wait() and lane_close() belong to one thread. */
#ifndef WEFT_LANE_H
#define WEFT_LANE_H

#include <stdint.h>

#include "config/base/fault.h"

enum { LANE_SPIN_US = 50 };

struct lane;

/* `run` is called on the lane's thread once for each job, with its number from 0 on. */
int lane_open(void (*run)(void *data, uint32_t job), void *data, struct lane **ret_lane,
              struct fault *fault);
void lane_close(struct lane *lane); /* runs what was posted, then joins; NULL is fine */

/* The next job may run; all that was written before is visible to it. */
void lane_post(struct lane *lane);
/* Waits until that job is done; all that it wrote is then visible. */
void lane_wait(struct lane *lane, uint32_t job);

#endif
