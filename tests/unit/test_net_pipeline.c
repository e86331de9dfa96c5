/* net: many requests on one connection, and who ends it. */
#include "unit/net_rig.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void answers_leave_in_the_order_of_the_requests(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
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
    net_rig_free(rig);
}

static void full_pipeline_waits_and_still_notices_a_hangup(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.pipeline_max = 2;
    struct net_rig *rig = net_rig_new(&limits);
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
    net_rig_free(rig);
}

static void thousands_of_pipelined_requests_are_all_answered(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    struct buf b = {0};
    for (int i = 0; i < 5000; i++)
        buf_puts(&b, GET("/now"));
    put_bytes(&c, b.data, b.len);
    expect_times(&c, "HTTP/1.1 201", 5000);
    assert_int_equal(rig->handled, 5000);
    buf_fini(&b);
    client_close(&c);
    net_rig_free(rig);
}

static void malformed_request_is_answered_in_its_turn_and_ends_it(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
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
    net_rig_free(rig);
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
    struct net_rig *rig = net_rig_new(NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct client c = client_open(rig);
        say(&c, cases[i].text);
        expect(&c, cases[i].header);
        turns(&c, 5);
        assert_int_equal(c.ended, cases[i].ends);
        client_close(&c);
    }
    net_rig_free(rig);
}

static void hangup_is_told_to_whoever_waits(void **state)
{
    (void)state;
    for (int reset = 0; reset < 2; reset++) {
        struct net_rig *rig = net_rig_new(NULL);
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
        net_rig_free(rig);
    }
}

static void half_closed_client_gets_its_answers(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
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
    net_rig_free(rig);
}

/* The first answer meets a reset, the second a broken pipe. */
static void answers_to_someone_who_left_do_no_harm(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
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
    net_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_leave_in_the_order_of_the_requests),
        cmocka_unit_test(full_pipeline_waits_and_still_notices_a_hangup),
        cmocka_unit_test(thousands_of_pipelined_requests_are_all_answered),
        cmocka_unit_test(malformed_request_is_answered_in_its_turn_and_ends_it),
        cmocka_unit_test(keep_alive_follows_the_version_and_the_header),
        cmocka_unit_test(hangup_is_told_to_whoever_waits),
        cmocka_unit_test(half_closed_client_gets_its_answers),
        cmocka_unit_test(answers_to_someone_who_left_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
