#include "cli/out.h"

#include "cli/client.h"
#include "term/grid.h"
#include "term/text.h"

#include <stdio.h>

#define COLUMNS_MAX 16

/* NULL and null give "-". */
static void grid_value(struct grid *t, const struct json_token *value)
{
    if (value == NULL || value->type == JSON_NULL)
        grid_cstr(t, "-");
    else if (value->type == JSON_STRING)
        grid_cell(t, value->str, value->len);
    else
        grid_cell(t, value->raw, value->raw_len);
}

/* Levels. A member that has a level's number, and the one beside it that has its name. */
static const struct level_pair {
    const char *number, *name;
} level_pairs[] = {{"priority", "level"}, {"number", "name"}, {"from", "from_level"}};

static const struct level_pair *pair_of(const struct json_doc *doc, uint32_t object,
                                        const struct json_token *member)
{
    for (size_t i = 0; i < sizeof(level_pairs) / sizeof(level_pairs[0]); i++) {
        const struct level_pair *p = &level_pairs[i];
        bool either = json_key_is(member, p->number) || json_key_is(member, p->name);
        if (either && json_get(doc, object, p->number) && json_get(doc, object, p->name))
            return p;
    }
    return NULL;
}

static void put_token(struct buf *out, const struct json_token *t)
{
    bool text = t->type == JSON_STRING;
    buf_put(out, text ? t->str : t->raw, text ? t->len : t->raw_len);
}

void out_level(struct buf *out, const struct json_token *number, const struct json_token *name)
{
    struct buf digits = {0};
    bool numbered = number != NULL && number->type == JSON_NUMBER;
    if (numbered)
        put_token(&digits, number);
    if (name == NULL || name->type != JSON_STRING)
        buf_puts(out, numbered ? buf_cstr(&digits) : "-");
    else
        put_token(out, name);
    if (numbered && name != NULL && !json_is(name, buf_cstr(&digits)))
        buf_printf(out, " (%s)", buf_cstr(&digits));
    buf_fini(&digits);
}

static void grid_level(struct grid *t, const struct json_doc *doc, uint32_t object,
                       const struct level_pair *pair)
{
    struct buf shown = {0};
    out_level(&shown, json_get(doc, object, pair->number), json_get(doc, object, pair->name));
    grid_cell(t, shown.data, shown.len);
    buf_fini(&shown);
}

/* A configuration names its default level by number: its name stands in the list of levels. */
static bool put_default_level(struct grid *t, const struct json_doc *doc,
                              const struct json_token *wanted)
{
    uint32_t array = json_array(doc, 0, "levels");
    for (uint32_t i = array ? json_first(doc, array) : 0; i; i = json_next(doc, array, i)) {
        const struct json_token *number = json_get(doc, i, "number");
        if (number == NULL || number->type != JSON_NUMBER || wanted->type != JSON_NUMBER ||
            number->raw_len != wanted->raw_len ||
            memcmp(number->raw, wanted->raw, number->raw_len) != 0)
            continue;
        grid_level(t, doc, i, &level_pairs[1]);
        return true;
    }
    return false;
}

/* Members */

static void put_members(struct grid *t, const struct json_doc *doc, uint32_t at, struct buf *name);

static bool is_rows(const struct json_doc *doc, uint32_t at)
{
    const struct json_token *value = &doc->tokens[at];
    uint32_t first = value->type == JSON_ARRAY ? json_first(doc, at) : 0;
    return first && doc->tokens[first].type == JSON_OBJECT;
}

static void put_array(struct grid *t, const struct json_doc *doc, uint32_t at, struct buf *name)
{
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i)) {
        grid_cell(t, name->data, name->len);
        grid_value(t, &doc->tokens[i]);
    }
}

static void put_member(struct grid *t, const struct json_doc *doc, uint32_t at, struct buf *name)
{
    const struct json_token *value = &doc->tokens[at];
    size_t before = name->len;
    if (before > 0)
        buf_putc(name, '.');
    buf_put(name, value->key, value->key_len);
    if (value->type == JSON_OBJECT && value->count > 0) {
        put_members(t, doc, at, name);
    } else if (value->type == JSON_ARRAY && value->count > 0) {
        put_array(t, doc, at, name);
    } else {
        grid_cell(t, name->data, name->len);
        if (!json_key_is(value, "default_priority") || !put_default_level(t, doc, value))
            grid_value(t, value);
    }
    name->len = before;
}

/* Whether a member is not shown as a line, because a table or the payload below shows it. */
static bool is_elsewhere(const struct json_doc *doc, uint32_t object, uint32_t at)
{
    const struct json_token *t = &doc->tokens[at];
    return is_rows(doc, at) || json_key_is(t, "payload") || json_key_is(t, "payload_base64") ||
           (json_key_is(t, "depth_by_priority") && json_get(doc, object, "levels") != NULL);
}

static void put_members(struct grid *t, const struct json_doc *doc, uint32_t at, struct buf *name)
{
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i)) {
        const struct json_token *member = &doc->tokens[i];
        const struct level_pair *pair = pair_of(doc, at, member);
        bool elsewhere = name->len == 0 && is_elsewhere(doc, at, i);
        if (elsewhere || (pair && json_key_is(member, pair->number)))
            continue;
        if (pair == NULL) {
            put_member(t, doc, i, name);
            continue;
        }
        size_t before = name->len;
        buf_printf(name, "%s%s", before > 0 ? "." : "", pair->name);
        grid_cell(t, name->data, name->len);
        grid_level(t, doc, at, pair);
        name->len = before;
    }
}

/* Whether any row of the array has a value other than null in this column. */
static bool anybody_has(const struct json_doc *doc, uint32_t array, const char *column)
{
    for (uint32_t i = json_first(doc, array); i; i = json_next(doc, array, i)) {
        const struct json_token *t = json_get(doc, i, column);
        if (t != NULL && t->type != JSON_NULL)
            return true;
    }
    return false;
}

static const struct level_pair *pair_named(const char *name)
{
    for (size_t i = 0; i < sizeof(level_pairs) / sizeof(level_pairs[0]); i++)
        if (strcmp(level_pairs[i].name, name) == 0)
            return &level_pairs[i];
    return NULL;
}

static void put_cell(struct grid *t, const struct json_doc *doc, uint32_t row, const char *column)
{
    const struct level_pair *pair = pair_named(column);
    if (pair != NULL && json_get(doc, row, pair->number) != NULL)
        grid_level(t, doc, row, pair);
    else
        grid_value(t, json_get(doc, row, column));
}

void out_list(const struct json_doc *doc, uint32_t array, const char *const *columns)
{
    const char *shown[COLUMNS_MAX];
    size_t count = 0;
    for (; *columns; columns++)
        if (count < COLUMNS_MAX && anybody_has(doc, array, *columns))
            shown[count++] = *columns;
    if (count == 0)
        return;
    struct grid t;
    grid_init(&t, count);
    for (size_t i = 0; i < count; i++)
        grid_cstr(&t, shown[i]);
    for (uint32_t row = json_first(doc, array); row; row = json_next(doc, array, row))
        for (size_t i = 0; i < count; i++)
            put_cell(&t, doc, row, shown[i]);
    grid_print(&t);
}

/* The columns are what the first row has, but for the numbers of levels, which stand with their
 * names. */
static void out_rows(const struct json_doc *doc, uint32_t array)
{
    char names[COLUMNS_MAX][GRID_COLUMN_MAX + 1];
    const char *columns[COLUMNS_MAX + 1] = {NULL};
    size_t count = 0;
    uint32_t first = json_first(doc, array);
    for (uint32_t i = json_first(doc, first); i && count < COLUMNS_MAX;
         i = json_next(doc, first, i)) {
        const struct json_token *t = &doc->tokens[i];
        const struct level_pair *pair = pair_of(doc, first, t);
        if (t->key_len > GRID_COLUMN_MAX || (pair && json_key_is(t, pair->number)))
            continue;
        memcpy(names[count], t->key, t->key_len);
        names[count][t->key_len] = '\0';
        columns[count] = names[count];
        count++;
    }
    const struct json_token *t = &doc->tokens[array];
    printf("\n%.*s%s:\n", (int)t->key_len, t->key,
           json_key_is(t, "levels") ? ", most urgent first" : "");
    out_list(doc, array, columns);
}

/* One line per member, aligned; nested objects as dotted names: retry.backoff  exponential. A level
 * is one line with its name and its number. Arrays of objects follow as tables of their own. A
 * payload is left out: see show_message(). */
static void out_members(const struct json_doc *doc, uint32_t object)
{
    struct grid t;
    struct buf name = {0};
    grid_init(&t, 2);
    put_members(&t, doc, object, &name);
    grid_print(&t);
    buf_fini(&name);
    for (uint32_t i = json_first(doc, object); i; i = json_next(doc, object, i))
        if (is_rows(doc, i))
            out_rows(doc, i);
}

void out_member(const struct client *c, const char *name)
{
    const struct json_token *t = c->is_json ? json_get(&c->doc, 0, name) : NULL;
    if (t != NULL && t->type == JSON_STRING)
        printf("%.*s\n", (int)t->len, t->str);
}

void out_answer(const struct client *c, const struct cli *cli)
{
    if (cli->json)
        text_document(&c->answer);
    else if (c->is_json && c->doc.tokens[0].type == JSON_OBJECT)
        out_members(&c->doc, 0);
}
