/* net: servers listen, share a port, and drain. */
#include "unit/net_rig.h"

#include <sys/socket.h>
#include <unistd.h>

static void two_servers_may_share_a_port_and_only_if_asked(void **state)
{
    (void)state;
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct http_hooks hooks = net_rig_hooks(NULL);
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

static void drain_answers_what_is_under_way(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client idle = client_open(rig);
    struct client busy = client_open(rig);
    struct client half = client_open(rig);
    say(&idle, GET("/now"));
    expect(&idle, "HTTP/1.1 201");
    say(&busy, GET("/later") GET("/later"));
    expect_kept(&busy, 2);
    say(&half, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    http_server_drain(rig->server, 10000, note_drained, rig);
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
    net_rig_free(rig);
}

static void drain_cuts_off_what_does_not_end(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/wait"));
    expect_kept(&c, 1);
    http_server_drain(rig->server, 100, note_drained, rig);
    expect_end(&c);
    turns(&c, 20);
    assert_true(rig->drained);
    assert_int_equal(rig->hangups, 1);
    client_close(&c);
    net_rig_free(rig);
}

static void drain_of_an_idle_server_is_done_at_once(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    http_server_drain(rig->server, 10000, note_drained, rig);
    for (int i = 0; i < 5; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_true(rig->drained);
    net_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_servers_may_share_a_port_and_only_if_asked),
        cmocka_unit_test(drain_answers_what_is_under_way),
        cmocka_unit_test(drain_cuts_off_what_does_not_end),
        cmocka_unit_test(drain_of_an_idle_server_is_done_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
