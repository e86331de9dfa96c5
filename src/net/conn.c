#include "net/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* One connection: from bytes to requests, and from output to the kernel.
 *
 * The common request comes whole in one read and is parsed where it lies, in the
 * server's input buffer; only what is left over at the end of a read is copied to
 * the connection. The common answer is one write per loop turn. A request that
 * came in pieces has its head parsed twice, once to know its framing and once when
 * the body is there, because the buffer may have moved in between; that is cheaper
 * than keeping sixty-four headers per connection. */

static size_t unsent(const struct conn *c)
{
    return c->out.len + c->sending.len + c->held;
}

static bool memory_is_short(const struct http_server *s)
{
    return s->counters.buffer_bytes > s->limits.buffers_max;
}

/* Asked between requests only: one that has started is always taken to its end. */
static bool is_full(const struct conn *c)
{
    size_t unsent_max = memory_is_short(c->server) ? 0 : CONN_PAUSE_SIZE;
    return c->request_count >= c->server->limits.pipeline_max || unsent(c) > unsent_max;
}

void conn_touch(struct conn *c)
{
    if (c->dirty || c->closing)
        return;
    c->dirty = true;
    TAILQ_INSERT_TAIL(&c->server->dirty, c, dirty_link);
}

/* An output buffer that is done with goes to the next connection that answers. */
static void buffer_retire(struct http_server *s, struct buf *b)
{
    if (b->cap == 0)
        return;
    if (s->spare_count == CONN_SPARE_MAX || b->cap > CONN_SPARE_SIZE - s->spare_bytes) {
        buf_fini(b);
        return;
    }
    buf_clear(b);
    s->spare_bytes += b->cap;
    s->spare[s->spare_count++] = *b;
    *b = (struct buf){0};
}

static void watch_set(struct conn *c, enum watch watch, uint64_t since_ms)
{
    struct http_server *s = c->server;
    if (c->watch == watch && c->watch_ms == since_ms)
        return;
    if (c->watch != WATCH_NONE)
        TAILQ_REMOVE(&s->watched[c->watch], c, watch_link);
    if (watch != WATCH_NONE)
        TAILQ_INSERT_TAIL(&s->watched[watch], c, watch_link);
    c->watch = watch;
    c->watch_ms = since_ms;
}

void conn_watch(struct conn *c)
{
    uint64_t now_ms = uv_now(c->server->loop);
    if (c->shut)
        watch_set(c, WATCH_LINGER, c->watch == WATCH_LINGER ? c->watch_ms : now_ms);
    else if (c->last || c->ended)
        watch_set(c, WATCH_NONE, 0);
    else if (c->head_len > 0)
        watch_set(c, WATCH_BODY, c->began_ms);
    else if (c->in.len > 0 && !is_full(c))
        watch_set(c, WATCH_HEAD, c->began_ms);
    else if (c->request_count == 0 && unsent(c) == 0)
        watch_set(c, WATCH_IDLE, now_ms);
    else
        watch_set(c, WATCH_NONE, 0);
}

/* Notes what the connection's buffers take, for the server's sum. */
static void memory_account(struct conn *c, size_t bytes)
{
    if (bytes == c->buffer_bytes)
        return;
    net_count(c->server, buffer_bytes, bytes - c->buffer_bytes);
    c->buffer_bytes = bytes;
}

/* Requests leave the list before their on_hangup is called; one that an on_hangup answers while it
 * is still in the list is only marked, and freed here. */
static void requests_cut_off(struct conn *c)
{
    struct http_request *req;
    while ((req = STAILQ_FIRST(&c->requests))) {
        STAILQ_REMOVE_HEAD(&c->requests, next);
        c->request_count--;
        req->conn = NULL;
        if (req->answered) {
            request_free(req);
            continue;
        }
        net_count(c->server, hangups, 1);
        if (req->on_hangup)
            req->on_hangup(req);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct http_server *s = c->server;
    TAILQ_REMOVE(&s->conns, c, all);
    s->conn_count--;
    s->over_count -= c->over;
    net_count(s, connections_open, -1);
    buf_fini(&c->sending);
    free(c);
    server_handle_closed(s);
}

void conn_close(struct conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    struct http_server *s = c->server;
    if (c->dirty)
        TAILQ_REMOVE(&s->dirty, c, dirty_link);
    if (c->late)
        TAILQ_REMOVE(&s->late, c, late_link);
    watch_set(c, WATCH_NONE, 0);
    if (c->sending.len > 0)
        TAILQ_REMOVE(&s->writers, c, writer_link);
    buf_fini(&c->in);
    buffer_retire(s, &c->out);
    memory_account(c, 0);
    uv_close((uv_handle_t *)&c->tcp, on_closed);
    requests_cut_off(c);
}

void conn_refuse(struct conn *c, enum status status, const char *detail)
{
    struct http_server *s = c->server;
    struct http_request *req = request_new(c);
    net_count(s, requests_open, 1);
    request_name(req, (struct http_slice){NULL, 0});
    req->verb = VERB_OTHER;
    req->close = true;
    c->last = true;
    c->refused = true;
    c->continue_due = false;
    c->head_len = 0;
    buf_clear(&c->in);
    struct buf body = {0};
    s->hooks.problem(s->hooks.ctx, status, detail, &body);
    http_respond(req, status_http(status), "application/problem+json",
                 status == STATUS_OVERLOADED ? "Retry-After: 1\r\n" : NULL, body.data, body.len);
    buf_fini(&body);
}

/* The number is the path's own, so the sentence is made each time. */
static const char *too_large(struct conn *c)
{
    struct http_server *s = c->server;
    snprintf(s->too_large, sizeof(s->too_large), "A body on this path has at most %zu bytes.",
             c->body_max);
    return s->too_large;
}

/* The head is whole: settles how much body may follow. */
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
    if (c->content_length == 0 && !c->chunked)
        return STATUS_OK;
    c->body_max = s->hooks.body_limit(s->hooks.ctx, head->verb, head->path.data, head->path.len);
    if (c->content_length > c->body_max) {
        *why = too_large(c);
        return STATUS_PAYLOAD_TOO_LARGE;
    }
    c->continue_due = head->expect_continue;
    c->began_ms = uv_now(s->loop);
    return STATUS_OK;
}

/* Hands the request over. It may be answered, and gone, when the handler returns. */
static void request_deliver(struct conn *c, const char *body, size_t body_len)
{
    struct http_server *s = c->server;
    const struct parse_head *head = &s->head;
    struct http_request *req = request_new(c);
    request_name(req, head->request_id);
    req->verb = head->verb;
    req->path = head->path.data;
    req->path_len = head->path.len;
    req->query = head->query.data;
    req->query_len = head->query.len;
    req->body = body;
    req->body_len = body_len;
    req->content_type = head->content_type;
    req->authorization = head->authorization;
    req->receipt = head->receipt;
    req->head = head;
    req->close = !head->keep_alive;
    req->keep_alive = head->http10;
    c->last |= !head->keep_alive;
    c->head_len = 0;
    c->continue_due = false;
    net_count(s, requests, 1);
    net_count(s, requests_open, 1);
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
    bool parsed = c->head_len == 0;
    *end = 0;
    if (parsed) {
        status = parse_find(data, *len, s->limits.head_max, &c->scanned, &c->head_len, why);
        if (status || c->head_len == 0)
            return status;
        status = head_begin(c, data, why);
        if (status)
            return status;
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
    if (!parsed) {
        status = parse_head(&s->head, data, head_len, s->limits.headers_max, why);
        assert(status == STATUS_OK);
    }
    *end = request_end;
    request_deliver(c, data + head_len, c->chunked ? c->chunks.decoded : (size_t)c->content_length);
    c->began_ms = uv_now(s->loop);
    return STATUS_OK;
}

/* Takes requests from data[0, *len) until one is not whole, or the connection is full or has had
 * its last, or its share of the turn: the pipeline of one does not keep the others waiting. Returns
 * how many bytes were used; *len may have shrunk. */
static size_t input_take(struct conn *c, char *data, size_t *len)
{
    size_t at = 0;
    c->input_waits = false;
    for (unsigned taken = 0; at < *len && !c->last && !c->broken; taken++) {
        if (c->head_len == 0 && (is_full(c) || taken == c->server->limits.pipeline_max)) {
            c->input_waits = true;
            c->waits_turn = c->server->turn;
            break;
        }
        size_t left = *len - at;
        size_t end;
        const char *why = NULL;
        enum status status = request_take(c, data + at, &left, &end, &why);
        if (status) {
            net_count(c->server, parse_errors, 1);
            conn_refuse(c, status, why);
        } else if (end == 0) {
            *len = at + left;
            break;
        }
        at += end;
    }
    return c->last ? *len : at;
}

static void input_feed(struct conn *c, char *data, size_t len)
{
    if (c->in.len == 0) {
        c->began_ms = uv_now(c->server->loop);
        size_t used = input_take(c, data, &len);
        buf_put(&c->in, data + used, len - used);
        return;
    }
    buf_put(&c->in, data, len);
    size_t used = input_take(c, c->in.data, &c->in.len);
    if (c->in.len > 0)
        buf_consume(&c->in, used);
    if (c->in.len == 0)
        buf_fini(&c->in);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *b)
{
    (void)suggested;
    struct conn *c = handle->data;
    *b = uv_buf_init(c->server->input, CONN_READ_SIZE);
}

/* Whether more may be kept behind what waits to be taken. */
static bool has_room(const struct conn *c)
{
    return c->head_len > 0 || c->in.len < CONN_READ_SIZE + c->server->limits.head_max;
}

static void reading_stop(struct conn *c)
{
    c->reading = false;
    uv_read_stop((uv_stream_t *)&c->tcp);
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *b)
{
    struct conn *c = stream->data;
    if (nread == 0)
        return;
    if (nread < 0 && nread != UV_EOF) {
        conn_close(c);
        return;
    }
    if (nread == UV_EOF) {
        c->ended = true;
    } else {
        net_count(c->server, bytes_in, nread);
        if (c->last)
            c->discarded += (size_t)nread;
        else
            input_feed(c, b->base, (size_t)nread);
    }
    if (!has_room(c))
        reading_stop(c);
    conn_touch(c);
}

/* Reading goes on behind requests under way, to notice a peer that leaves; only a peer that also
 * sends more than can be kept, or that asks on without reading its answers, is made to wait. */
static void reading_update(struct conn *c)
{
    bool deaf = c->input_waits && unsent(c) > CONN_PAUSE_SIZE;
    bool wanted = has_room(c) && !deaf && !c->ended && c->discarded <= CONN_DISCARD_MAX;
    if (wanted == c->reading)
        return;
    if (!wanted) {
        reading_stop(c);
        return;
    }
    c->reading = true;
    if (uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) < 0)
        conn_close(c);
}

static void on_written(uv_write_t *write, int status)
{
    struct conn *c = write->data;
    if (c->closing)
        return;
    TAILQ_REMOVE(&c->server->writers, c, writer_link);
    net_count(c->server, bytes_out, c->sending.len);
    c->sending.len = 0;
    buffer_retire(c->server, &c->sending);
    if (status < 0)
        conn_close(c);
    else
        conn_touch(c);
}

/* What the kernel does not take at once waits in `sending`. */
static void output_queue(struct conn *c, size_t written)
{
    c->sending = c->out;
    c->out = (struct buf){0};
    uv_buf_t rest = uv_buf_init(c->sending.data + written, (unsigned)(c->sending.len - written));
    c->sending.len -= written;
    c->writer_left = c->sending.len;
    c->writer_ms = uv_now(c->server->loop);
    c->write.data = c;
    TAILQ_INSERT_TAIL(&c->server->writers, c, writer_link);
    if (uv_write(&c->write, (uv_stream_t *)&c->tcp, &rest, 1, on_written) < 0)
        conn_close(c);
}

static void output_write(struct conn *c)
{
    if (c->out.len == 0 || c->sending.len > 0)
        return;
    uv_buf_t all = uv_buf_init(c->out.data, (unsigned)c->out.len);
    int n = uv_try_write((uv_stream_t *)&c->tcp, &all, 1);
    if (n < 0 && n != UV_EAGAIN) {
        conn_close(c);
        return;
    }
    size_t written = n > 0 ? (size_t)n : 0;
    net_count(c->server, bytes_out, written);
    if (written == c->out.len)
        buffer_retire(c->server, &c->out);
    else
        output_queue(c, written);
}

static bool may_resume(const struct conn *c)
{
    return c->input_waits && !c->closing && !c->last && !is_full(c);
}

/* Input that had to wait for its turn. */
static void input_resume(struct conn *c)
{
    if (c->watch == WATCH_NONE)
        c->began_ms = uv_now(c->server->loop);
    size_t used = input_take(c, c->in.data, &c->in.len);
    if (c->in.len > 0)
        buf_consume(&c->in, used);
    if (c->in.len == 0)
        buf_fini(&c->in);
}

static bool someone_waits(const struct conn *c)
{
    for (struct http_request *req = STAILQ_FIRST(&c->requests); req; req = STAILQ_NEXT(req, next))
        if (!req->answered && req->on_hangup)
            return true;
    return false;
}

static void on_shut(uv_shutdown_t *shutdown, int status)
{
    (void)shutdown;
    (void)status;
}

/* Closing with unread input makes the kernel send a reset, which can overtake the answer; so a
 * client that was refused in the middle of its sending is given time to read why. */
static void output_end(struct conn *c)
{
    if (!c->refused || c->ended || c->discarded > CONN_DISCARD_MAX) {
        conn_close(c);
        return;
    }
    if (c->shut)
        return;
    c->shut = true;
    if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shut) < 0)
        conn_close(c);
}

/* When all connections together hold too much, those in the middle of a large body give way. */
static void memory_update(struct conn *c)
{
    memory_account(c, c->in.cap + c->out.cap + c->sending.cap + c->held);
    if (!memory_is_short(c->server) || c->in.cap <= 2 * CONN_READ_SIZE || c->last)
        return;
    buf_fini(&c->in);
    conn_refuse(c, STATUS_OVERLOADED, "Too much is being received at once.");
}

void conn_settle(struct conn *c)
{
    if (c->broken || (c->ended && someone_waits(c))) {
        conn_close(c);
        return;
    }
    if (may_resume(c) && c->waits_turn != c->server->turn)
        input_resume(c);
    output_write(c);
    if (c->closing)
        return;
    if (c->broken) {
        conn_close(c);
        return;
    }
    bool more = may_resume(c);
    bool over = c->last || c->ended || (c->server->draining && c->in.len == 0);
    if (over && c->request_count == 0 && unsent(c) == 0 && !more)
        output_end(c);
    if (c->closing)
        return;
    memory_update(c);
    reading_update(c);
    if (c->closing)
        return;
    if (more)
        conn_postpone(c);
    conn_watch(c);
}
