/* How long messages of a queue's levels waited and were held. The time of the claim is in the
 * receipt, so nothing is remembered for a lease, and a lease that another server gave counts where
 * it is settled. */
#include "base/mem.h"
#include "broker/shard.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* By the engine's clock, as ready times and receipts are. */
static int64_t wall_ms(const struct shard *s)
{
    return s->now.wall_ms + s->engine->ahead_us / 1000;
}

static const char *name_of(const struct dispatcher *d, uint8_t slot)
{
    int rank = levels_rank_of_slot(&d->queue->config, slot);
    return rank < 0 ? "" : d->queue->config.levels[rank].name;
}

static struct level_times *times_new(struct dispatcher *d, uint8_t slot)
{
    struct level_times *t = d->times[slot] = mem_zalloc(sizeof(*t));
    memcpy(t->level, name_of(d, slot), strlen(name_of(d, slot)) + 1);
    return t;
}

static inline struct level_times *times_of(struct dispatcher *d, uint8_t slot)
{
    assert(slot < LEVEL_COUNT_MAX);
    return d->times[slot] ? d->times[slot] : times_new(d, slot);
}

/* A clock that was set back may make a wait shorter than nothing. */
static inline void add(struct durations *to, int64_t took_ms)
{
    durations_add(to, &duration_waits, took_ms > 0 ? (uint64_t)took_ms : 0);
}

void level_times_claimed(struct dispatcher *d, const struct message *m)
{
    add(&times_of(d, m->slot)->wait, wall_ms(d->shard) - m->ready_ms);
}

void level_times_settled(struct dispatcher *d, const struct engine_op *op)
{
    int64_t now_ms = wall_ms(d->shard);
    if (op->status || op->verb == ENGINE_EXTEND || d->state != DISPATCHER_OPEN)
        return;
    for (uint32_t i = 0; i < op->settle.count; i++) {
        const struct settle_item *item = &op->settle.items[i];
        int64_t held_ms = item->status ? -1 : receipt_held_ms(item->receipt, now_ms);
        if (held_ms >= 0)
            add(&times_of(d, item->slot)->lease, held_ms);
    }
}

void level_times_follow(struct dispatcher *d)
{
    for (uint8_t slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        if (d->times[slot] && strcmp(d->times[slot]->level, name_of(d, slot)) != 0) {
            free(d->times[slot]);
            d->times[slot] = NULL;
        }
    }
}

void level_times_free(struct dispatcher *d)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        free(d->times[slot]);
}
