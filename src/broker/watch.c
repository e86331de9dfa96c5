/* Watching: which queues changed since a reader looked last. Nothing is done for it while messages
 * move: a reader looks at every queue, compares a digest of its numbers with the one that was
 * there at the look before, and notes in the queue which look found a change.
 *
 * Looks are numbered in the order in which they begin, over all shards. A reader is shown what has
 * a number greater than its own last one. So a change must get a number that is greater than those
 * of all looks that have been at this queue already. The number of the look that finds the change
 * is, as long as no later look has begun. Otherwise the change gets a new number: then the finder
 * itself may be shown the change twice, and nobody misses it. */
#include "broker/shard.h"

#include <stdio.h>

#define LOOK_AGAIN_MS                                                                              \
    500 /* numbers that were compared a shorter time ago are not compared again                    \
         */

static void begin(struct shard *s, struct request *r)
{
    struct watcher *w = r->show.watch;
    w->lost = false;
    w->now = atomic_fetch_add(&s->broker->looks, 1) + 1;
}

static uint64_t number_of_change(struct shard *s, const struct request *r)
{
    uint64_t looks = atomic_load(&s->broker->looks);
    return looks == r->show.watch->now ? looks : atomic_fetch_add(&s->broker->looks, 1) + 1;
}

static void mix(uint64_t *digest, uint64_t value)
{
    *digest = (*digest ^ value) * 0x9e3779b97f4a7c15u;
    *digest ^= *digest >> 29;
}

static uint64_t digest_of(const struct dispatcher *d)
{
    const struct queue_view *v = engine_queue_moment(d->queue);
    const struct queue_totals *t = &v->totals;
    uint64_t digest = 1;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        const struct lane_view *lane = &v->lanes[slot];
        mix(&digest, lane->ready);
        mix(&digest, lane->scheduled);
        mix(&digest, lane->leased);
        mix(&digest, lane->dead);
    }
    mix(&digest, v->bytes);
    mix(&digest, t->enqueued);
    mix(&digest, t->claimed);
    mix(&digest, t->acked);
    mix(&digest, t->nacked);
    mix(&digest, t->lease_expired);
    mix(&digest, t->dead);
    mix(&digest, d->waiting_count);
    return digest;
}

static void compare(struct dispatcher *d, const struct request *r)
{
    struct queue_watch *w = &d->watch;
    int64_t now_ms = d->shard->now.mono_ms;
    if (w->numbers_at > 0 && now_ms - w->looked_ms < LOOK_AGAIN_MS)
        return;
    uint64_t digest = digest_of(d);
    uint32_t alerts = alerts_raised(d);
    w->looked_ms = now_ms;
    if (digest != w->digest || w->numbers_at == 0)
        w->numbers_at = number_of_change(d->shard, r);
    if (d->queue->version != w->version || w->config_at == 0)
        w->config_at = number_of_change(d->shard, r);
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++) {
        if ((alerts ^ w->alerts) >> kind & 1)
            w->alert_at[kind] = number_of_change(d->shard, r);
    }
    w->digest = digest;
    w->version = d->queue->version;
    w->alerts = alerts;
}

/* The first look of a reader is a whole picture: all numbers, and the alerts that are raised. */
uint32_t watch_queue(struct dispatcher *d, const struct request *r)
{
    const struct queue_watch *w = &d->watch;
    uint64_t since = r->show.watch->since;
    compare(d, r);
    if (since == 0)
        return CHANGE_NUMBERS | w->alerts * CHANGE_ALERT;
    uint32_t changes = 0;
    changes |= w->numbers_at > since ? CHANGE_NUMBERS : 0;
    changes |= w->config_at > since ? CHANGE_CONFIG : 0;
    for (int kind = 0; kind < ALERT_KIND_COUNT; kind++)
        changes |= w->alert_at[kind] > since ? (uint32_t)CHANGE_ALERT << kind : 0;
    return changes;
}

void watch_forget(const struct dispatcher *d)
{
    struct watch_gone *gone = &d->shard->gone;
    size_t at = gone->count % WATCH_GONE_MAX;
    if (gone->count >= WATCH_GONE_MAX && gone->names[at].at == 0)
        gone->dropped = true;
    else if (gone->names[at].at > gone->dropped_at)
        gone->dropped_at = gone->names[at].at;
    gone->names[at].at = 0;
    snprintf(gone->names[at].name, sizeof(gone->names[at].name), "%s", d->name);
    gone->count++;
}

/* A queue that was made again meanwhile is shown as it is now, and is not named as gone. */
void watch_shard(struct shard *s, struct request *r)
{
    struct watch_gone *gone = &s->gone;
    struct watcher *w = r->show.watch;
    uint64_t first = gone->count > WATCH_GONE_MAX ? gone->count - WATCH_GONE_MAX : 0;
    if (s->index == 0)
        begin(s, r);
    if (gone->dropped)
        gone->dropped_at = number_of_change(s, r);
    gone->dropped = false;
    w->lost |= w->since > 0 && gone->dropped_at > w->since;
    for (uint64_t i = first; i < gone->count; i++) {
        size_t at = i % WATCH_GONE_MAX;
        if (gone->names[at].at == 0)
            gone->names[at].at = number_of_change(s, r);
        if (w->since > 0 && gone->names[at].at > w->since &&
            !dispatcher_find(s, gone->names[at].name))
            w->gone(r, gone->names[at].name);
    }
}
