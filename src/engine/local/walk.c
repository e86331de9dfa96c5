/* What walks through all that a queue has in the store: listing, purging, times to live. */
#include "engine/local/impl.h"

#include <assert.h>

enum { LIST_TAIL = 2 }; /* after the phases of resident_verbs.c */

static void range_from(const struct local_queue *lq, const struct list_cursor *c,
                       struct key *prefix, struct key *start)
{
    struct message_id id = {
        .queue = lq->rq->face.id, .slot = (uint8_t)c->slot, .ready_ms = c->ready_ms, .seq = c->seq};
    key_queue(prefix, KEY_MESSAGE, id.queue);
    key_message(start, &id);
}

static struct list_cursor cursor_behind(const struct message_id *id)
{
    return (struct list_cursor){LIST_TAIL, id->slot, id->ready_ms, id->seq + 1};
}

static const struct list_cursor tail_start = {LIST_TAIL, 0, -TIME_MS_MAX - 1, 0};

/* One into the tail; resident_verbs.c knows the others. */
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

bool walk_lists(const struct message *m)
{
    return tail_is_cold(m) && message_pending(m);
}

bool walk_tail_range(const struct local_queue *lq, const struct engine_op *op, struct key *prefix,
                     struct key *start, uint32_t *want)
{
    bool resumed = lq->looks.resumed;
    const struct list_cursor *at = resumed ? &op->list.next : &op->list.after;
    if (lq->rq->core.tail + lq->cold_here == 0 || !cursor_valid(at))
        return false;
    *want = op->list.limit + 1 - (resumed ? op->list.found : 0);
    range_from(lq, at, prefix, start);
    return true;
}

/* Shows what is in memory, and says where the tail begins. True: that was all. */
static bool list_memory(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    if (op->list.after.phase < LIST_TAIL) {
        if (op->list.slot_count == 0)
            guests_stage_dead(lq, op->list.after.phase ? op->list.after.seq + 1 : 0,
                              op->list.limit + 1);
        resident_apply(&lq->local->r, op, now);
        op->list.next = op->list.more || op->status ? op->list.next : tail_start;
        return op->list.more || op->status;
    }
    op->list.found = 0;
    op->list.next = op->list.after;
    op->list.more = false;
    if (!cursor_valid(&op->list.next))
        op->status = STATUS_INVALID_FIELD;
    return op->status;
}

static void list_record(struct local_queue *lq, struct engine_op *op, const struct read_record *r,
                        struct instant now)
{
    struct queue *q = &lq->rq->core;
    struct message_id id;
    if (!tail_record_id(q, r, &id) || listed_from_memory(q, id.seq))
        return;
    struct message *m = tail_record_message(q, r, &id);
    if (!m)
        return;
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

/* The next page begins behind the last record of this one, whether that was shown or not. */
static void list_page(struct local_queue *lq, struct engine_op *op, const struct look_page *page,
                      struct instant now)
{
    struct message_id id;
    for (const struct read_record *r = page->first; r && !op->list.more; r = r->next) {
        list_record(lq, op, r, now);
        if (!r->next && !op->list.more && key_parse_message(r->key.bytes, r->key.len, &id))
            op->list.next = cursor_behind(&id);
    }
}

bool walk_list(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct key prefix, start;
    uint32_t want;
    if (!lq->looks.resumed && list_memory(lq, op, now))
        return true;
    op->list.more = false;
    lq->looks.resumed = true;
    if (!walk_tail_range(lq, op, &prefix, &start, &want))
        return true;
    const struct look_page *page = look_page(lq, &start);
    bool ends = page && page->end;
    if (page) {
        list_page(lq, op, page, now);
        look_page_done(lq);
    }
    return ends || op->list.more;
}

static const struct list_cursor *purge_start(const struct engine_op *op)
{
    return op->bulk.cursor.phase == LIST_TAIL ? &op->bulk.cursor : &tail_start;
}

void walk_purge_range(const struct local_queue *lq, const struct engine_op *op, struct key *prefix,
                      struct key *start)
{
    range_from(lq, purge_start(op), prefix, start);
}

static void purge_record(struct local_queue *lq, struct engine_op *op, const struct read_record *r,
                         struct instant now)
{
    struct queue *q = &lq->rq->core;
    struct message_id id;
    if (!tail_record_id(q, r, &id) || tail_in_memory(q, id.seq) || id.seq >= op->bulk.before_seq)
        return;
    struct message *m = tail_record_message(q, r, &id);
    if (!m)
        return;
    op->bulk.cursor = cursor_behind(&id);
    if (!tail_take_in(q, m, now))
        return;
    queue_cancel_pending(q, m, now);
    resident_report(lq->rq);
    op->bulk.count++;
}

static void purge_tail(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct key prefix, start;
    walk_purge_range(lq, op, &prefix, &start);
    const struct look_page *page = look_page(lq, &start);
    assert(page); /* planned */
    const struct read_record *r = page->first;
    op->bulk.cursor = *purge_start(op);
    for (; r && op->bulk.count < op->bulk.max; r = r->next)
        purge_record(lq, op, r, now);
    op->bulk.more = r || !page->end;
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
    if (op->bulk.max > lq->looks.portion)
        op->bulk.max = lq->looks.portion;
    resident_apply(&lq->local->r, op, now);
    op->bulk.max = max;
    op->bulk.count += count;
    op->bulk.more = op->bulk.more || more;
}

/* The page may have ended with its bytes: then there are others, unless they came after the job. */
void walk_dead(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct key prefix, start;
    guests_dead_range(lq, 0, &prefix, &start);
    const struct look_page *page = look_page(lq, &start);
    uint32_t staged = guests_stage_dead(lq, 0, op->bulk.max + 1);
    resident_apply(&lq->local->r, op, now);
    bool others = page && !page->end && staged > 0;
    op->bulk.more = op->bulk.more || (others && op->bulk.count == staged);
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
