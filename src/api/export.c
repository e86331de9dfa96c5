/* Export: one message a line. The cursor is the engine's own. Done messages that are kept as
 * history are not exported. */
#include "api/call.h"
#include "api/encode.h"

#include <stdio.h>

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

void export_lines(struct call *c)
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
