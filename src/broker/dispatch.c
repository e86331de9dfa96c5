/* Which waiting consumer gets which message. For each rank there is a line of the consumers that
 * take messages down to this rank. Each consumer has a ticket. When a message may be ready, look at
 * the lines whose consumers may take the most urgent level that has one. Of these lines the
 * smallest ticket is served. So consumers are served in the order in which they came, one message
 * wakes one consumer, and no other consumer is looked at. */
#include "base/mem.h"
#include "base/plant.h"
#include "broker/shard.h"

#include <assert.h>
#include <string.h>

void dispatch_mark(struct dispatcher *d)
{
    if (d->dirty || (PLANTED(LOST_WAKEUP) && d->waiting_count == 1))
        return;
    d->dirty = true;
    dispatcher_ref(d);
    d->next_dirty = d->shard->dirty;
    d->shard->dirty = d;
}

/* With a live view the queue was marked when the op was submitted, because its effect showed at
 * once. */
void dispatch_mark_late(struct dispatcher *d)
{
    if (!engine_has(d->shard->engine, ENGINE_LIVE_VIEW))
        dispatch_mark(d);
}

static void park(struct dispatcher *d, struct request *r)
{
    struct work *w = work_of(r, WORK_CLAIM);
    struct request_list *line = &d->waiting[w->claim.max_rank];
    struct request *behind = NULL;
    assert(r->dispatcher == d);
    assert(d->state == DISPATCHER_OPEN); /* a queue that is gone serves no line */
    assert(!w->parked);
    assert(w->claim.max_rank >= 0);
    assert(w->claim.max_rank < d->queue->config.level_count); /* other lines are not served */
    if (line->last && line->last->work->claim.ticket > w->claim.ticket) {
        /* It was served before, and comes back: to its old place, not to the end. */
        behind = line->first;
        while (behind->work->claim.ticket < w->claim.ticket)
            behind = behind->next;
    }
    list_insert(line, r, behind);
    /* First come, first served. */
    assert(!r->prev || r->prev->work->claim.ticket < w->claim.ticket);
    assert(!r->next || r->next->work->claim.ticket > w->claim.ticket);
    w->parked = true;
    d->queue->waiting = ++d->waiting_count;
    d->shard->counters.waiting++;
}

/* The least urgent rank that the claim takes; -1 when the queue has no level of that name. */
static int rank_of_request(const struct queue_config *config, const struct request *r)
{
    return r->priority.kind == PRIORITY_DEFAULT ? config->level_count - 1
                                                : levels_resolve(config, &r->priority);
}

/* Levels may have moved since the claim came, so its line is found again. */
static void park_again(struct dispatcher *d, struct request *r)
{
    int max_rank = rank_of_request(&d->queue->config, r);
    work_of(r, WORK_CLAIM)->claim.max_rank = max_rank < 0 ? 0 : max_rank;
    park(d, r);
}

/* Takes the claim out of its line for a moment. Unlike unpark() it leaves `brief` alone. */
static void step_out(struct request *r)
{
    struct dispatcher *d = r->dispatcher;
    struct work *w = work_of(r, WORK_CLAIM);
    assert(w->parked);
    assert(d->state == DISPATCHER_OPEN);
    assert(d->waiting_count > 0);
    assert(d->shard->counters.waiting > 0);
    list_remove(&d->waiting[w->claim.max_rank], r);
    w->parked = false;
    d->queue->waiting = --d->waiting_count;
    d->shard->counters.waiting--;
}

static void unpark(struct request *r)
{
    struct work *w = work_of(r, WORK_CLAIM);
    step_out(r);
    assert(r->dispatcher->brief >= w->claim.brief);
    r->dispatcher->brief -= w->claim.brief;
    w->claim.brief = false;
}

static void give_up(struct request *r, enum status status)
{
    unpark(r);
    r->op.claim.found = 0;
    request_finish(r->shard, r, status);
}

static bool engine_is_away(struct shard *s)
{
    struct buf why = {0};
    bool away = s->engine_away || (!engine_has(s->engine, ENGINE_LIVE_VIEW) &&
                                   engine_health(s->engine, &why) == STATUS_ENGINE_UNAVAILABLE);
    buf_fini(&why);
    return away;
}

/* While the engine is away, "nothing found" would be a guess. So the answer is a refusal. */
static enum status nothing_found(const struct request *r)
{
    return engine_is_away(r->shard) ? STATUS_ENGINE_UNAVAILABLE : STATUS_OK;
}

/* Claims */

static void remember(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                     struct instant now)
{
    struct request *r = request_of_op(op);
    struct work *w = work_of(r, WORK_CLAIM);
    assert(op == &r->op);
    assert(!w->parked);
    assert(w->claim.item_count < r->claim.max); /* items has no room for more */
    struct settle_item *item = &w->claim.items[w->claim.item_count++];
    item->id = message_identity(m, q->id);
    memcpy(item->receipt, m->delivery->receipt, RECEIPT_BYTES);
    bool live = engine_has(r->shard->engine, ENGINE_LIVE_VIEW);
    size_t before = r->answer_len;
    if (!live && before >= ANSWER_FULL) /* no room: claim_done() gives it back */
        return;
    w->claim.visit(op, q, m, now);
    level_times_claimed(r->dispatcher, m);
    w->claim.shown_count = w->claim.item_count;
    r->shard->shown += r->answer_len - before;
    if (live && r->answer_len >= ANSWER_FULL)
        op->claim.plan->want = op->claim.found;
}

static void release_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    assert(op == &work_of(r, WORK_CLAIM)->own);
    dispatch_mark(r->dispatcher);
    request_finish(r->shard, r, STATUS_OK);
}

/* Gives leased messages back, and the attempt is not counted. All go back when the consumer is gone
 * or its wait was ended. Otherwise those go back that its answer has no room for: an engine without
 * a live view leases messages before it shows them, so it cannot know when to stop. */
static void give_back(struct request *r, uint32_t from)
{
    struct work *w = work_of(r, WORK_CLAIM);
    assert(from < w->claim.item_count);   /* at least one has to go back */
    assert(from <= w->claim.shown_count); /* what was not shown always goes back */
    assert(r->dispatcher->state == DISPATCHER_OPEN);
    r->op.claim.found = from;
    w->own = (struct engine_op){
        .verb = ENGINE_RELEASE, .queue = r->dispatcher->queue, .done = release_done, .user = r};
    w->own.settle.items = w->claim.items + from;
    w->own.settle.count = w->claim.item_count - from;
    shard_submit(r->shard, &w->own);
}

/* Races */

/* Whether the claim may take messages now. The claim that may holds the race until its CLAIM_MANY
 * has this answer. */
static bool race_enter(struct request *r)
{
    uint32_t nobody = 0;
    assert(!r->claim.part.race || r->claim.part.place > 0); /* 0 stands for nobody */
    return !r->claim.part.race || atomic_compare_exchange_strong(&r->claim.part.race->holder,
                                                                 &nobody, r->claim.part.place);
}

/* Ends this claim without a message, because another claim of the race takes one, or none was
 * found. Its CLAIM_MANY sends it again, with the same ticket. */
static void race_leave(struct request *r)
{
    assert(r->claim.part.race); /* otherwise nobody would send it again */
    r->claim.part.passed = true;
    r->op.claim.found = 0;
    request_finish(r->shard, r, STATUS_OK);
}

/* The messages that the claim was to get had outlived their time to live, and are gone now. There
 * may be others. Each try clears at least one level. */
static bool may_try_again(const struct dispatcher *d, struct work *w)
{
    const struct queue_config *config = &d->queue->config;
    int max_rank = rank_of_request(config, w->request);
    return max_rank >= 0 && !config_closed(config) && ++w->claim.tries < config->level_count &&
           policy_eligible(config, &d->queue->view, max_rank) > 0;
}

/* Ends a claim that does not wait. If a message is being brought from the disk, the claim stays in
 * line until it is there (`brief`), because the queue may not be empty. */
static void stop_brief(struct dispatcher *d, struct request *r, enum status status)
{
    struct work *w = work_of(r, WORK_CLAIM);
    if (!w->parked || w->claim.brief)
        return;
    if (!d->fetching) {
        give_up(r, status);
        return;
    }
    w->claim.brief = true;
    d->brief++;
}

static void refuse_level(struct request *r)
{
    level_refuse(r->shard, r, "/min_priority");
}

static void try_again(struct request *r)
{
    park_again(r->dispatcher, r);
    dispatch_serve(r->dispatcher);
    stop_brief(r->dispatcher, r, STATUS_OK);
}

static void stand_in_line(struct dispatcher *d, struct request *r);

/* Starts the claim again, by the configuration that the queue has now. */
static void plan_anew(struct request *r)
{
    struct dispatcher *d = r->dispatcher;
    struct work *w = work_of(r, WORK_CLAIM);
    if (d->state == DISPATCHER_OPEN)
        dispatcher_touched(d->queue); /* may find that the queue is gone */
    if (d->state != DISPATCHER_OPEN) {
        request_conclude(r->shard, r, STATUS_QUEUE_NOT_FOUND);
        return;
    }
    w->claim.max_rank = rank_of_request(&d->queue->config, r);
    if (r->shard->draining || request_hung_up(r))
        request_finish(r->shard, r, STATUS_OK);
    else if (w->claim.max_rank < 0)
        refuse_level(r);
    else
        stand_in_line(d, r);
}

/* Nothing was found, but another try may find something. */
static bool claim_missed(const struct engine_op *op)
{
    return op->outdated || op->status == STATUS_QUEUE_NOT_FOUND ||
           (!op->status && op->claim.found == 0);
}

/* Remembers how many messages fit an answer. The next claim asks for as many, or for twice as many
 * if all of them fitted. */
static void learn_fit(struct dispatcher *d, const struct work *w)
{
    assert(w->claim.shown_count <= w->claim.item_count);
    if (w->claim.shown_count < w->claim.item_count)
        d->fit = w->claim.shown_count;
    else if (d->fit > 0 && w->claim.item_count >= d->fit)
        d->fit = d->fit < CLAIM_MAX ? 2 * d->fit : 0;
}

/* Gives back the messages that the client will not read. False: there are none. */
static bool goes_back(struct request *r)
{
    const struct work *w = work_of(r, WORK_CLAIM);
    uint32_t kept = request_hung_up(r) ? 0 : w->claim.shown_count;
    if (kept == w->claim.item_count)
        return false;
    give_back(r, kept);
    return true;
}

static void claim_done(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct work *w = work_of(r, WORK_CLAIM);
    struct shard *s = r->shard;
    bool open = r->dispatcher->state == DISPATCHER_OPEN;
    assert(op == &r->op);
    assert(!w->parked);
    assert(op->status || op->claim.found == w->claim.item_count); /* each was shown once */
    assert(r->dispatcher->claims > 0);
    r->dispatcher->claims--;
    claim_rate_add(&r->dispatcher->rate, op->claim.found, s->now.mono_ms);
    if (!op->status && op->claim.found > 0)
        learn_fit(r->dispatcher, w);
    if (!op->status && open && goes_back(r))
        return;
    if (r->claim.part.race && claim_missed(op)) {
        if (op->outdated && open)
            dispatcher_touched(r->dispatcher->queue);
        race_leave(r);
        return;
    }
    if (op->outdated) {
        plan_anew(r);
        return;
    }
    /* An engine that is away comes back. Until then waiting claims go on waiting. */
    bool away = op->status == STATUS_ENGINE_UNAVAILABLE && !s->engine->failed;
    bool none = !op->status && op->claim.found == 0;
    s->engine_away = s->engine_away || away;
    if ((none || away) && w->timer.height > 0 && open && !s->draining && !request_hung_up(r)) {
        park_again(r->dispatcher, r);
        if (none)
            dispatch_mark(r->dispatcher);
        return;
    }
    if (none && open && !s->draining && may_try_again(r->dispatcher, w)) {
        try_again(r);
        return;
    }
    request_conclude(s, r, op->status);
}

static void submit_claim(struct dispatcher *d, struct request *r)
{
    struct work *w = work_of(r, WORK_CLAIM);
    assert(d->state == DISPATCHER_OPEN);
    assert(w->claim.visit);
    assert(w->claim.plan.step_count > 0);
    assert(w->claim.plan.want <= r->claim.max);
    unpark(r);
    w->claim.item_count = w->claim.shown_count = 0;
    if (!w->claim.items)
        w->claim.items = mem_alloc(r->claim.max * sizeof(*w->claim.items));
    r->op.verb = ENGINE_CLAIM;
    r->op.queue = d->queue;
    r->op.visit = remember;
    r->op.done = claim_done;
    r->op.user = r;
    r->op.claim.plan = &w->claim.plan;
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
        if (r && (!next || r->work->claim.ticket < next->work->claim.ticket))
            next = r;
    }
    return next;
}

/* How many messages the claim may get now. The answer needs its room before the claim, because a
 * message that is leased has to be shown. */
static uint32_t claim_max(struct request *r)
{
    assert(r->claim.max > 0);
    uint32_t room = r->claim.room ? r->claim.room(r) : r->claim.max;
    if (r->claim.part.bounded && room > 1 && !urgency_orders(&r->dispatcher->policy))
        room = 1; /* after one message the queue's urgency is not known */
    if (r->dispatcher->fit > 0 && r->dispatcher->fit < room)
        room = r->dispatcher->fit;
    return room < r->claim.max ? room : r->claim.max;
}

static void refuse_for_room(struct request *r)
{
    unpark(r);
    request_refuse(
        r->shard, r, STATUS_OVERLOADED, "",
        "Answers that were not read take all the room there is. Nothing was claimed; read "
        "them, or try again in a moment.");
}

/* Makes the plan of a claim. A view that is not live may be old, so the plan is made without it.
 * False: nothing may be claimed. */
static bool make_plan(struct dispatcher *d, struct request *r, uint32_t max)
{
    struct work *w = work_of(r, WORK_CLAIM);
    bool live = engine_has(d->shard->engine, ENGINE_LIVE_VIEW);
    bool ageless = PLANTED(AGELESS_START) && !live && d->rate.first_s == 0;
    policy_plan(&d->policy, &d->queue->config, live ? &d->queue->view : NULL, w->claim.max_rank,
                max, ageless ? 0 : d->shard->now.wall_ms, &w->claim.plan);
    return w->claim.plan.step_count > 0 && policy_room(&d->queue->config, &d->queue->view) > 0;
}

/* Takes from the plan what another queue of the same CLAIM_MANY should give. False: the plan is
 * empty. */
static bool cut_plan(const struct dispatcher *d, struct request *r)
{
    struct plan *plan = &work_of(r, WORK_CLAIM)->claim.plan;
    if (r->claim.part.bounded && urgency_orders(&d->policy))
        urgency_cut(plan, &d->queue->config, &r->claim.part.least);
    return plan->step_count > 0;
}

static bool holds(struct dispatcher *d, const struct request *r, uint32_t max)
{
    const struct work *w = work_of(r, WORK_CLAIM);
    struct claim_question ask = {w->claim.max_rank, max, policy_is_plain(&d->policy)};
    return engine_holds(d->shard->engine, d->queue, &ask, d->shard->now);
}

/* Ends the claims that do not wait: every message that was there has been handed out. */
static void end_brief(struct dispatcher *d)
{
    for (int rank = 0; d->brief > 0 && rank < LEVEL_COUNT_MAX; rank++) {
        for (struct request *r = d->waiting[rank].first, *next; r; r = next) {
            next = r->next;
            if (work_of(r, WORK_CLAIM)->claim.brief)
                give_up(r, nothing_found(r));
        }
    }
    assert(d->brief == 0); /* a claim without a timer would wait for ever */
}

static void serve(struct dispatcher *d)
{
    struct shard *s = d->shard;
    struct request *r;
    while (d->waiting_count > 0 && !config_closed(&d->queue->config) && d->queue->view.ready > 0 &&
           (r = next_in_line(d))) {
        struct work *w = work_of(r, WORK_CLAIM);
        assert(w->parked);
        if (request_hung_up(r)) {
            give_up(r, STATUS_OK);
            continue;
        }
        if (shard_is_late(s)) {
            d->fetching = true;
            dispatch_mark(d);
            return;
        }
        uint32_t max = claim_max(r);
        if (max == 0) {
            refuse_for_room(r);
            continue;
        }
        d->fetching = !holds(d, r, max);
        if (d->fetching || !make_plan(d, r, max))
            return;
        if (!cut_plan(d, r)) {
            give_up(r, STATUS_OK);
            continue;
        }
        if (!race_enter(r)) {
            unpark(r);
            race_leave(r);
            continue;
        }
        s->counters.wakeups += w->claim.waited;
        submit_claim(d, r);
    }
}

static void look_again(struct dispatcher *d);

void dispatch_serve(struct dispatcher *d)
{
    assert(d->state == DISPATCHER_OPEN);
    configuration_follow(d);
    d->fetching = false;
    serve(d);
    if (d->brief > 0 && !d->fetching)
        end_brief(d);
    if (d->looking.first)
        look_again(d);
}

/* Whether the claim may ask the engine although the view shows nothing for it. The view may be old:
 * another process has put messages in, or a claim under way takes other messages than were counted
 * for it. Then only the engine can say that there is nothing.
 *
 * A claim that does not wait always asks. Of the waiting claims the first one asks, and those
 * behind it learn of new messages by the same sweeps. A claim whose wait ends asks once more if
 * other claims are under way, or if the engine is away: it may come back in time. A claim in a race
 * never asks: it has looked already. */
static bool may_ask_blindly(const struct dispatcher *d, const struct request *r)
{
    return work_of(r, WORK_CLAIM)->parked && !engine_has(d->shard->engine, ENGINE_LIVE_VIEW) &&
           !config_closed(&d->queue->config) && !r->claim.part.race;
}

static void ask_blindly(struct dispatcher *d, struct request *r)
{
    uint32_t max = claim_max(r);
    if (max == 0) {
        refuse_for_room(r);
        return;
    }
    make_plan(d, r, max);
    if (cut_plan(d, r))
        submit_claim(d, r);
}

/* The claim is served, or it waits in line, or it is told that there is nothing. */
static void stand_in_line(struct dispatcher *d, struct request *r)
{
    struct work *w = work_of(r, WORK_CLAIM);
    bool waits = w->timer.height > 0;
    park(d, r);
    dispatch_serve(d);
    if (may_ask_blindly(d, r) && (!waits || d->waiting_count == 1))
        ask_blindly(d, r);
    w->claim.waited = true;
    if (!waits)
        stop_brief(d, r, nothing_found(r));
    assert(waits || !w->parked || w->claim.brief); /* otherwise it has no timer and never ends */
}

/* The plan is made later, when the claim has its turn. */
static struct work *claim_work_new(struct shard *s, struct request *r, int max_rank)
{
    struct work *w = work_new(s, r, WORK_CLAIM);
    uint64_t ticket = r->claim.part.ticket;
    w->claim.ticket = ticket > 0 ? ticket : w->timer.tie;
    w->claim.max_rank = max_rank;
    w->claim.waited = w->claim.brief = false;
    w->claim.tries = 0;
    w->claim.visit = r->op.visit;
    w->claim.items = NULL;
    w->claim.item_count = w->claim.shown_count = 0;
    return w;
}

static void claim_now(struct dispatcher *d, struct request *r)
{
    struct shard *s = d->shard;
    int max_rank = rank_of_request(&d->queue->config, r);
    work_free(s, r); /* left from a refreshed view */
    if (max_rank < 0) {
        refuse_level(r);
        return;
    }
    struct work *w = claim_work_new(s, r, max_rank);
    if (r->claim.wait_ms > 0)
        work_set_timer(s, w, s->now.mono_ms + r->claim.wait_ms);
    stand_in_line(d, r);
}

/* As far as this process knows, the claim gets nothing. Another process may have changed that. A
 * claim that waits looks too, because its wait may end before the news of the change come. */
static bool has_to_look(const struct dispatcher *d, const struct request *r)
{
    const struct queue_config *config = &d->queue->config;
    return engine_has(d->shard->engine, ENGINE_SHARED) &&
           (rank_of_request(config, r) < 0 || config->paused);
}

void dispatch_claim(struct dispatcher *d, struct request *r)
{
    assert(r->kind == REQUEST_CLAIM);
    assert(r->dispatcher == d);
    configuration_follow(d);
    if (request_hung_up(r)) { /* it did while its queue was being opened */
        r->op.claim.found = 0;
        request_finish(d->shard, r, STATUS_OK);
    } else if (has_to_look(d, r)) {
        view_refresh(d, r, claim_now);
    } else {
        claim_now(d, r);
    }
}

/* Looks */

/* Replaces a number by the name of its level: in another queue the number may be another level. */
static void name_level(struct priority_ref *priority, const struct level *level)
{
    if (priority->kind != PRIORITY_NUMBER)
        return;
    *priority = (struct priority_ref){.kind = PRIORITY_NAME};
    memcpy(priority->name, level->name, sizeof(priority->name));
}

/* Answers how urgent the queue is. False: it cannot yet, because the most urgent message is being
 * brought from the disk. */
static bool look(struct dispatcher *d, struct request *r)
{
    struct shard *s = d->shard;
    const struct queue_config *config = &d->queue->config;
    int max_rank = rank_of_request(config, r);
    struct claim_question ask = {max_rank, 1, policy_is_plain(&d->policy)};
    assert(r->kind == REQUEST_LOOK);
    assert(d->state == DISPATCHER_OPEN);
    assert(r->look.ticket > 0);
    if (max_rank < 0) {
        refuse_level(r);
        return true;
    }
    r->look.any = urgency_of(config, &d->queue->view, max_rank, s->now.wall_ms, &r->look.urgency);
    if (r->look.any && !engine_holds(s->engine, d->queue, &ask, s->now))
        return false;
    name_level(&r->priority, &config->levels[max_rank]);
    request_finish(s, r, STATUS_OK);
    return true;
}

static void look_now(struct dispatcher *d, struct request *r)
{
    work_free(d->shard, r);
    if (!look(d, r))
        list_append(&d->looking, r);
}

static void look_again(struct dispatcher *d)
{
    struct request_list all = d->looking;
    d->looking = (struct request_list){0};
    for (struct request *r; (r = all.first);) {
        list_remove(&all, r);
        if (!look(d, r))
            list_append(&d->looking, r);
    }
}

/* A look takes a ticket, so that a claim which follows keeps its place in line. */
void dispatch_look(struct dispatcher *d, struct request *r)
{
    if (r->look.ticket == 0)
        r->look.ticket = ++d->shard->next_ticket;
    if (engine_has(d->shard->engine, ENGINE_LIVE_VIEW))
        look_now(d, r);
    else
        view_refresh(d, r, look_now);
}

void dispatch_timeout(struct request *r)
{
    struct dispatcher *d = r->dispatcher;
    if (may_ask_blindly(d, r) && (d->claims > 0 || engine_is_away(r->shard)))
        ask_blindly(d, r);
    if (work_of(r, WORK_CLAIM)->parked) /* it did not ask */
        stop_brief(d, r, nothing_found(r));
}

void dispatch_hangup(struct request *r)
{
    if (work_of(r, WORK_CLAIM)->parked)
        give_up(r, STATUS_OK);
}

/* Ends all claims in line. While a message is being brought from the disk, "nothing found" might be
 * untrue, so they are told that the server stops. */
void dispatch_end_all(struct dispatcher *d, enum status status)
{
    for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++) {
        struct request *r;
        while ((r = d->waiting[rank].first))
            give_up(r, status || !d->fetching ? status : STATUS_DRAINING);
    }
    for (struct request *r; (r = d->looking.first);) {
        list_remove(&d->looking, r);
        r->look.any = false;
        request_finish(d->shard, r, status ? status : STATUS_DRAINING);
    }
    assert(d->waiting_count == 0); /* every counted claim was in a line */
    assert(d->brief == 0);
}

/* Claims that stand in line go on at the other server, for the time that they have left. Parts of a
 * CLAIM_MANY stay in line: their other queues may serve them. */
static void end_moved(struct dispatcher *d)
{
    for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++) {
        for (struct request *r = d->waiting[rank].first, *next; r; r = next) {
            next = r->next;
            if (r->inner)
                continue;
            const struct work *w = work_of(r, WORK_CLAIM);
            int64_t left_ms = w->timer.height > 0 ? w->timer.key - d->shard->now.mono_ms : 0;
            r->claim.wait_ms = left_ms > 0 ? left_ms : 0;
            give_up(r, STATUS_QUEUE_MOVED);
        }
    }
}

/* Levels may have moved: every claim finds its line again, and the order stays. */
void dispatch_reconfigured(struct dispatcher *d)
{
    struct request_list all = {0};
    uint32_t waiting = d->waiting_count;
    uint32_t rules = d->policy.rules + 1;
    policy_init(&d->policy, &d->queue->config);
    d->policy.rules = rules;
    for (int rank = 0; rank < LEVEL_COUNT_MAX; rank++) {
        struct request *r;
        while ((r = d->waiting[rank].first)) {
            step_out(r);
            list_append(&all, r);
        }
    }
    assert(d->waiting_count == 0);
    struct request *r;
    while ((r = all.first)) {
        list_remove(&all, r);
        park_again(d, r);
    }
    assert(d->waiting_count == waiting); /* no claim was lost */
    if (config_moves(&d->queue->config))
        end_moved(d);
    dispatch_mark(d);
}

bool dispatch_urgent_waiting(const struct dispatcher *d, uint8_t slot)
{
    const struct queue_config *config = &d->queue->config;
    int rank = levels_rank_of_slot(config, slot);
    return !config_closed(config) && rank > 0 &&
           policy_eligible(config, &d->queue->view, rank - 1) > 0;
}
