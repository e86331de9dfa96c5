#include "loadgen/connect.h"

#include "loadgen/loadgen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_SECONDS_MAX 5
#define TALK_SECONDS_MAX    10

static void set_timeouts(int fd, int seconds)
{
    struct timeval limit = {.tv_sec = seconds};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int connect_address(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    set_timeouts(fd, CONNECT_SECONDS_MAX);
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        int why = errno;
        close(fd);
        errno = why;
        return -1;
    }
    set_timeouts(fd, TALK_SECONDS_MAX);
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* Where BBR is the default it paces with timers, which loopback does not need. */
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    return fd;
}

int loadgen_connect(const struct loadgen_config *config, char *error, size_t error_size)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int failed = getaddrinfo(config->host, config->port, &hints, &found);
    if (failed) {
        snprintf(error, error_size, "%s: %s", config->host, gai_strerror(failed));
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
        fd = connect_address(a);
    if (fd < 0)
        snprintf(error, error_size, "cannot connect to %s port %s: %s", config->host, config->port,
                 errno == EINPROGRESS ? "no answer" : strerror(errno));
    freeaddrinfo(found);
    return fd;
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

bool loadgen_talk(int fd, const char *request, size_t request_len, loadgen_complete_fn *complete,
                  struct buf *reply)
{
    buf_clear(reply);
    if (!send_all(fd, request, request_len))
        return false;
    size_t whole = LOADGEN_MORE;
    while (whole == LOADGEN_MORE) {
        buf_reserve(reply, 4096);
        ssize_t n = recv(fd, reply->data + reply->len, 4096, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        reply->len += (size_t)n;
        whole = complete(reply->data, reply->len);
    }
    return whole != LOADGEN_GARBAGE;
}

bool loadgen_files_reserve(uint32_t files)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return true;
    if (limit.rlim_cur >= files)
        return true;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= files;
}
