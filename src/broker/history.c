/* History: once a second a shard writes down what changed in its queues (core/series.h). It reads
 * the counts and totals that are there; a message costs nothing. A round over all queues is done in
 * portions, and its points have the time at which it began. */
#include "broker/shard.h"

#define ROUND_PORTION 200 /* queues in one turn */

void history_open(struct shard *s, size_t bytes)
{
    series_pool_init(&s->history.pool, bytes);
}

static bool is_on(const struct shard *s)
{
    return s->history.pool.bytes_max > 0 && s->history.first && !s->draining;
}

void history_join(struct dispatcher *d)
{
    struct history *h = &d->shard->history;
    assert(!d->history.next && !d->history.prev && h->first != d);
    d->history.next = h->first;
    if (h->first)
        h->first->history.prev = d;
    h->first = d;
}

void history_leave(struct dispatcher *d)
{
    struct history *h = &d->shard->history;
    series_free(&h->pool, &d->history.series);
    if (!d->history.prev && h->first != d) /* it was never open */
        return;
    if (h->cursor == d)
        h->cursor = d->history.next;
    *(d->history.prev ? &d->history.prev->history.next : &h->first) = d->history.next;
    if (d->history.next)
        d->history.next->history.prev = d->history.prev;
    d->history.next = d->history.prev = NULL;
}

static uint64_t head_s(const struct lane_view *lane)
{
    return lane->ready > 0 && lane->head_ms > 0 ? (uint64_t)lane->head_ms / 1000 : 0;
}

static void values_of(const struct dispatcher *d, uint64_t values[SERIES_VALUES])
{
    const struct queue_view *v = engine_queue_moment(d->queue);
    uint64_t oldest_s = 0;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct lane_view *lane = &v->lanes[slot];
        uint64_t *level = values + HISTORY_LEVELS + slot * HISTORY_LEVEL_VALUES;
        level[HISTORY_READY] = lane->ready;
        level[HISTORY_SCHEDULED] = lane->scheduled;
        level[HISTORY_IN_FLIGHT] = lane->leased;
        level[HISTORY_DEAD] = lane->dead;
        level[HISTORY_OLDEST] = head_s(lane);
        if (level[HISTORY_OLDEST] > 0 && (oldest_s == 0 || level[HISTORY_OLDEST] < oldest_s))
            oldest_s = level[HISTORY_OLDEST];
    }
    values[HISTORY_READY] = v->ready;
    values[HISTORY_SCHEDULED] = v->scheduled;
    values[HISTORY_IN_FLIGHT] = v->leased;
    values[HISTORY_DEAD] = v->dead;
    values[HISTORY_OLDEST] = oldest_s;
    values[HISTORY_ENQUEUED] = v->totals.enqueued;
    values[HISTORY_CLAIMED] = v->totals.claimed;
    values[HISTORY_ACKED] = v->totals.acked;
    values[HISTORY_FAILED] = v->totals.nacked + v->totals.lease_expired;
}

static void record(struct shard *s, struct dispatcher *d)
{
    uint64_t values[SERIES_VALUES];
    values_of(d, values);
    for (int tier = 0; tier < SERIES_TIERS; tier++) {
        int64_t step_s = series_tiers[tier].step_s;
        if (s->history.round_s / step_s != s->history.before_s / step_s)
            series_record(&s->history.pool, &d->history.series, tier,
                          s->history.round_s / step_s * step_s, values);
    }
}

void history_turn(struct shard *s)
{
    struct history *h = &s->history;
    int64_t now_s = s->now.wall_ms / 1000;
    if (!is_on(s))
        return;
    if (!h->cursor && now_s != h->round_s) {
        h->before_s = h->round_s;
        h->round_s = now_s;
        h->cursor = h->first;
        series_expire(&h->pool, now_s);
    }
    for (int i = 0; i < ROUND_PORTION && h->cursor; i++) {
        struct dispatcher *d = h->cursor;
        h->cursor = d->history.next;
        if (d->state == DISPATCHER_OPEN)
            record(s, d);
    }
}

int64_t history_due_ms(const struct shard *s)
{
    if (!is_on(s))
        return INT64_MAX;
    return s->history.cursor ? 0 : 1000 - s->now.wall_ms % 1000;
}
