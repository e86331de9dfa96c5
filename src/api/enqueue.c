#include "api/enqueue.h"

#include "api/fields.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/mem.h"

#include <stdlib.h>

bool enqueue_take_payload(struct field *f, void *target)
{
    struct enqueue *e = target;
    e->payload = f->value;
    return true;
}

bool enqueue_take_base64(struct field *f, void *target)
{
    struct enqueue *e = target;
    if (f->value->type != JSON_STRING)
        return field_refuse(f, "must be a string in base64.");
    e->base64 = f->value;
    return true;
}

bool enqueue_take_priority(struct field *f, void *target)
{
    struct enqueue *e = target;
    return field_priority(f, &e->draft.priority);
}

static bool one_time(struct field *f, struct enqueue *e)
{
    if (++e->times > 1)
        return field_refuse(f, "is one time too many: delay_until, delay_seconds and dequeue_at "
                               "exclude each other.");
    return true;
}

/* A delay that is over delays nothing; only dequeue_at gives a place in the past. */
static bool take_delay_until(struct field *f, void *target)
{
    struct enqueue *e = target;
    int64_t until_ms;
    if (field_null(f))
        return true;
    if (!one_time(f, e) || !field_time(f, &until_ms))
        return false;
    if (until_ms > clock_now().wall_ms)
        e->draft.ready_ms = until_ms;
    return true;
}

bool enqueue_take_delay_seconds(struct field *f, void *target)
{
    struct enqueue *e = target;
    if (field_null(f))
        return true;
    return one_time(f, e) && field_seconds(f, 0, DELAY_SECONDS_MAX, &e->draft.delay_ms);
}

bool enqueue_take_dequeue_at(struct field *f, void *target)
{
    struct enqueue *e = target;
    if (field_null(f))
        return true;
    return one_time(f, e) && field_i64(f, -TIME_MS_MAX, TIME_MS_MAX, &e->draft.ready_ms);
}

bool enqueue_take_dedup_key(struct field *f, void *target)
{
    struct enqueue *e = target;
    if (field_null(f))
        return true;
    return field_text(f, 1, DEDUP_KEY_MAX, &e->dedup, &e->dedup_len);
}

bool enqueue_take_ttl(struct field *f, void *target)
{
    struct enqueue *e = target;
    int64_t ttl_ms;
    if (field_null(f))
        return true;
    if (!field_seconds(f, 0, TTL_SECONDS_MAX, &ttl_ms))
        return false;
    if (ttl_ms == 0)
        return field_refuse(f, "must be more than 0; leave it out for the queue's own.");
    e->draft.ttl_ms = ttl_ms;
    return true;
}

/* A flat object of scalars, kept as its text. */
static bool metadata_check(struct field *f, const struct json_doc *doc, uint32_t object)
{
    const struct json_token *t = &doc->tokens[object];
    if (t->type != JSON_OBJECT)
        return field_refuse(f, "must be an object.");
    if (t->count > METADATA_KEYS_MAX)
        return field_refuse(f, "has at most %d members.", METADATA_KEYS_MAX);
    if (t->raw_len > METADATA_MAX)
        return field_refuse(f, "has at most %d bytes of JSON text.", METADATA_MAX);
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i)) {
        if (doc->tokens[i].type == JSON_OBJECT || doc->tokens[i].type == JSON_ARRAY)
            return field_refuse(f, "has strings, numbers, booleans or null as values.");
    }
    return true;
}

bool enqueue_take_metadata(struct field *f, void *target)
{
    struct enqueue *e = target;
    const struct json_token *value = f->value;
    if (field_null(f))
        return true;
    if (f->doc) {
        if (!metadata_check(f, f->doc, f->at))
            return false;
    } else {
        e->parsed = mem_alloc(sizeof(*e->parsed));
        json_init(e->parsed);
        if (!json_parse(e->parsed, value->str, value->len, 2 * METADATA_KEYS_MAX))
            return field_refuse(f, "must be an object in JSON.");
        if (!metadata_check(f, e->parsed, 0))
            return false;
        value = &e->parsed->tokens[0];
    }
    e->has_metadata = true;
    if (value->count > 0) {
        e->metadata = value->raw;
        e->metadata_len = value->raw_len;
    }
    return true;
}

/* metadata.tenant=acme */
static bool take_metadata_pair(struct field *f, void *target)
{
    struct enqueue *e = target;
    size_t prefix = sizeof("metadata.") - 1;
    if (e->pair_count++ == METADATA_KEYS_MAX)
        return field_refuse(f, "is one too many: metadata has at most %d.", METADATA_KEYS_MAX);
    buf_putc(&e->pairs, e->pairs.len ? ',' : '{');
    json_put_string(&e->pairs, f->value->key + prefix, f->value->key_len - prefix);
    buf_putc(&e->pairs, ':');
    json_put_string(&e->pairs, f->value->str, f->value->len);
    if (e->pairs.len >= METADATA_MAX)
        return field_refuse(f, "takes metadata past %d bytes of JSON text.", METADATA_MAX);
    return true;
}

#define COMMON_FIELDS                                                                              \
    FIELD("priority", enqueue_take_priority), FIELD("delay_seconds", enqueue_take_delay_seconds),  \
        FIELD("delay_until", take_delay_until), FIELD("dequeue_at", enqueue_take_dequeue_at),      \
        FIELD("dedup_key", enqueue_take_dedup_key), FIELD("ttl_seconds", enqueue_take_ttl),        \
        FIELD("metadata", enqueue_take_metadata)

static const struct field_spec json_specs[] = {
    FIELD("payload", enqueue_take_payload),
    COMMON_FIELDS,
    FIELD("payload_base64", enqueue_take_base64),
};
static const struct field_table json_table = FIELD_TABLE(json_specs);

static const struct field_spec query_specs[] = {
    COMMON_FIELDS,
    FIELD("metadata.*", take_metadata_pair),
};
static const struct field_table query_table = FIELD_TABLE(query_specs);

void enqueue_init(struct enqueue *e)
{
    e->draft.body = NULL;
    e->draft.priority.kind = PRIORITY_DEFAULT;
    e->draft.ready_ms = READY_NOW;
    e->draft.delay_ms = 0;
    e->draft.ttl_ms = TTL_DEFAULT;
    e->draft.seq_min = 0;
    e->payload = e->base64 = NULL;
    e->metadata = e->dedup = NULL;
    e->metadata_len = e->dedup_len = 0;
    e->has_metadata = false;
    e->times = e->pair_count = 0;
    e->pairs = (struct buf){0};
    e->parsed = NULL;
}

static bool too_large(struct problem *p, const char *field)
{
    problem_set_field(p, "", field, strlen(field));
    return problem_set(
        p, STATUS_PAYLOAD_TOO_LARGE,
        "A payload has at most %d bytes after decoding; keep larger things elsewhere "
        "and send where they are.",
        PAYLOAD_MAX);
}

/* The payload stands at the front of the body already; the rest follows it. */
static void body_build(struct enqueue *e, size_t payload_len, enum payload_kind kind)
{
    struct draft *d = &e->draft;
    char *at = d->body + payload_len;
    if (e->metadata_len > 0)
        memcpy(at, e->metadata, e->metadata_len);
    if (e->dedup_len > 0)
        memcpy(at + e->metadata_len, e->dedup, e->dedup_len);
    d->payload_len = (uint32_t)payload_len;
    d->metadata_len = (uint16_t)e->metadata_len;
    d->dedup_len = (uint16_t)e->dedup_len;
    d->kind = kind;
}

static void body_from(struct enqueue *e, const char *payload, size_t len, enum payload_kind kind)
{
    e->draft.body = mem_alloc(len + e->metadata_len + e->dedup_len);
    if (len > 0)
        memcpy(e->draft.body, payload, len);
    body_build(e, len, kind);
}

static bool body_from_base64(struct enqueue *e, struct problem *p)
{
    size_t len = 0;
    if (e->base64->len > (PAYLOAD_MAX + 2) / 3 * 4)
        return too_large(p, "payload_base64");
    e->draft.body = mem_alloc(base64_room(e->base64->len) + e->metadata_len + e->dedup_len);
    bool ok = base64_decode(e->base64->str, e->base64->len, e->draft.body, &len);
    if (ok && len <= PAYLOAD_MAX) {
        body_build(e, len, PAYLOAD_BYTES);
        return true;
    }
    free(e->draft.body);
    e->draft.body = NULL;
    if (ok) /* the last four characters may decode to one byte too many */
        return too_large(p, "payload_base64");
    problem_set_field(p, "", "payload_base64", 14);
    return problem_set(p, STATUS_INVALID_FIELD,
                       "payload_base64 must be padded base64 in the standard alphabet (RFC 4648, "
                       "section 4).");
}

bool enqueue_body(struct enqueue *e, struct problem *p)
{
    if (!e->payload == !e->base64) {
        problem_set_field(p, "", "payload", 7);
        return problem_set(p, STATUS_INVALID_FIELD, "Give %s of payload and payload_base64.",
                           e->payload ? "only one" : "one");
    }
    if (e->base64)
        return body_from_base64(e, p);
    bool text = e->payload->type == JSON_STRING;
    size_t len = text ? e->payload->len : e->payload->raw_len;
    if (len > PAYLOAD_MAX)
        return too_large(p, "payload");
    body_from(e, text ? e->payload->str : e->payload->raw, len, text ? PAYLOAD_TEXT : PAYLOAD_JSON);
    return true;
}

bool enqueue_from_json(const struct json_doc *doc, uint32_t object, struct draft *draft,
                       struct problem *p)
{
    struct enqueue e;
    enqueue_init(&e);
    if (!fields_object(doc, object, "", &json_table, &e, p) || !enqueue_body(&e, p))
        return false;
    *draft = e.draft;
    return true;
}

static bool query_take(struct enqueue *e, const char *query, size_t len, struct buf *scratch,
                       struct problem *p)
{
    if (!fields_query(query, len, scratch, &query_table, e, p))
        return false;
    if (e->pair_count == 0)
        return true;
    if (e->has_metadata) {
        problem_set_field(p, "", "metadata", 8);
        return problem_set(p, STATUS_INVALID_FIELD,
                           "Give metadata as one JSON object or as metadata.KEY=VALUE, not both.");
    }
    buf_putc(&e->pairs, '}');
    struct json_doc doc;
    json_init(&doc);
    bool distinct = json_parse(&doc, e->pairs.data, e->pairs.len, 2 * METADATA_KEYS_MAX);
    json_fini(&doc);
    if (!distinct) {
        problem_set_field(p, "", "metadata", 8);
        return problem_set(p, STATUS_INVALID_FIELD, "A key of metadata is given twice.");
    }
    e->metadata = e->pairs.data;
    e->metadata_len = e->pairs.len;
    return true;
}

bool enqueue_from_bytes(const char *payload, size_t len, const char *query, size_t query_len,
                        struct buf *scratch, struct draft *draft, struct problem *p)
{
    struct enqueue e;
    if (len > PAYLOAD_MAX)
        return too_large(p, "payload");
    enqueue_init(&e);
    bool ok = query_take(&e, query, query_len, scratch, p);
    if (ok) {
        bool text = len == 0 || utf8_valid(payload, len);
        body_from(&e, payload, len, text ? PAYLOAD_TEXT : PAYLOAD_BYTES);
        *draft = e.draft;
    }
    if (e.parsed)
        json_fini(e.parsed);
    free(e.parsed);
    buf_fini(&e.pairs);
    return ok;
}
