/* Posts small JSON documents to URLs, in the background. Handing one over never waits for the
 * network: a thread of its own, started with the first post, sends them, tries each a few times and
 * then gives it up. What cannot be kept is dropped, counted and logged. Any thread may post.
 *
 * Receivers do not wait for each other. A receiver is the host and port of a URL. It may have a few
 * posts under way at a time and a limited number waiting: so a slow receiver delays and drops its
 * own posts alone. When all places are taken, the receiver that has the most loses one to a
 * receiver that has fewer. The receiver with the fewest posts under way is served next. The posts
 * of one queue are sent one after the other: "cleared" never overtakes "raised".
 *
 * Whoever configures a queue chooses a URL, and the server connects to it from inside the
 * operator's network. So addresses of this machine and of its link are refused unless the operator
 * allows them; the address is looked at when the socket is made, after the name was looked up. */
#ifndef TRIAGE_BROKER_WEBHOOK_H
#define TRIAGE_BROKER_WEBHOOK_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define WEBHOOK_WAITING_MAX  400  /* of all receivers, those under way included */
#define WEBHOOK_RECEIVER_MAX 100  /* … of one receiver */
#define WEBHOOK_ACTIVE_MAX   64   /* under way at once, of all receivers */
#define WEBHOOK_PARALLEL_MAX 4    /* … of one receiver */
#define WEBHOOK_MS_MAX       5000 /* one try, from the name lookup to the answer */
#define WEBHOOK_TRIES        3

struct sockaddr;
struct webhooks;

struct webhook_options {
    bool local;         /* receivers may be on this machine or on its link */
    const char *cacert; /* borrowed; who signs receivers' certificates; "": the system's list */
};

struct webhooks *webhooks_new(const struct webhook_options *options);
void webhooks_free(struct webhooks *w); /* what was not sent yet is lost; NULL is fine */

/* `url` is http:// or https://; other schemes fail. The log names `queue`, never the URL, which may
 * carry a secret. The body's memory changes owner. */
void webhooks_post(struct webhooks *w, const char *queue, const char *url, struct buf *body);

uint64_t webhooks_lost(const struct webhooks *w); /* dropped or given up */

/* Whether an address is this machine's or its link's: loopback, link-local, unspecified, multicast;
 * also when it is written as an IPv6 address that carries such an IPv4 address. */
bool webhook_is_local(const struct sockaddr *address);

#endif
