/* Enqueue and claim: the two calls that everything is measured by. */
#include "api/call.h"
#include "api/encode.h"
#include "api/enqueue.h"
#include "api/routes.h"

#include <stdio.h>

static void draft_cleanup(struct call *c)
{
    draft_fini(&c->put.draft);
}

static void put_problem(struct call *c, const struct put_item *item, struct problem *p)
{
    call_problem(c, item->status, p);
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
    buf_lit(out, ",\"partition\":0");
    if (item->deduplicated)
        buf_lit(out, ",\"deduplicated\":true");
    buf_putc(out, '}');
}

static void enqueue_finish(struct call *c)
{
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
    struct json_doc *doc = &c->api->doc;
    const struct http_request *req = c->http;
    static const struct field_table none = {NULL, 0};
    if (req->body_len == 0)
        return problem_set(p, STATUS_MALFORMED_JSON, "The body is empty; send a JSON object.");
    if (!json_parse(doc, req->body, req->body_len, MESSAGE_TOKENS_MAX))
        return problem_set(p, STATUS_MALFORMED_JSON, "%s", doc->error);
    if (req->query_len > 0 &&
        !fields_query(req->query, req->query_len, &c->api->scratch, &none, NULL, p)) {
        if (p->status == STATUS_UNKNOWN_FIELD)
            problem_set(p, p->status, "No query parameter is taken with JSON; put it in the body.");
        return false;
    }
    return enqueue_from_json(doc, 0, &c->put.draft, p);
}

void messages_enqueue(struct call *c)
{
    const struct http_request *req = c->http;
    struct problem p;
    bool ok = false;
    p.field[0] = p.detail[0] = '\0';
    switch (media_of(req->content_type)) {
    case MEDIA_JSON:
        ok = enqueue_json(c, &p);
        break;
    case MEDIA_BYTES:
        ok = enqueue_from_bytes(req->body, req->body_len, req->query, req->query_len,
                                &c->api->scratch, &c->put.draft, &p);
        break;
    default:
        problem_set(&p, STATUS_UNSUPPORTED_MEDIA_TYPE,
                    "Send Content-Type: application/json, or application/octet-stream with the "
                    "payload itself as the body.");
    }
    if (!ok) {
        call_refuse(c, &p);
        return;
    }
    c->cleanup = draft_cleanup;
    c->put.deduplicated = false;
    c->put.status = STATUS_OK;
    c->request.op.verb = ENGINE_PUT;
    c->request.op.put.items = &c->put;
    c->request.op.put.count = 1;
    call_submit(c, REQUEST_PUT, enqueue_finish);
}

/* Claim. */

static bool take_max(struct field *f, void *target)
{
    struct call *c = target;
    int64_t max = 1;
    if (!field_null(f) && !field_i64(f, 1, CLAIM_MAX, &max))
        return false;
    c->request.max = (uint32_t)max;
    return true;
}

static bool take_wait(struct field *f, void *target)
{
    struct call *c = target;
    return field_null(f) || field_seconds(f, 0, WAIT_SECONDS_MAX, &c->request.wait_ms);
}

static bool take_min_priority(struct field *f, void *target)
{
    struct call *c = target;
    return field_priority(f, &c->request.priority);
}

static bool take_visibility(struct field *f, void *target)
{
    struct call *c = target;
    return field_null(f) || field_seconds(f, 0, LEASE_SECONDS_MAX, &c->request.op.claim.lease_ms);
}

static const struct field_spec claim_specs[] = {
    FIELD("max", take_max),
    FIELD("wait_seconds", take_wait),
    FIELD("min_priority", take_min_priority),
    FIELD("visibility_timeout_seconds", take_visibility),
};
static const struct field_table claim_table = FIELD_TABLE(claim_specs);

/* On the thread of the shard: the message is only there during the call. */
static void claim_visit(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                        struct instant now)
{
    struct call *c = call_of_op(op);
    if (c->out.len == 0)
        buf_lit(&c->out, "{\"messages\":[");
    else
        buf_putc(&c->out, ',');
    encode_claimed(&c->out, q, m, now);
}

static void claim_finish(struct call *c)
{
    if (c->out.len == 0)
        buf_lit(&c->out, "{\"messages\":[");
    buf_lit(&c->out, "]}");
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

void messages_claim(struct call *c)
{
    const struct http_request *req = c->http;
    c->request.max = 1;
    c->request.op.verb = ENGINE_CLAIM;
    c->request.op.claim.lease_ms = -1;
    bool ok =
        req->verb == VERB_GET ? call_query(c, &claim_table, c) : call_body(c, &claim_table, c);
    if (!ok)
        return;
    c->request.op.visit = claim_visit;
    call_end_with_peer(c);
    call_submit(c, REQUEST_CLAIM, claim_finish);
}
