/* Whether a queue gets another share for one of its partitions, because that partition's cell takes
 * too long for its commits, or the partition is too deep.
 *
 *   over ── for after_ms without a pause ──> half of its buckets go to the cell with the most room
 *        <── rest_ms ──────────────────────  whoever made the change
 *
 * Nothing ever goes back by itself. The decision is made of figures and of the time alone: this
 * file does no I/O and has no state but the caller's. */
#ifndef TRIAGE_ENGINE_CELLS_SPLIT_H
#define TRIAGE_ENGINE_CELLS_SPLIT_H

#include "base/clock.h"

#include <stdbool.h>
#include <stdint.h>

struct split_terms {
    bool on;
    uint32_t commit_ms; /* a cell whose commits take longer is over … */
    uint64_t depth;     /* … and a partition with more messages that are ready */
    int64_t after_ms;
    int64_t rest_ms;
};

enum split_cause { SPLIT_BY_COMMIT, SPLIT_BY_DEPTH };

/* What is known of a partition. */
struct split_figures {
    bool open; /* it takes new messages, and its cell answers */
    uint32_t buckets;
    uint32_t commit_ms; /* of its cell, on average */
    uint64_t depth;
    int64_t over_ms; /* mono: since when it is over; 0: it is not. split_decide() keeps it */
};

enum split_state {
    SPLIT_CALM,     /* nothing is over */
    SPLIT_OVER,     /* not for long enough yet: wait_ms */
    SPLIT_RESTS,    /* it was split not long ago: wait_ms */
    SPLIT_NO_ROOM,  /* no other cell has room */
    SPLIT_NO_SHARE, /* it has one bucket, or none */
    SPLIT_NOW,
    SPLIT_STATE_COUNT
};

struct split_decision {
    enum split_state state;
    enum split_cause cause; /* if something is over: … */
    uint32_t from;          /* … the partition that has been for the longest time */
    uint32_t to, buckets;   /* SPLIT_NOW */
    int64_t wait_ms;        /* SPLIT_OVER, SPLIT_RESTS: for so long */
};

/* For one queue. `split_ms`: wall, when it was split last; 0: never. */
struct split_decision split_decide(const struct split_terms *terms,
                                   struct split_figures partitions[], uint32_t count,
                                   int64_t split_ms, struct instant now);

#endif
