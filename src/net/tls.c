#include "net/tls.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/plant.h"
#include "net/tls_stream.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Certificates, and the rules of handshakes. What OpenSSL calls a context is made anew from the
 * files each time they are read; connections keep the one that they began with. */

#define TICKET_KEY_SIZE 80          /* as OpenSSL wants it: a name, and keys for HMAC and AES */
#define TICKET_SECONDS  3600        /* for which a session may be resumed */
#define CERTS_MAX       (32 * 1024) /* bytes that a client may send as its certificates */
#define CA_FILE_MAX     (1024 * 1024)

struct tls {
    char *cert, *key, *client_ca; /* paths; client_ca is NULL when none are asked for */
    bool client_required;
    unsigned char ticket_key[TICKET_KEY_SIZE];
    pthread_mutex_t mutex; /* of what follows */
    SSL_CTX *context;
};

/* Better words where OpenSSL's say little. */
static const char *reason_of(unsigned long code)
{
    if (ERR_SYSTEM_ERROR(code))
        return strerror(ERR_GET_REASON(code));
    if (ERR_GET_REASON(code) == ERR_R_INTERRUPTED_OR_CANCELLED)
        return "it has a passphrase; give it without one";
    if (ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE)
        return "there is no such thing in PEM form in it";
    const char *reason = ERR_reason_error_string(code);
    return reason ? reason : "OpenSSL gives no reason";
}

static bool fail(struct buf *error, const char *what, const char *file)
{
    buf_printf(error, "%s%s %s: %s", error->len > 0 ? "\n" : "", what, file,
               reason_of(ERR_peek_error()));
    ERR_clear_error();
    return false;
}

/* A key with a passphrase is refused; OpenSSL would ask for it on the terminal. */
static int no_passphrase(char *out, int size, int writing, void *ctx)
{
    (void)out;
    (void)size;
    (void)writing;
    (void)ctx;
    return -1;
}

static bool load_certificate(const struct tls *t, SSL_CTX *context, struct buf *error)
{
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    bool ok = SSL_CTX_use_certificate_chain_file(context, t->cert) == 1 ||
              fail(error, "tls_cert: cannot use the certificate", t->cert);
    bool key = SSL_CTX_use_PrivateKey_file(context, t->key, SSL_FILETYPE_PEM) == 1 ||
               fail(error, "tls_key: cannot use the key", t->key);
    return ok && key;
}

/* A session that was begun under other authorities must not be resumed under these: its ticket may
 * vouch for a client whom nobody vouches for any more. So it is marked with their digest. */
static bool mark_sessions(SSL_CTX *context, const char *file, struct buf *error)
{
    unsigned char digest[EVP_MAX_MD_SIZE] = {0};
    unsigned len = 1;
    BIO *bio = file ? BIO_new_file(file, "r") : NULL;
    if (file && !bio)
        return fail(error, "tls_client_ca: cannot read the authorities of clients in", file);
    if (bio) {
        struct buf text = {0};
        buf_reserve(&text, CA_FILE_MAX);
        int got = BIO_read(bio, text.data, CA_FILE_MAX);
        BIO_free(bio);
        bool ok = got > 0 && got < CA_FILE_MAX &&
                  EVP_Digest(text.data, (size_t)got, digest, &len, EVP_sha256(), NULL) == 1;
        buf_fini(&text);
        if (!ok)
            return fail(error, "tls_client_ca: cannot read the authorities of clients in", file);
    }
    if (PLANTED(TICKET_OUTLIVES))
        len = 1, digest[0] = 0;
    return SSL_CTX_set_session_id_context(context, digest, len) == 1;
}

static bool load_authorities(const struct tls *t, SSL_CTX *context, struct buf *error)
{
    if (!mark_sessions(context, t->client_ca, error))
        return false;
    if (!t->client_ca)
        return true;
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(t->client_ca);
    if (!names || SSL_CTX_load_verify_locations(context, t->client_ca, NULL) != 1) {
        sk_X509_NAME_pop_free(names, X509_NAME_free);
        return fail(error, "tls_client_ca: cannot use the authorities of clients in", t->client_ca);
    }
    SSL_CTX_set_client_CA_list(context, names);
    SSL_CTX_set_verify(context,
                       SSL_VERIFY_PEER | (t->client_required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                       NULL);
    SSL_CTX_set_max_cert_list(context, CERTS_MAX);
    return true;
}

/* A client that offers protocols (ALPN) has to offer HTTP/1.1; one that offers none speaks it. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *ctx)
{
    static const unsigned char ours[] = "\x08http/1.1";
    (void)ssl;
    (void)ctx;
    int found =
        SSL_select_next_proto((unsigned char **)out, out_len, ours, sizeof(ours) - 1, in, in_len);
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* A ticket holds the client's certificate, which nobody looks at again when the session is resumed,
 * and each resumption gives another ticket. So a ticket with an expired certificate is refused, and
 * the client has to make a full handshake. */
static SSL_TICKET_RETURN check_ticket(SSL *ssl, SSL_SESSION *session, const unsigned char *name,
                                      size_t name_len, SSL_TICKET_STATUS status, void *ctx)
{
    (void)ssl;
    (void)name;
    (void)name_len;
    (void)ctx;
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    const X509 *peer = SSL_SESSION_get0_peer(session);
    if (peer && X509_cmp_current_time(X509_get0_notAfter(peer)) <= 0)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

/* The key exchanges that all clients know and that cost little. A hello for ffdhe8192, which
 * OpenSSL also has, costs the server 139 ms, and costs nothing to whoever replays it. */
#define GROUPS "X25519:P-256:P-384"

static bool set_rules(struct tls *t, SSL_CTX *context)
{
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS); /* a quiet connection is small */
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_timeout(context, TICKET_SECONDS);
    SSL_CTX_set_num_tickets(context, 1);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    SSL_CTX_set_max_cert_list(context, TLS_MESSAGE_MAX);
    return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set1_groups_list(context, GROUPS) == 1 &&
           SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1 &&
           SSL_CTX_set_tlsext_ticket_keys(context, t->ticket_key, TICKET_KEY_SIZE) == 1 &&
           SSL_CTX_set_session_ticket_cb(context, NULL, check_ticket, NULL) == 1;
}

/* Every file is looked at, also when another one is wrong. */
static SSL_CTX *context_new(struct tls *t, struct buf *error)
{
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (!context || !set_rules(t, context)) {
        fail(error, "cannot set up", "TLS");
    } else {
        bool certificate = load_certificate(t, context, error);
        if (load_authorities(t, context, error) && certificate)
            return context;
    }
    SSL_CTX_free(context);
    return NULL;
}

static char *path_copy(const char *path)
{
    return path && *path ? mem_dup(path, strlen(path)) : NULL;
}

struct tls *tls_new(const struct tls_options *options, struct buf *error)
{
    struct tls *t = mem_zalloc(sizeof(*t));
    t->cert = path_copy(options->cert);
    t->key = path_copy(options->key);
    t->client_ca = path_copy(options->client_ca);
    t->client_required = options->client_required;
    pthread_mutex_init(&t->mutex, NULL);
    if (!t->cert || !t->key)
        buf_puts(error, "it takes a certificate and a key");
    else if (RAND_bytes(t->ticket_key, TICKET_KEY_SIZE) != 1)
        fail(error, "cannot make", "a key for tickets");
    else
        t->context = context_new(t, error);
    if (t->context)
        return t;
    tls_free(t);
    return NULL;
}

bool tls_reload(struct tls *t, struct buf *error)
{
    SSL_CTX *fresh = context_new(t, error);
    if (!fresh)
        return false;
    pthread_mutex_lock(&t->mutex);
    SSL_CTX *old = t->context;
    t->context = fresh;
    pthread_mutex_unlock(&t->mutex);
    SSL_CTX_free(old);
    return true;
}

SSL *tls_session(struct tls *t)
{
    pthread_mutex_lock(&t->mutex);
    SSL *ssl = SSL_new(t->context); /* which holds on to the context */
    pthread_mutex_unlock(&t->mutex);
    return ssl;
}

void tls_describe(struct tls *t, struct buf *out)
{
    struct tm end = {0};
    char subject[256] = "", when[32] = "";
    pthread_mutex_lock(&t->mutex);
    const X509 *cert = SSL_CTX_get0_certificate(t->context);
    X509_NAME_oneline(X509_get_subject_name(cert), subject, sizeof(subject));
    if (ASN1_TIME_to_tm(X509_get0_notAfter(cert), &end))
        strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &end);
    pthread_mutex_unlock(&t->mutex);
    log_plain(subject);
    buf_printf(out, "file=%s subject=\"%s\" expires=%s", t->cert, subject, when);
}

bool tls_is_valid_now(struct tls *t)
{
    pthread_mutex_lock(&t->mutex);
    const X509 *cert = SSL_CTX_get0_certificate(t->context);
    bool valid = X509_cmp_current_time(X509_get0_notBefore(cert)) < 0 &&
                 X509_cmp_current_time(X509_get0_notAfter(cert)) > 0;
    pthread_mutex_unlock(&t->mutex);
    return valid;
}

void tls_free(struct tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->context);
    pthread_mutex_destroy(&t->mutex);
    OPENSSL_cleanse(t->ticket_key, sizeof(t->ticket_key));
    free(t->cert);
    free(t->key);
    free(t->client_ca);
    free(t);
}
