/* Shows queues to clients: one queue, or all queues of all shards, in portions. */
#include "base/mem.h"
#include "base/turn.h"
#include "broker/shard.h"

static void show(struct dispatcher *d, struct request *r)
{
    struct queue_facts facts = {.exact = true};
    bool watches = r->kind == REQUEST_QUEUES && r->show.watch;
    if (watches)
        facts.changes = watch_queue(d, r);
    if (!watches || facts.changes)
        explain_show(d, r, facts);
}

static void show_one(struct dispatcher *d, struct request *r)
{
    show(d, r);
    d->shard->shown += r->answer_len; /* its work is done here, before it is answered */
    request_finish(d->shard, r, STATUS_OK);
}

void show_queue(struct dispatcher *d, struct request *r)
{
    view_refresh(d, r, show_one);
}

/* Each shard shows its queues in portions, then hands the request to the next shard. Queues that
 * are made meanwhile are not shown, and queues that are deleted meanwhile may be missing. */

#define SHOW_PORTION 200
#define LOOK_PORTION 1000 /* of those who watch, to whom most queues are not shown */
#define LOOKS_MAX    4    /* of those who watch, under way in a shard; the others wait for them */

static void pass_along(struct shard *s, struct request *r)
{
    assert(r->kind == REQUEST_QUEUES);
    assert(!r->dispatcher);
    if (r->show.watch) {
        assert(s->looks > 0);
        s->looks--;
    }
    if (s->index + 1 == s->broker->shard_count) {
        request_finish(s, r, STATUS_OK);
        return;
    }
    work_free(s, r);
    assert(s->counters.under_way > 0);
    s->counters.under_way--;
    r->shard = &s->broker->shards[s->index + 1];
    inbox_put(&r->shard->inbox, &r->mail);
}

void show_go_on(struct request *r)
{
    struct shard *s = r->shard;
    struct work *w = work_of(r, WORK_SHOW);
    uint32_t portion = r->show.watch ? LOOK_PORTION : SHOW_PORTION;
    for (uint32_t i = 0; i < portion && w->show.left_count > 0; i++) {
        if (i > 0 && turn_us(s->loop) >= TURN_SHARE_US)
            break;
        struct dispatcher *d = w->show.left[--w->show.left_count];
        if (d->state == DISPATCHER_OPEN)
            show(d, r);
        dispatcher_unref(d);
    }
    if (w->show.left_count > 0)
        work_set_timer(s, w, s->now.mono_ms + 1);
    else
        pass_along(s, r);
}

static void show_known(struct shard *s, struct request *r)
{
    struct work *w = work_new(s, r, WORK_SHOW);
    if (r->show.watch)
        watch_shard(s, r);
    w->show.left_count = 0;
    w->show.left = mem_alloc((s->dispatchers.count + 1) * sizeof(struct dispatcher *));
    size_t at = 0;
    for (struct dispatcher *d; (d = map_each(&s->dispatchers, &at));) {
        assert(w->show.left_count < s->dispatchers.count);
        dispatcher_ref(d);
        w->show.left[w->show.left_count++] = d;
    }
    show_go_on(r);
}

static void look_touched(struct engine_op *op, struct engine_queue *q)
{
    shard_touched(request_of_op(op)->shard, q);
}

static void look_due(struct engine_op *op, struct engine_queue *q, const struct schedule *schedule,
                     struct instant now)
{
    schedules_due(request_of_op(op)->shard, q, schedule, now);
}

static void looked(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    enum status status = op->status;
    assert(op == &work_of(r, WORK_SHOW)->own);
    if (!status && op->sweep.cursor > 0) { /* others get their turn in between */
        shard_submit(r->shard, op);
        return;
    }
    work_free(r->shard, r); /* and the op, which is in it */
    if (status)
        request_finish(r->shard, r, status);
    else
        show_known(r->shard, r);
}

bool show_has_looks(const struct shard *s)
{
    return s->watchers.first && s->looks < LOOKS_MAX;
}

/* A look begins with a list of all queues. So thousands of streams that look in one moment take
 * turns: neither their lists nor the time to make them add up. */
void show_begin_looks(struct shard *s)
{
    struct request *r;
    while (show_has_looks(s) && turn_us(s->loop) < TURN_SHARE_US) {
        r = s->watchers.first;
        list_remove(&s->watchers, r);
        s->looks++;
        show_known(s, r);
    }
}

/* Queues that other processes have made, filled or deleted are included. */
void show_queues(struct shard *s, struct request *r)
{
    if (r->show.watch) {
        list_append(&s->watchers, r);
        return;
    }
    if (!r->show.fresh || !engine_has(s->engine, ENGINE_SHARED)) {
        show_known(s, r);
        return;
    }
    struct work *w = work_new(s, r, WORK_SHOW);
    w->show.left = NULL;
    w->show.left_count = 0;
    w->own = (struct engine_op){.verb = ENGINE_SWEEP, .done = looked, .user = r};
    w->own.sweep.max = SWEEP_MAX;
    w->own.sweep.look = true;
    w->own.sweep.touched = look_touched;
    w->own.sweep.due = look_due;
    shard_submit(s, &w->own);
}
