/* The engine over engines that are open: what its shards are made of, what they count,
 * and its end. */
#include "base/mem.h"
#include "engine/cells/cells.h"
#include "engine/cells/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cells_sites_free(struct cells_shared *shared, uint32_t shard_count)
{
    for (uint32_t i = 0; i < shared->cell_count; i++) {
        struct site *s = &shared->sites[i];
        if (s->shards)
            engine_close(s->shards, shard_count);
        free(s->shards);
        free(s->values);
        free(s->store);
    }
    free(shared->sites);
    if (shared->window)
        pthread_mutex_destroy(&shared->split_lock);
    window_free(shared->window);
    free(shared);
}

struct cells_engine *cells_shard_new(struct cells_shared *shared, uint32_t index,
                                     const struct engine_options *options)
{
    struct cells_engine *c = mem_zalloc(sizeof(*c) + shared->cell_count * sizeof(c->cells[0]));
    c->base.ops = &cells_ops;
    c->base.kind = &shared->kind;
    c->shared = shared;
    c->shard = index;
    c->wake = options->wake;
    c->wake_ctx = options->wake_ctx;
    c->invented = options->now.wall_ms != 0;
    c->now = c->invented ? options->now : clock_now();
    c->done_last = &c->done_first;
    c->cell_count = shared->cell_count;
    c->drain_due_ms = INT64_MAX;
    tourney_init(&c->load, c->cell_count);
    for (uint32_t i = 0; i < c->cell_count; i++) {
        c->cells[i] = (struct cell){.engine = shared->sites[i].shards[index], .number = i};
        c->cells[i].heard_ms = c->now.mono_ms;
        cell_weigh(c, &c->cells[i]);
    }
    for (uint32_t i = 0; i < c->cell_count; i++) {
        size_t at = 0;
        struct engine *e = c->cells[i].engine;
        for (struct engine_queue *q; (q = engine_queue_each(e, &at));)
            whole_adopt(c, &c->cells[i], q);
    }
    return c;
}

/* Counters */

static const char *const window_labels[WINDOW_PLACES] = {"0.5", "0.99", "1"};
static const char *const no_names[CELLS_METERED];

#define BY_CELL(symbol, metric, kind, scale, meaning)                                              \
    [COUNT_BY_CELL + BY_CELL_##symbol] = {                                                         \
        .name = metric,                                                                            \
        .bare = true,                                                                              \
        .type = kind,                                                                              \
        .unit = scale,                                                                             \
        .help = meaning,                                                                           \
        .label = "cell",                                                                           \
        .labels = no_names,                                                                        \
        .label_count = CELLS_METERED,                                                              \
    }

const struct engine_counter cells_counters[CELLS_COUNTERS] = {
    [COUNT_CELLS] = {.name = "cells", .type = ENGINE_GAUGE, .help = "Cells in the configuration."},
    [COUNT_AWAY] = {.name = "cells_away",
                    .type = ENGINE_GAUGE,
                    .help = "Cells that do not answer."},
    [COUNT_ROUNDS] = {.name = "cells_claim_rounds_total",
                      .help = "Rounds of claims over several cells."},
    [COUNT_LOOKS] = {.name = "cells_looks_total",
                     .help = "Looks at the heads of a partition beside a claim from another."},
    [COUNT_STRAY] = {.name = "cells_stray_total",
                     .help = "Messages that a cell leased when nobody waited for it any more, and "
                             "that went back."},
    [COUNT_PASSED] = {.name = "cells_passed_over_total",
                      .help = "Looks that found a message that something less urgent in another "
                              "cell was taken before."},
    [COUNT_DIVISIONS] = {.name = "cells_divisions_total",
                         .help = "Times that the limits of a queue were to be divided anew among "
                                 "its cells."},
    [COUNT_MOVED] = {.name = "cells_moved_total",
                     .help = "Messages that this server has moved out of cells that are drained."},
    [COUNT_WINDOW] = {.name = "cells_order_window_seconds",
                      .bare = true,
                      .type = ENGINE_GAUGE,
                      .unit = ENGINE_MILLI,
                      .help = "For how long such messages were passed over in the last five "
                              "minutes: at most so long for this share of them.",
                      .label = "quantile",
                      .labels = window_labels,
                      .label_count = WINDOW_PLACES},
    BY_CELL(UP, "cell_up", ENGINE_GAUGE, ENGINE_PLAIN, "Whether the cell answers."),
    BY_CELL(UNDER_WAY, "cell_under_way", ENGINE_GAUGE, ENGINE_PLAIN,
            "Operations that the cell has not answered yet."),
    BY_CELL(AHEAD, "cell_clock_offset_seconds", ENGINE_GAUGE, ENGINE_MICRO_SIGNED,
            "How far the cell's clock is ahead of this server's."),
    BY_CELL(COMMITS, "cell_commits_total", ENGINE_COUNTER, ENGINE_PLAIN,
            "Groups made durable in the cell."),
    BY_CELL(COMMITTED, "cell_committed_ops_total", ENGINE_COUNTER, ENGINE_PLAIN,
            "Operations in those groups."),
    BY_CELL(COMMIT_TIME, "cell_commit_seconds_total", ENGINE_COUNTER, ENGINE_MICRO,
            "Time spent making them durable."),
    BY_CELL(LOOKS, "cell_looks_total", ENGINE_COUNTER, ENGINE_PLAIN,
            "Looks at the heads of the cell's partitions beside a claim from another."),
};

/* All of it survives a restart when every cell does. Others share it when they share one cell. */
void cells_kind_make(struct cells_shared *shared, const struct engine_kind *kind)
{
    uint32_t durable = ENGINE_DURABLE, of_others = 0;
    for (uint32_t i = 0; i < shared->cell_count; i++) {
        uint32_t one = shared->sites[i].shards[0]->kind->capabilities;
        durable &= one;
        of_others |= one & ENGINE_SHARED;
    }
    shared->kind = *kind;
    shared->kind.capabilities = durable | of_others | ENGINE_PARTITIONED;
    shared->kind.counters = shared->counters;
    memcpy(shared->counters, cells_counters, sizeof(shared->counters));
    for (uint32_t i = 0; i < shared->cell_count && i < CELLS_METERED; i++)
        shared->names[i] = shared->sites[i].name;
    for (uint32_t i = 0; i < BY_CELL_COUNT; i++)
        shared->counters[COUNT_BY_CELL + i].labels = shared->names;
    shared->window = window_new();
    pthread_mutex_init(&shared->split_lock, NULL);
}

/* Over engines that somebody else has opened */

static const struct engine_kind over_kind = {
    .name = "cells",
    .counters = cells_counters,
    .counter_count = CELLS_COUNTERS,
    .no_backup = "back up the store of each cell",
};

struct engine *cells_over(struct engine *const engines[], uint32_t count,
                          const struct engine_options *options)
{
    struct cells_shared *shared = mem_zalloc(sizeof(*shared));
    assert(count > 0);
    assert(count <= CELLS_MAX);
    shared->cell_count = count;
    shared->sites = mem_zalloc(count * sizeof(shared->sites[0]));
    for (uint32_t i = 0; i < count; i++) {
        struct site *s = &shared->sites[i];
        snprintf(s->name, sizeof(s->name), "%u", i);
        s->shards = mem_dup(&engines[i], sizeof(engines[i]));
    }
    cells_kind_make(shared, &over_kind);
    shared->split = split_terms_of(options);
    return &cells_shard_new(shared, 0, options)->base;
}

struct cells_counts cells_counts(const struct engine *e)
{
    assert(e->ops == &cells_ops);
    return (struct cells_counts){.looks = e->counters.own[COUNT_LOOKS],
                                 .strays = e->counters.own[COUNT_STRAY]};
}
