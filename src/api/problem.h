/* Problem documents (RFC 9457): why a request was refused, which field is to
 * blame, and what to do about it. */
#ifndef TRIAGE_API_PROBLEM_H
#define TRIAGE_API_PROBLEM_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct problem {
    enum status status;
    char field[96];   /* JSON pointer, or empty */
    char detail[512]; /* sentences, or empty for the status's own advice */
};

/* Sets status and detail; the field stays. A long detail is cut, never inside a character. Returns
 * false, so that a caller can say `return problem_set(…)`. */
bool problem_set(struct problem *p, enum status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the field to `base` and the name under it, escaped as RFC 6901 asks. */
void problem_set_field(struct problem *p, const char *base, const char *name, size_t name_len);

/* Copies text that may have to be shortened: `to` ends with a whole character and a NUL. */
void problem_copy_text(char *to, size_t room, const char *from);

void problem_put(struct buf *out, const struct problem *p); /* the JSON document */

/* The header lines of an answer with this status, or NULL. */
const char *problem_headers(enum status status);

#define PROBLEM_TYPE "application/problem+json"

#endif
