#include "base/turn.h"
#include "net/conn.h"

#include <assert.h>

#define TICKS_SURE 64 /* streams that a sweep ticks even when the turn is long already */

/* Answers that are written piece by piece. Under HTTP/1.1 a piece is a chunk, so that the client
 * can tell the end of the answer from a broken connection; under HTTP/1.0 the end of the connection
 * ends it. A stream writes in its tick alone, and a tick comes only when the kernel has taken
 * everything that was written before: so what is unsent is never more than one tick wrote. */

void http_stream_begin(struct http_request *req, const char *content_type,
                       const char *extra_headers, http_tick *tick)
{
    struct conn *c = req->conn;
    tag_check(req->tag, ASKED_TAG);
    assert(c);
    assert(!c->stream);
    assert(req->on_hangup);
    req->stream.tick = tick;
    req->stream.chunked = !req->keep_alive;
    req->close = true;
    c->last = true;
    c->stream = req;
    TAILQ_INSERT_TAIL(&c->server->streams, req, stream.link);
    response_head(&req->held, req, 200, content_type, extra_headers,
                  req->stream.chunked ? LENGTH_CHUNKED : LENGTH_UNSAID);
    req->held_head_len = req->held.len;
    c->held += req->held.len;
    conn_collect(c);
    http_stream_more(req);
}

void http_stream_more(struct http_request *req)
{
    req->stream.more = true;
    if (req->conn)
        conn_postpone(req->conn);
}

void http_stream_write(struct http_request *req, const void *data, size_t len)
{
    struct conn *c = req->conn;
    assert(c);
    assert(c->stream == req);
    assert(req->stream.begun);
    if (len == 0)
        return;
    buffer_reuse(c->server, &c->out);
    buf_reserve(&c->out, len + 32);
    if (req->stream.chunked)
        buf_printf(&c->out, "%zx\r\n", len);
    buf_put(&c->out, data, len);
    if (req->stream.chunked)
        buf_lit(&c->out, "\r\n");
    conn_touch(c);
}

void http_stream_end(struct http_request *req)
{
    struct conn *c = req->conn;
    tag_check(req->tag, ASKED_TAG);
    assert(req->stream.tick);
    assert(!req->answered);
    net_count(req->server, responses_2xx, 1);
    net_count(req->server, requests_open, -1);
    request_discharge(req);
    if (!c) {
        request_free(req);
        return;
    }
    stream_leave(req);
    req->answered = true;
    if (req->stream.chunked) {
        buf_lit(&req->held, "0\r\n\r\n");
        c->held += 5;
    }
    c->refused = true; /* the client may be sending still, and is to see the end */
    if (!c->closing && !c->broken)
        conn_collect(c);
    conn_touch(c);
}

void stream_leave(struct http_request *req)
{
    struct conn *c = req->conn;
    if (c->stream != req)
        return;
    c->stream = NULL;
    TAILQ_REMOVE(&c->server->streams, req, stream.link);
}

/* Whether the kernel has taken everything, the head of the answer too. */
static bool is_ready(const struct conn *c)
{
    return !c->closing && !c->broken && c->stream->stream.begun && conn_unsent(c) == 0;
}

void stream_go_on(struct conn *c)
{
    struct http_request *req = c->stream;
    if (!req->stream.more || !is_ready(c) || req->stream.turn == c->server->turn)
        return;
    req->stream.more = false;
    req->stream.turn = c->server->turn;
    req->stream.tick(req);
}

/* Of thousands of streams one sweep ticks as many as the turn has time for; they go to the end of
 * the list, so that the next sweep begins with the others. A tick may end its own stream. */
void stream_tick_all(struct http_server *s)
{
    const struct http_request *last = TAILQ_LAST(&s->streams, stream_list);
    bool more = last;
    for (int ticks = 0; more; ticks++) {
        struct http_request *req = TAILQ_FIRST(&s->streams);
        more = req != last && (ticks < TICKS_SURE || turn_us(s->loop) < TURN_SHARE_US);
        TAILQ_REMOVE(&s->streams, req, stream.link);
        TAILQ_INSERT_TAIL(&s->streams, req, stream.link);
        if (is_ready(req->conn)) {
            req->stream.turn = s->turn;
            req->stream.tick(req);
        }
    }
}

void stream_end_all(struct http_server *s)
{
    struct http_request *req = TAILQ_FIRST(&s->streams);
    while (req) {
        struct http_request *next = TAILQ_NEXT(req, stream.link);
        void (*end)(struct http_request * req) = req->on_hangup;
        req->on_hangup = NULL;
        if (end)
            end(req);
        req = next;
    }
}
