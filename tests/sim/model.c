#include "sim/model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void model_init(struct model_queue *q, const struct engine_queue *real, const struct instant *now)
{
    q->now = now;
    q->id = real->id;
    q->config = real->config;
    q->forgot_ms = 0;
    q->count = 0;
    q->dedup_count = 0;
    q->totals = (struct queue_totals){0};
    q->next_seq = real->next_seq;
    q->order_ms = 0;
    q->pause_count = 0;
    if (q->config.paused)
        q->pauses[q->pause_count++] = q->config.pauses[0];
    model_refill(q);
}

static bool same_id(const struct message_id *a, const struct message_id *b)
{
    return a->queue == b->queue && a->slot == b->slot && a->ready_ms == b->ready_ms &&
           a->seq == b->seq;
}

/* History ends to the millisecond, whenever a sweep comes. */
static bool is_over(const struct model_queue *q, const struct model_message *m)
{
    return m->state == MESSAGE_DONE && m->ended_ms + q->config.history_ms <= q->now->wall_ms;
}

struct model_message *model_find(struct model_queue *q, const struct message_id *id)
{
    for (uint32_t i = 0; i < q->count; i++) {
        if (same_id(&q->messages[i].id, id))
            return is_over(q, &q->messages[i]) ? NULL : &q->messages[i];
    }
    return NULL;
}

static bool pending(const struct model_message *m)
{
    return m->state == MESSAGE_SCHEDULED || m->state == MESSAGE_READY;
}

/* The last key stored decides; older ones with that key have run out. */
static struct model_dedup *dedup_entry(const struct model_queue *q, int key)
{
    for (uint32_t i = q->dedup_count; i-- > 0;) {
        if (q->dedup[i].key == key)
            return (struct model_dedup *)&q->dedup[i];
    }
    return NULL;
}

bool model_dedup_certain(const struct model_queue *q, int key, struct instant now,
                         int64_t wall_high_ms)
{
    const struct model_dedup *e = dedup_entry(q, key);
    return !e || q->config.dedup_scope == DEDUP_LIVE || wall_high_ms < e->until_ms ||
           now.wall_ms >= e->until_ms;
}

static struct model_dedup *duplicate(struct model_queue *q, int key, struct instant now)
{
    struct model_dedup *e = key < 0 ? NULL : dedup_entry(q, key);
    if (!e)
        return NULL;
    if (q->config.dedup_scope == DEDUP_WINDOW)
        return now.wall_ms < e->until_ms ? e : NULL;
    const struct model_message *m = model_find(q, &e->id);
    return m && m->state != MESSAGE_DONE ? e : NULL;
}

static bool full(const struct model_queue *q, uint32_t bytes)
{
    struct queue_view v = model_view(q);
    return (q->config.max_depth > 0 && v.ready + v.scheduled >= q->config.max_depth) ||
           (q->config.max_bytes > 0 && v.bytes + bytes > q->config.max_bytes);
}

static void place(struct model_queue *q, struct model_message *m, const struct model_draft *d,
                  struct instant now)
{
    if (now.wall_ms >= q->order_ms || q->order_ms - now.wall_ms > MODEL_STEP_MS)
        q->order_ms = now.wall_ms;
    int64_t ttl_ms = d->ttl_ms == TTL_DEFAULT ? q->config.ttl_ms : d->ttl_ms;
    m->ready_ms = d->ready_ms == READY_NOW ? q->order_ms + d->delay_ms : d->ready_ms;
    m->state = m->ready_ms <= q->order_ms ? MESSAGE_READY : MESSAGE_SCHEDULED;
    m->expire_ms = ttl_ms > 0 ? now.wall_ms + ttl_ms : INT64_MAX;
}

enum status model_put(struct model_queue *q, const struct model_draft *d, struct instant now,
                      bool *deduplicated, struct message_id *id)
{
    *deduplicated = false;
    if (d->rank < 0)
        return STATUS_UNKNOWN_PRIORITY;
    const struct model_dedup *first = duplicate(q, d->dedup_key, now);
    if (first) {
        *deduplicated = true;
        *id = first->id;
        q->totals.deduplicated++;
        return STATUS_OK;
    }
    if (q->config.max_bytes && d->bytes > q->config.max_bytes)
        return STATUS_PAYLOAD_TOO_LARGE;
    if (full(q, d->bytes))
        return STATUS_QUEUE_FULL;

    assert(q->count < MODEL_LIVE_MAX);
    struct model_message *m = &q->messages[q->count++];
    *m = (struct model_message){
        .slot = q->config.levels[d->rank].slot,
        .enqueued_ms = now.wall_ms,
        .body_hash = d->body_hash,
        .bytes = d->bytes,
        .dedup_key = d->dedup_key,
    };
    place(q, m, d, now);
    m->id = (struct message_id){q->id, m->slot, m->ready_ms, q->next_seq++};
    *id = m->id;
    q->totals.enqueued++;
    if (d->dedup_key >= 0) {
        assert(q->dedup_count < MODEL_DEDUP_MAX);
        q->dedup[q->dedup_count++] =
            (struct model_dedup){d->dedup_key, m->id, now.wall_ms + q->config.dedup_window_ms};
    }
    return STATUS_OK;
}

void model_gone(struct model_queue *q, struct model_message *m)
{
    *m = q->messages[--q->count];
}

static void die(struct model_queue *q, struct model_message *m, const char *reason,
                struct instant now)
{
    m->state = MESSAGE_DEAD;
    m->ended_ms = now.wall_ms;
    snprintf(m->reason, sizeof(m->reason), "%s", reason);
    q->totals.dead++;
}

static enum message_state expire(struct model_queue *q, struct model_message *m, struct instant now)
{
    if (q->config.expired == EXPIRED_DEAD) {
        die(q, m, "expired", now);
        return MESSAGE_DEAD;
    }
    q->totals.expired++;
    model_gone(q, m);
    return MESSAGE_EXPIRED;
}

static bool before(const struct model_message *a, const struct model_message *b)
{
    return a->ready_ms != b->ready_ms ? a->ready_ms < b->ready_ms : a->id.seq < b->id.seq;
}

static struct model_message *head(struct model_queue *q, uint8_t slot)
{
    struct model_message *first = NULL;
    for (uint32_t i = 0; i < q->count; i++) {
        struct model_message *m = &q->messages[i];
        if (m->state == MESSAGE_READY && m->slot == slot && (!first || before(m, first)))
            first = m;
    }
    return first;
}

void model_lease(struct model_queue *q, struct model_message *m, int64_t lease_ms,
                 struct instant now)
{
    int rank = levels_rank_of_slot(&q->config, m->slot);
    int64_t max_wait_ms = q->config.levels[rank].max_wait_ms;
    m->state = MESSAGE_LEASED;
    m->attempts++;
    m->lease_until_ms = now.mono_ms + (lease_ms < 0 ? q->config.visibility_ms : lease_ms);
    q->totals.claimed++;
    q->totals.redelivered += m->attempts > 1;
    q->totals.aged += model_counts_as(q, m, now.wall_ms) < rank;
    q->totals.late += max_wait_ms > 0 && model_waited_ms(q, m, now.wall_ms) > max_wait_ms;
}

/* The head of a lane, once those that have outlived their time to live are out of the way. */
static struct model_message *live_head(struct model_queue *q, uint8_t slot, struct instant now)
{
    struct model_message *first;
    while ((first = head(q, slot)) && first->expire_ms <= now.wall_ms)
        expire(q, first, now);
    return first;
}

struct model_message *model_next_planned(struct model_queue *q, const struct plan *plan,
                                         const struct plan_step *step, struct instant now)
{
    uint64_t best_seq = 0;
    int64_t best_ms = 0;
    bool found = false;
    for (uint32_t i = 0; i < step->lane_count; i++) {
        const struct plan_lane *lane = &plan->lanes[step->first_lane + i];
        const struct model_message *m =
            plan->room[lane->slot] > 0 ? live_head(q, lane->slot, now) : NULL;
        if (!m || m->ready_ms > lane->until_ms)
            continue;
        int64_t ms = m->ready_ms + lane->bias_ms;
        if (!found || ms < best_ms || (ms == best_ms && m->id.seq < best_seq)) {
            found = true;
            best_ms = ms;
            best_seq = m->id.seq;
        }
    }
    return found ? model_next(q, MESSAGE_READY, best_seq) : NULL;
}

enum status model_open(struct model_queue *q, const struct settle_item *item, struct instant now,
                       struct model_message **m)
{
    *m = model_find(q, &item->id);
    if (!*m)
        return STATUS_MESSAGE_NOT_FOUND;
    bool held = (*m)->state == MESSAGE_LEASED && now.mono_ms < (*m)->lease_until_ms &&
                memcmp((*m)->receipt, item->receipt, RECEIPT_BYTES) == 0;
    return held ? STATUS_OK : STATUS_RECEIPT_EXPIRED;
}

void model_ack(struct model_queue *q, struct model_message *m, struct instant now)
{
    q->totals.acked++;
    m->state = MESSAGE_DONE;
    m->ended_ms = now.wall_ms > q->forgot_ms ? now.wall_ms : q->forgot_ms + 1;
    if (q->config.history_ms == 0)
        model_gone(q, m);
}

/* What either history does not keep is gone for good. */
void model_keep(struct model_queue *q, int64_t history_ms, struct instant now)
{
    int64_t shorter_ms = history_ms < q->config.history_ms ? history_ms : q->config.history_ms;
    if (history_ms == q->config.history_ms)
        return;
    if (now.wall_ms - shorter_ms > q->forgot_ms)
        q->forgot_ms = now.wall_ms - shorter_ms;
    for (uint32_t i = 0; i < q->count;) {
        struct model_message *m = &q->messages[i];
        if (m->state == MESSAGE_DONE && m->ended_ms <= q->forgot_ms)
            model_gone(q, m);
        else
            i++;
    }
}

enum message_state model_fail(struct model_queue *q, struct model_message *m, int64_t delay_ms,
                              const char *reason, struct instant now)
{
    snprintf(m->reason, sizeof(m->reason), "%s", reason);
    if (m->attempts >= q->config.max_attempts) {
        die(q, m, reason, now);
        return MESSAGE_DEAD;
    }
    if (m->expire_ms <= now.wall_ms)
        return expire(q, m, now);
    if (delay_ms < 0)
        delay_ms = config_backoff_ms(&q->config, m->attempts, 0.5);
    m->state = delay_ms > 0 ? MESSAGE_SCHEDULED : MESSAGE_READY;
    if (delay_ms > 0)
        m->ready_ms = now.wall_ms + delay_ms;
    return m->state;
}

enum message_state model_release(struct model_queue *q, struct model_message *m, struct instant now)
{
    q->totals.released++;
    m->attempts--;
    if (m->expire_ms <= now.wall_ms)
        return expire(q, m, now);
    m->state = MESSAGE_READY;
    return m->state;
}

enum status model_cancel(struct model_queue *q, const struct message_id *id)
{
    struct model_message *m = model_find(q, id);
    if (!m)
        return STATUS_MESSAGE_NOT_FOUND;
    if (!pending(m))
        return STATUS_NOT_PENDING;
    q->totals.cancelled++;
    model_gone(q, m);
    return STATUS_OK;
}

enum status model_move(struct model_queue *q, const struct message_id *id, uint8_t slot,
                       const char *why, struct instant now, bool *changed)
{
    struct model_message *m = model_find(q, id);
    *changed = false;
    if (!m)
        return STATUS_MESSAGE_NOT_FOUND;
    if (!pending(m))
        return STATUS_NOT_PENDING;
    if (m->slot == slot)
        return STATUS_OK;
    *changed = m->escalated = true;
    m->escalated_from = m->slot;
    m->escalated_ms = now.wall_ms;
    snprintf(m->escalated_why, sizeof(m->escalated_why), "%s", why);
    m->slot = slot;
    q->totals.escalated++;
    return STATUS_OK;
}

uint64_t model_before(const struct model_queue *q, const struct count_item *place)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        const struct model_message *m = &q->messages[i];
        bool first =
            m->ready_ms != place->ready_ms ? m->ready_ms < place->ready_ms : m->id.seq < place->seq;
        count += m->state == MESSAGE_READY && m->slot == place->slot && first;
    }
    return count;
}

void model_redrive(struct model_queue *q, struct model_message *m, int slot, struct instant now)
{
    assert(m->state == MESSAGE_DEAD);
    q->totals.redriven++;
    m->attempts = 0;
    m->state = MESSAGE_READY;
    m->ready_ms = m->ready_ms < now.wall_ms ? m->ready_ms : now.wall_ms;
    m->expire_ms = INT64_MAX;
    if (slot >= 0)
        m->slot = (uint8_t)slot;
}

/* What one message does when time passes; true when it did something. */
static bool let_pass(struct model_queue *q, struct model_message *m, struct instant now)
{
    if (m->state == MESSAGE_LEASED && m->lease_until_ms <= now.mono_ms) {
        q->totals.lease_expired++;
        model_fail(q, m, -1, "lease expired", now);
    } else if (pending(m) && m->expire_ms <= now.wall_ms) {
        expire(q, m, now);
    } else if (m->state == MESSAGE_SCHEDULED && m->ready_ms <= now.wall_ms) {
        m->state = MESSAGE_READY;
    } else if (is_over(q, m)) {
        model_gone(q, m);
    } else {
        return false;
    }
    return true;
}

void model_sweep(struct model_queue *q, struct instant now)
{
    for (uint32_t i = 0; i < q->count;) {
        if (!let_pass(q, &q->messages[i], now))
            i++;
    }
}

struct model_message *model_next(struct model_queue *q, enum message_state state, uint64_t seq)
{
    struct model_message *next = NULL;
    for (uint32_t i = 0; i < q->count; i++) {
        struct model_message *m = &q->messages[i];
        if (m->state == state && m->id.seq >= seq && (!next || m->id.seq < next->id.seq))
            next = m;
    }
    return next;
}

int64_t model_due_ms(const struct model_queue *q, struct instant now)
{
    int64_t due = INT64_MAX;
    for (uint32_t i = 0; i < q->count; i++) {
        const struct model_message *m = &q->messages[i];
        int64_t at = INT64_MAX;
        if (m->state == MESSAGE_LEASED)
            at = m->lease_until_ms - now.mono_ms;
        else if (m->state == MESSAGE_SCHEDULED)
            at = m->ready_ms - now.wall_ms;
        if (pending(m) && m->expire_ms != INT64_MAX && m->expire_ms - now.wall_ms < at)
            at = m->expire_ms - now.wall_ms;
        at = at < 0 ? 0 : at;
        due = at < due ? at : due;
    }
    return due;
}

struct queue_view model_view(const struct model_queue *q)
{
    struct queue_view v = {.totals = q->totals};
    for (uint32_t i = 0; i < q->count; i++) {
        const struct model_message *m = &q->messages[i];
        struct lane_view *lane = &v.lanes[m->slot];
        if (m->state == MESSAGE_READY && (lane->ready++ == 0 || m->ready_ms < lane->head_ms))
            lane->head_ms = m->ready_ms;
        lane->scheduled += m->state == MESSAGE_SCHEDULED;
        lane->leased += m->state == MESSAGE_LEASED;
        v.ready += m->state == MESSAGE_READY;
        v.scheduled += m->state == MESSAGE_SCHEDULED;
        v.leased += m->state == MESSAGE_LEASED;
        v.dead += m->state == MESSAGE_DEAD;
        lane->dead += m->state == MESSAGE_DEAD;
        v.bytes += pending(m) ? m->bytes : 0;
    }
    return v;
}

bool model_conserves(const struct queue_view *v)
{
    const struct queue_totals *t = &v->totals;
    return t->enqueued ==
           v->scheduled + v->ready + v->leased + v->dead + t->acked + t->expired + t->cancelled;
}
