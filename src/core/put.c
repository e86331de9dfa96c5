#include "base/plant.h"
#include "core/dedup.h"
#include "core/moves.h"

#include <assert.h>

/* A step back of the wall clock by at most this much is ignored, so that messages keep the order in
 * which they came. After a larger step the clock was set on purpose, and the queue follows it. */
#define CLOCK_STEP_MS 1000

int64_t queue_order_time(struct queue *q, struct instant now)
{
    bool small_step_back = now.wall_ms < q->clock_ms && q->clock_ms - now.wall_ms <= CLOCK_STEP_MS;
    if (!small_step_back)
        q->clock_ms = now.wall_ms;
    return q->clock_ms;
}

static bool full(const struct queue *q, const struct draft *d)
{
    const struct queue_view *v = q->view;
    uint64_t len = (uint64_t)d->payload_len + d->metadata_len;
    uint64_t depth = share_limit(q->share, SHARE_DEPTH, q->config->max_depth);
    uint64_t bytes = share_limit(q->share, SHARE_BYTES, q->config->max_bytes);
    return (q->config->max_depth && v->ready + v->scheduled >= depth + PLANTED(QUOTA_OFF_BY_ONE)) ||
           (q->config->max_bytes && v->bytes + len > bytes);
}

/* The message alone is larger than the queue may be, so waiting for room would not help. */
static bool never_fits(const struct queue *q, const struct draft *d)
{
    return q->config->max_bytes &&
           (uint64_t)d->payload_len + d->metadata_len > q->config->max_bytes;
}

static struct message *from_draft(struct queue *q, struct draft *d, int rank, struct instant now)
{
    assert(rank < q->config->level_count);
    assert(d->payload_len <= PAYLOAD_MAX);
    assert(d->metadata_len <= METADATA_MAX);
    assert(d->dedup_len <= DEDUP_KEY_MAX);
    struct message *m = message_new(queue_take_seq(q, d->seq_min));
    int64_t at = queue_order_time(q, now);
    m->ready_ms = d->ready_ms == READY_NOW ? at + d->delay_ms : d->ready_ms;
    if (PLANTED(DELAY_IGNORED))
        m->ready_ms = at;
    m->born_ms = m->ready_ms;
    m->enqueued_ms = now.wall_ms;
    m->body = d->body;
    d->body = NULL;
    m->payload_len = d->payload_len;
    m->metadata_len = d->metadata_len;
    m->dedup_len = d->dedup_len;
    m->kind = d->kind;
    m->slot = m->born_slot = q->config->levels[rank].slot;
    int64_t ttl_ms = d->ttl_ms == TTL_DEFAULT ? q->config->ttl_ms : d->ttl_ms;
    if (ttl_ms > 0)
        message_set_expiry(m, now.wall_ms + ttl_ms);
    return m;
}

/* A message that was touched stays in memory: a tail holds untouched messages only. */
void queue_take_place(struct queue *q, struct message *m)
{
    assert(m->state == MESSAGE_NEW);
    assert(m->node.height == 0);
    if (m->touched || queue_keeps_in_memory(q, m)) {
        queue_move(q, m, m->ready_ms <= q->clock_ms ? MESSAGE_READY : MESSAGE_SCHEDULED);
        queue_enlist(q, m);
        queue_report(q, m, REPORT_STORED, MESSAGE_NEW, m->slot, false);
    } else {
        queue_tail_advance(q, m->slot, q->clock_ms);
        queue_tail_add(q, m);
        queue_report(q, m, REPORT_JOINED, MESSAGE_NEW, m->slot, false);
    }
}

/* Whether the message is a repeat: then the item has the answer. */
static bool is_repeat(struct queue *q, struct put_item *item, const struct dedup_hit *elsewhere,
                      struct instant now)
{
    const struct draft *d = &item->draft;
    struct dedup_hit hit;
    const char *key = d->body + d->payload_len + d->metadata_len;
    if (d->dedup_len == 0 || !dedup_find(q, key, d->dedup_len, elsewhere, now, &hit))
        return false;
    q->view->totals.deduplicated++;
    item->status = STATUS_OK;
    item->deduplicated = true;
    item->id = hit.id;
    item->enqueued_ms = hit.enqueued_ms;
    return true;
}

void queue_put_elsewhere(struct queue *q, struct put_item *item, const struct dedup_hit *elsewhere,
                         struct instant now)
{
    item->deduplicated = false;
    if (!is_repeat(q, item, elsewhere, now))
        item->status = STATUS_QUEUE_MOVED;
}

void queue_put(struct queue *q, struct put_item *item, const struct dedup_hit *elsewhere,
               struct instant now)
{
    struct draft *d = &item->draft;
    item->deduplicated = false;
    int rank = levels_resolve(q->config, &d->priority);
    if (rank < 0) {
        item->status = STATUS_UNKNOWN_PRIORITY;
        return;
    }
    if (is_repeat(q, item, elsewhere, now))
        return;
    if (item->only_known) {
        item->status = STATUS_MESSAGE_NOT_FOUND;
        return;
    }
    if (never_fits(q, d) || full(q, d)) {
        item->status = never_fits(q, d) ? STATUS_PAYLOAD_TOO_LARGE : STATUS_QUEUE_FULL;
        return;
    }
    if (lane_has_tail(&q->lanes[q->config->levels[rank].slot]))
        queue_tail_advance(q, q->config->levels[rank].slot, queue_order_time(q, now));
    struct message *m = from_draft(q, d, rank, now);
    item->status = STATUS_OK;
    item->id = message_identity(m, q->id);
    item->enqueued_ms = m->enqueued_ms;
    q->view->totals.enqueued++;
    if (m->dedup_len > 0)
        dedup_put(q, m);
    queue_take_place(q, m);
}
