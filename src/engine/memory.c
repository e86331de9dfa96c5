#include "engine/memory.h"
#include "base/mem.h"
#include "engine/resident.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct memory {
    struct resident r; /* first */
    struct engine_op *done_first, **done_last;
    atomic_uint *next_queue_id; /* shared by the shards; owned by the first */
};

static const struct engine_ops memory_ops;

static struct memory *memory_of(struct engine *e)
{
    assert(e->ops == &memory_ops);
    return (struct memory *)e;
}

static void queue_set(struct memory *m, struct engine_op *op, struct instant now)
{
    op->status = STATUS_OK;
    if (op->queue) {
        op->status = resident_configure(resident_queue_of(op->queue), op, now);
        return;
    }
    struct queue_config config = *op->set.config;
    bool ok = levels_adopt_slots(NULL, NULL, &config, NULL);
    assert(ok);
    uint32_t id = engine_queue_id(m->next_queue_id, op);
    assert(id > 0); /* it has come round */
    struct resident_queue *rq = resident_queue_new(&m->r, op->set.name, id, &config);
    if (op->set.celled)
        resident_share(rq, queue_share_new());
    op->queue = &rq->face;
}

/* The name is free at once; the struct goes when the op is reported. */
static void queue_delete(struct engine_op *op)
{
    op->status = STATUS_OK;
    resident_queue_retire(resident_queue_of(op->queue));
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct memory *m = memory_of(e);
    if (op->verb == ENGINE_QUEUE_SET)
        queue_set(m, op, now);
    else if (op->verb == ENGINE_QUEUE_DELETE)
        queue_delete(op);
    else
        resident_apply(&m->r, op, now);
    assert(!*m->done_last);
    *m->done_last = op;
    m->done_last = &op->next;
}

static void flush(struct engine *e)
{
    resident_retime(&memory_of(e)->r, NULL, NULL);
}

static uint32_t poll(struct engine *e)
{
    struct memory *m = memory_of(e);
    struct engine_op *op = m->done_first;
    uint32_t count = 0;
    m->done_first = NULL;
    m->done_last = &m->done_first;
    while (op) {
        struct engine_op *next = op->next;
        struct resident_queue *gone =
            op->verb == ENGINE_QUEUE_DELETE ? resident_queue_of(op->queue) : NULL;
        assert(!gone || gone->deleted);
        engine_finish(e, op);
        if (gone)
            resident_queue_free(gone);
        op = next;
        count++;
    }
    return count;
}

static enum status health(struct engine *e, struct buf *detail)
{
    (void)e;
    buf_lit(detail, "in memory, not durable");
    return STATUS_OK;
}

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    free(memory_of(shards[0])->next_queue_id);
    for (uint32_t i = 0; i < shard_count; i++) {
        struct memory *m = memory_of(shards[i]);
        assert(!m->done_first);
        resident_fini(&m->r);
        free(m);
    }
}

static const struct engine_ops memory_ops = {
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = resident_next_due_ms,
    .holds = resident_holds,
    .queue_find = resident_queue_find,
    .queue_each = resident_queue_each,
    .health = health,
    .check = resident_check,
    .close = close_all,
};

static enum status memory_open(const struct engine_options *options, uint32_t shard_count,
                               struct engine *shards[], struct buf *error)
{
    (void)options;
    (void)error;
    atomic_uint *next_queue_id = mem_zalloc(sizeof(*next_queue_id));
    atomic_init(next_queue_id, 1);
    for (uint32_t i = 0; i < shard_count; i++) {
        struct memory *m = mem_zalloc(sizeof(*m));
        resident_init(&m->r, &memory_ops, &memory_kind);
        m->done_last = &m->done_first;
        m->next_queue_id = next_queue_id;
        shards[i] = &m->r.base;
    }
    return STATUS_OK;
}

static const struct engine_counter counters[] = {RESIDENT_COUNTER};

const struct engine_kind memory_kind = {
    .name = "memory",
    .capabilities = ENGINE_LIVE_VIEW | ENGINE_MOVES,
    .open = memory_open,
    .counters = counters,
    .counter_count = sizeof(counters) / sizeof(counters[0]),
    .no_backup = "use the engine local to keep messages",
};
