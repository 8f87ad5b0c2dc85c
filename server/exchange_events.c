/* exchange_events.c -- the working half of an exchange: prepare, submit, feed the reply, cancel.
 *
 * A bell stands for any number of results and events. All of them are taken and appended first;
 * each stream is woken at most once, and the turn that follows sends everything in one run. */
#include "server/exchange_internal.h"

#include <string.h>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/sse.h"

enum {
    EVENTS_PER_BELL_MAX = 8192, /* then the sockets get their turn */
};

void exchange_prepare(struct exchange *exchange)
{
    struct prepare_job *job = exchange->job;
    struct api_error error = {0};

    job->exchange_id = exchange->id;
    job->endpoint = exchange->route->endpoint;
    exchange->state = EXCHANGE_PREPARING;
    if (prepare_submit(exchange->all->server->prepare, job) == 0) {
        exchange->job = NULL; /* moved; its bytes stay counted until it comes back */
        return;
    }
    api_error_set(&error, API_QUEUE_FULL, "", "Too many requests are waiting. Try again later.");
    exchange_answer_error(exchange, &error);
}

/* --- cancelling ---------------------------------------------------------------------------------
 */

static bool cancel_wanted(const struct exchange *exchange)
{
    return exchange->cancel_all || exchange->cancels > 0;
}

/* Tells the scheduler as much as it has room to hear; the rest is tried again after the next bell.
 */
static void cancel_flush(struct exchange *exchange)
{
    struct scheduler *scheduler = exchange->all->server->scheduler;

    if (exchange->cancel_all) {
        if (scheduler_cancel(scheduler, exchange->id, CHOICE_ALL) == E_FULL)
            return;
        exchange->cancel_all = false;
        exchange->cancelled = true;
        exchange->cancels = 0;
        memset(exchange->cancel_choices, 0, sizeof exchange->cancel_choices);
    }
    for (uint32_t choice = 0; exchange->cancels > 0; choice++) {
        uint64_t bit = UINT64_C(1) << choice % 64;

        must(choice < EXCHANGE_CHOICES_MAX);
        if (!(exchange->cancel_choices[choice / 64] & bit))
            continue;
        if (scheduler_cancel(scheduler, exchange->id, choice) == E_FULL)
            return;
        exchange->cancel_choices[choice / 64] &= ~bit;
        exchange->cancels--;
    }
}

static void cancel_later(struct exchange *exchange, bool was_wanted)
{
    cancel_flush(exchange);
    if (was_wanted && !cancel_wanted(exchange))
        exchange->all->cancels_pending--;
    if (!was_wanted && cancel_wanted(exchange))
        exchange->all->cancels_pending++;
}

void exchange_cancel(struct exchange *exchange)
{
    bool was_wanted = cancel_wanted(exchange);

    if (!exchange->submitted || exchange->ended || exchange->cancelled || exchange->cancel_all)
        return;
    exchange->cancel_all = true;
    cancel_later(exchange, was_wanted);
}

static void cancel_choice(struct exchange *exchange, uint32_t choice)
{
    bool was_wanted = cancel_wanted(exchange);
    uint64_t bit = UINT64_C(1) << choice % 64;

    must(choice < EXCHANGE_CHOICES_MAX);
    if (exchange->cancelled || exchange->cancel_all ||
        (exchange->cancel_choices[choice / 64] & bit))
        return;
    exchange->cancel_choices[choice / 64] |= bit;
    exchange->cancels++;
    cancel_later(exchange, was_wanted);
}

static void cancels_retry(struct exchanges *all)
{
    struct exchange *exchange;
    uint32_t cursor = 0;

    while (all->cancels_pending > 0 && (exchange = ids_next(all->ids, &cursor))) {
        if (cancel_wanted(exchange))
            cancel_later(exchange, true);
    }
}

/* --- results of the prepare threads --------------------------------------------------------------
 */

static void submit(struct exchange *exchange, struct prepare_job *job)
{
    struct server *server = exchange->all->server;
    struct api_error error = {0};

    job->request->exchange_id = exchange->id;
    job->request->arrived_ns = exchange->arrived_ns;
    if (scheduler_submit(server->scheduler, job->request) < 0) {
        api_error_set(&error, API_QUEUE_FULL, "",
                      "The queue of this server is full. Try again later.");
        exchange_answer_error(exchange, &error);
        return;
    }
    job->request = NULL;
    exchange->reply = job->reply;
    job->reply = NULL;
    exchange->submitted = true;
    exchange->state = EXCHANGE_WAITING;
    exchange->written_ns = clock_now();
    if (reply_streams(exchange->reply))
        buf_init(&exchange->out, server->options.stream_buffer_bytes_max);
}

static void take_prepared(struct exchanges *all, struct prepare_job *job)
{
    struct exchange *exchange = ids_find(all->ids, job->exchange_id);

    all->bodies_bytes -= job->body.bytes;
    if (exchange && exchange->http && !exchange->gone && exchange->state == EXCHANGE_PREPARING) {
        if (job->request)
            submit(exchange, job);
        else
            exchange_answer_error(exchange, &job->error);
    }
    prepare_job_close(job); /* with what nobody wanted any more */
}

/* --- events of the scheduler ------------------------------------------------------------------ */

static void begin_stream(struct exchange *exchange)
{
    struct http_header headers[SSE_HEADERS_MAX];

    if (exchange->state == EXCHANGE_STREAMING)
        return;
    exchange->state = EXCHANGE_STREAMING;
    exchange->status = 200;
    reply_begin(exchange->reply, &exchange->out);
    sse_headers(exchange->request_id, headers);
    http_stream(exchange->http, 200, headers, &exchange->out);
}

/* A client that does not read: its connection is dropped, which tells it that the answer is not
 * whole. */
static void cut_slow_reader(struct exchange *exchange)
{
    log_event(LOG_WARN, "slow_reader_cut", LOG_STR("request", exchange->request_id),
              LOG_INT("unread_bytes", exchange->out.bytes));
    exchange->gone = true;
    exchange_cancel(exchange);
    http_cut(exchange->http);
}

static void pass_on(struct exchange *exchange, const struct reply_action *action)
{
    if (exchange->state == EXCHANGE_STREAMING) {
        if (buf_failed(&exchange->out)) {
            cut_slow_reader(exchange);
        } else if (action->finished || action->failed) {
            http_stream_end(exchange->http);
            exchange->state = EXCHANGE_ANSWERED;
        } else if (exchange->out.bytes > 0) {
            exchange->written_ns = clock_now();
            http_stream_wake(exchange->http);
        }
    } else if (action->failed) {
        exchange_answer_error(exchange, &action->error);
    } else if (action->finished && buf_failed(&exchange->out)) {
        struct api_error error = {0};

        api_error_set(&error, API_INTERNAL, "", "The answer is too large.");
        exchange_answer_error(exchange, &error);
    } else if (action->finished) {
        exchange_answer(exchange, 200, "application/json");
    }
}

static void feed(struct exchange *exchange, const struct event *event)
{
    struct reply_action action = {0};
    bool heard = exchange->http && !exchange->gone;

    if (exchange->ended)
        return;
    if (heard && reply_streams(exchange->reply) && event->kind != EVENT_FAILURE)
        begin_stream(exchange);
    reply_feed(exchange->reply, event, &exchange->out, &action);
    if (action.token_gap_ns > 0)
        metrics_token_gap(exchange->all->server->metrics, action.token_gap_ns);
    if (action.failed)
        exchange_cancel(exchange); /* the other choices */
    else if (action.cancel_choice)
        cancel_choice(exchange, action.choice);
    if (heard)
        pass_on(exchange, &action);
    else
        buf_reset(&exchange->out); /* only the counts matter now */
    if (action.finished || action.failed) {
        exchange->ended = true;
        exchange_settle(exchange);
    }
}

void exchanges_bell(struct exchanges *all)
{
    struct server *server = all->server;
    struct prepare_job *job;
    struct event event;
    unsigned n = 0;

    while ((job = prepare_next(server->prepare)))
        take_prepared(all, job);
    while (n < EVENTS_PER_BELL_MAX && scheduler_next(server->scheduler, &event)) {
        struct exchange *exchange = ids_find(all->ids, event.exchange_id);

        if (exchange) /* else: it ended while this event was on its way */
            feed(exchange, &event);
        n++;
    }
    if (all->cancels_pending > 0)
        cancels_retry(all);
    if (n == EVENTS_PER_BELL_MAX)
        loop_ring(server->loop);
}

void exchanges_tick(struct exchanges *all)
{
    uint64_t now_ns = clock_now();
    uint64_t quiet_ns = all->server->options.sse_keepalive_ns;
    struct exchange *exchange;
    uint32_t cursor = 0;

    cancels_retry(all);
    if (quiet_ns == 0)
        return;
    while ((exchange = ids_next(all->ids, &cursor))) {
        bool waits = exchange->state == EXCHANGE_WAITING && reply_streams(exchange->reply);

        if ((!waits && exchange->state != EXCHANGE_STREAMING) || !exchange->http ||
            exchange->gone || now_ns < exchange->written_ns + quiet_ns)
            continue;
        /* The first heartbeat of a request in the queue sends the headers too: from there on its
         * status is 200, and a failure is an event. */
        begin_stream(exchange);
        exchange->written_ns = now_ns;
        sse_comment(&exchange->out);
        if (buf_failed(&exchange->out))
            cut_slow_reader(exchange);
        else
            http_stream_wake(exchange->http);
    }
}

void exchanges_abandon(struct exchanges *all)
{
    struct exchange *exchange;
    struct api_error error = {0};
    uint32_t cursor = 0;

    api_error_set(&error, API_UNAVAILABLE, "", "The server is shutting down. Try again.");
    while ((exchange = ids_next(all->ids, &cursor))) {
        struct event event = {
            .exchange_id = exchange->id, .kind = EVENT_FAILURE, .failure = {.code = E_CLOSED}};

        if (exchange->state == EXCHANGE_WAITING || exchange->state == EXCHANGE_STREAMING)
            feed(exchange, &event);
        else if (exchange->state == EXCHANGE_PREPARING && exchange->http)
            exchange_answer_error(exchange, &error);
    }
}
