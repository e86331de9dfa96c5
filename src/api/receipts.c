/* What the holder of a receipt may do: ack, nack, release, extend. */
#include "api/receipts.h"

#include "api/call.h"
#include "api/encode.h"
#include "api/relay.h"

static bool take_receipt(struct field *f, void *target)
{
    struct settle_fields *s = target;
    bool missing = field_null(f) || (f->value->type == JSON_STRING && f->value->len == 0);
    return missing || field_text(f, 1, 256, &s->receipt, &s->receipt_len);
}

bool settle_take_delay(struct field *f, void *target)
{
    struct settle_fields *s = target;
    return field_null(f) || field_seconds(f, 0, DELAY_SECONDS_MAX, &s->delay_ms);
}

bool settle_take_reason(struct field *f, void *target)
{
    struct settle_fields *s = target;
    return field_null(f) || field_text(f, 0, REASON_MAX, &s->reason, &s->reason_len);
}

bool settle_take_dead(struct field *f, void *target)
{
    struct settle_fields *s = target;
    return field_null(f) || field_bool(f, &s->dead);
}

bool settle_take_lease(struct field *f, void *target)
{
    struct settle_fields *s = target;
    return field_null(f) || field_seconds(f, 0, LEASE_SECONDS_MAX, &s->lease_ms);
}

const char receipt_never_valid[] =
    "This text is not a receipt handle this server gives out; send the "
    "receipt_handle of the claim as it came.";

static bool receipt_read(struct call *c, const char *text, size_t len, const char *field)
{
    if (len == 0) {
        call_refuse_as(c, STATUS_RECEIPT_MISSING, field, NULL);
        return false;
    }
    if (!receipt_parse(text, len, c->settle.receipt)) {
        call_refuse_as(c, STATUS_RECEIPT_EXPIRED, field, receipt_never_valid);
        return false;
    }
    return true;
}

static void settle_submit(struct call *c, enum engine_verb verb, call_finish *finish)
{
    c->settle.id = c->id;
    c->settle.status = STATUS_OK;
    c->request.op.verb = verb;
    c->request.op.settle.items = &c->settle;
    c->request.op.settle.count = 1;
    call_submit(c, REQUEST_SETTLE, finish);
}

/* True when the item succeeded; otherwise the call has been answered. */
static bool settle_ok(struct call *c)
{
    struct problem p;
    if (c->settle.status == STATUS_OK)
        return true;
    call_problem(c, relay_status(c->settle.status), &p);
    call_refuse(c, &p);
    return false;
}

bool settle_has_lease(struct call *c, const struct settle_fields *s)
{
    if (s->lease_ms >= 0)
        return true;
    call_refuse_as(c, STATUS_INVALID_FIELD, "/visibility_timeout_seconds",
                   "visibility_timeout_seconds is required: the lease ends that many seconds "
                   "from now.");
    return false;
}

void settle_keep(struct call *c, const struct settle_fields *s)
{
    buf_put(&c->text, s->reason, s->reason_len);
    c->request.op.settle.delay_ms = s->dead ? NACK_DEAD : s->delay_ms;
    c->request.op.settle.lease_ms = s->lease_ms;
    c->request.op.settle.reason = s->reason_len ? c->text.data : NULL;
    c->request.op.settle.reason_len = (uint32_t)s->reason_len;
}

/* Whether the other server has to say how it went; then the member of its result, or NULL when the
 * call has been answered. */
static bool relayed(struct call *c, const char *member, const struct json_token **value)
{
    bool asked = c->settle.status == STATUS_QUEUE_MOVED && c->relay;
    *value = asked ? relay_only(c, member) : NULL;
    return asked;
}

static void ack_finish(struct call *c)
{
    const struct json_token *there;
    if (relayed(c, "state", &there) ? there != NULL : settle_ok(c))
        call_reply(c, 204);
}

void receipts_ack(struct call *c, struct http_slice receipt)
{
    if (receipt_read(c, receipt.data, receipt.len, ""))
        settle_submit(c, ENGINE_ACK, ack_finish);
}

static void state_finish(struct call *c)
{
    const struct json_token *there;
    if (relayed(c, "state", &there) ? !there : !settle_ok(c))
        return;
    buf_lit(&c->out, "{\"state\":");
    if (there)
        buf_put(&c->out, there->raw, there->raw_len);
    else
        json_put_cstr(&c->out, message_state_name(c->settle.state));
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

void receipts_nack(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("receipt_handle", take_receipt),
        FIELD("delay_seconds", settle_take_delay),
        FIELD("reason", settle_take_reason),
        FIELD("dead", settle_take_dead),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct settle_fields s = {.delay_ms = -1};
    if (!call_body(c, &table, &s) || !receipt_read(c, s.receipt, s.receipt_len, "/receipt_handle"))
        return;
    settle_keep(c, &s);
    settle_submit(c, ENGINE_NACK, state_finish);
}

void receipts_release(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("receipt_handle", take_receipt)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct settle_fields s = {0};
    if (call_body(c, &table, &s) && receipt_read(c, s.receipt, s.receipt_len, "/receipt_handle"))
        settle_submit(c, ENGINE_RELEASE, state_finish);
}

static void extend_finish(struct call *c)
{
    const struct json_token *there;
    if (relayed(c, "visible_at", &there) ? !there : !settle_ok(c))
        return;
    buf_lit(&c->out, "{\"visible_at\":");
    if (there)
        buf_put(&c->out, there->raw, there->raw_len);
    else
        encode_time(&c->out, c->settle.lease_until_ms);
    buf_lit(&c->out, ",\"urgent_waiting\":");
    bool urgent = c->request.settle.urgent_waiting || relay_urgent_waiting(c);
    buf_puts(&c->out, urgent ? "true}" : "false}");
    call_reply(c, 200);
}

void receipts_extend(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("receipt_handle", take_receipt),
        FIELD("visibility_timeout_seconds", settle_take_lease),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct settle_fields s = {.lease_ms = -1};
    if (!call_body(c, &table, &s) || !receipt_read(c, s.receipt, s.receipt_len, "/receipt_handle"))
        return;
    if (!settle_has_lease(c, &s))
        return;
    settle_keep(c, &s);
    settle_submit(c, ENGINE_EXTEND, extend_finish);
}
