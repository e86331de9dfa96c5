/* The queues that a shard knows, by name and by id; and what claims under way leave of each. */
#include "base/mem.h"
#include "engine/postgres/impl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pg_queue *pg_queue_by_id(struct pg *pg, uint32_t id)
{
    return pg_queue_of(map_get(&pg->by_id, (const char *)&id, sizeof(id)));
}

void pg_queue_tell(struct pg *pg, uint32_t id)
{
    struct pg_queue *q = pg_queue_by_id(pg, id);
    if (q)
        q->told = pg->told = true;
}

struct pg_queue *pg_queue_add(struct pg *pg, const char *name, uint32_t id, uint32_t version,
                              const struct queue_config *config)
{
    struct pg_queue *q = mem_zalloc(sizeof(*q));
    q->tag = PG_QUEUE_TAG;
    snprintf(q->face.name, sizeof(q->face.name), "%s", name);
    q->pg = pg;
    q->face.id = id;
    q->face.version = version;
    q->face.config = *config;
    q->face.next_seq = 1;
    q->face.moment = &q->moment;
    map_put(&pg->queues, q->face.name, strlen(q->face.name), q);
    map_put(&pg->by_id, (const char *)&q->face.id, sizeof(q->face.id), q);
    return q;
}

bool pg_queue_place(struct pg_queue *q, struct queue_place *place)
{
    if (!place || (q->place && q->place->epoch >= place->epoch)) {
        free(place);
        return false;
    }
    free(q->place);
    q->face.place = q->place = place;
    return true;
}

void pg_queue_free(struct pg_queue *q)
{
    assert(q->retired);
    tag_end(&q->tag, PG_QUEUE_TAG);
    free(q->place);
    free(q);
}

void pg_queue_let_go(struct pg_queue *q)
{
    if (!q->retired || q->busy > 0)
        return;
    assert(!q->listed); /* no job in the making has it */
    pg_queue_free(q);
}

void pg_queue_retire(struct pg_queue *q)
{
    if (q->retired)
        return;
    void *named = map_remove(&q->pg->queues, q->face.name, strlen(q->face.name));
    void *numbered = map_remove(&q->pg->by_id, (const char *)&q->face.id, sizeof(q->face.id));
    assert(named == q);
    assert(numbered == q);
    (void)named;
    (void)numbered;
    q->retired = true;
}

/* The queue is freed only after a sweep has told that it is gone: the caller may still have a
 * handle on it. */
void pg_queue_replace(struct pg_queue *q)
{
    pg_queue_retire(q);
    q->face.gone = true;
    q->busy++;
    q->next_replaced = q->pg->replaced;
    q->pg->replaced = q;
    q->pg->told = true;
}

void pg_view_changed(struct pg_queue *q)
{
    q->face.view = q->seen;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        struct lane_view *lane = &q->face.view.lanes[slot];
        uint64_t taken = q->taking[slot] < lane->ready ? q->taking[slot] : lane->ready;
        lane->ready -= taken;
        q->face.view.ready -= taken;
    }
    uint64_t left = q->face.view.ready;
    q->face.view.ready -= q->taking_anywhere < left ? q->taking_anywhere : left;
}

void pg_queue_reserve(struct pg_queue *q, const struct plan *plan, struct taking *taking)
{
    uint32_t left = plan->want;
    *taking = (struct taking){.tag = TAKING_TAG};
    assert(left <= UINT16_MAX);
    if (plan->policy) {
        taking->anywhere = (uint16_t)left;
        left = 0;
    }
    for (uint32_t i = 0; left > 0 && i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        uint32_t more = step->max;
        for (uint32_t k = 0; left > 0 && more > 0 && k < step->lane_count; k++) {
            uint8_t slot = plan->lanes[step->first_lane + k].slot;
            assert(q->face.view.lanes[slot].ready >= taking->from[slot]);
            uint64_t there = q->face.view.lanes[slot].ready - taking->from[slot];
            uint32_t n = more < left ? more : left;
            n = there < n ? (uint32_t)there : n;
            taking->from[slot] = (uint16_t)(taking->from[slot] + n);
            left -= n;
            more -= n;
        }
    }
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        q->taking[slot] += taking->from[slot];
    q->taking_anywhere += taking->anywhere;
    pg_view_changed(q);
}

void pg_queue_unreserve(struct pg_queue *q, const struct taking *taking)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        assert(q->taking[slot] >= taking->from[slot]);
        q->taking[slot] -= taking->from[slot];
    }
    assert(q->taking_anywhere >= taking->anywhere);
    q->taking_anywhere -= taking->anywhere;
    pg_view_changed(q);
}
