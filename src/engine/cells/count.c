/* How many stand before a place, and where the first ones stand: asked of all partitions and put
 * together. A cell that is away counts with what is known of it. */
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>

static bool is_outdated(const struct trip *t, bool made_by_config)
{
    for (uint32_t i = 0; made_by_config && i < t->cells->cell_count; i++) {
        const struct partition *p = &t->whole->partitions[i];
        if (partition_serves(p) && !partition_is_known(p))
            return true;
    }
    return false;
}

static void note(struct cell_part *p)
{
    struct trip *t = p->trip;
    t->op->outdated = t->op->outdated || p->op.outdated;
    if (p->op.status && !p->op.outdated)
        t->status = p->op.status;
    t->at += !p->op.status;
}

static void answered(struct trip *t)
{
    bool some = t->at > 0;
    if (t->op->outdated)
        trip_outdated(t);
    else
        trip_finish(t, some ? STATUS_OK : t->status ? t->status : STATUS_ENGINE_UNAVAILABLE);
}

/* Places are on this process's clock. */
static struct count_item *items_to_cell(const struct cell *cell, const struct count_item *items,
                                        uint32_t count)
{
    struct count_item *mine = mem_dup(items, count * sizeof(items[0]));
    for (uint32_t i = 0; i < count; i++)
        mine[i].ready_ms = time_to_cell(cell, mine[i].ready_ms);
    return mine;
}

static void counted(struct cell_part *p)
{
    struct trip *t = p->trip;
    if (!t)
        return;
    note(p);
    const struct count_item *from = p->items;
    for (uint32_t i = 0; !p->op.status && i < t->op->count.count; i++) {
        t->op->count.items[i].before += from[i].before;
        t->op->count.items[i].exact = t->op->count.items[i].exact && from[i].exact;
    }
}

void trip_count(struct trip *t)
{
    uint32_t count = t->op->count.count;
    if (is_outdated(t, count > 0)) {
        trip_outdated(t);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        t->op->count.items[i].before = 0;
        t->op->count.items[i].exact = true;
    }
    t->submitting = true;
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (!partition_serves(p))
            continue;
        struct cell_part *part = part_new(t, p->cell, p);
        if (count > 0)
            part->items = items_to_cell(p->cell, t->op->count.items, count);
        part->op.count.items = part->items;
        part->op.count.count = count;
        part->op.count.waits = t->op->count.waits;
        part->droppable = true;
        part->done = counted;
        partition_looked(p);
        part_submit(part);
    }
    t->submitting = false;
    trip_await(t, answered);
}

/* Heads */

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->ready_ms != y->ready_ms)
        return x->ready_ms < y->ready_ms ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* A lane's places of one partition join those of the others. If a partition did not show all that
 * it has, what stands behind its last place is not known to be next: there the list is cut. */
static void join(struct heads_item *to, const struct heads_item *from, struct place *cut)
{
    static const struct place start = {INT64_MIN, 0};
    uint32_t count = to->count + from->count;
    if (from->count > 0) {
        to->places = mem_realloc(to->places, count * sizeof(struct place));
        memcpy(to->places + to->count, from->places, from->count * sizeof(struct place));
        qsort(to->places, count, sizeof(struct place), compare_places);
    }
    if (!from->whole) {
        const struct place *last = from->count > 0 ? &from->places[from->count - 1] : &start;
        *cut = compare_places(last, cut) < 0 ? *last : *cut;
    }
    to->count = count;
    to->whole = to->whole && from->whole;
}

static void cut_off(struct heads_item *item, const struct place *cut)
{
    uint32_t known = 0;
    while (known < item->count && compare_places(&item->places[known], cut) <= 0)
        known++;
    item->whole = item->whole && item->count <= item->max;
    item->count = known < item->max ? known : item->max;
}

static void shown(struct cell_part *p)
{
    struct trip *t = p->trip;
    struct heads_item *from = p->items;
    if (t)
        note(p);
    for (uint32_t i = 0; !p->op.status && i < p->op.heads.count; i++) {
        for (uint32_t k = 0; k < from[i].count; k++)
            from[i].places[k].ready_ms = time_from_cell(p->cell, from[i].places[k].ready_ms);
        if (t)
            join(&t->op->heads.items[i], &from[i], &t->cuts[i]);
        free(from[i].places);
    }
}

static void shown_all(struct trip *t)
{
    for (uint32_t i = 0; i < t->op->heads.count; i++)
        cut_off(&t->op->heads.items[i], &t->cuts[i]);
    for (uint32_t i = 0; (t->op->outdated || t->at == 0) && i < t->op->heads.count; i++) {
        free(t->op->heads.items[i].places);
        t->op->heads.items[i].places = NULL;
    }
    answered(t);
}

void trip_heads(struct trip *t)
{
    if (is_outdated(t, true)) {
        trip_outdated(t);
        return;
    }
    t->cuts = mem_alloc(t->op->heads.count * sizeof(t->cuts[0]));
    for (uint32_t i = 0; i < t->op->heads.count; i++) {
        struct heads_item *item = &t->op->heads.items[i];
        t->cuts[i] = (struct place){INT64_MAX, UINT64_MAX};
        *item = (struct heads_item){.slot = item->slot, .max = item->max, .whole = true};
    }
    t->submitting = true;
    for (uint32_t i = 0; i < t->cells->cell_count; i++) {
        struct partition *p = &t->whole->partitions[i];
        if (!partition_serves(p))
            continue;
        struct cell_part *part = part_new(t, p->cell, p);
        part->items = mem_dup(t->op->heads.items, t->op->heads.count * sizeof(struct heads_item));
        part->op.heads.items = part->items;
        part->op.heads.count = t->op->heads.count;
        part->droppable = true;
        part->done = shown;
        part_submit(part);
    }
    t->submitting = false;
    trip_await(t, shown_all);
}
