/* GET /metrics: every counter of the server in Prometheus' text format, out of
 * one table. */
#define _GNU_SOURCE /* memmem */
#include "api/metrics.h"

#include "api/guard.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>

struct facts {
    uint64_t started_ms;
    uint64_t draining;
    uint64_t speaks;
};

#define GAUGE   "gauge"
#define COUNTER "counter"
#define BUCKETS "histogram"
#define QUEUE(name, type, help, member)                                                            \
    {                                                                                              \
        "triage_queue_" name, type, help, OF_QUEUE, offsetof(struct queue_row, member), PLAIN      \
    }
#define TOTAL(member, help) QUEUE(#member "_total", COUNTER, help, totals.member)
#define BROKER(name, type, help, member)                                                           \
    {                                                                                              \
        "triage_broker_" name, type, help, OF_BROKER, offsetof(struct broker_counters, member),    \
            PLAIN                                                                                  \
    }
#define ENGINE(name, type, help, member, unit)                                                     \
    {                                                                                              \
        "triage_engine_" name, type, help, OF_ENGINE, offsetof(struct engine_counters, member),    \
            unit                                                                                   \
    }
#define LOOP(name, type, help, member, unit)                                                       \
    {                                                                                              \
        "triage_loop_" name, type, help, OF_LOOP, offsetof(struct turn_counters, member), unit     \
    }

static const struct metric metrics[] = {
    {"process_start_time_seconds", GAUGE, "Start of the process since the epoch.", OF_SERVER,
     offsetof(struct facts, started_ms), MILLI},
    {"triage_draining", GAUGE, "1 while the server shuts down.", OF_SERVER,
     offsetof(struct facts, draining), PLAIN},
    {"triage_alerts_sender", GAUGE,
     "1 on the server that sends the webhooks of all servers on the store.", OF_SERVER,
     offsetof(struct facts, speaks), PLAIN},

    {"triage_requests_refused_total", COUNTER,
     "Requests that were not let in, before their bodies were read.", OF_REFUSAL, 0, PLAIN},

    QUEUE("ready", GAUGE, "Messages that can be claimed.", ready),
    QUEUE("scheduled", GAUGE, "Messages whose delay has not passed.", scheduled),
    QUEUE("in_flight", GAUGE, "Messages that consumers hold.", leased),
    QUEUE("dead", GAUGE, "Dead letters.", dead),
    QUEUE("bytes", GAUGE, "Payload and metadata of ready and scheduled messages.", bytes),
    QUEUE("paused", GAUGE, "1 while claims are paused.", paused),
    {"triage_queue_waiting_consumers", GAUGE, "Claims that wait for a message.", OF_WAITERS,
     offsetof(struct queue_row, waiting), PLAIN},
    {"triage_queue_oldest_ready_seconds", GAUGE, "Age of the oldest ready message.", OF_QUEUE,
     offsetof(struct queue_row, oldest_ms), MILLI},
    {"triage_queue_level_ready", GAUGE, "Messages that can be claimed, by level.", OF_LEVEL, 0,
     PLAIN},
    {"triage_queue_alert", GAUGE, "1 while a threshold of the queue's alerts is reached.", OF_ALERT,
     0, PLAIN},
    {"triage_queue_wait_seconds", BUCKETS,
     "How long messages that this server delivered had been ready, by level.", OF_WAIT, 0, MILLI},
    {"triage_queue_lease_seconds", BUCKETS,
     "How long messages that were settled with this server had been held, by level.", OF_LEASE, 0,
     MILLI},
    TOTAL(enqueued, "Messages stored."),
    TOTAL(claimed, "Deliveries."),
    TOTAL(acked, "Messages acknowledged."),
    TOTAL(nacked, "Deliveries given back as failed."),
    TOTAL(released, "Deliveries given back unharmed."),
    TOTAL(lease_expired, "Deliveries whose lease ran out."),
    TOTAL(expired, "Messages whose time to live passed."),
    TOTAL(dead, "Messages that became dead letters."),
    TOTAL(deduplicated, "Enqueues that matched an earlier dedup key."),
    TOTAL(redelivered, "Deliveries after the first."),
    TOTAL(cancelled, "Messages cancelled or purged."),
    TOTAL(redriven, "Dead letters made ready again."),
    TOTAL(aged, "Deliveries of messages that had aged into a more urgent level."),
    TOTAL(late, "Deliveries after the max_wait of the message's level."),
    TOTAL(escalated, "Messages given another priority."),

    {"triage_broker_requests_total", COUNTER, "Requests to the broker, by kind.", OF_REQUEST,
     offsetof(struct broker_counters, requests), PLAIN},
    BROKER("overloaded_total", COUNTER, "Requests refused because too many were under way.",
           refused_overloaded),
    BROKER("under_way", GAUGE, "Requests under way.", under_way),
    BROKER("waiting", GAUGE, "Claims that wait for a message.", waiting),
    BROKER("wakeups_total", COUNTER, "Waiting claims that were served.", wakeups),
    BROKER("schedules_fired_total", COUNTER, "Due times of schedules that had their message.",
           fired),
    BROKER("webhooks_lost_total", COUNTER, "Webhooks of alerts that were dropped or given up.",
           webhooks_lost),
    BROKER("history_bytes", GAUGE, "Memory that the history of queues takes.", history_bytes),

    {"triage_engine_ops_total", COUNTER, "Operations of the engine, by verb.", OF_VERB,
     offsetof(struct engine_counters, ops), PLAIN},
    ENGINE("commits_total", COUNTER, "Groups made durable.", groups, PLAIN),
    ENGINE("committed_ops_total", COUNTER, "Operations in those groups.", group_ops, PLAIN),
    ENGINE("commit_seconds_total", COUNTER, "Time spent making them durable.", commit_us, MICRO),
    {"triage_engine_commit_duration_seconds", BUCKETS, "How long it took to make a group durable.",
     OF_COMMITS, 0, MICRO},
    {NULL, NULL, NULL, OF_OWN, 0, PLAIN},

    LOOP("turns_total", COUNTER, "Turns of the event loops.", turns, PLAIN),
    LOOP("slow_turns_total", COUNTER, "Those that took longer than 10 ms.", slow, PLAIN),
    LOOP("turn_seconds_max", GAUGE, "The longest turn of the last one to two minutes.", max_us,
         MICRO),
    {"triage_loop_turn_seconds", BUCKETS, "How long turns of the event loops took.", OF_TURNS, 0,
     MICRO},

    {"triage_http_request_duration_seconds", BUCKETS,
     "How long requests took, from the whole request to its answer.", OF_ROUTES, 0, MICRO},
#define X(name, meaning)                                                                           \
    {"triage_http_" #name, NULL, meaning, OF_HTTP, offsetof(struct http_counters, name), PLAIN},
    HTTP_COUNTERS(X)
#undef X
#define X(name, meaning)                                                                           \
    {"triage_http_" #name, NULL, meaning, OF_BUDGET, offsetof(struct budget_counters, name), PLAIN},
        BUDGET_COUNTERS(X)
#undef X
};

static const char *const request_names[REQUEST_KIND_COUNT] = {
    [REQUEST_PUT] = "put",
    [REQUEST_SETTLE] = "settle",
    [REQUEST_CANCEL] = "cancel",
    [REQUEST_GET] = "get",
    [REQUEST_PROMOTE] = "promote",
    [REQUEST_LIST] = "list",
    [REQUEST_CLAIM] = "claim",
    [REQUEST_PURGE] = "purge",
    [REQUEST_REDRIVE] = "redrive",
    [REQUEST_DEAD_DROP] = "drop",
    [REQUEST_CONFIGURE] = "configure",
    [REQUEST_DELETE] = "delete",
    [REQUEST_QUEUE] = "queue",
    [REQUEST_QUEUES] = "queues",
    [REQUEST_STATS] = "stats",
    [REQUEST_ESCALATE] = "move",
    [REQUEST_ESCALATE_ALL] = "move_bulk",
    [REQUEST_MATCHING] = "matching",
    [REQUEST_POSITION] = "position",
    [REQUEST_IMPORT] = "import",
    [REQUEST_SCHEDULE_SET] = "schedule_set",
    [REQUEST_SCHEDULE] = "schedule",
    [REQUEST_PLACEMENT] = "placement",
    [REQUEST_CELL] = "cell",
    [REQUEST_LOOK] = "look",
    [REQUEST_CLAIM_MANY] = "claim_many",
};

#define METRIC_COUNT (sizeof(metrics) / sizeof(metrics[0]))
static_assert(METRIC_COUNT <= METRICS_MAX, "each metric has its samples");

const struct metric *metric_at(size_t i)
{
    return i < METRIC_COUNT ? &metrics[i] : NULL;
}

enum scope scope_of(enum source source)
{
    bool store = source == OF_QUEUE || source == OF_LEVEL || source == OF_ALERT;
    return store ? SCOPE_STORE : SCOPE_SERVER;
}

struct metrics {
    struct facts facts;
    struct broker_counters broker;
    struct engine_counters engine;
    struct http_counters http;
    struct turn_counters turns;
    uint64_t refused[STATUS_COUNT];
    struct budget_counters budget;
    struct request_times *times;
    const struct gathered *gathered;
};

static uint64_t value_at(const void *base, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)base + offset, sizeof(value));
    return value;
}

static void put_array(struct buf *out, const struct metric *m, const void *base, const char *label,
                      const char *const names[], int count)
{
    for (int i = 0; i < count; i++) {
        if (names[i])
            exposition_sample(out, m->name, label, names[i],
                              value_at(base, m->offset + (size_t)i * sizeof(uint64_t)), m->unit);
    }
}

static void put_routes(struct buf *out, const struct metric *m, const struct metrics *all)
{
    static const char *const verbs[] = {[VERB_GET] = "GET",
                                        [VERB_POST] = "POST",
                                        [VERB_PUT] = "PUT",
                                        [VERB_PATCH] = "PATCH",
                                        [VERB_DELETE] = "DELETE"};
    struct exemplar exemplars[DURATION_BUCKETS];
    struct durations sum;
    const struct route *route;
    for (size_t i = 0; (route = route_at(i)); i++) {
        for (int waits = 0; waits < 2; waits++) {
            char labels[160];
            if (!request_times_sum(all->times, i, waits, &sum, exemplars))
                continue;
            snprintf(labels, sizeof(labels), "method=\"%s\",route=\"%s\",waits=\"%s\"",
                     verbs[route->verb], route->pattern, waits ? "yes" : "no");
            exposition_histogram(out, m->name, labels, &sum, &exposition_works,
                                 all->gathered->open ? exemplars : NULL);
        }
    }
}

static void put_samples(struct buf *out, const struct metric *m, const char *name,
                        const struct metrics *all)
{
    const void *base[] = {
        [OF_BROKER] = &all->broker, [OF_ENGINE] = &all->engine, [OF_HTTP] = &all->http,
        [OF_BUDGET] = &all->budget, [OF_LOOP] = &all->turns,    [OF_SERVER] = &all->facts};
    switch (m->source) {
    case OF_QUEUE:
    case OF_WAITERS:
    case OF_LEVEL:
    case OF_ALERT:
    case OF_WAIT:
    case OF_LEASE: {
        const struct buf *samples = &all->gathered->samples[m - metrics];
        buf_put(out, samples->data, samples->len);
        break;
    }
    case OF_REQUEST:
        put_array(out, m, &all->broker, "kind", request_names, REQUEST_KIND_COUNT);
        break;
    case OF_VERB:
        put_array(out, m, &all->engine, "verb", engine_verb_names, ENGINE_VERB_COUNT);
        break;
    case OF_REFUSAL:
        put_array(out, m, all->refused, "reason", guard_reasons, STATUS_COUNT);
        break;
    case OF_COMMITS:
        exposition_histogram(out, name, "", &all->engine.commits, &exposition_works, NULL);
        break;
    case OF_TURNS:
        exposition_histogram(out, name, "", &all->turns.times, &exposition_turns, NULL);
        break;
    case OF_ROUTES:
        put_routes(out, m, all);
        break;
    default:
        exposition_sample(out, name, NULL, NULL, value_at(base[m->source], m->offset), m->unit);
    }
}

/* net's table does not say which numbers are gauges: those whose name ends in _open or _bytes. */
static bool is_open(const char *name)
{
    size_t len = strlen(name);
    return len > 5 &&
           (strcmp(name + len - 5, "_open") == 0 || strcmp(name + len - 6, "_bytes") == 0);
}

/* A gauge has the name of this counter without its _total. */
static bool shares_name(const char *counter)
{
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        size_t len = metrics[i].name ? strlen(metrics[i].name) : 0;
        if (len > 0 && strncmp(metrics[i].name, counter, len) == 0 &&
            strcmp(counter + len, "_total") == 0)
            return true;
    }
    return false;
}

static void put_metric(struct exposition *x, const struct metric *m, const struct metrics *all)
{
    char name[80];
    const char *type = m->type ? m->type : is_open(m->name) ? GAUGE : COUNTER;
    snprintf(name, sizeof(name), "%s%s", m->name, !m->type && type[0] == 'c' ? "_total" : "");
    exposition_head(x, name, type, m->help, m->type && shares_name(name));
    put_samples(x->out, m, name, all);
}

/* Counters that engines declare. Those of every engine are shown, whichever runs, so that a
 * dashboard finds them; those of the others are 0. */

/* The place of a counter in engine_counters.own; -1: this kind has none of that name. */
static int own_place(const struct engine_kind *kind, const char *name)
{
    uint32_t place = 0;
    for (uint32_t i = 0; kind && i < kind->counter_count; i++) {
        const struct engine_counter *c = &kind->counters[i];
        if (strcmp(c->name, name) == 0)
            return (int)place;
        place += engine_counter_places(c);
    }
    return -1;
}

static bool declared_before(size_t before, const char *name)
{
    bool found = false;
    for (size_t k = 0; k < before && !found; k++)
        found = own_place(engine_kind_at(k), name) >= 0;
    return found;
}

static void put_own_histogram(struct buf *out, const char *name, const uint64_t *places)
{
    struct durations d = {0};
    static_assert(sizeof(d) == ENGINE_HISTOGRAM_PLACES * sizeof(*places), "a place for each");
    if (places)
        memcpy(&d, places, sizeof(d));
    exposition_histogram(out, name, "", &d, &exposition_works, NULL);
}

static void put_own_samples(struct buf *out, const char *name, const struct engine_counter *c,
                            const struct engine_kind *runs, const uint64_t own[])
{
    static const enum unit units[] = {
        [ENGINE_PLAIN] = PLAIN,
        [ENGINE_MILLI] = MILLI,
        [ENGINE_MICRO] = MICRO,
        [ENGINE_MICRO_SIGNED] = MICRO_SIGNED,
    };
    int at = own_place(runs, c->name), after = c->after ? own_place(runs, c->after) : -1;
    if (c->type == ENGINE_HISTOGRAM) {
        put_own_histogram(out, name, at >= 0 ? &own[at] : NULL);
        return;
    }
    if (!c->label) {
        exposition_sample(out, name, NULL, NULL, at >= 0 ? own[at] : 0, units[c->unit]);
        return;
    }
    bool known = at >= 0 && (after < 0 || own[after] > 0);
    for (uint32_t i = 0; known && i < c->label_count; i++) {
        if (c->labels[i])
            exposition_sample(out, name, c->label, c->labels[i], own[at + (int)i], units[c->unit]);
    }
}

static void put_own(struct exposition *x, const struct engine_counter *c,
                    const struct engine_kind *runs, const uint64_t own[])
{
    static const char *const types[] = {
        [ENGINE_COUNTER] = COUNTER, [ENGINE_GAUGE] = GAUGE, [ENGINE_HISTOGRAM] = BUCKETS};
    char name[80];
    snprintf(name, sizeof(name), "triage_%s%s", c->bare ? "" : "engine_", c->name);
    bool quantiles = c->label && strcmp(c->label, "quantile") == 0; /* no gauge may have these */
    exposition_head(x, name, quantiles ? "summary" : types[c->type], c->help, false);
    put_own_samples(x->out, name, c, runs, own);
}

static void put_all_own(struct exposition *x, enum scope scope, const struct engine_kind *runs,
                        const uint64_t own[])
{
    const struct engine_kind *kind;
    for (size_t k = 0; (kind = engine_kind_at(k)); k++) {
        if (strcmp(kind->name, runs->name) == 0)
            kind = runs; /* which has the labels */
        for (uint32_t i = 0; i < kind->counter_count; i++) {
            const struct engine_counter *c = &kind->counters[i];
            if (in_scope(scope, c->of_store ? SCOPE_STORE : SCOPE_SERVER) &&
                !declared_before(k, c->name))
                put_own(x, c, runs, own);
        }
    }
}

static void put_build(struct buf *out, const struct api_options *o)
{
    buf_lit(out, "# HELP triage_build_info What is running.\n# TYPE triage_build_info gauge\n"
                 "triage_build_info{version=\"");
    exposition_label_text(out, o->version);
    buf_lit(out, "\",engine=\"");
    exposition_label_text(out, o->engine);
    buf_lit(out, "\",durability=\"");
    exposition_label_text(out, o->durability);
    buf_lit(out, "\"} 1\n");
}

static void put_up(struct buf *out, struct broker *b)
{
    struct buf why = {0};
    buf_lit(out, "# HELP triage_engine_up Whether the store answers.\n"
                 "# TYPE triage_engine_up gauge\ntriage_engine_up ");
    buf_puts(out, broker_health(b, &why) == STATUS_ENGINE_UNAVAILABLE ? "0\n" : "1\n");
    buf_fini(&why);
}

static size_t gathered_len(const struct gathered *g)
{
    size_t len = 0;
    for (size_t i = 0; i < METRIC_COUNT; i++)
        len += g->samples[i].len;
    return len;
}

static void metrics_read(struct metrics *all, const struct api_options *o)
{
    all->facts = (struct facts){
        .started_ms = (uint64_t)o->started_ms,
        .draining = o->draining && atomic_load(o->draining),
        .speaks = broker_speaks(o->broker),
    };
    broker_counters(o->broker, &all->broker, &all->engine);
    if (o->guard)
        guard_counts(o->guard, all->refused);
    if (o->http_counters)
        o->http_counters(o->http_counters_ctx, &all->http);
    if (o->budget)
        all->budget = budget_counters(o->budget);
    if (o->turn_counters)
        o->turn_counters(o->turn_counters_ctx, &all->turns);
    all->times = o->request_times;
}

/* Whether this server has the numbers: a test may run a part of it. */
static bool is_known(const struct metric *m, const struct api_options *o)
{
    switch (m->source) {
    case OF_HTTP:
        return o->http_counters;
    case OF_BUDGET:
        return o->budget;
    case OF_ROUTES:
        return o->request_times;
    default:
        return true;
    }
}

static void metrics_finish(struct call *c)
{
    static const char plain[] = "text/plain; version=0.0.4; charset=utf-8",
                      open[] = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    const struct api_options *o = &c->api->options;
    const struct gathered *gathered = c->extra;
    struct metrics all = {.gathered = gathered};
    struct exposition x = {.out = &c->out, .open = gathered->open};
    enum scope scope = gathered->scope;
    metrics_read(&all, o);
    buf_reserve(&c->out, gathered_len(gathered)); /* once: it may be many megabytes */
    if (in_scope(scope, SCOPE_SERVER)) {
        put_build(&c->out, o);
        put_up(&c->out, o->broker);
    }
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        const struct metric *m = &metrics[i];
        if (m->source == OF_OWN)
            put_all_own(&x, scope, broker_engine_kind(o->broker), all.engine.own);
        else if (is_known(m, o) && in_scope(scope, scope_of(m->source)))
            put_metric(&x, m, &all);
    }
    if (x.open)
        buf_lit(&c->out, "# EOF\n");
    call_reply_as(c, 200, x.open ? open : plain, NULL);
}

static void metrics_cleanup(struct call *c)
{
    gather_fini(c->extra);
}

static bool take_scope(struct field *f, void *target)
{
    static const char *const names[] = {
        [SCOPE_ALL] = "all", [SCOPE_STORE] = "store", [SCOPE_SERVER] = "server"};
    int scope;
    if (!field_choice(f, names, 3, &scope))
        return false;
    ((struct gathered *)target)->scope = (enum scope)scope;
    return true;
}

static bool take_queue(struct field *f, void *target)
{
    struct gathered *g = target;
    const char *text;
    size_t len;
    if (!field_text(f, 1, QUEUE_NAME_MAX + 1, &text, &len))
        return false;
    size_t fixed = len - (text[len - 1] == '*');
    if (fixed > QUEUE_NAME_MAX || !queue_prefix_valid(text, fixed))
        return field_refuse(f, "must be the name of a queue, or the beginning of names and a *.");
    if (g->pattern_count == QUEUE_PATTERNS_MAX)
        return field_refuse(f, "is given more than %d times.", QUEUE_PATTERNS_MAX);
    memcpy(g->patterns[g->pattern_count++].text, text, len);
    return true;
}

/* Whether the client would rather have OpenMetrics. Prometheus names it first; whoever does not
 * name it gets the older format. */
static bool wants_open(struct http_slice accept)
{
    static const char name[] = "application/openmetrics-text";
    return accept.data && memmem(accept.data, accept.len, name, sizeof(name) - 1);
}

void metrics_get(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("scope", take_scope),
                                              FIELD_REPEATED("queue", take_queue)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct gathered *gathered = c->extra = mem_zalloc(sizeof(*gathered));
    c->cleanup = metrics_cleanup;
    if (!call_query(c, &table, gathered))
        return;
    gathered->open = wants_open(c->http->accept);
    gather_start(c, gathered, metrics_finish);
}
