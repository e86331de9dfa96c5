/* One message by its id: to look at it, to cancel it, or to acknowledge it with its receipt. */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"

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
    encode_message(&c->out, q, m, now, sees_contents(c) ? CONTENTS_ALL : CONTENTS_NONE);
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

void message_get(struct call *c)
{
    if (!call_has_room(c))
        return;
    ask(c);
    call_submit(c, REQUEST_GET, get_finish);
}

void message_show(struct call *c)
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

void message_delete(struct call *c)
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

/* Promote: the message as it is now. One that is ready already is as it was asked for. */

static void promoted_visit(struct engine_op *op, const struct engine_queue *q,
                           const struct message *m, struct instant now)
{
    struct call *c = call_of_op(op);
    buf_clear(&c->out);
    if (m->state == MESSAGE_READY || m->state == MESSAGE_SCHEDULED)
        encode_message(&c->out, q, m, now, sees_contents(c) ? CONTENTS_ALL : CONTENTS_NONE);
    c->request.answer_len = c->out.len;
}

static void promoted_finish(struct call *c)
{
    if (c->out.len > 0)
        get_finish(c);
    else
        call_refuse_as(c, STATUS_NOT_PENDING, NULL,
                       "Only a scheduled message can be made ready before its time; GET it to see "
                       "its state.");
}

static void promote_finish(struct call *c)
{
    if (c->request.op.bulk.count > 0) {
        message_show(c);
        return;
    }
    ask(c);
    c->request.op.visit = promoted_visit;
    c->request.kind = REQUEST_GET;
    c->finish = promoted_finish;
    call_again(c);
}

void message_promote(struct call *c)
{
    static const struct field_table none = {NULL, 0};
    if (!call_body(c, &none, NULL) || !call_has_room(c))
        return;
    c->request.op.verb = ENGINE_PROMOTE;
    c->request.op.bulk.ids = &c->id;
    c->request.op.bulk.id_count = 1;
    call_submit(c, REQUEST_PROMOTE, promote_finish);
}
