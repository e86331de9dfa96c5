/* Where new messages go.
 *
 * A message with a dedup key goes where its bucket is, so that the same key always meets its
 * message. A message without one goes to an open partition that wants its level: to the cell that
 * has the least to do; as long as that is the same for several cells, to the one where the last
 * message went. So a queue with little traffic is in one cell, in exact order. (Sending
 * what comes in one turn of the loop to one cell, for larger groups, was tried: those who wait for
 * their answers then come in one crowd that goes from cell to cell, and the other cells idle. In
 * the simulation 8 cells at full load did 14 % less, for the same work for each message.)
 *
 * A put goes by rounds. Keys whose bucket has moved are looked for where the bucket was. What is
 * left is stored. A cell that has a newer placement refuses (MOVED), and nothing was stored there:
 * these items go another round, by the newer placement. A cell whose share of a limit is too small
 * refuses, too (QUEUE_FULL); these items go another round when the limit has been divided anew. An
 * item that was sent and not answered is never sent again, because that could double it. */
#include "base/mem.h"
#include "base/plant.h"
#include "engine/cells/impl.h"
#include "engine/cells/shares.h"

#include <stdlib.h>
#include <string.h>

#define PUT_ROUNDS_MAX    16
#define PUT_DIVISIONS_MAX 2

/* What PUT and IMPORT have in common: an array of structs, each with a draft and a status. */
struct store_shape {
    size_t size, draft, status;
    part_done *back; /* a part has its answer */
};

static part_done put_back, import_back;

static const struct store_shape put_shape = {.size = sizeof(struct put_item),
                                             .draft = offsetof(struct put_item, draft),
                                             .status = offsetof(struct put_item, status),
                                             .back = put_back};
static const struct store_shape import_shape = {.size = sizeof(struct import_item),
                                                .draft = offsetof(struct import_item, draft),
                                                .status = offsetof(struct import_item, status),
                                                .back = import_back};

static const struct store_shape *shape_of(const struct engine_op *op)
{
    return op->verb == ENGINE_PUT ? &put_shape : &import_shape;
}

static uint32_t count_of(const struct engine_op *op)
{
    return op->verb == ENGINE_PUT ? op->put.count : op->import.count;
}

static char *item_at(const struct engine_op *op, uint32_t i)
{
    char *items = op->verb == ENGINE_PUT ? (char *)op->put.items : (char *)op->import.items;
    return items + i * shape_of(op)->size;
}

static struct draft *draft_at(const struct engine_op *op, uint32_t i)
{
    return (struct draft *)(item_at(op, i) + shape_of(op)->draft);
}

static enum status *status_at(const struct engine_op *op, uint32_t i)
{
    return (enum status *)(item_at(op, i) + shape_of(op)->status);
}

static bool is_settled(const struct trip *t, uint32_t i)
{
    return t->settled && t->settled[i];
}

static void settle(struct trip *t, uint32_t i, enum status status)
{
    if (!t->settled)
        t->settled = mem_zalloc(count_of(t->op) * sizeof(t->settled[0]));
    assert(i < count_of(t->op));
    assert(!t->settled[i]); /* an item has one answer */
    t->settled[i] = true;
    *status_at(t->op, i) = status;
}

/* Routes */

static const char *key_of(const struct draft *d)
{
    return d->body + d->payload_len + d->metadata_len;
}

/* The bucket of an item; -1: it may go anywhere. */
static int item_bucket(const struct engine_op *op, uint32_t i)
{
    const struct draft *d = draft_at(op, i);
    if (d->dedup_len > 0)
        return (int)bucket_of(key_of(d), d->dedup_len);
    if (op->verb == ENGINE_PUT)
        return -1;
    char key[IMPORT_KEY_BYTES];
    import_key((const struct import_item *)item_at(op, i), key);
    return (int)bucket_of(key, sizeof(key));
}

static struct partition *by_bucket(struct whole *w, uint32_t bucket)
{
    if (w->placement.epoch == 0)
        return whole_home(w);
    return place_partition(w, w->placement.buckets[bucket]);
}

struct taker {
    struct whole *whole;
    uint32_t slots;
};

/* Whether the partition in this cell does not take new messages of these levels. */
static bool is_closed(const void *ctx, uint32_t cell)
{
    const struct taker *t = ctx;
    const struct partition *p = &t->whole->partitions[cell];
    return !partition_serves(p) || !(p->wants & t->slots);
}

static struct partition *by_load(struct whole *w, uint32_t slots)
{
    struct cells_engine *c = w->cells;
    const struct taker taker = {w, slots};
    struct cell *last = w->puts_to;
    bool again = last && !is_closed(&taker, last->number);
    uint32_t best = tourney_first_but(&c->load, INT64_MAX, is_closed, &taker);
    if (best == TOURNEY_NONE)
        return NULL;
    if (again && last->under_way <= c->cells[best].under_way)
        best = last->number;
    w->puts_to = &c->cells[best];
    return &w->partitions[best];
}

/* While no cell answers that wants the level, the others take it. */
static struct partition *by_level(struct whole *w, const struct draft *d)
{
    int rank = w->banded ? levels_resolve(&w->face.config, &d->priority) : -1;
    uint32_t slot = rank < 0 ? UINT32_MAX : 1u << w->face.config.levels[rank].slot;
    struct partition *p = by_load(w, slot);
    return p ? p : by_load(w, UINT32_MAX);
}

static struct partition *route(const struct trip *t, uint32_t i)
{
    int bucket = item_bucket(t->op, i);
    if (bucket < 0 && t->pinned && partition_serves(t->pinned) && t->pinned->wants != 0)
        return t->pinned;
    struct partition *p = bucket >= 0 ? by_bucket(t->whole, (uint32_t)bucket)
                                      : by_level(t->whole, draft_at(t->op, i));
    return p && partition_serves(p) ? p : NULL;
}

/* Limits */

/* Whether an item that a partition has refused is to be tried again when the limits have been
 * divided anew. */
static bool may_find_room(struct trip *t, struct partition *p, uint32_t i)
{
    if (t->op->verb != ENGINE_PUT || *status_at(t->op, i) != STATUS_QUEUE_FULL ||
        t->divisions >= PUT_DIVISIONS_MAX || !shares_apply(t->whole))
        return false;
    const struct draft *d = draft_at(t->op, i);
    if (item_bucket(t->op, i) < 0)
        p = t->pinned = t->pinned ? t->pinned : p;
    shares_need(p, 1, (uint64_t)d->payload_len + d->metadata_len);
    *status_at(t->op, i) = STATUS_OK;
    t->crowded = true;
    return true;
}

bool put_is_crowded(struct trip *t)
{
    struct engine_op *op = t->op;
    struct partition *p = &t->whole->partitions[op->put.items[0].partition];
    bool *again = mem_zalloc(op->put.count * sizeof(again[0]));
    for (uint32_t i = 0; !op->status && i < op->put.count; i++)
        again[i] = may_find_room(t, p, i);
    for (uint32_t i = 0; t->crowded && i < op->put.count; i++) {
        if (!again[i])
            settle(t, i, *status_at(op, i));
    }
    free(again);
    return t->crowded;
}

void put_refused_fire(struct trip *t)
{
    struct partition *home = whole_home(t->whole);
    if (!home || !t->op->fire.item || !shares_apply(t->whole))
        return;
    const struct draft *d = &t->op->fire.item->draft;
    shares_need(home, 1, (uint64_t)d->payload_len + d->metadata_len);
    shares_want(t->whole);
}

/* Parts */

static void take_back(struct cell_part *p, uint32_t count)
{
    struct engine_op *op = p->trip->op;
    assert(p->places);
    assert(count > 0);
    size_t size = shape_of(op)->size;
    /* A partition that another server has just removed stored nothing either. */
    bool gone = p->op.status == STATUS_QUEUE_NOT_FOUND && p->trip->whole->there > 1;
    bool again = gone || p->op.status == STATUS_MOVED;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t to = p->places[i];
        assert(!is_settled(p->trip, to));
        memcpy(item_at(op, to), (char *)p->items + i * size, size);
        if (p->op.status)
            *status_at(op, to) = p->op.status;
        if (!again && !may_find_room(p->trip, p->partition, to))
            settle(p->trip, to, *status_at(op, to));
    }
}

static void put_back(struct cell_part *p)
{
    if (!p->trip)
        return; /* never: a trip with bodies waits for all its parts */
    struct put_item *items = p->items;
    for (uint32_t i = 0; i < p->op.put.count; i++)
        items[i].partition = p->cell->number;
    take_back(p, p->op.put.count);
}

static void import_back(struct cell_part *p)
{
    if (p->trip)
        take_back(p, p->op.import.count);
}

/* By which placement an op is sent. */
static uint64_t epoch_of(const struct whole *w)
{
    return PLANTED(EPOCH_SKIPPED) ? INT64_MAX : w->placement.epoch;
}

static void give_items(struct cell_part *part, uint32_t count)
{
    if (part->op.verb == ENGINE_PUT) {
        part->op.put.items = part->items;
        part->op.put.count = count;
        part->op.put.epoch = epoch_of(part->partition->whole);
    } else {
        part->op.import.items = part->items;
        part->op.import.count = count;
        part->op.import.epoch = epoch_of(part->partition->whole);
    }
}

/* A part with the items that `routes` sends to this partition; NULL: there are none. */
static struct cell_part *part_with(struct trip *t, struct partition *p, struct partition **routes)
{
    uint32_t count = count_of(t->op), mine = 0;
    size_t size = shape_of(t->op)->size;
    for (uint32_t i = 0; i < count; i++)
        mine += routes[i] == p;
    if (mine == 0)
        return NULL;
    struct cell_part *part = part_new(t, p->cell, p);
    char *copy = part->items = mem_alloc(mine * size);
    part->places = mem_alloc(mine * sizeof(part->places[0]));
    for (uint32_t i = 0, n = 0; i < count; i++) {
        if (routes[i] != p)
            continue;
        memcpy(copy + n * size, item_at(t->op, i), size);
        part->places[n++] = i;
    }
    give_items(part, mine);
    part->done = shape_of(t->op)->back;
    return part;
}

static void send(struct trip *t, struct partition **routes)
{
    uint64_t choice = ++t->cells->choices;
    assert(t->under_way == 0); /* a round begins when the one before is over */
    t->submitting = true;
    for (uint32_t i = 0; i < count_of(t->op); i++) {
        if (!routes[i] || routes[i]->chosen == choice)
            continue;
        routes[i]->chosen = choice;
        part_submit(part_with(t, routes[i], routes));
    }
    t->submitting = false;
}

/* Rounds */

static void put_round(struct trip *t);

static void finish(struct trip *t)
{
    trip_finish(t, STATUS_OK);
}

static bool all_settled(const struct trip *t)
{
    for (uint32_t i = 0; i < count_of(t->op); i++) {
        if (!is_settled(t, i))
            return false;
    }
    return true;
}

static void give_up(struct trip *t)
{
    for (uint32_t i = 0; i < count_of(t->op); i++) {
        if (!is_settled(t, i))
            settle(t, i, STATUS_ENGINE_UNAVAILABLE);
    }
    finish(t);
}

void put_again(struct trip *t)
{
    bool crowded = t->crowded;
    assert(t->under_way == 0);
    t->op->status = STATUS_OK;
    t->crowded = false;
    place_follow(t->whole);
    if (all_settled(t)) {
        finish(t);
    } else if (crowded) {
        t->divisions++;
        shares_await(t, false, put_round);
    } else {
        put_round(t);
    }
}

static void pass(struct trip *t, struct partition *p)
{
    if (t->op->verb == ENGINE_PUT)
        t->op->put.epoch = epoch_of(t->whole);
    else
        t->op->import.epoch = epoch_of(t->whole);
    trip_pass(t, p);
}

/* What has no answer yet is stored: all in one partition, as the caller gave it; or divided. */
static void put_store(struct trip *t)
{
    uint32_t count = count_of(t->op);
    struct partition *few[16] = {NULL}, **routes = few;
    if (count > sizeof(few) / sizeof(few[0]))
        routes = mem_alloc(count * sizeof(struct partition *));
    bool same = !t->settled;
    for (uint32_t i = 0; i < count; i++) {
        routes[i] = is_settled(t, i) ? NULL : route(t, i);
        same = same && routes[i] && routes[i] == routes[0];
    }
    struct partition *one = same ? routes[0] : NULL;
    for (uint32_t i = 0; !same && i < count; i++) {
        if (!routes[i] && !is_settled(t, i))
            settle(t, i, STATUS_ENGINE_UNAVAILABLE);
    }
    if (!same)
        send(t, routes);
    if (routes != few)
        free(routes);
    if (one)
        pass(t, one);
    else
        trip_await(t, put_again);
}

/* Keys whose bucket has moved. t->at is the move that is looked at. */

static void look_up_next(struct trip *t);

static void looked_up(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    const struct put_item *from = p->items;
    for (uint32_t i = 0; i < p->op.put.count; i++) {
        uint32_t to = p->places[i];
        assert(from[i].only_known); /* it was looked for, and never stored */
        enum status status = p->op.status ? p->op.status : from[i].status;
        if (status == STATUS_MESSAGE_NOT_FOUND || status == STATUS_MOVED)
            continue;
        t->op->put.items[to] = from[i];
        t->op->put.items[to].only_known = false;
        t->op->put.items[to].partition = p->cell->number;
        settle(t, to, status);
    }
    t->stale = t->stale || p->op.status == STATUS_MOVED;
}

static bool is_looked_up(const struct trip *t, const struct moved *m, uint32_t i)
{
    int bucket = is_settled(t, i) ? -1 : item_bucket(t->op, i);
    return bucket >= 0 && bucket_set_has(&m->buckets, (uint32_t)bucket) &&
           t->whole->placement.buckets[bucket] != m->from;
}

/* True: a part is under way. */
static bool look_up(struct trip *t, const struct moved *m)
{
    uint32_t count = t->op->put.count;
    struct partition *p = place_partition(t->whole, m->from);
    struct partition **routes = mem_alloc(count * sizeof(struct partition *));
    bool serves = p && partition_serves(p) && place_holds(p);
    for (uint32_t i = 0; i < count; i++) {
        bool mine = is_looked_up(t, m, i);
        routes[i] = mine && serves ? p : NULL;
        if (mine && !serves) /* the key may be there, and nobody can tell */
            settle(t, i, STATUS_ENGINE_UNAVAILABLE);
    }
    struct cell_part *part = serves ? part_with(t, p, routes) : NULL;
    free(routes);
    if (!part)
        return false;
    for (uint32_t i = 0; i < part->op.put.count; i++)
        part->op.put.items[i].only_known = true;
    part->done = looked_up;
    t->then = look_up_next;
    part_submit(part);
    return true;
}

/* Also where this server does not know of the partition, because the cell was away when it looked
 * at the queues last: the key may be there. */
static bool move_counts(const struct whole *w, const struct moved *m)
{
    return m->until_ms > w->cells->now.wall_ms && w->placement.seats[m->from].state != SEAT_OUT;
}

static void look_up_next(struct trip *t)
{
    const struct placement *p = &t->whole->placement;
    if (t->stale || t->epoch != p->epoch) { /* t->at means nothing in another placement */
        t->stale = false;
        put_again(t);
        return;
    }
    while (t->at < p->moved_count) {
        const struct moved *m = &p->moved[t->at++];
        if (move_counts(t->whole, m) && look_up(t, m))
            return;
    }
    put_store(t);
}

/* A cell that has not heard of the move yet would still take messages of these buckets from others:
 * it is told before its keys are looked at. */
static bool concerns(const struct trip *t, const struct moved *m)
{
    for (uint32_t i = 0; i < t->op->put.count; i++) {
        if (is_looked_up(t, m, i))
            return true;
    }
    return false;
}

static void fence(struct trip *t)
{
    const struct placement *p = &t->whole->placement;
    t->submitting = true;
    for (uint32_t i = 0; i < p->moved_count; i++) {
        struct partition *from = place_partition(t->whole, p->moved[i].from);
        if (from && move_counts(t->whole, &p->moved[i]) && concerns(t, &p->moved[i]))
            place_tell(t, from);
    }
    t->submitting = false;
    trip_await(t, look_up_next);
}

static bool has_moved_keys(const struct trip *t)
{
    const struct placement *p = &t->whole->placement;
    for (uint32_t k = 0; k < p->moved_count && t->op->verb == ENGINE_PUT; k++) {
        if (move_counts(t->whole, &p->moved[k]) && concerns(t, &p->moved[k]))
            return true;
    }
    return false;
}

static void put_round(struct trip *t)
{
    if (t->status || ++t->rounds > PUT_ROUNDS_MAX) {
        give_up(t);
    } else if (place_lacks(t->whole)) {
        place_first(t, t->whole, false, put_round);
    } else if (has_moved_keys(t)) {
        t->at = 0;
        t->epoch = t->whole->placement.epoch;
        fence(t);
    } else {
        put_store(t);
    }
}

static void number(struct trip *t)
{
    uint32_t count = count_of(t->op);
    assert(!t->settled);
    uint64_t first = whole_take_seqs(t->whole, count);
    for (uint32_t i = 0; i < count; i++)
        draft_at(t->op, i)->seq_min = first + i;
}

void trip_put(struct trip *t)
{
    number(t);
    put_round(t);
}

void trip_import(struct trip *t)
{
    number(t);
    put_round(t);
}
