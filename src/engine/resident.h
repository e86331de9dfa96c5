/* What engines that keep their index in this process share: the queues by name,
 * running one operation on a core queue, the timers, and the list of operations
 * waiting to be reported done. `memory` is this and nothing else; `local` puts a
 * store behind the queues. */
#ifndef TRIAGE_ENGINE_RESIDENT_H
#define TRIAGE_ENGINE_RESIDENT_H

#include "core/queue.h"
#include "engine/engine.h"

struct due;

struct resident_queue {
    struct engine_queue face; /* first: what the layers above hold */
    struct queue core;
    struct resident *engine;
    struct due *due_wall; /* owned; in the engine's timers while something is due */
    struct due *due_mono;
    bool dirty; /* its timers, and for stores its record, are to be looked at */
    struct resident_queue *next_dirty;
    bool deleted;
};

struct resident {
    struct engine base; /* first */
    struct map queues;  /* struct resident_queue by name */
    struct order wall;  /* struct due by when a delay or time to live ends */
    struct order mono;  /* … or a lease */
    struct resident_queue *dirty;
    /* Brings into memory what is due but only in a store; may be NULL. */
    void (*before_sweep)(struct resident_queue *rq, uint32_t max, struct instant now);
    void (*after_sweep)(struct resident_queue *rq, struct instant now);
};

void resident_init(struct resident *r, const struct engine_ops *ops);
void resident_fini(struct resident *r);

struct resident_queue *resident_queue_new(struct resident *r, const char *name, uint32_t id,
                                          const struct queue_config *config);
void resident_queue_retire(
    struct resident_queue *rq);                      /* its name is free, time does nothing to it */
void resident_queue_free(struct resident_queue *rq); /* out of the map and the timers, too */

static inline struct resident_queue *resident_queue_of(struct engine_queue *q)
{
    return (struct resident_queue *)q;
}

/* Runs op on its queue; everything but creating and deleting queues. */
void resident_apply(struct resident *r, struct engine_op *op, struct instant now);

/* Checks and adopts a new configuration. */
MUST_USE enum status resident_configure(struct resident_queue *rq, const struct queue_config *next,
                                        const char **level_name);

void resident_touch(struct resident_queue *rq); /* marks it dirty */

/* For each dirty queue: sets its timers and calls `each` (may be NULL); the list is empty then. */
void resident_settle(struct resident *r, void (*each)(struct resident_queue *rq, void *ctx),
                     void *ctx);

struct resident_queue *resident_queue_due(struct order_node *timer); /* of `wall` or `mono` */
int64_t resident_next_due_ms(struct engine *e, struct instant now);
struct engine_queue *resident_queue_find(struct engine *e, const char *name, size_t len);
struct engine_queue *resident_queue_each(struct engine *e, size_t *at);

#endif
