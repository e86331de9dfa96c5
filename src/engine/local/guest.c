/* Guests: brought in for one op, and sent back after it unless the op changed them. */
#include "base/mem.h"
#include "engine/local/impl.h"

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

void guests_dismiss(struct local_queue *lq)
{
    for (uint32_t i = 0; i < lq->guest_count; i++)
        dismiss(&lq->rq->core, lq->guests[i]);
    lq->guest_count = 0;
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

void guest_recall(struct queue *q, const struct message_id *id)
{
    journal_await_cold(local_behind(q));
    if (tail_bring(q, id) || recall_ended(q, id, KEY_DEAD) || recall_ended(q, id, KEY_HISTORY))
        welcome(local_queue_of(q), id->seq);
}

void guests_stage_dead(struct local_queue *lq, uint64_t from_seq, uint32_t count)
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
    tail_iter_end(l, it);
}
