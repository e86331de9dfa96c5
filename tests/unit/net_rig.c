#include "unit/net_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool path_is(const struct http_request *req, const char *path)
{
    return req->path_len == strlen(path) && memcmp(req->path, path, req->path_len) == 0;
}

void answer_text(struct http_request *req, const char *text)
{
    http_respond(req, 200, "text/plain", NULL, text, strlen(text));
}

static void on_hangup(struct http_request *req)
{
    struct net_rig *rig = req->user;
    rig->hangups++;
    if (!rig->answer_in_hangup)
        return;
    for (int i = 0; i < rig->kept_count; i++)
        if (rig->kept[i] == req)
            rig->kept[i] = rig->kept[--rig->kept_count];
    answer_text(req, "too late");
}

static void answer_echo(struct http_request *req)
{
    struct buf b = {0};
    buf_printf(&b, "verb=%d path=%.*s query=%.*s type=%.*s agent=%.*s body=", req->verb,
               (int)req->path_len, req->path, (int)req->query_len, req->query ? req->query : "",
               (int)req->content_type.len, req->content_type.data ? req->content_type.data : "",
               (int)http_header(req, "user-agent").len,
               http_header(req, "user-agent").data ? http_header(req, "user-agent").data : "");
    buf_put(&b, req->body, req->body_len);
    http_respond(req, 201, "text/plain", "X-Extra: yes\r\n", b.data, b.len);
    buf_fini(&b);
}

static void answer_zeros(struct http_request *req, size_t len)
{
    char *body = calloc(1, len);
    http_respond(req, 200, "application/octet-stream", NULL, body, len);
    free(body);
}

static void on_stream_hangup(struct http_request *req)
{
    struct net_rig *rig = req->user;
    rig->hangups++;
    rig->stream = NULL;
    http_stream_end(req);
}

static void on_tick(struct http_request *req)
{
    struct net_rig *rig = req->user;
    rig->ticks++;
    if (rig->piece)
        http_stream_write(req, rig->piece, rig->piece_len);
    if (rig->piece && rig->piece_again)
        http_stream_more(req);
    if (!rig->piece_again)
        rig->piece = NULL;
}

static void handle(struct http_request *req, void *ctx)
{
    struct net_rig *rig = ctx;
    rig->handled++;
    assert_ptr_equal(req->pass, rig);
    assert_null(req->user);
    assert_null(req->on_hangup);
    if (path_is(req, "/none")) {
        http_respond(req, 204, NULL, NULL, NULL, 0);
    } else if (path_is(req, "/big")) {
        answer_zeros(req, BIG_SIZE);
    } else if (path_is(req, "/page")) {
        answer_zeros(req, PAGE_SIZE);
    } else if (path_is(req, "/wait") && !http_wait(req, 1)) {
        http_respond(req, 503, NULL, NULL, NULL, 0);
    } else if (path_is(req, "/stream")) {
        req->user = rig;
        req->on_hangup = on_stream_hangup;
        rig->stream = req;
        http_stream_begin(req, "text/plain", NULL, on_tick);
    } else if (path_is(req, "/later") || path_is(req, "/wait")) {
        assert_true(rig->kept_count < KEPT_MAX);
        rig->kept[rig->kept_count++] = req;
        req->user = rig;
        if (path_is(req, "/wait"))
            req->on_hangup = on_hangup;
    } else {
        answer_echo(req);
    }
}

static void admit(const struct http_request *req, void *ctx, struct http_verdict *verdict)
{
    struct net_rig *rig = ctx;
    rig->asked++;
    verdict->pass = rig;
    verdict->body_max = path_is(req, "/small") ? 10 : 4 * 1024 * 1024;
    if (!path_is(req, "/closed"))
        return;
    verdict->status = 401;
    verdict->headers = "WWW-Authenticate: Bearer\r\n";
    buf_puts(&verdict->body, "closed");
}

static void problem(void *ctx, enum status status, const char *detail, struct buf *body)
{
    (void)ctx;
    buf_printf(body, "problem %s: %s", status_name(status), detail);
}

struct http_hooks net_rig_hooks(struct net_rig *rig)
{
    return (struct http_hooks){handle, admit, problem, rig};
}

struct net_rig *net_rig_new(const struct http_limits *limits)
{
    struct net_rig *rig = calloc(1, sizeof(*rig));
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    struct http_hooks hooks = net_rig_hooks(rig);
    rig->server = http_server_new(&rig->loop, &hooks, limits);
    assert_int_equal(http_server_listen(rig->server, "127.0.0.1", 0, false), 0);
    rig->addr.sin_family = AF_INET;
    rig->addr.sin_port = htons((uint16_t)http_server_port(rig->server));
    rig->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return rig;
}

void note_drained(struct http_server *server, void *arg)
{
    (void)server;
    ((struct net_rig *)arg)->drained = true;
}

static void on_closed(struct http_server *server, void *arg)
{
    (void)server;
    ((struct net_rig *)arg)->closed = true;
}

void net_rig_free(struct net_rig *rig)
{
    http_server_close(rig->server, on_closed, rig);
    while (!rig->closed)
        uv_run(&rig->loop, UV_RUN_ONCE);
    for (int i = 0; i < rig->kept_count; i++)
        answer_text(rig->kept[i], "never sent");
    struct http_counters counters = http_server_counters(rig->server);
    assert_int_equal(counters.connections_open, 0);
    assert_int_equal(counters.requests_open, 0);
    http_server_free(rig->server);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
    free(rig);
}

struct client client_open_from(struct net_rig *rig, const char *address)
{
    struct client c = {.rig = rig, .fd = socket(AF_INET, SOCK_STREAM, 0)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    assert_true(c.fd >= 0);
    assert_int_equal(inet_pton(AF_INET, address, &from.sin_addr), 1);
    assert_int_equal(bind(c.fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(c.fd, (struct sockaddr *)&rig->addr, sizeof(rig->addr)), 0);
    return c;
}

struct client client_open(struct net_rig *rig)
{
    return client_open_from(rig, "127.0.0.1");
}

void client_close(struct client *c)
{
    close(c->fd);
    buf_fini(&c->got);
}

void turn(struct client *c)
{
    uv_run(&c->rig->loop, UV_RUN_NOWAIT);
    char piece[65536];
    ssize_t n = recv(c->fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (n > 0)
        buf_put(&c->got, piece, (size_t)n);
    else if (n == 0)
        c->ended = true;
    else if (errno == ECONNRESET)
        c->ended = c->reset = true;
    else
        usleep(200);
}

void turns(struct client *c, int ms)
{
    uint64_t end = uv_hrtime() + (uint64_t)ms * 1000000;
    while (uv_hrtime() < end)
        turn(c);
}

void put_bytes(struct client *c, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(c->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(n > 0 || errno == EAGAIN);
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        turn(c);
    }
}

void say(struct client *c, const char *text)
{
    put_bytes(c, text, strlen(text));
}

int count_of(const struct client *c, const char *needle)
{
    int count = 0;
    size_t len = strlen(needle);
    for (size_t i = 0; i + len <= c->got.len; i++)
        count += memcmp(c->got.data + i, needle, len) == 0;
    return count;
}

void expect_times(struct client *c, const char *needle, int count)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (count_of(c, needle) < count && !c->ended && uv_hrtime() < end)
        turn(c);
    if (count_of(c, needle) != count)
        fail_msg("wanted %d of <%s> in <%s>", count, needle, buf_cstr(&c->got));
}

void expect(struct client *c, const char *needle)
{
    expect_times(c, needle, 1);
}

void expect_end(struct client *c)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (!c->ended && uv_hrtime() < end)
        turn(c);
    assert_true(c->ended);
}

void expect_kept(struct client *c, int count)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (c->rig->kept_count < count && uv_hrtime() < end)
        turn(c);
    assert_int_equal(c->rig->kept_count, count);
}

void kept_answer(struct net_rig *rig, int i, const char *text)
{
    answer_text(rig->kept[i], text);
    rig->kept[i] = rig->kept[--rig->kept_count];
}
