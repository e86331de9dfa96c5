#include "core/queue.h"
#include "base/mem.h"
#include "base/plant.h"
#include "core/age.h"
#include "core/dedup.h"
#include "core/moves.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Steps of the wall clock up to this are smoothed away, so that they cannot turn first in, first
 * out around; beyond it the clock was set, and is followed. */
#define CLOCK_STEP_MS 1000

void queue_init(struct queue *q, uint32_t id, struct queue_config *config, struct queue_view *view,
                uint64_t *next_seq, void (*random)(void *out, size_t len))
{
    *q = (struct queue){
        .id = id,
        .config = config,
        .view = view,
        .next_seq = next_seq,
        .random = random,
        .store_due_ms = INT64_MAX,
    };
    for (int i = 0; i < LEVEL_COUNT_MAX; i++) {
        order_init(&q->lanes[i].ready);
        order_init(&q->lanes[i].scheduled);
        q->lanes[i].tail_due_ms = INT64_MAX;
    }
    order_init(&q->leased);
    order_init(&q->expiring);
    order_init(&q->history);
    order_init(&q->dedup_until);
}

static void free_all(struct seqmap *messages)
{
    uint64_t seq = 0;
    for (struct message *m; (m = seqmap_next(messages, seq, &seq)); seq++)
        message_free(m);
    seqmap_fini(messages);
}

void queue_fini(struct queue *q)
{
    if (q->memory_total)
        *q->memory_total -= q->memory;
    dedup_clear(q);
    free_all(&q->messages);
    free_all(&q->dead);
    for (int i = 0; i < LEVEL_COUNT_MAX; i++) {
        order_fini(&q->lanes[i].ready);
        order_fini(&q->lanes[i].scheduled);
    }
    order_fini(&q->leased);
    order_fini(&q->expiring);
    order_fini(&q->history);
    order_fini(&q->dedup_until);
}

/* Places */

static struct order *place_of(struct queue *q, const struct message *m, enum message_state state)
{
    switch (state) {
    case MESSAGE_SCHEDULED:
        return &q->lanes[m->slot].scheduled;
    case MESSAGE_READY:
        return &q->lanes[m->slot].ready;
    case MESSAGE_LEASED:
        return &q->leased;
    case MESSAGE_DONE:
        return &q->history;
    default:
        return NULL;
    }
}

static int64_t place_key(const struct message *m, enum message_state state)
{
    switch (state) {
    case MESSAGE_LEASED:
        return m->delivery->lease_until_ms;
    case MESSAGE_DONE:
        return m->delivery->died_ms;
    default:
        return m->ready_ms;
    }
}

void queue_count(struct queue *q, const struct message *m, enum message_state state, int by)
{
    struct queue_view *v = q->view;
    struct lane_view *lane = &v->lanes[m->slot];
    uint64_t delta = (uint64_t)(int64_t)by;
    switch (state) {
    case MESSAGE_SCHEDULED:
        lane->scheduled += delta;
        v->scheduled += delta;
        break;
    case MESSAGE_READY:
        lane->ready += delta;
        v->ready += delta;
        break;
    case MESSAGE_LEASED:
        lane->leased += delta;
        v->leased += delta;
        break;
    case MESSAGE_DEAD:
        lane->dead += delta;
        v->dead += delta;
        break;
    default:
        break;
    }
    if (state == MESSAGE_SCHEDULED || state == MESSAGE_READY)
        v->bytes += (uint64_t)by * message_bytes(m);
}

static void refresh_head(struct queue *q, uint8_t slot)
{
    const struct order_node *head = order_first(&q->lanes[slot].ready);
    struct lane_view *v = &q->view->lanes[slot];
    if (head) {
        v->head_ms = head->key;
        v->head_seq = head->tie;
    }
}

/* A time to live runs only while the message waits. */
static void expiry_follow(struct queue *q, struct message *m)
{
    if (!m->expiry)
        return;
    bool listed = m->expiry->node.height > 0;
    if (message_pending(m) && !listed)
        order_insert(&q->expiring, &m->expiry->node);
    else if (!message_pending(m) && listed)
        order_remove(&q->expiring, &m->expiry->node);
}

/* Which moves there are. Everything else is a bug. */
static const bool legal[MESSAGE_STATE_COUNT][MESSAGE_STATE_COUNT] = {
    [MESSAGE_NEW] = {[MESSAGE_SCHEDULED] = true,
                     [MESSAGE_READY] = true,
                     [MESSAGE_LEASED] = true,
                     [MESSAGE_DEAD] = true,
                     [MESSAGE_DONE] = true},
    [MESSAGE_SCHEDULED] = {[MESSAGE_READY] = true,
                           [MESSAGE_EXPIRED] = true,
                           [MESSAGE_CANCELLED] = true,
                           [MESSAGE_DEAD] = true,
                           [MESSAGE_NEW] = true},
    [MESSAGE_READY] = {[MESSAGE_LEASED] = true,
                       [MESSAGE_EXPIRED] = true,
                       [MESSAGE_CANCELLED] = true,
                       [MESSAGE_DEAD] = true,
                       [MESSAGE_NEW] = true},
    [MESSAGE_LEASED] = {[MESSAGE_READY] = true,
                        [MESSAGE_SCHEDULED] = true,
                        [MESSAGE_DONE] = true,
                        [MESSAGE_DEAD] = true,
                        [MESSAGE_LEASED] = true,
                        [MESSAGE_EXPIRED] = true},
    [MESSAGE_DEAD] = {[MESSAGE_CANCELLED] = true, [MESSAGE_NEW] = true},
    [MESSAGE_DONE] = {[MESSAGE_NEW] = true},
};

static void count_cold(struct queue *q, const struct message *m, enum message_state state, int by)
{
    if (!m->cold || m->touched)
        return;
    struct lane *l = &q->lanes[m->slot];
    l->cold_ready += state == MESSAGE_READY ? (uint64_t)(int64_t)by : 0;
    l->cold_scheduled += state == MESSAGE_SCHEDULED ? (uint64_t)(int64_t)by : 0;
}

void queue_move(struct queue *q, struct message *m, enum message_state to)
{
    enum message_state from = m->state;
    assert(legal[from][to]);
    struct order *place = place_of(q, m, from);
    if (place)
        order_remove(place, &m->node);
    queue_count(q, m, from, -1);
    count_cold(q, m, from, -1);
    m->state = (uint8_t)to;
    queue_count(q, m, to, +1);
    count_cold(q, m, to, +1);
    place = place_of(q, m, to);
    if (place) {
        m->node.key = place_key(m, to);
        order_insert(place, &m->node);
    }
    expiry_follow(q, m);
    if (from == MESSAGE_READY || to == MESSAGE_READY)
        refresh_head(q, m->slot);
}

void queue_touch(struct queue *q, struct message *m)
{
    bool first = !m->touched;
    m->touched = true;
    if (q->backing)
        q->backing->changed(q, m, first);
}

static void account(struct queue *q, const struct message *m, int by)
{
    uint64_t delta = (uint64_t)by * message_memory(m);
    q->memory += delta;
    if (q->memory_total)
        *q->memory_total += delta;
}

static void enlist(struct queue *q, struct message *m)
{
    seqmap_put(m->state == MESSAGE_DEAD ? &q->dead : &q->messages, message_seq(m), m);
    account(q, m, +1);
}

static void delist(struct queue *q, struct message *m)
{
    void *found = seqmap_remove(m->state == MESSAGE_DEAD ? &q->dead : &q->messages, message_seq(m));
    assert(found == m);
    account(q, m, -1);
}

/* Putting */

int64_t queue_order_time(struct queue *q, struct instant now)
{
    bool small_step_back = now.wall_ms < q->clock_ms && q->clock_ms - now.wall_ms <= CLOCK_STEP_MS;
    if (!small_step_back)
        q->clock_ms = now.wall_ms;
    return q->clock_ms;
}

struct delivery *message_delivery(struct message *m)
{
    if (!m->delivery)
        m->delivery = mem_zalloc(sizeof(*m->delivery));
    return m->delivery;
}

void queue_expiry_set(struct queue *q, struct message *m, int64_t expire_ms)
{
    assert(!m->expiry);
    (void)q;
    m->expiry = mem_alloc(sizeof(*m->expiry) + order_node_extra(message_seq(m)));
    *m->expiry = (struct expiry){.message = m};
    m->expiry->node.key = expire_ms;
    m->expiry->node.tie = message_seq(m);
    m->expiry->node.height = 0;
}

static bool full(const struct queue *q, const struct draft *d)
{
    const struct queue_view *v = q->view;
    uint64_t len = (uint64_t)d->payload_len + d->metadata_len;
    return (q->config->max_depth &&
            v->ready + v->scheduled >= q->config->max_depth + PLANTED(QUOTA_OFF_BY_ONE)) ||
           (q->config->max_bytes && v->bytes + len > q->config->max_bytes);
}

/* Larger by itself than all the queue may hold: waiting would not help. */
static bool never_fits(const struct queue *q, const struct draft *d)
{
    return q->config->max_bytes &&
           (uint64_t)d->payload_len + d->metadata_len > q->config->max_bytes;
}

static struct message *from_draft(struct queue *q, struct draft *d, int rank, struct instant now)
{
    struct message *m = message_new((*q->next_seq)++);
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
        queue_expiry_set(q, m, now.wall_ms + ttl_ms);
    return m;
}

/* A tail holds only what is as it was born. */
void queue_settle_in(struct queue *q, struct message *m)
{
    if (m->touched || queue_keeps_in_memory(q, m)) {
        queue_move(q, m, m->ready_ms <= q->clock_ms ? MESSAGE_READY : MESSAGE_SCHEDULED);
        enlist(q, m);
        if (q->backing)
            q->backing->stored(q, m, true);
    } else {
        queue_tail_advance(q, m->slot, q->clock_ms);
        queue_tail_add(q, m);
        q->backing->stored(q, m, false);
    }
}

void queue_put(struct queue *q, struct put_item *item, struct instant now)
{
    struct draft *d = &item->draft;
    item->deduplicated = false;
    int rank = levels_resolve(q->config, &d->priority);
    if (rank < 0) {
        item->status = STATUS_UNKNOWN_PRIORITY;
        return;
    }
    struct dedup_hit hit;
    const char *key = d->body + d->payload_len + d->metadata_len;
    if (d->dedup_len > 0 && dedup_find(q, key, d->dedup_len, now, &hit)) {
        q->view->totals.deduplicated++;
        item->status = STATUS_OK;
        item->deduplicated = true;
        item->id = hit.id;
        item->enqueued_ms = hit.enqueued_ms;
        return;
    }
    if (never_fits(q, d) || full(q, d)) {
        item->status = never_fits(q, d) ? STATUS_PAYLOAD_TOO_LARGE : STATUS_QUEUE_FULL;
        return;
    }
    /* Before anything is done for this message: counting what is due in the tail may commit a
     * group. */
    uint8_t slot = q->config->levels[rank].slot;
    if (lane_has_tail(&q->lanes[slot]))
        queue_tail_advance(q, slot, queue_order_time(q, now));
    struct message *m = from_draft(q, d, rank, now);
    item->status = STATUS_OK;
    item->id = message_identity(m, q->id);
    item->enqueued_ms = m->enqueued_ms;
    q->view->totals.enqueued++;
    if (m->dedup_len > 0)
        dedup_put(q, m);
    queue_settle_in(q, m);
}

/* Finding */

static struct message *in_memory(struct queue *q, const struct message_id *id)
{
    struct message *m = seqmap_get(&q->messages, id->seq);
    if (!m)
        m = seqmap_get(&q->dead, id->seq);
    return m && m->born_ms == id->ready_ms && m->born_slot == id->slot ? m : NULL;
}

struct message *queue_find(struct queue *q, const struct message_id *id)
{
    if (id->queue != q->id || id->seq >= *q->next_seq)
        return NULL;
    struct message *m = in_memory(q, id);
    if (!m && q->backing) {
        q->backing->recall(q, id);
        m = in_memory(q, id);
    }
    return m;
}

void queue_need_body(struct queue *q, struct message *m)
{
    if (m->body)
        return;
    assert(q->backing);
    account(q, m, -1);
    q->backing->body(q, m);
    account(q, m, +1);
}

/* Ending */

static bool kept_in_memory(const struct queue *q, enum message_state to)
{
    return !q->backing && (to == MESSAGE_DEAD || (to == MESSAGE_DONE && q->config->history_ms > 0));
}

void queue_end(struct queue *q, struct message *m, enum message_state to, struct instant now)
{
    struct queue_totals *t = &q->view->totals;
    t->acked += to == MESSAGE_DONE;
    t->expired += to == MESSAGE_EXPIRED;
    t->cancelled += to == MESSAGE_CANCELLED;
    t->dead += to == MESSAGE_DEAD;
    if (m->dedup_len > 0 && to != MESSAGE_DEAD)
        dedup_release(q, m);
    if (to == MESSAGE_DEAD || to == MESSAGE_DONE)
        message_delivery(m)->died_ms = now.wall_ms;
    if (q->backing)
        q->backing->ended(q, m, to, now);
    delist(q, m);
    bool keep = kept_in_memory(q, to);
    if (to == MESSAGE_DONE && !keep) { /* straight out: history is a place only when it is kept */
        order_remove(&q->leased, &m->node);
        queue_count(q, m, MESSAGE_LEASED, -1);
        message_free(m);
        return;
    }
    queue_move(q, m, to);
    if (keep)
        enlist(q, m);
    else
        message_free(m);
}

void queue_set_reason(struct message *m, const char *reason, uint32_t len)
{
    struct delivery *d = message_delivery(m);
    free(d->reason);
    d->reason = len > 0 ? mem_dup(reason, len) : NULL;
    d->reason_len = len;
}

bool queue_past_ttl(const struct message *m, struct instant now)
{
    return m->expiry && m->expiry->node.key <= now.wall_ms && !PLANTED(TTL_IGNORED);
}

void queue_expire(struct queue *q, struct message *m, struct instant now)
{
    static const char reason[] = "expired";
    if (q->config->expired == EXPIRED_DEAD) {
        queue_set_reason(m, reason, sizeof(reason) - 1);
        queue_end(q, m, MESSAGE_DEAD, now);
    } else {
        queue_end(q, m, MESSAGE_EXPIRED, now);
    }
}

/* Leases */

bool lane_head_known(const struct lane *l)
{
    const struct order_node *head = order_first(&l->ready);
    return l->tail_ready == 0 || (head && lane_within_bound(l, head->key, head->tie));
}

static struct message *lane_head(struct queue *q, uint8_t slot, struct instant now)
{
    struct lane *l = &q->lanes[slot];
    for (;;) {
        struct order_node *head = order_first(&l->ready);
        uint64_t behind = l->tail_ready;
        if (lane_head_known(l))
            return head ? container_of(head, struct message, node) : NULL;
        q->backing->refill(q, slot, now);
        if (l->tail_ready == behind) /* the store could not: what is here has to do */
            return NULL;
    }
}

/* Deep queues are not in the cache. The claim after next will want the message after next; the one
 * after this was asked for by the claim before. */
static void prefetch_behind(const struct order *ready, const struct message *m)
{
    const struct order_node *next = order_next(ready, &m->node);
    if (!next)
        return;
    const struct message *first = container_of(next, struct message, node);
    __builtin_prefetch(first->body);
    for (uint32_t i = 1; i < next->height; i++) /* taking it out writes to these */
        __builtin_prefetch(&next->links[i].next->links[i], 1);
    const struct order_node *after = order_next(ready, next);
    if (!after)
        return;
    const struct message *second = container_of(after, struct message, node);
    __builtin_prefetch(second);
    __builtin_prefetch(&second->node.links[0]);
}

struct message *queue_head(struct queue *q, uint8_t slot, struct instant now)
{
    struct message *m;
    while ((m = lane_head(q, slot, now)) && queue_past_ttl(m, now))
        queue_expire(q, m, now);
    return m;
}

static void count_claim(struct queue *q, const struct message *m, struct instant now)
{
    struct queue_totals *t = &q->view->totals;
    int rank = levels_rank_of_slot(q->config, m->slot);
    t->claimed++;
    t->redelivered += m->attempts > 1;
    t->aged += age_aged(q->config, rank, m->ready_ms, now.wall_ms);
    t->late += age_late(q->config, rank, m->ready_ms, now.wall_ms);
}

void queue_lease(struct queue *q, struct message *m, int64_t lease_ms, struct instant now)
{
    prefetch_behind(&q->lanes[m->slot].ready, m);
    struct delivery *d = message_delivery(m);
    q->random(d->receipt, sizeof(d->receipt));
    d->lease_ms = lease_ms;
    d->lease_until_ms = now.mono_ms + (PLANTED(SHORT_LEASE) ? lease_ms / 2 : lease_ms);
    m->attempts += !PLANTED(FORGET_ATTEMPT) || m->attempts == 0;
    count_claim(q, m, now);
    queue_move(q, m, MESSAGE_LEASED);
    queue_touch(q, m);
}

/* Back to where it stood, or to a later time; or out, when its time to live has passed. Returns the
 * state it is in now; the message may be gone. */
static enum message_state give_back(struct queue *q, struct message *m, int64_t delay_ms,
                                    struct instant now)
{
    if (queue_past_ttl(m, now)) {
        queue_expire(q, m, now);
        return q->config->expired == EXPIRED_DEAD ? MESSAGE_DEAD : MESSAGE_EXPIRED;
    }
    if (delay_ms > 0)
        m->ready_ms = now.wall_ms + delay_ms;
    queue_move(q, m, delay_ms > 0 ? MESSAGE_SCHEDULED : MESSAGE_READY);
    queue_touch(q, m);
    return m->state;
}

enum message_state queue_fail(struct queue *q, struct message *m, int64_t delay_ms,
                              const char *reason, uint32_t reason_len, struct instant now)
{
    queue_set_reason(m, reason, reason_len);
    if (m->attempts >= q->config->max_attempts) {
        queue_end(q, m, MESSAGE_DEAD, now);
        return MESSAGE_DEAD;
    }
    if (PLANTED(PRIORITY_LOST))
        m->slot = q->config->levels[q->config->level_count - 1].slot;
    if (delay_ms < 0) {
        uint32_t bits;
        q->random(&bits, sizeof(bits));
        delay_ms = levels_backoff_ms(q->config, m->attempts, bits / 4294967296.0);
    }
    return give_back(q, m, delay_ms, now);
}

/* The message this receipt is the key to; else NULL with the refusal in item->status. */
static struct message *unlock(struct queue *q, struct settle_item *item, struct instant now)
{
    struct message *m = queue_find(q, &item->id);
    if (!m) {
        item->status = STATUS_MESSAGE_NOT_FOUND;
        return NULL;
    }
    bool valid =
        m->state == MESSAGE_LEASED && m->delivery->lease_until_ms > now.mono_ms &&
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
    item->state = queue_fail(q, m, delay_ms, reason_len ? reason : unsaid,
                             reason_len ? reason_len : (uint32_t)sizeof(unsaid) - 1, now);
}

void queue_release(struct queue *q, struct settle_item *item, struct instant now)
{
    struct message *m = unlock(q, item, now);
    if (!m)
        return;
    q->view->totals.released++;
    m->attempts--;
    item->state = give_back(q, m, 0, now);
}

void queue_extend(struct queue *q, struct settle_item *item, int64_t lease_ms, struct instant now)
{
    struct message *m = unlock(q, item, now);
    if (!m)
        return;
    m->delivery->lease_ms = lease_ms;
    m->delivery->lease_until_ms = now.mono_ms + lease_ms;
    queue_move(q, m, MESSAGE_LEASED);
    queue_touch(q, m);
    item->state = MESSAGE_LEASED;
    item->slot = m->slot;
    item->lease_until_ms = now.wall_ms + lease_ms;
}

/* Without a receipt */

void queue_cancel_pending(struct queue *q, struct message *m, struct instant now)
{
    assert(message_pending(m));
    queue_end(q, m, MESSAGE_CANCELLED, now);
}

enum status queue_cancel(struct queue *q, const struct message_id *id, struct instant now)
{
    struct message *m = queue_find(q, id);
    if (!m)
        return STATUS_MESSAGE_NOT_FOUND;
    if (!message_pending(m))
        return STATUS_NOT_PENDING;
    if (!PLANTED(CANCEL_FORGOTTEN))
        queue_cancel_pending(q, m, now);
    return STATUS_OK;
}

struct escalation *escalation_new(uint8_t from_slot, const struct move_note *note, int64_t wall_ms)
{
    struct escalation *e = mem_alloc(sizeof(*e) + note->actor_len + note->reason_len);
    e->at_ms = wall_ms;
    e->from_slot = from_slot;
    e->actor_len = note->actor_len;
    e->reason_len = note->reason_len;
    if (note->actor_len > 0)
        memcpy(e->text, note->actor, note->actor_len);
    if (note->reason_len > 0)
        memcpy(e->text + note->actor_len, note->reason, note->reason_len);
    return e;
}

/* From its place in one lane to the same place in another. */
static void change_lane(struct queue *q, struct message *m, uint8_t slot)
{
    enum message_state state = m->state;
    bool first = !m->touched;
    queue_move(q, m, MESSAGE_NEW);
    m->touched = true; /* before it stands in the new lane, whose cold messages it is not one of */
    m->slot = slot;
    queue_move(q, m, state);
    if (q->backing)
        q->backing->changed(q, m, first);
}

void queue_escalate(struct queue *q, struct move_item *item, uint8_t slot,
                    const struct move_note *note, struct instant now)
{
    struct message *m = queue_find(q, &item->id);
    item->changed = false;
    item->status = !m                   ? STATUS_MESSAGE_NOT_FOUND
                   : message_pending(m) ? STATUS_OK
                                        : STATUS_NOT_PENDING;
    if (item->status)
        return;
    item->state = m->state;
    item->from_slot = m->slot;
    if (m->slot == slot)
        return;
    struct delivery *d = message_delivery(m);
    free(d->escalation);
    d->escalation = escalation_new(m->slot, note, now.wall_ms);
    item->changed = true;
    q->view->totals.escalated++;
    change_lane(q, m, slot);
}

void queue_redrive(struct queue *q, struct message *m, int slot, struct instant now)
{
    assert(m->state == MESSAGE_DEAD);
    delist(q, m);
    queue_move(q, m, MESSAGE_NEW);
    m->attempts = 0;
    free(m->expiry); /* its time to live is over; it was asked for again */
    m->expiry = NULL;
    if (m->ready_ms > now.wall_ms)
        m->ready_ms = now.wall_ms;
    if (slot >= 0)
        m->slot = (uint8_t)slot;
    m->touched = true;
    q->view->totals.redriven++;
    queue_move(q, m, MESSAGE_READY);
    enlist(q, m);
    if (q->backing)
        q->backing->revived(q, m);
}

void queue_drop_dead(struct queue *q, struct message *m, struct instant now)
{
    assert(m->state == MESSAGE_DEAD);
    queue_end(q, m, MESSAGE_CANCELLED, now);
}

/* For stores */

int64_t queue_ready_time(const struct queue *q, const struct message *m, struct instant now)
{
    const struct lane *l = &q->lanes[m->slot];
    return m->cold && l->tail_clock_ms > now.wall_ms ? l->tail_clock_ms : now.wall_ms;
}

void queue_restore(struct queue *q, struct message *m, struct instant now)
{
    enum message_state to = m->state;
    if (message_pending(m))
        to = m->ready_ms <= queue_ready_time(q, m, now) ? MESSAGE_READY : MESSAGE_SCHEDULED;
    m->state = MESSAGE_NEW;
    queue_move(q, m, to);
    enlist(q, m);
}

void queue_detach(struct queue *q, struct message *m)
{
    delist(q, m);
    queue_move(q, m, MESSAGE_NEW);
}

void queue_forget(struct queue *q, struct message *m)
{
    queue_detach(q, m);
    message_free(m);
}

void queue_check(const struct queue *q)
{
    uint64_t ready = 0, scheduled = 0;
    for (int i = 0; i < LEVEL_COUNT_MAX; i++) {
        const struct lane *l = &q->lanes[i];
        const struct lane_view *v = &q->view->lanes[i];
        order_check(&l->ready);
        order_check(&l->scheduled);
        assert(v->ready == l->ready.count + l->tail_ready);
        assert(v->scheduled == l->scheduled.count + l->tail_scheduled);
        ready += v->ready;
        scheduled += v->scheduled;
    }
    assert(q->view->ready == ready);
    assert(q->view->scheduled == scheduled);
    assert(q->view->leased == q->leased.count);
    order_check(&q->leased);
    order_check(&q->expiring);
    uint64_t seq = 0, memory = 0;
    for (const struct message *m; (m = seqmap_next(&q->messages, seq, &seq)); seq++)
        memory += message_memory(m);
    seq = 0;
    for (const struct message *m; (m = seqmap_next(&q->dead, seq, &seq)); seq++)
        memory += message_memory(m);
    assert(memory == q->memory);
    const struct queue_totals *t = &q->view->totals;
    assert(t->enqueued == q->view->ready + q->view->scheduled + q->view->leased + q->view->dead +
                              t->acked + t->expired + t->cancelled);
}
