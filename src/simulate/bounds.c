#include "simulate/bounds.h"

void bounder_init(struct bounder *b, const struct queue_config *config,
                  const struct capacity *capacity)
{
    *b = (struct bounder){
        .config = config,
        .window_us = capacity->claim_max * capacity->service_us,
        .in_window = (uint64_t)capacity->consumers * capacity->claim_max,
    };
    if (config->max_in_flight > 0 && config->max_in_flight < b->in_window)
        b->in_window = config->max_in_flight;
    policy_init(&b->policy, config);
    b->cycle = policy_cycle(&b->policy, config);
}

int bounds_feeder(const struct queue_config *config, int rank)
{
    while (rank + 1 < config->level_count && config->levels[rank + 1].age_ms > 0)
        rank++;
    return rank;
}

/* How many claims until one that counts as `rank`, with `ahead` before it. */
static int64_t claims_until(const struct bounder *b, int rank, uint64_t ahead)
{
    if (b->config->policy == POLICY_STRICT)
        return rank == 0 ? (int64_t)ahead + 1 : BOUND_NONE;
    uint64_t quota = b->policy.quota[rank];
    return (int64_t)(((ahead + quota) / quota + 1) * b->cycle);
}

/* Whether a level may have to wait beyond its turn: for claims of other levels that cost no token,
 * or because of an in-flight limit. */
static bool disturbed(const struct queue_config *config, int rank)
{
    bool any = config->levels[rank].max_in_flight > 0;
    for (int other = 0; other < config->level_count; other++)
        any = any || (other != rank && config->levels[other].max_wait_ms > 0);
    return any;
}

int64_t bounder_ms(const struct bounder *b, int rank, int to, uint64_t ahead)
{
    int64_t claims = claims_until(b, to, ahead);
    if (claims == BOUND_NONE || disturbed(b->config, rank))
        return BOUND_NONE;
    /* Those of its level that go first to keep its own max_wait cost a claim and no token. */
    if (b->config->levels[rank].max_wait_ms > 0)
        claims += (int64_t)ahead;
    uint64_t windows = ((uint64_t)claims + b->in_window - 1) / b->in_window;
    return (int64_t)(windows * (uint64_t)b->window_us / 1000 + 1);
}

/* The smallest bound over all levels that a message of `rank` comes to count as. */
static int64_t longest_ms(const struct bounder *b, int rank, const uint64_t ahead[LEVEL_COUNT_MAX])
{
    int64_t best = BOUND_NONE, waited_ms = 0;
    for (int to = rank; to >= 0; to--) {
        int64_t ms = bounder_ms(b, rank, to, ahead[to]);
        if (ms != BOUND_NONE && (best == BOUND_NONE || waited_ms + ms < best))
            best = waited_ms + ms;
        if (b->config->levels[to].age_ms == 0)
            break;
        waited_ms += b->config->levels[to].age_ms;
    }
    return best;
}

static void age(const struct queue_config *config, int rank, struct level_bound *out)
{
    out->ages_to = rank;
    out->ages_ms = 0;
    while (out->ages_to > 0 && config->levels[out->ages_to].age_ms > 0)
        out->ages_ms += config->levels[out->ages_to--].age_ms;
}

static double share_of(const struct bounder *b, int rank)
{
    if (b->config->policy == POLICY_STRICT)
        return rank == 0 ? 1 : 0;
    return (double)b->policy.quota[rank] / (double)b->cycle;
}

void bounds_compute(const struct bounder *b, const uint64_t ahead[LEVEL_COUNT_MAX][LEVEL_COUNT_MAX],
                    struct bounds *out)
{
    *out = (struct bounds){
        .cycle = b->config->policy == POLICY_WEIGHTED ? b->cycle : 0,
        .claims_per_second = (double)b->in_window * 1e6 / (double)b->window_us,
    };
    for (int rank = 0; rank < b->config->level_count; rank++) {
        struct level_bound *level = &out->levels[rank];
        level->quota = b->policy.quota[rank];
        bool limited = b->config->levels[rank].max_in_flight > 0;
        level->share = limited ? BOUND_NONE : share_of(b, rank);
        level->next_claims = limited ? BOUND_NONE : claims_until(b, rank, 0);
        level->next_ms = bounder_ms(b, rank, rank, 0);
        level->ahead = ahead[rank][rank];
        level->longest_ms = longest_ms(b, rank, ahead[rank]);
        age(b->config, rank, level);
    }
}
