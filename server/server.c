/* server.c -- what happens once per turn, once per second, and on a signal. */
#include "server/server.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/exchange.h"

enum {
    LAST_WORDS_SECONDS =
        5, /* for error events and answers to reach their clients at the very end */
};

#define NS_PER_SECOND UINT64_C(1000000000)

static void refuse(struct server *server, uint32_t seconds)
{
    server->phase = SERVER_REFUSING;
    server->phase_deadline_ns = clock_now() + seconds * NS_PER_SECOND;
    http_drain(server->http);
}

static void leave(struct server *server)
{
    server->phase = SERVER_LEAVING;
    server->phase_deadline_ns = clock_now() + server->options.drain_delay_seconds * NS_PER_SECOND;
    if (server->options.drain_delay_seconds == 0)
        refuse(server, server->options.drain_timeout_seconds);
}

static void on_signal(void *data, int number)
{
    struct server *server = data;

    if (server->phase != SERVER_SERVING) {
        log_event(LOG_WARN, "killed", LOG_STR("signal", strsignal(number)),
                  LOG_INT("exchanges", exchanges_count(server->exchanges)));
        _exit(128 + number); /* "now" waits for no step, no thread and no client */
    }
    log_event(LOG_INFO, "draining", LOG_STR("signal", strsignal(number)),
              LOG_INT("exchanges", exchanges_count(server->exchanges)),
              LOG_INT("delay_seconds", server->options.drain_delay_seconds),
              LOG_INT("timeout_seconds", server->options.drain_timeout_seconds));
    leave(server);
}

/* A device error is sticky: open streams end with an error event, and the supervisor restarts us.
 */
static void check_device(struct server *server)
{
    struct scheduler_stats stats;

    if (server->exit_code != 0)
        return;
    scheduler_stats_get(server->scheduler, &stats);
    if (!stats.device_failed)
        return;
    log_event(LOG_ERROR, "device_failed", LOG_INT("exchanges", exchanges_count(server->exchanges)));
    server->exit_code = 1;
    refuse(server, LAST_WORDS_SECONDS);
}

static void check_phase(struct server *server)
{
    if (server->phase == SERVER_SERVING)
        return;
    if (server->phase == SERVER_REFUSING && exchanges_count(server->exchanges) == 0) {
        loop_stop(server->loop);
        return;
    }
    if (clock_now() < server->phase_deadline_ns)
        return;
    if (server->phase == SERVER_LEAVING) {
        refuse(server, server->options.drain_timeout_seconds);
    } else if (!server->timed_out) {
        log_event(LOG_WARN, "drain_timeout",
                  LOG_INT("exchanges", exchanges_count(server->exchanges)));
        server->timed_out = true;
        server->phase_deadline_ns = clock_now() + LAST_WORDS_SECONDS * NS_PER_SECOND;
        exchanges_abandon(server->exchanges);
    } else {
        loop_stop(server->loop);
    }
}

static void on_bell(void *data)
{
    struct server *server = data;

    exchanges_bell(server->exchanges);
}

static void on_tick(void *data)
{
    struct server *server = data;

    exchanges_tick(server->exchanges);
    http_tick(server->http);
    check_device(server);
}

static int64_t on_turn(void *data)
{
    struct server *server = data;
    int64_t ms = http_pump(server->http);

    check_phase(server);
    return ms;
}

struct loop_hooks server_hooks(struct server *server)
{
    return (struct loop_hooks){
        .data = server, .bell = on_bell, .tick = on_tick, .signal = on_signal, .turn = on_turn};
}

const char *server_unready(const struct server *server)
{
    if (server->exit_code != 0)
        return "the device failed";
    return server->phase == SERVER_SERVING ? NULL : "the server is shutting down";
}
