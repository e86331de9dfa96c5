/* What a simulation found out, for people and for programs. */
#ifndef TRIAGE_SIMULATE_PRINT_H
#define TRIAGE_SIMULATE_PRINT_H

#include "simulate/simulate.h"
#include "term/grid.h"

void print_summary(const struct workload *w, const struct simulation *sim);
void print_json(const struct workload *w, const struct simulation *sim);

/* Parts of them. */
void print_levels(const struct simulation *sim);                         /* a table */
void print_put_levels(struct buf *out, const struct simulation *sim);    /* the member `levels` */
void print_put_count(struct buf *out, const char *name, uint64_t count); /* a member, as the next */
void print_put_number(struct buf *out, const char *name, double number);
void print_row(struct grid *t, const char *const *names); /* NULL behind the last */
void print_cell(struct grid *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void print_count(struct grid *t, uint64_t count);
void print_ms(struct grid *t, const char *before, bool any,
              int64_t ms); /* "-" when there is none */

#endif
