/* Placements on their way: who has which one, and how it changes.
 *
 * A change is made at the home of the queue first, which takes a placement only if its epoch is
 * larger than that of the one it has: of two servers that change it at the same moment one is told
 * that its placement is stale, and makes its change again on top of the other. Then the other cells
 * are told. A server that was not told yet is refused by the first cell that was (MOVED), and finds
 * the new placement there. So nobody has to know who the servers are, and a server that dies on the
 * way leaves nothing behind that another one cannot finish. */
#include "base/log.h"
#include "base/mem.h"
#include "base/plant.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>

#define CLOCK_SLACK_MS 60000 /* by which the clocks of two machines may differ */

const char *cell_name(const struct cells_engine *c, uint32_t number)
{
    return c->shared->sites[number].name;
}

struct cell *cell_named(struct cells_engine *c, const char *name)
{
    for (uint32_t i = 0; i < c->cell_count; i++) {
        if (strcmp(cell_name(c, i), name) == 0)
            return &c->cells[i];
    }
    return NULL;
}

/* Reading */

static const struct queue_place *place_of(const struct partition *p)
{
    return p->q && !p->q->gone ? p->q->place : NULL;
}

bool place_follow(struct whole *w)
{
    const struct queue_place *newest = NULL;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct queue_place *place = place_of(&w->partitions[i]);
        if (place && place->epoch > (newest ? newest->epoch : w->placement.epoch))
            newest = place;
    }
    struct placement next;
    if (!newest)
        return false;
    if (!placement_read(newest->map, newest->map_len, newest->epoch, &next)) {
        log_error("cells: a placement cannot be read", "queue=%s epoch=%llu", w->face.name,
                  (unsigned long long)newest->epoch);
        return false;
    }
    placement_fini(&w->placement);
    w->placement = next;
    if (w->hidden) {
        registry_follow(w);
        return true;
    }
    place_seat(w);
    drain_look(w);
    return true;
}

/* Seats are mostly in the order of the cells. */
static struct cell *cell_of(const struct whole *w, uint32_t seat)
{
    struct cells_engine *c = w->cells;
    const char *name = w->placement.seats[seat].cell;
    if (seat < c->cell_count && strcmp(cell_name(c, seat), name) == 0)
        return &c->cells[seat];
    for (uint32_t i = 0; i < c->cell_count; i++) {
        if (strcmp(cell_name(c, i), name) == 0)
            return &c->cells[i];
    }
    return NULL;
}

struct partition *place_partition(const struct whole *w, uint32_t seat)
{
    const struct cell *cell = cell_of(w, seat);
    return cell ? (struct partition *)&w->partitions[cell->number] : NULL;
}

static uint32_t slots_of(const struct queue_config *config, const char *levels)
{
    uint32_t slots = 0;
    while (*levels) {
        char name[LEVEL_NAME_MAX + 1] = "";
        size_t len = strcspn(levels, "\n");
        if (len < sizeof(name))
            memcpy(name, levels, len);
        int rank = levels_rank_of_name(config, name);
        slots |= rank >= 0 ? 1u << config->levels[rank].slot : 0;
        levels += len + (levels[len] == '\n');
    }
    return slots;
}

/* The queues that wait for a seat of a partition, or for the end of moves of buckets: a sweep is
 * due for them. */
static void count_unsettled(struct whole *w)
{
    bool waits = false;
    for (uint32_t i = 0; i < w->placement.moved_count; i++)
        waits = waits || w->placement.moved[i].epoch > 0;
    for (uint32_t i = 0; w->there > 1 && i < w->cells->cell_count; i++)
        waits = waits || (w->partitions[i].q && w->partitions[i].seat < 0);
    if (w->retired || waits == w->unsettled)
        return;
    w->cells->unsettled += waits ? 1 : -1;
    w->unsettled = waits;
}

void place_seat(struct whole *w)
{
    const struct placement *p = &w->placement;
    uint32_t named = 0;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        w->partitions[i].seat = -1;
        w->partitions[i].wants = p->epoch == 0 ? UINT32_MAX : 0;
    }
    for (uint32_t i = 0; i < p->seat_count; i++) {
        if (p->seats[i].state == SEAT_OPEN && p->seats[i].levels)
            named |= slots_of(&w->face.config, p->seats[i].levels);
    }
    w->banded = named != 0;
    for (uint32_t i = 0; i < p->seat_count; i++) {
        struct partition *at = place_partition(w, i);
        if (!at)
            continue;
        at->seat = (int)i;
        if (p->seats[i].state == SEAT_OPEN)
            at->wants = p->seats[i].levels ? slots_of(&w->face.config, p->seats[i].levels) : ~named;
    }
    count_unsettled(w);
}

bool place_lacks(const struct whole *w)
{
    return w->placement.epoch == 0 && w->cells->cell_count > 1;
}

/* Moves of buckets. A key is never stored twice, however long servers and cells do not hear of each
 * other:
 *
 *   1. Whoever goes by the move stores a key at the new cell only after the old one has the
 *      placement (put.c: fence), and has said that it does not know the key.
 *   2. A cell that has the placement refuses, in the transaction of the put, whoever goes by an
 *      older one. So after (1) nothing comes to the old cell any more.
 *   3. What came to the old cell before is known there for one dedup window from then on. So the
 *      look-up may end one window after some server saw that the old cell has the placement, and
 *      not one window after the move: a server that has not heard of the move, and an old cell that
 *      has not either, may go on with each other for any time in between.
 *
 * The end is a time by the clock of whoever settles the move, and is read by the clocks of the
 * others: this is what the slack is for. */

static uint64_t epoch_at(const struct whole *w, uint32_t seat)
{
    const struct partition *p = place_partition(w, seat);
    const struct queue_place *place = p ? place_of(p) : NULL;
    return place ? place->epoch : 0;
}

static int64_t settled_until_ms(const struct whole *w)
{
    const struct queue_config *config = &w->face.config;
    if (config->dedup_scope == DEDUP_LIVE)
        return MOVED_FOR_GOOD;
    return w->cells->now.wall_ms + config->dedup_window_ms + CLOCK_SLACK_MS;
}

void place_settle(const struct whole *w, struct placement *next)
{
    for (uint32_t i = 0; i < next->seat_count; i++)
        placement_settle(next, i, epoch_at(w, i), settled_until_ms(w));
}

void place_settle_gone(const struct whole *w, struct placement *next, const char *cell,
                       uint64_t epoch)
{
    int seat = placement_seat(next, cell);
    if (seat >= 0)
        placement_settle(next, (uint32_t)seat, epoch, settled_until_ms(w));
}

/* Telling */

bool place_holds(const struct partition *p)
{
    const struct queue_place *place = place_of(p);
    return place && place->epoch >= p->whole->placement.epoch;
}

/* `part` hands a placement to its partition. */
static void place_put(struct cell_part *part, const struct placement *p, enum seat_state state)
{
    struct buf map = {0};
    placement_write(p, &map);
    part->items = mem_dup(buf_cstr(&map), map.len);
    part->op.verb = ENGINE_QUEUE_PLACE;
    part->op.place.epoch = p->epoch;
    part->op.place.closed = state != SEAT_OPEN && !PLANTED(EPOCH_SKIPPED);
    part->op.place.map = part->items;
    part->op.place.map_len = (uint32_t)map.len;
    part->droppable = true;
    buf_fini(&map);
}

static void told(struct cell_part *p)
{
    p->partition->placing = false;
    if (p->trip && p->op.status)
        p->trip->status = p->op.status;
    if (p->partition->q && place_follow(p->partition->whole))
        whole_tell(p->partition->whole);
}

void place_tell(struct trip *t, struct partition *p)
{
    struct whole *w = p->whole;
    if (!partition_serves(p) || p->seat < 0 || place_holds(p) || w->placement.epoch == 0)
        return;
    if (!t && p->placing)
        return;
    struct cell_part *part = t ? part_new(t, p->cell, p) : part_new_alone(w->cells, p->cell, p);
    place_put(part, &w->placement, w->placement.seats[p->seat].state);
    part->done = told;
    p->placing = true;
    part_submit(part);
}

void place_tell_all(struct trip *t, struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++)
        place_tell(t, &w->partitions[i]);
}

/* Changing: first at home */

static void proposed(struct cell_part *p)
{
    struct trip *t = p->trip;
    struct whole *w = p->partition->whole;
    w->placing = false;
    if (p->partition->q)
        place_follow(w);
    split_answered(w, &p->op);
    if (!t)
        return;
    t->status = p->op.status;
    t->stale = !p->op.status && p->op.place.stale;
}

/* A cell before the home that is away may have the queue, and be its home. */
bool home_is_sure(const struct whole *w, const struct partition *home)
{
    for (uint32_t i = 0; i < home->cell->number; i++) {
        if (w->cells->cells[i].away)
            return false;
    }
    return true;
}

bool place_propose(struct trip *t, struct whole *w, const struct placement *next)
{
    struct partition *home = whole_home(w);
    if (!home || !partition_serves(home) || !home_is_sure(w, home))
        return false;
    int seat = placement_seat(next, cell_name(w->cells, home->cell->number));
    struct cell_part *part =
        t ? part_new(t, home->cell, home) : part_new_alone(w->cells, home->cell, home);
    place_put(part, next, seat < 0 ? SEAT_OPEN : next->seats[seat].state);
    part->done = proposed;
    w->placing = w->placing || !t;
    part_submit(part);
    return true;
}

/* A queue that was there before has all its keys at home. */
static void first_of(const struct whole *w, bool fresh, struct placement *p)
{
    const char *why;
    const struct partition *home = whole_home(w);
    /* If a server that has not met the partition in the first cell yet makes one, too, that of the
     * first cell wins. */
    *p = (struct placement){.epoch = home->cell->number == 0 ? 2 : 1};
    placement_add(p, cell_name(w->cells, home->cell->number), SEAT_OPEN);
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct partition *other = &w->partitions[i];
        if (other == home)
            continue;
        if (!cell_is_open(w->cells, i))
            placement_add(p, cell_name(w->cells, i), other->q ? SEAT_DRAINING : SEAT_OUT);
        else if (!other->q)
            continue;
        else if (fresh)
            placement_add(p, cell_name(w->cells, i), SEAT_OPEN);
        else
            placement_open(p, cell_name(w->cells, i), &why);
    }
    bool closes = false, open = cell_is_open(w->cells, home->cell->number);
    for (uint32_t i = 1; !open && i < p->seat_count; i++) /* somebody has to take messages */
        closes = closes || p->seats[i].state == SEAT_OPEN;
    if (fresh) {
        p->seats[0].state = closes ? SEAT_DRAINING : SEAT_OPEN;
        placement_spread(p);
    } else if (closes) {
        (void)placement_drain(p, cell_name(w->cells, home->cell->number), &why);
    }
}

void place_first(struct trip *t, struct whole *w, bool fresh, void (*then)(struct trip *t))
{
    struct placement p;
    if (!place_lacks(w) || !whole_home(w)) {
        then(t);
        return;
    }
    first_of(w, fresh, &p);
    if (!placement_fits(&p) || !place_propose(t, w, &p))
        t->status = STATUS_ENGINE_UNAVAILABLE;
    placement_fini(&p);
    trip_await(t, then);
}

/* By time: a queue gets its first placement, a cell that was added its seat, a cell that was away
 * is told, moves of buckets get their end. */

static bool can_settle(const struct whole *w)
{
    for (uint32_t i = 0; i < w->placement.seat_count; i++) {
        if (placement_unsettled(&w->placement, i, epoch_at(w, i)))
            return true;
    }
    return false;
}

static const struct partition *unseated_partition(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (partition_serves(&w->partitions[i]) && w->partitions[i].seat < 0)
            return &w->partitions[i];
    }
    return NULL;
}

/* One that takes messages in a cell that takes none as a whole; -1: there is none. */
static int seat_to_close(const struct whole *w)
{
    for (uint32_t i = 0; i < w->placement.seat_count; i++) {
        const struct partition *p = place_partition(w, i);
        if (p && w->placement.seats[i].state == SEAT_OPEN &&
            !cell_is_open(w->cells, p->cell->number))
            return (int)i;
    }
    return -1;
}

/* The cell as a whole was drained when the queue was made, or a moment later. */
static void close_seat(struct whole *w)
{
    struct placement next;
    const char *why;
    int seat = seat_to_close(w);
    if (seat < 0 || w->placing || w->placement.epoch >= INT64_MAX)
        return;
    placement_copy(&w->placement, &next);
    next.epoch++;
    placement_tidy(&next, w->cells->now.wall_ms);
    place_settle(w, &next);
    if (placement_drain(&next, next.seats[seat].cell, &why) && placement_fits(&next))
        place_propose(NULL, w, &next);
    placement_fini(&next);
}

static void place_alone(struct whole *w)
{
    const struct partition *new = unseated_partition(w);
    struct placement next;
    const char *why;
    bool again = w->unseated; /* not before the second look: the queue may just be made */
    w->unseated = new != NULL;
    new = again ? new : NULL;
    if (w->placing || !whole_home(w) || (!new && !can_settle(w)) || w->placement.epoch >= INT64_MAX)
        return;
    if (w->placement.epoch == 0) {
        first_of(w, false, &next);
    } else {
        placement_copy(&w->placement, &next);
        next.epoch++;
        placement_tidy(&next, w->cells->now.wall_ms);
        place_settle(w, &next);
        /* It has its seat also when not all of its share can be given to it now. */
        if (new && !cell_is_open(w->cells, new->cell->number))
            placement_add(&next, cell_name(w->cells, new->cell->number), SEAT_DRAINING);
        else if (new)
            (void)placement_open(&next, cell_name(w->cells, new->cell->number), &why);
    }
    if (placement_fits(&next))
        place_propose(NULL, w, &next);
    else
        log_warn("cells: the placement would be too large, and stays", "queue=%s", w->face.name);
    placement_fini(&next);
}

void wholes_place(struct cells_engine *c)
{
    size_t at = 0;
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        if (w->deleting || w->hidden || c->cell_count == 1)
            continue;
        close_seat(w);
        place_alone(w);
        place_tell_all(NULL, w);
    }
}
