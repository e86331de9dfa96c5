/* The server: settings, threads, serve, drain, stop. */
#include "api/auth.h"
#include "api/rate.h"
#include "base/log.h"
#include "base/mem.h"
#include "openapi.h"
#include "settings.h"
#include "worker.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const int stop_signals[] = {SIGTERM, SIGINT, SIGHUP};
#define SIGNAL_COUNT (sizeof(stop_signals) / sizeof(stop_signals[0]))

struct server {
    struct settings settings;
    struct worker_set set;
    struct broker *broker;
    struct auth_table auth;
    struct rate *rate;
    struct api_options api;
    atomic_bool draining;
    uv_signal_t signals[SIGNAL_COUNT];
    uv_timer_t watch;
    int exit_status;
};

/* Threads: shards first; HTTP on them, or on threads of its own behind them. */
static void make_workers(struct server *s)
{
    const struct settings *c = &s->settings;
    s->set.count = c->shards + c->net_threads;
    s->set.drain_ms = c->drain_seconds * 1000;
    s->set.workers = mem_zalloc(s->set.count * sizeof(*s->set.workers));
    for (uint32_t i = 0; i < s->set.count; i++)
        worker_init(&s->set.workers[i], &s->set, i, i < c->shards,
                    c->net_threads == 0 || i >= c->shards);
}

/* What is true, not what is set. */
static const char *durability(const struct settings *c)
{
    return strcmp(c->engine, "memory") == 0 ? "none" : c->durability_text;
}

static struct engine_options engine_options(const struct settings *c)
{
    return (struct engine_options){
        .kind = c->engine,
        .data_dir = c->data,
        .postgres = c->postgres,
        .postgres_listen = c->postgres_listen,
        .postgres_timeout_ms = (int64_t)c->postgres_timeout_seconds * 1000,
        .durability = c->durability,
        .sync_interval_ms = c->sync_interval_ms,
        .memory_limit = c->memory_limit,
        .disk_reserve = c->disk_reserve,
    };
}

/* A database was named, and another engine is to run: somebody forgot something. */
static bool forgot_engine(const struct settings *c)
{
    return *c->postgres && strcmp(c->engine, "postgres") != 0;
}

static int migrate(const struct settings *c)
{
    struct engine_options options = engine_options(c);
    struct buf report = {0};
    if (forgot_engine(c)) {
        fprintf(stderr, "triaged: --postgres is for --engine postgres, and the engine is %s\n",
                c->engine);
        return 2;
    }
    enum status status = engine_migrate(&options, &report);
    fprintf(status ? stderr : stdout, "triaged: %s\n", buf_cstr(&report));
    buf_fini(&report);
    return status ? 1 : 0;
}

static bool open_broker(struct server *s)
{
    const struct settings *c = &s->settings;
    struct broker_options options = {
        .engine = engine_options(c),
        .auto_create = c->auto_create,
        .max_queues = c->max_queues,
        .inbox_max = c->inbox_max,
    };
    snprintf(options.default_profile, sizeof(options.default_profile), "%s", c->default_profile);
    uv_loop_t *loops[64];
    for (uint32_t i = 0; i < c->shards; i++)
        loops[i] = &s->set.workers[i].loop;
    struct buf error = {0};
    uint64_t started_us = clock_mono_us();
    if (forgot_engine(c))
        log_warn("the database is not used", "engine=%s remedy=\"--engine postgres\"", c->engine);
    enum status status = broker_open(&options, loops, c->shards, &s->broker, &error);
    if (status)
        log_error("cannot open the engine", "engine=%s data=\"%s\" reason=\"%s\"", c->engine,
                  c->data, log_plain(buf_cstr(&error)));
    else
        log_info("engine open", "engine=%s durability=%s took_ms=%llu", c->engine, durability(c),
                 (unsigned long long)(clock_mono_us() - started_us) / 1000);
    buf_fini(&error);
    return status == STATUS_OK;
}

static bool load_tokens(struct server *s)
{
    const struct settings *c = &s->settings;
    if (c->rate_limit > 0)
        s->rate = rate_new(c->rate_limit, c->rate_limit);
    if (!*c->tokens_file)
        return true;
    struct buf error = {0};
    bool ok = auth_load(c->tokens_file, c->rate_limit, &s->auth, &error);
    if (ok && s->auth.count == 0) { /* open to everybody is not what a tokens file means */
        buf_puts(&error, "it has no token in it");
        ok = false;
    }
    if (!ok)
        log_error("cannot read the tokens", "file=%s reason=\"%s\"", c->tokens_file,
                  log_plain(buf_cstr(&error)));
    buf_fini(&error);
    return ok;
}

static void sum_http_counters(void *ctx, struct http_counters *sum)
{
    const struct server *s = ctx;
    *sum = (struct http_counters){0};
    for (uint32_t i = 0; i < s->set.count; i++) {
        if (!s->set.workers[i].http)
            continue;
        struct http_counters one = http_server_counters(s->set.workers[i].http);
#define X(name, meaning) sum->name += one.name;
        HTTP_COUNTERS(X)
#undef X
    }
}

/* A connection is a descriptor; leave some for files. */
static unsigned connections_per_worker(const struct settings *c, unsigned net_workers)
{
    struct rlimit fds;
    unsigned most = c->max_connections;
    if (getrlimit(RLIMIT_NOFILE, &fds) == 0) {
        fds.rlim_cur = fds.rlim_max;
        setrlimit(RLIMIT_NOFILE, &fds);
        unsigned long spare = fds.rlim_max > 2048 ? fds.rlim_max - 1200 : fds.rlim_max / 2;
        if (most > spare) {
            log_warn("fewer connections than configured, for want of file descriptors",
                     "max_connections=%u now=%lu", most, spare);
            most = (unsigned)spare;
        }
    }
    unsigned each = most / net_workers;
    return each > 0 ? each : 1;
}

static bool listen_all(struct server *s)
{
    const struct settings *c = &s->settings;
    s->api = (struct api_options){
        .broker = s->broker,
        .version = TRIAGE_VERSION,
        .engine = c->engine,
        .durability = durability(c),
        .started_ms = clock_now().wall_ms,
        .openapi = openapi_text,
        .openapi_len = openapi_len,
        .draining = &s->draining,
        .auth = s->auth.count > 0 ? &s->auth : NULL,
        .rate = s->rate,
        .http_counters = sum_http_counters,
        .http_counters_ctx = s,
    };
    unsigned net_workers = c->net_threads ? c->net_threads : c->shards;
    struct http_limits limits = http_limits_default();
    limits.connections_max = connections_per_worker(c, net_workers);
    int port = c->port;
    for (uint32_t i = 0; i < s->set.count; i++) {
        struct worker *w = &s->set.workers[i];
        int err = worker_listen(w, s->broker, &s->api, &limits, c->address, port, net_workers > 1);
        if (err) {
            log_error("cannot listen", "address=%s:%d reason=\"%s\"", c->address, port,
                      uv_strerror(err));
            return false;
        }
        if (w->http)
            port = http_server_port(w->http);
    }
    bool v6 = strchr(c->address, ':') != NULL;
    log_info("listening", "address=%s%s%s:%d version=%s shards=%u net_threads=%u", v6 ? "[" : "",
             c->address, v6 ? "]" : "", port, TRIAGE_VERSION, c->shards, c->net_threads);
    return true;
}

/* Stopping */

static void stop_watching(struct server *s)
{
    for (size_t i = 0; i < SIGNAL_COUNT; i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    uv_close((uv_handle_t *)&s->watch, NULL);
}

static void drain(struct server *s)
{
    if (atomic_exchange(&s->draining, true))
        return;
    stop_watching(s);
    worker_stop_all(&s->set);
}

static void on_signal(uv_signal_t *handle, int number)
{
    log_info("draining", "signal=\"%s\"", strsignal(number));
    drain(handle->data);
}

/* An engine that cannot be trusted any more: what memory says and what the disk says may differ.
 * Everything under way is answered 503; a restart recovers what was acknowledged. */
static void on_watch(uv_timer_t *timer)
{
    struct server *s = timer->data;
    struct buf detail = {0};
    if (broker_health(s->broker, &detail) == STATUS_ENGINE_UNAVAILABLE &&
        broker_failed(s->broker)) {
        log_error("the engine failed; stopping", "data=\"%s\" reason=\"%s\"", s->settings.data,
                  log_plain(buf_cstr(&detail)));
        s->exit_status = 1;
        drain(s);
    }
    buf_fini(&detail);
}

static void start_watching(struct server *s)
{
    uv_loop_t *loop = &s->set.workers[0].loop;
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        uv_signal_init(loop, &s->signals[i]);
        s->signals[i].data = s;
        uv_signal_start(&s->signals[i], on_signal, stop_signals[i]);
    }
    uv_timer_init(loop, &s->watch);
    s->watch.data = s;
    uv_timer_start(&s->watch, on_watch, 200, 200);
}

static void serve(struct server *s)
{
    for (uint32_t i = 1; i < s->set.count; i++)
        worker_start(&s->set.workers[i]);
    worker_run(&s->set.workers[0]);
    for (uint32_t i = 1; i < s->set.count; i++)
        worker_join(&s->set.workers[i]);
}

static void close_all(struct server *s)
{
    broker_close(s->broker);
    for (uint32_t i = 0; i < s->set.count; i++)
        worker_fini(&s->set.workers[i]);
    auth_fini(&s->auth);
    if (s->rate)
        rate_free(s->rate);
    free(s->set.workers);
    log_info("stopped", "status=%d", s->exit_status);
}

int main(int argc, char **argv)
{
    static struct server server;
    enum settings_outcome outcome = settings_load(&server.settings, argc, argv);
    if (outcome != SETTINGS_RUN)
        return outcome == SETTINGS_EXIT_OK ? 0 : 2;
    log_set_level(server.settings.log_level);
    if (server.settings.migrate)
        return migrate(&server.settings);
    make_workers(&server);
    if (!load_tokens(&server) || !open_broker(&server))
        return 1;
    start_watching(&server); /* before anybody is told that the server is there */
    if (!listen_all(&server))
        return 1;
    serve(&server);
    close_all(&server);
    return server.exit_status;
}
