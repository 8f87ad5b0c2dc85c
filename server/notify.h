/* notify.h -- tells a supervisor how far we are: one datagram to $NOTIFY_SOCKET (sd_notify(3)).
 *
 * Without that variable nothing happens; a supervisor that cannot be reached is not our trouble. */
#ifndef WEFT_NOTIFY_H
#define WEFT_NOTIFY_H

/* "READY=1" or "STOPPING=1". */
void notify_supervisor(const char *state);

#endif
