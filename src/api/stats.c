#include "api/stats.h"

#include "api/call.h"
#include "api/encode.h"
#include "api/fields.h"
#include "base/clock.h"
#include "base/mem.h"

void stats_row(const struct queue_facts *facts, struct queue_row *row)
{
    const struct queue_view *view = facts->view;
    *row = (struct queue_row){
        .paused = facts->queue->config.paused,
        .ready = view->ready,
        .scheduled = view->scheduled,
        .leased = view->leased,
        .dead = view->dead,
        .bytes = view->bytes,
        .waiting = facts->waiting_consumers,
        .oldest_ms = facts->oldest_ready_ms > 0 ? (uint64_t)facts->oldest_ready_ms : 0,
        .claims_per_second = facts->claims_per_second,
        .totals = view->totals,
    };
    memcpy(row->name, facts->queue->name, sizeof(row->name));
}

static void totals_add(struct queue_totals *sum, const struct queue_totals *t)
{
    sum->enqueued += t->enqueued;
    sum->claimed += t->claimed;
    sum->acked += t->acked;
    sum->nacked += t->nacked;
    sum->released += t->released;
    sum->lease_expired += t->lease_expired;
    sum->expired += t->expired;
    sum->dead += t->dead;
    sum->deduplicated += t->deduplicated;
    sum->redelivered += t->redelivered;
    sum->cancelled += t->cancelled;
    sum->redriven += t->redriven;
    sum->aged += t->aged;
    sum->late += t->late;
    sum->escalated += t->escalated;
}

void stats_row_add(struct queue_row *sum, const struct queue_row *row)
{
    sum->paused += row->paused;
    sum->ready += row->ready;
    sum->scheduled += row->scheduled;
    sum->leased += row->leased;
    sum->dead += row->dead;
    sum->bytes += row->bytes;
    sum->waiting += row->waiting;
    sum->claims_per_second += row->claims_per_second;
    if (row->oldest_ms > sum->oldest_ms)
        sum->oldest_ms = row->oldest_ms;
    totals_add(&sum->totals, &row->totals);
}

static void put_count(struct buf *out, const char *name, uint64_t count)
{
    buf_puts(out, name);
    buf_put_u64(out, count);
}

void stats_totals_put(struct buf *out, const struct queue_totals *t)
{
    put_count(out, "\"totals\":{\"enqueued\":", t->enqueued);
    put_count(out, ",\"claimed\":", t->claimed);
    put_count(out, ",\"acked\":", t->acked);
    put_count(out, ",\"nacked\":", t->nacked);
    put_count(out, ",\"lease_expired\":", t->lease_expired);
    put_count(out, ",\"expired\":", t->expired);
    put_count(out, ",\"dead\":", t->dead);
    put_count(out, ",\"deduplicated\":", t->deduplicated);
    put_count(out, ",\"redelivered\":", t->redelivered);
    put_count(out, ",\"cancelled\":", t->cancelled);
    put_count(out, ",\"aged\":", t->aged);
    put_count(out, ",\"late\":", t->late);
    put_count(out, ",\"escalated\":", t->escalated);
    buf_putc(out, '}');
}

/* The age of its first ready message; 0 when none is. */
static uint64_t lane_oldest_ms(const struct lane_view *lane, int64_t now_ms)
{
    return lane->ready > 0 && lane->head_ms < now_ms ? (uint64_t)(now_ms - lane->head_ms) : 0;
}

/* Most urgent first; an array, because readers of JSON may forget the order of an object. */
static void put_levels(struct buf *out, const struct queue_facts *facts)
{
    const struct queue_config *config = &facts->queue->config;
    int64_t now_ms = clock_now().wall_ms;
    buf_lit(out, ",\"levels\":[");
    for (int i = 0; i < config->level_count; i++) {
        const struct level *level = &config->levels[i];
        const struct lane_view *lane = &facts->view->lanes[level->slot];
        buf_puts(out, i > 0 ? ",{" : "{");
        encode_level(out, level);
        put_count(out, ",\"ready\":", lane->ready);
        put_count(out, ",\"scheduled\":", lane->scheduled);
        put_count(out, ",\"in_flight\":", lane->leased);
        put_count(out, ",\"dead\":", lane->dead);
        put_count(out, ",\"oldest_message_age_seconds\":", lane_oldest_ms(lane, now_ms) / 1000);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

void stats_put(struct buf *out, const struct queue_facts *facts)
{
    const struct queue_config *config = &facts->queue->config;
    struct queue_row row;
    stats_row(facts, &row);
    buf_lit(out, "{\"depth_by_priority\":{");
    for (int i = 0; i < config->level_count; i++) {
        const struct level *level = &config->levels[i];
        if (i > 0)
            buf_putc(out, ',');
        encode_priority_key(out, level);
        put_count(out, ":", facts->view->lanes[level->slot].ready);
    }
    put_count(out, "},\"ready\":", row.ready);
    put_count(out, ",\"scheduled\":", row.scheduled);
    put_count(out, ",\"in_flight\":", row.leased);
    put_count(out, ",\"dlq_depth\":", row.dead);
    put_count(out, ",\"oldest_message_age_seconds\":", row.oldest_ms / 1000);
    put_count(out, ",\"waiting_consumers\":", row.waiting);
    put_count(out, ",\"aged\":", facts->aged);
    put_count(out, ",\"late\":", facts->late);
    buf_lit(out, ",\"claims_per_second\":");
    encode_rate(out, facts->claims_per_second);
    put_count(out, ",\"bytes\":", row.bytes);
    buf_puts(out, row.paused ? ",\"paused\":true" : ",\"paused\":false");
    put_levels(out, facts);
    buf_putc(out, ',');
    stats_totals_put(out, &row.totals);
    buf_putc(out, '}');
}

static uint64_t oldest_ms(const struct queue_view *view, int64_t now_ms)
{
    uint64_t oldest = 0;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        uint64_t age = lane_oldest_ms(&view->lanes[slot], now_ms);
        oldest = age > oldest ? age : oldest;
    }
    return oldest;
}

static void put_placement(struct buf *out, const struct engine_partition *p)
{
    if (!p->placement)
        return;
    buf_lit(out, ",\"placement\":");
    json_put_cstr(out, p->placement);
    put_count(out, ",\"buckets\":", p->buckets);
    buf_puts(out, p->levels ? ",\"levels\":[" : ",\"levels\":null");
    for (const char *at = p->levels; at && *at;) {
        size_t len = strcspn(at, "\n");
        if (at > p->levels)
            buf_putc(out, ',');
        json_put_string(out, at, len);
        at += len + (at[len] == '\n');
    }
    if (p->levels)
        buf_putc(out, ']');
}

static void put_partition(void *ctx, const struct engine_partition *p)
{
    struct buf *out = ctx;
    put_count(out, out->len > 0 ? ",{\"partition\":" : "{\"partition\":", p->number);
    buf_lit(out, ",\"cell\":");
    if (p->cell)
        json_put_cstr(out, p->cell);
    else
        buf_lit(out, "null");
    buf_lit(out, ",\"state\":");
    json_put_cstr(out, p->state);
    put_placement(out, p);
    put_count(out, ",\"ready\":", p->view->ready);
    put_count(out, ",\"scheduled\":", p->view->scheduled);
    put_count(out, ",\"in_flight\":", p->view->leased);
    put_count(out, ",\"dead\":", p->view->dead);
    put_count(out,
              ",\"oldest_message_age_seconds\":", oldest_ms(p->view, clock_now().wall_ms) / 1000);
    put_count(out, ",\"bytes\":", p->view->bytes);
    buf_putc(out, '}');
}

void stats_partitions(struct buf *out, const struct queue_facts *facts)
{
    struct buf list = {0};
    broker_partition_each(facts, put_partition, &list);
    buf_put(out, list.data, list.len);
    buf_fini(&list);
}

/* What a call asks for. */
struct stats_query {
    bool partitions;
};

/* The partitions come first: then the whole is what they are together. */
static void stats_show(struct request *r, const struct queue_facts *facts)
{
    struct call *c = call_of(r);
    const struct stats_query *query = c->extra;
    struct buf partitions = {0};
    if (query->partitions)
        broker_partition_each(facts, put_partition, &partitions);
    stats_put(&c->out, facts);
    if (query->partitions) {
        c->out.len--; /* the brace */
        buf_lit(&c->out, ",\"partitions\":[");
        buf_put(&c->out, partitions.data, partitions.len);
        buf_lit(&c->out, "]}");
    }
    buf_fini(&partitions);
}

static void stats_finish(struct call *c)
{
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

static bool take_partitions(struct field *f, void *target)
{
    return field_bool(f, &((struct stats_query *)target)->partitions);
}

void stats_get(struct call *c)
{
    static const struct field_spec specs[] = {FIELD("partitions", take_partitions)};
    static const struct field_table table = FIELD_TABLE(specs);
    struct stats_query query = {0};
    if (!call_query(c, &table, &query))
        return;
    c->extra = mem_dup(&query, sizeof(query));
    c->request.show.each = stats_show;
    call_submit(c, REQUEST_STATS, stats_finish);
}
