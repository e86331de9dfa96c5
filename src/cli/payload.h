/* Payloads between JSON and bytes. */
#ifndef TRIAGE_CLI_PAYLOAD_H
#define TRIAGE_CLI_PAYLOAD_H

#include "base/json.h"

/* Whether it is one JSON value; false after the complaint, with the place. */
bool payload_check_json(const struct buf *payload, const char *complaint);

/* `"payload": "…"`, or `"payload_base64": "…"` when the bytes are not UTF-8. */
void payload_put(struct buf *json, const char *data, size_t len);
void payload_put_bytes(struct buf *json, const char *data, size_t len); /* always the latter */

/* The bytes of a message that the server gave: of its payload or payload_base64. */
void payload_get(const struct json_doc *doc, uint32_t message, struct buf *out);

#endif
