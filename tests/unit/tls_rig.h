/* TLS on a listener of net's rig. The client is OpenSSL too, with its bytes in the test's hand. */
#ifndef TRIAGE_TESTS_TLS_RIG_H
#define TRIAGE_TESTS_TLS_RIG_H

#include "folder.h"
#include "net/tls.h"
#include "unit/net_rig.h"

#include <openssl/ssl.h>

extern char cert_path[FOLDER_PATH_MAX + 16], key_path[FOLDER_PATH_MAX + 16];

/* The rig's own server, with a listener for TLS beside the plain one. */
struct secure_rig {
    struct net_rig *net;
    struct tls *tls;
    struct sockaddr_in plain;
    SSL_CTX *clients;
};

struct secure {
    struct client raw;
    SSL *ssl;
    BIO *in, *out;
    struct buf got; /* out of the records */
    size_t piece;   /* bytes sent at once */
    bool ended;     /* by close_notify */
};

/* For a group of tests: a folder for the certificate. */
int tls_rig_set_up(void **state);
int tls_rig_clean_up(void **state);

void certificate_make(const char *name); /* signs itself; into the files that the server reads */

struct secure_rig secure_rig_new(const struct http_limits *limits); /* NULL: the default ones */
void secure_rig_free(struct secure_rig *rig);
struct http_counters secure_counters(const struct secure_rig *rig);

struct secure secure_open(struct secure_rig *rig);
struct secure secure_open_from(struct secure_rig *rig, const char *address);
void secure_close(struct secure *s);
void secure_send(struct secure *s); /* what OpenSSL has to say */
void secure_turn(struct secure *s); /* … and the loop runs, and what came is read */
void secure_greet(struct secure *s);
void secure_say(struct secure *s, const char *text);
int secure_count(const struct secure *s, const char *needle); /* in what came */

#define turn_until(s, condition)                                                                   \
    do {                                                                                           \
        uint64_t end = uv_hrtime() + PATIENCE_MS * 1000000ull;                                     \
        while (!(condition) && uv_hrtime() < end)                                                  \
            secure_turn(s);                                                                        \
        assert_true(condition);                                                                    \
    } while (0)

#endif
