/* Where the server listens: the addresses and paths of its settings, and the
 * sockets that systemd opened for it (LISTEN_FDS; those named "tls" speak TLS). */
#ifndef TRIAGE_TRIAGED_ENDPOINTS_H
#define TRIAGE_TRIAGED_ENDPOINTS_H

#include "base/status.h"
#include "net/server.h"
#include "triaged/settings.h"

#include <stdbool.h>
#include <sys/types.h>

#define ENDPOINTS_MAX (4 * SETTINGS_LIST_MAX)

struct endpoint {
    const struct settings_endpoint *wanted; /* NULL: the socket came from systemd */
    bool tls;
    int fd; /* the socket that all servers share; -1 for TCP, where each has its own */
    int port;
    dev_t device; /* of the file, and its number, to remove no other one in the end */
    ino_t inode;
};

struct endpoints {
    struct endpoint items[ENDPOINTS_MAX];
    unsigned count;
};

/* Takes what systemd handed over; before other threads are there, since it changes the environment.
 * On failure says why in the log. `s` is borrowed. */
MUST_USE bool endpoints_open(struct endpoints *e, const struct settings *s);

/* Makes one more server listen on all endpoints. A failure is logged. The engine has to be open:
 * its lock keeps two processes that start together from removing each other's files. */
MUST_USE bool endpoints_listen(struct endpoints *e, struct http_server *server, struct tls *tls,
                               bool shared);

/* Names each for the log, as 127.0.0.1:7420, [::1]:7420, unix:/run/triage.sock. */
void endpoint_name(const struct endpoint *e, struct buf *out);

bool endpoints_are_local(const struct endpoints *e); /* nobody but this machine can connect */
/* Whether nobody on another machine gets in without a certificate, if TLS asks clients for one. */
bool endpoints_are_locked(const struct endpoints *e, bool client_required);
bool endpoints_want_tls(const struct endpoints *e);

/* Removes the files and gives up the shared sockets; servers that listen on them go on. */
void endpoints_close(struct endpoints *e);

#endif
