/* Requests for queues that this shard does not know. A request may create the queue; or the shard
 * looks whether another process has made it; or the request is told that there is no such queue. */
#include "broker/shard.h"

#include <assert.h>
#include <stdio.h>

static void not_found(struct shard *s, struct request *r)
{
    snprintf(r->detail, sizeof(r->detail),
             "There is no queue \"%s\"; create it with PUT /v1/queues/%s%s", r->queue, r->queue,
             s->broker->options.auto_create ? ", or enqueue to it." : ".");
    request_finish(s, r, STATUS_QUEUE_NOT_FOUND);
}

static void create_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct dispatcher *d = r->dispatcher;
    struct shard *s = d->shard;
    enum status status = op->status;
    assert(op == &work_of(r, WORK_CREATION)->own);
    assert(d->state == DISPATCHER_OPENING);
    assert(status || op->queue);
    dispatcher_ref(d); /* the request may hold the last reference */
    bool existed = !status && engine_has(s->engine, ENGINE_SHARED) && op->set.existed;
    if (status) {
        dispatcher_unlist(d);
    } else {
        dispatcher_open(d, op->queue);
        r->created = !existed;
    }
    if ((r->kind != REQUEST_CONFIGURE && !status) || existed) {
        work_free(s, r); /* the creation is over; the request itself is still to be done */
        list_insert(&d->parked, r, d->parked.first); /* before the others: it came first */
    } else {
        request_conclude(s, r, status);
    }
    dispatcher_unpark(d, status == STATUS_QUEUE_NOT_FOUND ? STATUS_OK : status);
    dispatcher_unref(d);
}

/* Whether the request creates its queue when there is none. */
static bool brings_queue(const struct request *r)
{
    return r->kind == REQUEST_PUT || r->kind == REQUEST_SCHEDULE_SET;
}

static bool may_create(struct shard *s, struct request *r)
{
    const struct broker_options *o = &s->broker->options;
    bool creates = r->kind == REQUEST_CONFIGURE || (brings_queue(r) && o->auto_create);
    if (!creates) {
        not_found(s, r);
        return false;
    }
    if (o->max_queues && atomic_load(&s->broker->queue_count) >= o->max_queues) {
        request_refuse(
            s, r, STATUS_QUOTA_EXCEEDED, "",
            "The server has as many queues as max_queues allows: delete one, or raise it.");
        return false;
    }
    return true;
}

/* A queue is not created for messages that it would refuse. */
static bool any_fits(const struct queue_config *config, struct request *r)
{
    bool any = false;
    for (uint32_t i = 0; i < r->op.put.count; i++) {
        struct put_item *item = &r->op.put.items[i];
        bool fits = levels_resolve(config, &item->draft.priority) >= 0;
        item->status = fits ? STATUS_OK : STATUS_UNKNOWN_PRIORITY;
        any = any || fits;
    }
    return any;
}

/* Chooses the configuration of the new queue. False: the request is answered, and no queue is
 * made. */
static bool choose_config(struct shard *s, struct request *r, struct queue_config *config)
{
    bool known = config_profile(s->broker->options.default_profile, config);
    assert(known);
    enum status status = STATUS_OK;
    bool makes = true;
    if (r->kind == REQUEST_PUT) {
        makes = any_fits(config, r);
    } else if (r->kind == REQUEST_SCHEDULE_SET) {
        makes = levels_resolve(config, &r->op.schedule.set->draft.priority) >= 0;
        status = makes ? STATUS_OK : STATUS_UNKNOWN_PRIORITY;
    } else {
        assert(r->kind == REQUEST_CONFIGURE);
        status = configuration_edit(s, r, config, true);
        makes = !status && !r->configure.dry_run;
    }
    if (!makes)
        request_finish(s, r, status);
    return makes;
}

static void create(struct shard *s, struct request *r)
{
    struct queue_config config;
    if (!may_create(s, r) || !choose_config(s, r, &config))
        return;
    struct dispatcher *d = dispatcher_new(s, r->queue);
    dispatcher_ref(d);
    r->dispatcher = d;
    struct work *w = work_new(s, r, WORK_CREATION);
    w->configuration.config = config;
    w->own = (struct engine_op){.verb = ENGINE_QUEUE_SET, .done = create_done, .user = w->request};
    w->own.set.name = d->name;
    w->own.set.config = &w->configuration.config;
    shard_submit(s, &w->own);
}

/* Queues of other processes */

static void look_up_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct dispatcher *d = r->dispatcher;
    struct engine_queue *q = op->queue;
    enum status status = op->status;
    assert(op == &work_of(r, WORK_LOOK_UP)->own);
    assert(d->state == DISPATCHER_OPENING);
    assert(d->parked.first == r);
    assert(status || q);
    work_free(d->shard, r); /* and the op, which is in it */
    if (!status) {
        dispatcher_open(d, q);
    } else {
        dispatcher_unlist(d);
        if (status == STATUS_QUEUE_NOT_FOUND) {
            for (struct request *each = d->parked.first; each; each = each->next)
                each->looked_up = true;
            status = STATUS_OK;
        }
    }
    dispatcher_unpark(d, status);
}

void creation_look_up(struct shard *s, const char *name, struct request *r)
{
    struct dispatcher *d = dispatcher_new(s, name);
    if (r) { /* after those that already wait for this name */
        r->dispatcher = d;
        dispatcher_ref(d);
        list_append(&d->parked, r);
    }
    assert(d->parked.first); /* some request asks for the queue */
    struct work *w = work_new(s, d->parked.first, WORK_LOOK_UP);
    w->own =
        (struct engine_op){.verb = ENGINE_QUEUE_OPEN, .done = look_up_done, .user = w->request};
    w->own.open.name = d->name;
    shard_submit(s, &w->own);
}

void creation_begin(struct shard *s, struct request *r)
{
    bool auto_create = s->broker->options.auto_create;
    assert(!r->dispatcher);
    assert(!r->work);
    if (engine_has(s->engine, ENGINE_SHARED) && !r->looked_up)
        creation_look_up(s, r->queue, r);
    else if (r->kind == REQUEST_CLAIM && auto_create)
        absent_claim(s, r);
    else if (r->kind == REQUEST_LOOK && auto_create)
        request_finish(s, r, STATUS_OK); /* a queue that does not exist holds nothing */
    else
        create(s, r);
}
