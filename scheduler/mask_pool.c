/* mask_pool.c -- two queues, a lock, and threads that sleep until something comes. */
#include "scheduler/mask_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct work_list {
    struct mask_work *first;
    struct mask_work *last;
};

struct mask_pool {
    uint32_t word_count;
    void (*bell)(void *data);
    void *bell_data;
    uint32_t thread_count;
    pthread_t *threads;
    uint32_t *words;      /* scratch, [threads][word_count] */
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct work_list prompt;
    struct work_list slow;
    struct work_list done;
    uint32_t slow_running;
    uint32_t words_given;
    bool closing;
};

static void append(struct work_list *list, struct mask_work *work)
{
    work->next = NULL;
    if (list->last)
        list->last->next = work;
    else
        list->first = work;
    list->last = work;
}

static struct mask_work *take_first(struct work_list *list)
{
    struct mask_work *work = list->first;

    if (!work)
        return NULL;
    list->first = work->next;
    if (!list->first)
        list->last = NULL;
    return work;
}

/* NULL: nothing that this thread should do now. With the lock held. */
static struct mask_work *choose(struct mask_pool *pool, bool *ret_slow)
{
    struct mask_work *work = take_first(&pool->prompt);
    uint32_t slow_most = pool->thread_count > 1 ? pool->thread_count - 1 : 1;

    *ret_slow = !work && pool->slow_running < slow_most && pool->slow.first;
    return *ret_slow ? take_first(&pool->slow) : work;
}

static void *run(void *data)
{
    struct mask_pool *pool = data;
    uint32_t *words;
    bool slow = false;

    pthread_mutex_lock(&pool->lock);
    words = pool->words + (size_t)pool->word_count * pool->words_given++;
    for (;;) {
        struct mask_work *work = choose(pool, &slow);
        bool quiet;

        if (!work && pool->closing && !pool->slow.first)
            break;
        if (!work) {
            pthread_cond_wait(&pool->changed, &pool->lock);
            continue;
        }
        pool->slow_running += slow;
        pthread_mutex_unlock(&pool->lock);
        quiet = work->quiet;
        work->run(work, words);
        pthread_mutex_lock(&pool->lock);
        pool->slow_running -= slow;
        if (slow && (pool->slow.first || pool->closing))
            pthread_cond_broadcast(&pool->changed);
        if (!quiet) {
            append(&pool->done, work);
            pool->bell(pool->bell_data);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int mask_pool_open(uint32_t threads, uint32_t word_count, void (*bell)(void *data), void *data,
                   struct mask_pool **ret_pool, struct fault *fault)
{
    struct mask_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return fault_set(fault, E_MEMORY, "no memory for the mask threads");
    *pool = (struct mask_pool){.word_count = word_count, .bell = bell, .bell_data = data};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->threads = calloc(threads, sizeof *pool->threads);
    pool->words = calloc((size_t)threads * word_count, sizeof *pool->words);
    if (!pool->threads || !pool->words) {
        mask_pool_close(pool);
        return fault_set(fault, E_MEMORY, "no memory for the mask threads");
    }
    while (pool->thread_count < threads) {
        int r;

        pthread_mutex_lock(&pool->lock);
        r = pthread_create(&pool->threads[pool->thread_count], NULL, run, pool);
        pool->thread_count += r == 0;
        pthread_mutex_unlock(&pool->lock);
        if (r != 0) {
            mask_pool_close(pool);
            errno = r;
            return fault_errno(fault, "cannot start the mask threads");
        }
    }
    *ret_pool = pool;
    return 0;
}

void mask_pool_close(struct mask_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++)
        (void)pthread_join(pool->threads[i], NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->changed);
    free(pool->threads);
    free(pool->words);
    free(pool);
}

void mask_pool_post(struct mask_pool *pool, struct mask_work *work, bool slow)
{
    pthread_mutex_lock(&pool->lock);
    append(slow ? &pool->slow : &pool->prompt, work);
    /* Everybody: the one that wakes first may be the one that leaves slow work alone. */
    if (slow)
        pthread_cond_broadcast(&pool->changed);
    else
        pthread_cond_signal(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

struct mask_work *mask_pool_done(struct mask_pool *pool)
{
    struct mask_work *first;

    pthread_mutex_lock(&pool->lock);
    first = pool->done.first;
    pool->done = (struct work_list){0};
    pthread_mutex_unlock(&pool->lock);
    return first;
}
