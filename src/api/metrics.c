/* GET /metrics: every counter of the server in Prometheus' text format, out of
 * one table. */
#include "api/call.h"
#include "api/encode.h"
#include "api/stats.h"

#include <stddef.h>
#include <stdio.h>

enum source {
    OF_QUEUE,   /* struct queue_row, one sample per queue */
    OF_LEVEL,   /* one sample per queue and level, gathered with the rows */
    OF_ALERT,   /* one sample per queue and threshold, gathered with the rows */
    OF_BROKER,  /* struct broker_counters */
    OF_REQUEST, /* its requests[], one sample per kind */
    OF_ENGINE,  /* struct engine_counters */
    OF_VERB,    /* its ops[], one sample per verb */
    OF_TABLE,   /* its table_…[], one sample per table */
    OF_HTTP,    /* struct http_counters */
    OF_SERVER,  /* struct facts */
};

enum unit { PLAIN, MILLI, MICRO }; /* what one is, of the unit in the name */

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
#define TABLE(name, help, member)                                                                  \
    {                                                                                              \
        "triage_engine_table_" name, GAUGE, help, OF_TABLE,                                        \
            offsetof(struct engine_counters, member), PLAIN                                        \
    }

static const struct metric metrics[] = {
    {"process_start_time_seconds", GAUGE, "Start of the process since the epoch.", OF_SERVER,
     offsetof(struct facts, started_ms), MILLI},
    {"triage_draining", GAUGE, "1 while the server shuts down.", OF_SERVER,
     offsetof(struct facts, draining), PLAIN},

    QUEUE("ready", GAUGE, "Messages that can be claimed.", ready),
    QUEUE("scheduled", GAUGE, "Messages whose delay has not passed.", scheduled),
    QUEUE("in_flight", GAUGE, "Messages that consumers hold.", leased),
    QUEUE("dead", GAUGE, "Dead letters.", dead),
    QUEUE("bytes", GAUGE, "Payload and metadata of ready and scheduled messages.", bytes),
    QUEUE("paused", GAUGE, "1 while claims are paused.", paused),
    QUEUE("waiting_consumers", GAUGE, "Claims that wait for a message.", waiting),
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
    BROKER("webhooks_lost_total", COUNTER, "Webhooks of alerts that were dropped or given up.",
           webhooks_lost),

    {"triage_engine_ops_total", COUNTER, "Operations of the engine, by verb.", OF_VERB,
     offsetof(struct engine_counters, ops), PLAIN},
    ENGINE("commits_total", COUNTER, "Groups made durable.", groups, PLAIN),
    ENGINE("committed_ops_total", COUNTER, "Operations in those groups.", group_ops, PLAIN),
    ENGINE("commit_seconds_total", COUNTER, "Time spent making them durable.", commit_us, MICRO),
    ENGINE("refills_total", COUNTER, "Reads of waiting messages from disk.", refills, PLAIN),
    ENGINE("resident_bytes", GAUGE, "Messages in memory.", resident_bytes, PLAIN),
    ENGINE("disk_free_bytes", GAUGE, "Free space where the data is.", disk_free_bytes, PLAIN),
    TABLE("dead_rows", "Deleted rows that vacuum has not taken away.", table_dead_rows),
    TABLE("bytes", "What the table takes.", table_bytes),
    TABLE("index_bytes", "What its indexes take.", table_index_bytes),
    ENGINE("oldest_transaction_seconds", GAUGE, "Age of the oldest transaction in the database.",
           oldest_transaction_ms, MILLI),
    ENGINE("table_looks_total", COUNTER, "How often these were read from the database.",
           table_looks, PLAIN),

#define X(name, meaning)                                                                           \
    {"triage_http_" #name, NULL, meaning, OF_HTTP, offsetof(struct http_counters, name), PLAIN},
    HTTP_COUNTERS(X)
#undef X
};

static const char *const request_names[REQUEST_KIND_COUNT] = {
    [REQUEST_PUT] = "put",           [REQUEST_SETTLE] = "settle",
    [REQUEST_CANCEL] = "cancel",     [REQUEST_GET] = "get",
    [REQUEST_LIST] = "list",         [REQUEST_CLAIM] = "claim",
    [REQUEST_PURGE] = "purge",       [REQUEST_REDRIVE] = "redrive",
    [REQUEST_DEAD_DROP] = "drop",    [REQUEST_CONFIGURE] = "configure",
    [REQUEST_DELETE] = "delete",     [REQUEST_QUEUE] = "queue",
    [REQUEST_QUEUES] = "queues",     [REQUEST_STATS] = "stats",
    [REQUEST_MOVE] = "move",         [REQUEST_MOVE_BULK] = "move_bulk",
    [REQUEST_POSITION] = "position", [REQUEST_IMPORT] = "import",
};

static const char *const verb_names[ENGINE_VERB_COUNT] = {
    [ENGINE_QUEUE_OPEN] = "queue_open",
    [ENGINE_QUEUE_SET] = "queue_set",
    [ENGINE_QUEUE_DELETE] = "queue_delete",
    [ENGINE_PUT] = "put",
    [ENGINE_IMPORT] = "import",
    [ENGINE_CLAIM] = "claim",
    [ENGINE_ACK] = "ack",
    [ENGINE_NACK] = "nack",
    [ENGINE_RELEASE] = "release",
    [ENGINE_EXTEND] = "extend",
    [ENGINE_CANCEL] = "cancel",
    [ENGINE_MOVE] = "move",
    [ENGINE_COUNT] = "count",
    [ENGINE_GET] = "get",
    [ENGINE_PURGE] = "purge",
    [ENGINE_LIST] = "list",
    [ENGINE_DEAD_LIST] = "dead_list",
    [ENGINE_DEAD_REDRIVE] = "dead_redrive",
    [ENGINE_DEAD_DROP] = "dead_drop",
    [ENGINE_SWEEP] = "sweep",
};

/* Samples that do not fit a row, as text. */
struct gathered {
    struct buf levels;
    struct buf alerts;
};

struct metrics {
    struct facts facts;
    struct broker_counters broker;
    struct engine_counters engine;
    struct http_counters http;
    const struct queue_row *rows;
    size_t row_count;
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
    const void *base[] = {[OF_BROKER] = &all->broker,
                          [OF_ENGINE] = &all->engine,
                          [OF_HTTP] = &all->http,
                          [OF_SERVER] = &all->facts};
    switch (m->source) {
    case OF_QUEUE:
        for (size_t i = 0; i < all->row_count; i++)
            put_sample(out, name, "queue", all->rows[i].name, value_at(&all->rows[i], m->offset),
                       m->unit);
        break;
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
        put_array(out, m, &all->engine, "verb", verb_names, ENGINE_VERB_COUNT);
        break;
    case OF_TABLE:
        if (all->engine.table_looks > 0)
            put_array(out, m, &all->engine, "table", engine_table_names, ENGINE_TABLE_COUNT);
        break;
    default:
        put_sample(out, name, NULL, NULL, value_at(base[m->source], m->offset), m->unit);
    }
}

/* net's table has names and meanings only: what is open goes up and down, the rest is counted. */
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
    buf_put(&c->text, &row, sizeof(row));
    for (int i = 0; i < config->level_count; i++) {
        buf_lit(levels, "triage_queue_level_ready{queue=\"");
        buf_puts(levels, row.name);
        buf_lit(levels, "\",level=\"");
        put_label_text(levels, config->levels[i].name);
        buf_lit(levels, "\"} ");
        buf_put_u64(levels, facts->queue->view.lanes[config->levels[i].slot].ready);
        buf_putc(levels, '\n');
    }
    gather_alerts(&gathered->alerts, facts);
}

static void metrics_finish(struct call *c)
{
    const struct api_options *o = &c->api->options;
    struct queue_row *rows = (struct queue_row *)c->text.data;
    struct metrics all = {
        .facts = {.started_ms = (uint64_t)o->started_ms,
                  .draining = o->draining && atomic_load(o->draining)},
        .rows = rows,
        .row_count = c->text.len / sizeof(rows[0]),
        .gathered = c->extra,
    };
    stats_rows_sort(rows, all.row_count);
    broker_counters(o->broker, &all.broker, &all.engine);
    if (o->http_counters)
        o->http_counters(o->http_counters_ctx, &all.http);
    put_build(&c->out, o);
    put_up(&c->out, o->broker);
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        if (metrics[i].source != OF_HTTP || o->http_counters)
            put_metric(&c->out, &metrics[i], &all);
    }
    call_reply_as(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL);
}

static void metrics_cleanup(struct call *c)
{
    struct gathered *gathered = c->extra;
    buf_fini(&gathered->levels);
    buf_fini(&gathered->alerts);
}

void metrics_get(struct call *c)
{
    c->extra = mem_zalloc(sizeof(struct gathered));
    c->cleanup = metrics_cleanup;
    c->request.show_queue = metrics_show;
    call_submit(c, REQUEST_QUEUES, metrics_finish);
}
