/* Partitions that are over for a while give a share away: split.h decides, by the figures of this
 * server. There is no coordinator. Each server decides for itself, and proposes the next placement
 * as for any other change: of two that decide at the same moment one is told that its placement is
 * stale, and finds in the other one's when the queue was split, so that it rests.
 *
 * What a server moves at a time is half of the buckets of one partition, of the queue that had the
 * most to put there: a cell that is too slow is so for all its queues, and after one split it is
 * seen first what that has changed. */
#include "base/log.h"
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[SPLIT_STATE_COUNT] = {"calm",    "over",     "rests",
                                                           "no-room", "no-share", "split"};

/* Not engine_option_text(): the table of all engines is no part of `triage simulate`. */
static struct engine_value given(const struct engine_options *options, const char *name)
{
    for (uint32_t i = 0; i < options->value_count; i++) {
        if (strcmp(options->values[i].name, name) == 0)
            return options->values[i];
    }
    return (struct engine_value){.text = ""};
}

struct split_terms split_terms_of(const struct engine_options *options)
{
    uint64_t commit_ms = given(options, "split_commit_ms").number,
             depth = given(options, "split_depth").number,
             after = given(options, "split_after_seconds").number,
             rest = given(options, "split_rest_seconds").number;
    const char *on = given(options, "split").text;
    return (struct split_terms){
        .on = on && strcmp(on, "on") == 0,
        .commit_ms = commit_ms ? (uint32_t)commit_ms : 50,
        .depth = depth ? depth : 1000000,
        .after_ms = (after ? (int64_t)after : 60) * 1000,
        .rest_ms = (rest ? (int64_t)rest : 600) * 1000,
    };
}

/* Figures */

static void measure_cell(struct cell *cell)
{
    const struct engine_counters *n = &cell->engine->counters;
    uint64_t groups = n->groups - cell->split_groups, us = n->commit_us - cell->split_commit_us;
    cell->split_groups = n->groups;
    cell->split_commit_us = n->commit_us;
    cell->commit_ms = groups > 0 ? (uint32_t)(us / groups / 1000) : 0;
}

static struct split_figures figures_of(const struct partition *p)
{
    const struct whole *w = p->whole;
    bool open =
        partition_serves(p) && p->seat >= 0 && w->placement.seats[p->seat].state == SEAT_OPEN;
    return (struct split_figures){
        .open = open,
        .commit_ms = p->cell->commit_ms,
        .depth = p->q ? engine_queue_moment(p->q)->ready : 0,
        .over_ms = p->over_ms,
    };
}

/* Most queues have nothing to think about. */
static bool is_calm(struct whole *w)
{
    const struct cells_engine *c = w->cells;
    const struct split_terms *terms = &c->shared->split;
    bool calm = true;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        struct partition *p = &w->partitions[i];
        bool deep = p->q && engine_queue_moment(p->q)->ready > terms->depth;
        if (!deep && p->cell->commit_ms <= terms->commit_ms)
            p->over_ms = 0;
        else
            calm = false;
    }
    return calm;
}

/* What was put there since the last look. */
static uint64_t news_of(struct partition *p)
{
    uint64_t total = p->q ? engine_queue_moment(p->q)->totals.enqueued : 0;
    uint64_t news = total > p->split_count ? total - p->split_count : 0;
    p->split_count = total;
    return news;
}

/* What is said of it */

static bool is_worse(enum split_state state, const struct split_seen *than)
{
    return state >= than->state;
}

static void cause_put(char *out, size_t size, const struct split_terms *terms,
                      const struct split_decision *d, const struct split_figures *f)
{
    if (d->cause == SPLIT_BY_COMMIT)
        snprintf(out, size, "commits take %u ms (split_commit_ms %u)", f->commit_ms,
                 terms->commit_ms);
    else
        snprintf(out, size, "%llu messages are ready (split_depth %llu)",
                 (unsigned long long)f->depth, (unsigned long long)terms->depth);
}

static void wait_put(char *out, size_t size, const struct split_decision *d)
{
    static const char *const why[SPLIT_STATE_COUNT] = {
        [SPLIT_NO_ROOM] = "no other cell has room",
        [SPLIT_NO_SHARE] = "it has at most one bucket of dedup keys",
        [SPLIT_NOW] = "it is split",
    };
    if (why[d->state])
        snprintf(out, size, "%s", why[d->state]);
    else
        snprintf(out, size, "it waits for %lld s", (long long)((d->wait_ms + 999) / 1000));
}

/* Of all queues the one that is the furthest is told. */
static void note(struct whole *w, const struct split_decision *d, const struct split_figures *f)
{
    struct cells_shared *shared = w->cells->shared;
    struct split_seen *seen = &shared->sites[d->from].split;
    char cause[80], wait[60];
    cause_put(cause, sizeof(cause), &shared->split, d, f);
    wait_put(wait, sizeof(wait), d);
    pthread_mutex_lock(&shared->split_lock);
    if (is_worse(d->state, seen)) {
        seen->state = d->state;
        seen->shard = w->cells->shard;
        snprintf(seen->now, sizeof(seen->now), "%.60s: %s; %s", w->face.name, cause, wait);
    }
    pthread_mutex_unlock(&shared->split_lock);
}

static void notes_begin(struct cells_engine *c)
{
    struct cells_shared *shared = c->shared;
    pthread_mutex_lock(&shared->split_lock);
    for (uint32_t i = 0; i < c->cell_count; i++) {
        struct split_seen *seen = &shared->sites[i].split;
        if (seen->shard != c->shard)
            continue;
        seen->state = SPLIT_CALM;
        seen->now[0] = '\0';
    }
    pthread_mutex_unlock(&shared->split_lock);
}

const char *split_show(struct cells_shared *shared, uint32_t cell, struct buf *detail)
{
    struct split_seen *seen = &shared->sites[cell].split;
    if (!shared->split.on)
        return "off";
    pthread_mutex_lock(&shared->split_lock);
    enum split_state state = seen->state;
    buf_puts(detail, seen->now);
    if (seen->now[0] && seen->last[0])
        buf_lit(detail, ". ");
    if (seen->last[0])
        buf_printf(detail, "Last: %s", seen->last);
    pthread_mutex_unlock(&shared->split_lock);
    return state_names[state];
}

/* Splits */

struct split_plan {
    struct whole *w; /* NULL: there is none */
    uint64_t epoch;  /* of the placement that is proposed */
    struct split_decision decision;
    struct split_figures from, to;
    uint64_t news;
};

/* The decision and all that it was made of. */
static void say(const struct split_plan *k)
{
    struct cells_engine *c = k->w->cells;
    const struct split_terms *terms = &c->shared->split;
    const char *from = cell_name(c, k->decision.from), *to = cell_name(c, k->decision.to);
    struct split_seen *seen = &c->shared->sites[k->decision.from].split;
    char cause[80];
    cause_put(cause, sizeof(cause), terms, &k->decision, &k->from);
    log_info(
        "cells: a queue is split",
        "queue=%s from=%s to=%s buckets=%u of=%u cause=%s commit_ms=%u depth=%llu to_commit_ms=%u "
        "to_depth=%llu split_commit_ms=%u split_depth=%llu over_ms=%lld",
        k->w->face.name, from, to, k->decision.buckets, k->from.buckets,
        k->decision.cause == SPLIT_BY_COMMIT ? "commit" : "depth", k->from.commit_ms,
        (unsigned long long)k->from.depth, k->to.commit_ms, (unsigned long long)k->to.depth,
        terms->commit_ms, (unsigned long long)terms->depth,
        (long long)(c->now.mono_ms - k->from.over_ms));
    pthread_mutex_lock(&c->shared->split_lock);
    snprintf(seen->last, sizeof(seen->last), "%u buckets of %.50s went to %s: %s",
             k->decision.buckets, k->w->face.name, to, cause);
    pthread_mutex_unlock(&c->shared->split_lock);
}

static void split(const struct split_plan *k)
{
    struct whole *w = k->w;
    struct placement next;
    const char *why;
    placement_copy(&w->placement, &next);
    next.epoch++;
    next.split_ms = w->cells->now.wall_ms;
    placement_tidy(&next, w->cells->now.wall_ms);
    place_settle(w, &next);
    bool ok =
        placement_share(&next, (uint32_t)w->partitions[k->decision.from].seat,
                        (uint32_t)w->partitions[k->decision.to].seat, k->decision.buckets, &why) &&
        placement_fits(&next);
    if (ok && place_propose(NULL, w, &next)) {
        free(w->splitting);
        w->splitting = mem_dup(k, sizeof(*k));
        w->splitting->epoch = next.epoch;
    }
    placement_fini(&next);
}

/* Another server may have been faster: then nothing was split. */
void split_answered(struct whole *w, const struct engine_op *op)
{
    struct split_plan *k = w->splitting;
    if (!k || k->epoch != op->place.epoch)
        return;
    if (!op->status && !op->place.stale)
        say(k);
    free(k);
    w->splitting = NULL;
}

/* What the cell does now is looked at anew, for all its queues. */
static void watch_anew(struct cells_engine *c, uint32_t cell)
{
    size_t at = 0;
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));)
        w->partitions[cell].over_ms = 0;
}

static void consider(struct whole *w, struct split_figures *figures, struct split_plan *best)
{
    struct cells_engine *c = w->cells;
    for (uint32_t i = 0; i < c->cell_count; i++)
        figures[i] = figures_of(&w->partitions[i]);
    for (uint32_t b = 0; b < BUCKETS; b++) {
        const struct partition *p = place_partition(w, w->placement.buckets[b]);
        if (p)
            figures[p->cell->number].buckets++;
    }
    struct split_decision d =
        split_decide(&c->shared->split, figures, c->cell_count, w->placement.split_ms, c->now);
    for (uint32_t i = 0; i < c->cell_count; i++)
        w->partitions[i].over_ms = figures[i].over_ms;
    uint64_t news = 0;
    for (uint32_t i = 0; i < c->cell_count; i++) {
        uint64_t one = news_of(&w->partitions[i]);
        news = i == d.from ? one : news;
    }
    if (d.state == SPLIT_CALM)
        return;
    note(w, &d, &figures[d.from]);
    if (d.state != SPLIT_NOW || w->placing || w->placement.epoch >= INT64_MAX)
        return;
    if (!best->w || news > best->news)
        *best = (struct split_plan){
            .w = w, .decision = d, .from = figures[d.from], .to = figures[d.to], .news = news};
}

void wholes_split(struct cells_engine *c)
{
    struct split_plan best = {0};
    size_t at = 0;
    if (!c->shared->split.on || c->cell_count == 1)
        return;
    struct split_figures *figures = mem_alloc(c->cell_count * sizeof(figures[0]));
    notes_begin(c);
    for (uint32_t i = 0; i < c->cell_count; i++)
        measure_cell(&c->cells[i]);
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));) {
        if (!w->deleting && w->placement.epoch > 0 && !is_calm(w))
            consider(w, figures, &best);
    }
    free(figures);
    if (!best.w)
        return;
    split(&best);
    watch_anew(c, best.decision.from);
}
