/* exchange_internal.h -- what the two halves of an exchange share: exchange.c faces the client, and
 * exchange_events.c the prepare threads and the scheduler. */
#ifndef WEFT_EXCHANGE_INTERNAL_H
#define WEFT_EXCHANGE_INTERNAL_H

#include "config/base/buf.h"
#include "config/base/ids.h"
#include "server/exchange.h"
#include "server/limits.h"
#include "server/routes.h"

enum {
    EXCHANGE_CHOICES_MAX = 4096, /* prompts x n of one request */
    EXCHANGE_ANSWER_BYTES_MAX = 256 << 20,
};

enum exchange_state {
    EXCHANGE_READING,
    EXCHANGE_PREPARING,
    EXCHANGE_WAITING,
    EXCHANGE_STREAMING,
    EXCHANGE_ANSWERED,
};

struct exchange {
    struct exchanges *all;
    uint64_t id;
    struct http_request *http; /* NULL once libmicrohttpd is done with it */
    const struct route *route; /* NULL: no such path */
    const char *rest;          /* of the path, lent by http */
    enum exchange_state state;
    int status; /* as sent; 0 before */

    struct prepare_job *job; /* while READING */
    uint64_t body_bytes;     /* as received */
    struct buf out;          /* the answer, or what a stream's client has not read yet */
    struct reply *reply;     /* from WAITING on */

    bool gone;        /* the client left */
    bool submitted;   /* the scheduler has its request */
    bool ended;       /* ... and no event matters any more */
    bool cancel_all;  /* wanted but not yet told to the scheduler */
    bool cancelled;   /* told */
    uint32_t cancels; /* bits set in cancel_choices */
    uint64_t cancel_choices[EXCHANGE_CHOICES_MAX / 64]; /* wanted but not yet told */

    uint64_t arrived_ns;
    uint64_t written_ns;      /* when something was last appended to a stream */
    struct api_error refusal; /* decided before the body is read; API_OK: none */
    bool close_after; /* framing is in doubt: nothing more may be read from this connection */
    char method[16];
    char path[192];
    char request_id[REQUEST_ID_BYTES_MAX + 1];
};

struct exchanges {
    struct server *server;
    struct ids *ids;
    uint64_t bodies_bytes; /* held by exchanges that read or prepare */
    uint32_t cancels_pending;
    uint64_t id_seed[2]; /* of request ids we make */
    uint64_t id_count;
};

/* exchange.c */
void exchange_answer(struct exchange *exchange, int status, const char *content_type);
void exchange_answer_error(struct exchange *exchange, const struct api_error *error);
/* Frees it when both sides are done. */
void exchange_settle(struct exchange *exchange);

/* exchange_events.c */
void exchange_prepare(struct exchange *exchange);
void exchange_cancel(struct exchange *exchange);

#endif
