/* How long requests take, from the whole request to its answer, for each route. Claims that may
 * wait are counted apart: their time says when messages came, not how the server is. Each api
 * counts for itself; whoever shows the numbers adds them up. Private to src/api.
 *
 * Times are those of turn_clock_us(): exact to what a turn of the loop does at a stretch. */
#ifndef TRIAGE_API_REQUEST_TIMES_H
#define TRIAGE_API_REQUEST_TIMES_H

#include "base/durations.h"
#include "net/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The request that fell into a bucket last, or a second before that. */
struct exemplar {
    char id[HTTP_REQUEST_ID_MAX + 1]; /* empty: there is none */
    uint64_t took_us;
    int64_t at_ms; /* wall clock */
    uint64_t at_us;
};

/* What one api counts: 2.6 KB for each route that it has served, at most twice as much where claims
 * wait. */
struct request_table;
struct request_times; /* of all apis: api.h */

struct request_table *request_table_new(struct request_times *all); /* that one frees it */
/* On the api's own thread. */
void request_table_add(struct request_table *t, size_t route, bool waits, const char *id,
                       uint64_t took_us, uint64_t now_us);

/* Any thread: what all apis have counted for a route. False: nothing. `exemplars` has one for each
 * bucket. */
bool request_times_sum(struct request_times *all, size_t route, bool waits, struct durations *sum,
                       struct exemplar exemplars[DURATION_BUCKETS]);

#endif
