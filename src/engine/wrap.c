#include "engine/wrap.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void wrapper_init(struct wrapper *w, const struct engine_ops *ops, struct engine *inner)
{
    assert(ops->finished);
    assert(ops->submit);
    assert(!inner->outer);
    assert(inner->in_flight == 0);
    w->base = (struct engine){.ops = ops, .kind = inner->kind};
    w->inner = inner;
    inner->outer = &w->base;
    wrapper_sync(w);
}

/* Ops are counted by whoever they were submitted to: a wrapper may keep some to itself. */
void wrapper_sync(struct wrapper *w)
{
    struct engine_counters counters = w->inner->counters;
    memcpy(counters.ops, w->base.counters.ops, sizeof(counters.ops));
    w->base.counters = counters;
    w->base.reading = w->inner->reading;
    w->base.ahead_us = w->inner->ahead_us;
    assert(!w->base.failed || w->inner->failed); /* for good */
    w->base.failed = w->inner->failed;
}

void wrapper_submit(struct engine *e, struct engine_op *op, struct instant now)
{
    engine_submit(wrapper_of(e)->inner, op, now);
    wrapper_sync(wrapper_of(e));
}

void wrapper_flush(struct engine *e)
{
    engine_flush(wrapper_of(e)->inner);
    wrapper_sync(wrapper_of(e));
}

uint32_t wrapper_poll(struct engine *e)
{
    uint32_t count = engine_poll(wrapper_of(e)->inner);
    wrapper_sync(wrapper_of(e));
    return count;
}

int64_t wrapper_next_due_ms(struct engine *e, struct instant now)
{
    int64_t due_ms = engine_next_due_ms(wrapper_of(e)->inner, now);
    wrapper_sync(wrapper_of(e));
    return due_ms;
}

bool wrapper_holds(struct engine *e, struct engine_queue *q, const struct claim_question *ask,
                   struct instant now)
{
    bool held = engine_holds(wrapper_of(e)->inner, q, ask, now);
    wrapper_sync(wrapper_of(e));
    return held;
}

struct engine_queue *wrapper_queue_find(struct engine *e, const char *name, size_t len)
{
    return engine_queue_find(wrapper_of(e)->inner, name, len);
}

struct engine_queue *wrapper_queue_each(struct engine *e, size_t *at)
{
    return engine_queue_each(wrapper_of(e)->inner, at);
}

bool wrapper_speaks(struct engine *e, struct instant now)
{
    return engine_speaks(wrapper_of(e)->inner, now);
}

enum status wrapper_health(struct engine *e, struct buf *detail)
{
    return engine_health(wrapper_of(e)->inner, detail);
}

void wrapper_cell_each(struct engine *e, engine_cell_visit *visit, void *ctx)
{
    engine_cell_each(wrapper_of(e)->inner, visit, ctx);
}

void wrapper_partition_each(struct engine *e, struct engine_queue *q, engine_partition_visit *visit,
                            void *ctx)
{
    engine_partition_each(wrapper_of(e)->inner, q, visit, ctx);
}

enum status wrapper_backup(struct engine *e, struct engine_backup *b)
{
    return engine_backup(wrapper_of(e)->inner, b);
}

void wrapper_backup_progress(struct engine *e, struct engine_backup_progress *p)
{
    engine_backup_progress(wrapper_of(e)->inner, p);
}

void wrapper_check(struct engine *e)
{
    engine_check(wrapper_of(e)->inner);
}

void wrapper_close(struct engine *shards[], uint32_t shard_count)
{
    assert(shard_count > 0);
    struct engine **inner = mem_alloc(shard_count * sizeof(struct engine *));
    for (uint32_t i = 0; i < shard_count; i++) {
        inner[i] = wrapper_of(shards[i])->inner;
        inner[i]->outer = NULL;
        free(shards[i]);
    }
    engine_close(inner, shard_count);
    free(inner);
}
