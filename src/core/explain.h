/* Why a message waits: how many would be claimed before it, under the queue's
 * present policy and if nothing else came. Two steps, because only the engine can
 * count: first the places up to which each level goes before the message, then,
 * with those counted, the sum. */
#ifndef TRIAGE_CORE_EXPLAIN_H
#define TRIAGE_CORE_EXPLAIN_H

#include "core/policy.h"
#include "core/queue.h"

struct explain {
    const struct queue_config *config;
    const struct policy *policy;
    const struct queue_view *view;
    int64_t now_ms;
    /* The message. */
    int rank;
    int64_t ready_ms;
    uint64_t seq;
};

/* Fills one item per level, by rank. */
void explain_places(const struct explain *e, struct count_item items[LEVEL_COUNT_MAX]);

/* `exact` is cleared when the count is not. */
uint64_t explain_ahead(const struct explain *e, const struct count_item items[LEVEL_COUNT_MAX],
                       bool *exact);

/* Places up to which ready messages count as more urgent than their level, or have waited longer
 * than it promises: one item per level each, by rank. */
void explain_aged(const struct queue_config *config, int64_t now_ms, struct count_item *items);
void explain_late(const struct queue_config *config, int64_t now_ms, struct count_item *items);

#endif
