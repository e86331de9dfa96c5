/* Queues: one whole for a name, with a partition in each cell that has a queue of that name. */
#include "base/mem.h"
#include "engine/cells/impl.h"
#include "engine/cells/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts the partitions of a queue, and the queues that lack one. */
static void count_partition(struct whole *w, int by)
{
    bool was_thin = w->there < w->cells->cell_count;
    w->there += (uint32_t)by;
    bool is_thin = w->there < w->cells->cell_count;
    if (!w->retired)
        w->cells->thin += (uint32_t)is_thin - (uint32_t)was_thin;
}

struct whole *whole_new(struct cells_engine *c, const char *name)
{
    struct whole *w = mem_zalloc(sizeof(*w) + c->cell_count * sizeof(w->partitions[0]));
    w->tag = WHOLE_TAG;
    w->cells = c;
    w->face.moment = &w->moment;
    w->face.next_seq = 1;
    w->claims_last = &w->claims_first;
    snprintf(w->face.name, sizeof(w->face.name), "%s", name);
    w->hidden = c->cell_count > 1 && registry_is(name);
    for (uint32_t i = 0; i < c->cell_count; i++) {
        w->partitions[i] =
            (struct partition){.tag = PARTITION_TAG, .whole = w, .cell = &c->cells[i], .seat = -1};
    }
    map_put(&c->queues, w->face.name, strlen(w->face.name), w);
    c->thin++;
    return w;
}

struct whole *whole_adopt(struct cells_engine *c, struct cell *cell, struct engine_queue *q)
{
    struct whole *w = whole_of(map_get(&c->queues, q->name, strlen(q->name)));
    if (!w)
        w = whole_new(c, q->name);
    struct partition *p = &w->partitions[cell->number];
    if (p->q == q)
        return w;
    if (p->q)
        whole_lose(p); /* deleted, and made anew under the same name */
    p->q = q;
    p->unsure = true;
    q->user = p;
    count_partition(w, 1);
    p->version = q->version;
    place_follow(w);
    whole_follow(w);
    place_seat(w);
    whole_merge(w);
    return w;
}

struct partition *whole_home(const struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (w->partitions[i].q && !w->partitions[i].q->gone)
            return (struct partition *)&w->partitions[i];
    }
    return NULL;
}

struct partition *whole_partition(const struct whole *w, uint32_t queue_id)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (w->partitions[i].q && w->partitions[i].q->id == queue_id)
            return (struct partition *)&w->partitions[i];
    }
    return NULL;
}

struct partition *whole_only(struct whole *w)
{
    return w->there == 1 ? whole_home(w) : NULL;
}

/* Views */

static void add_totals(struct queue_totals *sum, const struct queue_totals *t)
{
    static_assert(sizeof(*sum) % sizeof(uint64_t) == 0, "nothing but numbers");
    uint64_t *to = (uint64_t *)sum;
    const uint64_t *from = (const uint64_t *)t;
    for (size_t i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
        to[i] += from[i];
}

static bool head_before(const struct lane_view *a, const struct lane_view *b)
{
    return a->head_ms != b->head_ms ? a->head_ms < b->head_ms : a->head_seq < b->head_seq;
}

static void add_lane(const struct cell *cell, struct lane_view *sum, const struct lane_view *lane)
{
    struct lane_view ours = {.head_ms = time_from_cell(cell, lane->head_ms),
                             .head_seq = lane->head_seq};
    if (lane->ready > 0 && (sum->ready == 0 || head_before(&ours, sum))) {
        sum->head_ms = ours.head_ms;
        sum->head_seq = ours.head_seq;
    }
    sum->ready += lane->ready;
    sum->scheduled += lane->scheduled;
    sum->leased += lane->leased;
    sum->dead += lane->dead;
}

static void add_view(const struct cell *cell, struct queue_view *sum, const struct queue_view *v)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        add_lane(cell, &sum->lanes[slot], &v->lanes[slot]);
    sum->ready += v->ready;
    sum->scheduled += v->scheduled;
    sum->leased += v->leased;
    sum->dead += v->dead;
    sum->bytes += v->bytes;
    add_totals(&sum->totals, &v->totals);
}

/* What stands in a cell that is away cannot be claimed: it is shown to people, and not planned
 * with. */
static void hide_ready(struct queue_view *v, const struct queue_view *away)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        v->lanes[slot].leased += away->lanes[slot].leased;
    v->leased += away->leased;
    v->dead += away->dead;
    v->scheduled += away->scheduled;
}

void whole_merge(struct whole *w)
{
    struct queue_view view = {0}, moment = {0};
    uint64_t next_seq = 1;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct partition *p = &w->partitions[i];
        if (!p->q)
            continue;
        if (p->cell->away)
            hide_ready(&view, &p->q->view);
        else
            add_view(p->cell, &view, &p->q->view);
        add_view(p->cell, &moment, engine_queue_moment(p->q));
        next_seq = p->q->next_seq > next_seq ? p->q->next_seq : next_seq;
    }
    const struct partition *home = whole_home(w);
    w->face.view = view;
    w->moment = moment;
    w->face.next_seq = next_seq;
    w->face.schedules = home ? home->q->schedules : 0;
}

/* Configurations */

bool whole_follow(struct whole *w)
{
    const struct partition *home = whole_home(w);
    bool changed = false;
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        struct partition *p = &w->partitions[i];
        changed = changed || (p->q && p->version != p->q->version);
        if (p->q)
            p->version = p->q->version;
    }
    if (!home)
        return false;
    changed = changed || w->face.id != home->q->id;
    if (!changed)
        return false;
    w->face.id = home->q->id;
    w->face.config = home->q->config;
    w->face.version++;
    place_seat(w); /* levels by name */
    return true;
}

/* Ends */

void whole_lose(struct partition *p)
{
    assert(p->q);
    assert(p->whole->there > 0);
    p->q->user = NULL;
    p->q = NULL;
    count_partition(p->whole, -1);
    if (p->whole->there > 0) {
        whole_follow(p->whole);
        whole_merge(p->whole);
    }
}

void whole_retire(struct whole *w)
{
    if (w->retired)
        return;
    void *named = map_remove(&w->cells->queues, w->face.name, strlen(w->face.name));
    assert(named == w);
    (void)named;
    w->retired = true;
    w->cells->thin -= w->there < w->cells->cell_count;
    w->cells->unsettled -= w->unsettled;
}

void whole_let_go(struct whole *w)
{
    if (!w->retired || w->busy > 0 || w->parts > 0 || w->told)
        return;
    assert(!w->claims_first);
    assert(!w->claiming);
    placement_fini(&w->placement);
    shares_free(w);
    tag_end(&w->tag, WHOLE_TAG);
    free(w->lookout);
    drain_free(w->drain);
    free(w->splitting);
    free(w);
}

uint64_t whole_take_seqs(struct whole *w, uint32_t count)
{
    uint64_t first = w->seq > w->face.next_seq ? w->seq : w->face.next_seq;
    w->seq = first + count;
    return first;
}

void whole_tell(struct whole *w)
{
    if (w->told)
        return;
    w->told = true;
    w->next_told = w->cells->told;
    w->cells->told = w;
}
