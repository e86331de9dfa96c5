/* Ack, nack, release and extend for many receipts at once. Each entry has a result of its own, in
 * order. The other fields of the body (delay, reason, lease) hold for all entries. */
#include "api/call.h"
#include "api/encode.h"
#include "api/receipts.h"
#include "api/relay.h"
#include "api/results.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct settle_batch {
    struct results results;
    struct settle_item items[]; /* those that are handed to the engine */
};

/* What a body may say. */
struct batch_fields {
    struct settle_fields settle; /* first: its takers are used here too */
    struct settle_batch *batch;
};

static void batch_cleanup(struct call *c)
{
    struct settle_batch *b = c->extra;
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

/* Reads the entry at token `at`, which stands at `base` in the body. Missing fields are refused
 * before wrong ones. */
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
        return problem_set(p, STATUS_RECEIPT_EXPIRED, "%s", receipt_never_valid);
    item->status = STATUS_OK;
    return true;
}

static void entry_add(struct settle_batch *b, const struct json_doc *doc, uint32_t at)
{
    struct problem p = {0};
    char base[32];
    snprintf(base, sizeof(base), "/receipts/%" PRIu32, b->results.count);
    if (entry_read(doc, at, base, &b->items[b->results.items], &p))
        results_add_item(&b->results);
    else
        results_add_problem(&b->results, &p);
}

static void put_outcome(struct buf *out, enum engine_verb verb, const struct settle_item *item)
{
    if (verb == ENGINE_EXTEND) {
        buf_lit(out, ",\"visible_at\":");
        encode_time(out, item->lease_until_ms);
    } else {
        buf_lit(out, ",\"state\":\"");
        buf_puts(out, verb == ENGINE_ACK ? "done" : message_state_name(item->state));
        buf_putc(out, '"');
    }
}

static void item_put(struct call *c, uint32_t n)
{
    const struct settle_item *item = &((const struct settle_batch *)c->extra)->items[n];
    struct buf *out = &c->out;
    struct problem p;
    if (item->status == STATUS_QUEUE_MOVED && c->relay) {
        relay_put(c, out);
        return;
    }
    buf_lit(out, "{\"message_id\":");
    encode_id(out, &item->id);
    if (item->status == STATUS_OK) {
        put_outcome(out, c->request.op.verb, item);
    } else {
        call_problem(c, relay_status(item->status), &p);
        buf_lit(out, ",\"error\":");
        problem_put(out, &p);
    }
    buf_putc(out, '}');
}

static void batch_finish(struct call *c)
{
    const struct settle_batch *b = c->extra;
    bool extended = c->request.op.verb == ENGINE_EXTEND;
    results_put_all(c, &b->results, item_put);
    bool urgent = c->request.settle.urgent_waiting || relay_urgent_waiting(c);
    if (extended)
        buf_puts(&c->out, urgent ? ",\"urgent_waiting\":true" : ",\"urgent_waiting\":false");
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

static bool take_receipts(struct field *f, void *target)
{
    struct batch_fields *fields = target;
    uint32_t count = f->value->count;
    if (f->value->type != JSON_ARRAY || count == 0 || count > ACK_BATCH_MAX)
        return field_refuse(f, "must be an array of 1 to %d entries.", ACK_BATCH_MAX);
    struct settle_batch *b = mem_zalloc(sizeof(*b) + count * sizeof(b->items[0]));
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i))
        entry_add(b, f->doc, i);
    fields->batch = b;
    return true;
}

/* False when the call was refused and is gone. */
static bool batch_read(struct call *c, const struct field_table *table, struct batch_fields *fields)
{
    *fields = (struct batch_fields){.settle = {.delay_ms = -1, .lease_ms = -1}};
    if (!call_body(c, table, fields)) {
        if (fields->batch)
            results_fini(&fields->batch->results);
        free(fields->batch);
        return false;
    }
    c->extra = fields->batch;
    c->cleanup = batch_cleanup;
    if (fields->batch)
        return true;
    call_refuse_as(c, STATUS_INVALID_FIELD, "/receipts",
                   "receipts is required: an array of {message_id, receipt_handle}.");
    return false;
}

static void batch_submit(struct call *c, enum engine_verb verb)
{
    struct settle_batch *b = c->extra;
    c->request.op.verb = verb;
    c->request.op.settle.items = b->items;
    c->request.op.settle.count = b->results.items;
    if (b->results.items == 0)
        batch_finish(c);
    else
        call_submit(c, REQUEST_SETTLE, batch_finish);
}

/* For a verb that takes receipts and no other fields. */
static void settle_plain(struct call *c, enum engine_verb verb)
{
    static const struct field_spec specs[] = {FIELD("receipts", take_receipts)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct batch_fields fields;
    if (batch_read(c, &table, &fields))
        batch_submit(c, verb);
}

void receipts_ack_many(struct call *c)
{
    settle_plain(c, ENGINE_ACK);
}

void receipts_release_many(struct call *c)
{
    settle_plain(c, ENGINE_RELEASE);
}

void receipts_nack_many(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("receipts", take_receipts),
        FIELD("delay_seconds", settle_take_delay),
        FIELD("reason", settle_take_reason),
        FIELD("dead", settle_take_dead),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct batch_fields fields;
    if (!batch_read(c, &table, &fields))
        return;
    settle_keep(c, &fields.settle);
    batch_submit(c, ENGINE_NACK);
}

void receipts_extend_many(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("receipts", take_receipts),
        FIELD("visibility_timeout_seconds", settle_take_lease),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct batch_fields fields;
    if (!batch_read(c, &table, &fields) || !settle_has_lease(c, &fields.settle))
        return;
    settle_keep(c, &fields.settle);
    batch_submit(c, ENGINE_EXTEND);
}
