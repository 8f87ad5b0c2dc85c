/* listener.c -- see listener.h. */
#include "server/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static int bind_one(const struct addrinfo *info)
{
    int on = 1;
    int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r;

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0)
        return fd;
    r = -errno;
    (void)close(fd);
    return r;
}

static void name_address(struct listener *listener)
{
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof bound;
    const char *loopback = "";
    char host[64] = "?", port[8] = "0";
    bool six;

    (void)getsockname(listener->fd, (struct sockaddr *)&bound, &bytes);
    (void)getnameinfo((struct sockaddr *)&bound, bytes, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
    six = bound.ss_family == AF_INET6;
    listener->port = ntohs(six ? ((struct sockaddr_in6 *)&bound)->sin6_port
                               : ((struct sockaddr_in *)&bound)->sin_port);
    (void)snprintf(listener->address, sizeof listener->address, six ? "[%s]:%s" : "%s:%s", host,
                   port);
    if (strcmp(host, "0.0.0.0") == 0)
        loopback = "127.0.0.1";
    else if (strcmp(host, "::") == 0)
        loopback = "::1";
    (void)snprintf(listener->reachable, sizeof listener->reachable, six ? "[%s]:%s" : "%s:%s",
                   *loopback ? loopback : host, port);
}

int listener_init(const char *host, uint16_t port, struct listener *ret_listener,
                  struct fault *fault)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char service[8];
    int fd, r;

    (void)snprintf(service, sizeof service, "%u", port);
    r = getaddrinfo(host, service, &hints, &found);
    if (r != 0)
        return fault_set(fault, E_INVALID, "cannot resolve the host \"%.100s\": %s", host,
                         gai_strerror(r));
    fd = -EADDRNOTAVAIL;
    for (struct addrinfo *info = found; info && fd < 0; info = info->ai_next)
        fd = bind_one(info);
    freeaddrinfo(found);
    if (fd == -EADDRINUSE)
        return fault_set(fault, fd,
                         "%.100s port %u is in use by another program: choose another with --port "
                         "(0 takes a free one)",
                         host, port);
    if (fd < 0)
        return fault_set(fault, fd, "cannot listen on %.100s port %u: %s", host, port,
                         strerror(-fd));
    *ret_listener = (struct listener){.fd = fd};
    name_address(ret_listener);
    return 0;
}

int listener_listen(struct listener *listener, struct fault *fault)
{
    if (listen(listener->fd, BACKLOG) < 0)
        return fault_errno(fault, "cannot listen on %s", listener->address);
    return 0;
}

int listener_take(struct listener *listener)
{
    int fd = listener->fd;

    listener->fd = -1;
    return fd;
}

void listener_fini(struct listener *listener)
{
    if (listener->fd >= 0)
        (void)close(listener->fd);
    listener->fd = -1;
}
