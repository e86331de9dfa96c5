/* Output for people: aligned tables and lists of members. No message can play with a terminal:
 * control characters are spelled out in tables and in lines that others wrote, wherever these go.
 * Bytes as they are come out where they were asked for: with --json, --payload and --raw. */
#ifndef TRIAGE_CLI_OUT_H
#define TRIAGE_CLI_OUT_H

#include "base/json.h"

#include <stdio.h>

struct call;
struct cli;

struct table {
    struct buf cells; /* every cell followed by a NUL */
    size_t columns;
    size_t cell_count;
};

void table_init(struct table *t, size_t columns);
void table_cstr(struct table *t, const char *s);
void table_print(struct table *t); /* and frees */

/* A table of the named members of each object of an array; columns nobody has are left out. The
 * column of a level's name has its number too. */
void out_list(const struct json_doc *doc, uint32_t array, const char *const *columns);

/* A level as people read it: HIGH (1); only its name when it has no number, or the same; either may
 * be NULL. */
void out_level(struct buf *out, const struct json_token *number, const struct json_token *name);

/* Text with its control characters spelled out: \x1b, \n. Without `one_line` tabs and newlines
 * stay.
 */
void out_escape(struct buf *out, const char *s, size_t len, bool one_line);

/* A call's answer: as it came with --json, else its members, a line each. */
void out_answer(const struct call *c, const struct cli *cli);

/* One member of the answer, on a line; nothing when it is no text. */
void out_member(const struct call *c, const char *name);

/* The document on a line of its own. Nothing for an empty one. */
void out_document(const struct buf *document);

/* A document or a complaint of somebody else's: escaped on a terminal, but for tab and newline.
 * False when it cannot be written. */
bool out_text(FILE *to, const char *s, size_t len);

#endif
