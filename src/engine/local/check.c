/* Walks what this engine keeps of its queues beside the core's, and asserts that it is all of one
 * piece. For tests: between the calls of an engine, never within one. */
#include "engine/local/impl.h"

#include <assert.h>

static uint64_t open_group(const struct local *l)
{
    return l->submitted + 1;
}

/* What is in order by the group that made it, and ends with the commit of that group. */
static void check_limbo(const struct local_queue *lq)
{
    assert(lq->limbo_first <= lq->limbo_count);
    assert(lq->limbo_count <= lq->limbo_cap);
    for (uint32_t i = lq->limbo_first; i < lq->limbo_count; i++) {
        const struct limbo *in = &lq->limbo[i];
        assert(lq->local->r.base.failed || in->group > lq->local->finished);
        assert(in->group <= open_group(lq->local));
        assert(i == lq->limbo_first || in[-1].group <= in->group);
        assert(!in->message || in->message->home == HOME_COLD);
        assert(!in->message || !in->message->touched);
    }
}

static void check_keys(const struct local_queue *lq)
{
    assert(lq->dedup_first <= lq->dedup_count);
    assert(lq->dedup_count <= lq->dedup_cap);
    for (uint32_t i = lq->dedup_first; i < lq->dedup_count; i++) {
        const struct dedup_pending *p = &lq->dedup[i];
        assert(lq->local->r.base.failed || p->group > lq->local->finished);
        assert(p->group <= open_group(lq->local));
        assert(i == lq->dedup_first || p[-1].group <= p->group);
        assert(p->key_len > 0);
    }
}

static void check_pending(const struct local_queue *lq)
{
    bool any = lq->limbo_first < lq->limbo_count || lq->dedup_first < lq->dedup_count;
    const struct local_queue *at = lq->local->pending;
    while (at && at != lq)
        at = at->next_pending;
    assert(!any || lq->pending);
    assert(lq->pending == (at == lq));
}

/* The cold messages in memory, counted anew. */
static void check_cold(const struct local_queue *lq)
{
    struct cold_count cold[LEVEL_COUNT_MAX] = {0};
    uint64_t here = 0, bytes = 0, seq = 0;
    for (const struct message *m; (m = seqmap_next(&lq->rq->core.messages, seq, &seq)); seq++) {
        if (!tail_is_cold(m))
            continue;
        assert(message_pending(m)); /* whatever else happens to a message touches it */
        cold[m->slot].ready += m->state == MESSAGE_READY;
        cold[m->slot].scheduled += m->state == MESSAGE_SCHEDULED;
        bytes += message_bytes(m);
        here++;
    }
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        assert(lq->cold[slot].ready == cold[slot].ready);
        assert(lq->cold[slot].scheduled == cold[slot].scheduled);
        assert(!(lq->counting & 1U << slot) || lq->rq->core.lanes[slot].tail.lags);
    }
    assert(lq->cold_here == here);
    assert(lq->cold_bytes >= bytes);
    assert(lq->rq->core.tail + here > 0 || lq->cold_bytes == 0);
    assert(lq->cold_group <= lq->local->cold_group);
}

static void check_held(const struct local_queue *lq)
{
    const struct looks *s = &lq->looks;
    const struct local_queue *at = lq->local->held;
    while (at && at != lq)
        at = at->next_held;
    assert(lq->listed == (at == lq));
    assert(!lq->rq->held || lq->listed);
    assert(!lq->rq->held || lq->local->shared->reader);
    assert(lq->rq->held || !lq->parked);
    assert(lq->rq->held || lq->sweep_max == 0);
    assert(lq->rq->held || !s->under_way);
    assert(lq->hold_group <= open_group(lq->local));
    for (const struct engine_op *op = lq->parked; op; op = op->next)
        assert(op->next || op == lq->parked_last);
}

/* At most one read of a kind is under way for a lane: what happens meanwhile is told to one. */
static void check_fetches(const struct local_queue *lq)
{
    for (const struct fetch *f = lq->fetches; f; f = f->next) {
        assert(f->lq == lq);
        assert(f->job.shard == lq->local->shard);
        assert(f->job.group <= open_group(lq->local));
        for (const struct fetch *other = f->next; other; other = other->next)
            assert(other->job.kind != f->job.kind || other->job.from.slot != f->job.from.slot);
    }
}

void local_queue_check(struct resident_queue *rq)
{
    const struct local_queue *lq = local_queue_of(&rq->core);
    assert(lq->rq == rq);
    assert(&lq->local->r == rq->engine);
    assert(rq->core.reports);
    assert(lq->guest_count == 0); /* they go with the op that brought them */
    assert(lq->ended_count == 0);
    check_limbo(lq);
    check_keys(lq);
    check_pending(lq);
    check_cold(lq);
    check_held(lq);
    check_fetches(lq);
    assert(lq->local->r.base.reading >= (lq->looks.under_way ? 1U : 0) + (rq->held ? 1U : 0));
}
