/* Queues: one whole for a name, with a partition in each cell that has a queue of that name. */
#include "base/mem.h"
#include "engine/cells/impl.h"
#include "engine/cells/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts the partitions of a queue, and the queues that lack one. */
static void count_partition(struct partition *p, int by)
{
    struct whole *w = p->whole;
    bool was_thin = w->there < w->cells->cell_count;
    assert(by > 0 || w->there > 0);
    w->there += (uint32_t)by;
    w->remote += cell_is_live(p->cell) ? 0 : (uint32_t)by;
    bool is_thin = w->there < w->cells->cell_count;
    assert(w->there <= w->cells->cell_count);
    assert(w->remote <= w->there);
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
    assert(!q->user);
    if (p->q)
        whole_lose(p); /* deleted, and made anew under the same name */
    p->q = q;
    p->unsure = true;
    q->user = p;
    p->version = q->version;
    count_partition(p, 1);
    partition_line_up(p);
    partition_changed(p);
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

static bool has_id(const struct partition *p, uint32_t queue_id)
{
    return p->q && p->q->id == queue_id;
}

struct partition *whole_partition(const struct whole *w, uint32_t queue_id)
{
    /* A cell numbers its queues by its own number, modulo QUEUE_CELLS; a store that was no cell
     * when a queue was made has any number for it. */
    for (uint32_t i = queue_id % QUEUE_CELLS; i < w->cells->cell_count; i += QUEUE_CELLS) {
        if (has_id(&w->partitions[i], queue_id))
            return (struct partition *)&w->partitions[i];
    }
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (has_id(&w->partitions[i], queue_id))
            return (struct partition *)&w->partitions[i];
    }
    return NULL;
}

struct partition *whole_only(struct whole *w)
{
    return w->there == 1 ? whole_home(w) : NULL;
}

/* Configurations */

bool whole_follow(struct whole *w)
{
    const struct partition *home = whole_home(w);
    whole_merge(w);
    bool changed = w->strangers > 0 || (home && w->face.id != home->q->id);
    for (uint32_t i = 0; w->strangers > 0 && i < w->cells->cell_count; i++) {
        struct partition *p = &w->partitions[i];
        if (p->q)
            p->version = p->q->version;
        w->strangers -= p->strange;
        p->strange = false;
    }
    if (!home)
        return false;
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
    assert(p->q->user == p);
    p->q->user = NULL;
    p->q = NULL;
    partition_uncount(p);
    partition_leave(p);
    count_partition(p, -1);
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
    assert(w->cells->thin >= (w->there < w->cells->cell_count ? 1U : 0));
    assert(w->cells->unsettled >= (w->unsettled ? 1U : 0));
    w->cells->thin -= w->there < w->cells->cell_count;
    w->cells->unsettled -= w->unsettled;
}

void whole_let_go(struct whole *w)
{
    if (!w->retired || w->busy > 0 || w->parts > 0 || w->told)
        return;
    assert(!w->claims_first);
    assert(!w->claiming);
    whole_sums_free(w);
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
    assert(count > 0);
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
