/* Schedules: messages that a queue gets again and again. */
#include "api/call.h"
#include "api/encode.h"
#include "api/enqueue.h"
#include "base/cron.h"
#include "base/zoneinfo.h"

#include <stdio.h>

#define NEXT_DEFAULT     5
#define GRACE_MS_DEFAULT 60000

/* What a PUT says. */
struct schedule_fields {
    struct enqueue enqueue; /* first */
    struct schedule *schedule;
};

/* What a call keeps until it is answered. */
struct schedule_call {
    struct schedule schedule; /* PUT */
    int64_t next;             /* how many due times to show */
    int64_t limit;            /* of a list */
    bool has_after;
    char after[QUEUE_NAME_MAX + 1];
    char last[QUEUE_NAME_MAX + 1]; /* shown last */
};

static void cleanup(struct call *c)
{
    struct schedule_call *s = c->extra;
    schedule_fini(&s->schedule);
}

static struct schedule_call *keep(struct call *c)
{
    struct schedule_call *s = mem_zalloc(sizeof(*s));
    s->next = NEXT_DEFAULT;
    s->limit = 100;
    c->extra = s;
    c->cleanup = cleanup;
    return s;
}

/* Fields */

static struct schedule *schedule_of(void *target)
{
    return ((struct schedule_fields *)target)->schedule;
}

static bool take_cron(struct field *f, void *target)
{
    struct schedule *s = schedule_of(target);
    const char *text;
    size_t len;
    struct cron cron;
    char why[CRON_WHY_MAX];
    if (field_null(f))
        return true;
    if (!field_text(f, 1, SCHEDULE_CRON_MAX, &text, &len))
        return false;
    if (!cron_parse(text, len, &cron, why))
        return field_refuse(f, "%s.", why);
    memcpy(s->rule.cron, text, len);
    return true;
}

static bool take_every(struct field *f, void *target)
{
    if (field_null(f))
        return true;
    return field_i64(f, 1, SCHEDULE_EVERY_SECONDS_MAX, &schedule_of(target)->rule.every_s);
}

static bool take_time_zone(struct field *f, void *target)
{
    struct schedule *s = schedule_of(target);
    const struct zone *zone;
    const char *name;
    size_t len;
    if (field_null(f))
        return true;
    if (!field_text(f, 1, ZONE_NAME_MAX, &name, &len))
        return false;
    if (!zone_name_valid(name, len))
        return field_refuse(f, "must be an IANA name such as Europe/Berlin, or UTC.");
    memcpy(s->rule.time_zone, name, len);
    s->rule.time_zone[len] = '\0';
    if (!zone_find(s->rule.time_zone, &zone))
        return field_refuse(f, "is not known to this server: it must be an IANA name such as "
                               "Europe/Berlin, and the package tzdata has them.");
    return true;
}

static bool take_missed(struct field *f, void *target)
{
    int missed;
    if (!field_choice(f, missed_names, MISSED_COUNT, &missed))
        return false;
    schedule_of(target)->missed = (uint8_t)missed;
    return true;
}

static bool take_grace(struct field *f, void *target)
{
    return field_seconds(f, 1, SCHEDULE_GRACE_SECONDS_MAX, &schedule_of(target)->grace_ms);
}

static bool take_paused(struct field *f, void *target)
{
    return field_bool(f, &schedule_of(target)->paused);
}

static bool take_metadata(struct field *f, void *target)
{
    const struct enqueue *e = target;
    static const char *const ours[] = {"schedule", "due_at"};
    if (!enqueue_take_metadata(f, target))
        return false;
    if (e->metadata_len > SCHEDULE_METADATA_MAX)
        return field_refuse(f, "has at most %d bytes of JSON text here.", SCHEDULE_METADATA_MAX);
    if (f->value->count > SCHEDULE_METADATA_KEYS_MAX)
        return field_refuse(f, "has at most %d members here.", SCHEDULE_METADATA_KEYS_MAX);
    for (size_t i = 0; i < 2; i++) {
        if (json_get(f->doc, f->at, ours[i]))
            return field_refuse(f, "has a member \"%s\", which the server sets itself.", ours[i]);
    }
    return true;
}

static bool no_such_time(struct field *f, void *target)
{
    (void)target;
    return field_refuse(f, "is one time, and a schedule has many: use delay_seconds, or leave it "
                           "out.");
}

static const struct field_spec specs[] = {
    FIELD("cron", take_cron),
    FIELD("every_seconds", take_every),
    FIELD("time_zone", take_time_zone),
    FIELD("missed", take_missed),
    FIELD("grace_seconds", take_grace),
    FIELD("paused", take_paused),
    FIELD("payload", enqueue_take_payload),
    FIELD("payload_base64", enqueue_take_base64),
    FIELD("priority", enqueue_take_priority),
    FIELD("delay_seconds", enqueue_take_delay_seconds),
    FIELD("ttl_seconds", enqueue_take_ttl),
    FIELD("dedup_key", enqueue_take_dedup_key),
    FIELD("metadata", take_metadata),
    FIELD_REFUSED("delay_until", no_such_time),
    FIELD_REFUSED("dequeue_at", no_such_time),
};
static const struct field_table table = FIELD_TABLE(specs);

/* PUT */

static bool refuse(struct problem *p, const char *field, enum status status, const char *detail)
{
    problem_set_field(p, "", field, strlen(field));
    return problem_set(p, status, "%s", detail);
}

static bool rule_check(const struct schedule_rule *rule, struct problem *p)
{
    if (!rule->cron[0] == !rule->every_s)
        return refuse(p, "cron", STATUS_INVALID_FIELD,
                      rule->every_s ? "Give only one of cron and every_seconds."
                                    : "Give one of cron and every_seconds.");
    if (rule->every_s && strcmp(rule->time_zone, "UTC") != 0)
        return refuse(p, "time_zone", STATUS_INVALID_FIELD,
                      "time_zone belongs to a cron line; every_seconds counts from 1970 in UTC.");
    return true;
}

static bool read_body(struct call *c, struct schedule *s, struct problem *p)
{
    struct schedule_fields fields = {.schedule = s};
    const struct zone *zone;
    enqueue_init(&fields.enqueue);
    *s = (struct schedule){.missed = MISSED_ONCE, .grace_ms = GRACE_MS_DEFAULT};
    snprintf(s->rule.time_zone, sizeof(s->rule.time_zone), "UTC");
    memcpy(s->name, c->name, sizeof(s->name));
    if (!call_parse(c, MESSAGE_TOKENS_MAX, p) ||
        !fields_object(&c->api->doc, 0, "", &table, &fields, p) || !rule_check(&s->rule, p) ||
        !enqueue_body(&fields.enqueue, p))
        return false;
    s->draft = fields.enqueue.draft;
    if (s->draft.payload_len > SCHEDULE_PAYLOAD_MAX)
        return refuse(p, fields.enqueue.payload ? "payload" : "payload_base64",
                      STATUS_PAYLOAD_TOO_LARGE,
                      "The payload of a schedule has at most 32768 bytes; keep larger things "
                      "elsewhere and send where they are.");
    if (!zone_find(s->rule.time_zone, &zone)) /* it was there a moment ago */
        return refuse(p, "time_zone", STATUS_INVALID_FIELD, "The time zone cannot be read.");
    s->timing.next_ms = schedule_next(&s->rule, zone, clock_now().wall_ms);
    return true;
}

/* Due times to come, the next one first. */
static void put_next(struct buf *out, const struct schedule *s, int64_t count)
{
    const struct zone *zone;
    int64_t due_ms = s->timing.next_ms;
    bool known = zone_find(s->rule.time_zone, &zone);
    buf_lit(out, ",\"next\":[");
    for (int64_t i = 0; i < count && due_ms != SCHEDULE_NEVER; i++) {
        if (i > 0)
            buf_putc(out, ',');
        encode_time(out, due_ms);
        due_ms = known ? schedule_next(&s->rule, zone, due_ms) : SCHEDULE_NEVER;
    }
    buf_putc(out, ']');
}

static void put_time(struct buf *out, const char *name, int64_t ms, int64_t none)
{
    buf_puts(out, name);
    if (ms == none)
        buf_lit(out, "null");
    else
        encode_time(out, ms);
}

static void put_timing(struct call *c, const struct schedule *s)
{
    struct buf *out = &c->out;
    enum status refusal = broker_schedule_refusal(&c->request, s->name);
    put_time(out, ",\"next_due_at\":", s->timing.next_ms, SCHEDULE_NEVER);
    put_time(out, ",\"last_due_at\":", s->timing.last_ms, SCHEDULE_NEVER_YET);
    buf_lit(out, ",\"count\":");
    buf_put_u64(out, s->timing.count);
    buf_lit(out, ",\"waits_for\":");
    if (refusal)
        json_put_cstr(out, status_name(refusal));
    else
        buf_lit(out, "null");
}

static void show_one(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                     struct instant now)
{
    struct call *c = call_of_op(op);
    const struct schedule_call *keeps = c->extra;
    (void)now;
    buf_clear(&c->out);
    encode_schedule(&c->out, &q->config, s);
    put_timing(c, s);
    put_next(&c->out, s, keeps->next);
    buf_putc(&c->out, '}');
    call_count(c);
}

static void put_finish(struct call *c)
{
    call_reply(c, c->request.op.schedule.created ? 201 : 200);
}

void schedules_put(struct call *c)
{
    struct schedule_call *s = keep(c);
    struct problem p = {0};
    if (!read_body(c, &s->schedule, &p)) {
        call_refuse(c, &p);
        return;
    }
    c->request.op.verb = ENGINE_SCHEDULE_SET;
    c->request.op.schedule.set = &s->schedule;
    c->request.op.schedule.show = show_one;
    call_submit(c, REQUEST_SCHEDULE_SET, put_finish);
}

/* GET and DELETE */

static void reply_ok(struct call *c)
{
    call_reply(c, 200);
}

static bool take_next(struct field *f, void *target)
{
    struct schedule_call *s = target;
    return field_i64(f, 0, SCHEDULE_NEXT_MAX, &s->next);
}

void schedules_get(struct call *c)
{
    static const struct field_spec query[] = {FIELD("next", take_next)};
    static const struct field_table query_table = FIELD_TABLE(query);
    if (!call_query(c, &query_table, keep(c)))
        return;
    c->request.op.verb = ENGINE_SCHEDULE_LIST;
    c->request.op.schedule.name = c->name;
    c->request.op.schedule.show = show_one;
    call_submit(c, REQUEST_SCHEDULE, reply_ok);
}

static void delete_finish(struct call *c)
{
    call_reply(c, 204);
}

void schedules_delete(struct call *c)
{
    c->request.op.verb = ENGINE_SCHEDULE_DELETE;
    c->request.op.schedule.name = c->name;
    call_submit(c, REQUEST_SCHEDULE, delete_finish);
}

/* The list: without payloads. */

static bool take_limit(struct field *f, void *target)
{
    struct schedule_call *s = target;
    return field_i64(f, 1, LIST_MAX, &s->limit);
}

static bool take_after(struct field *f, void *target)
{
    struct schedule_call *s = target;
    const char *name;
    size_t len;
    if (!field_text(f, 0, QUEUE_NAME_MAX, &name, &len))
        return false;
    if (!queue_prefix_valid(name, len))
        return field_refuse(f, "must be the name of a schedule, or the start of one.");
    memcpy(s->after, name, len);
    s->has_after = true;
    return true;
}

static void show_row(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                     struct instant now)
{
    struct call *c = call_of_op(op);
    struct schedule_call *keeps = c->extra;
    (void)now;
    if (keeps->last[0])
        buf_putc(&c->out, ',');
    memcpy(keeps->last, s->name, sizeof(keeps->last));
    encode_schedule_row(&c->out, &q->config, s);
    put_timing(c, s);
    buf_putc(&c->out, '}');
    call_count(c);
}

static void list_finish(struct call *c)
{
    const struct schedule_call *keeps = c->extra;
    buf_lit(&c->out, "],\"next\":");
    if (c->request.op.schedule.more)
        json_put_cstr(&c->out, keeps->last);
    else
        buf_lit(&c->out, "null");
    buf_putc(&c->out, '}');
    call_reply(c, 200);
}

void schedules_list(struct call *c)
{
    static const struct field_spec query[] = {FIELD("limit", take_limit),
                                              FIELD("after", take_after)};
    static const struct field_table query_table = FIELD_TABLE(query);
    struct schedule_call *s = keep(c);
    if (!call_query(c, &query_table, s))
        return;
    buf_lit(&c->out, "{\"schedules\":[");
    c->request.op.verb = ENGINE_SCHEDULE_LIST;
    c->request.op.schedule.after = s->has_after ? s->after : NULL;
    c->request.op.schedule.limit = (uint32_t)s->limit;
    c->request.op.schedule.show = show_row;
    call_submit(c, REQUEST_SCHEDULE, list_finish);
}
