/* When the messages of one level arrive: at a rate, with bursts, steadily or by chance. */
#ifndef TRIAGE_SIMULATE_TIDE_H
#define TRIAGE_SIMULATE_TIDE_H

#include "simulate/workload.h"

#define TIDE_NEVER INT64_MAX

struct tide {
    const struct arrivals *arrivals;
    double at_us;    /* when the next one arrives, to fractions, which add up */
    int64_t next_us; /* the same; TIDE_NEVER: none before the end */
    uint64_t chance;
};

void tide_advance(struct tide *t, int64_t end_us); /* to the next arrival */

#endif
