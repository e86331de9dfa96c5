/* The server itself: is it alive, is it ready, what is it. */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"

#include <string.h>

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

/* What is gathered of the engine's cells. */
struct cells_shown {
    struct buf list; /* members of an array; empty: the engine has none */
    uint32_t away;
    bool detail; /* with the engine's words */
};

static void put_cell(void *ctx, const struct engine_cell *cell)
{
    struct cells_shown *shown = ctx;
    struct buf *out = &shown->list;
    bool ok = strcmp(cell->state, "ok") == 0;
    buf_printf(out, "%s{\"cell\":", out->len > 0 ? "," : "");
    json_put_cstr(out, cell->name);
    buf_printf(out, ",\"partition\":%u,\"engine\":", cell->number);
    json_put_cstr(out, cell->engine);
    buf_lit(out, ",\"state\":");
    json_put_cstr(out, cell->state);
    buf_lit(out, ",\"clock_offset_seconds\":");
    encode_seconds(out, cell->ahead_us / 1000);
    if (shown->detail && !ok && cell->detail.len > 0) {
        buf_lit(out, ",\"reason\":");
        json_put_string(out, cell->detail.data, cell->detail.len);
    }
    buf_putc(out, '}');
    shown->away += !ok;
}

static void put_cells(struct buf *out, const struct cells_shown *shown)
{
    if (shown->list.len == 0)
        return;
    buf_lit(out, ",\"cells\":[");
    buf_put(out, shown->list.data, shown->list.len);
    buf_putc(out, ']');
}

static void refuse_unready(struct call *c, enum status status, const char *words)
{
    call_refuse_as(c, status, NULL,
                   may_know(c) ? words
                               : "The server's log says why; with a token of the role read so does "
                                 "this page.");
}

/* A full disk refuses enqueues alone: consumers can still be served, and drain it. A cell that is
 * away stops what it has, and nothing else. */
static void reply_ready(struct call *c, enum status status, const struct buf *words)
{
    struct cells_shown cells = {.detail = may_know(c)};
    broker_cell_each(c->api->options.broker, put_cell, &cells);
    bool degraded = status != STATUS_OK || cells.away > 0;
    buf_puts(&c->out, degraded ? "{\"status\":\"degraded\"" : "{\"status\":\"ready\"");
    if (words->len > 0 && status != STATUS_OK) {
        buf_lit(&c->out, ",\"reason\":");
        json_put_string(&c->out, words->data, words->len);
    } else if (degraded) {
        buf_printf(&c->out, ",\"reason\":\"%u of the cells %s away\"", cells.away,
                   cells.away == 1 ? "is" : "are");
    }
    if (cells.detail)
        put_cells(&c->out, &cells);
    buf_putc(&c->out, '}');
    buf_fini(&cells.list);
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

void server_ready(struct call *c)
{
    const struct api_options *o = &c->api->options;
    struct buf words = {0};
    enum status status = broker_health(o->broker, &words);
    if (o->draining && atomic_load(o->draining)) {
        call_refuse_as(c, STATUS_DRAINING, NULL, NULL);
    } else if (status == STATUS_OK || status == STATUS_STORAGE_FULL) {
        reply_ready(c, status, &words);
    } else {
        refuse_unready(c, status, buf_cstr(&words));
    }
    buf_fini(&words);
}

void server_info(struct call *c)
{
    const struct api_options *o = &c->api->options;
    struct cells_shown cells = {0};
    buf_lit(&c->out, "{\"name\":\"triage\",\"version\":");
    json_put_cstr(&c->out, o->version);
    buf_lit(&c->out, ",\"engine\":");
    json_put_cstr(&c->out, o->engine);
    buf_lit(&c->out, ",\"durability\":");
    json_put_cstr(&c->out, o->durability);
    buf_lit(&c->out, ",\"started_at\":");
    encode_time(&c->out, o->started_ms);
    broker_cell_each(o->broker, put_cell, &cells);
    put_cells(&c->out, &cells);
    buf_fini(&cells.list);
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
