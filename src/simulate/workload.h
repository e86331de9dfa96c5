/* What `triage simulate` is asked to try: a queue, what arrives at each of its
 * levels, and how many consumers there are. Read from a small JSON description;
 * `queue` in it is the body of PUT /v1/queues/{queue}, read by the same parser. */
#ifndef TRIAGE_SIMULATE_WORKLOAD_H
#define TRIAGE_SIMULATE_WORKLOAD_H

#include "api/problem.h"
#include "core/config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORKLOAD_MESSAGES_MAX  100000000 /* that may be expected to arrive */
#define WORKLOAD_BACKLOG_MAX   5000000   /* at the start, all levels together */
#define WORKLOAD_CONSUMERS_MAX 10000
#define WORKLOAD_SECONDS_MAX   (366LL * 86400)
#define WORKLOAD_RATE_MAX      1000000.0 /* a second */
#define WORKLOAD_FACTOR_MAX    1000.0
#define WORKLOAD_CHANGES_MAX   64

enum arrival_pattern { ARRIVALS_POISSON, ARRIVALS_STEADY };

/* What arrives at one level. */
struct arrivals {
    bool given;
    enum arrival_pattern pattern;
    double per_second;
    int64_t service_us; /* how long a consumer works on one */
    /* From the start of every `burst_every_us`, for `burst_us`, the rate is `burst_factor` times
     * as high. */
    int64_t burst_every_us; /* 0: no bursts */
    int64_t burst_us;
    double burst_factor;
    uint64_t backlog; /* ready at the start */
};

/* The queue's configuration from a time on. It has the same levels, perhaps in another order. */
struct workload_change {
    int64_t at_us;
    struct queue_config queue;
};

struct workload {
    struct queue_config queue;
    struct arrivals arrivals[LEVEL_COUNT_MAX]; /* by rank in `queue` */
    uint32_t consumers;
    uint32_t claim_max; /* messages that a consumer claims at a time */
    int64_t duration_us;
    uint64_t seed;
    struct workload_change *changes; /* owned; by time */
    uint32_t change_count;
};

/* On failure nothing is owned and the problem names the field, as a path into the description. */
MUST_USE bool workload_parse(const char *text, size_t len, struct workload *w, struct problem *p);
void workload_fini(struct workload *w);

#endif
