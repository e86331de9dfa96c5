/* Ops on their way: a trip is the caller's op, its parts are ops of cells. */
#include "base/mem.h"
#include "base/plant.h"
#include "engine/cells/impl.h"
#include "engine/cells/shares.h"

#include <stdlib.h>
#include <string.h>

/* Trips */

struct trip *trip_new(struct cells_engine *c, struct engine_op *op)
{
    struct trip *t = mem_zalloc(sizeof(*t));
    t->tag = TRIP_TAG;
    t->cells = c;
    t->op = op;
    t->whole = whole_of(op->queue);
    if (t->whole)
        t->whole->busy++;
    assert(!t->whole || !t->whole->retired);
    op->engine = t;
    return t;
}

static void trip_free(struct trip *t)
{
    for (struct cell_part *p; (p = t->parts);) { /* nobody waits for them any more */
        t->parts = p->next;
        p->trip = NULL;
        p->next = p->prev = NULL;
    }
    free(t->cuts);
    free(t->settled);
    free(t->barren);
    if (t->next_placement)
        placement_fini(t->next_placement);
    free(t->next_placement);
    tag_end(&t->tag, TRIP_TAG);
    free(t);
}

/* The op is reported by the poll that is under way, or by the next one. */
void trip_finish(struct trip *t, enum status status)
{
    struct cells_engine *c = t->cells;
    struct engine_op *op = t->op;
    struct whole *w = t->whole;
    assert(!t->finished);
    assert(!t->submitting);
    assert(!w || w->busy > 0);
    t->finished = true;
    op->status = status;
    op->engine = w; /* which is busy until the op is reported */
    op->next = NULL;
    if (w)
        whole_merge(w);
    trip_free(t);
    assert(!*c->done_last);
    *c->done_last = op;
    c->done_last = &op->next;
}

void trip_outdated(struct trip *t)
{
    whole_follow(t->whole);
    t->op->outdated = true;
    if (t->op->verb == ENGINE_CLAIM)
        t->op->claim.found = 0;
    trip_finish(t, STATUS_ENGINE_UNAVAILABLE);
}

void trip_await(struct trip *t, void (*then)(struct trip *t))
{
    t->then = then;
    if (t->under_way == 0)
        then(t);
}

/* Parts */

struct cell_part *part_new_alone(struct cells_engine *c, struct cell *cell,
                                 struct partition *partition)
{
    struct cell_part *p = mem_zalloc(sizeof(*p));
    assert(!partition || partition->cell == cell);
    p->tag = PART_TAG;
    p->cells = c;
    p->cell = cell;
    p->partition = partition;
    p->op.queue = partition ? partition->q : NULL;
    return p;
}

struct cell_part *part_new(struct trip *t, struct cell *cell, struct partition *partition)
{
    struct cell_part *p = part_new_alone(t->cells, cell, partition);
    assert(!t->finished);
    p->trip = t;
    p->op.verb = t->op->verb;
    p->next = t->parts;
    if (t->parts)
        t->parts->prev = p;
    t->parts = p;
    t->under_way++;
    return p;
}

/* A GET shows where the message stands among those of all cells. The message is the engine's, and
 * is as it was when the call has returned. */
static void show_to_caller(struct engine_op *op, const struct engine_queue *q,
                           const struct message *m, struct instant now)
{
    struct cell_part *p = part_of(op);
    struct message *shown = (struct message *)m;
    int64_t ready_ms = m->ready_ms;
    if (!p->trip || !p->trip->op->visit)
        return;
    if (op->verb == ENGINE_GET)
        shown->ready_ms = time_from_cell(p->cell, ready_ms);
    p->trip->op->visit(p->trip->op, q, m, now);
    shown->ready_ms = ready_ms;
}

static void schedule_to_caller(struct engine_op *op, struct engine_queue *q,
                               const struct schedule *s, struct instant now)
{
    struct cell_part *p = part_of(op);
    (void)q;
    if (p->trip)
        p->trip->op->schedule.show(p->trip->op, &p->trip->whole->face, s, now);
}

static bool shows_schedules(const struct engine_op *op)
{
    return (op->verb == ENGINE_SCHEDULE_SET || op->verb == ENGINE_SCHEDULE_LIST) &&
           op->schedule.show;
}

struct cell_part *part_copy(struct trip *t, struct partition *partition)
{
    struct cell_part *p = part_new(t, partition->cell, partition);
    p->op = *t->op;
    p->op.tag = 0;
    p->op.queue = partition->q;
    p->op.visit = t->op->visit ? show_to_caller : NULL;
    if (shows_schedules(t->op))
        p->op.schedule.show = schedule_to_caller;
    return p;
}

static void part_unlink(struct cell_part *p)
{
    tag_check(p->trip->tag, TRIP_TAG);
    assert(p->prev || p->trip->parts == p);
    if (p->next)
        p->next->prev = p->prev;
    if (p->prev)
        p->prev->next = p->next;
    else
        p->trip->parts = p->next;
    p->next = p->prev = NULL;
    assert(p->trip->under_way > 0);
    p->trip->under_way--;
}

static void part_free(struct cell_part *p)
{
    free(p->items);
    free(p->places);
    free(p->stray);
    tag_end(&p->tag, PART_TAG);
    free(p);
}

void cell_weigh(struct cells_engine *c, struct cell *cell)
{
    const struct tourney_key key = {.major = cell->under_way};
    if (cell->away)
        tourney_out(&c->load, cell->number);
    else
        tourney_set(&c->load, cell->number, &key);
}

static void cell_add(struct cell *c, struct cell_part *p)
{
    p->cell_next = c->parts;
    if (c->parts)
        c->parts->cell_prev = p;
    c->parts = p;
    c->under_way++;
    cell_weigh(p->cells, c);
}

static void cell_remove(struct cell *c, struct cell_part *p)
{
    assert(c->under_way > 0);
    c->under_way--;
    cell_weigh(p->cells, c);
    if (p->cell_next)
        p->cell_next->cell_prev = p->cell_prev;
    if (p->cell_prev)
        p->cell_prev->cell_next = p->cell_next;
    else
        c->parts = p->cell_next;
}

/* The cell is away, or back. */
static void merge_all(struct cells_engine *c, struct cell *cell)
{
    size_t at = 0;
    cell_changed(c, cell);
    cell_weigh(c, cell);
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        whole_merge(w);
        if (w->face.waiting > 0)
            whole_tell(w);
    }
}

/* A trip that waits for nothing but droppable parts of this cell goes on without them. */
void part_drop(struct cell_part *p)
{
    assert(p->droppable);
    p->trip->status = STATUS_ENGINE_UNAVAILABLE;
    part_leave(p);
}

void part_leave(struct cell_part *p)
{
    struct trip *t = p->trip;
    assert(p->cell->under_way > 0); /* it goes on there */
    part_unlink(p);
    p->trip = NULL;
    if (t->under_way == 0 && !t->submitting)
        t->then(t);
}

static struct cell_part *first_droppable(const struct cell *cell)
{
    struct cell_part *p = cell->parts;
    while (p && !(p->droppable && p->trip))
        p = p->cell_next;
    return p;
}

void cell_is_away(struct cells_engine *c, struct cell *cell)
{
    if (cell->away || c->cell_count == 1)
        return;
    assert(c->hesitating >= (cell->hesitates ? 1U : 0));
    cell->away = true;
    c->hesitating -= cell->hesitates;
    cell->hesitates = false;
    cell->outages++;
    merge_all(c, cell);
    for (struct cell_part *p; (p = first_droppable(cell));)
        part_drop(p);
    shares_cell_away(c, cell);
}

/* How slow its answers are: the slowest one, which counts for less with each that follows. */
static void note_pace(struct cell_part *p)
{
    struct cell *c = p->cell;
    struct instant now = p->cells->invented ? p->cells->now : clock_now();
    int64_t took_ms = now.mono_ms - p->asked.mono_ms;
    c->slow_ms -= (c->slow_ms + 63) / 64;
    c->slow_ms = took_ms > c->slow_ms ? took_ms : c->slow_ms;
    p->cells->hesitating -= c->hesitates;
    c->hesitates = false;
}

/* A cell that answers is not away, but for an answer that says so. */
static void hear(struct cell_part *p)
{
    struct cell *c = p->cell;
    bool unavailable = p->op.status == STATUS_ENGINE_UNAVAILABLE && !p->op.outdated;
    cell_remove(c, p);
    note_pace(p);
    c->heard_ms = CELL_HEARD;
    if (unavailable)
        cell_is_away(p->cells, c);
    else if (c->away) {
        c->away = false;
        merge_all(p->cells, c);
    }
    if (c->reckoned_ms != cell_ahead_ms(c))
        cell_changed(p->cells, c);
}

/* What an answer says of the heads is as old as the question. */
static void note_heads(struct cell_part *p)
{
    struct partition *at = p->partition;
    if (!at || !at->q)
        return;
    partition_changed(at);
    if (at->q->moments == at->moments)
        return;
    at->moments = at->q->moments;
    partition_knows(at, p->asked.mono_ms);
    window_saw(at, p->asked);
}

static void on_part_done(struct engine_op *op)
{
    struct cell_part *p = part_of(op);
    struct trip *t = p->trip;
    hear(p);
    note_heads(p);
    if (t)
        part_unlink(p); /* p->trip stays, for `done` */
    if (p->done)
        p->done(p);
    struct whole *w = p->partition ? p->partition->whole : NULL;
    part_free(p);
    if (w) {
        assert(w->parts > 0);
        w->parts--;
    }
    if (t && t->under_way == 0 && !t->submitting)
        t->then(t);
    if (w)
        whole_let_go(w);
}

void part_submit(struct cell_part *p)
{
    struct cell *c = p->cell;
    assert(!p->partition || p->partition->q); /* a handle that is there */
    assert(!p->trip || p->trip->under_way > 0);
    p->op.user = p;
    p->op.done = on_part_done;
    if (c->under_way == 0)
        c->heard_ms = CELL_HEARD;
    cell_add(c, p);
    c->submitted = true;
    p->asked = p->cells->invented ? p->cells->now : clock_now();
    if (p->partition) {
        p->partition->q->waiting = p->partition->whole->face.waiting;
        p->partition->whole->parts++;
    }
    engine_submit(c->engine, &p->op, p->cells->now);
    if (p->partition && (cell_is_live(c) || p->op.verb == ENGINE_CLAIM))
        partition_changed(p->partition); /* elsewhere nothing but claims shows before the answer */
}

bool partition_is_known(const struct partition *p)
{
    return p->version == p->q->version;
}

/* An op for one partition: the caller's op goes there as it is, and comes back as it was answered.
 */

static void passed(struct cell_part *p)
{
    if (!p->trip)
        return;
    struct engine_op *op = p->trip->op;
    struct engine_op answer = p->op;
    answer.verb = op->verb;
    answer.tag = op->tag;
    answer.queue = op->queue;
    answer.done = op->done;
    answer.visit = op->visit;
    answer.user = op->user;
    answer.engine = op->engine;
    answer.next = op->next;
    answer.lot = op->lot;
    answer.version = op->version;
    if (shows_schedules(op))
        answer.schedule.show = op->schedule.show;
    *op = answer;
    for (uint32_t i = 0; op->verb == ENGINE_PUT && i < op->put.count; i++)
        op->put.items[i].partition = p->cell->number;
}

static bool send_twice(struct trip *t)
{
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        if (partition_serves(&t->whole->partitions[i])) {
            trip_pass(t, &t->whole->partitions[i]);
            return true;
        }
    }
    return false;
}

static void passed_all(struct trip *t)
{
    if (t->op->outdated) {
        trip_outdated(t);
        return;
    }
    if (PLANTED(GROUP_TWICE) && t->op->verb == ENGINE_PUT &&
        t->op->status == STATUS_ENGINE_UNAVAILABLE && send_twice(t))
        return;
    if (t->op->verb == ENGINE_QUEUE_SET)
        whole_follow(t->whole);
    if (t->op->verb == ENGINE_FIRE && t->op->status == STATUS_QUEUE_FULL)
        put_refused_fire(t);
    if (t->op->status == STATUS_MOVED || (t->op->verb == ENGINE_PUT && put_is_crowded(t)))
        put_again(t);
    else
        trip_finish(t, t->op->status);
}

void trip_pass(struct trip *t, struct partition *p)
{
    if (!p || !p->q || p->q->gone) {
        trip_finish(t, STATUS_QUEUE_NOT_FOUND);
        return;
    }
    if (p->cell->away) {
        trip_finish(t, STATUS_ENGINE_UNAVAILABLE);
        return;
    }
    struct cell_part *part = part_copy(t, p);
    part->done = passed;
    t->then = passed_all;
    part_submit(part);
}
