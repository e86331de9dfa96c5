#include "triaged/endpoints.h"

#include "base/log.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#define ACTIVATION_FIRST_FD 3 /* as sd_listen_fds(3) has it */

static void address_put(struct buf *out, const char *address, int port)
{
    bool v6 = strchr(address, ':') != NULL;
    buf_printf(out, "%s%s%s:%d", v6 ? "[" : "", address, v6 ? "]" : "", port);
}

static void socket_put(struct buf *out, int fd)
{
    struct sockaddr_storage where = {0};
    socklen_t len = sizeof(where);
    char text[INET6_ADDRSTRLEN] = "";
    if (getsockname(fd, (struct sockaddr *)&where, &len) < 0)
        return;
    if (where.ss_family == AF_UNIX) {
        buf_printf(out, "unix:%.*s", (int)sizeof(((struct sockaddr_un *)0)->sun_path),
                   ((struct sockaddr_un *)&where)->sun_path);
        return;
    }
    const void *address = where.ss_family == AF_INET
                              ? (const void *)&((struct sockaddr_in *)&where)->sin_addr
                              : (const void *)&((struct sockaddr_in6 *)&where)->sin6_addr;
    inet_ntop(where.ss_family, address, text, sizeof(text));
    address_put(out, text, http_socket_port(fd));
}

void endpoint_name(const struct endpoint *e, struct buf *out)
{
    if (!e->wanted)
        socket_put(out, e->fd);
    else if (e->wanted->is_unix)
        buf_printf(out, "unix:%s", e->wanted->address);
    else
        address_put(out, e->wanted->address, e->port);
}

static bool endpoint_fail(const struct endpoint *e, int err)
{
    struct buf name = {0};
    bool taken = err == UV_EADDRINUSE && e->wanted && e->wanted->is_unix;
    endpoint_name(e, &name);
    log_error("cannot listen", "address=%s reason=\"%s%s\"", log_plain(buf_cstr(&name)),
              uv_strerror(err), taken ? ": a server answers there, or the file is no socket" : "");
    buf_fini(&name);
    return false;
}

static int unix_open(struct endpoint *e)
{
    struct stat file;
    int fd = http_socket_unix(e->wanted->address);
    if (fd < 0)
        return fd;
    e->fd = fd;
    if (stat(e->wanted->address, &file) == 0) {
        e->device = file.st_dev;
        e->inode = file.st_ino;
    }
    return 0;
}

static bool is_listening(int fd)
{
    int listening = 0, type = 0;
    socklen_t len = sizeof(int);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM;
}

/* The names are in one text with colons between them, in the order of the descriptors. */
static bool name_next(const char **names, const char *wanted)
{
    size_t len = strcspn(*names, ":");
    bool same = len == strlen(wanted) && strncmp(*names, wanted, len) == 0;
    *names += len + ((*names)[len] == ':');
    return same;
}

/* Takes the sockets that systemd passed, by the protocol of sd_listen_fds(3): they are for this
 * process, and for none of its children. */
static bool activated_take(struct endpoints *all)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    unsigned long count = fds ? strtoul(fds, NULL, 10) : 0;
    if (!pid || strtol(pid, NULL, 10) != (long)getpid())
        return true;
    if (count > SETTINGS_LIST_MAX) {
        log_error("too many sockets from systemd", "count=%lu most=%d", count, SETTINGS_LIST_MAX);
        return false;
    }
    names = names ? names : "";
    for (int fd = ACTIVATION_FIRST_FD; fd < ACTIVATION_FIRST_FD + (int)count; fd++) {
        bool tls = name_next(&names, "tls");
        if (!is_listening(fd)) {
            log_error("a socket from systemd does not listen for connections", "fd=%d", fd);
            return false;
        }
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        all->items[all->count++] = (struct endpoint){.fd = fd, .tls = tls};
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    return true;
}

bool endpoints_open(struct endpoints *all, const struct settings *s)
{
    *all = (struct endpoints){0};
    for (unsigned i = 0; i < s->endpoint_count; i++) {
        struct endpoint *e = &all->items[all->count++];
        *e = (struct endpoint){.wanted = &s->endpoints[i], .tls = s->endpoints[i].tls, .fd = -1};
        e->port = e->wanted->port;
    }
    if (!activated_take(all))
        return false;
    if (all->count == 0)
        log_error("nowhere to listen", "remedy=\"listen = 127.0.0.1:7420\"");
    return all->count > 0;
}

/* The first server takes the port or makes the file; the others use the same. */
static int endpoint_listen(struct endpoint *e, struct http_server *server, struct tls *tls,
                           bool shared)
{
    int made = e->fd < 0 && e->wanted->is_unix ? unix_open(e) : 0;
    if (made < 0)
        return made;
    int fd = e->fd >= 0 ? e->fd : http_socket_tcp(e->wanted->address, e->port, shared);
    if (fd < 0)
        return fd;
    int err = http_server_listen_on(server, fd, e->tls ? tls : NULL);
    if (e->fd < 0) {
        e->port = http_socket_port(fd);
        close(fd);
    }
    return err;
}

bool endpoints_listen(struct endpoints *all, struct http_server *server, struct tls *tls,
                      bool shared)
{
    for (unsigned i = 0; i < all->count; i++) {
        int err = endpoint_listen(&all->items[i], server, tls, shared);
        if (err)
            return endpoint_fail(&all->items[i], err);
    }
    return true;
}

static bool is_local(const struct endpoint *e)
{
    return e->wanted ? e->wanted->local : http_socket_is_local(e->fd);
}

bool endpoints_are_local(const struct endpoints *all)
{
    for (unsigned i = 0; i < all->count; i++)
        if (!is_local(&all->items[i]))
            return false;
    return true;
}

bool endpoints_are_locked(const struct endpoints *all, bool client_required)
{
    for (unsigned i = 0; i < all->count; i++)
        if (!is_local(&all->items[i]) && !(all->items[i].tls && client_required))
            return false;
    return true;
}

bool endpoints_want_tls(const struct endpoints *all)
{
    for (unsigned i = 0; i < all->count; i++)
        if (all->items[i].tls)
            return true;
    return false;
}

/* Another server may have put its own in the place of ours. */
static void unix_remove(const struct endpoint *e)
{
    struct stat file;
    if (e->inode && stat(e->wanted->address, &file) == 0 && file.st_dev == e->device &&
        file.st_ino == e->inode)
        unlink(e->wanted->address);
}

void endpoints_close(struct endpoints *all)
{
    for (unsigned i = 0; i < all->count; i++) {
        struct endpoint *e = &all->items[i];
        if (e->fd < 0)
            continue;
        unix_remove(e);
        close(e->fd);
        e->fd = -1;
    }
}
