/* What a producer may say about a message, read from a JSON object or from a
 * query, and the draft that comes of it. */
#ifndef TRIAGE_API_ENQUEUE_H
#define TRIAGE_API_ENQUEUE_H

#include "api/fields.h"
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

/* Makes a draft of a body that is the payload itself (text if it is UTF-8, else bytes) and of a
 * query with the other fields. */
MUST_USE bool enqueue_from_bytes(const char *payload, size_t len, const char *query,
                                 size_t query_len, struct buf *scratch, struct draft *draft,
                                 struct problem *p);

/* The fields as they were found. Everything borrows the request, unless it says "owned". */
struct enqueue {
    struct draft draft; /* its body and lengths come last */
    const struct json_token *payload;
    const struct json_token *base64;
    const char *metadata;
    size_t metadata_len;
    bool has_metadata; /* the field was there, perhaps with an empty object */
    const char *dedup;
    size_t dedup_len;
    unsigned times;   /* how many of the three ways to name a time were used */
    struct buf pairs; /* owned: metadata that is put together from metadata.KEY=VALUE */
    unsigned pair_count;
    struct json_doc *parsed; /* owned: to look at a query's metadata */
};

/* For calls that have field tables of their own; the target is a struct enqueue, or begins with
 * one. */
void enqueue_init(struct enqueue *e);
field_take enqueue_take_payload, enqueue_take_base64, enqueue_take_priority, enqueue_take_dedup_key,
    enqueue_take_dequeue_at, enqueue_take_metadata, enqueue_take_delay_seconds, enqueue_take_ttl;
/* Makes the draft's body of the fields that were taken; after a failure it has none. */
MUST_USE bool enqueue_body(struct enqueue *e, struct problem *p);

#define MESSAGE_TOKENS_MAX (PAYLOAD_MAX / 2 + 2 * METADATA_KEYS_MAX + 16) /* [0,0,0,…] */

#endif
