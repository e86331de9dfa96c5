/* A workload run on invented time: the memory engine and the policy of the server
 * itself, with arrivals and consumers from a seed in place of clients. A consumer
 * claims up to claim_max messages, works on one after the other, acks each, and
 * claims again; it keeps its leases however long that takes. The same workload
 * gives the same result. */
#ifndef TRIAGE_SIMULATE_SIMULATE_H
#define TRIAGE_SIMULATE_SIMULATE_H

#include "base/hist.h"
#include "simulate/bounds.h"
#include "simulate/workload.h"

#include <stdbool.h>
#include <stdint.h>

#define SIMULATION_POINTS      144      /* spans of equal length that a run is cut into */
#define SIMULATION_WAITING_MAX 10000000 /* messages, some 160 bytes each */

/* What was seen of a level in one span of time. */
struct simulation_point {
    int64_t p50_ms;     /* of those claimed in it; -1 when none was */
    int64_t longest_ms; /* of those, and of the messages that still wait at its end; -1: none */
};

struct simulation_level {
    char name[LEVEL_NAME_MAX + 1];
    uint64_t arrived; /* with the backlog */
    uint64_t refused; /* by max_depth */
    uint64_t claimed;
    uint64_t done;
    uint64_t waiting;   /* in the end */
    uint64_t aged;      /* claimed as something more urgent than their level */
    uint64_t late;      /* claimed after their level's max_wait */
    struct hist waits;  /* of the claimed, in milliseconds */
    int64_t longest_ms; /* also of those that wait in the end */
    bool longest_waits; /* it is one of those: it goes on */
    struct simulation_point points[SIMULATION_POINTS];
};

struct simulation {
    int level_count;
    struct simulation_level levels[LEVEL_COUNT_MAX]; /* by rank in workload.queue */
    uint64_t arrived, claimed, done, expired;
    int64_t ended_us;
    double busy;               /* share of the consumers' time */
    struct queue_config queue; /* the configuration at the end */
    struct bounds bounds; /* of that configuration, for messages that arrived under it; by rank */
};

/* Called now and then with the time reached and the messages arrived so far. */
typedef void simulation_progress(void *ctx, int64_t at_us, uint64_t arrived);

/* Runs the whole workload. False when more messages would wait than SIMULATION_WAITING_MAX: the
 * result is what was seen until then. `progress` may be NULL. */
MUST_USE bool simulate(const struct workload *w, struct simulation *out,
                       simulation_progress *progress, void *ctx);

#endif
