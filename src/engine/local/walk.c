/* What walks through all that a queue has in the store: listing, purging, times to live. */
#include "engine/local/impl.h"

#include <assert.h>

enum { LIST_TAIL = 2, LIST_HISTORY = 3 }; /* after the phases of resident_verbs.c */

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

static bool lists_history(const struct engine_op *op)
{
    return op->list.states == 1U << MESSAGE_DONE;
}

static bool lists_tail(const struct engine_op *op)
{
    return engine_lists(op, MESSAGE_READY) || engine_lists(op, MESSAGE_SCHEDULED);
}

static bool in_history(const struct list_cursor *c)
{
    return c->phase == LIST_HISTORY && c->slot == 0 && c->ready_ms == 0 && c->seq < 1ULL << 48;
}

/* One into the tail; resident_verbs.c knows the others. */
static bool in_tail(const struct list_cursor *c)
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
    *want = op->list.limit + 1 - (resumed ? op->list.found : 0);
    if (lists_history(op)) {
        if (at->phase == LIST_HISTORY && !in_history(at))
            return false;
        key_queue(prefix, KEY_HISTORY, lq->rq->face.id);
        key_seq(start, KEY_HISTORY, lq->rq->face.id, at->phase == LIST_HISTORY ? at->seq : 0);
        return true;
    }
    if (lq->rq->core.tail + lq->cold_here == 0 || !in_tail(at) || !lists_tail(op))
        return false;
    range_from(lq, at, prefix, start);
    return true;
}

/* What is done is in the store alone. True: the cursor was none of its own. */
static bool begin_history(struct engine_op *op)
{
    op->list.found = 0;
    op->list.more = false;
    op->list.next = op->list.after;
    if (op->list.after.phase != LIST_HISTORY)
        op->list.next = (struct list_cursor){.phase = LIST_HISTORY};
    else if (!in_history(&op->list.after))
        op->status = STATUS_INVALID_FIELD;
    return op->status;
}

/* Shows what is in memory, and says where the tail begins. True: that was all. */
static bool list_memory(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    if (lists_history(op))
        return begin_history(op);
    if (op->list.after.phase < LIST_TAIL) {
        if (engine_lists(op, MESSAGE_DEAD))
            guests_stage_dead(lq, op->list.after.phase ? op->list.after.seq + 1 : 0,
                              op->list.limit + 1);
        resident_apply(&lq->local->r, op, now);
        op->list.next = op->list.more || op->status ? op->list.next : tail_start;
        return op->list.more || op->status;
    }
    op->list.found = 0;
    op->list.next = op->list.after;
    op->list.more = false;
    if (!in_tail(&op->list.next))
        op->status = STATUS_INVALID_FIELD;
    return op->status;
}

/* False: the page is full. */
static bool list_one(struct local_queue *lq, struct engine_op *op, struct message *m,
                     struct list_cursor behind, struct instant now)
{
    if (op->list.found == op->list.limit) {
        op->list.more = true;
        return false;
    }
    if (op->visit)
        op->visit(op, &lq->rq->face, m, now);
    op->list.found++;
    op->list.next = behind;
    return true;
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
    m->state = m->ready_ms <= tail_ready_ms(q, m->slot, now) ? MESSAGE_READY : MESSAGE_SCHEDULED;
    list_one(lq, op, m, cursor_behind(&id), now);
    message_free(m);
}

static void list_done(struct local_queue *lq, struct engine_op *op, const struct read_record *r,
                      uint64_t seq, struct instant now)
{
    int64_t until_ms;
    struct message *m = record_get_whole(r->value.data, r->value.len, seq, &until_ms);
    if (!m || m->state != MESSAGE_DONE)
        journal_damage(lq->local, "a history record cannot be read");
    else if (queue_shows(&lq->rq->core, m, now))
        list_one(lq, op, m, (struct list_cursor){.phase = LIST_HISTORY, .seq = seq + 1}, now);
    message_free(m);
}

static void list_history(struct local_queue *lq, struct engine_op *op, const struct look_page *page,
                         struct instant now)
{
    for (const struct read_record *r = page->first; r && !op->list.more; r = r->next) {
        uint32_t queue;
        uint64_t seq;
        if (!key_parse_seq(r->key.bytes, r->key.len, &queue, &seq)) {
            journal_damage(lq->local, "the key of a history record does not decode");
            continue;
        }
        list_done(lq, op, r, seq, now);
        if (!r->next && !op->list.more)
            op->list.next = (struct list_cursor){.phase = LIST_HISTORY, .seq = seq + 1};
    }
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
        if (lists_history(op))
            list_history(lq, op, page, now);
        else
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

/* The page may have ended with its bytes, as above. */
void walk_dead_list(struct local_queue *lq, struct engine_op *op, struct instant now)
{
    struct key prefix, start;
    uint64_t from_seq = op->list.after.seq + 1, last = op->list.after.seq;
    guests_dead_range(lq, from_seq, &prefix, &start);
    const struct look_page *page = look_page(lq, &start);
    guests_stage_dead(lq, from_seq, op->list.limit + 1);
    for (const struct read_record *r = page ? page->first : NULL; r; r = r->next) {
        uint32_t queue;
        if (!r->next && !key_parse_seq(r->key.bytes, r->key.len, &queue, &last))
            last = from_seq;
    }
    resident_apply(&lq->local->r, op, now);
    if (op->status || op->list.more || !page || page->end)
        return;
    op->list.more = true;
    op->list.next.seq = last;
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
