#include "core/explain.h"
#include "base/mem.h"
#include "base/plant.h"
#include "broker/shard.h"
#include "core/age.h"

#include <stdlib.h>
#include <string.h>

/* Counting */

static void submit_count(struct request *r, uint32_t count, engine_done *done)
{
    struct work *w = work_of(r, WORK_EXPLANATION);
    assert(count > 0);
    assert(w->explanation.counts);
    w->own = (struct engine_op){
        .verb = ENGINE_COUNT, .queue = r->dispatcher->queue, .done = done, .user = r};
    w->own.count.items = w->explanation.counts;
    w->own.count.count = count;
    shard_submit(r->shard, &w->own);
}

/* A queue */

void explain_show(struct dispatcher *d, struct request *r, struct queue_facts facts)
{
    assert(d->state == DISPATCHER_OPEN);
    assert(r->show.each);
    facts.dispatcher = d;
    facts.queue = d->queue;
    facts.view = PLANTED(NUMBERS_TORN) ? &d->queue->view : engine_queue_moment(d->queue);
    facts.waiting_consumers = d->waiting_count;
    facts.oldest_ready_ms = shard_oldest_ready_ms(d);
    facts.alerts = alerts_raised(d);
    facts.claims_per_second = claim_rate_per_second(&d->rate, d->shard->now.mono_ms);
    r->show.each(r, &facts);
}

static void stats_counted(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct queue_facts facts = {.exact = true};
    assert(r->kind == REQUEST_STATS);
    assert(op->count.count % 2 == 0); /* first counts of aged messages, then as many of late ones */
    if (op->outdated && r->dispatcher->state == DISPATCHER_OPEN) {
        work_free(r->shard, r);
        explain_stats(r->dispatcher, r); /* again, by the present levels and ages */
        return;
    }
    if (op->status || r->dispatcher->state != DISPATCHER_OPEN) {
        request_conclude(r->shard, r, op->status ? op->status : STATUS_QUEUE_NOT_FOUND);
        return;
    }
    for (uint32_t i = 0; i < op->count.count; i++) {
        const struct count_item *item = &op->count.items[i];
        *(i < op->count.count / 2 ? &facts.aged : &facts.late) += item->before;
        facts.exact = facts.exact && item->exact;
    }
    explain_show(r->dispatcher, r, facts);
    request_finish(r->shard, r, STATUS_OK);
}

void explain_stats(struct dispatcher *d, struct request *r)
{
    const struct queue_config *config = &d->queue->config;
    struct work *w = work_new(d->shard, r, WORK_EXPLANATION);
    w->explanation.counts =
        mem_alloc(2 * (size_t)config->level_count * sizeof(*w->explanation.counts));
    explain_aged(config, d->shard->now.wall_ms, w->explanation.counts);
    explain_late(config, d->shard->now.wall_ms, w->explanation.counts + config->level_count);
    submit_count(r, 2 * config->level_count, stats_counted);
}

/* A message */

static void found(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                  struct instant now)
{
    struct request *r = request_of_op(op);
    (void)now;
    assert(op == &r->op);
    assert(r->kind == REQUEST_POSITION);
    work_of(r, WORK_EXPLANATION)->explanation.seq = message_seq(m);
    *r->position.answer = (struct position){
        .id = message_identity(m, q->id),
        .state = m->state,
        .slot = m->slot,
        .ready_ms = m->ready_ms,
    };
    int rank = levels_rank_of_slot(&q->config, m->slot);
    if (rank >= 0)
        r->position.answer->level = q->config.levels[rank];
}

static struct explain explain_of(const struct request *r)
{
    const struct queue_config *config = &r->dispatcher->queue->config;
    configuration_follow(r->dispatcher);
    return (struct explain){
        .config = config,
        .policy = &r->dispatcher->policy,
        .now_ms = work_of(r, WORK_EXPLANATION)->explanation.asked.wall_ms,
        .rank = levels_rank_of_slot(config, r->position.answer->slot),
        .ready_ms = r->position.answer->ready_ms,
        .seq = work_of(r, WORK_EXPLANATION)->explanation.seq,
    };
}

static uint32_t waits_for(const struct engine_queue *q, const struct position *p, int rank)
{
    const struct level *level = &q->config.levels[rank];
    bool full =
        policy_room(&q->config, &q->view) == 0 ||
        (level->max_in_flight > 0 && q->view.lanes[level->slot].leased >= level->max_in_flight);
    return (p->state == MESSAGE_SCHEDULED ? WAIT_DELAY : 0) | (q->config.paused ? WAIT_PAUSE : 0) |
           (full ? WAIT_LIMIT : 0);
}

/* Assumes that claims go on at their recent rate. A message never starts before it is ready. */
static int64_t estimate_start(const struct position *p, int64_t now_ms)
{
    if (p->wait_for & WAIT_PAUSE || p->claims_per_second <= 0)
        return INT64_MAX;
    double wait_ms = (double)p->ahead / p->claims_per_second * 1000;
    if (wait_ms > (double)TIME_MS_MAX / 2)
        return INT64_MAX;
    int64_t start_ms = now_ms + (int64_t)wait_ms;
    return p->ready_ms > start_ms ? p->ready_ms : start_ms;
}

static void look_up(struct request *r);

static void tell_position(struct request *r, const struct explain *e)
{
    struct position *p = r->position.answer;
    assert(e->rank >= 0);
    assert(e->rank < e->config->level_count);
    bool ready = p->state == MESSAGE_READY;
    int as = ready ? age_effective_rank(e->config, e->rank, e->ready_ms, e->now_ms) : e->rank;
    p->effective = e->config->levels[as];
    p->wait_for = waits_for(r->dispatcher->queue, p, e->rank);
    p->claims_per_second = claim_rate_per_second(&r->dispatcher->rate, r->shard->now.mono_ms);
    p->start_ms = estimate_start(p, e->now_ms);
    request_finish(r->shard, r, STATUS_OK);
}

/* Whether the answer can be used: the queue still exists, and its levels and policy have not
 * changed. If they have, the message is looked up again. */
static bool is_valid(struct request *r, const struct engine_op *op)
{
    if (op->outdated && r->dispatcher->state == DISPATCHER_OPEN) {
        look_up(r);
        return false;
    }
    if (op->status || r->dispatcher->state != DISPATCHER_OPEN) {
        request_conclude(r->shard, r, op->status ? op->status : STATUS_QUEUE_NOT_FOUND);
        return false;
    }
    struct explain e = explain_of(r);
    bool heads = op->verb == ENGINE_HEADS;
    bool valid = e.rank >= 0 && (heads ? op->heads.count == e.config->level_count
                                       : op->count.count == explain_item_count(&e));
    if (!valid)
        look_up(r);
    return valid;
}

static void followed(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct heads_item heads[LEVEL_COUNT_MAX]; /* copies: the request may end before we do */
    uint32_t count = op->heads.count;
    assert(op == &work_of(r, WORK_EXPLANATION)->own);
    assert(count <= LEVEL_COUNT_MAX);
    memcpy(heads, op->heads.items, count * sizeof(heads[0]));
    if (is_valid(r, op)) {
        struct explain e = explain_of(r);
        r->position.answer->exact = explain_follow(&e, heads, &r->position.answer->ahead);
        tell_position(r, &e);
    }
    for (uint32_t i = 0; i < count; i++)
        free(heads[i].places);
}

static void follow(struct request *r, const struct explain *e)
{
    struct work *w = work_of(r, WORK_EXPLANATION);
    explain_heads(e, w->explanation.heads);
    w->own = (struct engine_op){
        .verb = ENGINE_HEADS, .queue = r->dispatcher->queue, .done = followed, .user = r};
    w->own.heads.items = w->explanation.heads;
    w->own.heads.count = e->config->level_count;
    shard_submit(r->shard, &w->own);
}

static void counted(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct position *p = r->position.answer;
    if (!is_valid(r, op))
        return;
    struct explain e = explain_of(r);
    p->ahead = explain_ahead(&e, op->count.items, &p->exact);
    if (explain_is_near(&e, op->count.items))
        follow(r, &e);
    else
        tell_position(r, &e);
}

static void got(struct engine_op *op)
{
    struct request *r = request_of_op(op);
    struct explain e;
    bool open = r->dispatcher->state == DISPATCHER_OPEN;
    bool pending = r->position.answer->state == MESSAGE_SCHEDULED ||
                   r->position.answer->state == MESSAGE_READY;
    if (!op->status && open && pending && (e = explain_of(r)).rank >= 0) {
        assert(explain_item_count(&e) <= EXPLAIN_ITEMS_MAX);
        explain_places(&e, work_of(r, WORK_EXPLANATION)->explanation.counts);
        submit_count(r, explain_item_count(&e), counted);
        return;
    }
    request_conclude(r->shard, r, op->status || open ? op->status : STATUS_QUEUE_NOT_FOUND);
}

static void look_up(struct request *r)
{
    work_of(r, WORK_EXPLANATION)->explanation.asked = r->shard->now;
    *r->position.answer = (struct position){0};
    r->op.verb = ENGINE_GET;
    r->op.visit = found;
    r->op.queue = r->dispatcher->queue;
    r->op.done = got;
    r->op.user = r;
    shard_submit(r->shard, &r->op);
}

void explain_position(struct dispatcher *d, struct request *r)
{
    assert(r->position.answer);
    struct work *w = work_new(d->shard, r, WORK_EXPLANATION);
    w->explanation.counts = mem_alloc(EXPLAIN_ITEMS_MAX * sizeof(*w->explanation.counts));
    look_up(r);
}
