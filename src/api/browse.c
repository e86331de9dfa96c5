/* Browse: looks for messages without claiming them. Nothing tells where those are that match. So a
 * call looks through the queue in steps, and ends when the page is full, when there is no more to
 * look at, or after STEPS_MAX steps: then the page may be short or empty, and its cursor goes on.
 */
#include "api/call.h"
#include "api/encode.h"

#define STEPS_MAX 100
#define STEP_SOUGHT                                                                                \
    (1024 * 1024)      /* bytes that the filter looks through in a step, more or less a message */
#define STEP_WHOLE 16  /* messages of a step; an engine may read all of them before it shows one */
#define STEP_BARE  256 /* … when it need not read the payloads */

/* What is looked for, and how far it is. Owned by the call as its `extra`. */
struct browse {
    struct call *call;
    struct filter filter;
    struct buf metadata; /* the object of the meta.K=V, open at its end */
    uint32_t metadata_count;
    uint32_t limit;
    bool payload; /* it is shown */
    uint32_t matched, looked, steps;
    size_t sought; /* filter_cost() of this step */
};

static void browse_cleanup(struct call *c)
{
    struct browse *b = c->extra;
    filter_fini(&b->filter);
    buf_fini(&b->metadata);
}

/* Parameters */

static bool take_state(struct field *f, void *target)
{
    static const char *const names[] = {"scheduled", "ready", "leased", "dead", "done"};
    static const enum message_state states[] = {MESSAGE_SCHEDULED, MESSAGE_READY, MESSAGE_LEASED,
                                                MESSAGE_DEAD, MESSAGE_DONE};
    struct browse *b = target;
    int at;
    if (!field_choice(f, names, sizeof(names) / sizeof(names[0]), &at))
        return false;
    b->filter.states = 1U << states[at];
    return true;
}

static bool take_level(struct field *f, void *target)
{
    struct browse *b = target;
    return field_priority(f, &b->call->request.priority);
}

static bool take_pair(struct field *f, void *target)
{
    struct browse *b = target;
    size_t prefix = sizeof("meta.") - 1;
    const struct json_token *value = f->value;
    if (b->metadata_count++ == METADATA_KEYS_MAX)
        return field_refuse(f, "is one condition more than the %d that are taken.",
                            METADATA_KEYS_MAX);
    buf_putc(&b->metadata, b->metadata.len == 0 ? '{' : ',');
    json_put_string(&b->metadata, value->key + prefix, value->key_len - prefix);
    buf_putc(&b->metadata, ':');
    json_put_string(&b->metadata, value->str, value->len);
    return true;
}

static bool take_payload_contains(struct field *f, void *target)
{
    struct browse *b = target;
    if (f->value->len == 0 || f->value->len > PART_MAX)
        return field_refuse(f, "must be a text of 1 to %d bytes.", PART_MAX);
    filter_set_part(&b->filter, f->value->str, f->value->len);
    return true;
}

static bool take_reason(struct field *f, void *target)
{
    struct browse *b = target;
    if (f->value->len > REASON_MAX)
        return field_refuse(f, "must be a text of at most %d bytes.", REASON_MAX);
    filter_set_reason(&b->filter, f->value->str, f->value->len);
    return true;
}

static bool take_older_than(struct field *f, void *target)
{
    struct browse *b = target;
    return field_seconds(f, 0, DELAY_SECONDS_MAX, &b->filter.older_than_ms);
}

static bool take_payload(struct field *f, void *target)
{
    struct browse *b = target;
    return field_bool(f, &b->payload);
}

static bool take_limit(struct field *f, void *target)
{
    struct browse *b = target;
    int64_t limit;
    if (!field_i64(f, 1, LIST_MAX, &limit))
        return false;
    b->limit = (uint32_t)limit;
    return true;
}

static bool take_after(struct field *f, void *target)
{
    struct browse *b = target;
    return cursor_parse(f->value->str, f->value->len, &b->call->request.op.list.after) ||
           field_refuse(f, "must be what `next` gave.");
}

/* Steps */

static void browse_visit(struct engine_op *op, const struct engine_queue *q,
                         const struct message *m, struct instant now)
{
    struct call *c = call_of_op(op);
    struct browse *b = c->extra;
    b->looked++;
    b->sought += filter_cost(&b->filter, m);
    if (b->sought >= STEP_SOUGHT)
        op->list.limit = op->list.found + 1; /* `found` does not count the one being shown */
    if (!filter_matches(&b->filter, m, c->request.list.slot, now.wall_ms))
        return;
    buf_puts(&c->out, c->out.len == 0 ? "{\"messages\":[" : ",");
    encode_message(&c->out, q, m, now, b->payload ? CONTENTS_ALL : CONTENTS_METADATA);
    c->request.answer_len = c->out.len;
    if (++b->matched == b->limit || c->out.len >= ANSWER_FULL)
        op->list.limit = op->list.found + 1;
}

static void browse_answer(struct call *c)
{
    const struct browse *b = c->extra;
    char cursor[CURSOR_TEXT_MAX];
    if (c->out.len == 0)
        buf_lit(&c->out, "{\"messages\":[");
    buf_lit(&c->out, "],\"looked_at\":");
    buf_put_u64(&c->out, b->looked);
    buf_lit(&c->out, ",\"next\":");
    cursor_format(&c->request.op.list.next, cursor);
    if (c->request.op.list.more)
        json_put_cstr(&c->out, cursor);
    else
        buf_lit(&c->out, "null");
    buf_putc(&c->out, '}');
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

static void browse_prepare(struct call *c)
{
    struct browse *b = c->extra;
    struct engine_op *op = &c->request.op;
    b->sought = 0;
    op->list.bare = !b->payload && !filter_needs_payload(&b->filter);
    op->list.limit = op->list.bare ? STEP_BARE : STEP_WHOLE;
}

static void browse_step(struct call *c)
{
    struct browse *b = c->extra;
    struct engine_op *op = &c->request.op;
    call_count(c);
    bool full = b->matched >= b->limit || c->out.len >= ANSWER_FULL || call_room(c) == 0;
    if (!op->list.more || full || ++b->steps == STEPS_MAX || request_hung_up(&c->request)) {
        browse_answer(c);
        return;
    }
    op->list.after = op->list.next;
    browse_prepare(c);
    call_again(c);
}

static struct browse *browse_new(struct call *c)
{
    struct browse *b = mem_zalloc(sizeof(*b));
    b->call = c;
    b->limit = 100;
    b->payload = true;
    filter_init(&b->filter);
    b->filter.states |= 1U << MESSAGE_LEASED | 1U << MESSAGE_DEAD;
    b->filter.as_text = true;
    c->extra = b;
    c->cleanup = browse_cleanup;
    return b;
}

/* Dead letters have a list of their own. */
static void browse_begin(struct call *c)
{
    struct browse *b = c->extra;
    struct engine_op *op = &c->request.op;
    bool dead = b->filter.states == 1U << MESSAGE_DEAD;
    op->verb = dead ? ENGINE_DEAD_LIST : ENGINE_LIST;
    op->list.states = dead ? 0 : b->filter.states;
    op->visit = browse_visit;
    browse_prepare(c);
    call_end_with_peer(c);
    call_submit(c, REQUEST_LIST, browse_step);
}

void browse_get(struct call *c)
{
    static const struct field_spec specs[] = {
        FIELD("state", take_state),
        FIELD("level", take_level),
        FIELD("payload_contains", take_payload_contains),
        FIELD("reason", take_reason),
        FIELD("older_than", take_older_than),
        FIELD("payload", take_payload),
        FIELD("limit", take_limit),
        FIELD("after", take_after),
        FIELD("meta.*", take_pair),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    struct browse *b = browse_new(c);
    if (!call_query(c, &table, b))
        return;
    if (b->metadata_count > 0) {
        buf_putc(&b->metadata, '}');
        if (!filter_set_metadata(&b->filter, b->metadata.data, b->metadata.len)) {
            call_refuse_as(c, STATUS_INVALID_FIELD, "/meta.*",
                           "A name of metadata is given twice.");
            return;
        }
    }
    if (call_has_room(c))
        browse_begin(c);
}
