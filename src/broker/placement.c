/* Which cells have a queue, and which take messages at all: a change is passed on to an engine that
 * has cells. */
#include "broker/shard.h"

#include <inttypes.h>
#include <stdio.h>

static void say_what_is_left(struct request *r)
{
    const struct placement_left *left = &r->op.placement.left;
    snprintf(
        r->detail, sizeof(r->detail),
        "Cell \"%s\", queue \"%s\": the partition still holds messages: %" PRIu64 " ready, %" PRIu64
        " scheduled, %" PRIu64 " in flight, %" PRIu64 " dead. Wait until it is drained.",
        r->op.placement.cell, r->queue, left->ready, left->scheduled, left->leased, left->dead);
}

static void done(struct engine_op *op)
{
    const struct placement_left *left = &op->placement.left;
    bool holds = left->ready + left->scheduled + left->leased + left->dead > 0;
    struct request *r = request_of_op(op);
    bool whole = r->kind == REQUEST_CELL;
    assert(op == &r->op);
    if (op->status == STATUS_CELL_NOT_FOUND)
        snprintf(r->detail, sizeof(r->detail),
                 "There is no cell \"%s\" in the configuration of this server; GET /v1/cells lists "
                 "them.",
                 op->placement.cell);
    else if (op->status && op->placement.why && holds)
        say_what_is_left(r);
    else if (op->status && op->placement.why && whole)
        snprintf(r->detail, sizeof(r->detail), "Cell \"%s\": %s.", op->placement.cell,
                 op->placement.why);
    else if (op->status && op->placement.why)
        snprintf(r->detail, sizeof(r->detail), "Cell \"%s\", queue \"%s\": %s.", op->placement.cell,
                 r->queue, op->placement.why);
    request_conclude(r->shard, r, op->status);
}

static void submit(struct shard *s, struct request *r, struct engine_queue *q)
{
    assert(r->op.verb == ENGINE_PLACEMENT);
    if (!engine_has(s->engine, ENGINE_PARTITIONED)) {
        request_refuse(s, r, STATUS_PLACEMENT_REFUSED, "",
                       "The queues of this server are in one store: only engine = cells has "
                       "several.");
        return;
    }
    r->op.queue = q;
    r->op.done = done;
    r->op.user = r;
    shard_submit(s, &r->op);
}

void placement_change(struct dispatcher *d, struct request *r)
{
    assert(d->state == DISPATCHER_OPEN);
    submit(d->shard, r, d->queue);
}

void placement_of_cell(struct shard *s, struct request *r)
{
    submit(s, r, NULL);
}
