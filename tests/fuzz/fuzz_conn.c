/* A whole connection: bytes go to a real server over loopback, cut as the input says, and what
 * reaches its handler is what net/parse alone understands of them; every request gets one answer,
 * in order, also when the handler answers in another. */
#include "net/server.h"
#include "stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define HELD_MAX  5
#define TURNS_MAX 100000

static struct {
    uv_loop_t loop;
    struct http_server *server;
    struct sockaddr_in address;
    struct buf log;
    struct http_request *held[HELD_MAX]; /* answered later, last come first */
    unsigned numbers[HELD_MAX];
    unsigned held_count;
    unsigned handled;
    bool refused;
} t;

static void answer(struct http_request *req, unsigned number)
{
    char header[40];
    snprintf(header, sizeof(header), "X-Number: %u\r\n", number);
    http_respond(req, 200, "text/plain", header, "x", 1);
}

static void answer_held(void)
{
    while (t.held_count > 0) {
        t.held_count--;
        answer(t.held[t.held_count], t.numbers[t.held_count]);
    }
}

static void handle(struct http_request *req, void *ctx)
{
    (void)ctx;
    unsigned number = t.handled++;
    stream_log_head(&t.log, req->verb, (struct http_slice){req->path, req->path_len},
                    (struct http_slice){req->query, req->query_len});
    buf_put(&t.log, req->body, req->body_len);
    buf_putc(&t.log, '\n');
    if (number % 3 == 0 || t.held_count == HELD_MAX) {
        answer(req, number);
        return;
    }
    t.numbers[t.held_count] = number;
    t.held[t.held_count++] = req;
}

static void admit(const struct http_request *req, void *ctx, struct http_verdict *verdict)
{
    (void)ctx;
    assert(req->path_len > 0 && req->path[0] == '/');
    verdict->body_max = STREAM_BODY_MAX;
}

static void problem(void *ctx, enum status status, const char *detail, struct buf *body)
{
    (void)ctx;
    assert(status != STATUS_OK && !t.refused);
    t.refused = true;
    /* The server names the number; the parser does not know it. */
    buf_printf(&t.log, "refused %s\n",
               status == STATUS_PAYLOAD_TOO_LARGE ? "The body is larger than this path takes."
                                                  : detail);
    buf_puts(body, detail);
}

static void serve(void)
{
    struct http_hooks hooks = {handle, admit, problem, NULL};
    assert(uv_loop_init(&t.loop) == 0);
    t.server = http_server_new(&t.loop, &hooks, NULL);
    int err = http_server_listen(t.server, "127.0.0.1", 0, false);
    assert(err == 0);
    t.address = (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
        .sin_port = htons((uint16_t)http_server_port(t.server)),
    };
}

/* Many thousand connections a minute: from one address after the other, so that the ports of each
 * have time to rest. */
static int client_open(void)
{
    static uint32_t number;
    struct sockaddr_in from = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + number++ % 200),
    };
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(fd >= 0);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    int err = bind(fd, (const struct sockaddr *)&from, sizeof(from));
    if (err == 0)
        err = connect(fd, (const struct sockaddr *)&t.address, sizeof(t.address));
    if (err != 0)
        perror("connect");
    assert(err == 0);
    return fd;
}

/* The server may have refused, and closed, in the middle of it. */
static void client_send(int fd, const uint8_t *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            return;
        uv_run(&t.loop, UV_RUN_NOWAIT);
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static unsigned answers_in(struct buf *got)
{
    unsigned count = 0;
    for (const char *at = buf_cstr(got); (at = strstr(at, "\r\nX-Number: ")); at++)
        count++;
    return count;
}

/* Everything the server has to say: up to its end when this side has ended, else up to the last
 * answer that is due, and what a few more turns bring. */
static void client_receive(int fd, struct buf *got, const struct stream *expected, bool to_end)
{
    int more = 3;
    for (int turn = 0; turn < TURNS_MAX && more > 0; turn++) {
        uv_run(&t.loop, UV_RUN_NOWAIT);
        answer_held();
        buf_reserve(got, 65536);
        ssize_t n = recv(fd, got->data + got->len, 65536, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return;
        got->len += n > 0 ? (size_t)n : 0;
        if (!to_end && t.refused == expected->refused && answers_in(got) >= expected->request_count)
            more--;
    }
    assert(!to_end && "a server ends the connection when the client has");
}

/* Mostly by a reset, which leaves no port behind that would have to rest for a minute. */
static void client_close(int fd)
{
    struct linger at_once = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(fd);
    while (http_server_counters(t.server).connections_open > 0)
        uv_run(&t.loop, UV_RUN_NOWAIT);
}

/* Each handled request has one answer, and they come in order. */
static void check_answers(struct buf *got)
{
    const char *at = buf_cstr(got);
    for (unsigned i = 0; i < t.handled; i++) {
        char header[40];
        snprintf(header, sizeof(header), "X-Number: %u\r\n", i);
        at = strstr(at, "\r\nX-Number: ");
        assert(at && strncmp(at + 2, header, strlen(header)) == 0);
        at++;
    }
    assert(!strstr(at, "\r\nX-Number: "));
    if (t.refused)
        assert(strstr(at, "application/problem+json"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream expected = {0};
    struct input in = {data, size};
    struct buf got = {0};
    if (!t.server)
        serve();
    buf_clear(&t.log);
    t.handled = 0;
    t.refused = false;
    uint8_t choice = input_byte(&in);
    bool to_end = choice % 32 == 31;
    size_t step = 1 + choice * 4u;
    if (step < in.left / 64)
        step = in.left / 64;
    stream_feed(&expected, in.at, in.left);

    int fd = client_open();
    for (size_t at = 0; at < in.left; at += step) {
        client_send(fd, in.at + at, in.left - at < step ? in.left - at : step);
        if (at / step % 4 == 3)
            answer_held();
    }
    if (to_end)
        shutdown(fd, SHUT_WR);
    client_receive(fd, &got, &expected, to_end);
    client_close(fd);

    assert_same(t.log.data, t.log.len, expected.log.data, expected.log.len);
    check_answers(&got);
    assert(http_server_counters(t.server).requests_open == 0);
    stream_fini(&expected);
    buf_fini(&got);
    return 0;
}
