/* exchange.c -- the client's half of an exchange: reading the request, answering it, and the line
 * in the log.
 *
 * What can be refused from the headers alone is refused there, but answered only when the body has
 * been read, if that is small: the connection then stays usable. A large body, or a client that
 * waits for "100 Continue", is answered at once, and the connection closes. */
#include "server/exchange_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "config/base/clock.h"
#include "config/base/log.h"

enum {
    REFUSED_BODY_BYTES_MAX = 65536, /* read to keep the connection */
    SWALLOWED_BODIES_MAX = 4, /* a chunked body may go on for so many limits before it is cut */
    LOG_FIELDS_MAX = 12,
    STATUS_CLIENT_CLOSED = 499, /* in logs and metrics only */
};

/* splitmix64's output function (G. Steele et al., "Fast splittable pseudorandom number
 * generators"). */
static uint64_t scramble(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void take_request_id(struct exchange *exchange)
{
    struct exchanges *all = exchange->all;
    const char *given = http_header(exchange->http, "x-request-id");

    if (given && request_id_valid(given)) {
        (void)snprintf(exchange->request_id, sizeof exchange->request_id, "%s", given);
        return;
    }
    all->id_count++;
    (void)snprintf(exchange->request_id, sizeof exchange->request_id,
                   "req-%016" PRIx64 "%016" PRIx64, scramble(all->id_seed[0] + all->id_count),
                   scramble(all->id_seed[1] ^ all->id_count));
}

void exchange_answer(struct exchange *exchange, int status, const char *content_type)
{
    struct http_header headers[8];
    char seconds[16], ms[16];
    unsigned n = 0;

    headers[n++] = (struct http_header){"x-request-id", exchange->request_id};
    if (content_type)
        headers[n++] = (struct http_header){"Content-Type", content_type};
    if (exchange->route && (status == 405 || status == 204))
        headers[n++] = (struct http_header){"Allow", exchange->route->allow};
    else if (status == 204)
        headers[n++] = (struct http_header){"Allow", "GET, HEAD, POST, OPTIONS"};
    if (status == 429 || status == 503) {
        struct scheduler_stats stats;
        uint32_t wait_ms;

        scheduler_stats_get(exchange->all->server->scheduler, &stats);
        wait_ms = retry_after_ms(stats.waiting, stats.sequences_per_second);
        (void)snprintf(seconds, sizeof seconds, "%u", (wait_ms + 999) / 1000);
        (void)snprintf(ms, sizeof ms, "%u", wait_ms);
        headers[n++] = (struct http_header){"Retry-After", seconds};
        headers[n++] = (struct http_header){"retry-after-ms", ms};
    }
    if (exchange->close_after)
        headers[n++] = (struct http_header){"Connection", "close"};
    headers[n] = (struct http_header){NULL, NULL};
    exchange->state = EXCHANGE_ANSWERED;
    exchange->status = status;
    http_answer(exchange->http, status, headers, &exchange->out);
}

void exchange_answer_error(struct exchange *exchange, const struct api_error *error)
{
    buf_reset(&exchange->out);
    api_error_body(error, &exchange->out);
    exchange_answer(exchange, api_error_status(error->kind), "application/json");
}

static void refuse_method(struct exchange *exchange, const char *method)
{
    api_error_set(&exchange->refusal, API_METHOD_NOT_ALLOWED, "",
                  "The method %.16s is not allowed for %.128s; allowed: %s.", method,
                  exchange->path, exchange->route->allow);
}

/* What the framing, the path and the method say. */
static void check_target(struct exchange *exchange)
{
    struct api_error *refusal = &exchange->refusal;
    const char *method = http_method(exchange->http);

    switch (http_framing(exchange->http)) {
    case HTTP_FRAMING_GOOD:
        break;
    case HTTP_FRAMING_AMBIGUOUS:
        exchange->close_after = true;
        api_error_set(refusal, API_BAD_REQUEST, "",
                      "The request's length is ambiguous: give one Content-Length or "
                      "Transfer-Encoding: chunked, not both and none twice.");
        return;
    case HTTP_FRAMING_MALFORMED:
        exchange->close_after = true;
        api_error_set(refusal, API_BAD_REQUEST, "",
                      "The headers are malformed: a name is letters, digits and hyphens with the "
                      "colon right after it, and Host comes once.");
        return;
    case HTTP_FRAMING_UNKNOWN:
        exchange->close_after = true;
        api_error_set(refusal, API_NOT_IMPLEMENTED, "",
                      "The only transfer coding that is understood is \"chunked\".");
        return;
    }
    if (strcmp(method, "OPTIONS") == 0)
        return;
    if (!exchange->route)
        api_error_set(refusal, API_NOT_FOUND, "", "There is nothing at %.160s.", exchange->path);
    else if (exchange->route->get ? strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0
                                  : strcmp(method, "POST") != 0)
        refuse_method(exchange, method);
}

static void refuse_unready(struct exchange *exchange)
{
    exchange->close_after = true;
    api_error_set(&exchange->refusal, API_UNAVAILABLE, "",
                  "This server takes no more requests: %s. Try again.",
                  server_unready(exchange->all->server));
}

/* What the headers of a body say. */
static void check_body_headers(struct exchange *exchange)
{
    struct server *server = exchange->all->server;
    struct api_error *refusal = &exchange->refusal;
    uint64_t bytes = http_body_bytes(exchange->http);
    enum content_type type = content_type_read(http_header(exchange->http, "Content-Type"));

    if (bytes != UINT64_MAX && bytes > server->options.body_bytes_max) {
        api_error_set(refusal, API_TOO_LARGE, "",
                      "The body has %" PRIu64 " bytes, and at most %" PRIu64 " are taken.", bytes,
                      server->options.body_bytes_max);
        return;
    }
    if (!exchange->route || exchange->route->get || strcmp(http_method(exchange->http), "POST"))
        return;
    if (server->phase == SERVER_REFUSING)
        refuse_unready(exchange);
    else if (!content_encoding_plain(http_header(exchange->http, "Content-Encoding")))
        api_error_set(refusal, API_UNSUPPORTED_MEDIA, "",
                      "A body with a Content-Encoding is not taken: send it uncompressed.");
    else if (type == CONTENT_TYPE_OTHER ||
             (type == CONTENT_TYPE_FORM && server->options.strict_content_type))
        api_error_set(refusal, API_BAD_REQUEST, "", "The Content-Type must be application/json.");
}

/* An answer before the body ends the connection, so it is for bodies that are not worth reading. */
static bool refuse_now(const struct exchange *exchange)
{
    uint64_t bytes = http_body_bytes(exchange->http);
    const char *expect = http_header(exchange->http, "Expect");

    if (exchange->close_after)
        return true;
    if (bytes == UINT64_MAX || bytes == 0)
        return false;
    return bytes > REFUSED_BODY_BYTES_MAX || (expect && !strcasecmp(expect, "100-continue"));
}

static void *on_begin(void *data, struct http_request *http)
{
    struct exchanges *all = data;
    struct server *server = all->server;
    struct exchange *exchange = calloc(1, sizeof *exchange);

    if (!exchange)
        return NULL;
    exchange->id = ids_take(all->ids, exchange);
    if (!exchange->id) {
        free(exchange);
        return NULL;
    }
    exchange->all = all;
    exchange->http = http;
    exchange->arrived_ns = clock_now();
    exchange->route = route_find(http_path(http), &exchange->rest);
    buf_init(&exchange->out, EXCHANGE_ANSWER_BYTES_MAX);
    (void)snprintf(exchange->method, sizeof exchange->method, "%s", http_method(http));
    (void)snprintf(exchange->path, sizeof exchange->path, "%s", http_path(http));
    take_request_id(exchange);

    check_target(exchange);
    if (exchange->refusal.kind == API_OK)
        check_body_headers(exchange);
    if (exchange->refusal.kind == API_OK && exchange->route && !exchange->route->get) {
        exchange->job = prepare_job_open(server->options.body_bytes_max + 1);
        if (!exchange->job)
            api_error_set(&exchange->refusal, API_UNAVAILABLE, "", "The server is out of memory.");
    }
    if (exchange->refusal.kind != API_OK && refuse_now(exchange))
        exchange_answer_error(exchange, &exchange->refusal);
    return exchange;
}

static void drop_body(struct exchange *exchange)
{
    if (!exchange->job)
        return;
    exchange->all->bodies_bytes -= exchange->job->body.bytes;
    prepare_job_close(exchange->job);
    exchange->job = NULL;
}

static void on_body(void *data, const char *bytes, size_t count)
{
    struct exchange *exchange = data;
    struct exchanges *all = exchange->all;
    struct server_options *options = &all->server->options;

    exchange->body_bytes += count;
    if (exchange->body_bytes > options->body_bytes_max) {
        /* The answer can only be given at the end of the body, so the rest is read and thrown away.
         */
        drop_body(exchange);
        if (exchange->refusal.kind == API_OK)
            api_error_set(&exchange->refusal, API_TOO_LARGE, "",
                          "The body has more than the %" PRIu64 " bytes that are taken.",
                          options->body_bytes_max);
        if (exchange->body_bytes > SWALLOWED_BODIES_MAX * options->body_bytes_max)
            http_cut(exchange->http);
        return;
    }
    if (!exchange->job)
        return;
    if (all->bodies_bytes + count <= options->bodies_bytes_max)
        buf_put(&exchange->job->body, bytes, count);
    if (exchange->job->body.bytes != exchange->body_bytes) {
        api_error_set(&exchange->refusal, API_UNAVAILABLE, "",
                      "The server holds as many request bodies as it can.");
        drop_body(exchange);
        return;
    }
    all->bodies_bytes += count;
}

static void answer_page(struct exchange *exchange)
{
    struct page page = {.content_type = "application/json", .body = &exchange->out};

    exchange->route->get(exchange->all->server, exchange->rest, &page);
    if (page.error.kind == API_OK && buf_failed(&exchange->out))
        api_error_set(&page.error, API_INTERNAL, "", "The answer could not be built.");
    if (page.error.kind == API_OK)
        exchange_answer(exchange, 200, page.content_type);
    else
        exchange_answer_error(exchange, &page.error);
}

static void on_ready(void *data)
{
    struct exchange *exchange = data;
    const struct buf *body = exchange->job ? &exchange->job->body : NULL;

    if (body &&
        content_type_read(http_header(exchange->http, "Content-Type")) == CONTENT_TYPE_FORM &&
        !body_looks_like_json(buf_string(body), body->bytes))
        api_error_set(&exchange->refusal, API_BAD_REQUEST, "",
                      "The body must be a JSON object, with the Content-Type application/json.");
    if (body && exchange->all->server->phase == SERVER_REFUSING)
        refuse_unready(exchange);
    if (exchange->refusal.kind != API_OK)
        exchange_answer_error(exchange, &exchange->refusal);
    else if (strcmp(exchange->method, "OPTIONS") == 0)
        exchange_answer(exchange, 204, NULL);
    else if (exchange->route->get)
        answer_page(exchange);
    else
        exchange_prepare(exchange);
}

static void on_gone(void *data)
{
    struct exchange *exchange = data;

    exchange->gone = true;
    exchange_cancel(exchange);
}

static void on_done(void *data, bool sent)
{
    struct exchange *exchange = data;

    exchange->http = NULL;
    exchange->rest = NULL;
    if (!sent) {
        exchange->gone = true;
        exchange_cancel(exchange);
    }
    exchange_settle(exchange);
}

struct http_hooks exchanges_hooks(struct exchanges *exchanges)
{
    return (struct http_hooks){.data = exchanges,
                               .begin = on_begin,
                               .body = on_body,
                               .ready = on_ready,
                               .gone = on_gone,
                               .done = on_done};
}

/* The exchange's line in the log, and its place in the counters. */
static void record(struct exchange *exchange)
{
    struct server *server = exchange->all->server;
    int status = exchange->status && !exchange->gone ? exchange->status : STATUS_CLIENT_CLOSED;
    double seconds = clock_seconds(clock_now() - exchange->arrived_ns);
    struct log_field fields[LOG_FIELDS_MAX];
    struct reply_summary summary;
    unsigned n = 0;

    metrics_http(server->metrics, exchange->route ? exchange->route->label : "other",
                 exchange->method, status, seconds);
    fields[n++] = LOG_STR("request", exchange->request_id);
    fields[n++] = LOG_STR("method", exchange->method);
    fields[n++] = LOG_STR("path", exchange->path);
    fields[n++] = LOG_INT("status", status);
    fields[n++] = LOG_REAL("ms", seconds * 1e3);
    if (exchange->reply) {
        reply_summary_get(exchange->reply, &summary);
        metrics_request(server->metrics, &summary, seconds);
        fields[n++] = LOG_INT("prompt_tokens", summary.prompt_tokens);
        fields[n++] = LOG_INT("generated_tokens", summary.generated_tokens);
        if (strcmp(summary.finish, "error") != 0) { /* else the scheduler told no times */
            fields[n++] = LOG_REAL("queue_ms", (double)summary.queued_ns * 1e-6);
            fields[n++] = LOG_REAL("prefill_ms", (double)summary.prefill_ns * 1e-6);
            fields[n++] = LOG_REAL("decode_ms", (double)summary.decode_ns * 1e-6);
        }
        fields[n++] = LOG_STR("finish", summary.finish);
    }
    fields[n] = (struct log_field){.key = NULL};
    log_write(exchange->route && exchange->route->quiet ? LOG_DEBUG : LOG_INFO, "request", fields);
}

static void exchange_free(struct exchange *exchange)
{
    drop_body(exchange);
    ids_drop(exchange->all->ids, exchange->id);
    if (exchange->cancel_all || exchange->cancels)
        exchange->all->cancels_pending--;
    reply_close(exchange->reply);
    buf_fini(&exchange->out);
    free(exchange);
}

void exchange_settle(struct exchange *exchange)
{
    if (exchange->http || (exchange->submitted && !exchange->ended))
        return;
    record(exchange);
    exchange_free(exchange);
}

int exchanges_open(struct server *server, uint32_t count_max, struct exchanges **ret_exchanges,
                   struct fault *fault)
{
    struct exchanges *exchanges = calloc(1, sizeof *exchanges);

    if (!exchanges || ids_open(count_max, &exchanges->ids) < 0) {
        free(exchanges);
        return fault_set(fault, E_MEMORY, "no memory for %u exchanges", count_max);
    }
    exchanges->server = server;
    if (getrandom(exchanges->id_seed, sizeof exchanges->id_seed, 0) < 0)
        exchanges->id_seed[0] = clock_now(); /* ids need to differ, not to be secret */
    *ret_exchanges = exchanges;
    return 0;
}

void exchanges_close(struct exchanges *exchanges)
{
    struct exchange *exchange;
    uint32_t cursor = 0;

    if (!exchanges)
        return;
    while ((exchange = ids_next(exchanges->ids, &cursor)))
        exchange_free(exchange);
    ids_close(exchanges->ids);
    free(exchanges);
}

uint32_t exchanges_count(const struct exchanges *exchanges)
{
    return ids_count(exchanges->ids);
}
