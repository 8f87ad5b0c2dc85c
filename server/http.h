/* http.h -- HTTP/1 as the server sees it: libmicrohttpd behind a door.
 *
 * The daemon is driven from our loop and never has a thread. A request is announced by hooks, in
 * this order:
 *
 *     begin -> body* -> ready -> (gone) -> done          all on the loop thread
 *
 * and answered once, whole or as a stream, at any moment between `begin` and `done`. An answer
 * given before `ready` is sent before the body is read, and the connection closes after it (413 and
 * its like). Between `ready` and the answer the connection sleeps; libmicrohttpd does not look at
 * it then, so a watch of ours tells when the client leaves. A client that half-closes is taken as
 * gone: FIN cannot be told from close.
 *
 * Malformed HTTP is answered by libmicrohttpd's own pages (400, 414, 431, 505: HTML); what it is
 * too lenient about (RFC 9112 section 6.3) is for the caller to refuse, see http_framing().
 *
 * Only http.c and http_request.c include microhttpd.h. */
#ifndef WEFT_HTTP_H
#define WEFT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/base/buf.h"
#include "config/base/fault.h"
#include "server/loop.h"

struct http;
struct http_request;

struct http_hooks {
    void *data;
    /* The headers are read. Returns what the hooks below are called with; NULL drops the
     * connection. */
    void *(*begin)(void *data, struct http_request *request);
    void (*body)(void *exchange, const char *bytes, size_t count);
    void (*ready)(void *exchange); /* the whole request is here */
    void (*gone)(void *exchange);  /* the client left; `done` follows soon */
    void (*done)(void *exchange,
                 bool sent); /* the last call: the request is invalid from here on */
};

struct http_options {
    int listen_fd; /* bound and listening; the daemon's from http_open() on, also when that fails */
    uint32_t connections_max;      /* further ones wait in the backlog */
    uint32_t idle_timeout_seconds; /* no byte in either direction */
    uint64_t header_timeout_ns;    /* from the first byte of a request to the end of its headers */
    struct http_hooks hooks;
};

int http_open(struct loop *loop, const struct http_options *options, struct http **ret_http,
              struct fault *fault);
/* Cuts what is still open. NULL is fine. */
void http_close(struct http *http);

/* Runs the daemon if anything happened. Returns the milliseconds until it wants to run again, 0 for
 * at once, -1 for when something happens: a loop's turn. */
int64_t http_pump(struct http *http);
/* Once a second: cuts connections whose headers or bodies dribble, or whose client has left. */
void http_tick(struct http *http);
/* From now on every answer closes its connection. */
void http_drain(struct http *http);
/* Stops listening: new connections are refused, open ones go on. */
void http_quiesce(struct http *http);

/* About a request; texts are lent until `done`. */
const char *http_method(const struct http_request *request);
const char *http_path(
    const struct http_request *request); /* percent-decoded but for %00; no query, no host */
const char *http_header(const struct http_request *request, const char *name); /* NULL: absent */
/* Content-Length, 0 without a body, UINT64_MAX for a chunked one only. */
uint64_t http_body_bytes(const struct http_request *request);

enum http_framing {
    HTTP_FRAMING_GOOD,
    HTTP_FRAMING_AMBIGUOUS, /* two lengths, a length and a coding, a coding in HTTP/1.0 */
    HTTP_FRAMING_MALFORMED, /* a header's name that is none ("Content-Length "), two hosts */
    HTTP_FRAMING_UNKNOWN,   /* a transfer coding other than "chunked" */
};
/* Whether all parties agree where this request ends. If not, answer at once; nothing after it is
 * read. */
enum http_framing http_framing(const struct http_request *request);

struct http_header {
    const char *name; /* NULL ends a list */
    const char *value;
};

/* The whole answer. `body` is lent until `done`. A HEAD request gets the headers of it. */
void http_answer(struct http_request *request, int status, const struct http_header *headers,
                 const struct buf *body);
/* The head of a stream; the body is what appears in `out`, which is lent until `done` and emptied
 * as the client reads. Pieces end at the end of an event ("\n\n") where one fits. */
void http_stream(struct http_request *request, int status, const struct http_header *headers,
                 struct buf *out);
/* Something was appended. Cheap, and any number of times per turn. */
void http_stream_wake(struct http_request *request);
/* What is in `out` is the rest. */
void http_stream_end(struct http_request *request);
/* Drops the connection as it is: the client sees that the answer is not whole. */
void http_cut(struct http_request *request);

#endif
