/* Alerts. A queue may have thresholds: for its number of dead letters, and for the age of its
 * oldest ready message. Once a second a shard looks at its queues that have one. Reaching a
 * threshold raises an alert and falling below it clears it. Each change is logged once, and posted
 * to the queue's webhook if it has one. Nothing is remembered over a restart: an alert that is
 * still over its threshold is raised again then. On the shard's loop.
 *
 * Of several servers on one store all look, and one posts: the speaker (engine_speaks). A new
 * speaker does not know which changes the old one got to post. So it posts again all alerts that
 * are raised, and those that were cleared in the last ALERT_AGAIN_MS. A change may be posted twice,
 * and none is lost. */
#ifndef TRIAGE_BROKER_ALERTS_H
#define TRIAGE_BROKER_ALERTS_H

#include "broker/broker.h"

#include <stdbool.h>
#include <stdint.h>

#define ALERT_TICK_MS  1000
#define ALERT_AGAIN_MS 60000 /* longer than a change is unknown to us, or a dead speaker missed */

struct dispatcher;
struct shard;

/* In each dispatcher; zero: not watched. */
struct alert_watch {
    bool watched;
    bool raised[ALERT_KIND_COUNT];
    int64_t changed_ms[ALERT_KIND_COUNT]; /* mono: when it was last raised or cleared; 0: never */
    uint64_t value[ALERT_KIND_COUNT];     /* when it was last looked at */
    uint64_t threshold[ALERT_KIND_COUNT]; /* the last that was set */
    struct dispatcher *next, *prev;       /* in the shard's list */
};

/* In each shard; zero: nothing to watch. */
struct alert_list {
    struct dispatcher *first;
    int64_t due_ms; /* mono */
    bool speaks;    /* at the last look */
};

void alerts_watch(struct dispatcher *d);  /* the queue is open, or its configuration has changed */
void alerts_forget(struct dispatcher *d); /* the queue goes: its alerts are cleared */
void alerts_check(struct shard *s);       /* looks at the queues, if a second has passed */
int64_t alerts_due_ms(const struct shard *s); /* from now; INT64_MAX when nothing is watched */
/* Appends the change, as webhooks get it. */
void alerts_put(const struct dispatcher *d, enum alert_kind kind, struct buf *out);
uint32_t alerts_raised(const struct dispatcher *d); /* a bit for each enum alert_kind */

#endif
