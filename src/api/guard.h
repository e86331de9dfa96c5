/* Where a request may come from. A browser on this machine, or in its network, sends
 * what any page tells it to. So of a browser only those requests are taken that the
 * server's own pages made. They are told apart by what a page cannot forge: Host,
 * Origin, Sec-Fetch-Site, and headers and content types for which a browser first has
 * to ask with OPTIONS, which is always refused.
 *
 * A guard is made once at start and then constant, but for the counts; any thread may
 * use it. */
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
    bool loopback; /* nobody but this machine can connect, so no other names are needed. On other
                    * servers this holds for requests that are `local` */
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

/* Whether the Host is a name of this server. Otherwise a page whose name was made to point here
 * (DNS rebinding) would count as the server's own. */
MUST_USE bool guard_host(const struct guard *guard, const struct http_request *req,
                         struct problem *p);

/* Whether no page of another site made the request. */
MUST_USE bool guard_site(const struct guard *guard, const struct http_request *req,
                         const struct route *route, struct problem *p);

/* Whether the body is of a type that the route takes. No form of a page, and no other request that
 * a browser sends without asking first, has such a type. */
MUST_USE bool guard_type(const struct http_request *req, const struct route *route,
                         struct problem *p);

/* Names of the reasons of refusals, by status; NULL for those that are not counted. */
extern const char *const guard_reasons[STATUS_COUNT];
void guard_count(struct guard *guard, enum status reason);
void guard_counts(const struct guard *guard, uint64_t counts[STATUS_COUNT]);

#endif
