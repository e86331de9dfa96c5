/* Due times of schedules. The engine shows a schedule whose time has come. The step to take is
 * decided here, because here time zones can be read. The engine takes the step, unless another
 * process was faster. If the queue refuses the message (because it is full, say), the time stays
 * due and is shown again. When it is let in too late, the time counts as missed. */
#include "base/log.h"
#include "base/mem.h"
#include "base/zoneinfo.h"
#include "broker/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 20 /* due times of one schedule in one turn; others need the loop, too */

/* A step under way. */
struct firing {
    struct engine_op op;
    struct put_item item;
    struct dispatcher *dispatcher; /* holds a reference */
    struct firing *next;           /* in the list until it is submitted */
    bool follows; /* comes after another step, and is stale if that one is refused */
    char name[QUEUE_NAME_MAX + 1];
};

/* Why a due time of a schedule has no message yet. */
struct refusal {
    enum status status;
    struct refusal *next;
    char name[QUEUE_NAME_MAX + 1];
};

static struct refusal **refusal_find(struct dispatcher *d, const char *name)
{
    struct refusal **at = &d->refusals;
    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void refusal_clear(struct dispatcher *d, const char *name)
{
    struct refusal **at = refusal_find(d, name), *r = *at;
    if (r) {
        *at = r->next;
        free(r);
    }
}

/* Logs the refusal once, and not with every try. */
static void refusal_note(struct dispatcher *d, const char *name, enum status status)
{
    struct refusal **at = refusal_find(d, name);
    if (*at && (*at)->status == status)
        return;
    if (!*at) {
        *at = mem_zalloc(sizeof(**at));
        snprintf((*at)->name, sizeof((*at)->name), "%s", name);
    }
    (*at)->status = status;
    log_warn("a due time waits", "queue=%s schedule=%s reason=%s", d->name, name,
             status_name(status));
}

void schedules_forget(struct dispatcher *d)
{
    while (d->refusals)
        refusal_clear(d, d->refusals->name);
}

enum status broker_schedule_refusal(const struct request *r, const char *name)
{
    struct refusal *at = r->dispatcher ? *refusal_find(r->dispatcher, name) : NULL;
    return at ? at->status : STATUS_OK;
}

static void firing_free(struct firing *f)
{
    draft_fini(&f->item.draft);
    dispatcher_unref(f->dispatcher);
    free(f);
}

static void fired(struct engine_op *op)
{
    struct firing *f = op->user;
    struct dispatcher *d = f->dispatcher;
    assert(op == &f->op);
    bool gone = op->status == STATUS_SCHEDULE_NOT_FOUND || op->status == STATUS_QUEUE_NOT_FOUND;
    if (d->state == DISPATCHER_OPEN) {
        if (gone || (!op->status && !(op->fire.stale && f->follows)))
            refusal_clear(d, f->name);
        else if (op->status && op->status != STATUS_ENGINE_UNAVAILABLE) /* logged already */
            refusal_note(d, f->name, op->status);
        if (!op->status && !op->fire.stale && op->fire.step.puts)
            d->shard->counters.fired++;
        dispatch_mark_late(d);
    }
    firing_free(f);
}

static struct firing *firing_add(struct shard *s, struct dispatcher *d,
                                 const struct schedule *schedule, const struct schedule_step *step)
{
    struct firing *f = mem_zalloc(sizeof(*f));
    assert(d->state == DISPATCHER_OPEN);
    assert(!*s->firings_end); /* the list ends here */
    f->dispatcher = d;
    dispatcher_ref(d);
    snprintf(f->name, sizeof(f->name), "%s", schedule->name);
    f->op = (struct engine_op){.verb = ENGINE_FIRE, .done = fired, .user = f};
    f->op.fire.name = f->name;
    f->op.fire.step = *step;
    if (step->puts) {
        schedule_draft(schedule, step->at_ms, &f->item.draft);
        f->op.fire.item = &f->item;
    }
    *s->firings_end = f;
    s->firings_end = &f->next;
    return f;
}

void schedules_due(struct shard *s, struct engine_queue *q, const struct schedule *schedule,
                   struct instant now)
{
    struct dispatcher *d = q->user;
    const struct zone *zone;
    if (!d || d->state != DISPATCHER_OPEN || s->draining)
        return;
    if (!zone_find(schedule->rule.time_zone, &zone)) {
        struct schedule_step none = {.due_ms = schedule->timing.next_ms};
        firing_add(s, d, schedule, &none)->op.fire.refused = STATUS_INVALID_FIELD;
        return;
    }
    struct schedule at = *schedule; /* a copy; its body is the engine's */
    for (int i = 0; i < STEPS_MAX && at.timing.next_ms <= now.wall_ms; i++) {
        struct schedule_step step = schedule_decide(&at, zone, now.wall_ms);
        at.timing = schedule_after(&at.timing, &step);
        firing_add(s, d, schedule, &step)->follows = i > 0;
    }
}

void schedules_fire(struct shard *s)
{
    struct firing *f = s->firings;
    s->firings = NULL;
    s->firings_end = &s->firings;
    while (f) {
        struct firing *next = f->next;
        struct dispatcher *d = f->dispatcher;
        if (d->state == DISPATCHER_OPEN && !s->draining) {
            f->op.queue = d->queue;
            shard_submit(s, &f->op);
            dispatch_mark(d);
        } else {
            firing_free(f);
        }
        f = next;
    }
}

/* What clients ask for */

static void done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    bool sets = op->verb == ENGINE_SCHEDULE_SET;
    assert(op == &r->op);
    if (!op->status && (sets || op->verb == ENGINE_SCHEDULE_DELETE))
        refusal_clear(r->dispatcher, sets ? op->schedule.set->name : op->schedule.name);
    if (op->status == STATUS_QUOTA_EXCEEDED)
        snprintf(r->detail, sizeof(r->detail), "A queue has at most %d schedules: delete one.",
                 SCHEDULES_MAX);
    if (op->status == STATUS_SCHEDULE_NOT_FOUND)
        snprintf(r->detail, sizeof(r->detail),
                 "Queue \"%s\" has no schedule \"%s\"; GET /v1/queues/%s/schedules lists them.",
                 r->queue, op->schedule.name, r->queue);
    request_conclude(r->shard, r, op->status);
}

void schedules_request(struct dispatcher *d, struct request *r)
{
    const bool sets = r->op.verb == ENGINE_SCHEDULE_SET;
    assert(sets == (r->kind == REQUEST_SCHEDULE_SET)); /* only a set creates queues */
    assert(d->state == DISPATCHER_OPEN);
    const struct priority_ref *priority = sets ? &r->op.schedule.set->draft.priority : NULL;
    int slot;
    if (sets && level_may_be_new(d, r, priority)) {
        view_refresh(d, r, schedules_request);
        return;
    }
    if (sets && !level_take(d, r, priority, "/priority", &slot))
        return;
    r->op.queue = d->queue;
    r->op.done = done;
    r->op.user = r;
    shard_submit(d->shard, &r->op);
}
