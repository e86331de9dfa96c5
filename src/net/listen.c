#include "base/mem.h"
#include "net/conn.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

/* The listener: where connections come from. */

/* `over`: only to be told that there are too many. */
static void conn_accept(struct http_server *s, bool over)
{
    struct conn *c = mem_zalloc(sizeof(*c));
    c->server = s;
    STAILQ_INIT(&c->requests);
    uv_tcp_init(s->loop, &c->tcp);
    c->tcp.data = c;
    TAILQ_INSERT_TAIL(&s->conns, c, all);
    s->conn_count++;
    s->handle_count++;
    net_count(s, connections_open, 1);
    if (uv_accept((uv_stream_t *)s->listener, (uv_stream_t *)&c->tcp) < 0) {
        conn_close(c);
        return;
    }
    c->over = over;
    s->over_count += over;
    net_count(s, connections_accepted, !over);
    net_count(s, connections_refused, over);
    if (over && s->over_count > CONN_REFUSED_MAX) {
        conn_close(c);
        return;
    }
    if (over)
        conn_refuse(c, STATUS_OVERLOADED, "The server has as many connections as it takes.");
    conn_touch(c);
}

static void accept_one(struct http_server *s)
{
    s->accept_waits = false;
    s->turn_accepts++;
    conn_accept(s, s->conn_count - s->over_count >= s->limits.connections_max);
}

/* When descriptors run out libuv gives up a spare one to accept and close what is waiting, so the
 * listener does not spin; it then reports the error here. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct http_server *s = listener->data;
    if (status < 0) {
        net_count(s, connections_refused, 1);
        return;
    }
    /* What is not accepted here is held by libuv, which then offers no further one. */
    if (s->turn_accepts >= s->limits.accepts_max)
        s->accept_waits = true;
    else
        accept_one(s);
}

void server_accept(struct http_server *s)
{
    s->turn_accepts = 0;
    if (s->accept_waits)
        accept_one(s);
}

static int address_parse(const char *addr, int port, struct sockaddr_storage *out)
{
    int err = uv_ip4_addr(addr, port, (struct sockaddr_in *)out);
    return err ? uv_ip6_addr(addr, port, (struct sockaddr_in6 *)out) : 0;
}

static bool is_loopback(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

static int listener_bind(uv_tcp_t *listener, const struct sockaddr *addr, bool shared)
{
    uv_os_fd_t fd;
    int err = uv_fileno((uv_handle_t *)listener, &fd);
    if (err)
        return err;
    int on = 1;
    if (shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0)
        return uv_translate_sys_error(errno);
    /* Accepted sockets take these after their listener, without a call for each. The second keeps
     * the kernel from holding megabytes for a peer that does not read. */
    int unsent_max = CONN_KERNEL_SIZE;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof(unsent_max));
    /* Nothing is congested inside the machine, and a pacing algorithm such as BBR costs a third
     * more processor time there. Only a wish: where reno is not to be had, the default stays. */
    if (is_loopback(addr))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    err = uv_tcp_bind(listener, addr, 0);
    return err ? err : uv_listen((uv_stream_t *)listener, SOMAXCONN, on_connection);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;
    free(handle);
    server_handle_closed(s);
}

void server_unlisten(struct http_server *s)
{
    if (s->listener)
        uv_close((uv_handle_t *)s->listener, on_listener_closed);
    s->listener = NULL;
    s->accept_waits = false;
}

int http_server_listen(struct http_server *s, const char *addr, int port, bool shared)
{
    assert(!s->listener);
    struct sockaddr_storage where;
    int err = address_parse(addr, port, &where);
    if (err)
        return err;
    uv_tcp_t *listener = mem_zalloc(sizeof(*listener));
    err = uv_tcp_init_ex(s->loop, listener, where.ss_family);
    if (err) {
        free(listener);
        return err;
    }
    listener->data = s;
    s->listener = listener;
    s->handle_count++;
    err = listener_bind(listener, (struct sockaddr *)&where, shared);
    if (err)
        server_unlisten(s);
    return err;
}

int http_server_port(const struct http_server *s)
{
    struct sockaddr_storage where;
    int len = sizeof(where);
    if (!s->listener || uv_tcp_getsockname(s->listener, (struct sockaddr *)&where, &len) < 0)
        return 0;
    return where.ss_family == AF_INET6 ? ntohs(((struct sockaddr_in6 *)&where)->sin6_port)
                                       : ntohs(((struct sockaddr_in *)&where)->sin_port);
}
