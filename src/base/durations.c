#include "base/durations.h"

/* clang-format off */
#define SECOND(n)   (1000 * (n))
#define MINUTE(n)   (60 * SECOND(n))
#define HOUR(n)     (60 * MINUTE(n))

const struct duration_scale duration_waits = {
    .per_second = 1000,
    .bounds = {1, 2, 5, 10, 20, 50, 100, 200, 500,
               SECOND(1), SECOND(2), SECOND(5), SECOND(10), SECOND(30),
               MINUTE(1), MINUTE(2), MINUTE(5), MINUTE(10), MINUTE(30),
               HOUR(1), HOUR(2), HOUR(6), HOUR(12), HOUR(24), UINT64_MAX},
    .first = {0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12, 13,
              14, 15, 16, 16, 17, 18, 19, 20, 21, 21, 22, 23, 24, 24, 24, 24,
              24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24,
              24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24,
              24},
};
#undef SECOND
#undef MINUTE
#undef HOUR

#define MILLI(n)    (1000 * (n))
#define SECOND(n)   (1000 * MILLI(n))
#define MINUTE(n)   (60 * SECOND(n))

const struct duration_scale duration_works = {
    .per_second = 1000000,
    .bounds = {10, 20, 50, 100, 200, 500,
               MILLI(1), MILLI(2), MILLI(5), MILLI(10), MILLI(20), MILLI(50), MILLI(100),
               MILLI(200), MILLI(500),
               SECOND(1), SECOND(2), SECOND(5), SECOND(10), SECOND(30),
               MINUTE(1), MINUTE(2), MINUTE(5), MINUTE(10), UINT64_MAX},
    .first = {0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 10,
              11, 12, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 22, 22, 23, 24,
              24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24,
              24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24,
              24},
};
/* clang-format on */

uint64_t durations_count(const struct durations *d)
{
    uint64_t count = 0;
    for (int i = 0; i < DURATION_BUCKETS; i++)
        count += d->buckets[i];
    return count;
}

double durations_quantile(const struct durations *d, const struct duration_scale *s, double share)
{
    double rank = share * (double)durations_count(d), below = 0;
    int last = DURATION_BUCKETS - 1;
    for (int i = 0; i < last; i++) {
        double in = (double)d->buckets[i], from = i > 0 ? (double)s->bounds[i - 1] : 0;
        if (in > 0 && below + in >= rank)
            return from + ((double)s->bounds[i] - from) * (rank - below) / in;
        below += in;
    }
    return d->buckets[last] > 0 ? (double)s->bounds[last - 1] : 0;
}

/* Only one thread writes, so nothing is lost between the load and the store. */
static void add_to(atomic_ullong *to, uint64_t value)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + value,
                          memory_order_relaxed);
}

void shared_durations_add(struct shared_durations *d, const struct duration_scale *s,
                          uint64_t value)
{
    add_to(&d->buckets[duration_bucket(s, value)], 1);
    add_to(&d->sum, value);
}

void shared_durations_sum(const struct shared_durations *d, struct durations *sum)
{
    for (int i = 0; i < DURATION_BUCKETS; i++)
        sum->buckets[i] += atomic_load_explicit(&d->buckets[i], memory_order_relaxed);
    sum->sum += atomic_load_explicit(&d->sum, memory_order_relaxed);
}
