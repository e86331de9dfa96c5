/* What is going to happen, by invented time. Things of the same microsecond happen in the order in
 * which they were planned, so that a run can be repeated. */
#ifndef TRIAGE_SIMULATE_AGENDA_H
#define TRIAGE_SIMULATE_AGENDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void agenda_act(void *ctx);

struct agenda_item {
    int64_t at_us;
    uint64_t number; /* of all that was ever planned */
    agenda_act *act;
    void *ctx;
};

/* A zeroed struct is an empty agenda at the time 0. */
struct agenda {
    int64_t now_us;
    uint64_t planned;
    struct agenda_item *items; /* owned: a binary heap */
    size_t count, room;
};

void agenda_fini(struct agenda *a);
void agenda_plan(struct agenda *a, int64_t at_us, agenda_act *act, void *ctx);
/* Lets the next thing happen, unless that is after `until_us`: then the time is `until_us`, and the
 * answer false. */
bool agenda_step(struct agenda *a, int64_t until_us);

/* Randomness: splitmix64, with a state for each thing that has a chance of its own. */
uint64_t chance_next(uint64_t *state);
double chance_share(uint64_t *state); /* from 0 to below 1 */

#endif
