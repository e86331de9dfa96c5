/* Looking at messages and cancelling them: what needs no receipt. */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"

#include <stdio.h>

/* Ids can be guessed. So a token that may only produce sees how a message fares, and not its
 * payload: it may be another producer's, and its own payloads a producer knows. */
static bool sees_contents(const struct call *c)
{
    return !c->token || auth_allows(c->token, ROLE_READ | ROLE_CONSUME, NULL);
}

static void get_visit(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                      struct instant now)
{
    struct call *c = call_of_op(op);
    buf_clear(&c->out);
    encode_message(&c->out, q, m, now, sees_contents(c));
    c->request.answer_len = c->out.len;
}

static void get_finish(struct call *c)
{
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

static void ask(struct call *c)
{
    c->request.op.verb = ENGINE_GET;
    c->request.op.visit = get_visit;
    c->request.op.one.id = c->id;
}

void lookup_get(struct call *c)
{
    if (!call_has_room(c))
        return;
    ask(c);
    call_submit(c, REQUEST_GET, get_finish);
}

void lookup_show(struct call *c)
{
    ask(c);
    c->shows = true;
    c->request.kind = REQUEST_GET;
    c->finish = get_finish;
    call_again(c);
}

static void cancel_finish(struct call *c)
{
    call_reply(c, 204);
}

static bool take_cancel(struct field *f, void *target)
{
    return field_bool(f, target);
}

void lookup_delete(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("cancel", take_cancel)};
    static const struct field_table table = FIELD_TABLE(specs);
    bool cancel = false;
    struct http_slice receipt = c->http->receipt;
    if (c->http->query_len > 0 && !call_query(c, &table, &cancel))
        return;
    if (cancel && receipt.len > 0) {
        call_refuse_as(c, STATUS_INVALID_FIELD, "/cancel",
                       "Give X-Receipt-Handle to acknowledge the message, or cancel=true to cancel "
                       "it, not both.");
        return;
    }
    uint8_t role = receipt.len > 0 ? ROLE_CONSUME : ROLE_PRODUCE;
    if (c->token && (receipt.len > 0 || cancel) && !auth_allows(c->token, role, NULL)) {
        struct buf why = {0};
        auth_explain(c->token, role, &why);
        call_refuse_as(c, STATUS_FORBIDDEN, NULL, buf_cstr(&why));
        buf_fini(&why);
        return;
    }
    if (receipt.len > 0) {
        receipts_ack(c, receipt);
        return;
    }
    if (!cancel) {
        call_refuse_as(c, STATUS_RECEIPT_MISSING, NULL,
                       "Send the claim's receipt_handle in X-Receipt-Handle to acknowledge the "
                       "message, or ?cancel=true to cancel it.");
        return;
    }
    c->request.op.verb = ENGINE_CANCEL;
    c->request.op.one.id = c->id;
    call_submit(c, REQUEST_CANCEL, cancel_finish);
}

/* Export: one message a line. The cursor is the engine's own. Done messages that are kept as
 * history are not exported. */

static void export_visit(struct engine_op *op, const struct engine_queue *q,
                         const struct message *m, struct instant now)
{
    struct call *c = call_of_op(op);
    (void)now;
    if (m->state != MESSAGE_DONE)
        encode_exported(&c->out, q, m);
    listing_shown(c);
}

static void export_finish(struct call *c)
{
    char header[CURSOR_TEXT_MAX + 24] = "", cursor[CURSOR_TEXT_MAX];
    cursor_format(&c->request.op.list.next, cursor);
    if (c->request.op.list.more)
        snprintf(header, sizeof(header), "X-Next-Cursor: %s\r\n", cursor);
    call_reply_as(c, 200, "application/x-ndjson", header[0] ? header : NULL);
}

static bool take_cursor(struct field *f, void *target)
{
    struct call *c = target;
    return cursor_parse(f->value->str, f->value->len, &c->request.op.list.after) ||
           field_refuse(f, "must be an X-Next-Cursor as it came.");
}

static bool take_state(struct field *f, void *target)
{
    struct call *c = target;
    if (!json_is(f->value, "dead"))
        return field_refuse(f, "can only be \"dead\"; leave it out for all messages.");
    c->request.op.verb = ENGINE_DEAD_LIST;
    return true;
}

void lookup_export(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("state", take_state),
        FIELD("limit", listing_take_limit),
        FIELD("after", take_cursor),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    c->listing.limit = LIST_MAX;
    c->request.op.verb = ENGINE_LIST;
    if (!call_query(c, &table, c))
        return;
    c->request.op.visit = export_visit;
    listing_start(c, export_finish);
}
