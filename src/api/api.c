#include "api/api.h"

#include "api/auth.h"
#include "api/call.h"
#include "api/guard.h"
#include "api/rate.h"
#include "api/request_times.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/plant.h"

#include <stdio.h>
#include <stdlib.h>

struct api *api_new(struct broker_port *port, const struct api_options *options)
{
    struct api *api = mem_zalloc(sizeof(*api));
    api->tag = API_TAG;
    api->port = port;
    api->options = *options;
    json_init(&api->doc);
    return api;
}

void api_watch(struct api *api, struct turn_watch *turns)
{
    if (!api->options.request_times)
        return;
    api->turns = turns;
    api->times = request_table_new(api->options.request_times);
}

void api_free(struct api *api)
{
    if (!api)
        return;
    for (struct call *c = api->spare, *next; c; c = next) {
        next = c->next;
        buf_fini(&c->out);
        buf_fini(&c->text);
        free(c);
    }
    auth_unref(api->auth);
    json_fini(&api->doc);
    buf_fini(&api->scratch);
    tag_end(&api->tag, API_TAG);
    free(api);
}

static bool route_missing(struct api *api, const struct route_match *match, struct problem *p)
{
    if (!match->known)
        return problem_set(p, STATUS_ROUTE_NOT_FOUND, "GET /openapi.yaml describes every path.");
    snprintf(api->allow, sizeof(api->allow), "Allow: %s\r\n", match->allow);
    return problem_set(p, STATUS_METHOD_NOT_ALLOWED, "This path takes %s.", match->allow);
}

/* A name in the path, decoded. `whose`: a queue's, a schedule's. */
static bool name_read(struct http_slice from, const char *field, const char *whose,
                      char out[QUEUE_NAME_MAX + 1], struct problem *p)
{
    char text[3 * QUEUE_NAME_MAX];
    size_t len = from.len;
    bool fits = len <= sizeof(text);
    if (fits)
        memcpy(text, from.data, len);
    if (!fits || !percent_decode(text, &len, false) || !queue_name_valid(text, len)) {
        problem_set_field(p, "", field, strlen(field));
        return problem_set(p, STATUS_INVALID_FIELD,
                           "A %s name has 1 to %d of the characters A-Z a-z 0-9 . _ - and is not "
                           "\".\" or \"..\".",
                           whose, QUEUE_NAME_MAX);
    }
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

/* The path's parameters, decoded. */
static bool parameters_read(struct entry *e, const struct route_match *match, struct problem *p)
{
    e->queue[0] = e->name[0] = '\0'; /* where the path has none */
    if (match->queue.data && !name_read(match->queue, "queue", "queue's", e->queue, p))
        return false;
    e->queue_len = strlen(e->queue);
    if (match->name.data && !name_read(match->name, "name", "schedule's", e->name, p))
        return false;
    if (match->id.data && !message_id_parse(match->id.data, match->id.len, &e->id))
        return problem_set(p, STATUS_MESSAGE_NOT_FOUND,
                           "No message has such an id: it is not one this server gave.");
    return true;
}

/* Finds the token by the secret that was sent, or else by the name that a certificate proves. */
static bool token_prove(struct entry *e, const struct auth_table *auth,
                        const struct http_request *req, struct problem *p)
{
    bool by_name = !req->authorization.data && req->client.data;
    e->token = by_name ? auth_find_name(auth, req->client) : auth_find(auth, req->authorization);
    if (e->token)
        return true;
    p->status = STATUS_UNAUTHENTICATED;
    return by_name ? problem_set(p, STATUS_FORBIDDEN,
                                 "The common name of the client's certificate is not the name of a "
                                 "token of this server.")
                   : false;
}

static bool token_find(struct entry *e, const struct auth_table *auth,
                       const struct http_request *req, struct problem *p)
{
    const struct route *route = e->route;
    if (!token_prove(e, auth, req, p))
        return false;
    bool bound = e->token->prefix[0] != '\0';
    if (!auth_allows(e->token, route->roles, e->queue_len > 0 ? e->queue : NULL) ||
        (bound && route->flags & ROUTE_SERVER)) {
        struct buf why = {0};
        auth_explain(e->token, route->roles, &why);
        if (bound && route->flags & ROUTE_SERVER)
            buf_lit(&why, " This call is about the whole server.");
        problem_set(p, STATUS_FORBIDDEN, "%s", buf_cstr(&why));
        buf_fini(&why);
        return false;
    }
    return true;
}

/* While the server drains, calls that change something are refused. */
static bool entry_timely(const struct api *api, struct problem *p)
{
    const atomic_bool *draining = api->options.draining;
    if (!(api->entry.route->flags & ROUTE_CHANGES) || !draining || !atomic_load(draining))
        return true;
    p->status = STATUS_DRAINING;
    return false;
}

/* Clients repeat their Host: one that was good a moment ago still is, since the guard is constant.
 */
static bool host_is_good(struct api *api, const struct http_request *req, struct problem *p)
{
    struct http_slice host = req->host;
    if (host.len > 0 && host.len == api->host.len && req->local == api->host.local &&
        memcmp(host.data, api->host.text, host.len) == 0)
        return true;
    if (!guard_host(api->options.guard, req, p))
        return false;
    if (host.len <= sizeof(api->host.text)) {
        memcpy(api->host.text, host.data ? host.data : "", host.len);
        api->host.len = host.len;
        api->host.local = req->local;
    }
    return true;
}

/* Reads which queue or message the request is about, finds the token, and checks its rights. */
static bool entry_prove(struct api *api, const struct http_request *req,
                        const struct route_match *match, struct problem *p)
{
    struct entry *e = &api->entry;
    bool open = !api->options.auth || e->route->flags & ROUTE_OPEN;
    e->token = NULL;
    if (!open)
        auth_refresh(api->options.auth, &api->auth);
    return parameters_read(e, match, p) && (open || token_find(e, &api->auth->table, req, p)) &&
           entry_timely(api, p);
}

/* Finds the route, and checks host, site and rights. */
static bool entry_find(struct api *api, const struct http_request *req, struct problem *p)
{
    struct entry *e = &api->entry;
    struct route_match match = {0};
    const struct guard *guard = api->options.guard;
    p->field[0] = p->detail[0] = '\0';
    if (guard && !host_is_good(api, req, p))
        return false;
    route_find(req->verb, req->path, req->path_len, &match);
    e->route = match.route;
    if (!e->route)
        return route_missing(api, &match, p);
    if (guard && !guard_site(guard, req, e->route, p))
        return false;
    return entry_prove(api, req, &match, p);
}

/* Checks a request again whose body came in pieces. Other requests came in between, so api->entry
 * is not about this one any more and its path has moved. Tokens may have been exchanged since, and
 * the server may drain by now. Route, host and site cannot have changed. */
static bool entry_again(struct api *api, const struct http_request *req, struct problem *p)
{
    struct route_match match = {0};
    p->field[0] = p->detail[0] = '\0';
    api->entry.route = req->pass;
    route_parameters(api->entry.route, req->path, req->path_len, &match);
    return entry_prove(api, req, &match, p);
}

/* Whether the request is within its rate, and has a content type that the route takes. */
static bool entry_allowed(const struct api *api, const struct http_request *req, struct problem *p)
{
    const struct api_options *o = &api->options;
    const struct entry *e = &api->entry;
    if (e->route->flags & ROUTE_OPEN)
        return true;
    struct rate *rate = e->token && e->token->rate ? e->token->rate : o->rate;
    if (rate && !rate_take(rate, clock_mono_us())) {
        p->status = STATUS_RATE_LIMITED;
        return false;
    }
    return guard_type(req, e->route, p);
}

void api_admit(const struct http_request *req, void *ctx, struct http_verdict *verdict)
{
    struct api *api = api_of(ctx);
    struct problem p;
    bool fine = entry_find(api, req, &p) && entry_allowed(api, req, &p);
    if (fine || (PLANTED(BODY_FIRST) && req->has_body && api->entry.route)) {
        verdict->body_max = route_body_max(api->entry.route->body);
        verdict->pass = api->entry.route;
        return;
    }
    if (api->options.guard)
        guard_count(api->options.guard, p.status);
    bool allow = p.status == STATUS_METHOD_NOT_ALLOWED;
    verdict->status = status_http(p.status);
    verdict->headers = allow ? api->allow : problem_headers(p.status);
    problem_put(&verdict->body, &p);
}

void api_handle(struct http_request *req, void *ctx)
{
    static const struct field_table no_fields = {NULL, 0};
    struct api *api = api_of(ctx);
    struct entry *e = &api->entry;
    struct call *c = call_new(api, req);
    struct problem p;
    if (!req->fresh && !entry_again(api, req, &p)) {
        call_refuse(c, &p);
        return;
    }
    c->route = e->route;
    c->token = e->token;
    c->auth = c->token ? auth_hold(api->auth) : NULL;
    c->id = e->id;
    if (e->name[0])
        memcpy(c->name, e->name, sizeof(c->name));
    memcpy(c->request.queue, e->queue, e->queue_len); /* the call is all zero there */
    if (req->query_len > 0 && !(c->route->flags & ROUTE_QUERY) && !call_query(c, &no_fields, NULL))
        return;
    c->route->handle(c);
}

void api_problem(void *ctx, enum status status, const char *detail, struct buf *body)
{
    struct problem p = {.status = status};
    (void)ctx;
    problem_copy_text(p.detail, sizeof(p.detail), detail ? detail : "");
    problem_put(body, &p);
}
