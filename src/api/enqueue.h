/* What a producer may say about a message, read from a JSON object or from a
 * query, and the draft that comes of it. */
#ifndef TRIAGE_API_ENQUEUE_H
#define TRIAGE_API_ENQUEUE_H

#include "api/problem.h"
#include "base/buf.h"
#include "base/json.h"
#include "core/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The object at token `object` as a draft. On success the draft's body is allocated and its owner
 * the caller; on failure nothing is. */
MUST_USE bool enqueue_from_json(const struct json_doc *doc, uint32_t object, struct draft *draft,
                                struct problem *p);

/* `payload` as it stands, the other fields from the query: text when it is UTF-8, else bytes. */
MUST_USE bool enqueue_from_bytes(const char *payload, size_t len, const char *query,
                                 size_t query_len, struct buf *scratch, struct draft *draft,
                                 struct problem *p);

#define MESSAGE_TOKENS_MAX (PAYLOAD_MAX / 2 + 2 * METADATA_KEYS_MAX + 16) /* [0,0,0,…] */

#endif
