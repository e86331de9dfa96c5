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
