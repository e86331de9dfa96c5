/* net: everything has a limit: sizes, times, buffers, connections. */
#include "unit/net_rig.h"

#include "net/budget.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
    limits.body_ms = 300;
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

/* What came before does not pay for silence: a large body that stops is a stall. */
static void a_body_that_came_fast_and_then_stops_is_timed_out(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    limits.idle_ms = 60000;
    struct net_rig *rig = net_rig_new(&limits);
    struct client c = client_open(rig);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n");
    char *body = calloc(1, 3900000);
    put_bytes(&c, body, 3900000);
    free(body);
    expect_end(&c);
    expect(&c, "408 ");
    assert_int_equal(http_server_counters(rig->server).timeouts_body, 1);
    client_close(&c);
    net_rig_free(rig);
}

/* A thousand bytes every 50 ms are twenty times the least rate, and far too little for four
 * megabytes, which may take ten seconds. */
static void a_large_body_that_drips_is_timed_out(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    limits.idle_ms = 60000;
    limits.hold_ms = 10000;
    struct net_rig *rig = net_rig_new(&limits);
    static const char *const framing[] = {"Content-Length: 4000000\r\n\r\n",
                                          "Transfer-Encoding: chunked\r\n\r\n3D0900\r\n"};
    char *body = calloc(1, 3000000);
    for (int i = 0; i < 2; i++) {
        struct client c = client_open(rig);
        say(&c, "POST /now HTTP/1.1\r\nHost: a\r\n");
        say(&c, framing[i]);
        put_bytes(&c, body, 3000000);
        for (int drops = 0; drops < 400 && !c.ended; drops++) {
            if (send(c.fd, body, 1000, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                break;
            turns(&c, 50);
        }
        expect_end(&c);
        expect(&c, "408 ");
        client_close(&c);
    }
    free(body);
    assert_int_equal(http_server_counters(rig->server).timeouts_body, 2);
    net_rig_free(rig);
}

/* The kernel takes what is read, so any reading is progress; it has to be enough. */
static void a_reader_that_drips_is_cut_off(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    limits.write_ms = 1000;
    limits.hold_ms = 2000;
    struct net_rig *rig = net_rig_new(&limits);
    struct client c = client_open(rig);
    assert_true(send(c.fd, GET("/big"), strlen(GET("/big")), 0) > 0);
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (http_server_counters(rig->server).timeouts_write == 0 && uv_hrtime() < end) {
        char piece[16384];
        uv_run(&rig->loop, UV_RUN_NOWAIT);
        usleep(20000);
        if (recv(c.fd, piece, sizeof(piece), MSG_DONTWAIT) == 0)
            break;
        assert_true(uv_hrtime() < end);
    }
    assert_int_equal(http_server_counters(rig->server).timeouts_write, 1);
    client_close(&c);
    net_rig_free(rig);
}

/* 100 bytes every 50 ms are twenty times the rate that is asked for. */
static void steady_body_may_take_its_time(void **state)
{
    (void)state;
    struct http_limits limits = short_times();
    limits.idle_ms = 60000;
    limits.body_rate = 100;
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
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nF4240\r\n");
    char *body = calloc(1, 800000);
    put_bytes(&c, body, 800000);
    free(body);
    expect_end(&c);
    expect(&c, "problem overloaded");
    struct client d = client_open(rig);
    say(&d, GET("/now"));
    expect(&d, "HTTP/1.1 201");
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (http_server_counters(rig->server).buffer_bytes > 0 && uv_hrtime() < end)
        turn(&d);
    assert_int_equal(http_server_counters(rig->server).buffer_bytes, 0);
    client_close(&c);
    client_close(&d);
    net_rig_free(rig);
}

/* What it announces is looked at before it is read. */
static void a_body_without_room_is_refused_by_its_head(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.buffers_max = 500000;
    struct net_rig *rig = net_rig_new(&limits);
    struct client c = client_open(rig);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    expect_end(&c);
    expect(&c, "HTTP/1.1 503");
    expect(&c, "problem overloaded");
    assert_int_equal(http_server_counters(rig->server).buffer_bytes, 0);
    client_close(&c);
    net_rig_free(rig);
}

/* The budget is its own after the test: nothing is counted that is not there. */
static uint64_t held(struct budget *budget)
{
    return budget_counters(budget).budget_bytes;
}

static void expect_held(struct client *c, struct budget *budget, uint64_t least, uint64_t most)
{
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while ((held(budget) < least || held(budget) > most) && uv_hrtime() < end)
        turn(c);
    assert_in_range(held(budget), least, most);
}

static struct budget *budget_of(uint64_t bytes, uint64_t waiting, uint64_t connections)
{
    struct budget_limits limits = {.max = {bytes, waiting}, .connections_max = connections};
    return budget_new(&limits);
}

static void everything_that_is_held_for_a_client_is_counted(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.budget = budget_of(100 << 20, 10, 0);
    struct net_rig *rig = net_rig_new(&limits);
    struct client part = client_open(rig);
    char *body = calloc(1, 1000000);
    say(&part, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000001\r\n\r\n");
    put_bytes(&part, body, 1000000);
    expect_held(&part, limits.budget, 1000000, 3000000);
    client_close(&part);
    expect_held(&part, limits.budget, 0, 0);

    struct client kept = client_open(rig); /* its body is with the handler */
    say(&kept, "POST /later HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    put_bytes(&kept, body, 1000000);
    free(body);
    expect_kept(&kept, 1);
    expect_held(&kept, limits.budget, 1000000, 1100000);
    client_close(&kept); /* which is still busy with it when the client has gone */
    turns(&kept, 600);
    expect_held(&kept, limits.budget, 1000000, 1100000);
    kept_answer(rig, 0, "done");
    expect_held(&kept, limits.budget, 0, 0);

    struct client deaf = client_open(rig);
    assert_true(send(deaf.fd, GET("/big"), strlen(GET("/big")), 0) > 0);
    while (held(limits.budget) == 0)
        uv_run(&rig->loop, UV_RUN_ONCE);
    assert_in_range(held(limits.budget), BIG_SIZE / 2, 3 * BIG_SIZE);
    client_close(&deaf);
    expect_held(&deaf, limits.budget, 0, 0);
    net_rig_free(rig);
    budget_free(limits.budget);
}

/* Five deaf clients of one address hold what it may; a client from another address wants some. */
static void an_address_above_its_share_gives_way_to_another(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.budget = budget_of(6 * BIG_SIZE, 10, 0);
    struct net_rig *rig = net_rig_new(&limits);
    struct client deaf[5];
    for (int i = 0; i < 5; i++) {
        deaf[i] = client_open_from(rig, "127.0.0.2");
        assert_true(send(deaf[i].fd, GET("/big"), strlen(GET("/big")), 0) > 0);
    }
    while (http_server_counters(rig->server).requests < 5)
        uv_run(&rig->loop, UV_RUN_ONCE);
    struct client other = client_open(rig);
    assert_true(send(other.fd, GET("/big"), strlen(GET("/big")), 0) > 0);
    while (budget_counters(limits.budget).shed_connections == 0)
        uv_run(&rig->loop, UV_RUN_ONCE);
    assert_in_range(held(limits.budget), 0, 6 * BIG_SIZE);
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (other.got.len < BIG_SIZE && !other.ended && uv_hrtime() < end)
        turn(&other);
    assert_true(other.got.len > BIG_SIZE);
    for (int i = 0; i < 5; i++)
        client_close(&deaf[i]);
    client_close(&other);
    net_rig_free(rig);
    budget_free(limits.budget);
}

/* More than is left, and less than its share: it is not refused while others can give way. */
static void a_body_within_the_share_waits_for_those_who_give_way(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.budget = budget_of(6000000, 10, 0);
    struct net_rig *rig = net_rig_new(&limits);
    struct client hogs[5];
    char *body = calloc(1, 2500000);
    for (int i = 0; i < 5; i++) {
        hogs[i] = client_open_from(rig, "127.0.0.2");
        say(&hogs[i], "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        put_bytes(&hogs[i], body, 900000);
    }
    assert_in_range(held(limits.budget), 4000000, 6000000);
    struct client other = client_open(rig);
    say(&other, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 2500000\r\n\r\n");
    put_bytes(&other, body, 2500000);
    free(body);
    expect(&other, "HTTP/1.1 201");
    assert_true(budget_counters(limits.budget).shed_connections > 0);
    expect_end(&hogs[0]);
    expect(&hogs[0], "problem overloaded");
    for (int i = 0; i < 5; i++)
        client_close(&hogs[i]);
    client_close(&other);
    net_rig_free(rig);
    budget_free(limits.budget);
}

static void connections_of_one_address_have_a_limit(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.address_max = 2;
    struct net_rig *rig = net_rig_new(&limits);
    struct client a = client_open(rig);
    struct client b = client_open(rig);
    struct client c = client_open(rig);
    struct client other = client_open_from(rig, "127.0.0.2");
    say(&a, GET("/now"));
    say(&b, GET("/now"));
    say(&other, GET("/now"));
    expect(&other, "HTTP/1.1 201");
    expect_end(&c);
    expect(&c, "HTTP/1.1 503");
    expect(&c, "Your address has as many connections");
    client_close(&a);
    turns(&b, 5);
    struct client d = client_open(rig);
    say(&d, GET("/now"));
    expect(&d, "HTTP/1.1 201");
    client_close(&b);
    client_close(&c);
    client_close(&d);
    client_close(&other);
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

static void an_idle_connection_gives_way_to_another_address(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.connections_max = 4;
    struct net_rig *rig = net_rig_new(&limits);
    struct client crowd[4];
    for (int i = 0; i < 4; i++) {
        crowd[i] = client_open_from(rig, "127.0.0.2");
        say(&crowd[i], GET("/now"));
        expect(&crowd[i], "HTTP/1.1 201");
    }
    struct client same = client_open_from(rig, "127.0.0.2");
    expect_end(&same);
    expect(&same, "HTTP/1.1 503");
    struct client other = client_open(rig);
    say(&other, GET("/now"));
    expect(&other, "HTTP/1.1 201");
    expect_end(&crowd[0]);
    turns(&crowd[1], 5);
    assert_false(crowd[1].ended);
    for (int i = 0; i < 4; i++)
        client_close(&crowd[i]);
    client_close(&same);
    client_close(&other);
    net_rig_free(rig);
}

/* Who begins a request and does not go on would have ten seconds, and could come again. */
static void a_head_that_does_not_come_gives_way_to_another_address(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.connections_max = 4;
    struct net_rig *rig = net_rig_new(&limits);
    struct client crowd[4];
    for (int i = 0; i < 4; i++) {
        crowd[i] = client_open_from(rig, "127.0.0.2");
        if (i == 0) /* this one is owed an answer */
            say(&crowd[i], GET("/later"));
        say(&crowd[i], "GET /");
    }
    while (http_server_counters(rig->server).bytes_in < strlen(GET("/later")) + 4 * 5)
        turn(&crowd[0]);
    struct client other = client_open(rig);
    say(&other, GET("/now"));
    expect(&other, "HTTP/1.1 201");
    expect_end(&crowd[1]);
    kept_answer(rig, 0, "still there");
    expect(&crowd[0], "still there");
    for (int i = 0; i < 4; i++)
        client_close(&crowd[i]);
    client_close(&other);
    net_rig_free(rig);
}

/* Two addresses hold every place and would for ever; a third is not refused, and theirs end. */
static void waits_above_a_share_end_for_another_address(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.budget = budget_of(100 << 20, 16, 0);
    struct net_rig *rig = net_rig_new(&limits);
    rig->answer_in_hangup = true;
    struct client first = client_open_from(rig, "127.0.0.2");
    struct client second = client_open_from(rig, "127.0.0.3");
    struct client honest = client_open(rig);
    for (int i = 0; i < 14; i++)
        say(&first, GET("/wait"));
    say(&second, GET("/wait") GET("/wait"));
    expect_kept(&second, 16);
    say(&honest, GET("/wait") GET("/wait") GET("/wait"));
    expect_times(&first, "too late", 4);
    turns(&honest, 600);
    assert_int_equal(count_of(&first, "HTTP/1.1 200"), 4);
    assert_int_equal(second.got.len + honest.got.len, 0);
    assert_int_equal(budget_counters(limits.budget).waiting_open, 15);
    assert_int_equal(budget_counters(limits.budget).ended_waits, 4);
    say(&first, GET("/wait")); /* which is above its share still */
    client_close(&first);
    while (rig->hangups < 14)
        turn(&honest);
    assert_int_equal(honest.got.len, 0);
    client_close(&second);
    client_close(&honest);
    while (budget_counters(limits.budget).waiting_open > 0)
        turn(&honest);
    net_rig_free(rig);
    budget_free(limits.budget);
}

/* An answer behind a claim that waits makes the connection no busier, nor does a last request. */
static void a_connection_that_only_waits_gives_way_to_another_address(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.connections_max = 6;
    struct net_rig *rig = net_rig_new(&limits);
    struct client crowd[6];
    for (int i = 0; i < 6; i++)
        crowd[i] = client_open_from(rig, i < 3 ? "127.0.0.2" : "127.0.0.3");
    say(&crowd[0], GET("/later"));
    say(&crowd[1], GET("/wait") GET("/now"));
    say(&crowd[2], "GET /wait HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    for (int i = 3; i < 6; i++)
        say(&crowd[i], GET("/wait"));
    expect_kept(&crowd[0], 6);
    struct client other = client_open(rig);
    say(&other, GET("/now"));
    expect(&other, "HTTP/1.1 201");
    expect_end(&crowd[1]);
    assert_int_equal(rig->hangups, 1);
    kept_answer(rig, 0, "still there");
    expect(&crowd[0], "still there");
    struct client another = client_open_from(rig, "127.0.0.4");
    say(&another, GET("/now"));
    expect(&another, "HTTP/1.1 201");
    for (int i = 0; i < 6; i++)
        client_close(&crowd[i]);
    client_close(&other);
    client_close(&another);
    net_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_past_the_limit_are_refused_early),
        cmocka_unit_test(refused_sender_can_still_read_why),
        cmocka_unit_test(slow_heads_and_bodies_are_timed_out),
        cmocka_unit_test(a_body_that_came_fast_and_then_stops_is_timed_out),
        cmocka_unit_test(a_large_body_that_drips_is_timed_out),
        cmocka_unit_test(a_reader_that_drips_is_cut_off),
        cmocka_unit_test(steady_body_may_take_its_time),
        cmocka_unit_test(idle_connections_end_and_waiting_ones_do_not),
        cmocka_unit_test(slow_reader_gets_everything_and_a_stalled_one_is_cut_off),
        cmocka_unit_test(unsent_output_has_a_limit),
        cmocka_unit_test(large_bodies_give_way_when_buffers_are_short),
        cmocka_unit_test(a_body_without_room_is_refused_by_its_head),
        cmocka_unit_test(everything_that_is_held_for_a_client_is_counted),
        cmocka_unit_test(an_address_above_its_share_gives_way_to_another),
        cmocka_unit_test(a_body_within_the_share_waits_for_those_who_give_way),
        cmocka_unit_test(connections_of_one_address_have_a_limit),
        cmocka_unit_test(an_idle_connection_gives_way_to_another_address),
        cmocka_unit_test(a_head_that_does_not_come_gives_way_to_another_address),
        cmocka_unit_test(connections_past_the_limit_are_told_so),
        cmocka_unit_test(waits_above_a_share_end_for_another_address),
        cmocka_unit_test(a_connection_that_only_waits_gives_way_to_another_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
