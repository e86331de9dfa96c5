/* What an operator sees of cells: the state and the numbers of each, and of each partition. */
#include "engine/cells/impl.h"

#include <string.h>

#define PUBLISH_MS 1000 /* how often the window is read for the metrics */

/* Counters. What a cell counts in each shard is added up above. What belongs to the process is
 * published by the first shard. */

static uint64_t *place_of(struct cells_engine *c, uint32_t counter, uint32_t cell)
{
    return &c->base.counters.own[PLACE_BY_CELL + counter * CELLS_METERED + cell];
}

static void count_cell(struct cells_engine *c, const struct cell *cell)
{
    const struct engine *e = cell->engine;
    uint32_t i = cell->number;
    *place_of(c, BY_CELL_UNDER_WAY, i) = cell->under_way;
    *place_of(c, BY_CELL_COMMITS, i) = e->counters.groups;
    *place_of(c, BY_CELL_COMMITTED, i) = e->counters.group_ops;
    *place_of(c, BY_CELL_COMMIT_TIME, i) = e->counters.commit_us;
    *place_of(c, BY_CELL_LOOKS, i) = cell->looks;
    if (c->shard != 0)
        return;
    *place_of(c, BY_CELL_UP, i) = !cell->away;
    *place_of(c, BY_CELL_AHEAD, i) = (uint64_t)e->ahead_us;
}

static void publish_cell(struct cells_engine *c, const struct cell *cell)
{
    const struct engine *e = cell->engine;
    uint32_t i = cell->number;
    atomic_store_explicit(&c->shared->sites[i].away, cell->away, memory_order_relaxed);
    atomic_store_explicit(&c->shared->sites[i].ahead_us, e->ahead_us, memory_order_relaxed);
}

static void publish_window(struct cells_engine *c)
{
    uint64_t *own = c->base.counters.own;
    struct window_facts facts;
    if (c->now.mono_ms - c->published_ms < PUBLISH_MS)
        return;
    c->published_ms = c->now.mono_ms;
    window_read(c->shared->window, c->now.mono_ms, &facts);
    own[COUNT_PASSED] = facts.total;
    own[COUNT_WINDOW] = facts.half_ms;
    own[COUNT_WINDOW + 1] = facts.most_ms;
    own[COUNT_WINDOW + 2] = facts.longest_ms;
}

void report_count(struct cells_engine *c)
{
    for (uint32_t i = 0; i < c->cell_count && i < CELLS_METERED; i++)
        count_cell(c, &c->cells[i]);
    if (c->shard != 0)
        return;
    for (uint32_t i = 0; i < c->cell_count; i++)
        publish_cell(c, &c->cells[i]);
    publish_window(c);
}

/* Cells */

static const char *state_name(bool away)
{
    return away ? "away" : "ok";
}

/* A cell that answers what it is asked may still say that it is not well. */
void report_cells(struct engine *e, engine_cell_visit *visit, void *ctx)
{
    const struct cells_engine *c = cells_of(e);
    for (uint32_t i = 0; i < c->cell_count; i++) {
        struct site *site = &c->shared->sites[i];
        struct engine_cell cell = {.name = site->name,
                                   .number = i,
                                   .engine = site->options.kind,
                                   .ahead_us = atomic_load(&site->ahead_us)};
        enum status status = engine_health(c->cells[i].engine, &cell.detail);
        bool away = atomic_load(&site->away) || status == STATUS_ENGINE_UNAVAILABLE;
        cell.state = state_name(away);
        cell.placement = seat_state_names[atomic_load(&site->seat)];
        cell.split = split_show(c->shared, i, &cell.split_detail);
        visit(ctx, &cell);
        buf_fini(&cell.detail);
        buf_fini(&cell.split_detail);
    }
}

/* Partitions */

static void view_from_cell(const struct cell *cell, struct queue_view *v)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        v->lanes[slot].head_ms = time_from_cell(cell, v->lanes[slot].head_ms);
}

static void show_seat(const struct whole *w, const struct partition *p,
                      struct engine_partition *shown)
{
    if (p->seat < 0)
        return;
    const struct seat *seat = &w->placement.seats[p->seat];
    shown->placement = seat_state_names[seat->state];
    shown->buckets = placement_bucket_count(&w->placement, (uint32_t)p->seat);
    shown->levels = seat->levels;
}

void report_partitions(struct engine *e, struct engine_queue *q, engine_partition_visit *visit,
                       void *ctx)
{
    struct cells_engine *c = cells_of(e);
    struct whole *w = whole_of(q);
    whole_merge(w); /* so that the whole is what its partitions are */
    for (uint32_t i = 0; i < c->cell_count; i++) {
        const struct partition *p = &w->partitions[i];
        if (!p->q)
            continue;
        struct queue_view view = *engine_queue_moment(p->q);
        view_from_cell(p->cell, &view);
        struct engine_partition shown = {.number = i,
                                         .cell = c->shared->sites[i].name,
                                         .state = state_name(p->cell->away),
                                         .view = &view};
        show_seat(w, p, &shown);
        visit(ctx, &shown);
    }
}
