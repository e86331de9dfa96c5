/* A queue moves to another server. Here it hands out nothing and takes nothing new. Messages that
 * are leased here are settled here. What this server does not have is the other one's: the request
 * comes back with the target, and whoever submitted it asks there. */
#include "base/mem.h"
#include "broker/shard.h"

#include <stdio.h>
#include <string.h>

/* What a queue that moves still does for everybody. A claim of several queues finds it closed. */
static const bool let_in[REQUEST_KIND_COUNT] = {
    [REQUEST_PUT] = true,   [REQUEST_SETTLE] = true, [REQUEST_GET] = true,
    [REQUEST_LIST] = true,  [REQUEST_LOOK] = true,   [REQUEST_POSITION] = true,
    [REQUEST_QUEUE] = true, [REQUEST_STATS] = true,
};

bool move_lets_in(const struct request *r)
{
    bool lists = r->kind == REQUEST_SCHEDULE && r->op.verb == ENGINE_SCHEDULE_LIST;
    bool part = r->kind == REQUEST_CLAIM && r->inner;
    return r->moves || lists || part || let_in[r->kind];
}

void move_refuse(struct dispatcher *d, struct request *r)
{
    char detail[sizeof(r->detail)];
    snprintf(detail, sizeof(detail), "Ask the server that it moves to: %s",
             d->queue->config.forward_to);
    request_refuse(d->shard, r, STATUS_QUEUE_MOVED, "", detail);
}

/* Whoever holds a receipt of the other server sends it here, too. */
static bool pass_settle(struct engine_op *op)
{
    bool any = false;
    for (uint32_t i = 0; i < op->settle.count; i++) {
        struct settle_item *item = &op->settle.items[i];
        if (item->status == STATUS_MESSAGE_NOT_FOUND || item->status == STATUS_RECEIPT_EXPIRED) {
            item->status = STATUS_QUEUE_MOVED;
            any = true;
        }
    }
    return any;
}

static bool has_moved_put(const struct engine_op *op)
{
    for (uint32_t i = 0; i < op->put.count; i++) {
        if (op->put.items[i].status == STATUS_QUEUE_MOVED)
            return true;
    }
    return false;
}

static bool goes_on(struct request *r)
{
    if (r->kind == REQUEST_CLAIM)
        return r->status == STATUS_QUEUE_MOVED;
    if (r->status || r->inner)
        return false;
    return (r->kind == REQUEST_SETTLE && pass_settle(&r->op)) ||
           (r->kind == REQUEST_PUT && has_moved_put(&r->op));
}

void move_finish(const struct dispatcher *d, struct request *r)
{
    const struct queue_config *config = &d->queue->config;
    if (r->target || !goes_on(r))
        return;
    r->target = mem_zalloc(sizeof(*r->target));
    memcpy(r->target->url, config->forward_to, sizeof(r->target->url));
    memcpy(r->target->token, config->forward_token, sizeof(r->target->token));
}
