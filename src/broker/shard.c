#include "broker/shard.h"
#include "base/plant.h"
#include "base/turn.h"

#include <stdlib.h>

#define TIMER_MS_MAX 1000 /* the wall clock may be set: look at it at least this often */

/* The engine */

void shard_submit(struct shard *s, struct engine_op *op)
{
    s->submitted = true;
    engine_submit(s->engine, op, s->now);
}

void shard_touched(struct shard *s, struct engine_queue *q)
{
    if (q->user)
        dispatcher_touched(q);
    else if (!q->gone && !dispatcher_find(s, q->name))
        dispatcher_adopt(s, q); /* another process made it */
}

static struct shard *shard_of_sweep(const struct engine_op *op)
{
    struct shard *s = op->user;
    assert(op == &s->sweep);
    assert(s->sweeping);
    return s;
}

static void sweep_touched(struct engine_op *op, struct engine_queue *q)
{
    shard_touched(shard_of_sweep(op), q);
}

static void sweep_due(struct engine_op *op, struct engine_queue *q, const struct schedule *schedule,
                      struct instant now)
{
    schedules_due(shard_of_sweep(op), q, schedule, now);
}

static void sweep_done(struct engine_op *op)
{
    struct shard *s = shard_of_sweep(op);
    s->sweeping = false;
    s->sweep_again = op->sweep.more && !op->status;
    s->engine_away = op->status == STATUS_ENGINE_UNAVAILABLE;
}

/* Not while draining: once all is answered the engine may be closed, and nobody waits for more. */
static void sweep(struct shard *s)
{
    if (s->sweeping || s->draining || s->engine->failed ||
        (!s->sweep_again && engine_next_due_ms(s->engine, s->now) > 0))
        return;
    s->sweeping = true;
    s->sweep_again = false;
    s->sweep = (struct engine_op){.verb = ENGINE_SWEEP, .done = sweep_done, .user = s};
    s->sweep.sweep.max = SWEEP_MAX;
    s->sweep.sweep.touched = sweep_touched;
    s->sweep.sweep.due = sweep_due;
    shard_submit(s, &s->sweep);
}

/* Requests */

/* Consumers may be waiting for what it brings. */
static bool makes_ready(enum request_kind kind)
{
    return kind == REQUEST_PUT || kind == REQUEST_IMPORT || kind == REQUEST_SETTLE;
}

/* Something more urgent than one of them is ready. */
static bool outranked(const struct request *r, const struct engine_op *op)
{
    for (uint32_t i = 0; i < op->settle.count; i++) {
        const struct settle_item *item = &op->settle.items[i];
        if (!item->status && dispatch_urgent_waiting(r->dispatcher, item->slot))
            return true;
    }
    return false;
}

static void op_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct shard *s = r->shard;
    assert(op == &r->op);
    assert(r->dispatcher);
    if (r->kind == REQUEST_SETTLE && op->verb == ENGINE_EXTEND && !op->status)
        r->settle.urgent_waiting = outranked(r, op);
    if (r->kind == REQUEST_SETTLE)
        level_times_settled(r->dispatcher, op);
    if (makes_ready(r->kind))
        dispatch_mark_late(r->dispatcher);
    request_conclude(s, r, op->status);
}

void shard_pass_on(struct dispatcher *d, struct request *r)
{
    assert(r->dispatcher == d);
    assert(d->state == DISPATCHER_OPEN);
    assert(d->queue);
    r->op.queue = d->queue;
    r->op.done = op_done;
    r->op.user = r;
    shard_submit(d->shard, &r->op);
    d->shard->shown += r->answer_len;
    if (makes_ready(r->kind))
        dispatch_mark(d);
}

int64_t shard_oldest_ready_ms(const struct dispatcher *d)
{
    const struct queue_view *view = engine_queue_moment(d->queue);
    int64_t oldest_ms = -1;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct lane_view *v = &view->lanes[slot];
        int64_t age_ms = d->shard->now.wall_ms - v->head_ms;
        if (v->ready > 0 && age_ms > oldest_ms)
            oldest_ms = age_ms;
    }
    return oldest_ms;
}

typedef void request_fn(struct dispatcher *d, struct request *r);

static request_fn *const handlers[REQUEST_KIND_COUNT] = {
    [REQUEST_PUT] = store_items,
    [REQUEST_IMPORT] = import_check,
    [REQUEST_SETTLE] = shard_pass_on,
    [REQUEST_CANCEL] = shard_pass_on,
    [REQUEST_PROMOTE] = shard_pass_on,
    [REQUEST_GET] = shard_pass_on,
    [REQUEST_LIST] = level_list,
    [REQUEST_CLAIM] = dispatch_claim,
    [REQUEST_LOOK] = dispatch_look,
    [REQUEST_ESCALATE] = escalate_some,
    [REQUEST_ESCALATE_ALL] = matching_begin,
    [REQUEST_MATCHING] = matching_begin,
    [REQUEST_POSITION] = explain_position,
    [REQUEST_PURGE] = portions_begin,
    [REQUEST_REDRIVE] = portions_begin,
    [REQUEST_DEAD_DROP] = portions_begin,
    [REQUEST_CONFIGURE] = configuration_change,
    [REQUEST_DELETE] = deletion_begin,
    [REQUEST_QUEUE] = show_queue,
    [REQUEST_STATS] = explain_stats,
    [REQUEST_SCHEDULE_SET] = schedules_request,
    [REQUEST_SCHEDULE] = schedules_request,
    [REQUEST_PLACEMENT] = placement_change,
};

/* How much may be under way before this request is too much. What ends work or hands it out is
 * refused after what brings more of it, and of that the most urgent level last. */
static uint64_t inbox_limit(struct shard *s, const struct request *r)
{
    uint64_t limit = s->broker->options.inbox_max;
    if (r->kind != REQUEST_PUT)
        return limit + limit / 2;
    const struct dispatcher *d = dispatcher_find(s, r->queue);
    bool urgent = d && d->queue && r->op.put.count > 0 &&
                  levels_resolve(&d->queue->config, &r->op.put.items[0].draft.priority) == 0;
    return urgent ? limit + limit / 4 : limit;
}

static bool refused_early(struct shard *s, struct request *r)
{
    bool reads = r->kind == REQUEST_QUEUE || r->kind == REQUEST_QUEUES || r->kind == REQUEST_STATS;
    if (r->inner && r->kind == REQUEST_SETTLE) /* what was taken for somebody who is gone */
        return false;
    assert(s->counters.under_way >= s->counters.waiting + s->led); /* else all would be refused */
    uint64_t busy = s->counters.under_way - s->counters.waiting - s->led;
    if (s->draining && !reads) {
        request_refuse(s, r, STATUS_DRAINING, "",
                       "The server is shutting down; try again when it is back.");
        return true;
    }
    if (busy > s->broker->options.inbox_max && !reads && busy > inbox_limit(s, r)) {
        s->counters.refused_overloaded++;
        request_refuse(s, r, STATUS_OVERLOADED, "",
                       "Too many requests are under way; try again in a moment.");
        return true;
    }
    return false;
}

void shard_look_at_clock(struct shard *s)
{
    if (s->now_fresh)
        return;
    s->now = clock_now();
    if (PLANTED(WALL_CLOCK))
        s->now.mono_ms = s->now.wall_ms;
    s->now_fresh = true;
}

bool shard_is_late(const struct shard *s)
{
    return s->shown >= SHARE_FREE && turn_us(s->loop) >= TURN_SHARE_US;
}

static void take(struct shard *s, struct request *r)
{
    shard_look_at_clock(s);
    assert(r->tag == REQUEST_TAG);
    assert(r->shard == s);
    assert(!r->work);
    r->dispatcher = NULL;
    s->counters.requests[r->kind]++;
    s->counters.under_way++;
    if (refused_early(s, r))
        return;
    if (r->kind == REQUEST_QUEUES) {
        show_queues(s, r);
        return;
    }
    if (r->kind == REQUEST_CELL) {
        placement_of_cell(s, r);
        return;
    }
    if (r->kind == REQUEST_CLAIM_MANY) {
        many_claim(s, r);
        return;
    }
    struct dispatcher *d = dispatcher_find(s, r->queue);
    if (!d) {
        creation_begin(s, r);
        return;
    }
    assert(d->state != DISPATCHER_GONE); /* those are not in the map */
    assert(handlers[r->kind]);
    r->dispatcher = d;
    dispatcher_ref(d);
    if (d->state == DISPATCHER_OPENING)
        list_append(&d->parked, r);
    else if (config_moves(&d->queue->config) && !move_lets_in(r))
        move_refuse(d, r);
    else
        handlers[r->kind](d, r);
}

/* Requests are taken in the order in which they came, also when some had to wait. */
void shard_take(struct shard *s, struct request *r)
{
    if (s->later.first || shard_is_late(s))
        list_append(&s->later, r);
    else
        take(s, r);
}

static void take_later(struct shard *s)
{
    struct request *r;
    while ((r = s->later.first) && !shard_is_late(s)) {
        list_remove(&s->later, r);
        take(s, r);
    }
}

void shard_take_again(struct shard *s, struct request *r)
{
    assert(s->counters.under_way > 0);
    assert(s->counters.requests[r->kind] > 0);
    s->counters.under_way--;
    s->counters.requests[r->kind]--;
    shard_take(s, r);
}

/* Time */

typedef void work_timer(struct request *r);

static work_timer *const work_timers[WORK_KIND_COUNT] = {
    [WORK_CLAIM] = dispatch_timeout,  [WORK_ABSENT] = absent_timeout,
    [WORK_PORTIONS] = portions_go_on, [WORK_SHOW] = show_go_on,
    [WORK_STORE] = store_go_on,
};

static void run_timers(struct shard *s)
{
    struct order_node *n;
    while ((n = order_first(&s->timers)) && n->key <= s->now.mono_ms) {
        struct work *w = container_of(n, struct work, timer);
        assert(w->tag == WORK_TAG);
        assert(work_timers[w->kind]);
        work_set_timer(s, w, INT64_MAX);
        work_timers[w->kind](w->request);
    }
}

/* Only there so that the loop does not sleep while work waits. */
static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void stay_awake(struct shard *s, bool awake)
{
    if (awake == s->busy)
        return;
    s->busy = awake;
    if (awake)
        uv_idle_start(&s->idle, on_idle);
    else
        uv_idle_stop(&s->idle);
}

/* The turn does the work, after the loop has polled. A timer that is due before the loop polls
 * would let it poll for ever if nothing else comes: so the loop stays awake until the turn. */
static void on_timer(uv_timer_t *t)
{
    struct shard *s = t->data;
    assert(t == &s->timer);
    s->timer_at_ms = INT64_MAX;
    stay_awake(s, true);
}

/* While a sweep is under way nothing can be begun: but an engine that waits for others looks then
 * whether to wait on. */
static int64_t sweep_due_ms(struct shard *s)
{
    if (s->draining || s->engine->failed)
        return INT64_MAX;
    int64_t due_ms = engine_next_due_ms(s->engine, s->now);
    return s->sweeping && due_ms < SWEEP_UNDER_WAY_MS ? SWEEP_UNDER_WAY_MS : due_ms;
}

static void arm_timer(struct shard *s)
{
    int64_t due_ms = sweep_due_ms(s);
    const struct order_node *first = order_first(&s->timers);
    if (first && first->key - s->now.mono_ms < due_ms)
        due_ms = first->key - s->now.mono_ms;
    int64_t alerts_ms = alerts_due_ms(s);
    if (alerts_ms < due_ms)
        due_ms = alerts_ms;
    int64_t history_ms = history_due_ms(s);
    if (history_ms < due_ms)
        due_ms = history_ms;
    if (due_ms == INT64_MAX) {
        if (s->timer_at_ms != INT64_MAX)
            uv_timer_stop(&s->timer);
        s->timer_at_ms = INT64_MAX;
        return;
    }
    if (due_ms < 0)
        due_ms = 0;
    int64_t wait_ms = due_ms > TIMER_MS_MAX ? TIMER_MS_MAX : due_ms;
    if (s->timer_at_ms == s->now.mono_ms + wait_ms ||
        (wait_ms == TIMER_MS_MAX && s->timer_at_ms != INT64_MAX && s->timer_at_ms > s->now.mono_ms))
        return;
    s->timer_at_ms = s->now.mono_ms + wait_ms;
    uv_update_time(s->loop);
    uv_timer_start(&s->timer, on_timer, (uint64_t)wait_ms, 0);
}

/* The turn: after the loop has read what there was to read. */

static void answer_finished(struct shard *s)
{
    struct request *r;
    while ((r = s->finished.first) && !shard_is_late(s)) {
        list_remove(&s->finished, r);
        s->shown += r->answer_len;
        request_answer(s, r);
    }
}

static void serve_dirty(struct shard *s)
{
    struct dispatcher *d;
    while ((d = s->dirty) && !shard_is_late(s)) {
        assert(d->dirty);
        assert(d->shard == s);
        s->dirty = d->next_dirty;
        d->dirty = false;
        if (d->state == DISPATCHER_OPEN)
            dispatch_serve(d);
        dispatcher_unref(d);
    }
}

static void publish(struct shard *s)
{
    uv_mutex_lock(&s->published_mutex);
    s->published = s->counters;
    s->published.history_bytes = s->history.pool.bytes;
    s->published_engine = s->engine->counters;
    s->published_failed = s->engine->failed;
    uv_mutex_unlock(&s->published_mutex);
}

static bool work_waits(const struct shard *s)
{
    return s->dirty || s->later.first || s->finished.first || s->submitted || s->firings ||
           show_has_looks(s);
}

static void check_drained(struct shard *s)
{
    if (!s->draining || !s->drained || s->counters.under_way > 0 || s->engine->in_flight > 0 ||
        s->engine->reading > 0 || work_waits(s))
        return;
    /* Nothing is under way, so nobody waits and nothing is timed. */
    assert(s->counters.waiting == 0);
    assert(s->led == 0);
    assert(s->absent.count == 0);
    assert(s->timers.count == 0);
    void (*drained)(void *ctx) = s->drained;
    s->drained = NULL;
    drained(s->drained_ctx);
}

static void turn(struct shard *s)
{
    if (s->in_turn)
        return;
    s->in_turn = true;
    s->now = clock_now();
    s->now_fresh = true;
    run_timers(s);
    sweep(s);
    alerts_check(s);
    history_turn(s);
    answer_finished(s); /* before more is taken: what has no answer yet takes memory */
    do {
        take_later(s);
        show_begin_looks(s);
        schedules_fire(s);
        serve_dirty(s);
        s->submitted = false;
        engine_flush(s->engine);
        engine_poll(s->engine);
        answer_finished(s);
    } while (work_waits(s) && turn_us(s->loop) < TURN_SHARE_US);
    stay_awake(s, work_waits(s));
    arm_timer(s);
    publish(s);
    check_drained(s);
    s->in_turn = false;
    s->now_fresh = false;
    s->shown = 0;
}

static void on_check(uv_check_t *check)
{
    struct shard *s = check->data;
    assert(check == &s->check);
    turn(s);
}

static void on_mail(uv_async_t *async)
{
    struct shard *s = async->data;
    assert(async == &s->inbox.async);
    s->now = clock_now();
    struct inbox_node *n = inbox_take(&s->inbox);
    while (n) {
        struct inbox_node *next = n->next;
        shard_take(s, container_of(n, struct request, mail));
        n = next;
    }
    /* What the engine has finished is answered first, so that its clients can already ask again. */
    engine_poll(s->engine);
    answer_finished(s);
}

static void on_hangups(uv_async_t *async)
{
    struct shard *s = async->data;
    assert(async == &s->hangups.async);
    struct inbox_node *n = inbox_take(&s->hangups);
    while (n) {
        struct request *r = container_of(n, struct request, hangup_mail);
        n = n->next;
        assert(r->tag == REQUEST_TAG); /* its answer has waited for this */
        assert(!r->hangup_taken);
        r->hangup_taken = true;
        if (r->answer_waits)
            request_give_back(s, r);
        else
            shard_hangup(r);
    }
}

void shard_wake(struct shard *s)
{
    inbox_wake(&s->inbox);
}

/* Life */

void shard_open(struct shard *s, struct broker *b, uint32_t index, uv_loop_t *loop,
                struct engine *engine)
{
    *s = (struct shard){.broker = b, .index = index, .loop = loop, .engine = engine};
    s->timer_at_ms = INT64_MAX;
    s->firings_end = &s->firings;
    s->now = clock_now();
    order_init(&s->timers);
    inbox_open(&s->inbox, loop, on_mail, s);
    inbox_open(&s->hangups, loop, on_hangups, s);
    uv_check_init(loop, &s->check);
    s->check.data = s;
    uv_check_start(&s->check, on_check);
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    uv_idle_init(loop, &s->idle);
    uv_mutex_init(&s->published_mutex);
    history_open(s, b->options.history_bytes / b->shard_count);
    size_t at = 0;
    for (struct engine_queue *q; (q = engine_queue_each(engine, &at));)
        dispatcher_adopt(s, q);
    arm_timer(s);
    publish(s);
}

void shard_hangup(struct request *r)
{
    if (r->kind == REQUEST_CLAIM_MANY)
        many_hangup(r);
    else if (r->work && r->work->kind == WORK_CLAIM)
        dispatch_hangup(r);
    else if (r->work && r->work->kind == WORK_ABSENT)
        absent_hangup(r);
}

void shard_drain(struct shard *s, void (*drained)(void *ctx), void *ctx)
{
    s->draining = true;
    s->drained = drained;
    s->drained_ctx = ctx;
    size_t at = 0;
    for (struct dispatcher *d; (d = map_each(&s->dispatchers, &at));)
        dispatch_end_all(d, STATUS_OK);
    absent_end_all(s);
    shard_wake(s);
}

void shard_free(struct shard *s)
{
    size_t at = 0;
    for (struct dispatcher *d; (d = map_each(&s->dispatchers, &at));) {
        assert(d->state != DISPATCHER_GONE);
        schedules_forget(d);
        level_times_free(d);
        history_leave(d);
        free(d);
    }
    map_fini(&s->dispatchers);
    map_fini(&s->absent);
    order_fini(&s->timers);
    uv_mutex_destroy(&s->inbox.mutex);
    uv_mutex_destroy(&s->hangups.mutex);
    uv_mutex_destroy(&s->published_mutex);
}
