#include "engine/resident.h"
#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct due {
    struct resident_queue *queue;
    struct order_node node; /* tie: the queue's id */
};

#define DUE_TAG TAG('d', 'u', 'e', ' ')

static struct due *due_of(const struct order_node *n)
{
    tag_check(n->tag, DUE_TAG);
    return container_of(n, struct due, node);
}

static void due_free(struct due *d)
{
    assert(d->node.height == 0);
    tag_end(&d->node.tag, DUE_TAG);
    free(d);
}

void resident_init(struct resident *r, const struct engine_ops *ops, const struct engine_kind *kind)
{
    *r = (struct resident){.base = {.ops = ops, .kind = kind}};
    order_init(&r->wall);
    order_init(&r->mono);
    order_init(&r->recurring);
}

static void grave_free(struct resident_queue *rq)
{
    queue_fini(&rq->core);
    tag_end(&rq->tag, RESIDENT_TAG);
    free(rq);
}

void resident_fini(struct resident *r)
{
    for (size_t at = 0; r->queues.count > 0;) {
        struct resident_queue *rq = map_each(&r->queues, &at);
        resident_queue_free(rq);
        at = 0;
    }
    for (struct resident_queue *rq = r->graves, *next; rq; rq = next) {
        next = rq->next_dirty;
        grave_free(rq);
    }
    map_fini(&r->queues);
    order_fini(&r->wall);
    order_fini(&r->mono);
    order_fini(&r->recurring);
}

static struct due *due_new(struct resident_queue *rq)
{
    struct due *d = mem_zalloc(sizeof(*d) + order_node_extra(rq->face.id));
    d->queue = rq;
    d->node.tie = rq->face.id;
    d->node.tag = DUE_TAG;
    return d;
}

struct resident_queue *resident_queue_new(struct resident *r, const char *name, uint32_t id,
                                          const struct queue_config *config)
{
    struct resident_queue *rq = mem_zalloc(sizeof(*rq));
    rq->tag = RESIDENT_TAG;
    size_t len = strlen(name);
    assert(len > 0);
    assert(len <= QUEUE_NAME_MAX);
    memcpy(rq->face.name, name, len + 1);
    rq->face.id = id;
    rq->face.config = *config;
    rq->face.next_seq = 1;
    rq->engine = r;
    queue_init(&rq->core, id, &rq->face.config, &rq->face.view, &rq->face.next_seq, random_bytes);
    rq->core.memory_total = &r->base.counters.own[RESIDENT_BYTES];
    rq->due_wall = due_new(rq);
    rq->due_mono = due_new(rq);
    map_put(&r->queues, rq->face.name, len, rq);
    return rq;
}

void resident_place(struct resident_queue *rq, struct queue_place *place)
{
    free(rq->place);
    rq->face.place = rq->place = place;
}

void resident_share(struct resident_queue *rq, struct queue_share *share)
{
    free(rq->share);
    rq->share = share;
    rq->core.share = share ? share->most : NULL;
}

static void due_set(struct order *timers, struct due *d, int64_t at_ms)
{
    bool listed = d->node.height > 0;
    if (listed && d->node.key == at_ms)
        return;
    if (listed)
        order_remove(timers, &d->node);
    d->node.key = at_ms;
    if (at_ms != INT64_MAX)
        order_insert(timers, &d->node);
}

static void undirty(struct resident *r, struct resident_queue *rq)
{
    for (struct resident_queue **at = &r->dirty; *at; at = &(*at)->next_dirty) {
        if (*at == rq) {
            *at = rq->next_dirty;
            return;
        }
    }
    assert(!"a dirty queue is in the list");
}

void resident_queue_retire(struct resident_queue *rq)
{
    struct resident *r = rq->engine;
    due_set(&r->wall, rq->due_wall, INT64_MAX);
    due_set(&r->mono, rq->due_mono, INT64_MAX);
    resident_schedules_retire(rq);
    void *removed = map_remove(&r->queues, rq->face.name, strlen(rq->face.name));
    assert(removed == rq);
    (void)removed;
    rq->deleted = true;
}

void resident_queue_free(struct resident_queue *rq)
{
    struct resident *r = rq->engine;
    if (rq->dirty)
        undirty(r, rq);
    if (!rq->deleted)
        resident_queue_retire(rq);
    due_free(rq->due_wall);
    due_free(rq->due_mono);
    resident_schedules_free(rq);
    resident_place(rq, NULL);
    resident_share(rq, NULL);
    assert(*rq->core.memory_total >= rq->core.memory);
    *rq->core.memory_total -= rq->core.memory;
    rq->core.memory = 0;
    rq->next_dirty = r->graves;
    r->graves = rq;
}

/* What a deleted queue had in memory goes in portions. */
static void dig(struct resident *r, uint32_t max)
{
    struct resident_queue *rq = r->graves;
    assert(!rq || rq->deleted);
    if (!rq || !queue_empty_some(&rq->core, max))
        return;
    r->graves = rq->next_dirty;
    grave_free(rq);
}

void resident_touch(struct resident_queue *rq)
{
    if (rq->dirty)
        return;
    rq->dirty = true;
    rq->next_dirty = rq->engine->dirty;
    rq->engine->dirty = rq;
}

static void retime(struct resident_queue *rq)
{
    int64_t wall, mono;
    if (rq->deleted)
        return;
    queue_due(&rq->core, &wall, &mono);
    const struct resident_store *store = rq->engine->store;
    int64_t store_ms = store ? store->due_ms(rq) : INT64_MAX;
    if (store_ms < wall)
        wall = store_ms;
    if (rq->held)
        wall = mono = INT64_MAX;
    due_set(&rq->engine->wall, rq->due_wall, wall);
    due_set(&rq->engine->mono, rq->due_mono, mono);
}

void resident_retime(struct resident *r, void (*each)(struct resident_queue *rq, void *ctx),
                     void *ctx)
{
    struct resident_queue *rq;
    while ((rq = r->dirty)) {
        assert(rq->dirty);
        r->dirty = rq->next_dirty;
        rq->dirty = false;
        retime(rq);
        if (each)
            each(rq, ctx);
    }
}

int64_t resident_next_due_ms(struct engine *e, struct instant now)
{
    const struct resident *r = (const struct resident *)e;
    const struct order_node *wall = order_first(&r->wall), *mono = order_first(&r->mono);
    const struct order_node *recurring = order_first(&r->recurring);
    int64_t due = r->graves ? 0 : INT64_MAX;
    if (wall && wall->key - now.wall_ms < due)
        due = wall->key - now.wall_ms;
    if (recurring && recurring->key - now.wall_ms < due)
        due = recurring->key - now.wall_ms;
    if (mono && mono->key - now.mono_ms < due)
        due = mono->key - now.mono_ms;
    return due < 0 ? 0 : due;
}

bool resident_holds(struct engine *e, struct engine_queue *q, const struct claim_question *ask,
                    struct instant now)
{
    (void)e;
    uint32_t missing;
    return queue_holds(&resident_queue_of(q)->core, ask, now, &missing);
}

struct engine_queue *resident_queue_find(struct engine *e, const char *name, size_t len)
{
    struct resident_queue *rq = map_get(&((struct resident *)e)->queues, name, len);
    return rq ? &rq->face : NULL;
}

struct engine_queue *resident_queue_each(struct engine *e, size_t *at)
{
    struct resident_queue *rq = map_each(&((struct resident *)e)->queues, at);
    return rq ? &rq->face : NULL;
}

/* Which schedule keeps a level, unless messages do. */
static void note_schedule(const struct resident_queue *rq, struct engine_op *op)
{
    bool used[LEVEL_COUNT_MAX];
    queue_view_used(&rq->face.view, used);
    int rank = levels_rank_of_name(&rq->face.config, op->set.level_name);
    const char *name = resident_schedule_of_level(rq, op->set.level_name);
    bool by_messages = used[rq->face.config.levels[rank].slot];
    if (op->set.schedule_name)
        snprintf(op->set.schedule_name, QUEUE_NAME_MAX + 1, "%s", name && !by_messages ? name : "");
}

enum status resident_configure(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    bool used[LEVEL_COUNT_MAX];
    struct queue_config config = *op->set.config;
    queue_view_used(&rq->face.view, used);
    resident_schedules_use(rq, used);
    if (!levels_adopt_slots(&rq->face.config, used, &config, &op->set.level_name)) {
        note_schedule(rq, op);
        return STATUS_LEVEL_IN_USE;
    }
    if (op->set.dry)
        return STATUS_OK;
    resident_schedules_follow(rq, &config);
    config_adopt_history(&rq->face.config, &config, now.wall_ms);
    assert(config_valid(&config));
    rq->face.config = config;
    rq->face.version++;
    resident_touch(rq);
    return STATUS_OK;
}

/* The queue whose timer is due first, or NULL. */
static struct resident_queue *first_due(struct resident *r, struct instant now)
{
    struct order_node *n = order_first(&r->mono);
    if (!n || n->key > now.mono_ms) {
        n = order_first(&r->wall);
        if (!n || n->key > now.wall_ms)
            return NULL;
    }
    return due_of(n)->queue;
}

uint32_t resident_sweep_queue(struct resident_queue *rq, uint32_t max, struct instant now)
{
    const struct resident_store *store = rq->engine->store;
    if (store)
        max = store->before_sweep(rq, max, now);
    if (max == 0)
        return 0;
    uint32_t moved = queue_sweep(&rq->core, max, now);
    assert(!rq->deleted);
    assert(moved <= max);
    resident_report(rq);
    if (store)
        store->after_sweep(rq, now);
    return moved;
}

void resident_sweep(struct resident *r, struct engine_op *op, struct instant now)
{
    uint32_t left = op->sweep.max;
    struct resident_queue *rq;
    dig(r, op->sweep.max);
    for (struct resident_queue *d = r->dirty; d; d = d->next_dirty)
        retime(d); /* they stay dirty: a store has still to write their records */
    while (left > 0 && (rq = first_due(r, now))) {
        uint32_t moved = resident_sweep_queue(rq, left, now);
        left -= moved > 0 ? moved : 1;
        retime(rq);
        resident_touch(rq);
        if (op->sweep.touched)
            op->sweep.touched(op, &rq->face);
        if (moved == 0 && first_due(r, now) == rq) /* a timer was early: no progress to wait for */
            break;
    }
    op->sweep.more = left == 0;
    resident_schedules_sweep(r, op, now);
}

/* A timer is listed while something is due; while its queue is not dirty, by when it is. */
static void check_due(const struct due *d, const struct resident_queue *rq)
{
    assert(due_of(&d->node) == d);
    assert(d->queue == rq);
    assert(d->node.tie == rq->face.id);
    assert(d->node.height == 0 || d->node.key != INT64_MAX);
}

static void check_schedules(const struct resident_queue *rq, uint64_t *listed)
{
    assert(rq->face.schedules <= SCHEDULES_MAX);
    for (uint32_t i = 0; i < rq->face.schedules; i++) {
        const struct recurring *s = rq->schedules[i];
        assert(s->queue == rq);
        assert(i == 0 || strcmp(rq->schedules[i - 1]->schedule.name, s->schedule.name) < 0);
        *listed += s->node.height > 0;
    }
}

void resident_check(struct engine *e)
{
    const struct resident *r = (const struct resident *)e;
    uint64_t timers = 0, recurring = 0, memory = 0;
    size_t at = 0;
    map_check(&r->queues);
    order_check(&r->wall);
    order_check(&r->mono);
    order_check(&r->recurring);
    for (struct engine_queue *q; (q = map_each(&r->queues, &at));) {
        struct resident_queue *rq = resident_queue_of(q);
        assert(rq->engine == r);
        assert(!rq->deleted);
        assert(!rq->firing);
        check_due(rq->due_wall, rq);
        check_due(rq->due_mono, rq);
        check_schedules(rq, &recurring);
        queue_check(&rq->core);
        if (r->store)
            r->store->check(rq);
        timers += (rq->due_wall->node.height > 0) + (rq->due_mono->node.height > 0);
        memory += rq->core.memory;
    }
    assert(r->wall.count + r->mono.count == timers);
    assert(r->recurring.count == recurring);
    assert(r->store || r->base.counters.own[RESIDENT_BYTES] == memory);
    for (const struct resident_queue *rq = r->dirty; rq; rq = rq->next_dirty)
        assert(rq->dirty);
    for (const struct resident_queue *rq = r->graves; rq; rq = rq->next_dirty)
        assert(rq->deleted);
}
