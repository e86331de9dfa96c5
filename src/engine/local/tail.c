#include "base/mem.h"
#include "engine/local/impl.h"

#include <assert.h>
#include <string.h>

bool tail_in_memory(struct queue *q, uint64_t seq)
{
    return seqmap_get(&q->messages, seq) != NULL;
}

/* What of a lane is cold */

void tail_count_cold(struct local_queue *lq, uint8_t slot, enum message_state state, int by)
{
    uint64_t *count = state == MESSAGE_READY ? &lq->cold[slot].ready : &lq->cold[slot].scheduled;
    assert(slot < LEVEL_COUNT_MAX);
    assert(state == MESSAGE_READY || state == MESSAGE_SCHEDULED);
    assert(by > 0 || *count > 0);
    assert(by > 0 || lq->cold_here > 0);
    *count += (uint64_t)(int64_t)by;
    lq->cold_here += (uint64_t)(int64_t)by;
    if (!tail_has_cold(lq, slot))
        queue_tail_forget_clock(&lq->rq->core, slot);
}

int64_t tail_ready_ms(const struct queue *q, uint8_t slot, struct instant now)
{
    int64_t clock_ms = q->lanes[slot].tail.clock_ms;
    return clock_ms > now.wall_ms ? clock_ms : now.wall_ms;
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
    assert(tail_is_cold(m));
    assert(lq->limbo_count == lq->limbo_first || /* freed from the front, group by group */
           lq->limbo[lq->limbo_count - 1].group <= journal_group(lq->local)->number);
    lq->limbo[lq->limbo_count++] = (struct limbo){m, journal_group(lq->local)->number};
}

void tail_limbo_free(struct local_queue *lq, uint64_t group)
{
    while (lq->limbo_first < lq->limbo_count && lq->limbo[lq->limbo_first].group <= group)
        message_free(lq->limbo[lq->limbo_first++].message);
}

/* From the tail to memory */

/* Why a message of the store is not one that the queue can have there; NULL: it is. */
static const char *misplaced(struct queue *q, const struct message *m)
{
    const struct lane *l = &q->lanes[m->slot];
    uint64_t counted = m->ready_ms <= l->tail.clock_ms ? l->tail.ready : l->tail.scheduled;
    if (message_seq(m) >= *q->next_seq)
        return "is in the store, and has a number that was not given out yet";
    if (tail_in_memory(q, message_seq(m)))
        return "is in the store twice";
    return counted == 0 ? "is in the store, and its queue's counters do not have it" : NULL;
}

bool tail_take_in(struct queue *q, struct message *m, struct instant now)
{
    const char *why = misplaced(q, m);
    if (why) {
        journal_damage_of(q, message_seq(m), why);
        message_free(m);
        return false;
    }
    assert(tail_is_cold(m));
    queue_tail_take(q, m);
    m->state = MESSAGE_SCHEDULED;
    queue_restore(q, m, tail_ready_ms(q, m->slot, now));
    tail_count_cold(local_queue_of(q), m->slot, m->state, +1);
    return true;
}

static struct message *decode_cold(struct queue *q, const char *data, size_t len,
                                   const struct message_id *id)
{
    struct message *m = record_get_message(data, len, id);
    if (!m) {
        journal_damage(local_behind(q), "a message record in the store does not decode");
        return NULL;
    }
    m->home = HOME_COLD;
    return m;
}

bool tail_record_id(struct queue *q, const struct read_record *r, struct message_id *id)
{
    bool known = key_parse_message(r->key.bytes, r->key.len, id);
    if (!known)
        journal_damage(local_behind(q), "a key in the store does not decode");
    return known;
}

struct message *tail_record_message(struct queue *q, const struct read_record *r,
                                    const struct message_id *id)
{
    return decode_cold(q, r->value.data, r->value.len, id);
}

struct message_id tail_place_after(const struct queue *q, uint8_t slot, int64_t ready_ms,
                                   uint64_t seq)
{
    struct message_id id = {.queue = q->id, .slot = slot, .ready_ms = ready_ms, .seq = seq + 1};
    if (ready_ms < -TIME_MS_MAX - 1) {
        id.ready_ms = -TIME_MS_MAX - 1;
        id.seq = 0;
    }
    return id;
}

void tail_from_limbo(struct queue *q, uint8_t slot, struct instant now)
{
    struct local_queue *lq = local_queue_of(q);
    const struct lane *lane = &q->lanes[slot];
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

bool tail_bring_head(struct resident_queue *rq, uint8_t slot, struct instant now)
{
    struct local_queue *lq = local_queue_of(&rq->core);
    return !lq->local->shared->reader && fetch_lane_now(lq, slot, now);
}

/* Read ahead of claims, while there is room for it. */
static bool runs_low(const struct local *l, const struct lane *lane)
{
    return lane->ready.count < l->shared->window &&
           l->r.base.counters.own[RESIDENT_BYTES] < l->shared->memory_limit;
}

static void count_now(struct local_queue *lq, uint8_t slot)
{
    fetch_due_now(lq, slot);
    lq->counting &= ~(1U << slot);
    if (lq->rq->core.lanes[slot].tail.lags)
        lq->counting |= 1U << slot;
}

void tail_count_on(struct local_queue *lq)
{
    for (uint32_t slots = lq->counting; slots; slots &= slots - 1)
        count_now(lq, (uint8_t)__builtin_ctz(slots));
}

static void top_up_now(struct local_queue *lq, uint8_t slot, struct instant now)
{
    const struct lane *lane = &lq->rq->core.lanes[slot];
    if (lane->tail.lags && !(lq->counting & 1U << slot))
        count_now(lq, slot);
    if (!lane_head_known(lane))
        fetch_lane_now(lq, slot, now);
}

static void ask_for_lane(struct local_queue *lq, uint8_t slot)
{
    const struct lane *lane = &lq->rq->core.lanes[slot];
    if (lane->tail.lags)
        fetch_due(lq, slot);
    if (lane_tail_claimable(lane) && (runs_low(lq->local, lane) || !lane_head_known(lane)))
        fetch_lane(lq, slot);
}

void tail_top_up(struct resident_queue *rq, struct instant now)
{
    struct local_queue *lq = local_queue_of(&rq->core);
    for (uint8_t slot = 0; rq->core.tail > 0 && slot < LEVEL_COUNT_MAX; slot++) {
        if (lq->local->shared->reader)
            ask_for_lane(lq, slot);
        else
            top_up_now(lq, slot, now);
    }
}

bool tail_bring(struct queue *q, const struct message_id *id)
{
    struct local *l = local_behind(q);
    struct key k;
    bool damaged = false;
    key_message(&k, id);
    if (!look_get(local_queue_of(q), &k, &l->scratch, &damaged)) {
        if (damaged)
            journal_damage(l, "a message in the store cannot be read");
        return false;
    }
    struct message *m = decode_cold(q, l->scratch.data, l->scratch.len, id);
    return m && tail_take_in(q, m, l->now);
}

char *tail_read_body(struct queue *q, const struct message *m)
{
    struct local *l = local_behind(q);
    struct message_id id = local_id(q, m);
    struct key k;
    bool damaged = false;
    char *body = NULL;
    assert(!m->body);
    assert(m->home == HOME_COLD); /* of the others memory has the body */
    key_message(&k, &id);
    struct message *copy = NULL;
    if (look_get(local_queue_of(q), &k, &l->scratch, &damaged))
        copy = record_get_message(l->scratch.data, l->scratch.len, &id);
    if (copy && message_body_len(copy) == message_body_len(m)) {
        body = copy->body;
        copy->body = NULL;
    } else {
        /* Whoever asked gets no answer: a failed engine confirms nothing. */
        journal_damage(l, "the body of a message cannot be read");
        body = mem_zalloc(message_body_len(m));
    }
    message_free(copy);
    return body;
}

void tail_bring_body(struct resident_queue *rq, struct message *m)
{
    queue_body_take(&rq->core, m, tail_read_body(&rq->core, m));
}

/* From memory to the tail: when messages keep arriving before the bound, the last of the lane make
 * room. */

static void spill_last(struct queue *q, struct message *m)
{
    struct local_queue *lq = local_queue_of(q);
    struct local *l = lq->local;
    const struct lane *lane = &q->lanes[m->slot];
    enum message_state from = m->state;
    bool had_tail = lane_has_tail(lane), was_cold = m->home == HOME_COLD;
    assert(!m->touched);
    assert(message_pending(m));
    assert(m->body || message_body_len(m) == 0);
    if (!had_tail)
        queue_tail_advance(q, m->slot, l->now.wall_ms);
    if (!was_cold)
        journal_delete_hot(l, q, m);
    queue_detach(q, m);
    queue_tail_add(q, m);
    if (was_cold)
        tail_count_cold(lq, m->slot, from, -1);
    /* The bound goes back to before it; lower than need be is right too, and only means more
     * reading. */
    const struct message *last = lane_last_born(lane);
    if (!last || !had_tail || lane_within_bound(lane, last->ready_ms, message_seq(last))) {
        struct place bound = {INT64_MIN, 0};
        if (last)
            bound = (struct place){last->ready_ms, message_seq(last)};
        queue_tail_bound(q, m->slot, bound);
    }
    l->refill_group = journal_group(l)->number;
    fetch_cut(lq, m->slot);
    if (was_cold) {
        journal_expiry_put(lq, m);
        message_free(m);
        return;
    }
    m->home = HOME_COLD;
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
        int64_t clock_ms =
            tail_has_cold(local_queue_of(q), slot) ? lane->tail.clock_ms : l->now.wall_ms;
        bool stays = m && (m->state == MESSAGE_READY) != (m->ready_ms <= clock_ms);
        if (l->r.base.counters.own[RESIDENT_BYTES] <= limit || !m || stays ||
            lane->ready.count + lane->scheduled.count <= 2 * l->shared->window)
            return;
        spill_last(q, m);
    }
}
