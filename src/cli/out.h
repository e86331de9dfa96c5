/* Output for people: aligned tables and lists of members. No message can play with a terminal:
 * control characters are spelled out in tables and in lines that others wrote, wherever these go.
 * Bytes as they are come out where they were asked for: with --json, --payload and --raw. */
#ifndef TRIAGE_CLI_OUT_H
#define TRIAGE_CLI_OUT_H

#include "base/json.h"

#include <stdio.h>

struct client;
struct cli;

struct grid {
    struct buf cells; /* every cell followed by a NUL */
    size_t columns;
    size_t cell_count;
};

void grid_init(struct grid *t, size_t columns);
void grid_cstr(struct grid *t, const char *s);
void grid_print(struct grid *t); /* and frees */

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
void out_answer(const struct client *c, const struct cli *cli);

/* One member of the answer, on a line; nothing when it is no text. */
void out_member(const struct client *c, const char *name);

/* The document on a line of its own. Nothing for an empty one. */
void out_document(const struct buf *document);

/* A document or a complaint of somebody else's: escaped on a terminal, but for tab and newline.
 * False when it cannot be written. */
bool out_text(FILE *to, const char *s, size_t len);

#endif
