/* Which level a claim is served from. A policy is a pure function over the heads
 * of the levels; it keeps its own small state per queue (tokens, for policies
 * that have them) and touches no message. It lives once, above the engines: the
 * dispatcher asks for a plan and hands that to whichever engine has the queue.
 *
 * Under every policy a level has its own messages and those of less urgent levels
 * that have aged into it. A policy chooses a level, and the oldest message of that:
 *
 *   strict    chooses the most urgent level that has a message
 *   weighted  each level has tokens in proportion to its weight. Chooses the level
 *             with the most tokens left among those that have a message, on a tie
 *             the more urgent one, and takes a token from it. When none of them has
 *             a token left, all levels are refilled.
 *
 * Under both, messages that would soon have waited longer than their level's
 * max_wait go first, the nearest deadline before the others. A level at its
 * in-flight limit is passed over. Consumers that take only the more urgent levels
 * have tokens of their own, so that they cannot use up, or refill, the tokens of
 * consumers that take all levels. */
#ifndef TRIAGE_CORE_POLICY_H
#define TRIAGE_CORE_POLICY_H

#include "core/config.h"
#include "core/view.h"

/* The messages of one lane that were ready by `until_ms`. */
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
    uint8_t rank; /* the rank that its messages count as */
    bool in_turn; /* see struct plan */
};

#define PLAN_STEPS_MAX (LEVEL_COUNT_MAX + 1)
#define PLAN_LANES_MAX ((LEVEL_COUNT_MAX + 1) * LEVEL_COUNT_MAX)

struct policy;

/* The steps are carried out one after the other, until `want` messages are found. A lane never
 * gives more than room[slot].
 *
 * Steps in turn (in_turn) come last, one for each rank, and are carried out together: each message
 * is taken from the step whose rank has its turn (policy_turn) among the steps that still have
 * messages, and costs a token (policy_spend). The engine asks policy_turn() when it takes the
 * message, not before, because other claims may have spent tokens since the plan was made. */
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
    int64_t climb_ms[LEVEL_COUNT_MAX]; /* by rank: after this wait a message counts as … */
    uint8_t climb_to[LEVEL_COUNT_MAX]; /* … this rank, the most urgent that it ever counts as */
    uint32_t quota[LEVEL_COUNT_MAX];   /* tokens of a full bucket, by rank */
    uint32_t tokens[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX]; /* [least urgent rank taken][rank] */
    uint32_t rules; /* the caller's: how often the policy was made anew, with full buckets */
};

void policy_init(struct policy *p, const struct queue_config *config);

/* Plans a claim of up to `want` messages from the ranks 0 … max_rank at the time wall_ms. The plan
 * finds the messages that so many claims of one message would find at that time, one after the
 * other. A plan without steps means that nothing may be claimed.
 *
 * `view` has to be exact: the plan leaves out lanes in which it shows nothing. With NULL the plan
 * is right whatever the lanes hold, and longer; then the engine has to keep the in-flight limits.
 */
void policy_plan(struct policy *p, const struct queue_config *config, const struct queue_view *view,
                 int max_rank, uint32_t want, int64_t wall_ms, struct plan *plan);

void policy_check(const struct policy *p, const struct queue_config *config); /* for tests */

/* Whether the policy is strict order alone: one level after the other, without ages and promises.
 */
bool policy_is_plain(const struct policy *p);

/* Claims that take the ranks 0 … max_rank have a set of tokens of their own. policy_turn() says
 * which of the ranks in a set of bits, which is not empty, has its turn; policy_spend() takes the
 * token of a message that counted as `rank`. */
int policy_turn(const struct policy *p, int max_rank, uint32_t ranks);
void policy_spend(struct policy *p, int max_rank, int rank);

/* How many more messages of a level may be in flight (policy_lane_room), and how many of its ready
 * ones may be claimed within that limit (policy_claimable). */
uint32_t policy_lane_room(const struct queue_config *config, const struct queue_view *view,
                          int rank);
uint64_t policy_claimable(const struct queue_config *config, const struct queue_view *view,
                          int rank);

/* How many may be claimed from the ranks 0 … max_rank together. */
uint64_t policy_eligible(const struct queue_config *config, const struct queue_view *view,
                         int max_rank);

/* How many more the queue's own in-flight limit allows. */
uint64_t policy_room(const struct queue_config *config, const struct queue_view *view);

/* The length of a cycle: the sum of all full buckets. While every level has messages, so many
 * claims by consumers that take all levels are divided exactly by weight. A message with k of its
 * level before it is among the next (⌈(k + 1) / quota⌉ + 1) × cycle claims, whatever the other
 * levels do. */
uint64_t policy_cycle(const struct policy *p, const struct queue_config *config);

/* How many messages go before a message at `rank`, by weights alone, if nothing else comes.
 * before[rank] is how many of its own level stand before it; before[] of any other level is how
 * many are ready there. */
uint64_t policy_weighted_ahead(const struct policy *p, const struct queue_config *config,
                               const uint64_t before[LEVEL_COUNT_MAX], int rank);

#endif
