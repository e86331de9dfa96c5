#include "base/mem.h"
#include "broker/shard.h"
#include "core/age.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORTION      500 /* messages of a purge or redrive in one op */
#define RATE_TICK_MS 100

struct dispatcher *manage_find(struct shard *s, const char *name)
{
    return map_get(&s->dispatchers, name, strlen(name));
}

static struct dispatcher *dispatcher_new(struct shard *s, const char *name)
{
    struct dispatcher *d = mem_zalloc(sizeof(*d));
    snprintf(d->name, sizeof(d->name), "%s", name);
    d->shard = s;
    d->references = 1; /* the map's */
    map_put(&s->dispatchers, d->name, strlen(d->name), d);
    atomic_fetch_add(&s->broker->queue_count, 1);
    absent_join(d);
    return d;
}

void manage_unref(struct dispatcher *d)
{
    assert(d->references > 0);
    if (--d->references > 0)
        return;
    schedules_forget(d);
    free(d);
}

static void open_for_business(struct dispatcher *d, struct engine_queue *q)
{
    d->queue = q;
    d->state = DISPATCHER_OPEN;
    d->version = q->version;
    q->user = d;
    policy_init(&d->policy, &q->config);
    alerts_watch(d);
}

/* Out of the map: the name is free for a new queue. */
static void unlist(struct dispatcher *d)
{
    map_remove(&d->shard->dispatchers, d->name, strlen(d->name));
    atomic_fetch_sub(&d->shard->broker->queue_count, 1);
    alerts_forget(d);
    d->state = DISPATCHER_GONE;
    manage_unref(d);
}

static void not_found(struct shard *s, struct request *r)
{
    snprintf(r->detail, sizeof(r->detail),
             "There is no queue \"%s\"; create it with PUT /v1/queues/%s%s", r->queue, r->queue,
             s->broker->options.auto_create ? ", or enqueue to it." : ".");
    shard_finish(s, r, STATUS_QUEUE_NOT_FOUND);
}

/* Requests that came while the queue was being created go on, or fail with it. */
static void unpark_all(struct dispatcher *d, enum status status)
{
    struct shard *s = d->shard;
    struct request *r;
    d->references++; /* until all of them have gone on: a dispatcher without a queue ends with them
                      */
    while ((r = d->parked.first)) {
        list_remove(&d->parked, r);
        if (status) {
            shard_finish(s, r, status);
            continue;
        }
        manage_unref(d); /* shard_take counts it again */
        shard_take_again(s, r);
    }
    manage_unref(d);
}

void manage_adopt(struct shard *s, struct engine_queue *q)
{
    struct dispatcher *d = dispatcher_new(s, q->name);
    open_for_business(d, q);
    unpark_all(d, STATUS_OK); /* who waited for a queue of this name */
}

static void create_done(struct engine_op *op)
{
    struct work *w = op->user;
    struct request *r = w->request;
    struct dispatcher *d = r->dispatcher;
    struct shard *s = d->shard;
    enum status status = op->status;
    d->references++; /* of which the request may have the last one */
    bool existed = !status && engine_has(s->engine, ENGINE_SHARED) && op->set.existed;
    if (status) {
        unlist(d);
    } else {
        open_for_business(d, op->queue);
        r->created = !existed;
    }
    if ((r->kind != REQUEST_CONFIGURE && !status) || existed) {
        r->work = NULL; /* it was for the creation; what was asked for is still to be done */
        list_insert(&d->parked, r, d->parked.first); /* it came first */
        free(w);
    } else {
        shard_end(s, r, status);
    }
    unpark_all(d, status == STATUS_QUEUE_NOT_FOUND ? STATUS_OK : status);
    manage_unref(d);
}

/* Whether it makes the queue that it is for when there is none. */
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
        shard_refuse(
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

/* The caller edits the configuration; that it is paused or not any more is noted with the time. */
static enum status configure(struct shard *s, struct request *r, struct queue_config *config,
                             bool is_new)
{
    bool was_paused = config->paused;
    r->keeps_used = false;
    enum status status = r->configure(r, config, is_new);
    bool paused = config->paused;
    config->paused = was_paused;
    age_pause(config, paused, s->now.wall_ms);
    return status;
}

static void create(struct shard *s, struct request *r)
{
    if (r->kind == REQUEST_CLAIM && s->broker->options.auto_create) {
        absent_claim(s, r);
        return;
    }
    if (r->kind == REQUEST_LOOK && s->broker->options.auto_create) {
        shard_finish(s, r, STATUS_OK);
        return;
    }
    if (!may_create(s, r))
        return;
    struct queue_config config;
    bool known = config_profile(s->broker->options.default_profile, &config);
    assert(known);
    if (r->kind == REQUEST_PUT && !any_fits(&config, r)) {
        shard_finish(s, r, STATUS_OK);
        return;
    }
    if (r->kind == REQUEST_SCHEDULE_SET &&
        levels_resolve(&config, &r->op.schedule.set->draft.priority) < 0) {
        shard_finish(s, r, STATUS_UNKNOWN_PRIORITY);
        return;
    }
    if (r->kind == REQUEST_CONFIGURE) {
        enum status status = configure(s, r, &config, true);
        if (status || r->dry_run) {
            shard_finish(s, r, status);
            return;
        }
    }
    struct dispatcher *d = dispatcher_new(s, r->queue);
    d->references++;
    r->dispatcher = d;
    struct work *w = work_new(s, r);
    w->config = config;
    w->own = (struct engine_op){.verb = ENGINE_QUEUE_SET, .done = create_done, .user = w};
    w->own.set.name = d->name;
    w->own.set.config = &w->config;
    shard_submit(s, &w->own);
}

/* Queues of other processes */

static void look_up_done(struct engine_op *op)
{
    struct work *w = op->user;
    struct request *r = w->request;
    struct dispatcher *d = r->dispatcher;
    struct engine_queue *q = op->queue;
    enum status status = op->status;
    r->work = NULL;
    free(w); /* and the op, which is in it */
    if (!status) {
        open_for_business(d, q);
    } else {
        unlist(d);
        if (status == STATUS_QUEUE_NOT_FOUND) {
            for (struct request *each = d->parked.first; each; each = each->next)
                each->looked_up = true;
            status = STATUS_OK;
        }
    }
    unpark_all(d, status);
}

void manage_look_up(struct shard *s, const char *name, struct request *r)
{
    struct dispatcher *d = dispatcher_new(s, name);
    if (r) { /* behind those who already waited for this name */
        r->dispatcher = d;
        d->references++;
        list_append(&d->parked, r);
    }
    struct work *w = work_new(s, d->parked.first);
    w->own = (struct engine_op){.verb = ENGINE_QUEUE_OPEN, .done = look_up_done, .user = w};
    w->own.open.name = d->name;
    shard_submit(s, &w->own);
}

void manage_missing(struct shard *s, struct request *r)
{
    if (engine_has(s->engine, ENGINE_SHARED) && !r->looked_up)
        manage_look_up(s, r->queue, r);
    else
        create(s, r);
}

void manage_follow(struct dispatcher *d)
{
    if (d->version == d->queue->version)
        return;
    d->version = d->queue->version;
    dispatch_reconfigured(d);
    alerts_watch(d);
}

void manage_touched(struct engine_queue *q)
{
    struct dispatcher *d = q->user;
    if (q->gone) {
        q->user = NULL;
        dispatch_end_all(d, STATUS_QUEUE_NOT_FOUND);
        unlist(d);
        return;
    }
    manage_follow(d);
    dispatch_mark(d);
}

/* From the configuration that the queue has now. */
static void make_anew(struct request *r, uint32_t stay)
{
    work_free(r->shard, r);
    r->stay = stay;
    if (r->dispatcher->state == DISPATCHER_OPEN)
        manage_configure(r->dispatcher, r);
    else
        shard_end(r->shard, r, STATUS_QUEUE_NOT_FOUND);
}

static void tell_level(struct request *r, const char *level, const char *schedule)
{
    snprintf(r->field, sizeof(r->field), "/levels");
    if (schedule[0])
        snprintf(r->detail, sizeof(r->detail),
                 "Schedule \"%s\" puts its messages at level \"%s\": keep the level, set the "
                 "schedule with another priority, or add \"drop_levels\": \"empty\", which leaves "
                 "it until no schedule names it.",
                 schedule, level);
    else
        snprintf(r->detail, sizeof(r->detail),
                 "Level \"%s\" still holds messages: keep it, drain it first, or add "
                 "\"drop_levels\": \"empty\", which leaves it until it is empty.",
                 level);
}

/* A level that is in use would vanish. Returns true when the change is made anew with it. */
static bool level_stays(struct request *r, const struct engine_op *op)
{
    const char *name = op->set.level_name;
    const struct queue_config *config = &r->dispatcher->queue->config;
    int rank = levels_rank_of_name(config, name);
    uint32_t bit = rank >= 0 ? 1U << config->levels[rank].slot : 0;
    if (r->keeps_used && bit & ~r->stay) {
        make_anew(r, r->stay | bit);
        return true;
    }
    tell_level(r, name, op->set.schedule_name);
    return false;
}

static void configure_done(struct engine_op *op)
{
    struct request *r = ((struct work *)op->user)->request;
    bool open = r->dispatcher->state == DISPATCHER_OPEN;
    if (op->outdated) {
        make_anew(r, 0);
        return;
    }
    if (op->status == STATUS_LEVEL_IN_USE && open && level_stays(r, op))
        return;
    if (!op->status && open)
        manage_follow(r->dispatcher);
    shard_end(r->shard, r, op->status);
}

static void configure_surely(struct dispatcher *d, struct request *r);

/* A refusal may be due to a configuration that another process has changed since: it counts when
 * that was looked at. */
static void configure_now(struct dispatcher *d, struct request *r, bool sure)
{
    struct shard *s = d->shard;
    struct work *w = work_new(s, r);
    w->config = d->queue->config;
    enum status status = configure(s, r, &w->config, false);
    if (status && !sure && engine_has(s->engine, ENGINE_SHARED)) {
        work_free(s, r);
        manage_look_first(d, r, configure_surely);
        return;
    }
    if (status) {
        shard_finish(s, r, status);
        return;
    }
    w->own = (struct engine_op){
        .verb = ENGINE_QUEUE_SET, .queue = d->queue, .done = configure_done, .user = w};
    w->own.set.config = &w->config;
    w->own.set.dry = r->dry_run;
    shard_submit(s, &w->own);
    manage_follow(d); /* an engine with a live view has it by now */
}

static void configure_surely(struct dispatcher *d, struct request *r)
{
    work_free(d->shard, r);
    configure_now(d, r, true);
}

void manage_configure(struct dispatcher *d, struct request *r)
{
    configure_now(d, r, false);
}

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
    struct request *r = op->user;
    struct shard *s = r->shard;
    bool kept = op->status && op->status != STATUS_QUEUE_NOT_FOUND && !s->engine->failed;
    if (kept && !manage_find(s, r->queue))
        manage_adopt(s, op->queue);
    if (op->status == STATUS_QUEUE_NOT_EMPTY) /* others have filled it */
        snprintf(r->detail, sizeof(r->detail), "%s",
                 holds_messages(op->queue) ? has_messages : has_schedules);
    shard_end(s, r, op->status);
}

/* Other processes may have filled a queue of which we know that it is empty: what decides by the
 * view asks for it first. */

static void look_done(struct engine_op *op)
{
    struct request *r = op->user;
    if (op->status || r->dispatcher->state != DISPATCHER_OPEN)
        shard_end(r->shard, r, op->status ? op->status : STATUS_QUEUE_NOT_FOUND);
    else
        r->work->looked(r->dispatcher, r);
}

void manage_look_first(struct dispatcher *d, struct request *r,
                       void (*then)(struct dispatcher *d, struct request *r))
{
    struct work *w = work_new(d->shard, r);
    if (engine_has(d->shard->engine, ENGINE_LIVE_VIEW)) {
        then(d, r);
        return;
    }
    w->looked = then;
    w->own =
        (struct engine_op){.verb = ENGINE_COUNT, .queue = d->queue, .done = look_done, .user = r};
    w->own.count.waits = r->kind == REQUEST_LOOK && r->wait_ms > 0;
    shard_submit(d->shard, &w->own);
}

static void delete_now(struct dispatcher *d, struct request *r)
{
    bool messages = holds_messages(d->queue);
    if (!r->force && (messages || d->queue->schedules > 0)) {
        shard_refuse(d->shard, r, STATUS_QUEUE_NOT_EMPTY, "",
                     messages ? has_messages : has_schedules);
        return;
    }
    dispatch_end_all(d, STATUS_QUEUE_NOT_FOUND);
    d->queue->user = NULL;
    r->op.verb = ENGINE_QUEUE_DELETE;
    r->op.remove.if_empty = !r->force;
    r->op.queue = d->queue;
    r->op.done = delete_done;
    r->op.user = r;
    unlist(d);
    shard_submit(d->shard, &r->op);
}

void manage_delete(struct dispatcher *d, struct request *r)
{
    if (r->force)
        delete_now(d, r);
    else
        manage_look_first(d, r, delete_now);
}

/* Portions: a long job is many small ops, so that others get their turn in between. */

static void portion_done(struct engine_op *op);

static bool portions_left(const struct request *r)
{
    const struct work *w = r->work;
    return r->op.bulk.more && r->count < w->limit && r->dispatcher->state == DISPATCHER_OPEN &&
           !r->shard->draining && !request_hung_up(r);
}

/* How many may be done now under the request's rate; 0: wait for the timer. */
static uint64_t allowance(struct request *r)
{
    struct work *w = r->work;
    int64_t now_ms = r->shard->now.mono_ms;
    if (r->per_second <= 0)
        return PORTION;
    w->credit += (double)(now_ms - w->credited_ms) * r->per_second / 1000;
    w->credited_ms = now_ms;
    double burst = r->per_second < 1 ? 1 : r->per_second;
    if (w->credit > burst)
        w->credit = burst;
    return w->credit < 1 ? 0 : (uint64_t)w->credit;
}

static void next_portion(struct request *r)
{
    struct work *w = r->work;
    uint64_t max = allowance(r), left = w->limit - r->count;
    if (max == 0) {
        shard_set_timer(r->shard, w, r->shard->now.mono_ms + RATE_TICK_MS);
        return;
    }
    if (max > left)
        max = left;
    if (max > PORTION)
        max = PORTION;
    r->op.bulk.max = (uint32_t)max;
    r->op.queue = r->dispatcher->queue;
    r->op.done = portion_done;
    r->op.user = r;
    shard_submit(r->shard, &r->op);
    dispatch_mark(r->dispatcher);
}

static void portion_done(struct engine_op *op)
{
    struct request *r = op->user;
    r->count += op->bulk.count;
    r->work->credit -= op->bulk.count;
    dispatch_mark_late(r->dispatcher);
    if (op->status || !portions_left(r))
        shard_end(r->shard, r, op->status);
    else
        next_portion(r);
}

void manage_portion_timer(struct request *r)
{
    if (portions_left(r))
        next_portion(r);
    else
        shard_finish(r->shard, r, STATUS_OK);
}

static const enum engine_verb portion_verbs[REQUEST_KIND_COUNT] = {
    [REQUEST_PURGE] = ENGINE_PURGE,
    [REQUEST_REDRIVE] = ENGINE_DEAD_REDRIVE,
    [REQUEST_DEAD_DROP] = ENGINE_DEAD_DROP,
};

bool manage_has_to_look(const struct dispatcher *d, const struct request *r,
                        const struct priority_ref *priority)
{
    return engine_has(d->shard->engine, ENGINE_SHARED) && !r->work &&
           priority->kind != PRIORITY_DEFAULT && levels_resolve(&d->queue->config, priority) < 0;
}

void manage_refuse_level(struct shard *s, struct request *r, const char *field)
{
    char detail[sizeof(r->detail)];
    snprintf(detail, sizeof(detail),
             "Queue \"%s\" has no such level; GET /v1/queues/%s shows its levels.", r->queue,
             r->queue);
    shard_refuse(s, r, STATUS_UNKNOWN_PRIORITY, field, detail);
}

bool manage_level(struct dispatcher *d, struct request *r, const struct priority_ref *priority,
                  const char *field, int *slot)
{
    *slot = -1;
    if (priority->kind == PRIORITY_DEFAULT)
        return true;
    int rank = levels_resolve(&d->queue->config, priority);
    if (rank < 0) {
        manage_refuse_level(d->shard, r, field);
        return false;
    }
    *slot = d->queue->config.levels[rank].slot;
    return true;
}

static void begin_portions(struct dispatcher *d, struct request *r)
{
    struct shard *s = d->shard;
    int slot;
    if (!manage_level(d, r, &r->priority, "/priority", &slot))
        return;
    struct work *w = r->work;
    const struct queue_view *v = &d->queue->view;
    /* What comes in while the job runs, or dies again after a redrive, is not part of it. */
    w->limit = r->kind == REQUEST_PURGE ? v->ready + v->scheduled : v->dead;
    if (r->max > 0 && r->max < w->limit)
        w->limit = r->max;
    w->credit = 1;
    w->credited_ms = s->now.mono_ms;
    r->count = 0;
    r->op.verb = portion_verbs[r->kind];
    r->op.bulk.slot = slot;
    r->op.bulk.before_seq = d->queue->next_seq;
    r->op.bulk.cursor = (struct list_cursor){0};
    r->op.bulk.more = true;
    if (w->limit == 0)
        shard_finish(s, r, STATUS_OK);
    else
        next_portion(r);
}

void manage_portions(struct dispatcher *d, struct request *r)
{
    manage_look_first(d, r, begin_portions);
}
