/* weight_prefetch.c -- see weight_prefetch.h. */
#include "engine/weight_prefetch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/weight_part.h"
#include "kernels/quant_tables.h"

enum { STEP_BYTES = 2 << 20, ROOM_FIRST = 256 };

struct weight_prefetch {
    struct weight_list list;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t passed; /* under the lock, as is what follows */
    bool stop;
};

struct weight_range weight_part_range(const struct weight_part *part, uint32_t columns)
{
    const struct quant_tables *tables = part->tables;

    if (tables && part->first_row == 0)
        return (struct weight_range){
            tables->data, dtype_bytes(tables->type, (uint64_t)tables->rows * tables->columns)};
    if (!weight_part_plain(part))
        return (struct weight_range){0};
    return (struct weight_range){part->data,
                                 dtype_bytes(part->type, (uint64_t)part->rows * columns)};
}

void weight_list_add(struct weight_list *list, const struct weight_part *part, uint32_t columns)
{
    struct weight_range range = weight_part_range(part, columns);

    if (!list || range.bytes == 0)
        return;
    if (list->count == list->room) {
        uint32_t room = list->room ? 2 * list->room : ROOM_FIRST;
        struct weight_range *more = realloc(list->ranges, room * sizeof *more);

        if (!more)
            return;
        list->ranges = more;
        list->room = room;
    }
    list->ranges[list->count++] = range;
}

/* Waits until the loader is near. false: it wants no more. */
static bool wait_for_room(struct weight_prefetch *prefetch, uint64_t asked)
{
    bool stop;

    pthread_mutex_lock(&prefetch->lock);
    while (!prefetch->stop && asked > prefetch->passed + WEIGHT_PREFETCH_BYTES)
        pthread_cond_wait(&prefetch->moved, &prefetch->lock);
    stop = prefetch->stop;
    pthread_mutex_unlock(&prefetch->lock);
    return !stop;
}

static void *run(void *data)
{
    struct weight_prefetch *prefetch = data;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uint64_t asked = 0;

    for (uint32_t i = 0; i < prefetch->list.count; i++) {
        const struct weight_range *range = &prefetch->list.ranges[i];

        for (size_t at = 0; at < range->bytes; at += STEP_BYTES) {
            size_t bytes = range->bytes - at < STEP_BYTES ? range->bytes - at : STEP_BYTES;
            uintptr_t from = (uintptr_t)range->data + at, begin = from & ~(page - 1);

            if (!wait_for_room(prefetch, asked))
                return NULL;
            (void)madvise((void *)begin, from + bytes - begin, MADV_WILLNEED);
            asked += bytes;
        }
    }
    return NULL;
}

struct weight_prefetch *weight_prefetch_open(struct weight_list *list)
{
    struct weight_prefetch *prefetch = list->count > 0 ? calloc(1, sizeof *prefetch) : NULL;
    sigset_t all, before;
    int r;

    if (!prefetch) {
        free(list->ranges);
        *list = (struct weight_list){0};
        return NULL;
    }
    prefetch->list = *list;
    *list = (struct weight_list){0};
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->moved, NULL);
    sigfillset(&all); /* signals are for the main thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&prefetch->thread, NULL, run, prefetch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0)
        return prefetch;
    free(prefetch->list.ranges);
    free(prefetch);
    return NULL;
}

void weight_prefetch_passed(struct weight_prefetch *prefetch, uint64_t bytes)
{
    if (!prefetch)
        return;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->passed += bytes;
    pthread_cond_signal(&prefetch->moved);
    pthread_mutex_unlock(&prefetch->lock);
}

void weight_prefetch_close(struct weight_prefetch *prefetch)
{
    if (!prefetch)
        return;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->stop = true;
    pthread_cond_signal(&prefetch->moved);
    pthread_mutex_unlock(&prefetch->lock);
    pthread_join(prefetch->thread, NULL);
    pthread_cond_destroy(&prefetch->moved);
    pthread_mutex_destroy(&prefetch->lock);
    free(prefetch->list.ranges);
    free(prefetch);
}
