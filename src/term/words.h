/* The server's complaints in the words of the command line: a call becomes a command, a field the
 * option that sets it. What has no such word stays as the server said it. */
#ifndef TRIAGE_TERM_WORDS_H
#define TRIAGE_TERM_WORDS_H

#include "base/buf.h"
#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends a sentence of the server's. `field` is what it is about, as an option where the command
 * has one, or NULL. */
void words_put(struct buf *out, const char *text, size_t len, const char *field);

/* The option that sets a field (/delay_seconds: --delay), or NULL. For commands whose options make
 * fields; a configuration's fields are its own words. */
const char *words_option(const char *field, size_t len);

/* Appends in brackets what a complaint is about: the option, the operand, or else the field. */
void words_put_place(struct buf *out, const char *field, size_t len, const char *option);

/* Appends the problem document at a token: of a whole answer, or of one result of a batch. `http`
 * is the status where the document has none. With `has_options` its field came from an option;
 * /priority did not where it has a word of its own, or NULL.
 * 409 receipt-expired: The receipt is no longer valid: it ran out at 12:00 (--priority) */
void words_put_problem(struct buf *out, const struct json_doc *doc, uint32_t at, long http,
                       bool has_options, const char *priority_word);

#endif
