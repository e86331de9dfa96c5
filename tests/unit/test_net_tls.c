/* net: TLS on a listener: what passes through it, certificates, sessions. */
#include "unit/tls_rig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void requests_and_answers_of_every_size_pass_through(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct secure s = secure_open(&rig);
    secure_greet(&s);
    secure_say(&s, GET("/now") GET("/big") GET("/none") GET("/page"));
    turn_until(&s, secure_count(&s, "HTTP/1.1 ") == 4 && s.got.len > BIG_SIZE + PAGE_SIZE);
    size_t whole = s.got.len;
    char *body = calloc(1, 3000000);
    memset(body, 'x', 2999999);
    secure_say(&s, "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 2999999\r\n\r\n");
    secure_say(&s, body);
    turn_until(&s, s.got.len > whole + 2999999);
    assert_int_equal(secure_counters(&rig).handshakes, 1);
    assert_int_equal(secure_counters(&rig).handshakes_failed, 0);
    free(body);
    secure_close(&s);
    secure_rig_free(&rig);
}

static void bytes_may_come_one_by_one(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct secure s = secure_open(&rig);
    s.piece = 1;
    secure_greet(&s);
    secure_say(&s, GET("/now") "POST /now HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    secure_say(&s, "lo" GET("/none"));
    turn_until(&s, secure_count(&s, "HTTP/1.1 20") == 3);
    assert_int_equal(secure_count(&s, "body=hello"), 1);
    secure_close(&s);
    secure_rig_free(&rig);
}

static void an_end_is_said_by_both_sides(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct secure s = secure_open(&rig);
    secure_greet(&s);
    secure_say(&s, "GET /now HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    turn_until(&s, s.ended);
    assert_int_equal(secure_count(&s, "201 Created"), 1);
    /* Ending one's own side is not leaving: the answer still comes. */
    struct secure t = secure_open(&rig);
    secure_greet(&t);
    secure_say(&t, GET("/later"));
    expect_kept(&t.raw, 1);
    SSL_shutdown(t.ssl);
    secure_send(&t);
    kept_answer(rig.net, 0, "so long");
    turn_until(&t, t.ended);
    assert_int_equal(secure_count(&t, "so long"), 1);
    secure_close(&s);
    secure_close(&t);
    secure_rig_free(&rig);
}

static void who_speaks_http_to_tls_is_told_so_and_the_other_way_round(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct client c = client_open(rig.net);
    say(&c, GET("/now"));
    expect_end(&c);
    expect(&c, "HTTP/1.1 400 ");
    expect(&c, "This port speaks TLS: use https:// here.");
    rig.net->addr = rig.plain;
    struct client d = client_open(rig.net);
    put_bytes(&d, "\x16\x03\x01\x00\x05\r\n\r\n", 9);
    expect_end(&d);
    expect(&d, "This port speaks plain HTTP: use http:// here.");
    assert_int_equal(rig.net->handled, 0);
    client_close(&c);
    client_close(&d);
    secure_rig_free(&rig);
}

static void certificate_name(const struct secure *s, char out[64])
{
    const X509 *cert = SSL_get0_peer_certificate(s->ssl);
    X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, out, 64);
}

static void new_certificate_is_for_those_who_come_after_it(void **state)
{
    (void)state;
    char name[64];
    struct buf error = {0};
    struct secure_rig rig = secure_rig_new(NULL);
    struct secure before = secure_open(&rig);
    secure_greet(&before);
    certificate_make("second");
    assert_true(tls_reload(rig.tls, &error));
    struct secure after = secure_open(&rig);
    secure_greet(&after);
    certificate_name(&after, name);
    assert_string_equal(name, "second");
    secure_say(&before, GET("/now"));
    turn_until(&before, secure_count(&before, "201 ") == 1);
    /* A key that does not belong to the certificate changes nothing. */
    char moved[sizeof(key_path) + 8];
    snprintf(moved, sizeof(moved), "%s.old", cert_path);
    assert_int_equal(rename(cert_path, moved), 0);
    certificate_make("third");
    assert_int_equal(rename(moved, cert_path), 0);
    assert_false(tls_reload(rig.tls, &error));
    assert_non_null(strstr(buf_cstr(&error), key_path));
    struct secure last = secure_open(&rig);
    secure_greet(&last);
    certificate_name(&last, name);
    assert_string_equal(name, "second");
    buf_fini(&error);
    secure_close(&before);
    secure_close(&after);
    secure_close(&last);
    secure_rig_free(&rig);
}

static SSL_SESSION *kept_session;

static int keep_session(SSL *ssl, SSL_SESSION *session)
{
    (void)ssl;
    SSL_SESSION_free(kept_session);
    kept_session = session;
    return 1;
}

static void session_is_resumed_also_after_a_reload(void **state)
{
    (void)state;
    struct buf error = {0};
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t i = 0; i < 2; i++) {
        struct secure_rig rig = secure_rig_new(NULL);
        SSL_CTX_set_session_cache_mode(rig.clients, SSL_SESS_CACHE_CLIENT);
        SSL_CTX_sess_set_new_cb(rig.clients, keep_session);
        SSL_CTX_set_max_proto_version(rig.clients, versions[i]);
        struct secure first = secure_open(&rig);
        secure_greet(&first);
        secure_say(&first, GET("/now"));
        turn_until(&first, secure_count(&first, "201 ") == 1);
        assert_non_null(kept_session);
        assert_true(tls_reload(rig.tls, &error));
        struct secure second = secure_open(&rig);
        SSL_set_session(second.ssl, kept_session);
        secure_greet(&second);
        secure_say(&second, GET("/now"));
        turn_until(&second, secure_count(&second, "201 ") == 1);
        assert_true(SSL_session_reused(second.ssl));
        assert_int_equal(secure_counters(&rig).handshakes, 2);
        assert_int_equal(secure_counters(&rig).handshakes_resumed, 1);
        secure_close(&first);
        secure_close(&second);
        SSL_SESSION_free(kept_session);
        kept_session = NULL;
        secure_rig_free(&rig);
    }
}

static void what_tls_takes_is_counted(void **state)
{
    (void)state;
    struct secure_rig rig = secure_rig_new(NULL);
    struct secure s = secure_open(&rig);
    secure_greet(&s);
    secure_say(&s, GET("/now"));
    turn_until(&s, secure_count(&s, "201 ") == 1);
    assert_true(secure_counters(&rig).buffer_bytes >= 10000);
    secure_close(&s);
    struct client c = client_open(rig.net);
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    client_close(&c);
    while (secure_counters(&rig).connections_open > 0 && uv_hrtime() < end)
        uv_run(&rig.net->loop, UV_RUN_NOWAIT);
    assert_int_equal(secure_counters(&rig).buffer_bytes, 0);
    secure_rig_free(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_answers_of_every_size_pass_through),
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(an_end_is_said_by_both_sides),
        cmocka_unit_test(who_speaks_http_to_tls_is_told_so_and_the_other_way_round),
        cmocka_unit_test(new_certificate_is_for_those_who_come_after_it),
        cmocka_unit_test(session_is_resumed_also_after_a_reload),
        cmocka_unit_test(what_tls_takes_is_counted),
    };
    return cmocka_run_group_tests(tests, tls_rig_set_up, tls_rig_clean_up);
}
