/* What engines that keep their index in this process share: the queues by name,
 * running one operation on a core queue, the timers, and the list of operations
 * waiting to be reported done. `memory` is this and nothing else; `local` puts a
 * store behind the queues. */
#ifndef TRIAGE_ENGINE_RESIDENT_H
#define TRIAGE_ENGINE_RESIDENT_H

#include "base/tag.h"
#include "core/queue.h"
#include "engine/engine.h"

#include <assert.h>

/* What messages take in memory: the first counter that such an engine declares. */
enum { RESIDENT_BYTES = 0 };
#define RESIDENT_COUNTER                                                                           \
    {                                                                                              \
        .name = "resident_bytes", .type = ENGINE_GAUGE, .help = "Messages in memory."              \
    }

struct due;
struct recurring;

struct resident_queue {
    struct engine_queue face; /* first: what the layers above hold */
    uint32_t tag;             /* RESIDENT_TAG */
    struct queue core;
    struct resident *engine;
    struct due *due_wall; /* owned; in the engine's timers while something is due */
    struct due *due_mono;
    bool dirty; /* its timers, and for stores its record, are to be looked at */
    struct resident_queue *next_dirty;
    bool deleted;
    void *store;                  /* the engine's own */
    struct recurring **schedules; /* owned, by name; face.schedules of them */
    struct recurring *firing;     /* its new timing is to be stored with the message to come */
};

/* What an engine that has more than this memory does for its queues. The core answers from memory
 * alone; what it does not find there is brought, and it is asked again. */
struct resident_store {
    /* Writes down the core's reports, and calls queue_reported(). */
    void (*report)(struct resident_queue *rq);
    /* Each brings something into memory; false: it could not. The head of a lane with a tail: */
    bool (*bring_head)(struct resident_queue *rq, uint8_t slot, struct instant now);
    /* A message in any state: */
    bool (*bring)(struct resident_queue *rq, const struct message_id *id);
    /* The body of a message that is here. When it cannot be read there are zeros in its place, and
     * the engine has failed. */
    void (*bring_body)(struct resident_queue *rq, struct message *m);
    /* What a dedup key stands for of which the core does not know; false: nothing. */
    bool (*find_key)(struct resident_queue *rq, const char *key, size_t len, struct dedup_hit *hit);
    bool (*lists)(const struct message *m);       /* it lists this one itself */
    int64_t (*due_ms)(struct resident_queue *rq); /* its own timer, wall; INT64_MAX for none */
    /* Around what time does to a queue. */
    void (*before_sweep)(struct resident_queue *rq, uint32_t max, struct instant now);
    void (*after_sweep)(struct resident_queue *rq, struct instant now);
    /* A schedule was set or its timing has changed; s NULL: it is deleted. */
    void (*schedule_changed)(struct resident_queue *rq, const char *name, const struct schedule *s);
};

struct resident {
    struct engine base;                 /* first */
    const struct resident_store *store; /* or NULL: this memory is all there is */
    struct map queues;                  /* struct resident_queue by name */
    struct order wall;                  /* struct due by when a delay or time to live ends */
    struct order mono;                  /* … or a lease */
    struct order recurring;             /* struct recurring, by when to show that it is due */
    uint64_t next_recurring;            /* numbers for ties */
    struct resident_queue *dirty;
    struct resident_queue *graves; /* deleted, by next_dirty; a sweep frees a portion */
};

void resident_check(const struct resident *r); /* asserts every invariant, of its queues too */

void resident_init(struct resident *r, const struct engine_ops *ops,
                   const struct engine_kind *kind);
void resident_fini(struct resident *r);

struct resident_queue *resident_queue_new(struct resident *r, const char *name, uint32_t id,
                                          const struct queue_config *config);
void resident_queue_retire(
    struct resident_queue *rq); /* its name is free, time does nothing to it */
/* Out of the map and the timers, too. Its messages go with the sweeps to come, or resident_fini().
 */
void resident_queue_free(struct resident_queue *rq);

#define RESIDENT_TAG TAG('r', 'e', 's', 'q')

static inline struct resident_queue *resident_queue_of(struct engine_queue *q)
{
    struct resident_queue *rq = (struct resident_queue *)q;
    tag_check(rq->tag, RESIDENT_TAG);
    return rq;
}

/* Runs op on its queue; everything but creating and deleting queues. */
void resident_apply(struct resident *r, struct engine_op *op, struct instant now);

/* After verbs of the core: hands what they did to the store. Before anything else is asked of the
 * store, which may close a group: the counters in it must be those of the records in it. */
static inline void resident_report(struct resident_queue *rq)
{
    if (rq->core.report_count > 0)
        rq->engine->store->report(rq);
    assert(rq->core.report_count == 0);
}

void resident_put(struct resident_queue *rq, struct put_item *item, struct instant now);

/* resident_schedules.c */

/* A schedule of a queue and its timer. */
struct recurring {
    struct schedule schedule;
    struct resident_queue *queue;
    struct order_node node; /* in resident.recurring; last */
};

void resident_schedule_set(struct resident_queue *rq, struct engine_op *op, struct instant now);
void resident_schedule_delete(struct resident_queue *rq, struct engine_op *op, struct instant now);
void resident_schedule_list(struct resident_queue *rq, struct engine_op *op, struct instant now);
void resident_fire(struct resident_queue *rq, struct engine_op *op, struct instant now);
/* Shows what is due. */
void resident_schedules_sweep(struct resident *r, struct engine_op *op, struct instant now);
/* One that a store had: taken, with its timing. */
void resident_schedule_restore(struct resident_queue *rq, struct schedule *s);
void resident_schedules_retire(struct resident_queue *rq); /* their timers end */
void resident_schedules_free(struct resident_queue *rq);
void resident_schedules_use(const struct resident_queue *rq, bool used[LEVEL_COUNT_MAX]);
const char *resident_schedule_of_level(const struct resident_queue *rq, const char *level_name);
/* `next` is to be the configuration: each schedule names the level that its level goes on as. */
void resident_schedules_follow(struct resident_queue *rq, const struct queue_config *next);

/* Checks op->set.config and adopts it, unless the op is dry. */
MUST_USE enum status resident_configure(struct resident_queue *rq, struct engine_op *op,
                                        struct instant now);

void resident_touch(struct resident_queue *rq); /* marks it dirty */

/* For each dirty queue: sets its timers and calls `each` (may be NULL); the list is empty then. */
void resident_retime(struct resident *r, void (*each)(struct resident_queue *rq, void *ctx),
                     void *ctx);

int64_t resident_next_due_ms(struct engine *e, struct instant now);
bool resident_holds(struct engine *e, struct engine_queue *q, const struct claim_question *ask,
                    struct instant now);
struct engine_queue *resident_queue_find(struct engine *e, const char *name, size_t len);
struct engine_queue *resident_queue_each(struct engine *e, size_t *at);

#endif
