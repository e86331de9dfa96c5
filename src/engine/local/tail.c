#include "base/mem.h"
#include "engine/local/impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define REFILL_BYTES (1024 * 1024)

static struct local *local_behind(struct queue *q)
{
    return local_queue_of(q)->local;
}

static bool in_memory(struct queue *q, uint64_t seq)
{
    return seqmap_get(&q->messages, seq) != NULL;
}

/* Residency: the urgent third of the levels may use all of the limit, the rest half of it. */
static bool has_room(const struct local *l, const struct queue *q, uint8_t slot)
{
    const struct lane *lane = &q->lanes[slot];
    if (lane->ready.count + lane->scheduled.count < l->shared->window)
        return true;
    int rank = levels_rank_of_slot(q->config, slot);
    bool urgent = rank * 3 < q->config->level_count;
    uint64_t limit = urgent ? l->shared->memory_limit : l->shared->memory_limit / 2;
    return l->r.base.counters.resident_bytes < limit;
}

bool tail_admit(struct queue *q, uint8_t slot)
{
    struct local *l = local_behind(q);
    bool room = has_room(l, q, slot);
    /* A tail begins, and with it a bound: behind it there may be records on their way out. */
    if (!room && l->cold_group > l->refill_group)
        l->refill_group = l->cold_group;
    return room;
}

/* Limbo */

void tail_limbo_add(struct local_queue *lq, struct message *m)
{
    if (lq->limbo_count == lq->limbo_cap) {
        if (lq->limbo_first <= lq->limbo_cap / 2) {
            lq->limbo_cap = lq->limbo_cap ? lq->limbo_cap * 2 : 256;
            lq->limbo = mem_realloc(lq->limbo, lq->limbo_cap * sizeof(*lq->limbo));
        }
        lq->limbo_count -= lq->limbo_first;
        memmove(lq->limbo, lq->limbo + lq->limbo_first, lq->limbo_count * sizeof(*lq->limbo));
        lq->limbo_first = 0;
    }
    journal_pend(lq);
    lq->limbo[lq->limbo_count++] = (struct limbo){m, journal_group(lq->local)->number};
}

void tail_limbo_release(struct local_queue *lq, uint64_t group)
{
    while (lq->limbo_first < lq->limbo_count && lq->limbo[lq->limbo_first].group <= group)
        message_free(lq->limbo[lq->limbo_first++].message);
}

/* From the tail to memory */

static void take_in(struct queue *q, struct message *m, struct instant now)
{
    queue_tail_take(q, m);
    m->state = MESSAGE_SCHEDULED;
    queue_restore(q, m, now);
}

static struct message *decode_cold(struct queue *q, const char *data, size_t len,
                                   const struct message_id *id)
{
    struct message *m = record_get_message(data, len, id);
    if (!m) {
        journal_damage(local_behind(q), "a message record in the store does not decode");
        return NULL;
    }
    m->cold = true;
    return m;
}

static struct message *iter_message(struct queue *q, const struct store_iter *it,
                                    struct message_id *id)
{
    size_t key_len, value_len;
    const char *key = store_iter_key(it, &key_len);
    const char *value = store_iter_value(it, &value_len);
    if (!key_parse_message(key, key_len, id)) {
        journal_damage(local_behind(q), "a key in the store does not decode");
        return NULL;
    }
    return in_memory(q, id->seq) ? NULL : decode_cold(q, value, value_len, id);
}

static void iter_end(struct local *l, struct store_iter *it)
{
    struct buf error = {0};
    if (!store_iter_close(it, &error))
        journal_damage(l, buf_cstr(&error));
    buf_fini(&error);
}

/* The place right behind (ready_ms, seq). */
static struct message_id place_after(const struct queue *q, uint8_t slot, int64_t ready_ms,
                                     uint64_t seq)
{
    struct message_id id = {.queue = q->id, .slot = slot, .ready_ms = ready_ms, .seq = seq + 1};
    if (ready_ms < -TIME_MS_MAX - 1) {
        id.ready_ms = -TIME_MS_MAX - 1;
        id.seq = 0;
    }
    return id;
}

static void refill_from_limbo(struct queue *q, uint8_t slot, struct instant now)
{
    struct local_queue *lq = local_queue_of(q);
    struct lane *lane = &q->lanes[slot];
    for (uint32_t i = lq->limbo_first; i < lq->limbo_count; i++) {
        struct message *m = lq->limbo[i].message;
        if (!m || m->slot != slot || !lane_within_bound(lane, m->ready_ms, message_seq(m)))
            continue;
        lq->limbo[i].message = NULL;
        if (in_memory(q, message_seq(m)))
            message_free(m); /* committed meanwhile, and read from the store */
        else
            take_in(q, m, now);
    }
}

void tail_refill(struct queue *q, uint8_t slot, struct instant now)
{
    struct local *l = local_behind(q);
    struct lane *lane = &q->lanes[slot];
    if (lane->bound_ms == INT64_MAX) /* it was read to its end: what is missing stays missing */
        return;
    if (l->refill_group > l->finished)
        journal_settle(l, l->refill_group);
    l->r.base.counters.refills++;
    struct message_id from = place_after(q, slot, lane->bound_ms, lane->bound_seq);
    struct key prefix, start;
    key_lane(&prefix, q->id, slot);
    key_message(&start, &from);
    struct store_iter *it = store_iter_open(l->shared->store, STORE_COLD, &prefix, &start);
    struct message_id at = from;
    size_t taken = 0, bytes = 0;
    for (; store_iter_valid(it) && taken < 2 * l->shared->window && bytes < REFILL_BYTES;
         store_iter_next(it)) {
        struct message *m = iter_message(q, it, &at);
        if (!m)
            continue;
        taken++;
        bytes += message_body_len(m);
        take_in(q, m, now);
    }
    bool more = store_iter_valid(it);
    lane->bound_ms = more ? at.ready_ms : INT64_MAX;
    lane->bound_seq = more ? at.seq : UINT64_MAX;
    iter_end(l, it);
    refill_from_limbo(q, slot, now);
    if (!more && lane_has_tail(lane))
        journal_damage(l, "a queue's counters name messages that the store does not have");
}

void tail_top_up(struct resident_queue *rq, struct instant now)
{
    struct queue *q = &rq->core;
    for (uint8_t slot = 0; q->tail > 0 && slot < LEVEL_COUNT_MAX; slot++) {
        if (!lane_head_known(&q->lanes[slot]))
            tail_refill(q, slot, now);
    }
}

uint64_t tail_due(struct queue *q, uint8_t slot, int64_t from_ms, int64_t to_ms, int64_t *next_ms)
{
    struct local *l = local_behind(q);
    journal_await_cold(l);
    struct message_id from = place_after(q, slot, from_ms, (1ULL << 48) - 2), at;
    struct key prefix, start;
    key_lane(&prefix, q->id, slot);
    key_message(&start, &from);
    struct store_iter *it = store_iter_open(l->shared->store, STORE_COLD, &prefix, &start);
    uint64_t due = 0;
    *next_ms = INT64_MAX;
    for (; store_iter_valid(it); store_iter_next(it)) {
        size_t len;
        const char *key = store_iter_key(it, &len);
        if (!key_parse_message(key, len, &at) || in_memory(q, at.seq))
            continue;
        if (at.ready_ms > to_ms) {
            *next_ms = at.ready_ms;
            break;
        }
        due++;
    }
    iter_end(l, it);
    return due;
}

/* From memory to the tail: when messages keep arriving before the bound, the last of the lane make
 * room. */

static void spill_last(struct queue *q, struct message *m)
{
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    struct lane *lane = &q->lanes[m->slot];
    bool had_tail = lane_has_tail(lane), was_cold = m->cold;
    if (!had_tail)
        queue_tail_advance(q, m->slot, l->now.wall_ms);
    if (!was_cold)
        journal_delete_hot(l, q, m);
    queue_detach(q, m);
    queue_tail_add(q, m);
    /* The bound goes back to before it; lower than need be is right too, and only means more
     * reading. */
    const struct message *last = lane_last_born(lane);
    if (!last || !had_tail || lane_within_bound(lane, last->ready_ms, message_seq(last))) {
        lane->bound_ms = last ? last->ready_ms : INT64_MIN;
        lane->bound_seq = last ? message_seq(last) : 0;
    }
    l->refill_group = journal_group(l)->number;
    if (was_cold) {
        message_free(m);
        return;
    }
    m->cold = true;
    lq->cold_bytes += message_bytes(m);
    journal_put_cold(l, q, m);
    tail_limbo_add(lq, m);
}

void tail_spill(struct queue *q, uint8_t slot)
{
    const struct local *l = local_behind(q);
    const struct lane *lane = &q->lanes[slot];
    uint64_t limit = l->shared->memory_limit + l->shared->memory_limit / 4;
    for (int i = 0; i < 2; i++) {
        struct message *m = lane_last_born(lane);
        /* After the clock was set back the tail would count as ready what is scheduled, or the
         * other way round. */
        int64_t clock_ms = lane_has_tail(lane) ? lane->tail_clock_ms : l->now.wall_ms;
        bool stays = m && (m->state == MESSAGE_READY) != (m->ready_ms <= clock_ms);
        if (l->r.base.counters.resident_bytes <= limit || !m || stays ||
            lane->ready.count + lane->scheduled.count <= 2 * l->shared->window)
            return;
        spill_last(q, m);
    }
}

/* Guests: brought in for one op, and sent back after it unless the op changed them. */

static void welcome(struct local_queue *lq, uint64_t seq)
{
    if (lq->guest_count == lq->guest_cap) {
        lq->guest_cap = lq->guest_cap ? lq->guest_cap * 2 : 16;
        lq->guests = mem_realloc(lq->guests, lq->guest_cap * sizeof(*lq->guests));
    }
    lq->guests[lq->guest_count++] = seq;
}

static void dead_count(struct queue *q, uint8_t slot, int by)
{
    q->view->dead += (uint64_t)(int64_t)by;
    q->view->lanes[slot].dead += (uint64_t)(int64_t)by;
}

static void dismiss(struct queue *q, uint64_t seq)
{
    struct message *m = seqmap_get(&q->dead, seq);
    if (m) {
        uint8_t slot = m->slot;
        queue_forget(q, m);
        dead_count(q, slot, +1);
        return;
    }
    m = seqmap_get(&q->messages, seq);
    if (!m)
        return;
    if (m->state == MESSAGE_DONE) {
        queue_forget(q, m);
        return;
    }
    const struct lane *lane = &q->lanes[m->slot];
    bool belongs = !message_pending(m) || m->touched || !lane_has_tail(lane) ||
                   lane_within_bound(lane, m->ready_ms, seq);
    if (belongs)
        return;
    queue_detach(q, m);
    queue_tail_add(q, m);
    message_free(m);
}

void tail_dismiss_guests(struct local_queue *lq)
{
    for (uint32_t i = 0; i < lq->guest_count; i++)
        dismiss(&lq->rq->core, lq->guests[i]);
    lq->guest_count = 0;
}

static bool recall_pending(struct queue *q, const struct message_id *id)
{
    struct local *l = local_behind(q);
    struct key k;
    bool damaged = false;
    key_message(&k, id);
    if (!store_get(l->shared->store, STORE_COLD, &k, &l->scratch, &damaged)) {
        if (damaged)
            journal_damage(l, "a message in the store cannot be read");
        return false;
    }
    struct message *m = decode_cold(q, l->scratch.data, l->scratch.len, id);
    if (m)
        take_in(q, m, l->now);
    return m != NULL;
}

static bool admit_ended(struct queue *q, const char *data, size_t len, uint64_t seq,
                        const struct message_id *id)
{
    struct local *l = local_behind(q);
    int64_t until_ms;
    struct message *m = record_get_whole(data, len, seq, &until_ms);
    if (!m) {
        journal_damage(l, "a dead letter or history record does not decode");
        return false;
    }
    if (m->state == MESSAGE_DONE && m->delivery->died_ms + q->config->history_ms < until_ms)
        until_ms = m->delivery->died_ms + q->config->history_ms; /* the setting was lowered */
    bool wanted = until_ms > l->now.wall_ms &&
                  (!id || (m->born_ms == id->ready_ms && m->born_slot == id->slot));
    if (!wanted) {
        message_free(m);
        return false;
    }
    if (m->state == MESSAGE_DEAD)
        dead_count(q, m->slot, -1);
    queue_restore(q, m, l->now);
    return true;
}

static bool recall_ended(struct queue *q, const struct message_id *id, enum key_tag tag)
{
    struct local *l = local_behind(q);
    struct key k;
    bool damaged = false;
    key_seq(&k, tag, q->id, id->seq);
    if (!store_get(l->shared->store, STORE_COLD, &k, &l->scratch, &damaged)) {
        if (damaged)
            journal_damage(l, "a dead letter or history record cannot be read");
        return false;
    }
    return admit_ended(q, l->scratch.data, l->scratch.len, id->seq, id);
}

void tail_recall(struct queue *q, const struct message_id *id)
{
    journal_await_cold(local_behind(q));
    if (recall_pending(q, id) || recall_ended(q, id, KEY_DEAD) || recall_ended(q, id, KEY_HISTORY))
        welcome(local_queue_of(q), id->seq);
}

void tail_body(struct queue *q, struct message *m)
{
    struct local *l = local_behind(q);
    struct message_id id = local_id(q, m);
    struct key k;
    bool damaged = false;
    key_message(&k, &id);
    struct message *copy = NULL;
    if (store_get(l->shared->store, STORE_COLD, &k, &l->scratch, &damaged))
        copy = record_get_message(l->scratch.data, l->scratch.len, &id);
    if (copy && message_body_len(copy) == message_body_len(m)) {
        m->body = copy->body;
        copy->body = NULL;
    } else {
        /* Whoever asked gets no answer: a failed engine confirms nothing. */
        journal_damage(l, "the body of a message cannot be read");
        m->body = mem_zalloc(message_body_len(m));
    }
    message_free(copy);
}

void tail_stage_dead(struct local_queue *lq, uint64_t from_seq, uint32_t count)
{
    struct queue *q = &lq->rq->core;
    struct local *l = lq->local;
    journal_await_cold(l);
    struct key prefix, start;
    key_queue(&prefix, KEY_DEAD, q->id);
    key_seq(&start, KEY_DEAD, q->id, from_seq);
    struct store_iter *it = store_iter_open(l->shared->store, STORE_COLD, &prefix, &start);
    for (; store_iter_valid(it) && count > 0; store_iter_next(it)) {
        size_t key_len, len;
        const char *key = store_iter_key(it, &key_len);
        const char *value = store_iter_value(it, &len);
        uint32_t queue;
        uint64_t seq;
        if (!key_parse_seq(key, key_len, &queue, &seq) || seqmap_get(&q->dead, seq))
            continue;
        if (admit_ended(q, value, len, seq, NULL)) {
            welcome(lq, seq);
            count--;
        }
    }
    iter_end(l, it);
}

/* Verbs that walk the whole queue */

enum { LIST_TAIL = 2 }; /* after the phases of resident.c */

static struct store_iter *walk_from(struct local_queue *lq, const struct list_cursor *c)
{
    struct message_id id = {
        .queue = lq->rq->face.id, .slot = (uint8_t)c->slot, .ready_ms = c->ready_ms, .seq = c->seq};
    struct key prefix, start;
    journal_await_cold(lq->local);
    key_queue(&prefix, KEY_MESSAGE, id.queue);
    key_message(&start, &id);
    return store_iter_open(lq->local->shared->store, STORE_COLD, &prefix, &start);
}

static struct list_cursor cursor_behind(const struct message_id *id)
{
    return (struct list_cursor){LIST_TAIL, id->slot, id->ready_ms, id->seq + 1};
}

static const struct list_cursor tail_start = {LIST_TAIL, 0, -TIME_MS_MAX - 1, 0};

static bool cursor_valid(const struct list_cursor *c)
{
    return c->slot < LEVEL_COUNT_MAX && c->ready_ms >= -TIME_MS_MAX - 1 &&
           c->ready_ms <= TIME_MS_MAX && c->seq < 1ULL << 48;
}

/* Every message that is as it was born; the others are listed by what is in memory. */
static struct message *list_message(struct queue *q, const struct store_iter *it,
                                    struct message_id *id)
{
    size_t key_len, value_len;
    const char *key = store_iter_key(it, &key_len);
    const char *value = store_iter_value(it, &value_len);
    if (!key_parse_message(key, key_len, id)) {
        journal_damage(local_behind(q), "a key in the store does not decode");
        return NULL;
    }
    const struct message *m = seqmap_get(&q->messages, id->seq);
    bool changed = m && (m->touched || !message_pending(m));
    return changed ? NULL : decode_cold(q, value, value_len, id);
}

void tail_list(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct queue *q = &lq->rq->core;
    if (op->list.after.phase < LIST_TAIL) {
        tail_stage_dead(lq, op->list.after.phase ? op->list.after.seq + 1 : 0, op->list.limit + 1);
        resident_apply(&lq->local->r, op, now);
        if (op->list.more)
            return;
        op->list.next = tail_start;
    } else {
        op->list.found = 0;
        op->list.next = op->list.after;
    }
    op->list.more = false;
    if (!cursor_valid(&op->list.next))
        return;
    struct store_iter *it = walk_from(lq, &op->list.next);
    for (; store_iter_valid(it) && !op->list.more; store_iter_next(it)) {
        struct message_id id;
        struct message *m = list_message(q, it, &id);
        if (!m)
            continue;
        if (op->list.found == op->list.limit) {
            op->list.more = true;
        } else {
            m->state =
                m->ready_ms <= queue_ready_time(q, m, now) ? MESSAGE_READY : MESSAGE_SCHEDULED;
            op->visit(op, &lq->rq->face, m, now);
            op->list.found++;
            op->list.next = cursor_behind(&id);
        }
        message_free(m);
    }
    iter_end(lq->local, it);
}

void tail_purge(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct queue *q = &lq->rq->core;
    resident_apply(&lq->local->r, op, now);
    if (op->bulk.more)
        return;
    if (op->bulk.cursor.phase != LIST_TAIL)
        op->bulk.cursor = tail_start;
    struct store_iter *it = walk_from(lq, &op->bulk.cursor);
    for (; store_iter_valid(it) && op->bulk.count < op->bulk.max; store_iter_next(it)) {
        struct message_id id;
        struct message *m = iter_message(q, it, &id);
        if (!m)
            continue;
        op->bulk.cursor = cursor_behind(&id);
        if (id.seq >= op->bulk.before_seq) {
            message_free(m);
            continue;
        }
        take_in(q, m, now);
        queue_cancel_pending(q, m, now);
        op->bulk.count++;
    }
    op->bulk.more = store_iter_valid(it);
    iter_end(lq->local, it);
}

/* Time to live in the tail: an index by the time at which it ends. */

static int64_t next_expiry(struct local_queue *lq, int64_t after_ms)
{
    struct key prefix, start;
    struct message_id first = {.queue = lq->rq->face.id, .ready_ms = -TIME_MS_MAX - 1};
    key_queue(&prefix, KEY_EXPIRY, first.queue);
    key_expiry(&start, &first, after_ms);
    struct store_iter *it = store_iter_open(lq->local->shared->store, STORE_COLD, &prefix, &start);
    int64_t expire_ms = INT64_MAX;
    if (store_iter_valid(it)) {
        struct message_id id;
        size_t len;
        const char *key = store_iter_key(it, &len);
        if (!key_parse_expiry(key, len, &id, &expire_ms))
            journal_damage(lq->local, "a key in the store does not decode");
    }
    iter_end(lq->local, it);
    return expire_ms;
}

void tail_expiry_start(struct local_queue *lq)
{
    lq->rq->core.store_due_ms = next_expiry(lq, -TIME_MS_MAX - 1);
}

void tail_expire(struct resident_queue *rq, uint32_t max, struct instant now)
{
    struct queue *q = &rq->core;
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    if (q->store_due_ms > now.wall_ms)
        return;
    journal_await_cold(l);
    struct key prefix;
    key_queue(&prefix, KEY_EXPIRY, q->id);
    struct store_iter *it = store_iter_open(l->shared->store, STORE_COLD, &prefix, NULL);
    bool all = true;
    for (; store_iter_valid(it); store_iter_next(it)) {
        struct message_id id;
        int64_t expire_ms;
        size_t len;
        const char *key = store_iter_key(it, &len);
        if (!key_parse_expiry(key, len, &id, &expire_ms) || expire_ms > now.wall_ms)
            break;
        if (in_memory(q, id.seq))
            continue;
        if (max-- == 0) {
            all = false;
            break;
        }
        recall_pending(q, &id);
    }
    iter_end(l, it);
    q->store_due_ms = all ? next_expiry(lq, now.wall_ms + 1) : now.wall_ms;
}
