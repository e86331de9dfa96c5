/* Escalation: messages get another level. An escalation of many messages lists the queue page by
 * page, so that others get their turn in between. */
#include "base/mem.h"
#include "broker/shard.h"

#define PAGE 500

static void some_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    assert(op == &r->op);
    dispatch_mark_late(r->dispatcher);
    if (op->outdated && r->dispatcher->state == DISPATCHER_OPEN)
        escalate_some(r->dispatcher, r); /* the level may have another slot now, or be gone */
    else
        request_conclude(r->shard, r, op->status);
}

void escalate_some(struct dispatcher *d, struct request *r)
{
    int slot;
    if (level_may_be_new(d, r, &r->priority)) {
        view_refresh(d, r, escalate_some);
        return;
    }
    if (!level_take(d, r, &r->priority, "/priority", &slot))
        return;
    assert(slot >= 0); /* it names a level of the queue */
    r->op.verb = ENGINE_ESCALATE;
    r->op.escalate.slot = (uint8_t)slot;
    r->op.queue = d->queue;
    r->op.done = some_done;
    r->op.user = r;
    shard_submit(d->shard, &r->op);
    dispatch_mark(d);
}

/* Many */

static void next_page(struct request *r);

static void gather(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                   struct instant now)
{
    struct request *r = request_of_op(op);
    struct work *w = work_of(r, WORK_ESCALATION);
    (void)now;
    assert(w->escalation.item_count < PAGE);
    if (filter_matches(r->escalate.filter, m, w->escalation.slot, w->escalation.asked.wall_ms))
        w->escalation.items[w->escalation.item_count++].id = message_identity(m, q->id);
}

static void page_done(struct request *r, enum status status)
{
    bool go_on = work_of(r, WORK_ESCALATION)->escalation.more &&
                 r->dispatcher->state == DISPATCHER_OPEN && !r->shard->draining &&
                 !request_hung_up(r);
    if (status || !go_on)
        request_conclude(r->shard, r, status);
    else
        next_page(r);
}

static void escalate_page(struct request *r);

static void escalated(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    assert(op == &work_of(r, WORK_ESCALATION)->own);
    assert(!r->escalate.dry_run);
    if (op->outdated && r->dispatcher->state == DISPATCHER_OPEN) {
        escalate_page(r);
        return;
    }
    for (uint32_t i = 0; !op->status && i < op->escalate.count; i++)
        r->count += op->escalate.items[i].changed;
    dispatch_mark_late(r->dispatcher);
    page_done(r, op->status);
}

static void submit_page(struct request *r, struct engine_op op, engine_done *done)
{
    op.queue = r->dispatcher->queue;
    op.done = done;
    op.user = r;
    struct work *w = work_of(r, WORK_ESCALATION);
    w->own = op;
    shard_submit(r->shard, &w->own);
}

/* Escalates the messages of one page. The level is looked up for each page: it may have another
 * slot now, or be gone. */
static void escalate_page(struct request *r)
{
    int slot;
    if (!level_take(r->dispatcher, r, &r->priority, "/priority", &slot))
        return;
    const struct work *w = work_of(r, WORK_ESCALATION);
    struct engine_op op = {.verb = ENGINE_ESCALATE, .escalate = r->op.escalate};
    assert(slot >= 0);
    assert(w->escalation.item_count > 0);
    op.escalate.slot = (uint8_t)slot;
    op.escalate.items = w->escalation.items;
    op.escalate.count = w->escalation.item_count;
    submit_page(r, op, escalated);
    dispatch_mark(r->dispatcher);
}

/* Drops messages that were enqueued after the first page was listed: they are not part of the job.
 * The first answer of the engine says where they begin, because it also knows what other processes
 * have put. */
static void drop_later(struct request *r)
{
    struct work *w = work_of(r, WORK_ESCALATION);
    uint32_t kept = 0;
    if (w->escalation.before_seq == 0)
        w->escalation.before_seq = r->dispatcher->queue->next_seq;
    for (uint32_t i = 0; i < w->escalation.item_count; i++) {
        if (w->escalation.items[i].id.seq < w->escalation.before_seq)
            w->escalation.items[kept++] = w->escalation.items[i];
    }
    w->escalation.item_count = kept;
}

static void listed(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct work *w = work_of(r, WORK_ESCALATION);
    assert(op == &w->own);
    if (!op->status && r->dispatcher->state == DISPATCHER_OPEN)
        drop_later(r);
    r->escalate.matched += w->escalation.item_count;
    w->escalation.cursor = op->list.next;
    w->escalation.more = op->list.more;
    if (op->status || w->escalation.item_count == 0 || r->escalate.dry_run ||
        r->dispatcher->state != DISPATCHER_OPEN) {
        page_done(r, op->status);
        return;
    }
    escalate_page(r);
}

static void next_page(struct request *r)
{
    struct work *w = work_of(r, WORK_ESCALATION);
    struct engine_op list = {.verb = ENGINE_LIST, .visit = gather};
    w->escalation.item_count = 0;
    list.list.after = w->escalation.cursor;
    list.list.limit = PAGE;
    list.list.slots = w->escalation.slots;
    list.list.slot_count = w->escalation.slot_count;
    list.list.bare = !filter_needs_payload(r->escalate.filter);
    submit_page(r, list, listed);
}

/* The slots to list: that of the level in the filter, or all. The level that messages are moved to
 * comes first. Otherwise a later page would list messages that an earlier page has moved there. */
static void choose_slots(struct work *w, const struct queue_config *config, int from, int to)
{
    assert(to >= 0);
    w->escalation.slots[0] = (uint8_t)(from >= 0 ? from : to);
    w->escalation.slot_count = 1;
    for (int rank = 0; from < 0 && rank < config->level_count; rank++) {
        if (config->levels[rank].slot != to)
            w->escalation.slots[w->escalation.slot_count++] = config->levels[rank].slot;
    }
}

void escalate_all(struct dispatcher *d, struct request *r)
{
    int from, to;
    assert(r->kind == REQUEST_ESCALATE_ALL);
    assert(r->escalate.filter);
    if (level_may_be_new(d, r, &r->priority) ||
        level_may_be_new(d, r, &r->escalate.filter->priority)) {
        view_refresh(d, r, escalate_all);
        return;
    }
    if (!level_take(d, r, &r->priority, "/priority", &to) ||
        !level_take(d, r, &r->escalate.filter->priority, "/filter/priority", &from))
        return;
    work_free(d->shard, r); /* left from a refreshed view */
    struct work *w = work_new(d->shard, r, WORK_ESCALATION);
    w->escalation.items = mem_alloc(PAGE * sizeof(*w->escalation.items));
    w->escalation.item_count = 0;
    w->escalation.slot = from;
    w->escalation.more = false;
    choose_slots(w, &d->queue->config, from, to);
    w->escalation.before_seq = 0;
    w->escalation.cursor = (struct list_cursor){0};
    w->escalation.asked = d->shard->now;
    r->count = r->escalate.matched = 0;
    next_page(r);
}
