#include "base/mem.h"
#include "engine/local/impl.h"

#include <string.h>

#define REFILL_BYTES (1024 * 1024)

bool tail_in_memory(struct queue *q, uint64_t seq)
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

void tail_take_in(struct queue *q, struct message *m, struct instant now)
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

bool tail_iter_id(struct queue *q, const struct store_iter *it, struct message_id *id)
{
    size_t len;
    const char *key = store_iter_key(it, &len);
    bool known = key_parse_message(key, len, id);
    if (!known)
        journal_damage(local_behind(q), "a key in the store does not decode");
    return known;
}

struct message *tail_iter_message(struct queue *q, const struct store_iter *it,
                                  const struct message_id *id)
{
    size_t len;
    const char *value = store_iter_value(it, &len);
    return decode_cold(q, value, len, id);
}

void tail_iter_end(struct local *l, struct store_iter *it)
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
        if (tail_in_memory(q, message_seq(m)))
            message_free(m); /* committed meanwhile, and read from the store */
        else
            tail_take_in(q, m, now);
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
        if (!tail_iter_id(q, it, &at) || tail_in_memory(q, at.seq))
            continue;
        struct message *m = tail_iter_message(q, it, &at);
        if (!m)
            continue;
        taken++;
        bytes += message_body_len(m);
        tail_take_in(q, m, now);
    }
    bool more = store_iter_valid(it);
    lane->bound_ms = more ? at.ready_ms : INT64_MAX;
    lane->bound_seq = more ? at.seq : UINT64_MAX;
    tail_iter_end(l, it);
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
        if (!key_parse_message(key, len, &at) || tail_in_memory(q, at.seq))
            continue;
        if (at.ready_ms > to_ms) {
            *next_ms = at.ready_ms;
            break;
        }
        due++;
    }
    tail_iter_end(l, it);
    return due;
}

bool tail_bring(struct queue *q, const struct message_id *id)
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
        tail_take_in(q, m, l->now);
    return m != NULL;
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
