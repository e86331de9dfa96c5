#include "cli/loadgen_hist.h"

#include <stddef.h>

#define SUB_COUNT (1u << LOADGEN_HIST_SUB_BITS)

/* Values below SUB_COUNT have a bucket each. Above, the highest bit chooses the row and the
 * LOADGEN_HIST_SUB_BITS bits after it the column. */
static size_t bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (size_t)value;
    if (value >> LOADGEN_HIST_MAX_BITS)
        return LOADGEN_HIST_BUCKETS - 1;
    unsigned shift = 63 - (unsigned)__builtin_clzll(value) - LOADGEN_HIST_SUB_BITS;
    return ((size_t)(shift + 1) << LOADGEN_HIST_SUB_BITS) + ((size_t)(value >> shift) - SUB_COUNT);
}

static uint64_t bucket_top(size_t bucket)
{
    if (bucket < SUB_COUNT)
        return bucket;
    unsigned shift = (unsigned)(bucket >> LOADGEN_HIST_SUB_BITS) - 1;
    return ((SUB_COUNT + (bucket & (SUB_COUNT - 1)) + 1) << shift) - 1;
}

void loadgen_hist_add(struct loadgen_hist *h, uint64_t value)
{
    h->count++;
    h->sum += value;
    if (value > h->max)
        h->max = value;
    h->buckets[bucket_of(value)]++;
}

uint64_t loadgen_hist_quantile(const struct loadgen_hist *h, double share)
{
    if (h->count == 0)
        return 0;
    double wanted = share * (double)h->count;
    uint64_t seen = 0;
    for (size_t i = 0; i < LOADGEN_HIST_BUCKETS - 1; i++) {
        seen += h->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return bucket_top(i) < h->max ? bucket_top(i) : h->max;
    }
    return h->max;
}

double loadgen_hist_mean(const struct loadgen_hist *h)
{
    return h->count ? (double)h->sum / (double)h->count : 0;
}
