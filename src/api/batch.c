/* Many messages in one request. Each stands for itself: what is wrong with one is
 * told in its place and does not stop the others. */
#include "api/call.h"
#include "api/enqueue.h"
#include "api/results.h"

#include <stdlib.h>

#define BATCH_TOKENS_MAX (1 << 20)

struct batch {
    struct results results;
    struct put_item items[]; /* those that are handed to the engine */
};

static struct batch *batch_new(uint32_t room)
{
    struct batch *b = mem_alloc(sizeof(*b) + room * sizeof(b->items[0]));
    b->results.count = b->results.items = 0;
    b->results.errors = (struct buf){0};
    return b;
}

static void batch_cleanup(struct call *c)
{
    struct batch *b = c->extra;
    for (uint32_t i = 0; i < b->results.items; i++)
        draft_fini(&b->items[i].draft);
    results_fini(&b->results);
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
    item->status = STATUS_OK;
    item->deduplicated = false;
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

static bool size_refuse(struct problem *p)
{
    problem_set_field(p, "", "messages", 8);
    return problem_set(p, STATUS_INVALID_FIELD, "A batch has 1 to %d messages.", ENQUEUE_BATCH_MAX);
}

static bool take_messages(struct field *f, void *target)
{
    *(uint32_t *)target = f->at;
    return true;
}

static bool batch_from_json(struct call *c, struct problem *p)
{
    static const struct field_spec specs[] = {FIELD("messages", take_messages)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct json_doc *doc = &c->api->doc;
    uint32_t list = 0;
    if (!call_parse(c, BATCH_TOKENS_MAX, p) || !fields_object(doc, 0, "", &table, &list, p))
        return false;
    const struct json_token *messages = &doc->tokens[list];
    if (list == 0 || messages->type != JSON_ARRAY || messages->count == 0 ||
        messages->count > ENQUEUE_BATCH_MAX)
        return size_refuse(p);
    struct batch *b = c->extra = batch_new(messages->count);
    for (uint32_t i = json_first(doc, list); i; i = json_next(doc, list, i))
        batch_add(b, doc, i);
    return true;
}

static bool batch_from_lines(struct call *c, struct problem *p)
{
    const char *at = c->http->body, *end = at ? at + c->http->body_len : NULL, *line;
    size_t len;
    uint32_t count = 0;
    while (count <= ENQUEUE_BATCH_MAX && call_line(&at, end, &line, &len))
        count++;
    if (count == 0 || count > ENQUEUE_BATCH_MAX)
        return size_refuse(p);
    struct batch *b = c->extra = batch_new(count);
    struct json_doc *doc = &c->api->doc;
    for (at = c->http->body; call_line(&at, end, &line, &len);) {
        if (!json_parse(doc, line, len, MESSAGE_TOKENS_MAX))
            doc->count = 0;
        batch_add(b, doc, 0);
    }
    return true;
}

void batch_enqueue(struct call *c)
{
    struct problem p;
    p.field[0] = p.detail[0] = '\0';
    bool lines = media_of(c->http->content_type) == MEDIA_NDJSON;
    if (!(lines ? batch_from_lines(c, &p) : batch_from_json(c, &p))) {
        call_refuse(c, &p);
        return;
    }
    struct batch *b = c->extra;
    c->cleanup = batch_cleanup;
    if (b->results.items == 0) {
        batch_finish(c);
        return;
    }
    c->request.op.verb = ENGINE_PUT;
    c->request.op.put.items = b->items;
    c->request.op.put.count = b->results.items;
    call_submit(c, REQUEST_PUT, batch_finish);
}
