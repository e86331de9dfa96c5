#include "core/filter.h"

#include <string.h>

void filter_init(struct filter *f)
{
    *f = (struct filter){.older_than_ms = -1};
}

void filter_fini(struct filter *f)
{
    if (f->has_metadata) {
        json_fini(&f->wanted);
        json_fini(&f->found);
    }
    buf_fini(&f->text);
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
        if (!t || !same_value(t, &wanted->tokens[i]))
            return false;
    }
    return true;
}

bool filter_matches(struct filter *f, const struct message *m, int slot, int64_t wall_ms)
{
    return message_pending(m) && (slot < 0 || m->slot == slot) &&
           (f->older_than_ms < 0 || wall_ms - m->enqueued_ms >= f->older_than_ms) &&
           (!f->has_metadata || metadata_matches(f, m));
}
