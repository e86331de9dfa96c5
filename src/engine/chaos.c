#include "engine/chaos.h"
#include "base/mem.h"
#include "engine/wrap.h"

#include <assert.h>

struct chaos {
    struct wrapper w; /* first */
    uint32_t shard;
    struct chaos_options options;
    uint64_t random;          /* the state of the generator */
    uint32_t hold;            /* polls that are still to report nothing */
    uint64_t passed;          /* ops handed to the inner engine … */
    uint64_t come_back;       /* … and those that it has finished */
    uint64_t refused_all;     /* ops refused so far … */
    uint64_t refused_waiting; /* … those that were not reported yet … */
    uint64_t refused_due;     /* … and those of them that this poll may report */
    uint64_t reported;        /* ops of both kinds */
    /* Refused, in order of submission, to be reported. An op's engine pointer says how many others
     * passed before it: it is reported behind those. */
    struct engine_op *refused, **refused_last;
};

static const struct engine_ops chaos_ops;

static struct chaos *chaos_of(struct engine *e)
{
    assert(e->ops == &chaos_ops);
    return (struct chaos *)e;
}

/* SplitMix64. */
static uint64_t random_next(struct chaos *c)
{
    uint64_t z = c->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static uint32_t random_below(struct chaos *c, uint32_t bound)
{
    assert(bound > 0);
    return (uint32_t)(random_next(c) % bound);
}

/* What an op that found nothing answers, whatever was in it before. */
static void refuse(struct engine_op *op)
{
    op->status = STATUS_ENGINE_UNAVAILABLE;
    if (op->verb != ENGINE_CLAIM)
        return;
    op->claim.found = 0;
    for (uint32_t i = 0; i < op->claim.plan->step_count; i++)
        op->claim.plan->steps[i].found = 0;
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct chaos *c = chaos_of(e);
    if (random_below(c, 1000) >= c->options.refuse_permille) {
        c->passed++;
        wrapper_submit(e, op, now);
        return;
    }
    refuse(op);
    op->engine = (void *)(uintptr_t)c->passed;
    assert(!*c->refused_last);
    *c->refused_last = op;
    c->refused_last = &op->next;
    c->refused_all++;
    c->refused_waiting++;
}

/* Reports what was refused before this poll, as far as nothing is under way that was submitted
 * before it. */
static void report_refused(struct chaos *c)
{
    for (struct engine_op *op; c->refused_due > 0 && (op = c->refused); c->refused_due--) {
        if ((uintptr_t)op->engine > c->come_back)
            return;
        c->refused = op->next;
        if (!c->refused)
            c->refused_last = &c->refused;
        assert(op->status == STATUS_ENGINE_UNAVAILABLE);
        assert(c->refused_waiting > 0);
        c->refused_waiting--;
        c->reported++;
        engine_finish(&c->w.base, op);
    }
}

static void finished(struct engine *e, struct engine_op *op)
{
    struct chaos *c = chaos_of(e);
    report_refused(c);
    c->come_back++;
    assert(c->come_back <= c->passed);
    c->reported++;
    engine_finish(e, op);
}

static uint32_t poll(struct engine *e)
{
    struct chaos *c = chaos_of(e);
    if (c->hold > 0 && e->in_flight > 0) {
        c->hold--;
        c->options.wake(c->options.wake_ctx, c->shard);
        return 0;
    }
    uint64_t before = c->reported;
    c->refused_due = c->refused_waiting;
    wrapper_poll(e);
    report_refused(c);
    assert(c->reported == c->come_back + c->refused_all - c->refused_waiting);
    c->hold = random_below(c, c->options.hold_polls_max + 1);
    return (uint32_t)(c->reported - before);
}

static const struct engine_ops chaos_ops = {
    .submit = submit,
    .flush = wrapper_flush,
    .poll = poll,
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
    .close = wrapper_close,
};

void chaos_refuse(struct engine *e, uint32_t permille)
{
    assert(permille <= 1000);
    chaos_of(e)->options.refuse_permille = permille;
}

uint64_t chaos_refused(struct engine *e)
{
    return chaos_of(e)->refused_all;
}

void chaos_wrap(struct engine *shards[], uint32_t shard_count, const struct chaos_options *options)
{
    assert(options->wake || options->hold_polls_max == 0);
    for (uint32_t i = 0; i < shard_count; i++) {
        struct chaos *c = mem_zalloc(sizeof(*c));
        c->shard = i;
        c->options = *options;
        c->random = options->seed + i;
        c->refused_last = &c->refused;
        wrapper_init(&c->w, &chaos_ops, shards[i]);
        shards[i] = &c->w.base;
    }
}
