/* A store that is simulated: the engine `memory` behind a network, shared by several servers, on
 * invented time. For each server there is an engine (struct depot_client) that behaves as
 * `postgres` does:
 *
 *   submit … submit, flush      what was submitted is one group, sent as one
 *     -- delay of the network --> the store carries out one group after the other; each takes its
 *                                 time, and takes effect as a whole at its end
 *     <-- delay of the network -- poll: the answers, and the view as it was then
 *
 * So a view is as old as the last answer, less what claims under way may take. A server on which
 * consumers wait is told of what others put, and sweeps. A store that is away is silent: what
 * reaches it waits, and is carried out when it is back. */
#ifndef TRIAGE_SIMULATE_DEPOT_H
#define TRIAGE_SIMULATE_DEPOT_H

#include "engine/engine.h"
#include "simulate/agenda.h"

/* Times in microseconds. */
struct depot_terms {
    int64_t delay_us;     /* of the network, one way */
    int64_t jitter_us;    /* up to so much more */
    int64_t clock_us;     /* a store's clock is wrong by up to so much, either way */
    int64_t group_us;     /* what a group takes of the store … */
    int64_t operation_us; /* … and each message or question in it */
    int64_t epoch_ms;     /* wall clock at the time 0 */
};

struct depot_client;

struct depot {
    struct agenda *agenda;
    const struct depot_terms *terms;
    uint32_t number;
    struct engine *engine;      /* owned: memory */
    struct engine_queue *queue; /* its queue, or NULL */
    uint64_t chance;
    int64_t clock_us; /* how wrong its clock is */
    int64_t free_us;  /* when it has done all that has reached it */
    int64_t back_us;  /* until when it is away */
    int64_t busy_us;  /* spent so far */
    uint64_t groups;
    struct depot_client *clients; /* borrowed: whoever opened them closes them */
};

void depot_init(struct depot *d, struct agenda *agenda, const struct depot_terms *terms,
                uint32_t number, uint64_t seed);
void depot_fini(struct depot *d);                    /* its clients are closed */
void depot_leave(struct depot *d, int64_t until_us); /* it is away from now on */

/* Nothing that the server of this engine sends from now on reaches the store before `until_us`. */
void depot_cut(struct engine *client, int64_t until_us);

/* An engine over the store, with one shard. `wake` is told when there is something to poll. */
struct engine *depot_open(struct depot *d, engine_wake *wake, void *wake_ctx);

#endif
