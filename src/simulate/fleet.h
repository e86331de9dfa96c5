/* A workload on many cells and servers, on invented time. The servers' engine is the real `cells`
 * with the real plans of the policy; the stores behind it are simulated (depot.h), and so is what
 * the dispatcher of a server does for the consumers that wait: who came first is served first, and
 * a claim is made while the view shows something, or when nobody else asks.
 *
 * The same terms give the same result. */
#ifndef TRIAGE_SIMULATE_FLEET_H
#define TRIAGE_SIMULATE_FLEET_H

#include "simulate/depot.h"
#include "simulate/simulate.h"

#define FLEET_EPOCH_MS     1767225600000 /* when every simulation starts: 2026-01-01 */
#define FLEET_CELLS_MAX    1024
#define FLEET_SERVERS_MAX  256
#define FLEET_FAILURES_MAX 16

/* A cell that does not answer for some time. */
struct fleet_failure {
    uint32_t cell;
    int64_t at_us, for_us;
};

struct fleet_terms {
    const struct workload *workload; /* its duration and consumers are not looked at */
    struct depot_terms depot;
    uint32_t cells, servers, consumers;
    int64_t duration_us;
    uint64_t seed;
    /* As much as there is room for: as many producers as consumers, each of which enqueues the next
     * message when the last is answered; consumers who come when a tenth of the time is over, so
     * that something waits, and acknowledge at once. Otherwise what the workload says. */
    bool full;
    const struct fleet_failure *failures;
    uint32_t failure_count;
};

/* Claims before, while and after cells were away. */
enum { FLEET_BEFORE, FLEET_AWAY, FLEET_AFTER, FLEET_PERIODS };

struct fleet_period {
    struct hist own_ms;    /* waits of messages of the cells that fail at some time … */
    struct hist others_ms; /* … and of the others */
    int64_t pause_us;      /* the longest time in which no claim found anything */
    uint64_t refused;      /* enqueues */
    uint64_t retried;      /* acknowledgements */
};

struct fleet_result {
    struct simulation sim; /* levels, arrived, claimed, done, busy; no bounds */
    double per_second;     /* messages done, without the first fifth of the time */
    double cells_busy;     /* share of the time of a cell, on average */
    uint64_t passed_between, passed_within;
    struct hist between_us, within_us; /* ledger.h */
    uint64_t groups, looks, strays;
    struct fleet_period periods[FLEET_PERIODS];
};

void fleet_run(const struct fleet_terms *terms, struct fleet_result *out,
               simulation_progress *progress, void *ctx);

/* The processor time that a server spends in the engine until it knows the heads of all partitions,
 * when it knows nothing at first. The only figure that is another one each time. */
int64_t fleet_rebuild_us(const struct fleet_terms *terms);

#endif
