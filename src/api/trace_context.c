#define _GNU_SOURCE /* memmem */
#include "api/trace_context.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* `len` small hexadecimal digits, of which one is not 0. */
static bool id_valid(const char *text, size_t len)
{
    bool any = false;
    for (size_t i = 0; i < len; i++) {
        if (!is_hex(text[i]))
            return false;
        any = any || text[i] != '0';
    }
    return any;
}

/* Later versions may say more behind the four parts that there are. */
bool trace_context_valid(const char *text, size_t len)
{
    if (len < TRACEPARENT_LEN || text[2] != '-' || text[35] != '-' || text[52] != '-')
        return false;
    bool first = memcmp(text, "00", 2) == 0;
    if (!is_hex(text[0]) || !is_hex(text[1]) || memcmp(text, "ff", 2) == 0)
        return false;
    if (len > TRACEPARENT_LEN && (first || text[TRACEPARENT_LEN] != '-'))
        return false;
    return id_valid(text + 3, 32) && id_valid(text + 36, 16) && is_hex(text[53]) &&
           is_hex(text[54]);
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

/* Behind the next `"traceparent"` that is the name of a member, at its value; NULL: there is none.
 * A quote in a string has a backslash before it, so what looks like the name is a name or a whole
 * string; a colon follows only a name. */
static const char *member_value(const char *at, const char *end)
{
    static const char name[] = "\"traceparent\"";
    while (at < end && (at = memmem(at, (size_t)(end - at), name, sizeof(name) - 1))) {
        at += sizeof(name) - 1;
        const char *next = skip_space(at, end);
        if (next == end || *next != ':')
            continue;
        return skip_space(next + 1, end);
    }
    return NULL;
}

const char *trace_context_find(const char *metadata, size_t len)
{
    if (len < TRACEPARENT_LEN)
        return NULL;
    const char *end = metadata + len, *value = member_value(metadata, end);
    if (!value || value >= end || *value != '"')
        return NULL;
    value++;
    const char *quote = memchr(value, '"', (size_t)(end - value));
    if (!quote || !trace_context_valid(value, (size_t)(quote - value)))
        return NULL;
    return value;
}

/* By the names as they are meant: a client may write a letter of `traceparent` as \u0074, and an
 * object that has a name twice is refused wherever it is read. */
static bool takes_member(const char *metadata, size_t len)
{
    static const char name[] = "traceparent";
    struct json_doc doc;
    json_init(&doc);
    bool takes = json_parse(&doc, metadata, len, 2 * METADATA_KEYS_MAX + 2) &&
                 doc.tokens[0].count < METADATA_KEYS_MAX;
    for (uint32_t i = takes ? json_first(&doc, 0) : 0; i; i = json_next(&doc, 0, i)) {
        const struct json_token *t = &doc.tokens[i];
        takes = takes && !(t->key_len == sizeof(name) - 1 && memcmp(t->key, name, t->key_len) == 0);
    }
    json_fini(&doc);
    return takes;
}

#define MEMBER_HEAD "{\"traceparent\":\""
#define MEMBER_LEN  (sizeof(MEMBER_HEAD) - 1 + TRACEPARENT_LEN + 2) /* with `",` or `"}` */

static bool has_room(const char *metadata, size_t len)
{
    return len == 0 || (len + MEMBER_LEN <= METADATA_MAX && takes_member(metadata, len));
}

void trace_context_put(struct draft *d, const char *text, size_t len)
{
    const char *metadata = d->body + d->payload_len;
    size_t had = d->metadata_len, brace = had > 0; /* the member takes its place */
    if (!trace_context_valid(text, len) || !has_room(metadata, had))
        return;
    struct buf body = {0};
    buf_reserve(&body, (size_t)d->payload_len + MEMBER_LEN + had + d->dedup_len + 1);
    buf_put(&body, d->body, d->payload_len);
    buf_lit(&body, MEMBER_HEAD);
    buf_put(&body, text, TRACEPARENT_LEN);
    buf_puts(&body, had > 0 ? "\"," : "\"}");
    buf_put(&body, metadata + brace, had - brace + d->dedup_len);
    d->metadata_len = (uint16_t)(MEMBER_LEN + had - brace);
    free(d->body);
    d->body = buf_take(&body);
}
