/* net: one request and its answer, however the bytes come. What the parser takes and refuses is in
 * test_net_parse.c. */
#include "unit/net_rig.h"

#include <stdlib.h>
#include <string.h>

static void request_and_answer_carry_everything(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
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
    net_rig_free(rig);
}

static void request_may_come_byte_by_byte(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    static const char text[] = "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"
                               "POST /now HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                               "3\r\nwor\r\n2\r\nld\r\n0\r\n\r\n" GET("/now?last");
    for (size_t i = 0; i + 1 < sizeof(text); i++)
        put_bytes(&c, text + i, 1);
    expect(&c, "body=hello");
    expect(&c, "body=world");
    expect(&c, "query=last");
    client_close(&c);
    net_rig_free(rig);
}

static void stream_means_the_same_wherever_it_is_cut(void **state)
{
    (void)state;
    static const char text[] = GET(
        "/now?1") "POST /now?2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nwor\r\n2\r\nld\r\n0\r\n\r\n"
                  "POST /now?3 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" GET("/now?4");
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    for (size_t cut = 1; cut + 1 < sizeof(text); cut++) {
        buf_clear(&c.got);
        put_bytes(&c, text, cut);
        put_bytes(&c, text + cut, sizeof(text) - 1 - cut);
        expect(&c, "query=4 type= agent= body=");
        expect(&c, "query=1 type= agent= body=HTTP/1.1 201");
        expect(&c, "query=2 type= agent= body=worldHTTP/1.1 201");
        expect(&c, "query=3 type= agent= body=helloHTTP/1.1 201");
    }
    client_close(&c);
    net_rig_free(rig);
}

static void large_bodies_arrive_whole(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    size_t size = 1000 * 1000;
    char *body = malloc(size);
    for (size_t i = 0; i < size; i++)
        body[i] = (char)('a' + i % 26);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    put_bytes(&c, body, size);
    say(&c, "POST /now HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nf4240\r\n");
    put_bytes(&c, body, size);
    say(&c, "\r\n0\r\n\r\n" GET("/now?after"));
    expect(&c, "query=after");
    assert_int_equal(count_of(&c, "HTTP/1.1 201"), 3);
    const char *first = strstr(buf_cstr(&c.got), "body=");
    assert_memory_equal(first + 5, body, size);
    const char *second = strstr(first + 5, "body=");
    assert_memory_equal(second + 5, body, size);
    free(body);
    client_close(&c);
    net_rig_free(rig);
}

static void continue_is_said_when_the_body_is_welcome(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
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
    net_rig_free(rig);
}

/* The strongest form of "before the body": none of it is sent. */
static void refusal_does_not_wait_for_the_body(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "POST /closed HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n\r\n",
        "POST /closed HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /closed HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    };
    struct net_rig *rig = net_rig_new(NULL);
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct client c = client_open(rig);
        say(&c, heads[i]);
        expect(&c, "HTTP/1.1 401 Unauthorized\r\n");
        expect(&c, "WWW-Authenticate: Bearer\r\n");
        expect(&c, "Connection: close\r\n");
        expect(&c, "closed");
        expect_times(&c, "100 Continue", 0);
        expect_end(&c);
        client_close(&c);
    }
    assert_int_equal(rig->asked, 3);
    assert_int_equal(rig->handled, 0);
    net_rig_free(rig);
}

static void refusal_of_a_small_body_keeps_the_connection(void **state)
{
    (void)state;
    static const char text[] =
        GET("/closed") "POST /closed HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n"
                       "GET /now?inside HTTP/1.1\r\nHost: a\r\n\r\nzzz" GET("/now?after");
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    for (size_t cut = 1; cut + 1 < sizeof(text); cut++) {
        buf_clear(&c.got);
        put_bytes(&c, text, cut);
        turn(&c);
        put_bytes(&c, text + cut, sizeof(text) - 1 - cut);
        expect(&c, "query=after");
        expect_times(&c, "HTTP/1.1 401", 2);
        expect_times(&c, "query=inside", 0);
        expect_times(&c, "Connection:", 0);
    }
    assert_false(c.ended);
    client_close(&c);
    net_rig_free(rig);
}

static void refusal_takes_its_turn(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") GET("/closed"));
    expect_kept(&c, 1);
    expect_times(&c, "HTTP/1.1 401", 0);
    kept_answer(rig, 0, "first");
    expect(&c, "closed");
    assert_true(strstr(buf_cstr(&c.got), "first") < strstr(buf_cstr(&c.got), "HTTP/1.1 401"));
    client_close(&c);
    net_rig_free(rig);
}

static void every_request_is_asked_about_once(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    static const char text[] =
        "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" GET("/now");
    for (size_t i = 0; i + 1 < sizeof(text); i++) {
        put_bytes(&c, text + i, 1);
        turn(&c);
    }
    expect_times(&c, "HTTP/1.1 201", 2);
    assert_int_equal(rig->asked, 2);
    client_close(&c);
    net_rig_free(rig);
}

static void head_gets_the_length_without_the_body(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "HEAD /now HTTP/1.1\r\nHost: a\r\n\r\n" GET("/none"));
    expect(&c, "HTTP/1.1 204");
    expect(&c, "Content-Length: 42\r\n");
    expect_times(&c, "body=", 0);
    client_close(&c);
    net_rig_free(rig);
}

static void request_id_is_the_clients_when_it_is_plain(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "GET /now HTTP/1.1\r\nHost: a\r\nX-Request-Id: order_1.a-B\r\n\r\n");
    expect(&c, "X-Request-Id: order_1.a-B\r\n");
    say(&c, "GET /now HTTP/1.1\r\nHost: a\r\nX-Request-Id: <b>\r\n\r\n");
    expect_times(&c, "X-Request-Id: ", 2);
    expect_times(&c, "<b>", 0);
    client_close(&c);
    net_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_and_answer_carry_everything),
        cmocka_unit_test(request_may_come_byte_by_byte),
        cmocka_unit_test(stream_means_the_same_wherever_it_is_cut),
        cmocka_unit_test(large_bodies_arrive_whole),
        cmocka_unit_test(continue_is_said_when_the_body_is_welcome),
        cmocka_unit_test(refusal_does_not_wait_for_the_body),
        cmocka_unit_test(refusal_of_a_small_body_keeps_the_connection),
        cmocka_unit_test(refusal_takes_its_turn),
        cmocka_unit_test(every_request_is_asked_about_once),
        cmocka_unit_test(head_gets_the_length_without_the_body),
        cmocka_unit_test(request_id_is_the_clients_when_it_is_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
