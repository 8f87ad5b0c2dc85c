/* http_request.c -- one request on libmicrohttpd's side: from its headers to its last byte.
 *
 * libmicrohttpd calls http_on_access() when the headers are read, for each piece of the body, and
 * when the request is whole; the answer can be queued in the first and the last of these only. So
 * an answer that is not there yet parks the connection (suspends it), and http_wake() resumes it:
 * the handler is then called again and queues. A stream's reader parks and is woken the same way,
 * once per turn at most.
 *
 * `parked` guards every resume: resuming what is not suspended would cancel the next suspension. */
#include "server/http_internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "config/base/clock.h"

enum {
    BODY_GRACE_SECONDS = 60,
    BODY_BYTES_PER_SECOND_MIN = 16384, /* a body slower than this after the grace is cut */
    READER_BLOCK_BYTES = 1024, /* only memory: a piece may be as large as the connection's pool */
};

#define NS_PER_SECOND UINT64_C(1000000000)

/* The daemon reads, or writes to a full socket, only when an edge tells it to, and an end that came
 * together with the last bytes gives none: shutting down is one. Without a request that is for
 * http_tick(): what the client sent before is read first, and answered if that needs no waiting. */
void http_on_hang_up(void *data)
{
    struct http_connection *connection = data;
    struct http_request *request = connection->request;

    loop_unwatch(connection->watch);
    connection->watch = NULL;
    connection->http->work = true;
    if (!request || !request->watched)
        return;
    request->gone = true;
    if (!request->parked)
        (void)shutdown(connection->fd, SHUT_RDWR);
    connection->http->options.hooks.gone(request->exchange);
    http_wake(request);
}

/* From here on the request is worth nothing without its client. */
static void watch_client(struct http_request *request)
{
    request->watched = true;
    request->gone = request->gone || !request->connection->watch;
}

static enum MHD_Result queue_answer(struct http_request *request)
{
    struct MHD_Response *response = request->response;
    enum MHD_Result r;

    request->response = NULL;
    r = MHD_queue_response(request->mhd, (unsigned)request->status, response);
    MHD_destroy_response(response); /* the queue holds its own reference */
    return r;
}

static enum MHD_Result settle(struct http_request *request)
{
    if (request->cut || request->gone || request->http->closing)
        return MHD_NO;
    if (request->response) {
        if (request->streams)
            watch_client(request);
        return request->gone ? MHD_NO : queue_answer(request);
    }
    watch_client(request);
    if (request->gone)
        return MHD_NO;
    request->parked = true;
    MHD_suspend_connection(request->mhd);
    return MHD_YES;
}

/* "http://host/path", as clients send it through proxies, is "/path" (RFC 9112 section 3.2.2). */
static const char *origin_form(const char *target)
{
    size_t scheme = !strncasecmp(target, "http://", 7)    ? 7
                    : !strncasecmp(target, "https://", 8) ? 8
                                                          : 0;

    if (scheme == 0)
        return target;
    target += scheme + strcspn(target + scheme, "/");
    return *target ? target : "/";
}

static enum MHD_Result begin(struct http *http, struct MHD_Connection *mhd, const char *path,
                             const char *method, const char *version, void **ret_request)
{
    struct http_connection *connection =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct http_request *request;

    if (!connection)
        return MHD_NO;
    request = calloc(1, sizeof *request);
    if (!request)
        return MHD_NO;
    request->http = http;
    request->connection = connection;
    request->mhd = mhd;
    request->method = method;
    request->path = origin_form(path);
    request->old = strcmp(version, MHD_HTTP_VERSION_1_1) != 0;
    request->next = http->requests;
    if (request->next)
        request->next->before = request;
    http->requests = request;
    connection->request = request;
    connection->deadline_ns = clock_now() + BODY_GRACE_SECONDS * NS_PER_SECOND;
    *ret_request = request;

    request->exchange = http->options.hooks.begin(http->options.hooks.data, request);
    if (!request->exchange)
        return MHD_NO;
    if (request->response)
        return queue_answer(request);
    if (http_body_bytes(request) > 0)
        watch_client(request);
    return request->cut || request->gone ? MHD_NO : MHD_YES;
}

enum MHD_Result http_on_access(void *data, struct MHD_Connection *connection, const char *path,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **ret_request)
{
    struct http *http = data;
    struct http_request *request = *ret_request;

    if (!request)
        return begin(http, connection, path, method, version, ret_request);
    if (*upload_bytes) {
        http->options.hooks.body(request->exchange, upload, *upload_bytes);
        request->connection->deadline_ns +=
            *upload_bytes * NS_PER_SECOND / BODY_BYTES_PER_SECOND_MIN;
        *upload_bytes = 0;
        return request->cut ? MHD_NO : MHD_YES;
    }
    if (!request->ready) {
        request->ready = true;
        request->connection->deadline_ns = UINT64_MAX;
        http->options.hooks.ready(request->exchange);
    }
    return settle(request);
}

void http_on_completed(void *data, struct MHD_Connection *connection, void **ret_request,
                       enum MHD_RequestTerminationCode why)
{
    struct http *http = data;
    struct http_request *request = *ret_request;

    (void)connection;
    if (!request)
        return;
    *ret_request = NULL;
    if (request->response)
        MHD_destroy_response(request->response);
    request->connection->request = NULL;
    /* The next request has the idle time to begin and then the header time to come. */
    request->connection->deadline_ns = clock_now() +
                                       http->options.idle_timeout_seconds * NS_PER_SECOND +
                                       http->options.header_timeout_ns;
    if (request->exchange)
        http->options.hooks.done(request->exchange, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (request->next)
        request->next->before = request->before;
    if (request->before)
        request->before->next = request->next;
    else
        http->requests = request->next;
    free(request);
}

void http_wake(struct http_request *request)
{
    if (!request->parked)
        return;
    request->parked = false;
    MHD_resume_connection(request->mhd);
    request->http->work = true;
}

/* How much of `out` fits without cutting an event in two; proxies and clients like whole ones. */
static size_t whole_events(const struct buf *out, size_t room)
{
    if (out->bytes <= room)
        return out->bytes;
    for (size_t n = room; n >= 2; n--) {
        if (out->data[n - 1] == '\n' && out->data[n - 2] == '\n')
            return n;
    }
    return room;
}

static ssize_t on_read(void *data, uint64_t position, char *to, size_t room)
{
    struct http_request *request = data;
    struct buf *out = request->out;
    size_t n;

    (void)position;
    if (request->cut || request->gone || request->http->closing)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (out->bytes) {
        n = whole_events(out, room);
        memcpy(to, out->data, n);
        buf_drop(out, n);
        return (ssize_t)n;
    }
    if (request->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    request->parked = true;
    MHD_suspend_connection(request->mhd);
    return 0;
}

/* Takes the response over, or cuts the connection when there was no memory for it. */
static void give(struct http_request *request, struct MHD_Response *response, int status,
                 const struct http_header *headers)
{
    bool made = response != NULL;

    must(!request->response);
    for (const struct http_header *h = headers; made && h->name; h++)
        made = MHD_add_response_header(response, h->name, h->value) == MHD_YES;
    if (made && request->http->draining)
        made = MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES;
    if (!made) {
        if (response)
            MHD_destroy_response(response);
        http_cut(request);
        return;
    }
    request->response = response;
    request->status = status;
    http_wake(request);
}

void http_answer(struct http_request *request, int status, const struct http_header *headers,
                 const struct buf *body)
{
    give(request, MHD_create_response_from_buffer(body->bytes, body->data, MHD_RESPMEM_PERSISTENT),
         status, headers);
}

void http_stream(struct http_request *request, int status, const struct http_header *headers,
                 struct buf *out)
{
    request->out = out;
    request->streams = true;
    give(request,
         MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, READER_BLOCK_BYTES, on_read, request,
                                           NULL),
         status, headers);
}

void http_stream_wake(struct http_request *request)
{
    http_wake(request);
}

void http_stream_end(struct http_request *request)
{
    request->ended = true;
    http_wake(request);
}

void http_cut(struct http_request *request)
{
    request->cut = true;
    http_wake(request);
}

const char *http_method(const struct http_request *request)
{
    return request->method;
}

const char *http_path(const struct http_request *request)
{
    return request->path;
}

const char *http_header(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->mhd, MHD_HEADER_KIND, name);
}

struct framing {
    unsigned hosts;
    unsigned lengths;
    unsigned codings;
    bool chunked;
    bool misnamed;
};

/* A name is a token (RFC 9110 section 5.6.2). The library keeps "Content-Length " as a name of its
 * own, where a proxy may have read a length. */
static bool is_token(const char *name)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    const char *c = name;

    while ((*c >= '0' && *c <= '9') || (*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') ||
           (*c && strchr(others, *c)))
        c++;
    return c > name && !*c;
}

static enum MHD_Result count_framing(void *data, enum MHD_ValueKind kind, const char *name,
                                     const char *value)
{
    struct framing *framing = data;

    (void)kind;
    framing->misnamed = framing->misnamed || !is_token(name);
    if (!strcasecmp(name, MHD_HTTP_HEADER_HOST))
        framing->hosts++;
    if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH))
        framing->lengths++;
    if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) {
        framing->codings++;
        framing->chunked = value && !strcasecmp(value, "chunked");
    }
    return MHD_YES;
}

static struct framing framing_of(const struct http_request *request)
{
    struct framing framing = {0};

    (void)MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, count_framing, &framing);
    return framing;
}

uint64_t http_body_bytes(const struct http_request *request)
{
    const char *length;
    unsigned long long bytes;
    struct framing framing = framing_of(request);

    if (framing.codings)
        return UINT64_MAX;
    if (!framing.lengths)
        return 0;
    length = http_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    /* libmicrohttpd has refused what is no number */
    bytes = length ? strtoull(length, NULL, 10) : 0;
    return bytes < UINT64_MAX ? bytes : UINT64_MAX - 1;
}

enum http_framing http_framing(const struct http_request *request)
{
    struct framing framing = framing_of(request);

    if (framing.misnamed || framing.hosts > 1)
        return HTTP_FRAMING_MALFORMED;
    if (framing.lengths > 1 || framing.codings > 1 || (framing.lengths && framing.codings))
        return HTTP_FRAMING_AMBIGUOUS;
    if (framing.codings && request->old)
        return HTTP_FRAMING_AMBIGUOUS;
    if (framing.codings && !framing.chunked)
        return HTTP_FRAMING_UNKNOWN;
    return HTTP_FRAMING_GOOD;
}
