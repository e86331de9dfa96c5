#include "broker/claim_rate.h"

#include <assert.h>
#include <string.h>

/* Clears the counts of the seconds in which nothing was claimed. */
static void move_on(struct claim_rate *rate, int64_t second)
{
    if (second - rate->last_s >= CLAIM_RATE_SECONDS)
        memset(rate->counts, 0, sizeof(rate->counts));
    else
        while (rate->last_s < second)
            rate->counts[++rate->last_s % CLAIM_RATE_SECONDS] = 0;
    rate->last_s = second;
}

void claim_rate_add(struct claim_rate *rate, uint32_t claims, int64_t mono_ms)
{
    int64_t second = mono_ms / 1000;
    assert(second >= 0); /* it is an index of counts */
    if (rate->first_s == 0)
        rate->first_s = rate->last_s = second;
    if (second != rate->last_s)
        move_on(rate, second);
    rate->counts[second % CLAIM_RATE_SECONDS] += claims;
}

double claim_rate_per_second(const struct claim_rate *rate, int64_t mono_ms)
{
    struct claim_rate now = *rate;
    int64_t second = mono_ms / 1000, span = second - rate->first_s + 1;
    uint64_t sum = 0;
    if (rate->first_s == 0)
        return 0;
    move_on(&now, second);
    for (int i = 0; i < CLAIM_RATE_SECONDS; i++)
        sum += now.counts[i];
    return (double)sum / (double)(span < CLAIM_RATE_SECONDS ? span : CLAIM_RATE_SECONDS);
}
