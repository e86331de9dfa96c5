/* Escalation: messages get another level. Many at once are found by listing the
 * queue page by page, so that others get their turn in between. */
#include "base/mem.h"
#include "broker/shard.h"

#define PAGE 500

static void some_done(struct engine_op *op)
{
    struct request *r = op->user;
    dispatch_mark_late(r->dispatcher);
    if (op->outdated && r->dispatcher->state == DISPATCHER_OPEN)
        escalate_some(r->dispatcher, r); /* the level may have another slot, or be gone */
    else
        shard_end(r->shard, r, op->status);
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
    struct request *r = op->user;
    struct work *w = r->work;
    (void)now;
    if (filter_matches(r->escalate.filter, m, w->slot, w->asked.wall_ms))
        w->escalations[w->item_count++].id = message_identity(m, q->id);
}

static void page_done(struct request *r, enum status status)
{
    bool go_on = r->work->more && r->dispatcher->state == DISPATCHER_OPEN && !r->shard->draining &&
                 !request_hung_up(r);
    if (status || !go_on)
        shard_end(r->shard, r, status);
    else
        next_page(r);
}

static void escalate_page(struct request *r);

static void escalated(struct engine_op *op)
{
    struct request *r = op->user;
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
    r->work->own = op;
    shard_submit(r->shard, &r->work->own);
}

/* The level may have another slot than before, or be gone. */
static void escalate_page(struct request *r)
{
    int slot;
    if (!level_take(r->dispatcher, r, &r->priority, "/priority", &slot))
        return;
    struct engine_op op = {.verb = ENGINE_ESCALATE, .escalate = r->op.escalate};
    op.escalate.slot = (uint8_t)slot;
    op.escalate.items = r->work->escalations;
    op.escalate.count = r->work->item_count;
    submit_page(r, op, escalated);
    dispatch_mark(r->dispatcher);
}

/* What came later than the first page is not part of it. Only now is it known how far that is: what
 * other processes put shows in the first answer. */
static void drop_later(struct request *r)
{
    struct work *w = r->work;
    uint32_t kept = 0;
    if (w->before_seq == 0)
        w->before_seq = r->dispatcher->queue->next_seq;
    for (uint32_t i = 0; i < w->item_count; i++) {
        if (w->escalations[i].id.seq < w->before_seq)
            w->escalations[kept++] = w->escalations[i];
    }
    w->item_count = kept;
}

static void listed(struct engine_op *op)
{
    struct request *r = op->user;
    struct work *w = r->work;
    if (!op->status && r->dispatcher->state == DISPATCHER_OPEN)
        drop_later(r);
    r->escalate.matched += w->item_count;
    w->cursor = op->list.next;
    w->more = op->list.more;
    if (op->status || w->item_count == 0 || r->escalate.dry_run ||
        r->dispatcher->state != DISPATCHER_OPEN) {
        page_done(r, op->status);
        return;
    }
    escalate_page(r);
}

static void next_page(struct request *r)
{
    struct work *w = r->work;
    struct engine_op list = {.verb = ENGINE_LIST, .visit = gather};
    w->item_count = 0;
    list.list.after = w->cursor;
    list.list.limit = PAGE;
    list.list.slots = w->slots;
    list.list.slot_count = w->slot_count;
    submit_page(r, list, listed);
}

/* The level that the filter names, or all levels. The one that messages are given comes first, so
 * that a page does not show those again that an earlier page gave it. */
static void choose_slots(struct work *w, const struct queue_config *config, int from, int to)
{
    w->slots[0] = (uint8_t)(from >= 0 ? from : to);
    w->slot_count = 1;
    for (int rank = 0; from < 0 && rank < config->level_count; rank++) {
        if (config->levels[rank].slot != to)
            w->slots[w->slot_count++] = config->levels[rank].slot;
    }
}

void escalate_all(struct dispatcher *d, struct request *r)
{
    int from, to;
    if (level_may_be_new(d, r, &r->priority) ||
        level_may_be_new(d, r, &r->escalate.filter->priority)) {
        view_refresh(d, r, escalate_all);
        return;
    }
    if (!level_take(d, r, &r->priority, "/priority", &to) ||
        !level_take(d, r, &r->escalate.filter->priority, "/filter/priority", &from))
        return;
    work_free(d->shard, r); /* of a look */
    struct work *w = work_new(d->shard, r);
    w->escalations = mem_alloc(PAGE * sizeof(*w->escalations));
    w->slot = from;
    choose_slots(w, &d->queue->config, from, to);
    w->before_seq = 0;
    w->cursor = (struct list_cursor){0};
    w->asked = d->shard->now;
    r->count = r->escalate.matched = 0;
    next_page(r);
}
