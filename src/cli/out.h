/* The server's answers for people: aligned tables and lists of members. Bytes as they are come out
 * where they were asked for: with --json, --payload and --raw. */
#ifndef TRIAGE_CLI_OUT_H
#define TRIAGE_CLI_OUT_H

#include "base/json.h"

struct cli;
struct client;

/* A table of the named members of each object of an array; columns nobody has are left out. The
 * column of a level's name has its number too. */
void out_list(const struct json_doc *doc, uint32_t array, const char *const *columns);

/* A level as people read it: HIGH (1); only its name when it has no number, or the same; either may
 * be NULL. */
void out_level(struct buf *out, const struct json_token *number, const struct json_token *name);

/* A call's answer: as it came with --json, else its members, a line each. */
void out_answer(const struct client *c, const struct cli *cli);

/* One member of the answer, on a line; nothing when it is no text. */
void out_member(const struct client *c, const char *name);

#endif
