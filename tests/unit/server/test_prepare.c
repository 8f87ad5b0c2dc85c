/* test_prepare.c -- protects the prepare threads: every job comes back once with its result, the
 * number outstanding is bounded, and closing frees what nobody took. The endpoint is a fake that
 * counts. */
#include "server/prepare.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "config/base/ring.h"
#include "tests/lib/failing_malloc.h"

enum { JOBS_MAX = 4, BODY_BYTES_MAX = 64 };

struct reply {
    int unused;
};

/* A body "ok" is a request without prompts; "slow" is the same, for who is patient only; anything
 * else is an error that quotes its length. */
int openai_parse(enum openai_endpoint endpoint, const struct openai_context *context, bool patient,
                 const char *body, size_t bytes, struct request **ret_request,
                 struct reply **ret_reply, struct api_error *error)
{
    struct arena *arena;
    struct request *request;

    (void)endpoint;
    (void)context;
    if (bytes == 4 && !patient)
        return OPENAI_LATER;
    if (bytes != 4 && (bytes != 2 || body[0] != 'o')) {
        api_error_set(error, API_BAD_REQUEST, "", "%zu bytes", bytes);
        return E_INVALID;
    }
    must(arena_open(1024, 4096, &arena) == 0);
    request = arena_take(arena, 1, sizeof *request);
    request->arena = arena;
    *ret_request = request;
    *ret_reply = calloc(1, sizeof **ret_reply);
    must(*ret_reply);
    return 0;
}

void reply_close(struct reply *reply)
{
    free(reply);
}

/* The bell of these tests: a ring that the test waits on. */
static void ring_bell(void *bell)
{
    char rung = 1;

    (void)ring_push(bell, &rung);
}

static struct prepare_job *next(struct prepare *prepare, struct ring *bell)
{
    struct prepare_job *job;
    char rung;

    while (!(job = prepare_next(prepare)))
        assert_true(ring_pop_wait(bell, &rung, clock_now() + UINT64_C(20000000000)));
    return job;
}

static struct prepare_job *make_job(uint64_t id, const char *body)
{
    struct prepare_job *job = prepare_job_open(BODY_BYTES_MAX);

    must(job);
    job->exchange_id = id;
    buf_text(&job->body, body);
    return job;
}

static struct prepare *open_prepare(struct ring *bell)
{
    struct prepare_options options = {
        .threads = 2, .jobs_max = JOBS_MAX, .bell = ring_bell, .bell_data = bell};
    struct prepare *prepare = NULL;

    assert_int_equal(prepare_open(&options, &prepare, NULL), 0);
    return prepare;
}

static void every_job_comes_back_once(void **state)
{
    struct ring *bell = *state;
    struct prepare *prepare = open_prepare(bell);
    unsigned seen[100] = {0};
    unsigned sent = 0, taken = 0;

    while (taken < 100) {
        struct prepare_job *job;

        while (sent < 100 && sent - taken < JOBS_MAX) {
            assert_int_equal(prepare_submit(prepare, make_job(sent, sent % 2 ? "ok" : "bad")), 0);
            sent++;
        }
        job = next(prepare, bell);
        assert_in_range(job->exchange_id, 0, 99);
        seen[job->exchange_id]++;
        if (job->exchange_id % 2) {
            assert_non_null(job->request);
            assert_non_null(job->reply);
        } else {
            assert_null(job->request);
            assert_int_equal(job->error.kind, API_BAD_REQUEST);
            assert_string_equal(job->error.message, "3 bytes");
        }
        prepare_job_close(job);
        taken++;
    }
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    assert_null(prepare_next(prepare));
    prepare_close(prepare);
}

/* However many slow ones wait for their thread. */
static void slow_jobs_come_back_too(void **state)
{
    struct ring *bell = *state;
    struct prepare *prepare = open_prepare(bell);

    for (unsigned i = 0; i < JOBS_MAX; i++)
        assert_int_equal(prepare_submit(prepare, make_job(i, i == 1 ? "ok" : "slow")), 0);
    for (unsigned i = 0; i < JOBS_MAX; i++) {
        struct prepare_job *job = next(prepare, bell);

        assert_non_null(job->request);
        prepare_job_close(job);
    }
    for (unsigned i = 0; i < JOBS_MAX; i++)
        assert_int_equal(prepare_submit(prepare, make_job(i, "slow")), 0);
    prepare_close(prepare);
}

static void the_number_outstanding_is_bounded(void **state)
{
    struct ring *bell = *state;
    struct prepare *prepare = open_prepare(bell);
    struct prepare_job *job = make_job(9, "ok");

    for (unsigned i = 0; i < JOBS_MAX; i++)
        assert_int_equal(prepare_submit(prepare, make_job(i, "ok")), 0);
    assert_int_equal(prepare_submit(prepare, job), E_FULL); /* also when their results wait */
    prepare_job_close(next(prepare, bell));
    assert_int_equal(prepare_submit(prepare, job), 0);
    prepare_close(prepare); /* with jobs and results in it */
}

static void opening_survives_failing_allocations(void **state)
{
    struct prepare_options options = {
        .threads = 2, .jobs_max = JOBS_MAX, .bell = ring_bell, .bell_data = *state};
    unsigned n;

    for (n = 1; n < 100; n++) {
        struct prepare *prepare = NULL;
        struct fault fault = {0};
        bool failed;
        int r;

        failing_malloc_arm(n);
        r = prepare_open(&options, &prepare, &fault);
        failed = failing_malloc_disarm();
        assert_true(failed ? r < 0 && !prepare && fault.message[0] : r == 0);
        prepare_close(prepare);
        if (!failed)
            break;
    }
    assert_in_range(n, 3, 99);
}

static int open_bell(void **state)
{
    struct ring *bell = NULL;

    assert_int_equal(ring_open(256, 1, &bell), 0);
    *state = bell;
    return 0;
}

static int close_bell(void **state)
{
    ring_close(*state);
    return 0;
}

int main(void)
{
#define WITH_BELL(test) cmocka_unit_test_setup_teardown(test, open_bell, close_bell)
    const struct CMUnitTest tests[] = {
        WITH_BELL(every_job_comes_back_once),
        WITH_BELL(slow_jobs_come_back_too),
        WITH_BELL(the_number_outstanding_is_bounded),
        WITH_BELL(opening_survives_failing_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
