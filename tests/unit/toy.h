/* A queue of toys: ready times in sorted arrays, and claims that follow a plan to
 * the letter. Enough of an engine to see what a policy does, and nothing that
 * could hide it. */
#ifndef TRIAGE_TESTS_TOY_H
#define TRIAGE_TESTS_TOY_H

#include "core/policy.h"

#define TOY_NOW 1750000000000

struct toy_message {
    int64_t ready_ms;
    uint64_t seq;
    int rank;
};

struct toy_lane {
    struct toy_message *messages; /* owned; in order, from `head` on */
    uint32_t head, count, cap;
};

struct toy {
    struct queue_config config;
    struct queue_view view;
    struct policy policy;
    int64_t now_ms;
    struct plan plan; /* the last one */
    /* Private. */
    struct toy_lane lanes[LEVEL_COUNT_MAX]; /* by slot */
    uint64_t next_seq;
};

/* Slots run against ranks, so that mixing them up shows. */
void toy_init(struct toy *t, const char *profile);
void toy_custom(struct toy *t, int level_count); /* strict, weights 1, nothing else */
void toy_fini(struct toy *t);
void toy_configured(struct toy *t); /* after t->config was changed */

uint64_t toy_put(struct toy *t, int rank, int64_t ready_ms); /* returns its seq */
void toy_fill(struct toy *t, int rank, uint32_t count);      /* ready now */
void toy_drop(struct toy *t, int rank, uint32_t count);   /* heads vanish; the view does not know */
void toy_finish(struct toy *t, int rank, uint32_t count); /* that many leases end */

/* Plans and claims. Returns how many; `out`, if not NULL, has room for them. */
uint32_t toy_claim(struct toy *t, int max_rank, uint32_t want, struct toy_message *out);
/* toy_claim() in two steps: plan, then claim. */
void toy_plan(struct toy *t, int max_rank, uint32_t want);
uint32_t toy_follow(struct toy *t, struct toy_message *out);

/* Claims `total`, `want` at a time, from all levels; counts them by rank. */
void toy_drain(struct toy *t, uint64_t total, uint32_t want, uint64_t counts[LEVEL_COUNT_MAX]);

#endif
