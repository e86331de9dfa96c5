/* net over a real loopback socket, with client and loop in one thread, so that
 * every step is in the test's hand. What the parser takes and refuses is in
 * test_net_parse.c. */
#include "net/server.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define PATIENCE_MS 5000
#define BIG_SIZE    (8 * 1024 * 1024)
#define KEPT_MAX    128

/* A server whose handler does as the path says: /now echoes at once, /later keeps the request for
 * the test to answer, /wait too and wants to know of a hang-up, /none answers 204, /big 8 MiB. */
struct rig {
    uv_loop_t loop;
    struct http_server *server;
    struct sockaddr_in addr;
    struct http_request *kept[KEPT_MAX];
    int kept_count;
    int handled;
    int hangups;
    bool answer_in_hangup;
    bool drained;
    bool closed;
};

struct client {
    struct rig *rig;
    int fd;
    struct buf got;
    bool ended;
    bool reset;
};

static bool path_is(const struct http_request *req, const char *path)
{
    return req->path_len == strlen(path) && memcmp(req->path, path, req->path_len) == 0;
}

static void answer_text(struct http_request *req, const char *text)
{
    http_respond(req, 200, "text/plain", NULL, text, strlen(text));
}

static void on_hangup(struct http_request *req)
{
    struct rig *rig = req->user;
    rig->hangups++;
    if (rig->answer_in_hangup)
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

static void answer_big(struct http_request *req)
{
    char *body = calloc(1, BIG_SIZE);
    http_respond(req, 200, "application/octet-stream", NULL, body, BIG_SIZE);
    free(body);
}

static void handle(struct http_request *req, void *ctx)
{
    struct rig *rig = ctx;
    rig->handled++;
    assert_null(req->user);
    assert_null(req->on_hangup);
    if (path_is(req, "/none")) {
        http_respond(req, 204, NULL, NULL, NULL, 0);
    } else if (path_is(req, "/big")) {
        answer_big(req);
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

static size_t body_limit(void *ctx, enum http_verb verb, const char *path, size_t path_len)
{
    (void)ctx;
    (void)verb;
    return path_len == 6 && memcmp(path, "/small", 6) == 0 ? 10 : 4 * 1024 * 1024;
}

static void problem(void *ctx, enum status status, const char *detail, struct buf *body)
{
    (void)ctx;
    buf_printf(body, "problem %s: %s", status_name(status), detail);
}

static struct rig *rig_new(const struct http_limits *limits)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    struct http_hooks hooks = {handle, body_limit, problem, rig};
    rig->server = http_server_new(&rig->loop, &hooks, limits);
    assert_int_equal(http_server_listen(rig->server, "127.0.0.1", 0, false), 0);
    rig->addr.sin_family = AF_INET;
    rig->addr.sin_port = htons((uint16_t)http_server_port(rig->server));
    rig->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return rig;
}

static void on_drained(struct http_server *server, void *arg)
{
    (void)server;
    ((struct rig *)arg)->drained = true;
}

static void on_closed(struct http_server *server, void *arg)
{
    (void)server;
    ((struct rig *)arg)->closed = true;
}

/* Every request that is still kept gets its answer, as the contract asks. */
static void rig_free(struct rig *rig)
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

static struct client client_open(struct rig *rig)
{
    struct client c = {.rig = rig, .fd = socket(AF_INET, SOCK_STREAM, 0)};
    assert_true(c.fd >= 0);
    assert_int_equal(connect(c.fd, (struct sockaddr *)&rig->addr, sizeof(rig->addr)), 0);
    return c;
}

static void client_close(struct client *c)
{
    close(c->fd);
    buf_fini(&c->got);
}

static void turn(struct client *c)
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

static void turns(struct client *c, int ms)
{
    uint64_t end = uv_hrtime() + (uint64_t)ms * 1000000;
    while (uv_hrtime() < end)
        turn(c);
}

static void put(struct client *c, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(c->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(n > 0 || errno == EAGAIN);
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        turn(c);
    }
}

static void say(struct client *c, const char *text)
{
    put(c, text, strlen(text));
}

static int times(const struct client *c, const char *needle)
{
    int count = 0;
    size_t len = strlen(needle);
    for (size_t i = 0; i + len <= c->got.len; i++)
        count += memcmp(c->got.data + i, needle, len) == 0;
    return count;
}

/* Turns the loop until the text has come so many times. */
static void expect_times(struct client *c, const char *needle, int count)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (times(c, needle) < count && !c->ended && uv_hrtime() < end)
        turn(c);
    if (times(c, needle) != count)
        fail_msg("wanted %d of <%s> in <%s>", count, needle, buf_cstr(&c->got));
}

static void expect(struct client *c, const char *needle)
{
    expect_times(c, needle, 1);
}

static void expect_end(struct client *c)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (!c->ended && uv_hrtime() < end)
        turn(c);
    assert_true(c->ended);
}

static void expect_kept(struct client *c, int count)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (c->rig->kept_count < count && uv_hrtime() < end)
        turn(c);
    assert_int_equal(c->rig->kept_count, count);
}

static void kept_answer(struct rig *rig, int i, const char *text)
{
    answer_text(rig->kept[i], text);
    rig->kept[i] = rig->kept[--rig->kept_count];
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

static void request_and_answer_carry_everything(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "PUT /now?a=1 HTTP/1.1\r\nHost: a\r\nContent-Type: text/x\r\nUser-Agent: test\r\n"
            "Content-Length: 5\r\n\r\nhello");
    expect(&c, "verb=3 path=/now query=a=1 type=text/x agent=test body=hello");
    expect(&c, "HTTP/1.1 201 Created\r\n");
    expect(&c, "X-Extra: yes\r\n");
    expect(&c, "X-Request-Id: ");
    expect(&c, "Date: ");
    expect(&c, "Content-Length: 60\r\n");
    expect_times(&c, "Connection:", 0);
    say(&c, GET("/none"));
    expect(&c, "HTTP/1.1 204 No Content\r\n");
    turns(&c, 5);
    expect_times(&c, "Content-Length", 1);
    assert_false(c.ended);
    assert_int_equal(http_server_counters(rig->server).responses_2xx, 2);
    client_close(&c);
    rig_free(rig);
}

static void request_may_come_byte_by_byte(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    static const char text[] = "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
                               "POST /now HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "3\r\nwor\r\n2\r\nld\r\n0\r\n\r\n" GET("/now?last");
    for (size_t i = 0; i + 1 < sizeof(text); i++)
        put(&c, text + i, 1);
    expect(&c, "body=hello");
    expect(&c, "body=world");
    expect(&c, "query=last");
    client_close(&c);
    rig_free(rig);
}

static void stream_means_the_same_wherever_it_is_cut(void **state)
{
    (void)state;
    static const char text[] = GET(
        "/now?1") "POST /now?2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nwor\r\n2\r\nld\r\n0\r\n\r\n"
                  "POST /now?3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" GET("/now?4");
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    for (size_t cut = 1; cut + 1 < sizeof(text); cut++) {
        buf_clear(&c.got);
        put(&c, text, cut);
        put(&c, text + cut, sizeof(text) - 1 - cut);
        expect(&c, "query=4 type= agent= body=");
        expect(&c, "query=1 type= agent= body=HTTP/1.1 201");
        expect(&c, "query=2 type= agent= body=worldHTTP/1.1 201");
        expect(&c, "query=3 type= agent= body=helloHTTP/1.1 201");
    }
    client_close(&c);
    rig_free(rig);
}

static void large_bodies_arrive_whole(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    size_t size = 1000 * 1000;
    char *body = malloc(size);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)('a' + i % 26);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    put(&c, body, size);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nf4240\r\n");
    put(&c, body, size);
    say(&c, "\r\n0\r\n\r\n" GET("/now?after"));
    expect(&c, "query=after");
    assert_int_equal(times(&c, "HTTP/1.1 201"), 3);
    const char *first = strstr(buf_cstr(&c.got), "body=");
    assert_memory_equal(first + 5, body, size);
    const char *second = strstr(first + 5, "body=");
    assert_memory_equal(second + 5, body, size);
    free(body);
    client_close(&c);
    rig_free(rig);
}

static void answers_leave_in_the_order_of_the_requests(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") GET("/later") GET("/now?third") GET("/later"));
    expect_kept(&c, 3);
    struct http_request *first = rig->kept[0];
    struct http_request *second = rig->kept[1];
    struct http_request *fourth = rig->kept[2];
    rig->kept_count = 0;
    answer_text(fourth, "(fourth)");
    answer_text(second, "(second)");
    turns(&c, 10);
    assert_int_equal(c.got.len, 0);
    answer_text(first, "(first)");
    expect(&c, "(fourth)");
    const char *text = buf_cstr(&c.got);
    assert_true(strstr(text, "(first)") < strstr(text, "(second)"));
    assert_true(strstr(text, "(second)") < strstr(text, "query=third"));
    assert_true(strstr(text, "query=third") < strstr(text, "(fourth)"));
    client_close(&c);
    rig_free(rig);
}

static void full_pipeline_waits_and_still_notices_a_hangup(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.pipeline_max = 2;
    struct rig *rig = rig_new(&limits);
    struct client c = client_open(rig);
    for (int i = 0; i < 5; i++)
        say(&c, GET("/wait"));
    turns(&c, 20);
    assert_int_equal(rig->kept_count, 2);
    kept_answer(rig, 0, "one");
    expect_kept(&c, 2);
    kept_answer(rig, 0, "two");
    kept_answer(rig, 0, "two");
    expect_kept(&c, 2);
    assert_int_equal(rig->handled, 5);
    say(&c, GET("/wait"));
    close(c.fd);
    for (int i = 0; i < 100 && rig->hangups < 2; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(rig->hangups, 2);
    assert_int_equal(rig->handled, 5);
    buf_fini(&c.got);
    rig_free(rig);
}

static void thousands_of_pipelined_requests_are_all_answered(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    struct buf b = {0};
    for (int i = 0; i < 5000; i++)
        buf_puts(&b, GET("/now"));
    put(&c, b.data, b.len);
    expect_times(&c, "HTTP/1.1 201", 5000);
    assert_int_equal(rig->handled, 5000);
    buf_fini(&b);
    client_close(&c);
    rig_free(rig);
}

static void continue_is_said_when_the_body_is_welcome(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                          "Expect: 100-continue\r\n\r\n");
    turns(&c, 10);
    assert_int_equal(c.got.len, 0);
    kept_answer(rig, 0, "first");
    expect(&c, "firstHTTP/1.1 100 Continue\r\n\r\n");
    say(&c, "hello");
    expect(&c, "body=hello");
    say(&c, "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n"
            "Expect: 100-continue\r\n\r\n");
    expect_end(&c);
    expect(&c, "HTTP/1.1 413 Content Too Large\r\n");
    expect_times(&c, "100 Continue", 1);
    client_close(&c);
    rig_free(rig);
}

static void bodies_past_the_limit_are_refused_early(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello");
    expect_end(&c);
    expect(&c, "413 ");
    expect(&c, "problem payload-too-large");
    expect(&c, "Connection: close\r\n");
    struct client d = client_open(rig);
    say(&d, "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n"
            "123456789\r\n2\r\n");
    expect_end(&d);
    expect(&d, "413 ");
    assert_int_equal(rig->handled, 0);
    client_close(&c);
    client_close(&d);
    rig_free(rig);
}

static void malformed_request_is_answered_in_its_turn_and_ends_it(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") "GET / HTTP/1.1\r\n\r\n" GET("/now"));
    turns(&c, 10);
    assert_int_equal(c.got.len, 0);
    kept_answer(rig, 0, "good");
    expect_end(&c);
    expect(&c, "HTTP/1.1 400 Bad Request");
    expect(&c, "Content-Type: application/problem+json\r\n");
    expect_times(&c, "HTTP/1.1", 2);
    assert_int_equal(rig->handled, 1);
    assert_int_equal(http_server_counters(rig->server).parse_errors, 1);
    client_close(&c);
    rig_free(rig);
}

/* A reset would throw away the answer that the client has not read yet. */
static void refused_sender_can_still_read_why(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    char body[10000] = {0};
    for (int i = 0; i < 10; i++)
        put(&c, body, sizeof(body));
    expect_end(&c);
    assert_false(c.reset);
    expect(&c, "413 ");
    client_close(&c);
    rig_free(rig);
}

static void keep_alive_follows_the_version_and_the_header(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ends;
        const char *header;
    } cases[] = {
        {"GET /now HTTP/1.0\r\n\r\n", true, "Connection: close\r\n"},
        {"GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", false,
         "Connection: keep-alive\r\n"},
        {"GET /now HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", true,
         "Connection: close\r\n"},
        {"GET /now HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", false,
         "HTTP/1.1 201"},
    };
    struct rig *rig = rig_new(NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client c = client_open(rig);
        say(&c, cases[i].text);
        expect(&c, cases[i].header);
        turns(&c, 5);
        assert_int_equal(c.ended, cases[i].ends);
        client_close(&c);
    }
    rig_free(rig);
}

static void head_gets_the_length_without_the_body(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "HEAD /now HTTP/1.1\r\nHost: a\r\n\r\n" GET("/none"));
    expect(&c, "HTTP/1.1 204");
    expect(&c, "Content-Length: 42\r\n");
    expect_times(&c, "body=", 0);
    client_close(&c);
    rig_free(rig);
}

static void request_id_is_the_clients_when_it_is_plain(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "GET /now HTTP/1.1\r\nHost: a\r\nX-Request-Id: order_1.a-B\r\n\r\n");
    expect(&c, "X-Request-Id: order_1.a-B\r\n");
    say(&c, "GET /now HTTP/1.1\r\nHost: a\r\nX-Request-Id: <b>\r\n\r\n");
    expect_times(&c, "X-Request-Id: ", 2);
    expect_times(&c, "<b>", 0);
    client_close(&c);
    rig_free(rig);
}

static struct http_limits short_times(void)
{
    struct http_limits limits = http_limits_default();
    limits.head_ms = 300;
    limits.idle_ms = 300;
    limits.write_ms = 300;
    limits.body_rate = 1000;
    return limits;
}

static void slow_heads_and_bodies_are_timed_out(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    limits.idle_ms = 60000;
    struct rig *rig = rig_new(&limits);
    struct client head = client_open(rig);
    struct client body = client_open(rig);
    struct client silent = client_open(rig);
    say(&head, GET("/now") "GET /now HT");
    say(&body, GET("/later") "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhel");
    expect(&head, "201");
    for (int i = 0; i < 5; i++) { /* dripping does not help */
        say(&head, "x");
        turns(&head, 50);
    }
    expect_end(&head);
    expect(&head, "HTTP/1.1 408 Request Timeout");
    turns(&body, 50);
    assert_int_equal(body.got.len, 0);
    kept_answer(rig, 0, "first");
    expect_end(&body);
    expect(&body, "first");
    expect(&body, "408 ");
    struct http_counters counters = http_server_counters(rig->server);
    assert_int_equal(counters.timeouts_head, 1);
    assert_int_equal(counters.timeouts_body, 1);
    assert_int_equal(counters.timeouts_idle, 0);
    client_close(&head);
    client_close(&body);
    client_close(&silent);
    rig_free(rig);
}

/* 100 bytes every 50 ms are twice the rate that is asked for. */
static void steady_body_may_take_its_time(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    limits.idle_ms = 60000;
    struct rig *rig = rig_new(&limits);
    struct client c = client_open(rig);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
    char piece[100];
    memset(piece, 'x', sizeof(piece));
    for (int i = 0; i < 20; i++) {
        put(&c, piece, sizeof(piece));
        turns(&c, 50);
    }
    expect(&c, "HTTP/1.1 201");
    client_close(&c);
    rig_free(rig);
}

static void idle_connections_end_and_waiting_ones_do_not(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    struct rig *rig = rig_new(&limits);
    struct client idle = client_open(rig);
    struct client waiting = client_open(rig);
    say(&idle, GET("/now"));
    say(&waiting, GET("/wait"));
    expect_end(&idle);
    expect_times(&idle, "HTTP/1.1", 1);
    turns(&waiting, 700);
    assert_false(waiting.ended);
    kept_answer(rig, 0, "at last");
    expect(&waiting, "at last");
    client_close(&idle);
    client_close(&waiting);
    rig_free(rig);
}

static void slow_reader_gets_everything_and_a_stalled_one_is_cut_off(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    struct rig *rig = rig_new(&limits);
    struct client slow = client_open(rig);
    say(&slow, GET("/big"));
    uint64_t end = uv_hrtime() + 4 * PATIENCE_MS * 1000000ull;
    while (slow.got.len < BIG_SIZE + 200 && !slow.ended && uv_hrtime() < end)
        turn(&slow);
    assert_true(slow.got.len > BIG_SIZE);
    struct client stalled = client_open(rig);
    assert_true(send(stalled.fd, GET("/big"), strlen(GET("/big")), 0) > 0);
    while (http_server_counters(rig->server).timeouts_write == 0 && uv_hrtime() < end)
        uv_run(&rig->loop, UV_RUN_ONCE);
    assert_int_equal(http_server_counters(rig->server).timeouts_write, 1);
    client_close(&slow);
    client_close(&stalled);
    rig_free(rig);
}

static void unsent_output_has_a_limit(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.output_max = 100000;
    struct rig *rig = rig_new(&limits);
    struct client c = client_open(rig);
    say(&c, GET("/wait") GET("/later") GET("/later") GET("/wait"));
    expect_kept(&c, 4);
    char body[60000] = {0};
    http_respond(rig->kept[1], 200, NULL, NULL, body, sizeof(body));
    http_respond(rig->kept[2], 200, NULL, NULL, body, sizeof(body));
    rig->answer_in_hangup = true;
    rig->kept_count = 0;
    expect_end(&c);
    assert_int_equal(c.got.len, 0);
    assert_int_equal(rig->hangups, 2);
    assert_int_equal(http_server_counters(rig->server).output_overflows, 1);
    client_close(&c);
    rig_free(rig);
}

static void large_bodies_give_way_when_buffers_are_short(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.buffers_max = 500000;
    struct rig *rig = rig_new(&limits);
    struct client c = client_open(rig);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    char *body = calloc(1, 800000);
    put(&c, body, 800000);
    free(body);
    expect_end(&c);
    expect(&c, "problem overloaded");
    struct client d = client_open(rig);
    say(&d, GET("/now"));
    expect(&d, "201");
    turns(&d, 5);
    assert_int_equal(http_server_counters(rig->server).buffer_bytes, 0);
    client_close(&c);
    client_close(&d);
    rig_free(rig);
}

static void hangup_is_told_to_whoever_waits(void **state)
{
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        struct rig *rig = rig_new(NULL);
        struct client c = client_open(rig);
        say(&c, GET("/later") GET("/wait") GET("/wait"));
        expect_kept(&c, 3);
        struct linger now = {.l_onoff = 1, .l_linger = 0};
        if (reset)
            setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        client_close(&c);
        for (int i = 0; i < 100 && rig->hangups < 2; i++)
            uv_run(&rig->loop, UV_RUN_NOWAIT);
        assert_int_equal(rig->hangups, 2);
        assert_int_equal(http_server_counters(rig->server).hangups, 3);
        rig_free(rig);
    }
}

static void half_closed_client_gets_its_answers(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") GET("/now") "GET /part");
    shutdown(c.fd, SHUT_WR);
    expect_kept(&c, 1);
    turns(&c, 20);
    assert_false(c.ended);
    kept_answer(rig, 0, "answer");
    expect_end(&c);
    assert_false(c.reset);
    expect(&c, "answer");
    expect(&c, "path=/now");
    client_close(&c);
    rig_free(rig);
}

/* The first answer meets a reset, the second a broken pipe. */
static void answers_to_someone_who_left_do_no_harm(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") GET("/later"));
    expect_kept(&c, 2);
    client_close(&c);
    struct http_request *second = rig->kept[1];
    answer_text(rig->kept[0], "one");
    http_server_flush(rig->server);
    answer_text(second, "two");
    http_server_flush(rig->server);
    rig->kept_count = 0;
    for (int i = 0; i < 20; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(http_server_counters(rig->server).connections_open, 0);
    rig_free(rig);
}

static void connections_past_the_limit_are_told_so(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.connections_max = 2;
    struct rig *rig = rig_new(&limits);
    struct client a = client_open(rig);
    struct client b = client_open(rig);
    say(&a, GET("/now"));
    say(&b, GET("/now"));
    struct client c = client_open(rig);
    say(&c, GET("/now"));
    expect_end(&c);
    expect(&c, "HTTP/1.1 503 Service Unavailable");
    expect(&c, "Retry-After: 1\r\n");
    expect(&c, "problem overloaded");
    client_close(&a);
    client_close(&c);
    for (int i = 0; i < 20; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    struct client d = client_open(rig);
    say(&d, GET("/now"));
    expect(&d, "201 Created");
    assert_int_equal(http_server_counters(rig->server).connections_refused, 1);
    client_close(&b);
    client_close(&d);
    rig_free(rig);
}

static void drain_answers_what_is_under_way(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client idle = client_open(rig);
    struct client busy = client_open(rig);
    struct client half = client_open(rig);
    say(&idle, GET("/now"));
    expect(&idle, "201");
    say(&busy, GET("/later") GET("/later"));
    expect_kept(&busy, 2);
    say(&half, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    http_server_drain(rig->server, 10000, on_drained, rig);
    expect_end(&idle);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&rig->addr, sizeof(rig->addr)), -1);
    close(fd);
    assert_false(rig->drained);
    struct http_request *second = rig->kept[1];
    answer_text(rig->kept[0], "one");
    rig->kept_count = 0;
    expect(&busy, "one");
    expect_times(&busy, "Connection: close", 0);
    answer_text(second, "two");
    expect_end(&busy);
    expect(&busy, "Connection: close\r\n");
    expect(&busy, "two");
    say(&half, "lo");
    expect_end(&half);
    expect(&half, "body=hello");
    expect(&half, "Connection: close\r\n");
    client_close(&busy);
    client_close(&half);
    turns(&idle, 50);
    assert_true(rig->drained);
    client_close(&idle);
    rig_free(rig);
}

static void drain_cuts_off_what_does_not_end(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/wait"));
    expect_kept(&c, 1);
    http_server_drain(rig->server, 100, on_drained, rig);
    expect_end(&c);
    turns(&c, 20);
    assert_true(rig->drained);
    assert_int_equal(rig->hangups, 1);
    client_close(&c);
    rig_free(rig);
}

static void drain_of_an_idle_server_is_done_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL);
    http_server_drain(rig->server, 10000, on_drained, rig);
    for (int i = 0; i < 5; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_true(rig->drained);
    rig_free(rig);
}

static void two_servers_may_share_a_port_and_only_if_asked(void **state)
{
    (void)state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct http_hooks hooks = {handle, body_limit, problem, NULL};
    struct http_server *a = http_server_new(&loop, &hooks, NULL);
    struct http_server *b = http_server_new(&loop, &hooks, NULL);
    assert_int_equal(http_server_listen(a, "::1", 0, true), 0);
    int port = http_server_port(a);
    assert_true(port > 0);
    assert_int_equal(http_server_listen(b, "::1", port, false), UV_EADDRINUSE);
    assert_int_equal(http_server_listen(b, "nowhere", port, true), UV_EINVAL);
    assert_int_equal(http_server_listen(b, "::1", port, true), 0);
    http_server_close(a, NULL, NULL);
    http_server_close(b, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    http_server_free(a);
    http_server_free(b);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_and_answer_carry_everything),
        cmocka_unit_test(request_may_come_byte_by_byte),
        cmocka_unit_test(stream_means_the_same_wherever_it_is_cut),
        cmocka_unit_test(large_bodies_arrive_whole),
        cmocka_unit_test(answers_leave_in_the_order_of_the_requests),
        cmocka_unit_test(full_pipeline_waits_and_still_notices_a_hangup),
        cmocka_unit_test(thousands_of_pipelined_requests_are_all_answered),
        cmocka_unit_test(continue_is_said_when_the_body_is_welcome),
        cmocka_unit_test(bodies_past_the_limit_are_refused_early),
        cmocka_unit_test(malformed_request_is_answered_in_its_turn_and_ends_it),
        cmocka_unit_test(refused_sender_can_still_read_why),
        cmocka_unit_test(keep_alive_follows_the_version_and_the_header),
        cmocka_unit_test(head_gets_the_length_without_the_body),
        cmocka_unit_test(request_id_is_the_clients_when_it_is_plain),
        cmocka_unit_test(slow_heads_and_bodies_are_timed_out),
        cmocka_unit_test(steady_body_may_take_its_time),
        cmocka_unit_test(idle_connections_end_and_waiting_ones_do_not),
        cmocka_unit_test(slow_reader_gets_everything_and_a_stalled_one_is_cut_off),
        cmocka_unit_test(unsent_output_has_a_limit),
        cmocka_unit_test(large_bodies_give_way_when_buffers_are_short),
        cmocka_unit_test(hangup_is_told_to_whoever_waits),
        cmocka_unit_test(half_closed_client_gets_its_answers),
        cmocka_unit_test(answers_to_someone_who_left_do_no_harm),
        cmocka_unit_test(connections_past_the_limit_are_told_so),
        cmocka_unit_test(drain_answers_what_is_under_way),
        cmocka_unit_test(drain_cuts_off_what_does_not_end),
        cmocka_unit_test(drain_of_an_idle_server_is_done_at_once),
        cmocka_unit_test(two_servers_may_share_a_port_and_only_if_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
