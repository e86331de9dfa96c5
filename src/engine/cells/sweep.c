/* Time: cells are swept, those that do not answer are away, and what is new is told. */
#include "base/plant.h"
#include "engine/cells/impl.h"
#include "engine/cells/shares.h"

#include <stdlib.h>
#include <string.h>

#define PROBE_MS      250 /* how often a cell that is away is tried */
/* The next sweep begins when the last one is over: so a cell that is slow would keep the leases and
 * delays of all others waiting. After this time its sweep goes on by itself. */
#define SWEEP_WAIT_MS 50
#define LOOK_MS       2 /* how old the heads of a partition may get while others are claimed from */

/* Silence */

/* How long until this cell has been silent for too long; INT64_MAX: it owes nothing. */
static int64_t patience_ms(const struct cells_engine *c, const struct cell *cell)
{
    if (cell->away || cell->under_way == 0 || c->cell_count == 1)
        return INT64_MAX;
    int64_t left = cell->heard_ms + CELL_SILENCE_MS - c->now.mono_ms;
    return left < 0 ? 0 : left;
}

static bool check_silence(struct cells_engine *c, struct cell *cell, int64_t *due_ms)
{
    if (cell->heard_ms == CELL_HEARD)
        cell->heard_ms = c->now.mono_ms;
    int64_t left = patience_ms(c, cell);
    if (left == 0) {
        cell_is_away(c, cell);
        return true;
    }
    *due_ms = left < *due_ms ? left : *due_ms;
    return false;
}

/* When it has been silent for so long that claims go on with what the others have. */
static bool check_pace(struct cells_engine *c, struct cell *cell, int64_t *due_ms)
{
    int64_t pace_ms = 4 * cell->slow_ms;
    pace_ms = pace_ms < CELL_HESITATES_MS ? CELL_HESITATES_MS : pace_ms;
    int64_t left = patience_ms(c, cell);
    if (left == INT64_MAX || pace_ms >= CELL_SILENCE_MS)
        return false;
    left -= CELL_SILENCE_MS - pace_ms;
    if (left > 0) {
        *due_ms = left < *due_ms ? left : *due_ms;
        return false;
    }
    cell->outages += !cell->hesitates;
    c->hesitating += !cell->hesitates;
    cell->hesitates = true;
    return claims_leave(cell);
}

static bool check_sweep(struct cells_engine *c, struct cell *cell, int64_t *due_ms)
{
    struct cell_part *p = cell->sweeping;
    if (!p || !p->trip || p->op.sweep.look || cell->patient || c->cell_count == 1)
        return false;
    int64_t left = cell->swept_ms + SWEEP_WAIT_MS - c->now.mono_ms;
    if (left <= 0) {
        part_drop(p);
        return true;
    }
    *due_ms = left < *due_ms ? left : *due_ms;
    return false;
}

/* Whether somebody does not wait any more. */
static bool listen(struct cells_engine *c, int64_t *due_ms)
{
    bool lost = false;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        lost = check_silence(c, &c->cells[i], due_ms) || lost;
        lost = check_pace(c, &c->cells[i], due_ms) || lost;
        lost = check_sweep(c, &c->cells[i], due_ms) || lost;
    }
    return lost;
}

void cells_listen(struct cells_engine *c)
{
    int64_t due_ms = INT64_MAX;
    if (c->listened_ms != c->now.mono_ms)
        listen(c, &due_ms);
    c->listened_ms = c->now.mono_ms;
}

/* When */

static void check_due(struct cells_engine *c, struct cell *cell, int64_t *due_ms)
{
    int64_t due = engine_next_due_ms(cell->engine, c->now);
    if (cell->sweeping)
        return; /* the next answer will come with it */
    if (cell->away) {
        int64_t probe = cell->swept_ms + PROBE_MS - c->now.mono_ms;
        due = probe > 0 ? probe : 0;
    }
    cell->sweep_due = cell->sweep_due || due == 0;
    due = cell->sweep_due ? 0 : due;
    *due_ms = due < *due_ms ? due : *due_ms;
}

int64_t cells_next_due_ms(struct engine *e, struct instant now)
{
    struct cells_engine *c = cells_of(e);
    int64_t due_ms = INT64_MAX;
    c->now = now;
    bool lost = listen(c, &due_ms);
    for (uint32_t i = 0; i < c->cell_count; i++)
        check_due(c, &c->cells[i], &due_ms);
    int64_t mend_ms = c->mended_ms + MEND_MS - c->now.mono_ms;
    bool mends = c->thin + c->unsettled > 0 || c->shared->split.on;
    if (mends && mend_ms < due_ms)
        due_ms = mend_ms > 0 ? mend_ms : 0;
    int64_t drain_ms = c->drain_due_ms - c->now.mono_ms;
    if (c->drain_due_ms != INT64_MAX && drain_ms < due_ms)
        due_ms = drain_ms > 0 ? drain_ms : 0;
    if (lost && c->wake) /* trips went on without it, and a poll is to say so */
        c->wake(c->wake_ctx, c->shard);
    return c->told ? 0 : due_ms;
}

/* What a sweep of a cell shows */

void touched_in_cell(struct engine_op *op, struct engine_queue *q)
{
    struct cell_part *part = part_of(op);
    struct partition *p = partition_of(q);
    if (q->gone) {
        if (!p || p->q != q)
            return;
        struct whole *w = p->whole;
        whole_lose(p);
        if (w->there == 0) {
            whole_retire(w);
            w->face.gone = true;
        }
        whole_tell(w);
        return;
    }
    struct whole *w = whole_adopt(part->cells, part->cell, q);
    place_follow(w);
    partition_changed(partition_of(q));
    window_saw(partition_of(q), part->asked);
    whole_follow(w);
    whole_merge(w);
    whole_tell(w);
}

static void due_in_cell(struct engine_op *op, struct engine_queue *q, const struct schedule *s,
                        struct instant now)
{
    const struct cell_part *part = part_of(op);
    const struct partition *p = partition_of(q);
    if (!p || p != whole_home(p->whole))
        return;
    if (part->trip && part->trip->op->sweep.due)
        part->trip->op->sweep.due(part->trip->op, &p->whole->face, s, now);
    part->cell->patient = !part->trip;
}

/* The sweep */

static void sweep_in(struct trip *t, struct cell *cell, uint32_t cursor);

static void swept(struct cell_part *p)
{
    struct cell *cell = p->cell;
    if (cell->sweeping == p)
        cell->sweeping = NULL;
    if (p->op.status)
        return;
    cell->sweep_due = cell->sweep_due || p->op.sweep.more;
    if (p->trip)
        p->trip->op->sweep.more = p->trip->op->sweep.more || p->op.sweep.more;
    if (p->trip && p->op.sweep.look && p->op.sweep.cursor != 0)
        sweep_in(p->trip, cell, p->op.sweep.cursor);
}

/* A cell that is away is only tried: nobody waits for its answer. */
static void sweep_in(struct trip *t, struct cell *cell, uint32_t cursor)
{
    struct cell_part *part =
        cell->away ? part_new_alone(t->cells, cell, NULL) : part_new(t, cell, NULL);
    part->op.verb = ENGINE_SWEEP;
    part->op.sweep.max = t->op->sweep.max;
    part->op.sweep.look = t->op->sweep.look;
    part->op.sweep.cursor = cursor;
    part->op.sweep.touched = touched_in_cell;
    part->op.sweep.due = t->op->sweep.due ? due_in_cell : NULL;
    part->droppable = true;
    part->done = swept;
    if (!part->op.sweep.look && !cell->sweeping) {
        cell->sweeping = part;
        cell->sweep_due = false;
        cell->swept_ms = t->cells->now.mono_ms;
    }
    part_submit(part);
}

static void tell(struct trip *t)
{
    struct cells_engine *c = t->cells;
    struct whole *list = c->told;
    c->told = NULL;
    for (struct whole *w; (w = list);) {
        list = w->next_told;
        w->told = false;
        w->next_told = NULL;
        w->busy++; /* until the call has returned */
        if (t->op->sweep.touched && !w->deleting && !w->hidden)
            t->op->sweep.touched(t->op, &w->face);
        w->busy--;
        whole_let_go(w);
    }
}

static void swept_all(struct trip *t)
{
    tell(t);
    trip_finish(t, STATUS_OK);
}

/* A look asks beside a sweep that is under way: that one may have counted before the look was asked
 * for. */
static bool wants_sweep(const struct trip *t, const struct cell *cell)
{
    if (t->op->sweep.look)
        return engine_has(cell->engine, ENGINE_SHARED) && !cell->away;
    return !cell->sweeping && (cell->sweep_due || cell_is_live(cell));
}

/* The caller sweeps of its own accord: then everything is swept. */
static void all_due(struct cells_engine *c)
{
    bool due = false;
    for (uint32_t i = 0; i < c->cell_count; i++)
        due = due || c->cells[i].sweep_due || c->cells[i].sweeping;
    for (uint32_t i = 0; !due && !c->told && i < c->cell_count; i++)
        c->cells[i].sweep_due = !c->cells[i].away;
}

/* Engines read in a sweep how many consumers wait. */
static void pass_waiting(struct cells_engine *c)
{
    size_t at = 0;
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        for (uint32_t i = 0; i < c->cell_count; i++) {
            if (w->partitions[i].q)
                w->partitions[i].q->waiting = w->face.waiting;
        }
    }
}

void trip_sweep(struct trip *t)
{
    struct cells_engine *c = t->cells;
    t->op->sweep.more = false;
    t->op->sweep.cursor = 0;
    pass_waiting(c);
    wholes_mend(c);
    shares_tick(c);
    wholes_drain(c);
    if (!t->op->sweep.look)
        all_due(c);
    t->submitting = true;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        if (wants_sweep(t, &c->cells[i]))
            sweep_in(t, &c->cells[i], 0);
    }
    t->submitting = false;
    trip_await(t, swept_all);
}

/* Looks. Partitions without an exact view stand in two lists: who was looked at the longest ago is
 * looked at next, and what is known the longest is the first to be too old. */

static void list_remove(struct partition_list *list, struct partition *p,
                        struct partition_link *(*link)(struct partition *p))
{
    struct partition_link *l = link(p);
    *(l->prev ? &link(l->prev)->next : &list->first) = l->next;
    *(l->next ? &link(l->next)->prev : &list->last) = l->prev;
    *l = (struct partition_link){0};
}

/* Behind `after`; NULL: as the first. */
static void list_insert(struct partition_list *list, struct partition *p, struct partition *after,
                        struct partition_link *(*link)(struct partition *p))
{
    struct partition_link *l = link(p);
    l->prev = after;
    l->next = after ? link(after)->next : list->first;
    *(l->prev ? &link(l->prev)->next : &list->first) = p;
    *(l->next ? &link(l->next)->prev : &list->last) = p;
}

static struct partition_link *look_link(struct partition *p)
{
    return &p->look;
}

static struct partition_link *known_link(struct partition *p)
{
    return &p->known;
}

static int64_t look_ms(void)
{
    return PLANTED(HEAD_BELIEVED) ? 10000 : LOOK_MS;
}

static bool look_due(const struct partition *p)
{
    return p->whole->cells->now.mono_ms - p->looked_ms >= look_ms();
}

/* Answers take about the same time, so who comes back now was looked at after those who are in
 * line; but not where an answer takes longer than the time between two looks. */
static void look_enter(struct partition *p)
{
    struct partition_list *list = &p->whole->by_look;
    if (p->in_look || p->looking || !p->q || cell_is_live(p->cell))
        return;
    list_insert(list, p, look_due(p) ? NULL : list->last, look_link);
    p->in_look = true;
}

static void look_leave(struct partition *p)
{
    if (p->in_look)
        list_remove(&p->whole->by_look, p, look_link);
    p->in_look = false;
}

static void known_enter(struct partition *p)
{
    struct partition_list *list = &p->whole->by_known;
    struct partition *after = list->last;
    if (cell_is_live(p->cell))
        return;
    while (after && after->known_ms > p->known_ms)
        after = after->known.prev;
    list_insert(list, p, after, known_link);
    p->in_known = true;
}

static void known_leave(struct partition *p)
{
    if (p->in_known)
        list_remove(&p->whole->by_known, p, known_link);
    p->in_known = false;
}

void partition_line_up(struct partition *p)
{
    look_enter(p);
    known_enter(p);
}

void partition_leave(struct partition *p)
{
    look_leave(p);
    known_leave(p);
}

void partition_looked(struct partition *p)
{
    p->looked_ms = p->whole->cells->now.mono_ms;
    look_leave(p);
    look_enter(p);
}

void partition_knows(struct partition *p, int64_t asked_ms)
{
    known_leave(p);
    p->known_ms = asked_ms;
    known_enter(p);
}

bool whole_is_stale(const struct whole *w, int64_t stale_ms)
{
    const struct partition *p = w->by_known.first;
    for (; p && w->cells->now.mono_ms - p->known_ms > stale_ms; p = p->known.next) {
        if (partition_serves(p) && !p->cell->hesitates)
            return true;
    }
    return false;
}

static void looked(struct cell_part *p)
{
    struct partition *partition = p->partition;
    struct whole *w = partition->whole;
    partition->looking = false;
    look_enter(partition);
    if (p->op.status || !partition->q)
        return;
    whole_merge(w);
    if (w->face.waiting > 0 && w->face.view.ready > 0)
        whole_tell(w);
}

static void look(struct partition *p)
{
    struct cells_engine *c = p->whole->cells;
    struct cell_part *part = part_new_alone(c, p->cell, p);
    part->op.verb = ENGINE_COUNT;
    part->done = looked;
    look_leave(p);
    p->looking = true;
    p->looked_ms = c->now.mono_ms;
    c->base.counters.own[COUNT_LOOKS]++;
    p->cell->looks++;
    part_submit(part);
}

void whole_look(struct whole *w)
{
    struct partition *next;
    for (struct partition *p = w->by_look.first; p && look_due(p); p = next) {
        next = p->look.next;
        if (partition_serves(p))
            look(p);
    }
}
