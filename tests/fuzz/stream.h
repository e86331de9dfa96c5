/* What a stream of bytes means as HTTP requests, by the pure functions of net/parse alone: the
 * measure for other ways of cutting the stream, and for whole connections. */
#ifndef TRIAGE_TESTS_FUZZ_STREAM_H
#define TRIAGE_TESTS_FUZZ_STREAM_H

#include "base/buf.h"
#include "fuzz.h"
#include "net/parse.h"

#define STREAM_BODY_MAX 4096

/* A reader of one stream. Zeroed is its start. */
struct stream {
    struct buf in; /* not yet used, chunks of the present body already decoded */
    size_t scanned;
    size_t head_len;
    bool chunked;
    uint64_t content_length;
    struct parse_chunks chunks;
    bool last;          /* the client wants no more after this one */
    struct buf pending; /* the request under way, as it will be logged */
    struct buf log;     /* what was understood, to be compared */
    unsigned request_count;
    bool refused;
    bool ended;
};

static inline void stream_log_head(struct buf *log, enum http_verb verb, struct http_slice path,
                                   struct http_slice query)
{
    buf_printf(log, "%d %.*s ? %.*s\n", (int)verb, (int)path.len, path.data, (int)query.len,
               query.data ? query.data : "");
}

static inline void stream_check_slice(struct http_slice s, const char *head, size_t head_len)
{
    if (!s.data)
        assert(s.len == 0);
    else
        assert(s.data >= head && s.data + s.len <= head + head_len);
}

static inline void stream_check_head(const struct parse_head *h, const char *head, size_t head_len)
{
    const struct http_slice known[] = {
        h->path,   h->query,   h->host,       h->length,       h->coding,
        h->expect, h->receipt, h->request_id, h->content_type, h->authorization,
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        stream_check_slice(known[i], head, head_len);
    for (unsigned i = 0; i < h->field_count; i++) {
        stream_check_slice(h->fields[i].name, head, head_len);
        stream_check_slice(h->fields[i].value, head, head_len);
        assert(h->fields[i].name.len > 0);
    }
    assert(h->field_count <= HTTP_HEADERS_MAX);
    assert(h->path.len > 0 && h->path.len <= HTTP_PATH_MAX && h->path.data[0] == '/');
    assert(!memchr(h->path.data, '?', h->path.len));
    assert(!h->chunked || !h->length.data);
    assert(h->http10 || h->host.data);
}

static inline bool stream_fail(struct stream *r, enum status status, const char *why)
{
    assert(status == STATUS_MALFORMED_REQUEST || status == STATUS_HEADERS_TOO_LARGE ||
           status == STATUS_PAYLOAD_TOO_LARGE);
    assert(why && *why);
    buf_printf(&r->log, "refused %s\n", why);
    r->refused = r->ended = true;
    return false;
}

static inline bool stream_head_take(struct stream *r)
{
    struct parse_head head;
    const char *why = NULL;
    enum status s =
        parse_find(r->in.data, r->in.len, HTTP_HEAD_MAX, &r->scanned, &r->head_len, &why);
    if (s)
        return stream_fail(r, s, why);
    assert(r->scanned <= r->in.len && r->head_len <= r->in.len);
    if (r->head_len == 0)
        return false;
    char *copy = exact_copy(r->in.data, r->head_len);
    s = parse_head(&head, copy, r->head_len, HTTP_HEADERS_MAX, &why);
    if (!s) {
        stream_check_head(&head, copy, r->head_len);
        stream_log_head(&r->pending, head.verb, head.path, head.query);
        r->last = !head.keep_alive;
        r->chunked = head.chunked;
        r->content_length = head.content_length;
        r->chunks = (struct parse_chunks){0};
    }
    free(copy);
    return s ? stream_fail(r, s, why) : true;
}

/* Whether the body is whole; then `*end` is where the request ends. */
static inline bool stream_body_take(struct stream *r, size_t *end)
{
    const char *why = NULL;
    if (!r->chunked) {
        if (r->content_length > STREAM_BODY_MAX)
            return stream_fail(r, STATUS_PAYLOAD_TOO_LARGE,
                               "The body is larger than this path takes.");
        *end = r->head_len + (size_t)r->content_length;
        return r->in.len >= *end;
    }
    size_t at = r->head_len + r->chunks.decoded, used = 0, made = 0, left = r->in.len - at;
    char *piece = exact_copy(r->in.data + at, left);
    size_t before = r->chunks.decoded;
    enum status s = parse_chunks(&r->chunks, piece, left, STREAM_BODY_MAX, &used, &made, &why);
    if (!s) {
        assert(used <= left && made <= used);
        assert(r->chunks.decoded == before + made && r->chunks.decoded <= STREAM_BODY_MAX);
        assert(r->chunks.done || used == left);
        memcpy(r->in.data + at, piece, made);
        memmove(r->in.data + at + made, r->in.data + at + used, left - used);
        r->in.len -= used - made;
        *end = at + made;
    }
    free(piece);
    return s ? stream_fail(r, s, why) : r->chunks.done;
}

static inline void stream_feed(struct stream *r, const uint8_t *data, size_t len)
{
    size_t end = 0;
    buf_put(&r->in, data, len);
    while (!r->ended && r->in.len > 0) {
        if (r->head_len == 0 && !stream_head_take(r))
            break;
        if (!stream_body_take(r, &end))
            break;
        buf_put(&r->log, r->pending.data, r->pending.len);
        buf_put(&r->log, r->in.data + r->head_len, end - r->head_len);
        buf_putc(&r->log, '\n');
        buf_clear(&r->pending);
        buf_consume(&r->in, end);
        r->head_len = r->scanned = 0;
        r->request_count++;
        r->ended = r->last;
    }
}

static inline void stream_fini(struct stream *r)
{
    buf_fini(&r->in);
    buf_fini(&r->pending);
    buf_fini(&r->log);
}

#endif
