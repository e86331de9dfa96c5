#include "base/log.h"
#include "base/mem.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HEARD_MAX    1024 /* queues; if more have news, every queue is looked at */
#define TICK_MS      200
#define RETRY_MS_MAX 2000
#define PROBE        "probe "
#define PROBE_MS_MAX 2000 /* how long our own notification may take to be heard */
#define DEAF_LOOK_MS 1000 /* how often to look at everything when no notification comes through */

/* News that a shard has not been told yet. */
struct heard {
    uint32_t queues[HEARD_MAX];
    uint32_t count;
    bool all;
};

struct pg_listener {
    uint32_t tag; /* LISTEN_TAG */
    struct pg_shared *shared;
    uv_thread_t thread;
    uv_mutex_t mutex;
    struct heard *heard; /* one for each shard */
    atomic_bool stopping;
    /* The thread's own. */
    bool proven;      /* a notification came through this connection */
    bool deaf;        /* none came, although one was sent */
    int64_t probe_ms; /* monotonic: when it was sent, or when everything was last looked at */
};

#define LISTEN_TAG TAG('h', 'e', 'a', 'r')

static void hear(struct pg_listener *l, const char *payload)
{
    char *end;
    unsigned long id = strtoul(payload, &end, 10);
    bool queue = end != payload && *end == '\0' && id <= UINT32_MAX;
    uv_mutex_lock(&l->mutex);
    for (uint32_t i = 0; i < l->shared->shard_count; i++) {
        struct heard *h = &l->heard[i];
        if (!queue || h->count == HEARD_MAX)
            h->all = true;
        else
            h->queues[h->count++] = (uint32_t)id;
    }
    uv_mutex_unlock(&l->mutex);
}

static void wake_all(struct pg_listener *l)
{
    for (uint32_t i = 0; i < l->shared->shard_count; i++)
        pg_wake(l->shared->shards[i]);
}

static bool run(PGconn *conn, const char *sql)
{
    PGresult *r = PQexec(conn, sql);
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;
    PQclear(r);
    return ok;
}

static void probe_name(const struct pg_listener *l, struct buf *out)
{
    buf_puts(out, PROBE);
    for (size_t i = 0; i < sizeof(l->shared->node); i++)
        buf_printf(out, "%02x", l->shared->node[i]);
}

/* Sends a notification on another connection, to see whether this one hears it. Behind a pooler
 * LISTEN may succeed and yet nothing comes through. The notification has a name of this process,
 * because the pooler may have given us a session that listened for another process and has news for
 * it. */
static bool send_probe(struct pg_listener *l)
{
    struct buf error = {0}, sql = {0};
    PGconn *conn = link_connect(l->shared->listen_conninfo, &error);
    buf_puts(&sql, "NOTIFY triage, '");
    probe_name(l, &sql);
    buf_putc(&sql, '\'');
    bool ok = conn && run(conn, buf_cstr(&sql));
    buf_fini(&error);
    buf_fini(&sql);
    PQfinish(conn);
    l->proven = false;
    l->probe_ms = clock_now().mono_ms;
    return ok;
}

static PGconn *connect_listening(struct pg_listener *l)
{
    struct buf error = {0};
    PGconn *conn = link_connect(l->shared->listen_conninfo, &error);
    buf_fini(&error);
    if (!conn)
        return NULL;
    if (run(conn, "LISTEN triage") && send_probe(l)) {
        hear(l, "queues"); /* notifications sent before now are lost: look at everything */
        wake_all(l);
        return conn;
    }
    PQfinish(conn);
    return NULL;
}

/* When no notifications come through, new messages are found by the regular sweeps. Here the server
 * also looks for queues that others have configured. */
static void mind_deafness(struct pg_listener *l)
{
    int64_t now_ms = clock_now().mono_ms;
    if (l->proven) {
        l->deaf = false;
    } else if (!l->deaf && now_ms - l->probe_ms > PROBE_MS_MAX) {
        l->deaf = true;
        log_warn(
            "postgres: no notifications come through",
            "cause=\"a pooler in transaction mode?\" consequence=\"what others enqueue is seen "
            "within half a second\" remedy=postgres_listen");
    }
    if (l->deaf && now_ms - l->probe_ms > DEAF_LOOK_MS) {
        l->probe_ms = now_ms;
        hear(l, "queues");
    }
}

/* Whether this process sent the notification: then it knows the news from its answers. */
static bool is_own(const struct pg_listener *l, int backend)
{
    bool own = false;
    for (int i = 0; i < LINKS && l->shared->shard_count == 1; i++)
        own = own || link_backend(l->shared->shards[0]->links[i]) == backend;
    return own;
}

static bool listen_once(struct pg_listener *l, PGconn *conn)
{
    struct pollfd p = {.fd = PQsocket(conn), .events = POLLIN};
    if (poll(&p, 1, TICK_MS) < 0 && errno != EINTR)
        return false;
    if (!PQconsumeInput(conn))
        return false;
    bool any = false;
    struct buf own = {0};
    probe_name(l, &own);
    for (PGnotify *n; (n = PQnotifies(conn));) {
        bool probe = strncmp(n->extra, PROBE, strlen(PROBE)) == 0;
        l->proven = l->proven || strcmp(n->extra, buf_cstr(&own)) == 0;
        if (!probe && !is_own(l, n->be_pid)) {
            hear(l, n->extra);
            any = true;
        }
        PQfreemem(n);
    }
    buf_fini(&own);
    if (any)
        wake_all(l);
    return PQstatus(conn) == CONNECTION_OK;
}

static void thread_main(void *arg)
{
    struct pg_listener *l = arg;
    tag_check(l->tag, LISTEN_TAG);
    PGconn *conn = NULL;
    unsigned retry_ms = 50;
    while (!atomic_load(&l->stopping)) {
        if (!conn)
            conn = connect_listening(l);
        if (!conn) {
            uv_sleep(retry_ms);
            retry_ms = retry_ms * 2 > RETRY_MS_MAX ? RETRY_MS_MAX : retry_ms * 2;
        } else if (!listen_once(l, conn)) {
            PQfinish(conn);
            conn = NULL;
        } else {
            retry_ms = 50;
            mind_deafness(l);
        }
    }
    if (conn)
        PQfinish(conn);
}

struct pg_listener *listener_open(struct pg_shared *shared)
{
    struct pg_listener *l = mem_zalloc(sizeof(*l));
    l->tag = LISTEN_TAG;
    l->shared = shared;
    l->heard = mem_zalloc(shared->shard_count * sizeof(*l->heard));
    uv_mutex_init(&l->mutex);
    uv_thread_create(&l->thread, thread_main, l);
    return l;
}

void listener_close(struct pg_listener *l)
{
    atomic_store(&l->stopping, true);
    uv_thread_join(&l->thread);
    uv_mutex_destroy(&l->mutex);
    free(l->heard);
    tag_end(&l->tag, LISTEN_TAG);
    free(l);
}

bool listener_take(struct pg_listener *l, uint32_t shard, void (*each)(void *ctx, uint32_t queue),
                   void *ctx)
{
    assert(shard < l->shared->shard_count);
    struct heard *h = &l->heard[shard];
    uv_mutex_lock(&l->mutex);
    assert(h->count <= HEARD_MAX);
    bool all = h->all;
    for (uint32_t i = 0; i < h->count; i++)
        each(ctx, h->queues[i]);
    h->count = 0;
    h->all = false;
    uv_mutex_unlock(&l->mutex);
    return all;
}
