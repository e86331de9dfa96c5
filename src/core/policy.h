/* Which level a claim is served from. A policy is a pure function over the heads
 * of the levels; it keeps its own small state per queue (tokens, for policies
 * that have them) and touches no message. It lives once, above the engines: the
 * dispatcher asks for a plan and hands that to whichever engine has the queue.
 *
 * Whatever the policy, what counts as a level is the level's own messages and
 * those of less urgent levels that have aged into it:
 *
 *   strict    the most urgent level that has something; in it the oldest
 *   weighted  each level has tokens in proportion to its weight. The level with the
 *             most tokens left among those that have something, ties to the more
 *             urgent; it costs one token. When none of them has any, all are
 *             refilled. In it the oldest.
 *
 * Before either, messages that would soon have waited longer than their level's
 * max_wait: the nearest deadline first. A level at its in-flight limit is passed
 * over. Consumers that take only the more urgent levels have tokens of their own,
 * so that they cannot use up, or refill, those of the others. */
#ifndef TRIAGE_CORE_POLICY_H
#define TRIAGE_CORE_POLICY_H

#include "core/config.h"
#include "core/view.h"

/* Of this lane, messages that were ready by `until_ms`. */
struct plan_lane {
    int64_t until_ms;
    int64_t bias_ms; /* added to their ready time when lanes are compared */
    uint8_t slot;
    uint8_t rank;
};

/* Up to `max` messages from these lanes: whichever head has the smallest
 * (ready_ms + bias_ms, seq), one after the other. */
struct plan_step {
    uint16_t max;
    uint16_t found; /* out: the engine's answer */
    uint16_t first_lane;
    uint8_t lane_count;
    uint8_t rank; /* as what it counts */
    bool in_turn; /* see struct plan */
};

#define PLAN_STEPS_MAX (LEVEL_COUNT_MAX + 1)
#define PLAN_LANES_MAX ((LEVEL_COUNT_MAX + 1) * LEVEL_COUNT_MAX)

struct policy;

/* The steps one after the other, until `want` are found; never more than room[slot] from a lane.
 *
 * Steps in turn come last, and are one for each rank. Each message is taken from the step whose
 * rank has its turn (policy_turn) among those that still have something, and costs a token
 * (policy_spend). Whoever carries out the plan asks when it does so and not before: what other
 * claims cost until then counts. */
struct plan {
    uint32_t want;
    uint32_t step_count;
    uint32_t lane_count;
    int max_rank;
    int64_t until_ms;               /* INT64_MAX, or where urgency_cut() ended it */
    struct policy *policy;          /* of the steps in turn; else NULL */
    uint32_t room[LEVEL_COUNT_MAX]; /* by slot */
    struct plan_step steps[PLAN_STEPS_MAX];
    struct plan_lane lanes[PLAN_LANES_MAX];
};

/* A queue's policy with its state. */
struct policy {
    enum policy_kind kind;
    bool ages;                         /* some level ages */
    bool promises;                     /* some level has a max_wait */
    int64_t climb_ms[LEVEL_COUNT_MAX]; /* by rank: after this wait it counts as … */
    uint8_t climb_to[LEVEL_COUNT_MAX]; /* … this, the most urgent it ever will */
    uint32_t quota[LEVEL_COUNT_MAX];   /* tokens of a full bucket, by rank */
    uint32_t tokens[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX]; /* [least urgent rank taken][rank] */
    uint32_t rules; /* the caller's: how often it was made anew, which forgets all tokens */
};

void policy_init(struct policy *p, const struct queue_config *config);

/* Plans a claim of up to `want` messages from the ranks 0 … max_rank at the time `now`. The plan
 * finds what as many claims of one message each would find at that time, one after the other. A
 * plan with no steps means that nothing may be claimed.
 *
 * With a view that is exact, the plan leaves out what cannot be found. Without one (NULL) it is
 * right whatever there is, and longer; limits in flight are then the engine's to keep. */
void policy_plan(struct policy *p, const struct queue_config *config, const struct queue_view *view,
                 int max_rank, uint32_t want, int64_t wall_ms, struct plan *plan);

void policy_check(const struct policy *p, const struct queue_config *config); /* for tests */

/* Strict order alone: one level after the other, and none waits for another's age. */
bool policy_is_plain(const struct policy *p);

/* Tokens of the claims that take the ranks 0 … max_rank: whose turn it is among the ranks of a set
 * that is not empty; and what a message that counted as `rank` costs. */
int policy_turn(const struct policy *p, int max_rank, uint32_t ranks);
void policy_spend(struct policy *p, int max_rank, int rank);

/* How many of a level may be claimed now: ready ones, within the level's in-flight limit. */
uint32_t policy_lane_room(const struct queue_config *config, const struct queue_view *view,
                          int rank); /* how many more may be in flight at a level */
uint64_t policy_claimable(const struct queue_config *config, const struct queue_view *view,
                          int rank);

/* The same for the ranks 0 … max_rank together. */
uint64_t policy_eligible(const struct queue_config *config, const struct queue_view *view,
                         int max_rank);

/* How many more the queue's own in-flight limit allows. */
uint64_t policy_room(const struct queue_config *config, const struct queue_view *view);

/* The sum of all full buckets. With every level backlogged, this many claims by consumers that take
 * all levels divide exactly by weight. However the others behave, a message with k of its level
 * before it is among the next (⌈(k + 1) / quota⌉ + 1) × cycle of them. */
uint64_t policy_cycle(const struct policy *p, const struct queue_config *config);

/* How many messages go before the one at `rank` that has `before[rank]` of its level ahead of it,
 * if nothing else comes, by weights alone; `before` of the other levels is how many are ready. */
uint64_t policy_weighted_ahead(const struct policy *p, const struct queue_config *config,
                               const uint64_t before[LEVEL_COUNT_MAX], int rank);

#endif
