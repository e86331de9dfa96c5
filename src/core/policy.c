#include "core/policy.h"
#include "base/plant.h"
#include "core/age.h"

#include <assert.h>
#include <string.h>

static_assert(LEVEL_COUNT_MAX <= 31, "ranks and slots are bits of 32, and one more is shifted out");
static_assert(CLAIM_MAX <= UINT16_MAX, "a step's max and found");
static_assert(PLAN_LANES_MAX <= UINT16_MAX, "first_lane");
static_assert(LEVEL_COUNT_MAX <= UINT8_MAX, "lane_count, and NOTHING is no rank");

static uint64_t minimum(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* State */

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The quotas: the smallest whole numbers that have the ratio of the weights. */
static void set_quotas(struct policy *p, const struct queue_config *config)
{
    uint64_t unit = 0;
    for (int rank = 0; rank < config->level_count; rank++) {
        p->quota[rank] = (uint32_t)(config->levels[rank].weight / WEIGHT_UNIT + 0.5);
        if (p->quota[rank] == 0)
            p->quota[rank] = 1;
        unit = gcd(p->quota[rank], unit);
    }
    assert(unit > 0);
    for (int rank = 0; rank < config->level_count; rank++)
        p->quota[rank] = p->quota[rank] / (uint32_t)unit + PLANTED(SHARE_OFF_BY_ONE);
}

void policy_init(struct policy *p, const struct queue_config *config)
{
    assert(config->level_count > 0);
    assert(config->level_count <= LEVEL_COUNT_MAX);
    *p = (struct policy){.kind = config->policy};
    for (int rank = 0; rank < config->level_count; rank++) {
        const struct level *level = &config->levels[rank];
        bool ages = rank > 0 && level->age_ms > 0;
        p->climb_ms[rank] = ages ? p->climb_ms[rank - 1] + level->age_ms : 0;
        p->climb_to[rank] = ages ? p->climb_to[rank - 1] : (uint8_t)rank;
        p->ages = p->ages || ages;
        p->promises = p->promises || level->max_wait_ms > 0;
    }
    set_quotas(p, config);
    for (int max_rank = 0; max_rank < config->level_count; max_rank++)
        memcpy(p->tokens[max_rank], p->quota, sizeof(p->quota));
}

uint64_t policy_cycle(const struct policy *p, const struct queue_config *config)
{
    uint64_t cycle = 0;
    for (int rank = 0; rank < config->level_count; rank++)
        cycle += p->quota[rank];
    return cycle;
}

/* What may be claimed */

static uint32_t lane_room(const struct level *level, const struct lane_view *lane)
{
    if (level->max_in_flight == 0)
        return UINT32_MAX;
    return lane->leased < level->max_in_flight ? level->max_in_flight - (uint32_t)lane->leased : 0;
}

uint32_t policy_lane_room(const struct queue_config *config, const struct queue_view *view,
                          int rank)
{
    const struct level *level = &config->levels[rank];
    return lane_room(level, &view->lanes[level->slot]);
}

uint64_t policy_claimable(const struct queue_config *config, const struct queue_view *view,
                          int rank)
{
    const struct level *level = &config->levels[rank];
    const struct lane_view *lane = &view->lanes[level->slot];
    return minimum(lane->ready, lane_room(level, lane));
}

uint64_t policy_eligible(const struct queue_config *config, const struct queue_view *view,
                         int max_rank)
{
    uint64_t sum = 0;
    for (int rank = 0; rank <= max_rank; rank++)
        sum += policy_claimable(config, view, rank);
    return sum;
}

uint64_t policy_room(const struct queue_config *config, const struct queue_view *view)
{
    if (config->max_in_flight == 0)
        return UINT64_MAX;
    return view->leased < config->max_in_flight ? config->max_in_flight - view->leased : 0;
}

/* Tokens */

static int richest(const uint32_t *tokens, uint32_t ranks)
{
    int best = -1;
    uint32_t most = 0;
    for (; ranks; ranks &= ranks - 1) {
        int rank = __builtin_ctz(ranks);
        if (tokens[rank] > most) {
            most = tokens[rank];
            best = rank;
        }
    }
    return best;
}

int policy_turn(const struct policy *p, int max_rank, uint32_t ranks)
{
    assert(ranks != 0);
    assert(max_rank >= 0);
    assert(max_rank < LEVEL_COUNT_MAX);
    assert(ranks >> max_rank <= 1);
    int rank = richest(p->tokens[max_rank], ranks);
    rank = rank >= 0 ? rank : richest(p->quota, ranks); /* no tokens left: paying refills all */
    assert(rank >= 0); /* every level has a token in a full bucket */
    return rank;
}

void policy_spend(struct policy *p, int max_rank, int rank)
{
    assert(rank >= 0);
    assert(rank <= max_rank);
    uint32_t *tokens = p->tokens[max_rank];
    if (tokens[rank] == 0)
        memcpy(tokens, p->quota, sizeof(p->quota));
    assert(tokens[rank] > 0);
    assert(tokens[rank] <= p->quota[rank]);
    tokens[rank]--;
}

/* Planning */

#define NOTHING UINT8_MAX

struct planner {
    struct policy *policy;
    const struct queue_config *config;
    const struct queue_view *view; /* NULL: not known, so any lane may have messages */
    int64_t now_ms;
    struct plan *plan;
    bool aged; /* some head counts, or may count, as a more urgent level */
    /* By rank. */
    uint8_t counts_as[LEVEL_COUNT_MAX]; /* of its head; NOTHING: it has none */
    uint64_t claimable[LEVEL_COUNT_MAX];
    int64_t head_ms[LEVEL_COUNT_MAX];
    uint64_t head_seq[LEVEL_COUNT_MAX];
};

/* The rank that the head of a level counts as by its age alone. plan_promises() sees to
 * max_wait. */
static int head_counts_as(const struct planner *w, int rank)
{
    const struct level *levels = w->config->levels;
    if (levels[rank].age_ms == 0 || w->now_ms - w->head_ms[rank] < levels[rank].age_ms)
        return rank; /* too young, even if no pause is taken off */
    int64_t age_ms = age_between(w->config, w->head_ms[rank], w->now_ms);
    if (age_ms >= w->policy->climb_ms[rank])
        return w->policy->climb_to[rank];
    for (; age_ms >= levels[rank].age_ms; rank--)
        age_ms -= levels[rank].age_ms;
    return rank;
}

static void look_at(struct planner *w, int rank)
{
    const struct level *level = &w->config->levels[rank];
    const struct lane_view *lane = &w->view->lanes[level->slot];
    uint32_t room = lane_room(level, lane);
    w->plan->room[level->slot] = room;
    w->claimable[rank] = minimum(lane->ready, room);
    w->head_ms[rank] = lane->head_ms;
    w->head_seq[rank] = lane->head_seq;
    if (w->claimable[rank] == 0)
        w->counts_as[rank] = NOTHING;
    else
        w->counts_as[rank] = (uint8_t)(w->policy->ages ? head_counts_as(w, rank) : rank);
    w->aged = w->aged || w->counts_as[rank] < rank;
}

/* Without a view the head of a level may be of any age, so it counts as the most urgent level that
 * it can reach. */
static void guess_at(struct planner *w, int rank)
{
    w->plan->room[w->config->levels[rank].slot] = UINT32_MAX;
    w->counts_as[rank] = w->policy->climb_to[rank];
    w->aged = w->aged || w->counts_as[rank] < rank;
}

static void add_lane(struct planner *w, int rank, int64_t until_ms, int64_t bias_ms)
{
    struct plan *plan = w->plan;
    assert(plan->lane_count < PLAN_LANES_MAX);
    plan->lanes[plan->lane_count++] =
        (struct plan_lane){until_ms, bias_ms, w->config->levels[rank].slot, (uint8_t)rank};
}

static bool older(const struct planner *w, int rank, int than)
{
    return w->head_ms[rank] != w->head_ms[than] ? w->head_ms[rank] < w->head_ms[than]
                                                : w->head_seq[rank] < w->head_seq[than];
}

/* The level that has the oldest head of those that count as `rank` or above; -1: no head does. */
static int oldest_in(const struct planner *w, int rank)
{
    int best = w->counts_as[rank] <= rank ? rank : -1;
    for (int from = rank + 1; w->aged && from <= w->plan->max_rank; from++) {
        if (w->counts_as[from] <= rank && (best < 0 || older(w, from, best)))
            best = from;
    }
    return best;
}

static void add_aged_lane(struct planner *w, int from, int rank)
{
    int64_t wait_ms = w->policy->climb_ms[from] - w->policy->climb_ms[rank];
    add_lane(w, from, from > rank ? age_cutoff(w->config, w->now_ms, wait_ms) : INT64_MAX, 0);
}

static inline void add_step(struct planner *w, struct plan_step step)
{
    struct plan *plan = w->plan;
    assert(plan->step_count < PLAN_STEPS_MAX);
    step.max = (uint16_t)plan->want;
    step.lane_count = (uint8_t)(plan->lane_count - step.first_lane);
    if (step.lane_count > 0)
        plan->steps[plan->step_count++] = step;
}

/* Adds a step for the messages that count as `rank` now, if there are any. A claim of one message
 * needs only the lane that has the oldest of them. */
static void add_group(struct planner *w, int rank, bool in_turn)
{
    struct plan *plan = w->plan;
    struct plan_step step = {
        .first_lane = (uint16_t)plan->lane_count, .rank = (uint8_t)rank, .in_turn = in_turn};
    if (w->view && plan->want == 1) {
        int oldest = oldest_in(w, rank);
        if (oldest >= 0)
            add_aged_lane(w, oldest, rank);
    } else {
        for (int from = rank; from <= plan->max_rank; from++) {
            if (w->counts_as[from] <= rank)
                add_aged_lane(w, from, rank);
        }
    }
    add_step(w, step);
}

/* Messages that are close to their level's max_wait go before all others. */
static void plan_promises(struct planner *w)
{
    struct plan *plan = w->plan;
    struct plan_step step = {.first_lane = (uint16_t)plan->lane_count};
    for (int rank = 0; rank <= plan->max_rank; rank++) {
        const struct level *level = &w->config->levels[rank];
        int64_t urgent_ms = age_urgent_ms(level);
        if (urgent_ms == 0 || w->counts_as[rank] == NOTHING)
            continue;
        if (w->view && w->now_ms - w->head_ms[rank] < urgent_ms)
            continue; /* too young, even if no pause is taken off */
        int64_t until_ms = age_cutoff(w->config, w->now_ms, urgent_ms);
        if (!w->view || w->head_ms[rank] <= until_ms)
            add_lane(w, rank, until_ms, level->max_wait_ms);
    }
    add_step(w, step);
    if (PLANTED(OVERDUE_ONE) && !w->view && plan->step_count > 0)
        plan->steps[0].max = 1;
}

static void plan_strict(struct planner *w)
{
    uint64_t sure = 0;
    int limited = 0;
    for (int rank = 0; rank <= w->plan->max_rank && sure < w->plan->want; rank++) {
        if (PLANTED(INVERTED) && rank == 0 && w->plan->max_rank > 0)
            continue;
        uint32_t steps = w->plan->step_count;
        add_group(w, rank, false);
        sure += w->view ? w->claimable[rank] : 0;
        if (PLANTED(LIMIT_BLOCKS) && !w->view && w->config->levels[rank].max_in_flight > 0 &&
            ++limited == 2)
            return;
        if (w->view && w->plan->want == 1 && w->plan->step_count > steps)
            return;
    }
}

/* The ranks that have a message: for the head of each lane, its own level, the level that it counts
 * as, and those between. */
static uint32_t occupied(const struct planner *w)
{
    uint32_t ranks = 0;
    for (int rank = 0; rank <= w->plan->max_rank; rank++) {
        if (w->counts_as[rank] != NOTHING)
            ranks |= (2U << rank) - (1U << w->counts_as[rank]);
    }
    return ranks;
}

static void plan_weighted(struct planner *w)
{
    uint32_t ranks = occupied(w);
    if (w->view && w->plan->want == 1 && ranks)
        ranks = 1U << policy_turn(w->policy, w->plan->max_rank, ranks);
    for (; ranks; ranks &= ranks - 1)
        add_group(w, __builtin_ctz(ranks), true);
    w->plan->policy = w->policy;
}

typedef void plan_fn(struct planner *w);

static plan_fn *const planners[] = {
    [POLICY_STRICT] = plan_strict, [POLICY_WEIGHTED] = plan_weighted};

void policy_plan(struct policy *p, const struct queue_config *config, const struct queue_view *view,
                 int max_rank, uint32_t want, int64_t wall_ms, struct plan *plan)
{
    assert(want > 0);
    assert(want <= CLAIM_MAX);
    assert(max_rank >= 0);
    assert(max_rank < config->level_count);
    struct planner w = {
        .policy = p, .config = config, .view = view, .now_ms = wall_ms, .plan = plan};
    plan->want = view ? (uint32_t)minimum(want, policy_room(config, view)) : want;
    plan->step_count = plan->lane_count = 0;
    plan->max_rank = max_rank;
    plan->until_ms = INT64_MAX;
    plan->policy = NULL;
    if (plan->want == 0)
        return;
    for (int rank = 0; rank <= max_rank; rank++) {
        if (view)
            look_at(&w, rank);
        else
            guess_at(&w, rank);
    }
    if (p->promises)
        plan_promises(&w);
    if (!view || plan->want > 1 || plan->step_count == 0)
        planners[p->kind](&w);
}

void policy_check(const struct policy *p, const struct queue_config *config)
{
    assert(p->kind == config->policy);
    for (int rank = 0; rank < config->level_count; rank++) {
        assert(p->quota[rank] > 0);
        assert(p->climb_to[rank] <= rank);
        assert((p->climb_ms[rank] > 0) == (p->climb_to[rank] < rank));
        for (int max_rank = 0; max_rank < config->level_count; max_rank++)
            assert(p->tokens[max_rank][rank] <= p->quota[rank]);
    }
}

bool policy_is_plain(const struct policy *p)
{
    return p->kind == POLICY_STRICT && !p->ages && !p->promises;
}

/* Explaining */

/* How many messages of another level, which has `have` tokens, are claimed before level `rank`
 * spends a token while it has `left` of them. The level with the most tokens is served first, on a
 * tie the more urgent one. */
static uint64_t served_before(uint64_t have, uint64_t left, bool more_urgent)
{
    uint64_t down_to = more_urgent ? left - 1 : left;
    return have > down_to ? have - down_to : 0;
}

uint64_t policy_weighted_ahead(const struct policy *p, const struct queue_config *config,
                               const uint64_t before[LEVEL_COUNT_MAX], int rank)
{
    assert(rank < config->level_count);
    const uint32_t *tokens = p->tokens[config->level_count - 1];
    uint64_t k = before[rank], quota = p->quota[rank], ahead = k;
    bool this_cycle = k < tokens[rank];
    uint64_t later = this_cycle ? 0 : k - tokens[rank];
    uint64_t cycles = later / quota; /* whole cycles between the present one and its own */
    uint64_t left = this_cycle ? tokens[rank] - k : quota - later % quota;
    for (int other = 0; other < config->level_count; other++) {
        if (other == rank)
            continue;
        uint64_t have = this_cycle ? tokens[other] : p->quota[other];
        uint64_t earlier = this_cycle ? 0 : tokens[other] + cycles * p->quota[other];
        ahead += minimum(before[other], earlier + served_before(have, left, other < rank));
    }
    return ahead;
}
