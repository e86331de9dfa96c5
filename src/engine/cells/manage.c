/* Queues that come, change and go in every cell.
 *
 * The home of a queue is the first cell that has it. Its configuration counts. So a queue is made
 * in the first cell before the others, changed at home before the others, and deleted at home
 * last: two servers that do it at the same time meet there. */
#include "base/mem.h"
#include "engine/cells/impl.h"
#include "engine/cells/shares.h"

#include <stdlib.h>
#include <string.h>

/* Looking for a queue that another server may have made. Any cell that has it will do. That there
 * is none, the first cell says: without it nobody knows. */

static void opened(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    if (p->op.status == STATUS_OK)
        t->made = whole_adopt(t->cells, p->cell, p->op.queue);
    else if (p->op.status != STATUS_QUEUE_NOT_FOUND && p->cell->number == 0)
        t->status = p->op.status;
}

/* What was found or made may be gone again: it is looked for by its name. */
static struct whole *by_name(const struct trip *t, const char *name)
{
    struct whole *w = whole_of(map_get(&t->cells->queues, name, strlen(name)));
    return w && w->there > 0 && !w->deleting && !w->hidden ? w : NULL;
}

static void hand_out(struct trip *t, const char *name)
{
    t->whole = by_name(t, name);
    t->op->queue = t->whole ? &t->whole->face : NULL;
    if (t->whole)
        t->whole->busy++; /* until the op is reported */
    trip_finish(t, t->whole ? STATUS_OK : t->status ? t->status : STATUS_QUEUE_NOT_FOUND);
}

static void opened_all(struct trip *t)
{
    hand_out(t, t->op->open.name);
}

void trip_open(struct trip *t)
{
    struct cells_engine *c = t->cells;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        struct cell *cell = &c->cells[i];
        if (cell->away && cell->number == 0)
            t->status = STATUS_ENGINE_UNAVAILABLE;
        if (cell->away || !engine_has(cell->engine, ENGINE_SHARED))
            continue;
        struct engine_queue *q =
            engine_queue_find(cell->engine, t->op->open.name, strlen(t->op->open.name));
        if (q) {
            t->made = whole_adopt(c, cell, q);
            continue;
        }
        struct cell_part *p = part_new(t, cell, NULL);
        p->op.open.name = t->op->open.name;
        p->done = opened;
        part_submit(p);
    }
    trip_await(t, opened_all);
}

/* What the op of a part points to. */
struct set_copy {
    struct queue_config config;
    char name[QUEUE_NAME_MAX + 1];
    char schedule_name[QUEUE_NAME_MAX + 1];
};

/* Making one */

static void made(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    if (p->op.status == STATUS_OK) {
        t->made = whole_adopt(t->cells, p->cell, p->op.queue);
        t->op->set.existed = t->op->set.existed || (p->cell->number == 0 && p->op.set.existed);
    } else if (p->cell->number == 0) {
        t->status = p->op.status;
    }
}

/* The cell has a queue of that name already: from a time when it stood alone, or because a server
 * ended while it made or deleted the queue. */
static bool found_there(struct trip *t, struct cell *cell)
{
    const char *name = t->op->set.name;
    struct engine_queue *q = engine_queue_find(cell->engine, name, strlen(name));
    if (q)
        t->made = whole_adopt(t->cells, cell, q);
    return q != NULL;
}

/* The class of ids of a new partition: the number of its cell, unless another partition of the
 * queue has an id of that class, from a time when its store stood alone. */
static uint16_t id_class(const struct whole *w, uint32_t number)
{
    uint32_t class = number;
    for (uint32_t i = 0; w && i < w->cells->cell_count; i++) {
        const struct engine_queue *q = w->partitions[i].q;
        if (!q || q->id % QUEUE_CELLS != class || class + w->cells->cell_count >= QUEUE_CELLS)
            continue;
        class += w->cells->cell_count; /* which is no number of a cell */
        i = UINT32_MAX;                /* from the first one again */
    }
    return (uint16_t) class;
}

static void make_in(struct trip *t, struct cell *cell, const struct queue_config *config)
{
    if (found_there(t, cell))
        return;
    struct cell_part *p = part_new(t, cell, NULL);
    struct queue_config *copy = mem_dup(config, sizeof(*config));
    p->items = copy;
    p->op.set.name = t->op->set.name;
    p->op.set.config = copy;
    p->op.set.cell = id_class(t->made, cell->number);
    p->op.set.celled = t->cells->cell_count > 1;
    p->done = made;
    part_submit(p);
}

static void made_all(struct trip *t)
{
    hand_out(t, t->op->set.name);
}

/* Each partition begins with a share of nothing. */
static void divide_made(struct trip *t)
{
    struct whole *w = by_name(t, t->op->set.name);
    t->whole = w;
    if (w && shares_apply(w))
        shares_await(t, false, made_all);
    else
        made_all(t);
}

/* Nothing was put into it yet if this server has made it. */
static void place_made(struct trip *t)
{
    struct whole *w = by_name(t, t->op->set.name);
    if (w)
        place_first(t, w, !t->op->set.existed, divide_made);
    else
        made_all(t);
}

static void made_first(struct trip *t)
{
    t->made = by_name(t, t->op->set.name);
    if (t->status || !t->made) {
        trip_finish(t, t->status ? t->status : STATUS_ENGINE_UNAVAILABLE);
        return;
    }
    const struct queue_config config = t->made->face.config;
    for (uint32_t i = 1; i < t->cells->cell_count; i++) {
        if (!t->cells->cells[i].away && cell_is_open(t->cells, i))
            make_in(t, &t->cells->cells[i], &config);
    }
    trip_await(t, place_made);
}

static void create(struct trip *t)
{
    struct cell *first = &t->cells->cells[0];
    t->op->set.existed = false;
    if (registry_is(t->op->set.name)) {
        trip_finish(t, STATUS_ENGINE_REFUSED);
        return;
    }
    if (first->away || t->op->set.dry) {
        trip_finish(t, first->away ? STATUS_ENGINE_UNAVAILABLE : STATUS_OK);
        return;
    }
    make_in(t, first, t->op->set.config);
    trip_await(t, made_first);
}

/* A cell that was added, or was away when the queue was made, gets its partition. Not before the
 * second look: the queue may just be on its way, or be on its way out. */

/* The queue was deleted while its partition was made. */
static void unmake(struct cell_part *made)
{
    struct cell_part *p = part_new_alone(made->cells, made->cell, NULL);
    p->op.verb = ENGINE_QUEUE_DELETE;
    p->op.queue = made->op.queue;
    p->op.remove.if_empty = true;
    part_submit(p);
}

void whole_mended(struct cell_part *p)
{
    if (p->op.status != STATUS_OK)
        return;
    const char *name = p->op.queue->name;
    if (map_get(&p->cells->queues, name, strlen(name)))
        whole_tell(whole_adopt(p->cells, p->cell, p->op.queue));
    else
        unmake(p);
}

/* A new queue numbers its levels from 0. A queue whose levels have other numbers at home, because
 * some were dropped or put between others, stays at home. */
static bool has_plain_slots(const struct queue_config *config)
{
    for (int rank = 0; rank < config->level_count; rank++) {
        if (config->levels[rank].slot != rank)
            return false;
    }
    return true;
}

bool whole_can_spread(const struct whole *w)
{
    return has_plain_slots(&w->face.config);
}

void whole_make_in(const struct whole *w, struct cell_part *p)
{
    struct set_copy *m = p->items = mem_zalloc(sizeof(*m));
    m->config = w->face.config;
    memcpy(m->name, w->face.name, sizeof(m->name));
    p->op.verb = ENGINE_QUEUE_SET;
    p->op.set.name = m->name;
    p->op.set.config = &m->config;
    p->op.set.cell = id_class(w, p->cell->number);
    p->op.set.celled = true;
}

static void mend_in(struct whole *w, struct cell *cell)
{
    struct cell_part *p = part_new_alone(w->cells, cell, NULL);
    whole_make_in(w, p);
    p->done = whole_mended;
    part_submit(p);
}

/* A queue has a partition in every cell but those that it was taken out of. */
static bool lacks_partition(const struct whole *w, uint32_t number)
{
    int seat = w->partitions[number].seat;
    return !w->partitions[number].q && !w->cells->cells[number].away &&
           (seat >= 0 || cell_is_open(w->cells, number)) &&
           (seat < 0 || w->placement.seats[seat].state != SEAT_OUT);
}

static void mend(struct whole *w)
{
    const struct partition *home = whole_home(w);
    bool thin = !w->hidden && w->there < w->cells->cell_count && home && partition_serves(home) &&
                home->cell->number == 0 && has_plain_slots(&w->face.config);
    for (uint32_t i = 1; thin && w->thin && i < w->cells->cell_count; i++) {
        if (lacks_partition(w, i))
            mend_in(w, &w->cells->cells[i]);
    }
    w->thin = thin && !w->thin;
}

void wholes_mend(struct cells_engine *c)
{
    size_t at = 0;
    if (c->now.mono_ms - c->mended_ms < MEND_MS)
        return;
    c->mended_ms = c->now.mono_ms;
    for (struct whole *w; c->thin > 0 && (w = whole_of(map_each(&c->queues, &at)));)
        mend(w);
    wholes_place(c);
    wholes_split(c);
}

/* Changing one. First every cell is asked whether it would take the change: a level may have
 * messages in one cell alone. Then it is changed at home, then in the others. Then its limits are
 * divided anew: the change is not answered before every cell keeps to them. */

enum { CHANGE_ASKING, CHANGE_HOME, CHANGE_OTHERS };

static void change_next(struct trip *t);

static void changed(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    t->op->outdated = t->op->outdated || p->op.outdated;
    if (!p->op.status || t->status)
        return;
    t->status = p->op.status;
    t->op->set.level_name = NULL;
    if (p->op.status == STATUS_LEVEL_IN_USE) {
        const struct queue_config *now = &t->whole->face.config;
        int rank = p->op.set.level_name ? levels_rank_of_name(now, p->op.set.level_name) : -1;
        t->op->set.level_name = rank < 0 ? "" : now->levels[rank].name;
        if (t->op->set.schedule_name)
            strcpy(t->op->set.schedule_name, ((struct set_copy *)p->items)->schedule_name);
    }
}

static void change_in(struct trip *t, struct partition *p, bool dry)
{
    struct cell_part *part = part_new(t, p->cell, p);
    struct set_copy *m = part->items = mem_zalloc(sizeof(*m));
    m->config = *t->op->set.config;
    part->op.set.config = &m->config;
    part->op.set.schedule_name = m->schedule_name;
    part->op.set.dry = dry;
    part->done = changed;
    part_submit(part);
}

static void change_some(struct trip *t, bool dry, bool home)
{
    struct partition *first = whole_home(t->whole);
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (partition_serves(p) && (dry || (p == first) == home))
            change_in(t, p, dry);
    }
    t->at++;
    trip_await(t, change_next);
}

static void change_divided(struct trip *t)
{
    trip_finish(t, t->status);
}

static void change_next(struct trip *t)
{
    bool others = t->at > CHANGE_HOME + 1;
    if (t->op->outdated && !others) {
        trip_outdated(t);
        return;
    }
    if ((t->status && !others) || t->op->set.dry || others) {
        whole_follow(t->whole);
        t->op->outdated = false;
        if (others && !t->status && !t->op->set.dry && shares_apply(t->whole))
            shares_await(t, true, change_divided);
        else
            trip_finish(t, t->status);
        return;
    }
    change_some(t, false, t->at == CHANGE_HOME);
}

static bool some_away(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (w->partitions[i].q && w->partitions[i].cell->away)
            return true;
    }
    return false;
}

static bool is_known(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct partition *p = &w->partitions[i];
        if (p->q && !partition_is_known(p))
            return false;
    }
    return true;
}

void trip_set(struct trip *t)
{
    if (!t->whole) {
        create(t);
        return;
    }
    struct partition *home = whole_home(t->whole);
    if (!home)
        trip_finish(t, STATUS_QUEUE_NOT_FOUND);
    else if (some_away(t->whole)) /* it would keep the old configuration */
        trip_finish(t, STATUS_ENGINE_UNAVAILABLE);
    else if (!is_known(t->whole))
        trip_outdated(t);
    else if (whole_only(t->whole))
        trip_pass(t, home);
    else
        change_some(t, true, false);
}

/* Deleting one: at home last. What is refused there stays a queue, and what was deleted before was
 * empty, or was to be deleted with everything in it. */

static void deleted(struct cell_part *p)
{
    struct trip *t = p->trip;
    bool gone = !p->op.status || p->op.status == STATUS_QUEUE_NOT_FOUND;
    if (gone && p->partition->q)
        whole_lose(p->partition);
    if (t && !gone)
        t->status = p->op.status;
}

static void delete_home(struct trip *t);

static void deleted_all(struct trip *t)
{
    struct whole *w = t->whole;
    if (!t->status && whole_home(w)) { /* a partition that was being made meanwhile */
        delete_home(t);
        return;
    }
    for (uint32_t i = 0; !t->status && i < w->cells->cell_count; i++) {
        if (w->partitions[i].q) /* it is gone, and a sweep was to say so */
            whole_lose(&w->partitions[i]);
    }
    if (t->status) {
        w->deleting = false;
        whole_tell(w);
    } else {
        whole_retire(w);
    }
    trip_finish(t, t->status);
}

static void delete_in(struct trip *t, struct partition *p)
{
    struct cell_part *part = part_new(t, p->cell, p);
    part->op.remove.if_empty = t->op->remove.if_empty;
    part->done = deleted;
    part_submit(part);
}

static void delete_home(struct trip *t)
{
    struct partition *home = whole_home(t->whole);
    if (home && !t->status)
        delete_in(t, home);
    trip_await(t, deleted_all);
}

void trip_delete(struct trip *t)
{
    struct partition *home = whole_home(t->whole);
    if (some_away(t->whole)) { /* the partition would come back with its cell */
        trip_finish(t, STATUS_ENGINE_UNAVAILABLE);
        return;
    }
    t->whole->deleting = true;
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (p->q && !p->q->gone && p != home)
            delete_in(t, p);
    }
    trip_await(t, delete_home);
}

/* Schedules are at home, with the messages that they fire. */

void trip_home(struct trip *t)
{
    if (t->op->verb == ENGINE_FIRE && t->op->fire.item)
        t->op->fire.item->draft.seq_min = whole_take_seqs(t->whole, 1);
    trip_pass(t, whole_home(t->whole));
}
