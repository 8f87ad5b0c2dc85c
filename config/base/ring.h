/* ring.h -- a bounded queue between threads, of items of one size, copied in and out.
 *
 * Lock-free, any number of producers and consumers (D. Vyukov's bounded queue: each cell carries a
 * sequence number that says whose turn it is). Pushing never waits: a full ring is E_FULL, and the
 * caller decides what that means (429 for a request). Popping may wait, asleep in the kernel: an
 * idle thread costs nothing.
 *
 *     cells   [ 8 | 9 | 6 | 7 ]       a cell with sequence == head is ready to pop,
 *                   ^tail ^head       one with sequence == tail is free to push
 */
#ifndef WEFT_RING_H
#define WEFT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring;

/* `capacity` is rounded up to a power of two. Returns 0, -ENOMEM or E_INVALID. */
int ring_open(size_t capacity, size_t item_bytes, struct ring **ret_ring);
void ring_close(struct ring *ring); /* NULL is fine; nobody may be waiting */

int ring_push(struct ring *ring, const void *item); /* 0 or E_FULL; wakes one waiter */
bool ring_pop(struct ring *ring, void *ret_item);   /* false: empty */
/* Waits for an item until `deadline_ns` of clock_now() (UINT64_MAX: for ever) or until ring_wake().
 * Returns true with an item; false on time-out or wake. */
bool ring_pop_wait(struct ring *ring, void *ret_item, uint64_t deadline_ns);
/* Makes every thread that waits now return. When nobody waits the wake is remembered and the next
 * wait returns at once, so a lone reader cannot miss one. To stop several readers set a flag and
 * wake; each reader that sees the flag wakes the next before it leaves. */
void ring_wake(struct ring *ring);

size_t ring_count(const struct ring *ring); /* a snapshot; exact only when nothing moves */
/* With a single producer (the caller) and a single consumer: at least this many pushes fit. */
size_t ring_room(const struct ring *ring);
size_t ring_capacity(const struct ring *ring);

#endif
