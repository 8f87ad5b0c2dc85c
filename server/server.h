/* server.h -- what the files of the HTTP side share: one struct, owned by command_serve.c, touched
 * by the loop thread only.
 *
 *     SERVING --first signal--> LEAVING --drain delay--> REFUSING --last exchange, time-out--> end
 *        \------------------ the device failed ---------------^
 *
 * LEAVING: /ready says 503 so that balancers look elsewhere, requests are still taken. REFUSING:
 * new inference requests get 503 with Retry-After; what runs may finish. */
#ifndef WEFT_SERVER_H
#define WEFT_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "config/base/fault.h"
#include "scheduler/scheduler.h"
#include "server/http.h"
#include "server/loop.h"
#include "server/metrics.h"
#include "server/openai.h"
#include "server/prepare.h"

enum server_phase { SERVER_SERVING, SERVER_LEAVING, SERVER_REFUSING };

struct server_options {
    uint64_t body_bytes_max;          /* of one request */
    uint64_t bodies_bytes_max;        /* of all that are being read or prepared */
    uint64_t stream_buffer_bytes_max; /* what a client may leave unread before it is cut */
    uint64_t sse_keepalive_ns;        /* 0: no comments */
    uint64_t drain_delay_ns;
    uint64_t drain_timeout_ns;
    bool strict_content_type;
};

struct exchanges;

struct server {
    struct server_options options;
    struct openai_context openai;
    struct scheduler *scheduler;
    struct metrics *metrics;
    struct prepare *prepare;
    struct exchanges *exchanges;
    struct http *http;
    struct loop *loop;

    enum server_phase phase;
    uint64_t phase_deadline_ns; /* when LEAVING or REFUSING ends by itself */
    bool timed_out;             /* the drain's time is over and what ran was cancelled */
    int exit_code;
};

/* The hooks of the loop; `data` is the server. loop and the rest may be filled in later. */
struct loop_hooks server_hooks(struct server *server);
/* For a GET handler: the reason why this process does not want work now, NULL if it does. */
const char *server_unready(const struct server *server);

#endif
