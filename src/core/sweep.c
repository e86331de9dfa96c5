#include "base/plant.h"
#include "core/dedup.h"
#include "core/moves.h"

#include <assert.h>

static uint32_t sweep_leases(struct queue *q, uint32_t max, struct instant now)
{
    static const char reason[] = "lease expired";
    uint32_t moved = 0;
    for (struct order_node *n; moved < max && (n = order_first(&q->leased)); moved++) {
        if (n->key > now.mono_ms)
            break;
        q->view->totals.lease_expired++;
        queue_fail(q, message_of(n), -1, reason, sizeof(reason) - 1, now);
    }
    return moved;
}

static uint32_t sweep_expiring(struct queue *q, uint32_t max, struct instant now)
{
    uint32_t moved = 0;
    for (struct order_node *n; moved < max && (n = order_first(&q->expiring)); moved++) {
        if (n->key > now.wall_ms || PLANTED(TTL_IGNORED))
            break;
        queue_expire(q, message_of_expiry(n), now);
    }
    return moved;
}

static uint32_t sweep_lane(struct queue *q, uint8_t slot, uint32_t max, struct instant now)
{
    struct lane *l = &q->lanes[slot];
    uint32_t moved = 0;
    for (struct order_node *n; moved < max && (n = order_first(&l->scheduled)); moved++) {
        if (n->key > now.wall_ms)
            break;
        struct message *m = message_of(n);
        assert(m->ready_ms == n->key);
        queue_move(q, m, MESSAGE_READY);
        if (m->touched) /* its record would say otherwise, should the clock be set back */
            queue_touch(q, m, MESSAGE_SCHEDULED, slot);
        else
            queue_report(q, m, REPORT_CAME, MESSAGE_SCHEDULED, slot, false);
    }
    if (l->tail.next_ms <= now.wall_ms)
        queue_tail_advance(q, slot, now.wall_ms);
    return moved;
}

static uint32_t sweep_history(struct queue *q, uint32_t max, struct instant now)
{
    uint32_t moved = 0;
    for (struct order_node *n; moved < max && (n = order_first(&q->history)); moved++) {
        struct message *m = message_of(n);
        if (queue_shows(q, m, now))
            break;
        queue_forget(q, m);
    }
    return moved;
}

uint32_t queue_sweep(struct queue *q, uint32_t max, struct instant now)
{
    uint32_t moved = sweep_leases(q, max, now);
    moved += sweep_expiring(q, max - moved, now);
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        moved += sweep_lane(q, slot, max - moved, now);
    moved += sweep_history(q, max - moved, now);
    moved += dedup_sweep(q, max - moved, now);
    assert(moved <= max);
    return moved;
}

static int64_t earlier(int64_t so_far, const struct order *o, int64_t plus)
{
    const struct order_node *first = order_first(o);
    return first && first->key + plus < so_far ? first->key + plus : so_far;
}

/* For how long the first of the history is kept; what is forgotten already is due at once. */
static int64_t history_left_ms(const struct queue *q)
{
    const struct order_node *first = order_first(&q->history);
    return first && first->key <= q->config->history_since_ms ? 0 : q->config->history_ms;
}

void queue_due(const struct queue *q, int64_t *wall_ms, int64_t *mono_ms)
{
    *mono_ms = earlier(INT64_MAX, &q->leased, 0);
    int64_t wall = earlier(INT64_MAX, &q->expiring, 0);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct lane *l = &q->lanes[slot];
        wall = earlier(wall, &l->scheduled, 0);
        if (l->tail.next_ms < wall && !l->tail.lags)
            wall = l->tail.next_ms;
    }
    wall = earlier(wall, &q->history, history_left_ms(q));
    *wall_ms = dedup_due(q, wall);
}
