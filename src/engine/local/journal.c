/* What is written for each move of a message, and the group it is written in. */
#include "base/mem.h"
#include "base/plant.h"
#include "engine/local/impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct local_queue *local_queue_of(struct queue *q)
{
    return container_of(q, struct resident_queue, core)->store;
}

struct local *local_behind(struct queue *q)
{
    return local_queue_of(q)->local;
}

struct message_id local_id(const struct queue *q, const struct message *m)
{
    return message_identity(m, q->id);
}

/* Groups */

static struct group *group_new(struct local *l)
{
    struct group *g = l->spare;
    struct store_batch *batch = g ? g->batch : store_batch_new();
    if (g)
        l->spare = g->next;
    else
        g = mem_alloc(sizeof(*g));
    *g = (struct group){.shard = l->shard, .number = l->submitted + 1, .batch = batch};
    g->last = &g->first;
    return g;
}

void journal_recycle(struct local *l, struct group *g)
{
    assert(g != l->open);
    assert(g->number <= l->finished);
    assert(g->shard == l->shard);
    if (store_batch_reset(g->batch)) {
        g->next = l->spare;
        l->spare = g;
    } else {
        store_batch_free(g->batch);
        free(g);
    }
}

struct group *journal_group(struct local *l)
{
    if (!l->open)
        l->open = group_new(l);
    return l->open;
}

struct store_batch *journal_batch(struct local *l)
{
    return journal_group(l)->batch;
}

static int compare_places(const void *a, const void *b)
{
    const struct message_id *x = &((const struct cold_put *)a)->id;
    const struct message_id *y = &((const struct cold_put *)b)->id;
    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    if (x->slot != y->slot)
        return x->slot < y->slot ? -1 : 1;
    if (x->ready_ms != y->ready_ms)
        return x->ready_ms < y->ready_ms ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

void journal_write_cold(struct local *l)
{
    if (l->cold_count == 0)
        return;
    qsort(l->cold_puts, l->cold_count, sizeof(*l->cold_puts), compare_places);
    for (uint32_t i = 0; i < l->cold_count; i++) {
        const struct cold_put *p = &l->cold_puts[i];
        struct key k;
        key_message(&k, &p->id);
        struct buf value = {.data = l->cold_values.data + p->offset, .len = p->len};
        store_put(l->shared->store, journal_batch(l), STORE_COLD, &k, &value);
    }
    l->cold_count = 0;
    buf_clear(&l->cold_values);
}

static void mark_cold(struct local_queue *lq)
{
    lq->cold_group = lq->local->cold_group = journal_group(lq->local)->number;
}

/* The index of times to live is read from where the last read ended, unless something joined the
 * tail before that. */
void journal_expiry_put(struct local_queue *lq, const struct message *m)
{
    struct queue *q = &lq->rq->core;
    if (!m->expiry)
        return;
    struct expiry_mark mark = {m->expiry->node.key, local_id(q, m)};
    fetch_expiry_put(lq, &mark);
    if (mark.expire_ms < lq->expiry_due_ms)
        lq->expiry_due_ms = mark.expire_ms;
}

void journal_put_cold(struct local *l, struct queue *q, const struct message *m)
{
    struct local_queue *lq = local_queue_of(q);
    assert(m->home == HOME_COLD);
    assert(!m->touched); /* a tail has no state records */
    if (l->cold_count == l->cold_cap) {
        l->cold_cap = l->cold_cap ? l->cold_cap * 2 : 256;
        l->cold_puts = mem_realloc(l->cold_puts, l->cold_cap * sizeof(*l->cold_puts));
    }
    struct cold_put *p = &l->cold_puts[l->cold_count++];
    *p = (struct cold_put){.id = local_id(q, m), .offset = l->cold_values.len};
    record_put_message(&l->cold_values, m);
    p->len = l->cold_values.len - p->offset;
    assert(p->len > 0);
    mark_cold(lq);
    if (m->expiry) {
        struct key k;
        key_expiry(&k, &p->id, m->expiry->node.key);
        store_put(l->shared->store, journal_batch(l), STORE_COLD, &k, NULL);
    }
    fetch_put(lq, m->slot, m->ready_ms, message_seq(m));
    journal_expiry_put(lq, m);
}

/* How a lane's cold messages divide at the time `clock_ms`, which no scheduled one of the tail is
 * before: those in memory stand around it in their sets. */
static void count_cold_at(const struct lane *l, const struct cold_count *cold, int64_t clock_ms,
                          struct record_lane *out)
{
    uint64_t late = 0, early = 0;
    for (struct order_node *n = order_last(&l->ready); n && n->key > clock_ms;
         n = order_prev(&l->ready, n)) {
        const struct message *m = container_of(n, struct message, node);
        late += tail_is_cold(m);
    }
    for (struct order_node *n = order_first(&l->scheduled); n && n->key <= clock_ms;
         n = order_next(&l->scheduled, n)) {
        const struct message *m = container_of(n, struct message, node);
        early += tail_is_cold(m);
    }
    assert(late <= l->tail.ready + cold->ready + early);
    assert(early <= l->tail.scheduled + cold->scheduled + late);
    out->cold_ready = l->tail.ready + cold->ready - late + early;
    out->cold_scheduled = l->tail.scheduled + cold->scheduled + late - early;
}

static void lower(struct record_lane *out, int64_t ms, uint64_t seq)
{
    if (ms < out->low_ms || (ms == out->low_ms && seq < out->low_seq)) {
        out->low_ms = ms;
        out->low_seq = seq;
    }
}

static void describe_lane(struct local_queue *lq, uint8_t slot, int64_t wall_ms,
                          struct record_lane *out)
{
    struct queue *q = &lq->rq->core;
    const struct lane *l = &q->lanes[slot];
    if (!tail_has_cold(lq, slot))
        return;
    if (!lane_has_tail(l)) /* should the clock be set back, this is what counts */
        queue_tail_advance(q, slot, wall_ms);
    int64_t clock = l->tail.next_ms > wall_ms ? wall_ms : l->tail.next_ms - 1;
    if (clock < l->tail.clock_ms)
        clock = l->tail.clock_ms;
    count_cold_at(l, &lq->cold[slot], clock, out);
    out->clock_ms = clock;
    out->low_ms = INT64_MAX;
    out->low_seq = UINT64_MAX;
    if (lane_has_tail(l))
        lower(out, l->tail.bound.ready_ms, l->tail.bound.seq);
    const struct order_node *r = order_first(&l->ready), *s = order_first(&l->scheduled);
    if (r)
        lower(out, r->key, r->tie);
    if (s)
        lower(out, s->key, s->tie);
}

static void write_counters(struct resident_queue *rq, void *ctx)
{
    struct local *l = ctx;
    struct local_queue *lq = local_queue_of(&rq->core);
    if (!lq->changed || rq->deleted)
        return;
    lq->changed = false;
    struct record_counters c = {
        .next_seq = rq->face.next_seq,
        .cold_bytes = lq->cold_bytes,
        .totals = rq->face.view.totals,
        .peaks = lq->peaks,
    };
    bool cold = rq->core.tail + lq->cold_here > 0;
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        c.lanes[slot].dead = rq->face.view.lanes[slot].dead;
        if (cold)
            describe_lane(lq, slot, l->now.wall_ms, &c.lanes[slot]);
    }
    struct key k;
    key_queue(&k, KEY_COUNTERS, rq->face.id);
    buf_clear(&l->scratch);
    record_put_counters(&l->scratch, &c);
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
}

void journal_close(struct local *l)
{
    resident_retime(&l->r, write_counters, l);
    journal_write_cold(l);
    if (!l->open)
        return;
    struct group *g = l->open;
    assert(g->number == l->submitted + 1);
    assert(l->cold_group <= g->number);
    assert(l->refill_group <= g->number);
    assert(l->cold_count == 0);
    l->open = NULL;
    l->submitted = g->number;
    commit_submit(l->shared->commit, g);
}

void journal_damage(struct local *l, const char *what)
{
    if (l->shared->commit)
        commit_fail(l->shared->commit, what);
    else if (l->shared->damage[0] == '\0') /* while recovering: refuse to start */
        snprintf(l->shared->damage, sizeof(l->shared->damage), "%s", what);
}

void journal_damage_of(struct queue *q, uint64_t seq, const char *what)
{
    char text[256];
    snprintf(text, sizeof(text), "message %llu of queue %s %s", (unsigned long long)seq,
             local_queue_of(q)->rq->face.name, what);
    journal_damage(local_behind(q), text);
}

/* What is written for each move of a message */

void journal_schedule(struct resident_queue *rq, const char *name, const struct schedule *s)
{
    struct local *l = local_behind(&rq->core);
    struct key k;
    key_schedule(&k, rq->face.id, name);
    if (!s) {
        store_delete(l->shared->store, journal_batch(l), STORE_HOT, &k);
        return;
    }
    buf_clear(&l->scratch);
    record_put_schedule(&l->scratch, s);
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
}

void journal_place(struct resident_queue *rq)
{
    struct local *l = local_behind(&rq->core);
    struct key k;
    assert(rq->place);
    key_queue(&k, KEY_PLACE, rq->face.id);
    buf_clear(&l->scratch);
    record_put_place(&l->scratch, rq->place);
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
}

void journal_share(struct resident_queue *rq)
{
    struct local *l = local_behind(&rq->core);
    struct key k;
    key_queue(&k, KEY_SHARE, rq->face.id);
    buf_clear(&l->scratch);
    record_put_share(&l->scratch, rq->share);
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
}

/* A message of a due time and the due time that is next go into one group: nothing comes between
 * this and the message's own record that could close the group. */
static void fired(struct resident_queue *rq)
{
    if (!rq->firing || PLANTED(FIRED_APART))
        return;
    journal_schedule(rq, rq->firing->schedule.name, &rq->firing->schedule);
    rq->firing = NULL;
}

static void stored(struct local_queue *lq, const struct queue_report *report)
{
    struct local *l = lq->local;
    struct queue *q = &lq->rq->core;
    struct message *m = report->message;
    assert(m->home != HOME_COLD);
    fired(lq->rq);
    struct message_id id = local_id(q, m);
    struct key k;
    key_message(&k, &id);
    buf_clear(&l->scratch);
    record_put_message(&l->scratch, m);
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
    if (PLANTED(FIRED_APART) && lq->rq->firing)
        journal_wait(l, journal_group(l)->number);
    tail_spill(q, m->slot);
}

static void joined(struct local_queue *lq, const struct queue_report *report)
{
    struct local *l = lq->local;
    struct queue *q = &lq->rq->core;
    struct message *m = report->message;
    const struct lane *lane = &q->lanes[m->slot];
    assert(lane_has_tail(lane));
    assert(!lane_within_bound(lane, m->ready_ms, message_seq(m)));
    assert(!tail_in_memory(q, message_seq(m)));
    assert(m->home != HOME_COLD);
    /* A tail begins, and with it a bound: behind it there may be records on their way out. */
    if (lane->tail.ready + lane->tail.scheduled == 1 && l->cold_group > l->refill_group)
        l->refill_group = l->cold_group;
    fired(lq->rq);
    m->home = HOME_COLD;
    lq->cold_bytes += message_bytes(m);
    journal_put_cold(l, q, m);
    tail_limbo_add(lq, m);
}

static void came(struct local_queue *lq, const struct queue_report *report)
{
    assert(report->message->state == MESSAGE_READY);
    assert(report->from == MESSAGE_SCHEDULED);
    if (!tail_is_cold(report->message))
        return;
    tail_count_cold(lq, report->slot, MESSAGE_READY, +1);
    tail_count_cold(lq, report->slot, MESSAGE_SCHEDULED, -1);
}

static void write_state(struct local_queue *lq, const struct message *m)
{
    struct local *l = lq->local;
    assert(m->touched); /* a start would not look for it in memory otherwise */
    struct key k;
    key_seq(&k, KEY_STATE, lq->rq->face.id, message_seq(m));
    buf_clear(&l->scratch);
    record_put_state(&l->scratch, m, l->shared->boot);
    store_put(l->shared->store, journal_batch(l), STORE_HOT, &k, &l->scratch);
}

static void changed(struct local_queue *lq, const struct queue_report *report)
{
    struct message *m = report->message;
    assert(seqmap_get(&lq->rq->core.messages, message_seq(m)) == m);
    if (m->home == HOME_COLD && report->first) {
        assert(lq->cold_bytes >= message_bytes(m));
        lq->cold_bytes -= message_bytes(m);
        tail_count_cold(lq, report->slot, report->from, -1);
    }
    if (PLANTED(LOSE_LEASE) && m->state == MESSAGE_LEASED)
        return;
    write_state(lq, m);
}

void journal_delete_hot(struct local *l, struct queue *q, const struct message *m)
{
    struct message_id id = local_id(q, m);
    struct key k;
    assert(m->home != HOME_COLD);
    key_message(&k, &id);
    store_delete_once(l->shared->store, journal_batch(l), STORE_HOT, &k);
}

static void delete_home(struct local *l, struct queue *q, const struct message *m)
{
    if (m->home != HOME_COLD) {
        journal_delete_hot(l, q, m);
        return;
    }
    struct store *store = l->shared->store;
    struct message_id id = local_id(q, m);
    struct key k;
    key_message(&k, &id);
    journal_write_cold(l); /* its own may be among them, and has to come first */
    store_delete_once(store, journal_batch(l), STORE_COLD, &k);
    mark_cold(local_queue_of(q));
    const struct lane *lane = &q->lanes[m->born_slot];
    if (lane_has_tail(lane) && !lane_within_bound(lane, m->born_ms, message_seq(m)))
        l->refill_group = journal_group(l)->number;
    fetch_gone(local_queue_of(q), message_seq(m));
    if (m->expiry) {
        key_expiry(&k, &id, m->expiry->node.key);
        store_delete(store, journal_batch(l), STORE_COLD, &k);
    }
}

/* A message that has ended, with its body, as it is now. */
static void write_whole(struct local_queue *lq, const struct message *m, enum key_tag tag,
                        int64_t until_ms)
{
    struct local *l = lq->local;
    struct key k;
    assert(m->body || message_body_len(m) == 0);
    assert(m->state == (tag == KEY_DEAD ? MESSAGE_DEAD : MESSAGE_DONE));
    key_seq(&k, tag, lq->rq->face.id, message_seq(m));
    buf_clear(&l->scratch);
    record_put_whole(&l->scratch, m, l->shared->boot, until_ms);
    store_put(l->shared->store, journal_batch(l), STORE_COLD, &k, &l->scratch);
    mark_cold(lq);
}

static void delete_dead(struct local_queue *lq, const struct message *m)
{
    struct key k;
    key_seq(&k, KEY_DEAD, lq->rq->face.id, message_seq(m));
    store_delete(lq->local->shared->store, journal_batch(lq->local), STORE_COLD, &k);
    mark_cold(lq);
}

static void key_drop(struct local_queue *lq, const struct message *m);

/* The records of a message that was not dead before. */
static void delete_all(struct local_queue *lq, const struct message *m, enum message_state from)
{
    struct local *l = lq->local;
    struct key k;
    assert(from != MESSAGE_DEAD);
    if (tail_is_cold(m)) {
        assert(lq->cold_bytes >= message_bytes(m));
        lq->cold_bytes -= message_bytes(m);
        tail_count_cold(lq, m->slot, from, -1);
    }
    delete_home(l, &lq->rq->core, m);
    if (m->touched) {
        key_seq(&k, KEY_STATE, lq->rq->face.id, message_seq(m));
        store_delete(l->shared->store, journal_batch(l), STORE_HOT, &k);
    }
}

static void write_end(struct local_queue *lq, struct message *m, enum message_state from)
{
    struct queue *q = &lq->rq->core;
    bool kept = m->state == MESSAGE_DONE && q->config->history_ms > 0;
    bool has_key = m->dedup_len > 0 && m->state != MESSAGE_DEAD;
    assert(!message_pending(m));
    assert(m->state != MESSAGE_LEASED);
    assert(m->state != from);
    if (!m->body && (has_key || kept || m->state == MESSAGE_DEAD))
        m->body = tail_read_body(q, m);
    if (has_key)
        key_drop(lq, m);
    if (PLANTED(LOSE_ACK) && m->state == MESSAGE_DONE)
        return;
    if (from == MESSAGE_DEAD) { /* a dead letter is its own record */
        delete_dead(lq, m);
        return;
    }
    if (m->state == MESSAGE_DEAD) {
        write_whole(lq, m, KEY_DEAD, INT64_MAX);
        if (message_seq(m) < lq->dead_from)
            lq->dead_from = message_seq(m);
    } else if (kept) {
        write_whole(lq, m, KEY_HISTORY, m->delivery->died_ms + q->config->history_ms);
    }
    delete_all(lq, m, from);
}

static void ended(struct local_queue *lq, const struct queue_report *report)
{
    write_end(lq, report->message, report->from);
    if (lq->local->repeats)
        guest_ended(lq, report->message);
    else
        message_free(report->message);
}

static void revived(struct local_queue *lq, const struct queue_report *report)
{
    struct local *l = lq->local;
    struct message *m = report->message;
    struct message_id id = local_id(&lq->rq->core, m);
    struct key k;
    assert(message_pending(m) || m->state == MESSAGE_LEASED); /* it may leave for another store */
    assert(m->touched);                                       /* a dead letter was delivered */
    m->home = HOME_COLD;
    key_message(&k, &id);
    buf_clear(&l->scratch);
    record_put_message(&l->scratch, m);
    store_put(l->shared->store, journal_batch(l), STORE_COLD, &k, &l->scratch);
    delete_dead(lq, m);
    write_state(lq, m);
}

/* Queues with something under way */

void journal_pend(struct local_queue *lq)
{
    if (lq->pending)
        return;
    lq->pending = true;
    lq->next_pending = lq->local->pending;
    lq->local->pending = lq;
}

void journal_unpend(struct local_queue *lq)
{
    for (struct local_queue **at = &lq->local->pending; *at; at = &(*at)->next_pending) {
        if (*at == lq) {
            *at = lq->next_pending;
            return;
        }
    }
}

/* Dedup keys */

static void dedup_await(struct local_queue *lq, const char *key, size_t len, uint64_t seq,
                        bool dropped)
{
    if (lq->dedup_count == lq->dedup_cap) {
        if (lq->dedup_first <= lq->dedup_cap / 2) {
            lq->dedup_cap = lq->dedup_cap ? lq->dedup_cap * 2 : 64;
            lq->dedup = mem_realloc(lq->dedup, lq->dedup_cap * sizeof(*lq->dedup));
        }
        lq->dedup_count -= lq->dedup_first;
        memmove(lq->dedup, lq->dedup + lq->dedup_first, lq->dedup_count * sizeof(*lq->dedup));
        lq->dedup_first = 0;
    }
    journal_pend(lq);
    assert(len > 0);
    assert(len <= KEY_MAX);
    assert(lq->dedup_count == lq->dedup_first || /* freed from the front, group by group */
           lq->dedup[lq->dedup_count - 1].group <= journal_group(lq->local)->number);
    lq->dedup[lq->dedup_count++] = (struct dedup_pending){
        .group = journal_group(lq->local)->number,
        .seq = seq,
        .dropped = dropped,
        .key_len = (uint32_t)len,
        .key = mem_dup(key, len),
    };
}

void journal_keys_free(struct local_queue *lq, uint64_t group)
{
    while (lq->dedup_first < lq->dedup_count && lq->dedup[lq->dedup_first].group <= group) {
        struct dedup_pending *p = &lq->dedup[lq->dedup_first++];
        queue_dedup_committed(&lq->rq->core, p->key, p->key_len, p->seq, p->dropped);
        free(p->key);
    }
}

/* What the groups up to this one left in limbo is in the store now. */
void journal_committed(struct local *l, uint64_t group)
{
    for (struct local_queue **at = &l->pending; *at;) {
        struct local_queue *lq = *at;
        tail_limbo_free(lq, group);
        journal_keys_free(lq, group);
        lq->pending = lq->limbo_first < lq->limbo_count || lq->dedup_first < lq->dedup_count;
        if (lq->pending)
            at = &lq->next_pending;
        else
            *at = lq->next_pending;
    }
}

void journal_wait(struct local *l, uint64_t up_to)
{
    assert(!l->shared->reader || PLANTED(FIRED_APART)); /* no loop waits for a commit */
    assert(up_to <= l->submitted + (l->open != NULL));
    if (l->open && up_to >= l->open->number) {
        if (l->present)
            resident_touch(l->present);
        journal_close(l);
        if (l->present)
            resident_touch(l->present);
    }
    commit_wait(l->shared->commit, l->shard, up_to);
    /* At once, not when the group is reported: a copy in limbo must not outlive what is done to the
     * message in the store from here on. */
    journal_committed(l, up_to);
}

void journal_await_cold(struct local_queue *lq)
{
    struct local *l = lq->local;
    if (l->shared->reader)
        assert(l->synced);
    else if (lq->cold_group > l->finished)
        journal_wait(l, lq->cold_group);
}

static bool find_key(struct resident_queue *rq, const struct key *k, struct dedup_hit *hit)
{
    struct local *l = local_behind(&rq->core);
    bool damaged = false;
    if (!look_get(local_queue_of(&rq->core), k, &l->scratch, &damaged)) {
        if (damaged)
            journal_damage(l, "a dedup key cannot be read");
        return false;
    }
    bool known = record_get_dedup(l->scratch.data, l->scratch.len, rq->face.id, hit);
    if (!known)
        journal_damage(l, "a dedup key in the store does not decode");
    return known;
}

bool journal_find_key(struct resident_queue *rq, const char *key, size_t len, struct dedup_hit *hit)
{
    struct key k;
    key_dedup(&k, rq->face.id, key, len);
    return !look_lacks_key(local_queue_of(&rq->core), &k) && find_key(rq, &k, hit);
}

static void keyed(struct local_queue *lq, const struct queue_report *report)
{
    const struct dedup_entry *e = report->key;
    struct local *l = lq->local;
    struct key k;
    key_dedup(&k, lq->rq->face.id, e->key, e->key_len);
    buf_clear(&l->scratch);
    record_put_dedup(&l->scratch, &e->hit);
    store_put(l->shared->store, journal_batch(l), STORE_COLD, &k, &l->scratch);
    dedup_await(lq, e->key, e->key_len, e->hit.id.seq, false);
}

static void key_drop(struct local_queue *lq, const struct message *m)
{
    struct queue *q = &lq->rq->core;
    struct local *l = lq->local;
    const char *key = message_dedup_key(m);
    struct dedup_hit hit;
    struct key k;
    key_dedup(&k, q->id, key, m->dedup_len);
    bool elsewhere = !queue_key_here(q, key, m->dedup_len) && find_key(lq->rq, &k, &hit);
    if (!queue_key_drop(q, m, elsewhere ? &hit : NULL))
        return;
    store_delete(l->shared->store, journal_batch(l), STORE_COLD, &k);
    dedup_await(lq, key, m->dedup_len, message_seq(m), true);
}

typedef void report_fn(struct local_queue *lq, const struct queue_report *report);

static report_fn *const reports[] = {
    [REPORT_STORED] = stored,   [REPORT_JOINED] = joined, [REPORT_CAME] = came,
    [REPORT_CHANGED] = changed, [REPORT_ENDED] = ended,   [REPORT_REVIVED] = revived,
    [REPORT_KEY] = keyed,
};

void journal_report(struct resident_queue *rq)
{
    struct queue *q = &rq->core;
    struct local_queue *lq = local_queue_of(q);
    lq->changed = true;
    assert(lq->local->present == rq); /* its counters go into the same group */
    for (uint32_t i = 0; i < q->report_count; i++)
        reports[q->report[i].kind](lq, &q->report[i]);
    queue_reported(q);
}
