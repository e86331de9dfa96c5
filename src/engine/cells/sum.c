/* Sums: what the partitions of a queue say together.
 *
 * A whole has the sums of its partitions' counts, and for each level a tournament of their first
 * messages. A partition keeps what the sums have of it; when it has changed, the difference is
 * counted. So the cost goes by the partitions that have changed, and not by how many there are. */
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <stdlib.h>
#include <string.h>

struct counted {
    struct queue_view view, moment;
};

void partition_changed(struct partition *p)
{
    tag_check(p->tag, PARTITION_TAG);
    if (p->dirty)
        return;
    p->dirty = true;
    p->next_dirty = p->whole->dirty;
    p->whole->dirty = p;
}

void cell_changed(struct cells_engine *c, struct cell *cell)
{
    size_t at = 0;
    cell->reckoned_ms = cell_ahead_ms(cell);
    for (struct whole *w; (w = whole_of(map_each(&c->queues, &at)));)
        partition_changed(&w->partitions[cell->number]);
}

/* Numbers */

/* What a view consists of besides its lanes: numbers alone. */
#define NUMBERS_AT    offsetof(struct queue_view, ready)
#define NUMBERS_COUNT ((sizeof(struct queue_view) - NUMBERS_AT) / sizeof(uint64_t))
static_assert(NUMBERS_AT == sizeof(struct lane_view) * LEVEL_COUNT_MAX, "lanes come first");
static_assert((sizeof(struct queue_view) - NUMBERS_AT) % sizeof(uint64_t) == 0, "and then numbers");

static void count_numbers(struct queue_view *sum, const struct queue_view *was,
                          const struct queue_view *is)
{
    uint64_t *to = &sum->ready;
    const uint64_t *less = &was->ready, *more = &is->ready;
    for (size_t i = 0; i < NUMBERS_COUNT; i++)
        to[i] += more[i] - less[i];
}

static void count_lane(struct lane_view *sum, const struct lane_view *was,
                       const struct lane_view *is)
{
    sum->ready += is->ready - was->ready;
    sum->scheduled += is->scheduled - was->scheduled;
    sum->leased += is->leased - was->leased;
    sum->dead += is->dead - was->dead;
}

/* Heads */

static void count_head(struct tourney *heads, const struct partition *p,
                       const struct lane_view *lane)
{
    const struct tourney_key key = {.major = lane->head_ms, .tie = lane->head_seq};
    if (heads->size == 0 && lane->ready == 0)
        return;
    if (heads->size == 0)
        tourney_init(heads, p->whole->cells->cell_count);
    if (lane->ready > 0)
        tourney_set(heads, p->cell->number, &key);
    else
        tourney_out(heads, p->cell->number);
}

static void show_head(struct lane_view *sum, const struct tourney *heads)
{
    uint32_t first = tourney_first(heads);
    sum->head_ms = first == TOURNEY_NONE ? 0 : heads->keys[first].major;
    sum->head_seq = first == TOURNEY_NONE ? 0 : heads->keys[first].tie;
}

static void count_idle(const struct partition *p, int slot)
{
    const struct lane_view *lane = &p->counted->view.lanes[slot];
    struct tourney *idle = &p->whole->idle[slot];
    const struct tourney_key key = {p->sought, lane->head_ms, lane->head_seq};
    if (idle->size == 0)
        return;
    if (lane->ready > 0)
        tourney_set(idle, p->cell->number, &key);
    else
        tourney_out(idle, p->cell->number);
}

struct tourney *whole_idle(struct whole *w, uint8_t slot)
{
    struct tourney *idle = &w->idle[slot];
    if (idle->size > 0)
        return idle;
    tourney_init(idle, w->cells->cell_count);
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        if (w->partitions[i].counted)
            count_idle(&w->partitions[i], slot);
    }
    return idle;
}

void partition_seek(struct partition *p, uint32_t more, uint32_t less)
{
    assert(less <= p->sought);
    p->sought = p->sought + more - less;
    for (int slot = 0; p->counted && slot < LEVEL_COUNT_MAX; slot++) {
        if (p->counted->view.lanes[slot].ready > 0)
            count_idle(p, slot);
    }
}

/* Views */

static void count_view(struct partition *p, struct queue_view *sum, struct tourney *heads,
                       struct queue_view *was, const struct queue_view *is)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        if (memcmp(&was->lanes[slot], &is->lanes[slot], sizeof(was->lanes[slot])) == 0)
            continue;
        count_lane(&sum->lanes[slot], &was->lanes[slot], &is->lanes[slot]);
        count_head(&heads[slot], p, &is->lanes[slot]);
        show_head(&sum->lanes[slot], &heads[slot]);
    }
    count_numbers(sum, was, is);
    *was = *is;
}

/* On this process's clock. */
static void view_here(const struct cell *cell, const struct queue_view *v, struct queue_view *here)
{
    *here = *v;
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        struct lane_view *lane = &here->lanes[slot];
        lane->head_ms = lane->ready > 0 ? time_from_cell(cell, lane->head_ms) : 0;
        lane->head_seq = lane->ready > 0 ? lane->head_seq : 0;
    }
}

/* What stands in a cell that is away cannot be claimed: it is shown to people, and not planned
 * with. */
static void hide_ready(struct queue_view *v)
{
    const struct queue_view all = *v;
    *v = (struct queue_view){.leased = all.leased, .dead = all.dead, .scheduled = all.scheduled};
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        v->lanes[slot].leased = all.lanes[slot].leased;
}

static void count_partition(struct partition *p, struct queue_view *view,
                            const struct queue_view *moment)
{
    struct whole *w = p->whole;
    assert(p->q || moment->ready + moment->leased + moment->dead == 0);
    if (!p->counted)
        p->counted = mem_zalloc(sizeof(*p->counted));
    count_view(p, &w->moment, w->moment_heads, &p->counted->moment, moment);
    count_view(p, &w->face.view, w->heads, &p->counted->view, view);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++)
        count_idle(p, slot);
}

static void count_again(struct partition *p)
{
    struct whole *w = p->whole;
    struct queue_view view, moment;
    bool strange = p->version != p->q->version;
    view_here(p->cell, &p->q->view, &view);
    if (p->q->moment)
        view_here(p->cell, p->q->moment, &moment);
    else
        moment = view;
    if (p->cell->away)
        hide_ready(&view);
    count_partition(p, &view, &moment);
    w->strangers += (uint32_t)strange - (uint32_t)p->strange;
    p->strange = strange;
    if (p->q->next_seq > w->face.next_seq)
        w->face.next_seq = p->q->next_seq;
}

void partition_uncount(struct partition *p)
{
    struct queue_view nothing = {0};
    p->whole->strangers -= p->strange;
    p->strange = false;
    if (!p->counted)
        return;
    count_partition(p, &nothing, &nothing);
    free(p->counted);
    p->counted = NULL;
}

void whole_merge(struct whole *w)
{
    for (struct partition *p; (p = w->dirty);) {
        assert(p->dirty);
        assert(p->whole == w);
        w->dirty = p->next_dirty;
        p->dirty = false;
        if (p->q)
            count_again(p);
    }
    const struct partition *home = whole_home(w);
    w->face.schedules = home ? home->q->schedules : 0;
}

void whole_sums_free(struct whole *w)
{
    for (uint32_t i = 0; i < w->cells->cell_count; i++)
        free(w->partitions[i].counted);
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        tourney_fini(&w->heads[slot]);
        tourney_fini(&w->moment_heads[slot]);
        tourney_fini(&w->idle[slot]);
    }
}

/* The sums, counted anew. */

static void add_up(const struct partition *p, struct queue_view *sum, const struct queue_view *its)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        struct lane_view *to = &sum->lanes[slot];
        const struct lane_view *from = &its->lanes[slot];
        bool first = to->ready == 0 || from->head_ms < to->head_ms ||
                     (from->head_ms == to->head_ms && from->head_seq < to->head_seq);
        if (from->ready > 0 && first) {
            to->head_ms = from->head_ms;
            to->head_seq = from->head_seq;
        }
        to->ready += from->ready;
        assert(tourney_is_in(&p->whole->heads[slot], p->cell->number) ==
               (p->counted->view.lanes[slot].ready > 0));
    }
    sum->ready += its->ready;
    sum->scheduled += its->scheduled;
    sum->leased += its->leased;
    sum->dead += its->dead;
}

static void compare(const struct queue_view *sum, const struct queue_view *is)
{
    for (int slot = 0; slot < LEVEL_COUNT_MAX; slot++) {
        assert(is->lanes[slot].ready == sum->lanes[slot].ready);
        assert(is->lanes[slot].head_ms == sum->lanes[slot].head_ms);
        assert(is->lanes[slot].head_seq == sum->lanes[slot].head_seq);
    }
    assert(is->ready == sum->ready);
    assert(is->scheduled == sum->scheduled);
    assert(is->leased == sum->leased);
    assert(is->dead == sum->dead);
}

void whole_sums_check(const struct whole *w)
{
    struct queue_view view = {0}, moment = {0};
    for (uint32_t i = 0; i < w->cells->cell_count; i++) {
        const struct partition *p = &w->partitions[i];
        assert(!p->counted || p->q);
        if (!p->counted)
            continue;
        add_up(p, &view, &p->counted->view);
        add_up(p, &moment, &p->counted->moment);
    }
    compare(&view, &w->face.view);
    compare(&moment, &w->moment);
    for (const struct partition *p = w->dirty; p; p = p->next_dirty)
        assert(p->dirty);
}
