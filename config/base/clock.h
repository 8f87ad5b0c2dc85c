/* clock.h -- monotonic time, in nanoseconds unless the name says otherwise. */
#ifndef WEFT_CLOCK_H
#define WEFT_CLOCK_H

#include <stdint.h>

uint64_t clock_now(void);          /* CLOCK_MONOTONIC, ns */
uint64_t clock_wall_seconds(void); /* Unix time, for `created` fields and logs */
void clock_sleep_until(uint64_t deadline_ns);

static inline double clock_seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

#endif
