/* net: TLS on a listener. The client is OpenSSL too, with its bytes in the test's hand. */
#define _GNU_SOURCE /* memmem */
#include "folder.h"
#include "net/tls.h"
#include "unit/net_rig.h"

#include <errno.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char folder[FOLDER_PATH_MAX];
static char cert_path[FOLDER_PATH_MAX + 16], key_path[FOLDER_PATH_MAX + 16];

/* A certificate that signs itself, in the files that the server reads. */
static void certificate_make(const char *name)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_NAME *subject = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, subject);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *file = fopen(cert_path, "w");
    assert_int_equal(PEM_write_X509(file, cert), 1);
    fclose(file);
    file = fopen(key_path, "w");
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* The rig's own server, with a listener for TLS beside the plain one. */
struct secure_rig {
    struct net_rig *net;
    struct tls *tls;
    struct sockaddr_in plain;
    SSL_CTX *clients;
};

static struct secure_rig secure_rig_new(const struct http_limits *limits)
{
    struct buf error = {0};
    struct secure_rig rig = {.net = net_rig_new(limits)};
    certificate_make("first");
    rig.tls = tls_new(&(struct tls_options){.cert = cert_path, .key = key_path}, &error);
    assert_non_null(rig.tls);
    int fd = http_socket_tcp("127.0.0.1", 0, false);
    assert_true(fd >= 0);
    assert_int_equal(http_server_listen_on(rig.net->server, fd, rig.tls), 0);
    rig.plain = rig.net->addr;
    rig.net->addr.sin_port = htons((uint16_t)http_socket_port(fd)); /* clients go there */
    close(fd);
    rig.clients = SSL_CTX_new(TLS_client_method());
    return rig;
}

static void secure_rig_free(struct secure_rig *rig)
{
    net_rig_free(rig->net);
    tls_free(rig->tls);
    SSL_CTX_free(rig->clients);
}

static struct http_counters counters(const struct secure_rig *rig)
{
    return http_server_counters(rig->net->server);
}

struct secure {
    struct client raw;
    SSL *ssl;
    BIO *in, *out;
    struct buf got; /* out of the records */
    size_t piece;   /* bytes sent at once */
    bool ended;     /* by close_notify */
};

static struct secure secure_open_from(struct secure_rig *rig, const char *address)
{
    struct secure s = {
        .raw = client_open_from(rig->net, address), .ssl = SSL_new(rig->clients), .piece = 65536};
    s.in = BIO_new(BIO_s_mem());
    s.out = BIO_new(BIO_s_mem());
    SSL_set_bio(s.ssl, s.in, s.out);
    SSL_set_connect_state(s.ssl);
    return s;
}

static struct secure secure_open(struct secure_rig *rig)
{
    return secure_open_from(rig, "127.0.0.1");
}

static void secure_close(struct secure *s)
{
    SSL_free(s->ssl);
    buf_fini(&s->got);
    client_close(&s->raw);
}

/* A peer that is cut off may not get rid of all it has to say. */
static void secure_send(struct secure *s)
{
    char piece[65536];
    int n;
    while ((n = BIO_read(s->out, piece, (int)s->piece)) > 0) {
        for (int at = 0; at < n && !s->raw.ended; turn(&s->raw)) {
            ssize_t sent =
                send(s->raw.fd, piece + at, (size_t)(n - at), MSG_DONTWAIT | MSG_NOSIGNAL);
            at += sent > 0 ? (int)sent : 0;
            if (sent < 0 && errno != EAGAIN)
                return;
        }
    }
}

static void secure_turn(struct secure *s)
{
    char text[65536];
    int n;
    secure_send(s);
    turn(&s->raw);
    BIO_write(s->in, s->raw.got.data, (int)s->raw.got.len);
    buf_clear(&s->raw.got);
    while ((n = SSL_read(s->ssl, text, sizeof(text))) > 0)
        buf_put(&s->got, text, (size_t)n);
    s->ended |= (SSL_get_shutdown(s->ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
    secure_send(s);
}

#define turn_until(s, condition)                                                                   \
    do {                                                                                           \
        uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;                                     \
        while (!(condition) && uv_hrtime() < end)                                                  \
            secure_turn(s);                                                                        \
        assert_true(condition);                                                                    \
    } while (0)

static void secure_greet(struct secure *s)
{
    SSL_do_handshake(s->ssl);
    turn_until(s, SSL_is_init_finished(s->ssl));
}

static void secure_say(struct secure *s, const char *text)
{
    assert_int_equal(SSL_write(s->ssl, text, (int)strlen(text)), (int)strlen(text));
    secure_send(s);
}

static int secure_count(const struct secure *s, const char *needle)
{
    struct client all = {.got = s->got};
    return count_of(&all, needle);
}

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
    assert_int_equal(counters(&rig).handshakes, 1);
    assert_int_equal(counters(&rig).handshakes_failed, 0);
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
    assert_int_equal(counters(&rig).timeouts_handshake, 2);
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
    while (counters(&rig).timeouts_head == 0 && uv_hrtime() < end) {
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
    assert_int_equal(counters(&rig).handshakes_failed, 1);
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
    assert_int_equal(counters(&rig).handshakes_failed, 1);
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
        assert_int_equal(counters(&rig).handshakes_failed, i + 1);
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
    assert_int_equal(counters(&rig).handshakes_failed, 3);
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
    while (counters(&rig).connections_accepted < CROWD)
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
    while (counters(&rig).connections_accepted < CROWD + 1)
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
    while (counters(&rig).connections_accepted < CROWD)
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
    assert_int_equal(counters(&rig).parse_errors, 0);
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
    while (counters(&rig).connections_accepted < 4)
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
        assert_int_equal(counters(&rig).handshakes, 2);
        assert_int_equal(counters(&rig).handshakes_resumed, 1);
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
    assert_true(counters(&rig).buffer_bytes >= 10000);
    secure_close(&s);
    struct client c = client_open(rig.net);
    uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;
    client_close(&c);
    while (counters(&rig).connections_open > 0 && uv_hrtime() < end)
        uv_run(&rig.net->loop, UV_RUN_NOWAIT);
    assert_int_equal(counters(&rig).buffer_bytes, 0);
    secure_rig_free(&rig);
}

static int folder_set_up(void **state)
{
    (void)state;
    folder_make(folder);
    snprintf(cert_path, sizeof(cert_path), "%s/cert.pem", folder);
    snprintf(key_path, sizeof(key_path), "%s/key.pem", folder);
    return 0;
}

static int folder_clean_up(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_and_answers_of_every_size_pass_through),
        cmocka_unit_test(bytes_may_come_one_by_one),
        cmocka_unit_test(an_end_is_said_by_both_sides),
        cmocka_unit_test(who_speaks_http_to_tls_is_told_so_and_the_other_way_round),
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
        cmocka_unit_test(new_certificate_is_for_those_who_come_after_it),
        cmocka_unit_test(session_is_resumed_also_after_a_reload),
        cmocka_unit_test(what_tls_takes_is_counted),
    };
    return cmocka_run_group_tests(tests, folder_set_up, folder_clean_up);
}
