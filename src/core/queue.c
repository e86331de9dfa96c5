#include "core/queue.h"
#include "base/mem.h"
#include "core/dedup.h"
#include "core/moves.h"

#include <assert.h>
#include <stdlib.h>

void queue_init(struct queue *q, uint32_t id, struct queue_config *config, struct queue_view *view,
                uint64_t *next_seq, void (*random)(void *out, size_t len))
{
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

void queue_move(struct queue *q, struct message *m, enum message_state to)
{
    enum message_state from = m->state;
    assert(legal[from][to]);
    struct order *place = place_of(q, m, from);
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
    q->report_cap = q->report_cap ? q->report_cap * 2 : 16;
    q->report = mem_realloc(q->report, q->report_cap * sizeof(*q->report));
}

static void account(struct queue *q, const struct message *m, int by)
{
    uint64_t delta = (uint64_t)by * message_memory(m);
    q->memory += delta;
    if (!m->body)
        q->bodiless += (uint64_t)(int64_t)by;
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
    return m && m->born_ms == id->ready_ms && m->born_slot == id->slot ? m : NULL;
}

bool queue_shows(const struct queue *q, const struct message *m, struct instant now)
{
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
    account(q, m, -1);
    m->body = body;
    account(q, m, +1);
}

void queue_restore(struct queue *q, struct message *m, int64_t clock_ms)
{
    enum message_state to = m->state;
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
}

void queue_forget(struct queue *q, struct message *m)
{
    queue_detach(q, m);
    message_free(m);
}

static void check_map(const struct seqmap *messages, uint64_t *memory, uint64_t *bodiless)
{
    uint64_t seq = 0;
    for (const struct message *m; (m = seqmap_next(messages, seq, &seq)); seq++) {
        *memory += message_memory(m);
        *bodiless += !m->body;
    }
}

void queue_check(const struct queue *q)
{
    uint64_t ready = 0, scheduled = 0;
    for (int i = 0; i < LEVEL_COUNT_MAX; i++) {
        const struct lane *l = &q->lanes[i];
        const struct lane_view *v = &q->view->lanes[i];
        order_check(&l->ready);
        order_check(&l->scheduled);
        assert(v->ready == l->ready.count + l->tail.ready);
        assert(v->scheduled == l->scheduled.count + l->tail.scheduled);
        ready += v->ready;
        scheduled += v->scheduled;
    }
    assert(q->view->ready == ready);
    assert(q->view->scheduled == scheduled);
    assert(q->view->leased == q->leased.count);
    order_check(&q->leased);
    order_check(&q->expiring);
    uint64_t memory = 0, bodiless = 0;
    check_map(&q->messages, &memory, &bodiless);
    check_map(&q->dead, &memory, &bodiless);
    assert(bodiless == q->bodiless);
    assert(q->report_count == 0);
    assert(memory == q->memory);
    const struct queue_totals *t = &q->view->totals;
    assert(t->enqueued == q->view->ready + q->view->scheduled + q->view->leased + q->view->dead +
                              t->acked + t->expired + t->cancelled);
}
