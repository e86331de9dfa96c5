#include "api/relay.h"

#include "api/call.h"
#include "api/encode.h"

#include <stdlib.h>

#define RESULTS_TOKENS_MAX (1 << 16)   /* a thousand results, each with a problem document */
#define ANSWER_SMALL       (16 * 1024) /* is taken even when there is no room */
#define RESULTS_SMALL      64          /* so many fit it */

struct relay {
    struct forward forward;
    struct target *target; /* owned */
    struct json_doc doc;   /* the answer */
    uint32_t list;         /* token of the results */
    uint32_t next;         /* token of the next result */
    bool hung_up;
};

void relay_free(struct relay *relay)
{
    if (!relay)
        return;
    json_fini(&relay->doc);
    forward_fini(&relay->forward);
    free(relay->target);
    free(relay);
}

void relay_hangup(struct call *c)
{
    c->relay->hung_up = true;
    broker_forward_cancel(c->api->port, &c->relay->forward);
}

enum status relay_status(enum status status)
{
    return status == STATUS_QUEUE_MOVED ? STATUS_TARGET_UNAVAILABLE : status;
}

/* What is sent */

static void put_drafts(struct buf *out, const struct engine_op *op)
{
    for (uint32_t i = 0; i < op->put.count; i++) {
        if (op->put.items[i].status != STATUS_QUEUE_MOVED)
            continue;
        encode_draft(out, &op->put.items[i].draft);
        buf_putc(out, '\n');
    }
}

static void put_receipt(struct buf *out, const struct settle_item *item)
{
    char receipt[RECEIPT_TEXT + 1];
    receipt_format(item->receipt, receipt);
    buf_lit(out, "{\"message_id\":");
    encode_id(out, &item->id);
    buf_lit(out, ",\"receipt_handle\":");
    json_put_cstr(out, receipt);
    buf_putc(out, '}');
}

static void put_receipts(struct buf *out, const struct engine_op *op)
{
    const char *separator = "";
    buf_lit(out, "{\"receipts\":[");
    for (uint32_t i = 0; i < op->settle.count; i++) {
        if (op->settle.items[i].status != STATUS_QUEUE_MOVED)
            continue;
        buf_puts(out, separator);
        put_receipt(out, &op->settle.items[i]);
        separator = ",";
    }
    buf_putc(out, ']');
    if (op->verb == ENGINE_NACK && op->settle.delay_ms >= 0) {
        buf_lit(out, ",\"delay_seconds\":");
        encode_seconds(out, op->settle.delay_ms);
    }
    if (op->verb == ENGINE_NACK && op->settle.reason_len > 0) {
        buf_lit(out, ",\"reason\":");
        json_put_string(out, op->settle.reason, op->settle.reason_len);
    }
    if (op->verb == ENGINE_EXTEND) {
        buf_lit(out, ",\"visibility_timeout_seconds\":");
        encode_seconds(out, op->settle.lease_ms);
    }
    buf_putc(out, '}');
}

static void put_claim(struct buf *out, const struct request *r)
{
    buf_lit(out, "{\"max\":");
    buf_put_u64(out, r->claim.max);
    buf_lit(out, ",\"wait_seconds\":");
    encode_seconds(out, r->claim.wait_ms);
    if (r->priority.kind != PRIORITY_DEFAULT)
        buf_lit(out, ",\"min_priority\":");
    if (r->priority.kind == PRIORITY_NUMBER)
        buf_put_i64(out, r->priority.number);
    else if (r->priority.kind == PRIORITY_NAME)
        json_put_cstr(out, r->priority.name);
    if (r->op.claim.lease_ms >= 0) {
        buf_lit(out, ",\"visibility_timeout_seconds\":");
        encode_seconds(out, r->op.claim.lease_ms);
    }
    buf_putc(out, '}');
}

static const char *path_of(const struct request *r)
{
    static const char *const settles[] = {
        [ENGINE_ACK] = "ack",
        [ENGINE_NACK] = "nack",
        [ENGINE_RELEASE] = "release",
        [ENGINE_EXTEND] = "extend",
    };
    if (r->kind == REQUEST_PUT)
        return "batch";
    return r->kind == REQUEST_CLAIM ? "claim" : settles[r->op.verb];
}

/* What comes back */

static void refuse(struct call *c)
{
    const struct forward *f = &c->relay->forward;
    struct problem p = {0};
    if (f->status)
        problem_set(&p, STATUS_TARGET_UNAVAILABLE, "It answered with status %ld.", f->status);
    else
        problem_set(&p, STATUS_TARGET_UNAVAILABLE,
                    "It is not known whether it was carried out: %s.", f->why);
    call_refuse(c, &p);
}

/* Whose wait was ended early finds nothing. */
static void claim_finish(struct call *c)
{
    struct relay *relay = c->relay;
    if (relay->hung_up) {
        buf_lit(&c->out, "{\"messages\":[]}");
    } else if (relay->forward.status == 200) {
        struct buf own = c->out;
        c->out = relay->forward.answer;
        relay->forward.answer = own;
    } else {
        refuse(c);
        return;
    }
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

static enum status *status_of(struct engine_op *op, uint32_t i)
{
    return op->verb == ENGINE_PUT ? &op->put.items[i].status : &op->settle.items[i].status;
}

static uint32_t count_of(const struct engine_op *op)
{
    return op->verb == ENGINE_PUT ? op->put.count : op->settle.count;
}

static uint32_t moved_count(struct engine_op *op)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < count_of(op); i++)
        count += *status_of(op, i) == STATUS_QUEUE_MOVED;
    return count;
}

/* Whether the answer has a result for each item that was sent. */
static bool results_read(struct call *c)
{
    struct relay *relay = c->relay;
    const struct buf *answer = &relay->forward.answer;
    if (relay->forward.status != 200 ||
        !json_parse(&relay->doc, answer->data, answer->len, RESULTS_TOKENS_MAX))
        return false;
    relay->list = json_array(&relay->doc, 0, "results");
    relay->next = relay->list ? json_first(&relay->doc, relay->list) : 0;
    return relay->list && relay->doc.tokens[relay->list].count == moved_count(&c->request.op);
}

/* If this server has some of the items, each item tells how it fared. */
static void results_missing(struct call *c)
{
    struct engine_op *op = &c->request.op;
    if (moved_count(op) == count_of(op)) {
        refuse(c);
        return;
    }
    for (uint32_t i = 0; i < count_of(op); i++)
        *status_of(op, i) = relay_status(*status_of(op, i));
    c->finish(c);
}

static void relay_done(struct request *r)
{
    struct call *c = call_of(r);
    if (r->kind == REQUEST_CLAIM)
        claim_finish(c);
    else if (results_read(c))
        c->finish(c);
    else
        results_missing(c);
}

/* On the thread of the forwards. The answer counts as what this server itself would answer. */
static bool answer_grows(struct forward *f, size_t len)
{
    struct call *c = call_of(f->request);
    if (len > ANSWER_SMALL && len > c->counted && len - c->counted > call_bytes_left(c)) {
        account_note(c->account, BUDGET_REFUSED_ANSWER);
        return false;
    }
    call_count_bytes(c, len + len / 4); /* as its buffer grows */
    return true;
}

/* Whether there is room for what may come back. False: the call has been refused, and nothing was
 * sent. */
static bool has_room(struct call *c)
{
    struct request *r = &c->request;
    if (r->kind == REQUEST_CLAIM) {
        uint32_t room = call_room(c);
        r->claim.max = room < r->claim.max ? room : r->claim.max;
        return call_has_room(c);
    }
    bool all = moved_count(&r->op) == count_of(&r->op);
    return !all || count_of(&r->op) <= RESULTS_SMALL || call_has_room(c);
}

void relay_begin(struct call *c)
{
    struct request *r = &c->request;
    if (!has_room(c))
        return;
    struct relay *relay = c->relay = mem_zalloc(sizeof(*relay));
    struct forward *f = &relay->forward;
    json_init(&relay->doc);
    f->target = relay->target = r->target;
    r->target = NULL;
    buf_printf(&f->path, "/v1/queues/%s/messages/%s", r->queue, path_of(r));
    f->method = "POST";
    f->type = r->kind == REQUEST_PUT ? "application/x-ndjson" : "application/json";
    f->timeout_ms = FORWARD_MS;
    if (r->kind == REQUEST_CLAIM) {
        put_claim(&f->body, r);
        f->timeout_ms += r->claim.wait_ms;
        f->waits = r->claim.wait_ms > 0;
    } else if (r->kind == REQUEST_PUT) {
        put_drafts(&f->body, &r->op);
    } else {
        put_receipts(&f->body, &r->op);
    }
    f->grows = answer_grows;
    f->request = r;
    r->done = relay_done;
    broker_forward(c->api->port, f);
    if (request_hung_up(r)) /* it did on its way through the broker */
        relay_hangup(c);
}

/* What finishes use */

static const struct json_token *result_take(struct call *c)
{
    struct relay *relay = c->relay;
    const struct json_token *result = &relay->doc.tokens[relay->next];
    relay->next = json_next(&relay->doc, relay->list, relay->next);
    return result;
}

void relay_put(struct call *c, struct buf *out)
{
    const struct json_token *result = result_take(c);
    buf_put(out, result->raw, result->raw_len);
}

const struct json_token *relay_only(struct call *c, const char *member)
{
    const struct json_doc *doc = &c->relay->doc;
    const struct json_token *result = result_take(c);
    uint32_t at = json_index(doc, result);
    const struct json_token *error = json_get(doc, at, "error");
    int64_t status = 503;
    if (!error) {
        const struct json_token *found = member ? json_get(doc, at, member) : result;
        return found ? found : result;
    }
    const struct json_token *number = json_get(doc, json_index(doc, error), "status");
    bool told = number && json_i64(number, &status) && status >= 400 && status < 600;
    buf_clear(&c->out);
    buf_put(&c->out, error->raw, error->raw_len);
    call_reply_as(c, told ? (int)status : 503, PROBLEM_TYPE,
                  status == 429 || status == 503 ? "Retry-After: 1\r\n" : NULL);
    return NULL;
}

bool relay_has(const struct call *c, const struct json_token *result, const char *member)
{
    const struct json_doc *doc = &c->relay->doc;
    return json_get(doc, json_index(doc, result), member) != NULL;
}

bool relay_urgent_waiting(const struct call *c)
{
    const struct json_token *t = c->relay ? json_get(&c->relay->doc, 0, "urgent_waiting") : NULL;
    return t && t->type == JSON_BOOL && t->boolean;
}
