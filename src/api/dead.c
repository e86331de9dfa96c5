/* Dead letters: look, redrive, drop. */
#include "api/call.h"
#include "api/encode.h"
#include "api/matching.h"

#include <stdlib.h>

static void list_visit(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                       struct instant now)
{
    struct call *c = call_of_op(op);
    (void)now;
    if (c->out.len == 0)
        buf_lit(&c->out, "{\"messages\":[");
    else
        buf_putc(&c->out, ',');
    encode_dead(&c->out, q, m);
    c->listing.last = message_identity(m, q->id);
    listing_shown(c);
}

static void list_finish(struct call *c)
{
    if (c->out.len == 0)
        buf_lit(&c->out, "{\"messages\":[");
    buf_lit(&c->out, "],\"next\":");
    if (c->request.op.list.more && c->listing.shown > 0)
        encode_id(&c->out, &c->listing.last);
    else
        buf_lit(&c->out, "null");
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

static bool take_after(struct field *f, void *target)
{
    struct call *c = target;
    struct message_id id;
    if (!message_id_parse(f->value->str, f->value->len, &id))
        return field_refuse(f, "must be the message id that `next` gave.");
    c->request.op.list.after_queue = id.queue;
    c->request.op.list.after.seq = id.seq;
    return true;
}

void dead_list(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("limit", listing_take_limit),
        FIELD("after", take_after),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    c->listing.limit = 100;
    if (!call_query(c, &table, c))
        return;
    c->request.op.verb = ENGINE_DEAD_LIST;
    c->request.op.visit = list_visit;
    listing_start(c, list_finish);
}

static void get_visit(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                      struct instant now)
{
    struct call *c = call_of_op(op);
    (void)now;
    buf_clear(&c->out);
    if (m->state == MESSAGE_DEAD)
        encode_dead(&c->out, q, m);
    c->request.answer_len = c->out.len;
}

static const char not_dead[] = "There is no dead letter of this id; it may have been redriven.";

static void get_finish(struct call *c)
{
    if (c->out.len > 0)
        call_reply(c, 200);
    else
        call_refuse_as(c, STATUS_MESSAGE_NOT_FOUND, NULL, not_dead);
}

void dead_get(struct call *c)
{
    if (!call_has_room(c))
        return;
    c->request.op.verb = ENGINE_GET;
    c->request.op.visit = get_visit;
    c->request.op.one.id = c->id;
    call_submit(c, REQUEST_GET, get_finish);
}

static void delete_finish(struct call *c)
{
    if (c->request.count > 0)
        call_reply(c, 204);
    else
        call_refuse_as(c, STATUS_MESSAGE_NOT_FOUND, NULL, not_dead);
}

void dead_delete(struct call *c)
{
    c->request.op.verb = ENGINE_DEAD_DROP;
    c->request.op.bulk.ids = &c->id;
    c->request.op.bulk.id_count = 1;
    call_submit(c, REQUEST_DEAD_DROP, delete_finish);
}

static void purge_finish(struct call *c)
{
    buf_lit(&c->out, "{\"purged\":");
    buf_put_u64(&c->out, c->request.count);
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

static void match_cleanup(struct call *c)
{
    match_fini(c->extra);
}

static void purge_matched(struct call *c)
{
    match_answer(c, c->extra, "purged");
}

void dead_purge(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("filter", match_take_dead_filter),
                                              MATCH_FIELDS};
    static const struct field_table table = FIELD_TABLE(specs);
    struct match_call *m = mem_zalloc(sizeof(*m));
    match_init(m, c);
    c->extra = m;
    c->cleanup = match_cleanup;
    if (!call_body(c, &table, m) || !match_whole(c, m))
        return;
    if (!m->has_filter && m->matching.max > 0) {
        call_refuse_as(c, STATUS_INVALID_FIELD, "/max", "max goes with a filter.");
        return;
    }
    c->request.op.verb = ENGINE_DEAD_DROP;
    if (m->has_filter)
        match_submit(c, m, REQUEST_MATCHING, "dead letter", purge_matched);
    else
        call_submit(c, REQUEST_DEAD_DROP, purge_finish);
}

/* Redrive. */

/* The call's `extra`. */
struct redrive {
    struct match_call match; /* by a filter; first */
    struct message_id *ids;  /* owned */
    uint32_t id_count;
    uint32_t max;
    double per_second;
};

static void redrive_cleanup(struct call *c)
{
    struct redrive *r = c->extra;
    match_fini(&r->match);
    free(r->ids);
}

static bool take_ids(struct field *f, void *target)
{
    struct redrive *r = target;
    uint32_t count = f->value->count;
    if (f->value->type != JSON_ARRAY || count == 0 || count > LIST_MAX)
        return field_refuse(f, "must be an array of 1 to %d message ids.", LIST_MAX);
    r->ids = mem_alloc(count * sizeof(r->ids[0]));
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i)) {
        const struct json_token *t = &f->doc->tokens[i];
        if (t->type != JSON_STRING || !message_id_parse(t->str, t->len, &r->ids[r->id_count]))
            return field_refuse(f, "has an entry (number %u) that is not a message id.",
                                r->id_count + 1);
        r->id_count++;
    }
    return true;
}

static bool take_max(struct field *f, void *target)
{
    struct redrive *r = target;
    int64_t max;
    if (field_null(f))
        return true;
    if (!field_i64(f, 1, UINT32_MAX, &max))
        return false;
    r->max = (uint32_t)max;
    r->match.matching.max = (uint64_t)max;
    return true;
}

static bool take_per_second(struct field *f, void *target)
{
    struct redrive *r = target;
    return field_null(f) || field_double(f, 0.001, 1e6, &r->per_second);
}

static bool take_priority(struct field *f, void *target)
{
    struct redrive *r = target;
    return field_priority(f, &r->match.call->request.priority);
}

static void redrive_finish(struct call *c)
{
    buf_lit(&c->out, "{\"redriven\":");
    buf_put_u64(&c->out, c->request.count);
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

static void redrive_matched(struct call *c)
{
    match_answer(c, c->extra, "redriven");
}

/* False: the call was refused. */
static bool redrive_check(struct call *c, const struct redrive *r)
{
    if (!match_whole(c, &r->match))
        return false;
    if (r->match.has_filter && (r->ids || r->per_second > 0)) {
        call_refuse_as(c, STATUS_INVALID_FIELD, r->ids ? "/ids" : "/per_second",
                       "A filter goes without ids and per_second; max bounds a call.");
        return false;
    }
    return true;
}

void dead_redrive(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("ids", take_ids),
        FIELD("max", take_max),
        FIELD("per_second", take_per_second),
        FIELD("priority", take_priority),
        FIELD("filter", match_take_dead_filter),
        FIELD("dry_run", match_take_dry_run),
        FIELD("look_max", match_take_look_max),
        FIELD("after", match_take_after),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct redrive *r = mem_zalloc(sizeof(*r));
    match_init(&r->match, c);
    c->extra = r;
    c->cleanup = redrive_cleanup;
    if (!call_body(c, &table, r) || !redrive_check(c, r))
        return;
    c->request.op.verb = ENGINE_DEAD_REDRIVE;
    if (r->match.has_filter) {
        match_submit(c, &r->match, REQUEST_MATCHING, "dead letter", redrive_matched);
        return;
    }
    c->request.portions.max = r->max;
    c->request.portions.per_second = r->per_second;
    c->request.op.bulk.ids = r->ids;
    c->request.op.bulk.id_count = r->id_count;
    if (r->per_second > 0) /* the way to stop what takes long */
        call_end_with_peer(c);
    call_submit(c, REQUEST_REDRIVE, redrive_finish);
}
