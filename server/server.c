/* server.c -- what happens once per turn, once per second, and on a signal. */
#include "server/server.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "config/base/clock.h"
#include "config/base/log.h"
#include "server/exchange.h"
#include "server/notify.h"

/* For error events and answers to reach their clients at the very end. */
#define LAST_WORDS_NS UINT64_C(5000000000)
#define NS_PER_MS     UINT64_C(1000000)

static void refuse(struct server *server, uint64_t timeout_ns)
{
    server->phase = SERVER_REFUSING;
    server->phase_deadline_ns = clock_now() + timeout_ns;
    http_drain(server->http);
}

static void leave(struct server *server)
{
    server->phase = SERVER_LEAVING;
    server->phase_deadline_ns = clock_now() + server->options.drain_delay_ns;
    if (server->options.drain_delay_ns == 0)
        refuse(server, server->options.drain_timeout_ns);
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
              LOG_REAL("delay_seconds", clock_seconds(server->options.drain_delay_ns)),
              LOG_REAL("timeout_seconds", clock_seconds(server->options.drain_timeout_ns)));
    notify_supervisor("STOPPING=1");
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
    server->timed_out = true; /* the scheduler has ended everybody */
    refuse(server, LAST_WORDS_NS);
}

/* Returns the milliseconds until it must be called again, -1 for never. */
static int64_t check_phase(struct server *server)
{
    uint64_t now_ns = clock_now();

    if (server->phase == SERVER_SERVING)
        return -1;
    if (server->phase == SERVER_REFUSING && exchanges_count(server->exchanges) == 0) {
        loop_stop(server->loop);
        return 0;
    }
    if (now_ns < server->phase_deadline_ns)
        return (int64_t)((server->phase_deadline_ns - now_ns) / NS_PER_MS) + 1;
    if (server->phase == SERVER_LEAVING) {
        refuse(server, server->options.drain_timeout_ns);
    } else if (!server->timed_out) {
        log_event(LOG_WARN, "drain_timeout",
                  LOG_INT("exchanges", exchanges_count(server->exchanges)));
        server->timed_out = true;
        server->phase_deadline_ns = now_ns + LAST_WORDS_NS;
        exchanges_abandon(server->exchanges);
    } else {
        loop_stop(server->loop);
    }
    return 0;
}

static void on_bell(void *data)
{
    struct server *server = data;

    exchanges_bell(server->exchanges);
    check_device(server);
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
    int64_t phase_ms = check_phase(server); /* after: the last exchange may just have ended */

    return phase_ms >= 0 && (ms < 0 || phase_ms < ms) ? phase_ms : ms;
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
