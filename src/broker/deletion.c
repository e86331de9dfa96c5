/* Deletion of a queue: with all its messages, or only if it is empty. */
#include "broker/shard.h"

#include <stdio.h>

static const char has_messages[] =
    "Drain or purge it and its dead letters, or add ?force=true to delete it with all it holds.";
static const char has_schedules[] =
    "It has schedules: delete them, or add ?force=true to delete it with them.";

static bool holds_messages(const struct engine_queue *q)
{
    const struct queue_view *v = &q->view;
    return v->ready + v->scheduled + v->leased + v->dead > 0;
}

static void delete_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct shard *s = r->shard;
    assert(op == &r->op);
    assert(r->kind == REQUEST_DELETE);
    assert(r->dispatcher->state == DISPATCHER_GONE);
    bool kept = op->status && op->status != STATUS_QUEUE_NOT_FOUND && !s->engine->failed;
    if (kept && !dispatcher_find(s, r->queue))
        dispatcher_adopt(s, op->queue);
    if (op->status == STATUS_QUEUE_NOT_EMPTY) /* other processes have filled it */
        snprintf(r->detail, sizeof(r->detail), "%s",
                 holds_messages(op->queue) ? has_messages : has_schedules);
    request_conclude(s, r, op->status);
}

static void delete_now(struct dispatcher *d, struct request *r)
{
    assert(r->kind == REQUEST_DELETE);
    assert(d->state == DISPATCHER_OPEN);
    assert(d->queue->user == d);
    bool messages = holds_messages(d->queue);
    if (!r->deletion.force && (messages || d->queue->schedules > 0)) {
        request_refuse(d->shard, r, STATUS_QUEUE_NOT_EMPTY, "",
                       messages ? has_messages : has_schedules);
        return;
    }
    dispatch_end_all(d, STATUS_QUEUE_NOT_FOUND);
    d->queue->user = NULL;
    r->op.verb = ENGINE_QUEUE_DELETE;
    r->op.remove.if_empty = !r->deletion.force;
    r->op.queue = d->queue;
    r->op.done = delete_done;
    r->op.user = r;
    assert(d->references > 1); /* the request holds one besides the map's */
    dispatcher_unlist(d);
    shard_submit(d->shard, &r->op);
}

void deletion_begin(struct dispatcher *d, struct request *r)
{
    if (r->deletion.force)
        delete_now(d, r);
    else
        view_refresh(d, r, delete_now);
}
