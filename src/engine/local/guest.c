/* Guests: brought in for one op, and sent back after it unless the op changed them. */
#include "base/mem.h"
#include "engine/local/impl.h"

#include <assert.h>

#define DEAD_NONE ((1ULL << 48) - 1) /* the last there can be */

static void welcome(struct local_queue *lq, uint64_t seq)
{
    if (lq->guest_count == lq->guest_cap) {
        lq->guest_cap = lq->guest_cap ? lq->guest_cap * 2 : 16;
        lq->guests = mem_realloc(lq->guests, lq->guest_cap * sizeof(*lq->guests));
    }
    assert(lq->local->present == lq->rq); /* it goes with the op */
    lq->guests[lq->guest_count++] = seq;
}

static void dead_count(struct queue *q, uint8_t slot, int by)
{
    assert(by > 0 || q->view->lanes[slot].dead > 0);
    assert(by > 0 || q->view->dead > 0);
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
    enum message_state from = m->state;
    assert(tail_is_cold(m)); /* the store has it as it is */
    queue_detach(q, m);
    queue_tail_add(q, m);
    tail_count_cold(local_queue_of(q), m->slot, from, -1);
    journal_expiry_put(local_queue_of(q), m);
    message_free(m);
}

void guests_dismiss(struct local_queue *lq)
{
    for (uint32_t i = 0; i < lq->guest_count; i++)
        dismiss(&lq->rq->core, lq->guests[i]);
    for (uint32_t i = 0; i < lq->ended_count; i++)
        message_free(lq->ended[i]);
    lq->guest_count = lq->ended_count = 0;
}

void guest_ended(struct local_queue *lq, struct message *m)
{
    if (lq->ended_count == lq->ended_cap) {
        lq->ended_cap = lq->ended_cap ? lq->ended_cap * 2 : 16;
        lq->ended = mem_realloc(lq->ended, lq->ended_cap * sizeof(*lq->ended));
    }
    assert(lq->local->repeats);
    lq->ended[lq->ended_count++] = m;
}

/* The message that ended last of this number, or NULL. */
static const struct message *find_ended(const struct local_queue *lq, uint64_t seq)
{
    uint32_t i = lq->ended_count;
    while (i > 0 && message_seq(lq->ended[i - 1]) != seq)
        i--;
    return i > 0 ? lq->ended[i - 1] : NULL;
}

/* Why a record is not of one that the queue can have there; NULL: it is. */
static const char *misplaced(struct queue *q, const struct message *m, enum key_tag tag)
{
    bool dead = tag == KEY_DEAD;
    if (m->state != (dead ? MESSAGE_DEAD : MESSAGE_DONE))
        return "is among the dead letters or in the history, and was neither";
    if (message_seq(m) >= *q->next_seq)
        return "is in the store, and has a number that was not given out yet";
    if (seqmap_get(dead ? &q->dead : &q->messages, message_seq(m)))
        return "is in the store twice";
    if (dead && levels_rank_of_slot(q->config, m->slot) < 0)
        return "is a dead letter of a level that its queue does not have";
    return dead && q->dead.count >= q->view->dead
               ? "is a dead letter that its queue's counters do not have"
               : NULL;
}

static bool admit_ended(struct queue *q, const char *data, size_t len, uint64_t seq,
                        const struct message_id *id, enum key_tag tag)
{
    struct local *l = local_behind(q);
    int64_t until_ms;
    struct message *m = record_get_whole(data, len, seq, &until_ms);
    const char *why = m ? misplaced(q, m, tag) : "was a dead letter or done: its record is damaged";
    if (why) {
        journal_damage_of(q, seq, why);
        message_free(m);
        return false;
    }
    bool wanted = queue_shows(q, m, l->now) &&
                  (!id || (m->born_ms == id->ready_ms && m->born_slot == id->slot));
    if (!wanted) {
        message_free(m);
        return false;
    }
    if (m->state == MESSAGE_DEAD)
        dead_count(q, m->slot, -1);
    queue_restore(q, m, l->now.wall_ms);
    return true;
}

static bool recall_ended(struct queue *q, const struct message_id *id, enum key_tag tag)
{
    struct local *l = local_behind(q);
    struct key k;
    bool damaged = false;
    key_seq(&k, tag, q->id, id->seq);
    if (!look_get(local_queue_of(q), &k, &l->scratch, &damaged)) {
        if (damaged)
            journal_damage(l, "a dead letter or history record cannot be read");
        return false;
    }
    return admit_ended(q, l->scratch.data, l->scratch.len, id->seq, id, tag);
}

/* What the present op has ended: the store does not know yet. The record is made again, and read as
 * if it came from there. */
static bool recall_own(struct queue *q, const struct message *m, const struct message_id *id)
{
    struct local *l = local_behind(q);
    bool dead = m->state == MESSAGE_DEAD;
    if (!dead && (m->state != MESSAGE_DONE || q->config->history_ms == 0))
        return false;
    buf_clear(&l->scratch);
    record_put_whole(&l->scratch, m, l->shared->boot, INT64_MAX);
    return admit_ended(q, l->scratch.data, l->scratch.len, id->seq, id,
                       dead ? KEY_DEAD : KEY_HISTORY);
}

static bool recall(struct queue *q, const struct message_id *id)
{
    const struct message *own = find_ended(local_queue_of(q), id->seq);
    if (own)
        return recall_own(q, own, id);
    journal_await_cold(local_queue_of(q));
    return tail_bring(q, id) || recall_ended(q, id, KEY_DEAD) || recall_ended(q, id, KEY_HISTORY);
}

/* A number that is in memory is nowhere else: the id is not the message's own. */
bool guest_bring(struct resident_queue *rq, const struct message_id *id)
{
    struct queue *q = &rq->core;
    bool here = tail_in_memory(q, id->seq) || seqmap_get(&q->dead, id->seq);
    bool came = !here && recall(q, id);
    if (came)
        welcome(local_queue_of(q), id->seq);
    return came;
}

/* Of the first record; where there is none, one that none has yet. */
static uint64_t first_seq(const struct read_record *r)
{
    uint32_t queue;
    uint64_t seq;
    return r && key_parse_seq(r->key.bytes, r->key.len, &queue, &seq) ? seq : DEAD_NONE;
}

/* Before dead_from nothing is left: what was there is deleted, and would be stepped over. */
void guests_dead_range(const struct local_queue *lq, uint64_t from_seq, struct key *prefix,
                       struct key *start)
{
    uint32_t id = lq->rq->face.id;
    key_queue(prefix, KEY_DEAD, id);
    key_seq(start, KEY_DEAD, id, from_seq <= lq->dead_from ? lq->dead_from : from_seq);
}

uint32_t guests_stage_dead(struct local_queue *lq, uint64_t from_seq, uint32_t count)
{
    struct queue *q = &lq->rq->core;
    struct key prefix, start;
    uint32_t staged = 0;
    if (q->view->dead == 0)
        return 0;
    guests_dead_range(lq, from_seq, &prefix, &start);
    const struct look_page *page = look_page(lq, &start);
    assert(page); /* planned */
    if (from_seq <= lq->dead_from)
        lq->dead_from = first_seq(page->first);
    for (const struct read_record *r = page->first; r && staged < count; r = r->next) {
        uint32_t queue;
        uint64_t seq;
        if (!key_parse_seq(r->key.bytes, r->key.len, &queue, &seq)) {
            journal_damage(lq->local, "the key of a dead letter does not decode");
            continue;
        }
        if (seqmap_get(&q->dead, seq))
            continue;
        if (admit_ended(q, r->value.data, r->value.len, seq, NULL, KEY_DEAD)) {
            welcome(lq, seq);
            staged++;
        }
    }
    return staged;
}
