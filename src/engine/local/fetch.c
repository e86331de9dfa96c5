/* Fetches: what is only in the store is read by a thread, and merged into memory on the shard's
 * own. The copy may be old by then. What was put behind the bound since it was asked for is not in
 * it, so nothing from there on is taken; what was deleted since is in it, and is left out. */
#include "base/mem.h"
#include "engine/local/impl.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

/* Asking */

static struct fetch *fetch_find(const struct local_queue *lq, enum read_kind kind, uint8_t slot)
{
    for (struct fetch *f = lq->fetches; f; f = f->next) {
        if (f->job.kind == kind && f->job.from.slot == slot)
            return f;
    }
    return NULL;
}

static uint64_t group_to_await(const struct local *l)
{
    return l->cold_group > l->refill_group ? l->cold_group : l->refill_group;
}

static void fetch_init(struct fetch *f, struct local_queue *lq, enum read_kind kind)
{
    struct local *l = lq->local;
    *f = (struct fetch){.lq = lq, .cut_ms = INT64_MAX, .cut_seq = UINT64_MAX};
    f->low.expire_ms = INT64_MAX;
    f->job.shard = l->shard;
    f->job.kind = kind;
    f->job.group = group_to_await(l);
}

static void init_lane(struct fetch *f, struct local_queue *lq, uint8_t slot)
{
    const struct queue *q = &lq->rq->core;
    const struct lane *lane = &q->lanes[slot];
    fetch_init(f, lq, READ_LANE);
    f->job.from = tail_place_after(q, slot, lane->tail.bound.ready_ms, lane->tail.bound.seq);
    f->job.max = 2 * lq->local->shared->window;
    f->bound = lane->tail.bound;
}

#define DUE_WINDOWS 8 /* of keys to look at; all of one millisecond are one */

static void init_due(struct fetch *f, struct local_queue *lq, uint8_t slot)
{
    const struct queue *q = &lq->rq->core;
    const struct tail *tail = &q->lanes[slot].tail;
    fetch_init(f, lq, READ_DUE);
    f->job.from = tail_place_after(q, slot, tail->clock_ms, (1ULL << 48) - 2);
    f->job.until_ms = tail->wanted_ms;
    f->job.max = DUE_WINDOWS * lq->local->shared->window;
    f->clock_ms = tail->clock_ms;
}

static void init_expired(struct fetch *f, struct local_queue *lq, uint32_t max, int64_t until_ms)
{
    fetch_init(f, lq, READ_EXPIRED);
    f->job.from_mark = lq->expiry_from;
    f->job.until_ms = until_ms;
    f->job.max = max;
}

/* A group that is still open is handed over by the next flush, and the job with it: the reader must
 * not wait for what nobody commits. */
static void fetch_ask(struct local_queue *lq, struct fetch *f)
{
    struct local *l = lq->local;
    static_assert(offsetof(struct fetch, job) == 0, "a job that comes back is its fetch");
    assert(l->shared->reader);
    assert(!lq->rq->deleted);
    assert(f->job.group <= l->submitted + 1);
    assert(!fetch_find(lq, f->job.kind, f->job.from.slot)); /* what happens is told to one */
    f->next = lq->fetches;
    lq->fetches = f;
    l->r.base.reading++;
    if (f->job.group <= l->submitted) {
        reader_submit(l->shared->reader, &f->job);
        return;
    }
    f->job.next = l->asked;
    l->asked = &f->job;
}

void fetch_send(struct local *l)
{
    while (l->asked) {
        struct read_job *job = l->asked;
        l->asked = job->next;
        assert(job->group <= l->submitted); /* it would wait for what nobody commits */
        reader_submit(l->shared->reader, job);
    }
}

void fetch_lane(struct local_queue *lq, uint8_t slot)
{
    if (fetch_find(lq, READ_LANE, slot) ||
        lq->rq->core.lanes[slot].tail.bound.ready_ms == INT64_MAX)
        return;
    struct fetch *f = mem_alloc(sizeof(*f));
    init_lane(f, lq, slot);
    fetch_ask(lq, f);
}

void fetch_due(struct local_queue *lq, uint8_t slot)
{
    if (fetch_find(lq, READ_DUE, slot))
        return;
    struct fetch *f = mem_alloc(sizeof(*f));
    init_due(f, lq, slot);
    fetch_ask(lq, f);
}

#define BODIES_MAX CLAIM_MAX
#define BODIES_FAR (4 * BODIES_MAX) /* so many messages are looked at */

/* Those of a lane's first ready messages whose body is not here. */
static uint32_t list_bodiless(const struct queue *q, uint8_t slot,
                              struct message_id ids[BODIES_MAX])
{
    const struct order *ready = &q->lanes[slot].ready;
    const struct order_node *n = order_first(ready);
    uint32_t count = 0;
    for (uint32_t i = 0; n && i < BODIES_FAR && count < BODIES_MAX; i++) {
        const struct message *m = container_of(n, struct message, node);
        if (!m->body)
            ids[count++] = local_id(q, m);
        n = order_next(ready, n);
    }
    return count;
}

void fetch_bodies(struct local_queue *lq, uint8_t slot)
{
    struct message_id ids[BODIES_MAX];
    if (lq->rq->core.bodiless == 0 || fetch_find(lq, READ_BODIES, slot))
        return;
    uint32_t count = list_bodiless(&lq->rq->core, slot, ids);
    if (count == 0)
        return;
    struct fetch *f = mem_alloc(sizeof(*f));
    fetch_init(f, lq, READ_BODIES);
    f->job.group = 0; /* it was delivered before the start: its record is older than any group */
    f->job.from.slot = slot;
    f->job.ids = mem_dup(ids, count * sizeof(*ids));
    f->job.max = count;
    fetch_ask(lq, f);
}

void fetch_expired(struct local_queue *lq, uint32_t max, struct instant now)
{
    if (fetch_find(lq, READ_EXPIRED, 0))
        return;
    struct fetch *f = mem_alloc(sizeof(*f));
    init_expired(f, lq, max, now.wall_ms);
    fetch_ask(lq, f);
}

/* What happens meanwhile */

static bool place_before(int64_t a_ms, uint64_t a_seq, int64_t b_ms, uint64_t b_seq)
{
    return a_ms != b_ms ? a_ms < b_ms : a_seq < b_seq;
}

static void cut(struct fetch *f, int64_t ready_ms, uint64_t seq)
{
    if (f && place_before(ready_ms, seq, f->cut_ms, f->cut_seq)) {
        f->cut_ms = ready_ms;
        f->cut_seq = seq;
    }
}

void fetch_cut(struct local_queue *lq, uint8_t slot)
{
    cut(fetch_find(lq, READ_LANE, slot), INT64_MIN, 0);
}

void fetch_put(struct local_queue *lq, uint8_t slot, int64_t ready_ms, uint64_t seq)
{
    struct fetch *due = fetch_find(lq, READ_DUE, slot);
    cut(fetch_find(lq, READ_LANE, slot), ready_ms, seq);
    if (due && ready_ms > due->clock_ms)
        cut(due, ready_ms, seq);
}

void fetch_gone(struct local_queue *lq, uint64_t seq)
{
    for (struct fetch *f = lq->fetches; f; f = f->next) {
        if (!seqmap_get(&f->gone, seq))
            seqmap_put(&f->gone, seq, f);
    }
}

void fetch_expiry_put(struct local_queue *lq, const struct expiry_mark *mark)
{
    struct fetch *f = fetch_find(lq, READ_EXPIRED, 0);
    if (f && expiry_mark_compare(mark, &f->low) < 0)
        f->low = *mark;
    if (expiry_mark_compare(mark, &lq->expiry_from) < 0)
        lq->expiry_from = *mark;
}

/* Merging */

static bool still_there(struct fetch *f, uint64_t seq)
{
    return !tail_in_memory(&f->lq->rq->core, seq) && !seqmap_get(&f->gone, seq);
}

/* Takes in what is found up to `end`; the rest of it is freed with the job. */
static void take_in(struct fetch *f, uint32_t end, struct instant now)
{
    struct read_job *job = &f->job;
    assert(end <= job->count);
    for (uint32_t i = 0; i < end; i++) {
        struct message *m = job->found[i];
        job->found[i] = NULL;
        if (still_there(f, message_seq(m)))
            tail_take_in(&f->lq->rq->core, m, now);
        else
            message_free(m);
    }
}

/* How many of those found stand before the cut. */
static uint32_t before_cut(const struct fetch *f)
{
    uint32_t end = 0;
    while (end < f->job.count &&
           place_before(f->job.found[end]->ready_ms, message_seq(f->job.found[end]), f->cut_ms,
                        f->cut_seq))
        end++;
    return end;
}

static bool bound_moved(const struct fetch *f, const struct lane *lane)
{
    return lane->tail.bound.ready_ms != f->bound.ready_ms || lane->tail.bound.seq != f->bound.seq;
}

static struct place place_of(const struct message *m)
{
    return (struct place){m->ready_ms, message_seq(m)};
}

static void merge_lane(struct fetch *f, struct instant now)
{
    const struct read_job *job = &f->job;
    struct queue *q = &f->lq->rq->core;
    uint8_t slot = job->from.slot;
    const struct lane *lane = &q->lanes[slot];
    /* Another bound: messages went to the tail or came back from it in other ways. */
    if (!lane_has_tail(lane) || bound_moved(f, lane))
        return;
    bool cut = f->cut_ms != INT64_MAX;
    uint32_t end = before_cut(f);
    if (end > 0 && end < job->count)
        queue_tail_bound(q, slot, place_of(job->found[end - 1]));
    else if (end == job->count && (job->more || (cut && end > 0)))
        queue_tail_bound(q, slot, (struct place){job->at.ready_ms, job->at.seq});
    else if (!cut)
        queue_tail_bound(q, slot, (struct place){INT64_MAX, UINT64_MAX});
    take_in(f, end, now);
    tail_from_limbo(q, slot, now);
    if (!cut && !job->more && lane_has_tail(lane))
        journal_damage(f->lq->local,
                       "a queue's counters name messages that the store does not have");
}

/* What was put meanwhile is not among the places: the count ends before it. */
static void merge_due(struct fetch *f)
{
    struct read_job *job = &f->job;
    struct queue *q = &f->lq->rq->core;
    const struct tail *tail = &q->lanes[job->from.slot].tail;
    if (!tail->lags || tail->clock_ms != f->clock_ms)
        return; /* nothing is left to count, or others counted */
    if (f->cut_ms <= job->until_ms)
        job->until_ms = f->cut_ms - 1;
    if (f->cut_ms < job->next_ms)
        job->next_ms = f->cut_ms;
    if (job->until_ms < f->clock_ms)
        return;
    uint64_t due = 0;
    for (uint32_t i = 0; i < job->count && job->places[i].ready_ms <= job->until_ms; i++)
        due += still_there(f, job->places[i].seq);
    if (due > tail->scheduled) {
        journal_damage(f->lq->local, "a queue's counters do not have all that the store has");
        due = tail->scheduled;
    }
    queue_tail_counted(q, job->from.slot, due, job->until_ms, job->next_ms);
    f->lq->changed = true;
}

static void merge_bodies(struct fetch *f)
{
    struct read_job *job = &f->job;
    struct queue *q = &f->lq->rq->core;
    for (uint32_t i = 0; i < job->count; i++) {
        struct message *m = seqmap_get(&q->messages, job->ids[i].seq), *copy = job->found[i];
        if (!m || m->body)
            continue; /* it has ended, or somebody else needed it */
        if (!copy || message_body_len(copy) != message_body_len(m)) {
            journal_damage_of(q, job->ids[i].seq, "has a body that cannot be read");
            continue;
        }
        queue_body_take(q, m, copy->body);
        copy->body = NULL;
    }
}

static void merge_expired(struct fetch *f, struct instant now)
{
    const struct read_job *job = &f->job;
    take_in(f, job->count, now);
    bool put = expiry_mark_compare(&f->low, &job->next_mark) < 0;
    f->lq->expiry_from = put ? f->low : job->next_mark;
    int64_t due_ms = job->more ? now.wall_ms : f->lq->expiry_from.expire_ms;
    if (due_ms < f->lq->expiry_due_ms)
        f->lq->expiry_due_ms = due_ms;
}

static void merge(struct fetch *f, struct instant now)
{
    struct local *l = f->lq->local;
    assert(!f->lq->rq->deleted);
    l->r.base.counters.own[LOCAL_REFILLS]++;
    if (f->job.damage)
        journal_damage(l, f->job.damage);
    else if (f->job.kind == READ_LANE)
        merge_lane(f, now);
    else if (f->job.kind == READ_DUE)
        merge_due(f);
    else if (f->job.kind == READ_BODIES)
        merge_bodies(f);
    else
        merge_expired(f, now);
}

static void fetch_fini(struct fetch *f)
{
    read_free(&f->job);
    seqmap_fini(&f->gone);
}

static void unlink_from_queue(struct fetch *f)
{
    for (struct fetch **at = &f->lq->fetches; *at; at = &(*at)->next) {
        if (*at == f) {
            *at = f->next;
            return;
        }
    }
    assert(false); /* a queue knows its reads */
}

static bool is_look(const struct read_job *job)
{
    return job->kind == READ_RECORDS || job->kind == READ_PAGE;
}

void fetch_take(struct local *l)
{
    struct read_job **last = &l->fetched;
    while (*last)
        last = &(*last)->next;
    for (struct read_job *job = reader_take(l->shared->reader, l->shard), *next; job; job = next) {
        next = job->next;
        job->next = NULL;
        assert(job->shard == l->shard);
        assert(l->r.base.reading > 0);
        l->r.base.reading--;
        if (is_look(job)) {
            look_take(job);
            continue;
        }
        *last = job;
        last = &job->next;
    }
}

void fetch_merge(struct local *l, struct engine_op *sweep, struct instant now)
{
    while (l->fetched) {
        struct fetch *f = (struct fetch *)l->fetched;
        l->fetched = f->job.next;
        if (f->lq) {
            struct resident_queue *rq = f->lq->rq;
            unlink_from_queue(f);
            merge(f, now);
            resident_touch(rq);
            tail_top_up(rq, now);
            if (sweep->sweep.touched)
                sweep->sweep.touched(sweep, &rq->face);
        }
        fetch_fini(f);
        free(f);
    }
}

void fetch_abandon(struct local_queue *lq)
{
    for (struct fetch *f = lq->fetches; f; f = f->next)
        f->lq = NULL;
    lq->fetches = NULL;
}

void fetch_free_jobs(struct read_job *list)
{
    while (list) {
        struct fetch *f = (struct fetch *)list;
        list = list->next;
        if (is_look(&f->job)) {
            look_take(&f->job);
            continue;
        }
        fetch_fini(f);
        free(f);
    }
}

/* For a caller that does not ask before it claims: here and now. */

static void fetch_now(struct fetch *f, struct instant now)
{
    struct local *l = f->lq->local;
    assert(!l->shared->reader); /* the loop waits here */
    if (f->job.group > l->finished)
        journal_wait(l, f->job.group);
    read_run(l->shared->store, &f->job);
    merge(f, now);
    fetch_fini(f);
}

/* Until something came: all of a read may be in memory already. */
bool fetch_lane_now(struct local_queue *lq, uint8_t slot, struct instant now)
{
    const struct lane *lane = &lq->rq->core.lanes[slot];
    uint64_t behind = lane->tail.ready + lane->tail.scheduled;
    bool moved = true;
    while (moved && lane->tail.ready + lane->tail.scheduled == behind &&
           lane->tail.bound.ready_ms != INT64_MAX) {
        struct fetch f;
        init_lane(&f, lq, slot);
        fetch_now(&f, now);
        moved = bound_moved(&f, lane);
    }
    return lane->tail.ready + lane->tail.scheduled != behind;
}

void fetch_due_now(struct local_queue *lq, uint8_t slot)
{
    struct fetch f;
    init_due(&f, lq, slot);
    fetch_now(&f, lq->local->now);
}

void fetch_expired_now(struct local_queue *lq, uint32_t max, struct instant now)
{
    struct fetch f;
    init_expired(&f, lq, max, now.wall_ms);
    fetch_now(&f, now);
}
