/* Walks what this engine keeps of its cells, and asserts that it is all of one piece. For tests:
 * between the calls of an engine, never within one. */
#include "engine/cells/impl.h"

static void check_list(const struct partition_list *list, bool by_look)
{
    const struct partition *prev = NULL;
    for (const struct partition *p = list->first; p; p = by_look ? p->look.next : p->known.next) {
        assert(by_look ? p->in_look : p->in_known);
        assert((by_look ? p->look.prev : p->known.prev) == prev);
        prev = p;
    }
    assert(list->last == prev);
}

/* What claims under way want of a partition, counted anew. */
static uint32_t sought_of(const struct partition *p)
{
    uint32_t sought = 0;
    for (const struct cell_part *part = p->cell->parts; part; part = part->cell_next)
        sought += part->partition == p ? part->sought : 0;
    return sought;
}

static void check_partition(const struct whole *w, uint32_t i)
{
    const struct partition *p = &w->partitions[i];
    tag_check(p->tag, PARTITION_TAG);
    assert(p->whole == w);
    assert(p->cell == &w->cells->cells[i]);
    assert(!p->q || p->q->user == p);
    assert(p->seat < (int)w->placement.seat_count);
    assert(p->sought == sought_of(p));
    assert(p->q || (!p->in_look && !p->in_known));
}

/* Parts under way, also of trips that are over. */
static uint32_t parts_of(const struct whole *w)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        for (const struct cell_part *p = w->cells->cells[i].parts; p; p = p->cell_next)
            parts += p->partition && p->partition->whole == w;
    }
    return parts;
}

static void check_whole(const struct whole *w)
{
    uint32_t there = 0, remote = 0, strangers = 0;
    tag_check(w->tag, WHOLE_TAG);
    assert(!w->retired);
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct partition *p = &w->partitions[i];
        check_partition(w, i);
        there += p->q != NULL;
        remote += p->q && !cell_is_live(p->cell);
        strangers += p->strange;
    }
    assert(w->there == there);
    assert(w->remote == remote);
    assert(w->strangers == strangers);
    assert(w->parts == parts_of(w));
    assert(w->parts >= (w->claiming ? 1U : 0) || w->busy > 0);
    assert(*w->claims_last == NULL);
    check_list(&w->by_look, true);
    check_list(&w->by_known, false);
    whole_sums_check(w);
}

static void check_part(const struct cells_engine *c, const struct cell *cell,
                       const struct cell_part *p)
{
    tag_check(p->tag, PART_TAG);
    assert(p->cells == c);
    assert(p->cell == cell);
    assert(!p->cell_next || p->cell_next->cell_prev == p);
    assert(!p->trip || p->trip->under_way > 0);
    assert(!(cell->away && p->droppable && p->trip)); /* nobody waits for it */
}

static void check_cell(const struct cells_engine *c, const struct cell *cell)
{
    uint32_t under_way = 0;
    for (const struct cell_part *p = cell->parts; p; p = p->cell_next, under_way++)
        check_part(c, cell, p);
    assert(cell->under_way == under_way);
    assert(cell->number == (uint32_t)(cell - c->cells));
    assert(!(cell->away && cell->hesitates));
    assert(!tourney_is_in(&c->load, cell->number) == cell->away);
    assert(cell->away || c->load.keys[cell->number].major == cell->under_way);
}

void cells_check(struct engine *e)
{
    struct cells_engine *c = cells_of(e);
    uint32_t thin = 0, unsettled = 0, hesitating = 0;
    size_t at = 0;
    map_check(&c->queues);
    for (const struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        assert(w->cells == c);
        check_whole(w);
        thin += w->there < c->cell_count;
        unsettled += w->unsettled;
    }
    for (uint32_t i = 0; i < c->cell_count; i++) {
        check_cell(c, &c->cells[i]);
        hesitating += c->cells[i].hesitates;
        engine_check(c->cells[i].engine);
    }
    assert(c->thin == thin);
    assert(c->unsettled == unsettled);
    assert(c->hesitating == hesitating);
    assert(*c->done_last == NULL);
}
