/* Why a message waits: how many would be claimed before it, under the queue's
 * present policy, if nothing else came and no time passed. Only the engine can count:
 *
 *   explain_places    places in each level, to be counted by ENGINE_COUNT
 *   explain_ahead     with those counted: the answer, or an estimate of it
 *   explain_is_near   the estimate can be made exact: ENGINE_HEADS, then
 *   explain_follow    plays the claims through, one after the other
 *
 * Counts are enough under strict, and under weighted as long as no message counts as
 * another level: promised messages go first and cost no tokens, the rest is a closed
 * form. Where weights and ages mix, each single claim depends on who is older. There
 * the claims of the first POSITION_EXACT messages are played through, and for a
 * message further back the answer is an estimate. An estimate is never more than the
 * messages before it in its own level and those ready in the others. */
#ifndef TRIAGE_CORE_EXPLAIN_H
#define TRIAGE_CORE_EXPLAIN_H

#include "core/policy.h"
#include "core/queue.h"

struct explain {
    const struct queue_config *config;
    const struct policy *policy;
    int64_t now_ms;
    /* The message. */
    int rank;
    int64_t ready_ms;
    uint64_t seq;
};

#define EXPLAIN_ITEMS_MAX (3 * LEVEL_COUNT_MAX)

/* explain_places() fills some items for each level; explain_item_count() says how many in all,
 * which depends on the policy and the message. */
uint32_t explain_item_count(const struct explain *e);
void explain_places(const struct explain *e, struct count_item items[EXPLAIN_ITEMS_MAX]);

uint64_t explain_ahead(const struct explain *e, const struct count_item items[EXPLAIN_ITEMS_MAX],
                       bool *exact);

/* Whether the answer is not exact, and the message may be among the first POSITION_EXACT. */
bool explain_is_near(const struct explain *e, const struct count_item items[EXPLAIN_ITEMS_MAX]);

/* Fills one item per level, by rank. */
void explain_heads(const struct explain *e, struct heads_item heads[LEVEL_COUNT_MAX]);

/* Sets *ahead to how many messages go first. False when the heads are not enough to tell; *ahead is
 * untouched then. */
bool explain_follow(const struct explain *e, const struct heads_item heads[LEVEL_COUNT_MAX],
                    uint64_t *ahead);

/* One item per level, by rank: the place up to which its ready messages count as more urgent than
 * their level (aged), or have waited longer than it promises (late). */
void explain_aged(const struct queue_config *config, int64_t now_ms, struct count_item *items);
void explain_late(const struct queue_config *config, int64_t now_ms, struct count_item *items);

#endif
