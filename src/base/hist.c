#include "base/hist.h"

#include <assert.h>
#include <stddef.h>

#define SUB_COUNT (1u << HIST_SUB_BITS)

/* Values below SUB_COUNT have a bucket each. Above, the highest bit chooses the row and the
 * HIST_SUB_BITS bits after it the column. */
static size_t bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (size_t)value;
    if (value >> HIST_MAX_BITS)
        return HIST_BUCKETS - 1;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - HIST_SUB_BITS;
    return ((size_t)(shift + 1) << HIST_SUB_BITS) + ((size_t)(value >> shift) - SUB_COUNT);
}

static uint64_t bucket_top(size_t bucket)
{
    if (bucket < SUB_COUNT)
        return bucket;
    unsigned shift = (unsigned)(bucket >> HIST_SUB_BITS) - 1;
    return ((SUB_COUNT + (bucket & (SUB_COUNT - 1)) + 1) << shift) - 1;
}

void hist_add(struct hist *h, uint64_t value)
{
    h->count++;
    h->sum += value;
    if (value > h->max)
        h->max = value;
    size_t bucket = bucket_of(value);
    assert(bucket < HIST_BUCKETS);
    h->buckets[bucket]++;
}

uint64_t hist_quantile(const struct hist *h, double share)
{
    if (h->count == 0)
        return 0;
    double wanted = share * (double)h->count;
    uint64_t seen = 0;
    for (size_t i = 0; i < HIST_BUCKETS - 1; i++) {
        seen += h->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return bucket_top(i) < h->max ? bucket_top(i) : h->max;
    }
    return h->max;
}

double hist_mean(const struct hist *h)
{
    return h->count ? (double)h->sum / (double)h->count : 0;
}
