/* The small pieces of JSON that requests and reports are made of. */
#ifndef TRIAGE_TERM_MEMBER_H
#define TRIAGE_TERM_MEMBER_H

#include "base/buf.h"
#include "term/args.h"

#include <stdbool.h>
#include <stdint.h>

/* A member's name with its colon, and a comma in front unless it is the object's first. */
void member_put(struct buf *json, const char *name);
void member_put_text(struct buf *json, const char *name, const char *value);
void member_put_seconds(struct buf *json, const char *name, int64_t ms);

/* A priority as the API wants it: a number when it looks like one, else a name. */
void member_put_priority(struct buf *json, const char *name, const char *value);

/* `"metadata": {…}` from key=value pairs, nothing when there are none; false after a complaint. */
bool member_put_metadata(struct buf *json, const struct arg_list *meta);

#endif
