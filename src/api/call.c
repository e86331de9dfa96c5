#include "api/call.h"

#include "api/auth.h"
#include "api/encode.h"
#include "api/relay.h"
#include "api/request_times.h"
#include "base/turn.h"

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
    request_init(&c->request);
    c->tag = CALL_TAG;
    c->api = api;
    c->http = http;
    c->account = http_account(http);
    c->route = NULL;
    c->token = NULL;
    c->auth = NULL;
    c->finish = NULL;
    c->cleanup = NULL;
    c->shows = false;
    c->waits = false;
    c->began_us = api->turns ? turn_clock_us(api->turns) : 0;
    c->relay = NULL;
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
    tag_end(&c->tag, CALL_TAG);
    if (c->cleanup)
        c->cleanup(c);
    free(c->extra);
    c->extra = NULL;
    free(c->request.target);
    c->request.target = NULL;
    relay_free(c->relay);
    if (c->auth)
        auth_unref(c->auth);
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

#define COUNT_STEP 4096

void call_count_bytes(struct call *c, size_t bytes)
{
    if (bytes < c->counted + COUNT_STEP)
        return;
    account_charge(c->account, BUDGET_BYTES, (int64_t)(bytes - c->counted));
    c->counted = bytes;
}

void call_count(struct call *c)
{
    call_count_bytes(c, c->out.cap > CALL_KEEP_MAX ? c->out.cap : c->out.len);
}

uint64_t call_bytes_left(const struct call *c)
{
    return account_room(c->account, BUDGET_BYTES);
}

/* To be called before the answer is given to net, which counts it from then on. */
static void call_uncount(struct call *c)
{
    if (c->counted > 0)
        account_charge(c->account, BUDGET_BYTES, -(int64_t)c->counted);
    c->counted = 0;
}

/* An answer is in memory twice for a moment: when its buffer grows, which is by a quarter, and when
 * net copies it. Nobody counts the second copy, so room for it is looked for here. */
uint32_t call_room(const struct call *c)
{
    uint64_t room = account_room(c->account, BUDGET_BYTES);
    uint64_t messages = (room - room / 4) / 2 / ENCODED_MESSAGE_MAX;
    return messages < UINT32_MAX ? (uint32_t)messages : UINT32_MAX;
}

void call_refuse_no_room(struct call *c)
{
    account_note(c->account, BUDGET_REFUSED_ANSWER);
    call_refuse_as(c, STATUS_OVERLOADED, NULL,
                   "Answers that were not read take all the room there is. Read them, or try again "
                   "after Retry-After.");
}

bool call_has_room(struct call *c)
{
    if (call_room(c) > 0)
        return true;
    call_refuse_no_room(c);
    return false;
}

static void call_time(const struct call *c)
{
    uint64_t now_us = turn_clock_us(c->api->turns);
    request_table_add(c->api->times, (size_t)(c->route - route_at(0)), c->waits, c->http->id,
                      now_us - c->began_us, now_us);
}

void call_reply_as(struct call *c, int http_status, const char *type, const char *headers)
{
    call_uncount(c);
    if (c->api->turns && c->route)
        call_time(c);
    http_respond(c->http, http_status, type ? type : "application/json", headers, c->out.data,
                 c->out.len);
    call_end(c);
}

void call_sent(struct call *c)
{
    call_uncount(c);
    buffer_recycle(&c->out);
}

void call_close(struct call *c)
{
    call_uncount(c);
    http_stream_end(c->http);
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
    bool claims = r->kind == REQUEST_CLAIM || r->kind == REQUEST_CLAIM_MANY;
    return claims ? "/min_priority" : "/priority";
}

static bool only_reads(enum request_kind kind)
{
    return kind == REQUEST_GET || kind == REQUEST_LIST || kind == REQUEST_POSITION ||
           kind == REQUEST_QUEUE || kind == REQUEST_QUEUES || kind == REQUEST_STATS ||
           kind == REQUEST_SCHEDULE;
}

void call_problem(const struct call *c, enum status status, struct problem *p)
{
    const struct request *r = &c->request;
    *p = (struct problem){.status = status};
    problem_copy_text(p->field, sizeof(p->field), r->field);
    problem_copy_text(p->detail, sizeof(p->detail), r->detail);
    if (status == STATUS_INVALID_FIELD &&
        (r->kind == REQUEST_LIST || r->kind == REQUEST_MATCHING)) {
        problem_copy_text(p->field, sizeof(p->field), "/after");
        problem_set(p, status,
                    "after is no cursor of this server: give one as it came, or leave it out to "
                    "start from the beginning.");
    }
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
    if (r->target) {
        relay_begin(c);
        return;
    }
    if (r->status == STATUS_OK) {
        c->finish(c);
        return;
    }
    if (r->status == STATUS_MESSAGE_NOT_FOUND && c->shows) {
        call_reply(c, 204); /* somebody has taken and ended it since */
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

void call_renew(struct call *c)
{
    char queue[sizeof(c->request.queue)];
    memcpy(queue, c->request.queue, sizeof(queue));
    request_init(&c->request);
    memcpy(c->request.queue, queue, sizeof(queue));
}

static void hang_up(struct http_request *req)
{
    struct call *c = call_of_http(req);
    if (c->relay)
        relay_hangup(c);
    else
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
        .priority = c->request.priority,
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
    if (type.len == 16 && memcmp(type.data, known[0].name, 16) == 0) /* as most write it */
        return MEDIA_JSON;
    size_t len = 0;
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

bool call_parse(struct call *c, uint32_t tokens_max, struct problem *p)
{
    const struct http_request *req = c->http;
    struct json_doc *doc = &c->api->doc;
    if (req->body_len == 0)
        return problem_set(p, STATUS_MALFORMED_JSON, "The body is empty; send a JSON object.");
    return json_parse(doc, req->body, req->body_len, tokens_max) ||
           problem_set(p, STATUS_MALFORMED_JSON, "%s", doc->error);
}

bool call_query(struct call *c, const struct field_table *table, void *target)
{
    struct problem p = {0};
    if (fields_query(c->http->query, c->http->query_len, &c->api->scratch, table, target, &p))
        return true;
    call_refuse(c, &p);
    return false;
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
