#include "net/conn.h"

#include <assert.h>
#include <stdlib.h>

/* The life of a connection: what it waits for, its reads and writes, its turn and its end. What
 * its bytes mean is in intake.c, and in greeting.c when they are TLS records. The common answer is
 * one write per loop turn. */

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

bool conn_only_waits(const struct conn *c)
{
    if (c->waiting == 0 || c->out.len + c->sending.len > 0)
        return false;
    const struct http_request *req = STAILQ_FIRST(&c->requests);
    while (req && (req->waits > 0 || req->answered))
        req = STAILQ_NEXT(req, next);
    return !req;
}

/* No clock runs: its requests are under way. */
static void watch_none(struct conn *c)
{
    if (!conn_only_waits(c))
        watch_set(c, WATCH_NONE, 0);
    else if (c->watch != WATCH_WAIT)
        watch_set(c, WATCH_WAIT, uv_now(c->server->loop));
}

void conn_watch(struct conn *c)
{
    uint64_t now_ms = uv_now(c->server->loop);
    if (c->shut)
        watch_set(c, WATCH_LINGER, c->watch == WATCH_LINGER ? c->watch_ms : now_ms);
    else if (c->last || c->ended)
        watch_none(c);
    else if (c->tls && !c->tls->greeted)
        watch_set(c, WATCH_GREETING, c->began_ms);
    else if (c->head_len > 0)
        watch_set(c, WATCH_BODY, c->began_ms);
    else if ((c->in.len > 0 || (c->tls && tls_stream_is_partial(c->tls))) && !intake_is_full(c))
        watch_set(c, WATCH_HEAD, c->began_ms);
    else if (c->request_count == 0 && conn_unsent(c) == 0)
        watch_set(c, WATCH_IDLE, now_ms);
    else
        watch_none(c);
}

/* Requests leave the list before their on_hangup is called; one that an on_hangup answers while it
 * is still in the list is only marked, and freed here. */
static void requests_cut_off(struct conn *c)
{
    struct http_request *req;
    while ((req = STAILQ_FIRST(&c->requests))) {
        STAILQ_REMOVE_HEAD(&c->requests, next);
        assert(c->request_count > 0);
        assert(req->conn == c);
        c->request_count--;
        if (req->answered) {
            request_free(req);
            continue;
        }
        net_count(c->server, hangups, 1);
        stream_leave(req);
        request_orphan(req);
        if (req->on_hangup)
            req->on_hangup(req);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *c = conn_of(handle->data);
    struct http_server *s = c->server;
    assert(c->closing);
    assert(c->request_count == 0);
    assert(s->conn_count > 0);
    assert(s->over_count >= c->over);
    TAILQ_REMOVE(&s->conns, c, all);
    s->conn_count--;
    s->over_count -= c->over;
    net_count(s, connections_open, -1);
    buf_fini(&c->sending);
    account_close(c->account);
    tag_end(&c->tag, CONN_TAG);
    free(c);
    server_handle_closed(s);
}

void conn_close(struct conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    struct http_server *s = c->server;
    if (c->tls)
        records_end(c);
    if (c->dirty)
        TAILQ_REMOVE(&s->dirty, c, dirty_link);
    if (c->late)
        TAILQ_REMOVE(&s->late, c, late_link);
    watch_set(c, WATCH_NONE, 0);
    if (c->sending.len > 0)
        TAILQ_REMOVE(&s->writers, c, writer_link);
    buf_fini(&c->in);
    buffer_retire(s, &c->out);
    memory_give_back(c);
    uv_close(&c->io.handle, on_closed);
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

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *b)
{
    (void)suggested;
    struct conn *c = conn_of(handle->data);
    *b = uv_buf_init(c->server->input, CONN_READ_SIZE);
}

/* Whether there is room for more bytes behind the input that waits. */
static bool has_room(const struct conn *c)
{
    return c->head_len > 0 || c->in.len < CONN_READ_SIZE + c->server->limits.head_max;
}

static void reading_stop(struct conn *c)
{
    c->reading = false;
    uv_read_stop(&c->io.stream);
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *b)
{
    struct conn *c = conn_of(stream->data);
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
        else if (c->tls)
            records_feed(c, b->base, (size_t)nread);
        else
            intake_feed(c, b->base, (size_t)nread);
    }
    if (!c->closing && !has_room(c))
        reading_stop(c);
    conn_touch(c);
}

/* Reading goes on while requests are under way, to notice a peer that leaves. It stops only for a
 * peer that sends more than can be kept, or that goes on asking without reading its answers. */
static void reading_update(struct conn *c)
{
    bool deaf = c->input_waits && conn_unsent(c) > CONN_PAUSE_SIZE;
    bool wanted =
        has_room(c) && !deaf && !c->starved && !c->ended && c->discarded <= CONN_DISCARD_MAX;
    if (wanted == c->reading)
        return;
    if (!wanted) {
        reading_stop(c);
        return;
    }
    c->reading = true;
    if (uv_read_start(&c->io.stream, on_alloc, on_read) < 0)
        conn_close(c);
}

static void on_written(uv_write_t *write, int status)
{
    struct conn *c = conn_of(write->data);
    if (c->closing)
        return;
    assert(c->sending.len > 0);
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
    assert(c->sending.len == 0);
    assert(written < c->out.len);
    c->sending = c->out;
    c->out = (struct buf){0};
    uv_buf_t rest = uv_buf_init(c->sending.data + written, (unsigned)(c->sending.len - written));
    c->sending.len -= written;
    c->writer_left = c->sending.len;
    c->writer_ms = uv_now(c->server->loop);
    c->write.data = c;
    TAILQ_INSERT_TAIL(&c->server->writers, c, writer_link);
    if (uv_write(&c->write, &c->io.stream, &rest, 1, on_written) < 0)
        conn_close(c);
}

/* Under TLS the output consists of records: those with answers, and those of TLS itself. */
static void output_seal(struct conn *c)
{
    struct tls_stream *t = c->tls;
    buffer_reuse(c->server, &t->records);
    tls_stream_write(t, c->out.data, c->out.len);
    buffer_retire(c->server, &c->out);
    c->out = t->records;
    t->records = (struct buf){0};
    c->broken |= t->failed;
}

static void output_write(struct conn *c)
{
    if (c->tls && c->sending.len == 0 && c->out.len + c->tls->records.len > 0)
        output_seal(c);
    if (c->out.len == 0 || c->sending.len > 0)
        return;
    uv_buf_t all = uv_buf_init(c->out.data, (unsigned)c->out.len);
    int n = uv_try_write(&c->io.stream, &all, 1);
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
    if (c->tls) {
        tls_stream_end(c->tls);
        output_write(c);
        if (c->closing || c->sending.len > 0)
            return;
    }
    c->shut = true;
    if (uv_shutdown(&c->shutdown, &c->io.stream, on_shut) < 0)
        conn_close(c);
}

void conn_end_turn(struct conn *c)
{
    if (c->broken || (c->ended && someone_waits(c))) {
        conn_close(c);
        return;
    }
    if (c->greeting_waits)
        greeting_resume(c);
    if (c->closing)
        return;
    if (intake_may_resume(c) && c->waits_turn != c->server->turn)
        intake_resume(c);
    if (c->stream)
        stream_go_on(c);
    output_write(c);
    if (c->closing)
        return;
    if (c->broken) {
        conn_close(c);
        return;
    }
    bool more = intake_may_resume(c);
    bool over = c->last || c->ended || (c->server->draining && c->in.len == 0);
    if (over && c->request_count == 0 && conn_unsent(c) == 0 && !more)
        output_end(c);
    if (c->closing)
        return;
    memory_count(c);
    if (c->closing)
        return;
    reading_update(c);
    if (c->closing)
        return;
    if (more)
        conn_postpone(c);
    conn_watch(c);
}
