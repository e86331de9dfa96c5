#include "core/queue.h"
#include "base/mem.h"
#include "core/dedup.h"
#include "core/moves.h"

#include <assert.h>
#include <stdlib.h>

void queue_init(struct queue *q, uint32_t id, struct queue_config *config, struct queue_view *view,
                uint64_t *next_seq, void (*random)(void *out, size_t len))
{
    assert(config);
    assert(view);
    assert(next_seq);
    assert(random);
    *q = (struct queue){
        .id = id,
        .config = config,
        .view = view,
        .next_seq = next_seq,
        .random = random,
    };
    for (int i = 0; i < LEVEL_COUNT_MAX; i++) {
        order_init(&q->lanes[i].ready);
        order_init(&q->lanes[i].scheduled);
        q->lanes[i].tail = (struct tail){.clock_ms = INT64_MIN, .next_ms = INT64_MAX};
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

bool queue_empty_some(struct queue *q, uint32_t max)
{
    struct seqmap *maps[] = {&q->messages, &q->dead};
    for (int i = 0; i < 2; i++) {
        uint64_t seq = 0;
        for (struct message *m; (m = seqmap_next(maps[i], seq, &seq)); seq++) {
            if (max-- == 0)
                return false;
            seqmap_remove(maps[i], seq);
            message_free(m);
        }
    }
    return true;
}

void queue_fini(struct queue *q)
{
    assert(!q->memory_total || *q->memory_total >= q->memory);
    if (q->memory_total)
        *q->memory_total -= q->memory;
    assert(q->report_count == 0);
    free(q->report);
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

static inline int64_t place_key(const struct message *m, enum message_state state)
{
    switch (state) {
    case MESSAGE_LEASED:
        assert(m->delivery);
        return m->delivery->lease_until_ms;
    case MESSAGE_DONE:
        assert(m->delivery);
        return m->delivery->died_ms;
    default:
        return m->ready_ms;
    }
}

/* Changes the count of a lane, and with it that of the whole queue. */
static inline void tally(uint64_t *lane, uint64_t *all, int by)
{
    *lane += (uint64_t)(int64_t)by;
    *all += (uint64_t)(int64_t)by;
    assert(*lane <= INT64_MAX); /* it went below 0 */
}

/* The number of dead letters and the waiting bytes come in part from the disk, so they are not
 * asserted. */
void queue_count(struct queue *q, const struct message *m, enum message_state state, int by)
{
    struct queue_view *v = q->view;
    struct lane_view *lane = &v->lanes[m->slot];
    uint64_t delta = (uint64_t)(int64_t)by;
    switch (state) {
    case MESSAGE_SCHEDULED:
        tally(&lane->scheduled, &v->scheduled, by);
        break;
    case MESSAGE_READY:
        tally(&lane->ready, &v->ready, by);
        break;
    case MESSAGE_LEASED:
        tally(&lane->leased, &v->leased, by);
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

/* The time to live runs only while the message waits. */
static void expiry_follow(struct queue *q, struct message *m)
{
    if (!m->expiry)
        return;
    bool listed = m->expiry->node.height > 0;
    assert(m->expiry->message == m);
    if (message_pending(m) && !listed)
        order_insert(&q->expiring, &m->expiry->node);
    else if (!message_pending(m) && listed)
        order_remove(&q->expiring, &m->expiry->node);
}

/* The legal moves, from a state to a state. Every other move is a bug. */
static const bool legal[MESSAGE_STATE_COUNT][MESSAGE_STATE_COUNT] = {
    [MESSAGE_NEW] = {[MESSAGE_SCHEDULED] = true,
                     [MESSAGE_READY] = true,
                     [MESSAGE_LEASED] = true,
                     [MESSAGE_DEAD] = true,
                     [MESSAGE_DONE] = true},
    [MESSAGE_SCHEDULED] = {[MESSAGE_READY] = true,
                           [MESSAGE_LEASED] = true,
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
                        [MESSAGE_EXPIRED] = true,
                        [MESSAGE_CANCELLED] = true},
    [MESSAGE_DEAD] = {[MESSAGE_CANCELLED] = true, [MESSAGE_NEW] = true},
    [MESSAGE_DONE] = {[MESSAGE_NEW] = true},
};

void queue_move(struct queue *q, struct message *m, enum message_state to)
{
    enum message_state from = m->state;
    assert(m->slot < LEVEL_COUNT_MAX);
    assert(legal[from][to]);
    struct order *place = place_of(q, m, from);
    assert(!place == (m->node.height == 0)); /* it stands in a set exactly if its state has one */
    if (place)
        order_remove(place, &m->node);
    queue_count(q, m, from, -1);
    m->state = (uint8_t)to;
    queue_count(q, m, to, +1);
    place = place_of(q, m, to);
    if (place) {
        m->node.key = place_key(m, to);
        order_insert(place, &m->node);
    }
    expiry_follow(q, m);
    if (from == MESSAGE_READY || to == MESSAGE_READY)
        refresh_head(q, m->slot);
}

/* Reports */

void queue_report_grow(struct queue *q)
{
    assert(q->reports);
    assert(q->report_count == q->report_cap);
    q->report_cap = q->report_cap ? q->report_cap * 2 : 16;
    q->report = mem_realloc(q->report, q->report_cap * sizeof(*q->report));
}

static inline void account(struct queue *q, const struct message *m, int by)
{
    uint64_t delta = (uint64_t)by * message_memory(m);
    q->memory += delta;
    assert(q->memory <= INT64_MAX); /* it went below 0 */
    if (!m->body) {
        q->bodiless += (uint64_t)(int64_t)by;
        assert(q->bodiless <= INT64_MAX);
    }
    if (q->memory_total)
        *q->memory_total += delta;
}

void queue_enlist(struct queue *q, struct message *m)
{
    seqmap_put(m->state == MESSAGE_DEAD ? &q->dead : &q->messages, message_seq(m), m);
    account(q, m, +1);
}

void queue_delist(struct queue *q, struct message *m)
{
    void *found = seqmap_remove(m->state == MESSAGE_DEAD ? &q->dead : &q->messages, message_seq(m));
    assert(found == m);
    account(q, m, -1);
}

/* Finding */

static struct message *in_memory(struct queue *q, const struct message_id *id)
{
    struct message *m = seqmap_get(&q->messages, id->seq);
    if (!m)
        m = seqmap_get(&q->dead, id->seq);
    assert(!m || message_of(&m->node) == m);
    assert(!m || message_seq(m) == id->seq);
    return m && m->born_ms == id->ready_ms && m->born_slot == id->slot ? m : NULL;
}

bool queue_shows(const struct queue *q, const struct message *m, struct instant now)
{
    assert(m->state != MESSAGE_DONE || m->delivery);
    return m->state != MESSAGE_DONE || config_keeps(q->config, m->delivery->died_ms, now.wall_ms);
}

struct message *queue_find(struct queue *q, const struct message_id *id, struct instant now)
{
    if (id->queue != q->id || id->seq >= *q->next_seq)
        return NULL;
    struct message *m = in_memory(q, id);
    return m && queue_shows(q, m, now) ? m : NULL;
}

/* For engines that keep some messages elsewhere */

void queue_body_take(struct queue *q, struct message *m, char *body)
{
    assert(!m->body);
    assert(body);
    account(q, m, -1);
    m->body = body;
    account(q, m, +1);
}

void queue_restore(struct queue *q, struct message *m, int64_t clock_ms)
{
    enum message_state to = m->state;
    assert(to != MESSAGE_NEW);
    if (to == MESSAGE_SCHEDULED && !m->touched && m->ready_ms <= clock_ms)
        to = MESSAGE_READY;
    m->state = MESSAGE_NEW;
    queue_move(q, m, to);
    queue_enlist(q, m);
}

void queue_detach(struct queue *q, struct message *m)
{
    queue_delist(q, m);
    queue_move(q, m, MESSAGE_NEW);
    assert(m->node.height == 0);
}

void queue_forget(struct queue *q, struct message *m)
{
    queue_detach(q, m);
    message_free(m);
}

/* Checking. Each function walks the set in its name, and adds to the sums that others compare. */

struct sums {
    uint64_t placed;   /* messages that stand in some set */
    uint64_t expiring; /* of them, those that are pending and have a time to live */
    uint64_t bytes;    /* of the pending ones */
    uint64_t memory, bodiless;
    uint64_t leased[LEVEL_COUNT_MAX]; /* by slot, as is `dead` */
    uint64_t dead[LEVEL_COUNT_MAX];
};

/* Each message stands where its state and its times say. */
static void check_set(const struct order *set, enum message_state state, int slot, struct sums *s)
{
    order_check(set);
    for (const struct order_node *n = order_first(set); n; n = order_next(set, n)) {
        const struct message *m = message_of(n);
        assert(m->state == state);
        assert(slot < 0 || m->slot == slot);
        assert(n->key == place_key(m, state));
        assert(state != MESSAGE_LEASED || m->touched);
        s->placed++;
        s->leased[m->slot] += state == MESSAGE_LEASED;
        s->expiring += message_pending(m) && m->expiry;
        s->bytes += message_pending(m) ? message_bytes(m) : 0;
    }
}

static void check_lane(const struct queue *q, int slot, struct sums *s)
{
    const struct lane *l = &q->lanes[slot];
    const struct lane_view *v = &q->view->lanes[slot];
    check_set(&l->ready, MESSAGE_READY, slot, s);
    check_set(&l->scheduled, MESSAGE_SCHEDULED, slot, s);
    assert(v->ready == l->ready.count + l->tail.ready);
    assert(v->scheduled == l->scheduled.count + l->tail.scheduled);
    const struct order_node *head = order_first(&l->ready);
    if (head && !lane_has_tail(l)) {
        assert(v->head_ms == head->key);
        assert(v->head_seq == head->tie);
    }
}

static void check_lanes(const struct queue *q, struct sums *s)
{
    uint64_t ready = 0, scheduled = 0, tail = 0;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        check_lane(q, slot, s);
        ready += q->view->lanes[slot].ready;
        scheduled += q->view->lanes[slot].scheduled;
        tail += q->lanes[slot].tail.ready + q->lanes[slot].tail.scheduled;
    }
    assert(q->view->ready == ready);
    assert(q->view->scheduled == scheduled);
    assert(q->tail == tail);
    assert(q->view->bytes >= s->bytes);
    assert(q->view->bytes == s->bytes || q->tail > 0);
}

static void check_leased(const struct queue *q, struct sums *s)
{
    check_set(&q->leased, MESSAGE_LEASED, -1, s);
    assert(q->view->leased == q->leased.count);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        assert(q->view->lanes[slot].leased == s->leased[slot]);
}

static void check_expiring(const struct queue *q, const struct sums *s)
{
    order_check(&q->expiring);
    for (const struct order_node *n = order_first(&q->expiring); n;
         n = order_next(&q->expiring, n)) {
        const struct message *m = message_of_expiry(n);
        assert(&m->expiry->node == n);
        assert(message_pending(m));
        assert(n->tie == message_seq(m));
    }
    assert(q->expiring.count == s->expiring);
}

/* Each message can be found by its number. */
static void check_map(const struct queue *q, const struct seqmap *messages, struct sums *s)
{
    uint64_t seq = 0;
    seqmap_check(messages);
    for (const struct message *m; (m = seqmap_next(messages, seq, &seq)); seq++) {
        assert(message_of(&m->node) == m);
        assert(message_seq(m) == seq);
        assert(seq < *q->next_seq);
        assert((messages == &q->dead) == (m->state == MESSAGE_DEAD));
        assert((m->node.height > 0) == (m->state != MESSAGE_DEAD));
        s->memory += message_memory(m);
        s->bodiless += !m->body;
        s->dead[m->slot] += m->state == MESSAGE_DEAD;
    }
}

/* An engine that takes reports keeps dead letters elsewhere, so memory may hold fewer than the
 * count. */
static void check_dead(const struct queue *q, const struct sums *s)
{
    uint64_t dead = 0;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct lane_view *v = &q->view->lanes[slot];
        assert(v->dead >= s->dead[slot]);
        assert(v->dead == s->dead[slot] || q->reports);
        dead += v->dead;
    }
    assert(q->view->dead == dead);
}

static void check_totals(const struct queue *q)
{
    const struct queue_view *v = q->view;
    const struct queue_totals *t = &v->totals;
    assert(t->enqueued ==
           v->ready + v->scheduled + v->leased + v->dead + t->acked + t->expired + t->cancelled);
    /* Every lease that was given still runs, or has ended in one of four ways. */
    assert(t->claimed == v->leased + t->acked + t->nacked + t->released + t->lease_expired);
    assert(t->redelivered <= t->claimed);
    assert(t->aged <= t->claimed);
    assert(t->late <= t->claimed);
    assert(t->redriven <= t->dead);
    assert(v->dead <= t->dead);
}

void queue_check(const struct queue *q)
{
    struct sums s = {0};
    check_lanes(q, &s);
    check_leased(q, &s);
    check_set(&q->history, MESSAGE_DONE, -1, &s);
    check_expiring(q, &s);
    assert(q->messages.count == s.placed);
    check_map(q, &q->messages, &s);
    check_map(q, &q->dead, &s);
    check_dead(q, &s);
    assert(s.memory == q->memory);
    assert(s.bodiless == q->bodiless);
    assert(!q->memory_total || *q->memory_total >= q->memory);
    assert(q->report_count == 0);
    dedup_check(q);
    check_totals(q);
}
