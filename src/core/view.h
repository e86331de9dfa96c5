/* What is known of a queue: how many messages stand where, and what has happened since it was made.
 * The core keeps a view up to date with every move, for `memory` and `local`; `postgres` reads it
 * from the database now and then. */
#ifndef TRIAGE_CORE_VIEW_H
#define TRIAGE_CORE_VIEW_H

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* What is known of one level: the head and how many stand behind it. */
struct lane_view {
    uint64_t ready;
    uint64_t scheduled;
    uint64_t leased;
    uint64_t dead;
    /* Of the first ready message; meaningless when none is. */
    int64_t head_ms;   /* ready time */
    uint64_t head_seq; /* 0: not known; only in a view that is not exact */
};

/* What has happened in a queue since it was made. At every moment
 *   enqueued = ready + scheduled + leased + dead of the view + acked + expired + cancelled. */
struct queue_totals {
    uint64_t enqueued;      /* messages stored: by PUT, IMPORT or FIRE, and not deduplicated */
    uint64_t claimed;       /* leases given; a message counts each time */
    uint64_t acked;         /* messages that ended as DONE */
    uint64_t nacked;        /* leases ended by NACK */
    uint64_t released;      /* leases ended by RELEASE */
    uint64_t lease_expired; /* leases that ran out, counted by the sweep that ends them */
    uint64_t expired;       /* messages that ended as EXPIRED; those that became DEAD are below */
    uint64_t dead;         /* messages that became DEAD, imported ones too; again after a redrive */
    uint64_t deduplicated; /* drafts not stored, because an earlier message has their key */
    uint64_t redelivered;  /* leases of a message that had attempts already */
    uint64_t cancelled;    /* messages that ended as CANCELLED: CANCEL, PURGE, DEAD_DROP */
    uint64_t redriven;     /* dead letters made ready again */
    uint64_t aged;         /* leases of messages that counted as more urgent than their level */
    uint64_t late;         /* leases given after max_wait of the message's level */
    uint64_t escalated;    /* messages given another level; not those that had it already */
};

/* What is known of a queue. engine.h says how fresh it is (ENGINE_LIVE_VIEW). */
struct queue_view {
    struct lane_view lanes[LEVEL_COUNT_MAX]; /* by slot */
    uint64_t ready;
    uint64_t scheduled;
    uint64_t leased;
    uint64_t dead;
    uint64_t bytes; /* payload and metadata, scheduled and ready */
    struct queue_totals totals;
};

/* Which slots hold messages, in any state: a level in use cannot be dropped. */
void queue_view_used(const struct queue_view *view, bool used[LEVEL_COUNT_MAX]);

#endif
