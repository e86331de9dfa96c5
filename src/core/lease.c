#include "base/mem.h"
#include "base/plant.h"
#include "core/age.h"
#include "core/moves.h"

#include <assert.h>
#include <string.h>

bool queue_past_ttl(const struct message *m, struct instant now)
{
    return m->expiry && m->expiry->node.key <= now.wall_ms && !PLANTED(TTL_IGNORED);
}

bool lane_tail_claimable(const struct lane *l)
{
    return l->tail.ready > 0 || (l->tail.lags && l->tail.scheduled > 0);
}

bool lane_head_known(const struct lane *l)
{
    const struct order_node *head = order_first(&l->ready);
    return !lane_tail_claimable(l) || (head && lane_within_bound(l, head->key, head->tie));
}

/* Expired messages that one claim ends by itself; more are left to the sweep. */
#define OUTLIVED_MAX 64

/* What a claim would find at the head of a lane. */
struct lane_look {
    uint32_t known;
    bool outlived; /* a sweep has to end messages that have outlived their time to live first */
    bool missing;  /* the next message, or its body, is not in memory */
};

/* The end of an outlived message may have to read a dedup key or a body, which only a sweep can. */
static bool end_reads(const struct queue *q, const struct message *m)
{
    return q->reports && (m->dedup_len > 0 || !m->body);
}

static struct lane_look look_at_lane(const struct queue *q, const struct lane *l, uint32_t need,
                                     struct instant now)
{
    struct lane_look look = {0};
    uint32_t past = 0;
    bool claimable = lane_tail_claimable(l);
    const struct order_node *n = order_first(&l->ready);
    for (; n && look.known < need; n = order_next(&l->ready, n)) {
        const struct message *m = message_of(n);
        if (claimable && !lane_within_bound(l, n->key, n->tie))
            break;
        if (queue_past_ttl(m, now)) {
            look.outlived = ++past > OUTLIVED_MAX || end_reads(q, m);
            if (look.outlived)
                return look;
        } else if (!m->body) {
            look.missing = true;
            return look;
        } else {
            look.known++;
        }
    }
    look.missing = look.known < need && claimable;
    return look;
}

bool queue_holds(const struct queue *q, const struct claim_question *ask, struct instant now,
                 uint32_t *missing)
{
    const struct order_node *expiring = order_first(&q->expiring);
    bool outlived = false;
    assert(ask->max_rank >= 0);
    assert(ask->max_rank < q->config->level_count);
    *missing = 0;
    if (q->tail + q->bodiless == 0 && (!expiring || expiring->key > now.wall_ms))
        return true;
    uint32_t sure = 0;
    for (int rank = 0; rank <= ask->max_rank && sure < ask->want; rank++) {
        uint8_t slot = q->config->levels[rank].slot;
        uint32_t room = policy_lane_room(q->config, q->view, rank);
        struct lane_look look = look_at_lane(q, &q->lanes[slot], ask->want - sure, now);
        outlived = outlived || look.outlived;
        if (look.missing)
            *missing |= 1U << slot;
        if (ask->in_order)
            sure += look.known < room ? look.known : room;
    }
    return *missing == 0 && !outlived;
}

/* The messages of a deep queue are not in the processor's cache. So a claim asks for the body of
 * the next message, and for the message after that. The next message itself was asked for by the
 * claim before this one. */
static void prefetch_behind(const struct order *ready, const struct message *m)
{
    const struct order_node *next = order_next(ready, &m->node);
    if (!next)
        return;
    const struct message *first = container_of(next, struct message, node);
    __builtin_prefetch(first->body);
    for (uint32_t i = 1; i < next->height; i++) /* to remove a node is to write to these */
        __builtin_prefetch(&next->links[i].next->links[i], 1);
    const struct order_node *after = order_next(ready, next);
    if (!after)
        return;
    const struct message *second = container_of(after, struct message, node);
    __builtin_prefetch(second);
    __builtin_prefetch(&second->node.links[0]);
}

enum head queue_head(struct queue *q, uint8_t slot, struct instant now, struct message **m)
{
    const struct lane *l = &q->lanes[slot];
    *m = NULL;
    while (lane_head_known(l)) {
        struct order_node *head = order_first(&l->ready);
        if (!head)
            return HEAD_NONE;
        struct order_node *next = PLANTED(FIFO_TIE) ? order_next(&l->ready, head) : NULL;
        if (next && next->key == head->key)
            head = next;
        struct message *first = message_of(head);
        assert(first->state == MESSAGE_READY);
        assert(first->slot == slot);
        if (!queue_past_ttl(first, now)) {
            *m = first;
            return HEAD_HERE;
        }
        queue_expire(q, first, now);
    }
    return HEAD_ELSEWHERE;
}

static void count_claim(struct queue *q, const struct message *m, struct instant now)
{
    struct queue_totals *t = &q->view->totals;
    int rank = levels_rank_of_slot(q->config, m->slot);
    assert(rank >= 0); /* a level that holds messages does not vanish */
    t->claimed++;
    t->redelivered += m->attempts > 1;
    t->aged += age_aged(q->config, rank, m->ready_ms, now.wall_ms);
    t->late += age_late(q->config, rank, m->ready_ms, now.wall_ms);
}

/* What is true of every leased message. */
static inline void assert_leased(const struct message *m)
{
    assert(m->state == MESSAGE_LEASED);
    assert(m->delivery);
    assert(m->node.height > 0);
    assert(m->node.key == m->delivery->lease_until_ms);
    assert(m->attempts > 0 || message_leaves(m));
    assert(m->touched);
}

void queue_lease(struct queue *q, struct message *m, int64_t lease_ms, struct instant now)
{
    assert(m->state == MESSAGE_READY);
    assert(lease_ms >= 0);
    prefetch_behind(&q->lanes[m->slot].ready, m);
    struct delivery *d = message_delivery(m);
    receipt_stamp(d->receipt, now.wall_ms);
    q->random(d->receipt + RECEIPT_TIME_BYTES, sizeof(d->receipt) - RECEIPT_TIME_BYTES);
    d->lease_ms = lease_ms;
    d->lease_until_ms = now.mono_ms + (PLANTED(SHORT_LEASE) ? lease_ms / 2 : lease_ms);
    if (m->attempts < UINT16_MAX) /* an import may bring the largest number */
        m->attempts += !PLANTED(FORGET_ATTEMPT) || m->attempts == 0;
    count_claim(q, m, now);
    queue_move(q, m, MESSAGE_LEASED);
    queue_touch(q, m, MESSAGE_READY, m->slot);
    assert(q->leased.count == q->view->leased);
}

/* Gives the message back: to its old place, or to a later time after a delay. If its time to live
 * has passed, it expires instead. Returns its state; the message may be freed by then. */
static enum message_state give_back(struct queue *q, struct message *m, int64_t delay_ms,
                                    struct instant now)
{
    assert(m->state == MESSAGE_LEASED);
    assert(delay_ms >= 0);
    if (queue_past_ttl(m, now)) {
        queue_expire(q, m, now);
        return queue_expires_as(q);
    }
    if (delay_ms > 0)
        m->ready_ms = now.wall_ms + delay_ms;
    queue_move(q, m, delay_ms > 0 ? MESSAGE_SCHEDULED : MESSAGE_READY);
    queue_touch(q, m, MESSAGE_LEASED, m->slot);
    assert(message_pending(m));
    return m->state;
}

enum message_state queue_fail(struct queue *q, struct message *m, int64_t delay_ms,
                              const char *reason, uint32_t reason_len, struct instant now)
{
    assert(m->state == MESSAGE_LEASED);
    message_set_reason(m, reason, reason_len);
    if (m->attempts >= q->config->max_attempts || delay_ms == NACK_DEAD) {
        queue_end(q, m, MESSAGE_DEAD, now);
        return MESSAGE_DEAD;
    }
    if (PLANTED(PRIORITY_LOST))
        m->slot = q->config->levels[q->config->level_count - 1].slot;
    if (delay_ms < 0) {
        uint32_t bits;
        q->random(&bits, sizeof(bits));
        delay_ms = config_backoff_ms(q->config, m->attempts, bits / 4294967296.0);
    }
    return give_back(q, m, delay_ms, now);
}

/* The message that the receipt belongs to; NULL with the refusal in item->status. */
static inline struct message *unlock(struct queue *q, struct settle_item *item, struct instant now)
{
    struct message *m = queue_find(q, &item->id, now);
    if (!m) {
        item->status = STATUS_MESSAGE_NOT_FOUND;
        return NULL;
    }
    if (m->state == MESSAGE_LEASED)
        assert_leased(m);
    bool valid =
        m->state == MESSAGE_LEASED && !message_leaves(m) &&
        m->delivery->lease_until_ms > now.mono_ms &&
        (memcmp(m->delivery->receipt, item->receipt, RECEIPT_BYTES) == 0 || PLANTED(OLD_RECEIPT));
    item->status = valid ? STATUS_OK : STATUS_RECEIPT_EXPIRED;
    return valid ? m : NULL;
}

void queue_ack(struct queue *q, struct settle_item *item, struct instant now)
{
    struct message *m = unlock(q, item, now);
    if (!m)
        return;
    item->state = MESSAGE_DONE;
    item->slot = m->slot;
    queue_end(q, m, MESSAGE_DONE, now);
}

void queue_nack(struct queue *q, struct settle_item *item, int64_t delay_ms, const char *reason,
                uint32_t reason_len, struct instant now)
{
    static const char unsaid[] = "nacked";
    struct message *m = unlock(q, item, now);
    if (!m)
        return;
    q->view->totals.nacked++;
    item->slot = m->slot;
    item->state = queue_fail(q, m, delay_ms, reason_len ? reason : unsaid,
                             reason_len ? reason_len : (uint32_t)sizeof(unsaid) - 1, now);
}

void queue_release(struct queue *q, struct settle_item *item, struct instant now)
{
    struct message *m = unlock(q, item, now);
    if (!m)
        return;
    q->view->totals.released++;
    item->slot = m->slot;
    m->attempts--;
    item->state = give_back(q, m, 0, now);
}

void queue_extend(struct queue *q, struct settle_item *item, int64_t lease_ms, struct instant now)
{
    assert(lease_ms >= 0);
    struct message *m = unlock(q, item, now);
    if (!m)
        return;
    m->delivery->lease_ms = lease_ms;
    m->delivery->lease_until_ms = now.mono_ms + lease_ms;
    queue_move(q, m, MESSAGE_LEASED);
    queue_touch(q, m, MESSAGE_LEASED, m->slot);
    assert_leased(m);
    item->state = MESSAGE_LEASED;
    item->slot = m->slot;
    item->lease_until_ms = now.wall_ms + lease_ms;
}
