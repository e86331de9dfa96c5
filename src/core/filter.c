#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "core/filter.h"

#include <string.h>

void filter_init(struct filter *f)
{
    *f = (struct filter){.states = 1U << MESSAGE_SCHEDULED | 1U << MESSAGE_READY,
                         .older_than_ms = -1};
}

void filter_fini(struct filter *f)
{
    if (f->has_metadata) {
        json_fini(&f->wanted);
        json_fini(&f->found);
    }
    buf_fini(&f->text);
    buf_fini(&f->reason);
    buf_fini(&f->part);
}

bool filter_set_metadata(struct filter *f, const char *text, size_t len)
{
    if (!f->has_metadata) {
        json_init(&f->wanted);
        json_init(&f->found);
        f->has_metadata = true;
    }
    buf_clear(&f->text);
    buf_put(&f->text, text, len);
    return json_parse(&f->wanted, f->text.data, len, METADATA_KEYS_MAX * 2) &&
           f->wanted.tokens[0].type == JSON_OBJECT &&
           f->wanted.tokens[0].count <= METADATA_KEYS_MAX;
}

void filter_set_reason(struct filter *f, const char *text, size_t len)
{
    buf_clear(&f->reason);
    buf_put(&f->reason, text, len);
    f->has_reason = true;
}

void filter_set_part(struct filter *f, const char *text, size_t len)
{
    buf_clear(&f->part);
    buf_put(&f->part, text, len);
}

static const struct json_token *member(const struct json_doc *doc, const struct json_token *like)
{
    for (uint32_t i = json_first(doc, 0); i; i = json_next(doc, 0, i)) {
        const struct json_token *t = &doc->tokens[i];
        if (t->key_len == like->key_len && memcmp(t->key, like->key, t->key_len) == 0)
            return t;
    }
    return NULL;
}

/* Integers are compared digit by digit. As doubles, large integers that differ could be equal. */
static bool same_number(const struct json_token *a, const struct json_token *b)
{
    int64_t i, k;
    double x, y;
    if (json_i64(a, &i) && json_i64(b, &k))
        return i == k;
    return json_double(a, &x) && json_double(b, &y) && x == y;
}

static bool same_value(const struct json_token *a, const struct json_token *b)
{
    if (a->type != b->type)
        return false;
    if (a->type == JSON_NUMBER)
        return same_number(a, b);
    if (a->type == JSON_STRING)
        return a->len == b->len && memcmp(a->str, b->str, a->len) == 0;
    return a->raw_len == b->raw_len && memcmp(a->raw, b->raw, a->raw_len) == 0;
}

/* Whether `a` is written as the text b. An object or a list is no text. */
static bool same_text(const struct json_token *a, const struct json_token *b)
{
    if (a->type == JSON_STRING)
        return a->len == b->len && memcmp(a->str, b->str, a->len) == 0;
    bool plain = a->type != JSON_OBJECT && a->type != JSON_ARRAY;
    return plain && a->raw_len == b->len && memcmp(a->raw, b->str, b->len) == 0;
}

static bool metadata_matches(struct filter *f, const struct message *m)
{
    const struct json_doc *wanted = &f->wanted;
    if (wanted->tokens[0].count == 0)
        return true;
    if (m->metadata_len == 0 ||
        !json_parse(&f->found, message_metadata(m), m->metadata_len, METADATA_MAX))
        return false;
    for (uint32_t i = json_first(wanted, 0); i; i = json_next(wanted, 0, i)) {
        const struct json_token *t = member(&f->found, &wanted->tokens[i]);
        bool same = t && (f->as_text ? same_text(t, &wanted->tokens[i])
                                     : same_value(t, &wanted->tokens[i]));
        if (!same)
            return false;
    }
    return true;
}

static bool reason_matches(const struct filter *f, const struct message *m)
{
    const struct delivery *d = m->delivery;
    uint32_t len = d ? d->reason_len : 0;
    return len == f->reason.len && (len == 0 || memcmp(d->reason, f->reason.data, len) == 0);
}

static bool payload_matches(const struct filter *f, const struct message *m)
{
    return m->payload_len >= f->part.len &&
           memmem(message_payload(m), m->payload_len, f->part.data, f->part.len) != NULL;
}

bool filter_matches(struct filter *f, const struct message *m, int slot, int64_t wall_ms)
{
    return f->states >> m->state & 1 && (slot < 0 || m->slot == slot) &&
           (f->older_than_ms < 0 || wall_ms - m->enqueued_ms >= f->older_than_ms) &&
           (!f->has_reason || reason_matches(f, m)) &&
           (!f->has_metadata || metadata_matches(f, m)) &&
           (f->part.len == 0 || payload_matches(f, m));
}
