/* What engines share that keep their queues in this process: the queues by name, the
 * timers, and how each op is carried out on a core queue. `memory` is this and little
 * else; `local` puts a store behind the queues. */
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
    bool held;   /* its ops wait for the store, and time does nothing to it meanwhile */
    void *store; /* the engine's own */
    struct queue_place *place;    /* owned: what face.place shows */
    struct queue_share *share;    /* owned; NULL: it has none. The core goes by its numbers */
    struct recurring **schedules; /* owned, by name; face.schedules of them */
    struct recurring *firing;     /* a schedule that is being fired: its new timing is to be stored
                                     in one group with the message */
};

/* What an engine does for its queues that has more than this memory. The core answers from memory
 * alone; when something is missing there, one of these functions brings it, and the core is asked
 * again. */
struct resident_store {
    /* Writes down the core's reports, and calls queue_reported(). */
    void (*report)(struct resident_queue *rq);
    /* Brings the head of a lane with a tail into memory; false: it could not. */
    bool (*bring_head)(struct resident_queue *rq, uint8_t slot, struct instant now);
    /* Brings a message in any state into memory; false: it could not. */
    bool (*bring)(struct resident_queue *rq, const struct message_id *id);
    /* Brings the body of a message in memory. If it cannot be read, the body is zeros and the
     * engine has failed. */
    void (*bring_body)(struct resident_queue *rq, struct message *m);
    /* Finds the message that a dedup key stands for, when the core does not know it; false: none.
     */
    bool (*find_key)(struct resident_queue *rq, const char *key, size_t len, struct dedup_hit *hit);
    bool (*lists)(const struct message *m);       /* the engine itself lists this message */
    int64_t (*due_ms)(struct resident_queue *rq); /* its own timer, wall; INT64_MAX for none */
    /* Called before and after the core sweeps a queue. before_sweep says how many messages the core
     * may move; 0: none now, and after_sweep is not called. */
    uint32_t (*before_sweep)(struct resident_queue *rq, uint32_t max, struct instant now);
    void (*after_sweep)(struct resident_queue *rq, struct instant now);
    /* A schedule was set or its timing has changed; s NULL: it is deleted. */
    void (*schedule_changed)(struct resident_queue *rq, const char *name, const struct schedule *s);
    void (*place_changed)(struct resident_queue *rq); /* the queue has another place */
    void (*check)(struct resident_queue *rq); /* asserts its own invariants; for resident_check() */
    void (*share_changed)(struct resident_queue *rq); /* … another share */
};

struct resident {
    struct engine base;                 /* first */
    const struct resident_store *store; /* or NULL: this memory is all there is */
    struct map queues;                  /* struct resident_queue by name */
    struct order wall;                  /* struct due by when a delay or time to live ends */
    struct order mono;                  /* struct due by when a lease ends */
    struct order recurring;             /* struct recurring, by when to show that it is due */
    uint64_t next_recurring;            /* numbers for ties */
    struct resident_queue *dirty;
    struct resident_queue *graves; /* deleted, by next_dirty; a sweep frees a portion */
};

engine_check_fn resident_check; /* asserts every invariant, of its queues too */

void resident_init(struct resident *r, const struct engine_ops *ops,
                   const struct engine_kind *kind);
void resident_fini(struct resident *r);

struct resident_queue *resident_queue_new(struct resident *r, const char *name, uint32_t id,
                                          const struct queue_config *config);
void resident_queue_retire(
    struct resident_queue *rq); /* its name is free, time does nothing to it */
/* Takes the queue out of the map and the timers too. Its messages are freed by the sweeps to come,
 * or by resident_fini(). */
void resident_queue_free(struct resident_queue *rq);

#define RESIDENT_TAG TAG('r', 'e', 's', 'q')

static inline struct resident_queue *resident_queue_of(struct engine_queue *q)
{
    struct resident_queue *rq = (struct resident_queue *)q;
    tag_check(rq->tag, RESIDENT_TAG);
    return rq;
}

/* So many messages in other states than asked for a LIST passes over before its page ends. */
#define RESIDENT_PASSED_MAX 4096

/* Runs op on its queue; everything but creating and deleting queues (resident_verbs.c). */
void resident_apply(struct resident *r, struct engine_op *op, struct instant now);
void resident_sweep(struct resident *r, struct engine_op *op, struct instant now); /* its part */
/* Sweeps one queue; returns how many messages were moved. */
uint32_t resident_sweep_queue(struct resident_queue *rq, uint32_t max, struct instant now);

/* Hands the reports of the core's verbs to the store. To be called right after the verbs, before
 * anything else is asked of the store: that may close the group, and the counters in a group must
 * be those of its records. */
static inline void resident_report(struct resident_queue *rq)
{
    if (rq->core.report_count > 0)
        rq->engine->store->report(rq);
    assert(rq->core.report_count == 0);
}

void resident_place(struct resident_queue *rq, struct queue_place *place); /* changes owner */
void resident_share(struct resident_queue *rq, struct queue_share *share); /* changes owner */
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
/* Adds a schedule that the store had, with its timing. *s changes owner. */
void resident_schedule_restore(struct resident_queue *rq, struct schedule *s);
void resident_schedules_retire(struct resident_queue *rq); /* their timers end */
void resident_schedules_free(struct resident_queue *rq);
void resident_schedules_use(const struct resident_queue *rq, bool used[LEVEL_COUNT_MAX]);
const char *resident_schedule_of_level(const struct resident_queue *rq, const char *level_name);
/* `next` is going to be the configuration: makes each schedule name the level of `next` that its
 * level goes on as. */
void resident_schedules_follow(struct resident_queue *rq, const struct queue_config *next);

/* Checks op->set.config and adopts it, unless the op is dry. */
MUST_USE enum status resident_configure(struct resident_queue *rq, struct engine_op *op,
                                        struct instant now);

void resident_touch(struct resident_queue *rq); /* marks it dirty */

/* Sets the timers of each dirty queue and calls `each` for it (may be NULL). No queue is dirty
 * afterwards. */
void resident_retime(struct resident *r, void (*each)(struct resident_queue *rq, void *ctx),
                     void *ctx);

int64_t resident_next_due_ms(struct engine *e, struct instant now);
bool resident_holds(struct engine *e, struct engine_queue *q, const struct claim_question *ask,
                    struct instant now);
struct engine_queue *resident_queue_find(struct engine *e, const char *name, size_t len);
struct engine_queue *resident_queue_each(struct engine *e, size_t *at);

#endif
