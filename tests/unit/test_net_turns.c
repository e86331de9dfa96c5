/* net: whatever one client or a crowd of them does, a turn of the loop is short. */
#include "unit/net_rig.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void send_all(struct client *c, const char *data, size_t len)
{
    assert_int_equal(send(c->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL), len);
}

static void set_option(struct client *c, int level, int name, int value)
{
    assert_int_equal(setsockopt(c->fd, level, name, &value, sizeof(value)), 0);
}

/* Before anything is looked for in them. */
static void expect_bytes(struct client *c, size_t len)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (c->got.len < len && !c->ended && uv_hrtime() < end)
        turn(c);
    assert_true(c->got.len >= len);
}

static uint64_t accepted(const struct net_rig *rig)
{
    return http_server_counters(rig->server).connections_accepted;
}

static struct client client_served(struct net_rig *rig)
{
    struct client c = client_open(rig);
    say(&c, GET("/now"));
    expect(&c, "HTTP/1.1 201");
    buf_clear(&c.got);
    return c;
}

static void crowd_is_let_in_a_few_at_a_time(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.accepts_max = 3;
    struct net_rig *rig = net_rig_new(&limits);
    struct client crowd[10];
    for (int i = 0; i < 10; i++)
        crowd[i] = client_open(rig);
    for (uint64_t expected = 3; expected <= 9; expected += 3) {
        uv_run(&rig->loop, UV_RUN_NOWAIT);
        assert_int_equal(accepted(rig), expected);
    }
    for (int i = 0; i < 10; i++) {
        say(&crowd[i], GET("/now"));
        expect(&crowd[i], "HTTP/1.1 201");
        client_close(&crowd[i]);
    }
    net_rig_free(rig);
}

static void who_was_not_let_in_goes_with_the_listener(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.accepts_max = 1;
    struct net_rig *rig = net_rig_new(&limits);
    struct client first = client_open(rig);
    struct client second = client_open(rig);
    struct client third = client_open(rig);
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    http_server_drain(rig->server, 1000, note_drained, rig);
    expect_end(&first);
    expect_end(&second);
    expect_end(&third);
    assert_int_equal(accepted(rig), 1);
    assert_true(rig->drained);
    client_close(&first);
    client_close(&second);
    client_close(&third);
    net_rig_free(rig);
}

static void put_requests(struct client *c, int count)
{
    struct buf b = {0};
    for (int i = 0; i < count; i++)
        buf_puts(&b, GET("/now"));
    send_all(c, b.data, b.len);
    buf_fini(&b);
}

static void pipeline_has_a_share_of_each_turn(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.pipeline_max = 4;
    struct net_rig *rig = net_rig_new(&limits);
    struct client greedy = client_served(rig);
    struct client modest = client_served(rig);
    set_option(&greedy, IPPROTO_TCP, TCP_NODELAY, 1);
    rig->handled = 0;
    put_requests(&greedy, 10);
    put_requests(&modest, 1);
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(rig->handled, 4 + 1);
    put_requests(&greedy, 8);
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(rig->handled, 8 + 1);
    expect_times(&modest, "HTTP/1.1 201", 1);
    expect_times(&greedy, "HTTP/1.1 201", 18);
    turn(&greedy);
    assert_int_not_equal(uv_backend_timeout(&rig->loop), 0); /* it sleeps again */
    client_close(&greedy);
    client_close(&modest);
    net_rig_free(rig);
}

static void large_answers_have_a_share_too(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_served(rig);
    send_all(&c, GET("/page") GET("/page") GET("/page"), 3 * strlen(GET("/page")));
    for (int pages = 1; pages <= 3; pages++) {
        uv_run(&rig->loop, UV_RUN_NOWAIT);
        assert_int_equal(rig->handled, 1 + pages);
        char piece[PAGE_SIZE];
        while (recv(c.fd, piece, sizeof(piece), MSG_DONTWAIT) > 0)
            continue;
    }
    client_close(&c);
    net_rig_free(rig);
}

static void who_ends_his_sending_gets_all_his_shares(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.pipeline_max = 4;
    struct net_rig *rig = net_rig_new(&limits);
    struct client c = client_open(rig);
    put_requests(&c, 18);
    assert_int_equal(shutdown(c.fd, SHUT_WR), 0);
    expect_end(&c);
    assert_int_equal(count_of(&c, "HTTP/1.1 201"), 18);
    client_close(&c);
    net_rig_free(rig);
}

#define ECHO_SIZE 30000

/* Sends so many requests for an echo as go out, and lets the loop run until nothing more happens.
 * Returns how many bytes of the last one are still to be sent. */
static size_t ask_without_reading(struct client *c, const char *ask, size_t len, int *asked)
{
    size_t left = 0;
    for (int idle = 0; idle < 20; idle++) {
        ssize_t n = send(c->fd, ask + (left ? len - left : 0), left ? left : len,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) {
            *asked += left == 0;
            left = (left ? left : len) - (size_t)n;
            idle = 0;
        }
        uv_run(&c->rig->loop, UV_RUN_NOWAIT);
    }
    return left;
}

static void who_does_not_read_is_soon_not_served(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    set_option(&c, SOL_SOCKET, SO_SNDBUF, 64 * 1024);
    struct buf ask = {0};
    buf_printf(&ask, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", ECHO_SIZE);
    char *body = calloc(1, ECHO_SIZE);
    buf_put(&ask, body, ECHO_SIZE);
    free(body);
    int asked = 0;
    size_t left = ask_without_reading(&c, ask.data, ask.len, &asked);
    struct http_counters counters = http_server_counters(rig->server);
    assert_true(asked > rig->handled); /* the rest waits in the kernel, or here */
    assert_true(counters.requests > 2);
    assert_true(counters.bytes_out < 500 * 1024);
    assert_true(counters.requests * ECHO_SIZE < counters.bytes_out + 200 * 1024);
    assert_true(counters.buffer_bytes < 500 * 1024);
    /* When it reads after all, everything is there. */
    put_bytes(&c, ask.data + ask.len - left, left);
    expect_bytes(&c, (size_t)asked * ECHO_SIZE);
    expect_times(&c, "HTTP/1.1 201", asked);
    buf_fini(&ask);
    client_close(&c);
    net_rig_free(rig);
}

static void who_asks_on_without_reading_is_not_read(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_served(rig);
    set_option(&c, IPPROTO_TCP, TCP_NODELAY, 1);
    send_all(&c, GET("/big") GET("/now"), strlen(GET("/big") GET("/now")));
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    uint64_t bytes_in = http_server_counters(rig->server).bytes_in;
    for (int i = 0; i < 3; i++) {
        put_requests(&c, 1);
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(rig->handled, 2);
    assert_int_equal(http_server_counters(rig->server).bytes_in, bytes_in);
    expect_bytes(&c, BIG_SIZE);
    expect_times(&c, "HTTP/1.1 201", 4);
    client_close(&c);
    net_rig_free(rig);
}

/* The server's end of the connection, which is in this process too. */
static int other_end(const struct client *c)
{
    struct sockaddr_in own;
    socklen_t len = sizeof(own);
    assert_int_equal(getsockname(c->fd, (struct sockaddr *)&own, &len), 0);
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in peer;
        len = sizeof(peer);
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET &&
            peer.sin_port == own.sin_port)
            return fd;
    }
    fail_msg("the server does not have the connection");
    return -1;
}

static int option(int fd, int name)
{
    int value = 0;
    socklen_t len = sizeof(value);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, name, &value, &len), 0);
    return value;
}

static void connections_take_after_their_listener(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_served(rig);
    int fd = other_end(&c);
    assert_int_not_equal(option(fd, TCP_NODELAY), 0);
    assert_in_range(option(fd, TCP_NOTSENT_LOWAT), 1, 1024 * 1024);
    client_close(&c);
    net_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crowd_is_let_in_a_few_at_a_time),
        cmocka_unit_test(who_was_not_let_in_goes_with_the_listener),
        cmocka_unit_test(pipeline_has_a_share_of_each_turn),
        cmocka_unit_test(large_answers_have_a_share_too),
        cmocka_unit_test(who_ends_his_sending_gets_all_his_shares),
        cmocka_unit_test(who_does_not_read_is_soon_not_served),
        cmocka_unit_test(who_asks_on_without_reading_is_not_read),
        cmocka_unit_test(connections_take_after_their_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
