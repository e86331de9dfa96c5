/* Escalation of messages by their ids: they get another level. */
#include "broker/shard.h"

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
