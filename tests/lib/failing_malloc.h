/* failing_malloc.h -- makes the n-th allocation fail, so that every error path of a module runs.
 *
 * Every unit test is linked with --wrap for the functions below; calls inside shared libraries are
 * not caught. Nothing fails while nothing is armed. Any thread's allocations count.
 *
 *     for (n = 1;; n++) {
 *         failing_malloc_arm(n);
 *         r = thing_open(&thing);
 *         if (!failing_malloc_disarm())
 *             break;                      every allocation has failed once: now r must be 0
 *         assert_true(r < 0);             and nothing may have leaked (the sanitizers look)
 *     } */
#ifndef WEFT_FAILING_MALLOC_H
#define WEFT_FAILING_MALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* The `nth` allocation from now on (1 = the next) returns NULL, once. */
void failing_malloc_arm(uint64_t nth);
/* Back to normal. Returns whether an allocation failed since arming. */
bool failing_malloc_disarm(void);
/* Allocations since the last arm, failed ones too: 0 proves that something allocates nothing. */
uint64_t failing_malloc_count(void);

#endif
