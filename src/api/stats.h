/* The numbers of a queue, for stats, lists and metrics. Private to src/api. */
#ifndef TRIAGE_API_STATS_H
#define TRIAGE_API_STATS_H

#include "base/buf.h"
#include "base/limits.h"
#include "broker/broker.h"

#include <stdint.h>

/* A copy of a queue's numbers, for lists that are sorted later. */
struct queue_row {
    char name[QUEUE_NAME_MAX + 1];
    uint64_t paused; /* 0 or 1; of a sum how many queues */
    uint64_t ready;
    uint64_t scheduled;
    uint64_t leased;
    uint64_t dead;
    uint64_t bytes;
    uint64_t waiting;
    uint64_t oldest_ms; /* 0: none */
    double claims_per_second;
    struct queue_totals totals;
};

void stats_row(const struct queue_facts *facts, struct queue_row *row);
void stats_row_add(struct queue_row *sum, const struct queue_row *row); /* but for the name */
void stats_totals_put(struct buf *out,
                      const struct queue_totals *t); /* as a member: "totals":{…} */
void stats_put(struct buf *out, const struct queue_facts *facts);

/* The partitions of a queue, as members of an array. */
void stats_partitions(struct buf *out, const struct queue_facts *facts);

#endif
