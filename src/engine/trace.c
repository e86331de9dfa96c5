#include "engine/trace.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/tag.h"
#include "engine/wrap.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* An op under way. The op itself has no room for this: all of it is the caller's or the inner
 * engine's. */
struct passage {
    uint32_t tag;         /* PASSAGE_TAG */
    struct engine_op *op; /* the key in trace.passages */
    uint64_t number;
    uint64_t started_us;
};

#define PASSAGE_TAG TAG('p', 'a', 's', 's')

struct trace {
    struct wrapper w; /* first */
    uint32_t shard;
    uint64_t count;      /* ops so far */
    struct map passages; /* struct passage by the address of its op */
};

static const struct engine_ops trace_ops;

static struct trace *trace_of(struct engine *e)
{
    assert(e->ops == &trace_ops);
    return (struct trace *)e;
}

static const char *queue_name(const struct engine_op *op)
{
    if (op->queue)
        return op->queue->name;
    return op->verb == ENGINE_QUEUE_SET    ? op->set.name
           : op->verb == ENGINE_QUEUE_OPEN ? op->open.name
                                           : "";
}

/* What is asked for: how many of what. */
static void put_question(struct buf *out, const struct engine_op *op)
{
    switch (op->verb) {
    case ENGINE_PUT:
    case ENGINE_IMPORT:
    case ENGINE_ACK:
    case ENGINE_NACK:
    case ENGINE_RELEASE:
    case ENGINE_EXTEND:
    case ENGINE_ESCALATE: {
        uint32_t items = op->verb == ENGINE_PUT        ? op->put.count
                         : op->verb == ENGINE_IMPORT   ? op->import.count
                         : op->verb == ENGINE_ESCALATE ? op->escalate.count
                                                       : op->settle.count;
        buf_printf(out, " items=%" PRIu32, items);
        break;
    }
    case ENGINE_LEAVE:
    case ENGINE_LEFT:
        buf_printf(out, " items=%" PRIu32, op->leave.count);
        break;
    case ENGINE_CLAIM:
        buf_printf(out, " want=%" PRIu32, op->claim.plan->want);
        break;
    case ENGINE_LIST:
    case ENGINE_DEAD_LIST:
        buf_printf(out, " limit=%" PRIu32, op->list.limit);
        break;
    case ENGINE_PURGE:
    case ENGINE_PROMOTE:
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        buf_printf(out, " max=%" PRIu32 " ids=%" PRIu32, op->bulk.max, op->bulk.id_count);
        break;
    case ENGINE_SWEEP:
        buf_printf(out, " max=%" PRIu32, op->sweep.max);
        break;
    case ENGINE_QUEUE_PLACE:
        buf_printf(out, " epoch=%" PRIu64 " closed=%d", op->place.epoch, op->place.closed);
        break;
    case ENGINE_QUEUE_SHARE:
        if (op->share.next)
            buf_printf(out, " epoch=%" PRIu64, op->share.next->epoch);
        break;
    default:
        break;
    }
}

static uint32_t items_done(const struct engine_op *op)
{
    uint32_t done = 0;
    if (op->verb == ENGINE_PUT) {
        for (uint32_t i = 0; i < op->put.count; i++)
            done += op->put.items[i].status == STATUS_OK;
    } else if (op->verb == ENGINE_IMPORT) {
        for (uint32_t i = 0; i < op->import.count; i++)
            done += op->import.items[i].status == STATUS_OK;
    } else if (op->verb == ENGINE_ESCALATE) {
        for (uint32_t i = 0; i < op->escalate.count; i++)
            done += op->escalate.items[i].status == STATUS_OK;
    } else {
        for (uint32_t i = 0; i < op->settle.count; i++)
            done += op->settle.items[i].status == STATUS_OK;
    }
    return done;
}

/* What became of an op whose status is OK. */
static void put_answer(struct buf *out, const struct engine_op *op)
{
    switch (op->verb) {
    case ENGINE_PUT:
    case ENGINE_IMPORT:
    case ENGINE_ACK:
    case ENGINE_NACK:
    case ENGINE_RELEASE:
    case ENGINE_EXTEND:
    case ENGINE_ESCALATE:
        buf_printf(out, " items_ok=%" PRIu32, items_done(op));
        break;
    case ENGINE_LEAVE:
        buf_printf(out, " found=%" PRIu32, op->leave.found);
        break;
    case ENGINE_CLAIM:
        buf_printf(out, " found=%" PRIu32, op->claim.found);
        break;
    case ENGINE_LIST:
    case ENGINE_DEAD_LIST:
        buf_printf(out, " found=%" PRIu32 " more=%d", op->list.found, op->list.more);
        break;
    case ENGINE_PURGE:
    case ENGINE_PROMOTE:
    case ENGINE_DEAD_REDRIVE:
    case ENGINE_DEAD_DROP:
        buf_printf(out, " count=%" PRIu32 " more=%d", op->bulk.count, op->bulk.more);
        break;
    case ENGINE_SWEEP:
        buf_printf(out, " more=%d", op->sweep.more);
        break;
    case ENGINE_FIRE:
        buf_printf(out, " stale=%d", op->fire.stale);
        break;
    case ENGINE_QUEUE_PLACE:
        buf_printf(out, " stale=%d", op->place.stale);
        break;
    case ENGINE_QUEUE_SHARE:
        buf_printf(out, " stale=%d", op->share.stale);
        break;
    default:
        break;
    }
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct trace *t = trace_of(e);
    struct passage *p = mem_zalloc(sizeof(*p));
    struct buf question = {0};
    p->tag = PASSAGE_TAG;
    p->op = op;
    p->number = ++t->count;
    p->started_us = clock_mono_us();
    map_put(&t->passages, (const char *)&p->op, sizeof(p->op), p);
    assert(t->passages.count <= e->in_flight);
    put_question(&question, op);
    log_info("engine op", "shard=%" PRIu32 " op=%" PRIu64 " verb=%s queue=%s%s", t->shard,
             p->number, engine_verb_names[op->verb], queue_name(op), buf_cstr(&question));
    buf_fini(&question);
    wrapper_submit(e, op, now);
}

static void finished(struct engine *e, struct engine_op *op)
{
    struct trace *t = trace_of(e);
    struct passage *p = map_remove(&t->passages, (const char *)&op, sizeof(op));
    struct buf answer = {0};
    assert(p);
    tag_check(p->tag, PASSAGE_TAG);
    assert(p->op == op);
    assert(p->number > 0);
    assert(p->number <= t->count);
    if (op->status == STATUS_OK)
        put_answer(&answer, op);
    log_info("engine answer",
             "shard=%" PRIu32 " op=%" PRIu64 " verb=%s queue=%s status=%s took_us=%" PRIu64 "%s",
             t->shard, p->number, engine_verb_names[op->verb], queue_name(op),
             status_name(op->status), clock_mono_us() - p->started_us, buf_cstr(&answer));
    buf_fini(&answer);
    tag_end(&p->tag, PASSAGE_TAG);
    free(p);
    engine_finish(e, op);
}

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count; i++) {
        assert(trace_of(shards[i])->passages.count == 0);
        map_fini(&trace_of(shards[i])->passages);
    }
    wrapper_close(shards, shard_count);
}

static const struct engine_ops trace_ops = {
    .submit = submit,
    .flush = wrapper_flush,
    .poll = wrapper_poll,
    .next_due_ms = wrapper_next_due_ms,
    .holds = wrapper_holds,
    .queue_find = wrapper_queue_find,
    .queue_each = wrapper_queue_each,
    .speaks = wrapper_speaks,
    .health = wrapper_health,
    .cell_each = wrapper_cell_each,
    .partition_each = wrapper_partition_each,
    .backup = wrapper_backup,
    .backup_progress = wrapper_backup_progress,
    .check = wrapper_check,
    .finished = finished,
    .close = close_all,
};

void trace_wrap(struct engine *shards[], uint32_t shard_count)
{
    for (uint32_t i = 0; i < shard_count; i++) {
        struct trace *t = mem_zalloc(sizeof(*t));
        t->shard = i;
        wrapper_init(&t->w, &trace_ops, shards[i]);
        shards[i] = &t->w.base;
    }
}
