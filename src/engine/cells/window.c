/* The window W: for how long a message was passed over by something less urgent in another cell.
 *
 *   this server    asks b            takes from a          asks b, and sees the head
 *   ────────────────┼───────────┬──────────┼─────────────────────────┼──────────────>
 *   cell b          (no head)   an urgent message is put
 *                   └──────── at most W ───┘
 *
 * A claim is made by what is known of each partition. What somebody else puts into one meanwhile
 * is passed over, until the partition is looked at again. So when a new view of a partition shows a
 * head that the view before did not have, and this server has since taken something less urgent
 * elsewhere, then the head was passed over. For how long, is the time from its ready time, or from
 * when the view before was asked for if that is later, to the last such claim. (The message was not
 * there when that view was taken: it is not committed yet at its ready time, and a message that
 * comes back has an old one.) So a sample is never too short.
 *
 * No samples are made where passing over is meant: steps in turn, in-flight limits, a cell that was
 * away. */
#include "base/mem.h"
#include "engine/cells/impl.h"

#include <pthread.h>
#include <stdlib.h>

/* Samples */

#define SAMPLES 1024
#define KEPT_MS 300000 /* five minutes */

struct window {
    pthread_mutex_t lock; /* the rest; samples are rare */
    uint64_t total;
    struct sample {
        int64_t at_ms; /* mono */
        uint32_t passed_ms;
    } samples[SAMPLES]; /* the last ones, by total modulo SAMPLES */
};

struct window *window_new(void)
{
    struct window *w = mem_zalloc(sizeof(*w));
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

void window_free(struct window *w)
{
    if (w)
        pthread_mutex_destroy(&w->lock);
    free(w);
}

static void window_add(struct window *w, int64_t at_ms, int64_t passed_ms)
{
    pthread_mutex_lock(&w->lock);
    w->samples[w->total++ % SAMPLES] =
        (struct sample){at_ms, passed_ms < UINT32_MAX ? (uint32_t)passed_ms : UINT32_MAX};
    pthread_mutex_unlock(&w->lock);
}

static int compare(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

void window_read(struct window *w, int64_t now_ms, struct window_facts *facts)
{
    uint32_t passed[SAMPLES], count = 0;
    pthread_mutex_lock(&w->lock);
    facts->total = w->total;
    for (uint64_t i = 0; i < SAMPLES && i < w->total; i++) {
        if (now_ms - w->samples[i].at_ms <= KEPT_MS)
            passed[count++] = w->samples[i].passed_ms;
    }
    pthread_mutex_unlock(&w->lock);
    qsort(passed, count, sizeof(passed[0]), compare);
    facts->half_ms = count > 0 ? passed[count / 2] : 0;
    facts->most_ms = count > 0 ? passed[(uint64_t)count * 99 / 100] : 0;
    facts->longest_ms = count > 0 ? passed[count - 1] : 0;
}

/* What is known of one queue */

struct lookout {
    uint32_t version; /* of the configuration: ranks mean something else after a change */
    /* By rank: when something less urgent was taken, by a plan that would have taken this. The last
     * time, from where; and the last time from anywhere else. Wall clock, 0: never. */
    struct passing {
        int64_t at_ms, other_ms;
        uint32_t cell;
    } passings[LEVEL_COUNT_MAX];
    struct sight { /* the last view of each partition */
        bool seen;
        uint32_t moments;
        uint32_t outages;               /* of its cell */
        int64_t asked_ms;               /* wall */
        int64_t heads[LEVEL_COUNT_MAX]; /* by rank, on its cell's clock; INT64_MAX: none */
    } sights[];
};

static struct lookout *lookout_of(struct whole *w)
{
    size_t size = sizeof(struct lookout) + w->cells->cell_count * sizeof(struct sight);
    if (w->lookout && w->lookout->version != w->face.version) {
        free(w->lookout);
        w->lookout = NULL;
    }
    if (!w->lookout) {
        w->lookout = mem_zalloc(size);
        w->lookout->version = w->face.version;
    }
    return w->lookout;
}

static void pass(struct passing *p, uint32_t cell, int64_t at_ms)
{
    if (p->at_ms != 0 && p->cell != cell)
        p->other_ms = p->at_ms;
    p->at_ms = at_ms;
    p->cell = cell;
}

void window_took(const struct cell_part *part, const struct plan *plan)
{
    const struct plan *mine = part->op.claim.plan;
    uint32_t last = mine->step_count;
    while (last > 0 && mine->steps[last - 1].found == 0)
        last--;
    if (last == 0 || plan->policy || cell_is_live(part->cell))
        return;
    const struct plan_step *taken = &mine->steps[last - 1];
    struct lookout *lookout = lookout_of(part->partition->whole);
    for (uint32_t i = 0; i < part->from + last - 1; i++) {
        const struct plan_step *step = &plan->steps[i];
        if (step->rank < taken->rank)
            pass(&lookout->passings[step->rank], part->cell->number, part->asked.wall_ms);
    }
}

/* When this rank was last passed over by something from another cell. */
static int64_t passed_at(const struct lookout *lookout, int rank, const struct cell *cell)
{
    const struct passing *p = &lookout->passings[rank];
    return p->cell == cell->number ? p->other_ms : p->at_ms;
}

/* For how long the head that is now seen was passed over; 0: it was not. */
static int64_t passed_ms(const struct lookout *lookout, const struct sight *sight,
                         const struct partition *p, int rank, int64_t head_ms)
{
    int64_t at_ms = passed_at(lookout, rank, p->cell);
    int64_t since_ms = time_from_cell(p->cell, head_ms);
    if (head_ms == INT64_MAX || head_ms >= sight->heads[rank])
        return 0;
    since_ms = sight->asked_ms > since_ms ? sight->asked_ms : since_ms;
    return at_ms > since_ms ? at_ms - since_ms : 0;
}

static bool has_limit(const struct queue_config *config, int rank)
{
    return config->max_in_flight > 0 || config->levels[rank].max_in_flight > 0;
}

void window_saw(struct partition *p, struct instant asked)
{
    struct whole *w = p->whole;
    if (!w->lookout || !p->q || cell_is_live(p->cell))
        return;
    struct lookout *lookout = lookout_of(w);
    struct sight *sight = &lookout->sights[p->cell->number];
    if (sight->seen && sight->moments == p->q->moments)
        return;
    const struct queue_config *config = &w->face.config;
    const struct queue_view *moment = engine_queue_moment(p->q);
    bool fresh = sight->seen && sight->outages == p->cell->outages;
    int64_t longest_ms = 0;
    for (int rank = 0; rank < config->level_count; rank++) {
        const struct lane_view *lane = &moment->lanes[config->levels[rank].slot];
        int64_t head_ms = lane->ready > 0 ? lane->head_ms : INT64_MAX;
        int64_t ms =
            fresh && !has_limit(config, rank) ? passed_ms(lookout, sight, p, rank, head_ms) : 0;
        longest_ms = ms > longest_ms ? ms : longest_ms;
        sight->heads[rank] = head_ms;
    }
    if (longest_ms > 0)
        window_add(w->cells->shared->window, asked.mono_ms, longest_ms);
    sight->seen = true;
    sight->moments = p->q->moments;
    sight->outages = p->cell->outages;
    sight->asked_ms = asked.wall_ms;
}
