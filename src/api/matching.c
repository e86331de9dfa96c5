#include "api/matching.h"

#include "api/encode.h"

#include <inttypes.h>
#include <stdio.h>

void match_init(struct match_call *m, struct call *c)
{
    m->call = c;
    filter_init(&m->matching.filter);
}

void match_fini(struct match_call *m)
{
    filter_fini(&m->matching.filter);
}

/* Fields */

static bool take_priority(struct field *f, void *target)
{
    struct filter *filter = target;
    return field_priority(f, &filter->priority);
}

static bool take_older_than(struct field *f, void *target)
{
    struct filter *filter = target;
    return field_null(f) || field_seconds(f, 0, DELAY_SECONDS_MAX, &filter->older_than_ms);
}

static bool take_metadata(struct field *f, void *target)
{
    struct filter *filter = target;
    return field_null(f) || filter_set_metadata(filter, f->value->raw, f->value->raw_len) ||
           field_refuse(f, "must be an object with at most %d members.", METADATA_KEYS_MAX);
}

static bool take_payload_contains(struct field *f, void *target)
{
    struct filter *filter = target;
    const char *text;
    size_t len;
    if (field_null(f))
        return true;
    if (!field_text(f, 1, PART_MAX, &text, &len))
        return false;
    filter_set_part(filter, text, len);
    return true;
}

static bool take_reason(struct field *f, void *target)
{
    struct filter *filter = target;
    const char *text;
    size_t len;
    if (field_null(f))
        return true;
    if (!field_text(f, 0, REASON_MAX, &text, &len))
        return false;
    filter_set_reason(filter, text, len);
    return true;
}

#define FILTER_FIELDS                                                                              \
    FIELD("priority", take_priority), FIELD("older_than_seconds", take_older_than),                \
        FIELD("metadata", take_metadata), FIELD("payload_contains", take_payload_contains)

static bool take_filter_by(struct field *f, struct match_call *m, const struct field_table *table)
{
    m->has_filter = true;
    return fields_object(f->doc, f->at, "/filter", table, &m->matching.filter, f->problem);
}

bool match_take_filter(struct field *f, void *target)
{
    static const struct field_spec specs[] = {FILTER_FIELDS};
    static const struct field_table table = FIELD_TABLE(specs);
    return take_filter_by(f, target, &table);
}

bool match_take_dead_filter(struct field *f, void *target)
{
    static const struct field_spec specs[] = {FILTER_FIELDS, FIELD("reason", take_reason)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct match_call *m = target;
    m->matching.filter.states = 1U << MESSAGE_DEAD;
    return take_filter_by(f, m, &table);
}

bool match_take_dry_run(struct field *f, void *target)
{
    struct match_call *m = target;
    return field_null(f) || field_bool(f, &m->matching.dry_run);
}

static bool take_count(struct field *f, uint64_t *out)
{
    int64_t count;
    if (field_null(f))
        return true;
    if (!field_i64(f, 1, UINT32_MAX, &count))
        return false;
    *out = (uint64_t)count;
    return true;
}

bool match_take_max(struct field *f, void *target)
{
    struct match_call *m = target;
    return take_count(f, &m->matching.max);
}

bool match_take_look_max(struct field *f, void *target)
{
    struct match_call *m = target;
    return take_count(f, &m->matching.look_max);
}

/* A cursor of the engine, a tilde, and the number of the first message that came too late. */
bool match_take_after(struct field *f, void *target)
{
    struct match_call *m = target;
    const struct json_token *v = f->value;
    const char *tilde = v->type == JSON_STRING ? memchr(v->str, '~', v->len) : NULL;
    uint64_t seq = 0;
    if (field_null(f))
        return true;
    for (const char *at = tilde ? tilde + 1 : NULL; at && at < v->str + v->len; at++) {
        if (*at < '0' || *at > '9' || seq >> 48)
            return field_refuse(f, "must be what `next` gave.");
        seq = seq * 10 + (uint64_t)(*at - '0');
    }
    m->matching.before_seq = seq;
    return (seq > 0 && cursor_parse(v->str, (size_t)(tilde - v->str), &m->matching.after)) ||
           field_refuse(f, "must be what `next` gave.");
}

bool match_whole(struct call *c, const struct match_call *m)
{
    const struct matching *j = &m->matching;
    if (m->has_filter || (!j->dry_run && j->look_max == 0 && j->before_seq == 0))
        return true;
    call_refuse_as(c, STATUS_INVALID_FIELD, "/filter",
                   "dry_run, look_max and after go with a filter; {} means every dead letter.");
    return false;
}

/* Answer */

void match_answer(struct call *c, const struct match_call *m, const char *changed)
{
    const struct matching *j = &m->matching;
    struct buf *out = &c->out;
    char cursor[CURSOR_TEXT_MAX];
    buf_lit(out, "{\"matched\":");
    buf_put_u64(out, j->matched);
    buf_printf(out, ",\"%s\":%" PRIu64 ",\"looked_at\":%" PRIu64 ",\"sample\":[", changed,
               c->request.count, j->looked);
    for (uint64_t i = 0; i < j->matched && i < MATCHING_SAMPLE; i++) {
        if (i > 0)
            buf_putc(out, ',');
        encode_id(out, &j->sample[i]);
    }
    cursor_format(&j->next, cursor);
    buf_puts(out, j->dry_run ? "],\"dry_run\":true" : "]");
    if (j->more)
        buf_printf(out, ",\"next\":\"%s~%" PRIu64 "\"}", cursor, j->before_seq);
    else
        buf_lit(out, ",\"next\":null}");
    call_reply(c, 200);
}

void match_submit(struct call *c, struct match_call *m, enum request_kind kind, const char *what,
                  call_finish *finish)
{
    if (!m->has_filter) {
        char detail[120];
        snprintf(detail, sizeof(detail), "filter is required; {} means every %s.", what);
        call_refuse_as(c, STATUS_INVALID_FIELD, "/filter", detail);
        return;
    }
    c->request.matching = &m->matching;
    call_end_with_peer(c); /* the way to stop what takes long */
    call_submit(c, kind, finish);
}
