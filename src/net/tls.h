/* TLS for listeners: the server's certificate and the rules of its handshakes. One
 * `struct tls` is shared by all servers of the process; all its functions may be
 * called from any thread.
 *
 * TLS 1.2 and 1.3, with ciphers that have forward secrecy; no renegotiation, no
 * compression, no early data; HTTP/1.1 is the only protocol. Clients resume their
 * sessions with tickets, which no server has to remember and every thread can
 * read: their key is made at the start of the process and lives as long as it. */
#ifndef TRIAGE_NET_TLS_H
#define TRIAGE_NET_TLS_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>

struct tls;

#define TLS_NAME_MAX 64 /* of a client: the common name of its certificate */

struct tls_options {
    const char *cert;      /* PEM: the server's certificate, then those between it and the root */
    const char *key;       /* PEM, without a passphrase */
    const char *client_ca; /* PEM; NULL or empty: clients are not asked for a certificate */
    bool client_required;  /* and one without a certificate is refused */
};

/* Options are copied. NULL when something is wrong: then `error` has a line for each file that is
 * to blame, with the name of its setting and a sentence. */
struct tls *tls_new(const struct tls_options *options, struct buf *error);

/* Reads the files again, for connections that come from now on. When something is wrong with them,
 * everything stays as it was. */
MUST_USE bool tls_reload(struct tls *tls, struct buf *error);

/* Appends whose certificate it is and until when, as key=value for the log. */
void tls_describe(struct tls *tls, struct buf *out);

bool tls_is_valid_now(struct tls *tls); /* today is within the dates of the certificate */

void tls_free(struct tls *tls); /* when no server uses it; NULL is fine */

#endif
