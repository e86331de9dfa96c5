#include "base/mem.h"
#include "core/moves.h"

#include <assert.h>

bool lane_within_bound(const struct lane *l, int64_t ready_ms, uint64_t seq)
{
    return ready_ms != l->tail.bound.ready_ms ? ready_ms < l->tail.bound.ready_ms
                                              : seq <= l->tail.bound.seq;
}

static void tail_count(struct queue *q, const struct message *m, int by)
{
    struct lane *l = &q->lanes[m->slot];
    bool ready = m->ready_ms <= l->tail.clock_ms;
    uint64_t *tail = ready ? &l->tail.ready : &l->tail.scheduled;
    assert(by > 0 || *tail > 0);
    assert(*tail <= q->tail);
    *tail += (uint64_t)(int64_t)by;
    q->tail += (uint64_t)(int64_t)by;
    queue_count(q, m, ready ? MESSAGE_READY : MESSAGE_SCHEDULED, by);
}

void queue_tail_add(struct queue *q, const struct message *m)
{
    struct lane *l = &q->lanes[m->slot];
    assert(m->node.height == 0);
    assert(!m->touched);
    tail_count(q, m, +1);
    if (m->ready_ms > l->tail.clock_ms && m->ready_ms < l->tail.next_ms)
        l->tail.next_ms = m->ready_ms;
}

void queue_tail_take(struct queue *q, const struct message *m)
{
    assert(m->node.height == 0);
    tail_count(q, m, -1);
}

void queue_tail_advance(struct queue *q, uint8_t slot, int64_t wall_ms)
{
    assert(slot < LEVEL_COUNT_MAX);
    struct lane *l = &q->lanes[slot];
    if (l->tail.scheduled == 0) {
        l->tail.next_ms = INT64_MAX;
        l->tail.lags = false;
    }
    if (wall_ms <= l->tail.clock_ms)
        return; /* the clock was set back: what was ready stays ready */
    if (!l->tail.lags && wall_ms < l->tail.next_ms) {
        l->tail.clock_ms = wall_ms;
        return;
    }
    if (!l->tail.lags || wall_ms > l->tail.wanted_ms)
        l->tail.wanted_ms = wall_ms;
    l->tail.lags = true;
}

/* No message of a tail stands before its bound. */
static void next_behind_bound(struct tail *t)
{
    if (t->next_ms < t->bound.ready_ms)
        t->next_ms = t->bound.ready_ms;
}

void queue_tail_counted(struct queue *q, uint8_t slot, uint64_t due, int64_t to_ms, int64_t next_ms)
{
    struct lane *l = &q->lanes[slot];
    assert(due <= l->tail.scheduled);
    assert(to_ms >= l->tail.clock_ms);
    assert(due <= q->view->lanes[slot].scheduled);
    assert(due <= q->view->scheduled);
    l->tail.scheduled -= due;
    l->tail.ready += due;
    q->view->lanes[slot].scheduled -= due;
    q->view->lanes[slot].ready += due;
    q->view->scheduled -= due;
    q->view->ready += due;
    l->tail.clock_ms = to_ms;
    l->tail.next_ms = l->tail.scheduled > 0 ? next_ms : INT64_MAX;
    next_behind_bound(&l->tail);
    l->tail.lags = l->tail.scheduled > 0 && to_ms < l->tail.wanted_ms;
}

void queue_tail_load(struct queue *q, uint8_t slot, const struct tail *tail)
{
    assert(!lane_has_tail(&q->lanes[slot]));
    q->lanes[slot].tail = *tail;
    q->tail += tail->ready + tail->scheduled;
    q->view->lanes[slot].ready += tail->ready;
    q->view->lanes[slot].scheduled += tail->scheduled;
    q->view->ready += tail->ready;
    q->view->scheduled += tail->scheduled;
}

void queue_tail_bound(struct queue *q, uint8_t slot, struct place bound)
{
    assert(slot < LEVEL_COUNT_MAX);
    q->lanes[slot].tail.bound = bound;
    next_behind_bound(&q->lanes[slot].tail);
}

void queue_tail_forget_clock(struct queue *q, uint8_t slot)
{
    assert(!lane_has_tail(&q->lanes[slot]));
    q->lanes[slot].tail.clock_ms = INT64_MIN;
}

#define WALK_MAX 64

/* The last untouched message of a set: its place is still the one that it was enqueued with. Looks
 * at the last WALK_MAX messages only, because a longer search would cost more than it saves. */
static struct message *last_born(const struct order *set)
{
    struct order_node *n = order_last(set);
    for (int i = 0; n && i < WALK_MAX; i++, n = order_prev(set, n)) {
        struct message *m = message_of(n);
        if (!m->touched)
            return m;
    }
    return NULL;
}

struct message *lane_last_born(const struct lane *l)
{
    struct message *r = last_born(&l->ready), *s = last_born(&l->scheduled);
    if (!r || !s)
        return r ? r : s;
    bool later =
        s->ready_ms != r->ready_ms ? s->ready_ms > r->ready_ms : message_seq(s) > message_seq(r);
    return later ? s : r;
}

/* A tail begins behind the last untouched message that the lane has in memory. Messages that were
 * moved to a later place do not count. Otherwise one message with a delay of a day would keep a day
 * of messages in memory. */
static void begin_tail(struct lane *l)
{
    const struct message *last = lane_last_born(l);
    l->tail.bound.ready_ms = last ? last->ready_ms : INT64_MIN;
    l->tail.bound.seq = last ? message_seq(last) : 0;
}

/* The more urgent third of the levels may use all of the memory, the other levels half of it. */
static bool has_room(const struct queue *q, uint8_t slot)
{
    const struct lane *l = &q->lanes[slot];
    if (l->ready.count + l->scheduled.count < q->room.window)
        return true;
    assert(q->memory_total);
    bool urgent = levels_rank_of_slot(q->config, slot) * 3 < q->config->level_count;
    return *q->memory_total < (urgent ? q->room.bytes : q->room.bytes / 2);
}

bool queue_keeps_in_memory(struct queue *q, const struct message *m)
{
    struct lane *l = &q->lanes[m->slot];
    if (q->room.window == 0)
        return true;
    if (!lane_has_tail(l)) {
        if (has_room(q, m->slot))
            return true;
        begin_tail(l);
    }
    /* After the wall clock was set back, the tail's clock is ahead. The tail would count this
     * message as ready, although it is scheduled; so it stays in memory. */
    if (m->ready_ms > q->clock_ms && m->ready_ms <= l->tail.clock_ms)
        return true;
    return lane_within_bound(l, m->ready_ms, message_seq(m));
}

/* Estimates how many ready messages of the tail stand before a place. Only the two ends of the tail
 * are known, so the messages are taken to be spread evenly between them. */
static uint64_t tail_before(const struct queue *q, const struct lane *l, int64_t ready_ms,
                            uint64_t seq, bool *exact)
{
    if (l->tail.ready == 0 || lane_within_bound(l, ready_ms, seq))
        return 0;
    if (ready_ms > l->tail.clock_ms)
        return l->tail.ready;
    *exact = false;
    double part = 0;
    /* nothing of the lane is in memory, so the start is not known */
    if (l->tail.bound.ready_ms == INT64_MIN)
        part = 0;
    else if (l->tail.clock_ms > l->tail.bound.ready_ms)
        part = (double)(ready_ms - l->tail.bound.ready_ms) /
               (double)(l->tail.clock_ms - l->tail.bound.ready_ms);
    else if (seq < *q->next_seq)
        part = (double)(seq - l->tail.bound.seq) / (double)(*q->next_seq - l->tail.bound.seq);
    return (uint64_t)((double)l->tail.ready * (part > 1 ? 1 : part));
}

void queue_count_before(const struct queue *q, struct count_item *item)
{
    assert(item->slot < LEVEL_COUNT_MAX);
    const struct lane *l = &q->lanes[item->slot];
    item->exact = true;
    if (item->ready_ms == INT64_MAX) {
        item->before = q->view->lanes[item->slot].ready;
        return;
    }
    item->before = order_count_before(&l->ready, item->ready_ms, item->seq, &item->exact);
    item->before += tail_before(q, l, item->ready_ms, item->seq, &item->exact);
}

/* A lane with a tail has every message up to its bound in memory. Behind the bound it has only
 * some, so the heads end there. */
void queue_heads(const struct queue *q, struct heads_item *item)
{
    assert(item->slot < LEVEL_COUNT_MAX);
    const struct lane *l = &q->lanes[item->slot];
    uint64_t most = l->ready.count < item->max ? l->ready.count : item->max;
    item->places = most > 0 ? mem_alloc(most * sizeof(*item->places)) : NULL;
    item->count = 0;
    for (const struct order_node *n = order_first(&l->ready); n && item->count < most;
         n = order_next(&l->ready, n)) {
        if (l->tail.ready > 0 && !lane_within_bound(l, n->key, n->tie))
            break;
        item->places[item->count++] = (struct place){n->key, n->tie};
    }
    assert(item->count <= most);
    item->whole = item->count == q->view->lanes[item->slot].ready;
}
