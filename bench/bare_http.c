/* The least a server on libuv and http_parser can do: read a request, answer 201
 * with constant bytes. What it reaches is the ceiling for HTTP on this machine.
 * Prints its port and serves on one thread until it is killed. Loopback only. */
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define READ_LEN    65536
#define PENDING_MAX 64 /* answers of one read that leave in one write */

static const char answer[] =
    "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 98\r\n"
    "X-Request-Id: 0000000000000000\r\n\r\n"
    "{\"message_id\":\"msg_0000000000000000000000\",\"enqueued_at\":\"2026-01-01T00:00:00.000Z\","
    "\"partition\":0}";

struct conn {
    uv_tcp_t tcp;
    http_parser parser;
    unsigned pending; /* requests read and not answered */
};

static char read_bytes[READ_LEN];
static http_parser_settings settings;

static void conn_free(uv_handle_t *handle)
{
    free(handle->data);
}

static int on_message(http_parser *parser)
{
    struct conn *c = parser->data;
    c->pending++;
    return 0;
}

/* What the socket does not take at once is a client that does not read: it is dropped. */
static void answer_pending(struct conn *c)
{
    while (c->pending > 0) {
        uv_buf_t bufs[PENDING_MAX];
        unsigned n = c->pending < PENDING_MAX ? c->pending : PENDING_MAX;
        for (unsigned i = 0; i < n; i++)
            bufs[i] = uv_buf_init((char *)answer, sizeof(answer) - 1);
        int sent = uv_try_write((uv_stream_t *)&c->tcp, bufs, n);
        if (sent != (int)(n * (sizeof(answer) - 1))) {
            uv_close((uv_handle_t *)&c->tcp, conn_free);
            return;
        }
        c->pending -= n;
    }
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    (void)handle;
    (void)size;
    *buf = uv_buf_init(read_bytes, READ_LEN);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    if (n == 0)
        return;
    if (n < 0 || http_parser_execute(&c->parser, &settings, buf->base, (size_t)n) != (size_t)n) {
        uv_close((uv_handle_t *)stream, conn_free);
        return;
    }
    answer_pending(c);
}

static void on_connection(uv_stream_t *server, int status)
{
    if (status < 0)
        return;
    struct conn *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    uv_tcp_init(server->loop, &c->tcp);
    c->tcp.data = c;
    http_parser_init(&c->parser, HTTP_REQUEST);
    c->parser.data = c;
    if (uv_accept(server, (uv_stream_t *)&c->tcp) != 0) {
        uv_close((uv_handle_t *)&c->tcp, conn_free);
        return;
    }
    uv_tcp_nodelay(&c->tcp, 1);
    uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read);
}

int main(void)
{
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t server;
    struct sockaddr_in address;
    int address_len = sizeof(address);
    settings.on_message_complete = on_message;
    uv_tcp_init(loop, &server);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_bind(&server, (const struct sockaddr *)&address, 0);
    int failed = uv_listen((uv_stream_t *)&server, 1024, on_connection);
    if (failed) {
        fprintf(stderr, "bare_http: %s\n", uv_strerror(failed));
        return 1;
    }
    uv_tcp_getsockname(&server, (struct sockaddr *)&address, &address_len);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return uv_run(loop, UV_RUN_DEFAULT);
}
