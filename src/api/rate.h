/* A limit on how often something may happen, shared by all threads: the generic
 * cell rate algorithm, one number that is compared and swapped. */
#ifndef TRIAGE_API_RATE_H
#define TRIAGE_API_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct rate;

/* `per_second` > 0; up to `burst` >= 1 may come at once. */
struct rate *rate_new(double per_second, double burst);
struct rate *rate_share(struct rate *r); /* one more owner, who frees it too; NULL is fine */
void rate_free(struct rate *r);          /* when it was the last owner's; NULL is fine */
bool rate_take(struct rate *r, uint64_t now_us); /* false: over the limit, nothing taken */

#endif
