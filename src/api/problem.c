#include "api/problem.h"

#include "base/json.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

/* What a client can do about a refusal, for refusals that come without a better sentence. */
static const char *const advice[STATUS_COUNT] = {
    [STATUS_MALFORMED_JSON] = "Send one JSON object in UTF-8.",
    [STATUS_MALFORMED_REQUEST] = "Check the request line, the headers and the query.",
    [STATUS_RECEIPT_MISSING] = "Send the receipt_handle that the claim gave.",
    [STATUS_UNAUTHENTICATED] = "Send Authorization: Bearer and a token this server knows.",
    [STATUS_FORBIDDEN] = "Ask the operator for a token with the role, or for the queue, you need.",
    [STATUS_QUEUE_NOT_FOUND] = "Create it with PUT /v1/queues/{queue}; GET /v1/queues lists them.",
    [STATUS_MESSAGE_NOT_FOUND] =
        "It was never in this queue, or it is gone: acknowledged, expired, cancelled or purged.",
    [STATUS_ROUTE_NOT_FOUND] = "GET /openapi.yaml describes every path.",
    [STATUS_METHOD_NOT_ALLOWED] = "The Allow header names the methods of this path.",
    [STATUS_RECEIPT_EXPIRED] = "The lease ran out or the message was delivered again; nothing was "
                               "changed. Claim again for a new receipt.",
    [STATUS_NOT_PENDING] = "Only scheduled and ready messages can be changed without a receipt.",
    [STATUS_QUEUE_NOT_EMPTY] = "Purge it first, or delete it with ?force=true.",
    [STATUS_LEVEL_IN_USE] = "Keep the level, by its name, until no message stands in it.",
    [STATUS_LEVELS_DROPPED] = "Name every level, or add \"drop_levels\": true or \"empty\".",
    [STATUS_PAYLOAD_TOO_LARGE] = "A payload has at most 262144 bytes after decoding.",
    [STATUS_UNSUPPORTED_MEDIA_TYPE] = "Send Content-Type: application/json.",
    [STATUS_UNKNOWN_PRIORITY] = "GET /v1/queues/{queue} shows the levels of the queue.",
    [STATUS_QUEUE_FULL] =
        "The queue is at its max_depth or max_bytes; try again when messages were claimed.",
    [STATUS_RATE_LIMITED] = "Slow down and try again after Retry-After.",
    [STATUS_QUOTA_EXCEEDED] = "Try again after Retry-After.",
    [STATUS_ENGINE_REFUSED] = "Nothing was changed, and the same request would be refused again; "
                              "the server's log has the store's reason.",
    [STATUS_ENGINE_UNAVAILABLE] = "It is not known whether the change was stored. Try again after "
                                  "Retry-After; GET /readyz says what is wrong.",
    [STATUS_QUEUE_MOVED] = "Nothing was changed. GET /v1/queues/{queue}/move says where it goes.",
    [STATUS_TARGET_UNAVAILABLE] =
        "The queue moves to another server, which does not answer. Try again after Retry-After.",
    [STATUS_OVERLOADED] = "Nothing was changed. Try again after Retry-After.",
    [STATUS_MOVED] = "Nothing was changed. Try again after Retry-After.",
    [STATUS_DRAINING] = "Nothing was changed. Try another server, or again after Retry-After.",
    [STATUS_STORAGE_FULL] = "Nothing was stored. Claims and acknowledgements still work.",
};

/* Drops a character that was cut in two at the end. */
static void trim_partial(char *text, size_t len)
{
    for (int i = 0; i < 3 && len > 0 && !utf8_valid(text, len); i++)
        text[--len] = '\0';
}

void problem_copy_text(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from);
    trim_partial(to, strlen(to));
}

bool problem_set(struct problem *p, enum status status, const char *fmt, ...)
{
    va_list args;
    p->status = status;
    va_start(args, fmt);
    vsnprintf(p->detail, sizeof(p->detail), fmt, args);
    va_end(args);
    trim_partial(p->detail, strlen(p->detail));
    return false;
}

void problem_set_field(struct problem *p, const char *base, const char *name, size_t name_len)
{
    size_t room = sizeof(p->field) - 3; /* a separator, an escape and the NUL always fit */
    size_t at = strlen(base) < room ? strlen(base) : room;
    memcpy(p->field, base, at);
    p->field[at++] = '/';
    for (size_t i = 0; i < name_len && at < room; i++) {
        if (name[i] == '~' || name[i] == '/') {
            p->field[at++] = '~';
            p->field[at++] = name[i] == '~' ? '0' : '1';
        } else if (name[i] != '\0') {
            p->field[at++] = name[i];
        }
    }
    p->field[at] = '\0';
    trim_partial(p->field, at);
}

void problem_put(struct buf *out, const struct problem *p)
{
    const char *detail = p->detail[0] ? p->detail : advice[p->status];
    buf_lit(out, "{\"type\":\"urn:triage:");
    buf_puts(out, status_name(p->status));
    buf_lit(out, "\",\"title\":");
    json_put_cstr(out, status_title(p->status));
    buf_lit(out, ",\"status\":");
    buf_put_u64(out, (uint64_t)status_http(p->status));
    if (detail) {
        buf_lit(out, ",\"detail\":");
        json_put_cstr(out, detail);
    }
    if (p->field[0]) {
        buf_lit(out, ",\"field\":");
        json_put_cstr(out, p->field);
    }
    buf_putc(out, '}');
}

const char *problem_headers(enum status status)
{
    int http = status_http(status);
    if (http == 503 || http == 429)
        return "Retry-After: 1\r\n";
    if (status == STATUS_UNAUTHENTICATED)
        return "WWW-Authenticate: Bearer realm=\"triage\"\r\n";
    return NULL;
}
