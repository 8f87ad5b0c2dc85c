/* ring.c -- Vyukov's bounded queue, and an event count to sleep on.
 *
 * Each cell has a turn number. A producer may fill a cell when turn == position, and leaves turn =
 * position + 1; a consumer may empty it when turn == position + 1, and leaves turn = position +
 * capacity.
 *
 * A waiter announces itself in `waiters`, reads `bell`, looks at the ring once more, and only then
 * sleeps on `bell`. A producer rings after its item is visible, and only when somebody announced
 * himself: the full barrier on both sides means that one of the two sees the other. */
#include "config/base/ring.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/fault.h"

enum { LINE_BYTES = 64 };

struct ring {
    _Alignas(LINE_BYTES) atomic_size_t tail; /* next position to push */
    _Alignas(LINE_BYTES) atomic_size_t head; /* next position to pop */
    _Alignas(LINE_BYTES) atomic_uint bell;
    atomic_uint waiters;
    size_t capacity; /* a power of two */
    size_t item_bytes;
    size_t cell_bytes;
    unsigned char *cells; /* turn (atomic_size_t), then the item */
};

static atomic_size_t *cell_turn(const struct ring *ring, size_t position)
{
    size_t index = position & (ring->capacity - 1);

    return (atomic_size_t *)(void *)(ring->cells + index * ring->cell_bytes);
}

int ring_open(size_t capacity, size_t item_bytes, struct ring **ret_ring)
{
    size_t rounded = 1, cell_bytes, bytes;
    struct ring *ring;

    if (capacity == 0 || item_bytes == 0 || capacity > SIZE_MAX / 4)
        return E_INVALID;
    while (rounded < capacity)
        rounded *= 2;
    if (rounded < 2)
        rounded = 2; /* with one cell "full" and "ready" would be the same turn */
    if (item_bytes > SIZE_MAX / 2 - 2 * sizeof(size_t))
        return E_INVALID;
    cell_bytes = (sizeof(atomic_size_t) + item_bytes + sizeof(size_t) - 1) & ~(sizeof(size_t) - 1);
    if (__builtin_mul_overflow(rounded, cell_bytes, &bytes))
        return E_INVALID;
    ring = aligned_alloc(LINE_BYTES, (sizeof *ring + LINE_BYTES - 1) & ~(size_t)(LINE_BYTES - 1));
    if (!ring)
        return -ENOMEM;
    memset(ring, 0, sizeof *ring);
    ring->capacity = rounded;
    ring->item_bytes = item_bytes;
    ring->cell_bytes = cell_bytes;
    ring->cells = calloc(1, bytes);
    if (!ring->cells) {
        free(ring);
        return -ENOMEM;
    }
    for (size_t i = 0; i < rounded; i++)
        atomic_init(cell_turn(ring, i), i);
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

static void ring_bell(struct ring *ring, int waiters)
{
    atomic_fetch_add(&ring->bell, 1);
    syscall(SYS_futex, &ring->bell, FUTEX_WAKE_PRIVATE, waiters, NULL, NULL, 0);
}

int ring_push(struct ring *ring, const void *item)
{
    size_t position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    atomic_size_t *turn;

    for (;;) {
        turn = cell_turn(ring, position);
        ptrdiff_t ahead = (ptrdiff_t)(atomic_load_explicit(turn, memory_order_acquire) - position);

        if (ahead < 0)
            return E_FULL;
        if (ahead > 0)
            position = atomic_load_explicit(&ring->tail, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&ring->tail, &position, position + 1,
                                                       memory_order_relaxed, memory_order_relaxed))
            break;
    }
    memcpy((unsigned char *)turn + sizeof *turn, item, ring->item_bytes);
    atomic_store_explicit(turn, position + 1, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&ring->waiters, memory_order_relaxed))
        ring_bell(ring, 1);
    return 0;
}

bool ring_pop(struct ring *ring, void *ret_item)
{
    size_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    atomic_size_t *turn;

    for (;;) {
        turn = cell_turn(ring, position);
        ptrdiff_t ahead =
            (ptrdiff_t)(atomic_load_explicit(turn, memory_order_acquire) - (position + 1));

        if (ahead < 0)
            return false;
        if (ahead > 0)
            position = atomic_load_explicit(&ring->head, memory_order_relaxed);
        else if (atomic_compare_exchange_weak_explicit(&ring->head, &position, position + 1,
                                                       memory_order_relaxed, memory_order_relaxed))
            break;
    }
    memcpy(ret_item, (unsigned char *)turn + sizeof *turn, ring->item_bytes);
    atomic_store_explicit(turn, position + ring->capacity, memory_order_release);
    return true;
}

bool ring_pop_wait(struct ring *ring, void *ret_item, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                             .tv_nsec = (long)(deadline_ns % 1000000000u)};
    unsigned bell;
    bool got;

    if (ring_pop(ring, ret_item))
        return true;
    atomic_fetch_add(&ring->waiters, 1);
    bell = atomic_load(&ring->bell);
    got = ring_pop(ring, ret_item);
    /* Woken for nothing (a signal, another waiter was faster) it waits on for the next bell. */
    while (!got && (deadline_ns == UINT64_MAX || clock_now() < deadline_ns)) {
        long r = syscall(SYS_futex, &ring->bell, FUTEX_WAIT_BITSET_PRIVATE, bell,
                         deadline_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
        bool rung = r == 0 || errno == EAGAIN;

        got = ring_pop(ring, ret_item);
        if (!got && rung && atomic_load(&ring->bell) != bell)
            break;
    }
    atomic_fetch_sub(&ring->waiters, 1);
    return got;
}

void ring_wake(struct ring *ring)
{
    ring_bell(ring, INT_MAX);
}

size_t ring_count(const struct ring *ring)
{
    size_t head = atomic_load(&((struct ring *)ring)->head);
    size_t tail = atomic_load(&((struct ring *)ring)->tail);

    return tail > head ? tail - head : 0;
}

size_t ring_room(const struct ring *ring)
{
    size_t count = ring_count(ring);

    return count < ring->capacity ? ring->capacity - count : 0;
}

size_t ring_capacity(const struct ring *ring)
{
    return ring->capacity;
}
