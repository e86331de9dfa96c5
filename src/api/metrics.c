/* GET /metrics: every counter of the server in Prometheus' text format, out of
 * one table. */
#include "api/call.h"
#include "api/guard.h"
#include "api/stats.h"

#include <stddef.h>
#include <stdio.h>

enum source {
    OF_QUEUE,   /* struct queue_row, one sample per queue, gathered queue by queue */
    OF_WAITERS, /* as OF_QUEUE, but different on each server that shares the store */
    OF_LEVEL,   /* one sample per queue and level, gathered with the rows */
    OF_ALERT,   /* one sample per queue and threshold, gathered with the rows */
    OF_BROKER,  /* struct broker_counters */
    OF_REQUEST, /* its requests[], one sample per kind */
    OF_ENGINE,  /* struct engine_counters */
    OF_VERB,    /* its ops[], one sample per verb */
    OF_OWN,     /* its own[]: a place in the table for what the engines declare */
    OF_HTTP,    /* struct http_counters */
    OF_LOOP,    /* struct turn_counters */
    OF_REFUSAL, /* one sample per reason */
    OF_BUDGET,  /* struct budget_counters */
    OF_SERVER,  /* struct facts */
};

/* Numbers of the store are the same on every server that shares it; the others are each server's
 * own. Whoever adds up the answers of several servers asks for one of the two scopes. */
enum scope { SCOPE_ALL, SCOPE_STORE, SCOPE_SERVER };

static enum scope scope_of(enum source source)
{
    bool store = source == OF_QUEUE || source == OF_LEVEL || source == OF_ALERT;
    return store ? SCOPE_STORE : SCOPE_SERVER;
}

static bool in_scope(enum scope asked, enum scope scope)
{
    return asked == SCOPE_ALL || asked == scope;
}

enum unit {
    PLAIN,
    MILLI,
    MICRO,
    MICRO_SIGNED
}; /* the number is in this part of the unit in the name */

struct metric {
    const char *name;
    const char *type;
    const char *help;
    enum source source;
    size_t offset; /* of a uint64_t */
    enum unit unit;
};

struct facts {
    uint64_t started_ms;
    uint64_t draining;
    uint64_t speaks;
};

#define GAUGE   "gauge"
#define COUNTER "counter"
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

    {"triage_engine_ops_total", COUNTER, "Operations of the engine, by verb.", OF_VERB,
     offsetof(struct engine_counters, ops), PLAIN},
    ENGINE("commits_total", COUNTER, "Groups made durable.", groups, PLAIN),
    ENGINE("committed_ops_total", COUNTER, "Operations in those groups.", group_ops, PLAIN),
    ENGINE("commit_seconds_total", COUNTER, "Time spent making them durable.", commit_us, MICRO),
    {NULL, NULL, NULL, OF_OWN, 0, PLAIN},

    LOOP("turns_total", COUNTER, "Turns of the event loops.", turns, PLAIN),
    LOOP("slow_turns_total", COUNTER, "Those that took longer than 10 ms.", slow, PLAIN),
    LOOP("turn_seconds_max", GAUGE, "The longest turn of the last one to two minutes.", max_us,
         MICRO),

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

/* Samples as text. There may be very many queues. They are shown in portions, and each queue is
 * written as text when it is shown, so that the end has little to do. */
struct gathered {
    enum scope scope;
    struct buf of_queues[METRIC_COUNT];
    struct buf levels;
    struct buf alerts;
};

struct metrics {
    struct facts facts;
    struct broker_counters broker;
    struct engine_counters engine;
    struct http_counters http;
    struct turn_counters turns;
    uint64_t refused[STATUS_COUNT];
    struct budget_counters budget;
    const struct gathered *gathered;
};

static uint64_t value_at(const void *base, size_t offset)
{
    uint64_t value;
    memcpy(&value, (const char *)base + offset, sizeof(value));
    return value;
}

static void put_value(struct buf *out, uint64_t value, enum unit unit)
{
    if (unit == MICRO_SIGNED && (int64_t)value < 0) {
        buf_putc(out, '-');
        value = -value;
    }
    uint64_t scale = unit == PLAIN ? 1 : unit == MILLI ? 1000 : 1000000;
    buf_put_u64(out, value / scale);
    if (scale > 1)
        buf_printf(out, ".%0*u", unit == MILLI ? 3 : 6, (unsigned)(value % scale));
    buf_putc(out, '\n');
}

static void put_label_text(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            buf_putc(out, '\\');
        buf_putc(out, *text);
    }
}

static void put_sample(struct buf *out, const char *name, const char *label, const char *text,
                       uint64_t value, enum unit unit)
{
    buf_puts(out, name);
    if (label) {
        buf_putc(out, '{');
        buf_puts(out, label);
        buf_lit(out, "=\"");
        put_label_text(out, text);
        buf_lit(out, "\"}");
    }
    buf_putc(out, ' ');
    put_value(out, value, unit);
}

static void put_array(struct buf *out, const struct metric *m, const void *base, const char *label,
                      const char *const names[], int count)
{
    for (int i = 0; i < count; i++) {
        if (names[i])
            put_sample(out, m->name, label, names[i],
                       value_at(base, m->offset + (size_t)i * sizeof(uint64_t)), m->unit);
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
    case OF_WAITERS: {
        const struct buf *samples = &all->gathered->of_queues[m - metrics];
        buf_put(out, samples->data, samples->len);
        break;
    }
    case OF_LEVEL:
        buf_put(out, all->gathered->levels.data, all->gathered->levels.len);
        break;
    case OF_ALERT:
        buf_put(out, all->gathered->alerts.data, all->gathered->alerts.len);
        break;
    case OF_REQUEST:
        put_array(out, m, &all->broker, "kind", request_names, REQUEST_KIND_COUNT);
        break;
    case OF_VERB:
        put_array(out, m, &all->engine, "verb", engine_verb_names, ENGINE_VERB_COUNT);
        break;
    case OF_REFUSAL:
        put_array(out, m, all->refused, "reason", guard_reasons, STATUS_COUNT);
        break;
    default:
        put_sample(out, name, NULL, NULL, value_at(base[m->source], m->offset), m->unit);
    }
}

/* net's table does not say which numbers are gauges: those whose name ends in _open or _bytes. */
static bool is_open(const char *name)
{
    size_t len = strlen(name);
    return len > 5 &&
           (strcmp(name + len - 5, "_open") == 0 || strcmp(name + len - 6, "_bytes") == 0);
}

static void put_metric(struct buf *out, const struct metric *m, const struct metrics *all)
{
    char name[80];
    const char *type = m->type ? m->type : is_open(m->name) ? GAUGE : COUNTER;
    snprintf(name, sizeof(name), "%s%s", m->name, !m->type && type[0] == 'c' ? "_total" : "");
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, m->help, name, type);
    put_samples(out, m, name, all);
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
        place += c->label ? c->label_count : 1;
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

static void put_own(struct buf *out, const struct engine_counter *c, const struct engine_kind *runs,
                    const uint64_t own[])
{
    static const enum unit units[] = {
        [ENGINE_PLAIN] = PLAIN,
        [ENGINE_MILLI] = MILLI,
        [ENGINE_MICRO] = MICRO,
        [ENGINE_MICRO_SIGNED] = MICRO_SIGNED,
    };
    char name[80];
    int at = own_place(runs, c->name), after = c->after ? own_place(runs, c->after) : -1;
    snprintf(name, sizeof(name), "triage_%s%s", c->bare ? "" : "engine_", c->name);
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, c->help, name,
               c->type == ENGINE_GAUGE ? GAUGE : COUNTER);
    if (!c->label) {
        put_sample(out, name, NULL, NULL, at >= 0 ? own[at] : 0, units[c->unit]);
        return;
    }
    bool known = at >= 0 && (after < 0 || own[after] > 0);
    for (uint32_t i = 0; known && i < c->label_count; i++) {
        if (!c->labels[i])
            continue;
        put_sample(out, name, c->label, c->labels[i], own[at + (int)i], units[c->unit]);
    }
}

static void put_all_own(struct buf *out, enum scope scope, const struct engine_kind *runs,
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
                put_own(out, c, runs, own);
        }
    }
}

static void put_build(struct buf *out, const struct api_options *o)
{
    buf_lit(out, "# HELP triage_build_info What is running.\n# TYPE triage_build_info gauge\n"
                 "triage_build_info{version=\"");
    put_label_text(out, o->version);
    buf_lit(out, "\",engine=\"");
    put_label_text(out, o->engine);
    buf_lit(out, "\",durability=\"");
    put_label_text(out, o->durability);
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

static void gather_alerts(struct buf *out, const struct queue_facts *facts)
{
    static const char *const names[ALERT_KIND_COUNT] = {
#define X(symbol, name) [ALERT_##symbol] = name,
        ALERT_KINDS(X)
#undef X
    };
    const struct queue_config *config = &facts->queue->config;
    const bool watched[ALERT_KIND_COUNT] = {
        [ALERT_DEAD_LETTERS] = config->alert_dead_letters > 0,
        [ALERT_OLDEST_READY] = config->alert_oldest_ready_seconds > 0,
    };
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++) {
        if (watched[kind])
            buf_printf(out, "triage_queue_alert{queue=\"%s\",kind=\"%s\"} %d\n", facts->queue->name,
                       names[kind], (int)(facts->alerts >> kind & 1));
    }
}

static void metrics_show(struct request *r, const struct queue_facts *facts)
{
    struct call *c = call_of(r);
    struct gathered *gathered = c->extra;
    struct buf *levels = &gathered->levels;
    const struct queue_config *config = &facts->queue->config;
    struct queue_row row;
    stats_row(facts, &row);
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        if (metrics[i].source == OF_QUEUE || metrics[i].source == OF_WAITERS)
            put_sample(&gathered->of_queues[i], metrics[i].name, "queue", row.name,
                       value_at(&row, metrics[i].offset), metrics[i].unit);
    }
    for (int i = 0; i < config->level_count; i++) {
        buf_lit(levels, "triage_queue_level_ready{queue=\"");
        buf_puts(levels, row.name);
        buf_lit(levels, "\",level=\"");
        put_label_text(levels, config->levels[i].name);
        buf_lit(levels, "\"} ");
        buf_put_u64(levels, facts->view->lanes[config->levels[i].slot].ready);
        buf_putc(levels, '\n');
    }
    gather_alerts(&gathered->alerts, facts);
}

static size_t gathered_len(const struct gathered *g)
{
    size_t len = g->levels.len + g->alerts.len;
    for (size_t i = 0; i < METRIC_COUNT; i++)
        len += g->of_queues[i].len;
    return len;
}

static void metrics_finish(struct call *c)
{
    const struct api_options *o = &c->api->options;
    struct metrics all = {
        .facts = {.started_ms = (uint64_t)o->started_ms,
                  .draining = o->draining && atomic_load(o->draining),
                  .speaks = broker_speaks(o->broker)},
        .gathered = c->extra,
    };
    broker_counters(o->broker, &all.broker, &all.engine);
    if (o->guard)
        guard_counts(o->guard, all.refused);
    if (o->http_counters)
        o->http_counters(o->http_counters_ctx, &all.http);
    if (o->budget)
        all.budget = budget_counters(o->budget);
    if (o->turn_counters)
        o->turn_counters(o->turn_counters_ctx, &all.turns);
    buf_reserve(&c->out, gathered_len(c->extra)); /* once: it may be many megabytes */
    enum scope scope = all.gathered->scope;
    if (in_scope(scope, SCOPE_SERVER)) {
        put_build(&c->out, o);
        put_up(&c->out, o->broker);
    }
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        bool known = metrics[i].source == OF_HTTP     ? o->http_counters != NULL
                     : metrics[i].source == OF_BUDGET ? o->budget != NULL
                                                      : true;
        if (metrics[i].source == OF_OWN)
            put_all_own(&c->out, scope, broker_engine_kind(o->broker), all.engine.own);
        else if (known && in_scope(scope, scope_of(metrics[i].source)))
            put_metric(&c->out, &metrics[i], &all);
    }
    call_reply_as(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL);
}

static void metrics_cleanup(struct call *c)
{
    struct gathered *gathered = c->extra;
    for (size_t i = 0; i < METRIC_COUNT; i++)
        buf_fini(&gathered->of_queues[i]);
    buf_fini(&gathered->levels);
    buf_fini(&gathered->alerts);
}

static bool take_scope(struct field *f, void *target)
{
    static const char *const names[] = {
        [SCOPE_ALL] = "all", [SCOPE_STORE] = "store", [SCOPE_SERVER] = "server"};
    int scope;
    if (!field_choice(f, names, 3, &scope))
        return false;
    *(enum scope *)target = (enum scope)scope;
    return true;
}

void metrics_get(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("scope", take_scope)};
    static const struct field_table table = FIELD_TABLE(specs);
    enum scope scope = SCOPE_ALL;
    if (!call_query(c, &table, &scope))
        return;
    struct gathered *gathered = c->extra = mem_zalloc(sizeof(*gathered));
    gathered->scope = scope;
    c->cleanup = metrics_cleanup;
    c->request.show.each = metrics_show;
    call_submit(c, REQUEST_QUEUES, metrics_finish);
}
