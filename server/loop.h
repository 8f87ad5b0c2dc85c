/* loop.h -- the server's one event loop: libuv behind a door.
 *
 * Everything on the HTTP side happens on the thread that calls loop_run(): requests, timers,
 * signals, and what other threads announce by ringing the bell. Once per turn, just before the loop
 * would sleep, it calls `turn`, the one place where libmicrohttpd runs: whatever happened in the
 * turn is sent in one go.
 *
 *     timers -> turn (http_pump) -> sleep in epoll -> watches, bell, signals -> timers -> ...
 *
 * Only loop_ring() may be called from another thread. */
#ifndef WEFT_LOOP_H
#define WEFT_LOOP_H

#include <stdint.h>

#include "config/base/fault.h"

struct loop;
struct loop_watch;

struct loop_hooks {
    void *data;
    void (*bell)(void *data);               /* the bell rang, once or more */
    void (*tick)(void *data);               /* once a second */
    void (*signal)(void *data, int number); /* SIGTERM or SIGINT */
    int64_t (*turn)(void *data); /* returns the most milliseconds to sleep, 0 = come back at
                                    once, -1 = until something happens */
};

/* Takes SIGTERM and SIGINT over and ignores SIGPIPE until loop_close(). */
int loop_open(const struct loop_hooks *hooks, struct loop **ret_loop, struct fault *fault);
void loop_close(struct loop *loop); /* NULL is fine; watches that are left are closed too */

void loop_run(struct loop *loop);  /* until loop_stop() */
void loop_stop(struct loop *loop); /* from a hook: this turn is the last */
void loop_ring(void *loop);        /* any thread; folds: many rings may be one bell */

enum loop_watch_kind {
    LOOP_READABLE, /* level-triggered */
    LOOP_HANGUP,   /* the peer closed or half-closed; what it may have sent is left unread */
};

/* Calls `seen` whenever the descriptor is as asked. Returns 0, -ENOMEM or -errno. */
int loop_watch(struct loop *loop, int fd, enum loop_watch_kind kind, void (*seen)(void *data),
               void *data, struct loop_watch **ret_watch);
/* Must come before the descriptor is closed. No call follows. NULL is fine. */
void loop_unwatch(struct loop_watch *watch);

#endif
