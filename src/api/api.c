#include "api/api.h"

#include "api/auth.h"
#include "api/call.h"
#include "api/rate.h"
#include "api/routes.h"
#include "base/clock.h"
#include "base/codec.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct api *api_new(struct broker_port *port, const struct api_options *options)
{
    struct api *api = mem_zalloc(sizeof(*api));
    api->port = port;
    api->options = *options;
    json_init(&api->doc);
    return api;
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
    json_fini(&api->doc);
    buf_fini(&api->scratch);
    free(api);
}

static void refuse_route(struct call *c, const struct route_match *match)
{
    struct problem p = {.status = STATUS_ROUTE_NOT_FOUND};
    if (match->route) {
        problem_set(&p, p.status, "This version does not have it yet.");
    } else if (match->known) {
        char allow[80];
        snprintf(allow, sizeof(allow), "Allow: %s\r\n", match->allow);
        problem_set(&p, STATUS_METHOD_NOT_ALLOWED, "This path takes %s.", match->allow);
        problem_put(&c->out, &p);
        call_reply_as(c, status_http(p.status), PROBLEM_TYPE, allow);
        return;
    }
    call_refuse(c, &p);
}

/* The path's parameters, decoded. */
static bool parameters_read(struct call *c, const struct route_match *match, struct problem *p)
{
    char text[3 * QUEUE_NAME_MAX];
    size_t len = match->queue.len;
    if (match->queue.data) {
        bool fits = len <= sizeof(text);
        if (fits)
            memcpy(text, match->queue.data, len);
        if (!fits || !percent_decode(text, &len, false) || !queue_name_valid(text, len)) {
            problem_set_field(p, "", "queue", 5);
            return problem_set(
                p, STATUS_INVALID_FIELD,
                "A queue's name has 1 to %d of the characters A-Z a-z 0-9 . _ - and is "
                "not \".\" or \"..\".",
                QUEUE_NAME_MAX);
        }
        memcpy(c->request.queue, text, len);
        c->request.queue[len] = '\0';
    }
    if (match->id.data && !message_id_parse(match->id.data, match->id.len, &c->id))
        return problem_set(p, STATUS_MESSAGE_NOT_FOUND,
                           "No message has such an id: it is not one this server gave.");
    return true;
}

static bool admit_token(struct call *c, struct problem *p)
{
    const struct route *route = c->route;
    const char *queue = c->request.queue[0] ? c->request.queue : NULL;
    c->token = auth_find(c->api->options.auth, c->http->authorization);
    if (!c->token) {
        p->status = STATUS_UNAUTHENTICATED;
        return false;
    }
    bool bound = c->token->prefix[0] != '\0';
    if (!auth_allows(c->token, route->roles, queue) || (bound && route->flags & ROUTE_SERVER)) {
        struct buf why = {0};
        auth_explain(c->token, route->roles, &why);
        problem_set(p, STATUS_FORBIDDEN, "%s", buf_cstr(&why));
        buf_fini(&why);
        return false;
    }
    return true;
}

/* Whether this caller may do this now. */
static bool admit(struct call *c, struct problem *p)
{
    const struct api_options *o = &c->api->options;
    if (c->route->flags & ROUTE_OPEN)
        return true;
    if (o->auth && !admit_token(c, p))
        return false;
    struct rate *rate = c->token && c->token->rate ? c->token->rate : o->rate;
    if (rate && !rate_take(rate, clock_mono_us())) {
        p->status = STATUS_RATE_LIMITED;
        return false;
    }
    if (c->route->flags & ROUTE_CHANGES && o->draining && atomic_load(o->draining)) {
        p->status = STATUS_DRAINING;
        return false;
    }
    return true;
}

void api_handle(struct http_request *req, void *ctx)
{
    static const struct field_table no_fields = {NULL, 0};
    struct api *api = ctx;
    struct call *c = call_new(api, req);
    struct route_match match = {0};
    struct problem p;
    route_find(req->verb, req->path, req->path_len, &match);
    if (!match.route) {
        refuse_route(c, &match);
        return;
    }
    c->route = match.route;
    p.field[0] = p.detail[0] = '\0';
    if (!parameters_read(c, &match, &p) || !admit(c, &p)) {
        call_refuse(c, &p);
        return;
    }
    if (req->query_len > 0 && !(match.route->flags & ROUTE_QUERY) &&
        !call_query(c, &no_fields, NULL))
        return;
    match.route->handle(c);
}

size_t api_body_limit(void *ctx, enum http_verb verb, const char *path, size_t path_len)
{
    struct route_match match = {0};
    (void)ctx;
    route_find(verb, path, path_len, &match);
    return route_body_max(match.route ? match.route->body : BODY_SMALL);
}

void api_problem(void *ctx, enum status status, const char *detail, struct buf *body)
{
    struct problem p = {.status = status};
    (void)ctx;
    problem_copy_text(p.detail, sizeof(p.detail), detail ? detail : "");
    problem_put(body, &p);
}
