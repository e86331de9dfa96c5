#include "net/server.h"

#include "base/limits.h"
#include "base/mem.h"
#include "net/conn.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>

/* The turn of the loop; drain and close. */

struct http_limits http_limits_default(void)
{
    return (struct http_limits){
        .head_max = HTTP_HEAD_MAX,
        .headers_max = HTTP_HEADERS_MAX,
        .connections_max = HTTP_CONNECTIONS_MAX,
        .accepts_max = HTTP_ACCEPTS_MAX,
        .handshakes_max = HTTP_HANDSHAKES_MAX,
        .pipeline_max = HTTP_PIPELINE_MAX,
        .head_ms = HTTP_HEAD_MS_MAX,
        .body_rate = HTTP_BODY_RATE_MIN,
        .body_ms = HTTP_BODY_MS,
        .idle_ms = HTTP_IDLE_MS_MAX,
        .write_ms = HTTP_WRITE_MS_MAX,
        .hold_ms = HTTP_HOLD_MS_MAX,
        .output_max = HTTP_OUTPUT_MAX,
        .buffers_max = HTTP_BUFFERS_MAX,
        .waiting_max = HTTP_CONNECTIONS_MAX,
    };
}

void http_server_flush(struct http_server *s)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->dirty))) {
        TAILQ_REMOVE(&s->dirty, c, dirty_link);
        c->dirty = false;
        conn_end_turn(c);
    }
}

static void conns_close(struct http_server *s)
{
    for (struct conn *c = TAILQ_FIRST(&s->conns); c; c = TAILQ_NEXT(c, all))
        conn_close(c);
}

static void drain_check(struct http_server *s)
{
    if (!s->drained || s->closing)
        return;
    if (s->conn_count > 0) {
        if (uv_now(s->loop) >= s->drain_ms)
            conns_close(s);
        return;
    }
    http_server_done *done = s->drained;
    s->drained = NULL;
    done(s, s->drained_arg);
}

/* Does nothing: an active idle handle keeps the loop from sleeping while some connection is late.
 */
static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

void conn_postpone(struct conn *c)
{
    struct http_server *s = c->server;
    if (c->late)
        return;
    c->late = true;
    TAILQ_INSERT_TAIL(&s->late, c, late_link);
    uv_idle_start(&s->idle, on_idle);
}

static void late_resume(struct http_server *s)
{
    struct conn *c;
    while ((c = TAILQ_FIRST(&s->late))) {
        TAILQ_REMOVE(&s->late, c, late_link);
        c->late = false;
        conn_touch(c);
    }
    uv_idle_stop(&s->idle);
}

static void on_check(uv_check_t *check)
{
    struct http_server *s = server_of(check->data);
    if (!TAILQ_EMPTY(&s->late))
        late_resume(s);
    http_server_flush(s);
}

/* The turn of the loop ends here. Connections that are late go on in the next one. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct http_server *s = server_of(prepare->data);
    server_accept(s);
    http_server_flush(s);
    s->turn++;
    drain_check(s);
}

static void on_sweep(uv_timer_t *timer)
{
    conn_sweep(server_of(timer->data));
}

static void id_prefix_init(struct http_server *s)
{
    uint32_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        random = (uint32_t)uv_hrtime();
    for (int i = 0; i < 8; i++)
        s->id_prefix[i] = "0123456789abcdef"[random >> (4 * i) & 15];
    s->id_prefix[8] = '-';
}

static void handles_init(struct http_server *s)
{
    uv_timer_init(s->loop, &s->sweep);
    uv_check_init(s->loop, &s->check);
    uv_prepare_init(s->loop, &s->prepare);
    uv_idle_init(s->loop, &s->idle);
    s->sweep.data = s->check.data = s->prepare.data = s->idle.data = s;
    uv_timer_start(&s->sweep, on_sweep, SERVER_SWEEP_MS, SERVER_SWEEP_MS);
    uv_check_start(&s->check, on_check);
    uv_prepare_start(&s->prepare, on_prepare);
    uv_unref((uv_handle_t *)&s->sweep);
    uv_unref((uv_handle_t *)&s->check);
    uv_unref((uv_handle_t *)&s->prepare);
    uv_unref((uv_handle_t *)&s->idle);
    s->handle_count = 4;
}

static struct budget *budget_own(const struct http_limits *limits)
{
    struct budget_limits own = {
        .max = {[BUDGET_BYTES] = limits->buffers_max, [BUDGET_WAITING] = limits->waiting_max},
        .connections_max = limits->address_max,
    };
    return budget_new(&own);
}

static_assert(HTTP_HEAD_MAX <= CONN_READ_SIZE, "a whole head fits behind one read");
static_assert(HTTP_PATH_MAX < HTTP_HEAD_MAX, "a path is part of a head");
static_assert(HTTP_BUFFERS_MIN > HTTP_BODY_MAX, "the largest body has room");
static_assert(HTTP_BUFFERS_MIN <= HTTP_BUFFERS_MAX, "the default is allowed");
static_assert(HTTP_OUTPUT_MAX > CONN_PAUSE_SIZE, "a connection is paused before it is cut off");
static_assert(HTTP_BODY_RATE_MIN > 0, "a rate is divided by");

struct http_server *http_server_new(struct uv_loop_s *loop, const struct http_hooks *hooks,
                                    const struct http_limits *limits)
{
    assert(hooks->handle);
    assert(hooks->admit);
    assert(hooks->problem);
    /* libuv writes without MSG_NOSIGNAL, and any peer may leave before its answer. */
    signal(SIGPIPE, SIG_IGN);
    struct http_server *s = mem_zalloc(sizeof(*s));
    s->tag = SERVER_TAG;
    s->loop = loop;
    s->hooks = *hooks;
    s->limits = limits ? *limits : http_limits_default();
    assert(s->limits.headers_max <= HTTP_HEADERS_MAX);
    assert(s->limits.accepts_max > 0);
    assert(s->limits.handshakes_max > 0);
    assert(s->limits.handshakes_max <= HTTP_HANDSHAKES_MAX);
    assert(s->limits.pipeline_max > 0);
    assert(s->limits.body_rate > 0);
    assert(s->limits.hold_ms > 0);
    TAILQ_INIT(&s->listeners);
    TAILQ_INIT(&s->conns);
    TAILQ_INIT(&s->dirty);
    TAILQ_INIT(&s->late);
    TAILQ_INIT(&s->writers);
    TAILQ_INIT(&s->charged);
    TAILQ_INIT(&s->streams);
    for (int i = 0; i < WATCH_COUNT; i++)
        TAILQ_INIT(&s->watched[i]);
    STAILQ_INIT(&s->request_pool);
    s->budget = s->limits.budget;
    if (!s->budget)
        s->budget = s->own_budget = budget_own(&s->limits);
    s->date_s = UINT64_MAX;
    id_prefix_init(s);
    handles_init(s);
    return s;
}

void http_server_drain(struct http_server *s, uint64_t drain_ms, http_server_done *done, void *arg)
{
    assert(!s->draining);
    assert(!s->closing);
    s->draining = true;
    s->drain_ms = uv_now(s->loop) + drain_ms;
    s->drained = done;
    s->drained_arg = arg;
    server_unlisten(s);
    stream_end_all(s);
    for (struct conn *c = TAILQ_FIRST(&s->conns); c; c = TAILQ_NEXT(c, all))
        conn_touch(c);
    /* The sweep looks at the deadline, so it has to keep the loop alive now. */
    uv_ref((uv_handle_t *)&s->sweep);
}

static void on_handle_closed(uv_handle_t *handle)
{
    server_handle_closed(server_of(handle->data));
}

void http_server_close(struct http_server *s, http_server_done *done, void *arg)
{
    assert(!s->closing);
    s->closing = true;
    s->closed = done;
    s->closed_arg = arg;
    server_unlisten(s);
    conns_close(s);
    uv_close((uv_handle_t *)&s->sweep, on_handle_closed);
    uv_close((uv_handle_t *)&s->check, on_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&s->idle, on_handle_closed);
}

void server_handle_closed(struct http_server *s)
{
    assert(s->handle_count > 0);
    if (--s->handle_count > 0)
        return;
    http_server_done *done = s->closed;
    s->closed = NULL;
    if (done)
        done(s, s->closed_arg);
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    assert(s->handle_count == 0);
    assert(s->counters.requests_open == 0);
    struct http_request *req;
    while ((req = STAILQ_FIRST(&s->request_pool))) {
        STAILQ_REMOVE_HEAD(&s->request_pool, next);
        free(req);
    }
    for (unsigned i = 0; i < s->spare_count; i++)
        buf_fini(&s->spare[i]);
    budget_free(s->own_budget);
    tag_end(&s->tag, SERVER_TAG);
    free(s);
}

struct http_counters http_server_counters(const struct http_server *s)
{
    struct http_counters c;
#define X(name, meaning) c.name = __atomic_load_n(&s->counters.name, __ATOMIC_RELAXED);
    HTTP_COUNTERS(X)
#undef X
    return c;
}
