/* What the holder of a receipt may do: ack, nack, release, extend. */
#include "api/call.h"
#include "api/encode.h"
#include "api/results.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The fields of nack, release and extend. */
struct settle_fields {
    const char *receipt;
    size_t receipt_len;
    const char *reason;
    size_t reason_len;
    int64_t delay_ms;
    int64_t lease_ms;
};

static bool take_receipt(struct field *f, void *target)
{
    struct settle_fields *s = target;
    bool missing = field_null(f) || (f->value->type == JSON_STRING && f->value->len == 0);
    return missing || field_text(f, 1, 256, &s->receipt, &s->receipt_len);
}

static bool take_delay(struct field *f, void *target)
{
    struct settle_fields *s = target;
    return field_null(f) || field_seconds(f, 0, DELAY_SECONDS_MAX, &s->delay_ms);
}

static bool take_reason(struct field *f, void *target)
{
    struct settle_fields *s = target;
    return field_null(f) || field_text(f, 0, REASON_MAX, &s->reason, &s->reason_len);
}

static bool take_lease(struct field *f, void *target)
{
    struct settle_fields *s = target;
    return field_null(f) || field_seconds(f, 0, LEASE_SECONDS_MAX, &s->lease_ms);
}

static const char never_valid[] =
    "This text is not a receipt handle this server gives out; send the "
    "receipt_handle of the claim as it came.";

static bool receipt_read(struct call *c, const char *text, size_t len, const char *field)
{
    if (len == 0) {
        call_refuse_as(c, STATUS_RECEIPT_MISSING, field, NULL);
        return false;
    }
    if (!receipt_parse(text, len, c->settle.receipt)) {
        call_refuse_as(c, STATUS_RECEIPT_EXPIRED, field, never_valid);
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
    call_problem(c, c->settle.status, &p);
    call_refuse(c, &p);
    return false;
}

static void ack_finish(struct call *c)
{
    if (settle_ok(c))
        call_reply(c, 204);
}

void receipts_ack(struct call *c, struct http_slice receipt)
{
    if (receipt_read(c, receipt.data, receipt.len, ""))
        settle_submit(c, ENGINE_ACK, ack_finish);
}

static void state_finish(struct call *c)
{
    if (!settle_ok(c))
        return;
    buf_lit(&c->out, "{\"state\":\"");
    buf_puts(&c->out, message_state_name(c->settle.state));
    buf_lit(&c->out, "\"}");
    call_reply(c, 200);
}

void receipts_nack(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("receipt_handle", take_receipt),
        FIELD("delay_seconds", take_delay),
        FIELD("reason", take_reason),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct settle_fields s = {.delay_ms = -1};
    if (!call_body(c, &table, &s) || !receipt_read(c, s.receipt, s.receipt_len, "/receipt_handle"))
        return;
    buf_put(&c->text, s.reason, s.reason_len);
    c->request.op.settle.delay_ms = s.delay_ms;
    c->request.op.settle.reason = s.reason_len ? c->text.data : NULL;
    c->request.op.settle.reason_len = (uint32_t)s.reason_len;
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
    if (!settle_ok(c))
        return;
    buf_lit(&c->out, "{\"visible_at\":");
    encode_time(&c->out, c->settle.lease_until_ms);
    buf_lit(&c->out, ",\"urgent_waiting\":");
    buf_puts(&c->out, c->request.urgent_waiting ? "true}" : "false}");
    call_reply(c, 200);
}

void receipts_extend(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("receipt_handle", take_receipt),
        FIELD("visibility_timeout_seconds", take_lease),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct settle_fields s = {.lease_ms = -1};
    if (!call_body(c, &table, &s) || !receipt_read(c, s.receipt, s.receipt_len, "/receipt_handle"))
        return;
    if (s.lease_ms < 0) {
        call_refuse_as(c, STATUS_INVALID_FIELD, "/visibility_timeout_seconds",
                       "visibility_timeout_seconds is required: the lease ends that many seconds "
                       "from now.");
        return;
    }
    c->request.op.settle.lease_ms = s.lease_ms;
    settle_submit(c, ENGINE_EXTEND, extend_finish);
}

/* Batches. */

struct ack_batch {
    struct results results;
    struct settle_item items[]; /* those that are handed to the engine */
};

static void ack_batch_cleanup(struct call *c)
{
    struct ack_batch *b = c->extra;
    if (b)
        results_fini(&b->results);
}

static bool take_entry_id(struct field *f, void *target)
{
    const struct json_token **pair = target;
    pair[0] = f->value;
    return f->value->type == JSON_STRING || field_refuse(f, "must be a string.");
}

static bool take_entry_receipt(struct field *f, void *target)
{
    const struct json_token **pair = target;
    pair[1] = f->value;
    return f->value->type == JSON_STRING || field_refuse(f, "must be a string.");
}

/* The entry at token `at`, which stands at `base` in the body. What was left out comes first: it is
 * the caller's mistake, whatever the rest says. */
static bool entry_read(const struct json_doc *doc, uint32_t at, const char *base,
                       struct settle_item *item, struct problem *p)
{
    static const struct field_spec specs[] = {
        FIELD("message_id", take_entry_id),
        FIELD("receipt_handle", take_entry_receipt),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    const struct json_token *pair[2] = {NULL, NULL};
    if (!fields_object(doc, at, base, &table, pair, p))
        return false;
    problem_set_field(p, base, "message_id", 10);
    if (!pair[0])
        return problem_set(p, STATUS_INVALID_FIELD, "message_id is required.");
    problem_set_field(p, base, "receipt_handle", 14);
    if (!pair[1] || pair[1]->len == 0)
        return problem_set(p, STATUS_RECEIPT_MISSING, "%s", "");
    if (!message_id_parse(pair[0]->str, pair[0]->len, &item->id)) {
        problem_set_field(p, base, "message_id", 10);
        return problem_set(p, STATUS_MESSAGE_NOT_FOUND,
                           "No message has such an id: it is not one this server gave.");
    }
    if (!receipt_parse(pair[1]->str, pair[1]->len, item->receipt))
        return problem_set(p, STATUS_RECEIPT_EXPIRED, "%s", never_valid);
    item->status = STATUS_OK;
    return true;
}

static void entry_add(struct ack_batch *b, const struct json_doc *doc, uint32_t at)
{
    struct problem p = {0};
    char base[32];
    snprintf(base, sizeof(base), "/receipts/%" PRIu32, b->results.count);
    if (entry_read(doc, at, base, &b->items[b->results.items], &p))
        results_add_item(&b->results);
    else
        results_add_problem(&b->results, &p);
}

static void item_put(struct call *c, uint32_t n)
{
    const struct settle_item *item = &((const struct ack_batch *)c->extra)->items[n];
    struct buf *out = &c->out;
    struct problem p;
    buf_lit(out, "{\"message_id\":");
    encode_id(out, &item->id);
    if (item->status == STATUS_OK) {
        buf_lit(out, ",\"state\":\"done\"}");
        return;
    }
    call_problem(c, item->status, &p);
    buf_lit(out, ",\"error\":");
    problem_put(out, &p);
    buf_putc(out, '}');
}

static void ack_batch_finish(struct call *c)
{
    const struct ack_batch *b = c->extra;
    results_reply(c, &b->results, item_put);
}

static bool take_receipts(struct field *f, void *target)
{
    struct ack_batch **batch = target;
    uint32_t count = f->value->count;
    if (f->value->type != JSON_ARRAY || count == 0 || count > ACK_BATCH_MAX)
        return field_refuse(f, "must be an array of 1 to %d entries.", ACK_BATCH_MAX);
    struct ack_batch *b = mem_zalloc(sizeof(*b) + count * sizeof(b->items[0]));
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i))
        entry_add(b, f->doc, i);
    *batch = b;
    return true;
}

void receipts_batch(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("receipts", take_receipts)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct ack_batch *b = NULL;
    if (!call_body(c, &table, &b)) {
        if (b)
            results_fini(&b->results);
        free(b);
        return;
    }
    c->extra = b;
    c->cleanup = ack_batch_cleanup;
    if (!b) {
        call_refuse_as(c, STATUS_INVALID_FIELD, "/receipts",
                       "receipts is required: an array of {message_id, receipt_handle}.");
        return;
    }
    if (b->results.items == 0) {
        ack_batch_finish(c);
        return;
    }
    c->request.op.verb = ENGINE_ACK;
    c->request.op.settle.items = b->items;
    c->request.op.settle.count = b->results.items;
    call_submit(c, REQUEST_SETTLE, ack_batch_finish);
}
