/* How long things took, counted in buckets whose bounds are durations that people think in. For
 * /metrics, and for quantiles of what happened between two looks. Adding is a dozen instructions,
 * and nothing is allocated.
 *
 * A scale says what the bounds are. A value falls into the first bucket whose bound it does not
 * exceed; what exceeds all bounds falls into the last bucket, which has none. */
#ifndef TRIAGE_BASE_DURATIONS_H
#define TRIAGE_BASE_DURATIONS_H

#include <stdatomic.h>
#include <stdint.h>

#define DURATION_BOUNDS  24
#define DURATION_BUCKETS (DURATION_BOUNDS + 1)

struct duration_scale {
    uint64_t per_second; /* how many units of a value are a second */
    /* Each bound is at least twice the one before it, so that no two stand between two powers of
     * two. Behind them stands UINT64_MAX. */
    uint64_t bounds[DURATION_BUCKETS];
    uint8_t first[65]; /* by the length of a value in bits: how many bounds are shorter, or the
                          power of two of that length */
};

extern const struct duration_scale duration_waits; /* milliseconds, from 1 to a day */
extern const struct duration_scale duration_works; /* microseconds, from 10 to ten minutes */

/* A zeroed struct has counted nothing. One thread adds and reads. */
struct durations {
    uint64_t sum;
    uint64_t buckets[DURATION_BUCKETS];
};

static inline uint32_t duration_bucket(const struct duration_scale *s, uint64_t value)
{
    uint32_t i = s->first[64 - __builtin_clzll(value | 1)];
    return i + (value > s->bounds[i]);
}

static inline void durations_add(struct durations *d, const struct duration_scale *s,
                                 uint64_t value)
{
    d->buckets[duration_bucket(s, value)]++;
    d->sum += value;
}

uint64_t durations_count(const struct durations *d);

/* The value that `share` (0 to 1) of all values do not exceed, as if those of a bucket were spread
 * evenly over it; at most the last bound. 0 when nothing was counted. */
double durations_quantile(const struct durations *d, const struct duration_scale *s, double share);

/* The same for numbers that one thread adds to and others read. */
struct shared_durations {
    atomic_ullong sum;
    atomic_ullong buckets[DURATION_BUCKETS];
};

void shared_durations_add(struct shared_durations *d, const struct duration_scale *s,
                          uint64_t value);
/* Any thread: adds what was counted up to now to `sum`. */
void shared_durations_sum(const struct shared_durations *d, struct durations *sum);

#endif
