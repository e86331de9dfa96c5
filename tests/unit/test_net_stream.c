/* net: answers that are written in pieces. */
#include "unit/net_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void write_piece(struct net_rig *rig, const char *piece)
{
    rig->piece = piece;
    rig->piece_len = strlen(piece);
    http_stream_more(rig->stream);
}

static void expect_stream(struct client *c)
{
    for (int i = 0; i < PATIENCE_MS && !c->rig->stream; i++)
        turns(c, 1);
    assert_non_null(c->rig->stream);
}

static void pieces_come_as_chunks_and_the_end_is_said(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/stream"));
    expect(&c, "\r\n\r\n");
    expect(&c, "Transfer-Encoding: chunked\r\n");
    expect(&c, "Connection: close\r\n");
    assert_int_equal(count_of(&c, "Content-Length"), 0);
    write_piece(rig, "first piece");
    expect(&c, "\r\nb\r\nfirst piece\r\n");
    write_piece(rig, "second");
    expect(&c, "\r\n6\r\nsecond\r\n");
    http_stream_end(rig->stream);
    expect(&c, "\r\n0\r\n\r\n");
    expect_end(&c);
    assert_int_equal(rig->hangups, 0);
    assert_int_equal(http_server_counters(rig->server).responses_2xx, 1);
    client_close(&c);
    net_rig_free(rig);
}

static void an_old_client_gets_the_bytes_alone_until_the_connection_ends(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, "GET /stream HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    expect(&c, "\r\n\r\n");
    assert_int_equal(count_of(&c, "chunked"), 0);
    write_piece(rig, "a piece");
    expect(&c, "\r\n\r\na piece");
    http_stream_end(rig->stream);
    expect_end(&c);
    assert_int_equal(count_of(&c, "a piece"), 1);
    assert_memory_equal(c.got.data + c.got.len - 7, "a piece", 7);
    client_close(&c);
    net_rig_free(rig);
}

static void a_stream_waits_for_its_turn_and_is_the_last(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") GET("/stream") GET("/now"));
    expect_stream(&c);
    write_piece(rig, "a piece");
    turns(&c, 20);
    assert_int_equal(c.got.len, 0);
    assert_int_equal(rig->ticks, 0);
    kept_answer(rig, 0, "(before)");
    expect(&c, "a piece");
    assert_true(strstr(buf_cstr(&c.got), "(before)") < strstr(buf_cstr(&c.got), "chunked"));
    assert_int_equal(rig->handled, 2);
    http_stream_end(rig->stream);
    expect_end(&c);
    client_close(&c);
    net_rig_free(rig);
}

static void a_stream_that_ends_before_its_turn_is_whole(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/later") GET("/stream"));
    expect_stream(&c);
    http_stream_end(rig->stream);
    kept_answer(rig, 0, "(before)");
    expect(&c, "Connection: close\r\n\r\n0\r\n\r\n");
    expect_end(&c);
    client_close(&c);
    net_rig_free(rig);
}

static void ticks_come_by_themselves(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/stream"));
    for (int i = 0; i < PATIENCE_MS && rig->ticks < 3; i++)
        turns(&c, 1);
    assert_true(rig->ticks >= 3);
    client_close(&c);
    turns(&c, 1);
    net_rig_free(rig);
}

/* What is unsent stays what one tick wrote, however long the client does not read. */
static void a_client_that_does_not_read_gets_no_ticks(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    char *piece = calloc(1, 256 * 1024);
    say(&c, GET("/stream"));
    expect_stream(&c);
    rig->piece = piece;
    rig->piece_len = 256 * 1024;
    rig->piece_again = true;
    http_stream_more(rig->stream);
    int ticks = -1;
    while (ticks != rig->ticks) { /* until the kernel takes no more */
        ticks = rig->ticks;
        for (int i = 0; i < 200; i++)
            uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
    struct http_counters counters = http_server_counters(rig->server);
    assert_true(counters.buffer_bytes < 1024 * 1024);
    for (int i = 0; i < 3; i++) /* sweeps */
        uv_sleep(260), uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(rig->ticks, ticks);
    for (int i = 0; i < PATIENCE_MS && rig->ticks == ticks; i++)
        turns(&c, 1); /* it reads again */
    assert_true(rig->ticks > ticks);
    rig->piece_again = false;
    client_close(&c);
    for (int i = 0; i < PATIENCE_MS && rig->stream; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT), uv_sleep(1);
    assert_null(rig->stream);
    free(piece);
    net_rig_free(rig);
}

static void a_hangup_is_told_to_the_stream(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/stream"));
    expect_stream(&c);
    shutdown(c.fd, SHUT_WR);
    expect_end(&c);
    assert_int_equal(rig->hangups, 1);
    assert_null(rig->stream);
    client_close(&c);
    net_rig_free(rig);
}

static void a_drain_ends_streams_in_good_order(void **state)
{
    (void)state;
    struct net_rig *rig = net_rig_new(NULL);
    struct client c = client_open(rig);
    say(&c, GET("/stream"));
    expect_stream(&c);
    turns(&c, 5);
    http_server_drain(rig->server, PATIENCE_MS, note_drained, rig);
    expect(&c, "\r\n0\r\n\r\n");
    expect_end(&c);
    assert_int_equal(rig->hangups, 1);
    client_close(&c);
    for (int i = 0; i < PATIENCE_MS && !rig->drained; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT), uv_sleep(1);
    assert_true(rig->drained);
    net_rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_come_as_chunks_and_the_end_is_said),
        cmocka_unit_test(an_old_client_gets_the_bytes_alone_until_the_connection_ends),
        cmocka_unit_test(a_stream_waits_for_its_turn_and_is_the_last),
        cmocka_unit_test(a_stream_that_ends_before_its_turn_is_whole),
        cmocka_unit_test(ticks_come_by_themselves),
        cmocka_unit_test(a_client_that_does_not_read_gets_no_ticks),
        cmocka_unit_test(a_hangup_is_told_to_the_stream),
        cmocka_unit_test(a_drain_ends_streams_in_good_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
