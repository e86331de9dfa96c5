/* The engine itself: which verb goes which way, and what all cells say, put together. */
#include "engine/cells/cells.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static trip_verb *const verbs[ENGINE_VERB_COUNT] = {
    [ENGINE_QUEUE_OPEN] = trip_open,     [ENGINE_QUEUE_SET] = trip_set,
    [ENGINE_QUEUE_DELETE] = trip_delete, [ENGINE_PUT] = trip_put,
    [ENGINE_IMPORT] = trip_import,       [ENGINE_CLAIM] = trip_claim,
    [ENGINE_ACK] = trip_settle,          [ENGINE_NACK] = trip_settle,
    [ENGINE_RELEASE] = trip_settle,      [ENGINE_EXTEND] = trip_settle,
    [ENGINE_CANCEL] = trip_one,          [ENGINE_ESCALATE] = trip_escalate,
    [ENGINE_PROMOTE] = trip_bulk,        [ENGINE_COUNT] = trip_count,
    [ENGINE_HEADS] = trip_heads,         [ENGINE_GET] = trip_one,
    [ENGINE_PURGE] = trip_bulk,          [ENGINE_LIST] = trip_list,
    [ENGINE_DEAD_LIST] = trip_dead_list, [ENGINE_DEAD_REDRIVE] = trip_bulk,
    [ENGINE_DEAD_DROP] = trip_bulk,      [ENGINE_SWEEP] = trip_sweep,
    [ENGINE_SCHEDULE_SET] = trip_home,   [ENGINE_SCHEDULE_DELETE] = trip_home,
    [ENGINE_SCHEDULE_LIST] = trip_home,  [ENGINE_FIRE] = trip_home,
    [ENGINE_PLACEMENT] = trip_placement,
};

static void sum_commits(struct cells_engine *c)
{
    struct durations *sum = &c->base.counters.commits;
    *sum = (struct durations){0};
    for (uint32_t i = 0; i < c->cell_count; i++) {
        const struct durations *one = &c->cells[i].engine->counters.commits;
        sum->sum += one->sum;
        for (int b = 0; b < DURATION_BUCKETS; b++)
            sum->buckets[b] += one->buckets[b];
    }
}

/* The caller reads these in the struct it holds. */
static void sync_base(struct cells_engine *c)
{
    struct engine_counters *sum = &c->base.counters;
    uint32_t reading = 0, failed = 0, away = 0;
    uint64_t groups = sum->groups;
    sum->groups = sum->group_ops = sum->commit_us = 0;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        const struct engine *e = c->cells[i].engine;
        reading += e->reading;
        failed += e->failed;
        away += c->cells[i].away;
        sum->groups += e->counters.groups;
        sum->group_ops += e->counters.group_ops;
        sum->commit_us += e->counters.commit_us;
    }
    if (sum->groups != groups)
        sum_commits(c);
    c->base.reading = reading;
    c->base.failed = failed == c->cell_count;
    if (c->shard == 0) {
        sum->own[COUNT_CELLS] = c->cell_count;
        sum->own[COUNT_AWAY] = away;
    }
    report_count(c);
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct cells_engine *c = cells_of(e);
    c->now = now;
    assert(verbs[op->verb]);
    cells_listen(c);
    struct trip *t = trip_new(c, op);
    if (t->whole && t->whole->there == 0)
        trip_finish(t, STATUS_QUEUE_NOT_FOUND);
    else
        verbs[op->verb](t);
}

/* An engine that keeps what it has not shown yet may have work when no op is under way. */
static bool may_have_news(const struct cell *c)
{
    return c->under_way > 0 || (cell_is_live(c) && engine_has(c->engine, ENGINE_DURABLE));
}

static void flush_some(struct cells_engine *c, bool all)
{
    c->flushes++;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        if (c->cells[i].submitted || (all && may_have_news(&c->cells[i])))
            engine_flush(c->cells[i].engine);
        c->cells[i].submitted = false;
    }
}

static void flush(struct engine *e)
{
    flush_some(cells_of(e), true);
    sync_base(cells_of(e));
}

static uint32_t report(struct cells_engine *c)
{
    struct engine_op *op = c->done_first;
    uint32_t count = 0;
    c->done_first = NULL;
    c->done_last = &c->done_first;
    for (; op; count++) {
        struct engine_op *next = op->next;
        struct whole *w = whole_of(op->engine);
        engine_finish(&c->base, op);
        if (w) {
            assert(w->busy > 0);
            w->busy--;
            whole_let_go(w);
        }
        op = next;
    }
    return count;
}

/* What is done in one cell may make a trip ask the next one: that is sent on, and an engine that
 * answers at once is heard at once. */
static uint32_t poll(struct engine *e)
{
    struct cells_engine *c = cells_of(e);
    uint32_t count = report(c), heard;
    do {
        heard = 0;
        for (uint32_t i = 0; i < c->cell_count; i++)
            heard += may_have_news(&c->cells[i]) ? engine_poll(c->cells[i].engine) : 0;
        flush_some(c, false);
        sync_base(c);
        count += report(c);
    } while (heard > 0);
    return count;
}

/* A claim goes to any of its partitions. */
static bool holds(struct engine *e, struct engine_queue *q, const struct claim_question *ask,
                  struct instant now)
{
    struct cells_engine *c = cells_of(e);
    struct whole *w = whole_of(q);
    bool held = true;
    c->now = now;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        struct partition *p = &w->partitions[i];
        if (partition_serves(p))
            held = engine_holds(p->cell->engine, p->q, ask, now) && held;
        if (p->q)
            partition_changed(p); /* its heads are up to date now */
    }
    sync_base(c);
    return held;
}

static struct engine_queue *find_whole(struct engine *e, const char *name, size_t len)
{
    struct whole *w = whole_of(map_get(&cells_of(e)->queues, name, len));
    return w && w->there > 0 && !w->hidden ? &w->face : NULL;
}

static struct engine_queue *each_whole(struct engine *e, size_t *at)
{
    struct whole *w;
    do
        w = whole_of(map_each(&cells_of(e)->queues, at));
    while (w && (w->there == 0 || w->hidden));
    return w ? &w->face : NULL;
}

/* One process has the duty of the first cell. */
static bool speaks(struct engine *e, struct instant now)
{
    return engine_speaks(cells_of(e)->cells[0].engine, now);
}

/* The cells that are well go on: only when none is, ops fail. */
static enum status health(struct engine *e, struct buf *detail)
{
    const struct cells_engine *c = cells_of(e);
    enum status all = STATUS_ENGINE_UNAVAILABLE;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        struct buf one = {0};
        enum status status = engine_health(c->cells[i].engine, &one);
        if (status == STATUS_OK || all == STATUS_ENGINE_UNAVAILABLE)
            all = status;
        buf_printf(detail, "%s%s: %s%s%s", i > 0 ? "; " : "", c->shared->sites[i].name,
                   status ? status_name(status) : "ok", one.len > 0 ? ", " : "", buf_cstr(&one));
        buf_fini(&one);
    }
    return all;
}

static void free_told(struct cells_engine *c)
{
    for (struct whole *w; (w = c->told);) {
        c->told = w->next_told;
        w->told = false;
        whole_let_go(w); /* one that is in the map stays there */
    }
}

static void free_shard(struct cells_engine *c)
{
    size_t at = 0;
    assert(!c->done_first);
    tours_end(c);
    free_told(c);
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at))); at = 0) {
        whole_retire(w);
        whole_let_go(w);
    }
    map_fini(&c->queues);
    tourney_fini(&c->load);
    free(c);
}

/* Parts that nobody waits for may be under way, in a cell that does not answer. */
static void drain(struct cells_engine *c)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    c->closing = true;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        struct cell *cell = &c->cells[i];
        while (cell->under_way > 0) {
            engine_flush(cell->engine);
            if (engine_poll(cell->engine) == 0 && cell->under_way > 0)
                nanosleep(&pause, NULL);
        }
    }
}

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    struct cells_shared *shared = cells_of(shards[0])->shared;
    for (uint32_t i = 0; i < shard_count; i++) {
        struct cells_engine *c = cells_of(shards[i]);
        drain(c);
        for (uint32_t k = 0; k < c->cell_count; k++)
            assert(c->cells[k].under_way == 0);
        free_shard(c);
    }
    cells_sites_free(shared, shard_count);
}

const struct engine_ops cells_ops = {
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = cells_next_due_ms,
    .holds = holds,
    .queue_find = find_whole,
    .queue_each = each_whole,
    .speaks = speaks,
    .health = health,
    .cell_each = report_cells,
    .partition_each = report_partitions,
    .check = cells_check,
    .close = close_all,
};
