#include "base/mem.h"
#include "net/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The listeners: where connections come from. */

static int stream_init(uv_loop_t *loop, union stream *io, bool is_unix)
{
    return is_unix ? uv_pipe_init(loop, &io->pipe, 0) : uv_tcp_init(loop, &io->tcp);
}

/* All peers that come through a socket in the file system count as one address; so do peers that
 * have left already. */
static struct account *peer_account(struct conn *c)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNIX};
    int len = sizeof(peer);
    if (c->io.handle.type == UV_TCP)
        (void)uv_tcp_getpeername(&c->io.tcp, (struct sockaddr *)&peer, &len);
    return account_open(c->server->budget, (struct sockaddr *)&peer);
}

/* Whether a connection may be closed for a newcomer: its address has more than `many` connections,
 * and none of its requests is being worked on. */
static bool may_give_way(const struct conn *c, uint32_t many)
{
    return (c->request_count == 0 || conn_only_waits(c)) && account_connections(c->account) > many;
}

static bool one_gives_way(struct http_server *s, enum watch watch, uint32_t many)
{
    struct conn *c = TAILQ_FIRST(&s->watched[watch]);
    for (int looks = 0; c && looks < CONN_IDLERS_MAX; looks++) {
        if (may_give_way(c, many)) {
            account_note(c->account, BUDGET_SHED);
            conn_close(c);
            return true;
        }
        c = TAILQ_NEXT(c, watch_link);
    }
    return false;
}

/* When there are too many connections, the oldest connection of an address that has many more than
 * the newcomer's is closed: an idle one; or one whose request head or handshake has begun and does
 * not come; or one whose claims all wait; or one whose body is still coming. So nobody can keep the
 * others out by holding connections. */
static bool idler_gives_way(struct http_server *s, const struct account *newcomer)
{
    uint32_t many = 2 * account_connections(newcomer);
    return one_gives_way(s, WATCH_IDLE, many) || one_gives_way(s, WATCH_GREETING, many) ||
           one_gives_way(s, WATCH_HEAD, many) || one_gives_way(s, WATCH_WAIT, many) ||
           one_gives_way(s, WATCH_BODY, many);
}

/* The sentence of refusal for a connection that is one too many. NULL: it may stay, and has an
 * account. */
static const char *conn_refusal(struct conn *c, bool full)
{
    struct account *a = peer_account(c);
    if (!a)
        return "Your address has as many connections as max_connections_per_address lets it have; "
               "close some, or use them again.";
    if (full && !idler_gives_way(c->server, a)) {
        account_close(a);
        return "The server has as many connections as it takes.";
    }
    c->account = a;
    return NULL;
}

static void conn_accept(struct listener *l, bool full)
{
    struct http_server *s = l->server;
    struct conn *c = mem_zalloc(sizeof(*c));
    c->tag = CONN_TAG;
    c->server = s;
    STAILQ_INIT(&c->requests);
    stream_init(s->loop, &c->io, l->io.handle.type == UV_NAMED_PIPE);
    c->io.handle.data = c;
    TAILQ_INSERT_TAIL(&s->conns, c, all);
    s->conn_count++;
    s->handle_count++;
    net_count(s, connections_open, 1);
    if (uv_accept(&l->io.stream, &c->io.stream) < 0) {
        conn_close(c);
        return;
    }
    c->local = l->local;
    const char *refusal = conn_refusal(c, full);
    bool over = refusal != NULL;
    c->over = over;
    s->over_count += over;
    c->began_ms = uv_now(s->loop);
    net_count(s, connections_accepted, !over);
    net_count(s, connections_refused, over);
    /* A refusal under TLS would cost a handshake. */
    bool told = !l->tls && s->over_count <= CONN_REFUSED_MAX;
    c->tls = l->tls && !over ? tls_stream_new(l->tls) : NULL;
    if ((over && !told) || (l->tls && !c->tls)) {
        conn_close(c);
        return;
    }
    if (over)
        conn_refuse(c, STATUS_OVERLOADED, refusal);
    conn_touch(c);
}

static void accept_one(struct listener *l)
{
    struct http_server *s = l->server;
    l->waits = false;
    s->turn_accepts++;
    conn_accept(l, s->conn_count - s->over_count >= s->limits.connections_max);
}

/* When descriptors run out libuv gives up a spare one to accept and close what is waiting, so the
 * listener does not spin; it then reports the error here. */
static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *l = listener_of(stream->data);
    if (status < 0) {
        net_count(l->server, connections_refused, 1);
        return;
    }
    /* A connection that is not accepted here is held by libuv, which then offers no further one. */
    if (l->server->turn_accepts >= l->server->limits.accepts_max)
        l->waits = true;
    else
        accept_one(l);
}

void server_accept(struct http_server *s)
{
    s->turn_accepts = 0;
    s->turn_handshakes = 0;
    for (struct listener *l = TAILQ_FIRST(&s->listeners); l; l = TAILQ_NEXT(l, next))
        if (l->waits)
            accept_one(l);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *l = listener_of(handle->data);
    struct http_server *s = l->server;
    tag_end(&l->tag, LISTENER_TAG);
    free(l);
    server_handle_closed(s);
}

static void listener_close(struct listener *l)
{
    TAILQ_REMOVE(&l->server->listeners, l, next);
    uv_close(&l->io.handle, on_listener_closed);
}

void server_unlisten(struct http_server *s)
{
    struct listener *l;
    while ((l = TAILQ_FIRST(&s->listeners)))
        listener_close(l);
}

/* Sockets */

static int address_parse(const char *addr, int port, struct sockaddr_storage *out)
{
    int err = uv_ip4_addr(addr, port, (struct sockaddr_in *)out);
    return err ? uv_ip6_addr(addr, port, (struct sockaddr_in6 *)out) : 0;
}

static bool is_loopback(const struct sockaddr_storage *addr)
{
    if (addr->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

static int socket_new(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return fd < 0 ? uv_translate_sys_error(errno) : fd;
}

static int socket_fail(int fd)
{
    int err = uv_translate_sys_error(errno);
    close(fd);
    return err;
}

int http_socket_tcp(const char *addr, int port, bool shared)
{
    struct sockaddr_storage where = {0};
    int err = address_parse(addr, port, &where);
    if (err)
        return err;
    int fd = socket_new(where.ss_family), on = 1;
    if (fd < 0)
        return fd;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0) ||
        bind(fd, (struct sockaddr *)&where,
             where.ss_family == AF_INET ? sizeof(struct sockaddr_in)
                                        : sizeof(struct sockaddr_in6)) < 0)
        return socket_fail(fd);
    return fd;
}

/* A socket whose server died without removing it refuses connections. Whatever else has the name
 * stays where it is. */
static void socket_remove_stale(const struct sockaddr_un *where)
{
    struct stat file;
    if (lstat(where->sun_path, &file) < 0 || !S_ISSOCK(file.st_mode))
        return;
    int fd = socket_new(AF_UNIX);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)where, sizeof(*where)) < 0 && errno == ECONNREFUSED)
        unlink(where->sun_path);
    close(fd);
}

/* Nobody can connect before it listens, so the permissions are in time. */
int http_socket_unix(const char *path)
{
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof(where.sun_path))
        return UV_ENAMETOOLONG;
    memcpy(where.sun_path, path, strlen(path));
    socket_remove_stale(&where);
    int fd = socket_new(AF_UNIX);
    if (fd < 0)
        return fd;
    if (bind(fd, (struct sockaddr *)&where, sizeof(where)) < 0 || chmod(path, 0660) < 0)
        return socket_fail(fd);
    return fd;
}

static bool socket_name(int fd, struct sockaddr_storage *where)
{
    socklen_t len = sizeof(*where);
    *where = (struct sockaddr_storage){0};
    return getsockname(fd, (struct sockaddr *)where, &len) == 0;
}

int http_socket_port(int fd)
{
    struct sockaddr_storage where;
    if (!socket_name(fd, &where) || where.ss_family == AF_UNIX)
        return 0;
    return where.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&where)->sin6_port)
                                       : ntohs(((struct sockaddr_in *)&where)->sin_port);
}

/* Sets options of a listener, which accepted sockets inherit without a call for each. The second
 * keeps the kernel from holding megabytes for a peer that does not read. */
static void socket_tune(int fd, const struct sockaddr_storage *where)
{
    int on = 1, unsent_max = CONN_KERNEL_SIZE;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof(unsent_max));
    /* Nothing is congested inside the machine, and a pacing algorithm such as BBR costs a third
     * more processor time there. Only a wish: where reno is not to be had, the default stays. */
    if (is_loopback(where))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

bool http_socket_is_local(int fd)
{
    struct sockaddr_storage where;
    return socket_name(fd, &where) && (where.ss_family == AF_UNIX || is_loopback(&where));
}

static int listener_open(struct listener *l, int fd, bool is_unix)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return uv_translate_sys_error(errno);
    int err = is_unix ? uv_pipe_open(&l->io.pipe, own) : uv_tcp_open(&l->io.tcp, own);
    if (err) {
        close(own);
        return err;
    }
    return uv_listen(&l->io.stream, SOMAXCONN, on_connection);
}

int http_server_listen_on(struct http_server *s, int fd, struct tls *tls)
{
    struct sockaddr_storage where;
    if (!socket_name(fd, &where))
        return uv_translate_sys_error(errno);
    bool is_unix = where.ss_family == AF_UNIX;
    struct listener *l = mem_zalloc(sizeof(*l));
    int err = stream_init(s->loop, &l->io, is_unix);
    if (err) {
        free(l);
        return err;
    }
    l->tag = LISTENER_TAG;
    l->server = s;
    l->tls = tls;
    l->local = is_unix || is_loopback(&where);
    l->io.handle.data = l;
    TAILQ_INSERT_TAIL(&s->listeners, l, next);
    s->handle_count++;
    if (!is_unix)
        socket_tune(fd, &where);
    err = listener_open(l, fd, is_unix);
    if (err)
        listener_close(l);
    return err;
}

int http_server_listen(struct http_server *s, const char *addr, int port, bool shared)
{
    int fd = http_socket_tcp(addr, port, shared);
    if (fd < 0)
        return fd;
    int err = http_server_listen_on(s, fd, NULL);
    close(fd);
    return err;
}

int http_server_port(const struct http_server *s)
{
    uv_os_fd_t fd;
    const struct listener *l = TAILQ_FIRST(&s->listeners);
    return l && uv_fileno(&l->io.handle, &fd) == 0 ? http_socket_port(fd) : 0;
}
