#include "api/guard.h"

#include "api/call.h"
#include "base/mem.h"
#include "base/plant.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* host[:port] of a Host or an Origin. */
struct authority {
    struct http_slice name; /* without the dot at its end; an IPv6 address without brackets */
    bool is_v6;
};

static bool slice_is(struct http_slice s, const char *text)
{
    return s.len == strlen(text) && strncasecmp(s.data, text, s.len) == 0;
}

static bool port_fits(const char *at, const char *end)
{
    if (at == end)
        return true;
    if (*at != ':' || end - at > 6)
        return false;
    while (++at < end) {
        if (*at < '0' || *at > '9')
            return false;
    }
    return true;
}

static bool authority_split(struct http_slice text, struct authority *a)
{
    const char *at = text.data, *end = at + text.len;
    a->is_v6 = text.len > 0 && *at == '[';
    at += a->is_v6;
    const char *stop = memchr(at, a->is_v6 ? ']' : ':', (size_t)(end - at));
    if (a->is_v6 && !stop)
        return false;
    stop = stop ? stop : end;
    a->name = (struct http_slice){at, (size_t)(stop - at)};
    if (!a->is_v6 && a->name.len > 0 && a->name.data[a->name.len - 1] == '.')
        a->name.len--;
    return a->name.len > 0 && port_fits(stop + a->is_v6, end);
}

/* Reads an address in numbers, in network order. Returns its length in bytes; 0: it is a name. */
static int address_read(const struct authority *a, uint8_t out[16])
{
    char text[INET6_ADDRSTRLEN];
    if (a->name.len >= sizeof(text))
        return 0;
    memcpy(text, a->name.data, a->name.len);
    text[a->name.len] = '\0';
    if (a->is_v6)
        return inet_pton(AF_INET6, text, out) == 1 ? 16 : 0;
    return inet_pton(AF_INET, text, out) == 1 ? 4 : 0;
}

/* Names below .localhost are this machine's (RFC 6761, 6.3); browsers keep to that. */
static bool is_loopback(const struct authority *a)
{
    static const char below[] = ".localhost";
    static const uint8_t v6_loopback[16] = {[15] = 1};
    size_t tail = sizeof(below) - 1;
    uint8_t address[16];
    struct http_slice n = a->name;
    if (slice_is(n, "localhost"))
        return true;
    if (n.len > tail && strncasecmp(n.data + n.len - tail, below, tail) == 0)
        return true;
    int len = address_read(a, address);
    return len == 4 ? address[0] == 127 : len == 16 && memcmp(address, v6_loopback, 16) == 0;
}

static bool is_listed(const struct guard *g, struct http_slice text)
{
    for (unsigned i = 0; i < g->host_count; i++) {
        if (slice_is(text, g->hosts[i]))
            return true;
    }
    return false;
}

/* Looks for the host in the list, once with the port and once without. */
static bool host_fits(const struct guard *g, struct http_slice host, bool loopback)
{
    struct authority a;
    uint8_t address[16];
    if (g->any_host || (!loopback && g->host_count == 0))
        return true;
    if (!authority_split(host, &a))
        return false;
    if (is_loopback(&a) || is_listed(g, host) || is_listed(g, a.name))
        return true;
    return !loopback && address_read(&a, address) > 0; /* no name, so nobody made it point here */
}

bool guard_host(const struct guard *g, const struct http_request *req, struct problem *p)
{
    if (!req->host.data) /* HTTP/1.0, which no browser speaks */
        return true;
    if (host_fits(g, req->host, g->loopback || req->local))
        return true;
    return problem_set(p, STATUS_MISDIRECTED,
                       "The Host of this request is not a name of this server. Use localhost or "
                       "127.0.0.1, or have the operator add the name to allowed_hosts.");
}

/* The scheme is not looked at: a proxy may have taken the TLS off. */
static bool is_own_origin(const struct guard *g, struct http_slice origin, struct http_slice host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        size_t len = strlen(schemes[i]);
        if (origin.len <= len || strncasecmp(origin.data, schemes[i], len) != 0)
            continue;
        struct http_slice rest = {origin.data + len, origin.len - len};
        bool same = rest.len == host.len && strncasecmp(rest.data, host.data, rest.len) == 0;
        return same || is_listed(g, rest);
    }
    return false;
}

/* Whether a page of somebody else made the request. To a browser a page from another port of this
 * machine is of the same site; here it is foreign all the same. */
static bool is_foreign(const struct guard *g, const struct http_request *req)
{
    struct http_slice site = req->fetch_site;
    bool own = req->origin.data && is_own_origin(g, req->origin, req->host);
    if (req->origin.data && !own)
        return true;
    if (!site.data || slice_is(site, "same-origin") || slice_is(site, "none"))
        return false;
    return !own || !slice_is(site, "same-site");
}

/* Whether somebody follows a link to a page that shows no messages. */
static bool is_visit(const struct http_request *req, const struct route *route)
{
    return route->flags & ROUTE_OPEN && slice_is(http_header(req, "sec-fetch-dest"), "document");
}

/* Whether the request has a header that a browser does not send with a plain link or picture. */
static bool is_deliberate(const struct http_request *req)
{
    struct http_slice a = req->authorization;
    return (a.len > 7 && strncasecmp(a.data, "Bearer ", 7) == 0) ||
           http_header(req, "x-requested-with").data;
}

bool guard_site(const struct guard *g, const struct http_request *req, const struct route *route,
                struct problem *p)
{
    bool said = req->origin.data || req->fetch_site.data;
    if (said && !PLANTED(ANY_PAGE) && is_foreign(g, req) && !is_visit(req, route))
        return problem_set(p, STATUS_CROSS_SITE,
                           "A page of another site made this request. The Origin of a page must be "
                           "the Host it asks, or stand in allowed_hosts.");
    if (route->verb == VERB_GET && route->flags & ROUTE_CHANGES && !is_deliberate(req))
        return problem_set(p, STATUS_CROSS_SITE,
                           "A GET that claims could be any page's picture. Send X-Requested-With "
                           "with any value, or a token, or use POST /v1/queues/{queue}/messages/"
                           "claim.");
    return true;
}

bool guard_type(const struct http_request *req, const struct route *route, struct problem *p)
{
    bool puts = req->verb == VERB_PUT || req->verb == VERB_PATCH;
    bool needed = req->verb == VERB_POST || (puts && req->has_body);
    if (!needed || route_takes(route->body, media_of(req->content_type)))
        return true;
    return problem_set(p, STATUS_UNSUPPORTED_MEDIA_TYPE, "%s", route_advice(route->body));
}

const char *const guard_reasons[STATUS_COUNT] = {
    [STATUS_MISDIRECTED] = "host",
    [STATUS_CROSS_SITE] = "cross_site",
    [STATUS_UNSUPPORTED_MEDIA_TYPE] = "content_type",
    [STATUS_UNAUTHENTICATED] = "token",
    [STATUS_FORBIDDEN] = "role",
    [STATUS_RATE_LIMITED] = "rate",
    [STATUS_DRAINING] = "draining",
};

void guard_count(struct guard *g, enum status reason)
{
    atomic_fetch_add_explicit(&g->refused[reason], 1, memory_order_relaxed);
}

void guard_counts(const struct guard *g, uint64_t counts[STATUS_COUNT])
{
    for (int i = 0; i < STATUS_COUNT; i++)
        counts[i] = atomic_load_explicit(&g->refused[i], memory_order_relaxed);
}

/* One entry of allowed_hosts, or what is wrong with it. */
static const char *host_add(struct guard *g, const char *host)
{
    struct authority a;
    if (strcmp(host, "*") == 0) {
        g->any_host = true;
        return NULL;
    }
    if (g->host_count == GUARD_HOSTS_MAX)
        return "has too many names";
    if (strpbrk(host, "*/@") || !authority_split((struct http_slice){host, strlen(host)}, &a))
        return "takes NAME or NAME:PORT, without a scheme or a path, or * alone";
    g->hosts[g->host_count++] = host;
    return NULL;
}

bool guard_init(struct guard *g, const char *allowed_hosts, bool loopback, struct buf *error)
{
    *g =
        (struct guard){.loopback = loopback, .text = mem_dup(allowed_hosts, strlen(allowed_hosts))};
    char *rest = g->text;
    for (const char *host; (host = strtok_r(rest, ", \t", &rest));) {
        const char *wrong = host_add(g, host);
        if (!wrong)
            continue;
        buf_printf(error, "allowed_hosts %s, not \"%s\"", wrong, host);
        guard_fini(g);
        return false;
    }
    return true;
}

void guard_fini(struct guard *g)
{
    free(g->text);
    *g = (struct guard){0};
}
