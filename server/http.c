/* http.c -- libmicrohttpd's daemon and its connections, driven from our loop.
 *
 * External epoll: the daemon's epoll descriptor is watched by the loop, and http_pump() is the one
 * place that runs the daemon. Three things are not automatic and hang the server when missed
 * (measured with 0.9.75):
 *
 *   - A resumed connection is not looked at until the daemon runs. Whoever resumes sets `work`.
 *   - With the connection limit reached (or no descriptor left) the daemon takes the listening
 *     socket out of its epoll set and puts it back only at the start of a later run: after each
 *     closed connection we run again.
 *   - A suspended connection is not watched at all, and one whose last bytes came together with its
 *     end is not told of the end: each connection has a watch of our own.
 *
 * The inactivity timer of the daemon starts anew with every byte, so that a byte now and then would
 * hold a connection for ever. Each connection therefore has a deadline of its own for its headers
 * and its body. */
#include "server/http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/log.h"

enum {
    RUNS_PER_TURN_MAX = 8,
    CONNECTION_POOL_BYTES = 16384, /* a header of 15.9 KB passes, 17 KB gets 431 */
};

static void on_daemon_readable(void *data)
{
    ((struct http *)data)->work = true;
}

static void __attribute__((format(printf, 2, 0)))
on_daemon_log(void *data, const char *format, va_list arguments)
{
    char line[256];

    (void)data;
    if (!log_enabled(LOG_DEBUG))
        return;
    (void)vsnprintf(line, sizeof line, format, arguments);
    line[strcspn(line, "\n")] = '\0';
    log_event(LOG_DEBUG, "libmicrohttpd", LOG_STR("message", line));
}

static void connection_open(struct http *http, struct MHD_Connection *mhd, void **context)
{
    struct http_connection *connection = calloc(1, sizeof *connection);

    *context = connection;
    if (!connection)
        return; /* http_on_access() drops requests without a connection record */
    connection->http = http;
    connection->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    connection->deadline_ns = clock_now() + http->options.header_timeout_ns;
    connection->next = http->connections;
    if (connection->next)
        connection->next->before = connection;
    http->connections = connection;
    /* Unwatched it could hold its place for ever. */
    if (loop_watch(http->loop, connection->fd, LOOP_HANGUP, http_on_hang_up, connection,
                   &connection->watch) < 0)
        (void)shutdown(connection->fd, SHUT_RDWR);
}

static void connection_close(struct http *http, struct http_connection *connection)
{
    http->closed = true;
    if (!connection)
        return;
    loop_unwatch(connection->watch); /* before the descriptor is closed and its number used again */
    if (connection->next)
        connection->next->before = connection->before;
    if (connection->before)
        connection->before->next = connection->next;
    else
        http->connections = connection->next;
    free(connection);
}

static void on_connection(void *data, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED)
        connection_open(data, mhd, context);
    else
        connection_close(data, *context);
}

/* The request line is complete: its headers have until the deadline. */
static void *on_request_line(void *data, const char *uri, struct MHD_Connection *mhd)
{
    struct http *http = data;
    struct http_connection *connection =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    uint64_t deadline_ns = clock_now() + http->options.header_timeout_ns;

    (void)uri;
    if (connection && connection->deadline_ns > deadline_ns)
        connection->deadline_ns = deadline_ns;
    return NULL;
}

static int hexadecimal(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place. The library's own would decode %00 too, and "/health%00x" would become "/health". */
static size_t percent_decode(void *data, struct MHD_Connection *mhd, char *text)
{
    char *to = text;

    (void)data;
    (void)mhd;
    for (const char *from = text; *from; to++) {
        int high = from[0] == '%' ? hexadecimal(from[1]) : -1;
        int low = high >= 0 ? hexadecimal(from[2]) : -1;

        if (low >= 0 && (high | low) != 0) {
            *to = (char)(high << 4 | low);
            from += 3;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
    return (size_t)(to - text);
}

static struct MHD_Daemon *start_daemon(struct http *http)
{
    const struct http_options *options = &http->options;

    return MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_on_access,
        http, MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        options->listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)options->connections_max,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)options->idle_timeout_seconds,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_POOL_BYTES,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_URI_LOG_CALLBACK, on_request_line, http,
        MHD_OPTION_UNESCAPE_CALLBACK, percent_decode, NULL, MHD_OPTION_END);
}

int http_open(struct loop *loop, const struct http_options *options, struct http **ret_http,
              struct fault *fault)
{
    struct http *http = calloc(1, sizeof *http);
    int r;

    if (!http) {
        (void)close(options->listen_fd);
        return fault_set(fault, E_MEMORY, "no memory for the HTTP server");
    }
    http->options = *options;
    http->loop = loop;
    http->work = true;
    http->daemon = start_daemon(http);
    if (!http->daemon) {
        (void)close(options->listen_fd);
        r = fault_set(fault, E_UNSUPPORTED, "libmicrohttpd cannot start its daemon");
        goto out;
    }
    r = loop_watch(loop, MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd,
                   LOOP_READABLE, on_daemon_readable, http, &http->watch);
    if (r < 0) {
        r = fault_set(fault, r, "cannot watch the HTTP sockets: %s", strerror(-r));
        goto out;
    }
    *ret_http = http;
    http = NULL;
out:
    http_close(http);
    return r;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    http->closing = true;
    if (http->daemon) {
        http_quiesce(http);
        /* Stopping the daemon while a connection is suspended aborts the process. Cut requests do
         * not park again, so after one run none is; those whose client does not read are left to
         * the daemon. */
        for (struct http_request *r = http->requests; r; r = r->next)
            http_cut(r);
        (void)MHD_run(http->daemon);
        for (struct http_request *r = http->requests; r; r = r->next)
            must(!r->parked);
        loop_unwatch(http->watch);
        MHD_stop_daemon(http->daemon);
    }
    free(http);
}

int64_t http_pump(struct http *http)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool timed = false;
    bool more = false;

    if (!http->work) {
        timed = MHD_get_timeout(http->daemon, &ms) == MHD_YES;
        return timed ? (int64_t)ms + 1 : -1;
    }
    http->work = false;
    for (int i = 0; i < RUNS_PER_TURN_MAX; i++) {
        http->closed = false;
        (void)MHD_run(http->daemon);
        timed = MHD_get_timeout(http->daemon, &ms) == MHD_YES;
        /* Time-out 0 means that data already read waits inside: sleeping now would never see it. */
        more = http->closed || (timed && ms == 0);
        if (!more)
            break;
    }
    if (more) {
        http->work = true;
        return 0;
    }
    return timed ? (int64_t)ms + 1 : -1;
}

void http_tick(struct http *http)
{
    uint64_t now_ns = clock_now();

    for (struct http_connection *c = http->connections; c; c = c->next) {
        if (c->deadline_ns <= now_ns) {
            c->deadline_ns = UINT64_MAX;
            (void)shutdown(c->fd, SHUT_RDWR); /* the daemon sees the end and closes it */
        } else if (!c->watch && !c->request) {
            (void)shutdown(c->fd, SHUT_RD); /* http_on_hang_up() says why */
        }
    }
    http->work = true; /* time-outs are looked at in a run */
}

void http_drain(struct http *http)
{
    http->draining = true;
}

void http_quiesce(struct http *http)
{
    MHD_socket fd = MHD_quiesce_daemon(http->daemon);

    if (fd != MHD_INVALID_SOCKET)
        (void)close(fd);
}
