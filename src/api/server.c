/* The server itself: is it alive, is it ready, what is it. */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"

void server_home(struct call *c)
{
    buf_lit(&c->out,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
            "<title>Triage</title>\n<h1>Triage</h1>\n<p>A durable priority queue. Version ");
    buf_puts(&c->out, c->api->options.version);
    buf_lit(&c->out, ".</p>\n<ul>\n"
                     "<li><a href=\"/v1/queues\">Queues</a></li>\n"
                     "<li><a href=\"/metrics\">Metrics</a></li>\n"
                     "<li><a href=\"/openapi.yaml\">The HTTP contract</a></li>\n"
                     "<li><a href=\"/v1/info\">About this server</a></li>\n"
                     "</ul>\n</html>\n");
    call_reply_as(c, 200, "text/html; charset=utf-8", NULL);
}

void server_health(struct call *c)
{
    buf_lit(&c->out, "{\"status\":\"ok\"}");
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

/* The engine's own words may name addresses and paths. So only a token with the role `read` sees
 * them, and the log. */
static bool may_know(const struct call *c)
{
    struct api *api = c->api;
    if (!api->options.auth)
        return false;
    auth_refresh(api->options.auth, &api->auth);
    const struct auth_token *token = auth_find(&api->auth->table, c->http->authorization);
    return token && !token->prefix[0] && auth_allows(token, ROLE_READ, NULL);
}

static void refuse_unready(struct call *c, enum status status, const char *words)
{
    call_refuse_as(c, status, NULL,
                   may_know(c) ? words
                               : "The server's log says why; with a token of the role read so does "
                                 "this page.");
}

/* A full disk refuses enqueues alone: consumers can still be served, and drain it. */
void server_ready(struct call *c)
{
    const struct api_options *o = &c->api->options;
    struct buf words = {0};
    enum status status = broker_health(o->broker, &words);
    if (o->draining && atomic_load(o->draining)) {
        call_refuse_as(c, STATUS_DRAINING, NULL, NULL);
    } else if (status == STATUS_OK || status == STATUS_STORAGE_FULL) {
        buf_lit(&c->out, "{\"status\":");
        buf_puts(&c->out, status == STATUS_OK ? "\"ready\"" : "\"degraded\"");
        if (words.len > 0 && status != STATUS_OK) {
            buf_lit(&c->out, ",\"reason\":");
            json_put_string(&c->out, words.data, words.len);
        }
        buf_putc(&c->out, '}');
        call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
    } else {
        refuse_unready(c, status, buf_cstr(&words));
    }
    buf_fini(&words);
}

void server_info(struct call *c)
{
    const struct api_options *o = &c->api->options;
    buf_lit(&c->out, "{\"name\":\"triage\",\"version\":");
    json_put_cstr(&c->out, o->version);
    buf_lit(&c->out, ",\"engine\":");
    json_put_cstr(&c->out, o->engine);
    buf_lit(&c->out, ",\"durability\":");
    json_put_cstr(&c->out, o->durability);
    buf_lit(&c->out, ",\"started_at\":");
    encode_time(&c->out, o->started_ms);
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

void server_openapi(struct call *c)
{
    const struct api_options *o = &c->api->options;
    if (!o->openapi) {
        call_refuse_as(c, STATUS_ROUTE_NOT_FOUND, NULL,
                       "This server was started without its openapi.yaml.");
        return;
    }
    buf_put(&c->out, o->openapi, o->openapi_len);
    call_reply_as(c, 200, "application/yaml", NULL);
}
