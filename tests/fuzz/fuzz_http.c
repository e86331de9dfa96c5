/* net/parse on a stream of bytes: heads, bodies and pipelined requests. The same stream, cut into
 * other pieces, is the same requests, and every slice lies in the head that it was cut from. */
#include "base/buf.h"
#include "fuzz.h"
#include "net/parse.h"

#define BODY_MAX 4096

struct reader {
    struct buf in; /* not yet used, chunks of the present body already decoded */
    size_t scanned;
    size_t head_len;
    bool chunked;
    uint64_t content_length;
    struct parse_chunks chunks;
    struct buf log; /* what was understood, to be compared */
    bool ended;
};

static void check_slice(struct http_slice s, const char *head, size_t head_len)
{
    if (!s.data)
        assert(s.len == 0);
    else
        assert(s.data >= head && s.data + s.len <= head + head_len);
}

static void check_head(const struct parse_head *h, const char *head, size_t head_len)
{
    const struct http_slice known[] = {h->path,         h->query,         h->host,    h->length,
                                       h->coding,       h->expect,        h->receipt, h->request_id,
                                       h->content_type, h->authorization,
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        check_slice(known[i], head, head_len);
    for (unsigned i = 0; i < h->field_count; i++) {
        check_slice(h->fields[i].name, head, head_len);
        check_slice(h->fields[i].value, head, head_len);
        assert(h->fields[i].name.len > 0);
    }
    assert(h->field_count <= HTTP_HEADERS_MAX);
    assert(h->path.len > 0 && h->path.len <= HTTP_PATH_MAX && h->path.data[0] == '/');
    assert(!memchr(h->path.data, '?', h->path.len));
    assert(!h->chunked || !h->length.data);
    assert(h->http10 || h->host.data);
}

static bool fail(struct reader *r, enum status status, const char *why)
{
    assert(status == STATUS_MALFORMED_REQUEST || status == STATUS_HEADERS_TOO_LARGE ||
           status == STATUS_PAYLOAD_TOO_LARGE);
    assert(why && *why);
    buf_printf(&r->log, "refused %s\n", why);
    r->ended = true;
    return false;
}

static bool head_take(struct reader *r)
{
    struct parse_head head;
    const char *why = NULL;
    enum status s = parse_find(r->in.data, r->in.len, HTTP_HEAD_MAX, &r->scanned, &r->head_len, &why);
    if (s)
        return fail(r, s, why);
    assert(r->scanned <= r->in.len && r->head_len <= r->in.len);
    if (r->head_len == 0)
        return false;
    char *copy = exact_copy(r->in.data, r->head_len);
    s = parse_head(&head, copy, r->head_len, HTTP_HEADERS_MAX, &why);
    if (!s) {
        check_head(&head, copy, r->head_len);
        buf_printf(&r->log, "%d %.*s?%.*s %u", (int)head.verb, (int)head.path.len, head.path.data,
                   (int)head.query.len, head.query.data ? head.query.data : "", head.field_count);
        r->chunked = head.chunked;
        r->content_length = head.content_length;
        r->chunks = (struct parse_chunks){0};
    }
    free(copy);
    return s ? fail(r, s, why) : true;
}

/* Whether the body is whole; then `*end` is where the request ends. */
static bool body_take(struct reader *r, size_t *end)
{
    const char *why = NULL;
    if (!r->chunked) {
        if (r->content_length > BODY_MAX)
            return fail(r, STATUS_PAYLOAD_TOO_LARGE, "too large");
        *end = r->head_len + (size_t)r->content_length;
        return r->in.len >= *end;
    }
    size_t at = r->head_len + r->chunks.decoded, used = 0, made = 0, left = r->in.len - at;
    char *piece = exact_copy(r->in.data + at, left);
    size_t before = r->chunks.decoded;
    enum status s = parse_chunks(&r->chunks, piece, left, BODY_MAX, &used, &made, &why);
    if (!s) {
        assert(used <= left && made <= used);
        assert(r->chunks.decoded == before + made && r->chunks.decoded <= BODY_MAX);
        assert(r->chunks.done || used == left);
        memcpy(r->in.data + at, piece, made);
        memmove(r->in.data + at + made, r->in.data + at + used, left - used);
        r->in.len -= used - made;
        *end = at + made;
    }
    free(piece);
    return s ? fail(r, s, why) : r->chunks.done;
}

static void reader_feed(struct reader *r, const uint8_t *data, size_t len)
{
    size_t end = 0;
    buf_put(&r->in, data, len);
    while (!r->ended && r->in.len > 0) {
        if (r->head_len == 0 && !head_take(r))
            break;
        if (!body_take(r, &end))
            break;
        buf_putc(&r->log, '\n');
        buf_put(&r->log, r->in.data + r->head_len, end - r->head_len);
        buf_putc(&r->log, '\n');
        buf_consume(&r->in, end);
        r->head_len = r->scanned = 0;
    }
}

static void reader_fini(struct reader *r)
{
    buf_fini(&r->in);
    buf_fini(&r->log);
}

/* The first byte says how the rest is cut in the second reading. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader whole = {0}, pieces = {0};
    struct input in = {data, size};
    size_t step = 1 + input_byte(&in) % 40;
    reader_feed(&whole, in.at, in.left);
    for (size_t at = 0; at < in.left && !pieces.ended; at += step)
        reader_feed(&pieces, in.at + at, in.left - at < step ? in.left - at : step);
    assert(whole.ended == pieces.ended);
    assert_same(whole.log.data, whole.log.len, pieces.log.data, pieces.log.len);
    reader_fini(&whole);
    reader_fini(&pieces);
    return 0;
}
