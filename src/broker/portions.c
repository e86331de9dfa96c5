/* PURGE, REDRIVE and DEAD_DROP: a long job is many small ops, each a portion of it, so that others
 * get their turn in between. */
#include "broker/shard.h"

#define PORTION      500 /* messages in one op */
#define PORTION_IDS  16  /* … that are named: an engine may read all of them before it begins */
#define RATE_TICK_MS 100

static void portion_done(struct engine_op *op);

static bool named(const struct request *r)
{
    return r->op.bulk.id_count > 0;
}

static bool portions_left(const struct request *r)
{
    const struct work *w = work_of(r, WORK_PORTIONS);
    bool left =
        named(r) ? w->portions.ids_left > 0 : r->op.bulk.more && r->count < w->portions.limit;
    return left && r->dispatcher->state == DISPATCHER_OPEN && !r->shard->draining &&
           !request_hung_up(r);
}

/* How many messages the request's rate allows now; 0: wait for the timer. */
static uint64_t allowance(struct request *r)
{
    struct work *w = work_of(r, WORK_PORTIONS);
    int64_t now_ms = r->shard->now.mono_ms;
    if (r->portions.per_second <= 0)
        return PORTION;
    w->portions.credit +=
        (double)(now_ms - w->portions.credited_ms) * r->portions.per_second / 1000;
    w->portions.credited_ms = now_ms;
    double burst = r->portions.per_second < 1 ? 1 : r->portions.per_second;
    if (w->portions.credit > burst)
        w->portions.credit = burst;
    return w->portions.credit < 1 ? 0 : (uint64_t)w->portions.credit;
}

static void submit(struct request *r)
{
    assert(r->dispatcher->state == DISPATCHER_OPEN);
    r->op.queue = r->dispatcher->queue;
    r->op.done = portion_done;
    r->op.user = r;
    shard_submit(r->shard, &r->op);
    dispatch_mark(r->dispatcher);
}

/* The first `count` ids are done. */
static void next_ids(struct request *r, uint32_t count)
{
    uint32_t *left = &work_of(r, WORK_PORTIONS)->portions.ids_left;
    r->op.bulk.ids += count;
    r->op.bulk.id_count = *left < PORTION_IDS ? *left : PORTION_IDS;
    *left -= r->op.bulk.id_count;
    submit(r);
}

static void next_portion(struct request *r)
{
    struct work *w = work_of(r, WORK_PORTIONS);
    assert(r->count < w->portions.limit); /* otherwise `left` would wrap around */
    uint64_t max = allowance(r), left = w->portions.limit - r->count;
    if (max == 0) {
        work_set_timer(r->shard, w, r->shard->now.mono_ms + RATE_TICK_MS);
        return;
    }
    if (max > left)
        max = left;
    if (max > PORTION)
        max = PORTION;
    r->op.bulk.max = (uint32_t)max;
    submit(r);
}

static void portion_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    assert(op == &r->op);
    r->count += op->bulk.count;
    work_of(r, WORK_PORTIONS)->portions.credit -= op->bulk.count;
    dispatch_mark_late(r->dispatcher);
    if (op->status || !portions_left(r))
        request_conclude(r->shard, r, op->status);
    else if (named(r))
        next_ids(r, r->op.bulk.id_count);
    else
        next_portion(r);
}

void portions_go_on(struct request *r)
{
    if (portions_left(r))
        next_portion(r);
    else
        request_finish(r->shard, r, STATUS_OK);
}

static const enum engine_verb portion_verbs[REQUEST_KIND_COUNT] = {
    [REQUEST_PURGE] = ENGINE_PURGE,
    [REQUEST_REDRIVE] = ENGINE_DEAD_REDRIVE,
    [REQUEST_DEAD_DROP] = ENGINE_DEAD_DROP,
};

static void begin(struct dispatcher *d, struct request *r)
{
    struct shard *s = d->shard;
    int slot;
    if (!level_take(d, r, &r->priority, "/priority", &slot))
        return;
    work_free(s, r); /* left from a refreshed view */
    struct work *w = work_new(s, r, WORK_PORTIONS);
    const struct queue_view *v = &d->queue->view;
    /* Messages that come while the job runs, or die again after a redrive, are not part of it. */
    w->portions.limit = r->kind == REQUEST_PURGE ? v->ready + v->scheduled : v->dead;
    if (r->portions.max > 0 && r->portions.max < w->portions.limit)
        w->portions.limit = r->portions.max;
    w->portions.credit = 1;
    w->portions.credited_ms = s->now.mono_ms;
    r->count = 0;
    r->op.verb = portion_verbs[r->kind];
    r->op.bulk.slot = slot;
    r->op.bulk.before_seq = d->queue->next_seq;
    r->op.bulk.cursor = (struct list_cursor){0};
    r->op.bulk.more = true;
    w->portions.ids_left = r->op.bulk.id_count;
    if (w->portions.limit == 0)
        request_finish(s, r, STATUS_OK);
    else if (named(r))
        next_ids(r, 0);
    else
        next_portion(r);
}

void portions_begin(struct dispatcher *d, struct request *r)
{
    assert(portion_verbs[r->kind]);
    view_refresh(d, r, begin);
}
