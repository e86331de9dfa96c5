/* Enqueue: one message. */
#include "api/call.h"
#include "api/encode.h"
#include "api/enqueue.h"
#include "api/relay.h"
#include "api/routes.h"
#include "api/trace_context.h"

#include <stdio.h>

static void draft_cleanup(struct call *c)
{
    draft_fini(&c->put.draft);
}

static void put_problem(struct call *c, const struct put_item *item, struct problem *p)
{
    call_problem(c, relay_status(item->status), p);
    if (item->status != STATUS_UNKNOWN_PRIORITY)
        return;
    const struct priority_ref *ref = &item->draft.priority;
    char shown[LEVEL_NAME_MAX + 3];
    if (ref->kind == PRIORITY_NAME)
        snprintf(shown, sizeof(shown), "\"%s\"", ref->name);
    else
        snprintf(shown, sizeof(shown), "%lld", (long long)ref->number);
    problem_set(p, item->status,
                "Queue \"%s\" has no priority %s; GET /v1/queues/%s shows its levels.",
                c->request.queue, shown, c->request.queue);
}

void messages_put_result(struct call *c, const struct put_item *item)
{
    struct buf *out = &c->out;
    if (item->status == STATUS_QUEUE_MOVED && c->relay) {
        relay_put(c, out);
        return;
    }
    if (item->status != STATUS_OK) {
        struct problem p;
        put_problem(c, item, &p);
        buf_lit(out, "{\"error\":");
        problem_put(out, &p);
        buf_putc(out, '}');
        return;
    }
    buf_lit(out, "{\"message_id\":");
    encode_id(out, &item->id);
    buf_lit(out, ",\"enqueued_at\":");
    encode_time(out, item->enqueued_ms);
    buf_lit(out, ",\"partition\":");
    buf_put_u64(out, item->partition);
    if (item->deduplicated)
        buf_lit(out, ",\"deduplicated\":true");
    buf_putc(out, '}');
}

static void relayed_finish(struct call *c)
{
    const struct json_token *stored = relay_only(c, NULL);
    if (!stored)
        return;
    buf_put(&c->out, stored->raw, stored->raw_len);
    call_reply(c, relay_has(c, stored, "deduplicated") ? 200 : 201);
}

static void enqueue_finish(struct call *c)
{
    if (c->put.status == STATUS_QUEUE_MOVED && c->relay) {
        relayed_finish(c);
        return;
    }
    if (c->put.status != STATUS_OK) {
        struct problem p;
        put_problem(c, &c->put, &p);
        call_refuse(c, &p);
        return;
    }
    messages_put_result(c, &c->put);
    call_reply(c, c->put.deduplicated ? 200 : 201);
}

static bool enqueue_json(struct call *c, struct problem *p)
{
    const struct http_request *req = c->http;
    static const struct field_table none = {NULL, 0};
    if (!call_parse(c, MESSAGE_TOKENS_MAX, p))
        return false;
    if (req->query_len > 0 &&
        !fields_query(req->query, req->query_len, &c->api->scratch, &none, NULL, p)) {
        if (p->status == STATUS_UNKNOWN_FIELD)
            problem_set(p, p->status, "No query parameter is taken with JSON; put it in the body.");
        return false;
    }
    return enqueue_from_json(&c->api->doc, 0, &c->put.draft, p);
}

void messages_enqueue(struct call *c)
{
    const struct http_request *req = c->http;
    struct problem p;
    bool ok;
    p.field[0] = p.detail[0] = '\0';
    if (media_of(req->content_type) == MEDIA_BYTES)
        ok = enqueue_from_bytes(req->body, req->body_len, req->query, req->query_len,
                                &c->api->scratch, &c->put.draft, &p);
    else
        ok = enqueue_json(c, &p);
    if (!ok) {
        call_refuse(c, &p);
        return;
    }
    if (req->traceparent.data)
        trace_context_put(&c->put.draft, req->traceparent.data, req->traceparent.len);
    c->cleanup = draft_cleanup;
    c->put.deduplicated = false;
    c->put.partition = 0;
    c->put.only_known = false;
    c->put.status = STATUS_OK;
    c->request.op.verb = ENGINE_PUT;
    c->request.op.put.items = &c->put;
    c->request.op.put.count = 1;
    call_submit(c, REQUEST_PUT, enqueue_finish);
}
