/* The schedules of queues that are in this process. */
#include "base/mem.h"
#include "engine/resident.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SHOW_MAX 20 /* due schedules in one sweep */

#define RECURRING_TAG TAG('r', 'e', 'c', 'u')

static struct recurring *recurring_of(const struct order_node *n)
{
    tag_check(n->tag, RECURRING_TAG);
    return container_of(n, struct recurring, node);
}

/* Where a name is in the queue's list, or belongs. */
static uint32_t place_of(const struct resident_queue *rq, const char *name)
{
    uint32_t low = 0, high = rq->face.schedules;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(rq->schedules[middle]->schedule.name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct recurring *find(const struct resident_queue *rq, const char *name)
{
    uint32_t at = place_of(rq, name);
    bool found = at < rq->face.schedules && strcmp(rq->schedules[at]->schedule.name, name) == 0;
    return found ? rq->schedules[at] : NULL;
}

static void show_at(struct recurring *s, int64_t wall_ms)
{
    struct order *timers = &s->queue->engine->recurring;
    if (s->node.height > 0)
        order_remove(timers, &s->node);
    s->node.key = wall_ms;
    if (wall_ms != SCHEDULE_NEVER)
        order_insert(timers, &s->node);
}

static struct recurring *add(struct resident_queue *rq, const char *name)
{
    uint64_t tie = ++rq->engine->next_recurring;
    struct recurring *s = mem_zalloc(sizeof(*s) + order_node_extra(tie));
    uint32_t at = place_of(rq, name), count = rq->face.schedules++;
    s->queue = rq;
    s->node.tie = tie;
    s->node.tag = RECURRING_TAG;
    rq->schedules = mem_realloc(rq->schedules, (count + 1) * sizeof(struct recurring *));
    memmove(rq->schedules + at + 1, rq->schedules + at, (count - at) * sizeof(struct recurring *));
    rq->schedules[at] = s;
    return s;
}

static void recurring_free(struct recurring *s)
{
    assert(s->node.height == 0);
    schedule_fini(&s->schedule);
    tag_end(&s->node.tag, RECURRING_TAG);
    free(s);
}

void resident_schedule_restore(struct resident_queue *rq, struct schedule *schedule)
{
    struct recurring *s = add(rq, schedule->name);
    s->schedule = *schedule;
    show_at(s, s->schedule.timing.next_ms);
}

static void changed(struct resident_queue *rq, const char *name, const struct schedule *s)
{
    if (rq->engine->store)
        rq->engine->store->schedule_changed(rq, name, s);
}

void resident_schedule_set(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    const struct schedule *set = op->schedule.set;
    struct recurring *s = find(rq, set->name);
    struct schedule next;
    op->schedule.created = !s;
    if (!s && rq->face.schedules >= SCHEDULES_MAX) {
        op->status = STATUS_QUOTA_EXCEEDED;
        return;
    }
    schedule_copy(&next, set);
    int rank = schedule_rank(&next, &rq->face.config);
    if (rank >= 0)
        schedule_name_level(&next, &rq->face.config.levels[rank]);
    schedule_inherit(&next, s ? &s->schedule : NULL);
    if (s)
        schedule_fini(&s->schedule);
    else
        s = add(rq, set->name);
    s->schedule = next;
    show_at(s, next.timing.next_ms);
    changed(rq, next.name, &s->schedule);
    if (op->schedule.show)
        op->schedule.show(op, &rq->face, &s->schedule, now);
}

void resident_schedule_delete(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    struct recurring *s = find(rq, op->schedule.name);
    (void)now;
    if (!s) {
        op->status = STATUS_SCHEDULE_NOT_FOUND;
        return;
    }
    assert(rq->face.schedules > 0);
    uint32_t at = place_of(rq, op->schedule.name), left = --rq->face.schedules - at;
    memmove(rq->schedules + at, rq->schedules + at + 1, left * sizeof(struct recurring *));
    show_at(s, SCHEDULE_NEVER);
    changed(rq, s->schedule.name, NULL);
    recurring_free(s);
}

void resident_schedule_list(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    const char *name = op->schedule.name, *after = op->schedule.after;
    uint32_t at = name ? place_of(rq, name) : after ? place_of(rq, after) : 0;
    uint32_t limit = name ? 1 : op->schedule.limit;
    op->schedule.found = 0;
    if (name && !find(rq, name))
        op->status = STATUS_SCHEDULE_NOT_FOUND;
    if (op->status)
        return;
    if (!name && after && find(rq, after))
        at++;
    for (; at < rq->face.schedules && op->schedule.found < limit; at++, op->schedule.found++)
        op->schedule.show(op, &rq->face, &rq->schedules[at]->schedule, now);
    op->schedule.more = !name && at < rq->face.schedules;
}

/* A store writes the new timing with the message, so that there is no moment in which it has only
 * one of the two. Where no message is stored it is written alone. */
void resident_fire(struct resident_queue *rq, struct engine_op *op, struct instant now)
{
    struct recurring *s = find(rq, op->fire.name);
    struct schedule_step step = op->fire.step;
    op->fire.stale = s && s->schedule.timing.next_ms != step.due_ms;
    if (!s)
        op->status = STATUS_SCHEDULE_NOT_FOUND;
    else if (!op->fire.stale)
        op->status = op->fire.refused; /* which the sweep has put off */
    if (!s || op->fire.stale || op->status)
        return;
    struct schedule_timing before = s->schedule.timing;
    s->schedule.timing = schedule_after(&before, &step);
    assert(!rq->firing);
    rq->firing = s;
    if (step.puts) {
        resident_put(rq, op->fire.item, now);
        op->status = op->fire.item->status;
    }
    if (op->status) {
        s->schedule.timing = before;
        show_at(s, now.wall_ms + SCHEDULE_AGAIN_MS);
    } else {
        show_at(s, s->schedule.timing.next_ms);
        if (rq->firing)
            changed(rq, s->schedule.name, &s->schedule);
    }
    rq->firing = NULL;
}

/* Levels */

void resident_schedules_use(const struct resident_queue *rq, bool used[LEVEL_COUNT_MAX])
{
    const struct queue_config *config = &rq->face.config;
    for (uint32_t i = 0; i < rq->face.schedules; i++) {
        int rank = schedule_rank(&rq->schedules[i]->schedule, config);
        if (rank >= 0)
            used[config->levels[rank].slot] = true;
    }
}

const char *resident_schedule_of_level(const struct resident_queue *rq, const char *level_name)
{
    int wanted = levels_rank_of_name(&rq->face.config, level_name);
    for (uint32_t i = 0; wanted >= 0 && i < rq->face.schedules; i++) {
        const struct schedule *s = &rq->schedules[i]->schedule;
        if (schedule_rank(s, &rq->face.config) == wanted)
            return s->name;
    }
    return NULL;
}

/* A store of an earlier version has numbers: they get their names while they still mean the same.
 */
void resident_schedules_follow(struct resident_queue *rq, const struct queue_config *next)
{
    for (uint32_t i = 0; i < rq->face.schedules; i++) {
        struct schedule *s = &rq->schedules[i]->schedule;
        int rank = schedule_rank(s, &rq->face.config);
        if (rank < 0)
            continue;
        int heir = levels_rank_of_slot(next, rq->face.config.levels[rank].slot);
        if (heir >= 0 && schedule_name_level(s, &next->levels[heir]))
            changed(rq, s->name, s);
    }
}

void resident_schedules_sweep(struct resident *r, struct engine_op *op, struct instant now)
{
    struct order_node *n;
    uint32_t shown = 0;
    for (; shown < SHOW_MAX && (n = order_first(&r->recurring)) && n->key <= now.wall_ms; shown++) {
        struct recurring *s = recurring_of(n);
        show_at(s, now.wall_ms + SCHEDULE_AGAIN_MS);
        if (op->sweep.due && s->schedule.timing.next_ms <= now.wall_ms)
            op->sweep.due(op, &s->queue->face, &s->schedule, now);
    }
    op->sweep.more = op->sweep.more || shown == SHOW_MAX;
}

void resident_schedules_retire(struct resident_queue *rq)
{
    for (uint32_t i = 0; i < rq->face.schedules; i++)
        show_at(rq->schedules[i], SCHEDULE_NEVER);
}

void resident_schedules_free(struct resident_queue *rq)
{
    for (uint32_t i = 0; i < rq->face.schedules; i++)
        recurring_free(rq->schedules[i]);
    free(rq->schedules);
}
