#include "term/grid.h"

#include "base/mem.h"
#include "term/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_MAX 400 /* bytes; the rest of a long value is for --json */

void grid_init(struct grid *t, size_t columns)
{
    *t = (struct grid){.columns = columns};
}

static bool is_continuation(char c)
{
    return (c & 0xc0) == 0x80;
}

void grid_cell(struct grid *t, const char *s, size_t len)
{
    bool cut = len > CELL_MAX;
    if (cut)
        for (len = CELL_MAX; len > 0 && is_continuation(s[len]);)
            len--;
    text_escape(&t->cells, s, len, true);
    if (cut)
        buf_puts(&t->cells, "...");
    buf_putc(&t->cells, '\0');
    t->cell_count++;
}

void grid_cstr(struct grid *t, const char *s)
{
    grid_cell(t, s, strlen(s));
}

/* Characters, which is close enough to columns. */
static size_t width_of(const char *s)
{
    size_t width = 0;
    for (; *s; s++)
        width += !is_continuation(*s);
    return width;
}

void grid_print(struct grid *t)
{
    assert(t->cell_count % t->columns == 0);
    size_t *widths = mem_zalloc(t->columns * sizeof(*widths));
    const char *cell = t->cells.data;
    for (size_t i = 0; i < t->cell_count; i++, cell += strlen(cell) + 1) {
        size_t width = width_of(cell);
        if (width > widths[i % t->columns])
            widths[i % t->columns] = width > GRID_COLUMN_MAX ? GRID_COLUMN_MAX : width;
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
