/* What a queue's configuration promises, as numbers, before anything has run.
 *
 * Weighted: a message with k older ones before it that count as its level is among
 * the next (⌈(k + 1) / quota⌉ + 1) × cycle claims, whatever the other levels do.
 * Strict: only the most urgent level has such a bound, k + 1. Aging: after some time
 * a message counts as the next level. Its bound is the smallest over all levels that
 * it comes to count as: the time until then, plus the bound of that level.
 *
 * Bounds in claims become bounds in time by the slowest pace at which the consumers
 * can claim while a message waits. There is no bound in time for a level with an
 * in-flight limit of its own, nor where another level has a max_wait: messages of
 * that level go first without paying a token. */
#ifndef TRIAGE_SIMULATE_BOUNDS_H
#define TRIAGE_SIMULATE_BOUNDS_H

#include "core/config.h"
#include "core/policy.h"

#include <stdint.h>

#define BOUND_NONE (-1) /* of a time, a number of claims or a share: there is no bound */

/* How fast claims come at the least. */
struct capacity {
    uint32_t consumers;
    uint32_t claim_max;
    int64_t service_us; /* of the level that takes longest */
};

/* A configuration with what its bounds are computed from. */
struct bounder {
    const struct queue_config *config; /* borrowed */
    struct policy policy;
    uint64_t cycle;
    int64_t window_us;  /* in which every consumer claims at least once */
    uint64_t in_window; /* messages that they claim in it */
};

struct level_bound {
    uint32_t quota;
    double share;        /* of the claims, while it has messages, however busy the others are */
    int64_t next_claims; /* its next message is among so many claims */
    int64_t next_ms;
    uint64_t ahead;     /* the most that stood before a new message and could go first */
    int64_t longest_ms; /* with those before it */
    int ages_to;        /* rank that it counts as in the end; its own when it does not age */
    int64_t ages_ms;    /* the wait after which it does */
};

struct bounds {
    uint64_t cycle; /* 0 under strict */
    double claims_per_second;
    struct level_bound levels[LEVEL_COUNT_MAX]; /* by rank */
};

void bounder_init(struct bounder *b, const struct queue_config *config,
                  const struct capacity *capacity);

/* The longest wait of a message of `rank` from when it counts as `to`, with `ahead` others that go
 * first if they count as that too. */
int64_t bounder_ms(const struct bounder *b, int rank, int to, uint64_t ahead);

/* The last rank below `rank` from which messages can age into it; `rank` when there is none. */
int bounds_feeder(const struct queue_config *config, int rank);

/* ahead[rank][to]: the most messages that stood before one that arrived at `rank` and could go
 * before it once it counts as `to`. */
void bounds_compute(const struct bounder *b, const uint64_t ahead[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX],
                    struct bounds *out);

#endif
