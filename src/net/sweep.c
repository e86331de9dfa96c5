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

/* How long a body may take depends on how much of it is there, so all are looked at. */
static void sweep_bodies(struct http_server *s)
{
    uint64_t now_ms = uv_now(s->loop);
    struct conn *c = TAILQ_FIRST(&s->watched[WATCH_BODY]);
    while (c) {
        struct conn *next = TAILQ_NEXT(c, watch_link);
        uint64_t got = c->in.len > c->head_len ? c->in.len - c->head_len : 0;
        if (now_ms - c->watch_ms >= s->limits.head_ms + got * 1000 / s->limits.body_rate) {
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
        size_t left = uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp);
        if (left != c->writer_left) {
            c->writer_left = left;
            c->writer_ms = now_ms;
        } else if (now_ms - c->writer_ms >= s->limits.write_ms) {
            net_count(s, timeouts_write, 1);
            conn_close(c);
        }
        c = next;
    }
}

void conn_sweep(struct http_server *s)
{
    sweep_list(s, WATCH_HEAD, s->limits.head_ms, &s->counters.timeouts_head,
               "The request's head took too long.");
    sweep_list(s, WATCH_IDLE, s->limits.idle_ms, &s->counters.timeouts_idle, NULL);
    sweep_list(s, WATCH_LINGER, CONN_LINGER_MS, NULL, NULL);
    sweep_bodies(s);
    sweep_writers(s);
}
