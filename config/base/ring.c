/* ring.c -- see ring.h.
 *
 * A cell's sequence number equals the position that may push into it; a push sets it to position +
 * 1 (a pop may take it), a pop to position + capacity (the push one lap later may). `tail` and
 * `head` are claimed by compare-and-swap, and the cell's own number publishes the copy.
 *
 * Sleeping is an event count on a futex. A waiter announces itself, reads `signal`, looks once
 * more, and only then sleeps on that value; a push publishes its cell and then looks for waiters.
 * Both sides use the sequentially consistent order, so at least one of them sees the other and no
 * item is slept over. A push finds `waiters` zero while everybody is busy and makes no system call.
 */
#include "config/base/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/fault.h"

enum { CACHE_LINE = 64, NS_PER_SECOND = 1000000000 };

struct cell {
    atomic_size_t sequence;
    _Alignas(16) unsigned char item[];
};

struct ring {
    size_t mask;
    size_t item_bytes;
    size_t cell_bytes;
    unsigned char *cells;
    _Alignas(CACHE_LINE) atomic_size_t tail; /* next position to push */
    _Alignas(CACHE_LINE) atomic_size_t head; /* next position to pop */
    _Alignas(
        CACHE_LINE) _Atomic uint32_t signal; /* the futex word; changes when a sleeper must look */
    _Atomic uint32_t waiters;
    _Atomic uint32_t wakes;   /* ring_wake() calls so far */
    atomic_bool wake_is_owed; /* no waiter has returned for the last of them yet */
};

static struct cell *cell_at(const struct ring *ring, size_t position)
{
    return (struct cell *)(ring->cells + (position & ring->mask) * ring->cell_bytes);
}

int ring_open(size_t capacity, size_t item_bytes, struct ring **ret_ring)
{
    struct ring *ring;
    size_t count = 2; /* with one cell a full and an empty ring carry the same number */
    size_t cell_bytes, bytes;

    if (capacity == 0 || capacity > SIZE_MAX / 4 || item_bytes == 0 || item_bytes > SIZE_MAX / 4)
        return E_INVALID;
    while (count < capacity)
        count *= 2;
    cell_bytes = sizeof(struct cell) + (item_bytes + 15) / 16 * 16;
    if (__builtin_mul_overflow(count, cell_bytes, &bytes))
        return -ENOMEM;
    ring = aligned_alloc(CACHE_LINE, sizeof *ring);
    if (!ring)
        return -ENOMEM;
    memset(ring, 0, sizeof *ring);
    ring->cells = calloc(1, bytes);
    if (!ring->cells) {
        free(ring);
        return -ENOMEM;
    }
    ring->mask = count - 1;
    ring->item_bytes = item_bytes;
    ring->cell_bytes = cell_bytes;
    for (size_t i = 0; i < count; i++)
        atomic_init(&cell_at(ring, i)->sequence, i);
    *ret_ring = ring;
    return 0;
}

void ring_close(struct ring *ring)
{
    if (!ring)
        return;
    free(ring->cells);
    free(ring);
}

static void wake_sleepers(struct ring *ring, int count)
{
    atomic_fetch_add(&ring->signal, 1);
    syscall(SYS_futex, &ring->signal, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

int ring_push(struct ring *ring, const void *item)
{
    size_t position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    struct cell *cell;

    for (;;) {
        size_t sequence;

        cell = cell_at(ring, position);
        sequence = atomic_load_explicit(&cell->sequence, memory_order_acquire);
        if (sequence == position) {
            if (atomic_compare_exchange_weak_explicit(&ring->tail, &position, position + 1,
                                                      memory_order_relaxed, memory_order_relaxed))
                break;
        } else if ((ptrdiff_t)(sequence - position) < 0) {
            return E_FULL;
        } else {
            position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        }
    }
    memcpy(cell->item, item, ring->item_bytes);
    atomic_store(&cell->sequence, position + 1);
    if (atomic_load(&ring->waiters) > 0)
        wake_sleepers(ring, 1);
    return 0;
}

bool ring_pop(struct ring *ring, void *ret_item)
{
    size_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    struct cell *cell;

    for (;;) {
        size_t sequence;

        cell = cell_at(ring, position);
        sequence = atomic_load(&cell->sequence);
        if (sequence == position + 1) {
            if (atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1,
                                                      memory_order_relaxed, memory_order_relaxed))
                break;
        } else if ((ptrdiff_t)(sequence - (position + 1)) < 0) {
            return false;
        } else {
            position = atomic_load_explicit(&ring->head, memory_order_relaxed);
        }
    }
    memcpy(ret_item, cell->item, ring->item_bytes);
    atomic_store_explicit(&cell->sequence, position + ring->mask + 1, memory_order_release);
    return true;
}

/* Sleeps while `signal` is still what the caller saw. May return early: the caller looks again. */
static void sleep_on(struct ring *ring, uint32_t seen, uint64_t deadline_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / NS_PER_SECOND),
                                .tv_nsec = (long)(deadline_ns % NS_PER_SECOND)};

    /* FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC. */
    syscall(SYS_futex, &ring->signal, FUTEX_WAIT_BITSET_PRIVATE, seen,
            deadline_ns == UINT64_MAX ? NULL : &deadline, NULL, FUTEX_BITSET_MATCH_ANY);
}

bool ring_pop_wait(struct ring *ring, void *ret_item, uint64_t deadline_ns)
{
    uint32_t wakes;
    bool popped;

    if (ring_pop(ring, ret_item))
        return true;
    wakes = atomic_load(&ring->wakes);
    atomic_fetch_add(&ring->waiters, 1);
    for (;;) {
        uint32_t seen = atomic_load(&ring->signal);

        popped = ring_pop(ring, ret_item);
        if (popped)
            break;
        if (atomic_exchange(&ring->wake_is_owed, false) || atomic_load(&ring->wakes) != wakes)
            break;
        if (deadline_ns != UINT64_MAX && clock_now() >= deadline_ns)
            break;
        sleep_on(ring, seen, deadline_ns);
    }
    atomic_fetch_sub(&ring->waiters, 1);
    return popped;
}

void ring_wake(struct ring *ring)
{
    /* Owed first: a thread on its way into the wait sees either this or the new count. */
    atomic_store(&ring->wake_is_owed, true);
    atomic_fetch_add(&ring->wakes, 1);
    wake_sleepers(ring, INT32_MAX);
}

size_t ring_count(const struct ring *ring)
{
    size_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);

    return tail - head > ring->mask + 1 ? ring->mask + 1 : tail - head;
}

size_t ring_room(const struct ring *ring)
{
    size_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    size_t room = ring->mask + 1 - ring_count(ring);

    /* A pop claims its position before it has copied the item out: the last cells may not be free
     * yet. */
    while (room > 0 && atomic_load_explicit(&cell_at(ring, tail + room - 1)->sequence,
                                            memory_order_acquire) != tail + room - 1)
        room--;
    return room;
}

size_t ring_capacity(const struct ring *ring)
{
    return ring->mask + 1;
}
