/* loop.c -- libuv's loop, set up the way libmicrohttpd needs it.
 *
 * The `turn` hook runs in uv_prepare, after the callbacks of the turn before and before the loop
 * sleeps. An idle handle that does nothing keeps the loop awake for one turn when libmicrohttpd has
 * more to do. */
#include "server/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <uv.h>

enum { TICK_MS = 1000 };

struct loop {
    struct loop_hooks hooks;
    uv_loop_t uv;
    uv_async_t bell;
    uv_prepare_t turn;
    uv_idle_t awake;
    uv_timer_t wake_up;
    uv_timer_t tick;
    uv_signal_t terminate;
    uv_signal_t interrupt;
};

struct loop_watch {
    uv_poll_t
        poll; /* libuv gives the memory back in its own time, so a watch outlives loop_unwatch() */
    void (*seen)(void *data);
    void *data;
};

static void on_bell(uv_async_t *handle)
{
    struct loop *loop = handle->data;

    loop->hooks.bell(loop->hooks.data);
}

static void on_tick(uv_timer_t *handle)
{
    struct loop *loop = handle->data;

    loop->hooks.tick(loop->hooks.data);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct loop *loop = handle->data;

    loop->hooks.signal(loop->hooks.data, number);
}

static void on_wake_up(uv_timer_t *handle)
{
    (void)handle; /* the turn that follows is the purpose */
}

static void on_awake(uv_idle_t *handle)
{
    (void)handle;
}

static void on_turn(uv_prepare_t *handle)
{
    struct loop *loop = handle->data;
    int64_t ms = loop->hooks.turn(loop->hooks.data);

    if (ms == 0)
        (void)uv_idle_start(&loop->awake, on_awake);
    else
        (void)uv_idle_stop(&loop->awake);
    if (ms > 0)
        (void)uv_timer_start(&loop->wake_up, on_wake_up, (uint64_t)ms, 0);
    else
        (void)uv_timer_stop(&loop->wake_up);
}

static int start_handles(struct loop *loop)
{
    uv_loop_t *uv = &loop->uv;
    int r;

    /* None of the init calls but uv_async_init can fail in libuv 1.x. */
    (void)uv_prepare_init(uv, &loop->turn);
    (void)uv_idle_init(uv, &loop->awake);
    (void)uv_timer_init(uv, &loop->wake_up);
    (void)uv_timer_init(uv, &loop->tick);
    (void)uv_signal_init(uv, &loop->terminate);
    (void)uv_signal_init(uv, &loop->interrupt);
    loop->turn.data = loop->tick.data = loop->terminate.data = loop->interrupt.data = loop;
    loop->bell.data = loop;

    r = uv_async_init(uv, &loop->bell, on_bell);
    if (r == 0)
        r = uv_prepare_start(&loop->turn, on_turn);
    if (r == 0)
        r = uv_timer_start(&loop->tick, on_tick, TICK_MS, TICK_MS);
    if (r == 0)
        r = uv_signal_start(&loop->terminate, on_signal, SIGTERM);
    if (r == 0)
        r = uv_signal_start(&loop->interrupt, on_signal, SIGINT);
    return r;
}

int loop_open(const struct loop_hooks *hooks, struct loop **ret_loop, struct fault *fault)
{
    struct loop *loop = calloc(1, sizeof *loop);
    int r;

    if (!loop)
        return fault_set(fault, E_MEMORY, "no memory for the event loop");
    loop->hooks = *hooks;
    r = uv_loop_init(&loop->uv);
    if (r < 0) {
        free(loop);
        return fault_set(fault, r, "cannot start the event loop: %s", uv_strerror(r));
    }
    /* A client that left must be an error of write(2), not the end of the process. */
    (void)signal(SIGPIPE, SIG_IGN);
    r = start_handles(loop);
    if (r < 0) {
        loop_close(loop);
        return fault_set(fault, r, "cannot start the event loop: %s", uv_strerror(r));
    }
    *ret_loop = loop;
    return 0;
}

static void on_watch_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_handle(uv_handle_t *handle, void *data)
{
    (void)data;
    if (!uv_is_closing(handle))
        uv_close(handle, handle->type == UV_POLL ? on_watch_closed : NULL);
}

void loop_close(struct loop *loop)
{
    if (!loop)
        return;
    uv_walk(&loop->uv, close_handle, NULL);
    while (uv_run(&loop->uv, UV_RUN_DEFAULT) != 0)
        ;
    must(uv_loop_close(&loop->uv) == 0);
    free(loop);
}

void loop_run(struct loop *loop)
{
    (void)uv_run(&loop->uv, UV_RUN_DEFAULT);
}

void loop_stop(struct loop *loop)
{
    uv_stop(&loop->uv);
}

void loop_ring(void *loop)
{
    (void)uv_async_send(&((struct loop *)loop)->bell);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct loop_watch *watch = poll->data;

    (void)status; /* an error of the descriptor is a reason to look at it, like any event */
    (void)events;
    watch->seen(watch->data);
}

int loop_watch(struct loop *loop, int fd, enum loop_watch_kind kind, void (*seen)(void *data),
               void *data, struct loop_watch **ret_watch)
{
    struct loop_watch *watch = calloc(1, sizeof *watch);
    int r;

    if (!watch)
        return -ENOMEM;
    watch->seen = seen;
    watch->data = data;
    r = uv_poll_init(&loop->uv, &watch->poll, fd);
    if (r < 0) {
        free(watch);
        return r;
    }
    watch->poll.data = watch;
    r = uv_poll_start(&watch->poll, kind == LOOP_HANGUP ? UV_DISCONNECT : UV_READABLE, on_poll);
    if (r < 0) {
        loop_unwatch(watch);
        return r;
    }
    *ret_watch = watch;
    return 0;
}

void loop_unwatch(struct loop_watch *watch)
{
    if (watch)
        close_handle((uv_handle_t *)&watch->poll, NULL);
}
