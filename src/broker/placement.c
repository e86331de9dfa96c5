/* Which cells have a queue: a change is passed on to an engine that has cells. */
#include "broker/shard.h"

#include <stdio.h>

static void done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    assert(op == &r->op);
    if (op->status == STATUS_CELL_NOT_FOUND)
        snprintf(r->detail, sizeof(r->detail),
                 "There is no cell \"%s\" in the configuration of this server; GET /v1/cells lists "
                 "them.",
                 op->placement.cell);
    else if (op->status && op->placement.why)
        snprintf(r->detail, sizeof(r->detail), "Cell \"%s\", queue \"%s\": %s.", op->placement.cell,
                 r->queue, op->placement.why);
    request_conclude(r->shard, r, op->status);
}

void placement_change(struct dispatcher *d, struct request *r)
{
    assert(r->op.verb == ENGINE_PLACEMENT);
    assert(d->state == DISPATCHER_OPEN);
    if (!engine_has(d->shard->engine, ENGINE_PARTITIONED)) {
        request_refuse(d->shard, r, STATUS_PLACEMENT_REFUSED, "",
                       "The queues of this server are in one store: only engine = cells has "
                       "several.");
        return;
    }
    r->op.queue = d->queue;
    r->op.done = done;
    r->op.user = r;
    shard_submit(d->shard, &r->op);
}
