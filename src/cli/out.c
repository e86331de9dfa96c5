#include "cli/out.h"

#include "base/mem.h"
#include "cli/client.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define CELL_MAX   400 /* bytes; the rest of a long value is for --json */
#define COLUMN_MAX 48  /* of a column with others behind it, in characters */

void table_init(struct table *t, size_t columns)
{
    *t = (struct table){.columns = columns};
}

static bool is_continuation(char c)
{
    return (c & 0xc0) == 0x80;
}

void table_cell(struct table *t, const char *s, size_t len)
{
    bool cut = len > CELL_MAX;
    if (cut)
        for (len = CELL_MAX; len > 0 && is_continuation(s[len]);)
            len--;
    for (size_t i = 0; i < len; i++)
        buf_putc(&t->cells, (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '.' : s[i]);
    if (cut)
        buf_puts(&t->cells, "...");
    buf_putc(&t->cells, '\0');
    t->cell_count++;
}

void table_cstr(struct table *t, const char *s)
{
    table_cell(t, s, strlen(s));
}

void table_value(struct table *t, const struct json_token *value)
{
    if (value == NULL || value->type == JSON_NULL)
        table_cstr(t, "-");
    else if (value->type == JSON_STRING)
        table_cell(t, value->str, value->len);
    else
        table_cell(t, value->raw, value->raw_len);
}

/* Characters, which is close enough to columns. */
static size_t width_of(const char *s)
{
    size_t width = 0;
    for (; *s; s++)
        width += !is_continuation(*s);
    return width;
}

void table_print(struct table *t)
{
    assert(t->cell_count % t->columns == 0);
    size_t *widths = mem_zalloc(t->columns * sizeof(*widths));
    const char *cell = t->cells.data;
    for (size_t i = 0; i < t->cell_count; i++, cell += strlen(cell) + 1) {
        size_t width = width_of(cell);
        if (width > widths[i % t->columns])
            widths[i % t->columns] = width > COLUMN_MAX ? COLUMN_MAX : width;
    }
    cell = t->cells.data;
    for (size_t i = 0; i < t->cell_count; i++, cell += strlen(cell) + 1) {
        bool last = (i + 1) % t->columns == 0;
        size_t width = width_of(cell), want = widths[i % t->columns] + 2;
        fputs(cell, stdout);
        if (last)
            putchar('\n');
        else
            printf("%*s", width < want ? (int)(want - width) : 2, "");
    }
    free(widths);
    buf_fini(&t->cells);
}

static void put_members(struct table *t, const struct json_doc *doc, uint32_t at, struct buf *name);

static void put_array(struct table *t, const struct json_doc *doc, uint32_t at, struct buf *name)
{
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i)) {
        table_cell(t, name->data, name->len);
        table_value(t, &doc->tokens[i]);
    }
}

static void put_member(struct table *t, const struct json_doc *doc, uint32_t at, struct buf *name)
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
        table_cell(t, name->data, name->len);
        table_value(t, value);
    }
    name->len = before;
}

static void put_members(struct table *t, const struct json_doc *doc, uint32_t at, struct buf *name)
{
    for (uint32_t i = json_first(doc, at); i; i = json_next(doc, at, i))
        put_member(t, doc, i, name);
}

void out_members(const struct json_doc *doc, uint32_t object)
{
    struct table t;
    struct buf name = {0};
    table_init(&t, 2);
    put_members(&t, doc, object, &name);
    table_print(&t);
    buf_fini(&name);
}

static bool anybody_has(const struct json_doc *doc, uint32_t array, const char *column)
{
    for (uint32_t i = json_first(doc, array); i; i = json_next(doc, array, i))
        if (json_get(doc, i, column) != NULL)
            return true;
    return false;
}

void out_list(const struct json_doc *doc, uint32_t array, const char *const *columns)
{
    const char *shown[16];
    size_t count = 0;
    for (; *columns; columns++)
        if (count < 16 && anybody_has(doc, array, *columns))
            shown[count++] = *columns;
    if (count == 0)
        return;
    struct table t;
    table_init(&t, count);
    for (size_t i = 0; i < count; i++)
        table_cstr(&t, shown[i]);
    for (uint32_t row = json_first(doc, array); row; row = json_next(doc, array, row))
        for (size_t i = 0; i < count; i++)
            table_value(&t, json_get(doc, row, shown[i]));
    table_print(&t);
}

void out_document(const struct buf *document)
{
    size_t len = document->len;
    while (len > 0 && document->data[len - 1] == '\n')
        len--;
    if (len == 0)
        return;
    fwrite(document->data, 1, len, stdout);
    putchar('\n');
}

void out_answer(const struct call *c, const struct cli *cli)
{
    if (cli->json)
        out_document(&c->answer);
    else if (c->is_json && c->doc.tokens[0].type == JSON_OBJECT)
        out_members(&c->doc, 0);
}
