#include "api/stats.h"

#include "api/call.h"
#include "api/encode.h"

#include <stdlib.h>

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
        .totals = view->totals,
    };
    memcpy(row->name, facts->queue->name, sizeof(row->name));
}

static int row_compare(const void *a, const void *b)
{
    const struct queue_row *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void stats_rows_sort(struct queue_row *rows, size_t count)
{
    if (count > 1)
        qsort(rows, count, sizeof(rows[0]), row_compare);
}

static void put_count(struct buf *out, const char *name, uint64_t count)
{
    buf_puts(out, name);
    buf_put_u64(out, count);
}

static void put_totals(struct buf *out, const struct queue_totals *t)
{
    put_count(out, ",\"totals\":{\"enqueued\":", t->enqueued);
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

/* Most urgent first; an array, because readers of JSON may forget the order of an object. */
static void put_levels(struct buf *out, const struct engine_queue *q)
{
    buf_lit(out, ",\"levels\":[");
    for (int i = 0; i < q->config.level_count; i++) {
        const struct level *level = &q->config.levels[i];
        const struct lane_view *lane = &q->view.lanes[level->slot];
        buf_puts(out, i > 0 ? ",{" : "{");
        encode_level(out, level);
        put_count(out, ",\"ready\":", lane->ready);
        put_count(out, ",\"scheduled\":", lane->scheduled);
        put_count(out, ",\"in_flight\":", lane->leased);
        put_count(out, ",\"dead\":", lane->dead);
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
    put_levels(out, facts->queue);
    put_totals(out, &row.totals);
    buf_putc(out, '}');
}

static void stats_show(struct request *r, const struct queue_facts *facts)
{
    stats_put(&call_of(r)->out, facts);
}

static void stats_finish(struct call *c)
{
    call_reply_as(c, 200, NULL, "Cache-Control: no-store\r\n");
}

void stats_get(struct call *c)
{
    c->request.show.each = stats_show;
    call_submit(c, REQUEST_STATS, stats_finish);
}
