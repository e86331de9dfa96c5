#include "base/plant.h"
#include "core/dedup.h"
#include "core/moves.h"

#include <assert.h>

/* What becomes of a message whose lease has run out; READY: it does not end. */
static enum message_state lease_outcome(const struct queue *q, const struct message *m,
                                        struct instant now)
{
    if (m->attempts >= q->config->max_attempts)
        return MESSAGE_DEAD;
    return queue_past_ttl(m, now) ? queue_expires_as(q) : MESSAGE_READY;
}

uint32_t queue_sweep_ends(const struct queue *q, uint32_t max, struct instant now,
                          queue_end_fn *ends, void *ctx)
{
    uint32_t moved = 0;
    const struct order_node *n = order_first(&q->leased);
    for (; n && n->key <= now.mono_ms && moved < max; n = order_next(&q->leased, n), moved++) {
        const struct message *m = message_of(n);
        enum message_state to = lease_outcome(q, m, now);
        if (to != MESSAGE_READY && !ends(ctx, m, to))
            return moved;
    }
    n = order_first(&q->expiring);
    for (; n && n->key <= now.wall_ms && moved < max; n = order_next(&q->expiring, n), moved++) {
        if (!ends(ctx, message_of_expiry(n), queue_expires_as(q)))
            return moved;
    }
    return max;
}

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
        if (m->touched) /* if the clock is set back, its old record would be untrue */
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

/* How long the oldest message of the history is kept; 0: a change of the configuration has hidden
 * it, so it is due at once. */
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
