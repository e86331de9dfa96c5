/* An engine that has every part an engine needs, and no more. Queues are in memory
 * (resident.h). What an engine with a store would write goes to a thread, group by
 * group, and an op is done when the thread has finished its group. Here the thread
 * only waits for example_delay_ms, in the place where yours writes.
 *
 *   shard:   submit: apply, add to the open group   flush: hand it over   poll: report
 *   thread:                                                    store() … wake the shard
 *
 * What it does not do: keep anything. It says so, by not being ENGINE_DURABLE. */
#include "example_engine/example.h"
#include "base/mem.h"
#include "engine/resident.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Ops that are stored together, in order of submission. */
struct group {
    struct example *owner;
    struct engine_op *first, **last;
    uint32_t count;
    struct group *next;
};

/* What the shards of the process share. */
struct shared {
    uint64_t delay_ms;
    engine_wake *wake;
    void *wake_ctx;
    atomic_uint next_queue_id;
    pthread_t thread;
    pthread_mutex_t lock; /* over what follows, and over every example.stored */
    pthread_cond_t changed;
    struct group *todo, **todo_last;
    bool closing;
};

/* One shard. */
struct example {
    struct resident r; /* first: its first member is the struct engine */
    struct shared *shared;
    uint32_t shard;
    struct group *open; /* being filled; NULL: nothing was submitted since the last flush */
    struct group *stored, **stored_last;
};

/* The counters that example_kind declares. */
enum { EXAMPLE_LARGEST = RESIDENT_BYTES + 1 };

static const struct engine_ops example_ops;

static struct example *example_of(struct engine *e)
{
    assert(e->ops == &example_ops);
    return (struct example *)e;
}

/* The thread */

static void store(const struct shared *s)
{
    struct timespec delay = {.tv_sec = (time_t)(s->delay_ms / 1000),
                             .tv_nsec = (long)(s->delay_ms % 1000) * 1000000};
    if (s->delay_ms > 0)
        nanosleep(&delay, NULL);
}

static void *run(void *arg)
{
    struct shared *s = arg;
    pthread_mutex_lock(&s->lock);
    while (s->todo || !s->closing) {
        struct group *g = s->todo;
        if (!g) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->todo = g->next;
        if (!s->todo)
            s->todo_last = &s->todo;
        struct example *owner = g->owner;
        pthread_mutex_unlock(&s->lock);
        store(s);
        pthread_mutex_lock(&s->lock);
        g->next = NULL;
        *owner->stored_last = g;
        owner->stored_last = &g->next;
        pthread_mutex_unlock(&s->lock); /* from here on the group is the shard's */
        s->wake(s->wake_ctx, owner->shard);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Ops */

static void queue_set(struct example *x, struct engine_op *op, struct instant now)
{
    op->status = STATUS_OK;
    if (op->queue) {
        op->status = resident_configure(resident_queue_of(op->queue), op, now);
        return;
    }
    struct queue_config config = *op->set.config;
    bool ok = levels_adopt_slots(NULL, NULL, &config, NULL);
    assert(ok);
    uint32_t id = atomic_fetch_add(&x->shared->next_queue_id, 1);
    struct resident_queue *rq = resident_queue_new(&x->r, op->set.name, id, &config);
    if (op->set.celled)
        resident_share(rq, queue_share_new());
    op->queue = &rq->face;
}

static void apply(struct example *x, struct engine_op *op, struct instant now)
{
    if (op->verb == ENGINE_QUEUE_SET) {
        queue_set(x, op, now);
    } else if (op->verb == ENGINE_QUEUE_DELETE) {
        op->status = STATUS_OK;
        resident_queue_retire(resident_queue_of(op->queue)); /* the struct goes with the report */
    } else {
        resident_apply(&x->r, op, now);
    }
}

static void submit(struct engine *e, struct engine_op *op, struct instant now)
{
    struct example *x = example_of(e);
    apply(x, op, now);
    if (!x->open) {
        x->open = mem_zalloc(sizeof(*x->open));
        x->open->owner = x;
        x->open->last = &x->open->first;
    }
    *x->open->last = op;
    x->open->last = &op->next;
    x->open->count++;
}

static void flush(struct engine *e)
{
    struct example *x = example_of(e);
    struct shared *s = x->shared;
    resident_retime(&x->r, NULL, NULL); /* timers follow what was done */
    if (!x->open)
        return;
    pthread_mutex_lock(&s->lock);
    *s->todo_last = x->open;
    s->todo_last = &x->open->next;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    x->open = NULL;
}

static struct group *take_stored(struct example *x)
{
    pthread_mutex_lock(&x->shared->lock);
    struct group *g = x->stored;
    x->stored = NULL;
    x->stored_last = &x->stored;
    pthread_mutex_unlock(&x->shared->lock);
    return g;
}

static void report(struct example *x, struct group *g)
{
    struct engine_counters *counters = &x->r.base.counters;
    counters->groups++;
    counters->group_ops += g->count;
    if (g->count > counters->own[EXAMPLE_LARGEST])
        counters->own[EXAMPLE_LARGEST] = g->count;
    for (struct engine_op *op = g->first, *next; op; op = next) {
        struct resident_queue *gone =
            op->verb == ENGINE_QUEUE_DELETE ? resident_queue_of(op->queue) : NULL;
        next = op->next; /* from engine_finish on the op is the caller's */
        engine_finish(&x->r.base, op);
        if (gone)
            resident_queue_free(gone);
    }
}

static uint32_t poll(struct engine *e)
{
    struct example *x = example_of(e);
    uint32_t count = 0;
    for (struct group *g = take_stored(x), *next; g; g = next) {
        next = g->next;
        count += g->count;
        report(x, g);
        free(g);
    }
    return count;
}

static enum status health(struct engine *e, struct buf *detail)
{
    (void)e;
    buf_lit(detail, "an example, not durable");
    return STATUS_OK;
}

/* Opening and closing */

static void close_all(struct engine *shards[], uint32_t shard_count)
{
    struct shared *s = example_of(shards[0])->shared;
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    for (uint32_t i = 0; i < shard_count; i++) {
        struct example *x = example_of(shards[i]);
        resident_fini(&x->r);
        free(x);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static enum status example_open(const struct engine_options *options, uint32_t shard_count,
                                struct engine *shards[], struct buf *error)
{
    struct shared *s = mem_zalloc(sizeof(*s));
    s->delay_ms = engine_option_number(options, "example_delay_ms");
    s->wake = options->wake;
    s->wake_ctx = options->wake_ctx;
    s->todo_last = &s->todo;
    atomic_init(&s->next_queue_id, 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, run, s) != 0) {
        buf_lit(error, "the example engine cannot start its thread");
        free(s);
        return STATUS_ENGINE_UNAVAILABLE;
    }
    for (uint32_t i = 0; i < shard_count; i++) {
        struct example *x = mem_zalloc(sizeof(*x));
        resident_init(&x->r, &example_ops, &example_kind);
        x->shared = s;
        x->shard = i;
        x->stored_last = &x->stored;
        shards[i] = &x->r.base;
    }
    return STATUS_OK;
}

static const struct engine_ops example_ops = {
    .submit = submit,
    .flush = flush,
    .poll = poll,
    .next_due_ms = resident_next_due_ms,
    .holds = resident_holds,
    .queue_find = resident_queue_find,
    .queue_each = resident_queue_each,
    .health = health,
    .close = close_all,
};

static const struct engine_setting settings[] = {
    {.name = "example_delay_ms",
     .type = ENGINE_NUMBER,
     .max = 60000,
     .value = "0",
     .takes = "NUMBER",
     .help = "how long the example engine takes to store a group"},
};

static const struct engine_counter counters[] = {
    [RESIDENT_BYTES] = RESIDENT_COUNTER,
    [EXAMPLE_LARGEST] = {.name = "example_largest_group",
                         .type = ENGINE_GAUGE,
                         .help = "Operations in the largest group."},
};

const struct engine_kind example_kind = {
    .name = "example",
    .capabilities = ENGINE_LIVE_VIEW,
    .open = example_open,
    .settings = settings,
    .setting_count = sizeof(settings) / sizeof(settings[0]),
    .counters = counters,
    .counter_count = sizeof(counters) / sizeof(counters[0]),
    .no_backup = "there is nothing to keep",
};
