#include "simulate/simulate.h"

#include "base/mem.h"
#include "base/order.h"
#include "core/age.h"
#include "engine/memory.h"
#include "simulate/tide.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define EPOCH_MS       1767225600000 /* when every simulation starts: 2026-01-01 */
#define LEASE_MS       (TIME_MS_MAX / 2)
#define PROGRESS_EVERY 65536 /* events */

/* What arrives at one level, as it goes on. */
struct inflow {
    /* Each has a chance of its own, so that another rate at one level changes nothing at the
     * others. */
    struct tide tide;
    struct simulation_level *seen;
    struct hist span; /* waits of those claimed in the present span of time */
    uint8_t slot;
};

/* A consumer at work stands in `busy` by when its present message is done. */
struct consumer {
    uint32_t count, at; /* messages claimed; which of them it works on */
    struct settle_item *items;
    uint8_t *ranks; /* in the workload's own queue */
    struct order_node node;
};

struct run {
    const struct workload *workload;
    struct simulation *out;
    struct engine *engine;
    struct engine_queue *queue;
    struct policy policy;
    struct bounder bounder; /* of the present configuration */
    struct plan plan;
    struct inflow streams[LEVEL_COUNT_MAX]; /* by rank in the workload's own queue */
    uint8_t rank_of_slot[LEVEL_COUNT_MAX];  /* the same rank */
    struct order busy;
    struct consumer **consumers;
    struct consumer **idle;
    uint32_t idle_count;
    struct consumer *claiming;
    uint32_t next_change;
    int64_t now_us;
    int span;                                         /* of SIMULATION_POINTS */
    int64_t busy_us;                                  /* of all consumers together */
    uint64_t ahead[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX]; /* by ranks of the present configuration */
};

static struct instant now_of(const struct run *r)
{
    int64_t ms = r->now_us / 1000;
    return (struct instant){.wall_ms = EPOCH_MS + ms, .mono_ms = ms};
}

/* The engine */

static void finished(struct engine_op *op)
{
    (void)op;
}

static void apply(struct run *r, struct engine_op *op)
{
    op->done = finished;
    op->user = r;
    engine_submit(r->engine, op, now_of(r));
    engine_flush(r->engine);
    engine_poll(r->engine);
}

/* Lets time pass: messages whose time to live is over end. */
static void sweep(struct run *r)
{
    while (engine_next_due_ms(r->engine, now_of(r)) == 0) {
        struct engine_op op = {.verb = ENGINE_SWEEP, .sweep = {.max = 1000}};
        apply(r, &op);
        if (!op.sweep.more)
            break;
    }
}

static struct capacity capacity_of(const struct workload *w)
{
    struct capacity c = {.consumers = w->consumers, .claim_max = w->claim_max};
    for (int rank = 0; rank < w->queue.level_count; rank++) {
        const struct arrivals *a = &w->arrivals[rank];
        bool comes = a->per_second > 0 || a->backlog > 0;
        if (a->given && (comes || c.service_us == 0) && a->service_us > c.service_us)
            c.service_us = a->service_us;
    }
    return c;
}

static void configure(struct run *r, const struct queue_config *config)
{
    struct queue_config next = *config;
    if (r->queue) { /* as the server does: a pause is noted with its time */
        memcpy(next.pauses, r->queue->config.pauses, sizeof(next.pauses));
        next.pause_count = r->queue->config.pause_count;
        next.paused = r->queue->config.paused;
    } else {
        next.paused = false;
    }
    age_pause(&next, config->paused, now_of(r).wall_ms);
    struct engine_op op = {.verb = ENGINE_QUEUE_SET, .queue = r->queue};
    op.set.name = "simulated";
    op.set.config = &next;
    apply(r, &op);
    assert(op.status == STATUS_OK); /* the levels are the same by name */
    r->queue = op.queue;
    policy_init(&r->policy, &r->queue->config);
    struct capacity capacity = capacity_of(r->workload);
    bounder_init(&r->bounder, &r->queue->config, &capacity);
    memset(r->ahead, 0, sizeof(r->ahead));
}

/* Arriving */

static uint64_t ready_at(const struct run *r, int rank)
{
    return r->queue->view.lanes[r->queue->config.levels[rank].slot].ready;
}

/* How many messages of less urgent levels may overtake one that arrives now at `rank`, by aging.
 * None when it is sure to be claimed before the first of them has aged so far. */
static uint64_t may_overtake(const struct run *r, int rank)
{
    const struct queue_config *config = &r->queue->config;
    int64_t within_ms = bounder_ms(&r->bounder, rank, rank, ready_at(r, rank)), age_ms = 0;
    uint64_t sum = 0;
    bool any = false;
    for (int from = rank + 1; from <= bounds_feeder(config, rank); from++) {
        const struct lane_view *lane = &r->queue->view.lanes[config->levels[from].slot];
        int64_t waited_ms = lane->ready > 0 ? now_of(r).wall_ms - lane->head_ms : 0;
        age_ms += config->levels[from].age_ms;
        any = any || within_ms == BOUND_NONE || waited_ms + within_ms >= age_ms;
        sum += lane->ready;
    }
    return any ? sum : 0;
}

/* Counts how many stand before a message that arrives now, for each level that it may come to count
 * as. */
static void count_ahead(struct run *r, int rank)
{
    const struct queue_config *config = &r->queue->config;
    uint64_t sum = ready_at(r, rank), *most = r->ahead[rank];
    uint64_t own = sum + may_overtake(r, rank);
    most[rank] = own > most[rank] ? own : most[rank];
    for (int from = rank + 1; from <= bounds_feeder(config, rank); from++)
        sum += ready_at(r, from);
    for (int to = rank; to > 0 && config->levels[to].age_ms > 0; to--) {
        sum += ready_at(r, to - 1);
        most[to - 1] = sum > most[to - 1] ? sum : most[to - 1];
    }
}

static void arrive(struct run *r, struct inflow *s)
{
    struct put_item item = {
        .draft = {.body = mem_dup("", 0),
                  .priority = {.kind = PRIORITY_NAME},
                  .ready_ms = READY_NOW,
                  .ttl_ms = TTL_DEFAULT},
    };
    memcpy(item.draft.priority.name, s->seen->name, sizeof(s->seen->name));
    count_ahead(r, levels_rank_of_slot(&r->queue->config, s->slot));
    struct engine_op op = {.verb = ENGINE_PUT, .queue = r->queue};
    op.put.items = &item;
    op.put.count = 1;
    apply(r, &op);
    s->seen->arrived++;
    r->out->arrived++;
    if (item.status != STATUS_OK) {
        assert(item.status == STATUS_QUEUE_FULL);
        draft_fini(&item.draft);
        s->seen->refused++;
    }
}

/* Working */

static void work_on(struct run *r, struct consumer *c)
{
    int64_t service_us = r->streams[c->ranks[c->at]].tide.arrivals->service_us;
    c->node.key = r->now_us + service_us;
    r->busy_us += service_us;
    order_insert(&r->busy, &c->node);
}

static void claimed(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                    struct instant now)
{
    struct run *r = op->user;
    struct consumer *c = r->claiming;
    uint8_t rank = r->rank_of_slot[m->slot];
    struct inflow *s = &r->streams[rank];
    int present = levels_rank_of_slot(&q->config, m->slot);
    struct settle_item *item = &c->items[c->count];
    uint64_t wait_ms = (uint64_t)(now.wall_ms - m->ready_ms);
    c->ranks[c->count++] = rank;
    *item = (struct settle_item){.id = message_identity(m, q->id)};
    memcpy(item->receipt, m->delivery->receipt, sizeof(item->receipt));
    hist_add(&s->seen->waits, wait_ms);
    hist_add(&s->span, wait_ms);
    s->seen->claimed++;
    s->seen->aged += age_effective_rank(&q->config, present, m->ready_ms, now.wall_ms) < present;
    s->seen->late += age_late(&q->config, present, m->ready_ms, now.wall_ms);
    r->out->claimed++;
}

/* Idle consumers claim, as long as there is something to claim. */
static void serve(struct run *r)
{
    const struct queue_config *config = &r->queue->config;
    while (r->idle_count > 0 && r->queue->view.ready > 0 && !config->paused) {
        struct consumer *c = r->idle[r->idle_count - 1];
        policy_plan(&r->policy, config, &r->queue->view, config->level_count - 1,
                    r->workload->claim_max, now_of(r).wall_ms, &r->plan);
        if (r->plan.step_count == 0)
            return;
        struct engine_op op = {.verb = ENGINE_CLAIM, .queue = r->queue, .visit = claimed};
        op.claim.plan = &r->plan;
        op.claim.lease_ms = LEASE_MS;
        r->claiming = c;
        c->count = c->at = 0;
        apply(r, &op);
        if (c->count == 0)
            return; /* all that seemed ready had expired */
        r->idle_count--;
        work_on(r, c);
    }
}

static void finish_one(struct run *r, struct consumer *c)
{
    order_remove(&r->busy, &c->node);
    struct engine_op op = {.verb = ENGINE_ACK, .queue = r->queue};
    op.settle.items = &c->items[c->at];
    op.settle.count = 1;
    apply(r, &op);
    assert(c->items[c->at].status == STATUS_OK);
    r->streams[c->ranks[c->at]].seen->done++;
    r->out->done++;
    if (++c->at < c->count)
        work_on(r, c);
    else
        r->idle[r->idle_count++] = c;
}

/* Time */

static int64_t span_end_us(const struct run *r)
{
    return r->workload->duration_us * (r->span + 1) / SIMULATION_POINTS;
}

/* How long the head of a level has waited at `at_us`; -1 when nobody waits. */
static int64_t head_wait_ms(const struct run *r, const struct inflow *s, int64_t at_us)
{
    const struct lane_view *lane = &r->queue->view.lanes[s->slot];
    return lane->ready > 0 ? EPOCH_MS + at_us / 1000 - lane->head_ms : -1;
}

static void close_span(struct run *r)
{
    for (int rank = 0; rank < r->out->level_count; rank++) {
        struct inflow *s = &r->streams[rank];
        struct simulation_point *p = &s->seen->points[r->span];
        int64_t head_ms = head_wait_ms(r, s, span_end_us(r));
        if (s->span.count > 0) {
            p->p50_ms = (int64_t)hist_quantile(&s->span, 0.5);
            p->longest_ms = (int64_t)s->span.max;
            s->span = (struct hist){0};
        }
        if (head_ms > p->longest_ms)
            p->longest_ms = head_ms;
    }
    r->span++;
}

static struct inflow *next_stream(struct run *r)
{
    struct inflow *next = NULL;
    for (int rank = 0; rank < r->out->level_count; rank++) {
        struct inflow *s = &r->streams[rank];
        if (s->tide.next_us != TIDE_NEVER && (!next || s->tide.next_us < next->tide.next_us))
            next = s;
    }
    return next;
}

static void pass_time(struct run *r, int64_t at_us)
{
    while (r->span < SIMULATION_POINTS && span_end_us(r) <= at_us)
        close_span(r);
    r->now_us = at_us;
    sweep(r);
}

/* The next thing that happens: at the same time work ends first, then the configuration changes,
 * then something arrives. False when nothing happens before the end. */
static bool step(struct run *r)
{
    const struct workload *w = r->workload;
    struct order_node *first = order_first(&r->busy);
    struct inflow *s = next_stream(r);
    bool changes = r->next_change < w->change_count;
    int64_t done_us = first ? first->key : TIDE_NEVER,
            arrives_us = s ? s->tide.next_us : TIDE_NEVER,
            change_us = changes ? w->changes[r->next_change].at_us : TIDE_NEVER;
    int64_t at_us = done_us < change_us ? done_us : change_us;
    at_us = at_us < arrives_us ? at_us : arrives_us;
    if (at_us >= w->duration_us)
        return false;
    pass_time(r, at_us);
    if (at_us == done_us) {
        finish_one(r, container_of(first, struct consumer, node));
    } else if (at_us == change_us) {
        configure(r, &w->changes[r->next_change++].queue);
    } else {
        arrive(r, s);
        tide_advance(&s->tide, w->duration_us);
    }
    serve(r);
    return true;
}

/* Start and end */

static void open_engine(struct run *r)
{
    struct engine_options options = {.now = {.wall_ms = EPOCH_MS}};
    struct buf error = {0};
    enum status status = memory_kind.open(&options, 1, &r->engine, &error);
    assert(status == STATUS_OK);
    configure(r, &r->workload->queue);
}

static void hire(struct run *r)
{
    uint32_t count = r->workload->consumers, batch = r->workload->claim_max;
    order_init(&r->busy);
    r->consumers = mem_alloc(count * sizeof(*r->consumers));
    r->idle = mem_alloc(count * sizeof(struct consumer *));
    for (uint32_t i = 0; i < count; i++) {
        struct consumer *c = mem_zalloc(sizeof(*c) + order_node_extra(i));
        c->node.tie = i;
        c->items = mem_alloc(batch * sizeof(*c->items));
        c->ranks = mem_alloc(batch);
        r->consumers[i] = r->idle[i] = c;
    }
    r->idle_count = count;
}

static void dismiss(struct run *r)
{
    for (uint32_t i = 0; i < r->workload->consumers; i++) {
        struct consumer *c = r->consumers[i];
        if (c->node.height > 0)
            order_remove(&r->busy, &c->node);
        free(c->items);
        free(c->ranks);
        free(c);
    }
    free(r->consumers);
    free(r->idle);
    order_fini(&r->busy);
}

static void open_streams(struct run *r)
{
    const struct workload *w = r->workload;
    for (int rank = 0; rank < r->out->level_count; rank++) {
        struct inflow *s = &r->streams[rank];
        const struct level *level = &r->queue->config.levels[rank];
        *s = (struct inflow){
            .tide = {.arrivals = &w->arrivals[rank], .chance = w->seed * 0x100 + (uint64_t)rank},
            .seen = &r->out->levels[rank],
            .slot = level->slot};
        memcpy(s->seen->name, level->name, sizeof(s->seen->name));
        for (int i = 0; i < SIMULATION_POINTS; i++)
            s->seen->points[i] = (struct simulation_point){-1, -1};
        r->rank_of_slot[level->slot] = (uint8_t)rank;
        tide_advance(&s->tide, w->duration_us);
    }
    for (int rank = 0; rank < r->out->level_count; rank++) {
        for (uint64_t i = 0; i < w->arrivals[rank].backlog; i++)
            arrive(r, &r->streams[rank]);
    }
}

static void report(struct run *r)
{
    struct simulation *out = r->out;
    for (int rank = 0; rank < out->level_count; rank++) {
        struct inflow *s = &r->streams[rank];
        int64_t head_ms = head_wait_ms(r, s, r->now_us);
        s->seen->waiting = r->queue->view.lanes[s->slot].ready;
        s->seen->longest_waits = head_ms > (int64_t)s->seen->waits.max;
        s->seen->longest_ms = s->seen->longest_waits ? head_ms : (int64_t)s->seen->waits.max;
    }
    for (const struct order_node *n = order_first(&r->busy); n; n = order_next(&r->busy, n))
        r->busy_us -= n->key > r->now_us ? n->key - r->now_us : 0;
    out->ended_us = r->now_us;
    out->busy = r->now_us > 0 ? (double)r->busy_us / (double)r->now_us / r->workload->consumers : 0;
    out->expired = r->queue->view.totals.expired;
    out->queue = r->queue->config;
    bounds_compute(&r->bounder, r->ahead, &out->bounds);
}

bool simulate(const struct workload *w, struct simulation *out, simulation_progress *progress,
              void *ctx)
{
    struct run *r = mem_zalloc(sizeof(*r));
    memset(out, 0, sizeof(*out));
    out->level_count = w->queue.level_count;
    r->workload = w;
    r->out = out;
    open_engine(r);
    hire(r);
    open_streams(r);
    serve(r);
    bool within = r->queue->view.ready <= SIMULATION_WAITING_MAX;
    for (uint64_t events = 0; within && step(r); events++) {
        within = r->queue->view.ready <= SIMULATION_WAITING_MAX;
        if (progress && events % PROGRESS_EVERY == 0)
            progress(ctx, r->now_us, out->arrived);
    }
    if (within)
        pass_time(r, w->duration_us);
    report(r);
    dismiss(r);
    engine_close(&r->engine, 1);
    free(r);
    return within;
}
