/* What walks through all that a queue has in the store: listing, purging, times to live. */
#include "engine/local/impl.h"

enum { LIST_TAIL = 2 }; /* after the phases of resident.c */

static struct store_iter *walk_from(struct local_queue *lq, const struct list_cursor *c)
{
    struct message_id id = {
        .queue = lq->rq->face.id, .slot = (uint8_t)c->slot, .ready_ms = c->ready_ms, .seq = c->seq};
    struct key prefix, start;
    journal_await_cold(lq);
    key_queue(&prefix, KEY_MESSAGE, id.queue);
    key_message(&start, &id);
    return store_iter_open(lq->local->shared->store, STORE_COLD, &prefix, &start);
}

static struct list_cursor cursor_behind(const struct message_id *id)
{
    return (struct list_cursor){LIST_TAIL, id->slot, id->ready_ms, id->seq + 1};
}

static const struct list_cursor tail_start = {LIST_TAIL, 0, -TIME_MS_MAX - 1, 0};

/* One into the tail; resident.c knows the others. */
static bool cursor_valid(const struct list_cursor *c)
{
    return c->phase == LIST_TAIL && c->slot < LEVEL_COUNT_MAX && c->ready_ms >= -TIME_MS_MAX - 1 &&
           c->ready_ms <= TIME_MS_MAX && c->seq < 1ULL << 48;
}

/* What is as it was born is listed from the store, all else by what is in memory. */
static bool listed_from_memory(struct queue *q, uint64_t seq)
{
    const struct message *m = seqmap_get(&q->messages, seq);
    return m && (m->touched || !message_pending(m));
}

void walk_list(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct queue *q = &lq->rq->core;
    if (op->list.after.phase < LIST_TAIL) {
        if (op->list.slot_count == 0)
            guests_stage_dead(lq, op->list.after.phase ? op->list.after.seq + 1 : 0,
                              op->list.limit + 1);
        resident_apply(&lq->local->r, op, now);
        if (op->list.more || op->status)
            return;
        op->list.next = tail_start;
    } else {
        op->list.found = 0;
        op->list.next = op->list.after;
    }
    op->list.more = false;
    if (!cursor_valid(&op->list.next)) {
        op->status = STATUS_INVALID_FIELD;
        return;
    }
    struct store_iter *it = walk_from(lq, &op->list.next);
    for (; store_iter_valid(it) && !op->list.more; store_iter_next(it)) {
        struct message_id id;
        if (!tail_iter_id(q, it, &id) || listed_from_memory(q, id.seq))
            continue;
        struct message *m = tail_iter_message(q, it, &id);
        if (!m)
            continue;
        if (op->list.found == op->list.limit) {
            op->list.more = true;
        } else {
            m->state =
                m->ready_ms <= tail_ready_ms(q, m->slot, now) ? MESSAGE_READY : MESSAGE_SCHEDULED;
            if (op->visit)
                op->visit(op, &lq->rq->face, m, now);
            op->list.found++;
            op->list.next = cursor_behind(&id);
        }
        message_free(m);
    }
    tail_iter_end(lq->local, it);
}

static void purge_tail(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct queue *q = &lq->rq->core;
    if (op->bulk.cursor.phase != LIST_TAIL)
        op->bulk.cursor = tail_start;
    struct store_iter *it = walk_from(lq, &op->bulk.cursor);
    for (; store_iter_valid(it) && op->bulk.count < op->bulk.max; store_iter_next(it)) {
        struct message_id id;
        if (!tail_iter_id(q, it, &id) || tail_in_memory(q, id.seq))
            continue;
        struct message *m = tail_iter_message(q, it, &id);
        if (!m)
            continue;
        op->bulk.cursor = cursor_behind(&id);
        if (id.seq >= op->bulk.before_seq) {
            message_free(m);
            continue;
        }
        if (!tail_take_in(q, m, now))
            continue;
        queue_cancel_pending(q, m, now);
        resident_report(lq->rq);
        op->bulk.count++;
    }
    op->bulk.more = store_iter_valid(it);
    tail_iter_end(lq->local, it);
}

/* The tail first: after what is in memory, the walk would have to wait for that to be committed. */
void walk_purge(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    uint32_t max = op->bulk.max;
    op->bulk.count = 0;
    op->bulk.more = false;
    if (lq->rq->core.tail > 0)
        purge_tail(lq, op, now);
    uint32_t count = op->bulk.count;
    bool more = op->bulk.more;
    op->bulk.max -= count;
    resident_apply(&lq->local->r, op, now);
    op->bulk.max = max;
    op->bulk.count += count;
    op->bulk.more = op->bulk.more || more;
}

/* Time to live in the tail: an index by the time at which it ends. Each read of it begins where the
 * last one ended: before that there are only those that are in memory, and the tombstones of those
 * that have ended. */

void walk_expiry_start(struct local_queue *lq)
{
    struct read_job job = {.kind = READ_EXPIRED, .from_mark = lq->expiry_from};
    job.until_ms = -TIME_MS_MAX - 1;
    read_run(lq->local->shared->store, &job);
    if (job.damage)
        journal_damage(lq->local, job.damage);
    lq->expiry_from = job.next_mark;
    lq->expiry_due_ms = job.next_mark.expire_ms;
    read_free(&job);
}

void walk_expire(struct resident_queue *rq, uint32_t max, struct instant now)
{
    struct local_queue *lq = local_queue_of(&rq->core);
    if (lq->expiry_due_ms > now.wall_ms)
        return;
    lq->expiry_due_ms = INT64_MAX; /* the answer says when to ask again */
    if (lq->local->shared->reader)
        fetch_expired(lq, max, now);
    else
        fetch_expired_now(lq, max, now);
}
