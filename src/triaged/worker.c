#include "triaged/worker.h"
#include "base/log.h"

#include <stdlib.h>

/* The end comes in stages. Each stage waits for all workers, since a request may be with any of
 * them. First the shards answer the requests under way, and park nothing more. Then the connections
 * end. The loops end when no connection can ask anything any more. */
enum { STAGE_SERVING, STAGE_SHARDS, STAGE_NET, STAGE_END };

static void advance(struct worker_set *set, int stage)
{
    unsigned participants = 0;
    for (uint32_t i = 0; i < set->count; i++)
        participants += stage == STAGE_SHARDS ? set->workers[i].has_shard : set->workers[i].has_net;
    atomic_store(&set->left, participants);
    atomic_store(&set->stage, stage);
    for (uint32_t i = 0; i < set->count; i++)
        uv_async_send(&set->workers[i].stop);
}

static void stage_done(struct worker *w)
{
    if (atomic_fetch_sub(&w->set->left, 1) == 1)
        advance(w->set, w->stage + 1);
}

static void on_shard_drained(void *ctx)
{
    stage_done(ctx);
}

static void on_net_closed(struct http_server *server, void *arg)
{
    (void)server;
    stage_done(arg);
}

static void on_net_drained(struct http_server *server, void *arg)
{
    http_server_close(server, on_net_closed, arg);
}

static void on_stop(uv_async_t *async)
{
    struct worker *w = async->data;
    int stage = atomic_load(&w->set->stage);
    if (stage == w->stage)
        return;
    w->stage = stage;
    if (stage == STAGE_SHARDS && w->has_shard) {
        broker_drain(w->broker, w->index, on_shard_drained, w);
    } else if (stage == STAGE_NET && w->has_net) {
        http_server_drain(w->http, w->set->drain_ms, on_net_drained, w);
    } else if (stage == STAGE_END) {
        broker_close_handles(w->broker, &w->loop);
        uv_close((uv_handle_t *)&w->stop, NULL);
        turn_watch_close(&w->turns);
    }
}

void worker_init(struct worker *w, struct worker_set *set, uint32_t index, bool has_shard,
                 bool has_net)
{
    *w = (struct worker){.set = set, .index = index, .has_shard = has_shard, .has_net = has_net};
    if (uv_loop_init(&w->loop) != 0 || uv_async_init(&w->loop, &w->stop, on_stop) != 0)
        abort();
    w->stop.data = w;
    turn_watch_init(&w->turns, &w->loop);
}

void worker_open(struct worker *w, struct broker *b, const struct api_options *options,
                 const struct http_limits *limits)
{
    w->broker = b;
    if (!w->has_net)
        return;
    w->port = broker_port_open(b, &w->loop);
    w->api = api_new(w->port, options);
    api_watch(w->api, &w->turns);
    struct http_hooks hooks = {api_handle, api_admit, api_problem, w->api};
    w->http = http_server_new(&w->loop, &hooks, limits);
}

void worker_run(struct worker *w)
{
    turn_watch_start(&w->turns, log_wants(LOG_DEBUG));
    uv_run(&w->loop, UV_RUN_DEFAULT);
}

static void thread_main(void *arg)
{
    worker_run(arg);
}

void worker_start(struct worker *w)
{
    if (uv_thread_create(&w->thread, thread_main, w) != 0)
        abort();
}

void worker_stop_all(struct worker_set *set)
{
    advance(set, STAGE_SHARDS);
}

void worker_join(struct worker *w)
{
    uv_thread_join(&w->thread);
}

void worker_fini(struct worker *w)
{
    http_server_free(w->http);
    api_free(w->api);
    uv_loop_close(&w->loop);
}
