/* The verb PLACEMENT: an operator changes where the messages of a queue go.
 *
 *   the first placement, if there is none
 *   -> a partition is made (OPEN) or deleted (REMOVE)
 *   -> the placement is changed at home; if another server was faster, on top of its change
 *   -> the other cells are told
 *
 * Each step can be repeated, so a server that dies on the way leaves nothing that a second try does
 * not finish. */
#include "engine/cells/impl.h"

#include <string.h>

#define CHANGE_ROUNDS_MAX 16

static const char *change(const struct trip *t, struct placement *next)
{
    struct whole *w = t->whole;
    const struct engine_op *op = t->op;
    const char *why = NULL, *cell = op->placement.cell, *text = op->placement.text;
    struct bucket_set buckets;
    bool ok = false;
    placement_tidy(next, w->cells->now.wall_ms);
    place_settle(w, next);
    switch (op->placement.change) {
    case PLACEMENT_OPEN:
        ok = placement_open(next, cell, &why);
        break;
    case PLACEMENT_DRAIN:
        ok = placement_drain(next, cell, &why);
        break;
    case PLACEMENT_REMOVE:
        place_settle_gone(w, next, cell, t->epoch);
        ok = placement_remove(next, cell, w->cells->now.wall_ms, &why);
        break;
    case PLACEMENT_GIVE:
        ok = bucket_set_read(text, strlen(text), &buckets);
        why = "buckets are numbers from 0 to 255 and ranges of them, as in \"0-41 99\"";
        ok = ok && placement_give(next, cell, &buckets, &why);
        break;
    case PLACEMENT_WANT:
        ok = placement_want(next, cell, text, &why);
        break;
    }
    if (ok && !placement_fits(next)) {
        why = "the placement would be too large: name fewer levels, or wait until moves of buckets "
              "are over";
        ok = false;
    }
    return ok ? NULL : why;
}

static void refuse(struct trip *t, enum status status, const char *why)
{
    t->op->placement.why = why;
    trip_finish(t, status);
}

static void placement_begin(struct trip *t);

/* A cell that was closed and does not answer would still take what an old placement sends it, when
 * it is back, until it is told. So the change is not in force yet. */
static void told_all(struct trip *t)
{
    const struct cell *cell = cell_named(t->cells, t->op->placement.cell);
    const struct partition *p = &t->whole->partitions[cell->number];
    bool closes = t->op->placement.change == PLACEMENT_DRAIN;
    if (!t->status && closes && p->q && !place_holds(p))
        t->status = STATUS_ENGINE_UNAVAILABLE;
    trip_finish(t, t->status);
}

/* The partition goes with its seat. It is empty: the cell looks once more. */
static void unseated(struct cell_part *p)
{
    struct trip *t = p->trip;
    bool gone = !p->op.status || p->op.status == STATUS_QUEUE_NOT_FOUND;
    if (gone && p->partition->q)
        whole_lose(p->partition);
    if (t && !gone)
        t->status = p->op.status;
}

static void changed_at_home(struct trip *t)
{
    if (t->status) {
        trip_finish(t, t->status);
        return;
    }
    if (t->stale) {
        t->stale = false;
        placement_begin(t);
        return;
    }
    t->submitting = true;
    place_tell_all(t, t->whole);
    t->submitting = false;
    trip_await(t, told_all);
}

static bool holds_messages(const struct partition *p, struct placement_left *left)
{
    const struct queue_view *v = engine_queue_moment(p->q);
    *left = (struct placement_left){v->ready, v->scheduled, v->leased, v->dead};
    return v->ready + v->scheduled + v->leased + v->dead > 0;
}

/* What is leaving another partition may be on its way to this one, or may have arrived there: see
 * drain.c. */
static bool may_be_a_target(const struct whole *w, const struct partition *p)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct partition *other = &w->partitions[i];
        if (other == p || !other->q || other->seat < 0)
            continue;
        const struct seat *seat = &w->placement.seats[other->seat];
        bool drained = seat->state == SEAT_DRAINING || (seat->drained && other->unsure);
        if (drained && (!partition_serves(other) || engine_queue_moment(other->q)->leased > 0))
            return true;
    }
    return false;
}

/* NULL, or why the cell cannot be removed from the queue. */
static const char *keeps(struct trip *t, const struct cell *cell)
{
    const struct whole *w = t->whole;
    const struct partition *p = &w->partitions[cell->number];
    if (p == whole_home(w))
        return "the queue's configuration, placement and schedules are there: it cannot leave the "
               "first cell";
    if (p->q && !partition_serves(p))
        return "the cell does not answer: nobody can tell whether it is empty";
    if (p->q && holds_messages(p, &t->op->placement.left))
        return "the partition still holds messages";
    if (p->q && may_be_a_target(w, p))
        return "messages of another cell that is drained may be on their way there: wait until "
               "nothing of that cell is in flight";
    return NULL;
}

static void placement_begin(struct trip *t)
{
    struct whole *w = t->whole;
    struct placement next;
    if (t->status || ++t->rounds > CHANGE_ROUNDS_MAX || w->placement.epoch >= INT64_MAX) {
        trip_finish(t, t->status ? t->status : STATUS_ENGINE_UNAVAILABLE);
        return;
    }
    placement_copy(&w->placement, &next);
    next.epoch++;
    const char *why = change(t, &next);
    if (why) {
        placement_fini(&next);
        refuse(t, STATUS_PLACEMENT_REFUSED, why);
        return;
    }
    if (!place_propose(t, w, &next))
        t->status = STATUS_ENGINE_UNAVAILABLE;
    placement_fini(&next);
    trip_await(t, changed_at_home);
}

/* A cell that gets its first seat needs a partition first, with the levels of the others. */
static void partition_made(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!p->op.status)
        whole_mended(p);
    else if (t)
        t->status = p->op.status;
}

static bool make_partition(struct trip *t, struct cell *cell)
{
    if (t->op->placement.change != PLACEMENT_OPEN || t->whole->partitions[cell->number].q)
        return true;
    if (cell->away || !whole_can_spread(t->whole))
        return false;
    struct cell_part *part = part_new(t, cell, NULL);
    whole_make_in(t->whole, part);
    part->done = partition_made;
    part_submit(part);
    return true;
}

static void placement_ready(struct trip *t)
{
    placement_begin(t);
}

/* The partition goes before its seat: the cell itself knows whether it is empty. A server that dies
 * in between leaves a seat without a partition, which gets a new one, and can be removed again. */
static void remove_partition(struct trip *t, struct partition *p)
{
    if (t->op->placement.change != PLACEMENT_REMOVE || !p->q)
        return;
    struct cell_part *part = part_new(t, p->cell, p);
    part->op.verb = ENGINE_QUEUE_DELETE;
    part->op.remove.if_empty = true;
    t->epoch = p->q->place ? p->q->place->epoch : 0;
    part->done = unseated;
    part_submit(part);
}

/* NULL, or why the change cannot be made to the present placement. */
static const char *refusal(struct trip *t)
{
    struct placement next;
    placement_copy(&t->whole->placement, &next);
    const char *why = change(t, &next);
    placement_fini(&next);
    return why;
}

static void placement_placed(struct trip *t)
{
    struct cell *cell = cell_named(t->cells, t->op->placement.cell);
    const char *why = NULL;
    if (!t->status && t->op->placement.change == PLACEMENT_REMOVE) {
        why = keeps(t, cell);
        why = why ? why : refusal(t);
    }
    if (t->status) {
        trip_finish(t, t->status);
    } else if (why) {
        refuse(t, STATUS_PLACEMENT_REFUSED, why);
    } else if (!make_partition(t, cell)) {
        refuse(t, STATUS_PLACEMENT_REFUSED,
               "the cell does not answer, or levels of the queue were dropped or put between "
               "others since it was made: it stays where it is");
    } else {
        remove_partition(t, &t->whole->partitions[cell->number]);
        trip_await(t, placement_ready);
    }
}

void trip_placement(struct trip *t)
{
    t->op->placement.why = NULL;
    t->op->placement.left = (struct placement_left){0};
    const struct cell *cell = cell_named(t->cells, t->op->placement.cell);
    bool opens = t->op->placement.change == PLACEMENT_OPEN;
    if (!cell)
        refuse(t, STATUS_CELL_NOT_FOUND, NULL);
    else if (!t->whole)
        registry_change(t);
    else if (opens && !cell_is_open(t->cells, cell->number))
        refuse(t, STATUS_PLACEMENT_REFUSED, "the cell as a whole is drained: open it first");
    else
        place_first(t, t->whole, false, placement_placed);
}
