/* net: TLS with strangers: greetings that are slow, large, costly or many. */
#define _GNU_SOURCE /* memmem */
#include "unit/tls_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct http_limits short_heads(void)
{
    struct http_limits limits = http_limits_default();
    limits.head_ms = 300;
    return limits;
}

static void handshakes_that_take_too_long_are_cut_off(void **state)
{
    (void)state;
    struct http_limits limits = short_heads();
    struct secure_rig rig = secure_rig_new(&limits);
    struct client silent = client_open(rig.net), slow = client_open(rig.net);
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    put_bytes(&slow, "\x16\x03\x01\x02\x00", 5); /* a record of which little comes */
    while (!slow.ended && uv_hrtime() < end) {
        (void)send(slow.fd, "\x00", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        turn(&slow);
        usleep(10000);
    }
    assert_true(slow.ended);
    expect_end(&silent);
    /* One that is idle behind its handshake has the time of the idle. */
    struct secure quick = secure_open(&rig);
    secure_greet(&quick);
    turns(&quick.raw, 900);
    assert_false(quick.raw.ended);
    secure_say(&quick, GET("/now"));
    turn_until(&quick, secure_count(&quick, "201 ") == 1);
    assert_int_equal(secure_counters(&rig).timeouts_handshake, 2);
    client_close(&silent);
    client_close(&slow);
    secure_close(&quick);
    secure_rig_free(&rig);
}

static void record_that_never_ends_is_a_head_that_takes_too_long(void **state)
{
    (void)state;
    struct http_limits limits = short_heads();
    struct secure_rig rig = secure_rig_new(&limits);
    struct secure s = secure_open(&rig);
    secure_greet(&s);
    /* The record's head, and one byte of its body now and then. */
    put_bytes(&s.raw, "\x17\x03\x03\x20\x00", 5);
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    while (secure_counters(&rig).timeouts_head == 0 && uv_hrtime() < end) {
        (void)send(s.raw.fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        turn(&s.raw);
        usleep(20000);
    }
    turn_until(&s, s.ended);
    assert_int_equal(secure_count(&s, "problem request-timeout"), 1);
    secure_close(&s);
    secure_rig_free(&rig);
}

/* A KeyUpdate costs the server keys and the client some bytes. */
static void only_so_much_may_be_said_beside_requests(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct secure s = secure_open(&rig);
    secure_greet(&s);
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 10; k++) {
            assert_int_equal(SSL_key_update(s.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
            assert_int_equal(SSL_do_handshake(s.ssl), 1);
        }
        secure_say(&s, GET("/none"));
        turn_until(&s, secure_count(&s, "204 ") == i + 1);
    }
    for (int i = 0; i < 100 && !s.raw.ended; i++) {
        SSL_key_update(s.ssl, SSL_KEY_UPDATE_REQUESTED);
        SSL_do_handshake(s.ssl);
        secure_turn(&s);
    }
    turn_until(&s, s.raw.ended);
    assert_int_equal(secure_counters(&rig).handshakes_failed, 1);
    secure_close(&s);
    secure_rig_free(&rig);
}

/* OpenSSL reads all that came at once in one call. */
static void much_that_is_said_at_once_is_not_all_heard(void **state)
{
    enum { UPDATES = 1500, RECORD = 64 };
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct secure s = secure_open(&rig);
    secure_greet(&s);
    for (int i = 0; i < UPDATES; i++) {
        assert_int_equal(SSL_key_update(s.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        SSL_do_handshake(s.ssl);
    }
    char all[UPDATES * RECORD];
    int len = BIO_read(s.out, all, sizeof(all));
    assert_true(len > UPDATES * 20);
    assert_true(len < 65536); /* one read of the server's */
    put_bytes(&s.raw, all, (size_t)len);
    expect_end(&s.raw);
    assert_int_equal(secure_counters(&rig).handshakes_failed, 1);
    assert_true(s.raw.got.len < 100 * RECORD); /* each that is heard is answered */
    secure_close(&s);
    secure_rig_free(&rig);
}

/* A hello that is recorded once and sent again and again costs its sender nothing. */
static void key_exchanges_that_cost_much_are_refused(void **state)
{
    static const char *const groups[] = {"ffdhe8192", "ffdhe2048", "P-521", "X448"};
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        struct secure s = secure_open(&rig);
        assert_int_equal(SSL_set1_groups_list(s.ssl, groups[i]), 1);
        SSL_do_handshake(s.ssl);
        turn_until(&s, s.raw.ended);
        assert_false(SSL_is_init_finished(s.ssl));
        secure_close(&s);
        assert_int_equal(secure_counters(&rig).handshakes_failed, i + 1);
    }
    secure_rig_free(&rig);
}

#define MUCH       "\x01\x02\x01\x44" /* a ClientHello of 131,396 bytes */
#define PLAIN_HEAD "\x16\x03\x01\x00"

/* The head of a message is enough: OpenSSL would make room for all of it. */
static void message_that_announces_much_is_refused_before_it_comes(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct client whole = client_open(rig.net);
    put_bytes(&whole, PLAIN_HEAD "\x04" MUCH, 9);
    expect_end(&whole);
    client_close(&whole);
    struct client pieces = client_open(rig.net);
    for (int i = 0; i < 4; i++) {
        put_bytes(&pieces, PLAIN_HEAD "\x01", 5);
        turn(&pieces);
        put_bytes(&pieces, &MUCH[i], 1);
        turn(&pieces);
    }
    expect_end(&pieces);
    client_close(&pieces);
    /* Its group is not spoken here, and another is: it is asked to say hello again. */
    struct secure again = secure_open(&rig);
    SSL_set1_groups_list(again.ssl, "P-521:P-256");
    SSL_do_handshake(again.ssl);
    secure_send(&again);
    while (again.raw.got.len == 0)
        turn(&again.raw);
    put_bytes(&again.raw, "\x14\x03\x03\x00\x01\x01" PLAIN_HEAD "\x04" MUCH, 15);
    expect_end(&again.raw);
    secure_close(&again);
    assert_int_equal(secure_counters(&rig).handshakes_failed, 3);
    secure_rig_free(&rig);
}

static void hello_may_come_a_second_time(void **state)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    for (size_t i = 0; i < 2; i++) {
        struct secure s = secure_open(&rig);
        SSL_set_max_proto_version(s.ssl, versions[i]);
        SSL_set1_groups_list(s.ssl, "P-521:P-256");
        s.piece = i == 0 ? 1 : 65536;
        secure_greet(&s);
        secure_say(&s, GET("/now"));
        turn_until(&s, secure_count(&s, "201 ") == 1);
        secure_close(&s);
    }
    secure_rig_free(&rig);
}

static void handshake_has_a_size(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct client c = client_open(rig.net);
    /* Records of one byte each, of a ClientHello that would have 16000, so that it is not whole. */
    char hello[] = "\x16\x03\x01\x00\x01\x01";
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    size_t sent = 0;
    put_bytes(&c, "\x16\x03\x01\x00\x04\x01\x00\x3e\x80", 9);
    while (!c.ended && uv_hrtime() < end) {
        ssize_t n = send(c.fd, hello, 6, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        turn(&c);
    }
    assert_true(c.ended);
    assert_true(sent < 80 * 1024); /* the whole would take 94 KiB */
    client_close(&c);
    secure_rig_free(&rig);
}

/* A crowd that was let in long ago, and now says hello all at once. */
static void crowd_of_handshakes_has_its_share_of_each_turn(void **state)
{
    enum { CROWD = 20 };
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.handshakes_max = 1;
    struct secure_rig rig = secure_rig_new(&limits);
    struct secure crowd[CROWD];
    for (int i = 0; i < CROWD; i++)
        crowd[i] = secure_open(&rig);
    while (secure_counters(&rig).connections_accepted < CROWD)
        turn(&crowd[0].raw);
    for (int i = 0; i < CROWD; i++) {
        char hello[4096];
        SSL_do_handshake(crowd[i].ssl);
        int n = BIO_read(crowd[i].out, hello, sizeof(hello));
        assert_int_equal(send(crowd[i].raw.fd, hello, (size_t)n, 0), n);
    }
    int answered = 0, turns = 0;
    for (; answered < CROWD && turns < 100000; turns++) {
        int now = 0;
        char byte;
        uv_run(&rig.net->loop, UV_RUN_NOWAIT);
        for (int i = 0; i < CROWD; i++)
            now += recv(crowd[i].raw.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
        assert_true(now <= answered + 1);
        answered = now;
    }
    assert_int_equal(answered, CROWD);
    for (int i = 0; i < CROWD; i++) {
        turn_until(&crowd[i], SSL_is_init_finished(crowd[i].ssl));
        secure_say(&crowd[i], GET("/now"));
    }
    for (int i = 0; i < CROWD; i++) {
        turn_until(&crowd[i], secure_count(&crowd[i], "201 ") == 1);
        secure_close(&crowd[i]);
    }
    secure_rig_free(&rig);
}

/* Somebody else's greeting does not wait for all of theirs. */
static void crowd_of_one_address_leaves_a_step_to_the_others(void **state)
{
    enum { CROWD = 40 };
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.handshakes_max = 2;
    struct secure_rig rig = secure_rig_new(&limits);
    struct secure crowd[CROWD], other = secure_open(&rig);
    char hello[4096], byte;
    for (int i = 0; i < CROWD; i++)
        crowd[i] = secure_open_from(&rig, "127.0.0.2");
    while (secure_counters(&rig).connections_accepted < CROWD + 1)
        turn(&other.raw);
    for (int i = 0; i < CROWD; i++) {
        SSL_do_handshake(crowd[i].ssl);
        int n = BIO_read(crowd[i].out, hello, sizeof(hello));
        assert_int_equal(send(crowd[i].raw.fd, hello, (size_t)n, 0), n);
    }
    uv_run(&rig.net->loop, UV_RUN_NOWAIT);
    SSL_do_handshake(other.ssl);
    int n = BIO_read(other.out, hello, sizeof(hello));
    assert_int_equal(send(other.raw.fd, hello, (size_t)n, 0), n);
    while (recv(other.raw.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
        uv_run(&rig.net->loop, UV_RUN_NOWAIT);
    int before = 0;
    for (int i = 0; i < CROWD; i++) {
        before += recv(crowd[i].raw.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
        secure_close(&crowd[i]);
    }
    assert_true(before < CROWD / 2);
    secure_close(&other);
    secure_rig_free(&rig);
}

/* The first bytes of a hello that had to wait are followed by capital letters. */
static void greeting_that_waits_is_no_plain_http(void **state)
{
    enum { CROWD = 20, LAST = CROWD - 1 };
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.handshakes_max = 1;
    struct secure_rig rig = secure_rig_new(&limits);
    struct secure crowd[CROWD];
    const char *rest = NULL;
    char hello[4096];
    int len = 0;
    for (int i = 0; i < CROWD; i++)
        crowd[i] = secure_open(&rig);
    while (secure_counters(&rig).connections_accepted < CROWD)
        turn(&crowd[0].raw);
    for (int i = 0; i < CROWD; i++) {
        SSL_set_tlsext_host_name(crowd[i].ssl, "CAPITALS");
        SSL_do_handshake(crowd[i].ssl);
        len = BIO_read(crowd[i].out, hello, sizeof(hello));
        rest = memmem(hello, (size_t)len, "CAPITALS", 8);
        assert_non_null(rest);
        size_t now = i == LAST ? (size_t)(rest - hello) : (size_t)len;
        assert_int_equal(send(crowd[i].raw.fd, hello, now, 0), now);
    }
    uv_run(&rig.net->loop, UV_RUN_NOWAIT);
    put_bytes(&crowd[LAST].raw, rest, (size_t)(hello + len - rest));
    secure_greet(&crowd[LAST]);
    secure_say(&crowd[LAST], GET("/now"));
    turn_until(&crowd[LAST], secure_count(&crowd[LAST], "201 ") == 1);
    assert_int_equal(secure_counters(&rig).parse_errors, 0);
    for (int i = 0; i < CROWD; i++)
        secure_close(&crowd[i]);
    secure_rig_free(&rig);
}

static void handshake_that_does_not_come_gives_way_to_another_address(void **state)
{
    (void)state;
    struct http_limits limits = http_limits_default();
    limits.connections_max = 4;
    struct secure_rig rig = secure_rig_new(&limits);
    struct client crowd[4];
    for (int i = 0; i < 4; i++)
        crowd[i] = client_open_from(rig.net, "127.0.0.2");
    while (secure_counters(&rig).connections_accepted < 4)
        turn(&crowd[0]);
    struct secure s = secure_open(&rig);
    secure_greet(&s);
    secure_say(&s, GET("/now"));
    turn_until(&s, secure_count(&s, "201 ") == 1);
    expect_end(&crowd[0]);
    secure_close(&s);
    for (int i = 0; i < 4; i++)
        client_close(&crowd[i]);
    secure_rig_free(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handshakes_that_take_too_long_are_cut_off),
        cmocka_unit_test(record_that_never_ends_is_a_head_that_takes_too_long),
        cmocka_unit_test(only_so_much_may_be_said_beside_requests),
        cmocka_unit_test(much_that_is_said_at_once_is_not_all_heard),
        cmocka_unit_test(key_exchanges_that_cost_much_are_refused),
        cmocka_unit_test(message_that_announces_much_is_refused_before_it_comes),
        cmocka_unit_test(hello_may_come_a_second_time),
        cmocka_unit_test(handshake_has_a_size),
        cmocka_unit_test(crowd_of_handshakes_has_its_share_of_each_turn),
        cmocka_unit_test(crowd_of_one_address_leaves_a_step_to_the_others),
        cmocka_unit_test(greeting_that_waits_is_no_plain_http),
        cmocka_unit_test(handshake_that_does_not_come_gives_way_to_another_address),
    };
    return cmocka_run_group_tests(tests, tls_rig_set_up, tls_rig_clean_up);
}
