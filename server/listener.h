/* listener.h -- the listening socket: taken early, opened late.
 *
 * Binding comes first thing at start, so that a port in use is said at once and not after the model
 * is read; listening comes last, so that clients are refused rather than left waiting while it is
 * read. */
#ifndef WEFT_LISTENER_H
#define WEFT_LISTENER_H

#include <stdint.h>

#include "config/base/fault.h"

struct listener {
    int fd;
    uint16_t port;      /* the real one, also when 0 was asked */
    char address[80];   /* "127.0.0.1:8000", "[::1]:8000": as bound */
    char reachable[80]; /* the same where a wildcard is replaced by this machine's loopback */
};

/* `host` is a name or an address. Faults name the address and, for a port in use, what to do. */
int listener_init(const char *host, uint16_t port, struct listener *ret_listener,
                  struct fault *fault);
int listener_listen(struct listener *listener, struct fault *fault);
/* The descriptor now belongs to somebody else. */
int listener_take(struct listener *listener);
void listener_fini(struct listener *listener);

#endif
