/* A dead letter goes back with another payload. It becomes a new message: a message's payload never
 * changes under its id, and consumers may rely on that.
 *
 *   GET the dead letter   its place, level, metadata and dedup key, for what the body leaves out
 *   IMPORT the new one    durable when this is answered
 *   DEAD_DROP the old     when somebody else has taken it meanwhile: CANCEL the new one, 404
 *
 * The order keeps the message safe: a server that dies on the way leaves both messages behind, and
 * never neither. The same call again finds that the import is `known`, and only drops the old. */
#include "api/call.h"
#include "api/encode.h"
#include "api/enqueue.h"

#include <stdio.h>

struct amend {
    struct import_item item; /* the draft has the new payload; the rest is the dead letter's */
    bool has_metadata;
    bool is_dead;
};

static void amend_cleanup(struct call *c)
{
    import_item_fini(&((struct amend *)c->extra)->item);
}

/* The call's next request. */
static struct engine_op *next_op(struct call *c, enum engine_verb verb)
{
    struct request next = {.op = {.verb = verb}};
    memcpy(next.queue, c->request.queue, sizeof(next.queue));
    c->request = next;
    return &c->request.op;
}

static void withdraw_finish(struct call *c)
{
    call_refuse_as(c, STATUS_MESSAGE_NOT_FOUND, NULL,
                   "Somebody redrove or dropped the dead letter meanwhile. What you sent was "
                   "withdrawn.");
}

static void drop_finish(struct call *c)
{
    const struct amend *a = c->extra;
    if (c->request.count == 0 && !a->item.known) {
        next_op(c, ENGINE_CANCEL)->one.id = a->item.id;
        problem_copy_text(c->request.detail, sizeof(c->request.detail),
                          "Somebody redrove or dropped the dead letter meanwhile, and what you "
                          "sent was claimed before it could be withdrawn.");
        call_submit(c, REQUEST_CANCEL, withdraw_finish);
        return;
    }
    buf_lit(&c->out, "{\"redriven\":1,\"message_id\":");
    encode_id(&c->out, &a->item.id);
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

static void import_finish(struct call *c)
{
    const struct amend *a = c->extra;
    struct problem p;
    if (a->item.status) {
        call_problem(c, a->item.status, &p);
        call_refuse(c, &p);
        return;
    }
    struct engine_op *op = next_op(c, ENGINE_DEAD_DROP);
    op->bulk.ids = &a->item.origin;
    op->bulk.id_count = 1;
    call_submit(c, REQUEST_DEAD_DROP, drop_finish);
}

static void get_finish(struct call *c)
{
    struct amend *a = c->extra;
    if (!a->is_dead) {
        call_refuse_as(c, STATUS_MESSAGE_NOT_FOUND, NULL,
                       "There is no dead letter of this id; it may have been redriven.");
        return;
    }
    struct engine_op *op = next_op(c, ENGINE_IMPORT);
    op->import.items = &a->item;
    op->import.count = 1;
    call_submit(c, REQUEST_IMPORT, import_finish);
}

/* Makes the body: the new payload, then metadata (new or the dead letter's) and its dedup key. */
static void body_complete(struct amend *a, const struct message *m)
{
    struct draft *d = &a->item.draft;
    struct buf body = {0};
    size_t metadata_len = a->has_metadata ? d->metadata_len : m->metadata_len;
    buf_put(&body, d->body, d->payload_len);
    buf_put(&body, a->has_metadata ? d->body + d->payload_len : message_metadata(m), metadata_len);
    buf_put(&body, message_dedup_key(m), m->dedup_len);
    draft_fini(d);
    d->body = buf_take(&body); /* even an empty draft has a body */
    d->metadata_len = (uint16_t)metadata_len;
    d->dedup_len = m->dedup_len;
}

/* On the thread of the shard. */
static void get_visit(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                      struct instant now)
{
    struct amend *a = call_of_op(op)->extra;
    struct draft *d = &a->item.draft;
    int rank = levels_rank_of_slot(&q->config, m->slot);
    (void)now;
    a->is_dead = m->state == MESSAGE_DEAD;
    if (!a->is_dead)
        return;
    body_complete(a, m);
    if (d->priority.kind == PRIORITY_DEFAULT && rank >= 0) {
        d->priority.kind = PRIORITY_NAME;
        snprintf(d->priority.name, sizeof(d->priority.name), "%s", q->config.levels[rank].name);
    }
    d->ready_ms = m->ready_ms;
    a->item.enqueued_ms = m->enqueued_ms;
}

static bool amend_json(struct call *c, struct enqueue *e, struct problem *p)
{
    static const struct field_spec specs[] = {
        FIELD("payload", enqueue_take_payload),
        FIELD("payload_base64", enqueue_take_base64),
        FIELD("priority", enqueue_take_priority),
        FIELD("metadata", enqueue_take_metadata),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    return call_parse(c, MESSAGE_TOKENS_MAX, p) &&
           fields_object(&c->api->doc, 0, "", &table, e, p) && enqueue_body(e, p);
}

void dead_amend(struct call *c)
{
    const struct http_request *req = c->http;
    struct problem p = {0};
    struct enqueue e;
    enqueue_init(&e);
    bool bytes = media_of(req->content_type) == MEDIA_BYTES;
    bool ok =
        bytes ? enqueue_from_bytes(req->body, req->body_len, "", 0, &c->api->scratch, &e.draft, &p)
              : amend_json(c, &e, &p);
    if (!ok) {
        call_refuse(c, &p);
        return;
    }
    struct amend *a = c->extra = mem_zalloc(sizeof(*a));
    c->cleanup = amend_cleanup;
    a->item.draft = e.draft;
    a->item.origin = c->id;
    a->item.expire_ms = INT64_MAX;
    a->has_metadata = e.has_metadata;
    c->request.op.verb = ENGINE_GET;
    c->request.op.visit = get_visit;
    c->request.op.one.id = c->id;
    call_submit(c, REQUEST_GET, get_finish);
}
