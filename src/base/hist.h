/* A histogram of durations with buckets that grow with the value: every value
 * is kept to better than one part in 128, from a microsecond to a month, in a fixed
 * 30 KiB. Adding is a few instructions; nothing is allocated. */
#ifndef TRIAGE_BASE_HIST_H
#define TRIAGE_BASE_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 7  /* 128 buckets for each power of two */
#define HIST_MAX_BITS 36 /* larger values land in the last bucket */
#define HIST_BUCKETS  ((HIST_MAX_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

/* A zeroed struct is an empty histogram. */
struct hist {
    uint64_t count;
    uint64_t sum;
    uint64_t max; /* exact */
    uint64_t buckets[HIST_BUCKETS];
};

void hist_add(struct hist *h, uint64_t value);

/* The value that `share` (0 to 1) of all values do not exceed, at most one bucket too high and
 * never above max; 0 when empty. */
uint64_t hist_quantile(const struct hist *h, double share);

double hist_mean(const struct hist *h);

#endif
