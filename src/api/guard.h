/* Where a request may come from. A browser on the machine, or in the network, sends
 * what any page tells it to: from there no request is taken that the server's own
 * pages did not make. What tells them apart is what a page cannot forge: Host, Origin,
 * Sec-Fetch-Site, and the headers and content types for which a browser first asks
 * leave with OPTIONS, which is never given.
 *
 * Made once at start and then constant, but for the counts; every thread may look. */
#ifndef TRIAGE_API_GUARD_H
#define TRIAGE_API_GUARD_H

#include "api/problem.h"
#include "api/routes.h"
#include "base/buf.h"
#include "base/status.h"
#include "net/server.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GUARD_HOSTS_MAX 64

struct guard {
    bool any_host; /* "*" was allowed */
    bool loopback; /* nobody but this machine can connect, so nobody needs another name for it; of
                    * other servers a request may say the same: `local` */
    char *text;    /* owned; what hosts[] borrows */
    const char *hosts[GUARD_HOSTS_MAX];
    unsigned host_count;
    _Atomic uint64_t refused[STATUS_COUNT]; /* requests, before their bodies were read */
};

/* `allowed_hosts` is NAME[:PORT] with commas between, or *; a name without a port is good for all
 * ports. On failure `error` has a sentence and nothing is kept. */
MUST_USE bool guard_init(struct guard *guard, const char *allowed_hosts, bool loopback,
                         struct buf *error);
void guard_fini(struct guard *guard);

/* Whether the name it was called by is the server's: else a page whose name was made to point here
 * (DNS rebinding) would be the server's own. */
MUST_USE bool guard_host(const struct guard *guard, const struct http_request *req,
                         struct problem *p);

/* Whether no foreign page made it. */
MUST_USE bool guard_site(const struct guard *guard, const struct http_request *req,
                         const struct route *route, struct problem *p);

/* Whether the body is of a type that the route takes, which no form and no simple request has. */
MUST_USE bool guard_type(const struct http_request *req, const struct route *route,
                         struct problem *p);

/* Names of the reasons by status, NULL for those that are not counted. */
extern const char *const guard_reasons[STATUS_COUNT];
void guard_count(struct guard *guard, enum status reason);
void guard_counts(const struct guard *guard, uint64_t counts[STATUS_COUNT]);

#endif
