/* A fresh view of a queue. Another process may have filled a queue that this process knows to be
 * empty. So a request that depends on the view asks for a fresh one first. */
#include "broker/shard.h"

static void look_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    assert(op == &work_of(r, WORK_VIEW)->own);
    if (op->status || r->dispatcher->state != DISPATCHER_OPEN)
        request_conclude(r->shard, r, op->status ? op->status : STATUS_QUEUE_NOT_FOUND);
    else
        work_of(r, WORK_VIEW)->view.then(r->dispatcher, r);
}

void view_refresh(struct dispatcher *d, struct request *r,
                  void (*then)(struct dispatcher *d, struct request *r))
{
    assert(then);
    assert(r->dispatcher == d);
    assert(d->state == DISPATCHER_OPEN);
    struct work *w = work_new(d->shard, r, WORK_VIEW);
    if (engine_has(d->shard->engine, ENGINE_LIVE_VIEW)) {
        then(d, r);
        return;
    }
    w->view.then = then;
    w->own =
        (struct engine_op){.verb = ENGINE_COUNT, .queue = d->queue, .done = look_done, .user = r};
    w->own.count.waits = r->kind == REQUEST_LOOK && r->look.wait_ms > 0;
    shard_submit(d->shard, &w->own);
}
