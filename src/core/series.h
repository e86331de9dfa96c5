/* Time series in bounded memory: what the numbers of a queue were, second by second for an hour,
 * and coarser for longer. Pure: the caller says what time it is.
 *
 * A series has four tiers (SERIES_TIERS). Each keeps points on its own grid of time, and a point
 * only where a number is another one than at the point before. So numbers that do not change cost
 * nothing, and the state at a time is that of the last point up to it.
 *
 * Points lie in blocks. A block begins with all numbers, and goes on with differences: so it is
 * read without those before it, which may be gone. All blocks of a pool share its bytes. When there
 * are none left, the tier that has most of them loses its oldest block, whosever it is. */
#ifndef TRIAGE_CORE_SERIES_H
#define TRIAGE_CORE_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERIES_TIERS  4
#define SERIES_VALUES 89 /* numbers of a point */

struct series_tier {
    int64_t step_s;
    int64_t span_s; /* points are kept for so long */
};

extern const struct series_tier series_tiers[SERIES_TIERS];

struct series_block;
struct series;

struct series_list {
    struct series_block *oldest, *newest;
    size_t bytes;
};

struct series_pool {
    size_t bytes; /* taken now, the series themselves included */
    size_t bytes_max;
    struct series_list lists[SERIES_TIERS];
};

void series_pool_init(struct series_pool *pool, size_t bytes_max);

/* Adds the point of time `at_s` to a tier. `*s` is made when the first number is not 0. A time that
 * is not after the last one of the tier is left out. */
void series_record(struct series_pool *pool, struct series **s, int tier, int64_t at_s,
                   const uint64_t values[SERIES_VALUES]);

/* Lets go of some points that are older than their tier keeps them. */
void series_expire(struct series_pool *pool, int64_t now_s);

/* Visits the points from the last one up to `from_s` on, to `to_s`. `s` may be NULL. */
typedef void series_visit(void *ctx, int64_t at_s, const uint64_t values[SERIES_VALUES]);
void series_read(const struct series *s, int tier, int64_t from_s, int64_t to_s,
                 series_visit *visit, void *ctx);

void series_free(struct series_pool *pool, struct series **s);

#endif
