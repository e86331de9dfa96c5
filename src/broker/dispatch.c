/* Waiting consumers stand in one line per least urgent rank they take, each with a
 * ticket. Whenever something may be ready, the smallest ticket among the lines that
 * may take the most urgent level that has something is served: first come, first served, one
 * message wakes one consumer, and nobody else is looked at. */
#include "base/mem.h"
#include "base/plant.h"
#include "broker/shard.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dispatch_mark(struct dispatcher *d)
{
    if (d->dirty || (PLANTED(LOST_WAKEUP) && d->waiting_count == 1))
        return;
    d->dirty = true;
    d->references++;
    d->next_dirty = d->shard->dirty;
    d->shard->dirty = d;
}

/* Whoever sees the effect of an op at once has marked it when it was submitted. */
void dispatch_mark_late(struct dispatcher *d)
{
    if (!engine_has(d->shard->engine, ENGINE_LIVE_VIEW))
        dispatch_mark(d);
}

static void park(struct dispatcher *d, struct request *r)
{
    struct work *w = r->work;
    struct request_list *line = &d->waiting[w->max_rank];
    struct request *behind = NULL;
    if (line->last && line->last->work->ticket > w->ticket) {
        /* It had been served and comes back: to its old place, not to the end. */
        behind = line->first;
        while (behind->work->ticket < w->ticket)
            behind = behind->next;
    }
    list_insert(line, r, behind);
    w->parked = true;
    d->queue->waiting = ++d->waiting_count;
    d->shard->counters.waiting++;
}

/* The least urgent rank it takes; -1 when the level it names is not there. */
static int rank_of_request(const struct queue_config *config, const struct request *r)
{
    return r->priority.kind == PRIORITY_DEFAULT ? config->level_count - 1
                                                : levels_resolve(config, &r->priority);
}

/* Levels may have moved since it came. */
static void park_again(struct dispatcher *d, struct request *r)
{
    int max_rank = rank_of_request(&d->queue->config, r);
    r->work->max_rank = max_rank < 0 ? 0 : max_rank;
    park(d, r);
}

static void unpark(struct request *r)
{
    struct dispatcher *d = r->dispatcher;
    assert(r->work->parked);
    list_remove(&d->waiting[r->work->max_rank], r);
    r->work->parked = false;
    d->queue->waiting = --d->waiting_count;
    d->shard->counters.waiting--;
}

static void give_up(struct request *r, enum status status)
{
    unpark(r);
    r->op.claim.found = 0;
    shard_finish(r->shard, r, status);
}

/* Nobody can say that there is nothing while the engine does not answer. */
static enum status nothing_found(const struct request *r)
{
    return r->shard->engine_away ? STATUS_ENGINE_UNAVAILABLE : STATUS_OK;
}

/* Claims */

static void remember(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                     struct instant now)
{
    struct request *r = op->user;
    struct work *w = r->work;
    struct settle_item *item = &w->items[w->item_count++];
    item->id = message_identity(m, q->id);
    memcpy(item->receipt, m->delivery->receipt, RECEIPT_BYTES);
    w->visit(op, q, m, now);
}

static void release_done(struct engine_op *op)
{
    struct request *r = op->user;
    dispatch_mark(r->dispatcher);
    shard_finish(r->shard, r, STATUS_OK);
}

/* The consumer is gone: what was picked for it goes back unharmed. */
static void give_back(struct request *r)
{
    struct work *w = r->work;
    w->release = (struct engine_op){
        .verb = ENGINE_RELEASE, .queue = r->dispatcher->queue, .done = release_done, .user = r};
    w->release.settle.items = w->items;
    w->release.settle.count = w->item_count;
    shard_submit(r->shard, &w->release);
}

/* What it was to get had outlived its time to live, and is gone now; there may be something else.
 * Each try clears a level at least. */
static bool may_try_again(const struct dispatcher *d, struct work *w)
{
    const struct queue_config *config = &d->queue->config;
    int max_rank = rank_of_request(config, w->request);
    return max_rank >= 0 && !config->paused && ++w->tries < config->level_count &&
           policy_eligible(config, &d->queue->view, max_rank) > 0;
}

static void try_again(struct request *r)
{
    park_again(r->dispatcher, r);
    dispatch_serve(r->dispatcher);
    if (r->work->parked)
        give_up(r, STATUS_OK);
}

static void claim_done(struct engine_op *op)
{
    struct request *r = op->user;
    struct work *w = r->work;
    struct shard *s = r->shard;
    bool open = r->dispatcher->state == DISPATCHER_OPEN;
    r->dispatcher->claims--;
    policy_settle(&r->dispatcher->policy, &w->plan);
    rate_add(&r->dispatcher->rate, op->claim.found, s->now.mono_ms);
    if (!op->status && op->claim.found > 0 && atomic_load(&r->hung_up) && open) {
        give_back(r);
        return;
    }
    /* An engine that is away for a while comes back, and those who wait go on waiting. */
    bool away = op->status == STATUS_ENGINE_UNAVAILABLE && !s->engine->failed;
    bool none = !op->status && op->claim.found == 0;
    s->engine_away = s->engine_away || away;
    if ((none || away) && w->timer.height > 0 && open && !s->draining &&
        !atomic_load(&r->hung_up)) {
        park_again(r->dispatcher, r);
        if (none)
            dispatch_mark(r->dispatcher);
        return;
    }
    if (none && open && !s->draining && may_try_again(r->dispatcher, w)) {
        try_again(r);
        return;
    }
    shard_finish(s, r, op->status);
}

static void submit_claim(struct dispatcher *d, struct request *r)
{
    struct work *w = r->work;
    w->item_count = 0;
    if (!w->items)
        w->items = mem_alloc(r->max * sizeof(*w->items));
    r->op.verb = ENGINE_CLAIM;
    r->op.queue = d->queue;
    r->op.visit = remember;
    r->op.done = claim_done;
    r->op.user = r;
    r->op.claim.plan = &w->plan;
    d->claims++;
    shard_submit(d->shard, &r->op);
}

/* The waiting consumer whose turn it is, or NULL. */
static struct request *next_in_line(struct dispatcher *d)
{
    const struct queue_config *config = &d->queue->config;
    const struct queue_view *view = &d->queue->view;
    int best = 0;
    while (best < config->level_count && policy_claimable(config, view, best) == 0)
        best++;
    struct request *next = NULL;
    for (int rank = best; rank < config->level_count; rank++) {
        struct request *r = d->waiting[rank].first;
        if (r && (!next || r->work->ticket < next->work->ticket))
            next = r;
    }
    return next;
}

/* False: nothing may be claimed. */
static bool make_plan(struct dispatcher *d, struct request *r)
{
    struct shard *s = d->shard;
    struct work *w = r->work;
    const struct queue_config *config = &d->queue->config;
    const struct queue_view *view = &d->queue->view;
    if (engine_has(s->engine, ENGINE_LIVE_VIEW) || !policy_is_plain(&d->policy)) {
        policy_plan(&d->policy, config, view, w->max_rank, r->max, s->now.wall_ms, &w->plan);
        return w->plan.step_count > 0;
    }
    policy_plan_blind(config, w->max_rank, r->max, &w->plan);
    return policy_room(config, view) > 0;
}

void dispatch_serve(struct dispatcher *d)
{
    struct shard *s = d->shard;
    struct request *r;
    while (d->waiting_count > 0 && !d->queue->config.paused && d->queue->view.ready > 0 &&
           (r = next_in_line(d))) {
        struct work *w = r->work;
        if (atomic_load(&r->hung_up)) {
            give_up(r, STATUS_OK);
            continue;
        }
        if (!make_plan(d, r))
            return;
        unpark(r);
        s->counters.wakeups += w->waited;
        submit_claim(d, r);
    }
}

/* What the engine told last may not be all there is: others put something in, or a claim under way
 * takes something else than what was counted for it. So the first to wait asks once, and whoever
 * would be told that there is nothing while claims are under way. */
static bool may_ask_blindly(const struct dispatcher *d, const struct request *r)
{
    return r->work->parked && !engine_has(d->shard->engine, ENGINE_LIVE_VIEW) &&
           !d->queue->config.paused;
}

static void ask_blindly(struct dispatcher *d, struct request *r)
{
    policy_plan_blind(&d->queue->config, r->work->max_rank, r->max, &r->work->plan);
    unpark(r);
    submit_claim(d, r);
}

void dispatch_claim(struct dispatcher *d, struct request *r)
{
    struct shard *s = d->shard;
    const struct queue_config *config = &d->queue->config;
    int max_rank = rank_of_request(config, r);
    if (max_rank < 0) {
        shard_refuse(s, r, STATUS_UNKNOWN_PRIORITY, "/min_priority",
                     "The queue has no such level; GET the queue to see its levels.");
        return;
    }
    struct work *w = work_new(s, r);
    w->max_rank = max_rank;
    w->visit = r->op.visit;
    if (r->wait_ms > 0)
        shard_set_timer(s, w, s->now.mono_ms + r->wait_ms);
    park(d, r);
    dispatch_serve(d);
    if (may_ask_blindly(d, r) && (d->waiting_count == 1 || (r->wait_ms <= 0 && d->claims > 0)))
        ask_blindly(d, r);
    if (w->parked && r->wait_ms <= 0)
        give_up(r, nothing_found(r));
    w->waited = true;
}

void dispatch_timeout(struct request *r)
{
    if (may_ask_blindly(r->dispatcher, r) && r->dispatcher->claims > 0)
        ask_blindly(r->dispatcher, r);
    else if (r->work->parked)
        give_up(r, nothing_found(r));
}

void dispatch_hangup(struct request *r)
{
    if (r->work->parked)
        give_up(r, STATUS_OK);
}

void dispatch_end_all(struct dispatcher *d, enum status status)
{
    for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++) {
        while (d->waiting[rank].first)
            give_up(d->waiting[rank].first, status);
    }
}

/* Levels may have moved: everyone stands in line again, in the old order. */
void dispatch_reconfigured(struct dispatcher *d)
{
    struct request_list all = {0};
    policy_init(&d->policy, &d->queue->config);
    for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++) {
        struct request *r;
        while ((r = d->waiting[rank].first)) {
            unpark(r);
            list_append(&all, r);
        }
    }
    struct request *r;
    while ((r = all.first)) {
        list_remove(&all, r);
        park_again(d, r);
    }
    dispatch_mark(d);
}

bool dispatch_urgent_waiting(const struct dispatcher *d, uint8_t slot)
{
    const struct queue_config *config = &d->queue->config;
    int rank = levels_rank_of_slot(config, slot);
    return !config->paused && rank > 0 && policy_eligible(config, &d->queue->view, rank - 1) > 0;
}
