/* Text that others wrote, on its way to a terminal. No message can play with one: control
 * characters are spelled out in tables and in lines that others wrote, wherever these go. */
#ifndef TRIAGE_TERM_TEXT_H
#define TRIAGE_TERM_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Text with its control characters spelled out: \x1b, \n. Without `one_line` tabs and newlines
 * stay. */
void text_escape(struct buf *out, const char *s, size_t len, bool one_line);

/* A document or a complaint of somebody else's: escaped on a terminal, but for tab and newline.
 * False when it cannot be written. */
bool text_write(FILE *to, const char *s, size_t len);

/* The document on a line of its own, on standard output. Nothing for an empty one. */
void text_document(const struct buf *document);

#endif
