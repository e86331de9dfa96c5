/* Which level a claim is served from. A policy is a pure function over the heads
 * of the levels; it keeps its own small state per queue (tokens, for policies
 * that have them) and touches no message. It lives once, above the engines: the
 * dispatcher asks for a plan and hands that to whichever engine has the queue. */
#ifndef TRIAGE_CORE_POLICY_H
#define TRIAGE_CORE_POLICY_H

#include "core/levels.h"

/* What is known of one level: the head and how many stand behind it. */
struct lane_view {
    uint64_t ready;
    uint64_t scheduled;
    uint64_t leased;
    uint64_t dead;
    int64_t head_ms; /* ready time of the first ready message; meaningless when none is */
};

/* What is known of a queue. In-process engines keep it live; others refresh it with every answer.
 */
struct queue_totals {
    uint64_t enqueued, claimed, acked, nacked, released, lease_expired, expired, dead, deduplicated,
        redelivered, cancelled, redriven;
};

struct queue_view {
    struct lane_view lanes[LEVEL_COUNT_MAX]; /* by slot */
    uint64_t ready;
    uint64_t scheduled;
    uint64_t leased;
    uint64_t dead;
    uint64_t bytes; /* payload and metadata, scheduled and ready */
    struct queue_totals totals;
};

struct plan_step {
    uint8_t slot;
    uint8_t rank;
    uint16_t max;
};

/* Take at most step[0].max from step[0].slot, then go on with the next, until `want` are found. */
struct plan {
    uint32_t want;
    uint32_t step_count;
    struct plan_step steps[CLAIM_MAX];
};

/* A queue's policy with its state. */
struct policy {
    enum policy_kind kind;
};

void policy_init(struct policy *p, const struct queue_config *config);

/* Plans a claim of up to `want` messages from the ranks 0 … max_rank at the time `now`. A plan with
 * no steps means that nothing eligible is ready. */
void policy_plan(struct policy *p, const struct queue_config *config, const struct queue_view *view,
                 int max_rank, uint32_t want, int64_t wall_ms, struct plan *plan);

/* Ready messages in the ranks 0 … max_rank. */
uint64_t policy_eligible(const struct queue_config *config, const struct queue_view *view,
                         int max_rank);

#endif
