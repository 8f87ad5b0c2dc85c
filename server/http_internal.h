/* http_internal.h -- what http.c (daemon, connections) and http_request.c (requests) share. */
#ifndef WEFT_HTTP_INTERNAL_H
#define WEFT_HTTP_INTERNAL_H

#include <microhttpd.h>

#include "server/http.h"

/* One TCP connection, from accept to close. */
struct http_connection {
    struct http_connection *next;
    struct http_connection *before;
    struct http *http;
    int fd;
    uint64_t deadline_ns;         /* cut when passed; UINT64_MAX: a request is in hand */
    struct loop_watch *watch;     /* tells when the client leaves; NULL: it has */
    struct http_request *request; /* in hand, or NULL */
};

struct http {
    struct http_options options;
    struct loop *loop;
    struct MHD_Daemon *daemon;
    struct loop_watch *watch; /* of the daemon's epoll descriptor */
    bool work;                /* something happened: run the daemon this turn */
    bool closed;              /* a connection closed in this run: run again (http_pump says why) */
    bool draining;
    bool closing; /* http_close(): no request may go to sleep any more */
    struct http_request *requests;
    struct http_connection *connections;
};

struct http_request {
    struct http_request *next;
    struct http_request *before;
    struct http *http;
    struct http_connection *connection;
    struct MHD_Connection *mhd;
    void *exchange;
    const char *method;
    const char *path;
    struct MHD_Response *response; /* answered, not yet queued */
    int status;
    struct buf *out; /* of a stream */
    bool streams;
    bool old;    /* HTTP/1.0 */
    bool ready;  /* the body is read */
    bool parked; /* suspended: libmicrohttpd must not be told to resume anything else */
    bool ended;
    bool cut;
    bool watched; /* a client that leaves ends it */
    bool gone;
};

enum MHD_Result http_on_access(void *data, struct MHD_Connection *connection, const char *path,
                               const char *method, const char *version, const char *upload,
                               size_t *upload_bytes, void **request);
void http_on_completed(void *data, struct MHD_Connection *connection, void **request,
                       enum MHD_RequestTerminationCode why);
void http_wake(struct http_request *request); /* resumes it if it is parked */
void http_on_hang_up(void *connection);

#endif
