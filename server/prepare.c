/* prepare.c -- see prepare.h. Rings of job pointers; a NULL job tells one worker to end.
 *
 *     jobs --> workers --> results
 *                 \-> slow --> the slow thread --> results
 *
 * All rings hold every job that may be outstanding and the NULLs, so a push never fails. */
#include "server/prepare.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/base/ring.h"

enum { SLOW_NICE = 19 };

struct prepare {
    struct prepare_options options;
    struct ring *jobs;
    struct ring *slow;
    struct ring *results;
    atomic_bool closing;  /* nobody waits for what is still to be done */
    uint32_t outstanding; /* the loop's count */
    uint32_t thread_count;
    pthread_t *threads; /* the last one is the slow thread */
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

/* Takes one job. false: it was the last. */
static bool take(struct prepare *prepare, struct ring *from, bool patient)
{
    struct prepare_job *job;
    int r = 0;

    if (!ring_pop_wait(from, &job, UINT64_MAX))
        return true;
    if (!job)
        return false;
    if (!atomic_load(&prepare->closing))
        r = openai_parse(job->endpoint, prepare->options.context, patient, buf_string(&job->body),
                         job->body.bytes, &job->request, &job->reply, &job->error);
    if (r == OPENAI_LATER) {
        must(!patient && ring_push(prepare->slow, &job) == 0);
        return true;
    }
    must(ring_push(prepare->results, &job) == 0);
    prepare->options.bell(prepare->options.bell_data);
    return true;
}

static void *work(void *data)
{
    struct prepare *prepare = data;

    while (take(prepare, prepare->jobs, false))
        ;
    return NULL;
}

static void *work_slowly(void *data)
{
    struct prepare *prepare = data;

    /* The thread's own on Linux; what it computes for comes second to everything else. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), SLOW_NICE);
    while (take(prepare, prepare->slow, true))
        ;
    return NULL;
}

static int start_threads(struct prepare *prepare)
{
    sigset_t all, before;
    int r = 0;

    /* Signals are the loop's: a worker must not take one. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r == 0 && prepare->thread_count <= prepare->options.threads) {
        r = pthread_create(&prepare->threads[prepare->thread_count], NULL,
                           prepare->thread_count < prepare->options.threads ? work : work_slowly,
                           prepare);
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
    prepare->threads = calloc(options->threads + (size_t)1, sizeof *prepare->threads);
    if (!prepare->threads ||
        ring_open(capacity, sizeof(struct prepare_job *), &prepare->jobs) < 0 ||
        ring_open(capacity, sizeof(struct prepare_job *), &prepare->slow) < 0 ||
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
    uint32_t workers;

    if (!prepare)
        return;
    atomic_store(&prepare->closing, true);
    workers = prepare->thread_count < prepare->options.threads ? prepare->thread_count
                                                               : prepare->options.threads;
    for (uint32_t i = 0; i < workers; i++)
        must(ring_push(prepare->jobs, &job) == 0);
    for (uint32_t i = 0; i < workers; i++)
        (void)pthread_join(prepare->threads[i], NULL);
    if (prepare->thread_count > workers) { /* after them: they may still hand it a job */
        must(ring_push(prepare->slow, &job) == 0);
        (void)pthread_join(prepare->threads[workers], NULL);
    }
    while (prepare->results && ring_pop(prepare->results, &job))
        prepare_job_close(job);
    ring_close(prepare->jobs);
    ring_close(prepare->slow);
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
