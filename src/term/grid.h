/* An aligned table on standard output. Every cell is one line, and none can play with a terminal:
 * see term/text.h. */
#ifndef TRIAGE_TERM_GRID_H
#define TRIAGE_TERM_GRID_H

#include "base/buf.h"

#include <stddef.h>

#define GRID_COLUMN_MAX 48 /* characters of a column with others behind it */

struct grid {
    struct buf cells; /* every cell followed by a NUL */
    size_t columns;
    size_t cell_count;
};

void grid_init(struct grid *t, size_t columns);
void grid_cell(struct grid *t, const char *s, size_t len); /* row by row, from the left */
void grid_cstr(struct grid *t, const char *s);             /* the same */
void grid_print(struct grid *t);                           /* and frees */

#endif
