#include "simulate/fleet.h"

#include "base/mem.h"
#include "core/age.h"
#include "engine/cells/cells.h"
#include "simulate/ledger.h"
#include "simulate/tide.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEASE_MS       (TIME_MS_MAX / 2)
#define TURN_US        100    /* a server's loop turns so often at most */
#define RETRY_US       100000 /* a client that was refused tries again */
#define SWEEP_PORTION  1000
#define PROGRESS_EVERY 65536 /* events */
#define REBUILD_EACH   4     /* messages in each cell whose heads are rebuilt */

struct fleet;

/* A server. */
struct fleet_host {
    struct fleet *fleet;
    struct engine *engine; /* owned: cells */
    struct engine_queue *queue;
    struct policy policy;
    struct fleet_consumer *waiting, **waiting_last; /* first come, first served */
    uint32_t waiting_count;
    bool dirty; /* something may be ready for those who wait */
    bool sweeping;
    struct engine_op sweep;
    bool turn_planned;
    int64_t turn_us;  /* the last turn */
    int64_t timer_us; /* a turn is planned for then; in the past: none is */
    bool measured;
    int64_t cpu_ns; /* in the engine, if that is measured */
};

struct fleet_consumer {
    struct fleet_host *host;
    struct fleet_consumer *next; /* that waits */
    struct engine_op op;
    struct plan *plan; /* of a claim under way */
    int64_t began_us;
    uint32_t count, at; /* messages claimed; which of them it works on */
    struct fleet_claimed {
        struct settle_item item;
        uint32_t number;
        uint8_t rank, counts_as;
    } * claimed; /* owned */
};

/* An enqueue under way. */
struct fleet_put {
    struct engine_op op;
    struct put_item item;
    struct fleet_host *host;
    uint32_t number;
    uint8_t rank;
};

struct fleet_stream {
    struct fleet *fleet;
    struct tide tide;
    struct simulation_level *seen;
    struct hist span;
    uint8_t slot;
};

struct fleet_outage {
    struct fleet *fleet;
    const struct fleet_failure *failure;
};

struct fleet {
    const struct fleet_terms *terms;
    struct fleet_result *out;
    struct agenda agenda;
    struct depot *depots;     /* owned */
    struct fleet_host *hosts; /* owned */
    uint32_t host_count;
    struct fleet_consumer *consumers; /* owned */
    uint32_t consumer_count;
    struct fleet_stream streams[LEVEL_COUNT_MAX];
    uint8_t rank_of_slot[LEVEL_COUNT_MAX];
    struct ledger ledger;
    struct fleet_outage outages[FLEET_FAILURES_MAX];
    uint32_t away; /* cells */
    bool failed;   /* some cell was away */
    bool *fails;   /* owned; by cell: it does, at some time */
    uint64_t chance;
    uint32_t next_host; /* for the next message */
    int64_t start_us, end_us;
    int64_t claim_us; /* when a claim last found something */
    uint64_t done_before;
    int64_t busy_us;
    int span;
    bool over; /* nobody begins anything any more */
};

static struct instant now_of(const struct fleet *f)
{
    int64_t us = f->agenda.now_us;
    return (struct instant){.wall_ms = FLEET_EPOCH_MS + us / 1000, .mono_ms = us / 1000};
}

static struct fleet_period *period_of(struct fleet *f)
{
    return &f->out->periods[f->away > 0 ? FLEET_AWAY : f->failed ? FLEET_AFTER : FLEET_BEFORE];
}

/* Servers */

static int64_t cpu_ns(const struct fleet_host *h)
{
    struct timespec t;
    if (!h->measured)
        return 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void host_turn(void *ctx);

static void host_wake(void *ctx, uint32_t shard)
{
    struct fleet_host *h = ctx;
    int64_t now = h->fleet->agenda.now_us, at = h->turn_us + TURN_US;
    (void)shard;
    if (h->turn_planned)
        return;
    h->turn_planned = true;
    agenda_plan(&h->fleet->agenda, at > now ? at : now, host_turn, h);
}

static void host_submit(struct fleet_host *h, struct engine_op *op)
{
    int64_t before = cpu_ns(h);
    engine_submit(h->engine, op, now_of(h->fleet));
    h->cpu_ns += cpu_ns(h) - before;
    host_wake(h, 0);
}

static void swept(struct engine_op *op)
{
    struct fleet_host *h = op->user;
    h->sweeping = false;
}

static void touched(struct engine_op *op, struct engine_queue *q)
{
    struct fleet_host *h = op->user;
    (void)q;
    h->dirty = true;
}

static void sweep(struct fleet_host *h)
{
    h->sweeping = true;
    h->sweep = (struct engine_op){.verb = ENGINE_SWEEP, .done = swept, .user = h};
    h->sweep.sweep.max = SWEEP_PORTION;
    h->sweep.sweep.touched = touched;
    host_submit(h, &h->sweep);
}

static void host_timer(void *ctx)
{
    host_wake(ctx, 0);
}

static void pass_time(struct fleet_host *h)
{
    struct fleet *f = h->fleet;
    int64_t due_ms = engine_next_due_ms(h->engine, now_of(f)), now = f->agenda.now_us;
    if (f->over)
        return;
    if (due_ms == 0 && !h->sweeping) {
        sweep(h);
    } else if (due_ms > 0 && due_ms < INT64_MAX / 2000) {
        int64_t at = now + due_ms * 1000;
        if (h->timer_us > now && h->timer_us <= at)
            return;
        h->timer_us = at;
        agenda_plan(&f->agenda, at, host_timer, h);
    }
}

static void serve(struct fleet_host *h);

static void host_turn(void *ctx)
{
    struct fleet_host *h = ctx;
    h->turn_planned = false;
    h->turn_us = h->fleet->agenda.now_us;
    int64_t before = cpu_ns(h);
    uint32_t heard = engine_poll(h->engine);
    h->cpu_ns += cpu_ns(h) - before;
    if (h->dirty)
        serve(h);
    pass_time(h);
    before = cpu_ns(h);
    engine_flush(h->engine);
    h->cpu_ns += cpu_ns(h) - before;
    if (heard > 0 || h->dirty)
        host_wake(h, 0);
}

/* Enqueues */

static void produce(struct fleet_host *h);

static void produce_later(void *ctx)
{
    struct fleet_host *h = ctx;
    if (!h->fleet->over)
        produce(h);
}

static void put_done(struct engine_op *op)
{
    struct fleet_put *p = op->user;
    struct fleet_host *h = p->host;
    struct fleet *f = h->fleet;
    bool ok = !op->status && !p->item.status;
    draft_fini(&p->item.draft);
    if (ok) {
        ledger_ready(&f->ledger, p->number, p->item.partition, f->agenda.now_us);
        h->dirty = true;
    } else {
        f->streams[p->rank].seen->refused++;
        period_of(f)->refused++;
    }
    free(p);
    if (f->terms->full && !f->over)
        agenda_plan(&f->agenda, f->agenda.now_us + (ok ? 0 : RETRY_US), produce_later, h);
}

static void put(struct fleet_host *h, int rank)
{
    struct fleet *f = h->fleet;
    struct simulation_level *seen = f->streams[rank].seen;
    struct fleet_put *p = mem_zalloc(sizeof(*p));
    p->host = h;
    p->rank = (uint8_t)rank;
    p->number = ledger_begin(&f->ledger, (uint8_t)rank, f->agenda.now_us);
    p->item.draft = (struct draft){.body = mem_dup(&p->number, sizeof(p->number)),
                                   .payload_len = sizeof(p->number),
                                   .kind = PAYLOAD_BYTES,
                                   .priority = {.kind = PRIORITY_NAME},
                                   .ready_ms = READY_NOW,
                                   .ttl_ms = TTL_DEFAULT};
    memcpy(p->item.draft.priority.name, seen->name, sizeof(seen->name));
    p->op = (struct engine_op){.verb = ENGINE_PUT, .queue = h->queue, .done = put_done, .user = p};
    p->op.put.items = &p->item;
    p->op.put.count = 1;
    seen->arrived++;
    f->out->sim.arrived++;
    host_submit(h, &p->op);
}

/* A level by chance, as often as the workload has messages of it. */
static int chosen_rank(struct fleet *f)
{
    const struct workload *w = f->terms->workload;
    double all = 0, at;
    int rank = 0;
    for (int i = 0; i < w->queue.level_count; i++)
        all += w->arrivals[i].given ? w->arrivals[i].per_second : 0;
    at = chance_share(&f->chance) * all;
    for (; rank + 1 < w->queue.level_count; rank++) {
        double one = w->arrivals[rank].given ? w->arrivals[rank].per_second : 0;
        if (at < one)
            break;
        at -= one;
    }
    return rank;
}

static void produce(struct fleet_host *h)
{
    put(h, chosen_rank(h->fleet));
}

static struct fleet_host *any_host(struct fleet *f)
{
    f->next_host = (f->next_host + 1) % f->host_count;
    return &f->hosts[f->next_host];
}

static void arrive(void *ctx)
{
    struct fleet_stream *s = ctx;
    struct fleet *f = s->fleet;
    if (f->over)
        return;
    put(any_host(f), (int)(s - f->streams));
    tide_advance(&s->tide, f->terms->duration_us);
    if (s->tide.next_us < f->terms->duration_us)
        agenda_plan(&f->agenda, f->start_us + s->tide.next_us, arrive, s);
}

/* Consumers */

static void ask(struct fleet_consumer *c);

static void acknowledge(void *ctx);
static void work_on(struct fleet_consumer *c);

static void ack_done(struct engine_op *op)
{
    struct fleet_consumer *c = op->user;
    struct fleet *f = c->host->fleet;
    struct fleet_claimed *m = &c->claimed[c->at];
    if (op->status == STATUS_ENGINE_UNAVAILABLE ||
        (!op->status && m->item.status == STATUS_ENGINE_UNAVAILABLE)) {
        period_of(f)->retried++;
        agenda_plan(&f->agenda, f->agenda.now_us + RETRY_US, acknowledge, c);
        return;
    }
    f->streams[m->rank].seen->done++;
    f->out->sim.done++;
    if (++c->at == c->count)
        ask(c);
    else
        work_on(c);
}

static void acknowledge(void *ctx)
{
    struct fleet_consumer *c = ctx;
    if (c->host->fleet->over)
        return;
    c->op = (struct engine_op){
        .verb = ENGINE_ACK, .queue = c->host->queue, .done = ack_done, .user = c};
    c->op.settle.items = &c->claimed[c->at].item;
    c->op.settle.count = 1;
    host_submit(c->host, &c->op);
}

/* The consumer works on its next message, and acknowledges it. */
static void work_on(struct fleet_consumer *c)
{
    struct fleet *f = c->host->fleet;
    const struct arrivals *a = &f->terms->workload->arrivals[c->claimed[c->at].rank];
    int64_t for_us = f->terms->full ? 0 : a->service_us;
    f->busy_us += for_us;
    agenda_plan(&f->agenda, f->agenda.now_us + for_us, acknowledge, c);
}

static void note_wait(struct fleet *f, const struct fleet_claimed *m)
{
    const struct ledger_message *known = &f->ledger.messages[m->number];
    struct fleet_stream *s = &f->streams[m->rank];
    uint64_t ms = (uint64_t)(f->agenda.now_us - known->put_us) / 1000;
    struct fleet_period *p = period_of(f);
    hist_add(&s->seen->waits, ms);
    hist_add(&s->span, ms);
    hist_add(f->fails[known->cell] ? &p->own_ms : &p->others_ms, ms);
    s->seen->claimed++;
    s->seen->aged += m->counts_as < m->rank;
    f->out->sim.claimed++;
}

static void note_claim(struct fleet_consumer *c)
{
    struct fleet *f = c->host->fleet;
    struct fleet_period *p = period_of(f);
    int64_t pause = f->agenda.now_us - f->claim_us;
    p->pause_us = pause > p->pause_us ? pause : p->pause_us;
    f->claim_us = f->agenda.now_us;
    for (uint32_t i = 0; i < c->count; i++) {
        const struct fleet_claimed *m = &c->claimed[i];
        ledger_taken(&f->ledger, m->number, m->counts_as, c->began_us, f->agenda.now_us);
        note_wait(f, m);
    }
}

static void park(struct fleet_consumer *c)
{
    struct fleet_host *h = c->host;
    c->next = NULL;
    *h->waiting_last = c;
    h->waiting_last = &c->next;
    h->queue->waiting = ++h->waiting_count;
}

static void claim_done(struct engine_op *op)
{
    struct fleet_consumer *c = op->user;
    struct fleet_host *h = c->host;
    assert(op->status || op->claim.found == c->count);
    free(c->plan);
    c->plan = NULL;
    if (h->fleet->over)
        return;
    if (c->count > 0) {
        note_claim(c);
        work_on(c);
        return;
    }
    park(c);
    h->dirty = h->dirty || !op->status;
}

static void claimed(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                    struct instant now)
{
    struct fleet_consumer *c = op->user;
    struct fleet *f = c->host->fleet;
    struct fleet_claimed *to = &c->claimed[c->count++];
    assert(c->count <= f->terms->workload->claim_max);
    *to = (struct fleet_claimed){.item = {.id = message_identity(m, q->id)},
                                 .rank = f->rank_of_slot[m->slot]};
    memcpy(to->item.receipt, m->delivery->receipt, RECEIPT_BYTES);
    memcpy(&to->number, m->body, sizeof(to->number));
    to->counts_as = (uint8_t)age_effective_rank(&q->config, to->rank, m->ready_ms, now.wall_ms);
}

static void claim(struct fleet_consumer *c)
{
    struct fleet_host *h = c->host;
    const struct workload *w = h->fleet->terms->workload;
    c->plan = mem_alloc(sizeof(*c->plan));
    policy_plan(&h->policy, &h->queue->config, NULL, w->queue.level_count - 1, w->claim_max,
                now_of(h->fleet).wall_ms, c->plan);
    assert(c->plan->step_count > 0); /* without a view nothing is left out */
    c->count = c->at = 0;
    c->began_us = h->fleet->agenda.now_us;
    c->op = (struct engine_op){
        .verb = ENGINE_CLAIM, .queue = h->queue, .visit = claimed, .done = claim_done, .user = c};
    c->op.claim.plan = c->plan;
    c->op.claim.lease_ms = LEASE_MS;
    host_submit(h, &c->op);
}

static struct fleet_consumer *unpark_first(struct fleet_host *h)
{
    struct fleet_consumer *c = h->waiting;
    h->waiting = c->next;
    if (!h->waiting)
        h->waiting_last = &h->waiting;
    h->queue->waiting = --h->waiting_count;
    return c;
}

static void serve(struct fleet_host *h)
{
    h->dirty = false;
    while (h->waiting_count > 0 && h->queue->view.ready > 0 && !h->fleet->over)
        claim(unpark_first(h));
}

/* The consumer is served, or it waits in line. The first in line asks although nothing is known to
 * be ready. */
static void ask(struct fleet_consumer *c)
{
    struct fleet_host *h = c->host;
    if (h->fleet->over)
        return;
    park(c);
    serve(h);
    if (h->waiting_count == 1)
        claim(unpark_first(h));
}

/* Cells that fail */

static void come_back(void *ctx)
{
    struct fleet_outage *o = ctx;
    struct fleet *f = o->fleet;
    f->away--;
    ledger_cell(&f->ledger, o->failure->cell, true, f->agenda.now_us);
}

static void go_away(void *ctx)
{
    struct fleet_outage *o = ctx;
    struct fleet *f = o->fleet;
    int64_t until = f->agenda.now_us + o->failure->for_us;
    f->away++;
    f->failed = true;
    ledger_cell(&f->ledger, o->failure->cell, false, f->agenda.now_us);
    depot_leave(&f->depots[o->failure->cell], until);
    agenda_plan(&f->agenda, until, come_back, o);
}

static void plan_failures(struct fleet *f)
{
    for (uint32_t i = 0; i < f->terms->failure_count; i++) {
        const struct fleet_failure *failure = &f->terms->failures[i];
        f->outages[i] = (struct fleet_outage){f, failure};
        f->fails[failure->cell] = true;
        agenda_plan(&f->agenda, f->start_us + failure->at_us, go_away, &f->outages[i]);
    }
}

/* Spans of time, for the drawing */

static void close_span(void *ctx)
{
    struct fleet *f = ctx;
    for (int rank = 0; rank < f->out->sim.level_count; rank++) {
        struct fleet_stream *s = &f->streams[rank];
        struct simulation_point *p = &s->seen->points[f->span];
        if (s->span.count == 0)
            continue;
        p->p50_ms = (int64_t)hist_quantile(&s->span, 0.5);
        p->longest_ms = (int64_t)s->span.max;
        s->span = (struct hist){0};
    }
    if (++f->span < SIMULATION_POINTS)
        agenda_plan(&f->agenda,
                    f->start_us + f->terms->duration_us * (f->span + 1) / SIMULATION_POINTS,
                    close_span, f);
}

static void warmed_up(void *ctx)
{
    struct fleet *f = ctx;
    f->done_before = f->out->sim.done;
}

/* Start */

static void answered(struct engine_op *op)
{
    *(bool *)op->user = true;
}

/* An op by itself, and all that happens until it is answered. */
static void run_op(struct fleet_host *h, struct engine_op *op)
{
    bool over = false;
    op->done = answered;
    op->user = &over;
    host_submit(h, op);
    while (!over) {
        bool goes_on = agenda_step(&h->fleet->agenda, INT64_MAX);
        assert(goes_on);
        (void)goes_on;
    }
    assert(op->status == STATUS_OK);
}

static void open_queue(struct fleet_host *h, bool makes)
{
    struct queue_config config = h->fleet->terms->workload->queue;
    struct engine_op op = {.verb = makes ? ENGINE_QUEUE_SET : ENGINE_QUEUE_OPEN};
    if (makes) {
        op.set.name = "simulated";
        op.set.config = &config;
    } else {
        op.open.name = "simulated";
    }
    run_op(h, &op);
    h->queue = op.queue;
    h->queue->user = h;
    policy_init(&h->policy, &h->queue->config);
}

static void host_open(struct fleet *f, struct fleet_host *h)
{
    struct engine **cells = mem_alloc(f->terms->cells * sizeof(struct engine *));
    struct engine_options options = {.now = now_of(f), .wake = host_wake, .wake_ctx = h};
    *h = (struct fleet_host){.fleet = f};
    h->waiting_last = &h->waiting;
    for (uint32_t i = 0; i < f->terms->cells; i++)
        cells[i] = depot_open(&f->depots[i], host_wake, h);
    h->engine = cells_over(cells, f->terms->cells, &options);
    free(cells);
}

static void open_streams(struct fleet *f)
{
    struct simulation *sim = &f->out->sim;
    const struct queue_config *config = &f->hosts[0].queue->config;
    sim->level_count = config->level_count;
    for (int rank = 0; rank < config->level_count; rank++) {
        struct fleet_stream *s = &f->streams[rank];
        const struct level *level = &config->levels[rank];
        *s = (struct fleet_stream){.fleet = f,
                                   .tide = {.arrivals = &f->terms->workload->arrivals[rank],
                                            .chance = f->terms->seed * 0x100 + (uint64_t)rank},
                                   .seen = &sim->levels[rank],
                                   .slot = level->slot};
        memcpy(s->seen->name, level->name, sizeof(s->seen->name));
        for (int i = 0; i < SIMULATION_POINTS; i++)
            s->seen->points[i] = (struct simulation_point){-1, -1};
        f->rank_of_slot[level->slot] = (uint8_t)rank;
    }
}

static void fleet_open(struct fleet *f, const struct fleet_terms *terms, struct fleet_result *out)
{
    f->terms = terms;
    f->out = out;
    f->chance = terms->seed;
    f->depots = mem_zalloc(terms->cells * sizeof(f->depots[0]));
    f->hosts = mem_zalloc((terms->servers + 1) * sizeof(f->hosts[0]));
    f->fails = mem_zalloc(terms->cells * sizeof(f->fails[0]));
    for (uint32_t i = 0; i < terms->cells; i++)
        depot_init(&f->depots[i], &f->agenda, &terms->depot, i, terms->seed);
    ledger_init(&f->ledger, terms->cells);
    for (; f->host_count < terms->servers; f->host_count++)
        host_open(f, &f->hosts[f->host_count]);
    for (uint32_t i = 0; i < terms->servers; i++)
        open_queue(&f->hosts[i], i == 0);
    open_streams(f);
    for (uint32_t i = 0; i < terms->cells; i++)
        f->depots[i].busy_us = 0; /* making and opening the queue is no part of the run */
    f->start_us = f->claim_us = f->agenda.now_us;
    f->end_us = f->start_us + terms->duration_us;
}

static void hire(struct fleet *f)
{
    uint32_t batch = f->terms->workload->claim_max;
    f->consumer_count = f->terms->consumers;
    f->consumers = mem_zalloc(f->consumer_count * sizeof(f->consumers[0]));
    for (uint32_t i = 0; i < f->consumer_count; i++) {
        struct fleet_consumer *c = &f->consumers[i];
        c->host = &f->hosts[i % f->host_count];
        c->claimed = mem_alloc(batch * sizeof(c->claimed[0]));
    }
}

static void consume(void *ctx)
{
    struct fleet *f = ctx;
    for (uint32_t i = 0; i < f->consumer_count; i++)
        ask(&f->consumers[i]);
}

static void begin(struct fleet *f)
{
    int64_t first_us = f->terms->full ? f->terms->duration_us / 10 : 0;
    const struct workload *w = f->terms->workload;
    for (uint32_t i = 0; f->terms->full && i < f->consumer_count; i++)
        produce(&f->hosts[i % f->host_count]);
    for (int rank = 0; !f->terms->full && rank < w->queue.level_count; rank++) {
        struct fleet_stream *s = &f->streams[rank];
        for (uint64_t i = 0; i < w->arrivals[rank].backlog; i++)
            put(any_host(f), rank);
        tide_advance(&s->tide, f->terms->duration_us);
        if (w->arrivals[rank].given && s->tide.next_us < f->terms->duration_us)
            agenda_plan(&f->agenda, f->start_us + s->tide.next_us, arrive, s);
    }
    agenda_plan(&f->agenda, f->start_us + first_us, consume, f);
    agenda_plan(&f->agenda, f->start_us + f->terms->duration_us / SIMULATION_POINTS, close_span, f);
    agenda_plan(&f->agenda, f->start_us + f->terms->duration_us / 5, warmed_up, f);
}

/* End */

/* Messages that still wait. */
static void count_waiting(struct fleet *f)
{
    for (uint32_t i = 0; i < f->ledger.count; i++) {
        const struct ledger_message *m = &f->ledger.messages[i];
        struct simulation_level *seen = &f->out->sim.levels[m->rank];
        int64_t ms = (f->end_us - m->put_us) / 1000;
        if (m->taken || m->ready_us < 0)
            continue;
        seen->waiting++;
        if (ms > seen->longest_ms) {
            seen->longest_ms = ms;
            seen->longest_waits = true;
        }
    }
}

static void report(struct fleet *f)
{
    struct fleet_result *out = f->out;
    double seconds = (double)f->terms->duration_us / 1e6;
    for (int rank = 0; rank < out->sim.level_count; rank++)
        out->sim.levels[rank].longest_ms = (int64_t)out->sim.levels[rank].waits.max;
    count_waiting(f);
    ledger_close(&f->ledger);
    out->passed_between = f->ledger.passed_between;
    out->passed_within = f->ledger.passed_within;
    out->between_us = f->ledger.between_us;
    out->within_us = f->ledger.within_us;
    out->per_second = (double)(out->sim.done - f->done_before) / (seconds * 0.8);
    out->sim.ended_us = f->terms->duration_us;
    out->sim.busy = (double)f->busy_us / (seconds * 1e6) / f->consumer_count;
    out->sim.queue = f->hosts[0].queue->config;
    for (uint32_t i = 0; i < f->terms->cells; i++) {
        out->cells_busy += (double)f->depots[i].busy_us / (seconds * 1e6) / f->terms->cells;
        out->groups += f->depots[i].groups;
    }
    for (uint32_t i = 0; i < f->host_count; i++) {
        const struct cells_counts counts = cells_counts(f->hosts[i].engine);
        out->looks += counts.looks;
        out->strays += counts.strays;
    }
}

/* Everything under way is answered, and nothing new is begun. */
static void fleet_close(struct fleet *f)
{
    f->over = true;
    while (agenda_step(&f->agenda, INT64_MAX))
        ;
    for (uint32_t i = 0; i < f->host_count; i++) {
        assert(f->hosts[i].engine->in_flight == 0);
        engine_close(&f->hosts[i].engine, 1);
    }
    for (uint32_t i = 0; i < f->terms->cells; i++)
        depot_fini(&f->depots[i]);
    for (uint32_t i = 0; i < f->consumer_count; i++)
        free(f->consumers[i].claimed);
    ledger_fini(&f->ledger);
    agenda_fini(&f->agenda);
    free(f->consumers);
    free(f->depots);
    free(f->hosts);
    free(f->fails);
    free(f);
}

void fleet_run(const struct fleet_terms *terms, struct fleet_result *out,
               simulation_progress *progress, void *ctx)
{
    struct fleet *f = mem_zalloc(sizeof(*f));
    memset(out, 0, sizeof(*out));
    fleet_open(f, terms, out);
    plan_failures(f);
    hire(f);
    begin(f);
    for (uint64_t events = 0; agenda_step(&f->agenda, f->end_us); events++) {
        if (progress && events % PROGRESS_EVERY == 0)
            progress(ctx, f->agenda.now_us - f->start_us, out->sim.arrived);
    }
    report(f);
    fleet_close(f);
}

int64_t fleet_rebuild_us(const struct fleet_terms *terms)
{
    struct fleet *f = mem_zalloc(sizeof(*f));
    struct fleet_result *out = mem_zalloc(sizeof(*out));
    struct fleet_terms one = *terms;
    one.servers = 1;
    one.failure_count = 0;
    one.full = false;
    fleet_open(f, &one, out);
    for (uint32_t i = 0; i < REBUILD_EACH * terms->cells; i++)
        put(&f->hosts[0], (int)(i % (uint32_t)out->sim.level_count));
    while (agenda_step(&f->agenda, f->start_us + 1000000))
        ;
    struct fleet_host *h = &f->hosts[f->host_count++];
    host_open(f, h);
    h->measured = true;
    open_queue(h, false);
    struct engine_op op = {.verb = ENGINE_COUNT, .queue = h->queue};
    run_op(h, &op);
    assert(h->queue->view.ready == REBUILD_EACH * terms->cells);
    int64_t us = h->cpu_ns / 1000;
    fleet_close(f);
    free(out);
    return us;
}
