#include "unit/tls_rig.h"
#include "folder.h"

#include <errno.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char folder[FOLDER_PATH_MAX];
char cert_path[FOLDER_PATH_MAX + 16], key_path[FOLDER_PATH_MAX + 16];

/* A certificate that signs itself, in the files that the server reads. */
void certificate_make(const char *name)
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

struct secure_rig secure_rig_new(const struct http_limits *limits)
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

void secure_rig_free(struct secure_rig *rig)
{
    net_rig_free(rig->net);
    tls_free(rig->tls);
    SSL_CTX_free(rig->clients);
}

struct http_counters secure_counters(const struct secure_rig *rig)
{
    return http_server_counters(rig->net->server);
}

struct secure secure_open_from(struct secure_rig *rig, const char *address)
{
    struct secure s = {
        .raw = client_open_from(rig->net, address), .ssl = SSL_new(rig->clients), .piece = 65536};
    s.in = BIO_new(BIO_s_mem());
    s.out = BIO_new(BIO_s_mem());
    SSL_set_bio(s.ssl, s.in, s.out);
    SSL_set_connect_state(s.ssl);
    return s;
}

struct secure secure_open(struct secure_rig *rig)
{
    return secure_open_from(rig, "127.0.0.1");
}

void secure_close(struct secure *s)
{
    SSL_free(s->ssl);
    buf_fini(&s->got);
    client_close(&s->raw);
}

/* A peer that is cut off may not get rid of all it has to say. */
void secure_send(struct secure *s)
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

void secure_turn(struct secure *s)
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

void secure_greet(struct secure *s)
{
    SSL_do_handshake(s->ssl);
    turn_until(s, SSL_is_init_finished(s->ssl));
}

void secure_say(struct secure *s, const char *text)
{
    assert_int_equal(SSL_write(s->ssl, text, (int)strlen(text)), (int)strlen(text));
    secure_send(s);
}

int secure_count(const struct secure *s, const char *needle)
{
    struct client all = {.got = s->got};
    return count_of(&all, needle);
}

int tls_rig_set_up(void **state)
{
    (void)state;
    folder_make(folder);
    snprintf(cert_path, sizeof(cert_path), "%s/cert.pem", folder);
    snprintf(key_path, sizeof(key_path), "%s/key.pem", folder);
    return 0;
}

int tls_rig_clean_up(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}
