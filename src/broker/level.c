/* The level that a request names: finds its slot, or refuses the request. */
#include "broker/shard.h"

#include <stdio.h>

bool level_may_be_new(const struct dispatcher *d, const struct request *r,
                      const struct priority_ref *priority)
{
    return engine_has(d->shard->engine, ENGINE_SHARED) && !r->work &&
           priority->kind != PRIORITY_DEFAULT && levels_resolve(&d->queue->config, priority) < 0;
}

void level_refuse(struct shard *s, struct request *r, const char *field)
{
    char detail[sizeof(r->detail)];
    snprintf(detail, sizeof(detail),
             "Queue \"%s\" has no such level; GET /v1/queues/%s shows its levels.", r->queue,
             r->queue);
    request_refuse(s, r, STATUS_UNKNOWN_PRIORITY, field, detail);
}

bool level_take(struct dispatcher *d, struct request *r, const struct priority_ref *priority,
                const char *field, int *slot)
{
    assert(d->state == DISPATCHER_OPEN);
    *slot = -1;
    if (priority->kind == PRIORITY_DEFAULT)
        return true;
    int rank = levels_resolve(&d->queue->config, priority);
    if (rank < 0) {
        level_refuse(d->shard, r, field);
        return false;
    }
    *slot = d->queue->config.levels[rank].slot;
    return true;
}

void level_list(struct dispatcher *d, struct request *r)
{
    const uint32_t pending = 1U << MESSAGE_SCHEDULED | 1U << MESSAGE_READY;
    struct engine_op *op = &r->op;
    if (level_may_be_new(d, r, &r->priority)) {
        view_refresh(d, r, level_list);
        return;
    }
    if (!level_take(d, r, &r->priority, "/level", &r->list.slot))
        return;
    if (r->list.slot >= 0 && op->list.states > 0 && (op->list.states & ~pending) == 0) {
        r->list.own = (uint8_t)r->list.slot;
        op->list.slots = &r->list.own;
        op->list.slot_count = 1;
    }
    shard_pass_on(d, r);
}
