/* The server: settings, threads, serve, drain, stop. Or, by a word: migrate, check, salvage; or
 * --check. */
#include "api/auth.h"
#include "api/guard.h"
#include "api/rate.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/random.h"
#include "net/budget.h"
#include "net/tls.h"
#include "triaged/check.h"
#include "triaged/endpoints.h"
#include "triaged/openapi.h"
#include "triaged/rescue.h"
#include "triaged/settings.h"
#include "triaged/worker.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGHUP};
#define SIGNAL_COUNT (sizeof(signal_numbers) / sizeof(signal_numbers[0]))

struct server {
    int argc;
    char **argv;
    struct settings settings;
    struct endpoints endpoints;
    struct tls *tls; /* NULL: there is no certificate */
    struct worker_set set;
    struct broker *broker;
    struct auth *auth; /* NULL: there are no tokens */
    struct guard guard;
    struct rate *rate;
    struct moves *moves;
    struct request_times *request_times;
    struct budget *budget;
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

/* The durability that holds, whatever is set: `memory` has none. */
static const char *durability(const struct settings *c)
{
    return settings_kind(c)->capabilities & ENGINE_DURABLE ? c->durability_text : "none";
}

static int migrate(const struct settings *c)
{
    struct engine_options options = settings_engine(c);
    struct buf report = {0};
    const struct engine_kind *meant;
    const struct engine_setting *unused = settings_unused(c, &meant);
    if (unused) {
        fprintf(stderr, "triaged: --%s is for --engine %s, and the engine is %s\n", unused->name,
                meant->name, c->engine);
        return 2;
    }
    enum status status = engine_migrate(&options, &report);
    fprintf(status ? stderr : stdout, "triaged: %s\n", buf_cstr(&report));
    buf_fini(&report);
    return status ? 1 : 0;
}

static void warn_of_unused(const struct settings *c)
{
    const struct engine_kind *meant;
    const struct engine_setting *unused = settings_unused(c, &meant);
    if (unused)
        log_warn(unused->unused, "engine=%s remedy=\"--engine %s\"", c->engine, meant->name);
}

static bool open_broker(struct server *s)
{
    const struct settings *c = &s->settings;
    struct broker_options options = {
        .engine = settings_engine(c),
        .auto_create = c->auto_create,
        .max_queues = c->max_queues,
        .inbox_max = c->inbox_max,
        .webhook = {.local = c->webhook_local, .cacert = c->webhook_cacert},
    };
    snprintf(options.default_profile, sizeof(options.default_profile), "%s", c->default_profile);
    uv_loop_t *loops[64];
    for (uint32_t i = 0; i < c->shards; i++)
        loops[i] = &s->set.workers[i].loop;
    struct buf error = {0};
    uint64_t started_us = clock_mono_us();
    warn_of_unused(c);
    enum status status = broker_open(&options, loops, c->shards, &s->broker, &error);
    if (status)
        log_error("cannot open the engine", "engine=%s data=\"%s\" reason=\"%s\"", c->engine,
                  settings_engine_place(c), log_plain(buf_cstr(&error)));
    else
        log_info("engine open", "engine=%s durability=%s took_ms=%llu", c->engine, durability(c),
                 (unsigned long long)(clock_mono_us() - started_us) / 1000);
    buf_fini(&error);
    return status == STATUS_OK;
}

/* A line for each mistake, with the place of the setting `key`, or of the one that it begins with.
 */
static void log_mistakes(const struct settings *c, const char *message, const char *key,
                         const char *file, struct buf *error)
{
    char *rest = buf_cstr(error);
    for (char *line; (line = strsep(&rest, "\n"));) {
        char where[SETTINGS_PLACE_MAX];
        settings_place(c, key ? key : line, where);
        where[strlen(where) - (*where ? strlen(": ") : 0)] = '\0';
        log_error(message, "%s%s%sreason=\"%s\" setting=\"%s\"", *file ? "file=" : "", file,
                  *file ? " " : "", log_plain(line), log_plain(where));
    }
}

static bool read_tokens(const struct settings *c, struct auth_table *table)
{
    struct buf error = {0};
    bool ok = auth_load(c->tokens_file, c->rate_limit, table, &error);
    if (ok && table->count == 0) { /* open to everybody is not what a tokens file means */
        buf_puts(&error, "it has no token in it");
        ok = false;
    }
    if (!ok)
        log_mistakes(c, "cannot read the tokens", "tokens_file", c->tokens_file, &error);
    buf_fini(&error);
    return ok;
}

static bool load_tokens(struct server *s)
{
    const struct settings *c = &s->settings;
    struct auth_table table = {0};
    if (c->rate_limit > 0)
        s->rate = rate_new(c->rate_limit, c->rate_limit);
    if (!*c->tokens_file)
        return true;
    if (!read_tokens(c, &table))
        return false;
    s->auth = auth_new(&table);
    return true;
}

/* TLS */

static void log_certificate(const struct server *s)
{
    struct stat key;
    struct buf about = {0};
    tls_describe(s->tls, &about);
    log_info("certificate loaded", "%s", buf_cstr(&about));
    buf_fini(&about);
    if (stat(s->settings.tls_key, &key) == 0 && key.st_mode & S_IROTH)
        log_warn("everybody on this machine can read the key", "file=%s remedy=\"chmod 640\"",
                 s->settings.tls_key);
}

static bool load_tls(struct server *s)
{
    const struct settings *c = &s->settings;
    struct tls_options options = {
        .cert = c->tls_cert,
        .key = c->tls_key,
        .client_ca = c->tls_client_ca,
        .client_required = c->tls_client_required,
    };
    struct buf error = {0};
    if (!*c->tls_cert && endpoints_want_tls(&s->endpoints)) {
        log_error("cannot set up TLS", "reason=\"a socket for TLS takes tls_cert and tls_key\"");
        return false;
    }
    if (!*c->tls_cert)
        return true;
    s->tls = tls_new(&options, &error);
    if (s->tls)
        log_certificate(s);
    else
        log_mistakes(c, "cannot set up TLS", NULL, "", &error);
    buf_fini(&error);
    return s->tls != NULL;
}

/* Sockets from systemd are looked at here; those of the settings were. */
static bool make_guard(struct server *s)
{
    const struct settings *c = &s->settings;
    bool local = endpoints_are_local(&s->endpoints);
    bool locked = s->auth || endpoints_are_locked(&s->endpoints, c->tls_client_required);
    struct buf error = {0};
    bool ok = guard_init(&s->guard, c->allowed_hosts, local, &error);
    if (ok && !locked && !c->insecure) {
        buf_puts(&error, "through a socket of systemd's other machines could do everything; set "
                         "tokens_file or insecure = on");
        ok = false;
    }
    if (!ok)
        log_error("cannot guard the door", "reason=\"%s\"", log_plain(buf_cstr(&error)));
    else if (!locked)
        log_warn("everybody who can connect may do everything", "remedy=tokens_file");
    if (ok && !locked && !*c->allowed_hosts)
        log_warn("any Host is taken, so a web page may have its visitors' browsers do everything",
                 "remedy=allowed_hosts");
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

static void sum_turn_counters(void *ctx, struct turn_counters *sum)
{
    const struct server *s = ctx;
    for (uint32_t i = 0; i < s->set.count; i++)
        turn_watch_add(&s->set.workers[i].turns, sum);
}

/* A connection is a descriptor; leave some for files. */
static unsigned connections_max(const struct settings *c)
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
    return most;
}

/* One for all threads. */
static struct budget *make_budget(const struct settings *c, unsigned connections)
{
    unsigned each = connections - connections / 8;
    struct budget_limits limits = {
        .max = {[BUDGET_BYTES] = c->buffers_limit,
                [BUDGET_WAITING] = c->max_waiting ? c->max_waiting : c->max_connections},
        .connections_max = c->max_connections_per_address ? c->max_connections_per_address : each,
    };
    return budget_new(&limits);
}

static struct http_limits http_limits(struct server *s, unsigned net_workers)
{
    struct http_limits limits = http_limits_default();
    unsigned most = connections_max(&s->settings);
    limits.connections_max = most > net_workers ? most / net_workers : 1;
    limits.budget = s->budget = make_budget(&s->settings, most);
    return limits;
}

static void log_endpoint(const struct server *s, const struct endpoint *e)
{
    struct buf name = {0};
    endpoint_name(e, &name);
    log_info("listening", "address=%s version=%s shards=%u net_threads=%u tls=%s",
             log_plain(buf_cstr(&name)), TRIAGE_VERSION, s->settings.shards,
             s->settings.net_threads, e->tls ? "on" : "off");
    buf_fini(&name);
}

static bool listen_all(struct server *s)
{
    const struct settings *c = &s->settings;
    unsigned net_workers = c->net_threads ? c->net_threads : c->shards;
    struct http_limits limits = http_limits(s, net_workers);
    s->api = (struct api_options){
        .broker = s->broker,
        .version = TRIAGE_VERSION,
        .engine = c->engine,
        .durability = durability(c),
        .started_ms = clock_now().wall_ms,
        .openapi = openapi_text,
        .openapi_len = openapi_len,
        .draining = &s->draining,
        .auth = s->auth,
        .guard = &s->guard,
        .rate = s->rate,
        .http_counters = sum_http_counters,
        .http_counters_ctx = s,
        .budget = s->budget,
        .turn_counters = sum_turn_counters,
        .turn_counters_ctx = s,
        .moves = s->moves = moves_new(),
        .request_times = s->request_times = request_times_new(),
        .metrics_queues = c->metrics_queues,
    };
    bool resumed = false;
    for (uint32_t i = 0; i < s->set.count; i++) {
        struct worker *w = &s->set.workers[i];
        worker_open(w, s->broker, &s->api, &limits);
        if (w->api && !resumed)
            api_resume_moves(w->api);
        resumed = resumed || w->api;
        if (w->http && !endpoints_listen(&s->endpoints, w->http, s->tls, net_workers > 1))
            return false;
    }
    for (unsigned i = 0; i < s->endpoints.count; i++)
        log_endpoint(s, &s->endpoints.items[i]);
    return true;
}

/* Stopping */

/* A second SIGTERM or SIGINT ends it at once; SIGHUP never does. */
static void stop_watching(struct server *s)
{
    for (size_t i = 0; i < SIGNAL_COUNT; i++)
        uv_close((uv_handle_t *)&s->signals[i], NULL);
    signal(SIGHUP, SIG_IGN);
    uv_close((uv_handle_t *)&s->watch, NULL);
}

static void drain(struct server *s)
{
    if (atomic_exchange(&s->draining, true))
        return;
    stop_watching(s);
    endpoints_close(&s->endpoints);
    worker_stop_all(&s->set);
}

/* Reloading: each part by itself, and one with a mistake in it stays as it was. */

static void reload_tls(struct server *s)
{
    struct buf error = {0};
    if (!s->tls)
        return;
    if (tls_reload(s->tls, &error))
        log_certificate(s);
    else
        log_mistakes(&s->settings, "the certificate stays as it was", NULL, "", &error);
    buf_fini(&error);
}

static void reload_tokens(struct server *s)
{
    struct auth_table table = {0};
    if (!s->auth)
        return;
    if (!read_tokens(&s->settings, &table)) {
        log_error("the tokens stay as they were", "file=%s", s->settings.tokens_file);
        return;
    }
    size_t count = table.count;
    auth_replace(s->auth, &table);
    log_info("tokens loaded", "file=%s count=%zu", s->settings.tokens_file, count);
}

static void reload_log_level(struct server *s)
{
    static struct settings fresh;
    if (settings_load(&fresh, s->argc, s->argv) != SETTINGS_RUN) {
        log_error("the log level stays as it was", "reason=\"the settings have a mistake\"");
        return;
    }
    log_set_level(fresh.log_level);
    log_info("settings read", "log_level=%s", log_level_name(fresh.log_level));
}

static void on_signal(uv_signal_t *handle, int number)
{
    if (number == SIGHUP) {
        reload_tls(handle->data);
        reload_tokens(handle->data);
        reload_log_level(handle->data);
        return;
    }
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
        log_error("the engine failed; stopping", "data=\"%s\" reason=\"%s\"",
                  settings_engine_place(&s->settings), log_plain(buf_cstr(&detail)));
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
        uv_signal_start(&s->signals[i], on_signal, signal_numbers[i]);
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
    moves_free(s->moves);
    request_times_free(s->request_times);
    auth_free(s->auth);
    guard_fini(&s->guard);
    rate_free(s->rate);
    budget_free(s->budget);
    tls_free(s->tls);
    free(s->set.workers);
    log_info("stopped", "status=%d", s->exit_status);
}

static void key_maps(void)
{
    uint8_t key[MAP_KEY_BYTES];
    random_bytes(key, sizeof(key));
    map_key(key);
}

int main(int argc, char **argv)
{
    static struct server server;
    if (settings_described(argc, argv))
        return fflush(stdout) == 0 ? 0 : 2;
    if (rescue_wanted(argc, argv))
        return rescue_main(argc, argv);
    server.argc = argc;
    server.argv = argv;
    signal(SIGHUP, SIG_IGN); /* until there is something to read again */
    key_maps();
    enum settings_outcome outcome = settings_load(&server.settings, argc, argv);
    if (outcome == SETTINGS_EXIT_OK)
        return 0;
    if (server.settings.check)
        return check_settings(&server.settings);
    if (outcome != SETTINGS_RUN)
        return 2;
    log_set_level(server.settings.log_level);
    if (server.settings.migrate)
        return migrate(&server.settings);
    make_workers(&server);
    if (!endpoints_open(&server.endpoints, &server.settings))
        return 1;
    if (!load_tokens(&server) || !make_guard(&server) || !load_tls(&server))
        return 2; /* the settings, too, and no restart mends them */
    if (!open_broker(&server))
        return 1;
    start_watching(&server); /* before anybody is told that the server is there */
    if (!listen_all(&server)) {
        endpoints_close(&server.endpoints);
        return 1;
    }
    serve(&server);
    close_all(&server);
    return server.exit_status;
}
