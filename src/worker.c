#include "worker.h"

#include <assert.h>
#include <stdlib.h>

static void part_done(struct worker *w);

static void on_net_closed(struct http_server *server, void *arg)
{
    (void)server;
    part_done(arg);
}

static void on_net_drained(struct http_server *server, void *arg)
{
    http_server_close(server, on_net_closed, arg);
}

static void on_shard_drained(void *ctx)
{
    struct worker *w = ctx;
    /* Everything under way is answered: now the connections may end. */
    if (w->has_net)
        http_server_drain(w->http, w->drain_ms, on_net_drained, w);
    part_done(w);
}

static void part_done(struct worker *w)
{
    assert(w->parts_left > 0);
    if (--w->parts_left > 0)
        return;
    broker_close_handles(w->broker, &w->loop);
    uv_close((uv_handle_t *)&w->stop, NULL);
}

static void on_stop(uv_async_t *async)
{
    struct worker *w = async->data;
    if (w->parts_left > 0)
        return; /* already on its way */
    w->parts_left = (unsigned)w->has_shard + (unsigned)w->has_net;
    if (w->has_shard)
        broker_drain(w->broker, w->index, on_shard_drained, w);
    else
        http_server_drain(w->http, w->drain_ms, on_net_drained, w);
}

void worker_init(struct worker *w, uint32_t index, bool has_shard, bool has_net)
{
    *w = (struct worker){.index = index, .has_shard = has_shard, .has_net = has_net};
    if (uv_loop_init(&w->loop) != 0 || uv_async_init(&w->loop, &w->stop, on_stop) != 0)
        abort();
    w->stop.data = w;
}

int worker_listen(struct worker *w, struct broker *b, const struct api_options *options,
                  const struct http_limits *limits, const char *address, int port, bool shared)
{
    w->broker = b;
    if (!w->has_net)
        return 0;
    w->port = broker_port_open(b, &w->loop);
    w->api = api_new(w->port, options);
    struct http_hooks hooks = {api_handle, api_body_limit, api_problem, w->api};
    w->http = http_server_new(&w->loop, &hooks, limits);
    return http_server_listen(w->http, address, port, shared);
}

void worker_run(struct worker *w)
{
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

void worker_stop(struct worker *w, uint32_t drain_ms)
{
    w->drain_ms = drain_ms;
    uv_async_send(&w->stop);
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
