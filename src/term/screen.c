#define _XOPEN_SOURCE 700 /* wcwidth */
#include "term/screen.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "term/text.h"

#include <assert.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static int clamp(int value, int max)
{
    return value < 1 ? 1 : value > max ? max : value;
}

void screen_init(struct screen *s, int rows, int cols)
{
    const char *no_colour = getenv("NO_COLOR");
    *s = (struct screen){
        .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
        .colours = no_colour == NULL || no_colour[0] == '\0',
    };
    screen_resize(s, rows, cols);
}

void screen_fini(struct screen *s)
{
    free(s->cells);
    free(s->shown);
    s->cells = s->shown = NULL;
}

void screen_resize(struct screen *s, int rows, int cols)
{
    screen_fini(s);
    s->rows = clamp(rows, SCREEN_ROWS_MAX);
    s->cols = clamp(cols, SCREEN_COLS_MAX);
    size_t size = (size_t)s->rows * (size_t)s->cols * sizeof(*s->cells);
    s->cells = mem_zalloc(size);
    s->shown = mem_zalloc(size);
    screen_clear(s);
    screen_forget(s);
}

static struct screen_cell *cell_at(const struct screen *s, int row, int col)
{
    assert(row >= 0 && row < s->rows);
    assert(col >= 0 && col < s->cols);
    return &s->cells[(size_t)row * (size_t)s->cols + (size_t)col];
}

static const struct screen_cell blank = {.text = {' '}, .len = 1};

void screen_clear(struct screen *s)
{
    for (int i = 0; i < s->rows * s->cols; i++)
        s->cells[i] = blank;
}

void screen_forget(struct screen *s)
{
    s->unknown = true;
}

/* Drawing */

/* A character of text that is spelled out already. */
struct glyph {
    size_t len;
    int width; /* columns; 0: it cannot be shown as it is */
    uint32_t code;
};

static struct glyph glyph_at(const struct screen *s, const char *text, size_t left)
{
    unsigned char first = (unsigned char)text[0];
    if (first < 0x80)
        return (struct glyph){1, 1, first};
    size_t len = utf8_sequence(text, left);
    if (len == 0)
        return (struct glyph){1, 0, first};
    uint32_t code = first & (0x7fu >> len);
    for (size_t i = 1; i < len; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    int width = s->utf8 ? wcwidth((wchar_t)code) : 0;
    return (struct glyph){len, width > 0 ? width : 0, code};
}

/* Text in which every character has a width that is known. */
static void spell_out(const struct screen *s, const char *text, size_t len, struct buf *out)
{
    struct buf safe = {0};
    text_escape(&safe, text, len, true);
    for (size_t i = 0; i < safe.len;) {
        struct glyph g = glyph_at(s, safe.data + i, safe.len - i);
        if (g.width > 0)
            buf_put(out, safe.data + i, g.len);
        else
            buf_printf(out, g.len == 1 ? "\\x%02x" : "\\u%04x", (unsigned)g.code);
        i += g.len;
    }
    buf_fini(&safe);
}

static int width_of(const struct screen *s, const struct buf *text)
{
    int width = 0;
    for (size_t i = 0; i < text->len;) {
        struct glyph g = glyph_at(s, text->data + i, text->len - i);
        width += g.width;
        i += g.len;
    }
    return width;
}

static void cell_set(struct screen *s, int row, int col, unsigned style, const char *text,
                     const struct glyph *g)
{
    struct screen_cell *cell = cell_at(s, row, col);
    *cell = (struct screen_cell){.len = (uint8_t)g->len, .style = (uint8_t)style};
    memcpy(cell->text, text, g->len);
    if (g->width == 2)
        cell[1] = (struct screen_cell){.style = (uint8_t)style};
}

int screen_put(struct screen *s, int row, int col, int width, unsigned style, const char *text,
               size_t len)
{
    struct buf safe = {0};
    int used = 0;
    if (col + width > s->cols)
        width = s->cols - col;
    if (row < 0 || row >= s->rows || col < 0 || width <= 0)
        return 0;
    spell_out(s, text, len, &safe);
    bool cut = width_of(s, &safe) > width;
    for (size_t i = 0; i < safe.len;) {
        struct glyph g = glyph_at(s, safe.data + i, safe.len - i);
        if (used + g.width > width - cut)
            break;
        cell_set(s, row, col + used, style, safe.data + i, &g);
        used += g.width;
        i += g.len;
    }
    if (cut) {
        const char *mark = s->utf8 ? "\xe2\x80\xa6" : "~";
        cell_set(s, row, col + used, style, mark, &(struct glyph){strlen(mark), 1, 0});
        used++;
    }
    buf_fini(&safe);
    return used;
}

int screen_puts(struct screen *s, int row, int col, int width, unsigned style, const char *text)
{
    return screen_put(s, row, col, width, style, text, strlen(text));
}

void screen_put_right(struct screen *s, int row, int col, int width, unsigned style,
                      const char *text)
{
    int len = (int)strlen(text);
    int skip = len < width ? width - len : 0;
    screen_puts(s, row, col + skip, width - skip, style, text);
}

void screen_style(struct screen *s, int row, unsigned style)
{
    for (int col = 0; row >= 0 && row < s->rows && col < s->cols; col++)
        cell_at(s, row, col)->style |= (uint8_t)style;
}

/* Frames */

static void put_style(const struct screen *s, struct buf *out, unsigned style)
{
    static const struct {
        unsigned style;
        const char *code;
        bool colour;
    } codes[] = {
        {SCREEN_BOLD, ";1", false}, {SCREEN_DIM, ";2", false},    {SCREEN_REVERSE, ";7", false},
        {SCREEN_RED, ";31", true},  {SCREEN_YELLOW, ";33", true}, {SCREEN_GREEN, ";32", true},
        {SCREEN_CYAN, ";36", true},
    };
    buf_lit(out, "\x1b[0");
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if ((style & codes[i].style) && (s->colours || !codes[i].colour))
            buf_puts(out, codes[i].code);
    buf_putc(out, 'm');
}

static bool cell_same(const struct screen_cell *a, const struct screen_cell *b)
{
    return a->len == b->len && a->style == b->style && memcmp(a->text, b->text, a->len) == 0;
}

/* Where the terminal is while a frame is written. */
struct pen {
    int row, col; /* -1: nobody knows */
    int style;
};

static void cell_send(const struct screen *s, struct buf *out, struct pen *pen, int row, int col)
{
    const struct screen_cell *cell = cell_at(s, row, col);
    if (pen->row != row || pen->col != col)
        buf_printf(out, "\x1b[%d;%dH", row + 1, col + 1);
    if (pen->style != cell->style)
        put_style(s, out, cell->style);
    buf_put(out, cell->text, cell->len);
    /* Terminals and the C library do not agree on the width of every character beyond ASCII. */
    *pen = (struct pen){row, cell->len == 1 ? col + 1 : -1, cell->style};
}

void screen_frame(struct screen *s, struct buf *out)
{
    struct pen pen = {-1, -1, -1};
    for (int i = 0; i < s->rows * s->cols; i++) {
        if (s->cells[i].len > 0 && (s->unknown || !cell_same(&s->cells[i], &s->shown[i])))
            cell_send(s, out, &pen, i / s->cols, i % s->cols);
        s->shown[i] = s->cells[i];
    }
    if (pen.style > 0)
        buf_lit(out, "\x1b[0m");
    s->unknown = false;
}

void screen_text(const struct screen *s, int row, struct buf *out)
{
    for (int col = 0; col < s->cols; col++)
        buf_put(out, cell_at(s, row, col)->text, cell_at(s, row, col)->len);
    while (out->len > 0 && out->data[out->len - 1] == ' ')
        out->len--;
}
