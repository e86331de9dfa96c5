/* Payloads between files, JSON and bytes, and the small pieces of JSON that
 * requests are made of. */
#ifndef TRIAGE_CLI_PAYLOAD_H
#define TRIAGE_CLI_PAYLOAD_H

#include "base/json.h"
#include "cli/args.h"

/* Reads a whole file, or standard input when path is NULL; false with errno. */
bool payload_read(const char *path, struct buf *out);

/* Whether it is one JSON value; false after the complaint, with the place. */
bool payload_check_json(const struct buf *payload, const char *complaint);

/* `"payload": "…"`, or `"payload_base64": "…"` when the bytes are not UTF-8. */
void payload_put(struct buf *json, const char *data, size_t len);
void payload_put_bytes(struct buf *json, const char *data, size_t len); /* always the latter */

/* The bytes of a message that the server gave: of its payload or payload_base64. */
void payload_get(const struct json_doc *doc, uint32_t message, struct buf *out);

/* A member's name with its colon, and a comma in front unless it is the object's first. */
void member_put(struct buf *json, const char *name);
void member_put_text(struct buf *json, const char *name, const char *value);
void member_put_seconds(struct buf *json, const char *name, int64_t ms);

/* A priority as the API wants it: a number when it looks like one, else a name. */
void member_put_priority(struct buf *json, const char *name, const char *value);

/* `"metadata": {…}` from key=value pairs, nothing when there are none; false after a complaint. */
bool member_put_metadata(struct buf *json, const struct arg_list *meta);

#endif
