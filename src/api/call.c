#include "api/call.h"

#include "api/routes.h"

#include <assert.h>
#include <stdlib.h>
#include <strings.h>

struct call *call_new(struct api *api, struct http_request *http)
{
    struct call *c = api->spare;
    if (c) {
        api->spare = c->next;
        api->spare_count--;
    } else {
        c = mem_zalloc(sizeof(*c));
    }
    memset(&c->request, 0, sizeof(c->request));
    c->api = api;
    c->http = http;
    c->route = NULL;
    c->token = NULL;
    c->finish = NULL;
    c->cleanup = NULL;
    assert(!c->extra);
    return c;
}

static void buffer_recycle(struct buf *b)
{
    if (b->cap > CALL_KEEP_MAX)
        buf_fini(b);
    else
        buf_clear(b);
}

static void call_end(struct call *c)
{
    struct api *api = c->api;
    if (c->cleanup)
        c->cleanup(c);
    free(c->extra);
    c->extra = NULL;
    buffer_recycle(&c->out);
    buffer_recycle(&c->text);
    if (api->spare_count >= CALLS_SPARE_MAX) {
        buf_fini(&c->out);
        buf_fini(&c->text);
        free(c);
        return;
    }
    c->next = api->spare;
    api->spare = c;
    api->spare_count++;
}

void call_reply_as(struct call *c, int http_status, const char *type, const char *headers)
{
    http_respond(c->http, http_status, type ? type : "application/json", headers, c->out.data,
                 c->out.len);
    call_end(c);
}

void call_reply(struct call *c, int http_status)
{
    call_reply_as(c, http_status, NULL, NULL);
}

void call_refuse(struct call *c, const struct problem *p)
{
    buf_clear(&c->out);
    problem_put(&c->out, p);
    call_reply_as(c, status_http(p->status), PROBLEM_TYPE, problem_headers(p->status));
}

void call_refuse_as(struct call *c, enum status status, const char *field, const char *detail)
{
    struct problem p = {.status = status};
    problem_copy_text(p.field, sizeof(p.field), field ? field : "");
    problem_copy_text(p.detail, sizeof(p.detail), detail ? detail : "");
    call_refuse(c, &p);
}

static const char *priority_field(const struct request *r)
{
    return r->kind == REQUEST_CLAIM ? "/min_priority" : "/priority";
}

static bool only_reads(enum request_kind kind)
{
    return kind == REQUEST_GET || kind == REQUEST_LIST || kind == REQUEST_POSITION ||
           kind == REQUEST_QUEUE || kind == REQUEST_QUEUES || kind == REQUEST_STATS;
}

void call_problem(const struct call *c, enum status status, struct problem *p)
{
    const struct request *r = &c->request;
    *p = (struct problem){.status = status};
    problem_copy_text(p->field, sizeof(p->field), r->field);
    problem_copy_text(p->detail, sizeof(p->detail), r->detail);
    if (status == STATUS_UNKNOWN_PRIORITY && !p->field[0])
        problem_copy_text(p->field, sizeof(p->field), priority_field(r));
    if (p->detail[0])
        return;
    if (status == STATUS_QUEUE_NOT_FOUND)
        problem_set(p, status, "There is no queue \"%s\"; create it with PUT /v1/queues/%s.",
                    r->queue, r->queue);
    else if (status == STATUS_ENGINE_UNAVAILABLE && only_reads(r->kind))
        problem_set(p, status, "Try again after Retry-After; GET /readyz says what is wrong.");
    else if (status == STATUS_UNKNOWN_PRIORITY)
        problem_set(p, status,
                    "Queue \"%s\" has no such level; GET /v1/queues/%s shows its levels.", r->queue,
                    r->queue);
}

static void call_done(struct request *r)
{
    struct call *c = call_of(r);
    if (r->status == STATUS_OK) {
        c->finish(c);
        return;
    }
    struct problem p;
    call_problem(c, r->status, &p);
    call_refuse(c, &p);
}

void call_submit(struct call *c, enum request_kind kind, call_finish *finish)
{
    c->finish = finish;
    c->request.kind = kind;
    c->request.done = call_done;
    broker_submit(c->api->port, &c->request);
}

static void hang_up(struct http_request *req)
{
    struct call *c = req->user;
    broker_hangup(&c->request);
}

void call_end_with_peer(struct call *c)
{
    c->http->user = c;
    c->http->on_hangup = hang_up;
}

void call_again(struct call *c)
{
    struct request next = {
        .kind = c->request.kind,
        .done = call_done,
        .op = {.verb = c->request.op.verb, .visit = c->request.op.visit},
    };
    memcpy(next.queue, c->request.queue, sizeof(next.queue));
    next.op.list = c->request.op.list;
    c->request = next;
    broker_submit(c->api->port, &c->request);
}

enum media media_of(struct http_slice type)
{
    static const struct {
        const char *name;
        enum media media;
    } known[] = {
        {"application/json", MEDIA_JSON},
        {"application/octet-stream", MEDIA_BYTES},
        {"application/x-ndjson", MEDIA_NDJSON},
    };
    size_t len = 0;
    if (type.len == 0)
        return MEDIA_JSON;
    while (len < type.len && type.data[len] != ';' && type.data[len] != ' ')
        len++;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strlen(known[i].name) == len && strncasecmp(known[i].name, type.data, len) == 0)
            return known[i].media;
    }
    return MEDIA_OTHER;
}

bool call_json(struct call *c)
{
    const struct http_request *req = c->http;
    struct json_doc *doc = &c->api->doc;
    if (req->body_len > 0 && media_of(req->content_type) != MEDIA_JSON) {
        call_refuse_as(c, STATUS_UNSUPPORTED_MEDIA_TYPE, NULL, NULL);
        return false;
    }
    const char *body = req->body_len > 0 ? req->body : "{}";
    if (json_parse(doc, body, req->body_len > 0 ? req->body_len : 2, BODY_TOKENS_MAX))
        return true;
    call_refuse_as(c, STATUS_MALFORMED_JSON, NULL, doc->error);
    return false;
}

bool call_body(struct call *c, const struct field_table *table, void *target)
{
    struct problem p = {0};
    if (c->http->body_len == 0)
        return true;
    if (!call_json(c))
        return false;
    if (fields_object(&c->api->doc, 0, "", table, target, &p))
        return true;
    call_refuse(c, &p);
    return false;
}

bool call_query(struct call *c, const struct field_table *table, void *target)
{
    struct problem p = {0};
    if (fields_query(c->http->query, c->http->query_len, &c->api->scratch, table, target, &p))
        return true;
    call_refuse(c, &p);
    return false;
}

bool queue_prefix_valid(const char *prefix, size_t len)
{
    if (len > QUEUE_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = prefix[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-')
            return false;
    }
    return true;
}

/* Clients resolve "." and ".." in a path before they send it: such a queue could not be reached. */
bool queue_name_valid(const char *name, size_t len)
{
    bool dots = (len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0);
    return len > 0 && !dots && queue_prefix_valid(name, len);
}

bool call_line(const char **at, const char *end, const char **line, size_t *len)
{
    while (*at < end) {
        const char *stop = memchr(*at, '\n', (size_t)(end - *at));
        stop = stop ? stop : end;
        *line = *at;
        *len = (size_t)(stop - *at);
        *at = stop < end ? stop + 1 : end;
        for (size_t i = 0; i < *len; i++) {
            if ((*line)[i] != ' ' && (*line)[i] != '\t' && (*line)[i] != '\r')
                return true;
        }
    }
    return false;
}
