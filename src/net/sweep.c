#include "net/conn.h"

/* Deadlines. Nothing is started or stopped per request: connections stand in one
 * list per kind of wait, and a timer looks at the lists a few times a second. The
 * lists of heads, idlers and lingerers are in order of time, so that ten thousand
 * connections that are within their time cost one comparison each kind. */

static void sweep_list(struct http_server *s, enum watch watch, uint64_t limit_ms,
                       uint64_t *counter, const char *refusal)
{
    uint64_t now_ms = uv_now(s->loop);
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->watched[watch])) && now_ms - c->watch_ms >= limit_ms) {
        if (counter)
            counter_add(counter, 1);
        if (refusal)
            conn_refuse(c, STATUS_REQUEST_TIMEOUT, refusal);
        else
            conn_close(c);
        if (!c->closing)
            conn_watch(c);
    }
}

/* How many of `bytes` a window has to bring. The more is held for a peer, the faster the peer has
 * to be: otherwise a body of megabytes could drip for hours at the rate of a small one. */
static uint64_t part_of(const struct http_limits *limits, uint64_t bytes, uint64_t window_ms)
{
    return bytes * window_ms / limits->hold_ms;
}

static uint64_t body_part(const struct conn *c)
{
    const struct http_limits *limits = &c->server->limits;
    uint64_t least = limits->body_rate * limits->body_ms / 1000;
    uint64_t size = c->chunked ? c->in.len : c->content_length;
    uint64_t part = part_of(limits, size, limits->body_ms);
    return part > least ? part : least;
}

/* Each window counts for itself: bytes of an earlier window do not make up for silence, because a
 * body that is almost whole takes the most memory. */
static bool body_stalls(struct conn *c, bool late)
{
    const struct http_limits *limits = &c->server->limits;
    uint64_t now_ms = uv_now(c->server->loop);
    if (c->starved || (!late && now_ms - c->window_ms < limits->body_ms))
        return false;
    size_t got =
        c->in.len + (c->tls ? c->tls->since_text : 0); /* a record is read when it is whole */
    uint64_t wanted = c->window_len + body_part(c);
    c->window_ms = now_ms;
    c->window_len = got;
    return !late && got < wanted;
}

static void sweep_bodies(struct http_server *s, bool late)
{
    struct conn *c = TAILQ_FIRST(&s->watched[WATCH_BODY]);
    while (c) {
        struct conn *next = TAILQ_NEXT(c, watch_link);
        if (body_stalls(c, late)) {
            net_count(s, timeouts_body, 1);
            conn_refuse(c, STATUS_REQUEST_TIMEOUT, "The request's body came too slowly.");
            conn_watch(c);
        }
        c = next;
    }
}

static void sweep_writers(struct http_server *s)
{
    uint64_t now_ms = uv_now(s->loop);
    struct conn *c = TAILQ_FIRST(&s->writers);
    while (c) {
        struct conn *next = TAILQ_NEXT(c, writer_link);
        size_t left = uv_stream_get_write_queue_size(&c->io.stream);
        uint64_t part = part_of(&s->limits, conn_unsent(c), s->limits.write_ms);
        if (c->writer_left - left > part) { /* a new window begins as soon as enough was read */
            c->writer_left = left;
            c->writer_ms = now_ms;
        } else if (now_ms - c->writer_ms >= s->limits.write_ms) {
            net_count(s, timeouts_write, 1);
            conn_close(c);
        }
        c = next;
    }
}

/* When the sweep itself is late, the loop has read nothing meanwhile: then bodies get a new
 * window. */
static bool sweep_is_late(struct http_server *s)
{
    uint64_t before_ms = s->swept_ms;
    s->swept_ms = uv_now(s->loop);
    return before_ms > 0 && s->swept_ms - before_ms > 4ul * SERVER_SWEEP_MS;
}

void conn_sweep(struct http_server *s)
{
    bool late = sweep_is_late(s);
    sweep_list(s, WATCH_GREETING, s->limits.head_ms, &s->counters.timeouts_handshake, NULL);
    sweep_list(s, WATCH_HEAD, s->limits.head_ms, &s->counters.timeouts_head,
               "The request's head took too long.");
    sweep_list(s, WATCH_IDLE, s->limits.idle_ms, &s->counters.timeouts_idle, NULL);
    sweep_list(s, WATCH_LINGER, CONN_LINGER_MS, NULL, NULL);
    sweep_bodies(s, late);
    sweep_writers(s);
    stream_tick_all(s);
    memory_sweep(s);
}
