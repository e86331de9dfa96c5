#include "simulate/depot.h"

#include "base/mem.h"
#include "engine/memory.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS    2     /* connections of a server, as postgres has */
#define SWEEP_MS 500   /* as postgres sweeps anyway */
#define VIEW_US  50000 /* how old a view may be that is only counted on */

/* The queue as one server knows it. */
struct depot_queue {
    struct engine_queue face;         /* first */
    struct queue_view seen;           /* what the answers said */
    struct queue_place *place;        /* owned: what face.place shows */
    int64_t read_us;                  /* when the store said it last */
    uint64_t taking[LEVEL_COUNT_MAX]; /* by claims under way, by slot … */
    uint64_t taking_anywhere;         /* … and by those whose level is decided there */
};

struct depot_client {
    struct engine base; /* first */
    struct depot *depot;
    struct depot_client *next; /* of the store */
    engine_wake *wake;
    void *wake_ctx;
    struct depot_queue *queue; /* owned, or NULL */
    struct engine_op *gathered, **gathered_last;
    uint32_t gathered_count, last_count; /* ops in the next group and in the last */
    struct depot_group *answered, **answered_last;
    int64_t sent_us, heard_us; /* nothing overtakes on a connection */
    bool waits;                /* as the store knows: consumers wait there */
    bool notified;             /* the store has told it, and was not asked since */
    bool told;
    int64_t swept_ms;
    uint32_t groups_under_way;
};

/* Ops on their way, there and back. */
struct depot_group {
    struct depot_client *client;
    struct engine_op *first;
    uint32_t count;
    bool waits;
    bool read; /* the view is in the answer */
    int64_t read_us;
    uint64_t next_seq;
    struct queue_view view;
    struct queue_place *place; /* owned: one that the server does not know; NULL: it knows it */
    struct depot_group *next;
};

/* What a claim needs on its way: op->engine. */
struct depot_claim {
    uint16_t from[LEVEL_COUNT_MAX];
    uint16_t anywhere;
    uint32_t shown_count;
    struct depot_shown {
        struct delivery delivery;
        char *body;             /* owned */
        struct message message; /* without links; it has the two above */
    } * shown;                  /* owned */
};

static const struct engine_ops client_ops;
static const struct engine_kind client_kind;

static struct depot_client *client_of(struct engine *e)
{
    assert(e->ops == &client_ops);
    return (struct depot_client *)e;
}

static struct instant now_at(const struct depot *d)
{
    int64_t us = d->agenda->now_us;
    return (struct instant){.wall_ms = d->terms->epoch_ms + (us + d->clock_us) / 1000,
                            .mono_ms = us / 1000};
}

static int64_t way_us(struct depot *d)
{
    return d->terms->delay_us + (int64_t)(chance_share(&d->chance) * (double)d->terms->jitter_us);
}

/* Views, as a server has them between two answers */

static void view_changed(struct depot_queue *q)
{
    struct queue_view *v = &q->face.view;
    *v = q->seen;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        struct lane_view *lane = &v->lanes[slot];
        uint64_t taken = q->taking[slot] < lane->ready ? q->taking[slot] : lane->ready;
        lane->ready -= taken;
        v->ready -= taken;
    }
    v->ready -= q->taking_anywhere < v->ready ? q->taking_anywhere : v->ready;
}

static void reserve_step(const struct depot_queue *q, const struct plan *plan,
                         const struct plan_step *step, struct depot_claim *c, uint32_t *left)
{
    uint32_t more = step->max;
    for (uint32_t k = 0; *left > 0 && more > 0 && k < step->lane_count; k++) {
        uint8_t slot = plan->lanes[step->first_lane + k].slot;
        uint64_t there = q->face.view.lanes[slot].ready - c->from[slot];
        uint32_t n = more < *left ? more : *left;
        n = there < n ? (uint32_t)there : n;
        c->from[slot] = (uint16_t)(c->from[slot] + n);
        *left -= n;
        more -= n;
    }
}

static void reserve(struct depot_queue *q, struct engine_op *op)
{
    const struct plan *plan = op->claim.plan;
    struct depot_claim *c = mem_zalloc(sizeof(*c));
    uint32_t left = plan->want;
    if (plan->policy) {
        c->anywhere = (uint16_t)left;
        left = 0;
    }
    for (uint32_t i = 0; left > 0 && i < plan->step_count; i++)
        reserve_step(q, plan, &plan->steps[i], c, &left);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        q->taking[slot] += c->from[slot];
    q->taking_anywhere += c->anywhere;
    op->engine = c;
    view_changed(q);
}

static void unreserve(struct depot_queue *q, struct engine_op *op)
{
    struct depot_claim *c = op->engine;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        q->taking[slot] -= c->from[slot];
    q->taking_anywhere -= c->anywhere;
    for (uint32_t i = 0; i < c->shown_count; i++)
        free(c->shown[i].body);
    free(c->shown);
    free(c);
    op->engine = NULL;
}

static void count_put(struct depot_queue *q, const struct engine_op *op)
{
    for (uint32_t i = 0; i < op->put.count; i++) {
        const struct put_item *item = &op->put.items[i];
        struct lane_view *lane = &q->seen.lanes[item->id.slot];
        if (item->status)
            continue;
        if (lane->ready == 0 || item->id.ready_ms < lane->head_ms) {
            lane->head_ms = item->id.ready_ms;
            lane->head_seq = 0;
        }
        lane->ready++;
        q->seen.ready++;
        q->seen.totals.enqueued++;
        if (item->id.seq >= q->face.next_seq)
            q->face.next_seq = item->id.seq + 1;
    }
}

static void count_claimed(struct depot_queue *q, uint8_t slot)
{
    struct lane_view *lane = &q->seen.lanes[slot];
    uint64_t known = lane->ready > 0;
    lane->ready -= known;
    q->seen.ready -= known;
    lane->leased++;
    q->seen.leased++;
    q->seen.totals.claimed++;
}

static void count_acked(struct depot_queue *q, const struct engine_op *op)
{
    for (uint32_t i = 0; i < op->settle.count; i++) {
        struct lane_view *lane = &q->seen.lanes[op->settle.items[i].id.slot];
        uint64_t known = !op->settle.items[i].status && lane->leased > 0;
        lane->leased -= known;
        q->seen.leased -= known;
        q->seen.totals.acked += known;
    }
}

/* What puts, claims and acks change is counted; others bring the view with them. */
static bool brings_view(const struct engine_op *op)
{
    return (op->verb != ENGINE_PUT && op->verb != ENGINE_CLAIM && op->verb != ENGINE_ACK) ||
           (op->verb == ENGINE_CLAIM && op->claim.found < op->claim.plan->want);
}

/* At the store */

static void nothing_done(struct engine_op *op)
{
    (void)op;
}

static void nothing_touched(struct engine_op *op, struct engine_queue *q)
{
    (void)op, (void)q;
}

/* Its server is shown the message when the answer is there. */
static void keep_shown(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                       struct instant now)
{
    struct depot_claim *c = ((struct engine_op *)op->user)->engine;
    (void)q, (void)now;
    c->shown = mem_realloc(c->shown, (c->shown_count + 1) * sizeof(c->shown[0]));
    struct depot_shown *s = &c->shown[c->shown_count++];
    s->message = *m;
    s->delivery = *m->delivery;
    s->body = mem_dup(m->body, m->payload_len);
}

/* Hands a copy of the op to the store, with the store's queue, and takes the answer from it. */
static void carry_out(struct depot *d, struct engine_op *op)
{
    struct engine_op inner = *op;
    inner.tag = 0;
    inner.queue = d->queue;
    inner.done = nothing_done;
    inner.visit = op->verb == ENGINE_CLAIM ? keep_shown : NULL;
    inner.user = op;
    if (op->verb == ENGINE_SWEEP) {
        inner.queue = NULL;
        inner.sweep.touched = nothing_touched;
        inner.sweep.due = NULL;
    }
    engine_submit(d->engine, &inner, now_at(d));
    engine_flush(d->engine);
    engine_poll(d->engine);
    struct engine_op mine = *op;
    *op = inner;
    op->tag = mine.tag;
    op->queue = mine.queue;
    op->done = mine.done;
    op->visit = mine.visit;
    op->user = mine.user;
    op->next = mine.next;
    op->engine = mine.engine;
    op->lot = mine.lot;
    op->version = mine.version;
    if (op->verb == ENGINE_SWEEP) {
        op->sweep.touched = mine.sweep.touched;
        op->sweep.due = mine.sweep.due;
        op->sweep.cursor = 0;
    }
    if (op->verb == ENGINE_QUEUE_SET && !op->status)
        d->queue = inner.queue;
}

static void apply_op(struct depot *d, struct engine_op *op)
{
    bool makes = op->verb == ENGINE_QUEUE_SET && !op->queue;
    op->status = STATUS_OK;
    if (op->verb == ENGINE_QUEUE_OPEN)
        op->status = d->queue ? STATUS_OK : STATUS_QUEUE_NOT_FOUND;
    else if (makes && d->queue)
        op->set.existed = true;
    else
        carry_out(d, op);
}

static void hear_news(void *ctx)
{
    struct depot_client *c = ctx;
    c->told = true;
    c->wake(c->wake_ctx, 0);
}

/* Other servers on which consumers wait learn that something is ready. */
static void notify(struct depot *d, const struct depot_client *from)
{
    for (struct depot_client *c = d->clients; c; c = c->next) {
        if (c == from || !c->waits || c->notified)
            continue;
        c->notified = true;
        agenda_plan(d->agenda, d->agenda->now_us + way_us(d), hear_news, c);
    }
}

static void hear_answer(void *ctx)
{
    struct depot_group *g = ctx;
    struct depot_client *c = g->client;
    g->next = NULL;
    *c->answered_last = g;
    c->answered_last = &g->next;
    c->wake(c->wake_ctx, 0);
}

static void answer(struct depot *d, struct depot_group *g)
{
    struct depot_client *c = g->client;
    int64_t at = d->agenda->now_us + way_us(d);
    c->heard_us = at > c->heard_us ? at : c->heard_us;
    agenda_plan(d->agenda, c->heard_us, hear_answer, g);
}

static int64_t price_us(const struct depot *d, const struct depot_group *g)
{
    int64_t items = 0;
    for (const struct engine_op *op = g->first; op; op = op->next) {
        bool many = op->verb == ENGINE_PUT || op->verb == ENGINE_ACK || op->verb == ENGINE_RELEASE;
        items += op->verb == ENGINE_PUT ? op->put.count : many ? op->settle.count : 1;
        items += op->verb == ENGINE_CLAIM ? op->claim.plan->want - 1 : 0;
    }
    return d->terms->group_us + items * d->terms->operation_us;
}

static void group_done(void *ctx);

static void line_up(struct depot *d, struct depot_group *g)
{
    int64_t now = d->agenda->now_us, from = d->free_us > now ? d->free_us : now;
    int64_t price = price_us(d, g);
    from = d->back_us > from ? d->back_us : from;
    d->free_us = from + price;
    agenda_plan(d->agenda, d->free_us, group_done, g);
}

/* What the store knows and the server does not. */
static struct queue_place *newer_place(const struct engine_queue *q,
                                       const struct depot_queue *known)
{
    const struct queue_place *p = q ? q->place : NULL;
    bool newer = p && (!known || !known->place || known->place->epoch < p->epoch);
    return newer ? queue_place_new(p->epoch, p->closed, p->map, p->map_len) : NULL;
}

/* The group is committed: this is the moment in which it takes effect. */
static void group_done(void *ctx)
{
    struct depot_group *g = ctx;
    struct depot *d = g->client->depot;
    bool puts = false, read = false;
    if (d->back_us > d->agenda->now_us) { /* it went away meanwhile */
        line_up(d, g);
        return;
    }
    d->groups++;
    d->busy_us += price_us(d, g);
    for (struct engine_op *op = g->first; op; op = op->next) {
        apply_op(d, op);
        puts = puts || op->verb == ENGINE_PUT || op->verb == ENGINE_RELEASE;
        read = read || brings_view(op);
    }
    g->client->waits = g->waits;
    g->client->notified = false;
    const struct depot_queue *known = g->client->queue;
    g->read = d->queue && (read || !known || d->agenda->now_us - known->read_us >= VIEW_US);
    if (g->read) {
        g->view = d->queue->view;
        g->next_seq = d->queue->next_seq;
        g->read_us = d->agenda->now_us;
    }
    g->place = newer_place(d->queue, known);
    if (puts)
        notify(d, g->client);
    answer(d, g);
}

static void arrive_there(void *ctx)
{
    struct depot_group *g = ctx;
    line_up(g->client->depot, g);
}

/* The engine of one server */

static void client_submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct depot_client *c = client_of(e);
    (void)now;
    op->engine = NULL;
    if (op->verb == ENGINE_CLAIM)
        reserve(c->queue, op);
    if (op->verb == ENGINE_SWEEP)
        c->told = false;
    *c->gathered_last = op;
    c->gathered_last = &op->next;
    c->gathered_count++;
}

/* As in postgres: while groups are under way the next one gathers, until it is worth a group beside
 * them. */
static void client_flush(struct engine *e)
{
    struct depot_client *c = client_of(e);
    bool first = c->groups_under_way == 0;
    if (c->gathered_count == 0 || c->groups_under_way == LINKS ||
        (!first && c->gathered_count < c->last_count))
        return;
    struct depot *d = c->depot;
    struct depot_group *g = mem_zalloc(sizeof(*g));
    int64_t at = d->agenda->now_us + way_us(d);
    g->client = c;
    g->first = c->gathered;
    g->count = c->gathered_count;
    g->waits = c->queue && c->queue->face.waiting > 0;
    c->gathered = NULL;
    c->gathered_last = &c->gathered;
    c->last_count = c->gathered_count;
    c->gathered_count = 0;
    c->groups_under_way++;
    c->sent_us = at > c->sent_us ? at : c->sent_us;
    agenda_plan(d->agenda, c->sent_us, arrive_there, g);
}

void depot_cut(struct engine *client, int64_t until_us)
{
    client_of(client)->sent_us = until_us;
}

static struct depot_queue *queue_known(struct depot_client *c)
{
    const struct engine_queue *there = c->depot->queue;
    if (c->queue)
        return c->queue;
    struct depot_queue *q = c->queue = mem_zalloc(sizeof(*q));
    snprintf(q->face.name, sizeof(q->face.name), "%s", there->name);
    q->face.id = there->id;
    q->face.config = there->config;
    q->face.version = 1;
    q->face.next_seq = 1;
    q->read_us = -1;
    return q;
}

static void show_claimed(struct depot_client *c, struct engine_op *op, bool counts)
{
    struct depot_claim *claim = op->engine;
    for (uint32_t i = 0; i < claim->shown_count; i++) {
        struct depot_shown *s = &claim->shown[i];
        s->message.delivery = &s->delivery;
        s->message.body = s->body;
        if (counts)
            count_claimed(c->queue, s->message.slot);
        if (op->visit)
            op->visit(op, &c->queue->face, &s->message, now_at(c->depot));
    }
}

static void hear_place(struct depot_queue *q, struct depot_group *g)
{
    if (!g->place || (q->place && q->place->epoch >= g->place->epoch))
        return;
    free(q->place);
    q->place = g->place;
    q->face.place = q->place;
    g->place = NULL;
}

static void hear(struct depot_client *c, struct depot_group *g, struct engine_op *op)
{
    bool handle = op->verb == ENGINE_QUEUE_SET || op->verb == ENGINE_QUEUE_OPEN;
    if (handle && !op->status)
        op->queue = &queue_known(c)->face;
    if (op->verb == ENGINE_PUT && !op->status && !g->read)
        count_put(c->queue, op);
    if (op->verb == ENGINE_ACK && !op->status && !g->read)
        count_acked(c->queue, op);
    if (op->verb == ENGINE_CLAIM) {
        show_claimed(c, op, !g->read);
        unreserve(c->queue, op);
    }
    if (g->read && c->queue && g->read_us > c->queue->read_us) {
        c->queue->seen = g->view;
        c->queue->read_us = g->read_us;
        c->queue->face.moments++;
        if (g->next_seq > c->queue->face.next_seq)
            c->queue->face.next_seq = g->next_seq;
    }
    if (c->queue) {
        hear_place(c->queue, g);
        view_changed(c->queue);
    }
    if (op->verb == ENGINE_SWEEP && c->queue && op->sweep.touched)
        op->sweep.touched(op, &c->queue->face);
}

static uint32_t client_poll(struct engine *e)
{
    struct depot_client *c = client_of(e);
    uint32_t count = 0;
    struct depot_group *g = c->answered;
    c->answered = NULL;
    c->answered_last = &c->answered;
    for (struct depot_group *next; g; g = next) {
        next = g->next;
        for (struct engine_op *op = g->first, *after; op; op = after, count++) {
            after = op->next;
            hear(c, g, op);
            engine_finish(e, op);
        }
        c->groups_under_way--;
        free(g->place);
        free(g);
    }
    client_flush(e);
    return count;
}

static int64_t client_next_due_ms(struct engine *e, struct instant now)
{
    struct depot_client *c = client_of(e);
    int64_t left = c->swept_ms + SWEEP_MS - now.mono_ms;
    if (c->told || left <= 0) {
        c->swept_ms = now.mono_ms;
        c->told = true;
    }
    return c->told ? 0 : left;
}

static struct engine_queue *client_find(struct engine *e, const char *name, size_t len)
{
    struct depot_client *c = client_of(e);
    bool known = c->queue && strlen(c->queue->face.name) == len &&
                 memcmp(c->queue->face.name, name, len) == 0;
    return known ? &c->queue->face : NULL;
}

static struct engine_queue *client_each(struct engine *e, size_t *at)
{
    struct depot_client *c = client_of(e);
    return (*at)++ == 0 && c->queue ? &c->queue->face : NULL;
}

static enum status client_health(struct engine *e, struct buf *detail)
{
    (void)e;
    buf_lit(detail, "simulated");
    return STATUS_OK;
}

static void client_close(struct engine *shards[], uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count; i++) {
        struct depot_client *c = client_of(shards[i]);
        assert(c->groups_under_way == 0);
        struct depot_client **at = &c->depot->clients;
        while (*at != c)
            at = &(*at)->next;
        *at = c->next;
        if (c->queue)
            free(c->queue->place);
        free(c->queue);
        free(c);
    }
}

static const struct engine_ops client_ops = {
    .submit = client_submit,
    .flush = client_flush,
    .poll = client_poll,
    .next_due_ms = client_next_due_ms,
    .queue_find = client_find,
    .queue_each = client_each,
    .health = client_health,
    .close = client_close,
};

static const struct engine_kind client_kind = {
    .name = "simulated",
    .capabilities = ENGINE_DURABLE | ENGINE_SHARED,
    .no_backup = "nothing is kept",
};

struct engine *depot_open(struct depot *d, engine_wake *wake, void *wake_ctx)
{
    struct depot_client *c = mem_zalloc(sizeof(*c));
    c->base.ops = &client_ops;
    c->base.kind = &client_kind;
    c->depot = d;
    c->wake = wake;
    c->wake_ctx = wake_ctx;
    c->gathered_last = &c->gathered;
    c->answered_last = &c->answered;
    /* Sweeps of servers and stores are spread over time. */
    c->swept_ms = d->agenda->now_us / 1000 - (int64_t)(chance_next(&d->chance) % SWEEP_MS);
    c->next = d->clients;
    d->clients = c;
    return &c->base;
}

/* The store */

void depot_init(struct depot *d, struct agenda *agenda, const struct depot_terms *terms,
                uint32_t number, uint64_t seed)
{
    *d = (struct depot){.agenda = agenda, .terms = terms, .number = number};
    d->chance = seed * 0x10000 + number;
    d->clock_us = (int64_t)((2 * chance_share(&d->chance) - 1) * (double)terms->clock_us);
    struct engine_options options = {.now = {.wall_ms = terms->epoch_ms}};
    struct buf error = {0};
    enum status status = memory_kind.open(&options, 1, &d->engine, &error);
    assert(status == STATUS_OK);
    (void)status;
}

void depot_fini(struct depot *d)
{
    assert(!d->clients);
    engine_close(&d->engine, 1);
}

void depot_leave(struct depot *d, int64_t until_us)
{
    d->back_us = until_us;
    d->free_us = d->agenda->now_us; /* what it had begun is begun again */
}
