/* One engine with one shard, driven from one thread on invented time: what the
 * conformance suite and the simulation stand on. Nothing here asserts a promise;
 * what an engine answers is for the caller to judge. An engine that does not answer at all within
 * RIG_PATIENCE_S aborts the program. */
#ifndef TRIAGE_TESTS_RIG_H
#define TRIAGE_TESTS_RIG_H

#include "engine/engine.h"
#include "folder.h"

#include <pthread.h>

#define RIG_PATIENCE_S 60

/* Which engine, and what stands around it. */
struct rig_options {
    const char *kind;
    uint32_t cells; /* above 0: the engine is `cells`, with so many of that kind */
    enum durability durability;
    uint64_t memory_limit;
    /* The rig asks engine_holds() before each claim, as the broker does; between two runs the
     * engine holds what a claim could take, so that every view is exact. */
    bool asks;
    bool traced;             /* trace.h */
    uint32_t hold_polls_max; /* chaos.h: answers are held back over so many polls; 0: none */
};

struct rig {
    struct engine_options options;
    uint32_t hold_polls_max;
    uint64_t memory_limit;
    struct engine_value values[4];
    char cells[2048];      /* what its cells are, for the engine of that name */
    struct engine *engine; /* NULL while closed */
    bool overlap;          /* rig_run flushes after each op: groups are under way side by side */
    struct instant now;    /* what every op is submitted with; the caller moves it */
    char dir[FOLDER_PATH_MAX]; /* owned folder of an engine that keeps files; empty: none */

    /* How the engine's own threads get attention. */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool wake;
};

/* Opens an engine with no data, files in a fresh temporary folder. Aborts when it cannot. */
void rig_init(struct rig *r, const struct rig_options *options);
void rig_fini(struct rig *r); /* closes; the folder is gone */

void rig_reopen(struct rig *r); /* close and open again on the same data */
bool rig_durable(const struct rig *r);

/* Submits the ops as one group and returns when each is done. Their `done` and `user` are the
 * rig's. */
void rig_run(struct rig *r, struct engine_op *ops[], uint32_t count);
uint64_t rig_counter(const struct rig *r, const char *name); /* of those its kind declares */
void rig_run_one(struct rig *r, struct engine_op *op);
void rig_wait(struct rig *r); /* until the engine asks for attention */

/* How many messages go before the one at that place of a level, asked for as the broker does. */
uint64_t rig_position(struct rig *r, struct engine_queue *q, const struct policy *p, int rank,
                      struct place at, bool *exact);

/* Sweeps, `max` messages at a time, until nothing is due at the present time. */
void rig_sweep(struct rig *r, uint32_t max);

/* A configuration with `level_count` levels "L0", "L1" …, numbered alike, that promises nothing:
 * three attempts, 30 s leases, no backoff, no limits, no time to live, no history. */
struct queue_config rig_config(uint32_t level_count);

/* The queue of that name, created when there is none. */
struct engine_queue *rig_queue(struct rig *r, const char *name, const struct queue_config *config);

#endif
