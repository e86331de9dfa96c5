#include "simulate/tide.h"

#include "simulate/agenda.h"

#include <math.h>

/* The rate at a time, and until when it stays so. */
static double rate_at(const struct arrivals *a, double at_us, double *until_us)
{
    *until_us = INFINITY;
    if (a->burst_every_us == 0)
        return a->per_second;
    double every = (double)a->burst_every_us;
    double start = floor(at_us / every) * every;
    bool burst = at_us < start + (double)a->burst_us;
    *until_us = burst ? start + (double)a->burst_us : start + every;
    return a->per_second * (burst ? a->burst_factor : 1);
}

/* Finds when the rate, summed up over time, has reached the distance between two arrivals. */
void tide_advance(struct tide *t, int64_t end_us)
{
    double left = t->arrivals->pattern == ARRIVALS_STEADY ? 1 : -log1p(-chance_share(&t->chance));
    double at = t->at_us, until;
    while (at <= (double)end_us) {
        double rate = rate_at(t->arrivals, at, &until) / 1e6;
        if (rate > 0 && left <= (until - at) * rate) {
            t->at_us = at + left / rate;
            t->next_us = (int64_t)t->at_us;
            return;
        }
        left -= rate * (until - at);
        at = until;
    }
    t->next_us = TIDE_NEVER;
}
