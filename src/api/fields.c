#include "api/fields.h"

#include "base/clock.h"
#include "base/codec.h"
#include "base/limits.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static const struct field_spec *table_find(const struct field_table *table, const char *name,
                                           size_t len)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct field_spec *spec = &table->specs[i];
        if (spec->name_len == len && memcmp(spec->name, name, len) == 0)
            return spec;
    }
    return NULL;
}

/* Refuses an unknown name, and lists those that there are. `what`: what such a name is called, for
 * tables that have none. */
static bool unknown_refuse(const struct field_table *table, struct problem *p, const char *what,
                           const char *base, const char *name, size_t len)
{
    char known[400] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < table->count && at < sizeof(known); i++) {
        if (table->specs[i].refused)
            continue;
        at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", at ? ", " : "",
                               table->specs[i].name);
    }
    problem_set_field(p, base, name, len);
    if (table->count == 0)
        return problem_set(p, STATUS_UNKNOWN_FIELD, "No %s is taken here.", what);
    return problem_set(p, STATUS_UNKNOWN_FIELD, "Known here: %s.", known);
}

bool fields_object(const struct json_doc *doc, uint32_t object, const char *base,
                   const struct field_table *table, void *target, struct problem *p)
{
    if (doc->tokens[object].type != JSON_OBJECT) {
        snprintf(p->field, sizeof(p->field), "%s", base);
        return problem_set(p, STATUS_INVALID_FIELD, "A JSON object is expected here.");
    }
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i)) {
        const struct json_token *value = &doc->tokens[i];
        const struct field_spec *spec = table_find(table, value->key, value->key_len);
        if (!spec)
            return unknown_refuse(table, p, "field", base, value->key, value->key_len);
        struct field f = {.value = value, .doc = doc, .at = i, .base = base, .problem = p};
        if (!spec->take(&f, target))
            return false;
    }
    return true;
}

bool number_looks(const char *text, size_t len)
{
    size_t i = 0, from;
    if (i < len && text[i] == '-')
        i++;
    for (from = i; i < len && text[i] >= '0' && text[i] <= '9';)
        i++;
    if (i == from)
        return false;
    if (i < len && text[i] == '.') {
        for (from = ++i; i < len && text[i] >= '0' && text[i] <= '9';)
            i++;
        if (i == from)
            return false;
    }
    return i == len;
}

static bool query_pair_take(const struct query_pair *pair, const struct field_table *table,
                            uint32_t *seen, void *target, struct problem *p)
{
    if (!utf8_valid(pair->key, pair->key_len) || !utf8_valid(pair->value, pair->value_len))
        return problem_set(p, STATUS_MALFORMED_REQUEST, "The query is not UTF-8.");
    const struct field_spec *spec = table_find(table, pair->key, pair->key_len);
    const struct field_spec *any = table->count ? &table->specs[table->count - 1] : NULL;
    size_t prefix = any && any->name[any->name_len - 1] == '*' ? any->name_len - 1 : 0;
    if (!spec && prefix && pair->key_len > prefix && memcmp(pair->key, any->name, prefix) == 0)
        spec = any;
    if (!spec)
        return unknown_refuse(table, p, "query parameter", "", pair->key, pair->key_len);
    uint32_t bit = 1u << (spec - table->specs);
    struct json_token value = {
        .type = number_looks(pair->value, pair->value_len) ? JSON_NUMBER : JSON_STRING,
        .str = pair->value,
        .len = pair->value_len,
        .key = pair->key,
        .key_len = pair->key_len,
    };
    struct field f = {.value = &value, .base = "", .problem = p};
    if (*seen & bit)
        return field_refuse(&f, "is given twice.");
    *seen |= spec->repeats || (spec == any && prefix) ? 0 : bit;
    return spec->take(&f, target);
}

bool fields_query(const char *query, size_t len, struct buf *scratch,
                  const struct field_table *table, void *target, struct problem *p)
{
    assert(table->count <= FIELDS_MAX);
    if (len == 0)
        return true;
    buf_clear(scratch);
    buf_put(scratch, query, len);
    char *at = scratch->data, *end = at + len;
    struct query_pair pair;
    uint32_t seen = 0;
    for (;;) {
        switch (query_next(&at, end, &pair)) {
        case QUERY_END:
            return true;
        case QUERY_MALFORMED:
            return problem_set(p, STATUS_MALFORMED_REQUEST,
                               "In the query a '%%' is not followed by two hexadecimal digits.");
        case QUERY_PAIR:
            if (!query_pair_take(&pair, table, &seen, target, p))
                return false;
        }
    }
}

static bool refuse(struct field *f, enum status status, const char *fmt, va_list args)
{
    char sentence[200];
    const struct json_token *v = f->value;
    vsnprintf(sentence, sizeof(sentence), fmt, args);
    problem_set_field(f->problem, f->base, v->key ? v->key : "", v->key ? v->key_len : 0);
    int shown = v->key_len < 40 ? (int)v->key_len : 40;
    while (shown < (int)v->key_len && shown > 0 && (v->key[shown] & 0xc0) == 0x80)
        shown--; /* not inside a character */
    return problem_set(f->problem, status, "%.*s %s", shown, v->key ? v->key : "", sentence);
}

bool field_refuse(struct field *f, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    refuse(f, STATUS_INVALID_FIELD, fmt, args);
    va_end(args);
    return false;
}

bool field_refuse_as(struct field *f, enum status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    refuse(f, status, fmt, args);
    va_end(args);
    return false;
}

bool field_i64(struct field *f, int64_t min, int64_t max, int64_t *out)
{
    int64_t value;
    if (!json_i64(f->value, &value) || value < min || value > max)
        return field_refuse(f, "must be an integer from %" PRId64 " to %" PRId64 ".", min, max);
    *out = value;
    return true;
}

bool field_double(struct field *f, double min, double max, double *out)
{
    double value;
    if (!json_double(f->value, &value) || value < min || value > max)
        return field_refuse(f, "must be a number from %.15g to %.15g.", min, max);
    *out = value;
    return true;
}

bool field_seconds(struct field *f, int64_t min, int64_t max, int64_t *ms)
{
    double value;
    if (!json_double(f->value, &value) || value < (double)min || value > (double)max)
        return field_refuse(f, "must be a number of seconds from %" PRId64 " to %" PRId64 ".", min,
                            max);
    *ms = llround(value * 1000);
    return true;
}

bool field_bool(struct field *f, bool *out)
{
    const struct json_token *v = f->value;
    if (v->type == JSON_BOOL)
        *out = v->boolean;
    else if (!f->doc && (json_is(v, "true") || json_is(v, "false")))
        *out = json_is(v, "true");
    else
        return field_refuse(f, "must be true or false.");
    return true;
}

bool field_text(struct field *f, size_t min, size_t max, const char **text, size_t *len)
{
    const struct json_token *v = f->value;
    if ((f->doc && v->type != JSON_STRING) || v->len < min || v->len > max)
        return field_refuse(f, "must be a string of %zu to %zu bytes.", min, max);
    *text = v->str;
    *len = v->len;
    return true;
}

bool field_time(struct field *f, int64_t *wall_ms)
{
    const struct json_token *v = f->value;
    int64_t ms;
    if (v->type != JSON_STRING || !time_parse_ms(v->str, v->len, &ms))
        return field_refuse(f, "must be an RFC 3339 time such as 2026-04-09T15:00:00Z.");
    if (ms > TIME_MS_MAX || ms < -TIME_MS_MAX) {
        char last[TIME_TEXT_MAX];
        time_format_ms(TIME_MS_MAX, last);
        return field_refuse(f, "is too far away: the last time this server keeps is %s.", last);
    }
    *wall_ms = ms;
    return true;
}

bool field_priority(struct field *f, struct priority_ref *out)
{
    const struct json_token *v = f->value;
    if (v->type == JSON_NULL && f->doc) {
        out->kind = PRIORITY_DEFAULT;
        return true;
    }
    if (v->type == JSON_NUMBER && json_i64(v, &out->number)) {
        out->kind = PRIORITY_NUMBER;
        return true;
    }
    if (v->type != JSON_STRING || v->len == 0 || v->len > LEVEL_NAME_MAX ||
        memchr(v->str, '\0', v->len))
        return field_refuse_as(f, STATUS_UNKNOWN_PRIORITY,
                               "must be the number or the name of one of the queue's levels; GET "
                               "/v1/queues/{queue} shows them.");
    out->kind = PRIORITY_NAME;
    memcpy(out->name, v->str, v->len);
    out->name[v->len] = '\0';
    return true;
}

bool field_choice(struct field *f, const char *const names[], int count, int *out)
{
    char list[120] = "";
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        if (json_is(f->value, names[i])) {
            *out = i;
            return true;
        }
        if (at < sizeof(list))
            at +=
                (size_t)snprintf(list + at, sizeof(list) - at, "%s\"%s\"", i ? ", " : "", names[i]);
    }
    return field_refuse(f, "must be one of %s.", list);
}
