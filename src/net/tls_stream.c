#include "net/tls_stream.h"

#include "base/mem.h"

#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>

enum { RECORD_CHANGE_CIPHER = 20, RECORD_HANDSHAKE = 22 };

/* OpenSSL allocates a handshake message as large as its head announces, up to 128 KiB, before any
 * of it has come. So we look at the bytes on their way in. Messages may be in pieces, over several
 * records, and a second ClientHello may follow the first. */

static void record_begin(struct tls_stream *t)
{
    struct tls_greeting *g = &t->greeting;
    g->head_len = 0;
    g->record_left = (uint32_t)g->head[3] << 8 | g->head[4];
    /* In TLS 1.3 this one says nothing, and in 1.2 that the next are encrypted. */
    bool silent = g->head[0] == RECORD_CHANGE_CIPHER && SSL_version(t->ssl) != TLS1_2_VERSION;
    if (silent)
        g->message_left += g->record_left; /* it stands between messages, and is no part of one */
    else if (g->head[0] != RECORD_HANDSHAKE)
        g->sealed = true;
}

/* False: a message announces more than it may have. */
static bool message_byte(struct tls_greeting *g, uint8_t byte)
{
    g->record_left--;
    if (g->message_left > 0) {
        g->message_left--;
        return true;
    }
    g->message_head = g->message_head << 8 | byte;
    if (++g->message_head_len < 4)
        return true;
    g->message_left = g->message_head & 0xffffff;
    g->message_head_len = 0;
    return g->message_left <= TLS_MESSAGE_MAX;
}

static bool greeting_fits(struct tls_stream *t, const char *data, size_t len)
{
    struct tls_greeting *g = &t->greeting;
    bool fits = true;
    for (size_t i = 0; i < len && fits && !g->sealed; i++) {
        if (g->record_left > 0) {
            fits = message_byte(g, (uint8_t)data[i]);
            continue;
        }
        g->head[g->head_len++] = (uint8_t)data[i];
        if (g->head_len == sizeof(g->head))
            record_begin(t);
    }
    return fits;
}

/* OpenSSL reads and writes through a BIO of ours, straight from what libuv received and into a
 * buffer that it can write. So nothing is copied twice, and nothing waits in between. */

static int bio_read(BIO *bio, char *out, int len)
{
    struct tls_stream *t = BIO_get_data(bio);
    size_t n = (size_t)len < t->input_len ? (size_t)len : t->input_len;
    BIO_clear_retry_flags(bio);
    if (n == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    if (t->chatter > TLS_CHATTER_MAX || (!t->greeted && !greeting_fits(t, t->input, n)))
        return -1; /* which is an error of the stream, not a pause */
    memcpy(out, t->input, n);
    t->input += n;
    t->input_len -= n;
    return (int)n;
}

static int bio_write(BIO *bio, const char *data, int len)
{
    struct tls_stream *t = BIO_get_data(bio);
    buf_put(&t->records, data, (size_t)len);
    return len;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *bio_method;

static void bio_method_init(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "connection");
    if (!bio_method)
        abort();
    BIO_meth_set_read(bio_method, bio_read);
    BIO_meth_set_write(bio_method, bio_write);
    BIO_meth_set_ctrl(bio_method, bio_ctrl);
}

/* Called for each message of TLS itself. After the handshake a peer needs few of them: a KeyUpdate
 * now and then, an alert at the end. Each costs work and none is a request, so they are counted. */
static void on_message(int writing, int version, int type, const void *data, size_t len, SSL *ssl,
                       void *ctx)
{
    struct tls_stream *t = ctx;
    (void)writing;
    (void)version;
    (void)data;
    (void)len;
    (void)ssl;
    if (t->greeted && (type == SSL3_RT_HANDSHAKE || type == SSL3_RT_ALERT))
        t->chatter++;
}

struct tls_stream *tls_stream_new(struct tls *tls)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, bio_method_init);
    SSL *ssl = tls_session(tls);
    BIO *bio = ssl ? BIO_new(bio_method) : NULL;
    if (!bio) {
        SSL_free(ssl);
        return NULL;
    }
    struct tls_stream *t = mem_zalloc(sizeof(*t));
    t->ssl = ssl;
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_accept_state(ssl);
    SSL_set_msg_callback(ssl, on_message);
    SSL_set_msg_callback_arg(ssl, t);
    return t;
}

void tls_stream_free(struct tls_stream *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    buf_fini(&t->records);
    free(t);
}

void tls_stream_feed(struct tls_stream *t, const char *data, size_t len)
{
    /* Only the bytes before these count: these may have a request behind the end of the handshake.
     */
    if (!t->greeted && t->since_text > TLS_GREETING_MAX)
        t->failed = true;
    t->input = data;
    t->input_len = len;
    t->since_text += len;
}

/* The one common name; a certificate with several of them, or with an odd one, names nobody. */
static void name_take(struct tls_stream *t)
{
    const X509 *cert = SSL_get0_peer_certificate(t->ssl);
    if (!cert || SSL_get_verify_result(t->ssl) != X509_V_OK)
        return;
    const X509_NAME *subject = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
    if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return;
    unsigned char *text = NULL;
    int len =
        ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
    if (len > 0 && len <= TLS_NAME_MAX && !memchr(text, '\0', (size_t)len)) {
        memcpy(t->name, text, (size_t)len);
        t->client = (struct http_slice){t->name, (size_t)len};
    }
    OPENSSL_free(text);
}

static void greeting_check(struct tls_stream *t)
{
    if (t->greeted || !SSL_is_init_finished(t->ssl))
        return;
    t->greeted = true;
    t->since_text = 0;
    name_take(t);
}

static ssize_t read_failed(struct tls_stream *t, int result)
{
    int why = SSL_get_error(t->ssl, result);
    if (why == SSL_ERROR_WANT_READ && t->chatter <= TLS_CHATTER_MAX)
        return 0;
    if (why == SSL_ERROR_ZERO_RETURN)
        return TLS_READ_END;
    t->failed = true;
    return TLS_READ_FAILED;
}

static bool has_more(const struct tls_stream *t)
{
    return t->input_len > 0 || SSL_has_pending(t->ssl);
}

ssize_t tls_stream_read(struct tls_stream *t, char *out, size_t size)
{
    size_t got = 0;
    ssize_t end = 0;
    int n = 1;
    if (t->failed)
        return TLS_READ_FAILED;
    if (SSL_get_shutdown(t->ssl) & SSL_RECEIVED_SHUTDOWN)
        return TLS_READ_END;
    ERR_clear_error();
    while (n > 0 && got < size && has_more(t)) {
        n = SSL_read(t->ssl, out + got, (int)(size - got));
        greeting_check(t);
        got += n > 0 ? (size_t)n : 0;
    }
    if (got > 0)
        t->since_text = t->chatter = 0;
    if (n <= 0)
        end = read_failed(t, n); /* which the next call finds again */
    return got > 0 ? (ssize_t)got : end;
}

void tls_stream_write(struct tls_stream *t, const char *text, size_t len)
{
    size_t written;
    if (len == 0 || !t->greeted || t->failed || t->ended)
        return;
    ERR_clear_error();
    /* The BIO takes everything, so there is no half of it. */
    if (SSL_write_ex(t->ssl, text, len, &written) != 1)
        t->failed = true;
}

void tls_stream_end(struct tls_stream *t)
{
    if (t->ended)
        return;
    t->ended = true;
    ERR_clear_error();
    if (t->greeted && !t->failed)
        SSL_shutdown(t->ssl);
}

bool tls_stream_is_partial(const struct tls_stream *t)
{
    return SSL_has_pending(t->ssl) || SSL_rstate_string(t->ssl)[1] == 'B';
}

size_t tls_stream_memory(const struct tls_stream *t)
{
    return TLS_STREAM_SIZE + (t->since_text > 0 ? TLS_RECORD_SIZE : 0) + t->records.cap;
}
