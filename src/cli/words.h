/* The server's complaints in the words of the command line: a call becomes a command, a field the
 * option that sets it. What has no such word stays as the server said it. */
#ifndef TRIAGE_CLI_WORDS_H
#define TRIAGE_CLI_WORDS_H

#include "base/buf.h"

#include <stddef.h>

/* Appends a sentence of the server's. `field` is what it is about, as an option where the command
 * has one, or NULL. */
void words_put(struct buf *out, const char *text, size_t len, const char *field);

/* The option that sets a field (/delay_seconds: --delay), or NULL. For commands whose options make
 * fields; a configuration's fields are its own words. */
const char *words_option(const char *field, size_t len);

/* Appends where a complaint is about, in brackets: the option, the operand, or else the field. */
void words_put_place(struct buf *out, const char *field, size_t len, const char *option);

#endif
