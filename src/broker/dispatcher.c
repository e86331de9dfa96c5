/* Dispatchers: one for each queue that this shard knows. A dispatcher lives as long as somebody
 * refers to it: the shard's map, as long as the queue has its name; each request of the queue that
 * is under way; the list of dirty ones. */
#include "base/mem.h"
#include "broker/shard.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dispatcher *dispatcher_find(struct shard *s, const char *name)
{
    return map_get(&s->dispatchers, name, strlen(name));
}

struct dispatcher *dispatcher_new(struct shard *s, const char *name)
{
    struct dispatcher *d = mem_zalloc(sizeof(*d));
    assert(name[0]);
    assert(strlen(name) <= QUEUE_NAME_MAX);
    assert(!dispatcher_find(s, name)); /* consumers of a second one would never be served */
    snprintf(d->name, sizeof(d->name), "%s", name);
    d->shard = s;
    d->references = 1; /* the map's */
    map_put(&s->dispatchers, d->name, strlen(d->name), d);
    atomic_fetch_add(&s->broker->queue_count, 1);
    absent_join(d);
    return d;
}

void dispatcher_unref(struct dispatcher *d)
{
    assert(d->references > 0);
    if (--d->references > 0)
        return;
    assert(d->state == DISPATCHER_GONE); /* else it is in the map */
    assert(!d->dirty);
    assert(!d->alerts.watched);
    assert(d->waiting_count == 0);
    assert(d->claims == 0);
    assert(!d->parked.first);
    assert(!d->looking.first);
    schedules_forget(d);
    level_times_free(d);
    free(d);
}

void dispatcher_open(struct dispatcher *d, struct engine_queue *q)
{
    assert(d->state == DISPATCHER_OPENING);
    assert(!d->queue);
    assert(!q->user); /* of two dispatchers only one would serve its lines */
    assert(strcmp(q->name, d->name) == 0);
    d->queue = q;
    d->state = DISPATCHER_OPEN;
    d->version = q->version;
    q->user = d;
    policy_init(&d->policy, &q->config);
    alerts_watch(d);
}

void dispatcher_unlist(struct dispatcher *d)
{
    assert(d->state != DISPATCHER_GONE);
    assert(dispatcher_find(d->shard, d->name) == d);
    assert(d->waiting_count == 0); /* from now on no line is served */
    assert(!d->looking.first);
    assert(!d->queue || !d->queue->user);
    map_remove(&d->shard->dispatchers, d->name, strlen(d->name));
    uint32_t count = atomic_fetch_sub(&d->shard->broker->queue_count, 1);
    assert(count > 0);
    alerts_forget(d);
    d->state = DISPATCHER_GONE;
    dispatcher_unref(d);
}

void dispatcher_unpark(struct dispatcher *d, enum status status)
{
    struct shard *s = d->shard;
    struct request *r;
    assert(d->state != DISPATCHER_OPENING); /* otherwise they would be parked again */
    dispatcher_ref(d);                      /* unparking may drop the last reference */
    while ((r = d->parked.first)) {
        list_remove(&d->parked, r);
        assert(r->dispatcher == d);
        assert(!r->work);
        if (status) {
            request_finish(s, r, status);
            continue;
        }
        dispatcher_unref(d); /* shard_take() counts it again */
        shard_take_again(s, r);
    }
    dispatcher_unref(d);
}

void dispatcher_adopt(struct shard *s, struct engine_queue *q)
{
    struct dispatcher *d = dispatcher_new(s, q->name);
    dispatcher_open(d, q);
    dispatcher_unpark(d, STATUS_OK); /* they waited for a queue of this name */
}

void dispatcher_touched(struct engine_queue *q)
{
    struct dispatcher *d = dispatcher_of(q);
    assert(d->state == DISPATCHER_OPEN);
    if (q->gone) {
        q->user = NULL;
        dispatch_end_all(d, STATUS_QUEUE_NOT_FOUND);
        dispatcher_unlist(d);
        return;
    }
    configuration_follow(d);
    dispatch_mark(d);
}
