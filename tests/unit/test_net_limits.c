/* net: everything has a limit: sizes, times, buffers, connections. */
#include "unit/net_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void bodies_past_the_limit_are_refused_early(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
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
    net_rig_free(rig);
}

/* A reset would throw away the answer that the client has not read yet. */
static void refused_sender_can_still_read_why(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    char body[10000] = {0};
    for (int i = 0; i < 10; i++)
        put_bytes(&c, body, sizeof(body));
    expect_end(&c);
    assert_false(c.reset);
    expect(&c, "413 ");
    client_close(&c);
    net_rig_free(rig);
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
    struct net_rig *rig = net_rig_new(&limits);
    struct client head = client_open(rig);
    struct client body = client_open(rig);
    struct client silent = client_open(rig);
    say(&head, GET("/now") "GET /now HT");
    say(&body, GET("/later") "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhel");
    expect(&head, "HTTP/1.1 201");
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
    net_rig_free(rig);
}

/* 100 bytes every 50 ms are twice the rate that is asked for. */
static void steady_body_may_take_its_time(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    limits.idle_ms = 60000;
    struct net_rig *rig = net_rig_new(&limits);
    struct client c = client_open(rig);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
    char piece[100];
    memset(piece, 'x', sizeof(piece));
    for (int i = 0; i < 20; i++) {
        put_bytes(&c, piece, sizeof(piece));
        turns(&c, 50);
    }
    expect(&c, "HTTP/1.1 201");
    client_close(&c);
    net_rig_free(rig);
}

static void idle_connections_end_and_waiting_ones_do_not(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    struct net_rig *rig = net_rig_new(&limits);
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
    net_rig_free(rig);
}

static void slow_reader_gets_everything_and_a_stalled_one_is_cut_off(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    struct net_rig *rig = net_rig_new(&limits);
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
    net_rig_free(rig);
}

static void unsent_output_has_a_limit(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.output_max = 100000;
    struct net_rig *rig = net_rig_new(&limits);
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
    net_rig_free(rig);
}

static void large_bodies_give_way_when_buffers_are_short(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.buffers_max = 500000;
    struct net_rig *rig = net_rig_new(&limits);
    struct client c = client_open(rig);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    char *body = calloc(1, 800000);
    put_bytes(&c, body, 800000);
    free(body);
    expect_end(&c);
    expect(&c, "problem overloaded");
    struct client d = client_open(rig);
    say(&d, GET("/now"));
    expect(&d, "HTTP/1.1 201");
    turns(&d, 5);
    assert_int_equal(http_server_counters(rig->server).buffer_bytes, 0);
    client_close(&c);
    client_close(&d);
    net_rig_free(rig);
}

static void connections_past_the_limit_are_told_so(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.connections_max = 2;
    struct net_rig *rig = net_rig_new(&limits);
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
    expect(&d, "HTTP/1.1 201 Created");
    assert_int_equal(http_server_counters(rig->server).connections_refused, 1);
    client_close(&b);
    client_close(&d);
    net_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_past_the_limit_are_refused_early),
        cmocka_unit_test(refused_sender_can_still_read_why),
        cmocka_unit_test(slow_heads_and_bodies_are_timed_out),
        cmocka_unit_test(steady_body_may_take_its_time),
        cmocka_unit_test(idle_connections_end_and_waiting_ones_do_not),
        cmocka_unit_test(slow_reader_gets_everything_and_a_stalled_one_is_cut_off),
        cmocka_unit_test(unsent_output_has_a_limit),
        cmocka_unit_test(large_bodies_give_way_when_buffers_are_short),
        cmocka_unit_test(connections_past_the_limit_are_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
