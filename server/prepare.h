/* prepare.h -- worker threads that turn request bodies into requests.
 *
 * Parsing, templating and tokenizing a large body takes tens of milliseconds, which on the loop
 * would delay every stream. The loop submits a job and is told by the bell when results are there;
 * a job belongs to the side that holds it. The pool is our own: libuv's is shared with files and
 * name lookups.
 *
 * One thread more, of the lowest priority, takes the jobs whose constraint is slow to compile, one
 * after the other: so the pool is never kept from its work by them.
 *
 * prepare_submit() and prepare_next() belong to the loop thread. */
#ifndef WEFT_PREPARE_H
#define WEFT_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "server/openai.h"

struct prepare_job {
    uint64_t exchange_id;
    enum openai_endpoint endpoint;
    struct buf body;

    /* The result: a request and its reply, or an error (request NULL). */
    struct request *request;
    struct reply *reply;
    struct api_error error;
};

/* A job with an empty body that may grow to `body_bytes_max`; NULL: no memory. */
struct prepare_job *prepare_job_open(size_t body_bytes_max);
void prepare_job_close(struct prepare_job *job); /* NULL is fine; frees what is still in it */

struct prepare;

struct prepare_options {
    uint32_t threads;
    uint32_t jobs_max; /* submitted and not yet taken back */
    const struct openai_context *context;
    void (*bell)(void *data); /* a result is ready; called on a worker, must not block */
    void *bell_data;
};

int prepare_open(const struct prepare_options *options, struct prepare **ret_prepare,
                 struct fault *fault);
void prepare_close(struct prepare *prepare); /* joins; NULL is fine */

int prepare_submit(struct prepare *prepare, struct prepare_job *job); /* 0 or E_FULL */
struct prepare_job *prepare_next(struct prepare *prepare);            /* NULL: none is ready */

#endif
