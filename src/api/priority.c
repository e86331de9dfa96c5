/* Escalation, one message or many, and why a message waits. */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"
#include "api/matching.h"

/* What a change of priority is made of. Owned by the call as its `extra`. */
struct priority_change {
    struct match_call match;   /* of many; first */
    struct escalate_item item; /* of one message */
    bool has_priority;
    struct http_slice actor; /* borrowed from the body until priority_change_keep() */
    struct http_slice reason;
};

static bool take_priority(struct field *f, void *target)
{
    struct priority_change *m = target;
    m->has_priority = !field_null(f);
    return field_priority(f, &m->match.call->request.priority);
}

static bool take_actor(struct field *f, void *target)
{
    struct priority_change *m = target;
    return field_null(f) || field_text(f, 1, ACTOR_MAX, &m->actor.data, &m->actor.len);
}

static bool take_reason(struct field *f, void *target)
{
    struct priority_change *m = target;
    return field_null(f) || field_text(f, 0, REASON_MAX, &m->reason.data, &m->reason.len);
}

static struct priority_change *priority_change_new(struct call *c)
{
    struct priority_change *m = mem_zalloc(sizeof(*m));
    match_init(&m->match, c);
    c->extra = m;
    return m;
}

/* Copies actor and reason, which have to outlive the request. The actor of a caller that does not
 * name one is the name of its token. False when the call was refused. */
static bool priority_change_keep(struct call *c, struct priority_change *m)
{
    struct escalate_note *note = &c->request.op.escalate.note;
    if (!m->has_priority) {
        call_refuse_as(
            c, STATUS_INVALID_FIELD, "/priority",
            "priority is required: the number or the name of one of the queue's levels.");
        return false;
    }
    if (m->actor.len == 0 && c->token)
        m->actor = (struct http_slice){c->token->name, strlen(c->token->name)};
    buf_put(&c->text, m->actor.data, m->actor.len);
    buf_put(&c->text, m->reason.data, m->reason.len);
    const char *text = buf_cstr(&c->text); /* not NULL when both are empty */
    note->actor = text;
    note->actor_len = (uint16_t)m->actor.len;
    note->reason = text + m->actor.len;
    note->reason_len = (uint16_t)m->reason.len;
    return true;
}

/* One message: answered with the message as it is now. */

static void one_finish(struct call *c)
{
    const struct priority_change *m = c->extra;
    if (m->item.status == STATUS_NOT_PENDING) {
        call_refuse_as(c, STATUS_NOT_PENDING, NULL,
                       "Only a scheduled or ready message can get another priority; GET it to see "
                       "its state.");
        return;
    }
    if (m->item.status) {
        call_refuse_as(c, m->item.status, NULL, NULL);
        return;
    }
    message_show(c);
}

void priority_set(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("priority", take_priority),
        FIELD("actor", take_actor),
        FIELD("reason", take_reason),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct priority_change *m = priority_change_new(c);
    if (!call_body(c, &table, m) || !priority_change_keep(c, m))
        return;
    m->item.id = c->id;
    c->request.op.escalate.items = &m->item;
    c->request.op.escalate.count = 1;
    call_submit(c, REQUEST_ESCALATE, one_finish);
}

/* Many */

static void many_finish(struct call *c)
{
    const struct matching *j = c->request.matching;
    buf_lit(&c->out, "{\"matched\":");
    buf_put_u64(&c->out, j->matched);
    buf_lit(&c->out, ",\"changed\":");
    buf_put_u64(&c->out, c->request.count);
    buf_puts(&c->out, j->dry_run ? ",\"dry_run\":true}" : "}");
    call_reply(c, 200);
}

static void many_cleanup(struct call *c)
{
    match_fini(c->extra);
}

void priority_set_many(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("filter", match_take_filter),   FIELD("priority", take_priority),
        FIELD("actor", take_actor),           FIELD("reason", take_reason),
        FIELD("dry_run", match_take_dry_run),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct priority_change *m = priority_change_new(c);
    c->cleanup = many_cleanup;
    if (!call_body(c, &table, m))
        return;
    if (!m->match.has_filter) {
        call_refuse_as(c, STATUS_INVALID_FIELD, "/filter",
                       "filter is required; {} means every scheduled and ready message.");
        return;
    }
    if (!priority_change_keep(c, m))
        return;
    c->request.matching = &m->match.matching;
    call_end_with_peer(c); /* the way to stop what takes long */
    call_submit(c, REQUEST_ESCALATE_ALL, many_finish);
}

/* Position */

static void put_waits(struct buf *out, uint32_t wait_for)
{
    static const char *const names[] = {"delay", "pause", "limit"};
    buf_lit(out, ",\"blocked_by\":[");
    for (int i = 0, n = 0; i < 3; i++) {
        if (!(wait_for >> i & 1))
            continue;
        if (n++ > 0)
            buf_putc(out, ',');
        json_put_cstr(out, names[i]);
    }
    buf_putc(out, ']');
}

static void put_waiting(struct buf *out, const struct position *p)
{
    buf_lit(out, ",\"effective_level\":");
    json_put_cstr(out, p->effective.name);
    buf_lit(out, ",\"messages_ahead\":");
    buf_put_u64(out, p->ahead);
    buf_puts(out, p->exact ? ",\"exact\":true" : ",\"exact\":false");
    put_waits(out, p->wait_for);
    buf_lit(out, ",\"ready_at\":");
    encode_time(out, p->ready_ms);
    buf_lit(out, ",\"claims_per_second\":");
    encode_rate(out, p->claims_per_second);
    buf_lit(out, ",\"estimated_start\":");
    if (p->start_ms == INT64_MAX)
        buf_lit(out, "null");
    else
        encode_time(out, p->start_ms);
}

static void position_finish(struct call *c)
{
    const struct position *p = c->request.position.answer;
    struct buf *out = &c->out;
    buf_lit(out, "{\"message_id\":");
    encode_id(out, &p->id);
    buf_lit(out, ",\"state\":");
    json_put_cstr(out, message_state_name(p->state));
    if (p->level.name[0]) {
        buf_putc(out, ',');
        encode_level(out, &p->level);
    }
    if (p->state == MESSAGE_SCHEDULED || p->state == MESSAGE_READY)
        put_waiting(out, p);
    buf_putc(out, '}');
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

void position_get(struct call *c)
{
    c->extra = mem_zalloc(sizeof(struct position));
    c->request.position.answer = c->extra;
    c->request.op.one.id = c->id;
    call_submit(c, REQUEST_POSITION, position_finish);
}
