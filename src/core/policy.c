#include "core/policy.h"
#include "core/age.h"

#include <assert.h>
#include <string.h>

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

/* The smallest whole numbers in the ratio of the weights. */
static void set_quotas(struct policy *p, const struct queue_config *config)
{
    uint64_t unit = 0;
    for (int rank = 0; rank < config->level_count; rank++) {
        p->quota[rank] = (uint32_t)(config->levels[rank].weight / WEIGHT_UNIT + 0.5);
        if (p->quota[rank] == 0)
            p->quota[rank] = 1;
        unit = gcd(p->quota[rank], unit);
    }
    for (int rank = 0; rank < config->level_count; rank++)
        p->quota[rank] /= (uint32_t)unit;
}

void policy_init(struct policy *p, const struct queue_config *config)
{
    *p = (struct policy){.kind = config->policy};
    for (int rank = 0; rank < config->level_count; rank++) {
        p->ages = p->ages || (rank > 0 && config->levels[rank].age_ms > 0);
        p->promises = p->promises || config->levels[rank].max_wait_ms > 0;
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

/* Planning */

struct planner {
    struct policy *policy;
    const struct queue_config *config;
    const struct queue_view *view;
    int64_t now_ms;
    uint64_t claimable[LEVEL_COUNT_MAX]; /* by rank */
    struct plan *plan;
};

static void add_lane(struct planner *w, int rank, int64_t until_ms, int64_t bias_ms)
{
    struct plan *plan = w->plan;
    plan->lanes[plan->lane_count++] =
        (struct plan_lane){until_ms, bias_ms, w->config->levels[rank].slot, (uint8_t)rank};
}

static bool head_by(const struct planner *w, int rank, int64_t until_ms)
{
    return w->claimable[rank] > 0 &&
           w->view->lanes[w->config->levels[rank].slot].head_ms <= until_ms;
}

/* Adds the lanes of what counts as `rank` now, and makes a step of them when there are any. */
static struct plan_step group(struct planner *w, int rank)
{
    struct plan *plan = w->plan;
    struct plan_step step = {.first_lane = (uint16_t)plan->lane_count, .rank = (uint8_t)rank};
    if (w->claimable[rank] > 0)
        add_lane(w, rank, INT64_MAX, 0);
    int64_t wait_ms = 0;
    for (int from = rank + 1; w->policy->ages && from <= plan->max_rank; from++) {
        if (w->config->levels[from].age_ms == 0)
            break;
        wait_ms += w->config->levels[from].age_ms;
        int64_t until_ms = age_cutoff(w->config, w->now_ms, wait_ms);
        if (head_by(w, from, until_ms))
            add_lane(w, from, until_ms, 0);
    }
    step.lane_count = (uint8_t)(plan->lane_count - step.first_lane);
    return step;
}

static struct plan_step *add_step(struct planner *w, struct plan_step step, uint64_t max,
                                  enum plan_tokens tokens)
{
    struct plan *plan = w->plan;
    assert(plan->step_count < PLAN_STEPS_MAX);
    step.max = (uint16_t)max;
    step.tokens = (uint8_t)tokens;
    plan->steps[plan->step_count] = step;
    return &plan->steps[plan->step_count++];
}

/* What is close to its level's max_wait goes first. Returns for how many that is certain; what
 * follows is not to count on those. */
static uint32_t plan_promises(struct planner *w)
{
    struct plan *plan = w->plan;
    struct plan_step step = {.first_lane = (uint16_t)plan->lane_count};
    for (int rank = 0; rank <= plan->max_rank; rank++) {
        const struct level *level = &w->config->levels[rank];
        if (level->max_wait_ms == 0)
            continue;
        int64_t until_ms = age_cutoff(w->config, w->now_ms, age_urgent_ms(level));
        if (!head_by(w, rank, until_ms))
            continue;
        add_lane(w, rank, until_ms, level->max_wait_ms);
        w->claimable[rank]--;
    }
    step.lane_count = (uint8_t)(plan->lane_count - step.first_lane);
    if (step.lane_count > 0)
        add_step(w, step, plan->want, TOKENS_NONE);
    return step.lane_count;
}

static void plan_strict(struct planner *w, uint32_t left)
{
    uint64_t sure = 0;
    for (int rank = 0; rank <= w->plan->max_rank && sure < left; rank++) {
        struct plan_step step = group(w, rank);
        if (step.lane_count > 0)
            add_step(w, step, w->plan->want, TOKENS_NONE);
        sure += w->claimable[rank];
    }
}

/* The level whose turn it is; -1 when none of those that have something has a token left. */
static int richest(const uint32_t *tokens, const bool *has, int max_rank)
{
    int best = -1;
    uint32_t most = 0;
    for (int rank = 0; rank <= max_rank; rank++) {
        if (has[rank] && tokens[rank] > most) {
            most = tokens[rank];
            best = rank;
        }
    }
    return best;
}

/* Which level the step's next message will come from, as far as the heads tell; -1: none. */
static int oldest_rank(const struct planner *w, const struct plan_step *step)
{
    int best = -1;
    int64_t best_ms = 0;
    for (int i = 0; i < step->lane_count; i++) {
        const struct plan_lane *lane = &w->plan->lanes[step->first_lane + i];
        int64_t head_ms = w->view->lanes[lane->slot].head_ms;
        if (w->claimable[lane->rank] > 0 && (best < 0 || head_ms < best_ms)) {
            best = lane->rank;
            best_ms = head_ms;
        }
    }
    return best;
}

/* Which groups still have something, after one of their levels ran dry. */
static bool look_again(const struct planner *w, const struct plan_step *groups, bool *has)
{
    bool any = false;
    for (int rank = 0; rank <= w->plan->max_rank; rank++) {
        has[rank] = oldest_rank(w, &groups[rank]) >= 0;
        any = any || has[rank];
    }
    return any;
}

static void plan_weighted(struct planner *w, uint32_t left)
{
    struct plan *plan = w->plan;
    uint32_t *tokens = w->policy->tokens[plan->max_rank];
    struct plan_step groups[LEVEL_COUNT_MAX], *last = NULL;
    bool has[LEVEL_COUNT_MAX];
    for (int rank = 0; rank <= plan->max_rank; rank++)
        groups[rank] = group(w, rank);
    bool any = look_again(w, groups, has);
    while (any && left > 0) {
        int rank = richest(tokens, has, plan->max_rank);
        if (rank < 0) {
            memcpy(tokens, w->policy->quota, sizeof(w->policy->quota));
            continue;
        }
        if (last && last->rank == rank)
            last->max++;
        else
            last = add_step(w, groups[rank], 1, TOKENS_TAKEN);
        tokens[rank]--;
        left--;
        if (--w->claimable[oldest_rank(w, &groups[rank])] == 0)
            any = look_again(w, groups, has);
    }
    /* Behind the heads nobody knows who is how old: should a step find too little, any will do. */
    for (int rank = 0; w->policy->ages && plan->want > 1 && rank <= plan->max_rank; rank++) {
        if (groups[rank].lane_count > 0)
            add_step(w, groups[rank], plan->want, TOKENS_OWED);
    }
}

typedef void plan_fn(struct planner *w, uint32_t left);

static plan_fn *const planners[] = {
    [POLICY_STRICT] = plan_strict, [POLICY_WEIGHTED] = plan_weighted};

void policy_plan(struct policy *p, const struct queue_config *config, const struct queue_view *view,
                 int max_rank, uint32_t want, int64_t wall_ms, struct plan *plan)
{
    assert(want > 0);
    assert(want <= CLAIM_MAX);
    assert(max_rank < config->level_count);
    struct planner w = {
        .policy = p, .config = config, .view = view, .now_ms = wall_ms, .plan = plan};
    plan->want = (uint32_t)minimum(want, policy_room(config, view));
    plan->step_count = plan->lane_count = 0;
    plan->max_rank = max_rank;
    if (plan->want == 0)
        return;
    for (int rank = 0; rank <= max_rank; rank++) {
        const struct level *level = &config->levels[rank];
        const struct lane_view *lane = &view->lanes[level->slot];
        plan->room[level->slot] = lane_room(level, lane);
        w.claimable[rank] = minimum(lane->ready, plan->room[level->slot]);
    }
    uint32_t first = p->promises ? plan_promises(&w) : 0;
    if (first < plan->want)
        planners[p->kind](&w, plan->want - first);
}

void policy_plan_blind(const struct queue_config *config, int max_rank, uint32_t want,
                       struct plan *plan)
{
    plan->want = want;
    plan->step_count = plan->lane_count = 0;
    plan->max_rank = max_rank;
    for (int rank = 0; rank <= max_rank; rank++) {
        uint8_t slot = config->levels[rank].slot;
        plan->room[slot] = UINT32_MAX;
        plan->lanes[plan->lane_count] = (struct plan_lane){INT64_MAX, 0, slot, (uint8_t)rank};
        plan->steps[plan->step_count++] =
            (struct plan_step){.max = (uint16_t)want,
                               .first_lane = (uint16_t)plan->lane_count++,
                               .lane_count = 1,
                               .rank = (uint8_t)rank,
                               .tokens = TOKENS_OWED};
    }
}

void policy_settle(struct policy *p, const struct plan *plan)
{
    if (p->kind != POLICY_WEIGHTED)
        return;
    uint32_t *tokens = p->tokens[plan->max_rank];
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct plan_step *step = &plan->steps[i];
        uint32_t *left = &tokens[step->rank];
        if (step->tokens == TOKENS_OWED)
            *left -= (uint32_t)minimum(*left, step->found);
        else if (step->tokens == TOKENS_TAKEN)
            *left =
                (uint32_t)minimum(p->quota[step->rank], *left + (uint64_t)step->max - step->found);
    }
}

/* Explaining */

/* How many of level `other`, with `have` tokens, go before level `rank` spends a token of which it
 * has `left`: until it has no more than that; on a tie the more urgent goes first. */
static uint64_t served_before(uint64_t have, uint64_t left, bool more_urgent)
{
    uint64_t down_to = more_urgent ? left - 1 : left;
    return have > down_to ? have - down_to : 0;
}

uint64_t policy_weighted_ahead(const struct policy *p, const struct queue_config *config,
                               const uint64_t before[LEVEL_COUNT_MAX], int rank)
{
    const uint32_t *tokens = p->tokens[config->level_count - 1];
    uint64_t k = before[rank], quota = p->quota[rank], ahead = k;
    bool this_cycle = k < tokens[rank];
    uint64_t later = this_cycle ? 0 : k - tokens[rank];
    uint64_t cycles = later / quota; /* whole ones between this one and its own */
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
