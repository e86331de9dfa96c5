/* Many messages in one request. Each stands for itself: a mistake in one is answered in
 * its place, and does not stop the others. */
#include "api/body.h"
#include "api/call.h"
#include "api/enqueue.h"
#include "api/results.h"
#include "api/trace_context.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_TOKENS_MAX (1 << 20)

struct batch {
    struct results results;
    struct body body;
    uint32_t list; /* token of the list of messages; 0: not known yet, or the messages are lines */
    uint32_t next; /* token of the next message */
    struct put_item *items;      /* those that are handed to the engine */
    char trace[TRACEPARENT_LEN]; /* a copy of the header, which the messages share … */
    bool traced;                 /* … if it came */
};

static void batch_cleanup(struct call *c)
{
    struct batch *b = c->extra;
    for (uint32_t i = 0; i < b->results.items; i++)
        draft_fini(&b->items[i].draft);
    free(b->items);
    results_fini(&b->results);
    body_fini(&b->body);
}

/* The message at token `object`, or what is wrong with it. */
static void batch_add(struct batch *b, const struct json_doc *doc, uint32_t object)
{
    struct put_item *item = &b->items[b->results.items];
    struct problem p;
    p.field[0] = p.detail[0] = '\0';
    bool ok = false;
    if (!doc->count)
        problem_set(&p, STATUS_MALFORMED_JSON, "%s", doc->error);
    else
        ok = enqueue_from_json(doc, object, &item->draft, &p);
    if (!ok) {
        results_add_problem(&b->results, &p);
        return;
    }
    if (b->traced)
        trace_context_put(&item->draft, b->trace, sizeof(b->trace));
    item->status = STATUS_OK;
    item->deduplicated = false;
    item->partition = 0;
    item->only_known = false;
    results_add_item(&b->results);
}

static void item_put(struct call *c, uint32_t n)
{
    const struct batch *b = c->extra;
    messages_put_result(c, &b->items[n]);
}

static void batch_finish(struct call *c)
{
    const struct batch *b = c->extra;
    results_reply(c, &b->results, item_put);
}

static enum body_step refuse(struct call *c, const struct problem *p)
{
    call_refuse(c, p);
    return BODY_REFUSED;
}

static bool size_refuse(struct problem *p)
{
    problem_set_field(p, "", "messages", 8);
    return problem_set(p, STATUS_INVALID_FIELD, "A batch has 1 to %d messages.", ENQUEUE_BATCH_MAX);
}

static bool size_take(struct batch *b, uint32_t count, struct problem *p)
{
    if (count == 0 || count > ENQUEUE_BATCH_MAX)
        return size_refuse(p);
    b->items = mem_alloc(count * sizeof(b->items[0]));
    return true;
}

/* One document */

static bool take_messages(struct field *f, void *target)
{
    *(uint32_t *)target = f->at;
    return true;
}

/* The document is complete: finds the list of messages. */
static bool list_find(struct batch *b, struct problem *p)
{
    static const struct field_spec specs[] = {FIELD("messages", take_messages)};
    static const struct field_table table = FIELD_TABLE(specs);
    const struct json_doc *doc = b->body.doc;
    if (!fields_object(doc, 0, "", &table, &b->list, p))
        return false;
    const struct json_token *messages = &doc->tokens[b->list];
    if (b->list == 0 || messages->type != JSON_ARRAY)
        return size_refuse(p);
    b->next = json_first(doc, b->list);
    return size_take(b, messages->count, p);
}

static enum body_step read_document(struct call *c)
{
    struct batch *b = c->extra;
    struct json_doc *doc = b->body.doc;
    struct problem p;
    if (b->list > 0) {
        batch_add(b, doc, b->next);
        b->next = json_next(doc, b->list, b->next);
        return b->next ? BODY_MORE : BODY_END;
    }
    enum json_step step = json_go_on(doc, BODY_STEP);
    if (step == JSON_MORE)
        return BODY_MORE;
    p.field[0] = p.detail[0] = '\0';
    if (step == JSON_REFUSED)
        problem_set(&p, STATUS_MALFORMED_JSON, "%s", doc->error);
    else if (list_find(b, &p))
        return BODY_MORE;
    return refuse(c, &p);
}

/* Lines */

static bool lines_count(struct batch *b, struct problem *p)
{
    const char *at = b->body.at, *line;
    size_t len;
    uint32_t count = 0;
    while (count <= ENQUEUE_BATCH_MAX && call_line(&at, b->body.end, &line, &len))
        count++;
    return size_take(b, count, p);
}

static enum body_step read_line(struct call *c)
{
    struct batch *b = c->extra;
    struct json_doc *doc = b->body.doc;
    const char *line;
    size_t len;
    if (!call_line(&b->body.at, b->body.end, &line, &len))
        return BODY_END;
    if (!json_parse(doc, line, len, MESSAGE_TOKENS_MAX))
        doc->count = 0;
    batch_add(b, doc, 0);
    return BODY_MORE;
}

/* The call */

static void batch_submit(struct call *c)
{
    struct batch *b = c->extra;
    if (b->results.items == 0) {
        batch_finish(c);
        return;
    }
    c->request.op.verb = ENGINE_PUT;
    c->request.op.put.items = b->items;
    c->request.op.put.count = b->results.items;
    call_submit(c, REQUEST_PUT, batch_finish);
}

static struct batch *batch_new(struct call *c)
{
    struct batch *b = mem_alloc(sizeof(*b));
    b->results.count = b->results.items = 0;
    b->results.errors = (struct buf){0};
    b->list = b->next = 0;
    b->items = NULL;
    struct http_slice trace = c->http->traceparent;
    b->traced = trace.data && trace_context_valid(trace.data, trace.len);
    if (b->traced)
        memcpy(b->trace, trace.data, sizeof(b->trace));
    body_init(&b->body, c);
    return b;
}

void batch_enqueue(struct call *c)
{
    struct problem p;
    p.field[0] = p.detail[0] = '\0';
    bool lines = media_of(c->http->content_type) == MEDIA_NDJSON;
    struct batch *b = c->extra = batch_new(c);
    size_t len = (size_t)(b->body.end - b->body.at);
    c->cleanup = batch_cleanup;
    if (lines ? !lines_count(b, &p) : len == 0) {
        if (!lines)
            problem_set(&p, STATUS_MALFORMED_JSON, "The body is empty; send a JSON object.");
        call_refuse(c, &p);
        return;
    }
    if (!lines)
        json_begin(b->body.doc, b->body.at, len, BATCH_TOKENS_MAX);
    body_read(c, &b->body, lines ? read_line : read_document, batch_submit);
}
