#include "cli/import_levels.h"

#include "term/cli.h"

#include <inttypes.h>
#include <stdio.h>

/* The `levels` of a configuration at token 0; 0 when it has none. */
static uint32_t levels_of(const struct json_doc *config)
{
    return config ? json_array(config, 0, "levels") : 0;
}

static bool is_called(const struct json_doc *config, uint32_t level, const char *member,
                      const char *text)
{
    const struct json_token *t = json_get(config, level, member);
    return t && (t->type == JSON_STRING || t->type == JSON_NUMBER) && t->len == strlen(text) &&
           memcmp(t->str, text, t->len) == 0;
}

/* Copies the name of the level whose `member` is `text`; false when there is none. */
static bool level_find(const struct json_doc *config, const char *member, const char *text,
                       char name[LEVEL_NAME_MAX + 1])
{
    uint32_t levels = levels_of(config);
    for (uint32_t i = levels ? json_first(config, levels) : 0; i;
         i = json_next(config, levels, i)) {
        const struct json_token *t = json_get(config, i, "name");
        if (!t || t->type != JSON_STRING || t->len > LEVEL_NAME_MAX ||
            !is_called(config, i, member, text))
            continue;
        memcpy(name, t->str, t->len);
        name[t->len] = '\0';
        return true;
    }
    return false;
}

/* The name that a level has in the file. A line or the user may call it by number; the
 * configuration at the head of the file has its name. A text that the head does not know counts as
 * a name. */
static void file_name(const struct json_doc *from, const char *text, size_t len, bool is_number,
                      char name[LEVEL_NAME_MAX + 1])
{
    char given[LEVEL_NAME_MAX + 1] = "";
    if (len <= LEVEL_NAME_MAX)
        memcpy(given, text, len);
    if ((is_number || !level_find(from, "name", given, name)) &&
        !level_find(from, "number", given, name))
        memcpy(name, given, sizeof(given));
}

static void name_in_file(const struct import_level *level, const struct json_doc *from,
                         char name[LEVEL_NAME_MAX + 1])
{
    file_name(from, level->name, strlen(level->name), level->is_number, name);
}

void import_levels_note(struct import_levels *l, const struct json_doc *line)
{
    const struct json_token *t = json_get(line, 0, "level");
    bool named = t && t->type == JSON_STRING;
    if (!named)
        t = json_get(line, 0, "priority");
    if (!t || (t->type != JSON_STRING && t->type != JSON_NUMBER) || t->len == 0 ||
        t->len > LEVEL_NAME_MAX || memchr(t->str, '\0', t->len))
        return; /* the default level, or one that the server refuses */
    bool is_number = t->type == JSON_NUMBER;
    for (size_t i = 0; i < l->count; i++) {
        struct import_level *level = &l->levels[i];
        if (level->is_number == is_number && strlen(level->name) == t->len &&
            memcmp(level->name, t->str, t->len) == 0) {
            level->messages++;
            return;
        }
    }
    l->too_many = l->count == IMPORT_LEVELS_MAX;
    if (l->too_many)
        return;
    struct import_level *level = &l->levels[l->count++];
    *level = (struct import_level){.is_number = is_number, .messages = 1};
    memcpy(level->name, t->str, t->len);
}

/* Where the user's --map sends the level; false when the --map makes no sense. */
static bool mapped(const struct import_levels *l, struct import_level *level,
                   const struct json_doc *from, const struct json_doc *to)
{
    char name[LEVEL_NAME_MAX + 1], meant[LEVEL_NAME_MAX + 1];
    name_in_file(level, from, name);
    for (size_t i = 0; i < l->maps.count; i++) {
        const char *map = l->maps.items[i], *goal = strchr(map, '=');
        size_t len = goal ? (size_t)(goal - map) : 0;
        if (len == 0 || goal[1] == '\0') {
            cli_complain("--map %s: expected LEVEL=LEVEL, such as LOW=3", map);
            return false;
        }
        file_name(from, map, len, false, meant);
        if (strcmp(name, meant) != 0)
            continue;
        if (!level_find(to, "name", goal + 1, level->to) &&
            !level_find(to, "number", goal + 1, level->to)) {
            cli_complain("--map %s: the queue has no level \"%s\"", map, goal + 1);
            return false;
        }
    }
    return true;
}

static bool in_file(const struct import_levels *l, const struct json_doc *from, const char *name)
{
    char found[LEVEL_NAME_MAX + 1];
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->levels[i].name, name) == 0)
            return true;
    return level_find(from, "name", name, found) || level_find(from, "number", name, found);
}

static void find(struct import_level *level, const struct json_doc *from, const struct json_doc *to)
{
    char name[LEVEL_NAME_MAX + 1];
    if (level->to[0])
        return;
    if (!level->is_number)
        level_find(to, "name", level->name, level->to);
    else if (level_find(from, "number", level->name, name))
        level_find(to, "name", name, level->to);
}

static void put_names(struct buf *out, const struct json_doc *config,
                      const struct json_doc *without)
{
    uint32_t levels = levels_of(config);
    for (uint32_t i = levels ? json_first(config, levels) : 0; i;
         i = json_next(config, levels, i)) {
        const struct json_token *t = json_get(config, i, "name");
        char name[LEVEL_NAME_MAX + 1] = "", found[LEVEL_NAME_MAX + 1];
        if (t && t->type == JSON_STRING && t->len <= LEVEL_NAME_MAX)
            memcpy(name, t->str, t->len);
        if (without && level_find(without, "name", name, found))
            continue;
        buf_printf(out, "%s%s", out->len ? ", " : "", name);
    }
}

/* A --map of a level that the file does not have is refused as a typo. */
static bool maps_are_known(const struct import_levels *l, const struct json_doc *from)
{
    for (size_t i = 0; i < l->maps.count; i++) {
        const char *map = l->maps.items[i], *goal = strchr(map, '=');
        char name[LEVEL_NAME_MAX + 1] = "";
        struct buf there = {0};
        if (goal && goal - map <= LEVEL_NAME_MAX)
            memcpy(name, map, (size_t)(goal - map));
        if (!goal || goal == map || in_file(l, from, name))
            continue;
        put_names(&there, from, NULL);
        for (size_t j = 0; !levels_of(from) && j < l->count; j++)
            buf_printf(&there, "%s%s", j ? ", " : "", l->levels[j].name);
        cli_complain("--map %s: the file has no level \"%.*s\". It has %s; nothing was stored", map,
                     (int)(goal - map), map, there.len ? buf_cstr(&there) : "none");
        buf_fini(&there);
        return false;
    }
    return true;
}

static int refuse(const struct import_levels *l, const char *queue, const struct json_doc *from,
                  const struct json_doc *to)
{
    struct buf missing = {0}, there = {0};
    const struct import_level *first = NULL;
    char name[LEVEL_NAME_MAX + 1] = "", first_name[LEVEL_NAME_MAX + 1] = "";
    int64_t messages = 0;
    for (size_t i = 0; i < l->count; i++) {
        const struct import_level *level = &l->levels[i];
        if (level->to[0])
            continue;
        messages += level->messages;
        name_in_file(level, from, name);
        buf_printf(&missing, "%s%s", missing.len ? ", " : "", name);
        if (!first)
            memcpy(first_name, name, sizeof(name));
        first = first ? first : level;
    }
    put_names(&there, to, NULL);
    cli_complain("nothing was stored: %" PRId64 " message%s of the file %s of levels that queue %s "
                 "does not have by %s: %s. It has %s. Say where they go with --map %s=LEVEL%s",
                 messages, messages == 1 ? "" : "s", messages == 1 ? "is" : "are", queue,
                 first->is_number && strcmp(first->name, first_name) == 0
                     ? "name, only a number is known"
                     : "name",
                 buf_cstr(&missing), buf_cstr(&there), first_name,
                 from ? ", or give the queue the levels of the file with --configure" : "");
    buf_fini(&missing);
    buf_fini(&there);
    return CLI_REFUSED;
}

int import_levels_agree(struct import_levels *l, const char *queue, const struct json_doc *from,
                        const struct json_doc *to)
{
    bool all = true;
    if (l->too_many) {
        cli_complain("the file has more than %d levels; nothing was stored", IMPORT_LEVELS_MAX);
        return CLI_USAGE;
    }
    if (!maps_are_known(l, from))
        return CLI_USAGE;
    for (size_t i = 0; i < l->count; i++) {
        struct import_level *level = &l->levels[i];
        if (!mapped(l, level, from, to))
            return CLI_USAGE;
        find(level, from, to);
        all = all && level->to[0];
    }
    return all ? CLI_DONE : refuse(l, queue, from, to);
}

void import_levels_tell_stayed(const char *queue, const struct json_doc *wanted,
                               const struct json_doc *now)
{
    struct buf names = {0};
    put_names(&names, now, wanted);
    if (names.len > 0)
        cli_complain(
            "queue %s has the levels of the file now; those that hold messages stay behind "
            "them until they are empty: %s. The same import again drops them then",
            queue, buf_cstr(&names));
    buf_fini(&names);
}

/* Adds the numbers that mean another level now, such as `0 is CRITICAL now`. */
static void put_turned(struct buf *out, const struct json_doc *was, const struct json_doc *now)
{
    uint32_t levels = levels_of(now);
    for (uint32_t i = levels ? json_first(now, levels) : 0; i; i = json_next(now, levels, i)) {
        const struct json_token *number = json_get(now, i, "number");
        char text[24] = "", before[LEVEL_NAME_MAX + 1], after[LEVEL_NAME_MAX + 1];
        if (!number || number->type != JSON_NUMBER || number->len >= sizeof(text))
            continue;
        memcpy(text, number->str, number->len);
        if (level_find(was, "number", text, before) && level_find(now, "number", text, after) &&
            strcmp(before, after) != 0)
            buf_printf(out, "%s%s is %s now and was %s", out->len ? ", " : "", text, after, before);
    }
}

void import_levels_tell_numbers(const char *queue, const char *was, size_t len,
                                const struct json_doc *now)
{
    struct json_doc doc;
    struct buf turned = {0};
    json_init(&doc);
    if (json_parse(&doc, was, len, 4096))
        put_turned(&turned, &doc, now);
    if (turned.len > 0)
        cli_complain("queue %s: numbers that producers send mean other levels: %s", queue,
                     buf_cstr(&turned));
    buf_fini(&turned);
    json_fini(&doc);
}

void import_levels_query(const struct import_levels *l, struct client *c)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct import_level *level = &l->levels[i];
        char name[sizeof("map.") + LEVEL_NAME_MAX];
        if (strcmp(level->name, level->to) == 0)
            continue;
        snprintf(name, sizeof(name), "map.%s", level->name);
        client_query(c, name, level->to);
    }
}
