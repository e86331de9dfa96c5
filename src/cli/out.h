/* Output for people: aligned tables and lists of members. Control characters
 * in cells become dots, so that no message can play with the terminal. */
#ifndef TRIAGE_CLI_OUT_H
#define TRIAGE_CLI_OUT_H

#include "base/json.h"

struct call;
struct cli;

struct table {
    struct buf cells; /* every cell followed by a NUL */
    size_t columns;
    size_t cell_count;
};

void table_init(struct table *t, size_t columns);
void table_cell(struct table *t, const char *s, size_t len);
void table_cstr(struct table *t, const char *s);
void table_value(struct table *t, const struct json_token *value); /* NULL and null give "-" */
void table_print(struct table *t);                                 /* and frees */

/* One line per member, aligned; nested objects as dotted names: retry.backoff  exponential */
void out_members(const struct json_doc *doc, uint32_t object);

/* A table of the named members of each object of an array; columns nobody has are left out. */
void out_list(const struct json_doc *doc, uint32_t array, const char *const *columns);

/* A call's answer: as it came with --json, else its members. */
void out_answer(const struct call *c, const struct cli *cli);

/* The document untouched, on a line of its own. Nothing for an empty one. */
void out_document(const struct buf *document);

#endif
