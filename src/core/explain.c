#include "core/explain.h"
#include "core/age.h"

#define NOBODY   INT64_MIN
#define EVERYONE INT64_MAX

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Up to which ready time messages of level `rank` count as `as` or as something more urgent. */
static int64_t counts_as(const struct explain *e, int rank, int as)
{
    int64_t wait_ms = 0;
    for (; rank > as; rank--) {
        if (rank == 0 || e->config->levels[rank].age_ms == 0)
            return NOBODY;
        wait_ms += e->config->levels[rank].age_ms;
    }
    return wait_ms > 0 ? age_cutoff(e->config, e->now_ms, wait_ms) : EVERYONE;
}

/* Up to which ready time messages of a level are close to its max_wait. */
static int64_t urgent_until(const struct explain *e, int rank)
{
    const struct level *level = &e->config->levels[rank];
    return level->max_wait_ms > 0 ? age_cutoff(e->config, e->now_ms, age_urgent_ms(level)) : NOBODY;
}

/* Up to which ready time messages of `other` go first, by age and promises alone. */
static int64_t first_until(const struct explain *e, int other)
{
    const struct level *mine = &e->config->levels[e->rank], *its = &e->config->levels[other];
    int64_t urgent_ms = urgent_until(e, other);
    if (e->ready_ms <= urgent_until(e, e->rank)) /* itself: the nearest deadline goes first */
        return sooner(urgent_ms, e->ready_ms + mine->max_wait_ms - its->max_wait_ms);
    int as = age_effective_rank(e->config, e->rank, e->ready_ms, e->now_ms);
    int64_t before_ms = sooner(counts_as(e, other, as), e->ready_ms);
    int64_t above_ms = as > 0 ? counts_as(e, other, as - 1) : NOBODY;
    return later(urgent_ms, later(before_ms, above_ms));
}

void explain_places(const struct explain *e, struct count_item items[LEVEL_COUNT_MAX])
{
    for (int rank = 0; rank < e->config->level_count; rank++) {
        int64_t until_ms = e->policy->kind == POLICY_WEIGHTED ? EVERYONE : first_until(e, rank);
        bool own = rank == e->rank;
        items[rank] = (struct count_item){
            .slot = e->config->levels[rank].slot,
            .ready_ms = own ? e->ready_ms : until_ms,
            .seq = own || until_ms == e->ready_ms ? e->seq : UINT64_MAX,
        };
    }
}

/* Does the order of weights alone hold now? */
static bool nobody_aged(const struct explain *e)
{
    for (int rank = 0; rank < e->config->level_count; rank++) {
        const struct lane_view *lane = &e->view->lanes[e->config->levels[rank].slot];
        const struct level *level = &e->config->levels[rank];
        bool urgent = level->max_wait_ms > 0 && lane->head_ms <= urgent_until(e, rank);
        if (lane->ready > 0 &&
            (urgent || age_effective_rank(e->config, rank, lane->head_ms, e->now_ms) != rank))
            return false;
    }
    return true;
}

uint64_t explain_ahead(const struct explain *e, const struct count_item items[LEVEL_COUNT_MAX],
                       bool *exact)
{
    uint64_t before[LEVEL_COUNT_MAX], sum = 0;
    for (int rank = 0; rank < e->config->level_count; rank++) {
        before[rank] = items[rank].before;
        sum += before[rank];
        *exact = *exact && items[rank].exact;
    }
    if (e->policy->kind == POLICY_STRICT)
        return sum;
    *exact = *exact && nobody_aged(e);
    return policy_weighted_ahead(e->policy, e->config, before, e->rank);
}

static struct count_item place(const struct level *level, int64_t until_ms)
{
    return (struct count_item){.slot = level->slot, .ready_ms = until_ms, .seq = UINT64_MAX};
}

void explain_aged(const struct queue_config *config, int64_t now_ms, struct count_item *items)
{
    for (int rank = 0; rank < config->level_count; rank++) {
        const struct level *level = &config->levels[rank];
        int64_t step_ms = rank > 0 ? level->age_ms : 0;
        int64_t until_ms = step_ms > 0 ? age_cutoff(config, now_ms, step_ms) : NOBODY;
        if (rank > 0 && level->max_wait_ms > 0)
            until_ms = later(until_ms, age_cutoff(config, now_ms, age_urgent_ms(level)));
        items[rank] = place(level, until_ms);
    }
}

void explain_late(const struct queue_config *config, int64_t now_ms, struct count_item *items)
{
    for (int rank = 0; rank < config->level_count; rank++) {
        const struct level *level = &config->levels[rank];
        items[rank] =
            place(level, level->max_wait_ms > 0 ? age_cutoff(config, now_ms, level->max_wait_ms + 1)
                                                : NOBODY);
    }
}
