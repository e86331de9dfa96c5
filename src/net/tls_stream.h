/* The inside of net: TLS on one connection. It does no input or output: received
 * bytes are put in, records to send are taken out. Only files of this folder include it. */
#ifndef TRIAGE_NET_TLS_STREAM_H
#define TRIAGE_NET_TLS_STREAM_H

#include "net/server.h"
#include "net/tls.h"

#include <openssl/ssl.h>

#define TLS_GREETING_MAX (64 * 1024) /* bytes of a handshake */
#define TLS_MESSAGE_MAX  (32 * 1024) /* the length that one message of a handshake may announce */
#define TLS_CHATTER_MAX  32          /* messages of TLS itself between two pieces of text */
#define TLS_STREAM_SIZE  (16 * 1024) /* what OpenSSL keeps for a connection that is quiet */
#define TLS_RECORD_SIZE  (17 * 1024) /* what it keeps besides for a record that is not whole */

/* Where a handshake (greeting) stands. We read its records, and the messages in them, along with
 * OpenSSL, to refuse one that announces too much. */
struct tls_greeting {
    uint8_t head[5]; /* of a record: its kind, two bytes of version, two of length */
    uint8_t head_len;
    uint32_t record_left;
    uint32_t message_head; /* kind and length of a message, as far as they have come */
    uint8_t message_head_len;
    uint32_t message_left;
    bool sealed; /* what follows is encrypted */
};

struct tls_stream {
    SSL *ssl;
    struct buf records; /* for the peer */
    const char *input;  /* received and not yet seen by OpenSSL */
    size_t input_len;
    size_t since_text; /* bytes received since there was something to read */
    unsigned chatter;  /* messages of the protocol itself since then */
    struct tls_greeting greeting;
    bool greeted;             /* the handshake is over */
    bool failed;              /* nothing more can be read or sent but what is in `records` */
    bool ended;               /* by us: close_notify is in `records` or was sent */
    struct http_slice client; /* the name in its certificate, in `name` */
    char name[TLS_NAME_MAX];
};

/* A socket's side of the protocol. NULL when OpenSSL does not give one. */
struct tls_stream *tls_stream_new(struct tls *tls);
void tls_stream_free(struct tls_stream *t); /* NULL is fine */

/* Data is borrowed until tls_stream_read() has said that there is nothing more. */
void tls_stream_feed(struct tls_stream *t, const char *data, size_t len);

/* Goes on with the handshake, then reads text. Returns how many bytes of text there are, 0 when
 * more records have to come, TLS_READ_END when the peer has ended its side, TLS_READ_FAILED when
 * the connection is broken. */
enum { TLS_READ_END = -1, TLS_READ_FAILED = -2 };
ssize_t tls_stream_read(struct tls_stream *t, char *out, size_t size);

/* Adds `text` to the records, unless the stream has failed or ended. */
void tls_stream_write(struct tls_stream *t, const char *text, size_t len);
void tls_stream_end(struct tls_stream *t); /* adds a close_notify, once */

bool tls_stream_is_partial(const struct tls_stream *t); /* in the middle of a record */
size_t tls_stream_memory(const struct tls_stream *t);   /* roughly */

/* In tls.c: OpenSSL's object for a new connection. */
SSL *tls_session(struct tls *tls);

#endif
