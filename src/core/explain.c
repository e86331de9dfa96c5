#include "core/explain.h"
#include "core/age.h"

/* A place in a level: what stands before it goes first. */
struct place {
    int64_t ready_ms;
    uint64_t seq;
};

static const struct place nobody = {INT64_MIN, 0};
static const struct place everyone = {INT64_MAX, UINT64_MAX};

/* Right behind all that were ready by then. */
static struct place behind(int64_t ready_ms)
{
    return (struct place){ready_ms, UINT64_MAX};
}

static bool before(struct place a, struct place b)
{
    return a.ready_ms != b.ready_ms ? a.ready_ms < b.ready_ms : a.seq < b.seq;
}

static struct place later(struct place a, struct place b)
{
    return before(a, b) ? b : a;
}

static struct place sooner(struct place a, struct place b)
{
    return before(a, b) ? a : b;
}

/* Up to where messages of a level have waited for so long; 0: none ever has. */
static struct place waited(const struct queue_config *config, int64_t now_ms, int64_t wait_ms)
{
    return wait_ms > 0 ? behind(age_cutoff(config, now_ms, wait_ms)) : nobody;
}

/* Up to where messages of level `rank` count as `as` or as something more urgent. */
static struct place counts_as(const struct explain *e, int rank, int as)
{
    int64_t wait_ms = 0;
    for (; rank > as; rank--) {
        if (e->config->levels[rank].age_ms == 0)
            return nobody;
        wait_ms += e->config->levels[rank].age_ms;
    }
    return wait_ms > 0 ? behind(age_cutoff(e->config, e->now_ms, wait_ms)) : everyone;
}

/* Up to where messages of a level are close to its max_wait. */
static struct place urgent_until(const struct explain *e, int rank)
{
    return waited(e->config, e->now_ms, age_urgent_ms(&e->config->levels[rank]));
}

/* Up to where messages of `other` go first, by age and promises alone. */
static struct place first_until(const struct explain *e, int other)
{
    const struct level *mine = &e->config->levels[e->rank], *its = &e->config->levels[other];
    const struct place here = {e->ready_ms, e->seq};
    struct place urgent = urgent_until(e, other);
    if (before(here, urgent_until(e, e->rank))) { /* itself: the nearest deadline goes first */
        int64_t same_ms = e->ready_ms + mine->max_wait_ms - its->max_wait_ms;
        return sooner(urgent, (struct place){same_ms, e->seq});
    }
    int as = age_effective_rank(e->config, e->rank, e->ready_ms, e->now_ms);
    struct place older = sooner(counts_as(e, other, as), here);
    struct place above = as > 0 ? counts_as(e, other, as - 1) : nobody;
    return later(urgent, later(older, above));
}

static struct count_item up_to(const struct level *level, struct place place)
{
    return (struct count_item){.slot = level->slot, .ready_ms = place.ready_ms, .seq = place.seq};
}

void explain_places(const struct explain *e, struct count_item items[LEVEL_COUNT_MAX])
{
    for (int rank = 0; rank < e->config->level_count; rank++) {
        struct place place = {e->ready_ms, e->seq};
        if (rank != e->rank)
            place = e->policy->kind == POLICY_WEIGHTED ? everyone : first_until(e, rank);
        items[rank] = up_to(&e->config->levels[rank], place);
    }
}

/* Does the order of weights alone hold now? */
static bool nobody_aged(const struct explain *e)
{
    for (int rank = 0; rank < e->config->level_count; rank++) {
        const struct lane_view *lane = &e->view->lanes[e->config->levels[rank].slot];
        const struct place head = {lane->head_ms, 0};
        if (lane->ready > 0 &&
            (before(head, urgent_until(e, rank)) ||
             age_effective_rank(e->config, rank, lane->head_ms, e->now_ms) != rank))
            return false;
    }
    return true;
}

uint64_t explain_ahead(const struct explain *e, const struct count_item items[LEVEL_COUNT_MAX],
                       bool *exact)
{
    uint64_t counts[LEVEL_COUNT_MAX], sum = 0;
    for (int rank = 0; rank < e->config->level_count; rank++) {
        counts[rank] = items[rank].before;
        sum += counts[rank];
        *exact = *exact && items[rank].exact;
    }
    if (e->policy->kind == POLICY_STRICT)
        return sum;
    *exact = *exact && nobody_aged(e);
    return policy_weighted_ahead(e->policy, e->config, counts, e->rank);
}

void explain_aged(const struct queue_config *config, int64_t now_ms, struct count_item *items)
{
    for (int rank = 0; rank < config->level_count; rank++) {
        const struct level *level = &config->levels[rank];
        struct place place = nobody;
        if (rank > 0)
            place = later(waited(config, now_ms, level->age_ms),
                          waited(config, now_ms, age_urgent_ms(level)));
        items[rank] = up_to(level, place);
    }
}

void explain_late(const struct queue_config *config, int64_t now_ms, struct count_item *items)
{
    for (int rank = 0; rank < config->level_count; rank++) {
        const struct level *level = &config->levels[rank];
        int64_t wait_ms = level->max_wait_ms > 0 ? level->max_wait_ms + 1 : 0;
        items[rank] = up_to(level, waited(config, now_ms, wait_ms));
    }
}
