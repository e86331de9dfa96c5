#include "core/explain.h"
#include "core/age.h"

#include <assert.h>
#include <string.h>

static const struct place nobody = {INT64_MIN, 0};
static const struct place everyone = {INT64_MAX, UINT64_MAX};

/* The place behind every message that was ready by `ready_ms`. */
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

/* The place up to which messages have waited for `wait_ms`. A `wait_ms` of 0 means that the level
 * has no such limit: no message has waited long enough. */
static struct place waited(const struct queue_config *config, int64_t now_ms, int64_t wait_ms)
{
    return wait_ms > 0 ? behind(age_cutoff(config, now_ms, wait_ms)) : nobody;
}

/* The place up to which messages of level `rank` count as level `as`, or as a more urgent one. */
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

/* The place up to which messages of the level are close to its max_wait. */
static struct place urgent_until(const struct explain *e, int rank)
{
    return waited(e->config, e->now_ms, age_urgent_ms(&e->config->levels[rank]));
}

/* The place up to which messages of level `other` go before this message, by age and promises
 * alone. */
static struct place first_until(const struct explain *e, int other)
{
    const struct level *mine = &e->config->levels[e->rank], *its = &e->config->levels[other];
    const struct place here = {e->ready_ms, e->seq};
    struct place urgent = urgent_until(e, other);
    /* it is close to max_wait: the nearest deadline goes first */
    if (before(here, urgent_until(e, e->rank))) {
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

/* Whether weights decide when the message is claimed. They do not when it is close to max_wait:
 * then the nearest deadline decides. */
static bool is_weighed(const struct explain *e)
{
    const struct place here = {e->ready_ms, e->seq};
    return e->policy->kind == POLICY_WEIGHTED && !before(here, urgent_until(e, e->rank));
}

static bool promises(const struct explain *e, int rank)
{
    return e->config->levels[rank].max_wait_ms > 0;
}

static bool ages(const struct explain *e, int rank)
{
    return rank > 0 && e->config->levels[rank].age_ms > 0;
}

uint32_t explain_item_count(const struct explain *e)
{
    uint32_t count = e->config->level_count;
    assert(e->rank >= 0);
    assert(e->rank < e->config->level_count);
    for (int rank = 0; is_weighed(e) && rank < e->config->level_count; rank++)
        count += (uint32_t)promises(e, rank) + (uint32_t)ages(e, rank);
    return count;
}

/* One item for each rank: how many messages of the level go before this one. Where weights decide,
 * how many messages the level has at all; and then there are more items, for levels that have a
 * max_wait (how many are close to it) and for levels that age (how many count as another level). */
void explain_places(const struct explain *e, struct count_item items[EXPLAIN_ITEMS_MAX])
{
    bool weighed = is_weighed(e);
    struct count_item *more = items + e->config->level_count;
    for (int rank = 0; rank < e->config->level_count; rank++) {
        const struct level *level = &e->config->levels[rank];
        struct place place = {e->ready_ms, e->seq};
        if (rank != e->rank)
            place = weighed ? everyone : first_until(e, rank);
        items[rank] = up_to(level, place);
        if (weighed && promises(e, rank))
            *more++ = up_to(level, urgent_until(e, rank));
        if (weighed && ages(e, rank))
            *more++ = up_to(level, waited(e->config, e->now_ms, level->age_ms));
    }
    assert(more == items + explain_item_count(e));
}

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* An estimate for the message's own level may have counted the message itself. */
static uint64_t counted_before(const struct explain *e, const struct count_item *items, int rank)
{
    const struct count_item *item = &items[rank];
    return item->before - (rank == e->rank && !item->exact && item->before > 0);
}

/* The counts of the levels, when weights decide about the message. */
struct weighed {
    uint64_t promised; /* close to max_wait, of all levels: claimed first, for no tokens */
    uint64_t left[LEVEL_COUNT_MAX]; /* by rank: the others. In its own level those before it */
    bool exact;
    bool aged; /* some of `left` count as another level */
};

static struct weighed weigh(const struct explain *e, const struct count_item *items)
{
    static const struct count_item none = {.exact = true};
    const struct count_item *more = items + e->config->level_count;
    struct weighed w = {.exact = true};
    for (int rank = 0; rank < e->config->level_count; rank++) {
        const struct count_item *promised = promises(e, rank) ? more++ : &none;
        const struct count_item *aged = ages(e, rank) ? more++ : &none;
        uint64_t there = counted_before(e, items, rank);
        uint64_t first = minimum(promised->before, there);
        w.promised += first;
        assert(first <= there);
        w.left[rank] = there - first;
        w.exact = w.exact && items[rank].exact && promised->exact;
        w.aged = w.aged || aged->before > promised->before;
    }
    return w;
}

uint64_t explain_ahead(const struct explain *e, const struct count_item items[EXPLAIN_ITEMS_MAX],
                       bool *exact)
{
    if (is_weighed(e)) {
        struct weighed w = weigh(e, items);
        *exact = w.exact && !w.aged;
        return w.promised + policy_weighted_ahead(e->policy, e->config, w.left, e->rank);
    }
    uint64_t sum = 0;
    *exact = true;
    for (int rank = 0; rank < e->config->level_count; rank++) {
        sum += counted_before(e, items, rank);
        *exact = *exact && items[rank].exact;
    }
    return sum;
}

bool explain_is_near(const struct explain *e, const struct count_item items[EXPLAIN_ITEMS_MAX])
{
    if (!is_weighed(e))
        return false;
    struct weighed w = weigh(e, items);
    return w.aged && w.promised + w.left[e->rank] < POSITION_EXACT;
}

/* The next claims, one by one, without doing them */

struct walk {
    const struct explain *e;
    const struct heads_item *heads; /* by rank, as everything below */
    uint32_t at[LEVEL_COUNT_MAX];   /* how many of the heads are claimed in thought */
    uint32_t tokens[LEVEL_COUNT_MAX];
    struct place urgent[LEVEL_COUNT_MAX]; /* messages up to here are close to max_wait */
    struct place reaches[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX]; /* [level][level it counts as] */
    struct place next[LEVEL_COUNT_MAX]; /* what the next claim from the level would get */
    uint32_t some;                      /* the set of levels that have a next message */
};

/* Finds the next message of a level. The explained message stands in its own level, even if it is
 * not ready yet. False: which message is next is not known. */
static bool look_at(struct walk *w, int rank)
{
    const struct heads_item *heads = &w->heads[rank];
    const struct place here = {w->e->ready_ms, w->e->seq};
    bool known = w->at[rank] < heads->count;
    if (!known && !heads->whole)
        return false;
    struct place next = known ? heads->places[w->at[rank]] : everyone;
    if (rank == w->e->rank)
        next = sooner(next, here);
    w->next[rank] = next;
    bool some = known || rank == w->e->rank;
    w->some = (w->some & ~(1U << rank)) | (uint32_t)some << rank;
    return true;
}

/* The level whose next message has the nearest deadline; -1: no message is close to its
 * max_wait. */
static int promised_level(const struct walk *w)
{
    int best = -1;
    struct place best_at = everyone;
    for (uint32_t set = w->some; set; set &= set - 1) {
        int rank = __builtin_ctz(set);
        struct place at = w->next[rank];
        if (!before(at, w->urgent[rank]))
            continue;
        at.ready_ms += w->e->config->levels[rank].max_wait_ms;
        if (best < 0 || before(at, best_at)) {
            best = rank;
            best_at = at;
        }
    }
    return best;
}

/* The level that has the oldest message which counts as `rank`; -1: no message does. */
static int oldest_level(const struct walk *w, int rank)
{
    int best = -1;
    for (uint32_t set = w->some >> rank << rank; set; set &= set - 1) {
        int from = __builtin_ctz(set);
        if (before(w->next[from], w->reaches[from][rank]) &&
            (best < 0 || before(w->next[from], w->next[best])))
            best = from;
    }
    return best;
}

/* The level whose message is claimed next by weights, which costs a token. */
static int weighed_level(struct walk *w)
{
    int oldest[LEVEL_COUNT_MAX], count = w->e->config->level_count;
    for (int rank = 0; rank < count; rank++)
        oldest[rank] = oldest_level(w, rank);
    for (;;) {
        int best = -1;
        for (int rank = 0; rank < count; rank++) {
            if (oldest[rank] >= 0 && w->tokens[rank] > (best < 0 ? 0 : w->tokens[best]))
                best = rank;
        }
        if (best >= 0) {
            assert(w->tokens[best] > 0);
            w->tokens[best]--;
            return oldest[best];
        }
        memcpy(w->tokens, w->e->policy->quota, sizeof(w->tokens));
    }
}

void explain_heads(const struct explain *e, struct heads_item heads[LEVEL_COUNT_MAX])
{
    for (int rank = 0; rank < e->config->level_count; rank++)
        heads[rank] =
            (struct heads_item){.slot = e->config->levels[rank].slot, .max = POSITION_EXACT};
}

bool explain_follow(const struct explain *e, const struct heads_item heads[LEVEL_COUNT_MAX],
                    uint64_t *ahead)
{
    struct walk w = {.e = e, .heads = heads};
    int count = e->config->level_count;
    memcpy(w.tokens, e->policy->tokens[count - 1], sizeof(w.tokens));
    for (int rank = 0; rank < count; rank++) {
        w.urgent[rank] = urgent_until(e, rank);
        for (int as = 0; as <= rank; as++)
            w.reaches[rank][as] = counts_as(e, rank, as);
        if (!look_at(&w, rank))
            return false;
    }
    for (uint64_t claimed = 0; claimed < POSITION_EXACT; claimed++) {
        int rank = promised_level(&w);
        if (rank < 0)
            rank = weighed_level(&w);
        if (rank == e->rank && w.next[rank].seq == e->seq) {
            *ahead = claimed;
            return true;
        }
        w.at[rank]++;
        if (!look_at(&w, rank))
            return false;
    }
    return false;
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
