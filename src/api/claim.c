/* Claims: of one queue, which is the call that everything is measured by, and of several. */
#include "api/auth.h"
#include "api/call.h"
#include "api/encode.h"
#include "api/routes.h"

static bool take_max(struct field *f, void *target)
{
    struct call *c = target;
    int64_t max = 1;
    if (!field_null(f) && !field_i64(f, 1, CLAIM_MAX, &max))
        return false;
    c->request.claim.max = (uint32_t)max;
    return true;
}

static bool take_wait(struct field *f, void *target)
{
    struct call *c = target;
    return field_null(f) || field_seconds(f, 0, WAIT_SECONDS_MAX, &c->request.claim.wait_ms);
}

static bool take_min_priority(struct field *f, void *target)
{
    struct call *c = target;
    return field_priority(f, &c->request.priority);
}

static bool take_visibility(struct field *f, void *target)
{
    struct call *c = target;
    return field_null(f) || field_seconds(f, 0, LEASE_SECONDS_MAX, &c->request.op.claim.lease_ms);
}

#define CLAIM_FIELDS                                                                               \
    FIELD("max", take_max), FIELD("wait_seconds", take_wait),                                      \
        FIELD("min_priority", take_min_priority),                                                  \
        FIELD("visibility_timeout_seconds", take_visibility)

static const struct field_spec claim_specs[] = {CLAIM_FIELDS};
static const struct field_table claim_table = FIELD_TABLE(claim_specs);

/* On the thread of the shard: the message is only there during the call. */
static void claim_visit(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                        struct instant now)
{
    struct call *c = call_of_op(op);
    if (c->out.len == 0)
        buf_lit(&c->out, "{\"messages\":[");
    else
        buf_putc(&c->out, ',');
    encode_claimed(&c->out, q, m, now, c->request.kind == REQUEST_CLAIM_MANY);
    call_count(c);
    c->request.answer_len = c->out.len;
}

/* On the thread of the shard: how many messages the answer has room for. */
static uint32_t claim_room(struct request *r)
{
    struct call *c = call_of(r);
    uint32_t room = call_room(c);
    if (room == 0)
        account_note(c->account, BUDGET_REFUSED_ANSWER);
    return room;
}

/* A claim whose wait was ended early finds nothing: messages that were picked for it went back. */
static void claim_finish(struct call *c)
{
    if (c->request.op.claim.found == 0)
        buf_clear(&c->out);
    if (c->out.len == 0)
        buf_lit(&c->out, "{\"messages\":[");
    buf_lit(&c->out, "]}");
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

static void claim_init(struct call *c)
{
    c->request.claim.max = 1;
    c->request.op.verb = ENGINE_CLAIM;
    c->request.op.claim.lease_ms = -1;
}

/* `places`: in how many lines it may have to wait. */
static void claim_submit(struct call *c, enum request_kind kind, unsigned places)
{
    c->request.op.visit = claim_visit;
    c->request.claim.room = claim_room;
    if (c->request.claim.wait_ms > 0 && !http_wait(c->http, places)) {
        call_refuse_as(c, STATUS_OVERLOADED, NULL,
                       "Too many claims wait already. Claim without wait_seconds, or try again "
                       "after Retry-After.");
        return;
    }
    c->waits = c->request.claim.wait_ms > 0;
    call_end_with_peer(c);
    call_submit(c, kind, claim_finish);
}

void claim_one(struct call *c)
{
    claim_init(c);
    bool get = c->http->verb == VERB_GET;
    if (get ? call_query(c, &claim_table, c) : call_body(c, &claim_table, c))
        claim_submit(c, REQUEST_CLAIM, 1);
}

/* Several queues */

/* Takes the names of the queues into call->extra; no name twice. */
static bool take_queues(struct field *f, void *target)
{
    struct call *c = target;
    uint32_t count = f->value->count, n = 0;
    if (f->value->type != JSON_ARRAY || count == 0 || count > CLAIM_QUEUES_MAX)
        return field_refuse(f, "must be an array of 1 to %d names of queues.", CLAIM_QUEUES_MAX);
    struct queue_name *names = c->extra = mem_zalloc(count * sizeof(names[0]));
    for (uint32_t i = json_first(f->doc, f->at); i; i = json_next(f->doc, f->at, i), n++) {
        const struct json_token *t = &f->doc->tokens[i];
        if (t->type != JSON_STRING || !queue_name_valid(t->str, t->len))
            return field_refuse(f,
                                "has something in place %u that is no name of a queue: 1 to %d of "
                                "the characters A-Z a-z 0-9 . _ - and not \".\" or \"..\".",
                                n + 1, QUEUE_NAME_MAX);
        memcpy(names[n].text, t->str, t->len);
        for (uint32_t other = 0; other < n; other++) {
            if (strcmp(names[other].text, names[n].text) == 0)
                return field_refuse(f, "names \"%s\" twice; leave one of them out.", names[n].text);
        }
    }
    c->request.claim.many.queues = names;
    c->request.claim.many.queue_count = n;
    memcpy(c->request.queue, names[0].text, sizeof(c->request.queue));
    return true;
}

static bool take_order(struct field *f, void *target)
{
    static const char *const names[] = {"urgency", "listed"};
    struct call *c = target;
    int order = 0;
    if (!field_null(f) && !field_choice(f, names, 2, &order))
        return false;
    c->request.claim.many.listed = order == 1;
    return true;
}

/* A token has to be good for all of the queues. Otherwise the answer must not tell whether one of
 * them exists. */
static bool may_claim_all(struct call *c)
{
    for (uint32_t i = 0; c->token && i < c->request.claim.many.queue_count; i++) {
        const char *name = c->request.claim.many.queues[i].text;
        if (auth_allows(c->token, c->route->roles, name))
            continue;
        struct problem p = {0};
        struct buf why = {0};
        auth_explain(c->token, c->route->roles, &why);
        problem_set_field(&p, "", "queues", 6);
        problem_set(&p, STATUS_FORBIDDEN, "\"%s\" is not for this token. %s", name, buf_cstr(&why));
        buf_fini(&why);
        call_refuse(c, &p);
        return false;
    }
    return true;
}

void claim_many(struct call *c)
{
    static const struct field_spec specs[] = {
        CLAIM_FIELDS,
        FIELD("queues", take_queues),
        FIELD("order", take_order),
    };
    static const struct field_table table = FIELD_TABLE(specs);
    claim_init(c);
    if (!call_body(c, &table, c))
        return;
    if (c->request.claim.many.queue_count == 0)
        call_refuse_as(c, STATUS_INVALID_FIELD, "/queues",
                       "queues is missing: name those to claim from, as in [\"mail\", \"sms\"].");
    else if (may_claim_all(c))
        claim_submit(c, REQUEST_CLAIM_MANY, c->request.claim.many.queue_count);
}
