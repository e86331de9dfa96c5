/* A page of cells that programs draw into, and what has to be sent so that a terminal shows it.
 *
 * A frame is drawn whole into cells, compared with what the terminal shows, and only the cells that
 * differ are sent, in one run of bytes: nothing flickers, and little goes over a slow line. Text
 * that others wrote cannot play with the terminal: control characters, and characters whose width
 * nobody can tell, are spelled out (see term/text.h).
 *
 *     screen_clear(&s);
 *     screen_put(&s, 0, 0, s.cols, SCREEN_BOLD, text, len);
 *     screen_frame(&s, &out);
 *
 * This module writes nothing itself. The sequences are those that every terminal since the VT100
 * has. Not curses: that is a library more for two sequences, and owns signals, sizes and input in
 * ways that the poll of a program with calls under way would have to work around. */
#ifndef TRIAGE_TERM_SCREEN_H
#define TRIAGE_TERM_SCREEN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCREEN_ROWS_MAX 1100
#define SCREEN_COLS_MAX 1000

enum screen_style {
    SCREEN_PLAIN = 0,
    SCREEN_BOLD = 1 << 0,
    SCREEN_DIM = 1 << 1,
    SCREEN_REVERSE = 1 << 2,
    SCREEN_RED = 1 << 3, /* of the colours at most one */
    SCREEN_YELLOW = 1 << 4,
    SCREEN_GREEN = 1 << 5,
    SCREEN_CYAN = 1 << 6,
};

struct screen_cell {
    char text[4]; /* one character in UTF-8 */
    uint8_t len;  /* 0: the right half of a wide character */
    uint8_t style;
};

struct screen {
    int rows, cols;
    bool utf8;                 /* the terminal takes more than ASCII */
    bool colours;              /* else they are left out */
    bool unknown;              /* what the terminal shows */
    struct screen_cell *cells; /* what is drawn */
    struct screen_cell *shown;
};

/* The size is brought within the limits. Reads the locale, which the program has set. */
void screen_init(struct screen *s, int rows, int cols);
void screen_fini(struct screen *s);
void screen_resize(struct screen *s, int rows, int cols); /* blank, and nothing is known */

void screen_clear(struct screen *s);
void screen_forget(struct screen *s); /* somebody else wrote to the terminal */

/* Draws at most `width` columns; longer text ends in "…" (in ASCII "~"). What lies outside of the
 * screen is left out. Returns the columns that were used. */
int screen_put(struct screen *s, int row, int col, int width, unsigned style, const char *text,
               size_t len);
int screen_puts(struct screen *s, int row, int col, int width, unsigned style, const char *text);
void screen_put_right(struct screen *s, int row, int col, int width, unsigned style,
                      const char *text); /* aligned to the right of its columns */
void screen_style(struct screen *s, int row, unsigned style); /* adds it to a whole row */

/* Appends what makes the terminal show the cells. */
void screen_frame(struct screen *s, struct buf *out);

/* Appends a row as text, without styles and without blanks at its end. */
void screen_text(const struct screen *s, int row, struct buf *out);

#endif
