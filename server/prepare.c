/* prepare.c -- see prepare.h. Two rings of job pointers; a NULL job tells one worker to end.
 *
 * Both rings hold every job that may be outstanding and the NULLs, so a push never fails. */
#include "server/prepare.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "config/base/ring.h"

struct prepare {
    struct prepare_options options;
    struct ring *jobs;
    struct ring *results;
    uint32_t outstanding; /* the loop's count */
    uint32_t thread_count;
    pthread_t *threads;
};

struct prepare_job *prepare_job_open(size_t body_bytes_max)
{
    struct prepare_job *job = calloc(1, sizeof *job);

    if (job)
        buf_init(&job->body, body_bytes_max);
    return job;
}

void prepare_job_close(struct prepare_job *job)
{
    if (!job)
        return;
    buf_fini(&job->body);
    request_free(job->request);
    reply_close(job->reply);
    free(job);
}

static void *work(void *data)
{
    struct prepare *prepare = data;
    struct prepare_job *job;

    for (;;) {
        if (!ring_pop_wait(prepare->jobs, &job, UINT64_MAX))
            continue;
        if (!job)
            return NULL;
        (void)openai_parse(job->endpoint, prepare->options.context, buf_string(&job->body),
                           job->body.bytes, &job->request, &job->reply, &job->error);
        must(ring_push(prepare->results, &job) == 0);
        prepare->options.bell(prepare->options.bell_data);
    }
}

static int start_threads(struct prepare *prepare)
{
    sigset_t all, before;
    int r = 0;

    /* Signals are the loop's: a worker must not take one. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r == 0 && prepare->thread_count < prepare->options.threads) {
        r = pthread_create(&prepare->threads[prepare->thread_count], NULL, work, prepare);
        if (r == 0)
            prepare->thread_count++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}

int prepare_open(const struct prepare_options *options, struct prepare **ret_prepare,
                 struct fault *fault)
{
    struct prepare *prepare = calloc(1, sizeof *prepare);
    size_t capacity = (size_t)options->jobs_max + options->threads;
    int r = -1;

    if (!prepare)
        return fault_set(fault, E_MEMORY, "no memory for the prepare threads");
    prepare->options = *options;
    prepare->threads = calloc(options->threads, sizeof *prepare->threads);
    if (!prepare->threads ||
        ring_open(capacity, sizeof(struct prepare_job *), &prepare->jobs) < 0 ||
        ring_open(capacity, sizeof(struct prepare_job *), &prepare->results) < 0) {
        r = fault_set(fault, E_MEMORY, "no memory for the prepare threads");
        goto out;
    }
    r = start_threads(prepare);
    if (r < 0) {
        r = fault_set(fault, r, "cannot start the prepare threads: %s", strerror(-r));
        goto out;
    }
    *ret_prepare = prepare;
    prepare = NULL;
out:
    prepare_close(prepare);
    return r;
}

void prepare_close(struct prepare *prepare)
{
    struct prepare_job *job = NULL;

    if (!prepare)
        return;
    for (uint32_t i = 0; i < prepare->thread_count; i++)
        must(ring_push(prepare->jobs, &job) == 0);
    for (uint32_t i = 0; i < prepare->thread_count; i++)
        (void)pthread_join(prepare->threads[i], NULL);
    while (prepare->results && ring_pop(prepare->results, &job))
        prepare_job_close(job);
    ring_close(prepare->jobs);
    ring_close(prepare->results);
    free(prepare->threads);
    free(prepare);
}

int prepare_submit(struct prepare *prepare, struct prepare_job *job)
{
    if (prepare->outstanding == prepare->options.jobs_max)
        return E_FULL;
    must(ring_push(prepare->jobs, &job) == 0);
    prepare->outstanding++;
    return 0;
}

struct prepare_job *prepare_next(struct prepare *prepare)
{
    struct prepare_job *job;

    if (!ring_pop(prepare->results, &job))
        return NULL;
    prepare->outstanding--;
    return job;
}
