/* health.h -- whether this process is alive, and whether it wants work.
 *
 *     /livez             the loop answers
 *     /health            and the engine moves: 503 when work waits and no step has ended for
 *                        HEALTH_STALL_SECONDS, or when the device failed
 *     /ready, /readyz    and it is not shutting down
 *
 * Loop thread. */
#ifndef WEFT_HEALTH_H
#define WEFT_HEALTH_H

#include <stdint.h>

#include "scheduler/scheduler.h"

enum { HEALTH_STALL_SECONDS = 30 };

/* NULL when healthy, else what is wrong, fit to show. Pure. */
const char *health_trouble(const struct scheduler_stats *stats, uint64_t now_ns);

#endif
