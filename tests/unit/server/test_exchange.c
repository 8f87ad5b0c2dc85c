/* test_exchange.c -- protects the life of an exchange against what a healthy scheduler rarely
 * does: full rings, a device that fails, steps that stop. The HTTP side is real, down to the
 * sockets; the scheduler and the answers are fakes that this file holds in its hand.
 *
 * The loop runs on a thread of its own; each test is a client on the main thread. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/exchange.h"
#include "server/listener.h"
#include "server/server.h"
#include "tests/lib/failing_malloc.h"

enum { EVENTS_MAX = 256, CANCELS_MAX = 16, STOP_TOKEN = 77, PATIENCE_SECONDS = 20 };

/* --- the fake scheduler: what the loop calls, and what a test sees and sets --- */

struct scheduler {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct event events[EVENTS_MAX];
    unsigned event_first, event_count;
    uint64_t exchange_id; /* of the last request that was submitted */
    unsigned submitted;
    bool full;         /* the next submissions are refused */
    unsigned refusals; /* so many cancels are refused first */
    unsigned cancel_calls;
    unsigned cancel_count;
    uint32_t cancels[CANCELS_MAX];
    struct scheduler_stats stats;
};

static struct scheduler fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};

int scheduler_submit(struct scheduler *s, struct request *request)
{
    int r = E_FULL;

    (void)pthread_mutex_lock(&s->lock);
    if (!s->full) {
        s->exchange_id = request->exchange_id;
        s->submitted++;
        request_free(request);
        r = 0;
    }
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

int scheduler_cancel(struct scheduler *s, uint64_t exchange_id, uint32_t choice)
{
    int r = E_FULL;

    (void)exchange_id;
    (void)pthread_mutex_lock(&s->lock);
    s->cancel_calls++;
    if (s->refusals > 0) {
        s->refusals--;
    } else {
        must(s->cancel_count < CANCELS_MAX);
        s->cancels[s->cancel_count++] = choice;
        r = 0;
    }
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
    return r;
}

bool scheduler_next(struct scheduler *s, struct event *ret_event)
{
    bool there;

    (void)pthread_mutex_lock(&s->lock);
    there = s->event_count > 0;
    if (there) {
        *ret_event = s->events[s->event_first];
        s->event_first = (s->event_first + 1) % EVENTS_MAX;
        s->event_count--;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return there;
}

void scheduler_stats_get(const struct scheduler *s, struct scheduler_stats *ret_stats)
{
    (void)pthread_mutex_lock(&((struct scheduler *)s)->lock);
    *ret_stats = s->stats;
    (void)pthread_mutex_unlock(&((struct scheduler *)s)->lock);
}

/* --- the fake endpoint: a body is "stream", "whole", or bad --- */

struct reply {
    bool streams;
    bool begun;
    unsigned tokens;
};

int openai_parse(enum openai_endpoint endpoint, const struct openai_context *context, bool patient,
                 const char *body, size_t bytes, struct request **ret_request,
                 struct reply **ret_reply, struct api_error *error)
{
    struct arena *arena;
    struct request *request;
    struct reply *reply;

    (void)endpoint;
    (void)context;
    (void)patient;
    if (strncmp(body, "stream", bytes) != 0 && strncmp(body, "whole", bytes) != 0) {
        api_error_set(error, API_BAD_REQUEST, "body", "It is bad.");
        return E_INVALID;
    }
    must(arena_open(1024, 4096, &arena) == 0);
    request = arena_take(arena, 1, sizeof *request);
    request->arena = arena;
    reply = calloc(1, sizeof *reply);
    must(reply);
    reply->streams = body[0] == 's';
    *ret_request = request;
    *ret_reply = reply;
    return 0;
}

void reply_close(struct reply *reply)
{
    free(reply);
}

bool reply_streams(const struct reply *reply)
{
    return reply->streams;
}

void reply_begin(struct reply *reply, struct buf *out)
{
    reply->begun = true;
    buf_text(out, "data: begin\n\n");
}

void reply_feed(struct reply *reply, const struct event *event, struct buf *out,
                struct reply_action *ret_action)
{
    switch (event->kind) {
    case EVENT_TOKEN:
        reply->tokens++;
        if (reply->streams)
            buf_format(out, "data: %d\n\n", event->token.token);
        ret_action->cancel_choice = event->token.token == STOP_TOKEN;
        ret_action->choice = event->choice;
        break;
    case EVENT_FINISH:
        ret_action->finished = true;
        if (reply->streams)
            buf_text(out, "data: [DONE]\n\n");
        else
            buf_format(out, "{\"tokens\":%u}", reply->tokens);
        break;
    case EVENT_FAILURE:
        ret_action->failed = true;
        api_error_set(&ret_action->error, API_UNAVAILABLE, "", "It failed.");
        if (reply->begun)
            buf_text(out, "data: {\"error\":1}\n\ndata: [DONE]\n\n");
        break;
    case EVENT_STARTED:
    case EVENT_PROMPT:
        break;
    }
}

void reply_summary_get(const struct reply *reply, struct reply_summary *ret_summary)
{
    *ret_summary = (struct reply_summary){.generated_tokens = reply->tokens, .finish = "length"};
}

void openai_models_body(const struct openai_context *context, struct buf *body)
{
    (void)context;
    buf_text(body, "{}");
}

void openai_model_body(const struct openai_context *context, struct buf *body)
{
    openai_models_body(context, body);
}

/* --- the server around them --- */

struct fixture {
    struct server server;
    struct listener listener;
    pthread_t thread;
    bool joined;
};

static void *run_loop(void *data)
{
    loop_run(((struct fixture *)data)->server.loop);
    return NULL;
}

static void stop_server(struct fixture *f)
{
    http_close(f->server.http);
    prepare_close(f->server.prepare);
    exchanges_close(f->server.exchanges);
    metrics_close(f->server.metrics);
    loop_close(f->server.loop);
    listener_fini(&f->listener);
}

static int start_server(struct fixture *f, struct fault *fault)
{
    struct server *server = &f->server;
    struct loop_hooks hooks = server_hooks(server);
    struct prepare_options preparing = {.threads = 1, .jobs_max = 8, .bell = loop_ring};
    struct http_options http = {.connections_max = 16,
                                .idle_timeout_seconds = 60,
                                .header_timeout_ns = UINT64_C(60000000000)};
    int r = listener_init("127.0.0.1", 0, &f->listener, fault);

    if (r == 0)
        r = loop_open(&hooks, &server->loop, fault);
    if (r == 0)
        r = metrics_open("fake", "fake", 16, &server->metrics);
    if (r == 0) {
        preparing.context = &server->openai;
        preparing.bell_data = server->loop;
        r = prepare_open(&preparing, &server->prepare, fault);
    }
    if (r == 0)
        r = exchanges_open(server, 32, &server->exchanges, fault);
    if (r == 0)
        r = listener_listen(&f->listener, fault);
    if (r == 0) {
        http.listen_fd = listener_take(&f->listener);
        http.hooks = exchanges_hooks(server->exchanges);
        r = http_open(server->loop, &http, &server->http, fault);
    }
    return r;
}

static struct fixture *fixture_make(void)
{
    struct fixture *f = calloc(1, sizeof *f);

    must(f);
    f->listener.fd = -1;
    f->server.options = (struct server_options){.body_bytes_max = 4096,
                                                .bodies_bytes_max = 65536,
                                                .stream_buffer_bytes_max = 4096,
                                                .drain_timeout_ns = UINT64_C(10000000000)};
    f->server.openai.model_id = "fake";
    f->server.scheduler = &fake;
    return f;
}

static int open_fixture(void **state)
{
    struct fixture *f = fixture_make();
    struct fault fault = {0};

    log_setup(LOG_ERROR, LOG_TEXT);
    memset(&fake.event_first, 0, sizeof fake - offsetof(struct scheduler, event_first));
    assert_int_equal(start_server(f, &fault), 0);
    assert_int_equal(pthread_create(&f->thread, NULL, run_loop, f), 0);
    *state = f;
    return 0;
}

static void join(struct fixture *f)
{
    if (!f->joined)
        assert_int_equal(pthread_join(f->thread, NULL), 0);
    f->joined = true;
}

static int close_fixture(void **state)
{
    struct fixture *f = *state;

    if (!f->joined)
        (void)kill(getpid(), SIGTERM); /* nothing is open any more: it drains at once */
    join(f);
    stop_server(f);
    free(f);
    return 0;
}

/* --- what a test does --- */

static int client_open(const struct fixture *f)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(f->listener.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = PATIENCE_SECONDS};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static int client_ask(const struct fixture *f, const char *method, const char *path,
                      const char *body)
{
    char request[512];
    int fd = client_open(f);
    int n = snprintf(request, sizeof request,
                     "%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                     method, path, strlen(body), body);

    assert_int_equal(send(fd, request, (size_t)n, 0), n);
    return fd;
}

static int client_post(const struct fixture *f, const char *body)
{
    return client_ask(f, "POST", "/v1/completions", body);
}

/* Reads until `mark` was seen; NULL: until the end. What was read is left in `text`. */
static void client_read(int fd, const char *mark, char text[4096])
{
    size_t n = strlen(text);

    while (!mark || !strstr(text, mark)) {
        ssize_t r = recv(fd, text + n, 4095 - n, 0);

        if (r <= 0) {
            assert_true(r == 0 && !mark);
            return;
        }
        n += (size_t)r;
        text[n] = '\0';
        assert_true(n < 4095);
    }
}

static void ring(struct fixture *f, struct event event)
{
    (void)pthread_mutex_lock(&fake.lock);
    must(fake.event_count < EVENTS_MAX);
    event.exchange_id = event.exchange_id ? event.exchange_id : fake.exchange_id;
    fake.events[(fake.event_first + fake.event_count++) % EVENTS_MAX] = event;
    (void)pthread_mutex_unlock(&fake.lock);
    loop_ring(f->server.loop);
}

static void ring_token(struct fixture *f, int32_t token)
{
    ring(f, (struct event){.kind = EVENT_TOKEN, .choice = 3, .token.token = token});
}

/* Waits until a counter of the fake has reached `count`. */
static void await(const unsigned *counter, unsigned count)
{
    struct timespec until;
    int r = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SECONDS;
    (void)pthread_mutex_lock(&fake.lock);
    while (*counter < count && r == 0)
        r = pthread_cond_timedwait(&fake.changed, &fake.lock, &until);
    (void)pthread_mutex_unlock(&fake.lock);
    assert_int_equal(r, 0);
}

static void a_refused_cancel_is_asked_again(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int fd = client_post(f, "stream");

    await(&fake.submitted, 1);
    ring(f, (struct event){.kind = EVENT_STARTED});
    ring_token(f, 5);
    client_read(fd, "data: 5\n\n", text);
    fake.refusals = 2;
    (void)close(fd);
    await(&fake.cancel_calls, 1);
    ring_token(f, 6); /* every bell is an occasion */
    await(&fake.cancel_calls, 2);
    ring_token(f, 7);
    await(&fake.cancel_count, 1);
    assert_int_equal(fake.cancels[0], CHOICE_ALL);
    ring(f, (struct event){.kind = EVENT_FINISH, .finish.reason = FINISH_CANCELLED});
}

static void an_ended_choice_is_cancelled_alone(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int fd = client_post(f, "stream");

    await(&fake.submitted, 1);
    fake.refusals = 1;
    ring_token(f, STOP_TOKEN);
    await(&fake.cancel_calls, 1);
    ring_token(f, 1);
    await(&fake.cancel_count, 1);
    assert_int_equal(fake.cancels[0], 3);
    ring(f, (struct event){.kind = EVENT_FINISH});
    client_read(fd, NULL, text);
    assert_non_null(strstr(text, "data: [DONE]\n\n"));
    assert_int_equal(fake.cancel_count, 1);
    (void)close(fd);
}

static void events_for_nobody_are_dropped(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    uint64_t gone;
    int fd = client_post(f, "whole");

    await(&fake.submitted, 1);
    gone = fake.exchange_id;
    ring_token(f, 1);
    ring(f, (struct event){.kind = EVENT_FINISH});
    client_read(fd, "{\"tokens\":1}", text);
    (void)close(fd);
    for (int i = 0; i < 3; i++) {
        ring(f, (struct event){.exchange_id = gone, .kind = EVENT_TOKEN});
        ring(f, (struct event){.exchange_id = gone + 17, .kind = EVENT_FINISH});
    }
    text[0] = '\0';
    fd = client_post(f, "whole");
    await(&fake.submitted, 2);
    assert_true(fake.exchange_id != gone);
    ring(f, (struct event){.kind = EVENT_FINISH});
    client_read(fd, "{\"tokens\":0}", text);
    (void)close(fd);
}

static void a_full_queue_is_429(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int fd;

    fake.full = true;
    fake.stats.waiting = 100;
    fake.stats.sequences_per_second = 10;
    fd = client_post(f, "stream");
    client_read(fd, NULL, text);
    assert_non_null(strstr(text, "HTTP/1.1 429 "));
    assert_non_null(strstr(text, "Retry-After: 5\r\n"));
    assert_non_null(strstr(text, "retry-after-ms: 5000\r\n"));
    (void)close(fd);
}

static void errors_of_parsing_and_before_admission_have_their_status(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int fd = client_post(f, "bad");

    client_read(fd, NULL, text);
    assert_non_null(strstr(text, "HTTP/1.1 400 "));
    assert_non_null(strstr(text, "It is bad."));
    (void)close(fd);

    text[0] = '\0';
    fd = client_post(f, "stream");
    await(&fake.submitted, 1);
    ring(f, (struct event){.kind = EVENT_FAILURE, .failure = {.code = E_MEMORY}});
    client_read(fd, NULL, text);
    assert_non_null(strstr(text, "HTTP/1.1 503 "));
    assert_non_null(strstr(text, "It failed."));
    (void)close(fd);
}

static void a_failed_device_ends_streams_and_the_process(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int fd = client_post(f, "stream");

    await(&fake.submitted, 1);
    ring_token(f, 1);
    client_read(fd, "data: 1\n\n", text);
    (void)pthread_mutex_lock(&fake.lock);
    fake.stats.device_failed = true;
    (void)pthread_mutex_unlock(&fake.lock);
    ring(f, (struct event){.kind = EVENT_FAILURE, .failure = {.code = E_DEVICE}});
    client_read(fd, NULL, text);
    assert_non_null(strstr(text, "data: {\"error\":1}\n\ndata: [DONE]\n\n"));
    (void)close(fd);
    join(f); /* nobody told it to */
    assert_int_equal(f->server.exit_code, 1);
}

static void a_stalled_engine_is_unhealthy_but_the_loop_lives(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int fd;

    fake.stats.work_waiting = true;
    fake.stats.heartbeat_ns = clock_now() - UINT64_C(31000000000);
    fd = client_ask(f, "GET", "/health", "");
    client_read(fd, NULL, text);
    assert_non_null(strstr(text, "HTTP/1.1 503 "));
    (void)close(fd);
    text[0] = '\0';
    fd = client_ask(f, "GET", "/livez", "");
    client_read(fd, NULL, text);
    assert_non_null(strstr(text, "HTTP/1.1 200 "));
    (void)close(fd);
}

static void tokens_allocate_nothing(void **state)
{
    struct fixture *f = *state;
    char text[4096] = "";
    int fd = client_post(f, "stream");

    await(&fake.submitted, 1);
    ring_token(f, 1000);
    client_read(fd, "data: 1000\n\n", text);
    failing_malloc_arm(UINT64_MAX);
    for (int32_t i = 1001; i < 1100; i++) {
        char mark[32];

        (void)snprintf(mark, sizeof mark, "data: %d\n\n", i);
        ring_token(f, i);
        client_read(fd, mark, text);
    }
    assert_int_equal(failing_malloc_count(), 0);
    (void)failing_malloc_disarm();
    ring(f, (struct event){.kind = EVENT_FINISH});
    client_read(fd, "[DONE]", text);
    (void)close(fd);
}

static void starting_survives_every_failing_allocation(void **state)
{
    unsigned n;

    (void)state;
    for (n = 1; n < 1000; n++) {
        struct fixture *f = fixture_make();
        struct fault fault = {0};
        bool failed;
        int r;

        failing_malloc_arm(n);
        r = start_server(f, &fault);
        failed = failing_malloc_disarm();
        assert_true(failed ? r < 0 : r == 0);
        stop_server(f);
        free(f);
        if (!failed)
            break;
    }
    assert_in_range(n, 5, 999);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        WITH_SERVER(a_refused_cancel_is_asked_again),
        WITH_SERVER(an_ended_choice_is_cancelled_alone),
        WITH_SERVER(events_for_nobody_are_dropped),
        WITH_SERVER(a_full_queue_is_429),
        WITH_SERVER(errors_of_parsing_and_before_admission_have_their_status),
        WITH_SERVER(a_failed_device_ends_streams_and_the_process),
        WITH_SERVER(a_stalled_engine_is_unhealthy_but_the_loop_lives),
        WITH_SERVER(tokens_allocate_nothing),
        cmocka_unit_test(starting_survives_every_failing_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
