/* The samples of queues. Without a limit they are written as the queues are shown. With one, the
 * queues are shown twice: first to choose those that are shown one by one, then to write them, and
 * to add the others up. */
#include "api/metrics.h"

#include <stdlib.h>
#include <string.h>

struct queue_rank {
    uint64_t trouble; /* those with the largest are chosen … */
    uint64_t traffic; /* … and among equals those with the largest */
    char name[QUEUE_NAME_MAX + 1];
};

/* What happens to a number of several queues. */
static bool is_largest_of_all(const struct metric *m)
{
    return m->offset == offsetof(struct queue_row, oldest_ms);
}

static bool pattern_fits(const struct queue_pattern *p, const char *name)
{
    size_t len = strlen(p->text);
    return p->text[len - 1] == '*' ? strncmp(p->text, name, len - 1) == 0
                                   : strcmp(p->text, name) == 0;
}

static bool is_wanted(const struct gathered *g, const char *name)
{
    for (uint32_t i = 0; i < g->pattern_count; i++)
        if (pattern_fits(&g->patterns[i], name))
            return true;
    return g->pattern_count == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct queue_rank *)a)->name, ((const struct queue_rank *)b)->name);
}

static bool is_chosen(const struct gathered *g, const char *name)
{
    struct queue_rank key;
    memcpy(key.name, name, strlen(name) + 1);
    return !g->chosen ||
           bsearch(&key, g->ranks.data, g->ranks.len / sizeof(key), sizeof(key), by_name) != NULL;
}

/* Samples */

static const char *const alert_names[ALERT_KIND_COUNT] = {
#define X(symbol, name) [ALERT_##symbol] = name,
    ALERT_KINDS(X)
#undef X
};

static uint32_t watched(const struct queue_config *config)
{
    return (uint32_t)(config->alert_dead_letters > 0) << ALERT_DEAD_LETTERS |
           (uint32_t)(config->alert_oldest_ready_seconds > 0) << ALERT_OLDEST_READY;
}

static void put_alerts(struct buf *out, const char *queue, uint32_t watched, uint32_t alerts)
{
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++) {
        if (watched >> kind & 1)
            buf_printf(out, "triage_queue_alert{queue=\"%s\",kind=\"%s\"} %d\n", queue,
                       alert_names[kind], (int)(alerts >> kind & 1));
    }
}

/* queue="…",level="…"; the level's name may have any character. */
static const char *labels_of(struct buf *text, const char *queue, const char *level)
{
    buf_clear(text);
    buf_printf(text, "queue=\"%s\",level=\"", queue);
    exposition_label_text(text, level);
    buf_putc(text, '"');
    return buf_cstr(text);
}

static void put_times(struct buf *out, const struct metric *m, const struct queue_facts *facts)
{
    const struct queue_config *config = &facts->queue->config;
    struct buf labels = {0};
    for (int i = 0; i < config->level_count; i++) {
        const struct level_times *t = broker_level_times(facts, config->levels[i].slot);
        if (t)
            exposition_histogram(
                out, m->name, labels_of(&labels, facts->queue->name, config->levels[i].name),
                m->source == OF_WAIT ? &t->wait : &t->lease, &exposition_waits, NULL);
    }
    buf_fini(&labels);
}

static void put_levels(struct buf *out, const struct metric *m, const struct queue_facts *facts)
{
    const struct queue_config *config = &facts->queue->config;
    struct buf labels = {0};
    for (int i = 0; i < config->level_count; i++) {
        buf_puts(out, m->name);
        buf_putc(out, '{');
        buf_puts(out, labels_of(&labels, facts->queue->name, config->levels[i].name));
        buf_lit(out, "} ");
        exposition_value(out, facts->view->lanes[config->levels[i].slot].ready, PLAIN);
    }
    buf_fini(&labels);
}

static void put_row(struct buf *out, const struct metric *m, const struct queue_row *row)
{
    uint64_t value;
    memcpy(&value, (const char *)row + m->offset, sizeof(value));
    exposition_sample(out, m->name, "queue", row->name, value, m->unit);
}

static void put_queue(struct gathered *g, const struct queue_facts *facts)
{
    struct queue_row row;
    const struct metric *m;
    stats_row(facts, &row);
    for (size_t i = 0; (m = metric_at(i)); i++) {
        if (!in_scope(g->scope, scope_of(m->source)))
            continue;
        if (m->source == OF_QUEUE || m->source == OF_WAITERS)
            put_row(&g->samples[i], m, &row);
        else if (m->source == OF_LEVEL)
            put_levels(&g->samples[i], m, facts);
        else if (m->source == OF_ALERT)
            put_alerts(&g->samples[i], row.name, watched(&facts->queue->config), facts->alerts);
        else if (m->source == OF_WAIT || m->source == OF_LEASE)
            put_times(&g->samples[i], m, facts);
    }
}

/* The others */

static void add_value(const struct metric *m, const struct queue_row *row, struct queue_row *sum)
{
    uint64_t value, all;
    memcpy(&value, (const char *)row + m->offset, sizeof(value));
    memcpy(&all, (const char *)sum + m->offset, sizeof(all));
    all = !is_largest_of_all(m) ? all + value : value > all ? value : all;
    memcpy((char *)sum + m->offset, &all, sizeof(all));
}

static void add_times(struct durations *sum, const struct durations *d)
{
    sum->sum += d->sum;
    for (int i = 0; i < DURATION_BUCKETS; i++)
        sum->buckets[i] += d->buckets[i];
}

static void add_other(struct others *o, const struct queue_facts *facts)
{
    const struct queue_config *config = &facts->queue->config;
    struct queue_row row;
    const struct metric *m;
    stats_row(facts, &row);
    for (size_t i = 0; (m = metric_at(i)); i++)
        if (m->source == OF_QUEUE || m->source == OF_WAITERS)
            add_value(m, &row, &o->row);
    o->queues++;
    o->level_ready += row.ready;
    o->watched |= watched(config);
    o->alerts |= facts->alerts;
    for (int i = 0; i < config->level_count; i++) {
        const struct level_times *t = broker_level_times(facts, config->levels[i].slot);
        if (t) {
            add_times(&o->wait, &t->wait);
            add_times(&o->lease, &t->lease);
        }
    }
}

/* Their levels have other names in each queue, so they are one. */
static void put_others(struct gathered *g)
{
    static const char labels[] = "queue=\"" OTHER_QUEUES "\",level=\"\"";
    struct others *o = &g->others;
    const struct metric *m;
    memcpy(o->row.name, OTHER_QUEUES, sizeof(OTHER_QUEUES));
    for (size_t i = 0; (m = metric_at(i)); i++) {
        struct buf *out = &g->samples[i];
        if (m->source == OF_QUEUE || m->source == OF_WAITERS)
            put_row(out, m, &o->row);
        else if (m->source == OF_LEVEL)
            buf_printf(out, "%s{%s} %llu\n", m->name, labels, (unsigned long long)o->level_ready);
        else if (m->source == OF_ALERT)
            put_alerts(out, OTHER_QUEUES, o->watched, o->alerts);
        else if (m->source == OF_WAIT || m->source == OF_LEASE)
            exposition_histogram(out, m->name, labels, m->source == OF_WAIT ? &o->wait : &o->lease,
                                 &exposition_waits, NULL);
    }
}

/* Gathering */

static void show_samples(struct request *r, const struct queue_facts *facts)
{
    struct gathered *g = call_of(r)->extra;
    if (!is_wanted(g, facts->queue->name))
        return;
    if (is_chosen(g, facts->queue->name))
        put_queue(g, facts);
    else
        add_other(&g->others, facts);
}

static void show_rank(struct request *r, const struct queue_facts *facts)
{
    struct gathered *g = call_of(r)->extra;
    const struct queue_view *view = facts->view;
    struct queue_rank rank = {
        .trouble = (uint64_t)__builtin_popcount(facts->alerts),
        .traffic = view->ready + view->leased + view->dead + view->scheduled +
                   (uint64_t)(30 * facts->claims_per_second),
    };
    memcpy(rank.name, facts->queue->name, sizeof(rank.name));
    buf_put(&g->ranks, &rank, sizeof(rank));
}

static int by_rank(const void *a, const void *b)
{
    const struct queue_rank *x = a, *y = b;
    if (x->trouble != y->trouble)
        return x->trouble > y->trouble ? -1 : 1;
    if (x->traffic != y->traffic)
        return x->traffic > y->traffic ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* In the finish of the first round. */
static void choose(struct call *c)
{
    struct gathered *g = c->extra;
    size_t count = g->ranks.len / sizeof(struct queue_rank), most = c->api->options.metrics_queues;
    if (count > 1)
        qsort(g->ranks.data, count, sizeof(struct queue_rank), by_rank);
    if (count > most)
        g->ranks.len = most * sizeof(struct queue_rank);
    if (g->ranks.len > sizeof(struct queue_rank))
        qsort(g->ranks.data, g->ranks.len / sizeof(struct queue_rank), sizeof(struct queue_rank),
              by_name);
    g->chosen = true;
    call_renew(c);
    c->request.show.each = show_samples;
}

static void others_finish(struct call *c)
{
    struct gathered *g = c->extra;
    if (g->others.queues > 0)
        put_others(g);
    g->finish(c);
}

static void chosen_finish(struct call *c)
{
    choose(c);
    call_submit(c, REQUEST_QUEUES, others_finish);
}

void gather_start(struct call *c, struct gathered *g, call_finish *finish)
{
    const struct api_options *o = &c->api->options;
    bool many = o->metrics_queues > 0 && g->pattern_count == 0 &&
                broker_queue_count(o->broker) > o->metrics_queues;
    g->finish = finish;
    c->request.show.each = many ? show_rank : show_samples;
    call_submit(c, REQUEST_QUEUES, many ? chosen_finish : finish);
}

void gather_fini(struct gathered *g)
{
    buf_fini(&g->ranks);
    for (size_t i = 0; i < METRICS_MAX; i++)
        buf_fini(&g->samples[i]);
}
