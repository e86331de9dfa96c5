/* Cells as a whole: which of them take new messages, also of queues that are yet to be made.
 *
 * This is kept where placements are kept: as the placement of a queue of its own in the first cell,
 * which has no messages and which nobody is shown. So it is durable, every server hears of a
 * change, and of two that change it at the same moment one is told to look again. Each process has
 * a copy that all its shards read. Where a server made a queue before it heard, wholes_place()
 * finds out.
 */
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <string.h>

#define CHANGE_ROUNDS_MAX 16

bool registry_is(const char *name)
{
    return strcmp(name, ENGINE_CELLS_QUEUE) == 0;
}

static struct whole *registry_of(struct cells_engine *c)
{
    struct whole *w = whole_of(map_get(&c->queues, ENGINE_CELLS_QUEUE, strlen(ENGINE_CELLS_QUEUE)));
    return w && w->partitions[0].q ? w : NULL;
}

void registry_follow(struct whole *w)
{
    const struct placement *p = &w->placement;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        int seat = placement_seat(p, cell_name(w->cells, i));
        atomic_store(&w->cells->shared->sites[i].seat,
                     seat < 0 ? (int)SEAT_OPEN : (int)p->seats[seat].state);
    }
}

bool cell_is_open(const struct cells_engine *c, uint32_t number)
{
    return atomic_load(&c->shared->sites[number].seat) == SEAT_OPEN;
}

static void refuse(struct trip *t, const char *why)
{
    t->op->placement.why = why;
    trip_finish(t, STATUS_PLACEMENT_REFUSED);
}

static uint32_t open_count(const struct placement *p)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->seat_count; i++)
        count += p->seats[i].state == SEAT_OPEN;
    return count;
}

/* NULL, or why not. */
static const char *set_state(struct placement *p, const struct engine_op *op, bool first)
{
    struct seat *seat = &p->seats[placement_seat(p, op->placement.cell)];
    switch (op->placement.change) {
    case PLACEMENT_OPEN:
        seat->state = SEAT_OPEN;
        return NULL;
    case PLACEMENT_DRAIN:
        seat->state = SEAT_DRAINING;
        return open_count(p) > 0 ? NULL : "no other cell takes messages: open one first";
    case PLACEMENT_REMOVE:
        if (first)
            return "placements and schedules are there: the first cell stays";
        if (seat->state == SEAT_OPEN)
            return "the cell takes messages: drain it first";
        seat->state = SEAT_OUT;
        return NULL;
    default:
        return "a cell as a whole is open, draining or removed";
    }
}

/* Every cell of the configuration has a seat. */
static void next_of(const struct whole *w, struct placement *next)
{
    placement_copy(&w->placement, next);
    next->epoch++;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (placement_seat(next, cell_name(w->cells, i)) < 0)
            placement_add(next, cell_name(w->cells, i), SEAT_OPEN);
    }
}

static void propose(struct trip *t);

static void proposed_all(struct trip *t)
{
    if (t->status || !t->stale) {
        trip_finish(t, t->status);
        return;
    }
    t->stale = false;
    propose(t);
}

static void propose(struct trip *t)
{
    struct whole *w = registry_of(t->cells);
    struct placement next;
    if (!w || t->status || ++t->rounds > CHANGE_ROUNDS_MAX) {
        trip_finish(t, t->status ? t->status : STATUS_ENGINE_UNAVAILABLE);
        return;
    }
    next_of(w, &next);
    bool first = strcmp(t->op->placement.cell, cell_name(t->cells, 0)) == 0;
    const char *why = set_state(&next, t->op, first);
    if (!why && !placement_fits(&next))
        why = "there are too many cells";
    if (!why && !place_propose(t, w, &next))
        t->status = STATUS_ENGINE_UNAVAILABLE;
    placement_fini(&next);
    if (why)
        refuse(t, why);
    else
        trip_await(t, proposed_all);
}

static void made(struct cell_part *p)
{
    if (!p->op.status)
        whole_adopt(p->cells, p->cell, p->op.queue);
    else if (p->trip)
        p->trip->status = p->op.status;
}

static void make(struct trip *t)
{
    struct cell_part *p = part_new(t, &t->cells->cells[0], NULL);
    struct queue_config *config = p->items = mem_zalloc(sizeof(*config));
    config_profile("levels", config);
    p->op.verb = ENGINE_QUEUE_SET;
    p->op.set.name = ENGINE_CELLS_QUEUE;
    p->op.set.config = config;
    p->op.set.celled = true;
    p->done = made;
    part_submit(p);
    trip_await(t, propose);
}

void registry_change(struct trip *t)
{
    if (t->cells->cell_count == 1)
        refuse(t, "there is no other cell");
    else if (t->cells->cells[0].away)
        trip_finish(t, STATUS_ENGINE_UNAVAILABLE);
    else if (registry_of(t->cells))
        propose(t);
    else
        make(t);
}
