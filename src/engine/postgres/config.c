/* A queue's configuration as the function engine_config() shows it: an object with the columns of
 * triage.queue, and the levels, most urgent first. */
#include "base/json.h"
#include "engine/postgres/impl.h"

#include <stddef.h>
#include <string.h>

#define CONFIG_TOKENS_MAX 1024

static const char *const backoffs[] = {"none", "fixed", "exponential"};
static const char *const expireds[] = {"drop", "dead"};
static const char *const scopes[] = {"window", "live"};
static const char *const policies[] = {"strict", "weighted"};

enum kind { I64, U64, U32, U8, BOOLEAN, REAL, TEXT, CHOICE };

struct member {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size; /* of a text field */
    const char *const *names;
    int name_count;
};

#define MEMBER(kind, field)                                                                        \
    {                                                                                              \
#field, kind, offsetof(struct queue_config, field), 0, NULL, 0                             \
    }
#define WORDS(field, size)                                                                         \
    {                                                                                              \
#field, TEXT, offsetof(struct queue_config, field), size, NULL, 0                          \
    }
#define ONE_OF(field, names)                                                                       \
    {                                                                                              \
#field, CHOICE, offsetof(struct queue_config, field), 0, names,                            \
            sizeof(names) / sizeof(names[0])                                                       \
    }

static const struct member queue_members[] = {
    WORDS(profile, sizeof(((struct queue_config *)0)->profile)),
    ONE_OF(policy, policies),
    MEMBER(U8, default_rank),
    MEMBER(BOOLEAN, paused),
    MEMBER(I64, visibility_ms),
    MEMBER(U32, max_attempts),
    ONE_OF(backoff, backoffs),
    MEMBER(I64, backoff_base_ms),
    MEMBER(I64, backoff_max_ms),
    MEMBER(REAL, backoff_jitter),
    MEMBER(I64, ttl_ms),
    ONE_OF(expired, expireds),
    MEMBER(I64, dedup_window_ms),
    ONE_OF(dedup_scope, scopes),
    MEMBER(U64, max_depth),
    MEMBER(U64, max_bytes),
    MEMBER(U32, max_in_flight),
    MEMBER(I64, history_ms),
    MEMBER(I64, history_since_ms),
    MEMBER(U64, alert_dead_letters),
    MEMBER(I64, alert_oldest_ready_seconds),
    WORDS(alert_webhook, sizeof(((struct queue_config *)0)->alert_webhook)),
};

#define LEVEL(kind, field)                                                                         \
    {                                                                                              \
#field, kind, offsetof(struct level, field), 0, NULL, 0                                    \
    }

static const struct member level_members[] = {
    {"name", TEXT, offsetof(struct level, name), sizeof(((struct level *)0)->name), NULL, 0},
    LEVEL(REAL, weight),
    LEVEL(I64, age_ms),
    LEVEL(I64, max_wait_ms),
    LEVEL(U32, max_in_flight),
    LEVEL(U8, slot),
};

static const struct member pause_members[] = {
    {"from_ms", I64, offsetof(struct pause, from_ms), 0, NULL, 0},
    {"until_ms", I64, offsetof(struct pause, until_ms), 0, NULL, 0},
};

#define COUNT(members) (sizeof(members) / sizeof((members)[0]))

/* Writing */

static void write_value(struct buf *out, const struct member *m, const char *at)
{
    switch (m->kind) {
    case I64:
        buf_put_i64(out, *(const int64_t *)at);
        break;
    case U64:
        buf_put_u64(out, *(const uint64_t *)at);
        break;
    case U32:
        buf_put_u64(out, *(const uint32_t *)at);
        break;
    case U8:
        buf_put_u64(out, *(const uint8_t *)at);
        break;
    case BOOLEAN:
        buf_puts(out, *(const bool *)at ? "true" : "false");
        break;
    case REAL:
        buf_printf(out, "%.17g", *(const double *)at);
        break;
    case TEXT:
        json_put_cstr(out, at);
        break;
    case CHOICE: /* an enum is stored as an int */
        json_put_cstr(out, m->names[*(const int *)at]);
        break;
    }
}

static void write_members(struct buf *out, const struct member *members, size_t count,
                          const void *from)
{
    for (size_t i = 0; i < count; i++) {
        buf_putc(out, i > 0 ? ',' : '{');
        json_put_cstr(out, members[i].name);
        buf_putc(out, ':');
        write_value(out, &members[i], (const char *)from + members[i].offset);
    }
}

static void write_level(struct buf *out, const struct level *level)
{
    write_members(out, level_members, COUNT(level_members), level);
    buf_lit(out, ",\"heir_of\":");
    buf_put_u64(out, level->heir_of);
    buf_lit(out, ",\"number\":");
    if (level->has_number)
        buf_put_i64(out, level->number);
    else
        buf_lit(out, "null");
    buf_putc(out, '}');
}

void config_write(struct buf *out, const struct queue_config *config)
{
    write_members(out, queue_members, COUNT(queue_members), config);
    buf_lit(out, ",\"levels\":[");
    for (int i = 0; i < config->level_count; i++) {
        if (i > 0)
            buf_putc(out, ',');
        write_level(out, &config->levels[i]);
    }
    buf_lit(out, "],\"pauses\":[");
    for (int i = 0; i < config->pause_count; i++) {
        if (i > 0)
            buf_putc(out, ',');
        write_members(out, pause_members, COUNT(pause_members), &config->pauses[i]);
        buf_putc(out, '}');
    }
    buf_lit(out, "]}");
}

/* Reading */

static bool read_choice(const struct member *m, const struct json_token *t, int *out)
{
    for (int i = 0; i < m->name_count; i++) {
        if (json_is(t, m->names[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool read_text(const struct member *m, const struct json_token *t, char *at)
{
    if (t->type != JSON_STRING || t->len >= m->size)
        return false;
    memcpy(at, t->str, t->len);
    at[t->len] = '\0';
    return true;
}

static bool read_value(const struct member *m, const struct json_token *t, char *at)
{
    int64_t value = 0;
    if (m->kind <= U8 && (!json_i64(t, &value) || (m->kind != I64 && value < 0)))
        return false;
    switch (m->kind) {
    case I64:
    case U64:
        *(int64_t *)at = value;
        return true;
    case U32:
        *(uint32_t *)at = (uint32_t)value;
        return value <= UINT32_MAX;
    case U8:
        *(uint8_t *)at = (uint8_t)value;
        return value < LEVEL_COUNT_MAX;
    case BOOLEAN:
        *(bool *)at = t->boolean;
        return t->type == JSON_BOOL;
    case REAL:
        return json_double(t, (double *)at);
    case TEXT:
        return read_text(m, t, at);
    case CHOICE:
        return read_choice(m, t, (int *)at);
    }
    return false;
}

/* The functions below return NULL, or the name of the member that cannot be read. */
static const char *read_members(const struct json_doc *doc, uint32_t object,
                                const struct member *members, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++) {
        const struct json_token *t = json_get(doc, object, members[i].name);
        if (!t || !read_value(&members[i], t, (char *)to + members[i].offset))
            return members[i].name;
    }
    return NULL;
}

static const char *read_levels(const struct json_doc *doc, struct queue_config *config)
{
    uint32_t array = json_array(doc, 0, "levels");
    const char *odd = array ? NULL : "levels";
    for (uint32_t i = json_first(doc, array); i && !odd; i = json_next(doc, array, i)) {
        if (config->level_count == LEVEL_COUNT_MAX)
            return "levels";
        struct level *level = &config->levels[config->level_count++];
        const struct json_token *number = json_get(doc, i, "number");
        odd = read_members(doc, i, level_members, COUNT(level_members), level);
        level->has_number = number && json_i64(number, &level->number);
    }
    return odd;
}

static const char *read_pauses(const struct json_doc *doc, struct queue_config *config)
{
    uint32_t array = json_array(doc, 0, "pauses");
    const char *odd = array ? NULL : "pauses";
    for (uint32_t i = json_first(doc, array); i && !odd; i = json_next(doc, array, i)) {
        if (config->pause_count == PAUSES_MAX)
            return "pauses";
        odd = read_members(doc, i, pause_members, COUNT(pause_members),
                           &config->pauses[config->pause_count++]);
    }
    return odd;
}

/* Only a queue with an epoch has a place. */
static const char *read_place(const struct json_doc *doc, struct queue_place **place)
{
    const struct json_token *e = json_get(doc, 0, "place_epoch"),
                            *c = json_get(doc, 0, "place_closed"),
                            *m = json_get(doc, 0, "place_map");
    int64_t epoch;
    *place = NULL;
    if (!e || !json_i64(e, &epoch) || epoch < 0)
        return "place_epoch";
    if (!c || c->type != JSON_BOOL)
        return "place_closed";
    if (!m || m->type != JSON_STRING || m->len > PLACE_MAP_MAX)
        return "place_map";
    if (epoch > 0)
        *place = queue_place_new((uint64_t)epoch, c->boolean, m->str, (uint32_t)m->len);
    return NULL;
}

static const char *read_all(const struct json_doc *doc, struct queue_config *config, char *name,
                            uint32_t *version)
{
    const struct json_token *t = json_get(doc, 0, "name"), *v = json_get(doc, 0, "version");
    int64_t number;
    if (!t || t->type != JSON_STRING || t->len == 0 || !queue_prefix_valid(t->str, t->len))
        return "name";
    if (!v || !json_i64(v, &number))
        return "version";
    memcpy(name, t->str, t->len);
    name[t->len] = '\0';
    *version = (uint32_t)number;
    *config = (struct queue_config){0};
    const char *odd = read_members(doc, 0, queue_members, COUNT(queue_members), config);
    odd = odd ? odd : read_levels(doc, config);
    odd = odd ? odd : read_pauses(doc, config);
    return odd || config_valid(config) ? odd : "a value that is out of range";
}

const char *config_read(const char *text, size_t len, struct queue_config *config, char *name,
                        uint32_t *version, struct queue_place **place)
{
    struct json_doc doc;
    json_init(&doc);
    const char *odd = json_parse(&doc, text, len, CONFIG_TOKENS_MAX)
                          ? read_all(&doc, config, name, version)
                          : "the whole";
    odd = odd ? odd : read_place(&doc, place);
    json_fini(&doc);
    return odd;
}
