/* Every way a request can end, in one table: the code, its name on the wire
 * (urn:triage:NAME), the HTTP status it travels under and the sentence a
 * person reads first. Fallible functions return `enum status`; STATUS_OK is 0.
 * "Empty" and "not found while looking" are answers, not statuses. */
#ifndef TRIAGE_BASE_STATUS_H
#define TRIAGE_BASE_STATUS_H

#define MUST_USE __attribute__((warn_unused_result))

/*  symbol                name on the wire          http  title */
#define STATUS_TABLE(X)                                                                            \
    X(OK, "ok", 200, "Done")                                                                       \
    X(MALFORMED_JSON, "malformed-json", 400, "The body is not valid JSON")                         \
    X(MALFORMED_REQUEST, "malformed-request", 400, "The request cannot be understood")             \
    X(RECEIPT_MISSING, "receipt-missing", 400, "A receipt handle is required")                     \
    X(UNAUTHENTICATED, "unauthenticated", 401, "Credentials are required")                         \
    X(FORBIDDEN, "forbidden", 403, "These credentials do not allow it")                            \
    X(CROSS_SITE, "cross-site", 403, "A web page must not do this")                                \
    X(QUEUE_NOT_FOUND, "queue-not-found", 404, "There is no such queue")                           \
    X(MESSAGE_NOT_FOUND, "message-not-found", 404, "There is no such message")                     \
    X(CELL_NOT_FOUND, "cell-not-found", 404, "There is no such cell")                              \
    X(SCHEDULE_NOT_FOUND, "schedule-not-found", 404, "There is no such schedule")                  \
    X(ROUTE_NOT_FOUND, "route-not-found", 404, "There is nothing at this path")                    \
    X(METHOD_NOT_ALLOWED, "method-not-allowed", 405, "This path does not take this method")        \
    X(REQUEST_TIMEOUT, "request-timeout", 408, "The request took too long to arrive")              \
    X(RECEIPT_EXPIRED, "receipt-expired", 409, "The receipt is no longer valid")                   \
    X(NOT_PENDING, "not-pending", 409, "The message is not scheduled or ready")                    \
    X(QUEUE_NOT_EMPTY, "queue-not-empty", 409, "The queue still holds messages")                   \
    X(LEVEL_IN_USE, "level-in-use", 409, "A level that would vanish is still in use")              \
    X(LEVELS_DROPPED, "levels-dropped", 409, "Levels would be dropped that nobody named")          \
    X(PLACEMENT_REFUSED, "placement-refused", 409, "The placement cannot be changed so")           \
    X(QUEUE_MOVED, "queue-moved", 409, "The queue moves to another server")                        \
    X(MOVE_REFUSED, "move-refused", 409, "The queue cannot be moved there")                        \
    X(BACKUP_UNAVAILABLE, "backup-unavailable", 409, "No backup can be made")                      \
    X(BACKUP_RUNNING, "backup-running", 409, "A backup is under way")                              \
    X(PAYLOAD_TOO_LARGE, "payload-too-large", 413, "The body or payload is too large")             \
    X(UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", 415, "This content type is not taken")     \
    X(MISDIRECTED, "misdirected-request", 421, "This server does not have that name")              \
    X(INVALID_FIELD, "invalid-field", 422, "A field has a value that is not allowed")              \
    X(UNKNOWN_FIELD, "unknown-field", 422, "A field is not known")                                 \
    X(UNKNOWN_PRIORITY, "unknown-priority", 422, "The queue has no such priority")                 \
    X(ENGINE_REFUSED, "engine-refused", 422, "The store refuses this request")                     \
    X(QUEUE_FULL, "queue-full", 429, "The queue is at its limit")                                  \
    X(RATE_LIMITED, "rate-limited", 429, "Too many requests")                                      \
    X(QUOTA_EXCEEDED, "quota-exceeded", 429, "The quota is used up")                               \
    X(HEADERS_TOO_LARGE, "headers-too-large", 431, "The request head is too large")                \
    X(ENGINE_UNAVAILABLE, "engine-unavailable", 503, "The store does not answer")                  \
    X(TARGET_UNAVAILABLE, "target-unavailable", 503, "The server it moves to does not answer")     \
    X(OVERLOADED, "overloaded", 503, "The server has more work than it takes")                     \
    X(MOVED, "moved", 503, "The partition has moved")                                              \
    X(DRAINING, "draining", 503, "The server is shutting down")                                    \
    X(STORAGE_FULL, "storage-full", 507, "The disk is full")

enum status {
#define X(symbol, name, http, title) STATUS_##symbol,
    STATUS_TABLE(X)
#undef X
        STATUS_COUNT
};

const char *status_name(enum status s);  /* "receipt-expired" */
const char *status_title(enum status s); /* a sentence */
int status_http(enum status s);          /* 409 */

#endif
