/* Ops that go through a queue, one partition after the other: lists, and what is done to all that
 * there is. */
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>

/* The partition that is asked next; NULL: there is none. */
static struct partition *partition_from(const struct trip *t, uint32_t cell)
{
    for (; cell < t->cells->cell_count; cell++) {
        if (t->whole->partitions[cell].q)
            return &t->whole->partitions[cell];
    }
    return NULL;
}

/* Lists. The cursor of a list has the number of its cell, plus one, in the upper half of its phase.
 * The cursor of a dead letter list has the number of the partition's queue there, which is in the
 * id of the message that was shown last. */

#define PHASE_BITS 16
#define PHASE_MASK ((1u << PHASE_BITS) - 1)

static bool lists_dead(const struct trip *t)
{
    return t->op->verb == ENGINE_DEAD_LIST;
}

static void list_in(struct trip *t, struct partition *p, struct list_cursor after);

/* The caller may end the list by lowering the limit of its op, which counts all partitions. */
static void show(struct engine_op *op, const struct engine_queue *q, const struct message *m,
                 struct instant now)
{
    struct trip *t = part_of(op)->trip;
    if (!t || !t->op->visit)
        return;
    t->op->list.found = t->want + op->list.found;
    t->op->visit(t->op, q, m, now);
    if (t->op->list.limit <= t->op->list.found + 1)
        op->list.limit = op->list.found + 1;
}

static struct list_cursor cursor_in(const struct trip *t, const struct partition *p,
                                    struct list_cursor c)
{
    if (lists_dead(t))
        c.phase = p->q->id;
    else
        c.phase = (c.phase & PHASE_MASK) | (p->cell->number + 1) << PHASE_BITS;
    return c;
}

static void listed_all(struct trip *t)
{
    struct engine_op *op = t->op;
    struct partition *next = partition_from(t, t->at + 1);
    op->list.found = t->want;
    if (t->status || op->list.more || !next) {
        trip_finish(t, t->status);
    } else if (op->list.found >= op->list.limit) {
        op->list.more = true;
        op->list.next = cursor_in(t, next, (struct list_cursor){0});
        trip_finish(t, STATUS_OK);
    } else {
        list_in(t, next, (struct list_cursor){0});
    }
}

static void listed(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    t->status = p->op.status;
    if (p->op.list.more && !p->partition->q) /* deleted meanwhile */
        t->status = STATUS_QUEUE_NOT_FOUND;
    if (t->status)
        return;
    t->want += p->op.list.found;
    t->op->list.more = p->op.list.more;
    if (p->op.list.more)
        t->op->list.next = cursor_in(t, p->partition, p->op.list.next);
}

static void list_in(struct trip *t, struct partition *p, struct list_cursor after)
{
    if (!partition_serves(p)) {
        trip_finish(t, STATUS_ENGINE_UNAVAILABLE);
        return;
    }
    struct cell_part *part = part_copy(t, p);
    t->at = p->cell->number;
    part->op.visit = show;
    part->op.list.after = after;
    part->op.list.limit = t->op->list.limit - t->want;
    part->op.list.found = 0;
    part->done = listed;
    t->then = listed_all;
    part_submit(part);
}

void trip_list(struct trip *t)
{
    struct list_cursor after = t->op->list.after;
    uint32_t cell = after.phase >> PHASE_BITS;
    after.phase &= PHASE_MASK;
    struct partition *p = partition_from(t, cell > 0 ? cell - 1 : 0);
    if (cell > t->cells->cell_count || !p) {
        trip_finish(t, cell > 0 ? STATUS_INVALID_FIELD : STATUS_QUEUE_NOT_FOUND);
        return;
    }
    if (cell > 0 && p->cell->number != cell - 1) /* its cell has no such queue any more */
        after = (struct list_cursor){0};
    list_in(t, p, after);
}

void trip_dead_list(struct trip *t)
{
    struct list_cursor after = t->op->list.after;
    uint32_t queue = after.phase > 0 ? after.phase : t->op->list.after_queue;
    struct partition *p = queue > 0 ? whole_partition(t->whole, queue) : partition_from(t, 0);
    after.phase = 0;
    if (p)
        list_in(t, p, after);
    else
        trip_finish(t, STATUS_INVALID_FIELD);
}

/* Bulk. A job is many asks, and what is put after the first of them is no part of it. A tour keeps
 * how far the job has come in each partition: the op has room for one. */

#define TOURS_MAX    1000
#define TOUR_REST_MS 600000 /* a job that was not asked for in so long has been given up */

struct tour {
    uint64_t number;
    int64_t used_ms; /* mono */
    bool busy;       /* an ask is under way */
    struct tour *next;
    struct stage {
        bool more;
        uint64_t before_seq;
        struct list_cursor cursor;
    } stages[]; /* by the number of the cell */
};

static void tour_end(struct cells_engine *c, struct tour *tour)
{
    struct tour **at = &c->tours;
    while (*at != tour)
        at = &(*at)->next;
    *at = tour->next;
    free(tour);
}

void tours_end(struct cells_engine *c)
{
    while (c->tours)
        tour_end(c, c->tours);
}

/* Those that rest for too long, and the one that rests longest when there are too many. */
static void tours_tidy(struct cells_engine *c)
{
    uint32_t count = 0;
    struct tour *oldest = NULL;
    for (struct tour *tour = c->tours, *next; tour; tour = next) {
        next = tour->next;
        if (tour->busy)
            continue;
        if (c->now.mono_ms - tour->used_ms > TOUR_REST_MS) {
            tour_end(c, tour);
            continue;
        }
        count++;
        oldest = !oldest || tour->used_ms < oldest->used_ms ? tour : oldest;
    }
    if (count >= TOURS_MAX)
        tour_end(c, oldest);
}

static struct tour *tour_new(struct trip *t)
{
    struct cells_engine *c = t->cells;
    tours_tidy(c);
    struct tour *tour = mem_zalloc(sizeof(*tour) + c->cell_count * sizeof(tour->stages[0]));
    tour->number = ++c->tour_number;
    tour->used_ms = c->now.mono_ms;
    tour->next = c->tours;
    c->tours = tour;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        const struct partition *p = &t->whole->partitions[i];
        uint64_t before = t->op->bulk.before_seq;
        if (p->q)
            tour->stages[i] = (struct stage){
                .more = true, .before_seq = before < p->q->next_seq ? before : p->q->next_seq};
    }
    return tour;
}

static struct tour *tour_find(struct trip *t)
{
    uint64_t number = t->op->bulk.cursor.seq;
    if (t->op->bulk.cursor.phase != 1)
        return tour_new(t);
    for (struct tour *tour = t->cells->tours; tour; tour = tour->next) {
        if (tour->number == number)
            return tour;
    }
    return NULL;
}

static void bulk_next(struct trip *t);

static void bulk_done(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    struct stage *stage = &t->tour->stages[p->cell->number];
    t->status = p->op.status;
    if (t->status) {
        stage->more = false;
        return;
    }
    stage->more = p->op.bulk.more;
    stage->before_seq = p->op.bulk.before_seq;
    stage->cursor = p->op.bulk.cursor;
    t->op->bulk.count += p->op.bulk.count;
}

static void bulk_in(struct trip *t, struct partition *p)
{
    const struct stage *stage = &t->tour->stages[p->cell->number];
    struct cell_part *part = part_copy(t, p);
    part->op.bulk.max = t->op->bulk.max - t->op->bulk.count;
    part->op.bulk.before_seq = stage->before_seq;
    part->op.bulk.cursor = stage->cursor;
    part->op.bulk.count = 0;
    part->done = bulk_done;
    t->then = bulk_next;
    part_submit(part);
}

static void bulk_finish(struct trip *t, bool more)
{
    t->op->bulk.more = more;
    t->op->bulk.cursor = (struct list_cursor){.phase = 1, .seq = t->tour->number};
    t->tour->used_ms = t->cells->now.mono_ms;
    t->tour->busy = false;
    if (!more)
        tour_end(t->cells, t->tour);
    trip_finish(t, t->status);
}

static void bulk_next(struct trip *t)
{
    struct tour *tour = t->tour;
    bool full = t->op->bulk.count >= t->op->bulk.max;
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (!tour->stages[i].more || t->status)
            continue;
        if (full) {
            bulk_finish(t, true);
        } else if (p->q && partition_serves(p)) {
            bulk_in(t, p);
        } else {
            t->status = STATUS_ENGINE_UNAVAILABLE;
            bulk_finish(t, false);
        }
        return;
    }
    bulk_finish(t, false);
}

/* By ids */

static void ids_done(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (t && p->op.status)
        t->status = p->op.status;
    else if (t)
        t->op->bulk.count += p->op.bulk.count;
}

static void ids_all(struct trip *t)
{
    t->op->bulk.more = false;
    trip_finish(t, t->op->bulk.count > 0 ? STATUS_OK : t->status);
}

static void ids_in(struct trip *t, struct partition *p)
{
    const struct message_id *ids = t->op->bulk.ids;
    struct message_id *mine = mem_alloc(t->op->bulk.id_count * sizeof(*mine));
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->op->bulk.id_count; i++) {
        if (whole_partition(t->whole, ids[i].queue) == p)
            mine[count++] = ids[i];
    }
    if (count == 0) {
        free(mine);
        return;
    }
    struct cell_part *part = part_copy(t, p);
    part->items = mine;
    part->op.bulk.ids = mine;
    part->op.bulk.id_count = count;
    part->op.bulk.count = 0;
    part->done = ids_done;
    part_submit(part);
}

static void by_ids(struct trip *t)
{
    t->submitting = true;
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (partition_serves(p))
            ids_in(t, p);
        else if (p->q)
            t->status = STATUS_ENGINE_UNAVAILABLE;
    }
    t->submitting = false;
    trip_await(t, ids_all);
}

void trip_bulk(struct trip *t)
{
    struct partition *only = whole_only(t->whole);
    if (only && t->op->bulk.cursor.phase != 1) {
        trip_pass(t, only);
        return;
    }
    t->op->bulk.count = 0;
    if (t->op->bulk.id_count > 0) {
        by_ids(t);
        return;
    }
    t->tour = tour_find(t);
    if (t->tour) {
        t->tour->busy = true;
        bulk_next(t);
        return;
    }
    t->op->bulk.more = false; /* it was given up long ago */
    trip_finish(t, STATUS_OK);
}
