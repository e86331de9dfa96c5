#include "cli/config_diff.h"
#include "cli/out.h"

/* Adds a difference to d->changes, which is for programs. */
static void add_change(struct config_diff *d, const char *path, const struct json_token *from,
                       const struct json_token *to)
{
    d->count++;
    buf_puts(&d->changes, d->changes.len ? ",{\"field\":" : "{\"field\":");
    json_put_cstr(&d->changes, path);
    buf_lit(&d->changes, ",\"from\":");
    if (from)
        buf_put(&d->changes, from->raw, from->raw_len);
    else
        buf_lit(&d->changes, "null");
    buf_lit(&d->changes, ",\"to\":");
    buf_put(&d->changes, to->raw, to->raw_len);
    buf_putc(&d->changes, '}');
}

static void add(struct config_diff *d, const char *path, const struct json_token *from,
                const struct json_token *to)
{
    buf_printf(&d->lines, "  %s: ", path);
    if (from)
        buf_printf(&d->lines, "%.*s -> ", (int)from->raw_len, from->raw);
    buf_put(&d->lines, to->raw, to->raw_len);
    buf_putc(&d->lines, '\n');
    add_change(d, path, from, to);
}

static bool same(const struct json_token *a, const struct json_token *b)
{
    return a->raw_len == b->raw_len && memcmp(a->raw, b->raw, a->raw_len) == 0;
}

/* The member that has the key of `t`; NULL when there is none, or no object. */
static const struct json_token *counterpart(const struct json_doc *doc, uint32_t object,
                                            const struct json_token *t)
{
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i)) {
        const struct json_token *each = &doc->tokens[i];
        if (each->key_len == t->key_len && memcmp(each->key, t->key, t->key_len) == 0)
            return each;
    }
    return NULL;
}

/* Whether this is default_priority, which is compared by the level's name: see compare_default().
 */
static bool is_default_level(const struct json_token *t)
{
    return json_key_is(t, "default_priority");
}

/* Members of two objects; nested ones as dotted names. */
static void compare(struct config_diff *d, const char *prefix, const struct json_doc *now,
                    uint32_t was, const struct json_doc *next, uint32_t object)
{
    for (uint32_t i = json_first(next, object); i; i = json_next(next, object, i)) {
        const struct json_token *to = &next->tokens[i];
        const struct json_token *from = now ? counterpart(now, was, to) : NULL;
        struct buf path = {0};
        buf_printf(&path, "%s%s%.*s", prefix, *prefix ? "." : "", (int)to->key_len, to->key);
        if (to->type == JSON_OBJECT && (!from || from->type == JSON_OBJECT))
            compare(d, buf_cstr(&path), from ? now : NULL, from ? json_index(now, from) : 0, next,
                    i);
        else if (to->type != JSON_ARRAY && !is_default_level(to) && (!from || !same(from, to)))
            add(d, buf_cstr(&path), from, to);
        buf_fini(&path);
    }
}

/* Levels */

static uint32_t levels_of(const struct json_doc *doc)
{
    return doc ? json_array(doc, 0, "levels") : 0;
}

/* The level of that name; 0: none. `place`, which may be NULL, is where it stands. */
static uint32_t level_named(const struct json_doc *doc, const struct json_token *name,
                            uint32_t *place)
{
    uint32_t levels = levels_of(doc), n = 0;
    for (uint32_t i = levels ? json_first(doc, levels) : 0; i; i = json_next(doc, levels, i), n++) {
        const struct json_token *t = json_get(doc, i, "name");
        if (!t || !same(t, name))
            continue;
        if (place)
            *place = n;
        return i;
    }
    return 0;
}

static void compare_level(struct config_diff *d, const struct json_doc *now,
                          const struct json_doc *next, uint32_t level)
{
    const struct json_token *name = json_get(next, level, "name");
    uint32_t was = name ? level_named(now, name, NULL) : 0;
    struct buf path = {0};
    if (!name)
        return;
    buf_printf(&path, "levels.%.*s", (int)name->len, name->str);
    if (was)
        compare(d, buf_cstr(&path), now, was, next, level);
    else
        add(d, buf_cstr(&path), NULL, &next->tokens[level]);
    buf_fini(&path);
}

/* The level that is the default, by its number or its name; 0: none. */
static uint32_t default_level(const struct json_doc *doc)
{
    const struct json_token *t = doc ? json_get(doc, 0, "default_priority") : NULL;
    uint32_t levels = levels_of(doc);
    for (uint32_t i = t && levels ? json_first(doc, levels) : 0; i; i = json_next(doc, levels, i)) {
        const struct json_token *number = json_get(doc, i, "number"),
                                *name = json_get(doc, i, "name");
        if (name && (same(t, name) || (number && same(t, number))))
            return i;
    }
    return 0;
}

static void put_level(struct buf *out, const struct json_doc *doc, uint32_t level)
{
    out_level(out, json_get(doc, level, "number"), json_get(doc, level, "name"));
}

/* Compares the default levels by name: the same number may mean another level on the other side. */
static void compare_default(struct config_diff *d, const struct json_doc *now,
                            const struct json_doc *next)
{
    uint32_t was = default_level(now), is = default_level(next);
    const struct json_token *to = json_get(next, 0, "default_priority");
    const struct json_token *from = now ? json_get(now, 0, "default_priority") : NULL;
    if (!to || (was && is && same(json_get(now, was, "name"), json_get(next, is, "name"))))
        return;
    if (!is || (from && !was)) {
        if (!from || !same(from, to))
            add(d, "default_priority", from, to);
        return;
    }
    buf_puts(&d->lines, "  default_priority: ");
    if (from) {
        put_level(&d->lines, now, was);
        buf_puts(&d->lines, " -> ");
    }
    put_level(&d->lines, next, is);
    buf_putc(&d->lines, '\n');
    add_change(d, "default_priority", from, to);
}

static void note_dropped(struct config_diff *d, const struct json_doc *now,
                         const struct json_doc *next)
{
    static const struct json_token none = {.raw = "null", .raw_len = 4};
    uint32_t levels = levels_of(now);
    for (uint32_t i = levels ? json_first(now, levels) : 0; i; i = json_next(now, levels, i)) {
        const struct json_token *name = json_get(now, i, "name");
        struct buf path = {0};
        if (!name || level_named(next, name, NULL))
            continue;
        buf_printf(&path, "levels.%.*s", (int)name->len, name->str);
        add(d, buf_cstr(&path), &now->tokens[i], &none);
        buf_printf(&d->dropped, "%s%.*s", d->dropped.len ? ", " : "", (int)name->len, name->str);
        buf_fini(&path);
    }
}

static void put_names(struct buf *out, const struct json_doc *doc)
{
    uint32_t levels = levels_of(doc);
    buf_putc(out, '[');
    for (uint32_t i = levels ? json_first(doc, levels) : 0; i; i = json_next(doc, levels, i)) {
        const struct json_token *name = json_get(doc, i, "name");
        if (out->len > 1)
            buf_putc(out, ',');
        if (name)
            buf_put(out, name->raw, name->raw_len);
    }
    buf_putc(out, ']');
}

/* Compares the order of the levels that are on both sides. */
static void compare_order(struct config_diff *d, const struct json_doc *now,
                          const struct json_doc *next)
{
    uint32_t levels = levels_of(next), last = 0, place;
    bool moved = false;
    for (uint32_t i = levels ? json_first(next, levels) : 0; i; i = json_next(next, levels, i)) {
        const struct json_token *name = json_get(next, i, "name");
        if (!name || !level_named(now, name, &place))
            continue;
        moved = moved || place < last;
        last = place;
    }
    if (!moved)
        return;
    struct buf from = {0}, to = {0};
    put_names(&from, now);
    put_names(&to, next);
    const struct json_token a = {.raw = from.data, .raw_len = from.len},
                            b = {.raw = to.data, .raw_len = to.len};
    add(d, "levels", &a, &b);
    buf_fini(&from);
    buf_fini(&to);
}

void config_diff_make(struct config_diff *d, const struct json_doc *now,
                      const struct json_doc *next)
{
    uint32_t levels = levels_of(next);
    *d = (struct config_diff){0};
    compare_order(d, now, next);
    note_dropped(d, now, next);
    for (uint32_t i = levels ? json_first(next, levels) : 0; i; i = json_next(next, levels, i))
        compare_level(d, now, next, i);
    compare_default(d, now, next);
    compare(d, "", now, 0, next, 0);
}

void config_diff_fini(struct config_diff *d)
{
    buf_fini(&d->lines);
    buf_fini(&d->changes);
    buf_fini(&d->dropped);
}
