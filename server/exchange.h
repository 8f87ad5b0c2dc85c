/* exchange.h -- one HTTP exchange: a request and its answer, from the first header to the last
 * byte.
 *
 *     READING ----> PREPARING ----> WAITING ----> STREAMING ----> ANSWERED
 *     headers, body  prepare.c      scheduler      headers sent    nothing more to say
 *        \________________\______________\__________________________^   errors, whole answers
 *
 * An exchange is named by an id everywhere outside the loop thread: prepare jobs and events carry
 * it, and find nobody when the exchange is gone. It lives until libmicrohttpd is done with it *and*
 * the last event has come, so the sequences of a client that left are counted to their end. Owner
 * and only thread: loop. */
#ifndef WEFT_EXCHANGE_H
#define WEFT_EXCHANGE_H

#include <stdint.h>

#include "config/base/fault.h"
#include "server/http.h"
#include "server/server.h"

struct exchanges;

/* `count_max` exchanges at once; more get dropped connections. */
int exchanges_open(struct server *server, uint32_t count_max, struct exchanges **ret_exchanges,
                   struct fault *fault);
/* After http_close() and scheduler_close(). NULL is fine. */
void exchanges_close(struct exchanges *exchanges);

/* What http_open() needs; `data` is the exchanges. */
struct http_hooks exchanges_hooks(struct exchanges *exchanges);
/* Takes what the prepare threads and the scheduler have ready. */
void exchanges_bell(struct exchanges *exchanges);
/* Once a second: heartbeats of quiet streams. */
void exchanges_tick(struct exchanges *exchanges);
/* Ends everything that runs: streams with an error event, the others with 503. */
void exchanges_abandon(struct exchanges *exchanges);
uint32_t exchanges_count(const struct exchanges *exchanges);

#endif
