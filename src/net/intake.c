#include "net/conn.h"

#include <assert.h>
#include <stdio.h>

/* From bytes to requests. The common request comes whole in one read and is parsed where it lies,
 * in the server's input buffer; only what is left over at the end of a read is copied to the
 * connection. A request that came in pieces has its head parsed twice, once to know its framing and
 * once when the body is there, because the buffer may have moved in between; that is cheaper than
 * keeping sixty-four headers per connection. */

#define TLS_FIRST_BYTE 0x16 /* of a handshake's first record; no method begins so */

static const char not_plain[] = "This port speaks plain HTTP: use http:// here.";

/* Only asked between two requests: a request that has started is always taken to its end. */
bool intake_is_full(const struct conn *c)
{
    size_t waits = conn_unsent(c);
    return c->body_out || c->request_count >= c->server->limits.pipeline_max ||
           waits > CONN_PAUSE_SIZE || (waits > 0 && memory_is_tight(c));
}

/* Each path has a limit of its own, so the sentence is made each time. */
static const char *too_large(struct conn *c)
{
    struct http_server *s = c->server;
    snprintf(s->too_large, sizeof(s->too_large), "A body on this path has at most %zu bytes.",
             c->body_max);
    return s->too_large;
}

static void request_fill(const struct conn *c, struct http_request *req)
{
    const struct parse_head *head = &c->server->head;
    req->verb = head->verb;
    req->path = head->path.data;
    req->path_len = head->path.len;
    req->query = head->query.data;
    req->query_len = head->query.len;
    req->content_type = head->content_type;
    req->authorization = head->authorization;
    req->host = head->host;
    req->origin = head->origin;
    req->fetch_site = head->fetch_site;
    req->receipt = head->receipt;
    req->accept = head->accept;
    req->traceparent = head->traceparent;
    req->client = c->tls ? c->tls->client : (struct http_slice){NULL, 0};
    req->local = c->local;
    req->has_body = head->content_length > 0 || head->chunked;
    req->head = head;
    req->close = !head->keep_alive;
    req->keep_alive = head->http10;
}

/* Whether the body of a refused request is skipped, so that the client keeps its connection: only a
 * small body with a known length. A body that waits for 100 Continue may never come, and where a
 * chunked one ends is not worth finding out. */
static bool body_is_skipped(const struct parse_head *head)
{
    return head->content_length == 0
               ? !head->chunked
               : head->content_length <= CONN_READ_SIZE && !head->expect_continue;
}

/* Answers with the refusal of admit. The request ends with its head. */
static void head_refuse(struct conn *c, const struct http_verdict *verdict)
{
    struct http_server *s = c->server;
    const struct parse_head *head = &s->head;
    bool goes_on = body_is_skipped(head);
    struct http_request *req = request_new(c);
    request_name(req, head->request_id);
    request_fill(c, req);
    req->close |= !goes_on;
    c->refused |= !goes_on;
    c->last |= req->close;
    c->skip = head->content_length;
    c->head_len = 0;
    net_count(s, requests_open, 1);
    http_respond(req, verdict->status, "application/problem+json", verdict->headers,
                 verdict->body.data, verdict->body.len);
}

/* The head is whole: finds out whether the request may come in, and how much body may follow. When
 * admit refuses, c->head_len is 0 again. */
static enum status head_begin(struct conn *c, const char *data, const char **why)
{
    struct http_server *s = c->server;
    struct parse_head *head = &s->head;
    enum status status = parse_head(head, data, c->head_len, s->limits.headers_max, why);
    if (status)
        return status;
    c->chunked = head->chunked;
    c->content_length = head->content_length;
    c->chunks = (struct parse_chunks){0};
    struct http_verdict verdict = {0};
    request_fill(c, &s->asked);
    s->hooks.admit(&s->asked, s->hooks.ctx, &verdict);
    if (verdict.status) {
        head_refuse(c, &verdict);
        buf_fini(&verdict.body);
        return STATUS_OK;
    }
    c->pass = verdict.pass;
    if (c->content_length == 0 && !c->chunked)
        return STATUS_OK;
    c->body_max = verdict.body_max;
    if (c->content_length > c->body_max) {
        *why = too_large(c);
        return STATUS_PAYLOAD_TOO_LARGE;
    }
    if (c->content_length > CONN_READ_SIZE && !memory_fits(c, c->content_length)) {
        *why = "There is no room for a body of this size now.";
        return STATUS_OVERLOADED;
    }
    c->continue_due = head->expect_continue;
    c->began_ms = c->window_ms = uv_now(s->loop);
    c->window_len = 0;
    return STATUS_OK;
}

/* Hands the request over. It may be answered, and gone, when the handler returns. */
static void request_deliver(struct conn *c, const char *body, size_t body_len, bool fresh)
{
    struct http_server *s = c->server;
    const struct parse_head *head = &s->head;
    struct http_request *req = request_new(c);
    request_name(req, head->request_id);
    request_fill(c, req);
    req->body = body;
    req->body_len = body_len;
    req->fresh = fresh;
    req->pass = c->pass;
    c->last |= !head->keep_alive;
    c->head_len = 0;
    c->continue_due = false;
    net_count(s, requests, 1);
    net_count(s, requests_open, 1);
    request_charge(req, body_len);
    s->hooks.handle(req, s->hooks.ctx);
}

/* Whether the body is whole. `*end` is where the request ends in data[0, *len). Chunks are decoded
 * in place, and while some are still to come *len shrinks to what the decoded bytes take. */
static enum status body_take(struct conn *c, char *data, size_t *len, size_t *end, bool *whole,
                             const char **why)
{
    if (!c->chunked) {
        *whole = *len - c->head_len >= c->content_length;
        *end = c->head_len + (size_t)c->content_length;
        return STATUS_OK;
    }
    size_t at = c->head_len + c->chunks.decoded;
    size_t used;
    size_t made;
    enum status status =
        parse_chunks(&c->chunks, data + at, *len - at, c->body_max, &used, &made, why);
    if (status == STATUS_PAYLOAD_TOO_LARGE)
        *why = too_large(c);
    *whole = c->chunks.done;
    *end = at + used;
    if (!*whole)
        *len = at + made;
    return status;
}

/* One step: takes the request at the front of data[0, *len) if it is whole. `*end` is how many
 * bytes it took, 0 when more have to come. */
static enum status request_take(struct conn *c, char *data, size_t *len, size_t *end,
                                const char **why)
{
    struct http_server *s = c->server;
    enum status status = STATUS_OK;
    bool fresh = c->head_len == 0;
    *end = 0;
    if (fresh) {
        status = parse_find(data, *len, s->limits.head_max, &c->scanned, &c->head_len, why);
        if (status || c->head_len == 0)
            return status;
        *end = c->head_len;
        status = head_begin(c, data, why);
        if (status || c->head_len == 0)
            return status;
        *end = 0;
    }
    size_t request_end;
    bool whole;
    size_t head_len = c->head_len;
    status = body_take(c, data, len, &request_end, &whole, why);
    if (status)
        return status;
    if (!whole) {
        conn_collect(c); /* a 100 Continue, if it is due */
        return STATUS_OK;
    }
    if (!fresh) {
        status = parse_head(&s->head, data, head_len, s->limits.headers_max, why);
        assert(status == STATUS_OK);
    }
    *end = request_end;
    c->rest = data + request_end;
    request_deliver(c, data + head_len, c->chunked ? c->chunks.decoded : (size_t)c->content_length,
                    fresh);
    c->began_ms = uv_now(s->loop);
    return STATUS_OK;
}

static size_t refused_skip(struct conn *c, size_t len)
{
    size_t n = c->skip < len ? (size_t)c->skip : len;
    c->skip -= n;
    return n;
}

/* Takes requests from data[0, *len) until one is not whole, the connection is full, it has had its
 * last request, or it has had its share of the turn (so that the pipeline of one connection does
 * not keep the others waiting). Returns how many bytes were used; *len may have shrunk. */
static size_t input_take(struct conn *c, char *data, size_t *len)
{
    size_t at = 0;
    c->input_waits = false;
    for (unsigned taken = 0; at < *len && !c->last && !c->broken; taken++) {
        if (c->skip > 0) {
            at += refused_skip(c, *len - at);
            continue;
        }
        if (c->head_len == 0 && (intake_is_full(c) || taken == c->server->limits.pipeline_max)) {
            c->input_waits = true;
            c->waits_turn = c->server->turn;
            break;
        }
        size_t left = *len - at;
        size_t end;
        const char *why = NULL;
        enum status status = request_take(c, data + at, &left, &end, &why);
        if (status) {
            net_count(c->server, parse_errors, status != STATUS_OVERLOADED);
            conn_refuse(c, status, data[at] == TLS_FIRST_BYTE ? not_plain : why);
        } else if (end == 0) {
            *len = at + left;
            break;
        }
        at += end;
        if (c->body_taken) { /* `data` is not ours any more */
            c->body_taken = false;
            c->input_waits = c->in.len > 0;
            c->waits_turn = c->server->turn;
            at = 0;
            break;
        }
    }
    return c->last ? *len : at;
}

bool http_body_take(struct http_request *req, struct buf *memory)
{
    struct conn *c = req->conn;
    const char *end = c && c->in.len > 0 ? c->in.data + c->in.len : NULL;
    if (!end || req->body < c->in.data || req->body >= end)
        return false;
    struct buf rest = {0};
    buf_put(&rest, c->rest, (size_t)(end - c->rest));
    *memory = c->in;
    c->in = rest;
    c->body_taken = c->body_out = req->body_taken = true;
    return true;
}

/* Takes requests from the bytes that were kept in c->in. */
static void input_take_kept(struct conn *c)
{
    size_t used = input_take(c, c->in.data, &c->in.len);
    if (c->in.len > 0)
        buf_consume(&c->in, used);
    if (c->in.len == 0)
        buf_fini(&c->in);
}

void intake_feed(struct conn *c, char *data, size_t len)
{
    if (c->in.len == 0) {
        c->began_ms = uv_now(c->server->loop);
        size_t used = input_take(c, data, &len);
        buf_put(&c->in, data + used, len - used);
        return;
    }
    buf_put(&c->in, data, len);
    input_take_kept(c);
}

bool intake_may_resume(const struct conn *c)
{
    return c->input_waits && !c->closing && !c->last && !intake_is_full(c);
}

void intake_resume(struct conn *c)
{
    if (c->watch == WATCH_NONE)
        c->began_ms = uv_now(c->server->loop);
    input_take_kept(c);
}
