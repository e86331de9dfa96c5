/* The rate at which messages of a queue are claimed: a mean over the last seconds, for people and
 * for estimates. It decides nothing. Times are monotonic and do not go back. */
#ifndef TRIAGE_BROKER_CLAIM_RATE_H
#define TRIAGE_BROKER_CLAIM_RATE_H

#include <stdint.h>

#define CLAIM_RATE_SECONDS 30

struct claim_rate {
    int64_t first_s; /* when counting began; 0: it did not */
    int64_t last_s;
    uint32_t counts[CLAIM_RATE_SECONDS]; /* by second modulo CLAIM_RATE_SECONDS */
};

void claim_rate_add(struct claim_rate *rate, uint32_t claims, int64_t mono_ms);

/* Over the last CLAIM_RATE_SECONDS, or since counting began. */
double claim_rate_per_second(const struct claim_rate *rate, int64_t mono_ms);

#endif
