#include "net/conn.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <time.h>

/* Answers: from a status and a body to bytes in the connection's output, in the
 * order of the requests. */

struct literal {
    const char *text;
    size_t len;
};

static const struct literal status_lines[600] = {
#define LINE(code, reason) [code] = {"HTTP/1.1 " #code " " reason "\r\n", sizeof(#code reason) + 11}
    LINE(200, "OK"),
    LINE(201, "Created"),
    LINE(202, "Accepted"),
    LINE(204, "No Content"),
    LINE(206, "Partial Content"),
    LINE(301, "Moved Permanently"),
    LINE(302, "Found"),
    LINE(304, "Not Modified"),
    LINE(307, "Temporary Redirect"),
    LINE(308, "Permanent Redirect"),
    LINE(400, "Bad Request"),
    LINE(401, "Unauthorized"),
    LINE(403, "Forbidden"),
    LINE(404, "Not Found"),
    LINE(405, "Method Not Allowed"),
    LINE(406, "Not Acceptable"),
    LINE(408, "Request Timeout"),
    LINE(409, "Conflict"),
    LINE(410, "Gone"),
    LINE(411, "Length Required"),
    LINE(412, "Precondition Failed"),
    LINE(413, "Content Too Large"),
    LINE(415, "Unsupported Media Type"),
    LINE(417, "Expectation Failed"),
    LINE(421, "Misdirected Request"),
    LINE(422, "Unprocessable Content"),
    LINE(429, "Too Many Requests"),
    LINE(431, "Request Header Fields Too Large"),
    LINE(500, "Internal Server Error"),
    LINE(501, "Not Implemented"),
    LINE(502, "Bad Gateway"),
    LINE(503, "Service Unavailable"),
    LINE(504, "Gateway Timeout"),
    LINE(507, "Insufficient Storage"),
#undef LINE
};

static void status_count(struct http_server *s, int status)
{
    switch (status / 100) {
    case 2:
        net_count(s, responses_2xx, 1);
        break;
    case 3:
        net_count(s, responses_3xx, 1);
        break;
    case 4:
        net_count(s, responses_4xx, 1);
        break;
    default:
        net_count(s, responses_5xx, 1);
        break;
    }
}

static const char *date_line(struct http_server *s)
{
    uint64_t now_s = uv_now(s->loop) / 1000;
    if (now_s != s->date_s) {
        time_t wall_s = (time_t)(clock_now().wall_ms / 1000);
        struct tm tm;
        strftime(s->date, sizeof(s->date), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n",
                 gmtime_r(&wall_s, &tm));
        s->date_s = now_s;
    }
    return s->date;
}

/* Names that are safe in a log line and in a header. */
static bool name_is_plain(struct http_slice s)
{
    if (!s.data || s.len == 0 || s.len > HTTP_REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned char ch = (unsigned char)s.data[i];
        bool letter = (ch | 0x20) >= 'a' && (ch | 0x20) <= 'z';
        if (!letter && !(ch >= '0' && ch <= '9') && ch != '.' && ch != '_' && ch != '-')
            return false;
    }
    return true;
}

static size_t hex_encode(uint64_t value, char *out)
{
    size_t len = value ? (size_t)(67 - __builtin_clzll(value)) / 4 : 1;
    for (size_t i = len; i-- > 0; value >>= 4)
        out[i] = "0123456789abcdef"[value & 15];
    return len;
}

void request_name(struct http_request *req, struct http_slice wish)
{
    struct http_server *s = req->server;
    size_t len;
    if (name_is_plain(wish)) {
        len = wish.len;
        memcpy(req->id, wish.data, len);
    } else {
        len = sizeof(s->id_prefix);
        memcpy(req->id, s->id_prefix, len);
        len += hex_encode(++s->id_count, req->id + len);
    }
    req->id[len] = '\0';
    req->id_len = (uint8_t)len;
}

struct http_request *request_new(struct conn *c)
{
    struct http_server *s = c->server;
    struct http_request *req = STAILQ_FIRST(&s->request_pool);
    if (req)
        STAILQ_REMOVE_HEAD(&s->request_pool, next);
    else
        req = mem_zalloc(sizeof(*req));
    req->tag = ASKED_TAG;
    req->server = s;
    req->conn = c;
    STAILQ_INSERT_TAIL(&c->requests, req, next);
    c->request_count++;
    assert(!req->user);
    return req;
}

/* Fields that parsing sets each time are left as they are. */
void request_free(struct http_request *req)
{
    struct http_server *s = req->server;
    buf_fini(&req->held);
    req->held_head_len = 0;
    req->user = NULL;
    req->on_hangup = NULL;
    req->conn = NULL;
    req->answered = false;
    req->body_taken = false;
    req->close = false;
    req->keep_alive = false;
    req->stream = (struct http_stream){0};
    assert(req->charge == 0);
    tag_end(&req->tag, ASKED_TAG);
    STAILQ_INSERT_HEAD(&s->request_pool, req, next);
}

static bool status_has_body(int status)
{
    return status != 204 && status != 304;
}

static void length_encode(struct buf *out, size_t body_len)
{
    if (body_len == LENGTH_CHUNKED) {
        buf_lit(out, "Transfer-Encoding: chunked\r\n");
    } else if (body_len != LENGTH_UNSAID) {
        buf_lit(out, "Content-Length: ");
        buf_put_u64(out, body_len);
        buf_lit(out, "\r\n");
    }
}

void response_head(struct buf *out, struct http_request *req, int status, const char *content_type,
                   const char *extra_headers, size_t body_len)
{
    const struct literal *line = &status_lines[status];
    buf_put(out, line->text, line->len);
    buf_lit(out, "X-Request-Id: ");
    buf_put(out, req->id, req->id_len);
    buf_lit(out, "\r\n");
    buf_puts(out, date_line(req->server));
    if (status_has_body(status)) {
        if (content_type) {
            buf_lit(out, "Content-Type: ");
            buf_puts(out, content_type);
            buf_lit(out, "\r\n");
        }
        length_encode(out, body_len);
    }
    if (extra_headers)
        buf_puts(out, extra_headers);
}

/* In a drain the last answer of a connection says `Connection: close`, whatever the request asked.
 */
static void head_end(struct conn *c, struct http_request *req)
{
    if (c->server->draining && !STAILQ_NEXT(req, next) && !req->close) {
        req->close = true;
        c->refused = true;
    }
    if (req->close) {
        c->last = true;
        buf_lit(&c->out, "Connection: close\r\n");
    } else if (req->keep_alive) {
        buf_lit(&c->out, "Connection: keep-alive\r\n");
    }
    buf_lit(&c->out, "\r\n");
}

/* Output buffers are shared: a connection with nothing to send holds none, and takes a spare one
 * when it has an answer. */
void buffer_reuse(struct http_server *s, struct buf *b)
{
    if (b->cap > 0 || s->spare_count == 0)
        return;
    *b = s->spare[--s->spare_count];
    assert(s->spare_bytes >= b->cap);
    s->spare_bytes -= b->cap;
}

static inline void request_pop(struct conn *c, struct http_request *req)
{
    assert(STAILQ_FIRST(&c->requests) == req);
    STAILQ_REMOVE_HEAD(&c->requests, next);
    c->request_count--;
    request_free(req);
}

static void collect(struct conn *c, struct http_request *req)
{
    buffer_reuse(c->server, &c->out);
    assert(c->held >= req->held.len);
    assert(req->held_head_len <= req->held.len);
    c->held -= req->held.len;
    buf_put(&c->out, req->held.data, req->held_head_len);
    if (!req->stream.begun)
        head_end(c, req);
    if (req->held.len > req->held_head_len)
        buf_put(&c->out, req->held.data + req->held_head_len, req->held.len - req->held_head_len);
}

void conn_collect(struct conn *c)
{
    struct http_request *req;
    while ((req = STAILQ_FIRST(&c->requests)) && req->answered) {
        collect(c, req);
        request_pop(c, req);
    }
    if (req && req->stream.tick && !req->stream.begun) { /* its turn has come: its head is held */
        collect(c, req);
        buf_fini(&req->held);
        req->held_head_len = 0;
        req->stream.begun = true;
    }
    if (c->continue_due && STAILQ_EMPTY(&c->requests)) {
        c->continue_due = false;
        buffer_reuse(c->server, &c->out);
        buf_lit(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

/* Whether the connection would have more unsent bytes than it may: then its answers are dropped,
 * and conn_end_turn() closes it. One answer alone may be of any size. */
static bool output_overflows(struct conn *c, size_t more)
{
    size_t unsent = c->out.len + c->sending.len + c->held;
    if (unsent == 0 || unsent + more <= c->server->limits.output_max)
        return false;
    if (!c->broken)
        net_count(c->server, output_overflows, 1);
    c->broken = true;
    return true;
}

void http_respond(struct http_request *req, int status, const char *content_type,
                  const char *extra_headers, const void *body, size_t body_len)
{
    assert(status > 0 && status < 600);
    assert(status_lines[status].text);
    tag_check(req->tag, ASKED_TAG);
    assert(!req->answered);
    struct http_server *s = req->server;
    struct conn *c = req->conn;
    status_count(s, status);
    net_count(s, requests_open, -1);
    request_discharge(req);
    if (!c) {
        request_free(req);
        return;
    }
    c->body_out = c->body_out && !req->body_taken;
    /* When a connection closes, conn_close() frees its requests. */
    if (c->closing || c->broken || output_overflows(c, body_len)) {
        req->answered = true;
        conn_touch(c);
        return;
    }
    size_t sent_len = status_has_body(status) && req->verb != VERB_HEAD ? body_len : 0;
    if (STAILQ_FIRST(&c->requests) == req) {
        buffer_reuse(c->server, &c->out);
        buf_reserve(&c->out, body_len + 512);
        response_head(&c->out, req, status, content_type, extra_headers, body_len);
        head_end(c, req);
        buf_put(&c->out, body, sent_len);
        request_pop(c, req);
        conn_collect(c);
    } else {
        response_head(&req->held, req, status, content_type, extra_headers, body_len);
        req->held_head_len = req->held.len;
        buf_put(&req->held, body, sent_len);
        req->answered = true;
        c->held += req->held.len;
    }
    if (sent_len > CONN_PAUSE_SIZE)
        memory_charge(c);
    conn_touch(c);
}

struct http_slice http_header(const struct http_request *req, const char *name)
{
    const struct parse_head *head = req->head;
    for (unsigned i = 0; head && i < head->field_count; i++)
        if (parse_name_is(head->fields[i].name, name))
            return head->fields[i].value;
    return (struct http_slice){NULL, 0};
}
