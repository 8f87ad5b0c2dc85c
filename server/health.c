/* health.c -- see health.h. */
#include "server/health.h"

#include <stddef.h>

#define NS_PER_SECOND UINT64_C(1000000000)

const char *health_trouble(const struct scheduler_stats *stats, uint64_t now_ns)
{
    if (stats->device_failed)
        return "the device failed";
    /* The heartbeat is written by another thread and may be younger than our reading of the clock.
     */
    if (stats->work_waiting && now_ns > stats->heartbeat_ns &&
        now_ns - stats->heartbeat_ns > HEALTH_STALL_SECONDS * NS_PER_SECOND)
        return "work is waiting and no step has finished for 30 seconds";
    return NULL;
}
